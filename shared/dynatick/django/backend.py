"""The backend of Django's tasks framework: a task that is enqueued is a task in Dynatick's table.

TASKS = {"default": {"BACKEND": "dynatick.django.backend.DynatickBackend"}}
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

from django.db import close_old_connections, transaction
from django.utils import timezone
from django.utils.module_loading import import_string

from dynatick.actions.handlers import HandlerContext
from dynatick.client import TaskView
from dynatick.django.framework import (
    BaseTaskBackend,
    Task,
    TaskContext,
    TaskError,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_enqueued,
    task_finished,
    task_started,
)
from dynatick.domain import attributes as attr
from dynatick.domain.retry import RetryPolicy
from dynatick.domain.task import Status
from dynatick.errors import ActionError, InvalidInput, PermanentError, Reschedule, RetryableError, TaskNotFound
from dynatick.task_function import TaskFunction, current_client

ACTION = "django"
_WORKER = "dynatick"
_STATUSES: dict[object, Any] = {
    Status.RUNNING: TaskResultStatus.RUNNING,
    Status.WAITING: TaskResultStatus.RUNNING,
    Status.COMPLETED: TaskResultStatus.SUCCESSFUL,
    Status.FAILED: TaskResultStatus.FAILED,
    Status.CANCELLED: TaskResultStatus.FAILED,
}


@dataclass(frozen=True)
class Call:
    """The payload of a task that calls one of Django's."""

    task: str  # where it can be imported from
    args: list[Any] = field(default_factory=list)
    kwargs: dict[str, Any] = field(default_factory=dict)
    queue_name: str = "default"
    backend: str = "default"


class DynatickBackend(BaseTaskBackend):
    """``OPTIONS``: ``on_commit`` (False), whether a task is inserted when the transaction is committed in which it is
    enqueued: True for one of the default database, or the alias of another; and ``retry_policy``, a map as of
    ``retryPolicy``."""

    supports_defer = True
    supports_async_task = True
    supports_get_result = True

    def __init__(self, alias: str, params: Mapping[str, Any]) -> None:
        """Raises InvalidInput for a wrong retry policy."""
        super().__init__(alias, params)
        self._policy = RetryPolicy.from_row(self.options.get("retry_policy"))

    def enqueue(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Inserts a task, and returns its result, which is READY. Raises InvalidTask, TypeError for what JSON can't
        hold, and what ``TaskClient.insert`` raises; with ``on_commit`` the commit raises that."""
        self.validate_task(task)
        result = _result(task, str(uuid.uuid4()), list(args), dict(kwargs), self.alias, enqueued_at=timezone.now())
        function = TaskFunction(ACTION, run, self._policy, None)
        call = Call(task.module_path, result.args, result.kwargs, task.queue_name, self.alias)
        new = function.new_task(call, due_at=_aware(task.run_after), task_id=result.id)

        def insert() -> None:
            current_client().insert_task(new)
            task_enqueued.send(type(self), task_result=result)

        if using := self.options.get("on_commit"):
            transaction.on_commit(insert, using=using if isinstance(using, str) else None)
        else:
            insert()
        return result

    def get_result(self, result_id: str) -> Any:
        """Raises TaskResultDoesNotExist, also if the task's function is not there any more; and StoreError."""
        try:
            view = current_client().get(result_id)
        except (TaskNotFound, InvalidInput) as error:  # no task has such an id
            raise TaskResultDoesNotExist(result_id) from error
        if view.action != ACTION:
            raise TaskResultDoesNotExist(result_id)
        payload = view.payload
        queue_name, backend = (str(payload.get(name, "default")) for name in ("queue_name", "backend"))
        status = _STATUSES.get(view.status, TaskResultStatus.READY)
        try:
            task = _task_of(payload.get("task"), queue_name, backend)
        except (ImportError, ValueError) as error:
            raise TaskResultDoesNotExist(result_id) from error
        result = _result(
            task,
            result_id,
            payload.get("args", []),
            payload.get("kwargs", {}),
            self.alias,
            status=status,
            enqueued_at=view.created_at,
            started_at=view.started_at,
            finished_at=view.finished_at,
            attempts=view.attempt,
            errors=_errors(view),
        )
        if status == TaskResultStatus.SUCCESSFUL:
            object.__setattr__(result, "_return_value", view.result)  # as Django's own backends set it
        return result


def run(call: Call, context: HandlerContext) -> object:
    """The handler of the action ``django``: calls the task's function, in connections that are not too old."""
    try:
        task = _task_of(call.task, call.queue_name, call.backend)
    except (ImportError, ValueError) as error:
        raise PermanentError(f"{call.task}: {error}") from error
    now = timezone.now()
    result = _result(
        task,
        context.task_id,
        call.args,
        call.kwargs,
        call.backend,
        status=TaskResultStatus.RUNNING,
        started_at=now,
        attempts=context.attempt,
    )
    sender = type(task.get_backend())
    finished = partial(_finish, sender, result)
    close_old_connections()
    task_started.send(sender, task_result=result)
    arguments = (TaskContext(task_result=result), *result.args) if task.takes_context else result.args
    try:
        value = task.call(*arguments, **result.kwargs)
    except (ActionError, Reschedule) as error:  # what it asks of Dynatick
        finished(error)
        raise
    except Exception as error:
        finished(error)
        raise RetryableError(f"{_path(type(error))}: {error}") from error
    finally:
        close_old_connections()
    finished(None)
    return value


def _finish(sender: type, result: Any, error: Exception | None) -> None:
    """Sends Django's signal, which logs the traceback, too. Not for a task that asks to be called again."""
    if isinstance(error, Reschedule):
        return
    status = TaskResultStatus.SUCCESSFUL if error is None else TaskResultStatus.FAILED
    object.__setattr__(result, "status", status)
    object.__setattr__(result, "finished_at", timezone.now())
    if error is not None:
        result.errors.append(TaskError(exception_class_path=_path(type(error)), traceback=str(error)))
    task_finished.send(sender, task_result=result)


def _task_of(path: object, queue_name: str, backend: str) -> Any:
    """A task by its path. Raises ImportError, and ValueError for what is none."""
    task = import_string(str(path))
    if not isinstance(task, Task):
        raise ValueError(f"expected a task of Django, and it is a {type(task).__name__}")
    return task.using(queue_name=queue_name, backend=backend)


def _result(
    task: Any,
    task_id: str,
    args: Any,
    kwargs: Any,
    backend: str,
    *,
    status: Any = TaskResultStatus.READY,
    enqueued_at: datetime | None = None,
    started_at: datetime | None = None,
    finished_at: datetime | None = None,
    attempts: int = 0,
    errors: Sequence[Any] = (),
) -> Any:
    return TaskResult(
        task=task,
        id=task_id,
        status=status,
        enqueued_at=enqueued_at,
        started_at=started_at,
        finished_at=finished_at,
        last_attempted_at=started_at,
        args=args,
        kwargs=kwargs,
        backend=backend,
        errors=list(errors),
        worker_ids=[_WORKER] * attempts,
    )


def _errors(view: TaskView) -> list[Any]:
    """The errors of the latest attempts of this run; only the last one has its traceback."""
    attempts = view.row.get(attr.ATTEMPTS)
    errors = [
        _error(str(one[attr.ERROR]), one.get(attr.TRACE))
        for one in (attempts if isinstance(attempts, list) else [])
        if isinstance(one, Mapping) and attr.ERROR in one and one.get(attr.RUN) == view.run
    ]
    if view.status == Status.CANCELLED:
        return [*errors, _error("it was cancelled", None)]
    return [_error(view.error, None)] if view.error is not None and not errors else errors


def _error(text: str, trace: object) -> Any:
    """Its class is that of Python's exception, if that has been one."""
    path, colon, _ = f"{text} ".partition(": ")  # the space at the end of an error without a text is not kept
    try:
        known = bool(colon) and isinstance(import_string(path), type)
    except ImportError:
        known = False
    traceback = text if trace is None else f"{trace}\n{text}"
    return TaskError(exception_class_path=path if known else _path(PermanentError), traceback=traceback)


def _path(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _aware(instant: datetime | None) -> datetime | None:
    """Without ``USE_TZ``, Django's times are of the default time zone."""
    return timezone.make_aware(instant) if instant is not None and timezone.is_naive(instant) else instant

"""Tasks as Python functions: declared once, scheduled by calling what the declaration makes of them.

    @task("send-reminder")
    def send_reminder(mail: Mail) -> None: ...

    send_reminder.schedule(Mail("ada@example.com", "It is time"), delay=timedelta(hours=2))

The processor imports this module at a cold start, so what only a caller needs is imported where it is used.
"""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from datetime import timedelta
from functools import cached_property
from importlib import import_module
from threading import Lock
from types import ModuleType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar

from dynatick.actions.handlers import Handler, declare
from dynatick.domain import attributes as attr
from dynatick.domain.buckets import Bucket, parse_time
from dynatick.domain.instants import format_instant
from dynatick.domain.limit_keys import check_limit_key
from dynatick.domain.retry import RetryPolicy
from dynatick.errors import ConfigurationError, InvalidInput, ScheduleDiffers, ScheduleNotFound, TaskExists
from dynatick.tracing import insert_span

if TYPE_CHECKING:
    from dynatick.client import InsertCounts, NewTask, ScheduleView, TaskClient, TaskView
    from dynatick.client.batches import BatchInserted
    from dynatick.client.new_task import Composed
    from dynatick.domain.buckets import Time

Payload = TypeVar("Payload")
More = ParamSpec("More")
Result = TypeVar("Result")


_IF_EXISTS = ("refuse", "keep", "replace")


class use_client:
    """Schedules with this client from now on, for the rest of the process; as a context manager, until its end."""

    def __init__(self, client: TaskClient) -> None:
        self._earlier = _Current.client
        _Current.client = client

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        _Current.client = self._earlier


class _Current:
    """The client of all task functions of this process."""

    client: TaskClient | None = None
    lock = Lock()


def current_client() -> TaskClient:
    """The client of ``use_client``, else that of the environment. Raises ConfigurationError without a table."""
    from dynatick.client import TaskClient

    with _Current.lock:
        if _Current.client is None:
            _Current.client = TaskClient.connect()
        return _Current.client


def task(
    name: str,
    *,
    permanent: type[Exception] | tuple[type[Exception], ...] = (),
    timeout_seconds: int | None = None,
    retry_policy: RetryPolicy | Mapping[str, object] | None = None,
    upgrade: Callable[[Any], object] | None = None,
    subject: Callable[[Any], str] | None = None,
    limit_key: str | Callable[[Any], str | None] | None = None,
) -> Callable[[Callable[Concatenate[Payload, More], Result]], TaskFunction[Payload, More, Result]]:
    """Declares a function as the handler of the action ``name``, and makes it a ``TaskFunction``.

    The function takes (payload) or (payload, context). An ``async def`` runs in an event loop that all of a process
    share. An exception of a type in ``permanent`` fails the task at once; after any other, its retry policy applies.
    ``timeout_seconds``: the longest that a call takes; a call does not start with less time left. ``retry_policy``: of
    the tasks and schedules that are made by this function's methods. ``upgrade``: a function that turns a payload of
    the type that its parameter is annotated with, an older one, into one of the present type, when a task with such a
    payload runs; what it raises counts as raised by the function. ``subject``: what a payload is about, such as
    ``lambda mail: f"customer:{mail.customer}"``, to find tasks by. ``limit_key``: a text such as ``customer:4711``, or
    a function of the payload as for ``subject``; ``KeyLimits`` says of its class how many tasks of a key run at once,
    or begin in a second. Raises ConfigurationError for a function that can't be a handler.
    """
    declared = declare(name, permanent=permanent, timeout_seconds=timeout_seconds, upgrade=upgrade)
    try:
        policy = (
            retry_policy
            if retry_policy is None or isinstance(retry_policy, RetryPolicy)
            else RetryPolicy.from_row(retry_policy)
        )
        if limit_key is not None and not callable(limit_key):
            check_limit_key(limit_key)
    except InvalidInput as error:
        raise ConfigurationError(f"handler {name}", str(error)) from None

    def make(function: Callable[Concatenate[Payload, More], Result]) -> TaskFunction[Payload, More, Result]:
        return TaskFunction(name, declared(function), policy, subject, limit_key)

    return make


class TaskFunction(Generic[Payload, More, Result]):
    """A declared function. Calling it calls the function, here and now; its methods schedule tasks that will.

    They use the client of ``use_client``, else that of the environment (``TaskClient.connect``), and raise what that
    raises. A payload is checked by the function's type before anything is written (InvalidInput).
    """

    def __init__(
        self,
        action: str,
        function: Callable[Concatenate[Payload, More], Result],
        retry_policy: RetryPolicy | None,
        subject: Callable[[Payload], str] | None,
        limit_key: str | Callable[[Payload], str | None] | None = None,
    ) -> None:
        functools.update_wrapper(self, function)
        self.action = action
        self._function = function
        self._retry_policy = retry_policy
        self._subject = subject
        self._limit_key = limit_key
        self._declared: list[tuple[str, Payload, Mapping[str, object]]] = []  # schedules

    def __call__(self, payload: Payload, /, *more: More.args, **named: More.kwargs) -> Result:
        return self._function(payload, *more, **named)

    def __repr__(self) -> str:
        return f"<task {self.action}: {self._function.__module__}.{self._function.__qualname__}>"

    def schedule(
        self,
        payload: Payload,
        *,
        due_at: Time | None = None,
        delay: timedelta | None = None,
        task_id: str | None = None,
        limit_key: str | None = None,
        if_exists: str = "refuse",
        until: timedelta | None = None,
    ) -> TaskView:
        """Inserts a task, and returns it as it was written. Without a time, it runs as soon as it can.

        ``due_at``: an aware datetime, RFC 3339 text with its offset, epoch seconds, or a bucket. Without ``task_id``
        the id is derived from action, payload and ``due_at``, so that the same call again makes no second task; if
        there is no ``due_at``, each call makes a task of its own. ``limit_key``: instead of that of ``@task``.
        ``if_exists``, ``until``, errors: as of ``TaskClient.insert``, which refuses another task of this id
        (TaskExists), keeps it, replaces it if it waits, or postpones it; a task that is to be replaced or postponed
        needs a ``task_id``.
        """
        if task_id is None and (if_exists in ("replace", "postpone") or (if_exists == "keep" and due_at is None)):
            raise InvalidInput("task_id", None, f"expected an id: if_exists={if_exists!r} is about a task that has it")
        task = self.new_task(payload, due_at=due_at, delay=delay, task_id=task_id, limit_key=limit_key)
        return current_client().insert_task(task, if_exists=if_exists, until=until)

    def insert_follow_up(
        self,
        payload: Payload,
        *,
        task_id: str,
        of: str,
        due_at: Time | None = None,
        delay: timedelta | None = None,
        limit_key: str | None = None,
    ) -> TaskView:
        """For ``HandlerContext.schedule``. ``of``: the id of the task whose handler inserts it."""
        task = self.new_task(payload, due_at=due_at, delay=delay, task_id=task_id, limit_key=limit_key)
        return current_client().insert_task(task, if_exists="keep", follow_up_of=of)

    def transact_put(
        self,
        payload: Payload,
        *,
        due_at: Time | None = None,
        delay: timedelta | None = None,
        task_id: str | None = None,
        limit_key: str | None = None,
        form: str = "resource",
    ) -> dict[str, dict[str, Any]]:
        """An entry of ``TransactWriteItems`` that inserts the task that ``schedule`` would insert, together with your
        own data: both, or neither. ``form`` and what happens if the id exists: as of ``TaskClient.transact_put``."""
        task = self.new_task(payload, due_at=due_at, delay=delay, task_id=task_id, limit_key=limit_key)
        return current_client().transact_put(task, form=form)

    def schedule_many(
        self, payloads: Iterable[Payload], *, due_at: Time | None = None, delay: timedelta | None = None
    ) -> InsertCounts:
        """Inserts a task for each payload, in batches; times and ids as of ``schedule``.

        Returns how many were inserted, with the errors of others: an invalid payload does not affect them. Raises
        NoneInserted if none is in the table. For times or ids that differ, ``client.insert_many`` takes what
        ``new_task`` returns.
        """
        from dynatick.client.insertion import count, insert_lazily

        client = current_client()

        def compose(payload: Any) -> Composed:
            return client.compose(self.new_task(payload, due_at=due_at, delay=delay))

        with insert_span(self.action):
            return count(insert_lazily(client.store, payloads, compose))

    def schedule_batch(
        self,
        payloads: Iterable[Payload],
        *,
        batch_id: str,
        due_at: Time | None = None,
        delay: timedelta | None = None,
        over: timedelta | str | None = None,
        total: int | None = None,
        then: Mapping[str, object] | None = None,
        limit_key: str | None = None,
    ) -> BatchInserted:
        """Inserts a task for each payload, as the members of one batch: any number, for a fraction of the price.

        The arguments are those of ``TaskClient.batches.insert``, which says what the same call does again. ``then``: a
        task for when all have ended, such as ``write_report.after(Report(…))``. ``limit_key``: of all members; instead
        of that of ``@task``, and needed if that is a function. Raises InvalidInput without it, and with the number of
        the first payload that the function refuses. ``subject`` of ``@task`` doesn't apply: members have none.
        """
        from dynatick.client.batch_loading import invalid_payload

        if limit_key is None and callable(self._limit_key):
            expected = "give limit_key=: all members of a batch have one; or insert the tasks by schedule_many"
            raise InvalidInput(attr.LIMIT_KEY, f"a function of each payload, that of {self.action}", expected)

        def encoded() -> Iterator[Mapping[str, object]]:
            for number, payload in enumerate(payloads):
                try:
                    yield self.encode(payload)
                except InvalidInput as error:
                    raise invalid_payload(error, number) from None

        own = None if callable(self._limit_key) else self._limit_key
        return current_client().batches.insert(
            encoded(),
            batch_id=batch_id,
            action=self.action,
            due_at=due_at,
            delay=delay,
            over=over,
            total=len(payloads) if total is None and isinstance(payloads, Sized) else total,
            then=then,
            retry_policy=self._retry_policy,
            limit_key=own if limit_key is None else limit_key,
        )

    def after(self, payload: Payload, *, delay: timedelta | None = None) -> Mapping[str, object]:
        """The task that follows a batch: its ``then``. ``delay``: so long after all have ended."""
        task = self.new_task(payload, delay=delay, task_id="-")
        policy = None if task.retry_policy is None else self._retry_policy
        row = {
            attr.ACTION: task.action,
            attr.PAYLOAD: task.payload,
            attr.DELAY_SECONDS: task.delay_seconds,
            attr.RETRY_POLICY: None if policy is None else policy.to_row(),
            attr.SUBJECT: task.subject,
            attr.LIMIT_KEY: task.limit_key,
        }
        return {name: value for name, value in row.items() if value is not None}

    def every(
        self,
        expression: str,
        payload: Payload,
        *,
        schedule_id: str | None = None,
        timezone: str | None = None,
        start_date: Time | None = None,
        end_date: Time | None = None,
        catch_up: str | None = None,
        overlap: str | None = None,
        expected_within_seconds: int | None = None,
        limit_key: str | None = None,
        if_exists: str = "refuse",
    ) -> ScheduleView:
        """Inserts a schedule, and returns it; if it is there already, nothing changes.

        ``expression`` and the other arguments: as of ``TaskClient.schedules.insert``. Without ``schedule_id`` the id is
        derived from action, expression, timezone and payload. ``limit_key``: instead of that of ``@task``.
        ``if_exists``: what is done with a schedule of this function that has this id and is defined otherwise.
        ``refuse`` raises ScheduleDiffers, which names what differs; ``keep`` returns it as it is; ``replace`` changes
        it, as ``TaskClient.schedules.update`` does. Raises TaskExists if anything else has this id.
        """
        from dynatick.client.insertion import InsertUnknown, Refused
        from dynatick.client.schedules import UPDATABLE

        if if_exists not in _IF_EXISTS:
            raise InvalidInput("if_exists", if_exists, f"expected {', '.join(_IF_EXISTS[:-1])} or {_IF_EXISTS[-1]}")
        client, encoded = current_client(), self.encode(payload)
        if schedule_id is None:
            schedule_id = self._derived_id(expression=expression, timezone=timezone, payload=encoded)
        recurrence = {
            attr.SCHEDULE_EXPRESSION: expression,
            attr.SCHEDULE_EXPRESSION_TIMEZONE: timezone,
            attr.START_DATE: start_date,
            attr.END_DATE: end_date,
            attr.CATCH_UP: catch_up,
            attr.OVERLAP: overlap,
            attr.EXPECTED_WITHIN_SECONDS: expected_within_seconds,
        }
        row = self._schedule(schedule_id, payload, encoded, recurrence | {attr.LIMIT_KEY: limit_key})
        (result,) = client.insert_rows([row])
        if isinstance(result, Refused | InsertUnknown):
            raise result.error
        try:
            found = client.schedules.get(schedule_id)
        except ScheduleNotFound:
            raise TaskExists(schedule_id) from None
        if found.has_ended:
            raise TaskExists(schedule_id)
        composed = client.schedules.compose(row).row
        differences = found.differences(composed, row)
        if not differences or (if_exists == "keep" and found.action == self.action):
            return found
        if "action" in differences or "subject" in differences:
            raise ScheduleDiffers(schedule_id, differences, "that can't be changed: choose another id, or delete it")
        if if_exists == "replace":
            edits: dict[str, Any] = {name: composed.get(UPDATABLE[name]) for name in differences}
            return client.schedules.update(schedule_id, **edits)
        raise ScheduleDiffers(schedule_id, differences, 'if_exists="replace" changes it')

    def declare_schedule(
        self,
        expression: str,
        payload: Payload,
        *,
        schedule_id: str,
        timezone: str | None = None,
        start_date: Time | None = None,
        end_date: Time | None = None,
        catch_up: str | None = None,
        overlap: str | None = None,
        expected_within_seconds: int | None = None,
        limit_key: str | None = None,
    ) -> None:
        """Declares a schedule of the deployment that has this function, when its module is imported. Writes nothing.

        ``dynatick deploy``, ``dynatick dev`` and ``dynatick schedule sync`` create it, change it when the declaration
        has changed, and remove it when that is gone. The arguments are those of ``every``; checked when it is read.
        """
        recurrence = {
            attr.SCHEDULE_EXPRESSION: expression,
            attr.SCHEDULE_EXPRESSION_TIMEZONE: timezone,
            attr.START_DATE: start_date,
            attr.END_DATE: end_date,
            attr.CATCH_UP: catch_up,
            attr.OVERLAP: overlap,
            attr.EXPECTED_WITHIN_SECONDS: expected_within_seconds,
            attr.LIMIT_KEY: limit_key,
        }
        self._declared.append((schedule_id, payload, recurrence))

    def declared(self) -> Iterator[dict[str, object]]:
        """The rows of its declared schedules. Raises InvalidInput for a payload that the function refuses, or a wrong
        date."""
        for schedule_id, payload, recurrence in self._declared:
            try:
                row = self._schedule(schedule_id, payload, self.encode(payload), recurrence)
                for name in (attr.START_DATE, attr.END_DATE):
                    if name in row:
                        row[name] = _canonical(row[name], name)  # type: ignore[arg-type]
            except InvalidInput as error:
                raise InvalidInput(f"schedules.{schedule_id}.{error.field}", error.value, error.expected) from None
            yield row

    def _schedule(
        self, schedule_id: str, payload: Payload, encoded: Mapping[str, object], recurrence: Mapping[str, object]
    ) -> dict[str, object]:
        given = {
            attr.TASK_ID: schedule_id,
            **recurrence,
            attr.LIMIT_KEY: self._limit_key_of(payload, recurrence.get(attr.LIMIT_KEY)),
            attr.ACTION: self.action,
            attr.PAYLOAD: encoded,
            attr.RETRY_POLICY: None if self._retry_policy is None else self._retry_policy.to_row(),
            attr.SUBJECT: None if self._subject is None else self._subject(payload),
        }
        return {name: value for name, value in given.items() if value is not None}

    def new_task(
        self,
        payload: Payload,
        *,
        due_at: Time | None = None,
        delay: timedelta | None = None,
        task_id: str | None = None,
        limit_key: str | None = None,
    ) -> NewTask:
        """The task that ``schedule`` would insert, for ``TaskClient.insert_many``."""
        from dynatick.client.new_task import NewTask, seconds_of

        encoded, seconds = self.encode(payload), seconds_of(delay)
        if task_id is None:
            if due_at is None:
                task_id = f"{self.action}-{uuid.uuid4().hex}"
            else:
                task_id = self._derived_id(due=_canonical(due_at), payload=encoded)
        return NewTask(
            task_id=task_id,
            due_at=due_at,
            delay_seconds=seconds,
            action=self.action,
            payload=encoded,
            retry_policy=self._retry_policy,
            subject=None if self._subject is None else self._subject(payload),
            limit_key=self._limit_key_of(payload, limit_key),
        )

    def _limit_key_of(self, payload: Payload, given: Any = None) -> Any:
        """``given``: that of the call, which wins."""
        if given is not None:
            return given
        return self._limit_key(payload) if callable(self._limit_key) else self._limit_key

    def encode(self, payload: Payload) -> Mapping[str, object]:
        """The payload as a row holds it. Raises InvalidInput, without the values, for one that the function refuses."""
        return self._handler.encode(payload)

    @cached_property
    def _handler(self) -> Handler:
        # When it is first needed: the payload's type may be defined further down in its module.
        return Handler(self.action, self._function)

    def _derived_id(self, **given: object) -> str:
        from dynatick.bulk.task_definition import with_id

        return str(with_id({attr.ACTION: self.action, **given}, prefix=f"{self.action}-")[attr.TASK_ID])


def declared_schedules(module: str | ModuleType) -> list[dict[str, object]]:
    """The schedules that the functions of a module declare by ``declare_schedule``, for ``TaskClient.schedules.sync``:
    rows under the table's names. ``module``: one that is imported, or its name. Raises InvalidInput for a payload that
    a function refuses; and what the import raises."""
    module = import_module(module) if isinstance(module, str) else module
    functions = {id(one): one for one in list(vars(module).values()) if isinstance(one, TaskFunction)}
    return [row for function in functions.values() for row in function.declared()]


def _canonical(time: Time, name: str = attr.DUE_AT) -> str:
    """The same text for the same time, however it is written."""
    parsed = parse_time(str(time) if isinstance(time, Bucket) else time, name)
    return str(parsed) if isinstance(parsed, Bucket) else format_instant(parsed)

"""Celery, with its later messages and its periodic ones in Dynatick's table (extra ``celery``).

    app = Celery("shop", broker=…)        # dynatick.celery.Celery: in the application and in its workers
    celery_messages = handler_for(app)    # in the module of the handlers: sends each message when it is due

A message that is due later is a task of the action ``celery`` until then, and so is each occurrence of a schedule. A
worker gets it when it is due, without an ETA.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import celery
import celery.app.control
import celery.beat
from celery.schedules import crontab, schedule
from celery.utils.time import maybe_make_aware
from kombu.utils import json as kombu_json

from dynatick.actions.handlers import HandlerContext, declare
from dynatick.client.schedule_sync import SyncResult
from dynatick.domain import attributes as attr
from dynatick.domain.retry import RetryPolicy
from dynatick.domain.task import TERMINAL
from dynatick.errors import InvalidInput, TaskExists, TaskNotFound, TransitionRefused
from dynatick.store.codec import decode, encode
from dynatick.task_function import TaskFunction, current_client

ACTION = "celery"
MIN_DELAY_SECONDS = 60
"""What is due sooner goes to the broker at once, as it does without Dynatick; the setting ``dynatick_min_delay``."""

# A broker that is away for an hour or two delays messages, and loses none.
_RETRY_POLICY = RetryPolicy(maximum_retry_attempts=30, max_backoff_seconds=600)
# Arguments of send_task that are of the calling process.
_OF_THE_CALLER = ("producer", "connection", "publisher", "router", "result_cls", "task_type", "add_to_parent")
_CONTENT = ("task", "args", "kwargs")
_OF_THE_TASK = (
    "queue", "routing_key", "exchange", "priority", "expires", "serializer", "delivery_mode", "compression",
    "time_limit", "soft_time_limit", "ignore_result",
)  # fmt: skip
_WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")


@dataclass(frozen=True)
class Message:
    """The payload of a task that sends a Celery message."""

    task: str
    args: list[Any] = field(default_factory=list)
    kwargs: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)  # of Celery's send_task: queue, task_id, link …


class Control(celery.app.control.Control):
    """``app.control``: a message that waits in the table is revoked there, too."""

    def revoke(self, task_id: str | Iterable[str], *arguments: Any, **named: Any) -> Any:
        """Cancels the tasks that wait, and tells the workers, as ever. Raises StoreError."""
        client = current_client()
        for one in [task_id] if isinstance(task_id, str) else list(task_id):
            with suppress(TaskNotFound, InvalidInput, TransitionRefused):  # no message of ours, or it is sent already
                if client.get(one).action == ACTION:
                    client.cancel(one)
        return super().revoke(task_id, *arguments, **named)


class Celery(celery.Celery):
    """A Celery application whose messages with an ``eta`` or a ``countdown`` wait in Dynatick's table.

    The id of the Dynatick task is that of the Celery task. What is due within ``dynatick_min_delay`` seconds (60) goes
    to the broker at once, with its ETA.
    """

    control_cls = "dynatick.celery:Control"

    def send_task(
        self,
        name: str,
        args: Any = None,
        kwargs: Any = None,
        countdown: float | None = None,
        eta: datetime | str | None = None,
        task_id: str | None = None,
        **options: Any,
    ) -> Any:
        """Raises InvalidInput for arguments that JSON can't hold, and what ``TaskClient.insert`` raises. With the id of
        a message that waits in the table already, it returns that one; if it is another message, it raises
        TaskExists. After one that has ended, it waits again under the same id."""
        now: datetime = self.now()
        delay, due_at = (timedelta(seconds=countdown), None) if countdown else (None, self._instant(eta))
        wait = delay if due_at is None else due_at - now
        if wait is None or wait < timedelta(seconds=self.conf.get("dynatick_min_delay", MIN_DELAY_SECONDS)):
            return super().send_task(name, args, kwargs, countdown=countdown, eta=eta, task_id=task_id, **options)
        task_id = task_id or str(uuid.uuid4())
        parent = self.current_worker_task
        kept = {key: value for key, value in options.items() if value is not None and key not in _OF_THE_CALLER}
        if parent is not None:
            kept.setdefault("root_id", parent.request.root_id or parent.request.id)
            kept.setdefault("parent_id", parent.request.id)
        expires = kept.get("expires")
        if isinstance(expires, (int, float)):  # it counts from now on
            kept["expires"] = (now + timedelta(seconds=expires)).isoformat()
        elif isinstance(expires, datetime):
            kept["expires"] = expires.isoformat()
        message = _message(name, args, kwargs, {**kept, "task_id": task_id})
        row_id = _row_id(task_id, options)
        insert = partial(handler_for(self).schedule, message, due_at=due_at, delay=delay, task_id=row_id)
        found = insert(if_exists="keep")
        if found.action == ACTION and found.status in TERMINAL:  # of an earlier use of the id
            found = insert(if_exists="replace")
        if found.action != ACTION or _content(found.payload) != _content(asdict(message)):
            raise TaskExists(row_id)
        result = (options.get("result_cls") or self.AsyncResult)(task_id)
        result.ignored = options.get("ignore_result")
        if parent is not None and options.get("add_to_parent", True):
            parent.add_trail(result)
        return result

    def _instant(self, eta: datetime | str | None) -> datetime | None:
        if not eta:
            return None
        instant = datetime.fromisoformat(eta) if isinstance(eta, str) else eta
        return maybe_make_aware(instant)  # type: ignore[no-any-return] # without an offset it is UTC, as to a worker


def handler_for(app: celery.Celery, *, beat_schedule: bool = False) -> TaskFunction[Message, [HandlerContext], str]:
    """The handler of the action ``celery``, for the module of the handlers: it sends a message to the app's broker.

    ``beat_schedule``: the app's periodic tasks are declared schedules of the deployment, and no ``celery beat`` runs.
    The app need not be a ``dynatick.celery.Celery``.
    """

    def send(message: Message, context: HandlerContext) -> str:
        """Returns the id of the Celery task; another attempt sends the same one."""
        options = _decoded(message.options)
        task_id = options.pop("task_id", None) or str(uuid.uuid5(uuid.NAMESPACE_OID, context.idempotency_key))
        app.send_task(message.task, _decoded(message.args), _decoded(message.kwargs), task_id=task_id, **options)
        return task_id

    return _Sender(app, declare(ACTION, permanent=(), timeout_seconds=None)(send), beat_schedule)


class _Sender(TaskFunction[Message, [HandlerContext], str]):
    def __init__(
        self, app: celery.Celery, send: Callable[[Message, HandlerContext], str], has_beat_schedule: bool
    ) -> None:
        super().__init__(ACTION, send, _RETRY_POLICY, None)
        self._app, self._has_beat_schedule = app, has_beat_schedule

    def declared(self) -> Iterator[dict[str, object]]:
        yield from super().declared()
        if self._has_beat_schedule:
            self._app.loader.import_default_modules()  # they may add periodic tasks, as in a beat
            self._app.finalize()
            yield from declared_entries(self._app)


class Scheduler(celery.beat.Scheduler):
    """For ``celery beat --scheduler dynatick``: the entries are schedules in the table, and beat sends nothing itself.

    It creates, changes and removes them when it starts. Any number of beats may run, or none: Dynatick's ticks make the
    messages. The schedules belong to ``celery-<name of the app>``.
    """

    def setup_schedule(self) -> None:
        """Raises SchedulingError for a name that is a task's, or a schedule's of another owner; InvalidInput for an
        entry that can't be a schedule, and before the handler is deployed; StoreError."""
        super().setup_schedule()
        owner = f"celery-{self.app.main or 'app'}"
        changes = current_client().schedules.sync(declared_entries(self.app), owner=owner, prune=True)
        for change in changes:
            self.logger.info("beat: %s: %s", change.schedule_id, change.result)
        conflicts = [f"{one.schedule_id}: {one.reason}" for one in changes if one.result is SyncResult.CONFLICT]
        if conflicts:
            raise celery.beat.SchedulingError("; ".join(conflicts))

    def tick(self, *_: Any, **__: Any) -> float:
        """Sends nothing. Returns how many seconds beat may sleep."""
        return float(self.max_interval)


def declared_entries(app: celery.Celery) -> Iterator[dict[str, object]]:
    """The app's periodic tasks as schedules, for ``TaskClient.schedules.sync``: those of ``beat_schedule`` and of
    ``add_periodic_task``, and Celery's own clean-up of results. ``catch_up`` among an entry's ``options`` says which
    missed runs are made up for: ``none``, ``latest`` or ``all``. Raises InvalidInput."""
    beat = celery.beat.Scheduler(app, schedule={}, lazy=True)
    beat.merge_inplace(app.conf.beat_schedule)
    beat.install_default_entries(beat.schedule)
    for name, entry in beat.schedule.items():
        options = dict(entry.options or {})
        catch_up = options.pop("catch_up", None)
        task_of_app = app.tasks.get(entry.task)
        own = {key: value for key in _OF_THE_TASK if (value := getattr(task_of_app, key, None)) is not None}
        headers = {**options.get("headers", {}), "celery_beat_task": True}  # as a beat of Celery's has it
        try:
            message = _message(entry.task, entry.args, entry.kwargs, {**own, **options, "headers": headers})
            recurrence = _recurrence(entry.schedule, app)
        except InvalidInput as error:
            raise InvalidInput(f"beat_schedule.{name}.{error.field}", error.value, error.expected) from None
        yield {
            attr.TASK_ID: name,
            **recurrence,
            **({} if catch_up is None else {attr.CATCH_UP: catch_up}),
            attr.OVERLAP: "allow",  # what it makes is a message, not the work
            attr.ACTION: ACTION,
            attr.PAYLOAD: asdict(message),
            attr.RETRY_POLICY: _RETRY_POLICY.to_row(),
        }


def _recurrence(when: Any, app: celery.Celery) -> dict[str, object]:
    if type(when) is schedule:
        minutes = when.run_every / timedelta(minutes=1)
        if minutes < 1 or minutes % 1:
            raise InvalidInput("schedule", str(when), "expected whole minutes")
        return {attr.SCHEDULE_EXPRESSION: f"rate({minutes:.0f} {'minute' if minutes == 1 else 'minutes'})"}
    if type(when) is not crontab:
        raise InvalidInput("schedule", str(when), "expected a crontab, or a number of whole minutes")
    zone = app.conf.timezone or ("UTC" if app.conf.enable_utc else None)
    if zone is None:
        raise InvalidInput("timezone", None, "expected a time zone: without enable_utc it would be each machine's own")
    days, weekdays = _written(when.day_of_month, 31), ",".join(_WEEKDAYS[day] for day in sorted(when.day_of_week))
    if len(when.day_of_week) == 7:
        weekdays = "?"
    elif days == "*":
        days = "?"
    else:
        expected = "expected a day of the month or a day of the week: Celery wants both, and a cron(…) has one of them"
        raise InvalidInput("schedule", str(when), expected)
    minutes, hours, months = _written(when.minute, 60), _written(when.hour, 24), _written(when.month_of_year, 12)
    return {
        attr.SCHEDULE_EXPRESSION: f"cron({minutes} {hours} {days} {months} {weekdays} *)",
        attr.SCHEDULE_EXPRESSION_TIMEZONE: str(zone),
    }


def _written(values: Iterable[int], size: int) -> str:
    numbers = sorted(values)
    return "*" if len(numbers) == size else ",".join(map(str, numbers))


def _message(name: str, args: Any, kwargs: Any, options: Mapping[str, Any]) -> Message:
    """Raises InvalidInput for what JSON can't hold."""

    def plain(what: str, value: Any) -> Any:
        try:
            return json.loads(kombu_json.dumps(value, allow_nan=False))
        except (TypeError, ValueError) as error:
            raise InvalidInput(what, f"that of {name}", f"expected what Celery's JSON can hold: {error}") from None

    return Message(
        name, plain("args", list(args or ())), plain("kwargs", dict(kwargs or {})), plain("options", dict(options))
    )


def _row_id(task_id: str, options: Mapping[str, Any]) -> str:
    """One for each message of a Celery task: its replacements and retries have the same task id."""
    replaced, retries = (options.get(name) or 0 for name in ("replaced_task_nesting", "retries"))
    return f"{task_id}{f'.replaced-{replaced}' if replaced else ''}{f'.retry-{retries}' if retries else ''}"


def _content(payload: Mapping[str, object]) -> object:
    """What makes a message another one, as the table gives it: 1e30 is the whole number there."""
    return decode(encode({name: payload.get(name) for name in _CONTENT}))


def _decoded(value: object) -> Any:
    return kombu_json.loads(json.dumps(value))

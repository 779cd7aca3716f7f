"""An installation in memory on a virtual clock: the real client, scheduler, ticks, retries and schedules.

Everything runs in the caller's thread, one thing after another and in the same order each time. A test moves the clock;
the ticks of the time between run, each at its time. Ticks that would find nothing are skipped.
"""

from __future__ import annotations

import json
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import ModuleType
from typing import Any

from dynatick.actions.dead_letter import message_of
from dynatick.actions.testing import MemoryDeadLetters
from dynatick.client import TaskClient, TaskView
from dynatick.client.batch_members import members_of
from dynatick.client.completions import Completions
from dynatick.client.views import instant_or_none
from dynatick.domain import attributes as attr
from dynatick.domain.buckets import Bucket, Grid, instant_of, minute_of
from dynatick.domain.instants import format_instant, parse_instant
from dynatick.domain.lifecycle import state_of
from dynatick.domain.limit_keys import parse_limits
from dynatick.domain.normalise import Defaults
from dynatick.domain.numbers import is_whole
from dynatick.domain.occurrences import Overdue
from dynatick.domain.packs import Pack
from dynatick.domain.row import RowView
from dynatick.domain.task import Row
from dynatick.engine.conditional_write import create_many
from dynatick.engine.cursor import count_idle_ticks, read_cursor, save
from dynatick.engine.invocation import max_timeout_seconds
from dynatick.engine.rules import MAX_TICK_MINUTES, TICKS_PLANNED, Precision, Rules
from dynatick.errors import DynatickError, InvalidInput, TaskExists
from dynatick.store.codec import decode
from dynatick.task_function import TaskFunction, use_client
from dynatick.testing.actions import INVOCATION, Actions
from dynatick.testing.executions import Execution, Journal, Waiting
from dynatick.testing.functions import Functions, rule_event
from dynatick.testing.queues import WakeUps
from dynatick.testing.table import Table

_MAX_AT_ONCE = 10_000  # deliveries of wake-ups at one instant
_MAX_SHOWN = 20  # lines of each list in a report


class VirtualInstallation:
    """Dynatick in memory. As a context manager, task functions schedule here until its end.

    ``handlers``: the module with the task functions, or its name; None: only the built-in actions. ``start``: an aware
    datetime; None: the present one, rounded down to a tick. The other arguments are the template's parameters.
    Built-in actions that would call something (webhook, sns …) call nothing: they check their payload, are recorded and
    complete; ``answer`` gives them another end.

    Nothing expires, however much time passes. Raises ConfigurationError for a module or limits that can't be used, and
    InvalidInput.
    """

    def __init__(
        self,
        handlers: str | ModuleType | None = "handlers",
        *,
        start: datetime | None = None,
        tick_minutes: int = 1,
        precision: str = "tick",
        shard_count: int = 1,
        key_limits: str = "",
    ) -> None:
        self._grid = Grid(tick_minutes=tick_minutes, shard_count=shard_count)
        begin = datetime.now(UTC) if start is None else _instant(start, "start")
        self._last_tick = self._tick_through(begin)
        self._now = begin if start is not None else instant_of(self._last_tick)
        self._is_running = False
        self._journal = Journal(self._clock)
        self._table = Table(self._journal.recorded)
        self._letters = MemoryDeadLetters()
        self._wake_ups = WakeUps() if _precision(precision, tick_minutes) is Precision.SECOND else None
        self._actions = Actions(handlers, self._journal)
        rules = Rules(
            grid=self._grid,
            defaults=Defaults(key_limits=parse_limits(one.strip() for one in key_limits.split(",") if one.strip())),
            precision=_precision(precision, tick_minutes),
            index_lag=timedelta(),
            in_one_thread=True,
            max_timeout_seconds=max_timeout_seconds(INVOCATION),
        )
        self._functions = Functions(
            store=self._table,
            clock=self._clock,
            actions=self._actions,
            rules=rules,
            dead_letters=self._letters,
            wake_ups=self._wake_ups,
            pause=lambda seconds: None,
            jitter=lambda: 0.0,
            life=INVOCATION,
        )
        self.client: TaskClient = _Client(self._table, clock=self._clock)
        """The client of this installation, for what task functions have no method for."""
        self._used: use_client | None = None
        self._tick(self._last_tick)

    def __enter__(self) -> VirtualInstallation:
        self._used = use_client(self.client)
        return self

    def __exit__(self, *_: object) -> None:
        if self._used is not None:
            self._used.__exit__()
            self._used = None

    def __repr__(self) -> str:
        return f"<VirtualInstallation at {format_instant(self._now)}: {len(self.executed)} executed>"

    # -- time ------------------------------------------------------------------------------------------------------

    @property
    def now(self) -> datetime:
        """The time of the virtual clock, in UTC."""
        return self._now

    def advance(self, by: timedelta | None = None, /, **delta: float) -> None:
        """Moves the clock on, by a timedelta or by its arguments (``days=1, hours=2``), and runs what is due by then.

        With precision tick, a task runs at the first tick at or after its due time. Raises InvalidInput for a negative
        time.
        """
        expected = "expected a timedelta, or its arguments such as hours=2"
        if (by is None) != bool(delta):
            raise InvalidInput("advance", by, expected)
        try:
            to = self._now + (timedelta(**delta) if by is None else by)
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidInput("advance", delta if by is None else by, f"{expected} ({error})") from None
        self.advance_to(to)

    def advance_to(self, instant: datetime) -> None:
        """Moves the clock on to an aware datetime, and runs what is due by then. Raises InvalidInput."""
        to = _instant(instant, "instant")
        if to < self._now:
            expected = f"expected {format_instant(self._now)} or later: the clock can't go back"
            raise InvalidInput("instant", format_instant(to), expected)
        self._advance_to(to)

    def run_due(self) -> None:
        """Runs what is due now. The clock moves on to the next tick, if that takes one, and no further."""
        self._advance_to(self._now)
        if any(waiting.due_at <= self._now for waiting in self.waiting):
            self._advance_to(instant_of(self._last_tick + self._grid.tick_minutes))

    # -- what happened ---------------------------------------------------------------------------------------------

    @property
    def executed(self) -> list[Execution]:
        """All attempts so far, in the order in which they ended."""
        return list(self._journal.executions)

    def executed_of(self, action: str | TaskFunction[Any, Any, Any]) -> list[Execution]:
        """The attempts of one action. Raises InvalidInput for an unknown one."""
        name = self._actions.known(action)
        return [execution for execution in self._journal.executions if execution.action == name]

    @property
    def dead_letters(self) -> list[Mapping[str, Any]]:
        """The messages in the dead-letter queue: one for each task that failed for good, as a consumer reads them."""
        self._handle_stream()
        return [json.loads(message_of(letter)) for letter in self._letters.letters]

    @property
    def overdue(self) -> list[Overdue]:
        """The occurrences of schedules that were missed, or did not complete within ``expectedWithinSeconds``."""
        return list(self._functions.overdue)

    @property
    def waiting(self) -> list[Waiting]:
        """The tasks that have not ended and the next occurrences of schedules, soonest first."""
        self._handle_stream()
        return self._waiting()

    def task(self, task_id: str) -> TaskView:
        """The task as the client reads it. Raises TaskNotFound."""
        self._handle_stream()
        return self.client.get(task_id)

    def report(self) -> str:
        """What has run and what waits, for a person. The pytest plugin shows it if a test fails. Changes nothing."""
        waiting = self._waiting()
        executed = [_line(one.at, one.action, one.task_id, _outcome(one)) for one in self._journal.executions]
        lines = [f"now {format_instant(self._now)}", f"executed {len(executed)}", *executed[-_MAX_SHOWN:]]
        lines += [f"waiting {len(waiting)}"]
        lines += [_line(one.due_at, one.action, one.task_id, f"attempt {one.attempt}") for one in waiting[:_MAX_SHOWN]]
        lines += [f"dead letters {len(self._letters.letters)}"]
        return "\n".join(lines)

    # -- what is to happen -----------------------------------------------------------------------------------------

    def fail(
        self,
        action: str | TaskFunction[Any, Any, Any],
        *,
        with_: Exception,
        times: int = 1,
    ) -> None:
        """The next attempts of an action raise this instead of running the handler. Raises InvalidInput."""
        if not isinstance(with_, Exception):
            raise InvalidInput("with_", with_, 'expected an exception, such as RetryableError("no answer")')
        if not is_whole(times) or times < 1:
            raise InvalidInput("times", times, "expected a whole number from 1 on")
        self._actions.failures.setdefault(self._actions.known(action), deque()).extend([with_] * times)

    def answer(self, action: str | TaskFunction[Any, Any, Any], function: Callable[[Any], object]) -> None:
        """Makes an action call this function with the payload instead of doing its work, from now on: what it returns
        is the result, and what it raises counts as in a handler. Raises InvalidInput."""
        if not callable(function):
            raise InvalidInput("function", function, "expected a function of the payload")
        self._actions.answers[self._actions.known(action)] = function

    def insert_unchecked(
        self,
        action: str | TaskFunction[Any, Any, Any],
        payload: Mapping[str, object],
        *,
        task_id: str | None = None,
        due_at: datetime | None = None,
    ) -> TaskView:
        """Inserts a task with this payload, as an earlier version of its handler left it, whatever the handler's type
        says now. Without ``due_at``, it runs as soon as it can. Raises InvalidInput, TaskExists."""
        known = self._actions.known(action)
        unchecked = TaskClient(self._table, clock=self._clock, check_actions=False)
        return unchecked.insert(
            f"{known}-{uuid.uuid4().hex}" if task_id is None else task_id,
            due_at=due_at,
            action=known,
            payload=payload,
        )

    def transact(self, entries: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Inserts the tasks of a transaction, all or none, as the table does with what ``transact_put`` returns. The
        others of its entries, which are for your own tables, are returned. Raises TaskExists, and InvalidInput for two
        tasks of one id."""
        entries = list(entries)
        ours = [put for one in entries if (put := one.get("Put", {})).get("TableName") == self._table.table]
        rows = [decode(put["Item"]) if isinstance(put["Item"][attr.TASK_ID], Mapping) else put["Item"] for put in ours]
        for n, row in enumerate(rows):
            task_id = RowView(row).task_id
            if self._table.get(task_id) is not None:
                raise TaskExists(task_id)
            if any(RowView(other).task_id == task_id for other in rows[:n]):
                raise InvalidInput(attr.TASK_ID, task_id, "expected another id: a transaction writes each item once")
        create_many(self._table, rows)
        return [one for one in entries if one.get("Put") not in ours]

    # -- the machinery ---------------------------------------------------------------------------------------------

    def _clock(self) -> datetime:
        return self._now

    def _waiting(self) -> list[Waiting]:
        rows = (one for row in self._table.open_rows() if not _only_awaits(row) for one in self._with_members(row))
        return sorted(map(_waiting, rows), key=lambda one: (one.due_at, one.task_id))

    def _with_members(self, row: Row) -> Iterable[Row]:
        """The row; of a pack, its members that wait."""
        pack = Pack.of(row)
        return [row] if pack is None else members_of(self._table, row, pack, state_of(row))

    def _advance_to(self, end: datetime) -> None:
        if self._is_running:
            raise DynatickError("a handler can't move the clock: it is called while the clock moves")
        self._is_running = True
        try:
            self._handle_stream()
            at_once = 0
            while True:
                self._skip_idle_ticks(end)
                tick = self._last_tick + self._grid.tick_minutes
                woken_at = None if self._wake_ups is None else self._wake_ups.first_at
                if woken_at is not None and woken_at < instant_of(tick) and woken_at <= end:
                    at_once = at_once + 1 if woken_at <= self._now else 0
                    if at_once > _MAX_AT_ONCE:
                        raise DynatickError(f"at {format_instant(self._now)} there is always more that is due at once")
                    self._now = max(self._now, woken_at)
                    self._deliver()
                elif instant_of(tick) <= end:
                    self._tick(tick)
                else:
                    break
            self._now = end
        finally:
            self._is_running = False

    def _tick(self, tick: int) -> None:
        """The rule's event, with all that it starts."""
        self._last_tick, self._now = tick, max(self._now, instant_of(tick))
        self._handle(rule_event(instant_of(tick)))

    def _deliver(self) -> None:
        """The queue of wake-ups delivers the first."""
        assert self._wake_ups is not None
        body = json.dumps(self._wake_ups.take_first())
        self._handle({"Records": [{"eventSource": "aws:sqs", "messageId": "1", "body": body}]})

    def _handle(self, event: Mapping[str, object]) -> None:
        with use_client(self.client):  # for the follow-ups of handlers
            for _ in self._functions.run(event):
                self._journal.raise_interrupt()
                self._handle_stream()

    def _handle_stream(self) -> None:
        while records := self._table.take_records():
            self._functions.deliver(records)

    def _tick_through(self, instant: datetime) -> int:
        """The last tick at or before an instant."""
        return minute_of(instant) // self._grid.tick_minutes * self._grid.tick_minutes

    def _skip_idle_ticks(self, end: datetime) -> None:
        """Goes on to the last tick before anything can happen, up to ``end``.

        A tick is idle if nothing is open in a bucket through its own, nor in those whose wake-ups it plans. Its pass
        would poll empty buckets and move the cursor; what many of them leave there is written at once.
        """
        step = self._grid.tick_minutes
        ahead = TICKS_PLANNED * step if self._wake_ups is not None else 0
        if self._wake_ups is not None and self._wake_ups.first_at is not None:
            return
        last = self._tick_through(end)
        first_open = self._table.first_open_bucket()
        if first_open is not None:
            last = min(last, self._grid.tick_after(first_open.minute - ahead - 1) - step)
        skipped = (last - self._last_tick) // step
        if skipped < 1:
            return
        first = self._last_tick + step
        self._last_tick, self._now = last, max(self._now, instant_of(last))
        for shard in range(self._grid.shard_count):
            cursor = count_idle_ticks(self._table, read_cursor(self._table, shard, self._now), last, self._grid)
            save(
                self._table,
                cursor,
                replace(
                    cursor,
                    closed_through=last,
                    drained_through=last - step,
                    polled_through=last,
                    checkpoint=last,
                    checkpoint_at=instant_of(last),
                    idle_since=cursor.idle_since or str(Bucket(first)),
                    idle_ticks=cursor.idle_ticks + skipped,
                    last_tick=str(Bucket(last)),
                    planned_through=last + ahead if ahead else None,
                ),
                writer="skipped ticks",
            )


class _Client(TaskClient):
    @property
    def _completions(self) -> Completions:
        """Of a handler that has not returned, nobody waits for the return: all run in one thread, and the virtual clock
        would never say that the time is up."""
        return replace(super()._completions, waits=lambda timeout: iter(()))


def _precision(value: object, tick_minutes: int) -> Precision:
    try:
        precision = Precision(str(value))
    except ValueError:
        raise InvalidInput("precision", value, "expected tick or second") from None
    if precision is Precision.SECOND and tick_minutes > MAX_TICK_MINUTES:
        expected = f"expected at most {MAX_TICK_MINUTES} with precision second"
        raise InvalidInput("tick_minutes", tick_minutes, expected)
    return precision


def _instant(value: object, name: str) -> datetime:
    """An aware datetime, in UTC. Raises InvalidInput."""
    if not isinstance(value, datetime):
        raise InvalidInput(name, value, "expected an aware datetime, such as datetime(2027, 1, 1, tzinfo=UTC)")
    return parse_instant(value, name)


def _only_awaits(row: Row) -> bool:
    """Whether a schedule has no further run, and is open only until its last ones have completed."""
    return RowView(row).is_recurring and attr.AWAITED in row and attr.NEXT_OCCURRENCE_AT not in row


def _waiting(row: Row) -> Waiting:
    view = TaskView.from_row(row)
    bucket = Bucket.canonical(view.bucket)
    next_run = instant_or_none(row.get(attr.NEXT_OCCURRENCE_AT)) if attr.AWAITED in row else None
    bucket_at = bucket.instant if bucket is not None else view.created_at
    completion_by = RowView(row).lease_until if RowView(row).awaits_completion else None
    due_at = completion_by or view.next_attempt_at or view.due_at or next_run or bucket_at
    assert due_at is not None  # only what has a bucket waits
    return Waiting(
        action=view.action or "",
        task_id=view.task_id,
        payload=view.payload,
        due_at=due_at,
        attempt=view.attempt + 1,
        schedule_id=None if (of := row.get(attr.SCHEDULE_ID)) is None else str(of),
    )


def _outcome(execution: Execution) -> str:
    error = "" if execution.error is None else f": {type(execution.error).__name__}: {execution.error}"
    attempt = "" if execution.attempt == 1 else f", attempt {execution.attempt}"
    return f"{execution.outcome}{attempt}{error}"


def _line(at: datetime, action: str, task_id: str, text: str) -> str:
    return f"  {format_instant(at)}  {action}  {task_id}  {text}"

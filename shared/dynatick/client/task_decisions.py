"""Decides the update of a task at the time of its write: cancel, reschedule, redrive, restore, or run at the next tick.

Many waiting tasks get one time for all, or each its own time shifted. Each decision raises TransitionRefused for a task
whose state does not allow it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal

from dynatick.client.new_task import not_before_next_tick, payload_of, time_of
from dynatick.client.settings_cache import SettingsCache
from dynatick.client.task_update import Decide, require, state_shown
from dynatick.client.views import number_or
from dynatick.domain import attributes as attr
from dynatick.domain import lifecycle
from dynatick.domain.batches import tasks_changed
from dynatick.domain.buckets import Bucket, Grid, Time, minute_of
from dynatick.domain.conditional_update import ConditionalUpdate
from dynatick.domain.instants import EXPECTED_RANGE, format_instant, in_range, up_to_millisecond
from dynatick.domain.normalise import Defaults, TaskTime, needs_normalising, task_time
from dynatick.domain.row import RowView, due_of, in_own_shard, is_terminal
from dynatick.domain.task import Row, Status, check_payload
from dynatick.engine.ports import Clock
from dynatick.errors import InvalidInput, TransitionRefused
from dynatick.store.codec import with_item


@dataclass(frozen=True, kw_only=True, slots=True)
class Rescheduling:
    """The new time of tasks: the instant ``to``, or a ``shift`` of each task's own time."""

    to: datetime | None = None
    shift: timedelta = timedelta()
    began: datetime
    clock: Clock
    grid: Grid
    _back: set[str] = field(default_factory=set)  # shifted to a bucket that may still be read

    def decide(self, row: Row) -> ConditionalUpdate:
        """The update of one task. Raises TransitionRefused, InvalidInput."""
        require(row, "reschedule")
        bucket, due_at = self.target(row)
        return lifecycle.reschedule(row, bucket=bucket, due_at=due_at)

    def target(self, row: Row) -> tuple[Bucket, datetime]:
        """The bucket and the due instant of one task. Raises InvalidInput."""
        shard_key = RowView(row).shard_key
        due_at = self.to or self._shifted(row)
        target = self.grid.bucket_of(shard_key, due_at)
        bucket = not_before_next_tick(target, shard_key, now=self.clock(), grid=self.grid)
        present = RowView(row).bucket
        if present is not None and present.minute == bucket.minute:
            bucket = present  # it keeps its shard, so that it is not listed again
        elif present is not None and self.shift and (bucket.minute < present.minute) == (self.shift > timedelta()):
            self._back.add(RowView(row).task_id)
        return bucket, due_at if target.minute == bucket.minute else self.began

    def is_done(self, row: Row) -> bool:
        """Whether a task was moved already: its bucket may be read after that."""
        if RowView(row).task_id in self._back:
            return True
        bucket = RowView(row).bucket
        if bucket is None or RowView(row).is_unscheduled:
            return False
        if row.get(attr.DUE_AT) == format_instant(self.began):  # to the next tick, and ticks go on meanwhile
            return True
        if self.to is None or row.get(attr.DUE_AT) != format_instant(self.to):
            return False
        return bucket.minute <= self.grid.tick_at_or_after(self.to)

    def _shifted(self, row: Row) -> datetime:
        """The shifted time of a task."""
        at = own_time(row, now=self.began, grid=self.grid)
        try:
            return in_range(at + self.shift, row.get(attr.DUE_AT), attr.DUE_AT)
        except OverflowError:
            raise InvalidInput(attr.DUE_AT, row.get(attr.DUE_AT), EXPECTED_RANGE) from None


def own_time(row: Row, *, now: datetime, grid: Grid) -> datetime:
    """When a task is due, or is to be attempted again, in whatever bucket it waits. Raises InvalidInput."""
    due = due_of(RowView(row).task_id, row.get(attr.DUE_AT), row.get(attr.NEXT_ATTEMPT_AT))
    if due is None or needs_normalising(row):
        return task_time(row, now=now, grid=grid, defaults=Defaults()).due_at
    return due.at


@dataclass(frozen=True, slots=True)
class PayloadChange:
    """The payload that failed tasks are redriven with: another one, or each one's own with some fields changed."""

    payload: object  # None: its own
    set_fields: Mapping[str, object]
    unset_fields: Collection[str]
    check: Callable[[str, object], None]  # gets a task's action and the payload; raises InvalidInput

    @classmethod
    def of(
        cls,
        payload: object,
        set_fields: Mapping[str, object] | None,
        unset_fields: Collection[str],
        check: Callable[[str, object], None],
    ) -> PayloadChange:
        """Raises InvalidInput."""
        fields = {} if set_fields is None else payload_of(set_fields)
        assert isinstance(fields, dict)
        if payload is not None and (fields or unset_fields):
            raise InvalidInput(attr.PAYLOAD, "a map", "expected either a whole payload, or fields of it")
        if both := sorted(fields.keys() & set(unset_fields)):
            raise InvalidInput(f"{attr.PAYLOAD}.{both[0]}", fields[both[0]], "expected either a value, or none")
        return cls(None if payload is None else payload_of(payload), fields, unset_fields, check)

    def for_row(self, row: Row) -> object:
        """The payload of a task; None: it keeps its own. Raises InvalidInput for one that its action refuses."""
        changed = self.payload
        if changed is None:
            if not self.set_fields and not self.unset_fields:
                return None
            both = {**check_payload(row.get(attr.PAYLOAD)), **self.set_fields}
            changed = {name: value for name, value in both.items() if name not in self.unset_fields}
        if isinstance(action := row.get(attr.ACTION), str):
            self.check(action, changed)
        with_item({**row, attr.PAYLOAD: changed})
        return changed


class TaskDecisions:
    """Makes functions that return the update of a row, by the current settings."""

    def __init__(self, settings_cache: SettingsCache, clock: Clock) -> None:
        self.settings_cache, self.clock = settings_cache, clock

    def cancelled(self) -> Decide:
        """Cancels a task."""
        retention_days = self.settings_cache.defaults().retention_days

        def decide(row: Row) -> ConditionalUpdate:
            require(row, "cancel")
            return lifecycle.cancel(row, now=self.clock(), retention_days=retention_days)

        return decide

    def rescheduled(self, task_id: str, times: Mapping[str, object]) -> Decide:
        """Moves a task to another time. Raises InvalidInput for an invalid time."""
        place = self.placing(task_id, times)

        def decide(row: Row) -> ConditionalUpdate:
            require(row, "reschedule")
            _, bucket, due_at = place(row, self.clock())
            return lifecycle.reschedule(row, bucket=bucket, due_at=due_at)

        return decide

    def placing(
        self, task_id: str, times: Mapping[str, object]
    ) -> Callable[[Row, datetime], tuple[TaskTime, Bucket, datetime]]:
        """Returns the time that is given, and where a task goes with it: its bucket, and when it is due; at the next
        tick, if the time has passed. Raises InvalidInput for an invalid time."""
        grid = self.settings_cache.grid()
        when = time_of(task_id, times, now=self.clock(), grid=grid)
        self.settings_cache.check_shard(when.bucket.shard)

        def place(row: Row, now: datetime) -> tuple[TaskTime, Bucket, datetime]:
            bucket = in_own_shard(row, not_before_next_tick(when.bucket, task_id, now=now, grid=grid), grid)
            return when, bucket, when.due_at if bucket.minute == when.bucket.minute else now

        return place

    def rescheduling(
        self, due_at: Time | None, delay_seconds: float | Decimal | None, shift: timedelta | None
    ) -> Rescheduling:
        """Moves many tasks to one time, or shifts each task's own. Raises InvalidInput unless there is exactly one."""
        began, grid = self.clock(), self.settings_cache.grid()
        if shift is None:
            when = time_of("any", {attr.DUE_AT: due_at, attr.DELAY_SECONDS: delay_seconds}, now=began, grid=grid)
            return Rescheduling(to=when.due_at, began=began, clock=self.clock, grid=grid)
        if due_at is not None or delay_seconds is not None or not shift:
            raise InvalidInput("shift", str(shift), "expected one time, or a shift that is not zero")
        return Rescheduling(shift=shift, began=began, clock=self.clock, grid=grid)

    def redriven(self, change: PayloadChange | None = None) -> Decide:
        """Starts a failed task anew, at the next tick, as another run. ``change``: of its payload."""

        def decide(row: Row, bucket: Bucket, now: datetime) -> ConditionalUpdate:
            require(row, "redrive")
            payload = None if change is None else change.for_row(row)
            return lifecycle.redrive(row, bucket=bucket, due_at=now, run=next_run(row), payload=payload)

        return self.next_tick(decide)

    def restored(self) -> Decide:
        """Takes a cancellation back: to the next tick, if the task's own comes before it."""

        def decide(row: Row, bucket: Bucket, now: datetime) -> ConditionalUpdate:
            require(row, "restore")
            _require_members_left(row, "restore")
            _require_attempts_left(row)
            own = RowView(row).bucket
            is_to_come = own is not None and own.minute >= bucket.minute
            return lifecycle.restore(row, now=now, bucket=None if is_to_come else bucket)

        return self.next_tick(decide)

    def run_at_once(self) -> Decide:
        """Moves a task to the next tick; an ended one starts anew, as another run."""

        def decide(row: Row, bucket: Bucket, now: datetime) -> ConditionalUpdate:
            require(row, "run")
            if is_terminal(row):
                _require_members_left(row, "run")
                return lifecycle.redrive(row, bucket=bucket, due_at=now, run=next_run(row))
            return lifecycle.reschedule(row, bucket=bucket, due_at=now)

        return self.next_tick(decide)

    def next_tick(self, decide: Callable[[Row, Bucket, datetime], ConditionalUpdate]) -> Decide:
        """Calls ``decide`` with the bucket of the next tick, and the present."""
        grid = self.settings_cache.grid()

        def decide_now(row: Row) -> ConditionalUpdate:
            now = self.clock()
            return decide(row, Bucket(grid.tick_after(minute_of(now)), grid.shard_of(RowView(row).shard_key)), now)

        return decide_now


def _require_members_left(row: Row, action: str) -> None:
    """Raises TransitionRefused for the pack of a batch that would run none of its members."""
    if not tasks_changed(row):
        instead = f"no member is left in this pack; {action} members by their own ids"
        raise TransitionRefused(RowView(row).task_id, action, state_shown(row), (), instead=instead)


def _require_attempts_left(row: Row) -> None:
    """Raises TransitionRefused for a task that was cancelled while it waited for the completion of its last attempt:
    restored, it would be attempted once more than its policy allows."""
    view = RowView(row)
    if view.attempts_made >= view.retry_policy.maximum_attempts and not view.is_pack:
        instead = "its attempts are used up; run it now, which begins a new run"
        raise TransitionRefused(view.task_id, "restore", Status.CANCELLED, (), instead=instead)


def revised(row: Row, *, payload: object, check: Callable[[str, object], None]) -> ConditionalUpdate:
    """Gives a task that waits or has failed another payload. ``check`` gets the task's action and the payload."""
    require(row, "change")
    if isinstance(action := row.get(attr.ACTION), str):
        check(action, payload)
    return lifecycle.revise(row, payload=payload)


def is_due(row: Row, now: datetime) -> bool:
    """Whether a waiting task is due, so that the next tick runs it."""
    due = due_of(RowView(row).task_id, row.get(attr.DUE_AT), row.get(attr.NEXT_ATTEMPT_AT))
    return due is not None and due.at <= up_to_millisecond(now)


def next_run(row: Row) -> int:
    return max(number_or(row.get(attr.RUN), 1), 1) + 1

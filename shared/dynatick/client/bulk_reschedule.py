"""Gives many waiting tasks another time: one time for all, or each its own time shifted."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from dynatick.client import task_update
from dynatick.client.new_task import not_before_next_tick
from dynatick.domain import attributes as attr
from dynatick.domain.buckets import Grid
from dynatick.domain.conditional_update import ConditionalUpdate
from dynatick.domain.instants import EXPECTED_RANGE, format_instant, in_range
from dynatick.domain.normalise import Defaults, task_time
from dynatick.domain.row import RowView
from dynatick.domain.task import Row
from dynatick.engine.ports import Clock
from dynatick.errors import InvalidInput


@dataclass(frozen=True, kw_only=True, slots=True)
class Rescheduling:
    """The new time of tasks: the instant ``to``, or a ``shift`` of each task's own time."""

    to: datetime | None = None
    shift: timedelta = timedelta()
    began: datetime
    clock: Clock
    grid: Grid

    def decide(self, row: Row) -> ConditionalUpdate:
        """The update of one task. Raises TransitionRefused, InvalidInput."""
        task_id = RowView(row).task_id
        due_at = self.to or self._shifted(row)
        target = self.grid.bucket_of(task_id, due_at)
        bucket = not_before_next_tick(target, task_id, now=self.clock(), grid=self.grid)
        present = RowView(row).bucket
        if present is not None and present.minute == bucket.minute:
            bucket = present  # it keeps its shard, so that it is not listed again
        return task_update.rescheduled(
            row, bucket=bucket, due_at=due_at if target.minute == bucket.minute else self.began
        )

    def is_done(self, row: Row) -> bool:
        """Whether a task was moved already: its bucket may be read after that."""
        bucket = RowView(row).bucket
        if bucket is None or RowView(row).is_unscheduled:
            return False
        if row.get(attr.DUE_AT) == format_instant(self.began):  # to the next tick, and ticks go on meanwhile
            return True
        if self.to is None or row.get(attr.DUE_AT) != format_instant(self.to):
            return False
        return bucket.minute <= self.grid.tick_at_or_after(self.to)

    def _shifted(self, row: Row) -> datetime:
        """The shifted time of a task: of its due time, or of the bucket in which it waits for a retry."""
        at = task_time(row, now=self.began, grid=self.grid, defaults=Defaults()).due_at
        try:
            return in_range(at + self.shift, row.get(attr.DUE_AT), attr.DUE_AT)
        except OverflowError:
            raise InvalidInput(attr.DUE_AT, row.get(attr.DUE_AT), EXPECTED_RANGE) from None

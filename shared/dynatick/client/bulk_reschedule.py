"""Another time for many waiting tasks: one for all of them, or each its own, so much later or earlier."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from dynatick.client import task_update
from dynatick.client.new_task import not_before_next_tick
from dynatick.domain.buckets import Bucket, Grid
from dynatick.domain.conditional_update import ConditionalUpdate
from dynatick.domain.instants import EXPECTED_RANGE, format_instant, in_range
from dynatick.domain.normalise import Defaults, task_time
from dynatick.domain.task import Row
from dynatick.engine.ports import Clock
from dynatick.errors import InvalidInput


@dataclass(frozen=True, kw_only=True, slots=True)
class Move:
    """Where tasks go: ``to`` an instant, or by a ``shift`` from where each is."""

    to: datetime | None = None
    shift: timedelta = timedelta()
    began: datetime
    clock: Clock
    grid: Grid

    def decide(self, row: Row) -> ConditionalUpdate:
        """The change of one. Raises TransitionRefused, InvalidInput."""
        task_id = str(row["taskId"])
        due_at = self.to or self._shifted(row)
        wanted = self.grid.bucket_of(task_id, due_at)
        bucket = not_before_next_tick(wanted, task_id, now=self.clock(), grid=self.grid)
        stays = Bucket.canonical(row.get("taskDateTime"))
        if stays is not None and stays.minute == bucket.minute:
            bucket = stays  # in its shard, where it has been met already
        return task_update.rescheduled(
            row, bucket=bucket, due_at=due_at if wanted.minute == bucket.minute else self.began
        )

    def is_done(self, row: Row) -> bool:
        """Whether a row is where it would go: it was moved there, and its bucket is met after that."""
        bucket = Bucket.canonical(row.get("taskDateTime"))
        if bucket is None or row.get("status") is None:
            return False
        if row.get("dueAt") == format_instant(self.began):  # the next tick, which goes on while this works
            return True
        if self.to is None or row.get("dueAt") != format_instant(self.to):
            return False
        return bucket.minute <= self.grid.tick_at_or_after(self.to)

    def _shifted(self, row: Row) -> datetime:
        """From where it is: its time, or the bucket that it waits in to be tried again."""
        at = task_time(row, now=self.began, grid=self.grid, defaults=Defaults()).due_at
        try:
            return in_range(at + self.shift, row.get("dueAt"), "dueAt")
        except OverflowError:
            raise InvalidInput("dueAt", row.get("dueAt"), EXPECTED_RANGE) from None

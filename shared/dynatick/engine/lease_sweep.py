"""Finds expired leases behind the tasks that a pass has still to claim (protocol 10).

A pass claims in order of buckets and ids: in a backlog it would come to a task whose process died only after all that
lie before it, and a continuation would come to one before its position only in its next round. So a pass that is still
behind after ten seconds reads ahead of its claims. The index doesn't say what runs, so this reads the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

from dynatick.domain import attributes as attr
from dynatick.domain.buckets import Bucket
from dynatick.domain.task import is_own_row
from dynatick.engine.claims import LeaseExpired, judge
from dynatick.engine.execution import Execution
from dynatick.engine.expired_leases import ExpiredLeases
from dynatick.engine.io_pool import begin
from dynatick.engine.page_reader import PAGE, cut
from dynatick.engine.poll_window import Segment, Window
from dynatick.engine.report import Resume

SWEEP_INTERVAL = timedelta(seconds=10)
MAX_SWEPT = 1000
"""The most rows that are read each time. Each costs half a read unit for 4 KB."""

_MIN_OF_A_PAGE = 50  # that a page counts for: it costs too if nothing in it is open
_READ = (attr.STATUS, attr.OUTCOME, attr.TASK_DATE_TIME, attr.LEASE_UNTIL, attr.ATTEMPT, attr.ACTION,
         attr.RETRY_POLICY)  # fmt: skip


@dataclass(slots=True)
class LeaseSweep:
    """The sweep of one pass. The coordinator calls ``read_on`` again and again while it has something to claim.

    ``position``: where it goes on, in a continuation too; None: from the oldest bucket on.
    """

    execution: Execution
    window: Window
    expired: ExpiredLeases
    position: Resume | None
    _next_at: datetime = field(init=False)
    _is_reading: bool = False
    _is_complete: bool = False

    def __post_init__(self) -> None:
        self._next_at = self.execution.services.clock() + SWEEP_INTERVAL

    def read_on(self) -> None:
        """Reads on, if it is time to."""
        services = self.execution.services
        now = services.clock()
        if self._is_complete or self._is_reading or now < self._next_at:
            return
        self._next_at, self._is_reading = now + SWEEP_INTERVAL, True
        segments = list(self.window.segments(self.window.open_minutes(), self.position))
        begin(partial(self._read, segments), name="dynatick-sweep", in_one_thread=services.rules.in_one_thread)

    def _read(self, segments: Sequence[Segment]) -> None:
        """Reads as far as it may, in a thread of its own."""
        found: list[tuple[Bucket, LeaseExpired]] = []
        position, fault = self.position, None
        try:
            position = self._find(segments, found)
        except Exception as error:  # the coordinator raises it once everything in flight is recorded
            fault = error
        self.execution.events.put(partial(self._was_read, found, position, fault))

    def _find(self, segments: Sequence[Segment], found: list[tuple[Bucket, LeaseExpired]]) -> Resume | None:
        """Adds expired leases. Returns the position from which on nothing was read; None: all was."""
        swept = 0
        for segment in segments:
            after, is_last = segment.after, False
            while not is_last:
                if swept >= MAX_SWEPT:
                    return Resume(segment.minute, after)
                number, after = self._find_in_page(segment, after, found)
                swept += max(number, _MIN_OF_A_PAGE)
                is_last = after is None
        return None

    def _find_in_page(
        self, segment: Segment, after: str | None, found: list[tuple[Bucket, LeaseExpired]]
    ) -> tuple[int, str | None]:
        """Returns how many rows it has read, and where the next page begins."""
        execution, store = self.execution, self.execution.services.store
        bucket = Bucket(segment.minute, self.window.cursor.shard)
        page = cut(store.query_bucket(bucket, after=after, limit=PAGE), segment.through)
        ids = [
            entry.task_id
            for entry in page.entries
            if not is_own_row(entry.task_id) and (entry.task_id, segment.minute) not in execution.ids
        ]
        rows = store.get_many(ids, consistent=False, only=_READ)
        now = execution.services.clock()
        verdicts = (judge(row, bucket, now=now) for row in rows.values())
        found += [(bucket, verdict) for verdict in verdicts if isinstance(verdict, LeaseExpired)]
        return len(ids), page.after

    def _was_read(
        self, found: Sequence[tuple[Bucket, LeaseExpired]], position: Resume | None, fault: Exception | None
    ) -> None:
        self._is_reading, self.position, self._is_complete = False, position, position is None
        if fault is not None:
            self.execution.keep_fault(fault)
        for bucket, task in found:
            self.expired.add(bucket, task)
        if found:
            self.expired.start_recoveries()

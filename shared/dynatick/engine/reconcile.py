"""Reconcile (protocol 15): a scan that finds every task that no tick would see, and settles it.

The daily reconcile and the doctor are this one scan; what counts as wrong is said in ``diagnosis``.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from dynatick.domain.buckets import Bucket, minute_of
from dynatick.domain.change import Change, Unknown
from dynatick.domain.lifecycle import end_lease, move
from dynatick.domain.task import Row
from dynatick.engine.cursor import Cursor, cursor_id, read_cursor
from dynatick.engine.diagnosis import Finding, Kind, judge_cursors, what_is_wrong
from dynatick.engine.settle import Settler
from dynatick.errors import DynatickError, InvalidInput, StoreError

EXAMPLES = 20

PATIENCE = timedelta(seconds=3)
"""Between the first look at a row and the judgement: one that came in just now is still on its way through the
stream, which is no reason to alarm anybody."""

_MOST_DOUBTFUL = 500


@dataclass(kw_only=True, slots=True)
class Reconciled:
    """What a reconcile found. ``after``: where the next one goes on, None when the whole table was read."""

    scanned: int = 0  # rows that have not ended
    pages: int = 0  # of the whole table
    found: int = 0
    mended: int = 0
    failed: int = 0  # could not be mended, or want a person
    after: str | None = None
    kinds: Counter[str] = field(default_factory=Counter)  # of what was found
    retired: Counter[int] = field(default_factory=Counter)  # open rows in shards that get no new ones; ticks serve them
    examples: list[tuple[str, str]] = field(default_factory=list)  # (taskId, what was wrong), the first few


def reconcile(
    settler: Settler,
    *,
    stop_at: datetime | None,
    clock: Callable[[], datetime],
    after: str | None = None,
    mend: bool = True,
    pause: Callable[[float], None] | None = None,
    tell: Callable[[Finding], None] = lambda finding: None,
    page_read: Callable[[Reconciled], None] = lambda report: None,
) -> Reconciled:
    """Reads the whole table, consistently, until ``stop_at`` (None: to its end); ``mend`` False only reports.

    One row that cannot be mended now does not keep the others from it: it is counted, and found again next time.
    ``pause`` waits (seconds) before rows that may just have come in are judged; None: they are judged at once.
    ``tell`` is called with each finding, once its fate is known, and ``page_read`` after each page.
    """
    scan = _Scan(settler, clock, stop_at, mend, pause, tell)
    scan.judge_cursors(first=after is None)
    while True:
        page = settler.store.scan(after=after)
        scan.report.pages += 1
        scan.look(page.rows)
        after = page.after
        ended = after is None or (stop_at is not None and clock() >= stop_at)
        scan.judge_doubtful(everything=ended)
        page_read(scan.report)
        if ended:
            scan.report.after = after
            return scan.report


class _Scan:
    """One run of it. Rows that look wrong are kept for a moment, and read again before they are judged."""

    def __init__(
        self,
        settler: Settler,
        clock: Callable[[], datetime],
        stop_at: datetime | None,
        mend: bool,
        pause: Callable[[float], None] | None,
        tell: Callable[[Finding], None],
    ) -> None:
        self.settler, self.clock, self.stop_at = settler, clock, stop_at
        self.mend, self.pause, self.tell = mend, pause, tell
        self.report = Reconciled()
        self.drained: Mapping[int, int] = {}  # S by shard
        self.doubtful: deque[tuple[str, datetime]] = deque()  # ids, and when they were seen, oldest first
        self.is_certain = False  # that something is wrong with some row: then there is no need to wait for others

    def judge_cursors(self, *, first: bool) -> None:
        """Reads the cursors. ``first``: this is the beginning of a scan, so that what is wrong is told once."""
        now = self.clock()
        cursors = _read_cursors(self.settler, now, create=self.mend)
        # A missing one would be made where the last minute is drained (14).
        self.drained = {
            shard: minute_of(now) - 1 if cursor is None else cursor.drained_through
            for shard, cursor in cursors.items()
            if not isinstance(cursor, InvalidInput)
        }
        if first:
            for finding in judge_cursors(cursors, self.settler.in_force.grid, now):
                self._note(replace(finding, left="it wants a person") if self.mend else finding)

    def look(self, rows: Sequence[Row]) -> None:
        """The first look at rows."""
        now, in_force = self.clock(), self.settler.in_force
        for row in rows:
            self.report.scanned += 1
            bucket = Bucket.canonical(row.get("taskDateTime"))
            if bucket is not None and in_force.grid.shard_count <= bucket.shard < in_force.shards_ever:
                self.report.retired[bucket.shard] += 1
            if what_is_wrong(row, self.settler, self.drained, now) is not None:
                self.doubtful.append((str(row["taskId"]), now))

    def judge_doubtful(self, *, everything: bool) -> None:
        """Judges the rows that were seen long enough ago; ``everything``: waits for the others, and judges them too."""
        if self.doubtful and (everything or len(self.doubtful) >= _MOST_DOUBTFUL):
            self._wait(PATIENCE - (self.clock() - self.doubtful[-1][1]))
            ripe = len(self.doubtful)
        else:
            ripe = sum(1 for _, seen in self.doubtful if self.clock() - seen >= PATIENCE)
        while ripe:
            batch = [self.doubtful.popleft()[0] for _ in range(min(ripe, _MOST_DOUBTFUL))]
            ripe -= len(batch)
            rows = self.settler.store.get_many(batch)
            for task_id in batch:
                if task_id in rows:
                    self._judge(rows[task_id])

    def _wait(self, left: timedelta) -> None:
        in_time = self.stop_at is None or self.clock() + left < self.stop_at
        if self.pause is not None and left > timedelta() and in_time and not self.is_certain:
            self.pause(left.total_seconds())

    def _judge(self, row: Row) -> None:
        finding = what_is_wrong(row, self.settler, self.drained, self.clock())
        if finding is not None:
            self.is_certain = True
            self._note(self._mended(finding, row) if self.mend else finding)

    def _mended(self, finding: Finding, row: Row) -> Finding:
        try:
            if finding.kind is Kind.STALE_LEASE and not self._bring_forward(row):
                return replace(finding, left=f"{finding.remedy}, if it comes")
            if finding.kind is Kind.ENDLESS_LEASE:
                self._write(end_lease(row, now=self.clock()))
            self.settler.settle(finding.task_id)
        except DynatickError as error:
            return replace(finding, left=str(error))
        return replace(finding, mended=True)

    def _bring_forward(self, row: Row) -> bool:
        """A running task that nobody works on, into the next tick, which takes it over. False if it lies there already,
        or before."""
        bucket = Bucket.parse(row.get("taskDateTime"))
        soon = Bucket(self.settler.in_force.grid.tick_after(minute_of(self.clock())), bucket.shard)
        if bucket <= soon:
            return False
        self._write(move(row, soon))
        return True

    def _write(self, change: Change) -> None:
        """Whoever was first is right; but an answer there must be."""
        result = self.settler.store.write(change)
        if isinstance(result, Unknown):
            raise StoreError(result.error)

    def _note(self, finding: Finding) -> None:
        self.report.found += 1
        self.report.kinds[str(finding.kind)] += 1
        self.report.mended += finding.mended
        self.report.failed += finding.left is not None
        if len(self.report.examples) < EXAMPLES:
            self.report.examples.append((finding.task_id, finding.why))
        self.tell(finding)


def _read_cursors(settler: Settler, now: datetime, *, create: bool) -> Mapping[int, Cursor | InvalidInput | None]:
    """The cursors of all shards that are served, as they are understood."""
    shards = range(settler.in_force.shards_ever)
    rows = settler.store.get_many([cursor_id(shard) for shard in shards])
    found: dict[int, Cursor | InvalidInput | None] = {}
    for shard in shards:
        row = rows.get(cursor_id(shard))
        try:
            if row is None:
                found[shard] = read_cursor(settler.store, shard, now) if create else None
            else:
                found[shard] = Cursor.from_row(shard, row)
        except InvalidInput as error:
            found[shard] = error
    return found

"""Reconcile (protocol 15): a scan that finds every task that no tick would see, and settles it.

The daily reconcile and the doctor are this one scan; what counts as wrong is said in ``diagnosis``. The doctor reads
the table from beginning to end; the daily reconcile reads segments side by side, and keeps its place in each
(``reconcile_round``).
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from dynatick.domain.buckets import Bucket, minute_of
from dynatick.domain.conditional_update import ConditionalUpdate, Unknown
from dynatick.domain.lifecycle import end_lease, move
from dynatick.domain.task import Row
from dynatick.engine.cursor import Cursor, cursor_id, read_cursor
from dynatick.engine.diagnosis import Finding, Kind, judge_cursors, what_is_wrong
from dynatick.engine.placement import Placer
from dynatick.engine.reconcile_round import LEASE, SEGMENTS, Round, Segment, save
from dynatick.errors import DynatickError, InvalidInput, StoreError

EXAMPLES = 20

GRACE_PERIOD = timedelta(seconds=3)
"""Between the first look at a row and the judgement: one that came in just now is still on its way through the
stream, which is no reason to alarm anybody."""

SAVE_EVERY = timedelta(seconds=10)
"""So much of its work is lost with an invocation that is killed, at most."""

_WHOLE_TABLE = Segment()
_MAX_CANDIDATES = 500
_JUDGED_AT_ONCE = 25  # rows that are in memory together, beside the page: they may have 400 KB each
_RESERVE = timedelta(seconds=15)  # at the end of an invocation: for rows that were read and wait, and for the last save


@dataclass(kw_only=True, slots=True)
class Reconciled:
    """What a reconcile found: the doctor in the whole table, the daily one in an invocation."""

    scanned: int = 0  # rows that have not ended
    pages: int = 0  # of the whole table
    found: int = 0
    repaired: int = 0
    failed: int = 0  # could not be repaired, or want a person
    kinds: Counter[str] = field(default_factory=Counter)  # of what was found
    retired: Counter[int] = field(default_factory=Counter)  # open rows in shards that get no new ones; ticks serve them
    examples: list[tuple[str, str]] = field(default_factory=list)  # (taskId, what was wrong), the first few
    # Of the daily reconcile only:
    complete: bool = False  # the round is: the whole table was read
    continued: bool = False  # there is something left, for a new invocation
    leased_elsewhere: bool = False  # another chain works on the round, or has ended it: nothing was done
    problem: str | None = None  # why some segment was not read as far as time allowed
    round: Round | None = None  # as it was left


def reconcile(
    placer: Placer,
    *,
    clock: Callable[[], datetime],
    repair: bool = True,
    pause: Callable[[float], None] | None = None,
    report_finding: Callable[[Finding], None] = lambda finding: None,
    page_read: Callable[[Reconciled], None] = lambda report: None,
) -> Reconciled:
    """Reads the whole table, consistently; ``repair`` False only reports.

    One row that cannot be repaired now does not keep the others from it: it is counted, and found again next time.
    ``pause`` waits (seconds) before rows that may just have come in are judged; None: they are judged at once.
    ``report_finding`` is called with each finding, once its fate is known, and ``page_read`` after each page.
    """
    scan = _Scan(placer, clock, repair=repair, pause=pause, report_finding=report_finding)
    scan.judge_cursors(report=True)
    _SegmentScan(scan, page_read=page_read).run()
    return scan.report


def reconcile_round(
    placer: Placer,
    acquired: Round,
    *,
    is_first: bool,
    hard_end: datetime,
    clock: Callable[[], datetime],
    pause: Callable[[float], None],
) -> Reconciled:
    """Reads on in a round, all unfinished segments side by side, as long as there is time; then releases its lease.

    ``is_first``: the first invocation of a chain, which reports what is wrong with cursors.
    A segment that cannot be read on, or a row that cannot be repaired, does not keep the others from it. Raises
    StoreError if no segment was read on at all, or if that cannot be saved.
    """
    reserve = min(_RESERVE, (hard_end - clock()) / 4)
    scan = _Scan(placer, clock, pause=pause, stop_at=hard_end - reserve, judge_until=hard_end - reserve / 3)
    scan.judge_cursors(report=is_first)
    place = _Place(scan, acquired)

    def read_on(segment: _SegmentScan) -> None:
        try:
            segment.run()
        except DynatickError as error:
            scan.report.problem = str(error)

    with ThreadPoolExecutor(SEGMENTS, thread_name_prefix="dynatick-scan") as threads:
        list(threads.map(read_on, [segment for segment in place.segments if not segment.place.is_done]))
    return place.release()


class _Scan:
    """One run of it: what its segments, which may be read in several threads, have in common."""

    def __init__(
        self,
        placer: Placer,
        clock: Callable[[], datetime],
        *,
        repair: bool = True,
        pause: Callable[[float], None] | None = None,
        report_finding: Callable[[Finding], None] = lambda finding: None,
        stop_at: datetime | None = None,
        judge_until: datetime | None = None,
    ) -> None:
        self.placer, self.clock = placer, clock
        self.repair, self.pause, self.report_finding = repair, pause, report_finding
        self.stop_at = stop_at  # no page is read after it
        self.judge_until = judge_until  # no row is judged after it
        self.is_stopped = False
        self.report = Reconciled()
        self.drained: Mapping[int, int] = {}  # S by shard
        self.is_certain = False  # that something is wrong with some row: then there is no need to wait for others
        self.lock = threading.Lock()  # of the report; nobody waits with it in hand

    def is_over(self, end: datetime | None) -> bool:
        """Whether it was stopped, or ``end`` has come."""
        return self.is_stopped or (end is not None and self.clock() >= end)

    def judge_cursors(self, *, report: bool) -> None:
        """Reads the cursors; ``report``: and reports what is wrong with them."""
        now = self.clock()
        cursors = _read_cursors(self.placer, now, create=self.repair)
        # A missing one would be made where the last minute is drained (14).
        self.drained = {
            shard: minute_of(now) - 1 if cursor is None else cursor.drained_through
            for shard, cursor in cursors.items()
            if not isinstance(cursor, InvalidInput)
        }
        if report:
            for finding in judge_cursors(cursors, self.placer.settings.grid, now):
                self._report(replace(finding, left="it wants a person") if self.repair else finding)

    def check(self, rows: Sequence[Row]) -> list[str]:
        """The first look at a page. Returns the ids of the rows that look wrong."""
        now, settings = self.clock(), self.placer.settings
        buckets = (Bucket.canonical(row.get("taskDateTime")) for row in rows)
        retired = Counter(b.shard for b in buckets if b and settings.grid.shard_count <= b.shard < settings.shards_ever)
        with self.lock:
            self.report.pages += 1
            self.report.scanned += len(rows)
            self.report.retired.update(retired)
        return [str(row["taskId"]) for row in rows if what_is_wrong(row, self.placer, self.drained, now) is not None]

    def wait(self, left: timedelta) -> None:
        """Before rows are judged that were read just now."""
        in_time = self.stop_at is None or self.clock() + left < self.stop_at
        if self.pause is not None and left > timedelta() and in_time and not self.is_certain:
            self.pause(left.total_seconds())

    def judge(self, row: Row) -> None:
        """Judges a row that looked wrong, as it is now."""
        finding = what_is_wrong(row, self.placer, self.drained, self.clock())
        if finding is not None:
            self.is_certain = True
            self._report(self._repaired(finding, row) if self.repair else finding)

    def _repaired(self, finding: Finding, row: Row) -> Finding:
        try:
            if finding.kind is Kind.STALE_LEASE and not self._bring_forward(row):
                return replace(finding, left=f"{finding.remedy}, if it comes")
            if finding.kind is Kind.ENDLESS_LEASE:
                self._write(end_lease(row, now=self.clock()))
            self.placer.place(finding.task_id)
        except DynatickError as error:
            return replace(finding, left=str(error))
        return replace(finding, repaired=True)

    def _bring_forward(self, row: Row) -> bool:
        """A running task that nobody works on, into the next tick, which takes it over. False if it lies there already,
        or before."""
        bucket = Bucket.parse(row.get("taskDateTime"))
        soon = Bucket(self.placer.settings.grid.tick_after(minute_of(self.clock())), bucket.shard)
        if bucket <= soon:
            return False
        self._write(move(row, soon))
        return True

    def _write(self, change: ConditionalUpdate) -> None:
        """Whoever was first is right; but an answer there must be."""
        result = self.placer.store.write(change)
        if isinstance(result, Unknown):
            raise StoreError(result.error)

    def _report(self, finding: Finding) -> None:
        with self.lock:
            self.report.found += 1
            self.report.kinds[str(finding.kind)] += 1
            self.report.repaired += finding.repaired
            self.report.failed += finding.left is not None
            if len(self.report.examples) < EXAMPLES:
                self.report.examples.append((finding.task_id, finding.why))
        self.report_finding(finding)


class _SegmentScan:
    """Reads a segment. Rows that look wrong are kept for a moment, and read again before they are judged."""

    def __init__(
        self,
        scan: _Scan,
        *,
        place: Segment = _WHOLE_TABLE,
        number: int = 0,
        segments: int = 1,
        page_read: Callable[[Reconciled], None] = lambda report: None,
        moved: Callable[[], None] = lambda: None,
    ) -> None:
        self.scan, self.number, self.segments = scan, number, segments
        self.page_read, self.moved = page_read, moved
        self.place = place  # every row up to here is right, or was judged
        self.read_to = place.after
        self.candidates: deque[tuple[str, datetime]] = deque()  # ids, and when they were seen, oldest first

    def run(self) -> None:
        """Reads on from its place to its end, or until the scan is over; at least a page."""
        while True:
            page = self.scan.placer.store.scan(after=self.read_to, segment=self.number, segments=self.segments)
            seen = self.scan.clock()
            self.candidates += [(task_id, seen) for task_id in self.scan.check(page.rows)]
            self.read_to = page.after
            is_last = page.after is None or self.scan.is_over(self.scan.stop_at)
            self._judge_candidates(everything=is_last)
            self.page_read(self.scan.report)
            if is_last:
                return

    def _judge_candidates(self, *, everything: bool) -> None:
        """Judges the rows that were seen long enough ago; ``everything``: waits for the others, and judges them too, as
        far as there is time."""
        if self.candidates and (everything or len(self.candidates) >= _MAX_CANDIDATES):
            self.scan.wait(GRACE_PERIOD - (self.scan.clock() - self.candidates[-1][1]))
            ripe = len(self.candidates)
        else:
            ripe = sum(1 for _, seen in self.candidates if self.scan.clock() - seen >= GRACE_PERIOD)
        while ripe:
            batch = [self.candidates.popleft()[0] for _ in range(min(ripe, _JUDGED_AT_ONCE))]
            ripe -= len(batch)
            rows = self.scan.placer.store.get_many(batch)
            for task_id in batch:
                if task_id in rows:
                    self.scan.judge(rows[task_id])
            self.place = Segment(batch[-1])
            self.moved()
            if self.scan.is_over(self.scan.judge_until):
                break
        if not self.candidates:
            self.place = Segment(self.read_to, is_done=self.read_to is None)
        self.moved()


class _Place:
    """Saves how far a round has come, now and then and at the end, and so keeps its lease."""

    def __init__(self, scan: _Scan, acquired: Round) -> None:
        self.scan, self.acquired, self.saved = scan, acquired, acquired
        self.saved_at = scan.clock()
        self.is_saving = False
        self.segments = [
            _SegmentScan(scan, place=place, number=n, segments=len(acquired.segments), moved=self._save_now_and_then)
            for n, place in enumerate(acquired.segments)
        ]

    def _save_now_and_then(self) -> None:
        """Called by any segment that has moved."""
        with self.scan.lock:
            now = self.scan.clock()
            if self.is_saving or self.scan.is_stopped or now - self.saved_at < SAVE_EVERY:
                return
            self.is_saving = True
        try:
            with suppress(StoreError):  # the next save, or the one at the end, makes up for it
                self._save(lease_until=now + LEASE)
        finally:
            self.saved_at, self.is_saving = now, False

    def _save(self, *, lease_until: datetime | None) -> None:
        before, report = self.acquired, self.scan.report
        kept = save(
            self.scan.placer.store,
            replace(
                self.saved,
                segments=tuple(segment.place for segment in self.segments),
                scanned=before.scanned + report.scanned,
                found=before.found + report.found,
                repaired=before.repaired + report.repaired,
                failed=before.failed + report.failed,
                lease_until=lease_until,
            ),
        )
        if kept is None:
            self.scan.is_stopped = True  # another chain goes on from what was saved last
        else:
            self.saved = kept

    def release(self) -> Reconciled:
        """The last save. Returns the report."""
        if not self.scan.is_stopped:
            self._save(lease_until=None)
        report, kept = self.scan.report, self.saved
        report.round = kept
        report.complete = kept.is_done
        report.continued = not kept.is_done and not self.scan.is_stopped
        if report.problem is not None and kept.segments == self.acquired.segments:
            raise StoreError(f"the reconcile that began at {kept.began_at} cannot go on: {report.problem}")
        return report


def _read_cursors(placer: Placer, now: datetime, *, create: bool) -> Mapping[int, Cursor | InvalidInput | None]:
    """The cursors of all shards that are served, as they are understood."""
    shards = range(placer.settings.shards_ever)
    rows = placer.store.get_many([cursor_id(shard) for shard in shards])
    found: dict[int, Cursor | InvalidInput | None] = {}
    for shard in shards:
        row = rows.get(cursor_id(shard))
        try:
            if row is None:
                found[shard] = read_cursor(placer.store, shard, now) if create else None
            else:
                found[shard] = Cursor.from_row(shard, row)
        except InvalidInput as error:
            found[shard] = error
    return found

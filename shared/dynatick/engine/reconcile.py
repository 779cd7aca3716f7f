"""Reconcile (protocol 15): a scan that finds every task that no tick would poll, and places it.

The daily reconcile and the doctor are this one scan; ``diagnosis`` decides what is wrong. The doctor reads the table
from beginning to end. The daily reconcile works in *rounds*: a round reads the whole table once, in parallel segments,
in as many invocations as that takes, and saves its position in each in a row of our own. A lease ensures that one chain
of continuations works on it. If a chain dies, the next daily event goes on from the last save: so a table that takes
longer than a day is read to its end. Without the row, the reconcile only begins a new round.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from dynatick.domain import attributes as attr
from dynatick.domain.buckets import Bucket, minute_of
from dynatick.domain.conditional_update import ConditionalUpdate, Is, Unknown, Written, as_read
from dynatick.domain.instants import format_instant, parse_instant
from dynatick.domain.lifecycle import end_lease, move
from dynatick.domain.row import RowView
from dynatick.domain.task import SYSTEM_PREFIX, Row, check_count
from dynatick.engine.conditional_write import change_row, write
from dynatick.engine.cursor import Cursor, read_cursor
from dynatick.engine.diagnosis import Finding, Kind, judge_installation, what_is_wrong
from dynatick.engine.idle_record import read_cursors
from dynatick.engine.placement import Placer
from dynatick.engine.ports import Store
from dynatick.engine.rules import SKEW_MARGIN
from dynatick.errors import DynatickError, InvalidInput, StoreError

# -- reconcile round ---------------------------------------------------------------------------------------------------

RECONCILE_ID = f"{SYSTEM_PREFIX}reconcile"

SEGMENTS = 4
"""The segments of a new round. A function has about one CPU to read pages with, and more would use up the tasks' read
capacity. A round keeps its number of segments: a position in one of four means nothing among eight."""

LEASE = timedelta(seconds=30)
"""Each save renews it. Shorter than the minute after which Lambda retries a failed invocation."""

_OVERDUE_AFTER = timedelta(days=3)
_TRIES = 10


@dataclass(frozen=True, slots=True)
class Segment:
    """How far a segment was read: through the row with the id ``after``; None: not begun."""

    after: str | None = None
    is_done: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Round:
    """The row. Its counts are those of all invocations so far, as saved."""

    began_at: datetime
    segments: tuple[Segment, ...]
    scanned: int = 0
    found: int = 0
    repaired: int = 0
    failed: int = 0
    lease: str  # the token of the invocation that works on it, or was the last one
    lease_until: datetime | None  # None: released
    version: int = 1

    @property
    def is_done(self) -> bool:
        """Whether the whole table was read."""
        return all(segment.is_done for segment in self.segments)

    def is_leased(self, now: datetime) -> bool:
        """Whether an invocation has the lease, and may still run."""
        return self.lease_until is not None and now <= self.lease_until + SKEW_MARGIN

    def is_overdue(self, now: datetime) -> bool:
        """Whether it should have ended long ago."""
        return not self.is_done and now - self.began_at > _OVERDUE_AFTER

    def to_row(self) -> dict[str, object]:
        return {
            attr.STATUS: "reconcile",
            attr.OUTCOME: "none",  # so that scans for open tasks pass it over
            attr.BEGAN_AT: format_instant(self.began_at),
            attr.SEGMENTS: [{"after": segment.after, "done": segment.is_done} for segment in self.segments],
            attr.SCANNED: self.scanned,
            attr.FOUND: self.found,
            attr.REPAIRED: self.repaired,
            attr.FAILED: self.failed,
            attr.LEASE: self.lease,
            attr.LEASE_UNTIL: None if self.lease_until is None else format_instant(self.lease_until),
            attr.VERSION: self.version,
        }

    @classmethod
    def from_row(cls, row: Row) -> Round:
        """Raises InvalidInput."""
        until, segments = row.get(attr.LEASE_UNTIL), row.get(attr.SEGMENTS)
        if not isinstance(segments, list) or not segments:
            raise InvalidInput(attr.SEGMENTS, segments, "expected a list with a map for each segment")
        return cls(
            began_at=parse_instant(row.get(attr.BEGAN_AT), attr.BEGAN_AT),
            segments=tuple(_segment(segment) for segment in segments),
            scanned=check_count(row.get(attr.SCANNED), attr.SCANNED),
            found=check_count(row.get(attr.FOUND), attr.FOUND),
            repaired=check_count(row.get(attr.REPAIRED), attr.REPAIRED),
            failed=check_count(row.get(attr.FAILED), attr.FAILED),
            lease=str(row.get(attr.LEASE)),
            lease_until=None if until is None else parse_instant(until, attr.LEASE_UNTIL),
            version=check_count(row.get(attr.VERSION), attr.VERSION),
        )


def acquire(store: Store, *, token: str, now: datetime, continuing: datetime | None = None) -> Round | None:
    """Acquires the lease of the unfinished round, or begins a new round. None: another chain has the lease.

    ``continuing``: only the round that began then; None is returned if it has ended. Raises StoreError if the table
    doesn't answer.
    """

    def decide(row: Row | None) -> tuple[Round | None, ConditionalUpdate | None]:
        known = None if row is None else _from_row(row)
        if known is not None and known.is_leased(now):
            return None, None
        unfinished = None if known is None or known.is_done else known
        if continuing is not None and (unfinished is None or unfinished.began_at != continuing):
            return None, None
        acquired = replace(
            unfinished or Round(began_at=now, segments=(Segment(),) * SEGMENTS, lease=token, lease_until=None),
            lease=token,
            lease_until=now + LEASE,
            version=1 if known is None else known.version + 1,
        )
        return acquired, ConditionalUpdate(
            task_id=RECONCILE_ID,
            set=acquired.to_row(),
            conditions=as_read(row or {}, attr.LEASE, attr.VERSION),
        )

    return change_row(store, RECONCILE_ID, "acquire the reconcile", decide)


def save(store: Store, changed: Round) -> Round | None:
    """Writes a round whose lease this invocation has. None: another one has acquired it, and nothing was written.

    Raises StoreError if the table doesn't answer.
    """
    for _ in range(_TRIES):
        new = replace(changed, version=changed.version + 1)
        held = (Is(attr.LEASE, changed.lease), Is(attr.VERSION, changed.version))
        result = write(store, ConditionalUpdate(task_id=RECONCILE_ID, set=new.to_row(), conditions=held))
        if isinstance(result, Written):
            return new
        present = None if result.present is None else _from_row(result.present)
        is_ours = present is not None and present.lease == changed.lease
        if isinstance(result, Unknown) and (is_ours or not result.was_read):
            raise StoreError(f"cannot save how far the reconcile has read: {result.error}")
        if present is None or not is_ours:
            return None
        changed = replace(changed, version=present.version)  # an earlier save took effect after all
    raise StoreError(f"cannot save how far the reconcile has read: {RECONCILE_ID} was changed {_TRIES} times")


def read_round(store: Store) -> Round | None:
    """The row; None: it doesn't exist, or is malformed."""
    row = store.get(RECONCILE_ID)
    return None if row is None else _from_row(row)


def _from_row(row: Row) -> Round | None:
    """None: it was changed by hand and is malformed. Then a new round begins."""
    try:
        return Round.from_row(row)
    except InvalidInput:
        return None


def _segment(value: object) -> Segment:
    after, is_done = (value.get("after"), value.get("done")) if isinstance(value, dict) else (None, None)
    if not isinstance(is_done, bool) or not isinstance(after, str | None):
        raise InvalidInput(attr.SEGMENTS, value, "expected a map of after, a text or null, and done, a boolean")
    return Segment(after, is_done)


# -- reconcile ---------------------------------------------------------------------------------------------------------

EXAMPLES = 20

GRACE_PERIOD = timedelta(seconds=3)
"""Between reading a row and judging it: the scheduler function may not have seen a new row yet."""

SAVE_EVERY = timedelta(seconds=10)
"""An invocation that is killed loses at most this much of its work."""

_WHOLE_TABLE = Segment()
_MAX_CANDIDATES = 500
_JUDGED_AT_ONCE = 25  # rows in memory together, beside the page: a row may have 400 KB
_RESERVE = timedelta(seconds=15)  # at the end of an invocation: to judge the rows that were read, and for the last save


@dataclass(kw_only=True, slots=True)
class Reconciled:
    """What a reconcile found: the doctor in the whole table, the daily reconcile in one invocation."""

    scanned: int = 0  # rows that have not ended
    pages: int = 0  # of the whole table
    found: int = 0
    repaired: int = 0
    failed: int = 0  # could not be repaired, or need a person
    kinds: Counter[str] = field(default_factory=Counter)  # of what was found
    retired: Counter[int] = field(default_factory=Counter)  # open rows in shards that get no new rows; ticks serve them
    examples: list[tuple[str, str]] = field(default_factory=list)  # (taskId, what was wrong), the first few
    # Of the daily reconcile only:
    complete: bool = False  # the round has read the whole table
    continued: bool = False  # a new invocation is to go on
    leased_elsewhere: bool = False  # another chain works on the round, or has ended it; nothing was done
    problem: str | None = None  # why some segment was not read as far as time allowed
    round: Round | None = None  # as saved last


def reconcile(
    placer: Placer,
    *,
    clock: Callable[[], datetime],
    repair: bool = True,
    pause: Callable[[float], None] | None = None,
    report_finding: Callable[[Finding], None] = lambda finding: None,
    page_read: Callable[[Reconciled], None] = lambda report: None,
) -> Reconciled:
    """Reads the whole table, consistently. ``repair`` False: only reports.

    A row that can't be repaired is counted; the scan goes on, and the next one finds it again. ``pause`` waits
    (seconds) before new rows are judged; None: they are judged at once. ``report_finding`` is called with each finding
    after its repair, ``page_read`` after each page.
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
    """Goes on with a round, all unfinished segments in parallel, while there is time; then releases its lease.

    ``is_first``: the first invocation of a chain, which reports what is wrong with cursors. If a segment can't be read,
    or a row can't be repaired, the others go on. Raises StoreError if no segment got further, or if that can't be
    saved.
    """
    reserve = min(_RESERVE, (hard_end - clock()) / 4)
    scan = _Scan(placer, clock, pause=pause, stop_at=hard_end - reserve, judge_until=hard_end - reserve / 3)
    scan.judge_cursors(report=is_first)
    progress = _Progress(scan, acquired)

    def read_on(segment: _SegmentScan) -> None:
        try:
            segment.run()
        except DynatickError as error:
            scan.report.problem = str(error)

    with ThreadPoolExecutor(SEGMENTS, thread_name_prefix="dynatick-scan") as threads:
        list(threads.map(read_on, [segment for segment in progress.segments if not segment.position.is_done]))
    return progress.release()


class _Scan:
    """What the segments of one scan share. Each may be read by a thread of its own."""

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
        self.drained: Mapping[int, int] = {}  # the drained watermarks by shard
        self.is_certain = False  # something is wrong with some row: no need to wait before others are judged
        self.lock = threading.Lock()  # of the report; no thread waits while it holds it

    def is_over(self, end: datetime | None) -> bool:
        """Whether the scan was stopped, or ``end`` is over."""
        return self.is_stopped or (end is not None and self.clock() >= end)

    def judge_cursors(self, *, report: bool) -> None:
        """Reads the cursors; ``report``: and reports what is wrong with them."""
        now = self.clock()
        cursors = _read_cursors(self.placer, now, create=self.repair)
        # A missing cursor would be created with the last minute drained (14).
        self.drained = {
            shard: minute_of(now) - 1 if cursor is None else cursor.drained_through
            for shard, cursor in cursors.items()
            if not isinstance(cursor, InvalidInput)
        }
        if report:
            for finding in judge_installation(cursors, self.placer.settings, now):
                self._report(replace(finding, left="it needs a person") if self.repair else finding)

    def check(self, rows: Sequence[Row]) -> list[str]:
        """Counts a page. Returns the ids of the rows that look wrong."""
        now, settings = self.clock(), self.placer.settings
        buckets = (RowView(row).bucket for row in rows)
        retired = Counter(b.shard for b in buckets if b and settings.grid.shard_count <= b.shard < settings.shards_ever)
        with self.lock:
            self.report.pages += 1
            self.report.scanned += len(rows)
            self.report.retired.update(retired)
        return [RowView(row).task_id for row in rows if self._what_is_wrong(row, now) is not None]

    def _what_is_wrong(self, row: Row, now: datetime) -> Finding | None:
        return what_is_wrong(row, self.placer.rules, self.placer.settings, self.drained, now)

    def wait(self, left: timedelta) -> None:
        """Waits before rows are judged that were read just now."""
        in_time = self.stop_at is None or self.clock() + left < self.stop_at
        if self.pause is not None and left > timedelta() and in_time and not self.is_certain:
            self.pause(left.total_seconds())

    def judge(self, row: Row) -> None:
        """Judges a row that looked wrong, as it is now."""
        finding = self._what_is_wrong(row, self.clock())
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
        """Moves a running task whose lease is over to the next tick, which reclaims it. False: it lies there or
        before already."""
        bucket = Bucket.parse(row.get(attr.TASK_DATE_TIME))
        soon = Bucket(self.placer.settings.grid.tick_after(minute_of(self.clock())), bucket.shard)
        if bucket <= soon:
            return False
        self._write(move(row, soon))
        return True

    def _write(self, change: ConditionalUpdate) -> None:
        """Another writer may have been first; but there must be an answer."""
        result = write(self.placer.store, change)
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
    """Reads a segment. Rows that look wrong are read again a moment later, and then judged."""

    def __init__(
        self,
        scan: _Scan,
        *,
        position: Segment = _WHOLE_TABLE,
        number: int = 0,
        segments: int = 1,
        page_read: Callable[[Reconciled], None] = lambda report: None,
        moved: Callable[[], None] = lambda: None,
    ) -> None:
        self.scan, self.number, self.segments = scan, number, segments
        self.page_read, self.moved = page_read, moved
        self.position = position  # every row through here is right, or was judged
        self.read_to = position.after
        self.candidates: deque[tuple[str, datetime]] = deque()  # ids that look wrong, and when they were read

    def run(self) -> None:
        """Reads from its position to its end, or until the scan is over; at least one page."""
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
        """Judges the rows that were read long enough ago. ``everything``: waits for the others, and judges
        them too while there is time."""
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
            self.position = Segment(batch[-1])
            self.moved()
            if self.scan.is_over(self.scan.judge_until):
                break
        if not self.candidates:
            self.position = Segment(self.read_to, is_done=self.read_to is None)
        self.moved()


class _Progress:
    """Saves how far a round has come, regularly and at the end; each save renews its lease."""

    def __init__(self, scan: _Scan, acquired: Round) -> None:
        self.scan, self.acquired, self.saved = scan, acquired, acquired
        self.saved_at = scan.clock()
        self.is_saving = False
        self.segments = [
            _SegmentScan(scan, position=position, number=n, segments=len(acquired.segments), moved=self._save_if_due)
            for n, position in enumerate(acquired.segments)
        ]

    def _save_if_due(self) -> None:
        """Each segment calls this when its position has changed."""
        with self.scan.lock:
            now = self.scan.clock()
            if self.is_saving or self.scan.is_stopped or now - self.saved_at < SAVE_EVERY:
                return
            self.is_saving = True
        try:
            with suppress(StoreError):  # a later save makes up for it
                self._save(lease_until=now + LEASE)
        finally:
            self.saved_at, self.is_saving = now, False

    def _save(self, *, lease_until: datetime | None) -> None:
        before, report = self.acquired, self.scan.report
        kept = save(
            self.scan.placer.store,
            replace(
                self.saved,
                segments=tuple(segment.position for segment in self.segments),
                scanned=before.scanned + report.scanned,
                found=before.found + report.found,
                repaired=before.repaired + report.repaired,
                failed=before.failed + report.failed,
                lease_until=lease_until,
            ),
        )
        if kept is None:
            self.scan.is_stopped = True  # another chain goes on from the last save
        else:
            self.saved = kept

    def release(self) -> Reconciled:
        """Saves for the last time. Returns the report."""
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
    """The cursors of all shards in use; InvalidInput: it can't be understood, None: there is none."""
    found = read_cursors(placer.store, range(placer.settings.shards_ever))
    if not create:
        return found
    return {shard: read_cursor(placer.store, shard, now) if one is None else one for shard, one in found.items()}

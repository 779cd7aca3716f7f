"""Reconcile (protocol 15): a scan that finds every task that no tick would poll, and places it.

The daily reconcile and the doctor are this one scan. The doctor reads the table from beginning to end. The daily
reconcile does so in a *chain* of invocations: each reads on for two minutes, and starts the next, whose event says when
the chain began and after which id to go on. Lambda repeats the event of one that dies. If it gives up, the next daily
event begins a new chain at the start of the table. It does so too while an older chain still reads a table that takes
longer than a day: each knows only its own row, and two of them repair what one would.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated

from dynatick.domain import attributes as attr
from dynatick.domain.buckets import Bucket, Grid, instant_of, minute_of
from dynatick.domain.conditional_update import ConditionalUpdate, Is, Unknown, as_read
from dynatick.domain.instants import EPOCH, format_instant
from dynatick.domain.lifecycle import end_lease, move
from dynatick.domain.normalise import needs_normalising
from dynatick.domain.row import RowView, is_terminal
from dynatick.domain.schedule import is_at_rest
from dynatick.domain.task import SYSTEM_PREFIX, Row, is_own_row, own_row
from dynatick.domain.view import View
from dynatick.engine.claims import LONGEST_LEASE, lease_is_over
from dynatick.engine.conditional_write import change_row, write
from dynatick.engine.cursor import Cursor, cursor_id, read_cursor, read_cursors
from dynatick.engine.orders import ReconcileOrder
from dynatick.engine.placement import Placer, make_ready
from dynatick.engine.ports import Store
from dynatick.engine.rules import Rules
from dynatick.engine.settings import SETTINGS_ID, InstallationSettings
from dynatick.errors import DynatickError, InvalidInput, StoreError

# -- what is wrong with a row, or a cursor, which is pure --------------------------------------------------------------

_STALE_AFTER = timedelta(hours=1)  # after its lease; a tick reclaims a task long before
_TICKS_MISSED = 3
_CLOSED_LATE = timedelta(minutes=2)  # in addition to the missed ticks
_CLOSED_EARLY = timedelta(minutes=5)  # the clock of the machine that runs the doctor may be wrong by that much
_DRAINED_LATE = timedelta(hours=1)  # more than the longest lease and the longest index lag


class Kind(StrEnum):
    """What is wrong, in a word."""

    NEVER_NORMALISED = "never-normalised"  # it was never made a task
    NOT_UNDERSTOOD = "not-understood"  # it cannot be made a task, and is not marked failed
    NO_BUCKET = "no-bucket"  # its taskDateTime names none
    UNSERVED_SHARD = "unserved-shard"  # its shard was never in use
    BEHIND_CURSOR = "behind-cursor"  # its bucket was drained without it
    NO_OUTCOME = "no-outcome"  # its status says that it has ended, and nothing else does
    NULL_OUTCOME = "null-outcome"  # it has not ended, and carries an outcome that is NULL
    MAY_EXPIRE = "may-expire"  # it has not ended and carries an expiry
    STALE_LEASE = "stale-lease"  # running, and not reclaimed since its lease expired
    ENDLESS_LEASE = "endless-lease"  # running for longer than any process can
    PROCESSOR_FAILS = "processor-fails"  # the processor can't start, so no tick runs anything
    NO_TICK = "no-tick"  # no tick has come yet
    CURSOR_BEHIND = "cursor-behind"  # ticks don't come, or don't close their buckets
    CURSOR_STUCK = "cursor-stuck"  # ticks come, but a bucket is not drained
    CURSOR_AHEAD = "cursor-ahead"  # future buckets are closed
    CURSOR_UNREADABLE = "cursor-unreadable"  # the shard cannot be served
    LIMITS_STUCK = "limits-stuck"  # tasks wait for limit keys, and no tick acquires the limits lease for them


REMEDIES: Mapping[Kind, str] = {
    Kind.NEVER_NORMALISED: "it is made a task",
    Kind.NOT_UNDERSTOOD: "the daily reconcile marks it failed with the reason, which goes to the dead-letter queue too",
    Kind.NO_BUCKET: "it goes to the next tick",
    Kind.UNSERVED_SHARD: "it goes to a shard that is served",
    Kind.BEHIND_CURSOR: "it goes to the next tick",
    Kind.NO_OUTCOME: "its outcome is set to its status",
    Kind.NULL_OUTCOME: "the attribute is removed",
    Kind.MAY_EXPIRE: "its expiry is removed",
    Kind.STALE_LEASE: "the next tick reclaims it",
    Kind.ENDLESS_LEASE: "its lease was written by hand: it is ended, and the next tick reclaims the task",
    Kind.PROCESSOR_FAILS: "repair it and deploy again; the next tick runs what is due",
    Kind.NO_TICK: "see that the rule is enabled and the processor runs",
    Kind.CURSOR_BEHIND: "see that the rule is enabled and the processor runs; the next tick catches up",
    Kind.CURSOR_STUCK: "find what holds it back: a task that keeps running, or a processor that keeps failing",
    Kind.CURSOR_AHEAD: "find the clock that is wrong; what is due runs once the time has come",
    Kind.LIMITS_STUCK: "see that ticks come and are not cut short; a record that was changed by hand: delete it",
    Kind.CURSOR_UNREADABLE: "it was changed by hand: delete it, then repair by the doctor; the next tick makes it anew",
}
"""What repairs each kind. A cursor needs a person."""

_WHILE_PAUSED = (Kind.NO_TICK, Kind.CURSOR_BEHIND, Kind.CURSOR_STUCK)


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding(View):
    """Something wrong with a row, which may be a cursor."""

    kind: Kind
    task_id: str
    why: Annotated[str, "Without anything of the payload."]
    repaired: bool = False
    left: Annotated[str | None, "Why the repair failed."] = None

    @property
    def remedy(self) -> Annotated[str, "What to do about it."]:
        return REMEDIES[self.kind]


def what_is_wrong(
    row: Row, rules: Rules, settings: InstallationSettings, drained: Mapping[int, int], now: datetime
) -> Finding | None:
    """What is wrong with a row; None: some tick will run it, or it needs none.

    ``drained``: the drained watermarks of the shards whose cursor can be read. They only grow, so no tick will poll a
    bucket at or before its shard's.
    """
    if is_terminal(row) or is_own_row(RowView(row).task_id):
        return None
    change = make_ready(row, rules, settings, now=now)
    if change is not None:
        return _unready(row, change)
    if is_at_rest(row):
        return None
    bucket = RowView(row).bucket
    if bucket is None:
        return _found(Kind.NO_BUCKET, row, "its taskDateTime names no bucket")
    if bucket.shard >= settings.shards_ever:
        return _found(Kind.UNSERVED_SHARD, row, f"its shard {bucket.shard} is not served")
    if bucket.minute <= drained.get(bucket.shard, -1):
        return _found(Kind.BEHIND_CURSOR, row, f"its bucket {bucket} was drained without it")
    if not RowView(row).is_running:
        return None
    if lease_is_over(row, now):
        if settings.pause is not None or str(row.get(attr.ACTION)) in settings.paused_actions:
            return None  # it waits, and so does its next attempt
        return _stale(row, bucket, settings, now)
    if lease_is_over(row, now + LONGEST_LEASE) or RowView(row).awaits_completion:
        return None
    return _found(
        Kind.ENDLESS_LEASE, row, f"its lease ends at {row.get(attr.LEASE_UNTIL)}, longer than any process runs"
    )


def judge_installation(
    cursors: Mapping[int, Cursor | InvalidInput | None], settings: InstallationSettings, now: datetime
) -> Iterator[Finding]:
    """What is wrong with the processor, and with the cursors of the shards in use. While all is paused, no finding
    says that ticks do nothing; after a pause, only if none has come since as long as without one."""
    if settings.processor_problem is not None:
        why = f"the processor can't start: {settings.processor_problem}"
        yield Finding(kind=Kind.PROCESSOR_FAILS, task_id=SETTINGS_ID, why=why)
    for finding in judge_cursors(cursors, settings.grid, now):
        if finding.kind not in _WHILE_PAUSED or not (settings.pause or _just_resumed(finding.kind, settings, now)):
            yield finding


def _just_resumed(kind: Kind, settings: InstallationSettings, now: datetime) -> bool:
    """Whether ticks may still have done too little because of the latest pause."""
    wait = _DRAINED_LATE if kind is Kind.CURSOR_STUCK else _CLOSED_LATE
    return now <= settings.resumed_at + _TICKS_MISSED * timedelta(minutes=settings.grid.tick_minutes) + wait


def judge_cursors(cursors: Mapping[int, Cursor | InvalidInput | None], grid: Grid, now: datetime) -> Iterator[Finding]:
    """What is wrong with the cursors of the shards in use; None: there is no such row."""
    tick = timedelta(minutes=grid.tick_minutes)
    for shard, cursor in cursors.items():
        if cursor is None:
            yield _of_shard(Kind.NO_TICK, shard, "no tick has served it yet")
        elif isinstance(cursor, InvalidInput):
            yield _of_shard(Kind.CURSOR_UNREADABLE, shard, f"its cursor cannot be understood ({cursor})")
        elif cursor.closed_through > minute_of(now + _CLOSED_EARLY):
            closed = Bucket(cursor.closed_through)
            yield _of_shard(Kind.CURSOR_AHEAD, shard, f"buckets are closed through {closed}, which is still to come")
        elif instant_of(cursor.served_through) + _TICKS_MISSED * tick + _CLOSED_LATE < now:
            yield _of_shard(Kind.CURSOR_BEHIND, shard, f"no tick has come since {Bucket(cursor.served_through)}")
        elif cursor.checkpoint_at + _TICKS_MISSED * tick + _DRAINED_LATE < now and not cursor.is_leased(now):
            # The drained watermark soon reaches a checkpoint, and then there is a new one (4).
            first = Bucket(cursor.drained_through)
            yield _of_shard(Kind.CURSOR_STUCK, shard, f"ticks come, but nothing after {first} is drained")


def _unready(row: Row, change: ConditionalUpdate) -> Finding:
    """A row that needs a change before it is a task."""
    view = RowView(row)
    if (status := view.terminal_status) is not None:
        return _found(Kind.NO_OUTCOME, row, f"its status is {status}, and it has no outcome")
    if attr.OUTCOME in change.set:
        return _found(Kind.NOT_UNDERSTOOD, row, "it cannot be made a task, and is not marked failed")
    if needs_normalising(row) or not view.is_live:
        return _found(Kind.NEVER_NORMALISED, row, "it was never normalised")
    if view.bucket is None:
        return _found(Kind.NO_BUCKET, row, "its taskDateTime names no bucket")
    if attr.OUTCOME in row:
        return _found(Kind.NULL_OUTCOME, row, "it has not ended, and its outcome is NULL")
    return _found(Kind.MAY_EXPIRE, row, "it has not ended, and carries expiresAt")


def _stale(row: Row, bucket: Bucket, settings: InstallationSettings, now: datetime) -> Finding | None:
    """A running row whose lease is over. The tick of its bucket, or the next one, reclaims it."""
    grid = settings.grid
    # A released lease has no end of its own.
    view = RowView(row)
    ended = view.started_at if view.is_released else view.lease_until
    if ended is not None:
        why = f"its lease ended at {format_instant(ended)}, and no tick has reclaimed it"
    else:
        ended, why = EPOCH, "it is running, and its lease can't be read"
    waits_since = ended if bucket.minute > grid.tick_after(minute_of(now)) else max(ended, bucket.instant)
    if now - max(waits_since, settings.resumed_at) <= max(_STALE_AFTER, 2 * timedelta(minutes=grid.tick_minutes)):
        return None
    return _found(Kind.STALE_LEASE, row, why)


def _found(kind: Kind, row: Row, why: str) -> Finding:
    return Finding(kind=kind, task_id=RowView(row).task_id, why=why)


def _of_shard(kind: Kind, shard: int, why: str) -> Finding:
    return Finding(kind=kind, task_id=cursor_id(shard), why=f"shard {shard}: {why}")


# -- the scan ----------------------------------------------------------------------------------------------------------

EXAMPLES = 20

GRACE_PERIOD = timedelta(seconds=3)
"""Between reading a row and judging it: the scheduler function may not have seen a new row yet."""

_OVERDUE_AFTER = timedelta(days=3)
_MAX_CANDIDATES = 500
_JUDGED_AT_ONCE = 25  # rows in memory together, beside the page: a row may have 400 KB
_RESERVE = timedelta(seconds=15)  # at the end of an invocation: to judge the rows that were read, and to continue


@dataclass(kw_only=True, slots=True)
class Reconciled:
    """What a scan found: the doctor's in the whole table, the daily reconcile's in one invocation."""

    scanned: int = 0  # rows that have not ended
    pages: int = 0  # of the whole table
    found: int = 0
    repaired: int = 0
    failed: int = 0  # could not be repaired, or need a person
    kinds: Counter[str] = field(default_factory=Counter)  # of what was found
    retired: Counter[int] = field(default_factory=Counter)  # open rows in shards that get no new rows; ticks serve them
    examples: list[tuple[str, str]] = field(default_factory=list)  # (taskId, what was wrong), the first few
    after: str | None = None  # every row through this id is right, or was judged; None also at the table's end
    complete: bool = False  # the table was read to its end
    problem: str | None = None  # why it was not read as far as time allowed
    # Of the daily reconcile only:
    began_at: datetime | None = None  # its chain
    continued: bool = False  # a new invocation was started
    fault: DynatickError | None = None  # why the continuation may not have been started

    def is_overdue(self, now: datetime) -> bool:
        """Whether its chain should have ended long ago."""
        return self.began_at is not None and not self.complete and now - self.began_at > _OVERDUE_AFTER


def reconcile(
    placer: Placer,
    *,
    clock: Callable[[], datetime],
    repair: bool = True,
    pause: Callable[[float], None] | None = None,
    report_finding: Callable[[Finding], None] = lambda finding: None,
    page_read: Callable[[Reconciled], None] = lambda report: None,
    rows_read: Callable[[Sequence[Row]], None] = lambda rows: None,
    after: str | None = None,
    hard_end: datetime | None = None,
) -> Reconciled:
    """Reads the table, consistently, after the row with the id ``after``, which need not exist: to its end, or while
    there is time before ``hard_end``, and one page at least. None as ``after``: from the beginning, where it also
    reports what is wrong with cursors. ``repair`` False: only reports.

    A row that can't be repaired is counted; the scan goes on, and the next one finds it again. ``pause`` waits
    (seconds) before new rows are judged; None: they are judged at once. ``report_finding`` is called with each finding
    after its repair, ``rows_read`` with the rows of each page, ``page_read`` after it. Raises StoreError if the table
    doesn't answer; if ``hard_end`` is given and it has come further than ``after``, it returns how far, with the
    problem.
    """
    scan = _Scan(placer, clock, repair, pause, report_finding, hard_end)
    scan.report.after = after
    scan.judge_cursors(report=after is None)
    try:
        scan.run(page_read, rows_read)
    except StoreError as error:
        if hard_end is None or scan.report.after == after:
            raise
        scan.report.problem = str(error)
    return scan.report


@dataclass(slots=True)
class _Scan:
    """Rows that look wrong are read again a moment later, and then judged."""

    placer: Placer
    clock: Callable[[], datetime]
    repair: bool
    pause: Callable[[float], None] | None
    report_finding: Callable[[Finding], None]
    hard_end: datetime | None
    report: Reconciled = field(default_factory=Reconciled)
    drained: Mapping[int, int] = field(default_factory=dict)  # the drained watermarks by shard
    is_certain: bool = False  # something is wrong with some row: no need to wait before others are judged
    candidates: deque[tuple[str, datetime]] = field(
        default_factory=deque
    )  # ids that look wrong, and when they were read
    stop_at: datetime | None = field(init=False)  # no page is read after it
    judge_until: datetime | None = field(init=False)  # no row is judged after it

    def __post_init__(self) -> None:
        self.stop_at = self.judge_until = self.hard_end
        if self.hard_end is not None:
            reserve = min(_RESERVE, (self.hard_end - self.clock()) / 4)
            self.stop_at, self.judge_until = self.hard_end - reserve, self.hard_end - reserve / 3

    def run(self, page_read: Callable[[Reconciled], None], rows_read: Callable[[Sequence[Row]], None]) -> None:
        """Reads and judges from where the report says that it is."""
        read_to = self.report.after
        while True:
            page = self.placer.store.scan(after=read_to)
            seen = self.clock()
            rows_read(page.rows)
            self.candidates += [(task_id, seen) for task_id in self._check(page.rows)]
            read_to = page.after
            is_last = read_to is None or self._is_over(self.stop_at)
            self._judge_candidates(everything=is_last)
            if not self.candidates:
                self.report.after, self.report.complete = read_to, read_to is None
            page_read(self.report)
            if is_last:
                return

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

    def _judge_candidates(self, *, everything: bool) -> None:
        """Judges the rows that were read long enough ago. ``everything``: waits for the others, and judges
        them too while there is time."""
        if self.candidates and (everything or len(self.candidates) >= _MAX_CANDIDATES):
            self._wait(GRACE_PERIOD - (self.clock() - self.candidates[-1][1]))
            ripe = len(self.candidates)
        else:
            ripe = sum(1 for _, seen in self.candidates if self.clock() - seen >= GRACE_PERIOD)
        while ripe:
            batch = [self.candidates.popleft()[0] for _ in range(min(ripe, _JUDGED_AT_ONCE))]
            ripe -= len(batch)
            rows = self.placer.store.get_many(batch)
            for task_id in batch:
                if task_id in rows:
                    self._judge(rows[task_id])
            self.report.after = batch[-1]
            if self._is_over(self.judge_until):
                break

    def _is_over(self, end: datetime | None) -> bool:
        return end is not None and self.clock() >= end

    def _check(self, rows: Sequence[Row]) -> list[str]:
        """Counts a page. Returns the ids of the rows that look wrong."""
        now, settings = self.clock(), self.placer.settings
        buckets = (RowView(row).bucket for row in rows)
        retired = Counter(b.shard for b in buckets if b and settings.grid.shard_count <= b.shard < settings.shards_ever)
        self.report.pages += 1
        self.report.scanned += len(rows)
        self.report.retired.update(retired)
        return [RowView(row).task_id for row in rows if self._what_is_wrong(row, now) is not None]

    def _what_is_wrong(self, row: Row, now: datetime) -> Finding | None:
        return what_is_wrong(row, self.placer.rules, self.placer.settings, self.drained, now)

    def _wait(self, left: timedelta) -> None:
        """Waits before rows are judged that were read just now."""
        in_time = self.stop_at is None or self.clock() + left < self.stop_at
        if self.pause is not None and left > timedelta() and in_time and not self.is_certain:
            self.pause(left.total_seconds())

    def _judge(self, row: Row) -> None:
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
        self.report.found += 1
        self.report.kinds[str(finding.kind)] += 1
        self.report.repaired += finding.repaired
        self.report.failed += finding.left is not None
        if len(self.report.examples) < EXAMPLES:
            self.report.examples.append((finding.task_id, finding.why))
        self.report_finding(finding)


def _read_cursors(placer: Placer, now: datetime, *, create: bool) -> Mapping[int, Cursor | InvalidInput | None]:
    """The cursors of all shards in use; InvalidInput: it can't be understood, None: there is none."""
    found = read_cursors(placer.store, range(placer.settings.shards_ever))
    if not create:
        return found
    return {shard: read_cursor(placer.store, shard, now) if one is None else one for shard, one in found.items()}


# -- chain of invocations ----------------------------------------------------------------------------------------------

READ_FOR = timedelta(minutes=2)
"""How long an invocation reads on. Lambda keeps an event for ten minutes: that is enough for both of its repetitions,
one and three minutes after it died."""

KEPT_DAYS = 7
"""How long the row of a chain is kept after its last change: longer than an event can be repeated."""


def read_on(
    placer: Placer,
    order: ReconcileOrder,
    *,
    hard_end: datetime,
    clock: Callable[[], datetime],
    pause: Callable[[float], None],
    new_token: Callable[[], str],
    start: Callable[[ReconcileOrder], None],
) -> Reconciled:
    """Carries out an order, and starts what continues it, if the table has not been read to its end.

    The same event may come twice, while the first is at work or later; or Lambda repeats one that failed. So the chain
    has a row that says through which id it was read. An invocation moves it from where its order begins to where it has
    come itself, and then starts the continuation. If it finds the row moved by another, it starts nothing. If the row
    was moved before it began, it reads nothing and only starts the continuation once more, for the other may have died
    before it could: of two that begin at the same id, only one moves the row.

    The row's ``writtenBy`` shows a write whose answer was lost. If that is not known, or the start failed, the report
    has a ``fault``, to be raised so that Lambda repeats the event. Raises StoreError if nothing could be read.
    """
    store = placer.store
    report = Reconciled(after=_read_through(store.get(_row_id(order)), order))
    is_repeated = report.after != order.after
    if not is_repeated:
        end = min(hard_end, clock() + READ_FOR)
        report = reconcile(placer, clock=clock, pause=pause, after=order.after, hard_end=end)
    report.began_at = order.began_at
    if report.after is None:
        return report
    try:
        if is_repeated or _move(store, order, report.after, token=new_token(), now=clock()):
            start(replace(order, after=report.after))
            report.continued = True
    except DynatickError as error:
        report.fault = error
    return report


def _move(store: Store, order: ReconcileOrder, through: str, *, token: str, now: datetime) -> bool:
    """Moves the row of the order's chain. False: another invocation, which carried out the same order, was first."""

    def decide(row: Row | None) -> tuple[bool, ConditionalUpdate | None]:
        if _read_through(row, order) != order.after:
            return False, None
        values = {
            **own_row("reconcile"),
            attr.READ_THROUGH: through,
            attr.WRITTEN_BY: token,
            attr.EXPIRES_AT: int((now + timedelta(days=KEPT_DAYS)).timestamp()),
        }
        return True, ConditionalUpdate(
            task_id=_row_id(order),
            set=values,
            conditions=as_read(row or {}, attr.READ_THROUGH),
            mark=(Is(attr.WRITTEN_BY, token),),
        )

    return change_row(store, _row_id(order), "continue the reconcile", decide)


def _row_id(order: ReconcileOrder) -> str:
    return f"{SYSTEM_PREFIX}reconcile#{format_instant(order.began_at)}"


def _read_through(row: Row | None, order: ReconcileOrder) -> str | None:
    """Where the chain is; where the order begins if its row doesn't exist, or was changed by hand."""
    through = None if row is None else row.get(attr.READ_THROUGH)
    return through if isinstance(through, str) else order.after

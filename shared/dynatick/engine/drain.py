"""A pass: one invocation drains one shard through its tick (protocol 1 to 4 and 9 to 12).

One thread, the coordinator, decides everything. It polls the shard's buckets, oldest first, and claims what is due in
batches. Rows that no tick can work on are deferred. A pass that is still behind after ten seconds reads ahead of its
claims for expired leases, which else it would find only after all tasks before them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import chain

from dynatick.domain import attributes as attr
from dynatick.domain.buckets import Bucket, instant_of, minute_of
from dynatick.domain.conditional_update import AtLeast, ConditionalUpdate, Is, Plus, Written, as_read
from dynatick.domain.lifecycle import defer
from dynatick.domain.retry import deferral
from dynatick.domain.row import RowView
from dynatick.domain.schedule import is_listed_as_schedule
from dynatick.domain.task import is_own_row
from dynatick.engine.claiming import Claiming, ExpiredLeases
from dynatick.engine.claims import Entries, LeaseExpired, is_stuck, judge
from dynatick.engine.conditional_write import create, write
from dynatick.engine.counts import PassReport, tick_record_id
from dynatick.engine.cursor import Cursor, acquire_shard
from dynatick.engine.division import Outline
from dynatick.engine.hand_out import HandOut
from dynatick.engine.idle_record import count_idle_ticks
from dynatick.engine.invocation import BATCH, Budget, Execution, Services
from dynatick.engine.orders import MAX_ORDER_BYTES, RecoveryOrder, Resume, WorkOrder
from dynatick.engine.page_reader import PAGE, PageReader, cut
from dynatick.engine.pools import begin, in_turn
from dynatick.engine.ports import Page, size_in_event
from dynatick.engine.rules import SKEW_MARGIN, TICKS_PLANNED
from dynatick.engine.wake_ups import send_planned
from dynatick.engine.window import Segment, ShardLease, Window
from dynatick.errors import DynatickError

# -- stuck rows --------------------------------------------------------------------------------------------------------

MAX_DEFERRED = 200  # rows in one pass


def defer_stuck(services: Services, window: Window, report: PassReport, *, hard_end: datetime) -> None:
    """Moves stuck rows out of buckets that had their final poll."""
    left = MAX_DEFERRED
    for minute, poll in list(window.stuck_polls()):
        deferred, poll.stuck = poll.stuck[:left], []
        for task_id in deferred:
            _defer(services, Bucket(minute, report.shard), task_id, report, hard_end)
        left -= len(deferred)


def _defer(services: Services, bucket: Bucket, task_id: str, report: PassReport, hard_end: datetime) -> None:
    """Moves a row to a tick after the end of this process, each time later than the last. The next tick finds that it
    no longer holds its bucket back."""
    placer, now = services.placer, services.clock()
    row = services.store.get(task_id)
    if row is None or not is_stuck(row, bucket, placer, now):
        return
    at = max(now + deferral(RowView(row).deferrals), hard_end + SKEW_MARGIN)
    later = services.settings.grid.bucket_of(task_id, at)
    result = write(services.store, defer(row, later))
    placer.check_moves({task_id: later})
    report.deferred += isinstance(result, Written)


# -- polling -----------------------------------------------------------------------------------------------------------

CLAIM_DELAY = timedelta(seconds=1)  # an entry waits this long for others to share its claim


@dataclass(frozen=True, slots=True)
class _Found:
    """The open entries of a page. ``limited``: tasks whose rate limit only the shard's holder keeps."""

    schedules: list[tuple[Bucket, str]] = field(default_factory=list)
    limited: list[tuple[Bucket, str]] = field(default_factory=list)
    tasks: list[tuple[Bucket, str]] = field(default_factory=list)

    @property
    def all(self) -> list[tuple[Bucket, str]]:
        return [*self.schedules, *self.limited, *self.tasks]


@dataclass(slots=True)
class _Batch:
    """Entries that wait for others to share their claim. ``position``: from where on nothing is claimed yet."""

    claiming: Claiming
    position: Resume
    entries: list[tuple[Bucket, str]] = field(default_factory=list)
    _began: datetime = field(init=False)

    def add(self, entries: list[tuple[Bucket, str]]) -> list[tuple[Bucket, str]]:
        """Takes as many as a claim can have, and returns the others."""
        if not self.entries:
            self._began = self.claiming.clock()
        taken = BATCH - len(self.entries)
        self.entries += entries[:taken]
        return entries[taken:]

    @property
    def has_waited(self) -> bool:
        return bool(self.entries) and self.claiming.clock() - self._began >= CLAIM_DELAY

    def claim(self) -> bool:
        """Claims them. False: time is up, and they are still here."""
        if self.entries and not self.claiming.claim(self.entries, self.position):
            return False
        self.entries = []
        return True


class Polling:
    """Rounds of polls, in the coordinator's thread.

    ``hand_out`` None: a worker polls, which shares its range with no other.
    """

    def __init__(self, claiming: Claiming, hand_out: HandOut | None) -> None:
        self.claiming, self.execution, self.hand_out = claiming, claiming.execution, hand_out
        self.window, self.report, self.clock = claiming.window, claiming.report, claiming.clock
        self.reader = PageReader(claiming.execution, claiming.report.shard)
        self.limited = frozenset[str]()
        if hand_out is None or hand_out.is_possible:
            self.limited = claiming.execution.services.rules.limited_actions
        self.divided: set[int] = set()  # minutes of the buckets that this round has read ahead

    def close(self) -> None:
        self.reader.close()

    def poll_and_claim(self, segments: Iterable[Segment]) -> Resume | None:
        """One round: polls these parts of buckets in order, all pages, and claims what is due.

        If time is up first, ``report.resume`` says from where on nothing was claimed. If the order of a worker is over
        first, it returns the same.
        """
        self.claiming.minutes_with_work = set()
        self.divided = set()
        batch: _Batch | None = None
        is_over = False

        def claim_what_waits() -> None:
            """A page that is long in coming does not hold up what earlier pages had."""
            if batch is not None and batch.has_waited:
                batch.claim()

        pages = self.reader.pages(segments, self._poll_began, claim_what_waits)
        for segment, page in pages:
            batch = batch or _Batch(self.claiming, Resume(segment.minute, segment.after))
            if page is None or not self._claim_page(segment, page, batch, pages):
                self._cut_short(batch.position, batch.entries)
                return None
            is_over = self.hand_out is not None and self.hand_out.is_over
            if is_over:
                break
        if batch is not None and not batch.claim():
            self._cut_short(batch.position, batch.entries)
            return None
        self.execution.wait(until=lambda: not self.execution.claiming)
        return batch.position if batch is not None and is_over else None

    def _claim_page(
        self, segment: Segment, page: Page, batch: _Batch, pages: Iterator[tuple[Segment, Page | None]]
    ) -> bool:
        """Claims what is due on a page; a few entries wait in ``batch`` for others to share their claim. False: time is
        up, and nothing that is in ``batch`` then was claimed."""
        minute = segment.minute
        found = self._open_entries(Bucket(minute, self.report.shard), page)
        if page.after is None and segment.is_whole and minute not in self.divided:
            self.window.complete_poll(minute)
        if not self.claiming.may_claim() or not self._claim_first(found, batch.position):
            batch.entries += found.all
            return False
        rest = found.tasks
        while rest:
            if not batch.entries and self._should_divide(len(rest), more=page.after is not None):
                rest = self._divide(segment, rest, page.after, batch.position, pages)
            rest = batch.add(rest)
            if len(batch.entries) == BATCH:
                last = Resume(minute, batch.entries[-1][1])
                if not batch.claim():
                    batch.entries += rest
                    return False
                batch.position = last
        if batch.has_waited and not batch.claim():
            return False
        if not batch.entries:
            last_id = page.after or segment.through
            batch.position = Resume(minute, last_id) if last_id is not None else Resume(minute + 1)
        return True

    def claim_left_behind(self, entries: Entries) -> None:
        """Claims what earlier invocations of this pass left behind: another process had claimed it, or its lease had
        just expired."""
        for start in range(0, len(entries), BATCH):
            batch = entries[start : start + BATCH]
            for bucket, _ in batch:
                self.window.add_in_flight(bucket.minute)
            position = Resume(min(bucket.minute for bucket, _ in batch))
            if not self.claiming.claim(batch, position):
                return self._cut_short(position, batch)
        return self.execution.wait(until=lambda: not self.execution.claiming)

    def _poll_began(self, minute: int, now: datetime) -> None:
        self.report.buckets += minute not in self.window.polls
        self.report.first_minute = minute if self.report.first_minute is None else self.report.first_minute
        self.window.begin_poll(minute, now)

    def _open_entries(self, bucket: Bucket, page: Page) -> _Found:
        """What is open on a page, and for this process to claim. It holds its bucket back until its claim is
        answered."""
        found = _Found()
        for entry in page.entries:
            task_id = entry.task_id
            if entry.schedule_id is not None and is_listed_as_schedule(task_id, entry.schedule_id):
                if self.claiming.permit.is_of_holder:
                    found.schedules.append((bucket, task_id))
            # A task can't have the id of our own rows; and one that is in flight holds its bucket back already.
            elif is_own_row(task_id) or (task_id, bucket.minute) in self.execution.ids:
                continue
            elif entry.action not in self.limited:
                found.tasks.append((bucket, task_id))
            elif self.claiming.permit.is_of_holder:
                found.limited.append((bucket, task_id))
        self.window.add_in_flight(bucket.minute, len(found.all))
        return found

    def _claim_first(self, found: _Found, position: Resume) -> bool:
        """Claims what no worker does. False: time is up; what is left in ``found`` was not claimed."""
        for entries, claim in (
            (found.schedules, self.claiming.make_occurrences),
            (found.limited, self.claiming.claim),
        ):
            while entries:
                if not claim(entries[:BATCH], position):
                    return False
                del entries[:BATCH]
        return True

    # -- workers ---------------------------------------------------------------------------------------------------

    def _should_divide(self, waiting: int, *, more: bool) -> bool:
        """Whether there is more than this pass can run soon, as soon as it knows or can claim something."""
        hand_out = self.hand_out
        if hand_out is None or not hand_out.is_possible:
            return False
        self.claiming.wait_for_room(until=lambda: hand_out.is_worth_reading_ahead(waiting, more=more))
        return hand_out.is_worth_reading_ahead(waiting, more=more)

    def _divide(
        self,
        segment: Segment,
        rest: list[tuple[Bucket, str]],
        after: str | None,
        position: Resume,
        pages: Iterator[tuple[Segment, Page | None]],
    ) -> list[tuple[Bucket, str]]:
        """Reads the segment ahead and hands out parts of it. What this pass keeps beyond the present page is read
        again: its ids are not held in memory.

        ``rest``: what is left to claim of the present page. Returns what of it the pass keeps. ``after``: where the
        next page begins; None: there is none.
        """
        assert self.hand_out is not None
        self.divided.add(segment.minute)  # not all of it is claimed when its last page has come
        bucket = Bucket(segment.minute, self.report.shard)
        outline = Outline()
        for _, task_id in rest:
            outline.add(task_id)
        next_page = after
        while next_page is not None and outline.count < self.hand_out.max_outlined:
            page = next(pages, (segment, None))[1]
            found = _Found() if page is None else self._open_entries(bucket, page)
            for _, task_id in found.tasks:
                outline.add(task_id)
            self.claiming.end_unclaimed(found.tasks)
            if page is None or not self._claim_first(found, position):
                self.claiming.end_unclaimed([*found.schedules, *found.limited])
                self.report.leave(position)
                break
            next_page = page.after
        parts = self.hand_out.hand_out(bucket, outline)
        kept_through = parts[0].after if parts else outline.last
        kept = [entry for entry in rest if entry[1] <= kept_through]
        self.claiming.end_unclaimed(rest[len(kept) :])
        if parts and parts[-1].through < outline.last:
            self.reader.read_next(Segment(segment.minute, parts[-1].through, outline.last))
        if after is not None and after < kept_through:
            self.reader.read_next(Segment(segment.minute, after, kept_through))
        return kept

    def _cut_short(self, position: Resume, unclaimed: Entries) -> None:
        """Ends the round for want of time."""
        self.claiming.end_unclaimed(unclaimed)
        self.report.leave(position)
        self.execution.wait(until=lambda: not self.execution.claiming)


# -- lease sweep -------------------------------------------------------------------------------------------------------

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


# -- drain -------------------------------------------------------------------------------------------------------------

MAX_LEFT_BEHIND = 100  # entries that a continuation gets; if there are more, it polls from the oldest bucket on
ROUND_TIMEOUT = timedelta(seconds=1)  # for what is in flight, before a bucket is polled again
LEASE_CHECK = timedelta(seconds=2)  # while a pass waits for workers: another tick may have closed more buckets
TICK_RECORD_DAYS = 7


def drain(
    services: Services,
    *,
    tick: int,
    shard: int,
    hard_end: datetime,
    continuation: int = 0,
    resume: Resume | None = None,
    left_behind: Entries = (),
    swept: Resume | None = None,
    send_continuation: Callable[[Resume | None, Entries, Resume | None], None] | None = None,
    start_recovery: Callable[[RecoveryOrder], bool] = lambda order: False,
    start_worker: Callable[[WorkOrder], bool] = lambda order: False,
) -> PassReport:
    """Closes the shard's buckets through ``tick`` and runs what is due in them.

    ``hard_end``: when Lambda will kill the process. ``resume``: where an earlier invocation of this pass stopped;
    ``left_behind``: entries before that place that it could not end; ``swept``: through where it has searched for
    expired leases. ``send_continuation`` is called with the same three, at most once: if this pass leaves something for
    want of time, and has made progress. ``start_recovery`` starts a recovery and returns whether it could; so does
    ``start_worker``.
    Raises StoreError if the table can't be reached; what was claimed is reclaimed when its lease has expired.
    """
    started = services.clock()
    report = PassReport(tick=tick, shard=shard, continuation=continuation, started_at=started)
    token = services.new_token()
    is_to_plan = services.wake_ups is not None
    ahead = TICKS_PLANNED * services.rules.grid.tick_minutes if is_to_plan else 0
    acquired = acquire_shard(services.store, shard, tick, token=token, now=started, plan_ahead=ahead)
    plan = partial(send_planned, services, report, acquired.to_plan)
    cursor = acquired.cursor
    if cursor is None:
        plan()
        report.leased_elsewhere = True
        report.finished_at = services.clock()
        return report
    window = Window(cursor, services.rules, closed_at=services.clock())
    budget = Budget.until(hard_end, started)
    running = _Pass(services, window, report, token, budget, swept, send_continuation, start_recovery, start_worker)
    try:
        if is_to_plan:
            running.execution.plan(plan)
        running.work(resume, left_behind)
    finally:
        running.close()
    if not report.is_idle:
        _save_report(services, report, token)
    return report


def _save_report(services: Services, report: PassReport, token: str) -> None:
    """Writes the tick record."""
    expires = int((services.clock() + timedelta(days=TICK_RECORD_DAYS)).timestamp())
    record = tick_record_id(report.tick, report.shard, report.continuation)
    row = {attr.TASK_ID: record, **report.to_row(), attr.WRITTEN_BY: token, attr.EXPIRES_AT: expires}
    if create(services.store, row) or (earlier := services.store.get(record)) is None:
        return
    # EventBridge has sent the tick twice, and both passes had something to do. Sent again, this adds nothing.
    counts = {name: Plus(value) for name, value in report.counts().items() if value}
    exists = tuple(AtLeast(name, 0) for name in counts)
    write(
        services.store,
        ConditionalUpdate(
            task_id=record,
            set={**counts, **report.ending(), attr.WRITTEN_BY: token},
            conditions=(*exists, *as_read(earlier, attr.WRITTEN_BY)),
            mark=(Is(attr.WRITTEN_BY, token),),
        ),
    )


class _Pass:
    """The coordinator: the order of the steps."""

    def __init__(
        self,
        services: Services,
        window: Window,
        report: PassReport,
        token: str,
        budget: Budget,
        swept: Resume | None,
        send_continuation: Callable[[Resume | None, Entries, Resume | None], None] | None,
        start_recovery: Callable[[RecoveryOrder], bool],
        start_worker: Callable[[WorkOrder], bool],
    ) -> None:
        self.services, self.window, self.report, self.budget = services, window, report, budget
        self.clock, self.send_continuation, self.start_recovery = services.clock, send_continuation, start_recovery
        self.shard = ShardLease(services.store, services.clock, window, token)
        next_tick = instant_of(services.rules.grid.tick_after(minute_of(services.clock())))
        self.expired = ExpiredLeases(
            report, self._start_recoveries, min(next_tick, budget.stop_claiming), services.rules.limited_actions
        )
        self.claiming = Claiming(
            services, window, report, budget, self.shard, self.expired, after_events=self._after_events
        )
        self.execution = self.claiming.execution
        self.sweep = LeaseSweep(self.execution, window, self.expired, swept)
        self.is_polling = False
        self.hand_out = HandOut(self.execution, window, self.shard, start_worker)
        self.polling = Polling(self.claiming, self.hand_out)

    def close(self) -> None:
        self.execution.close()
        self.polling.close()

    def work(self, resume: Resume | None, left_behind: Entries) -> None:
        execution = self.execution
        self.polling.claim_left_behind(left_behind)
        polled_through = self._poll_until_nothing_is_due(resume)
        if self.report.resume or execution.too_late:
            execution.release_unbegun()
        while self.shard.is_held and not self._end():
            pass
        if self.window.cursor.closed_through > polled_through:  # another tick has closed them, and left them to this
            self.report.leave(Resume(polled_through + 1))
        self._continue()
        # A task that takes longer than is left goes to a new invocation at once, and with it all that has not begun.
        execution.wait(until=lambda: not execution.in_flight or bool(execution.too_late), end=self.budget.stop_claiming)
        execution.release_unbegun()  # a task that begins later might be cut off
        self._continue()
        execution.wait(until=execution.nothing_runs)
        execution.wait(until=lambda: not execution.starts.under_way)  # it runs what can't be started elsewhere
        self.expired.reclaim_rest(execution)
        execution.finish()
        self._continue()
        execution.await_starts()
        execution.conclude()

    def _poll_until_nothing_is_due(self, resume: Resume | None) -> int:
        """Polls and claims in rounds: all buckets of the window; then again those in which something was due. What a
        worker may have left is polled as soon as its order is over. Returns through which minute all closed buckets
        were polled."""
        execution, window = self.execution, self.window
        polled_through = window.cursor.closed_through
        again: list[int] | None = None  # None: the first round, which polls the whole window
        worked: set[int] = set()
        left = self.hand_out.take_back()
        while True:
            minutes = window.minutes_to_poll(self.clock()) if again is None else again
            ranges = map(Segment.of, left)
            self.is_polling = True
            resume = self.polling.poll_and_claim(chain(ranges, window.segments(minutes, resume)))
            self.is_polling = False
            self.expired.start_recoveries()
            if self.report.resume is not None or not self.shard.is_held or execution.fault is not None:
                return polled_through
            worked |= self.claiming.minutes_with_work
            if resume is None and worked:
                round_end = min(self.clock() + ROUND_TIMEOUT, self.budget.stop_waiting)
                execution.wait(until=execution.nothing_runs, end=round_end)
            elif resume is None and self._waits_for_workers:
                self._wait_for_workers(polled_through)
            if not execution.may_begin():
                return polled_through
            left = self.hand_out.take_back()
            if resume is None:
                closed = window.cursor.closed_through
                again = [*sorted(worked), *range(polled_through + 1, closed + 1)]  # another tick may have closed more
                left = [order for order in left if order.bucket.minute not in worked]
                worked, polled_through = set(), closed
                if not again and not left and not self._waits_for_workers and self._end():
                    return polled_through

    @property
    def _waits_for_workers(self) -> bool:
        """Whether this pass stays for what workers may leave. In one thread, no time passes while it waits."""
        return bool(self.window.handed_out) and not self.services.rules.in_one_thread

    def _wait_for_workers(self, polled_through: int) -> None:
        """Waits until an order may be over, or another tick has closed more buckets."""
        self.shard.renew_at = min(self.shard.renew_at, self.clock() + LEASE_CHECK)
        self.execution.wait(
            until=lambda: (
                self.window.cursor.closed_through > polled_through
                or self.execution.fault is not None
                or not self.shard.is_held
                or not self.execution.may_begin()
            ),
            end=min(self.hand_out.next_change(), self.clock() + LEASE_CHECK, self.budget.stop_claiming),
        )

    def _after_events(self) -> None:
        if self.shard.must_renew:
            self.expired.start_recoveries()
        if self.is_polling:
            self.sweep.read_on()
        try:
            self.shard.renew()
        except DynatickError as error:  # what is in flight is still recorded
            self.execution.keep_fault(error)

    def _continue(self) -> None:
        """Starts a continuation, if this pass was cut short and a new invocation can get further."""
        report = self.report
        is_stopped = self.shard.is_lost or self.execution.fault is not None or report.paused
        gets_further = report.made_progress and not is_stopped
        if report.resume and gets_further and self.send_continuation is not None and not report.continued:
            left = list(self.claiming.left_behind)
            is_too_much = (
                len(left) > MAX_LEFT_BEHIND or sum(size_in_event(task_id) for _, task_id in left) > MAX_ORDER_BYTES
            )
            rest: tuple[Resume | None, Entries] = (None, ()) if is_too_much else (report.resume, left)
            send = partial(self.send_continuation, *rest, self.sweep.position)
            self.execution.starts.submit(send, lambda answer: None)
            report.continued = True

    def _start_recoveries(self, orders: Sequence[RecoveryOrder], then: Callable[[int], None]) -> None:
        """Starts recoveries until one can't be started, and calls ``then`` with how many were."""
        self.execution.starts.submit(partial(in_turn, self.start_recovery, orders), then, partial(then, 0))

    def _end(self) -> bool:
        """The end write. False: another tick has closed more buckets, so there is more to do."""
        if self.report.resume is None:  # a row of which the queue doesn't take the letter may have to be deferred
            self.execution.wait(until=lambda: not self.execution.failing)
        try:
            defer_stuck(self.services, self.window, self.report, hard_end=self.budget.hard_end)
            ended = self.shard.release(self._with_idle_ticks)
        except DynatickError as error:
            self.execution.keep_fault(error)
            return True
        if ended and not self.shard.is_lost:
            self.report.closed_through = self.window.cursor.closed_through
            self.report.drained_through = self.window.cursor.drained_through
        return ended

    def _with_idle_ticks(self, cursor: Cursor) -> Cursor:
        """The cursor with its count of idle ticks: an idle tick has no record of its own."""
        tick = str(Bucket(self.report.tick))
        cursor = count_idle_ticks(self.services.store, cursor, self.report.tick, self.services.rules.grid)
        if self.report.is_idle:
            new_tick = cursor.last_tick != tick
            return replace(
                cursor, idle_since=cursor.idle_since or tick, idle_ticks=cursor.idle_ticks + new_tick, last_tick=tick
            )
        if cursor.idle_ticks:
            self.report.idle_before = {
                attr.SINCE: cursor.idle_since,
                attr.UNTIL: cursor.last_tick,
                attr.TICKS: cursor.idle_ticks,
            }
        return replace(cursor, idle_since=None, idle_ticks=0, last_tick=tick)

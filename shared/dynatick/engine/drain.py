"""A pass: one invocation drains one shard through its tick (protocol 1 to 4 and 9 to 12).

One thread, the coordinator, decides everything. What it has claimed is run and recorded by an execution, the pages of
buckets are read ahead of it, and tasks whose lease expired are handed to recoveries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from dynatick.domain.buckets import Bucket
from dynatick.domain.conditional_update import AtLeast, ConditionalUpdate, Plus, Written
from dynatick.domain.lifecycle import defer, deferrals_of, is_terminal
from dynatick.domain.retry import deferral
from dynatick.domain.schedule import is_listed_as_schedule
from dynatick.domain.task import Task, is_own_row
from dynatick.engine.budget import Budget
from dynatick.engine.claims import Claimed, Claimer, Contended, Ineligible, LeaseExpired, Malformed, Verdict, is_stuck
from dynatick.engine.cursor import Cursor, take
from dynatick.engine.execution import BATCH, Execution, Place, Services
from dynatick.engine.page_reader import PageReader
from dynatick.engine.poll_window import Look, Window
from dynatick.engine.ports import Page
from dynatick.engine.record import RecordResult
from dynatick.engine.recovery import MAX_RECOVERIES, TOGETHER, Recovery, RecoveryOrder, orders_for
from dynatick.engine.recurring import Recurring, Served
from dynatick.engine.report import PassReport, Resume, tick_record_id
from dynatick.engine.rules import SKEW_MARGIN
from dynatick.engine.shard_lease import ShardLease
from dynatick.errors import DynatickError

CLAIMS_UNDER_WAY = 2
CLAIM_DELAY = timedelta(seconds=1)  # that an entry waits for others to share its claim
MAX_WAITING_FOR_LIMIT = (
    500  # tasks that wait for their turn beside those that are in flight otherwise: memory has its bound
)
MAX_LEFT_BEHIND = 100  # entries that a continuation is told of; if there are more, it begins at the oldest bucket
MAX_DEFERRED = 200  # rows that one pass puts off
ROUND_TIMEOUT = timedelta(seconds=1)  # for what is in flight, before a bucket is looked at again
TICK_RECORD_DAYS = 7

Entries = Sequence[tuple[Bucket, str]]


def drain(
    services: Services,
    *,
    tick: int,
    shard: int,
    hard_end: datetime,
    continuation: int = 0,
    resume: Resume | None = None,
    left_behind: Entries = (),
    send_continuation: Callable[[Resume | None, Entries], None] | None = None,
    start_recovery: Callable[[RecoveryOrder], bool] = lambda order: False,
) -> PassReport:
    """Closes the shard's buckets through ``tick`` and runs what is due in them.

    ``hard_end``: when the process will be killed. ``resume``: where an earlier invocation of this pass stopped, and
    ``left_behind`` what it could not end before that place. ``send_continuation`` is called once, with the same two, if
    this pass leaves something for want of time and had made progress: as soon as the shard is free again if it was cut
    short, later if it finds out later. ``start_recovery`` starts a recovery, and says whether it could.
    Raises StoreError if the table cannot be reached; whatever was claimed then comes back by its lease.
    """
    started = services.clock()
    report = PassReport(tick=tick, shard=shard, continuation=continuation, started_at=started)
    token = services.new_token()
    cursor = take(services.store, shard, tick, token=token, now=started)
    if cursor is None:
        report.leased_elsewhere = True
        report.finished_at = services.clock()
        return report
    window = Window(cursor, services.rules, closed_at=services.clock())
    running = _Pass(services, window, report, token, Budget.until(hard_end, started), send_continuation, start_recovery)
    try:
        running.work(resume, left_behind)
    finally:
        running.close()
    report.finished_at = services.clock()
    if not report.is_idle:
        _keep(services, report)
    return report


def _keep(services: Services, report: PassReport) -> None:
    expires = int((services.clock() + timedelta(days=TICK_RECORD_DAYS)).timestamp())
    record = tick_record_id(report.tick, report.shard, report.continuation)
    if not services.store.create({"taskId": record, **report.to_row(), "expiresAt": expires}):
        # The tick fired twice, and both times there was something to do.
        counts = {name: Plus(value) for name, value in report.counts().items() if value}
        there = tuple(AtLeast(name, 0) for name in counts)
        services.store.write(ConditionalUpdate(task_id=record, set={**counts, **report.ending()}, conditions=there))


class _Pass:
    def __init__(
        self,
        services: Services,
        window: Window,
        report: PassReport,
        token: str,
        budget: Budget,
        send_continuation: Callable[[Resume | None, Entries], None] | None,
        start_recovery: Callable[[RecoveryOrder], bool],
    ) -> None:
        self.services, self.window, self.report, self.budget = services, window, report, budget
        self.store, self.clock, self.send_continuation, self.start_recovery = (
            services.store,
            services.clock,
            send_continuation,
            start_recovery,
        )
        self.shard = ShardLease(services.store, services.clock, window, token)
        self.claimer = Claimer(services.store, services.placer, services.clock, services.new_token)
        self.recurring = Recurring(services.store, services.placer, self.claimer, services.clock, services.new_token)
        self.execution = Execution(
            services,
            report,
            budget,
            closed_through=lambda: self.window.cursor.closed_through,
            started=self._started,
            recorded=self._recorded,
            released=self._released,
            between=self._between,
        )
        self.reader = PageReader(self.execution, report.shard)
        self.found: set[int] = set()  # the minutes in which there was something, in this round
        self.left_behind: dict[tuple[Bucket, str], None] = {}  # entries that hold their buckets back
        self.expired: list[tuple[Bucket, LeaseExpired]] = []  # to be handed to recoveries
        self.met_expired: set[tuple[Bucket, str]] = set()  # each is handed out once
        self.not_handed_out: list[tuple[Bucket, str]] = []  # for which none could be started
        self.recoveries = 0  # started

    # -- the order of a pass ---------------------------------------------------------------------------------------

    def work(self, resume: Resume | None, left_behind: Entries) -> None:
        execution = self.execution
        self._claim_left_behind(left_behind)
        covered = self.window.cursor.closed_through
        minutes: Iterable[int] = (m for m in self.window.due(self.clock()) if resume is None or m >= resume.minute)
        while True:
            self.found = set()
            self._look_and_claim(minutes, resume)
            resume = None
            self._start_recoveries()
            if self._must_stop():
                break
            if self.found:  # and round again in what had something, until nothing new is due
                patience = min(self.clock() + ROUND_TIMEOUT, self.budget.stop_waiting)
                execution.wait(until=execution.nothing_runs, end=patience)
            if self.clock() >= self.budget.stop_claiming:
                break
            closed = self.window.cursor.closed_through
            again = [*sorted(self.found), *range(covered + 1, closed + 1)]  # another tick may have come meanwhile
            minutes, covered = again, closed
            if not again and self._end():
                break
        if self.report.resume or execution.too_late:
            execution.release_unbegun()
        while self.shard.holding and not self._end():
            pass
        if self.window.cursor.closed_through > covered:  # that tick has left its buckets to this pass
            self._leave(Resume(covered + 1))
        self._continue()
        # What takes longer than is left goes on in a new invocation at once, and all that is not begun with it.
        execution.wait(until=lambda: not execution.in_flight or bool(execution.too_late), end=self.budget.stop_claiming)
        execution.release_unbegun()  # what no thread has begun by now might be cut off in the middle
        self._continue()
        execution.wait(until=execution.nothing_runs)
        self._recover_here()
        execution.finish_records()
        self._continue()
        self.report.unfinished = len(execution.in_flight) + execution.claiming
        self.report.moved, self.report.rejected = self.services.placer.moved, self.services.placer.failed
        if execution.fault is not None:
            raise execution.fault

    def _continue(self) -> None:
        """Has what is left taken up at once, if this pass was cut short and another one would get further."""
        worth_it = self.report.made_progress and not self.shard.lost and self.execution.fault is None
        if self.report.resume and worth_it and self.send_continuation is not None and not self.report.continued:
            left = list(self.left_behind)
            if len(left) > MAX_LEFT_BEHIND:
                self.send_continuation(None, ())
            else:
                self.send_continuation(self.report.resume, left)
            self.report.continued = True

    def _leave(self, position: Resume) -> None:
        """Notes that something is left from a position on."""
        self.report.resume = position if self.report.resume is None else min(position, self.report.resume)

    def close(self) -> None:
        self.execution.close()
        self.reader.close()

    def _must_stop(self) -> bool:
        return self.report.resume is not None or not self.shard.holding or self.execution.fault is not None

    # -- looking and claiming --------------------------------------------------------------------------------------

    def _look_and_claim(self, minutes: Iterable[int], resume: Resume | None) -> None:
        """Looks at buckets, oldest first, all pages, and claims what is due; ``found`` gets the minutes that had
        something.

        If there is no more time, ``report.resume`` says from where on nothing was claimed.
        """
        batch: list[tuple[Bucket, str]] = []
        since = self.clock()  # when the batch began
        position = resume
        for minute, page in self.reader.pages(minutes, resume, self._began):
            position = position or Resume(minute)
            if page is None:
                return self._cut(position, batch)
            schedules, tasks = self._sorted_out(Bucket(minute, self.report.shard), page)
            if page.after is None:
                partly = resume is not None and minute == resume.minute and resume.after is not None
                self.window.hold(minute).complete = not partly
            if not self._may_claim():
                return self._cut(position, [*batch, *schedules, *tasks])
            while schedules:
                if not self._serve(schedules[:BATCH], position):
                    return self._cut(position, [*batch, *schedules, *tasks])
                del schedules[:BATCH]
            for n, entry in enumerate(tasks):
                since = since if batch else self.clock()
                batch.append(entry)
                if len(batch) == BATCH:
                    if not self._claim(batch, position):
                        return self._cut(position, [*batch, *tasks[n + 1 :]])
                    position, batch = Resume(minute, entry[1]), []
            if batch and self.clock() - since >= CLAIM_DELAY:
                if not self._claim(batch, position):
                    return self._cut(position, batch)
                batch = []
            if not batch:
                position = Resume(minute, page.after) if page.after is not None else Resume(minute + 1)
        if batch and position is not None and not self._claim(batch, position):
            return self._cut(position, batch)
        return self.execution.wait(until=lambda: not self.execution.claiming)

    def _began(self, minute: int, now: datetime) -> None:
        self.report.buckets += minute not in self.window.looks
        self.report.first_minute = minute if self.report.first_minute is None else self.report.first_minute
        self.window.begin(minute, now)

    def _sorted_out(self, bucket: Bucket, page: Page) -> tuple[list[tuple[Bucket, str]], list[tuple[Bucket, str]]]:
        """The schedules and the tasks of a page. Until it is known what each is, its bucket is not drained."""
        schedules: list[tuple[Bucket, str]] = []
        tasks: list[tuple[Bucket, str]] = []
        for entry in page.entries:
            task_id = entry.task_id
            if entry.schedule_id is not None and is_listed_as_schedule(task_id, entry.schedule_id):
                schedules.append((bucket, task_id))
            # Under such an id nobody can put a task; and what is in flight holds its bucket already.
            elif not is_own_row(task_id) and (task_id, bucket.minute) not in self.execution.ids:
                tasks.append((bucket, task_id))
        self.window.hold(bucket.minute).in_flight += len(schedules) + len(tasks)
        return schedules, tasks

    def _cut(self, position: Resume, unclaimed: Entries) -> None:
        for bucket, _ in unclaimed:
            self._no_longer_in_flight(bucket.minute).busy += 1
        self._leave(position)
        self.execution.wait(until=lambda: not self.execution.claiming)

    def _no_longer_in_flight(self, minute: int) -> Look:
        look = self.window.hold(minute)
        look.in_flight -= 1
        return look

    def _claim_left_behind(self, entries: Entries) -> None:
        """What earlier generations could not end: another process had it then, or its lease had just expired."""
        for start in range(0, len(entries), BATCH):
            batch = entries[start : start + BATCH]
            for bucket, _ in batch:
                self.window.hold(bucket.minute).in_flight += 1
            position = Resume(min(bucket.minute for bucket, _ in batch))
            if not self._claim(batch, position):
                return self._cut(position, batch)
        return self.execution.wait(until=lambda: not self.execution.claiming)

    def _claim(self, batch: Entries, position: Resume) -> bool:
        """Starts a claim once there is room for it. False, and nothing is started, if there will be none."""
        if not self._wait_for_room(len(batch)):
            return False
        entries = self._each_once(batch)
        self.execution.claiming += len(entries)
        self.report.due += len(entries)
        self.execution.submit(partial(self._claim_now, entries, position))
        return True

    def _serve(self, batch: Entries, position: Resume) -> bool:
        """As ``_claim``, for schedules."""
        if not self._wait_for_room(len(batch)):
            return False
        try:
            if not self.shard.open(self.budget.hard_end):
                return False
        except DynatickError as error:
            self.execution.fault = self.execution.fault or error
            return False
        entries = self._each_once(batch)
        self.execution.claiming += len(entries)
        self.window.writing += 1
        self.execution.submit(partial(self._serve_now, entries, position, self.window.cursor.closed_through))
        return True

    def _wait_for_room(self, more: int) -> bool:
        """False if there is no more time, or nothing must be claimed any more."""
        while not self._has_room(more):
            if not self._may_claim():
                return False
            self.execution.handle_events()
        return self._may_claim()

    def _each_once(self, batch: Entries) -> Entries:
        entries = list({task_id: (bucket, task_id) for bucket, task_id in batch}.values())
        for bucket, _ in set(batch).difference(entries):  # shown in two buckets, as a lagging index does
            self._no_longer_in_flight(bucket.minute).busy += 1
        return entries

    def _has_room(self, more: int) -> bool:
        # Those that wait for their turn hold no thread, so that a slow target does not keep others from being claimed.
        execution = self.execution
        under_way = execution.claiming + len(execution.in_flight) - min(execution.bench.held, MAX_WAITING_FOR_LIMIT)
        fits = under_way + more <= execution.most_in_flight and execution.has_room_for_large()
        claims = 1 if execution.large else CLAIMS_UNDER_WAY  # what comes next may be as large
        return execution.claiming < claims * BATCH and fits

    def _may_claim(self) -> bool:
        # Of tasks that take longer than is left a few are stepped over; more of them are better off elsewhere.
        left_out = len(self.execution.too_late) >= BATCH
        return self.shard.holding and self.execution.fault is None and not left_out and self.execution.may_begin()

    def _claim_now(self, entries: Entries, position: Resume) -> Callable[[], None]:
        """In an I/O thread."""
        try:
            verdicts = list(self.claimer.claim(entries, lease_until=self.budget.hard_end))
            failed: list[RecordResult] = []
            for n, verdict in enumerate(verdicts):
                if isinstance(verdict, Malformed):
                    recorded_as = self.execution.recorder.fail_malformed(verdict)
                    failed.append(recorded_as)
                    verdicts[n] = Contended() if recorded_as is RecordResult.UNRECORDED else Ineligible()
        except Exception as error:  # to be raised by the coordinator, once what is in flight is recorded
            return partial(self._take_fault, entries, error)
        return partial(self._take_claimed, entries, position, verdicts, failed)

    def _serve_now(self, entries: Entries, position: Resume, closed_through: int) -> Callable[[], None]:
        """In an I/O thread."""
        try:
            served = self.recurring.serve(entries, closed_through=closed_through, lease_until=self.budget.hard_end)
        except Exception as error:
            return partial(self._take_fault, entries, error, of_schedules=True)
        return partial(self._take_served, entries, position, served)

    # -- events ----------------------------------------------------------------------------------------------------

    def _take_claimed(
        self, entries: Entries, position: Resume, verdicts: Sequence[Verdict], failed: Sequence[RecordResult]
    ) -> None:
        self.execution.claiming -= len(entries)
        self.execution.count(*failed)
        may_begin = self.execution.may_begin()
        for (bucket, task_id), verdict in zip(entries, verdicts, strict=True):
            self._place(bucket, task_id, verdict, position, may_begin)
            if isinstance(verdict, Contended | LeaseExpired):
                self.left_behind[bucket, task_id] = None
        if len(self.expired) >= TOGETHER:
            self._start_recoveries()

    def _take_served(self, entries: Entries, position: Resume, served: Sequence[Served]) -> None:
        self.execution.claiming -= len(entries)
        self.window.writing -= 1
        may_begin = self.execution.may_begin()
        for (bucket, task_id), one in zip(entries, served, strict=True):
            self._place(bucket, task_id, one.verdict, position, may_begin)
            self._take_occurrences(bucket, one)

    def _take_fault(self, entries: Entries, error: Exception, *, of_schedules: bool = False) -> None:
        self.execution.claiming -= len(entries)
        self.window.writing -= of_schedules
        for bucket, _ in entries:
            self._no_longer_in_flight(bucket.minute).busy += 1
        self.execution.fault = self.execution.fault or error

    def _place(self, bucket: Bucket, task_id: str, verdict: Verdict, position: Resume, may_begin: bool) -> None:
        look = self._no_longer_in_flight(bucket.minute)
        match verdict:
            case Claimed():
                self.report.claimed += 1
                self.found.add(bucket.minute)
                self.execution.start(verdict, Place(bucket.minute, position), may_begin=may_begin)
            case LeaseExpired():
                look.busy += 1
                if (bucket, task_id) not in self.met_expired:
                    self.met_expired.add((bucket, task_id))
                    self.report.expired += 1
                    self.expired.append((bucket, verdict))
            case Contended(stuck):
                look.busy += 1
                if stuck:
                    look.held.append(task_id)
            case Malformed():
                look.busy += 1
            case Ineligible():
                pass

    def _take_occurrences(self, bucket: Bucket, served: Served) -> None:
        """What a schedule's tasks are to this pass: some it runs, others are in other hands."""
        now = self.clock()
        for minute in served.written:
            self.window.wrote(minute, now)
        for minute in served.elsewhere:
            self.window.hold(minute).busy += 1
        if served.more:
            self.found.add(bucket.minute)
        self.report.missed += served.missed
        for won in served.won:
            self.report.due += 1
            self.report.claimed += 1
            self.report.occurrences += 1
            self.found.add(bucket.minute)
            place = Place(won.task.bucket.minute, Resume(bucket.minute))
            self.execution.start(won, place, may_begin=self.execution.may_begin())

    def _started(self, place: Place) -> None:
        self.window.hold(place.minute).in_flight += 1

    def _recorded(self, place: Place, task: Task, recorded_as: RecordResult) -> None:
        look = self._no_longer_in_flight(place.minute)
        # Another row may lie under the id of a superseded one: it was passed over while this one was in flight.
        if recorded_as in (RecordResult.UNRECORDED, RecordResult.SUPERSEDED):
            look.busy += 1
            self.left_behind[Bucket(place.minute, self.report.shard), task.task_id] = None

    def _released(self, place: Place) -> None:
        self._no_longer_in_flight(place.minute).busy += 1
        self._leave(place.position)

    def _between(self) -> None:
        if self.shard.is_to_be_renewed:
            self._start_recoveries()
        try:
            self.shard.keep()
        except DynatickError as error:  # what is in flight is still brought to its end
            self.execution.fault = self.execution.fault or error

    # -- the shard -------------------------------------------------------------------------------------------------

    def _end(self) -> bool:
        """The end write. False if another tick has closed buckets meanwhile, so that there is more to do."""
        try:
            self._defer_stuck()
            ended = self.shard.end(self._noted)
        except DynatickError as error:
            self.execution.fault = self.execution.fault or error
            return True
        if ended and not self.shard.lost:
            self.report.closed_through = self.window.cursor.closed_through
            self.report.drained_through = self.window.cursor.drained_through
        return ended

    def _noted(self, cursor: Cursor) -> Cursor:
        """With the count of idle ticks, which spares each of them a record of its own."""
        tick = str(Bucket(self.report.tick))
        if self.report.is_idle:
            new_tick = cursor.last_tick != tick
            return replace(
                cursor,
                idle_since=cursor.idle_since or tick,
                idle_ticks=cursor.idle_ticks + new_tick,
                last_tick=tick,
            )
        if cursor.idle_ticks:
            self.report.idle_before = {
                "since": cursor.idle_since,
                "until": cursor.last_tick,
                "ticks": cursor.idle_ticks,
            }
        return replace(cursor, idle_since=None, idle_ticks=0, last_tick=tick)

    def _defer_stuck(self) -> None:
        """Moves rows that nothing can be done with out of buckets that had their final look, so that S passes (3)."""
        left = MAX_DEFERRED
        for minute, look in list(self.window.to_defer()):
            for task_id in look.held[:left]:
                if self._is_deferred(Bucket(minute, self.report.shard), task_id):
                    look.busy -= 1
            left -= len(look.held[:left])
            look.held = look.held if look.busy else []

    def _is_deferred(self, bucket: Bucket, task_id: str) -> bool:
        """Whether a row holds its bucket back no longer: moved to a tick after this process's end, later each time."""
        placer, now = self.services.placer, self.clock()
        row = self.store.get(task_id)
        if row is None or is_terminal(row) or row.get("taskDateTime") != str(bucket):
            return True
        if not is_stuck(row, bucket, placer, now):
            return False
        at = max(now + deferral(deferrals_of(row)), self.budget.hard_end + SKEW_MARGIN)
        result = self.store.write(defer(row, self.services.settings.grid.bucket_of(task_id, at)))
        if not isinstance(result, Written) or result.row is None:
            return False
        self.report.deferred += 1
        if not placer.is_ahead(result.row):  # C is read after the move, for this process may have been frozen (7, 17)
            placer.settle(task_id)
        return True

    # -- expired leases --------------------------------------------------------------------------------------------

    def _start_recoveries(self) -> None:
        """Starts recoveries for the tasks whose lease expired; those beyond a pass's share are the next tick's."""
        for order in orders_for(self.expired):
            if self.recoveries == MAX_RECOVERIES:
                break
            if not self.not_handed_out and self.start_recovery(order):
                self.recoveries += 1
            else:
                self.not_handed_out += [(order.bucket, task_id) for task_id in order.task_ids]
        self.expired = []

    def _recover_here(self) -> None:
        """Runs the tasks that could not be handed out one at a time, with nothing else in flight (10). What there is no
        time for, a slow task being in flight, is left to an invocation that has nothing in flight."""
        execution = self.execution
        for bucket, task_id in self.not_handed_out:
            if execution.in_flight or execution.recording or execution.fault or not execution.may_begin():
                self._leave(Resume(bucket.minute))
                return
            deferred = Recovery(execution, bucket).reclaim([task_id], last_too=True)
            if deferred and (self.report.claimed or self.report.recovered):
                self._leave(Resume(bucket.minute))  # otherwise a new invocation had no more time for it either
            execution.wait(until=execution.nothing_runs)

"""The tasks of a pass, from their claim to the record of their attempt (protocol 3, 9).

They hold their bucket back, which the pass's window counts: an entry from its poll until its claim is answered, and a
claimed task until its attempt is recorded.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Protocol

from dynatick.domain.buckets import Bucket
from dynatick.domain.packs import tasks_of
from dynatick.domain.row import Due, RowView
from dynatick.domain.task import Row, Task
from dynatick.engine.claims import (
    Claimed,
    Claimer,
    Contended,
    Entries,
    Ineligible,
    LeaseExpired,
    Malformed,
    Rejected,
    Verdict,
)
from dynatick.engine.counts import PassReport, RecordResult
from dynatick.engine.invocation import BATCH, MAX_FAILING, Budget, Execution, Place, Services
from dynatick.engine.limits import LimitsLease
from dynatick.engine.orders import Order, Resume, wake_ups_of
from dynatick.engine.record import Failure, is_woken_late
from dynatick.engine.recovery import ExpiredLeases
from dynatick.engine.schedules import Made, Recurring
from dynatick.engine.turns import KeyTurns
from dynatick.engine.window import Window
from dynatick.errors import DynatickError

MAX_CLAIMS = 2  # at once
MAX_RATE_LIMITED = 500  # tasks that wait for a rate limit, beside those that are in flight otherwise: they take memory


_Occurrences = tuple[Sequence[Made], Iterable[Bucket], Exception | None]
"""Those of some schedules, the buckets of the schedules' next occurrences, and why these may be closed."""


class Permit(Protocol):
    """What a process may claim by: the shard lease of a pass, or the order of a worker."""

    @property
    def is_of_holder(self) -> bool:
        """Whether it holds the shard. The holder alone takes schedules, and tasks with a rate limit."""

    @property
    def is_held(self) -> bool:
        """Whether something may be claimed."""

    def keep_open(self, until: datetime) -> bool:
        """Whether occurrences may be written into closed buckets until then."""


class Claiming:
    """Claims entries and starts their tasks. The coordinator's thread calls everything but ``_…_now``."""

    def __init__(
        self,
        services: Services,
        window: Window,
        report: PassReport,
        budget: Budget,
        permit: Permit,
        *,
        recoveries_until: datetime,
        lease: LimitsLease | None = None,
        start: Callable[[Order], bool] = lambda order: False,
        after_events: Callable[[], None] = lambda: None,
    ) -> None:
        """``recoveries_until``: when others may be started for actions with a rate limit. ``lease``: with which it may
        run tasks with limit keys; None: it leaves them."""
        self.window, self.report, self.budget, self.permit = window, report, budget, permit
        self.clock = services.clock
        self.claimer = Claimer(
            services.store, services.placer, services.clock, services.new_token, self._add_unreleased
        )
        self.recurring = Recurring(
            services.store,
            services.placer,
            self.claimer,
            services.clock,
            services.new_token,
            services.report_overdue,
        )
        self.turns = (
            None
            if lease is None
            else KeyTurns(services.rules.key_limits, lease, services.clock, in_one_thread=services.rules.in_one_thread)
        )
        self.execution = Execution(
            services,
            report,
            budget,
            start=start,
            turns=self.turns,
            started=lambda place: window.add_in_flight(place.minute),
            recorded=self._recorded,
            released=self._released,
            put_back=self._put_back,
            withheld=self._withheld,
            after_events=after_events,
        )
        self.expired = ExpiredLeases(
            report,
            self.execution.start_others,
            recoveries_until,
            services.rules.limited_actions,
            is_limited=services.rules.is_limited,
        )
        self.minutes_with_work: set[int] = set()  # of the buckets in which the latest round has claimed something
        self.unmade: set[int] = set()  # of those where it has left occurrences of a schedule to a further round
        self.waits_for_resume = defaultdict[str, set[int]](set)  # minutes of buckets, by actions that are paused
        self.withheld: dict[str, str] = {}  # actions of tasks that were released since those are paused, by id
        self.left_behind: dict[tuple[Bucket, str], None] = {}  # entries for a continuation, in order
        self.due: dict[tuple[Bucket, str], Due] = {}  # of entries that wait for turns before their tick
        self.on_time: set[Bucket] = set()  # for whose ticks this pass has sent a wake-up

    def _add_unreleased(self, task_id: str, token: str) -> None:
        self.execution.add_unreleased(task_id, token)

    def end_unclaimed(self, entries: Iterable[tuple[Bucket, str]]) -> None:
        for bucket, _ in entries:
            self.window.end_in_flight(bucket.minute, is_open=True)

    def claim(self, batch: Entries, position: Resume) -> bool:
        """Starts a claim once there is room for it. False: there will be none, and nothing was started."""
        if not self._wait_for_room(_tasks_of(batch)):
            return False
        entries = self._without_repetitions(batch)
        self._claim(entries, position, _tasks_of(entries))
        return True

    def _claim(self, entries: Entries, position: Resume, tasks: int) -> None:
        """``tasks``: what room they need."""
        self.report.due += len(entries)
        self.execution.claim(
            tasks,
            partial(self.claimer.claim, entries, lease_until=self.budget.hard_end, due=self._take_due(entries)),
            partial(self._claim_answered, entries, position),
            partial(self._claim_failed, entries),
        )

    def _take_due(self, entries: Entries) -> Mapping[str, Due]:
        """Those of them whose buckets no tick has closed yet, by id."""
        due = {entry: self.due.pop(entry) for entry in entries if entry in self.due}
        return {task_id: one for (bucket, task_id), one in due.items() if self._is_open(bucket)}

    def _is_open(self, bucket: Bucket) -> bool:
        return bucket.minute > self.window.cursor.closed_through

    def make_occurrences(self, batch: Entries, position: Resume) -> bool:
        """Like ``claim``, for schedules."""
        if not self._wait_for_room(len(batch)):
            return False
        try:
            if not self.permit.keep_open(self.budget.hard_end):
                return False
        except DynatickError as error:
            self.execution.keep_fault(error)
            return False
        entries = self._without_repetitions(batch)
        self.window.begin_to_write()
        closed_through = self.window.cursor.closed_through
        self.execution.claim(
            len(entries),
            partial(self._make_occurrences_now, entries, closed_through),
            partial(self._occurrences_made, entries, position, closed_through),
            partial(self._claim_failed, entries, of_schedules=True),
        )
        return True

    def is_full(self, entries: int, tasks: int) -> bool:
        """Whether a claim of this many can have no further entry: of packs, it has no more than begin soon."""
        return entries >= BATCH or tasks > max(BATCH, self.execution.max_waiting_members // 2)

    def paused_action(self, task_id: str, action: str | None = None) -> str | None:
        """The action of an entry, if that is paused. ``action``: as the index says; it may say nothing or be behind,
        so a task that was claimed for that reason once is known. None: it is not paused."""
        paused = self.execution.services.pause.actions
        return next((one for one in (action, self.withheld.get(task_id)) if one is not None and one in paused), None)

    def withhold(self, bucket: Bucket, task_id: str, action: str) -> None:
        """Leaves an entry whose action is paused. The holder moves it to a later tick at the end of its pass."""
        self.window.add_contended(bucket.minute, in_turn=task_id if self.permit.is_of_holder else None)
        self.waits_for_resume[action].add(bucket.minute)

    def take_resumed(self) -> set[int]:
        """The minutes of the buckets in which entries were left whose actions are not paused any more."""
        resumed = [action for action in self.waits_for_resume if not self.execution.is_action_paused(action)]
        return {minute for action in resumed for minute in self.waits_for_resume.pop(action)}

    def begin_round(self) -> None:
        self.minutes_with_work.clear()
        self.unmade.clear()

    def wait_for_room(self, until: Callable[[], bool]) -> None:
        """Waits until a batch can be claimed, or ``until`` holds, or nothing may be claimed any more."""
        while not self._has_room(BATCH) and self.may_claim() and not until():
            self.execution.handle_events()

    def _wait_for_room(self, more: int) -> bool:
        """False: time is up, or nothing may be claimed any more."""
        while not self._has_room(more):
            if not self.may_claim():
                return False
            self.execution.handle_events()
        return self.may_claim()

    def _without_repetitions(self, batch: Entries) -> Entries:
        entries = list({task_id: (bucket, task_id) for bucket, task_id in batch}.values())
        self.end_unclaimed(set(batch).difference(entries))  # a lagging index lists a task in two buckets
        return entries

    def _room(self) -> int:
        """How many entries a claim can have that there is room for; there is some for one."""
        return next((number for number in (BATCH, BATCH // 2, 5) if self._has_room(number)), 1)

    def _has_room(self, more: int) -> bool:
        # A task that waits for its rate limit has no thread: a slow target must not keep others from being claimed.
        execution = self.execution
        waiting = min(execution.task_pool.rate_limited, MAX_RATE_LIMITED)
        in_flight = len(execution.in_flight) + execution.packs.waiting
        maximum = execution.max_in_flight if more <= BATCH else execution.max_waiting_members
        # A pack may have more members than that; the next one is claimed when half as many wait.
        fits = execution.claiming + in_flight - waiting + min(more, maximum // 2) <= maximum
        claims = 1 if execution.large else MAX_CLAIMS  # the next rows may be as large
        fits = fits and execution.failing < MAX_FAILING
        return execution.claiming < claims * BATCH and fits and execution.has_room_for_large()

    def may_claim(self) -> bool:
        # A few tasks that take longer than is left are passed over; more of them should go to a new invocation.
        passed_over = len(self.execution.too_late) >= BATCH
        return self.permit.is_held and self.execution.fault is None and not passed_over and self.execution.may_begin()

    def _make_occurrences_now(self, entries: Entries, closed_through: int) -> _Occurrences:
        """Makes occurrences of schedules, in an I/O thread."""
        made = self.recurring.make_occurrences(entries, closed_through=closed_through, lease_until=self.budget.hard_end)
        moves = {task_id: one.next for (_, task_id), one in zip(entries, made, strict=True) if one.next is not None}
        fault: Exception | None = None
        try:
            moves |= self.execution.services.placer.check_moves(moves)[0]
        except Exception as error:  # the coordinator raises it once everything in flight is recorded
            fault = error
        return made, moves.values(), fault

    def _wake_next(self, buckets: Iterable[Bucket], closed_through: int) -> None:
        """Lets passes begin on time for the next runs of schedules, in buckets that were planned without them (19)."""
        services = self.execution.services
        if services.wake_ups is None:
            return
        new = {
            bucket
            for bucket in buckets
            if bucket.minute > closed_through and services.rules.is_planned(bucket.minute, closed_through)
        } - self.on_time
        if new:
            self.on_time |= new
            wake_ups = wake_ups_of(((bucket, bucket.instant) for bucket in new), threads=services.rules.threads)
            self.execution.send_wake_ups(list(wake_ups))

    # -- tasks with limit keys -------------------------------------------------------------------------------------

    def offer(self, bucket: Bucket, task_id: str, key: str, *, again: bool = False) -> None:
        """Lets an entry wait for the turn of its key; one that does not lie in the shard of its key is placed (24). A
        worker leaves both to the holder. ``again``: it was offered before, and holds its bucket back since then."""
        if self.turns is None or self.turns.knows(bucket, task_id) or not self.turns.is_limited(key):
            return
        if again and ((task_id, bucket.minute) in self.execution.ids or self.paused_action(task_id) is not None):
            return
        if self.execution.services.settings.grid.shard_of(key) != bucket.shard:
            self.window.add_in_flight(bucket.minute)
            self.execution.claim(
                1,
                partial(self.execution.services.placer.place, task_id),
                partial(self._placed, bucket),
                partial(self._claim_failed, [(bucket, task_id)]),
            )
        elif self.turns.offer(bucket, task_id, key):
            self.window.add_in_flight(bucket.minute)
        elif not again:
            self.window.add_contended(bucket.minute, in_turn=task_id if self.turns.is_held else None)

    def offer_due(self, bucket: Bucket, due: Due, key: str) -> bool:
        """Like ``offer``, for a task of a bucket that no tick has closed yet. False: too many of its key wait."""
        turns, task_id = self.turns, due.task_id
        if turns is None or turns.knows(bucket, task_id) or turns.has_place(task_id):
            return True
        if (task_id, bucket.minute) in self.execution.ids:
            return True  # a pack that is open
        if self.paused_action(task_id) is not None:
            return True
        if turns.offer(bucket, task_id, key, is_closed=False):
            self.due[bucket, task_id] = due
            self.window.add_in_flight(bucket.minute)
            return True
        return not turns.is_held or turns.has_place(task_id)

    def is_crowded(self, entries: int) -> bool:
        """Whether a poll that finds this many should wait for tasks that have turns before them."""
        return self.turns is not None and self.turns.is_crowded(entries)

    def _placed(self, bucket: Bucket, row: Row | None) -> None:
        is_here = row is not None and RowView(row).is_open_in(bucket)
        self.window.end_in_flight(bucket.minute, is_open=is_here)

    def claim_in_turn(self) -> None:
        """Claims what has its turn, as far as there is room, and begins members of packs in theirs."""
        turns, packs = self.turns, self.execution.packs
        if turns is None:
            return
        if turns.fault is not None:
            self.execution.keep_fault(turns.fault)
        while True:
            may_claim = turns.has_turn and self._has_room(1) and self.may_claim()
            began = packs.begin_in_turn(tasks_may=may_claim)
            entries = turns.take(self._room()) if may_claim else []
            if entries:  # of a pack, no member waits for room
                self._claim(entries, Resume(min(bucket.minute for bucket, _ in entries)), len(entries))
            if not began and not entries:
                break
        packs.release_idle()

    def leave_turns(self) -> None:
        """Leaves what waits for its turn to the next tick; if time was up, to a continuation."""
        if self.turns is None:
            return
        is_cut_short = not self.execution.may_begin()
        left, skipped = self.turns.leave()
        self.due.clear()
        for bucket, task_id in left:
            self.window.end_in_flight(bucket.minute, is_open=False)
            self.window.add_contended(bucket.minute, in_turn=None if is_cut_short else task_id)
            if is_cut_short:
                self.report.leave(Resume(bucket.minute))
        if is_cut_short and skipped is not None:
            self.report.leave(skipped)

    # -- after the claim -------------------------------------------------------------------------------------------

    def _claim_answered(self, entries: Entries, position: Resume, verdicts: Sequence[Verdict]) -> None:
        may_begin = self.execution.may_begin()
        for (bucket, task_id), verdict in zip(entries, verdicts, strict=True):
            if self.turns is not None and not isinstance(verdict, Claimed):
                self.turns.not_claimed(bucket, task_id, is_overdue=isinstance(verdict, LeaseExpired))
            self._follow(bucket, task_id, verdict, position, may_begin)
            if isinstance(verdict, Contended | LeaseExpired):
                self._leave_behind(bucket, task_id)
        self.expired.start_full_recovery()

    def _occurrences_made(self, entries: Entries, position: Resume, closed_through: int, answer: _Occurrences) -> None:
        made, moved_to, fault = answer
        if fault is not None:
            self.execution.keep_fault(fault)
        self.window.end_write()
        may_begin = self.execution.may_begin()
        for (bucket, schedule_id), of_schedule in zip(entries, made, strict=True):
            self._follow(bucket, schedule_id, of_schedule.verdict, position, may_begin)
            self._start_occurrences(bucket, of_schedule)
        self._wake_next(moved_to, closed_through)

    def _claim_failed(self, entries: Entries, error: Exception, *, of_schedules: bool = False) -> None:
        if of_schedules:
            self.window.end_write()
        if self.turns is not None:
            for bucket, task_id in entries:
                self.turns.not_claimed(bucket, task_id)
        self.end_unclaimed(entries)
        self.execution.keep_fault(error)

    def _follow(self, bucket: Bucket, task_id: str, verdict: Verdict, position: Resume, may_begin: bool) -> None:
        """Does what the verdict on one entry asks for."""
        is_open, stuck_id = False, None
        match verdict:
            case Claimed():
                self.report.claimed += 1
                # Else it may be the backlog of an earlier invocation.
                is_first = bucket.minute == self.report.tick and not self.report.continuation
                self.report.woken_late += is_first and is_woken_late(
                    verdict.task, self.report.started_at, self.execution.services.rules
                )
                # The turns of its key are taken without another poll.
                if not self.execution.services.rules.is_limited(verdict.task.limit_key):
                    self.minutes_with_work.add(bucket.minute)
                self.execution.start(verdict, Place(bucket.minute, position), may_begin=may_begin)
            case LeaseExpired():
                is_open = True
                self.expired.add(bucket, verdict)
            case Contended(stuck):
                is_open, stuck_id = True, task_id if stuck else None
            case Malformed(row, reason):
                failure = self.execution.recorder.failure_of(row, reason)
                return self.execution.fail(failure, bucket.minute, partial(self._failed, bucket, task_id))
            case Rejected(row, change):
                failure = Failure.of_rejection(row, change)
                return self.execution.fail(failure, bucket.minute, partial(self._rejected, bucket, task_id))
            case Ineligible():
                pass
        return self.window.end_in_flight(bucket.minute, is_open=is_open, stuck_id=stuck_id)

    def _failed(self, bucket: Bucket, task_id: str, result: RecordResult) -> None:
        self.report.count(result)
        self._end_unexecuted(bucket, task_id, is_open=result is RecordResult.UNRECORDED)

    def _rejected(self, bucket: Bucket, task_id: str, result: RecordResult) -> None:
        """After a rejection, which the placer counts. Without it, the row may have to be deferred."""
        self._end_unexecuted(bucket, task_id, is_open=result is not RecordResult.FAILED, is_stuck=True)

    def _end_unexecuted(self, bucket: Bucket, task_id: str, *, is_open: bool, is_stuck: bool = False) -> None:
        if is_open:
            self._leave_behind(bucket, task_id)
        stuck_id = task_id if is_open and is_stuck else None
        self.window.end_in_flight(bucket.minute, is_open=is_open, stuck_id=stuck_id)

    def _start_occurrences(self, bucket: Bucket, made: Made) -> None:
        """Starts the occurrences that this pass made and claimed; those that other processes run hold their buckets
        back."""
        now = self.clock()
        for minute in made.written:
            self.window.wrote_occurrence(minute, now)
        for minute in made.elsewhere:
            self.window.add_contended(minute)
        if made.more:
            self.minutes_with_work.add(bucket.minute)
            self.unmade.add(bucket.minute)
        self.report.missed += made.missed
        for in_bucket, task_id, key in made.waiting:
            self.report.occurrences += 1
            self.offer(in_bucket, task_id, key)
        for claimed in made.claimed:
            self.report.due += 1
            self.report.claimed += 1
            self.report.occurrences += 1
            self.minutes_with_work.add(bucket.minute)
            place = Place(claimed.task.bucket.minute, Resume(bucket.minute))
            self.execution.start(claimed, place, may_begin=self.execution.may_begin())

    def _recorded(self, place: Place, task: Task, result: RecordResult) -> None:
        # A superseded task may have been replaced by one with its id, which no poll has listed while it was in flight.
        is_open = result in (RecordResult.UNRECORDED, RecordResult.SUPERSEDED)
        if is_open:
            self._leave_behind(Bucket(place.minute, self.report.shard), task.task_id)
        self.window.end_in_flight(place.minute, is_open=is_open)

    def _leave_behind(self, bucket: Bucket, task_id: str) -> None:
        """Leaves an entry to a continuation; one that may not be due yet, to its tick."""
        if not self._is_open(bucket):
            self.left_behind[bucket, task_id] = None

    def _released(self, place: Place) -> None:
        self.window.end_in_flight(place.minute, is_open=True)
        self.report.leave(place.position)

    def _withheld(self, place: Place, task: Task) -> None:
        self.window.end_in_flight(place.minute, is_open=True)
        self.withheld[task.task_id] = task.action
        if not self._is_open(Bucket(place.minute, self.report.shard)):
            self.waits_for_resume[task.action].add(place.minute)

    def _put_back(self, place: Place, pack: Task) -> None:
        """Lets a pack wait for its turn again; one of a bucket that is not closed yet, for its tick."""
        bucket = Bucket(place.minute, self.report.shard)
        self.window.end_in_flight(place.minute, is_open=False)
        if not self._is_open(bucket):
            self.offer(bucket, pack.task_id, str(pack.limit_key))


def _tasks_of(entries: Entries) -> int:
    """How many tasks they stand for: a pack for its members."""
    return sum(tasks_of(task_id) for _, task_id in entries)

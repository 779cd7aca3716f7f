"""An invocation that runs tasks: its time, the pause, and the tasks that it has claimed (protocol 11, 12).

One thread, the coordinator, calls everything here. A few I/O threads write claims and records, the task pool runs
tasks, and further threads send dead letters and wake-ups; each returns an event, a function that the coordinator calls.
What is in flight is bounded, so memory doesn't grow with the bucket.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from queue import Empty, SimpleQueue
from types import MappingProxyType
from typing import TypeVar

from dynatick.domain import attributes as attr
from dynatick.domain.buckets import Bucket
from dynatick.domain.conditional_update import Result, Unknown, Written
from dynatick.domain.instants import format_instant
from dynatick.domain.lifecycle import release
from dynatick.domain.packs import MemberRow, Pack
from dynatick.domain.pause import ActionPause
from dynatick.domain.row import RowView
from dynatick.domain.task import Task, size_of
from dynatick.engine.claims import Claimed, Claimer
from dynatick.engine.conditional_write import write_many
from dynatick.engine.counts import DEPARTED, PassReport, RecordResult, count_departures, log_uncounted
from dynatick.engine.limits import Turns
from dynatick.engine.orders import AnyWakeUp, Order, Resume, send_wake_ups
from dynatick.engine.packs import Packs
from dynatick.engine.placement import Placer
from dynatick.engine.pools import (
    START_TIMEOUT,
    IoPool,
    LettersUntilRefused,
    Pool,
    RemoteCalls,
    TaskPool,
    begin,
    in_turn,
    nothing,
)
from dynatick.engine.ports import Actions, Clock, ReportOverdue, Store, WakeUps
from dynatick.engine.record import (
    Attempted,
    Deferred,
    Error,
    Failure,
    Handed,
    Overrun,
    Recorder,
    lateness_of,
    milliseconds,
)
from dynatick.engine.rules import Precision, Rules
from dynatick.engine.settings import InstallationSettings, read_pauses
from dynatick.errors import DynatickError, InvalidInput

# -- budget ------------------------------------------------------------------------------------------------------------

_TO_BEGIN = timedelta(seconds=5)  # until an invocation begins its first task: it reads settings, polls and claims
_SECOND = timedelta(seconds=1)


def max_timeout_seconds(whole: timedelta) -> int:
    """The longest ``timeoutSeconds`` that fits into an invocation of this length, if that task is its first: the time
    between the start of the first task (after a tenth of the time, at most 5 s) and the last records."""
    return (whole - min(whole / 10, _TO_BEGIN) - _to_record(whole)) // _SECOND


def _to_record(whole: timedelta) -> timedelta:
    """A twentieth of the time, at most 3 s: for the last records and releases."""
    return min(whole / 20, timedelta(seconds=3))


@dataclass(frozen=True, kw_only=True, slots=True)
class Budget:
    """How a pass spends its time: three instants before the process is killed."""

    stop_claiming: datetime
    stop_waiting: datetime
    hard_end: datetime

    @classmethod
    def until(cls, hard_end: datetime, now: datetime) -> Budget:
        """The last quarter of the time, at most 20 s, is for tasks in flight; the end of it for their records."""
        whole = max(hard_end - now, timedelta())
        return cls(
            stop_claiming=hard_end - min(whole / 4, timedelta(seconds=20)),
            stop_waiting=hard_end - _to_record(whole),
            hard_end=hard_end,
        )


# -- pause watch -------------------------------------------------------------------------------------------------------

PAUSE_CHECK = timedelta(seconds=5)
"""So often it is read. What begins tasks may know of a pause no later than ten seconds after it."""


class PauseWatch:
    """Whether everything is paused, and which actions are. Any thread may ask: none waits for the table.

    Once everything was paused, it stays so for this invocation; an action may be resumed.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        known_at: datetime,
        actions: Mapping[str, ActionPause] = MappingProxyType({}),
        in_one_thread: bool = False,
    ) -> None:
        """``known_at``: everything was not paused then, but these ``actions`` were. ``in_one_thread``: it is read in
        the thread that asks."""
        self._store, self._clock, self._in_one_thread = store, clock, in_one_thread
        self._read_at = known_at + PAUSE_CHECK
        self._reading = threading.Lock()
        self._is_paused = False
        self._actions = actions
        self.fault: Exception | None = None  # the first read that failed

    def is_paused(self) -> bool:
        """Whether it is, as known from the last read. Begins another read if that is older than ``PAUSE_CHECK``."""
        if not self._is_paused and self._clock() >= self._read_at and self._reading.acquire(blocking=False):
            self._read_at = self._clock() + PAUSE_CHECK
            begin(self._read, name="dynatick-pause", in_one_thread=self._in_one_thread)
        return self._is_paused

    @property
    def actions(self) -> Mapping[str, ActionPause]:
        """The pauses of actions, by action, as known from the last read, which ``is_paused`` begins."""
        return self._actions

    def _read(self) -> None:
        try:
            everything, self._actions = read_pauses(self._store)
            self._is_paused = everything is not None
        except Exception as error:  # the coordinator raises it once everything in flight is recorded
            self.fault = self.fault or error
        finally:
            self._reading.release()


# -- execution ---------------------------------------------------------------------------------------------------------

BATCH = 25
MIN_IO_THREADS, MAX_IO_THREADS = 2, 6  # claims and records at once
MAX_LETTER_THREADS = 4
MAX_WAKE_UP_THREADS = 2
MAX_START_THREADS = 2
WAKE_UP_TIMEOUT = timedelta(seconds=12)  # an invocation doesn't wait longer for wake-ups: a little more than planning
LETTER_TIMEOUT = timedelta(seconds=10)  # a queue that answers nothing for so long counts as refusing
MAX_FAILING = 500  # failures that wait for their letters, beyond which nothing more is claimed: they take memory
RECORD_DELAY_SECONDS = 0.05  # an outcome waits this long for others to share its batch
MAX_LARGE_IN_FLIGHT = 32_000_000  # bytes of large rows, beyond which nothing more is claimed
CLAIM_AHEAD = timedelta(seconds=2)  # with workers: what runs in this time is claimed
MEMBERS_AHEAD = timedelta(seconds=1)  # of packs: what runs in this time is claimed
_MIN_MEASURED, _MAX_MEASURED = timedelta(seconds=2), timedelta(seconds=5)  # the first claims take a moment
FULL = timedelta(minutes=15)  # a task is due again after so long, if its place could not be noted for want of room
LAST_RECORDS = timedelta(seconds=0.5)  # before the hard end: records under way are waited for until then
_Answer = TypeVar("_Answer")
_Result = TypeVar("_Result", bound="RecordResult | Failure")
_logger = logging.getLogger("dynatick.engine")


@dataclass(frozen=True, kw_only=True, slots=True)
class Services:
    """What an invocation works with."""

    store: Store
    actions: Actions
    dead_letters: LettersUntilRefused
    rules: Rules
    settings: InstallationSettings
    clock: Clock
    new_token: Callable[[], str]
    placer: Placer
    pause: PauseWatch
    wake_ups: WakeUps | None = None  # with Precision.SECOND
    report_overdue: ReportOverdue = lambda overdue: None
    jitter: Callable[[], float] = random.random  # of retries, in [0, 1)
    executions: list[Execution] = field(default_factory=list)  # of this process; each adds itself


@dataclass(frozen=True, slots=True)
class Place:
    """Where a task in flight was found."""

    minute: int  # of its bucket
    position: Resume  # a continuation that polls from here finds it again


@dataclass(frozen=True, slots=True)
class _Failing:
    """A failure that waits for its letter. ``then`` is called with the result of its record."""

    failure: Failure
    minute: int  # of its bucket
    key: str  # by which the execution knows its size, if it is large
    then: Callable[[RecordResult], None]


def measured_rate(ended: int, running: int, elapsed: timedelta, threads: int) -> float | None:
    """Tasks a second. ``ended`` and ``running``: how many have and are, ``elapsed``: since the first one began. None:
    too early to say. What runs counts by half, for on average half of it is done."""
    if elapsed < _MIN_MEASURED or (ended < threads and elapsed < _MAX_MEASURED):
        return None
    return max(ended + running / 2, 1) / elapsed.total_seconds()


class Execution:
    """The tasks in flight of one invocation.

    The coordinator calls ``started``, ``released`` and ``recorded`` with each task to which that happens,
    ``put_back`` with each pack that was released because its limit key let no member begin, ``withheld`` instead of
    ``released`` with each task that was because its action is paused, and ``after_events`` after each round of events.
    ``start`` starts another invocation, in a thread, and returns whether it could. At the end of a ``with`` block, the
    threads are dismissed.
    """

    def __init__(
        self,
        services: Services,
        report: PassReport,
        budget: Budget,
        *,
        start: Callable[[Order], bool] = lambda order: False,
        turns: Turns | None = None,
        started: Callable[[Place], None] = lambda place: None,
        recorded: Callable[[Place, Task, RecordResult], None] = lambda place, task, result: None,
        released: Callable[[Place], None] = lambda place: None,
        put_back: Callable[[Place, Task], None] = lambda place, task: None,
        withheld: Callable[[Place, Task], None] = lambda place, task: None,
        after_events: Callable[[], None] = lambda: None,
    ) -> None:
        self.services, self.report, self.budget, self.start_other = services, report, budget, start
        self.turns = turns or Turns(services.rules.key_limits)
        self.started, self.recorded, self.released, self.after_events = started, recorded, released, after_events
        self.put_back, self.withheld = put_back, withheld
        self.recorder = Recorder(
            services.store,
            services.rules,
            services.settings,
            services.clock,
            placer=services.placer,
            keep_fault=self._keep_fault_later,
            jitter=services.jitter,
            send_wake_ups=None if services.wake_ups is None else self._send_later,
        )
        self.claimer = Claimer(services.store, services.placer, services.clock, services.new_token, self.add_unreleased)
        self.too_late: list[Claimed] = []  # in flight, but there is no time to begin them, or all is paused
        self.of_paused: list[Claimed] = []  # in flight, but their actions are paused; released at the next event
        self.paused_actions: Collection[str] = ()  # as they were when what was not begun was last searched for them
        self.events: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.io_pool = IoPool(
            min_threads=MIN_IO_THREADS,
            max_threads=MAX_IO_THREADS,
            name="dynatick-io",
            report=self.events.put,
            in_one_thread=services.rules.in_one_thread,
        )
        self.letters = self._remote_calls("letters", MAX_LETTER_THREADS, LETTER_TIMEOUT)
        self.wake_ups = self._remote_calls("wake-ups", MAX_WAKE_UP_THREADS, WAKE_UP_TIMEOUT)
        self.starts = self._remote_calls("starts", MAX_START_THREADS, START_TIMEOUT)
        self.task_pool = TaskPool(
            services.actions,
            threads=services.rules.threads,
            deadline=budget.hard_end,
            stop_waiting=budget.stop_waiting,
            clock=services.clock,
            ended=lambda attempted: self.events.put(partial(self._ended, attempted)),
            unbegun=lambda claimed: self.events.put(partial(self._unbegun, [claimed])),
            is_paused=self.is_held_up,
            seconds_to_wait=self.turns.seconds_to_wait,
            keep_start=self.turns.keep_start,
            max_timeout_seconds=services.rules.max_timeout_seconds,
            in_one_thread=services.rules.in_one_thread,
        )
        self.packs = Packs(
            services.store,
            services.clock,
            threads=services.rules.threads,
            turns=self.turns,
            in_one_thread=services.rules.in_one_thread,
            may_begin=self.may_begin,
            is_paused=self.is_action_paused,
            limited_actions=services.rules.limited_actions,
            submit=self.task_pool.submit,
            in_io_thread=self.in_io_thread,
            end=self._to_record,
            released=self._pack_released,
            put_back=self._pack_put_back,
            lost=self._pack_lost,
        )
        self.pools: list[Pool] = [self.task_pool, self.io_pool, self.letters, self.wake_ups, self.starts]
        self.in_flight: dict[str, Place] = {}  # by the token of the claim
        self.ids: set[tuple[str, int]] = set()  # of the same tasks, with the minutes of their buckets
        self.large: dict[str, int] = {}  # bytes of the large ones, by the same tokens; else by id
        self.unreleased: dict[str, tuple[str, ...]] = {}  # claims that another invocation releases, by their tokens
        self.claiming = 0  # entries in claims under way
        self.recording = 0  # attempts in records under way
        self.ended: list[Attempted] = []  # to be recorded
        self.failing = 0  # failures that are not recorded yet, and no longer in flight
        self.unsent: list[_Failing] = []  # those of them whose letters are to be sent
        self.ran = 0  # attempts that have ended
        self.ended_since = 0.0  # by time.monotonic(), the first of them
        self.fault: Exception | None = None
        self.departures = defaultdict[Bucket, Counter[str]](Counter)  # to be counted in the records of these buckets
        services.executions.append(self)

    @property
    def rate(self) -> float | None:
        """Tasks that end in a second here; None: too early to say."""
        if self.report.first_start_ms is None:
            return None
        began = self.report.started_at + timedelta(milliseconds=self.report.first_start_ms)
        elapsed = self.services.clock() - began
        return measured_rate(self.ran, self.task_pool.running, elapsed, self.services.rules.threads)

    @property
    def max_in_flight(self) -> int:
        """How many tasks may be claimed at once. With workers, no more than begin soon: others could begin the rest."""
        rules = self.services.rules
        whole = max(4 * BATCH, 4 * rules.threads)
        if not rules.max_workers:
            return whole
        soon = (self.rate or 0) * CLAIM_AHEAD.total_seconds()
        return min(whole, rules.threads + max(2 * BATCH, int(soon)))

    @property
    def max_waiting_members(self) -> int:
        """How many members of packs may wait in this process: as many as begin within a second or so. They take no
        memory, but if the process dies, each gets a row."""
        return max(self.max_in_flight, int((self.rate or 0) * MEMBERS_AHEAD.total_seconds()))

    @property
    def running(self) -> int:
        """The number of threads that are working on a task, a claim or a record."""
        return self.task_pool.running + self.io_pool.running

    def nothing_runs(self) -> bool:
        """Whether no task is in flight but those that won't be begun, and no failure waits for its letter."""
        return len(self.in_flight) == len(self.too_late) and not self.failing

    @property
    def unfinished(self) -> int:
        """The number of tasks that are being claimed, run or recorded."""
        return len(self.in_flight) + self.claiming + self.failing

    def has_room_for_large(self) -> bool:
        """Whether more rows may be claimed, which may be large."""
        return sum(self.large.values()) < MAX_LARGE_IN_FLIGHT

    def start(self, claimed: Claimed, place: Place, *, may_begin: bool) -> None:
        """Queues a claimed task; ``may_begin`` False: there is no time left for it, as for one without a place of its
        limit key."""
        self.in_flight[str(claimed.task.lease)] = place
        self.ids.add((claimed.task.task_id, place.minute))
        if claimed.size:
            self.large[str(claimed.task.lease)] = claimed.size
        self.started(place)
        is_pack = RowView(claimed.row).is_pack
        may_begin = may_begin and (self.turns.opens if is_pack else self.turns.admits)(claimed.task)
        if not may_begin:
            self.too_late.append(claimed)
        elif is_pack:
            self._start_pack(claimed)
        else:
            self.task_pool.submit(claimed)

    def _start_pack(self, claimed: Claimed) -> None:
        try:
            pack = Pack.of(claimed.row)
        except InvalidInput as error:
            now = self.services.clock()
            self._to_record(Attempted(claimed.task, claimed.row, Error(str(error), permanent=True), now))
        else:
            assert pack is not None
            self.report.claimed += sum(1 for _ in pack.open()) - 1
            self.packs.start(claimed, pack)

    def _unbegun(self, unbegun: Sequence[Claimed]) -> None:
        """Takes what the pool has not begun, and won't."""
        for claimed in unbegun:
            if isinstance(claimed.row, MemberRow):
                if not self.packs.has_parted_with(claimed.row):
                    self.packs.took_back(claimed)
            elif self.is_action_paused(claimed.task.action):
                self.of_paused.append(claimed)
            else:
                self.too_late.append(claimed)

    def fail(self, failure: Failure, minute: int, then: Callable[[RecordResult], None] | None = None) -> None:
        """Marks a row of this bucket failed that is not in flight, once its letter was sent.

        ``then`` is called with the result; None: it is counted.
        """
        task_id = RowView(failure.row).task_id
        self.ids.add((task_id, minute))
        if size := size_of(failure.row):
            self.large[task_id] = size
        action = failure.row.get(attr.ACTION)
        counted = partial(self.report.count, action=action if isinstance(action, str) else None)
        self._await_letter(_Failing(failure, minute, task_id, counted if then is None else then))

    def may_begin(self) -> bool:
        """Whether there is time left for a task to begin, and the installation is not paused."""
        return not self.is_paused() and self.services.clock() < self.budget.stop_claiming

    def is_paused(self) -> bool:
        """Whether everything is paused. Any thread may ask."""
        is_paused = self.services.pause.is_paused()
        if is_paused:
            self.report.paused = True
        return is_paused

    def is_action_paused(self, action: str) -> bool:
        """Whether this action is paused; everything may be, too. Any thread may ask."""
        return action in self.services.pause.actions

    def is_held_up(self, task: Task) -> bool:
        """Whether a task may not begin, because everything or its action is paused. Any thread may ask."""
        return self.is_paused() or self.is_action_paused(task.action)

    def in_io_thread(
        self, work: Callable[[], _Answer], then: Callable[[_Answer], None], failed: Callable[[], None]
    ) -> None:
        """Works in an I/O thread. The coordinator calls ``then`` with the answer; if the work raises, it keeps the
        error and calls ``failed``."""

        def job() -> Callable[[], None]:
            try:
                return partial(then, work())
            except Exception as error:
                return partial(self._failed, error, failed)

        self.io_pool.submit(job)

    def _failed(self, error: Exception, failed: Callable[[], None]) -> None:
        self.keep_fault(error)
        failed()

    def claim(
        self, number: int, work: Callable[[], _Answer], then: Callable[[_Answer], None], failed: Callable[[], None]
    ) -> None:
        """Works in an I/O thread as ``in_io_thread`` does. It claims this number of entries."""
        self.claiming += number
        self.in_io_thread(work, partial(self._claimed, number, then), partial(self._claimed, number, failed))

    def _claimed(self, number: int, then: Callable[..., None], *answer: object) -> None:
        self.claiming -= number
        then(*answer)

    def send_wake_ups(self, wake_ups: Sequence[AnyWakeUp]) -> None:
        """Sends wake-ups in a thread of their own. ``finish`` waits for them."""
        queue = self.services.wake_ups
        if queue is not None and wake_ups:
            self.wake_ups.submit(partial(send_wake_ups, queue, wake_ups))

    def wait(self, *, until: Callable[[], bool], end: datetime | None = None) -> None:
        """Handles events until a condition holds, or until ``end`` (None: ``stop_waiting``)."""
        end = self.budget.stop_waiting if end is None else end
        self._flush(everything=True)
        while not until() and (left := end - self.services.clock()) > timedelta():
            self.handle_events(left.total_seconds())
        self._flush(everything=True)

    def handle_events(self, max_wait: float = RECORD_DELAY_SECONDS) -> None:
        """Waits a moment for the next event, at most ``max_wait`` seconds, and handles all that have come."""
        came = False
        try:
            event = self.events.get(timeout=min(max_wait, RECORD_DELAY_SECONDS))
            while True:
                came = True
                event()
                event = self.events.get_nowait()
        except Empty:
            pass
        nothing_else_runs = len(self.ended) + self.recording == len(self.in_flight) and not self.claiming
        waited = not came or time.monotonic() - self.ended_since >= RECORD_DELAY_SECONDS
        self._flush(everything=waited or nothing_else_runs)
        self.io_pool.grow()
        self.letters.check(self.budget.hard_end - 2 * self._spare)  # so that their failures are recorded
        self.wake_ups.check(self.budget.hard_end)
        self.starts.check(self.budget.hard_end)
        self.packs.proceed()
        if self.is_paused():
            self.release_unbegun()
        else:
            self._release_of_paused()
        if self.services.pause.fault is not None:
            self.keep_fault(self.services.pause.fault)
        self.after_events()

    def release_unbegun(self) -> Sequence[str]:
        """Releases the tasks that were claimed and not begun (12). Returns the ids of those that had no time. What the
        table doesn't take stays in ``unreleased``."""
        self._unbegun(self.task_pool.take_unbegun())
        self.packs.proceed()
        unbegun, self.too_late = self.too_late, []
        of_paused, self.of_paused = self.of_paused, []
        self._release_all([*unbegun, *of_paused])
        return [claimed.task.task_id for claimed in unbegun]

    def _release_of_paused(self) -> None:
        """Releases what was claimed and not begun of actions that are paused."""
        paused = self.services.pause.actions.keys()
        if not paused <= {*self.paused_actions}:
            self._unbegun(self.task_pool.take_unbegun(lambda task: task.action in paused))
        self.paused_actions = paused
        if self.of_paused:
            of_paused, self.of_paused = self.of_paused, []
            self._release_all(of_paused)

    def _release_all(self, unbegun: Sequence[Claimed]) -> None:
        results: Sequence[Result] = [Unknown("not written")] * len(unbegun)
        try:
            results = write_many(self.services.store, [release(claimed.task) for claimed in unbegun])
        except Exception as error:  # what runs is still recorded
            self.keep_fault(error)
        for claimed, result in zip(unbegun, results, strict=True):
            self._release(claimed.task, result)

    def _release(self, task: Task, result: Result, number: int = 1, ended: Sequence[str] = ()) -> None:
        self.report.released += number if isinstance(result, Written) else 0
        if isinstance(result, Unknown):
            self.add_unreleased(task.task_id, str(task.lease), *ended)
        self.turns.freed(task)
        place = self._remove(task)
        if self.is_action_paused(task.action):
            self.withheld(place, task)
        else:
            self.released(place)

    def _pack_released(self, claimed: Claimed, pack: Pack, result: Result, number: int) -> None:
        self._release(claimed.task, result, number, [pack.ended])

    def _pack_put_back(self, claimed: Claimed, pack: Pack, result: Result, number: int) -> None:
        """A pack was released that waits for the turn of its limit key again."""
        task = claimed.task
        if not isinstance(result, Written) or self.is_action_paused(task.action):
            return self._pack_released(claimed, pack, result, number)
        self.report.released += number
        self.turns.freed(task)
        return self.put_back(self._remove(task), task)

    def add_unreleased(self, task_id: str, token: str, *ended: str) -> None:
        """Notes a claim that this process won't begin, if it has it at all: there was no answer to its claim, or none
        to its release. ``ended``: of a pack (``Pack.ended``). Any thread may call this."""
        self.unreleased[token] = (task_id, token, *ended)

    def finish(self) -> None:
        """Uses the last of the time: records what ends, releases what was not begun, logs what takes too long."""
        end = self.budget.hard_end - self._spare
        self.wait(until=lambda: self.nothing_runs() and not self.claiming, end=end)
        self.wait(until=lambda: not self.wake_ups.under_way, end=end)
        self._unbegun(self.task_pool.take_unbegun())
        self.handle_events(0)  # what has ended by now
        self.packs.part()
        if not self.packs.are_idle:
            self.wait(until=lambda: self.packs.are_idle, end=self.budget.hard_end - self._spare / 2)
        self.release_unbegun()
        for overrun in self.task_pool.overrunning():
            self._log_overrun(overrun)

    def conclude(self) -> None:
        """Completes the report. Raises the first error, now that everything else is done."""
        self.report.unfinished = self.unfinished
        self.report.moved, self.report.rejected = self.services.placer.moved, self.services.placer.failed
        if self.fault is not None:
            raise self.fault
        self.report.end(self.services.clock())

    def start_others(self, orders: Sequence[Order], then: Callable[[int], object] = nothing) -> None:
        """Starts invocations, one after another, until one can't be started. ``then`` is called with how many were."""
        self.starts.submit(partial(in_turn, self.start_other, orders), then, partial(then, 0))

    def await_starts(self) -> None:
        """Waits for the answers to calls that start other invocations, to the last."""
        if self.starts.under_way:
            self.wait(until=lambda: not self.starts.under_way, end=self.budget.hard_end - self._spare / 2)

    def keep_fault(self, error: Exception) -> None:
        """Keeps the first error; the coordinator raises it once everything in flight is recorded."""
        self.fault = self.fault or error

    def _keep_fault_later(self, error: Exception) -> None:
        """``keep_fault``, for an I/O thread."""
        self.events.put(partial(self.keep_fault, error))

    def __enter__(self) -> Execution:
        return self

    def __exit__(self, *_: object) -> None:
        for pool in self.pools:
            pool.close()
        self._count_departures()

    def _count_departures(self) -> None:
        """Writes the counts of tasks that left their buckets, and by action what no tick record has. A failure makes
        only the history of these buckets too low."""
        departures, self.departures = self.departures, defaultdict(Counter)
        services = self.services
        by_action = self.report.without_record
        if not departures and not by_action:
            return
        try:
            count_departures(
                services.store,
                departures,
                by_action={Bucket(self.report.tick, self.report.shard): by_action} if by_action else {},
                token=services.new_token(),
                now=services.clock(),
                retention_days=services.rules.retention_days,
            )
        except DynatickError as error:
            log_uncounted(error)

    @property
    def _spare(self) -> timedelta:
        """How long before its hard end the invocation waits for nothing more."""
        return min(LAST_RECORDS, (self.budget.hard_end - self.budget.stop_waiting) / 4)

    def _remote_calls(self, name: str, max_threads: int, timeout: timedelta) -> RemoteCalls:
        return RemoteCalls(
            name,
            max_threads=max_threads,
            timeout=timeout,
            clock=self.services.clock,
            report=self.events.put,
            keep_fault=self.keep_fault,
            in_one_thread=self.services.rules.in_one_thread,
        )

    def _remove(self, task: Task) -> Place:
        place = self.in_flight.pop(str(task.lease))
        self.large.pop(str(task.lease), None)
        self.ids.discard((task.task_id, place.minute))
        return place

    def _ended(self, attempted: Attempted) -> None:
        self._count_start(attempted)
        self.ran += 1
        if not isinstance(attempted.outcome, Handed):
            self.turns.freed(attempted.task)  # before its record: it no longer runs
        if attempted.overrun is not None:
            self._log_overrun(attempted.overrun)
        if isinstance(attempted.row, MemberRow) and self.packs.has_parted_with(attempted.row):
            return  # its lease will be over
        if isinstance(attempted.row, MemberRow) and isinstance(attempted.outcome, Deferred):
            self.packs.deferred(attempted, attempted.outcome.seconds)
        elif isinstance(attempted.row, MemberRow) and self.packs.ended(attempted):
            self.report.count(RecordResult.COMPLETED, attempted.task.action)
        else:
            self._to_record(attempted)

    def _to_record(self, attempted: Attempted) -> None:
        if not self.ended:
            self.ended_since = time.monotonic()
        self.ended.append(attempted)
        if len(self.ended) >= BATCH:
            self._flush(everything=False)

    def _count_start(self, attempted: Attempted) -> None:
        if isinstance(attempted.outcome, Deferred):
            return  # it was not begun
        task, rules = attempted.task, self.services.rules
        if self.report.first_start_ms is None:
            self.report.first_start_ms = milliseconds(attempted.started_at - self.report.started_at)
        if task.attempt == 1 or rules.precision is Precision.SECOND:
            late = lateness_of(task, attempted.started_at, rules, self.services.settings.grid)
            self.report.lateness.add(late)
            self.report.by_action.of(task.action).late.add(late)
        if attempted.ended_at is not None:
            took = milliseconds(attempted.ended_at - attempted.started_at)
            self.report.by_action.of(task.action).took.add(max(0, took))

    def _log_overrun(self, overrun: Overrun) -> None:
        self.report.overran += 1
        _logger.warning(
            "an attempt takes longer than its timeoutSeconds",
            extra={
                "action": "attempt_overran",
                "task_id": overrun.task.task_id,
                "attempt": overrun.task.attempt,
                "run": overrun.task.run,
                "handler": overrun.task.action,
                "timeout_seconds": overrun.timeout_seconds,
                "seconds": round(overrun.seconds, 3),
            },
        )

    def _flush(self, *, everything: bool) -> None:
        """Starts the records of ended attempts in full batches; ``everything``: the last, smaller batch too."""
        while len(self.ended) >= BATCH or (everything and self.ended):
            attempts, self.ended = self.ended[:BATCH], self.ended[BATCH:]
            self.recording += len(attempts)
            self._write(partial(self._record, attempts), partial(self._attempts_recorded, attempts), len(attempts))
        while len(self.unsent) >= BATCH or (everything and self.unsent):
            batch, self.unsent = self.unsent[:BATCH], self.unsent[BATCH:]
            self._send(batch)

    def _record(self, attempts: Sequence[Attempted]) -> Sequence[RecordResult | Failure]:
        """Records attempts, in an I/O thread. Tasks that are handed over keep the places of their limit keys: that is
        written first, so that the next process knows it. If it can't be, they alone are not recorded."""
        keyed = [
            n for n, one in enumerate(attempts)
            if isinstance(one.outcome, Handed) and self.turns.is_limited(one.task.limit_key)
        ]  # fmt: skip
        try:
            is_held = not keyed or self.turns.hold([attempts[n].task for n in keyed])
        except DynatickError as fault:
            self._keep_fault_later(fault)
            results = iter(self.recorder.record([one for n, one in enumerate(attempts) if n not in keyed]))
            return [RecordResult.UNRECORDED if n in keyed else next(results) for n in range(len(attempts))]
        if not is_held:
            # Of a class of which no task was handed over before: what they have begun is begun anew.
            later = Deferred(FULL.total_seconds())
            attempts = [replace(one, outcome=later) if n in keyed else one for n, one in enumerate(attempts)]
        return self.recorder.record(attempts)

    def _write(
        self,
        write: Callable[[], Sequence[_Result]],
        then: Callable[[Sequence[_Result | RecordResult]], None],
        number: int,
    ) -> None:
        """Writes records in an I/O thread; the coordinator calls ``then`` with their results. What raises has recorded
        none of them, and the coordinator raises that once everything in flight is recorded."""
        self.in_io_thread(write, then, partial(then, [RecordResult.UNRECORDED] * number))

    def _attempts_recorded(self, attempts: Sequence[Attempted], results: Sequence[RecordResult | Failure]) -> None:
        self.recording -= len(attempts)
        for attempted, result in zip(attempts, results, strict=True):
            row, token = attempted.row, str(attempted.task.lease)
            if isinstance(attempted.outcome, Handed) and result in (RecordResult.WAITING, RecordResult.UNRECORDED):
                self.turns.is_handed_over(attempted.task)
            elif isinstance(attempted.outcome, Handed) or RowView(row).is_pack:
                self.turns.freed(attempted.task)
            # The place of any other was freed as it ended. By now its retry may have it, if this answer came late.
            if isinstance(row, MemberRow):
                place = self.in_flight[row.pack_token]
                then = partial(self._member_recorded, attempted, place)
            else:
                place = self.in_flight.pop(token) if isinstance(result, Failure) else self._remove(attempted.task)
                then = partial(self._attempt_recorded, attempted, place)
            if isinstance(result, Failure):
                self._await_letter(_Failing(result, place.minute, token, then))
            else:
                then(result)

    def _pack_lost(self, claimed: Claimed) -> None:
        self.turns.freed(claimed.task)
        self.recorded(self._remove(claimed.task), claimed.task, RecordResult.UNRECORDED)
        self.report.count(RecordResult.UNRECORDED)

    def _member_recorded(self, attempted: Attempted, place: Place, result: RecordResult) -> None:
        if self.packs.recorded(attempted, result):
            self._count(attempted, place, result)

    def _attempt_recorded(self, attempted: Attempted, place: Place, result: RecordResult) -> None:
        self.recorded(place, attempted.task, result)
        if isinstance(attempted.outcome, Deferred) and result is RecordResult.RELEASED:
            self.report.released += attempted.outcome.tasks - 1
        if result is not RecordResult.COMPLETED or not RowView(attempted.row).is_pack:  # its members are counted
            self._count(attempted, place, result)

    def _count(self, attempted: Attempted, place: Place, result: RecordResult) -> None:
        if result in DEPARTED:
            self.departures[Bucket(place.minute, self.report.shard)][result.value] += 1
        self.report.count(result, attempted.task.action)
        if _logger.isEnabledFor(logging.DEBUG):
            _log_attempt(attempted, result)

    def _send_later(self, wake_ups: Sequence[AnyWakeUp]) -> None:
        """Sends wake-ups, for an I/O thread, which must not wait for their queue."""
        self.events.put(partial(self.send_wake_ups, wake_ups))

    # -- failures, whose letters come first ------------------------------------------------------------------------

    def _await_letter(self, failing: _Failing) -> None:
        self.failing += 1
        self.unsent.append(failing)

    def _send(self, batch: Sequence[_Failing]) -> None:
        """Lets a thread send the letters of failures."""
        if self.services.dead_letters.is_refused:
            self._defer(batch)
        else:
            self.letters.submit(
                partial(self._send_letters, batch), partial(self._letters_sent, batch), partial(self._defer, batch)
            )

    def _send_letters(self, batch: Sequence[_Failing]) -> Sequence[bool]:
        """Sends letters, in a thread of their own. Returns for each whether the queue has taken it."""
        return self.services.dead_letters.send([failing.failure.letter() for failing in batch])

    def _letters_sent(self, batch: Sequence[_Failing], taken: Sequence[bool]) -> None:
        fail = partial(self.recorder.fail, [failing.failure for failing in batch], taken)
        self._write(fail, partial(self._failures_recorded, batch), len(batch))

    def _defer(self, batch: Sequence[_Failing]) -> None:
        """Defers failures whose letters get no answer, as all that follow in this invocation."""
        self.services.dead_letters.refuse()
        self._letters_sent(batch, [False] * len(batch))

    def _failures_recorded(self, batch: Sequence[_Failing], results: Sequence[RecordResult]) -> None:
        self.failing -= len(batch)
        for failing, result in zip(batch, results, strict=True):
            self.large.pop(failing.key, None)
            self.ids.discard((RowView(failing.failure.row).task_id, failing.minute))
            failing.then(result)


def _log_attempt(attempted: Attempted, result: RecordResult) -> None:
    task = attempted.task
    _logger.debug(
        "attempt recorded",
        extra={
            "action": "attempt_recorded",
            "task_id": task.task_id,
            "attempt": task.attempt,
            "max_attempts": task.retry_policy.maximum_attempts,
            "run": task.run,
            "turn": task.turn,
            "handler": task.action,
            "result": result.value,
            "started_at": format_instant(attempted.started_at),
            "due_at": format_instant(task.due_at),
        },
    )

"""Tasks that this process has claimed: threads run them, and their outcomes are recorded in batches (protocol 11, 12).

One thread, the coordinator, calls everything here. A few I/O threads write claims and records, and the task pool runs
tasks; each returns an event, a function that the coordinator calls. What is in flight is bounded, so memory doesn't
grow with the bucket.
"""

from __future__ import annotations

import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from queue import Empty, SimpleQueue

from dynatick.domain import attributes as attr
from dynatick.domain.buckets import Bucket
from dynatick.domain.conditional_update import Result, Unknown, Written
from dynatick.domain.instants import format_instant
from dynatick.domain.lifecycle import release
from dynatick.domain.task import Task
from dynatick.engine.bucket_record import count_departures, log_uncounted
from dynatick.engine.budget import Budget
from dynatick.engine.claims import Claimed
from dynatick.engine.division import measured_rate
from dynatick.engine.installation_settings import InstallationSettings
from dynatick.engine.io_pool import IoPool, Job
from dynatick.engine.lateness import lateness_of, milliseconds
from dynatick.engine.placement import Placer
from dynatick.engine.ports import Actions, Clock, DeadLetters, ReportOverdue, Store, WakeUps
from dynatick.engine.record import Attempted, Deferred, Overrun, Recorder, RecordResult
from dynatick.engine.report import PassReport, Resume
from dynatick.engine.rules import Precision, Rules
from dynatick.engine.task_pool import TaskPool
from dynatick.errors import DynatickError

BATCH = 25
MIN_IO_THREADS, MAX_IO_THREADS = 2, 6  # claims and records at once
MAX_IO_WAIT_SECONDS = 0.02  # one that waits longer gets another thread; most take less
RECORD_DELAY_SECONDS = 0.05  # an outcome waits this long for others to share its batch
MAX_LARGE_IN_FLIGHT = 32_000_000  # bytes of large rows, beyond which nothing more is claimed
CLAIM_AHEAD = timedelta(seconds=2)  # with workers: what runs in this time is claimed
LAST_RECORDS = timedelta(seconds=0.5)  # before the hard end: records under way are waited for until then
_COUNTED = tuple(RecordResult)
_DEPARTED = {
    RecordResult.RETRIED: attr.RETRIED,
    RecordResult.RESCHEDULED: attr.RESCHEDULED,
    RecordResult.DEFERRED: attr.DEFERRED,
}
_logger = logging.getLogger("dynatick.engine")


@dataclass(frozen=True, kw_only=True, slots=True)
class Services:
    """What an invocation works with."""

    store: Store
    actions: Actions
    dead_letters: DeadLetters
    rules: Rules
    settings: InstallationSettings
    clock: Clock
    new_token: Callable[[], str]
    placer: Placer
    wake_ups: WakeUps | None = None  # with Precision.SECOND
    report_overdue: ReportOverdue = lambda overdue: None
    jitter: Callable[[], float] = random.random  # of retries, in [0, 1)
    executions: list[Execution] = field(default_factory=list)  # of this process; each adds itself


@dataclass(frozen=True, slots=True)
class Place:
    """Where a task in flight was found."""

    minute: int  # of its bucket
    position: Resume  # a continuation that polls from here finds it again


class Execution:
    """The tasks in flight of one invocation.

    ``closed_through``: the closed watermark of the ``shard`` whose lease the pass has; None: outside of a pass. The
    coordinator calls ``started``, ``released`` and ``recorded`` with each task to which that happens, and
    ``after_events`` after each round of events.
    """

    def __init__(
        self,
        services: Services,
        report: PassReport,
        budget: Budget,
        *,
        closed_through: Callable[[], int] | None = None,
        shard: int | None = None,
        started: Callable[[Place], None] = lambda place: None,
        recorded: Callable[[Place, Task, RecordResult], None] = lambda place, task, result: None,
        released: Callable[[Place], None] = lambda place: None,
        after_events: Callable[[], None] = lambda: None,
    ) -> None:
        self.services, self.report, self.budget = services, report, budget
        self.started, self.recorded, self.released, self.after_events = started, recorded, released, after_events
        self.recorder = Recorder(
            services.store,
            services.dead_letters,
            services.rules,
            services.settings,
            services.clock,
            placer=services.placer,
            closed_through=closed_through,
            shard=shard,
            jitter=services.jitter,
            wake_ups=services.wake_ups,
        )
        self.too_late: list[Claimed] = []  # in flight, but there is no time to begin them
        self.events: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.io_pool = IoPool(
            min_threads=MIN_IO_THREADS,
            max_threads=MAX_IO_THREADS,
            max_wait_seconds=MAX_IO_WAIT_SECONDS,
            name="dynatick-io",
            report=self.events.put,
            in_one_thread=services.rules.in_one_thread,
        )
        self.task_pool = TaskPool(
            services.actions,
            threads=services.rules.threads,
            deadline=budget.hard_end,
            stop_waiting=budget.stop_waiting,
            clock=services.clock,
            ended=lambda attempted: self.events.put(partial(self._ended, attempted)),
            unbegun=lambda claimed: self.events.put(partial(self.too_late.append, claimed)),
            max_timeout_seconds=services.rules.max_timeout_seconds,
            in_one_thread=services.rules.in_one_thread,
        )
        self.in_flight: dict[str, Place] = {}  # by the token of the claim
        self.ids: set[tuple[str, int]] = set()  # of the same tasks, with the minutes of their buckets
        self.large: dict[str, int] = {}  # bytes of the large ones among them, by the same tokens
        self.claiming = 0  # entries in claims under way
        self.recording = 0  # attempts in records under way
        self.ended: list[Attempted] = []  # to be recorded
        self.ran = 0  # attempts that have ended
        self.ended_since = 0.0  # by time.monotonic(), the first of them
        self.fault: Exception | None = None
        self.departures: dict[Bucket, Counter[str]] = {}  # what left its bucket, to be counted in that one's record
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
    def running(self) -> int:
        """The number of threads that are working on a task, a claim or a record."""
        return self.task_pool.running + self.io_pool.running

    def nothing_runs(self) -> bool:
        """Whether no task is in flight but those that won't be begun."""
        return len(self.in_flight) == len(self.too_late)

    def has_room_for_large(self) -> bool:
        """Whether more rows may be claimed, which may be large."""
        return sum(self.large.values()) < MAX_LARGE_IN_FLIGHT

    def start(self, claimed: Claimed, place: Place, *, may_begin: bool) -> None:
        """Queues a claimed task; ``may_begin`` False: there is no time left for it."""
        self.in_flight[str(claimed.task.lease)] = place
        self.ids.add((claimed.task.task_id, place.minute))
        if claimed.size:
            self.large[str(claimed.task.lease)] = claimed.size
        self.started(place)
        if may_begin:
            self.task_pool.submit(claimed)
        else:
            self.too_late.append(claimed)

    def may_begin(self) -> bool:
        """Whether there is time left for a task to begin, and the installation is not paused."""
        return not self.report.paused and self.services.clock() < self.budget.stop_claiming

    def submit(self, work: Job) -> None:
        """Queues a job for an I/O thread. It must not raise; the coordinator calls what it returns."""
        self.io_pool.submit(work)

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
        self.after_events()

    def release_unbegun(self) -> Sequence[str]:
        """Releases the tasks that were claimed and not begun (12). Returns their ids."""
        unbegun = [*self.task_pool.take_unbegun(), *self.too_late]
        self.too_late.clear()
        results: Sequence[Result] = [Unknown("not written")] * len(unbegun)
        try:
            results = self.services.store.write_many([release(claimed.task) for claimed in unbegun]) if unbegun else ()
        except Exception as error:  # what runs is still recorded
            self.keep_fault(error)
        for claimed, result in zip(unbegun, results, strict=True):
            self.report.released += isinstance(result, Written)
            self.released(self._remove(claimed.task))
        return [claimed.task.task_id for claimed in unbegun]

    def finish(self) -> None:
        """Uses the last of the time: records what ends, releases what was not begun, logs what takes too long."""
        spare = min(LAST_RECORDS, (self.budget.hard_end - self.budget.stop_waiting) / 4)
        self.wait(until=lambda: self.nothing_runs() and not self.claiming, end=self.budget.hard_end - spare)
        self.release_unbegun()
        for overrun in self.task_pool.overrunning():
            self._log_overrun(overrun)

    def count(self, *results: RecordResult) -> None:
        """Counts results in the report."""
        for result in _COUNTED:
            if number := results.count(result):
                setattr(self.report, result.value, getattr(self.report, result.value) + number)

    def keep_fault(self, error: Exception) -> None:
        """Keeps the first error; the coordinator raises it once everything in flight is recorded."""
        self.fault = self.fault or error

    def close(self) -> None:
        self.task_pool.close()
        self.io_pool.close()
        self._count_departures()

    def _count_departures(self) -> None:
        """Writes the counts of tasks that left their buckets. A failure makes only the history of these buckets too
        low."""
        departures, self.departures = self.departures, {}
        services = self.services
        if not departures:
            return
        try:
            count_departures(
                services.store,
                departures,
                token=services.new_token(),
                now=services.clock(),
                retention_days=services.rules.retention_days,
            )
        except DynatickError as error:
            log_uncounted(error)

    def _remove(self, task: Task) -> Place:
        place = self.in_flight.pop(str(task.lease))
        self.large.pop(str(task.lease), None)
        self.ids.discard((task.task_id, place.minute))
        return place

    def _ended(self, attempted: Attempted) -> None:
        self._count_start(attempted)
        self.ran += 1
        if attempted.overrun is not None:
            self._log_overrun(attempted.overrun)
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
            self.report.lateness.add(lateness_of(task, attempted.started_at, rules, self.services.settings.grid))

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
            self.submit(partial(self._record, attempts))

    def _record(self, attempts: Sequence[Attempted]) -> Callable[[], None]:
        """Records attempts, in an I/O thread. Returns what the coordinator does with the results."""
        results: Sequence[RecordResult] = [RecordResult.UNRECORDED] * len(attempts)
        fault: Exception | None = None
        try:
            results = self.recorder.record(attempts)
        except Exception as error:  # the coordinator raises it once everything in flight is recorded
            fault = error
        return partial(self._attempts_recorded, attempts, results, fault)

    def _attempts_recorded(
        self, attempts: Sequence[Attempted], results: Sequence[RecordResult], fault: Exception | None
    ) -> None:
        if fault is not None:
            self.keep_fault(fault)
        self.recording -= len(attempts)
        for attempted, result in zip(attempts, results, strict=True):
            place = self._remove(attempted.task)
            self.recorded(place, attempted.task, result)
            if result in _DEPARTED:
                bucket = Bucket(place.minute, self.report.shard)
                self.departures.setdefault(bucket, Counter())[_DEPARTED[result]] += 1
        self.count(*results)
        if _logger.isEnabledFor(logging.DEBUG):
            _log_attempts(attempts, results)


def _log_attempts(attempts: Sequence[Attempted], results: Sequence[RecordResult]) -> None:
    for attempted, result in zip(attempts, results, strict=True):
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

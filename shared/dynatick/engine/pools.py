"""Threads: for requests to the table, for calls to other services, and for tasks.

Nothing waits for a service that is silent but what needs its answer.

Python runs one thread at a time. Threads that are ready together take turns, and each switch costs CPU: a pass whose
requests are answered at once takes a third more with six threads than with two. But if requests are slow, or one gets
no answer, two threads are too few.

A task that its rate limit doesn't allow yet waits without a thread. So does a large one while there is no room in
memory: as objects, large payloads take a multiple of their size in the table. A task with ``timeoutSeconds`` is not
begun with less time left; one that takes longer is not interrupted.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from itertools import count
from queue import Empty, SimpleQueue
from typing import Generic, Protocol, TypeVar

from dynatick.domain import attributes as attr
from dynatick.domain.completion import MAX_RECORDED, Commit, CompleteLater
from dynatick.domain.task import Task, check_timeout
from dynatick.engine.claims import Claimed
from dynatick.engine.ports import (
    ActionContext,
    Actions,
    Clock,
    DeadLetter,
    DeadLetters,
    WakeUps,
    described,
    message_of,
    trace_of,
)
from dynatick.engine.record import Attempted, Deferred, Done, Error, Handed, Overrun, Rescheduled
from dynatick.errors import ActionError, InvalidInput, RateLimited, Reschedule, RetryableError
from dynatick.forked_child import EndChildren

# -- io pool -----------------------------------------------------------------------------------------------------------

T = TypeVar("T")
Job = Callable[[], Callable[[], None]]
MAX_WAIT_SECONDS = 0.02  # a job that waits longer for a thread gets another; most take less
_CHECK_SECONDS = 0.05


class Pool(Protocol):
    """Threads that can be dismissed."""

    def close(self) -> None:
        """Drops what no thread has begun."""


class Executor(Protocol):
    """Where work is done."""

    def submit(self, work: Callable[..., object], /, *arguments: object) -> object:
        """Begins the work, or queues it."""

    def shutdown(self, *, wait: bool, cancel_futures: bool) -> None:
        """Drops what is queued."""


class CallingThread:
    """Does work where it is submitted, before ``submit`` returns."""

    def submit(self, work: Callable[..., object], /, *arguments: object) -> None:
        work(*arguments)

    def shutdown(self, *, wait: bool, cancel_futures: bool) -> None:
        pass


def executor(max_threads: int, name: str, *, in_one_thread: bool) -> Executor:
    """An executor with ``max_threads`` threads, which start when they are needed; or the calling thread."""
    return CallingThread() if in_one_thread else ThreadPoolExecutor(max_threads, thread_name_prefix=name)


def begin(job: Callable[[], object], *, name: str, in_one_thread: bool) -> None:
    """Runs a job in a thread of its own, for which the end of the process doesn't wait; or in the calling thread."""
    if in_one_thread:
        job()
    else:
        threading.Thread(target=job, name=name, daemon=True).start()


class Jobs(Generic[T]):
    """Jobs that run in at most ``max_threads`` threads, while others are submitted. Safe for use by many threads."""

    def __init__(self, *, max_threads: int, name: str, in_one_thread: bool) -> None:
        self._answers: SimpleQueue[tuple[int, T | Exception]] = SimpleQueue()
        self._pool = executor(max_threads, name, in_one_thread=in_one_thread)
        self._lock = threading.Lock()
        self._number = 0

    def submit(self, job: Callable[[], T]) -> int:
        """Begins a job, or queues it. Returns its number, from 0."""
        with self._lock:
            number = self._number
            self._number += 1
        self._pool.submit(self._run, number, job)
        return number

    def results(self, *, is_over: Callable[[], bool] = lambda: False) -> list[T | Exception | None]:
        """Waits for all jobs. One result each, by number: what it returned, or the error it raised. None: it had not
        ended when ``is_over`` held. To be called once, after the last job was submitted."""
        results: dict[int, T | Exception] = {}
        while len(results) < self._number:
            try:
                number, result = self._answers.get(timeout=_CHECK_SECONDS)
            except Empty:
                if is_over():
                    break
            else:
                results[number] = result
        self._pool.shutdown(wait=False, cancel_futures=True)
        return [results.get(number) for number in range(self._number)]

    def _run(self, number: int, job: Callable[[], T]) -> None:
        try:
            self._answers.put((number, job()))
        except Exception as error:
            self._answers.put((number, error))


def nothing(*_: object) -> None:
    """What is done with an answer that says nothing."""


class IoPool:
    """Runs jobs in order of submission, with ``min_threads`` threads at first. If a job has waited too long, ``grow``
    adds a thread, up to ``max_threads``. A job must not raise; ``report`` gets what it returns."""

    def __init__(
        self,
        *,
        min_threads: int,
        max_threads: int,
        name: str,
        report: Callable[[Callable[[], None]], None],
        in_one_thread: bool = False,
    ) -> None:
        self._pool = executor(max_threads, name, in_one_thread=in_one_thread)
        self._lock = threading.Lock()
        self._report = report
        self._running = 0
        self._waiting: deque[tuple[float, Job]] = deque()  # with the time of submission
        self._threads = min_threads  # how many may work at once
        self._max_threads = max_threads
        self._working = 0

    @property
    def running(self) -> int:
        """The number of jobs that are running."""
        return self._running

    def submit(self, job: Job) -> None:
        """Queues a job."""
        with self._lock:
            self._waiting.append((time.monotonic(), job))
            if self._working == self._threads:
                return
            self._working += 1
        self._pool.submit(self._work)

    def grow(self) -> None:
        """Adds a thread if a job has waited too long. The coordinator calls this regularly."""
        with self._lock:
            if not self._waiting or self._threads == self._max_threads or self._working < self._threads:
                return
            if time.monotonic() - self._waiting[0][0] < MAX_WAIT_SECONDS:
                return
            self._threads += 1
            self._working += 1
        self._pool.submit(self._work)

    def close(self) -> None:
        """Drops the jobs that wait. Running jobs end by themselves."""
        with self._lock:
            self._waiting.clear()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._working -= 1
                    return
                _, job = self._waiting.popleft()
                self._running += 1
            result = job()
            with self._lock:
                self._running -= 1  # before the report, so that its receiver doesn't count this job as running
            self._report(result)


# -- until refused -----------------------------------------------------------------------------------------------------


class LettersUntilRefused:
    """Sends letters until the queue takes none of those in a call: each refusal may take seconds. What is sent
    afterwards counts as refused at once; a later tick sends it. Safe for use by many threads."""

    def __init__(self, queue: DeadLetters) -> None:
        self._queue = queue
        self.is_refused = False

    def refuse(self) -> None:
        """Counts all that follows as refused."""
        self.is_refused = True

    def send(self, letters: Sequence[DeadLetter]) -> Sequence[bool]:
        """As the queue does: one result for each letter, in order."""
        if self.is_refused or not letters:
            return [False] * len(letters)
        taken = self._queue.send(letters)
        if not any(taken):
            self.is_refused = True
        return taken


class WakeUpsUntilRefused:
    """Sends wake-ups until the queue takes none of those in a call. What is sent afterwards counts as not sent at once:
    the tick runs it. Safe for use by many threads."""

    def __init__(self, queue: WakeUps) -> None:
        self._queue = queue
        self._is_refused = False

    def send(self, wake_ups: Sequence[tuple[Mapping[str, object], datetime]]) -> int:
        """As the queue does: returns how many were not sent."""
        if self._is_refused or not wake_ups:
            return len(wake_ups)
        unsent = self._queue.send(wake_ups)
        if unsent == len(wake_ups):
            self._is_refused = True
        return unsent


# -- remote calls ------------------------------------------------------------------------------------------------------

START_TIMEOUT = timedelta(seconds=10)
"""An invocation waits no longer for answers to its calls that start others: a little more than their own timeouts."""


class RemoteCalls:
    """Calls to one service. The coordinator calls everything here.

    ``report`` lets the coordinator handle an answer. If none comes for ``timeout``, all calls that are under way count
    as unanswered, and those that follow at once. ``keep_fault`` gets what a call raises.
    """

    def __init__(
        self,
        name: str,
        *,
        max_threads: int,
        timeout: timedelta,
        clock: Clock,
        report: Callable[[Callable[[], None]], None],
        keep_fault: Callable[[Exception], None],
        in_one_thread: bool,
    ) -> None:
        self._timeout, self._clock, self._keep_fault = timeout, clock, keep_fault
        self._pool = IoPool(
            min_threads=1,
            max_threads=max_threads,
            name=f"dynatick-{name}",
            report=report,
            in_one_thread=in_one_thread,
        )
        self._under_way: dict[int, Callable[[], object]] = {}
        self._number = 0
        self._silent_since = clock()
        self.is_silent = False  # a call had no answer

    @property
    def under_way(self) -> bool:
        """Whether an answer is still waited for."""
        return bool(self._under_way)

    def submit(
        self, call: Callable[[], T], then: Callable[[T], object] = nothing, unanswered: Callable[[], object] = nothing
    ) -> None:
        """Queues a call. ``then`` is called with what it returns; ``unanswered`` instead, if it raises or returns too
        late."""
        if self.is_silent:
            unanswered()
            return
        if not self._under_way:
            self._silent_since = self._clock()
        self._number += 1
        self._under_way[self._number] = unanswered
        self._pool.submit(partial(self._call, self._number, call, then))

    def check(self, end: datetime) -> None:
        """Ends the wait for what has no answer in time, and by ``end`` at the latest. To be called regularly."""
        self._pool.grow()
        if self._under_way and self._clock() >= min(self._silent_since + self._timeout, end):
            self.is_silent = True
            self.close()
            given_up, self._under_way = self._under_way, {}
            for unanswered in given_up.values():
                unanswered()

    def close(self) -> None:
        """Drops the calls that wait. Those that are made end by themselves."""
        self._pool.close()

    def _call(self, number: int, call: Callable[[], T], then: Callable[[T], object]) -> Callable[[], None]:
        """Makes a call, in a thread of the pool. Returns what the coordinator does with the answer."""
        try:
            answer = call()
        except Exception as error:  # the coordinator raises it once everything in flight is recorded
            return partial(self._failed, number, error)
        return partial(self._answered, number, partial(then, answer))

    def _answered(self, number: int, then: Callable[[], object]) -> None:
        self._silent_since = self._clock()
        if self._under_way.pop(number, None) is not None:
            then()

    def _failed(self, number: int, error: Exception) -> None:
        self._keep_fault(error)
        self._answered(number, self._under_way.get(number, nothing))


def in_turn(start: Callable[[T], bool], orders: Iterable[T]) -> int:
    """Starts orders until one can't be started. Returns how many were."""
    number = 0
    for order in orders:
        if not start(order):
            break
        number += 1
    return number


# -- task pool ---------------------------------------------------------------------------------------------------------

MAX_LARGE_BYTES = 4_000_000  # of large rows that run at once; a larger one runs with no other large one


@dataclass(frozen=True, slots=True)
class _Reserved:
    """A running attempt that has a timeout."""

    task: Task
    timeout_seconds: int
    started_at: datetime

    def overrun(self, now: datetime) -> Overrun | None:
        """None: it has time left."""
        seconds = (now - self.started_at).total_seconds()
        return Overrun(self.task, self.timeout_seconds, seconds) if seconds > self.timeout_seconds else None


class TaskPool:
    """Runs tasks in at most ``threads`` threads, which start when they are needed.

    The threads are daemons: one that never ends must not keep the process from ending, which fences it (protocol 11).
    """

    def __init__(
        self,
        actions: Actions,
        *,
        threads: int,
        deadline: datetime,
        stop_waiting: datetime,
        clock: Callable[[], datetime],
        ended: Callable[[Attempted], None],
        unbegun: Callable[[Claimed], None],
        is_paused: Callable[[Task], bool] = lambda task: False,
        seconds_to_wait: Callable[[Task], float] = lambda task: 0.0,
        keep_start: Callable[[Task, float], None] = lambda task, seconds: None,
        max_timeout_seconds: int | None = None,
        in_one_thread: bool = False,
    ) -> None:
        """``stop_waiting``: an attempt that ends later may not be recorded. ``unbegun`` is called with a task that has
        too little time until then, and with each that ``is_paused``. ``seconds_to_wait``: for the rate of its limit
        key; ``keep_start`` is called if it may begin by that, and waits for the rate of its action.
        ``max_timeout_seconds``: a task with a longer timeout fails; None: no limit. ``in_one_thread``: ``submit`` runs
        the task before it returns."""
        self._actions = actions
        self._threads = threads
        self._deadline = deadline
        self._recorded_from = stop_waiting
        self._clock = clock
        self._ended = ended
        self._unbegun = unbegun
        self._is_paused = is_paused
        self._seconds_to_wait, self._keep_start = seconds_to_wait, keep_start
        self._max_timeout_seconds = max_timeout_seconds
        self._in_one_thread = in_one_thread
        self._reserved: dict[int, _Reserved] = {}  # by their own ids
        self._queue: SimpleQueue[Claimed | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._begun = 0
        self._idle = 0
        self._running = 0
        self._loaded = 0  # bytes of the large tasks that were begun
        self._waiting_large: deque[Claimed] = deque()  # large tasks that were not
        self._limits_changed = threading.Condition()
        self._rate_limited: list[tuple[float, int, Claimed]] = []  # a heap, by the time at which they may run
        self._order = count()
        self._limit_thread: threading.Thread | None = None
        self._closed = False

    @property
    def rate_limited(self) -> int:
        """The number of tasks that wait for a rate limit."""
        return len(self._rate_limited)

    @property
    def running(self) -> int:
        """The number of tasks that are running. Once the pool is closed, it only falls."""
        return self._running

    def submit(self, claimed: Claimed) -> None:
        """Queues a task."""
        if self._in_one_thread:
            attempted = self.run(claimed)
            if attempted is not None:
                self._ended(attempted)
            return
        with self._lock:
            if claimed.size:
                self._waiting_large.append(claimed)
                self._begin_large()
            else:
                self._begin(claimed)

    def _begin(self, claimed: Claimed) -> None:
        if self._idle > 0:
            self._idle -= 1  # an idle thread takes this task
        elif self._begun < self._threads:
            self._begun += 1
            threading.Thread(target=self._work, name=f"dynatick-{self._begun}", daemon=True).start()
        self._queue.put(claimed)

    def _begin_large(self) -> None:
        while self._waiting_large and (
            not self._loaded or self._loaded + self._waiting_large[0].size <= MAX_LARGE_BYTES
        ):
            claimed = self._waiting_large.popleft()
            self._loaded += claimed.size
            self._begin(claimed)

    def has_time_for(self, task: Task) -> bool:
        """Whether the task can end in time if it begins now. True for one that never can: it begins, and fails."""
        timeout = self._actions.timeout_seconds(task)
        never = timeout is not None and self._max_timeout_seconds is not None and timeout > self._max_timeout_seconds
        return timeout is None or never or self._fits(timeout, self._clock())

    def overrunning(self) -> list[Overrun]:
        """The attempts that are beyond their timeout. Each is reported once, also if it ends later."""
        now, found = self._clock(), []
        for key, reserved in self._reserved.copy().items():
            overrun = reserved.overrun(now)
            if overrun is not None and self._reserved.pop(key, None) is not None:
                found.append(overrun)
        return found

    def take_unbegun(self, which: Callable[[Task], bool] = lambda task: True) -> list[Claimed]:
        """Removes and returns the tasks that no thread has begun, those for which ``which`` says so."""
        with self._limits_changed:
            unbegun = [claimed for _, _, claimed in self._rate_limited if which(claimed.task)]
            self._rate_limited[:] = [entry for entry in self._rate_limited if not which(entry[2].task)]
            heapq.heapify(self._rate_limited)
        with self._lock:
            unbegun += [claimed for claimed in self._waiting_large if which(claimed.task)]
            self._waiting_large = deque(claimed for claimed in self._waiting_large if not which(claimed.task))
            kept: list[Claimed] = []
            while True:
                try:
                    claimed = self._queue.get_nowait()
                except Empty:
                    break
                if claimed is not None and which(claimed.task):
                    self._loaded -= claimed.size
                    unbegun.append(claimed)
                elif claimed is not None:
                    kept.append(claimed)
            for claimed in kept:
                self._queue.put(claimed)
            self._begin_large()
            return unbegun

    def close(self) -> None:
        """Ends each thread when it is idle. Tasks that no thread has begun are dropped."""
        with self._limits_changed:
            self._closed = True
            self._limits_changed.notify()
        self.take_unbegun()
        with self._lock:  # a thread that has just taken a task counts as running, or finds the pool closed
            begun = self._begun
        for _ in range(begun):
            self._queue.put(None)

    def _work(self) -> None:
        while (claimed := self._queue.get()) is not None:
            with self._lock:
                if self._closed:
                    continue
                self._running += 1
            attempted = self.run(claimed)
            with self._lock:
                self._running -= 1  # before the report, so that its receiver doesn't count this task as running
            if attempted is not None:
                self._ended(attempted)
            with self._lock:
                self._idle += 1
                if claimed.size:
                    self._loaded -= claimed.size
                    self._begin_large()

    def _wait_for_limit(self, claimed: Claimed, seconds: float) -> None:
        with self._limits_changed:
            if self._closed:
                return  # its lease will expire
            heapq.heappush(self._rate_limited, (time.monotonic() + seconds, next(self._order), claimed))
            if self._limit_thread is None:
                self._limit_thread = threading.Thread(
                    target=self._submit_when_allowed, name="dynatick-rate-limits", daemon=True
                )
                self._limit_thread.start()
            self._limits_changed.notify()

    def _submit_when_allowed(self) -> None:
        """Submits each task when its rate limit allows it. Runs in a thread of its own."""
        with self._limits_changed:
            while not self._closed:
                left = self._rate_limited[0][0] - time.monotonic() if self._rate_limited else None
                if left is not None and left <= 0:
                    # Under the lock, so that ``take_unbegun`` finds the task either here or in the queue.
                    self.submit(heapq.heappop(self._rate_limited)[2])
                else:
                    self._limits_changed.wait(left)

    def run(self, claimed: Claimed) -> Attempted | None:
        """Makes one attempt in the calling thread. Never raises: what the action raises is the outcome.
        None: it waits for its rate limit, or there is too little time left for it, or it is paused."""
        if self._is_paused(claimed.task):
            self._unbegun(claimed)
            return None
        task, started = claimed.task, self._clock()
        timeout = self._actions.timeout_seconds(task)
        if timeout is None:
            outcome = self._outcome(claimed)
            return None if outcome is None else Attempted(task, claimed.row, outcome, started, ended_at=self._clock())
        try:
            check_timeout(timeout, self._max_timeout_seconds)
        except InvalidInput as error:
            return Attempted(task, claimed.row, Error(str(error), permanent=True), started)
        if not self._fits(timeout, started):
            self._unbegun(claimed)
            return None
        reserved = _Reserved(task, timeout, started)
        self._reserved[id(reserved)] = reserved
        outcome = self._outcome(claimed)
        is_unreported = self._reserved.pop(id(reserved), None) is not None
        ended = self._clock()
        overrun = reserved.overrun(ended) if is_unreported else None
        return None if outcome is None else Attempted(task, claimed.row, outcome, started, overrun, ended)

    def _fits(self, timeout: int, now: datetime) -> bool:
        return now + timedelta(seconds=timeout) <= self._recorded_from

    def _outcome(self, claimed: Claimed) -> Done | Error | Deferred | Rescheduled | Handed | None:
        """Runs the action. None: the task waits for its rate limit."""
        task = claimed.task
        if (seconds := self._seconds_to_wait(task)) > 0:
            self._wait_for_limit(claimed, seconds)
            return None
        context = ActionContext(
            attempt=task.attempt,
            run=task.run,
            turn=task.turn,
            due_at=task.due_at,
            idempotency_key=task.idempotency_key,
            deadline=self._deadline,
            schedule_id=task.schedule_id,
        )
        try:
            whole = claimed.whole()
        except InvalidInput as error:
            return Error(str(error), permanent=True)
        try:
            with EndChildren():  # else a child that the action forks would go on as a thread of this pool
                result = self._actions.run(whole, context)
            follow_ups = context.follow_ups[:MAX_RECORDED]
            also = {attr.FOLLOW_UPS: follow_ups} if follow_ups else {}
            if isinstance(result, Commit):
                return Done(result.result, also=also, items=result.items)
            if isinstance(result, CompleteLater):
                return Handed(result, also)
            return Done(result, also=also)
        except RateLimited as early:
            if not early.defer:
                self._keep_start(task, early.seconds)
                self._wait_for_limit(claimed, early.seconds)
                return None
            return Deferred(early.seconds)
        except Reschedule as later:
            return Rescheduled(later.seconds)
        except RetryableError as error:
            return Error(message_of(error), retry_after=_seconds(error.retry_after), trace=trace_of(error))
        except ActionError as error:
            return Error(message_of(error), permanent=error.permanent, trace=trace_of(error))
        except BaseException as error:  # a user's code may raise anything, call sys.exit, or be a cancelled coroutine
            return Error(described(error), trace=trace_of(error))


def _seconds(value: object) -> float | None:
    """The seconds that an error has; None for anything but a number, which a user's subclass may have set itself."""
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None

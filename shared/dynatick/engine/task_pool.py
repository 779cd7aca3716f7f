"""Threads that run tasks. A slow task keeps no other from ending.

A task that its rate limit doesn't allow yet waits without a thread. So does a large one while there is no room in
memory: as objects, large payloads take a multiple of their size in the table. A task with ``timeoutSeconds`` is not
begun with less time left; one that takes longer is not interrupted.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import count
from queue import Empty, SimpleQueue

from dynatick.domain.task import Task
from dynatick.domain.timeout import check_timeout
from dynatick.engine.claims import Claimed
from dynatick.engine.ports import ActionContext, Actions
from dynatick.engine.record import Attempted, Deferred, Done, Error, Overrun, Rescheduled
from dynatick.engine.trace import described, message_of, trace_of
from dynatick.errors import ActionError, InvalidInput, RateLimited, Reschedule, RetryableError
from dynatick.forked_child import EndChildren

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
        is_paused: Callable[[], bool] = lambda: False,
        max_timeout_seconds: int | None = None,
        in_one_thread: bool = False,
    ) -> None:
        """``stop_waiting``: an attempt that ends later may not be recorded. ``unbegun`` is called with a task that has
        too little time until then, and with each while ``is_paused``. ``max_timeout_seconds``: a task with a longer
        timeout fails; None: no limit. ``in_one_thread``: ``submit`` runs the task before it returns."""
        self._actions = actions
        self._threads = threads
        self._deadline = deadline
        self._recorded_from = stop_waiting
        self._clock = clock
        self._ended = ended
        self._unbegun = unbegun
        self._is_paused = is_paused
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

    def take_unbegun(self) -> list[Claimed]:
        """Removes and returns the tasks that no thread has begun."""
        with self._limits_changed:
            unbegun = [claimed for _, _, claimed in self._rate_limited]
            self._rate_limited.clear()
        with self._lock:
            unbegun += self._waiting_large
            self._waiting_large.clear()
            while True:
                try:
                    claimed = self._queue.get_nowait()
                except Empty:
                    return unbegun
                if claimed is not None:
                    self._loaded -= claimed.size
                    unbegun.append(claimed)

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
        None: it waits for its rate limit, or there is too little time left for it, or all is paused."""
        if self._is_paused():
            self._unbegun(claimed)
            return None
        task, started = claimed.task, self._clock()
        timeout = self._actions.timeout_seconds(task)
        if timeout is None:
            outcome = self._outcome(claimed)
            return None if outcome is None else Attempted(task, claimed.row, outcome, started)
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
        overrun = reserved.overrun(self._clock()) if is_unreported else None
        return None if outcome is None else Attempted(task, claimed.row, outcome, started, overrun)

    def _fits(self, timeout: int, now: datetime) -> bool:
        return now + timedelta(seconds=timeout) <= self._recorded_from

    def _outcome(self, claimed: Claimed) -> Done | Error | Deferred | Rescheduled | None:
        """Runs the action. None: the task waits for its rate limit."""
        task = claimed.task
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
                return Done(self._actions.run(whole, context))
        except RateLimited as early:
            if not early.defer:
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
    """The seconds that a handler gave; None for anything but a number."""
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None

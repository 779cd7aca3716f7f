"""Threads that run actions. What ends is put on a queue of events; nobody waits for a slow one.

A task whose turn has not come (an action's rate limit) is held without a thread until then. So is a large one for which
there is no room in memory: as objects, large payloads take a multiple of what they are in the table. One that has
declared how long it takes is not begun with less time left; one that takes longer is not interrupted.
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
from dynatick.engine.record import Attempted, Deferred, Done, Error, Overrun
from dynatick.errors import ActionError, InvalidInput, RateLimited, RetryableError

LARGE_AT_ONCE = 4_000_000  # bytes, as the rows wait: a larger one runs with no other large one beside it


@dataclass(frozen=True, slots=True)
class _Reserved:
    """An attempt under way that has declared how long it takes."""

    task: Task
    timeout_seconds: int
    started_at: datetime

    def overrun(self, now: datetime) -> Overrun | None:
        """None while it has time left."""
        seconds = (now - self.started_at).total_seconds()
        return Overrun(self.task, self.timeout_seconds, seconds) if seconds > self.timeout_seconds else None


class TaskPool:
    """Runs tasks in at most ``threads`` threads, begun as they are needed.

    The threads are daemons: one that never comes back must not keep the process from ending, for it is the end of the
    process that fences it (protocol 11).
    """

    def __init__(
        self,
        actions: Actions,
        *,
        threads: int,
        deadline: datetime,
        recorded_from: datetime,
        clock: Callable[[], datetime],
        ended: Callable[[Attempted], None],
        unbegun: Callable[[Claimed], None],
        max_timeout_seconds: int | None = None,
    ) -> None:
        """``recorded_from``: what has not ended by then may not be recorded any more. ``unbegun`` is called with a task
        that takes longer than until then. ``max_timeout_seconds``: what takes longer than that fails; None: no matter.
        """
        self._actions = actions
        self._threads = threads
        self._deadline = deadline
        self._recorded_from = recorded_from
        self._clock = clock
        self._ended = ended
        self._unbegun = unbegun
        self._max_timeout_seconds = max_timeout_seconds
        self._reserved: dict[int, _Reserved] = {}  # by their own ids
        self._queue: SimpleQueue[Claimed | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._begun = 0
        self._idle = 0
        self._running = 0
        self._loaded = 0  # bytes of the large ones that were let in
        self._waiting: deque[Claimed] = deque()  # large ones that were not yet
        self._waiting_turns = threading.Condition()
        self._held: list[tuple[float, int, Claimed]] = []  # a heap, by the time of their turn
        self._order = count()
        self._caller: threading.Thread | None = None
        self._closed = False

    @property
    def held(self) -> int:
        """How many wait for their turn."""
        return len(self._held)

    @property
    def running(self) -> int:
        """How many threads are at a task just now. Once this is closed, it only falls."""
        return self._running

    def submit(self, won: Claimed) -> None:
        """Queues a task."""
        with self._lock:
            if won.size:
                self._waiting.append(won)
                self._let_in()
            else:
                self._begin(won)

    def _begin(self, won: Claimed) -> None:
        if self._idle > 0:
            self._idle -= 1  # promised to this one
        elif self._begun < self._threads:
            self._begun += 1
            threading.Thread(target=self._work, name=f"dynatick-{self._begun}", daemon=True).start()
        self._queue.put(won)

    def _let_in(self) -> None:
        while self._waiting and (not self._loaded or self._loaded + self._waiting[0].size <= LARGE_AT_ONCE):
            won = self._waiting.popleft()
            self._loaded += won.size
            self._begin(won)

    def has_time_for(self, task: Task) -> bool:
        """Whether the task can end in time if it begins now. One that never can is to be begun: that is its failure."""
        timeout = self._actions.timeout_seconds(task)
        never = timeout is not None and self._max_timeout_seconds is not None and timeout > self._max_timeout_seconds
        return timeout is None or never or self._fits(timeout, self._clock())

    def overrunning(self) -> list[Overrun]:
        """The attempts that should have ended by now, each once: when it ends it is not reported again."""
        now, found = self._clock(), []
        for key, reserved in self._reserved.copy().items():
            overrun = reserved.overrun(now)
            if overrun is not None and self._reserved.pop(key, None) is not None:
                found.append(overrun)
        return found

    def take_unbegun(self) -> list[Claimed]:
        """The tasks that no thread has begun."""
        with self._waiting_turns:
            unbegun = [won for _, _, won in self._held]
            self._held.clear()
        with self._lock:
            unbegun += self._waiting
            self._waiting.clear()
            while True:
                try:
                    won = self._queue.get_nowait()
                except Empty:
                    return unbegun
                if won is not None:
                    self._loaded -= won.size
                    unbegun.append(won)

    def close(self) -> None:
        """Ends the threads as they become idle. What none of them has begun is begun no more."""
        with self._waiting_turns:
            self._closed = True
            self._waiting_turns.notify()
        self.take_unbegun()
        with self._lock:  # a thread that has just taken a task counts as running, or finds this closed
            begun = self._begun
        for _ in range(begun):
            self._queue.put(None)

    def _work(self) -> None:
        while (won := self._queue.get()) is not None:
            with self._lock:
                if self._closed:
                    continue
                self._running += 1
            attempted = self.run(won)
            with self._lock:
                self._running -= 1  # before it is reported: the one who hears of it must not find it running
            if attempted is not None:
                self._ended(attempted)
            with self._lock:
                self._idle += 1
                if won.size:
                    self._loaded -= won.size
                    self._let_in()

    def _hold(self, won: Claimed, seconds: float) -> None:
        with self._waiting_turns:
            if self._closed:
                return  # its lease ends some time
            heapq.heappush(self._held, (time.monotonic() + seconds, next(self._order), won))
            if self._caller is None:
                self._caller = threading.Thread(target=self._call_up, name="dynatick-turns", daemon=True)
                self._caller.start()
            self._waiting_turns.notify()

    def _call_up(self) -> None:
        """In a thread of its own: submits the held ones as their turns come."""
        with self._waiting_turns:
            while not self._closed:
                left = self._held[0][0] - time.monotonic() if self._held else None
                if left is not None and left <= 0:
                    # Still under the lock: whoever takes back finds it in one place or in the other.
                    self.submit(heapq.heappop(self._held)[2])
                else:
                    self._waiting_turns.wait(left)

    def run(self, won: Claimed) -> Attempted | None:
        """One attempt, in the calling thread. Never raises: whatever an action does is the outcome of its attempt.
        None: it is held until its turn comes, or there is too little time for it."""
        task, started = won.task, self._clock()
        timeout = self._actions.timeout_seconds(task)
        if timeout is None:
            outcome = self._outcome(won)
            return None if outcome is None else Attempted(task, won.row, outcome, started)
        try:
            check_timeout(timeout, self._max_timeout_seconds)
        except InvalidInput as error:
            return Attempted(task, won.row, Error(str(error), permanent=True), started)
        if not self._fits(timeout, started):
            self._unbegun(won)
            return None
        reserved = _Reserved(task, timeout, started)
        self._reserved[id(reserved)] = reserved
        outcome = self._outcome(won)
        is_news = self._reserved.pop(id(reserved), None) is not None
        overrun = reserved.overrun(self._clock()) if is_news else None
        return None if outcome is None else Attempted(task, won.row, outcome, started, overrun)

    def _fits(self, timeout: int, now: datetime) -> bool:
        return now + timedelta(seconds=timeout) <= self._recorded_from

    def _outcome(self, won: Claimed) -> Done | Error | Deferred | None:
        """What the action does. None: it is held until its turn comes."""
        task = won.task
        context = ActionContext(
            attempt=task.attempt,
            run=task.run,
            due_at=task.due_at,
            idempotency_key=task.idempotency_key,
            deadline=self._deadline,
            schedule_id=task.schedule_id,
        )
        try:
            whole = won.whole()
        except InvalidInput as error:
            return Error(str(error), permanent=True)
        try:
            return Done(self._actions.run(whole, context))
        except RateLimited as early:
            if not early.defer:
                self._hold(won, early.seconds)
                return None
            return Deferred(early.seconds)
        except RetryableError as error:
            return Error(_words_of(error), retry_after=_seconds(error.retry_after))
        except ActionError as error:
            return Error(_words_of(error), permanent=error.permanent)
        except BaseException as error:  # a user's code may raise anything, call sys.exit, or be a cancelled coroutine
            return Error(f"{type(error).__name__}: {_words_of(error)}")


def _words_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return "(its message cannot be had)"


def _seconds(value: object) -> float | None:
    """What a handler may have given for seconds; anything but a number says nothing."""
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None

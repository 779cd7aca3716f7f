"""Threads that run actions. What ends is put on a queue of events; nobody waits for a slow one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime
from queue import Empty, SimpleQueue

from dynatick.engine.claims import Won
from dynatick.engine.ports import ActionContext, Actions
from dynatick.engine.record import Attempted, Done, Error
from dynatick.errors import ActionError, RetryableError


class Workbench:
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
        clock: Callable[[], datetime],
        ended: Callable[[Attempted], None],
    ) -> None:
        self._actions = actions
        self._threads = threads
        self._deadline = deadline
        self._clock = clock
        self._ended = ended
        self._queue: SimpleQueue[Won | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._begun = 0
        self._idle = 0

    def submit(self, won: Won) -> None:
        """Queues a task."""
        with self._lock:
            if self._idle > 0:
                self._idle -= 1  # promised to this one
            elif self._begun < self._threads:
                self._begun += 1
                threading.Thread(target=self._work, name=f"dynatick-{self._begun}", daemon=True).start()
        self._queue.put(won)

    def take_back(self) -> list[Won]:
        """The tasks that no thread has begun."""
        unbegun: list[Won] = []
        while True:
            try:
                won = self._queue.get_nowait()
            except Empty:
                return unbegun
            if won is not None:
                unbegun.append(won)

    def close(self) -> None:
        """Ends the threads as they become idle. What none of them has begun is begun no more."""
        self.take_back()
        with self._lock:
            begun = self._begun
        for _ in range(begun):
            self._queue.put(None)

    def _work(self) -> None:
        while (won := self._queue.get()) is not None:
            self._ended(self.run(won))
            with self._lock:
                self._idle += 1

    def run(self, won: Won) -> Attempted:
        """One attempt, in the calling thread. Never raises: whatever an action does is the outcome of its attempt."""
        task, started = won.task, self._clock()
        context = ActionContext(
            attempt=task.attempt,
            run=task.run,
            due_at=task.due_at,
            idempotency_key=task.idempotency_key,
            deadline=self._deadline,
            schedule_id=task.schedule_id,
        )
        try:
            outcome: Done | Error = Done(self._actions.run(task, context))
        except RetryableError as error:
            outcome = Error(_words_of(error), retry_after=_seconds(error.retry_after))
        except ActionError as error:
            outcome = Error(_words_of(error), permanent=error.permanent)
        except BaseException as error:  # a user's code may raise anything, call sys.exit, or be a cancelled coroutine
            outcome = Error(f"{type(error).__name__}: {_words_of(error)}")
        return Attempted(task, won.row, outcome, started)


def _words_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return "(its message cannot be had)"


def _seconds(value: object) -> float | None:
    """What a handler may have given for seconds; anything but a number says nothing."""
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None

"""What ran and what waits in a virtual installation, as a test sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from dynatick.domain import attributes as attr
from dynatick.domain.completion import Commit, completion_token
from dynatick.domain.task import Row, Status, Task
from dynatick.errors import PermanentError, RateLimited, Reschedule, RetryableError

_OUTCOMES = {str(status): str(status) for status in (Status.COMPLETED, Status.FAILED, Status.WAITING)}


@dataclass(frozen=True, kw_only=True, slots=True)
class Execution:
    """One attempt to run a task."""

    action: str
    task_id: str
    payload: Any  # of the type that the handler declares
    at: datetime
    # completed, failed, retried (it failed, and will be tried again), rescheduled (a further turn), or waiting (for a
    # completion)
    outcome: str
    result: object = None  # what the handler returned
    committed: Sequence[Mapping[str, object]] = ()  # the items of its Commit
    completion_token: str | None = None  # of one that waits, for client.complete, fail and heartbeat
    error: BaseException | None = None  # what it raised
    due_at: datetime
    attempt: int = 1
    run: int = 1
    turn: int = 0
    schedule_id: str | None = None  # of an occurrence: its schedule


@dataclass(frozen=True, kw_only=True, slots=True)
class Waiting:
    """A task that has not ended, or the next occurrence of a schedule."""

    action: str
    task_id: str  # of a schedule: its id
    payload: Mapping[str, object]  # as JSON
    due_at: datetime  # when it will be attempted, at the first tick then with precision tick; or must be completed
    attempt: int = 1  # the one that is to come
    schedule_id: str | None = None


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One that has ended, and is not yet recorded in the table."""

    task: Task
    payload: Any
    at: datetime
    result: object
    error: BaseException | None


class Journal:
    """The attempts, in the order in which they were recorded."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self.executions: list[Execution] = []
        self._clock = clock
        self._unrecorded: dict[str, _Attempt] = {}
        self._interrupt: KeyboardInterrupt | None = None

    def ended(self, task: Task, payload: object, result: object, error: BaseException | None) -> None:
        if isinstance(error, KeyboardInterrupt):
            self._interrupt = error
        self._unrecorded[task.task_id] = _Attempt(task, payload, self._clock(), result, error)

    def recorded(self, task_id: str, row: Row) -> None:
        """The table has the row of a task that was running until now."""
        attempt = self._unrecorded.pop(task_id, None)
        if attempt is None or isinstance(attempt.error, RateLimited):
            return
        task, error = attempt.task, attempt.error
        outcome = _OUTCOMES.get(str(row.get(attr.STATUS)))
        if isinstance(error, Reschedule):
            error = PermanentError(str(row.get(attr.ERROR))) if outcome == "failed" else None
            outcome = outcome or "rescheduled"
        result, items = attempt.result, tuple[Mapping[str, object], ...]()
        if isinstance(attempt.result, Commit):
            result = attempt.result.result
            if outcome == "completed":
                items = tuple(attempt.result.items)
            else:
                attempts: Any = row[attr.ATTEMPTS]
                error = (PermanentError if outcome == "failed" else RetryableError)(attempts[-1][attr.ERROR])
        self.executions.append(
            Execution(
                action=task.action,
                task_id=task_id,
                payload=attempt.payload,
                at=attempt.at,
                outcome=outcome or "retried",
                result=result,
                committed=items,
                completion_token=completion_token(task.lease, task_id) if outcome == Status.WAITING else None,
                error=error,
                due_at=task.due_at,
                attempt=task.attempt,
                run=task.run,
                turn=task.turn,
                schedule_id=task.schedule_id,
            )
        )

    def raise_interrupt(self) -> None:
        """Ctrl-C in a handler is meant for the test, not for the task."""
        interrupt, self._interrupt = self._interrupt, None
        if interrupt is not None:
            raise interrupt

"""Every error that Dynatick raises, in one tree::

    DynatickError
    ├── InvalidInput          a value that no door accepts: names field, value and what would be right
    ├── ConfigurationError    a setting is missing or wrong: names the variable
    ├── TaskExists            an insert met a task of the same id
    ├── TaskNotFound          no task of that id
    │   └── ScheduleNotFound  no schedule of that id
    ├── TransitionRefused     the task is in a state that does not allow the wish (the loser of a race is told)
    ├── TaskChanged           the task is not what the caller has seen any more
    ├── StoreError            the table could not be reached or refused for a reason of its own
    │   └── ItemTooLarge      the row is, or would become, larger than the table takes
    └── ActionError           what an action raises when it did not do its work
        ├── PermanentError    trying again would not help: the task fails now
        └── RetryableError    may go better later: the task's retry policy decides

    NotYet is none of them: an action that may not be used so fast says so before it does anything.

Errors of the AWS SDK are translated in the adapters (``store``, ``actions``) and go no further.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

_SHOWN = 120


def shown(value: object) -> str:
    """A value as it may stand in a message: quoted, on one line, and not longer than a line."""
    text = str(value) if isinstance(value, Decimal) else ascii(value)  # a table's numbers are plain numbers to people
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text)} characters)"


class DynatickError(Exception):
    """Root of the tree."""


class InvalidInput(DynatickError, ValueError):
    """A value that cannot be taken.

    ``field`` is the attribute's name as it stands in the table (``payload.url`` for a part of one),
    ``expected`` says what would be right. ``others``: what else is wrong, of fields that were looked at all the same.
    """

    others: tuple[InvalidInput, ...] = ()

    def __init__(self, field: str, value: object, expected: str) -> None:
        super().__init__(f"{field}: {shown(value)} is not accepted; {expected}")
        self.field = field
        self.value = value
        self.expected = expected


class Refusals:
    """Collects what is wrong with fields that don't depend on each other: each is checked in a ``with`` of its own."""

    def __init__(self) -> None:
        self._found: list[InvalidInput] = []

    def __bool__(self) -> bool:
        return bool(self._found)

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        if not isinstance(error, InvalidInput):
            return False
        self._found += [error, *error.others]
        return True

    def raise_all(self) -> None:
        """Raises the first, with the others on it, if there are any."""
        if self._found:
            first, *others = self._found
            first.others = tuple(others)
            raise first


class ConfigurationError(DynatickError):
    """A setting is missing or cannot be understood."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{name}: {problem}")
        self.name = name


class TaskExists(DynatickError):
    """A task of this id is there already; nothing was written.

    It may be one's own: if the answer to an insert is lost on its way, the SDK sends the insert again. Either way it is
    in the table, so who chooses ids so that they mean one task may take this for success.
    """

    def __init__(self, task_id: str) -> None:
        super().__init__(
            f"taskId: a task or schedule {shown(task_id)} exists already; choose another id, or change that one"
        )
        self.task_id = task_id


class TaskNotFound(DynatickError):
    """There is no task of this id."""

    def __init__(self, task_id: str) -> None:
        super().__init__(f"taskId: there is no task {shown(task_id)}")
        self.task_id = task_id


class ScheduleNotFound(TaskNotFound):
    """There is no schedule of this id."""

    def __init__(self, schedule_id: str) -> None:
        super().__init__(schedule_id)
        self.args = (f"taskId: there is no schedule {shown(schedule_id)}",)


class TransitionRefused(DynatickError):
    """The task's present state does not allow what was asked.

    ``status`` is the state that was found, ``allowed`` the states it could have been done from; none, if it never
    can for what this ``is_a``: then ``instead`` says what can.
    """

    def __init__(
        self,
        task_id: str,
        wish: str,
        status: str,
        allowed: Sequence[str],
        *,
        what: str = "task",
        is_a: str = "",
        instead: str = "",
    ) -> None:
        possible = instead or f"possible only while it is {' or '.join(allowed)}"
        super().__init__(f"cannot {wish} {what} {shown(task_id)}: it is {is_a or status}; {possible}")
        self.task_id = task_id
        self.status = status
        self.allowed = tuple(allowed)


class TaskChanged(DynatickError):
    """The task is not in the version that was named; nothing was written."""

    def __init__(self, task_id: str) -> None:
        super().__init__(f"taskId: the task {shown(task_id)} was changed since it was read; look at it again")
        self.task_id = task_id


class StoreError(DynatickError):
    """The table could not do it now. Whether a write took effect is not known."""


class ItemTooLarge(StoreError):
    """The row would be larger than the table, or its index, takes."""


class ActionError(DynatickError):
    """An action did not do its work."""

    permanent = False


class PermanentError(ActionError):
    """Trying again would not help."""

    permanent = True


class RateLimited(Exception):
    """It is not this task's turn yet, and nothing was done: no attempt is counted.

    ``seconds`` until its turn. ``until_later``: it is better given back until then than kept in hand.
    """

    def __init__(self, seconds: float, *, until_later: bool = False) -> None:
        super().__init__(f"its turn is in {seconds:.1f} s")
        self.seconds = seconds
        self.until_later = until_later


class RetryableError(ActionError):
    """Trying again may help.

    ``retry_after``: seconds that the target asked us to wait, or None.
    """

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after

"""Every error that Dynatick raises, in one tree::

    DynatickError
    ├── InvalidInput          a value that no interface accepts: names field, value and what is expected
    ├── ConfigurationError    a setting is missing or wrong: names the variable
    ├── TaskExists            a task with the id of an insert exists already
    │   ├── ScheduleDiffers   a schedule with this id is defined otherwise
    │   └── BatchDiffers      a batch with this id is defined otherwise
    ├── TaskNotFound          no task has this id
    │   ├── ScheduleNotFound  no schedule has this id
    │   └── BatchNotFound     no batch has this id
    ├── TransitionRefused     the task's status does not allow the operation, perhaps since a moment ago
    ├── TaskChanged           the task has changed since the caller read it
    ├── WaitTimedOut          what was waited for has not ended in time
    ├── StoreError            the table could not be reached, or refused a request
    │   ├── ItemTooLarge      the row is, or would become, larger than the table allows
    │   ├── NoAnswer          another service did not answer in time
    │   └── QueueError        the dead-letter queue could not be reached, or refused a request
    └── ActionError           an action failed
        ├── PermanentError    a retry would fail too: the task fails now
        └── RetryableError    a retry may succeed: the task's retry policy applies

RateLimited and Reschedule are not among them: the one defers a task before the action has done anything, the other is
how a handler asks for a further turn.

The adapters (``store``, ``actions``) translate the errors of the AWS SDK.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from math import isnan

_SHOWN = 120


MISSING = "it is missing"
"""What is wrong with a field that has to be given."""


def shown(value: object) -> str:
    """A value for a message: quoted, on one line, and shortened."""
    try:
        text = str(value) if isinstance(value, Decimal) else ascii(value)  # without the name of the type
    except ValueError:  # an int that is too long for Python to write
        text = f"a value with a number of more than {sys.get_int_max_str_digits()} digits"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text)} characters)"


class _Pickled(Exception):
    def __reduce__(self) -> tuple[object, ...]:
        return _unpickled, (type(self), self.args), vars(self)


def _unpickled(kind: type[Exception], args: tuple[object, ...]) -> Exception:
    """Without ``__init__``, which takes other arguments than the message that it made of them."""
    return kind.__new__(kind, *args)


class DynatickError(_Pickled):
    """The base of all errors that Dynatick raises."""


class InvalidInput(DynatickError, ValueError):
    """A value that is not accepted.

    ``field``: the attribute's name as in the table, or ``payload.url`` for a part of one. ``expected``: what is
    accepted. ``others``: errors of further fields.
    """

    others: tuple[InvalidInput, ...] = ()

    def __init__(self, field: str, value: object, expected: str) -> None:
        super().__init__(f"{field}: {shown(value)} is not accepted; {expected}")
        self.field = field
        self.value = value
        self.expected = expected


class InvalidInputs:
    """Collects the errors of independent fields: check each in a ``with`` block of its own, then call ``raise_all``."""

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

    def raise_all(self, within: str = "") -> None:
        """Raises the first error, with the others in its ``others``, if there is one. ``within``: the field that has
        the fields."""
        if self._found:
            found = self._found
            if within:
                found = [InvalidInput(f"{within}.{one.field}", one.value, one.expected) for one in found]
            first, *others = found
            first.others = tuple(others)
            raise first


class ConfigurationError(DynatickError):
    """A setting is missing or invalid. ``name``: of the setting."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{name}: {problem}")
        self.name = name


class TaskExists(DynatickError):
    """A task with this id exists already; nothing was written.

    It may be from the same insert: if an answer is lost, the SDK sends the insert again. A caller whose ids identify
    one task each can treat this as success.
    """

    def __init__(self, task_id: str) -> None:
        super().__init__(
            f"taskId: a task or schedule {shown(task_id)} exists already; choose another id, or change that one"
        )
        self.task_id = task_id


def _shown(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else shown(value)


def differences_text(differences: Mapping[str, tuple[object, object]]) -> str:
    """How a schedule differs from what was given; without payloads, which may hold what no log should."""
    return ", ".join(
        f"its {name} differs" if name == "payload" else f"its {name} is {_shown(own)}, not {_shown(given)}"
        for name, (own, given) in differences.items()
    )


class ScheduleDiffers(TaskExists):
    """A schedule with this id exists, and is defined otherwise; nothing was written.

    ``differences``: by argument, its value and the one that was given.
    """

    def __init__(self, schedule_id: str, differences: Mapping[str, tuple[object, object]], hint: str) -> None:
        super().__init__(schedule_id)
        said = differences_text(differences)
        self.args = (f"taskId: a schedule {shown(schedule_id)} exists already, and {said}; {hint}",)
        self.differences = differences


class BatchDiffers(TaskExists):
    """A batch with this id exists, and is defined otherwise; nothing was written.

    ``differences``: by name, its value and the one that was given.
    """

    def __init__(self, batch_id: str, differences: Mapping[str, tuple[object, object]]) -> None:
        super().__init__(batch_id)
        said = (  # a task may hold what no log should
            f"its {name} differs" if isinstance(own, Mapping) or isinstance(given, Mapping)
            else f"its {name} is {_shown(own)}, not {_shown(given)}"
            for name, (own, given) in differences.items()
        )  # fmt: skip
        hint = "insert it as it was begun, or choose another id"
        self.args = (f"batchId: a batch {shown(batch_id)} exists already, and {', '.join(said)}; {hint}",)
        self.differences = differences


class TaskNotFound(DynatickError):
    """There is no task with this id."""

    def __init__(self, task_id: str) -> None:
        super().__init__(f"taskId: there is no task {shown(task_id)}")
        self.task_id = task_id


class ScheduleNotFound(TaskNotFound):
    """There is no schedule with this id."""

    def __init__(self, schedule_id: str) -> None:
        super().__init__(schedule_id)
        self.args = (f"taskId: there is no schedule {shown(schedule_id)}",)


class BatchNotFound(TaskNotFound):
    """There is no batch with this id."""

    def __init__(self, batch_id: str) -> None:
        super().__init__(batch_id)
        self.args = (f"batchId: there is no batch {shown(batch_id)}",)


class WaitTimedOut(DynatickError):
    """What was waited for has not ended in time. Nothing was changed."""


class TransitionRefused(DynatickError):
    """The task's status does not allow the operation; nothing was written.

    ``status``: the task's status. ``allowed``: the statuses that allow the operation; empty if none does, because the
    row ``is_a`` schedule: then ``instead`` names the alternative.
    """

    def __init__(
        self,
        task_id: str,
        operation: str,
        status: str,
        allowed: Sequence[str],
        *,
        what: str = "task",
        is_a: str = "",
        instead: str = "",
    ) -> None:
        possible = instead or f"possible only while it is {' or '.join(allowed)}"
        super().__init__(f"cannot {operation} {what} {shown(task_id)}: it is {is_a or status}; {possible}")
        self.task_id = task_id
        self.status = status
        self.allowed = tuple(allowed)


class CompletionRefused(DynatickError):
    """A completion, failure or heartbeat had no effect: its attempt is over, or the token is none of this table."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"token: {reason}")
        self.reason = reason


class TaskChanged(DynatickError):
    """The task has changed since the given version; nothing was written."""

    def __init__(self, task_id: str) -> None:
        super().__init__(f"taskId: the task {shown(task_id)} has changed since it was read; read it again")
        self.task_id = task_id


class StoreError(DynatickError):
    """The table failed. Whether a write took effect is unknown."""


class ItemTooLarge(StoreError):
    """The row or its index key would be larger than the table allows."""


class NoAnswer(StoreError):
    """Another service could not be reached, or did not answer in time."""


class QueueError(StoreError):
    """The dead-letter queue failed."""


class ActionError(DynatickError):
    """An action failed."""

    permanent = False


class PermanentError(ActionError):
    """An action failed, and a retry would fail too."""

    permanent = True


class RateLimited(_Pickled):
    """A rate limit allows this task only later. The action has done nothing, so no attempt is counted.

    ``seconds`` until the task may start. ``defer``: release it and move it to a later tick, instead of keeping it.
    """

    def __init__(self, seconds: float, *, defer: bool = False) -> None:
        super().__init__(f"its rate limit allows it in {seconds:.1f} s")
        self.seconds = seconds
        self.defer = defer


class Reschedule(_Pickled):
    """A handler returns or raises this to be called again later: it polls something that isn't done yet.

    That is no failed attempt: the task begins a further turn, with all its attempts and an idempotency key of its own.
    ``after``: the wait until then, in seconds or as a timedelta; a shorter one than a second counts as a second. A run
    ends as failed if it would take longer than ``maximumEventAgeInSeconds`` of the task's retry policy, or more than
    10,000 turns. Raises InvalidInput for anything but a finite wait from 0 on.
    """

    def __init__(self, *, after: float | Decimal | timedelta) -> None:
        seconds = _seconds(after)
        if seconds is None or not 0 <= seconds <= sys.float_info.max:
            raise InvalidInput("after", after, "expected a number of seconds from 0 on, or a timedelta")
        super().__init__(f"a further turn after {seconds} s")
        self.seconds = seconds


class RetryableError(ActionError):
    """An action failed, and a retry may succeed.

    ``retry_after``: the least wait until then, in seconds or as a timedelta, up to ``maximumEventAgeInSeconds`` of the
    task's retry policy; None: as the policy says. Raises InvalidInput for anything else.
    """

    retry_after: float | None = None

    def __init__(self, message: str, *, retry_after: float | Decimal | timedelta | None = None) -> None:
        super().__init__(message)
        if retry_after is not None:
            self.retry_after = _seconds(retry_after)
            if self.retry_after is None:
                raise InvalidInput("retry_after", retry_after, "expected a number of seconds, or a timedelta")


def _seconds(wait: object) -> float | None:
    """The seconds of a number or a timedelta; None for anything else."""
    found = wait.total_seconds() if isinstance(wait, timedelta) else wait
    if not isinstance(found, (int, float, Decimal)) or isinstance(found, bool):
        return None
    try:
        seconds = float(found)
    except (ArithmeticError, ValueError):  # no float can hold it
        return None
    return None if isnan(seconds) else seconds

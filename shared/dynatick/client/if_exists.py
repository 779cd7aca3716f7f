"""What an insert does with a task that has its id already."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from dynatick.client.new_task import Composed, NewTask, times_of
from dynatick.client.task_decisions import TaskDecisions
from dynatick.domain import attributes as attr
from dynatick.domain.batches import BATCH_ACTION
from dynatick.domain.conditional_update import ConditionalUpdate
from dynatick.domain.row import RowView, is_terminal
from dynatick.domain.schedule import is_or_was_schedule
from dynatick.domain.task import Row
from dynatick.errors import InvalidInput, shown
from dynatick.store.codec import decode, encode

IF_EXISTS: Final = ("refuse", "keep", "replace", "postpone")
CREATED: Final = "created"
KEPT: Final = "kept"
RESTARTED: Final = "restarted"
_EFFECTS: Final = {"replace": "replaced", "postpone": "postponed"}
MAX_UNTIL: Final = timedelta(days=366)
_OF_DEFINITION: Final = (
    attr.ACTION, attr.PAYLOAD, attr.RETRY_POLICY, attr.TIMEOUT_SECONDS, attr.SUBJECT, attr.LIMIT_KEY,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class IfExists:
    """``mode``: one of IF_EXISTS. ``until``: how long after its first time a task may be postponed; None: for ever."""

    mode: str
    until: timedelta | None

    @classmethod
    def of(cls, mode: object, until: object, task: NewTask) -> IfExists:
        """Raises InvalidInput."""
        if not isinstance(mode, str) or mode not in IF_EXISTS:
            raise InvalidInput("if_exists", mode, f"expected {', '.join(IF_EXISTS[:-1])} or {IF_EXISTS[-1]}")
        if until is not None and mode != "postpone":
            raise InvalidInput("until", str(until), 'leave it out: it belongs to if_exists="postpone"')
        if until is not None and not (isinstance(until, timedelta) and timedelta() < until <= MAX_UNTIL):
            expected = f"expected a timedelta of more than zero, and of {MAX_UNTIL.days} days at most"
            raise InvalidInput("until", str(until), expected)
        if mode in _EFFECTS and not any(value is not None for value in times_of(task).values()):
            expected = f"expected a time, one of {', '.join(times_of(task))}: if_exists={mode!r} needs one"
            raise InvalidInput(attr.DUE_AT, None, expected)
        return cls(mode, until if isinstance(until, timedelta) else None)

    def effect_on(self, row: Row) -> str:
        """That of a change of a task with this row."""
        return RESTARTED if is_terminal(row) else _EFFECTS[self.mode]

    def decision(
        self, decisions: TaskDecisions, task: NewTask, composed: Composed
    ) -> Callable[[Row], ConditionalUpdate] | None:
        """The change of the task that is there; None: it is kept. Raises InvalidInput for an invalid time."""
        if self.mode == "postpone":
            postponed = decisions.postponed(task.task_id, times_of(task), self.until, _definition(composed.row))
            return lambda row: _with_origin(postponed, row, composed.row) if is_terminal(row) else postponed(row)
        if self.mode == "replace":
            replaced = decisions.replaced(task.task_id, times_of(task), _definition(composed.row))
            return lambda row: _with_origin(replaced, row, composed.row)
        return None


def _with_origin(decide: Callable[[Row], ConditionalUpdate], row: Row, given: Row) -> ConditionalUpdate:
    """``decide`` for a row that comes from the span of this insert from now on, if it has one."""
    change = decide(row)
    if attr.TRACEPARENT in given:
        return replace(change, set={**change.set, attr.TRACEPARENT: given[attr.TRACEPARENT]})
    return replace(change, remove=(*change.remove, attr.TRACEPARENT)) if attr.TRACEPARENT in row else change


def check_is_task(row: Row) -> None:
    """Raises InvalidInput for a schedule, and for what belongs to a batch."""
    batch_id = row.get(attr.BATCH_ID)
    for has_it, what in (
        (is_or_was_schedule(row), "a schedule"),
        (row.get(attr.ACTION) == BATCH_ACTION, "a batch"),
        (RowView(row).is_pack, "the pack of a batch"),
        (batch_id is not None, f"a member of the batch {shown(batch_id)}"),
    ):
        if has_it:
            raise InvalidInput(
                attr.TASK_ID, RowView(row).task_id, f"{what} has it: expected an id of a task of its own"
            )


def _definition(row: Row) -> Mapping[str, object]:
    """What a user says of a task, but for its id and time, as it is read from the table."""
    names = {name for name in row if name in _OF_DEFINITION or name not in attr.OWN_ATTRIBUTES}
    return {name: value for name, value in decode(encode(row)).items() if name in names}

"""When a task is due, and the condition that it still is. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from dynatick.domain import attributes as attr
from dynatick.domain.conditional_update import Absent, Condition, Is
from dynatick.domain.instants import format_instant, parse_instant
from dynatick.errors import InvalidInput


@dataclass(frozen=True, slots=True, order=True)
class Due:
    """A task, and the instant at which it is due. ``by``: the attribute that says so, dueAt or nextAttemptAt."""

    at: datetime
    task_id: str
    by: str = attr.DUE_AT

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The conditions that this instant is still the one that counts (protocol 18)."""
        is_due = Is(self.by, format_instant(self.at))
        return (is_due,) if self.by == attr.NEXT_ATTEMPT_AT else (is_due, Absent(attr.NEXT_ATTEMPT_AT))


def due_of(task_id: str, due_at: object, next_attempt_at: object) -> Due | None:
    """When a task is due, by the attributes of its row or its entry: ``nextAttemptAt`` counts, else ``dueAt``.

    None if that isn't written as Dynatick writes it: then a user has, and it is still to be normalised.
    """
    by, value = (attr.DUE_AT, due_at) if next_attempt_at is None else (attr.NEXT_ATTEMPT_AT, next_attempt_at)
    try:
        at = parse_instant(value, by)
    except InvalidInput:
        return None
    return Due(at, task_id, by) if format_instant(at) == value else None

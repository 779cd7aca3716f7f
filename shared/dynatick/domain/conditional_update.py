"""A conditional write as a value: what to set, what to remove, and on what condition.

Decisions are made here as values and carried out by a store. All conditions of a change must hold (there is no
"or": engines differ on it), and the row must exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dynatick.domain.task import Row


@dataclass(frozen=True, slots=True)
class Is:
    """The attribute has this value."""

    attribute: str
    value: object


@dataclass(frozen=True, slots=True)
class Absent:
    """The row has no such attribute."""

    attribute: str


@dataclass(frozen=True, slots=True)
class AtLeast:
    """The attribute is a number, not below this one."""

    attribute: str
    value: int


Condition = Is | Absent | AtLeast


@dataclass(frozen=True, slots=True)
class Plus:
    """As a value to set: what the attribute holds, plus this. A condition must say that it holds a number."""

    number: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ConditionalUpdate:
    """One conditional write on one row that exists."""

    task_id: str
    set: Mapping[str, object] = field(default_factory=dict)
    remove: tuple[str, ...] = ()
    conditions: tuple[Condition, ...] = ()
    returning: bool = False  # whether the row as written is wanted back


@dataclass(frozen=True, slots=True)
class Written:
    """The change took effect. ``row`` is the row as written, if it was asked for."""

    row: Row | None = None


@dataclass(frozen=True, slots=True)
class Lost:
    """A condition did not hold: somebody else was first. Nothing was written.

    ``present`` is the row that was met, where the engine tells; None also when there is no such row.
    """

    present: Row | None = None


@dataclass(frozen=True, slots=True)
class Unknown:
    """The store gave no answer that counts: the change may or may not have taken effect.

    ``too_large``: it was refused for good, for the size that the row or its index key would have.
    """

    error: str
    too_large: bool = False


Result = Written | Lost | Unknown


def as_read(row: Row, *attributes: str) -> tuple[Condition, ...]:
    """Conditions that these attributes are still what they are in ``row``."""
    return tuple(Is(name, row[name]) if name in row else Absent(name) for name in attributes)


def together(
    first: ConditionalUpdate, *others: ConditionalUpdate, conditions: tuple[Condition, ...] = ()
) -> ConditionalUpdate:
    """Several changes of one row, decided on the same image of it, as a single write; ``conditions``: further ones."""
    changes = (first, *others)
    all_of_them = [condition for change in changes for condition in change.conditions] + list(conditions)
    return ConditionalUpdate(
        task_id=first.task_id,
        set={name: value for change in changes for name, value in change.set.items()},
        remove=tuple(dict.fromkeys(name for change in changes for name in change.remove)),
        conditions=tuple({(type(one), one.attribute): one for one in all_of_them}.values()),
        returning=any(change.returning for change in changes),
    )

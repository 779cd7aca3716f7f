"""Conditional updates as values: what to set, what to remove, and the conditions.

The domain returns them and a store executes them. The row must exist and all conditions must hold; there is no "or",
because engines differ in it.
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
    """The attribute is a number, not less than ``value``."""

    attribute: str
    value: int


Condition = Is | Absent | AtLeast


@dataclass(frozen=True, slots=True)
class Plus:
    """A value to set: adds ``number`` to the attribute. A condition must ensure that it is a number."""

    number: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ConditionalUpdate:
    """One conditional write on one existing row."""

    task_id: str
    set: Mapping[str, object] = field(default_factory=dict)
    remove: tuple[str, ...] = ()
    conditions: tuple[Condition, ...] = ()
    returning: bool = False  # whether the result should contain the row as written


@dataclass(frozen=True, slots=True)
class Written:
    """The update took effect. ``row``: the row as written, if ``returning``."""

    row: Row | None = None


@dataclass(frozen=True, slots=True)
class Lost:
    """A condition did not hold, because another process has changed the row. Nothing was written.

    ``present``: the present row, if the engine returns it; None also if the row does not exist.
    """

    present: Row | None = None


@dataclass(frozen=True, slots=True)
class Unknown:
    """The store failed: whether the update took effect is unknown.

    ``too_large``: it was refused because the row or its index key would be too large.
    """

    error: str
    too_large: bool = False


Result = Written | Lost | Unknown


def as_read(row: Row, *attributes: str) -> tuple[Condition, ...]:
    """Conditions that these attributes are unchanged since ``row`` was read."""
    return tuple(Is(name, row[name]) if name in row else Absent(name) for name in attributes)


def merge_updates(
    first: ConditionalUpdate, *others: ConditionalUpdate, conditions: tuple[Condition, ...] = ()
) -> ConditionalUpdate:
    """One update for several updates of one row, which were decided on the same image; ``conditions``: further ones."""
    changes = (first, *others)
    all_of_them = [condition for change in changes for condition in change.conditions] + list(conditions)
    return ConditionalUpdate(
        task_id=first.task_id,
        set={name: value for change in changes for name, value in change.set.items()},
        remove=tuple(dict.fromkeys(name for change in changes for name in change.remove)),
        conditions=tuple({(type(one), one.attribute): one for one in all_of_them}.values()),
        returning=any(change.returning for change in changes),
    )

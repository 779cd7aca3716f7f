"""Conditional updates as values: what to set, what to remove, and the conditions.

The domain returns them and a store executes them. The row must exist and all conditions must hold; there is no "or",
because engines differ in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from dynatick.domain.numbers import stored_number
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
    mark: tuple[Condition, ...] = ()
    """What holds of a row that this very write has changed, and stays so while others change it further: its token, or
    what no other write would leave. Empty: everything that it sets, removes, or made a condition."""

    def is_shown_by(self, row: Row) -> bool:
        """Whether a row shows the effect of this write, whose answer was lost or says otherwise: the SDK sends a
        request again if the connection breaks, and then its conditions no longer hold."""
        return all(_holds(row, part) for part in self.mark or self._left)

    def applied_to(self, row: Row) -> dict[str, object]:
        """The row as this write leaves it. It must add nothing to a number."""
        assert not any(isinstance(value, Plus) for value in self.set.values())
        return {name: value for name, value in {**row, **self.set}.items() if name not in self.remove}

    @property
    def _left(self) -> Iterator[Condition]:
        """What the write leaves behind, as far as that does not depend on what was there."""
        for name, value in self.set.items():
            if not isinstance(value, Plus):
                yield Is(name, value)
        yield from map(Absent, self.remove)
        changed = {*self.set, *self.remove}
        yield from (part for part in self.conditions if part.attribute not in changed)


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

    ``too_large``: it was refused because the row or its index key would be too large. ``was_read``: the row was read
    afterwards and does not show the update, which may still take effect; ``present``: that row, if it exists.
    """

    error: str
    too_large: bool = False
    was_read: bool = False
    present: Row | None = None


Result = Written | Lost | Unknown


def as_read(row: Row, *attributes: str) -> tuple[Condition, ...]:
    """Conditions that these attributes are unchanged since ``row`` was read."""
    return tuple(Is(name, row[name]) if name in row else Absent(name) for name in attributes)


def _holds(row: Row, part: Condition) -> bool:
    match part:
        case Is(name, value):
            present = row.get(name)
            is_bool = isinstance(value, bool)  # True is 1 to Python
            return present == _as_stored(value) and isinstance(present, bool) is is_bool
        case Absent(name):
            return name not in row
        case AtLeast(name, value):
            present = row.get(name)
            return isinstance(present, (int, Decimal)) and not isinstance(present, bool) and present >= value


def _as_stored(value: object) -> object:
    """The value with each float as the number that a table returns for it."""
    match value:
        case float():
            return stored_number(value)
        case Mapping():
            return {name: _as_stored(part) for name, part in value.items()}
        case list() | tuple():
            return [_as_stored(part) for part in value]
        case set() | frozenset():
            return {_as_stored(part) for part in value}
        case _:
            return value


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
        mark=tuple(part for one in changes for part in one.mark) if all(one.mark for one in changes) else (),
    )

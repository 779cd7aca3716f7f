"""Batches: what the row of one says, and how its members stand.

The row of a batch is a task of the action ``dynatick.batch``, due when its last pack is. It looks whether every member
has ended, comes back later if not, and at the end inserts the task that is to follow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from dynatick.domain import attributes as attr
from dynatick.domain.instants import format_instant, parse_instant
from dynatick.domain.lifecycle import state_of
from dynatick.domain.numbers import is_count
from dynatick.domain.packs import MAX_BATCH, Pack, Span
from dynatick.domain.row import RowView, is_terminal
from dynatick.domain.task import Row, Status, check_action
from dynatick.errors import InvalidInput

BATCH_ACTION: Final = "dynatick.batch"
MAX_OVER: Final = timedelta(days=1)
OPEN: Final = "open"
"""The status of a member that has not ended."""

# The names of a batch's payload, beside those of a task's attributes.
_OVER_SECONDS: Final = "overSeconds"
_THEN: Final = "then"


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """What a batch was inserted with. ``members``: None until all are in; then the batch is *sealed*. ``then``: the row
    of the task that follows."""

    action: str
    due_at: datetime
    over: timedelta = timedelta()
    members: int | None = None
    then: Mapping[str, object] | None = None

    @classmethod
    def of(cls, row: Row) -> Batch | None:
        """None: it is not the row of a batch. Raises InvalidInput if it is a malformed one."""
        payload = row.get(attr.PAYLOAD)
        if row.get(attr.ACTION) != BATCH_ACTION:
            return None
        return cls.of_payload(payload)

    @classmethod
    def of_payload(cls, payload: object) -> Batch:
        """Raises InvalidInput."""
        if not isinstance(payload, Mapping):
            raise InvalidInput(attr.PAYLOAD, payload, "expected what a batch was inserted with")
        seconds, members, then = (payload.get(name) for name in (_OVER_SECONDS, attr.MEMBERS, _THEN))
        if not is_count(seconds, 0) or seconds > MAX_OVER.total_seconds():
            raise InvalidInput(_OVER_SECONDS, seconds, "expected whole seconds, a day at most")
        if members is not None and (not is_count(members, 0) or members > MAX_BATCH):
            raise InvalidInput(attr.MEMBERS, members, f"expected a whole number up to {MAX_BATCH}")
        if then is not None and not isinstance(then, Mapping):
            raise InvalidInput(_THEN, then, "expected a task")
        return cls(
            action=check_action(payload.get(attr.ACTION)),
            due_at=parse_instant(payload.get(attr.DUE_AT), attr.DUE_AT),
            over=timedelta(seconds=int(seconds)),
            members=None if members is None else int(members),
            then=then,
        )

    def to_payload(self) -> dict[str, object]:
        """The payload of the batch's row."""
        return {
            attr.ACTION: self.action,
            attr.DUE_AT: format_instant(self.due_at),
            _OVER_SECONDS: int(self.over.total_seconds()),
            **({} if self.members is None else {attr.MEMBERS: self.members}),
            **({} if self.then is None else {_THEN: self.then}),
        }

    @property
    def last_due_at(self) -> datetime:
        """When its last pack is due at the latest, and its own row."""
        return self.due_at + self.over

    def due_of(self, span: Span, total: int) -> datetime:
        """When a pack is due: all are spread evenly."""
        seconds = int(self.over.total_seconds() * span.first / total) if total else 0
        return self.due_at + timedelta(seconds=seconds)


def then_id(batch_id: str) -> str:
    """The id of the task that follows a batch: the same however often it is inserted."""
    return f"{batch_id}/then"


def standing(row: Row, pack: Pack) -> Counter[str]:
    """How many members of a pack stand how, by status; ``open`` for those that have not ended. Extracted ones are not
    counted: their own rows say that."""
    rest = sum(1 for _ in pack.open())
    found = Counter({
        str(Status.COMPLETED): pack.done.bit_count(),
        str(Status.CANCELLED): (pack.excluded & ~pack.extracted).bit_count(),
    })  # fmt: skip
    found[state_of(row) if is_terminal(row) else OPEN] += rest
    return +found


def members_by_status(row: Row) -> Mapping[str, int] | None:
    """How many members a pack's row counts for, by status: those that have no rows of their own. None: it is no
    pack."""
    try:
        pack = Pack.of(row)
    except InvalidInput:
        return None
    if pack is None:
        return None
    found = standing(row, pack)
    is_open = found.pop(OPEN, 0)
    return {**found, state_of(row): is_open} if is_open else dict(found)


def status_of_member(row: Row, pack: Pack, n: int) -> str:
    """The status of a member that has no row of its own."""
    if pack.done >> n & 1:
        return str(Status.COMPLETED)
    if pack.excluded >> n & 1:
        return str(Status.CANCELLED)
    return state_of(row)


def extracted_ids(pack: Pack) -> Iterator[str]:
    """The ids of the members of a pack that have rows of their own."""
    return (pack.member_id(n) for n in range(pack.span.members) if pack.extracted >> n & 1)


def standing_of_row(row: Row | None) -> str:
    """How an extracted member stands. One that was deleted has ended."""
    if row is None:
        return "deleted"
    return state_of(row) if is_terminal(row) or RowView(row).terminal_status else OPEN

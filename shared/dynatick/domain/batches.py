"""Batches: what the row of one says, and how its members stand.

The row of a batch is a task of the action ``dynatick.batch``, due when its last pack is. It looks whether every member
has ended, comes back later if not, and at the end inserts the task that is to follow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from dynatick.domain import attributes as attr
from dynatick.domain.instants import format_instant, parse_instant
from dynatick.domain.lifecycle import state_of
from dynatick.domain.numbers import is_count
from dynatick.domain.packs import MAX_BATCH, SHOWN_OF_MEMBER, Pack, Span, is_row_of_member
from dynatick.domain.row import RowView, is_terminal
from dynatick.domain.task import RESERVED_ACTIONS, TERMINAL, Row, Status, check_action
from dynatick.errors import InvalidInput

BATCH_ACTION: Final = f"{RESERVED_ACTIONS}batch"
MAX_OVER: Final = timedelta(days=1)
LISTED_AS_BATCH: Final = "batch"
OPEN: Final = "open"
"""The status of a member that has not ended, and of a task that is listed by the index, which has no other."""

# The names of a batch's payload, beside those of a task's attributes.
_OVER_SECONDS: Final = "overSeconds"
_THEN: Final = "then"
_TOTAL: Final = "total"
_OF_MEMBERS: Final = "ofMembers"


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """What a batch was inserted with. ``members``: None until all are in; then the batch is *sealed*. ``total``: how
    many there will be, as soon as that is known. ``then``: the row of the task that follows. ``of_members``: what each
    member has besides, under the table's names."""

    action: str
    due_at: datetime
    over: timedelta = timedelta()
    members: int | None = None
    total: int | None = None
    then: Mapping[str, object] | None = None
    of_members: Mapping[str, object] = field(default_factory=dict)

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
        seconds, then, of_members = (payload.get(name) for name in (_OVER_SECONDS, _THEN, _OF_MEMBERS))
        if not is_count(seconds, 0) or seconds > MAX_OVER.total_seconds():
            raise InvalidInput(_OVER_SECONDS, seconds, "expected whole seconds, a day at most")
        if then is not None and not isinstance(then, Mapping):
            raise InvalidInput(_THEN, then, "expected a task")
        if of_members is not None and not isinstance(of_members, Mapping):
            raise InvalidInput(_OF_MEMBERS, of_members, "expected attributes")
        return cls(
            action=check_action(payload.get(attr.ACTION)),
            due_at=parse_instant(payload.get(attr.DUE_AT), attr.DUE_AT),
            over=timedelta(seconds=int(seconds)),
            members=_number(payload, attr.MEMBERS),
            total=_number(payload, _TOTAL),
            then=then,
            of_members=of_members or {},
        )

    def to_payload(self) -> dict[str, object]:
        """The payload of the batch's row."""
        return {
            attr.ACTION: self.action,
            attr.DUE_AT: format_instant(self.due_at),
            _OVER_SECONDS: int(self.over.total_seconds()),
            **({} if self.members is None else {attr.MEMBERS: self.members}),
            **({} if self.total is None else {_TOTAL: self.total}),
            **({} if self.then is None else {_THEN: self.then}),
            **({_OF_MEMBERS: self.of_members} if self.of_members else {}),
        }

    def differences(self, other: Batch) -> Mapping[str, tuple[object, object]]:
        """What the definitions of two batches differ in, by name, with the value of each. What only one of them knows,
        the number of its members, is no difference."""
        mine, others = self.to_payload(), other.to_payload()
        names = [name for name in {**mine, **others} if name not in (attr.MEMBERS, _TOTAL)]
        if self.total is not None and other.total is not None:
            names.append(_TOTAL)
        return {name: (mine.get(name), others.get(name)) for name in names if mine.get(name) != others.get(name)}

    @property
    def limit_key(self) -> str | None:
        """That of all members."""
        key = self.of_members.get(attr.LIMIT_KEY)
        return key if isinstance(key, str) else None

    @property
    def last_due_at(self) -> datetime:
        """When its last pack is due at the latest, and its own row."""
        return self.due_at + self.over

    def listed(self) -> Row:
        """What puts its row into the list of batches, by when its last members are due."""
        return {
            attr.LISTED_AS: LISTED_AS_BATCH,
            attr.LISTED_AT: format_instant(self.last_due_at.replace(microsecond=0)),
        }

    def due_of(self, span: Span, total: int) -> datetime:
        """When a pack is due: all are spread evenly."""
        seconds = int(self.over.total_seconds() * span.first / total) if total else 0
        return self.due_at + timedelta(seconds=seconds)


def _number(payload: Mapping[str, object], name: str) -> int | None:
    value = payload.get(name)
    if value is None:
        return None
    if not is_count(value, 0) or value > MAX_BATCH:
        raise InvalidInput(name, value, f"expected a whole number up to {MAX_BATCH}")
    return int(value)


def then_id(batch_id: str) -> str:
    """The id of the task that follows a batch: the same however often it is inserted."""
    return f"{batch_id}/then"


def standing(row: Row, pack: Pack) -> Counter[str]:
    """How many members of a pack stand how, by status; ``open`` for those that have not ended. Extracted ones are not
    counted: their own rows say that."""
    rest = sum(1 for _ in pack.open())
    found = Counter({
        str(Status.COMPLETED): (pack.done & ~pack.extracted).bit_count(),
        str(Status.CANCELLED): (pack.excluded & ~pack.extracted).bit_count(),
    })  # fmt: skip
    found[state_of(row) if is_terminal(row) else OPEN] += rest
    return +found


def standing_of_pack(row: Row) -> Mapping[str, int] | None:
    """How many members a pack's row counts for, as ``standing`` has them. None: it is no pack."""
    try:
        pack = Pack.of(row)
    except InvalidInput:
        return None
    return None if pack is None else standing(row, pack)


def tasks_in(row: Row) -> int:
    """How many tasks a row stands for: of a pack, its members without rows of their own."""
    members = standing_of_pack(row)
    return 1 if members is None else sum(members.values())


def tasks_changed(row: Row) -> int:
    """How many tasks go where a row goes: of a pack, the members that have neither completed nor been cancelled by
    themselves."""
    try:
        pack = Pack.of(row)
    except InvalidInput:
        return 1
    return 1 if pack is None else sum(1 for _ in pack.open())


def members_by_status(row: Row) -> Mapping[str, int] | None:
    """The same, with the status of the pack for those that have not ended."""
    found = standing_of_pack(row)
    return found and {state_of(row) if status == OPEN else status: number for status, number in found.items()}


def status_of_member(row: Row, pack: Pack, n: int) -> str:
    """The status of a member that has no row of its own."""
    if pack.done >> n & 1:
        return str(Status.COMPLETED)
    if pack.excluded >> n & 1:
        return str(Status.CANCELLED)
    return state_of(row)


def row_of_member(row: Row, pack: Pack, n: int, payload: Mapping[str, object]) -> dict[str, object]:
    """A member that has no row of its own, as the row that it would have. ``row``: that of its pack."""
    status = status_of_member(row, pack, n)
    shown = set(SHOWN_OF_MEMBER)
    if status in TERMINAL:
        shown |= {attr.FINISHED_AT, attr.EXPIRES_AT}
    if status == Status.CANCELLED:
        shown.discard(attr.STARTED_AT)  # its pack may have run since
    elif status in TERMINAL:
        shown.add(attr.LATE_MILLISECONDS)
    if status == row.get(attr.STATUS):
        shown |= {attr.ERROR, attr.LEASE_UNTIL}
    return {
        **{name: value for name, value in row.items() if name in shown or name not in attr.OWN_ATTRIBUTES},
        attr.TASK_ID: pack.member_id(n),
        attr.PAYLOAD: payload,
        attr.STATUS: status,
        **({attr.OUTCOME: status} if status in TERMINAL else {}),
        **({attr.ATTEMPT: 0} if status == Status.CANCELLED else {}),
        attr.BATCH_ID: pack.batch_id,
    }


def is_of_pack(row: Row, pack_row: Row, pack: Pack) -> bool:
    """Whether the row with the id of an extracted member is that member's."""
    return is_row_of_member(row, pack.batch_id, pack_row.get(attr.CREATED_AT))


def extracted_ids(pack: Pack) -> Iterator[str]:
    """The ids of the members of a pack that have rows of their own."""
    return (pack.member_id(n) for n in range(pack.span.members) if pack.extracted >> n & 1)


def standing_of_row(row: Row | None, pack_row: Row, pack: Pack) -> str:
    """How an extracted member stands, by the row with its id. One that was deleted has ended. If another task has its
    id, it has failed: that is the only record that could not be kept."""
    if row is None:
        return "deleted"
    if not is_of_pack(row, pack_row, pack):
        return str(Status.FAILED)
    return state_of(row) if is_terminal(row) or RowView(row).terminal_status else OPEN

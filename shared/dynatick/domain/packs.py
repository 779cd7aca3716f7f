"""Packs: up to 500 members of a batch that share one row.

The *pack row* is a task's row like any other, with the attribute ``pack``: claimed, leased and recorded as that of a
task. Its *body* is a row of Dynatick's own with the payloads of its members, which is written once, before the pack
row. A member has no row, until it is not a plain success: then it is *extracted* into one, under its own id.

The numbers in brackets are the rules of the protocol (docs/protocol.md). Nothing here reads a clock.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from dynatick.domain import attributes as attr
from dynatick.domain.numbers import is_count
from dynatick.domain.task import SYSTEM_PREFIX, Row, Status, check_payload, check_task_id
from dynatick.errors import InvalidInput
from dynatick.json_reader import dumps, parse

MAX_MEMBERS: Final = 500
MAX_BODY_BYTES: Final = 16 * 1024
"""The limit for the compressed payloads of more than one member."""

MAX_PAYLOADS_BYTES: Final = 1_000_000
"""The limit for the payloads of a pack as JSON: a pack is held in memory as a whole."""

MAX_MEMBER_BYTES: Final = 100 * 1024
"""The limit for the payload of a member as JSON."""

MAX_BATCH: Final = 100_000_000
DIGITS: Final = 9
"""Of the number of a member in its id, from 0: as text, ids stand in the order of their numbers."""

_PACK_ID: Final = re.compile(rf"/(\d{{{DIGITS}}})-(\d{{{DIGITS}}})$", re.ASCII)
MAX_BATCH_ID_BYTES: Final = 1024 - 2 * DIGITS - 2

_KEPT: Final = frozenset(
    {
        attr.ACTION, attr.DUE_AT, attr.CREATED_AT, attr.RETRY_POLICY, attr.TIMEOUT_SECONDS, attr.RUN, attr.SUBJECT,
        attr.LEASE_UNTIL, attr.STARTED_AT, attr.TASK_DATE_TIME, attr.TRACEPARENT, attr.LIMIT_KEY,
    }
)  # fmt: skip
"""What a member has from its claimed pack, beside the user's own attributes."""

ENDED: Final = re.compile(r"[0-9a-f]{1,125}(?:/[0-9a-f]{1,125}){2}", re.ASCII)
"""The form of ``Pack.ended``."""

SHOWN_OF_MEMBER: Final = frozenset({*_KEPT, attr.ATTEMPT}) - {attr.LEASE_UNTIL}
"""What a member without a row is shown with, of its pack."""


def check_batch_id(value: object) -> str:
    """The id of a batch: that of a task, short enough for those of its members. Raises InvalidInput."""
    try:
        batch_id = check_task_id(value)
    except InvalidInput as error:
        raise InvalidInput(attr.BATCH_ID, value, error.expected) from None
    if len(batch_id.encode()) > MAX_BATCH_ID_BYTES:
        raise InvalidInput(attr.BATCH_ID, value, f"expected at most {MAX_BATCH_ID_BYTES} bytes in UTF-8")
    return batch_id


def member_id(batch_id: str, number: int) -> str:
    """The id of a member: ``newsletter/000000123``."""
    return f"{batch_id}/{number:0{DIGITS}}"


def parse_member_id(task_id: str) -> tuple[str, int] | None:
    """The batch and the number that an id would name; None: it is no member's."""
    batch_id, slash, number = task_id.rpartition("/")
    is_number = len(number) == DIGITS and number.isascii() and number.isdigit()
    return (batch_id, int(number)) if slash and batch_id and is_number else None


OF_BATCH: Final = (attr.BATCH_ID, attr.CREATED_AT)
"""What tells the row of a member from any other with its id: all members of a batch have the same."""


def is_row_of_member(row: Row, batch_id: object, created_at: object) -> bool:
    """Whether the row with a member's id is the member's: not a task of the user's, nor of an earlier batch."""
    return (row.get(attr.BATCH_ID), row.get(attr.CREATED_AT)) == (batch_id, created_at)


def may_be_pack(task_id: str) -> bool:
    """Whether an id has the form of a pack's; its row says whether it is one."""
    return _PACK_ID.search(task_id) is not None


def parse_pack_id(task_id: str) -> tuple[str, Span] | None:
    """The batch and the members that an id would name; None: it is no pack's."""
    found = _PACK_ID.search(task_id)
    if found is None:
        return None
    first, last = int(found[1]), int(found[2])
    return task_id[: found.start()], Span(first, max(1, last - first + 1))


def tasks_of(task_id: str) -> int:
    """How many tasks an id stands for: of a pack, its members."""
    named = parse_pack_id(task_id)
    return 1 if named is None else named[1].members


@dataclass(frozen=True, slots=True)
class Span:
    """The members of a pack: a range of their numbers in the batch."""

    first: int
    members: int

    @property
    def last(self) -> int:
        return self.first + self.members - 1

    def pack_id(self, batch_id: str) -> str:
        """The id of the pack row: ``newsletter/000000000-000000499``."""
        return f"{batch_id}/{self.first:0{DIGITS}}-{self.last:0{DIGITS}}"

    def halves(self) -> tuple[Span, Span]:
        """There must be two members at least."""
        half = self.members // 2
        return Span(self.first, half), Span(self.first + half, self.members - half)


def spans_of(total: int, since: int = 0) -> Iterator[Span]:
    """The packs of a batch with this number of members, as far as none is too large, from that with the member number
    ``since`` on."""
    for first in range(since - since % MAX_MEMBERS, total, MAX_MEMBERS):
        yield Span(first, min(MAX_MEMBERS, total - first))


def spans_with(number: int, total: int) -> Iterator[Span]:
    """Every pack that may have a member: the whole one, and the halves of those that are too large."""
    first = number - number % MAX_MEMBERS
    span = Span(first, min(MAX_MEMBERS, total - first))
    yield span
    while span.members > 1:
        left, right = span.halves()
        span = left if number <= left.last else right
        yield span


def packed(span: Span, payloads: Sequence[str]) -> Iterator[tuple[Span, bytes]]:
    """Packs for these payloads, each the JSON of a map, with the bytes of its body. Of more than fit into one, halves:
    which pack a member is in follows from nothing but what was inserted."""
    if sum(map(len, payloads)) <= MAX_PAYLOADS_BYTES or span.members == 1:
        body = zlib.compress(f"[{','.join(payloads)}]".encode())
        if len(body) <= MAX_BODY_BYTES or span.members == 1:
            yield span, body
            return
    left, right = span.halves()
    yield from packed(left, payloads[: left.members])
    yield from packed(right, payloads[left.members :])


def payload_text(payload: object, number: int) -> str:
    """The JSON of a member's payload. Raises InvalidInput, which names the member."""
    try:
        text = _text(check_payload(payload))
    except (ValueError, TypeError, RecursionError) as error:
        reason = error.expected if isinstance(error, InvalidInput) else str(error)
        raise InvalidInput(f"payloads[{number}]", f"a {type(payload).__name__}", reason) from None
    if len(text) > MAX_MEMBER_BYTES:
        expected = f"expected at most {MAX_MEMBER_BYTES} bytes as JSON; store the data in S3 and put its key here"
        raise InvalidInput(f"payloads[{number}]", f"{len(text)} bytes", expected)
    return text


def _text(payload: Mapping[str, object]) -> str:
    try:
        return json.dumps(payload, allow_nan=False)  # twice as fast, but it doesn't know every value of a row
    except TypeError:
        return dumps(payload)


def body_id(pack_id: str) -> str:
    """The id of a pack's body."""
    return f"{SYSTEM_PREFIX}pack#{pack_id}"


def payloads_of(body: Row | None, members: int) -> Sequence[Mapping[str, object]]:
    """The payloads that the body of a pack holds. Raises InvalidInput if it is missing or malformed."""
    if body is None:
        raise InvalidInput(attr.PACK, "no body", "the row with the payloads of its members is missing")
    try:
        content = bytes(_binary(body.get(attr.BODY)))
        unpacker = zlib.decompressobj()
        # What would not fit into the memory of a function is not decompressed.
        text = unpacker.decompress(content, MAX_PAYLOADS_BYTES + MAX_MEMBER_BYTES).decode()
        payloads: Any = parse(text)
        if not unpacker.eof or not isinstance(payloads, list) or len(payloads) != members:
            raise ValueError("it does not have the payloads of its members")
        return [check_payload(payload) for payload in payloads]
    except (ValueError, TypeError, zlib.error) as error:
        raise InvalidInput(attr.PACK, "a malformed body", str(error)) from None


def _binary(value: object) -> Any:
    return getattr(value, "value", value)  # boto3's Binary, recognised by its attribute


# -- a pack and its members --------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Pack:
    """What a pack row says of its members. Members are counted from 0 within the pack; a set of them is the bits of a
    number."""

    batch_id: str
    span: Span
    done: int = 0  # they have completed
    excluded: int = 0  # a client has cancelled or rescheduled them (22)
    extracted: int = 0  # each has a row of its own (20)

    @classmethod
    def of(cls, row: Row) -> Pack | None:
        """None: it is not the row of a pack. Raises InvalidInput if it is a malformed one."""
        value = row.get(attr.PACK)
        if value is None:
            return None
        expected = "leave it out: it is set by Dynatick"
        if not isinstance(value, Mapping):
            raise InvalidInput(attr.PACK, value, expected)
        batch_id, first, members = (value.get(name) for name in (attr.BATCH_ID, attr.FIRST, attr.MEMBERS))
        if not (isinstance(batch_id, str) and is_count(first, 0) and is_count(members, 1)) or members > MAX_MEMBERS:
            raise InvalidInput(attr.PACK, f"{batch_id}, {first}, {members}", expected)
        span = Span(int(first), int(members))
        if row.get(attr.TASK_ID) != span.pack_id(batch_id):
            raise InvalidInput(attr.PACK, span.pack_id(batch_id), "it is another pack's")
        sets = {name: _bits(value.get(name), span.members) for name in (attr.DONE, attr.EXCLUDED, attr.EXTRACTED)}
        return cls(batch_id=batch_id, span=span, **sets)

    def to_attribute(self) -> Mapping[str, object]:
        """The value of ``pack``."""
        named = {attr.DONE: self.done, attr.EXCLUDED: self.excluded, attr.EXTRACTED: self.extracted}
        sets = {name: bits.to_bytes(-(-self.span.members // 8), "little") for name, bits in named.items() if bits}
        return {
            attr.BATCH_ID: self.batch_id,
            attr.FIRST: self.span.first,
            attr.MEMBERS: self.span.members,
            **sets,
        }

    @property
    def ended(self) -> str:
        """The members that are done, excluded and extracted, as text for an event."""
        return f"{self.done:x}/{self.excluded:x}/{self.extracted:x}"

    def with_ended(self, ended: str) -> Self:
        """``ended``: what the property gives."""
        done, excluded, extracted = (int(bits, 16) for bits in ended.split("/"))
        return replace(self, done=done, excluded=excluded, extracted=extracted)

    def open(self) -> Iterator[int]:
        """The members that are still to be run."""
        settled = self.done | self.excluded | self.extracted
        return (n for n in range(self.span.members) if not settled >> n & 1)

    @staticmethod
    def number_of(member_id: str) -> int:
        """The number in the batch of a member with this id."""
        return int(member_id[-DIGITS:])

    def member_id(self, n: int) -> str:
        return member_id(self.batch_id, self.span.first + n)

    def with_excluded(self, n: int) -> Self:
        return replace(self, excluded=self.excluded | 1 << n)

    def with_extracted(self, n: int) -> Self:
        return replace(self, extracted=self.extracted | 1 << n)

    def in_common(self, row: Row) -> Mapping[str, object]:
        """What the rows of all members of a claimed pack have. ``row``: the pack's."""
        kept = {name: value for name, value in row.items() if name in _KEPT or name not in attr.OWN_ATTRIBUTES}
        return {
            **kept,
            attr.STATUS: str(Status.RUNNING),
            attr.ATTEMPT: 1,
            attr.BATCH_ID: self.batch_id,
        }

    def member_row(
        self, in_common: Mapping[str, object], token: str, n: int, payload: Mapping[str, object]
    ) -> MemberRow:
        """A member as the row that it would be, if it had been claimed with its pack. ``token``: of the pack's claim.

        Each has a token of its own, by which the creation of its row is recognised.
        """
        return MemberRow(
            token,
            n,
            {
                **in_common,
                attr.TASK_ID: self.member_id(n),
                attr.LEASE: member_lease(token, n),
                attr.PAYLOAD: payload,
            },
        )


def member_lease(token: object, n: int) -> str:
    """The token of a member whose pack was claimed with ``token``."""
    return f"{token}/{n}"


def pack_token(lease: str | None) -> str | None:
    """The token with which the pack of a member was claimed. None: the lease is no member's."""
    token, slash, n = (lease or "").rpartition("/")
    return token if slash and n.isdecimal() else None


class MemberRow(dict[str, object]):
    """The row that a running member would have. It is in the table only once it is extracted.

    ``pack_token``: of the claim of its pack. ``n``: its number within that.
    """

    def __init__(self, pack_token: str, n: int, values: Mapping[str, object]) -> None:
        super().__init__(values)
        self.pack_token, self.n = pack_token, n


def _bits(value: object, members: int) -> int:
    if value is None:
        return 0
    content = _binary(value)
    if not isinstance(content, (bytes, bytearray)):
        raise InvalidInput(attr.PACK, f"a {type(content).__name__}", "leave it out: it is set by Dynatick")
    return int.from_bytes(content, "little") & ((1 << members) - 1)

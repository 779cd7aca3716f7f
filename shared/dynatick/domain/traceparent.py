"""The attribute ``traceparent``: the span that a task comes from, as W3C Trace Context writes it in a header."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from dynatick.domain import attributes as attr
from dynatick.errors import InvalidInput

_FORM: Final = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})", re.ASCII)


class TraceParent(NamedTuple):
    """The numbers in a ``traceparent``."""

    trace_id: int
    span_id: int
    flags: int

    def __str__(self) -> str:
        return traceparent_of(*self)


def traceparent_of(trace_id: int, span_id: int, flags: int) -> str:
    return f"00-{trace_id:032x}-{span_id:016x}-{flags:02x}"


def parse_traceparent(value: object) -> TraceParent | None:
    """None: it is malformed. That fails no task: it belongs to no trace then."""
    found = _FORM.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return None
    parent = TraceParent(*(int(part, 16) for part in found.groups()))
    return parent if parent.trace_id and parent.span_id else None


def check_traceparent(value: object) -> str:
    """Raises InvalidInput for a malformed one."""
    parent = parse_traceparent(value)
    if parent is None:
        expected = "expected 00-, 32 and 16 hexadecimal digits in lower case, not all of them 0, and flags, such as 01"
        raise InvalidInput(attr.TRACEPARENT, value, expected)
    return str(parent)

"""How values are shown: instants in the zone of the request, durations, numbers, JSON. ``now`` is a parameter."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from dynatick.domain.durations import milliseconds_text, relative_text
from dynatick.domain.instants import format_instant
from dynatick.domain.packs import Span, parse_pack_id
from dynatick.domain.terminal_text import quoted
from dynatick.ui.zone import comes_twice, in_zone, local, written

MAX_SHOWN = 20_000
"""Characters of a payload or a result that a page shows; a link leads to the rest."""

NOTHING = "\u2013"
_DAY = timedelta(days=1)


def instant(value: datetime | None) -> str:
    """``2026-12-31 12:00:00``; with milliseconds where there are some."""
    if value is None:
        return NOTHING
    milliseconds = f".{value.microsecond // 1000:03d}" if value.microsecond else ""
    return written(value, f"%Y-%m-%d %H:%M:%S{milliseconds}")


def machine(value: datetime) -> str:
    """Returns an instant for ``<time datetime>`` and URLs."""
    return format_instant(value)


def clock(value: datetime | None, now: datetime) -> str:
    """``12:00`` of a day that is near, with its day otherwise."""
    if value is None:
        return NOTHING
    time = "%H:%M:%S" if value.second else "%H:%M"
    if local(value).date() == local(now).date():
        return written(value, time)
    return written(value, f"%d %b {time}" if abs(value - now) < 300 * _DAY else f"%Y-%m-%d {time}")


def precise(value: datetime, now: datetime) -> str:
    """``12:00:00.040`` of today, with its day otherwise."""
    time = f"%H:%M:%S.{value.microsecond // 1000:03d}"
    return written(value, time if local(value).date() == local(now).date() else f"%d %b {time}")


def field(value: datetime) -> str:
    """An instant as the value of a form's field."""
    return f"{local(value):%Y-%m-%dT%H:%M:%S}"


def relative(value: datetime | None, now: datetime) -> str:
    """``12 s ago``, ``in 3 days``."""
    return "never" if value is None else relative_text(value, now)


def duration(milliseconds: float | None) -> str:
    """``40 ms``, ``1.2 s``, ``3 min``, ``2 h``, ``3 days``."""
    return NOTHING if milliseconds is None else milliseconds_text(milliseconds)


def number(value: int) -> str:
    """``1,204``."""
    return f"{value:,}"


def many(value: int, singular: str, plural: str | None = None) -> str:
    """``1 task``, ``12 tasks``."""
    return f"{value:,} {singular if value == 1 else plural or singular + 's'}"


def pack(task_id: str) -> tuple[str, Span] | None:
    """The batch and the members of a pack, by its id."""
    return parse_pack_id(task_id)


def as_json(value: object) -> str:
    """A value of a row as JSON, indented."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def cut(text: str, characters: int) -> str:
    """A text, shortened to a number of characters."""
    return text if len(text) <= characters else f"{text[: characters - 1]}…"


def text(value: object) -> str:
    """A value of a row as text."""
    return value if isinstance(value, str) else as_json(value)


FILTERS: Mapping[str, Callable[..., Any]] = {
    "instant": instant, "machine": machine, "clock": clock, "relative": relative, "duration": duration,
    "number": number, "many": many, "as_json": as_json, "cut": cut, "precise": precise, "text": text, "pack": pack,
    "quoted": quoted, "written": written, "field": field, "in_zone": in_zone, "comes_twice": comes_twice,
    "local": local,
}  # fmt: skip

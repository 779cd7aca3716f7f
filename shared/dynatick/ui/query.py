"""The parameters of a URL or a form: instants, durations, buckets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from dynatick.domain.buckets import Bucket, minute_of, parse_time
from dynatick.domain.durations import duration_of
from dynatick.domain.instants import parse_instant
from dynatick.errors import InvalidInput
from dynatick.ui.display import field
from dynatick.ui.zone import of_local

Query = Mapping[str, str]

_LOCAL = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,3})?)?", re.ASCII
)  # as a form's field writes it: in the zone of the page

_NAMES = ("action", "prefix", "schedule", "subject")


def trimmed(values: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Parameters without the space around them, and without empty ones. What names something is taken as it is."""
    found = {name: value if name in _NAMES else value.strip() for name, value in values}
    return {name: value for name, value in found.items() if value}


def instant(query: Query, name: str) -> datetime | None:
    """An instant; without an offset in the zone of the page. None if there is no such parameter. Raises InvalidInput.

    ``{name}_shown``: which instant the form had. Its local time may come twice, and was left as it is.
    """
    if name not in query:
        return None
    text = query[name]
    if not _LOCAL.fullmatch(text):
        return parse_instant(text, name)
    if (shown := query.get(f"{name}_shown")) is not None:
        was = parse_instant(shown, name)
        if field(was).removesuffix(":00") == text.replace(" ", "T").removesuffix(":00"):  # browsers leave it out
            return was
    return of_local(text, name)


def required_instant(query: Query, name: str) -> datetime:
    """An instant. Raises InvalidInput, also if it is missing."""
    found = instant(query, name)
    if found is None:
        raise InvalidInput(name, None, "expected an instant such as 2026-12-31T12:00Z")
    return found


def until(query: Query, now: datetime) -> datetime:
    """The last minute of a page's range: that before ``to``, if it has one, or the present. Raises InvalidInput."""
    to = instant(query, "to")
    return now if to is None else to - timedelta(minutes=1)


def duration(query: Query, name: str, default: str, *, longest: timedelta) -> timedelta:
    """A duration such as 24h. Raises InvalidInput."""
    text = query.get(name, default)
    found = duration_of(text, name)
    if not timedelta() < found <= longest:
        raise InvalidInput(name, text, f"expected a duration above 0, at most {longest.days} days")
    return found


def number(query: Query, name: str) -> int | None:
    """A whole number, from 1. None if there is no such parameter. Raises InvalidInput."""
    text = query.get(name)
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 9 or not int(text):
        raise InvalidInput(name, text, "expected a whole number of at least 1")
    return int(text)


def bucket(text: str) -> Bucket:
    """A bucket by its name or its instant. Raises InvalidInput."""
    found = parse_time(text, "bucket")
    return found if isinstance(found, Bucket) else Bucket(minute_of(found))


def choice(query: Query, name: str, choices: tuple[str, ...]) -> str | None:
    """One of some words, or None. Raises InvalidInput."""
    value = query.get(name)
    if value is not None and value not in choices:
        raise InvalidInput(name, value, f"expected one of {', '.join(choices)}")
    return value

"""Parsing and formatting of instants: aware datetimes in UTC, written as RFC 3339 with ``Z``. Reads no clock."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from functools import lru_cache

from dynatick.domain.durations import duration_or_none
from dynatick.errors import InvalidInput

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LATEST = datetime(9999, 1, 1, tzinfo=UTC)  # the last instant of 9998, rounded up to a tick of any grid

EXPECTED_INSTANT = (
    "expected an instant with its offset, such as 2026-12-31T12:07:00Z or 2026-12-31T13:07:00+01:00, "
    "or epoch seconds as a number"
)

EXPECTED_RANGE = "expected a time between 1970 and 9998"

_NUMBER = re.compile(r"\d+(?:\.\d+)?", re.ASCII)

_RFC3339 = re.compile(
    r"(?P<year>\d{4})-(?P<month>\d\d)-(?P<day>\d\d)[Tt ](?P<hour>\d\d):(?P<minute>\d\d)"
    r"(?::(?P<second>\d\d)(?:\.(?P<fraction>\d{1,9}))?)?"
    r"(?P<offset>[Zz]|[+-]\d\d:\d\d)?",
    re.ASCII,
)


def require_aware(value: datetime, field: str) -> datetime:
    """The instant in UTC. Raises InvalidInput for a naive datetime, whose instant is unknown."""
    if value.tzinfo is UTC:
        return value
    if value.utcoffset() is None:
        raise InvalidInput(field, value, "expected a datetime with a time zone, for instance datetime.now(UTC)")
    return value.astimezone(UTC)


def parse_instant(value: object, field: str) -> datetime:
    """An instant from an aware datetime, an RFC 3339 text or epoch seconds (a number).

    Seconds may be left out, the offset may not. Raises InvalidInput with the reason.
    """
    if type(value) is str:  # the most frequent type
        return _read(value, field)
    if isinstance(value, datetime):
        try:
            return in_range(require_aware(value, field), value, field)
        except OverflowError:
            raise InvalidInput(field, value, EXPECTED_RANGE) from None
    if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
        return _from_epoch(value, field)
    if not isinstance(value, str):
        raise InvalidInput(field, value, EXPECTED_INSTANT)
    return _read(value, field)


def optional_instant(value: object, field: str) -> datetime | None:
    """The same; None for None."""
    return None if value is None else parse_instant(value, field)


def _read(value: str, field: str) -> datetime:
    try:
        return _from_text(value.strip())
    except ValueError as error:
        raise InvalidInput(field, value, str(error)) from None


def in_range(instant: datetime, value: object, field: str) -> datetime:
    """The instant, if it can have a bucket. Raises InvalidInput, with ``value`` in the message."""
    if not is_in_range(instant):
        raise InvalidInput(field, value, EXPECTED_RANGE)
    return instant


def is_in_range(instant: datetime) -> bool:
    """Whether the instant can have a bucket."""
    return EPOCH <= instant <= LATEST


def relative_time(text: str, field: str, now: datetime) -> str | Decimal:
    """A time in words, as others take it: ``now``, +10m and -1h are relative to ``now``, a number is epoch seconds. Any
    other text stays. Raises InvalidInput."""
    typed = text.strip()
    if typed == "now":
        return format_instant(now)
    sign, length = (typed[0], typed[1:]) if typed[:1] in ("+", "-") else ("", typed)
    if _NUMBER.fullmatch(length):
        if sign:
            raise InvalidInput(field, text, f"add a unit: {sign}{length}s, {sign}{length}m or {sign}{length}h")
        return Decimal(length)
    distance = duration_or_none(length)
    if distance is None:
        return text
    if not sign:
        raise InvalidInput(field, text, f"add a sign: +{length} is later than now, -{length} earlier")
    try:
        return format_instant(now + distance if sign == "+" else now - distance)
    except OverflowError:
        raise InvalidInput(field, text, EXPECTED_RANGE) from None


def up_to_millisecond(instant: datetime) -> datetime:
    """The instant, or the first whole millisecond after it: as a row holds it, a task is never due too early."""
    return instant + timedelta(microseconds=-instant.microsecond % 1000)


def up_to_second(instant: datetime) -> datetime:
    """The same whole second, or the next one."""
    return instant if not instant.microsecond else instant.replace(microsecond=0) + timedelta(seconds=1)


def format_instant(instant: datetime) -> str:
    """RFC 3339 in UTC with ``Z``; with milliseconds if there are any; microseconds are cut off."""
    return _as_text(require_aware(instant, "instant"))


def optional_text(instant: datetime | None) -> str | None:
    """The same; None for None."""
    return None if instant is None else format_instant(instant)


# Cached: the tasks of a batch have few different instants.


@lru_cache(maxsize=1024)
def _as_text(utc: datetime) -> str:
    return utc.isoformat(timespec="milliseconds" if utc.microsecond >= 1000 else "seconds")[: -len("+00:00")] + "Z"


@lru_cache(maxsize=1024)
def _from_text(text: str) -> datetime:
    """Raises ValueError, whose message names the expected form."""
    if _has_our_form(text):
        with suppress(ValueError):  # the code below finds the reason
            instant = datetime.fromisoformat(text)
            if is_in_range(instant):
                return instant
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise ValueError(EXPECTED_INSTANT)
    if match["offset"] is None:
        raise ValueError(f"its offset from UTC is missing; {EXPECTED_INSTANT}")
    fraction = (match["fraction"] or "").ljust(6, "0")[:6]
    try:
        instant = datetime(
            int(match["year"]),
            int(match["month"]),
            int(match["day"]),
            int(match["hour"]),
            int(match["minute"]),
            int(match["second"] or 0),
            int(fraction),
            tzinfo=_offset(match["offset"]),
        ).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"there is no such time ({error}); {EXPECTED_INSTANT}") from None
    if not is_in_range(instant):
        raise ValueError(EXPECTED_RANGE)
    return instant


def _from_epoch(value: int | float | Decimal, field: str) -> datetime:
    try:
        seconds = Decimal(value) if not isinstance(value, float) else Decimal(repr(value))
        instant = EPOCH + timedelta(microseconds=int(seconds * 1_000_000))
    except (ArithmeticError, ValueError, OverflowError):
        raise InvalidInput(field, value, EXPECTED_INSTANT) from None
    return in_range(instant, value, field)


def _has_our_form(text: str) -> bool:
    """Whether a text has the form of ``format_instant``; its digits are not checked.

    ``datetime.fromisoformat`` is ten times as fast as the pattern, but accepts other forms too.
    """
    return (
        len(text) in (20, 24)
        and text.isascii()
        and text[-1] == "Z"
        and text[10] == "T"
        and text[4] == text[7] == "-"
        and text[13] == text[16] == ":"
        and (len(text) == 20 or text[19] == ".")
        and text[11:13] != "24"  # later Python versions read 24:00 as the next day's midnight
    )


def _offset(text: str) -> timezone:
    if text in "Zz":
        return UTC
    hours, minutes = int(text[1:3]), int(text[4:6])
    if hours > 23 or minutes > 59:
        raise ValueError("an offset is at most 23:59")
    delta = timedelta(hours=hours, minutes=minutes)
    return timezone(-delta if text[0] == "-" else delta)

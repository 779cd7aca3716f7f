"""Durations as people write them, 90s, 60m, 2h, 1h30m, 1d, and as they are shown to people."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from dynatick.errors import InvalidInput

EXAMPLES = "90s, 60m, 2h, 1h30m or 1d"
_UNITS = ("days", "hours", "minutes", "seconds")
_DURATION = re.compile("(?=.)" + "".join(rf"(?:(?P<{unit}>\d{{1,6}}){unit[0]})?" for unit in _UNITS), re.ASCII)


def duration_of(text: str, field: str) -> timedelta:
    """A duration, the larger units first. Raises InvalidInput."""
    duration = duration_or_none(text.strip())
    if duration is None:
        raise InvalidInput(field, text, f"expected numbers with their units, such as {EXAMPLES}")
    return duration


def duration_or_none(text: str) -> timedelta | None:
    """The duration of a text such as 1h30m; None if it is not one."""
    match = _DURATION.fullmatch(text)
    if match is None:
        return None
    return timedelta(**{unit: int(number) for unit, number in match.groupdict().items() if number is not None})


_SECOND, _MINUTE, _HOUR, _DAY = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


def rounded_text(length: timedelta) -> str:
    """``40 ms``, ``1.2 s``, ``90 s``, ``3 min``, ``36 h``, ``3 days``; without its sign."""
    return milliseconds_text(abs(length) / timedelta(milliseconds=1))


def milliseconds_text(milliseconds: float) -> str:
    """The same of a number of milliseconds, which may be greater than that of any ``timedelta``: a row says so.

    Two of a unit come before one of the next, so that little is lost and no unit is singular.
    """
    if (shown := round(milliseconds)) < 1000:
        return f"{shown} ms"
    if (tenths := round(milliseconds / 100)) < 100:
        return f"{tenths / 10:.1f} s"
    if (shown := round(milliseconds / 1000)) < 120:
        return f"{shown} s"
    if (shown := round(milliseconds / 60_000)) < 120:
        return f"{shown} min"
    if (shown := round(milliseconds / 3_600_000)) < 48:
        return f"{shown} h"
    return f"{round(milliseconds / 86_400_000)} days"


def exact_text(length: timedelta) -> str:
    """A length of whole seconds, in the largest unit of which it is a whole number: ``90 min``, ``36 h``, ``1 day``."""
    if length and not length % _DAY:
        return "1 day" if length == _DAY else f"{length // _DAY} days"
    for unit, name in ((_HOUR, "h"), (_MINUTE, "min")):
        if length and not length % unit:
            return f"{length // unit} {name}"
    return f"{length // _SECOND} s"


def relative_text(instant: datetime, now: datetime) -> str:
    """``12 s ago``, ``now``, ``in 3 days``."""
    ahead = instant - now
    if abs(ahead) < _SECOND:
        return "now"
    return f"in {rounded_text(ahead)}" if ahead > timedelta() else f"{rounded_text(ahead)} ago"

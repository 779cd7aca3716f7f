"""Durations as people write them: 90s, 60m, 2h, 1h30m, 1d."""

from __future__ import annotations

import re
from datetime import timedelta

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

"""Time zones by their IANA names, from the pinned package ``tzdata`` only.

``ZoneInfo(name)`` reads the system's files first, which differ between machines. To prevent that would need a setting
of the whole process, which belongs to the user; so the zones are read from the package.
"""

from __future__ import annotations

from datetime import UTC, tzinfo
from functools import cache
from typing import TYPE_CHECKING

from dynatick.domain import attributes as attr
from dynatick.errors import InvalidInput

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

ZONE_FIELD = attr.SCHEDULE_EXPRESSION_TIMEZONE


def check_zone(value: object, field: str = ZONE_FIELD) -> str:
    """The name, if the IANA database has it. Raises InvalidInput, with similar names."""
    if isinstance(value, str) and value in zone_names():
        return value
    raise InvalidInput(field, value, _expected(value))


@cache
def zone_of(name: str) -> tzinfo:
    """The zone of that name. Raises InvalidInput."""
    if check_zone(name) == "UTC":
        return UTC
    from zoneinfo import ZoneInfo  # imported here, for fast cold starts without schedules

    with _package().joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


@cache
def zone_names() -> frozenset[str]:
    """All names, including the deprecated ones."""
    return frozenset(_package().joinpath("zones").read_text(encoding="ascii").split())


def _package() -> Traversable:
    from importlib.resources import files

    return files("tzdata")


def _expected(value: object) -> str:
    expected = "expected the IANA name of a time zone, such as Europe/Berlin or UTC"
    if not isinstance(value, str) or not value.strip():
        return expected
    close = _close(value.strip())
    return f"{expected}; close to it: {', '.join(close)}" if close else expected


def _close(text: str) -> list[str]:
    from difflib import get_close_matches

    wanted = text[:100].lower().replace(" ", "_")
    folded = {name.lower(): name for name in sorted(zone_names())}
    if wanted in folded:
        return [folded[wanted]]
    by_city = [name for low, name in folded.items() if low.rpartition("/")[2] == wanted.rpartition("/")[2]]
    near = [folded[low] for low in get_close_matches(wanted, folded, n=3, cutoff=0.75)]
    return list(dict.fromkeys([*by_city, *near]))[:3]

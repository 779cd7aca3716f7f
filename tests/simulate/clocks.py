"""What the clock of a time zone shows, read from the files of ``tzdata`` by RFC 8536 and by nothing else.

The product goes from wall times to instants, by ``zoneinfo``. Here are only the instants at which a clock changes and
its offset between them, so that neither ``zoneinfo`` nor the product has to be believed.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from calendar import timegm
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from importlib.resources import files
from itertools import pairwise

DAY = 1440  # minutes
_RULE = re.compile(r"M(\d+)\.(\d+)\.(\d+)(?:/(.+))?")
_FOOTER = re.compile(r"(?:<[^>]+>|[A-Za-z]+)([-+0-9:]+)(?:(?:<[^>]+>|[A-Za-z]+)([-+0-9:]+)?,([^,]+),([^,]+))?")


@dataclass(frozen=True, slots=True)
class Span:
    """A time without a change of the clock: from ``begin`` until ``end``, in minutes since 1970 in UTC; ``offset`` of
    the wall time, in minutes."""

    begin: int
    end: int
    offset: int


def spans(zone: str, first: date, last: date) -> Sequence[Span]:
    """The spans of a zone that together are the days from ``first`` to ``last``, both in UTC."""
    begin, end = minutes_of(first), minutes_of(last) + DAY
    explicit, before, footer = _read(files("tzdata").joinpath("zoneinfo", *zone.split("/")).read_bytes())
    changes = list(explicit)
    since = explicit[-1][0] if explicit else -(1 << 62)
    changes += [one for one in _by_footer(footer, first.year - 1, last.year + 1) if one[0] > since]
    if not explicit:
        before = _seconds_west(_parsed(footer)[0])
    at = bisect_right(changes, (begin * 60, 1 << 30))
    offsets = [(begin, changes[at - 1][1] if at else before)]
    offsets += [(_minutes(when), offset) for when, offset in changes[at:] if when < end * 60]
    merged = [one for n, one in enumerate(offsets) if n == 0 or one[1] != offsets[n - 1][1]]
    return [Span(when, until, _minutes(offset)) for (when, offset), (until, _) in pairwise([*merged, (end, 0)])]


def minutes_of(day: date) -> int:
    """Minutes from 1970 to the day, in UTC."""
    return timegm(day.timetuple()) // 60


def _read(data: bytes) -> tuple[Sequence[tuple[int, int]], int, str]:
    """The changes that a file lists, each with its instant and the offset from then on; the offset before all; and the
    rule for what comes after. In seconds."""
    header = ">4sc15x6l"
    *_, utc, std, leap, times, types, chars = struct.unpack_from(header, data)
    start = struct.calcsize(header) + times * 5 + types * 6 + chars + leap * 8 + std + utc  # the block of version 1
    magic, version, utc, std, leap, times, types, chars = struct.unpack_from(header, data, start)
    if magic != b"TZif" or version < b"2":
        raise ValueError("no file of version 2 or above")
    at = start + struct.calcsize(header)
    instants = struct.unpack_from(f">{times}q", data, at)
    kinds = struct.unpack_from(f">{times}B", data, at + times * 8)
    offsets = [struct.unpack_from(">lBB", data, at + times * 9 + n * 6)[0] for n in range(types)]
    rest = data[at + times * 9 + types * 6 + chars + leap * 12 + std + utc :]
    return (
        [(when, offsets[kind]) for when, kind in zip(instants, kinds, strict=True)],
        offsets[0],
        rest.decode().strip(),
    )


def _parsed(footer: str) -> tuple[str, str | None, str | None, str | None]:
    if (found := _FOOTER.fullmatch(footer)) is None:
        raise ValueError(f"not a rule: {footer}")
    return found[1], found[2], found[3], found[4]


def _by_footer(footer: str, first: int, last: int) -> Iterator[tuple[int, int]]:
    """The changes of some years by a file's rule, with their offsets, in order."""
    standard, summer, begins, ends = _parsed(footer)
    if begins is None or ends is None:
        return
    winter = _seconds_west(standard)
    in_summer = winter + 3600 if summer is None else _seconds_west(summer)
    for year in range(first, last + 1):
        yield from sorted([(_wall(begins, year) - winter, in_summer), (_wall(ends, year) - in_summer, winter)])


def _wall(rule: str, year: int) -> int:
    """The wall time of a change, in seconds as if it were UTC."""
    if (found := _RULE.fullmatch(rule)) is None:
        raise ValueError(f"not a rule of month, week and day: {rule}")
    month, week, weekday = int(found[1]), int(found[2]), int(found[3])
    days = [date(year, month, 1) + timedelta(days=n) for n in range(31)]
    days = [day for day in days if day.month == month and day.isoweekday() % 7 == weekday]
    return minutes_of(days[min(week, len(days)) - 1]) * 60 + _seconds(found[4] or "2")


def _seconds_west(text: str) -> int:
    """The offset east of UTC of what POSIX gives to the west."""
    return -_seconds(text)


def _seconds(text: str) -> int:
    sign = -1 if text.startswith("-") else 1
    return sign * sum(int(part) * 60 ** (2 - n) for n, part in enumerate(text.lstrip("+-").split(":")))


def _minutes(seconds: int) -> int:
    if seconds % 60:
        raise ValueError(f"{seconds} s are no whole minutes: cron knows no seconds")
    return seconds // 60

"""The grid of ticks, and the buckets of its ticks.

The name of a bucket is its tick in UTC, ``2026-12-31#12:00``, and for shard k > 0 ``2026-12-31#12:00#k``. A tick is a
number of whole minutes since the epoch, here and in the cursors. A task that is due at t belongs to the first tick at
or after t: it is never early, and at most one interval late.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import NamedTuple

from dynatick.domain import attributes as attr
from dynatick.domain.instants import EPOCH, EXPECTED_INSTANT, EXPECTED_RANGE, is_in_range, parse_instant
from dynatick.errors import InvalidInput

TICK_MINUTES = (1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30, 60, 120, 180, 240, 360, 480, 720, 1440)
"""The intervals that divide a day and that an EventBridge cron can express."""

MAX_SHARDS = 256

TICK_GRACE = timedelta(minutes=2)
"""A tick that is younger may not have come yet, or may still be served: it is not missing."""

_MINUTE = timedelta(minutes=1)

_EXPECTED_NAME = "expected a bucket such as 2026-12-31#12:00 or 2026-12-31#12:00#3"
EXPECTED_TIME = f"expected a bucket such as 2026-12-31#12:00, or {EXPECTED_INSTANT.removeprefix('expected ')}"

_BUCKET = re.compile(r"(\d{4})-(\d\d)-(\d\d)#(\d\d):(\d\d)(?:#([1-9]\d{0,4}))?", re.ASCII)


def minute_of(instant: datetime) -> int:
    """The number of whole minutes from the epoch to an instant."""
    return (instant - EPOCH) // _MINUTE


def instant_of(minute: int) -> datetime:
    """The instant at which a minute begins."""
    return EPOCH + timedelta(minutes=minute)


class Bucket(NamedTuple):
    """One shard of one tick. ``str()`` returns its name, the value of ``taskDateTime``."""

    minute: int
    shard: int = 0

    def __str__(self) -> str:
        return _name_of(self)

    @property
    def instant(self) -> datetime:
        return instant_of(self.minute)

    @classmethod
    def parse(cls, value: object, field: str = attr.TASK_DATE_TIME) -> Bucket:
        """The bucket of a canonical name. Raises InvalidInput for anything else."""
        if not isinstance(value, str):
            raise InvalidInput(field, value, _EXPECTED_NAME)
        try:
            return _of_name(value)
        except ValueError as error:
            raise InvalidInput(field, value, str(error)) from None

    @classmethod
    def canonical(cls, value: object) -> Bucket | None:
        """The bucket of a canonical name, or None for anything else, which a row can contain."""
        try:
            return cls.parse(value)
        except InvalidInput:
            return None


# Cached: a pass converts the names of few buckets, each once for every task.


@lru_cache(maxsize=1024)
def _name_of(bucket: Bucket) -> str:
    name = instant_of(bucket.minute).strftime("%Y-%m-%d#%H:%M").rjust(16, "0")
    return f"{name}#{bucket.shard}" if bucket.shard else name


@lru_cache(maxsize=1024)
def _of_name(name: str) -> Bucket:
    """Raises ValueError, whose message names the expected form."""
    match = _BUCKET.fullmatch(name)
    if match is None:
        raise ValueError(_EXPECTED_NAME)
    year, month, day, hour, minute = (int(part) for part in match.groups()[:5])
    try:
        instant = datetime(year, month, day, hour, minute, tzinfo=EPOCH.tzinfo)
    except ValueError as error:
        raise ValueError(f"there is no such time ({error}); {EXPECTED_TIME}") from None
    if not is_in_range(instant):
        raise ValueError(EXPECTED_RANGE)
    return Bucket(minute_of(instant), int(match[6] or 0))


@dataclass(frozen=True, kw_only=True, slots=True)
class Grid:
    """The tick interval and the number of shards. Raises InvalidInput for values out of range."""

    tick_minutes: int = 1
    shard_count: int = 1

    def __post_init__(self) -> None:
        if self.tick_minutes not in TICK_MINUTES:
            raise InvalidInput(
                attr.TICK_MINUTES,
                self.tick_minutes,
                f"expected one of {', '.join(map(str, TICK_MINUTES))}",
            )
        if not 1 <= self.shard_count <= MAX_SHARDS:
            raise InvalidInput(attr.SHARD_COUNT, self.shard_count, f"expected a number from 1 to {MAX_SHARDS}")

    def tick_at_or_after(self, instant: datetime) -> int:
        """The first tick at or after an instant, in minutes. Every day begins with a tick."""
        return -(-(instant - EPOCH) // (_MINUTE * self.tick_minutes)) * self.tick_minutes

    def tick_after(self, minute: int) -> int:
        """The first tick after the given minute."""
        return (minute // self.tick_minutes + 1) * self.tick_minutes

    def shard_of(self, shard_key: str) -> int:
        """The shard of a task, by its limit key, else its id: the same in every process and version."""
        return zlib.crc32(shard_key.encode("utf-8", "surrogatepass")) % self.shard_count

    def bucket_of(self, shard_key: str, instant: datetime) -> Bucket:
        """The bucket of a task that is due at an instant."""
        return Bucket(self.tick_at_or_after(instant), self.shard_of(shard_key))


Time = str | int | float | Decimal | datetime | Bucket
"""A bucket or its name, an RFC 3339 text with offset, epoch seconds, an aware datetime."""


def parse_time(value: object, field: str = attr.TASK_DATE_TIME) -> Bucket | datetime:
    """A time in any accepted form: a bucket's name, RFC 3339 with offset, epoch seconds, or an aware datetime.

    Raises InvalidInput.
    """
    if isinstance(value, str) and "#" in value:
        return Bucket.parse(value.strip(), field)
    try:
        return parse_instant(value, field)
    except InvalidInput as error:
        raise InvalidInput(field, value, error.expected.replace(EXPECTED_INSTANT, EXPECTED_TIME)) from None

"""Rate records: when the next tasks with a rate limit may begin, over the whole installation.

A row for each limit says from when on no start is *reserved*. A process reserves some before it begins tasks: whatever
processes run, for whatever shards, no start is given twice. What a process doesn't use is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from dynatick.domain import attributes as attr
from dynatick.domain.conditional_update import ConditionalUpdate, Is, as_read
from dynatick.domain.instants import EPOCH, format_instant, parse_instant, up_to_millisecond
from dynatick.domain.numbers import is_whole
from dynatick.domain.task import SYSTEM_PREFIX, Row, own_row
from dynatick.engine.conditional_write import change_row
from dynatick.engine.ports import Store
from dynatick.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class Unused:
    """The end of what a process has reserved, which it has not used."""

    since: datetime
    until: datetime


def first_free(until: datetime, earliest: datetime, unused: Unused) -> datetime:
    """The first start that may be reserved. ``until``: no start is reserved from then on. What is unused counts as
    free if it was reserved last."""
    return max(earliest, unused.since if until == unused.until else until)


def reserved_until(first: datetime, interval: timedelta, number: int) -> datetime:
    """When the start after these is. Up to the millisecond, as instants are written: never too early."""
    return up_to_millisecond(first + number * interval)


def rate_record_id(name: str) -> str:
    return f"{SYSTEM_PREFIX}rate#{name}"


@dataclass(frozen=True, slots=True)
class RateRecords:
    """The rate records of an installation. Safe for use by many threads. ``new_token``: another one at each call."""

    store: Store
    new_token: Callable[[], str]

    def reserve(
        self,
        name: str,
        interval: timedelta,
        number: int,
        *,
        earliest: datetime,
        latest: datetime,
        unused: Unused,
        rate: str = "",
    ) -> datetime:
        """Reserves ``number`` starts of a limit, an interval apart, from ``earliest`` on or as soon as they are free.
        Those that the caller has not used are given back, if no start was reserved since. ``rate``: the limit as it
        was given, such as 10/s, for people.

        Returns the first. If it is not before ``latest``, none is reserved. One read and one write. Raises StoreError.
        """
        row_id, token = rate_record_id(name), self.new_token()

        def decide(row: Row | None) -> tuple[datetime, ConditionalUpdate | None]:
            first = first_free(_reserved_until(row), earliest, unused)
            if first >= latest:
                return first, None
            there = row or {}
            version = there.get(attr.VERSION)
            new = int(version) + 1 if is_whole(version) else 1
            return first, ConditionalUpdate(
                task_id=row_id,
                set={
                    **own_row("limits"),
                    attr.RATE: rate,
                    attr.RESERVED_UNTIL: format_instant(reserved_until(first, interval, number)),
                    attr.VERSION: new,
                    attr.WRITTEN_BY: token,
                },
                conditions=as_read(there, attr.VERSION, attr.RESERVED_UNTIL),
                mark=(Is(attr.VERSION, new), Is(attr.WRITTEN_BY, token)),
            )

        return change_row(self.store, row_id, f"reserve starts of {name}", decide)


@dataclass(frozen=True, slots=True)
class Reserved:
    """What a rate record says: through ``until`` all starts of a limit are reserved."""

    name: str
    rate: str  # such as 10/s; "": not known
    until: datetime


def read_reserved(store: Store, names: Iterable[str]) -> Sequence[Reserved]:
    """Those of the limits that have a record, in the order of ``names``. Raises StoreError."""
    wanted = {name: rate_record_id(name) for name in names}
    rows = store.get_many(wanted.values())
    return [
        Reserved(name, str(rows[row_id].get(attr.RATE, "")), _reserved_until(rows[row_id]))
        for name, row_id in wanted.items()
        if row_id in rows
    ]


def _reserved_until(row: Row | None) -> datetime:
    """What can't be understood counts as not there: a person may have written it."""
    try:
        return EPOCH if row is None else parse_instant(row.get(attr.RESERVED_UNTIL), attr.RESERVED_UNTIL)
    except InvalidInput:
        return EPOCH

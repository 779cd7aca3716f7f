"""The bucket record: how many tasks ran in a bucket and have gone elsewhere since.

The index lists a task in one bucket only. So each process that moves tasks out of a past bucket counts them here, after
the move was written: once for each bucket, not for each task. If it dies between the two, the record is too low. It is
too high only if the answer to its write was lost, and another process had changed it before it was read again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final

from dynatick.domain import attributes as attr
from dynatick.domain.buckets import Bucket
from dynatick.domain.conditional_update import ConditionalUpdate, Is, Written, as_read
from dynatick.domain.task import SYSTEM_PREFIX, Row
from dynatick.engine.conditional_write import create_many, write_many
from dynatick.engine.ports import Store
from dynatick.errors import StoreError

RAN: Final = (attr.RETRIED, attr.RESCHEDULED, attr.DEFERRED, attr.REDRIVEN_FAILED, attr.REDRIVEN_COMPLETED)
"""Those of tasks that ran in the bucket."""

FAILED: Final = (attr.RETRIED, attr.DEFERRED, attr.REDRIVEN_FAILED)
"""Those of tasks that failed there."""

DEPARTURES: Final = (*RAN, attr.REDRIVEN_CANCELLED, attr.MOVED)
_TRIES = 10
_logger = logging.getLogger("dynatick.engine")

Departures = Mapping[str, int]
"""Numbers of tasks, by the names in ``DEPARTURES``."""


def bucket_record_id(bucket: Bucket) -> str:
    return f"{SYSTEM_PREFIX}bucket#{bucket}"


def read_departures(store: Store, buckets: Iterable[Bucket]) -> Departures:
    """The departures from all these buckets together."""
    rows = store.get_many([bucket_record_id(bucket) for bucket in buckets], consistent=False).values()
    return {name: number for name in DEPARTURES if (number := sum(_number(row, name) for row in rows))}


def count_departures(
    store: Store, departures: Mapping[Bucket, Departures], *, token: str, now: datetime, retention_days: int
) -> None:
    """Adds to the records of buckets: a read and a write for each, in batches. ``token``: unique for each call, so that
    a write whose answer was lost is recognised, and not repeated. Raises StoreError."""
    expires = int((now + timedelta(days=retention_days)).timestamp())
    left = {bucket_record_id(bucket): numbers for bucket, numbers in departures.items() if numbers}
    for _ in range(_TRIES):
        rows = store.get_many(left) if left else {}
        left = {key: numbers for key, numbers in left.items() if rows.get(key, {}).get(attr.WRITTEN_BY) != token}
        if not left:
            return
        values = {key: _added(rows.get(key, {}), numbers, token, expires) for key, numbers in left.items()}
        new = [key for key in left if key not in rows]
        old = [key for key in left if key in rows]
        made = create_many(store, [{attr.TASK_ID: key, **values[key]} for key in new])
        changes = [
            ConditionalUpdate(
                task_id=key,
                set=values[key],
                conditions=as_read(rows[key], attr.VERSION),
                mark=(Is(attr.WRITTEN_BY, token),),
            )
            for key in old
        ]
        written = write_many(store, changes)
        done = {key for key, result in zip(new, made, strict=True) if result is True}
        done |= {key for key, result in zip(old, written, strict=True) if isinstance(result, Written)}
        left = {key: numbers for key, numbers in left.items() if key not in done}
        if not left:
            return
    raise StoreError(f"cannot count what left {', '.join(sorted(left)[:3])}: other processes changed it {_TRIES} times")


def log_uncounted(error: Exception) -> None:
    """Logs that departures could not be counted: what they are about was done all the same."""
    _logger.warning(
        "departures from buckets could not be counted: their history is too low",
        extra={"action": "departures_uncounted", "problem": str(error)},
    )


def _added(row: Row, numbers: Departures, token: str, expires: int) -> dict[str, object]:
    return {
        attr.STATUS: "bucket",
        attr.OUTCOME: "none",  # so that scans for open tasks pass it over
        **{name: _number(row, name) + number for name, number in numbers.items()},
        attr.VERSION: _number(row, attr.VERSION) + 1,
        attr.WRITTEN_BY: token,
        attr.EXPIRES_AT: max(expires, _number(row, attr.EXPIRES_AT)),
    }


def _number(row: Row, name: str) -> int:
    """A number of a record; 0 for anything else, which a person may have written."""
    value = row.get(name)
    return int(value) if isinstance(value, (int, Decimal)) and not isinstance(value, bool) else 0

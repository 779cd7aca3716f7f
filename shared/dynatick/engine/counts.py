"""What a pass counts: for its tick record and the metrics, and in each bucket the tasks that have gone elsewhere.

The index lists a task in one bucket only. So each process that moves tasks out of a past bucket counts them in the
bucket record, after the move was written: once for each bucket, not for each task. If it dies between the two, the
record is too low. It is too high only if the answer to its write was lost, and another process had changed it before it
was read again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import Field, dataclass, field, fields
from datetime import datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Final

from dynatick.domain import attributes as attr
from dynatick.domain.action_counts import CountsByAction, Distribution
from dynatick.domain.buckets import Bucket
from dynatick.domain.conditional_update import ConditionalUpdate, Is, Written, as_read
from dynatick.domain.instants import format_instant
from dynatick.domain.task import SYSTEM_PREFIX, Row, own_row
from dynatick.engine.conditional_write import create_many, write_many
from dynatick.engine.orders import Resume
from dynatick.engine.ports import Store
from dynatick.errors import StoreError

# -- report ------------------------------------------------------------------------------------------------------------


class RecordResult(Enum):
    """What the table says of an attempt now. Each has a counter of its name."""

    COMPLETED = "completed"
    FAILED = "failed"
    RETRIED = "retried"
    RESCHEDULED = "rescheduled"  # its handler asked for a further turn
    WAITING = "waiting"  # its handler has handed it over: it waits for a completion
    RELEASED = "released"  # deferred to a later bucket; the attempt does not count
    DEFERRED = "deferred"  # it failed, but the dead-letter queue refused its message: a later tick tries again
    SUPERSEDED = "superseded"  # the row is gone, or has ended otherwise
    UNRECORDED = "unrecorded"  # not known: the lease will expire, and the attempt is made again


def _counter(meaning: str, *, has_metric: bool = True) -> int:
    return field(default=0, metadata={"meaning": meaning, "has_metric": has_metric})


@dataclass(kw_only=True, slots=True)
class Counts:
    """What is counted of an invocation that runs tasks.

    A counter is declared here and nowhere else: its log line, tick record, metric, view and form of the HTTP API all
    have it from here (``COUNTERS``).
    """

    buckets: int = _counter("Buckets polled, each counted once", has_metric=False)
    due: int = _counter("Tasks that the index listed as due")
    claimed: int = _counter("Tasks claimed")
    completed: int = _counter("Tasks whose action returned")
    failed: int = _counter("Tasks that failed for good; each has a dead letter")
    retried: int = _counter("Tasks that failed and will be retried")
    rescheduled: int = _counter("Tasks whose handler asked for a further turn")
    waiting: int = _counter("Tasks whose handler handed them over, to wait for a completion", has_metric=False)
    released: int = _counter("Tasks released before they started: time ran out, or a rate limit allows them only later")
    expired: int = _counter("Tasks with an expired task lease, passed to recoveries")
    recovered: int = _counter("Tasks reclaimed from a process that died")
    deferred: int = _counter(
        "Tasks moved to a later tick, because the dead-letter queue refused their message, or because they could not "
        "be ended"
    )
    put_off: int = _counter(
        "Tasks moved to the tick at which the turn of their limit key is expected, or to a later one because their "
        "action is paused",
        has_metric=False,
    )
    superseded: int = _counter("Outcomes not written, because the task was ended or deleted meanwhile")
    unrecorded: int = _counter("Tasks that ran and whose outcome could not be written: they run again")
    unfinished: int = _counter("Tasks that still ran when time ran out")
    overran: int = _counter("Attempts that took longer than their `timeoutSeconds`; the log names each")
    moved: int = _counter("Tasks moved to the next tick, because their bucket was closed")
    rejected: int = _counter("Malformed rows, marked failed")
    occurrences: int = _counter("Occurrences of schedules that were created")
    missed: int = _counter("Occurrences of schedules that were not made", has_metric=False)
    woken_late: int = _counter(
        "Tasks that were due more than five seconds before the pass or the wake-up began that ran them: their wake-up "
        "came late, or not at all"
    )
    workers: int = _counter("Workers that were started, each for a range of a bucket's tasks")
    handed_to_workers: int = _counter("Tasks in those ranges", has_metric=False)
    planned: int = _counter("Tasks for which wake-ups were planned", has_metric=False)
    unsent: int = _counter("Wake-ups that their queue refused", has_metric=False)

    def count(self, result: RecordResult) -> None:
        """Counts the result of one attempt, or of one row that was not executed."""
        setattr(self, result.value, getattr(self, result.value) + 1)

    def by_name(self) -> dict[str, int]:
        """The counts for a log line."""
        return {counter.name: getattr(self, counter.name) for counter in COUNTERS}

    def by_metric(self) -> dict[str, int]:
        """The counts that have a metric."""
        return {counter.metric: getattr(self, counter.name) for counter in COUNTERS if counter.metric is not None}


@dataclass(frozen=True, slots=True)
class Counter:
    """A field of ``Counts``. ``metric`` None: it has none, for each costs money."""

    name: str
    attribute: str  # of tick records, views and the HTTP API
    metric: str | None
    meaning: str


def _described(counter: Field[int]) -> Counter:
    camel = "".join(map(str.capitalize, counter.name.split("_")))
    return Counter(
        counter.name,
        camel[0].lower() + camel[1:],
        camel if counter.metadata["has_metric"] else None,
        counter.metadata["meaning"],
    )


COUNTERS: Final = tuple(map(_described, fields(Counts)))


class Recorded(Enum):
    """Where an invocation counts by action."""

    BY_TICK = "in its tick record"
    ALL_BY_BUCKET = "in the record of its bucket"
    FAILURES_BY_BUCKET = "there, only what failed: a write for each wake-up would cost as much as its tasks"


_OF_ACTION = (RecordResult.COMPLETED, RecordResult.FAILED, RecordResult.RETRIED)


@dataclass(kw_only=True, slots=True)
class PassReport(Counts):
    """One pass over one shard, or another invocation that runs tasks. Counts are of tasks."""

    tick: int
    shard: int
    continuation: int
    started_at: datetime
    finished_at: datetime | None = None
    leased_elsewhere: bool = False  # another process has the shard lease, and does the work of this tick too
    first_minute: int | None = None  # the first bucket that was polled
    lateness: Distribution = field(default_factory=Distribution)  # milliseconds, of the attempts that count for it
    first_start_ms: int | None = None  # from the start of the pass to the start of its first task
    closed_through: int | None = None
    drained_through: int | None = None
    resume: Resume | None = None  # set when the pass was cut short
    continued: bool = False
    paused: bool = False  # it was cut short because the installation was paused
    planning_failed: str | None = None  # why a bucket was not planned to its end
    idle_before: dict[str, object] = field(default_factory=dict)
    by_action: CountsByAction = field(default_factory=CountsByAction)
    recorded: Recorded = Recorded.ALL_BY_BUCKET

    @classmethod
    def of(
        cls,
        bucket: Bucket,
        started_at: datetime,
        *,
        continuation: int = 0,
        recorded: Recorded = Recorded.ALL_BY_BUCKET,
    ) -> PassReport:
        """The report of an invocation that begins now, for the tick and the shard of a bucket."""
        return cls(
            tick=bucket.minute,
            shard=bucket.shard,
            continuation=continuation,
            started_at=started_at,
            recorded=recorded,
        )

    def count(self, result: RecordResult, action: str | None = None) -> None:
        """Counts a result, and if the action is given, for that too."""
        Counts.count(self, result)
        if action is not None and result in _OF_ACTION:
            counts = self.by_action.of(action)
            setattr(counts, result.value, getattr(counts, result.value) + 1)

    @property
    def without_record(self) -> CountsByAction:
        """What the record of its bucket is to count by action, since it has no tick record."""
        match self.recorded:
            case Recorded.BY_TICK:
                return CountsByAction()
            case Recorded.ALL_BY_BUCKET:
                return self.by_action
            case Recorded.FAILURES_BY_BUCKET:
                return self.by_action.only_failures()

    @property
    def is_idle(self) -> bool:
        """Whether there was nothing to do: the cursor counts such a tick, and it has no record."""
        return not (
            self.due or self.claimed or self.missed or self.expired or self.recovered or self.failed or self.rejected
            or self.workers or self.resume
        )  # fmt: skip

    @property
    def made_progress(self) -> bool:
        """Whether the pass got further. Without progress, continuations would go on for ever."""
        if self.claimed + self.recovered > self.released:
            return True
        further = self.resume is not None and self.first_minute is not None and self.resume.minute > self.first_minute
        return self.buckets > 1 and (further or not self.released)

    def end(self, now: datetime, *, leased_elsewhere: bool = False) -> None:
        """The invocation ends now, or leaves all its work to the process that has the shard lease."""
        self.finished_at, self.leased_elsewhere = now, leased_elsewhere

    def leave(self, position: Resume) -> None:
        """Leaves what is due from a position on to a later invocation."""
        self.resume = position if self.resume is None else min(position, self.resume)

    def to_row(self) -> dict[str, object]:
        """The tick record, without its id and expiry."""
        row: dict[str, object] = {
            **own_row("tick"),
            attr.TICK: str(Bucket(self.tick)),
            attr.SHARD: self.shard,
            attr.CONTINUATION: self.continuation,
            attr.STARTED_AT: format_instant(self.started_at),
            **self.counts(),
            attr.LATENESS_MAX_MS: self.lateness.max,
            attr.LATENESS_MEAN_MS: self.lateness.mean,
            attr.LATENESS_P50_MS: self.lateness.percentile(50),
            attr.LATENESS_P99_MS: self.lateness.percentile(99),
            **self.ending(),
        }
        if self.first_start_ms is not None:
            row[attr.FIRST_START_MS] = self.first_start_ms
        if self.idle_before:
            row[attr.IDLE_BEFORE] = dict(self.idle_before)
        if self.by_action:
            row[attr.BY_ACTION] = self.by_action.to_value()
        return row

    def counts(self) -> dict[str, int]:
        """The figures of the record that can be added to those of another pass. There, a rejected row has failed."""
        counts = {counter.attribute: getattr(self, counter.name) for counter in COUNTERS}
        return counts | {attr.FAILED: self.failed + self.rejected}

    def ending(self) -> dict[str, object]:
        """How the pass ended."""
        ended = {} if self.finished_at is None else {attr.FINISHED_AT: format_instant(self.finished_at)}
        return {attr.CONTINUED: self.continued, **ended}


def tick_record_id(tick: int, shard: int, continuation: int) -> str:
    """The id of a tick record. ``continuation``: 0 for the first invocation of a pass."""
    return f"{SYSTEM_PREFIX}tick#{Bucket(tick)}#{shard}#{continuation}"


# -- bucket record -----------------------------------------------------------------------------------------------------

DEPARTED: Final = (RecordResult.RETRIED, RecordResult.RESCHEDULED, RecordResult.DEFERRED)
"""The results with which a task leaves the bucket that it ran in. They are counted under their values."""

RAN: Final = (*(result.value for result in DEPARTED), attr.REDRIVEN_FAILED, attr.REDRIVEN_COMPLETED)
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
    store: Store,
    departures: Mapping[Bucket, Departures],
    *,
    token: str,
    now: datetime,
    retention_days: int,
    by_action: Mapping[Bucket, CountsByAction] | None = None,
) -> None:
    """Adds to the records of buckets: a read and a write for each, in batches. ``token``: unique for each call, so that
    a write whose answer was lost is recognised, and not repeated. Raises StoreError."""
    expires = int((now + timedelta(days=retention_days)).timestamp())
    actions = {bucket_record_id(bucket): counts for bucket, counts in (by_action or {}).items() if counts}
    left = {bucket_record_id(bucket): numbers for bucket, numbers in departures.items() if numbers}
    left = {key: dict[str, int]() for key in actions} | left
    for _ in range(_TRIES):
        rows = store.get_many(left) if left else {}
        left = {key: numbers for key, numbers in left.items() if rows.get(key, {}).get(attr.WRITTEN_BY) != token}
        if not left:
            return
        values = {
            key: _added(rows.get(key, {}), numbers, actions.get(key), token, expires) for key, numbers in left.items()
        }
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


def _added(
    row: Row, numbers: Departures, actions: CountsByAction | None, token: str, expires: int
) -> dict[str, object]:
    by_action: dict[str, object] = {}
    if actions:
        total = CountsByAction.sum([CountsByAction.from_value(row.get(attr.BY_ACTION)), actions])
        by_action = {attr.BY_ACTION: total.to_value()}
    return {
        **by_action,
        **own_row("bucket"),
        **{name: _number(row, name) + number for name, number in numbers.items()},
        attr.VERSION: _number(row, attr.VERSION) + 1,
        attr.WRITTEN_BY: token,
        attr.EXPIRES_AT: max(expires, _number(row, attr.EXPIRES_AT)),
    }


def _number(row: Row, name: str) -> int:
    """A number of a record; 0 for anything else, which a person may have written."""
    value = row.get(name)
    return int(value) if isinstance(value, (int, Decimal)) and not isinstance(value, bool) else 0

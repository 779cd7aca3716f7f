"""What ran, by action and by minute: from the tick records, 100 to a request, and not from the tasks themselves.

Tick records have what passes ran, bucket records what workers and recoveries did. Of what wake-ups run, only what
failed is counted: a write for each would cost as much as its task. So where they ran tasks, the number of attempts is
not known, nor the share of them that failed, and neither is given.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Annotated

from dynatick.client import ticks
from dynatick.client.history import listed_entries
from dynatick.client.settings_cache import BEFORE_FIRST_TICK
from dynatick.client.thread_pool import many_rows, thread_pool
from dynatick.client.ticks import TickEntry, TickRecord, tick_records
from dynatick.client.views import TaskEntry, number_or
from dynatick.domain import attributes as attr
from dynatick.domain.action_counts import ActionCounts, CountsByAction
from dynatick.domain.batches import OPEN
from dynatick.domain.buckets import Bucket, Grid, minute_of
from dynatick.domain.pause import ActionPause
from dynatick.domain.selection import Selection
from dynatick.domain.task import Row, Status
from dynatick.domain.view import Json, View
from dynatick.engine.counts import COUNTERS, bucket_record_id
from dynatick.engine.cursor import Cursor, read_cursors
from dynatick.engine.ports import Store
from dynatick.engine.rules import Precision
from dynatick.engine.settings import InstallationSettings

_COUNTER = {counter.name: counter.attribute for counter in COUNTERS}
READ = (attr.BY_ACTION, attr.CONTINUED, *(_COUNTER[name] for name in ("completed", "failed", "retried", "planned")))
_LONGEST_WINDOW = timedelta(hours=24)  # of buckets that are not drained
MAX_PAST = timedelta(days=3)
"""Of a range that is compared with the one before: tick records are kept for seven days."""

_RETRIES_AHEAD = timedelta(hours=1)
_MAX_ROWS_READ = 500  # of tasks that are due, to see which run

# -- by minute ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class MinuteCounts:
    """The attempts that ended in the passes of one minute's tick, and in what they started."""

    by_action: CountsByAction = field(default_factory=CountsByAction)
    completed: int = 0
    failures: int = 0  # attempts that failed, for good or to be made again
    has_wake_ups: bool = False  # a pass planned wake-ups; the completions of what these run are not counted here

    def add_tick(self, row: Row) -> None:
        """Adds a tick record. One that was written before attempts were counted by action has only the sums."""
        self.by_action.update(CountsByAction.from_value(row.get(attr.BY_ACTION)))
        numbers = {name: number_or(row.get(attribute), 0) for name, attribute in _COUNTER.items()}
        self.completed += numbers["completed"]
        self.failures += numbers["failed"] + numbers["retried"]
        self.has_wake_ups |= numbers["planned"] > 0

    def add_bucket(self, row: Row) -> None:
        """Adds what the record of a bucket counts by action."""
        counts = CountsByAction.from_value(row.get(attr.BY_ACTION))
        self.by_action.update(counts)
        self.completed += sum(one.completed for one in counts.by_action.values())
        self.failures += counts.failures


def read_counts(
    store: Store,
    settings: InstallationSettings | None,
    minutes: range,
    *,
    read: Sequence[TickRecord] | None = None,
) -> Mapping[int, MinuteCounts]:
    """The counts of those minutes in which something ran. Two requests for each 100 minutes and shard, of 50 read
    units, and one more for passes that continued. ``read``: the tick records, if they are read already. Raises
    StoreError."""
    shards = range(1 if settings is None else settings.shards_ever)
    buckets = {bucket_record_id(Bucket(minute, shard)): minute for minute in minutes for shard in shards}
    found: dict[int, MinuteCounts] = {}
    with thread_pool(1, "dynatick-counts") as pool:
        rows = pool.submit(many_rows, store, list(buckets), consistent=False, only=(attr.BY_ACTION,))
        for minute, _, row in tick_records(store, minutes, shards, READ) if read is None else read:
            found.setdefault(minute, MinuteCounts()).add_tick(row)
        for key, row in rows.result().items():
            if attr.BY_ACTION in row:
                found.setdefault(buckets[key], MinuteCounts()).add_bucket(row)
    return found


def ticks_and_counts(
    store: Store, settings: InstallationSettings | None, minutes: range, *, now: datetime
) -> tuple[list[TickEntry], Mapping[int, MinuteCounts]]:
    """The ticks of these minutes, and what they ran, of records that are read once. Raises StoreError."""
    shards = range(1 if settings is None else settings.shards_ever)
    records = tick_records(store, minutes, shards, {*ticks.READ, *READ})
    counts = read_counts(store, settings, minutes, read=records)
    return ticks.ticks(store, settings, minutes, now=now, read=records), counts


# -- by action ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class ActionFigures(View):
    """The attempts of an action that ended in some time. Times are at most half too high."""

    attempts: Annotated[int | None, "None: not all of them are counted."]
    completed: Annotated[int | None, "None: not all of them are counted."]
    failed: Annotated[int, "Tasks, for good."]
    retried: Annotated[int, "Attempts that failed, and were to be made again."]
    failed_percent: Annotated[
        float | None, "Of the attempts, those that failed. None: there was none, or not all are counted."
    ]
    lateness_p50_ms: Annotated[int | None, "Half of the tasks began no later than this."]
    lateness_p99_ms: int | None
    duration_p50_ms: Annotated[int | None, "Half of the attempts took no longer than this."]
    duration_p99_ms: int | None

    @classmethod
    def of(cls, counts: ActionCounts, *, all_counted: bool = True) -> ActionFigures:
        """``all_counted`` False: further attempts have completed, and only those that failed are all there."""
        attempts = counts.attempts
        share = 100 * counts.failures / attempts if attempts else None
        return cls(
            attempts=attempts if all_counted else None,
            completed=counts.completed if all_counted else None,
            failed=counts.failed,
            retried=counts.retried,
            failed_percent=None if share is None or share > 100 or not all_counted else round(share, 1),
            lateness_p50_ms=counts.late.percentile(50),
            lateness_p99_ms=counts.late.percentile(99),
            duration_p50_ms=counts.took.percentile(50),
            duration_p99_ms=counts.took.percentile(99),
        )

    @property
    def failures(self) -> int:
        """Attempts that failed, for good or to be made again."""
        return self.failed + self.retried


@dataclass(frozen=True, kw_only=True, slots=True)
class Waiting:
    """The tasks of an action that have not ended. ``running`` None: too many are due to read each."""

    due: int = 0  # those that run among them
    running: int | None = 0
    retrying: int = 0  # another attempt or turn is to begin within the hour


@dataclass(frozen=True, kw_only=True, slots=True)
class ActionSummary(View):
    """An action: what waits, what ran, and what ran in the same time before."""

    action: str
    due: Annotated[int | None, "Tasks that are due and have not ended. None: not read."] = None
    running: Annotated[int | None, "Those of them that run. None: they are too many to read each."] = None
    retrying: Annotated[int | None, "Tasks that wait for another attempt or turn within the hour."] = None
    paused: Annotated[ActionPause | None, "None of its tasks begins."] = None
    now: Annotated[ActionFigures, Json(name="past")]
    before: ActionFigures


NOT_COUNTED = (
    "Wake-ups run tasks to the second here, and of what they run only the attempts that failed are counted: so how "
    "many attempts there were, and what share of them failed, is not known"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ActionList(View):
    """The actions, and why some of their figures are not known."""

    actions: Annotated[tuple[ActionSummary, ...], "The one with the most attempts that failed first."]
    not_counted: Annotated[str | None, "Why attempts, and shares of them, are not known. None: they are."] = None


def figures_of_all(
    counts: Collection[MinuteCounts], settings: InstallationSettings | None
) -> tuple[ActionFigures, str | None]:
    """The figures of all actions together, and why some of them are not known. Pure."""
    total = ActionCounts()
    for one in counts:
        for of_action in one.by_action.by_action.values():
            total.update(of_action)
    all_counted = _all_counted(counts, settings)
    return ActionFigures.of(total, all_counted=all_counted), None if all_counted else NOT_COUNTED


def _all_counted(counts: Collection[MinuteCounts], settings: InstallationSettings | None) -> bool:
    """Whether no wake-up has run tasks, whose completions are not counted."""
    to_the_second = settings is not None and settings.precision is Precision.SECOND
    return not to_the_second and not any(one.has_wake_ups for one in counts)


def action_list(
    counts: Mapping[int, MinuteCounts],
    middle: int,
    waiting: Mapping[str, Waiting] | None,
    settings: InstallationSettings | None,
) -> ActionList:
    """An entry for each action, the one with the most attempts that failed first, then by attempts: of the counts from
    the minute ``middle`` on, beside those before. ``waiting`` None: not read. Pure."""
    parts = (
        [one for minute, one in counts.items() if minute < middle],
        [one for minute, one in counts.items() if minute >= middle],
    )
    before, now = (CountsByAction.sum(one.by_action for one in part) for part in parts)
    before_counted, now_counted = (_all_counted(part, settings) for part in parts)
    found = []
    paused = {} if settings is None else settings.paused_actions
    for name in {*now.by_action, *before.by_action, *(waiting or ()), *paused}:
        wait = None if waiting is None else waiting.get(name, Waiting())
        counted = now.by_action.get(name, ActionCounts())
        one = ActionSummary(
            action=name,
            due=None if wait is None else wait.due,
            running=None if wait is None else wait.running,
            retrying=None if wait is None else wait.retrying,
            paused=paused.get(name),
            now=ActionFigures.of(counted, all_counted=now_counted),
            before=ActionFigures.of(before.by_action.get(name, ActionCounts()), all_counted=before_counted),
        )
        found.append((-counted.failures, -counted.attempts, name, one))
    return ActionList(
        actions=tuple(one for *_, one in sorted(found, key=lambda entry: entry[:3])),
        not_counted=None if now_counted and before_counted else NOT_COUNTED,
    )


# -- what waits --------------------------------------------------------------------------------------------------------


def read_waiting(store: Store, settings: InstallationSettings | None, now: datetime) -> Mapping[str, Waiting]:
    """What waits, by action: polls the buckets that are not drained, and those of the next hour. Raises StoreError."""
    known = settings or BEFORE_FIRST_TICK
    shards, present = range(known.shards_ever), minute_of(now)
    first = max(drained_through(store, shards, present) + 1, present - int(_LONGEST_WINDOW.total_seconds()) // 60)
    last = present + int(_RETRIES_AHEAD.total_seconds()) // 60
    due: list[TaskEntry] = []
    retrying: list[TaskEntry] = []
    selection = Selection(minutes=range(min(first, present), last + 1), shards=shards)
    for entry in listed_entries(store, selection, known.grid, now):
        if entry.status != OPEN:
            continue
        if Bucket.parse(entry.bucket).minute <= present or is_put_off(entry, known.grid, now):
            due.append(entry)
        elif entry.may_begin_at is not None and entry.may_begin_at != entry.due_at:
            retrying.append(entry)
    running = running_of(store, due)
    default = known.default_action or ""
    names = {one.action or default for one in (*due, *retrying)}
    return {
        name: Waiting(
            due=_sum(due, name, default),
            running=None if running is None else _sum((one for one in due if one.task_id in running), name, default),
            retrying=_sum(retrying, name, default),
        )
        for name in names
    }


def drained_through(store: Store, shards: range, present: int) -> int:
    """The minute through which all shards are drained; the ``present`` one, if no tick has come yet. Raises
    StoreError."""
    cursors = read_cursors(store, shards, consistent=False).values()
    return min((one.drained_through for one in cursors if isinstance(one, Cursor)), default=present)


def is_put_off(entry: TaskEntry, grid: Grid, now: datetime) -> bool:
    """Whether it is due and lies in a later bucket than its own: the turn of its limit key is expected there, or its
    action is paused. One with an error is to be marked failed there."""
    at = entry.may_begin_at
    return (
        at is not None
        and entry.error is None
        and at <= now
        and grid.tick_at_or_after(at) < Bucket.parse(entry.bucket).minute
    )


def _sum(entries: Iterable[TaskEntry], action: str, default: str) -> int:
    return sum(one.waiting for one in entries if (one.action or default) == action)


def running_of(store: Store, due: Sequence[TaskEntry]) -> set[str] | None:
    """The ids of those that run, by their rows; None: they are too many to read each. Raises StoreError."""
    if len(due) > _MAX_ROWS_READ:
        return None
    rows = many_rows(store, [one.task_id for one in due], consistent=False, only=(attr.STATUS,))
    return {key for key, row in rows.items() if row.get(attr.STATUS) == Status.RUNNING}

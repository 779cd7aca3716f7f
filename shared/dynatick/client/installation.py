"""The settings and the health of an installation, and its state for the person on call: does it run, what waits, what
has failed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Annotated, Literal

from dynatick.actions.payload import BUILT_IN
from dynatick.client.action_counts import (
    ActionFigures,
    drained_through,
    figures_of_all,
    is_put_off,
    read_counts,
    running_of,
)
from dynatick.client.failures import FailureGroup, FailureGroups
from dynatick.client.history import listed_entries
from dynatick.client.key_queues import KeyLoad, KeyTally
from dynatick.client.payload_check import READ, PayloadCheck, PayloadChecker
from dynatick.client.settings_cache import BEFORE_FIRST_TICK
from dynatick.client.thread_pool import thread_pool
from dynatick.client.views import Tally, TaskEntry
from dynatick.domain import attributes as attr
from dynatick.domain.batches import OPEN
from dynatick.domain.buckets import TICK_GRACE, Bucket, instant_of, minute_of
from dynatick.domain.pause import ActionPause, Pause
from dynatick.domain.selection import Selection
from dynatick.domain.task import Status
from dynatick.domain.view import Json, View
from dynatick.engine.cursor import Cursor, read_cursors
from dynatick.engine.ports import Store
from dynatick.engine.reconcile import Finding, judge_installation
from dynatick.engine.settings import InstallationSettings

MAX_HOURS = 24
DAY = timedelta(days=1)
MAX_POLLS = 6_000  # of buckets, past and to come: two days of minutes on two shards
MAX_ENTRIES = 100_000  # of the index, in each direction
MAX_GROUPS = 20
_MAX_PAYLOADS = 100  # of tasks that are due next
_HOUR = timedelta(hours=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Health(View):
    """Whether tasks run when they are due, by the cursors."""

    last_tick: Annotated[datetime | None, Json(null=True), "The latest tick of the shard whose tick is the oldest."]
    age_seconds: Annotated[float | None, Json(name="lastTickAgeSeconds", null=True)]
    missing_ticks: Annotated[int, "Ticks that should have come since, without those of the last two minutes."]
    pause: Annotated[Pause | None, Json(name=attr.PAUSED, null=True), "Nothing is run since then."] = None
    paused_actions: Annotated[tuple[ActionPause, ...], Json(optional=True), "Nothing of these is run."] = ()
    findings: Annotated[tuple[Finding, ...], "What keeps tasks from running when they are due."] = ()

    @property
    def is_healthy(self) -> Annotated[bool, Json(name="healthy")]:
        """Whether ticks come and drain their buckets, or someone wanted them not to."""
        return not self.findings


def health_of(store: Store, settings: InstallationSettings | None, now: datetime) -> Health:
    """Reads the cursors, 100 shards in a request. Raises StoreError."""
    known = settings or BEFORE_FIRST_TICK
    cursors = read_cursors(store, range(known.shards_ever), consistent=False)
    served = [one.served_through for one in cursors.values() if isinstance(one, Cursor) and one.last_tick is not None]
    last = min(served, default=None)
    every = known.grid.tick_minutes
    since = None if last is None else max(last, minute_of(known.resumed_at))
    missing = 0 if since is None else max(0, minute_of(now - TICK_GRACE) // every - since // every)
    return Health(
        last_tick=None if last is None else instant_of(last),
        age_seconds=None if last is None else max(0.0, round((now - instant_of(last)).total_seconds(), 1)),
        missing_ticks=0 if known.pause else missing,
        findings=tuple(judge_installation(cursors, known, now)),
        pause=known.pause,
        paused_actions=known.pauses_of_actions,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class SettingsView(View):
    """The current settings."""

    tick_minutes: Annotated[int, "Minutes from one tick to the next."]
    shard_count: Annotated[int, "The number of shards that new tasks of a bucket are spread over."]
    shards_ever: Annotated[int, "The highest number of shards there has been: every tick serves all of them."]
    actions: Annotated[tuple[str, ...], "The allowed built-in actions, and the handlers."]
    schema_version: Annotated[int, "The version of the table's rows."]
    default_action: Annotated[str | None, "The action of a task that names none."] = None
    retention_days: Annotated[int | None, "Days after which an ended task expires."] = None
    key_limits: Annotated[Mapping[str, str] | None, "The limits by key, by class."] = None
    max_timeout_seconds: Annotated[int | None, "The highest timeoutSeconds that is accepted."] = None
    processor_problem: Annotated[str | None, "Why the processor can't start."] = None
    paused: Annotated[Pause | None, "Nothing is run since then."] = None
    paused_actions: Annotated[tuple[ActionPause, ...], Json(optional=True), "Nothing of these is run."] = ()
    handlers: Annotated[Mapping[str, object], "The handlers, each with the JSON Schema of its payload, if it is known."]


def settings_view(settings: InstallationSettings) -> SettingsView:
    schemas = {name: _read(text) for name, text in settings.payload_schemas.items()}
    limits = settings.key_limits
    return SettingsView(
        tick_minutes=settings.grid.tick_minutes,
        shard_count=settings.grid.shard_count,
        shards_ever=settings.shards_ever,
        actions=settings.actions,
        schema_version=settings.schema_version,
        default_action=settings.default_action,
        retention_days=settings.retention_days,
        key_limits=None if limits is None else {name: limit.text for name, limit in limits.items()},
        max_timeout_seconds=settings.max_timeout_seconds,
        processor_problem=settings.processor_problem,
        paused=settings.pause,
        paused_actions=settings.pauses_of_actions,
        handlers={name: schemas.get(name) for name in settings.actions if name not in BUILT_IN},
    )


def _read(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:  # not written by Dynatick
        return None


@dataclass(frozen=True, kw_only=True, slots=True)
class InstallationStatus(View):
    """The state of the installation. `since` and `until` say of which tasks: an hour each way, further back if older
    buckets are not drained, and less with many shards or tasks."""

    FORM = "Status"

    health: Health
    processor_problem: Annotated[str | None, Json(null=True), "Why the processor can't start."]
    next_tick: datetime
    since: datetime
    until: datetime
    due_now: Annotated[int, "Tasks that are due and have not ended."]
    oldest_due: Annotated[datetime | None, Json(null=True), "The bucket of the oldest of them."]
    running: Annotated[int | None, Json(null=True), "Those of them that run. None: they are too many to read each."]
    waiting: Annotated[int, "Tasks that are due later, without runs of schedules."]
    awaiting_completion: Annotated[int, "Tasks that wait for a completion until then."]
    completed: int
    failed: int
    cancelled: int
    day: Annotated[ActionFigures, Json(name="last24Hours"), "The attempts that ended in the last 24 hours."]
    not_counted: Annotated[str | None, "Why some of its figures are not known. None: they are."] = None
    lateness: Annotated[
        Mapping[str, int],
        Json(name="latenessMs"),
        "p50, p99 and max of the tasks that have ended.",
    ] = field(default_factory=dict)
    failures: Annotated[tuple[FailureGroup, ...], "The 20 with the most tasks, the most first."] = ()
    keys: Annotated[tuple[KeyLoad, ...], "The five limit keys with the most tasks that wait.", Json(optional=True)] = ()
    payloads: Annotated[
        PayloadCheck | None, "Of the tasks that are due next, 100 at most. Left out: no type of a handler is known."
    ] = None

    @property
    def state(self) -> Annotated[Literal["running", "paused", "failing", "stopped"], ""]:
        """One word: paused, failing (the processor can't start), stopped (ticks are missing), or running."""
        if self.health.pause is not None:
            return "paused"
        if self.processor_problem is not None:
            return "failing"
        return "running" if self.health.is_healthy else "stopped"


def status_of_installation(
    store: Store, settings: InstallationSettings | None, health: Health, now: datetime, *, hours: int = 1
) -> InstallationStatus:
    """Reads the index, nearest hour first, and beside it the records of a day. Raises StoreError."""
    known = settings or BEFORE_FIRST_TICK
    with thread_pool(1, "dynatick-day") as pool:
        day = pool.submit(_day, store, settings, now)
        return _status(store, known, health, now, hours, day.result)


def _day(store: Store, settings: InstallationSettings | None, now: datetime) -> tuple[ActionFigures, str | None]:
    """What ended in the last 24 hours, of all actions together, and why some of it is not known."""
    first, stop = minute_of(now - DAY) + 1, minute_of(now) + 1
    return figures_of_all(read_counts(store, settings, range(first, stop)).values(), settings)


def _status(
    store: Store,
    known: InstallationSettings,
    health: Health,
    now: datetime,
    hours: int,
    day: Callable[[], tuple[ActionFigures, str | None]],
) -> InstallationStatus:
    shards = range(known.shards_ever)
    present = minute_of(now)
    behind = -(-(present - drained_through(store, shards, present)) // 60)
    possible = max(1, min(MAX_HOURS, MAX_POLLS // (2 * 60 * known.shards_ever)))
    past = _Past(now)
    since = until = instant_of(present + 1)
    for _ in range(min(max(hours, behind), possible)):
        past.add(listed_entries(store, _hour(since - _HOUR, shards), known.grid, now))
        since -= _HOUR
        if past.entries > MAX_ENTRIES:
            break
    waiting = handed_over = entries = 0
    next_due: list[str] = []  # whose payloads can be checked
    for _ in range(min(hours, possible)):
        for one in listed_entries(store, _hour(until, shards), known.grid, now):
            entries += 1
            if one.status == OPEN and is_put_off(one, known.grid, now):
                past.due.append(one)
                past.keys.add(one)
            elif one.status == OPEN:
                waiting += one.waiting
                past.keys.add(one)  # it may be due already, and lie where its turn is expected
                if len(next_due) < _MAX_PAYLOADS and (one.action or known.default_action) in known.payload_schemas:
                    next_due.append(one.task_id)
            elif one.status == Status.WAITING:
                handed_over += 1
            elif one.status != Status.CANCELLED:  # it ran to the second, before the tick of its bucket
                past.add((one,))
        until += _HOUR
        if entries > MAX_ENTRIES:
            break
    figures, not_counted = day()
    running = running_of(store, past.due)
    return InstallationStatus(
        day=figures,
        not_counted=not_counted,
        health=health,
        processor_problem=known.processor_problem,
        next_tick=instant_of(known.grid.tick_after(present)),
        since=since,
        until=until,
        due_now=sum(one.waiting for one in past.due),
        oldest_due=min((_waits_since(one, now) for one in past.due), default=None),
        running=None if running is None else sum(one.waiting for one in past.due if one.task_id in running),
        waiting=waiting,
        awaiting_completion=handed_over,
        completed=past.tally.counts[Status.COMPLETED],
        failed=past.tally.counts[Status.FAILED],
        cancelled=past.tally.counts[Status.CANCELLED],
        lateness=past.tally.lateness_ms(),
        failures=tuple(past.failures.by_impact(MAX_GROUPS)),
        keys=past.keys.busiest(store, known.key_limits, now),
        payloads=_checked(store, known, next_due) if known.payload_schemas else None,
    )


def _checked(store: Store, settings: InstallationSettings, task_ids: Sequence[str]) -> PayloadCheck:
    checker = PayloadChecker(settings.payload_schemas, store, settings.default_action)
    if task_ids:
        checker.add(store.get_many(task_ids, consistent=False, only=READ).values())
    return checker.found(reads=min(1, len(task_ids)), complete=False)


def failure_groups(
    store: Store, settings: InstallationSettings | None, now: datetime, last: timedelta
) -> list[FailureGroup]:
    """The tasks of the ``last`` hours that are failed now, in groups, by impact. Raises StoreError."""
    known = settings or BEFORE_FIRST_TICK
    stop = known.grid.tick_after(minute_of(now)) + 1  # what runs to the second lies in the bucket to come
    minutes, shards = range(minute_of(now - last), stop), range(known.shards_ever)
    selection = Selection(minutes=minutes, shards=shards, statuses=(Status.FAILED,))
    groups = FailureGroups()
    for entry in listed_entries(store, selection, known.grid, now):
        groups.add(entry)
    return groups.by_impact()


@dataclass(slots=True)
class _Past:
    now: datetime
    tally: Tally = field(default_factory=Tally)
    due: list[TaskEntry] = field(default_factory=list)
    failures: FailureGroups = field(default_factory=FailureGroups)
    keys: KeyTally = field(default_factory=KeyTally)
    entries: int = 0

    def add(self, entries: Iterable[TaskEntry]) -> None:
        for entry in entries:
            self.entries += 1
            self.tally.add(entry)
            if entry.status == OPEN and _due_of(entry) <= self.now:
                self.due.append(entry)
            self.failures.add(entry)
            self.keys.add(entry)


def _due_of(entry: TaskEntry) -> datetime:
    """Its bucket's instant: what a tick waits for; a retry's dueAt is long over."""
    return Bucket.parse(entry.bucket).instant


def _waits_since(entry: TaskEntry, now: datetime) -> datetime:
    """``_due_of``; of a task that was put off into a bucket to come, the instant from which it may begin."""
    at = _due_of(entry)
    return entry.may_begin_at if at > now and entry.may_begin_at is not None else at


def _hour(start: datetime, shards: Sequence[int]) -> Selection:
    first = minute_of(start)
    return Selection(minutes=range(first, first + 60), shards=shards)

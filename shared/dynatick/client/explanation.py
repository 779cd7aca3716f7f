"""Why a task is where it is: one sentence, and what has happened to it in order. Or why there is none of an id: an
occurrence was not made, is to come, is over, or never was one.

What is said of a task is pure: the client reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated
from urllib.parse import urlsplit

from dynatick.client.key_queues import KeyQueue
from dynatick.client.payload_check import problem_of
from dynatick.client.schedule_occurrences import RUN_NOW, ScheduleOccurrence, latest_occurrences, occurrences_between
from dynatick.client.settings_cache import BEFORE_FIRST_TICK
from dynatick.client.views import TaskView, instant_or_none, number_or, text_or_none
from dynatick.domain import attributes as attr
from dynatick.domain.buckets import TICK_GRACE, Bucket, Grid, instant_of
from dynatick.domain.durations import rounded_text
from dynatick.domain.instants import format_instant, parse_instant
from dynatick.domain.lifecycle import overdue
from dynatick.domain.limit_keys import PARAMETER as KEY_LIMITS
from dynatick.domain.limit_keys import class_of
from dynatick.domain.recurrence import bucket_of_occurrence
from dynatick.domain.retry import RetryPolicy
from dynatick.domain.row import RELEASED, RowView, is_terminal
from dynatick.domain.schedule import MissedFor, Schedule, is_or_was_schedule
from dynatick.domain.task import UNSCHEDULED, Row, Status
from dynatick.domain.view import Json, View
from dynatick.engine.claims import lease_is_over
from dynatick.engine.cursor import Cursor
from dynatick.engine.ports import Store
from dynatick.engine.rates import Reserved
from dynatick.engine.settings import InstallationSettings
from dynatick.errors import InvalidInput

_WEBHOOK = "webhook"
_REASONS = {
    MissedFor.OUTAGE: "its tick came too late, and catchUp skips it",
    MissedFor.OVERLAP: "the occurrence before it had not ended, and overlap skips it",
    MissedFor.PAUSED: "the schedule was paused",
    MissedFor.ALL_PAUSED: "the whole installation was paused, and catchUp skips it",
    MissedFor.TOO_OLD: "its tick came too late, and catchUp makes up fewer or later ones only",
    MissedFor.ID_TAKEN: "another task has its id",
    MissedFor.TOO_LARGE: "the table did not take its row, which is too large",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskEvent(View):
    """Something that has happened to a task, or that will."""

    at: datetime | None
    what: str
    error: str | None = None
    trace: Annotated[str | None, "Where the error was raised, a line for each frame."] = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation(View):
    """Why a task is where it is."""

    task_id: str
    status: Annotated[str | None, Json(null=True), "None: there is no task."]
    sentence: Annotated[str, "What is most important now."]
    events: Annotated[tuple[TaskEvent, ...], "In order of time."] = ()
    schedule_id: Annotated[str | None, "Of an occurrence without a task: its schedule."] = None


def explain(
    row: Row,
    settings: InstallationSettings | None,
    cursors: Mapping[int, Cursor],
    now: datetime,
    queue: KeyQueue | None = None,
    rates: Sequence[Reserved] = (),
) -> Explanation:
    """What happened to the task of a row, and what it waits for. ``cursors``: by shard, those that can be read.
    ``queue``: what it may wait for by its limit key. ``rates``: of its action and host, those that have a limit."""
    view = TaskView.from_row(row)
    if is_or_was_schedule(row):
        sentence = f"{view.task_id} is a schedule: `dynatick schedule get` and `schedule history` tell of its runs"
        return Explanation(task_id=view.task_id, status=str(view.status), sentence=sentence)
    story = _Story(view, settings or BEFORE_FIRST_TICK, cursors, now, queue, rates)
    return Explanation(
        task_id=view.task_id,
        status=str(view.status),
        sentence=f"{view.task_id} {story.sentence()}",
        events=tuple(sorted(story.events(), key=lambda event: event.at or now)),
    )


def limits_of(row: Row) -> Sequence[str]:
    """The names of the rate limits that may hold for the task of a row: of its action, and of a webhook's host."""
    action, payload = row.get(attr.ACTION), row.get(attr.PAYLOAD)
    url = payload.get("url") if isinstance(payload, Mapping) else None
    if action != _WEBHOOK or not isinstance(url, str):
        return [action] if isinstance(action, str) else []
    try:
        host = urlsplit(url).hostname
    except ValueError:
        host = None
    return [_WEBHOOK] if host is None else [_WEBHOOK, f"{_WEBHOOK}:{host}"]


@dataclass(frozen=True, slots=True)
class _Story:
    view: TaskView
    settings: InstallationSettings
    cursors: Mapping[int, Cursor]
    now: datetime
    queue: KeyQueue | None
    rates: Sequence[Reserved]

    # -- the sentence ------------------------------------------------------------------------------------------------

    def sentence(self) -> str:
        view = self.view
        match view.status:
            case Status.COMPLETED:
                return self._completed()
            case Status.FAILED:
                tried = f"after {_many(view.attempt, 'attempt')}" if view.attempt else "without an attempt"
                return f"failed at {_shown(view.finished_at)}, {tried}: {view.error}"
            case Status.CANCELLED:
                return f"never ran: it was cancelled at {_shown(view.finished_at)}, and was due at {_shown(self._due)}"
            case Status.RUNNING:
                return self._running()
            case Status.WAITING:
                return self._awaiting()
            case Status.SCHEDULED:
                return self._scheduled() + self._unlimited()
        if str(view.status) == UNSCHEDULED:
            if (reason := view.row.get(attr.MALFORMED_REASON)) is not None:
                return f"can't be understood ({reason}), and fails once the dead-letter queue takes its message"
            return (
                "is new: the scheduler function has not read it yet, which takes about a second"
                + self._waiting_for_all()
            )
        return f"has the status {view.status!r}, which is none of Dynatick's: `dynatick doctor` says what to do"

    def _completed(self) -> str:
        view = self.view
        if view.attempt > 1 or view.turn:
            turn = f" of its {_ordinal(view.turn + 1)} turn" if view.turn else ""
            return f"completed at {_shown(view.finished_at)} with the {_ordinal(view.attempt)} attempt{turn}"
        started, finished, due = view.started_at, view.finished_at, self._due
        late = ""
        if started is not None and due is not None:
            late = f", {rounded_text(max(started - due, timedelta()))} after it was due"
        took = "" if started is None or finished is None else f", and took {rounded_text(finished - started)}"
        return f"ran at {_shown(started)}{late}{took}"

    def _running(self) -> str:
        view = self.view
        until = _shown(instant_or_none(view.row.get(attr.LEASE_UNTIL)))
        key = self._key_of_pack
        if view.row.get(attr.LEASE_UNTIL) == RELEASED and key is not None:
            return f"waits with its pack for a turn of {key}" + self._waiting_for_all()
        if view.row.get(attr.LEASE_UNTIL) == RELEASED and self.view.action in self.settings.paused_actions:
            return "was claimed, and released" + self._waiting_for_all()
        if view.row.get(attr.LEASE_UNTIL) == RELEASED:
            return "was claimed, and released for want of time: the pass goes on with it" + self._waiting_for_all()
        if view.error is not None:
            return f"has failed ({view.error}), and waits until the dead-letter queue takes its message"
        if lease_is_over(view.row, self.now):
            died = f"its process died, or did not finish in time, and its lease ended at {until}"
            return f"waits for a tick to make the next attempt: {died}" + self._waiting_for_all()
        if key is not None:
            since = f"since {_shown(view.started_at)}"
            return f"runs, or waits for its turn: {since} members of its pack begin as {key} has places for them"
        attempt = f"attempt {self._of(view.attempt)}; its lease ends at {until}"
        if (rate := self._rate) is not None:
            limit = f"at most {rate.rate} of {rate.name}" if rate.rate else f"{rate.name} has a rate, so not all"
            claimed = f"is claimed since {_shown(view.started_at)}, and runs or waits for its start"
            return f"{claimed}: {limit} begin, and the next start that is free is at {_shown(rate.until)}; {attempt}"
        return f"is running since {_shown(view.started_at)}, {attempt}"

    @property
    def _rate(self) -> Reserved | None:
        """The rate for which a claimed task may wait in its process; None: it runs. One that must wait longer than
        from tick to tick is put off."""
        claimed = self.view.started_at
        if claimed is None or self.now - claimed > self._tick:
            return None
        return max((one for one in self.rates if one.until > self.now), key=lambda one: one.until, default=None)

    @property
    def _key_of_pack(self) -> str | None:
        """The limit key of a pack, or of a member that has no row of its own; None: it is neither, or has no limit."""
        row, limits = self.view.row, self.settings.key_limits or {}
        key = RowView(row).limit_key
        is_of_pack = attr.PACK in row or (attr.BATCH_ID in row and attr.LEASE not in row)
        return key if is_of_pack and key is not None and class_of(key) in limits else None

    def _awaiting(self) -> str:
        view = self.view
        if view.error is not None:
            return f"has failed ({view.error}), and the next tick records it" + self._waiting_for_all()
        if (late := overdue(view.row)) is not None and lease_is_over(view.row, self.now):
            return f"waits for a tick to make the next attempt: {late}" + self._waiting_for_all()
        by = "" if view.heartbeat_by is None else f", and for a heartbeat until {_shown(view.heartbeat_by)}"
        return f"waits for a completion until {_shown(view.complete_by)}{by}; attempt {self._of(view.attempt)}"

    def _scheduled(self) -> str:
        view, bucket = self.view, Bucket.canonical(self.view.bucket)
        if bucket is None:
            return f"is found by no tick: its taskDateTime {view.bucket!r} names no bucket. `dynatick doctor --repair`"
        at = self._starts or bucket.instant
        if bucket.instant > self.now and at > self.now:
            by_tick = f"; the tick of {bucket} runs it" if bucket.instant > at else ""
            return f"{self._waits(at)}{by_tick}; {self._outlook}"
        return f"is due since {_shown(at)}{self._waiting_for_all() or self._why_not_yet(bucket)}"

    def _why_not_yet(self, bucket: Bucket) -> str:
        """Why a task that is due doesn't run."""
        by_tick = f": the tick of {bucket} runs it" if bucket.instant > self.now else ""
        if by_tick and self.queue is None:
            return by_tick
        if bucket.shard >= self.settings.shards_ever:
            return f", in shard {bucket.shard}, which no tick serves: `dynatick doctor --repair`"
        cursor = self.cursors.get(bucket.shard)
        if cursor is None:
            return ", and no tick has come yet: see that the rule is enabled and the processor runs"
        if bucket.minute <= cursor.drained_through:
            return ", and its bucket was drained without it: `dynatick doctor --repair`"
        served = instant_of(cursor.served_through)
        if served + self._tick + TICK_GRACE < self.now:
            return f", and waits because no tick has come since {_shown(served)}"
        if self.queue is not None and (why := self._why_in_queue(self.queue, cursor)):
            expected = f"; its turn is expected at {_shown(bucket.instant)}" if by_tick else ""
            return f" and waits for its key: {why}{expected}"
        if by_tick:
            return by_tick
        if cursor.is_leased(self.now):
            return ", and waits for the pass that is at work on its shard"
        return f": the next tick runs it, at {_shown(instant_of(self.settings.grid.tick_at_or_after(self.now)))}"

    def _why_in_queue(self, queue: KeyQueue, cursor: Cursor) -> str:
        """Why its limit key lets it wait; empty: it doesn't."""
        key, limit, record = queue.key, queue.limit, queue.record
        parts: list[str] = []
        if limit.at_once is not None and len(queue.running) >= limit.at_once:
            (first, since), *others = queue.running
            more = f" and {len(others)} more" if others else ""
            running = f"{len(queue.running)} of {limit.at_once} running"
            parts.append(f"{key} has {running} ({first}, since {_shown(since)}{more})")
        elif record.is_leased(self.now) and not (cursor.is_leased(self.now) and cursor.lease == record.lease):
            until = _shown(record.lease_until)
            parts.append(f"until {until} the limits of its shard are held by a process that may have died")
        if queue.batches:
            parts.append(f"its turns alternate with those of members of {', '.join(queue.batches)}")
        at = record.starts.get(key)
        if limit.interval and (parts or queue.before or (at is not None and at > self.now)):
            following = f", the next at {_shown(at)}" if at is not None and at > self.now else ""
            parts.append(f"at most {limit.text.rpartition(':')[2]} of {key} begin{following}")
        of = "" if parts else f" of {key}"
        if queue.before:
            bound, wait = "" if queue.is_exact else "at least ", "waits" if queue.before == 1 else "wait"
            parts.append(f"{bound}{queue.before}{of} {wait} before it")
        elif not queue.is_exact:
            parts.append(f"not all{of} that come before it were read")
        elif parts:
            parts.append("it is the next")
        return "; ".join(parts)

    def _unlimited(self) -> str:
        """That its limit key has no limit any more; empty: it has one, or none is known."""
        key, limits = RowView(self.view.row).limit_key, self.settings.key_limits
        if key is None or limits is None or class_of(key) in limits:
            return ""
        return f"; its key {key} has no limit, for {KEY_LIMITS} has no class {class_of(key)}"

    def _waits(self, at: datetime) -> str:
        view, ahead = self.view, f"{_shown(at)}, in {rounded_text(at - self.now)}"
        if view.next_attempt_at is None:
            return f"is due at {ahead}"
        last = self._attempts[-1] if self._attempts else {}
        if view.attempt and last.get(attr.ERROR):
            failed = instant_or_none(last.get(attr.FINISHED_AT))
            ago = "" if failed is None else f" {rounded_text(self.now - failed)} ago"
            why = f"the {_ordinal(view.attempt)} failed{ago} with {last[attr.ERROR]}"
            return f"waits for its {_ordinal(view.attempt + 1)} attempt at {ahead}: {why}"
        if view.turn:
            return f"waits for its {_ordinal(view.turn + 1)} turn, as its handler asked, at {ahead}"
        return f"waits for its rate limit, which allows it at {ahead}"

    @property
    def _outlook(self) -> str:
        """What keeps a task whose time has not come from completing, as far as that is known."""
        if self._held_up:
            return f"but {self._held_up}"
        schema = self.settings.payload_schemas.get(self.view.action or self.settings.default_action or "")
        error, fails = (schema and problem_of(schema, self.view.payload)) or ("", False)
        return f"but it will fail, for its handler refuses its payload ({error})" if fails else "nothing holds it up"

    @property
    def _looked_at(self) -> str:
        """When a tick looks again at a task that is due, and whose action is paused."""
        bucket = Bucket.canonical(self.view.bucket)
        if not self._held_up or self.settings.pause is not None or bucket is None or bucket.instant <= self.now:
            return ""
        return f"; it is looked at again at {_shown(bucket.instant)}"

    def _waiting_for_all(self) -> str:
        return f", and waits because {self._held_up}{self._looked_at}" if self._held_up else ""

    @property
    def _held_up(self) -> str:
        """What keeps all tasks, or those of its action, from running; empty: nothing."""
        pause = self.settings.pause
        if pause is not None:
            since = "" if pause.since is None else f" since {_shown(pause.since)}"
            why = "" if pause.reason is None else f" ({pause.reason})"
            return f"all is paused{since}{why}"
        if self.settings.processor_problem is not None:
            return f"the processor can't start: {self.settings.processor_problem}"
        of_action = self.settings.paused_actions.get(self.view.action or self.settings.default_action or "")
        if of_action is not None:
            return f"its action is paused {of_action}"
        return ""

    # -- the events --------------------------------------------------------------------------------------------------

    def events(self) -> Iterator[TaskEvent]:
        view = self.view
        if view.created_at is not None:
            of = f", a follow-up of {view.follow_up_of}" if view.follow_up_of is not None else ""
            yield TaskEvent(at=view.created_at, what=f"inserted{of}")
        if (schedule := text_or_none(view.row.get(attr.SCHEDULE_ID))) is not None and self._due is not None:
            yield TaskEvent(at=self._due, what=f"due, a run of the schedule {schedule}")
        elif self._due is not None:
            yield TaskEvent(at=self._due, what="due")
        yield from (self._attempt(one) for one in self._attempts)
        if view.status == Status.WAITING:
            yield TaskEvent(at=view.started_at, what=f"attempt {self._of(view.attempt)} began, and was handed over")
            yield TaskEvent(at=view.complete_by, what="must be completed by then")
        if view.status == Status.RUNNING and view.row.get(attr.LEASE_UNTIL) != RELEASED:
            yield TaskEvent(at=view.started_at, what=f"attempt {self._of(view.attempt)} began")
        if view.status == Status.SCHEDULED and view.next_attempt_at is not None:
            turn = f"turn {view.turn + 1}, " if view.turn else ""
            yield TaskEvent(at=view.next_attempt_at, what=f"{turn}attempt {self._of(view.attempt + 1)}")
        if view.status == Status.COMPLETED:
            yield TaskEvent(at=view.started_at, what=f"attempt {self._of(view.attempt)} began")
            yield from (TaskEvent(at=view.started_at, what=f"inserted a follow-up, {one}") for one in view.follow_ups)
            yield TaskEvent(at=view.finished_at, what="completed")
        if view.status == Status.FAILED:
            yield TaskEvent(at=view.finished_at, what="failed", error=view.error)
        if view.status == Status.CANCELLED:
            yield TaskEvent(at=view.finished_at, what="cancelled")
        if (restored := instant_or_none(view.row.get(attr.RESTORED_AT))) is not None:
            yield TaskEvent(at=restored, what="its cancellation was taken back")
        if view.replaced_at is not None:
            yield TaskEvent(at=view.replaced_at, what="replaced by another insert")
        if view.first_due_at is not None:
            yield TaskEvent(at=view.first_due_at, what="due at first, before it was postponed")
        if view.expires_at is not None:
            yield TaskEvent(at=view.expires_at, what="its row expires")

    def _attempt(self, entry: Mapping[str, object]) -> TaskEvent:
        started, finished = (instant_or_none(entry.get(name)) for name in (attr.STARTED_AT, attr.FINISHED_AT))
        run = number_or(entry.get(attr.RUN), 1)
        earlier = f" of run {run}" if run != self.view.run else ""
        took = "" if started is None or finished is None else f" after {rounded_text(finished - started)}"
        return TaskEvent(
            at=started or finished,
            what=f"attempt {self._of(number_or(entry.get(attr.ATTEMPT), 0))}{earlier} failed{took}",
            error=text_or_none(entry.get(attr.ERROR)),
            trace=text_or_none(entry.get(attr.TRACE)),
        )

    # -- what the row says -------------------------------------------------------------------------------------------

    @property
    def _attempts(self) -> list[Mapping[str, object]]:
        entries = self.view.row.get(attr.ATTEMPTS)
        return [one for one in entries if isinstance(one, Mapping)] if isinstance(entries, list) else []

    @property
    def _due(self) -> datetime | None:
        bucket = Bucket.canonical(self.view.bucket)
        return self.view.due_at or (None if bucket is None else bucket.instant)

    @property
    def _starts(self) -> datetime | None:
        """When it may begin."""
        return self.view.next_attempt_at or self._due

    @property
    def _tick(self) -> timedelta:
        return timedelta(minutes=self.settings.grid.tick_minutes)

    def _of(self, attempt: int) -> str:
        try:
            maximum = RetryPolicy.from_row(self.view.row.get(attr.RETRY_POLICY)).maximum_attempts
        except InvalidInput:
            return str(attempt)
        return f"{attempt} of {maximum}"


def _shown(instant: datetime | None) -> str:
    return "an unknown time" if instant is None else format_instant(instant)


def _many(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def _ordinal(number: int) -> str:
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


# -- where there is no task ------------------------------------------------------------------------------------------


def explain_missing(store: Store, task_id: str, settings: InstallationSettings | None, now: datetime) -> Explanation:
    """Why there is no task of this id: of an occurrence's, as its schedule says, which is read. Raises StoreError."""
    why, schedule_id = None, None
    if (parsed := parse_occurrence_id(task_id)) is not None:
        schedule_id, revision, instant = parsed
        row = store.get(schedule_id)
        if row is not None and is_or_was_schedule(row):
            grid = Grid() if settings is None else settings.grid
            why = _why_not_there(store, row, revision, instant, now, grid, is_extra=task_id.endswith(RUN_NOW))
    if why is not None:
        sentence = f"there is no such task: {why}"
        return Explanation(task_id=task_id, status=None, schedule_id=schedule_id, sentence=sentence)
    days = settings.retention_days if settings is not None else None
    kept = "" if days is None else f" {days} days after it ended"
    sentence = f"there is no task of this id: it was never inserted, was deleted, or has expired{kept}"
    return Explanation(task_id=task_id, status=None, sentence=sentence)


def parse_occurrence_id(task_id: str) -> tuple[str, int, datetime] | None:
    """The schedule, its revision, and the nominal instant; None if it is no id of an occurrence."""
    schedule_id, _, rest = task_id.removesuffix(RUN_NOW).rpartition("#")
    schedule_id, _, revision = schedule_id.rpartition("#")
    if not schedule_id or not (revision.isascii() and revision.isdigit()) or len(revision) > 9:
        return None
    try:
        return schedule_id, int(revision), parse_instant(rest, "instant")
    except InvalidInput:
        return None


def _why_not_there(
    store: Store, row: Row, revision: int, instant: datetime, now: datetime, grid: Grid, *, is_extra: bool
) -> str:
    present = number_or(row.get(attr.REVISION), 0)
    if revision != present:
        return f"the occurrences of its schedule are of revision {present} now, since it was inserted anew"
    if is_extra:
        return "no run-now made it, or it was deleted, or has expired"
    at = format_instant(instant)
    if instant > now:
        try:
            schedule = None if is_terminal(row) else Schedule.from_row(row)
        except InvalidInput:  # malformed since
            schedule = None
        if schedule is None or not occurrences_between(schedule, instant, instant, 1):
            return f"its schedule has no occurrence at {at}"
        if schedule.is_paused_at(instant):
            return f"its schedule is paused; unless it is resumed before, there is no occurrence at {at}"
        return f"it is made at its tick, at {format_instant(bucket_of_occurrence(schedule, instant, grid).instant)}"
    found = [one for one in latest_occurrences(store, row, instant, instant, 1, now) if not one.run_now]
    return _said(found[0], at) if found else f"its schedule had no occurrence at {at}"


def _said(one: ScheduleOccurrence, at: str) -> str:
    match one.status:
        case "missed":
            reason = "" if one.reason is None else f": {_REASONS.get(MissedFor(one.reason), one.reason)}"
            return f"the occurrence at {at} was not made{reason}"
        case "due":
            return f"the occurrence at {at} is due, and is made at the next tick"
        case "unknown":
            return (
                f"whether the occurrence at {at} was made is no longer known: its schedule has kept later reasons only"
            )
        case _:
            return f"the occurrence at {at} was made, and was deleted, or has expired"

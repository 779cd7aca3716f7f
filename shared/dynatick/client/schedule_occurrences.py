"""The occurrences of a schedule: the next ones, a history of those that were due, and those that a tick would not
make: by run-now, and by a backfill.

An occurrence's id follows from its schedule and its nominal instant, so the history needs no list of ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice, takewhile
from typing import Annotated

from dynatick.client import task_update
from dynatick.client.insertion import InsertResult, result_of
from dynatick.client.task_update import state_shown
from dynatick.client.views import instant_or_none, text_or_none
from dynatick.domain import attributes as attr
from dynatick.domain.conditional_update import ConditionalUpdate, as_read
from dynatick.domain.expressions import Occurrence, upcoming
from dynatick.domain.instants import format_instant
from dynatick.domain.occurrences import occurrence_after
from dynatick.domain.recurrence import MAX_MISSED_ENTRIES
from dynatick.domain.row import RowView, is_terminal
from dynatick.domain.schedule import FormerDefinition, MissedFor, Schedule, ScheduleState
from dynatick.domain.task import Row, Status
from dynatick.domain.view import Json, View
from dynatick.engine.conditional_write import create_many
from dynatick.engine.ports import Store, StoreFailure
from dynatick.errors import InvalidInput

RUN_NOW = "#now"
"""Ends the id of an occurrence that run-now makes."""

_MAX_NOTES = 10  # run-nows, and backfills, that a history finds

_INSTANT = timedelta(microseconds=1)
_SHOWN = (attr.STATUS, attr.OUTCOME, attr.TASK_DATE_TIME, attr.FINISHED_AT, attr.ERROR)
_MAX_INSTANTS = 20_000  # that were backfilled: a row may say anything


def insert_occurrences(store: Store, rows: Iterable[Row], dry_run: bool) -> Iterator[InsertResult]:
    """Inserts the rows, with one result each. ``dry_run``: only checks which of them exist."""
    rows = list(rows)
    ids = [RowView(row).task_id for row in rows]
    answers: Iterable[bool | StoreFailure]
    if dry_run:
        existing = store.get_many(ids, only=(attr.STATUS,))
        answers = [task_id not in existing for task_id in ids]
    else:
        answers = create_many(store, rows)
    for position, (task_id, answer) in enumerate(zip(ids, answers, strict=True)):
        yield result_of(position, task_id, answer)


def note_run_now(store: Store, schedule_id: str, nominal: datetime, version: str | None) -> None:
    """Notes on the schedule that run-now makes this occurrence. Raises TaskChanged if it isn't in the ``version``."""
    _note(store, schedule_id, attr.RAN_NOW, format_instant(nominal), version)


def note_backfill(store: Store, schedule: Schedule, first: datetime, last: datetime) -> None:
    """Notes a backfill on the schedule, with its timing: the range may begin before the schedule was created, or the
    definition may have changed since."""
    entry = schedule.timing() | {attr.FROM: format_instant(first), attr.UNTIL: format_instant(last)}
    _note(store, schedule.schedule_id, attr.BACKFILLED, entry)


def _note(store: Store, schedule_id: str, name: str, entry: object, version: str | None = None) -> None:
    """Adds an entry to a list on the schedule's row: the latest _MAX_NOTES stay."""

    def decide(row: Row) -> ConditionalUpdate:
        earlier = row.get(name)
        kept = [one for one in earlier if one != entry] if isinstance(earlier, (list, tuple)) else []
        notes = {name: [*kept, entry][-_MAX_NOTES:]}
        return ConditionalUpdate(task_id=schedule_id, set=notes, conditions=as_read(row, name), returning=True)

    task_update.carry_out(store, schedule_id, task_update.only_in(version, decide))


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleOccurrence(View):
    """An occurrence of a schedule that was due."""

    FORM = "Occurrence"

    occurrence_at: Annotated[datetime, "Its nominal instant."]
    status: Annotated[
        str,
        "That of its task; missed: it was not made; due: its tick is to come; gone: its task was deleted; unknown: it "
        "was missed or its task was deleted, and the schedule has kept later reasons only.",
    ]
    task_id: str | None = None
    bucket: Annotated[str | None, Json(name=attr.TASK_DATE_TIME)] = None
    finished_at: datetime | None = None
    error: str | None = None
    reason: Annotated[
        str | None, "Why it was not made: outage, too-old, overlap, paused, all-paused, id-taken or too-large."
    ] = None
    run_now: Annotated[bool, Json(optional=True), "An extra occurrence, made by run-now."] = False
    in_time: Annotated[
        bool | None,
        "Whether it completed within `expectedWithinSeconds`. Left out: not yet known, or not asked.",
    ] = None


@dataclass(frozen=True, slots=True)
class ExpectedOccurrence:
    """An occurrence of a schedule that is to come."""

    schedule_id: str
    occurrence_at: datetime  # nominal
    bucket: str  # in which it starts
    action: str | None


def expected_occurrences(schedule: Schedule, now: datetime, count: int) -> list[Occurrence]:
    """The next occurrences, beginning with those that are due."""
    return list(islice(_coming(schedule, now), count))


def nominals_before(schedule: Schedule, now: datetime, end: datetime, limit: int) -> Iterator[datetime]:
    """The first ``limit`` of the next occurrences, beginning with those that are due, before ``end``."""
    found = (one.instant for one in islice(_coming(schedule, now), limit))
    return takewhile(lambda instant: instant < end, found)


def _coming(schedule: Schedule, now: datetime) -> Iterator[Occurrence]:
    """Those that were due when the definition changed are made as they were defined; the others follow from then on."""
    after, nominal, changed = now, schedule.next_occurrence_at, schedule.defined_at
    if schedule.state is ScheduleState.ENABLED and nominal is not None:
        after = nominal - _INSTANT
        while nominal is not None and changed is not None and nominal <= changed:
            yield Occurrence(nominal)
            after, nominal = changed, occurrence_after(schedule, nominal)
    yield from _occurrences(schedule, after)


def occurrences_between(schedule: Schedule, first: datetime, last: datetime, limit: int) -> list[Occurrence]:
    """The first ``limit`` occurrences from ``first`` to ``last``, both included."""
    found: list[Occurrence] = []
    for one in islice(_occurrences(schedule, first - _INSTANT), limit):
        if one.instant > last:
            break
        found.append(one)
    return found


def latest_occurrences(
    store: Store, row: Row, first: datetime | None, last: datetime, limit: int, now: datetime
) -> list[ScheduleOccurrence]:
    """The occurrences from ``first`` to ``last``; without ``first``, the latest ``limit``."""
    if row.get(attr.REVISION) is None:  # no tick has accepted it, so it has had no occurrence
        return []
    eras = list(_eras(row))
    ended = instant_or_none(row.get(attr.FINISHED_AT)) if is_terminal(row) else None
    last = last if ended is None else min(last, ended)
    created = instant_or_none(row.get(attr.CREATED_AT)) or last
    since = created + _INSTANT  # one that was due at that very instant is not made
    instants = _instants(eras, max(first, since) if first else None, since, last, limit)
    schedule = eras[-1][0]
    expected = {schedule.occurrence_id(instant): instant for instant in instants}
    # From its creation on, since run-now may have come before its first occurrence.
    begin = instants[0] if len(instants) >= limit else created.replace(microsecond=0)
    run_now = _run_now_instants(row, schedule, first or begin, last)
    backfilled = sorted(_backfilled(row, first, last).difference(instants))
    backfilled = backfilled[-limit:] if first is None else backfilled[:limit]
    extra = {schedule.occurrence_id(instant): instant for instant in backfilled}
    ids = [*expected, *extra, *run_now]
    rows = store.get_many(ids, only=_SHOWN) if ids else {}
    paused_at = schedule.defined_at if row.get(attr.SCHEDULE_STATE) == str(ScheduleState.DISABLED) else None
    found = [
        _judged(
            _made(task_id, instant, row=rows[task_id]) if task_id in rows else _not_made(instant, schedule, paused_at),
            schedule,
            now,
        )
        for task_id, instant in expected.items()
    ]
    found += [_made(task_id, instant, row=rows[task_id]) for task_id, instant in extra.items() if task_id in rows]
    found += [
        _made(task_id, instant, row=rows[task_id], run_now=True)
        for task_id, instant in run_now.items()
        if task_id in rows
    ]
    found.sort(key=lambda one: one.occurrence_at)
    return found[-limit:] if first is None else found[:limit]


def _occurrences(schedule: Schedule, after: datetime) -> Iterator[Occurrence]:
    return upcoming(schedule.expression, after, zone=schedule.zone, start=schedule.start, end=schedule.end)


def _eras(row: Row) -> Iterator[tuple[Schedule, datetime | None]]:
    """The definitions that a schedule has had, oldest first, each with when it was replaced."""
    present = {**row, attr.SCHEDULE_STATE: None}  # so that an ended one is accepted, too
    kept = row.get(attr.EARLIER)
    for before in kept if isinstance(kept, (list, tuple)) else ():
        if isinstance(before, Mapping):
            timing = dict.fromkeys(
                (attr.CRON_EXPRESSION, attr.START_DATE, attr.END_DATE, attr.SCHEDULE_EXPRESSION_TIMEZONE)
            )
            try:
                yield Schedule.from_row({**present, **timing, **before}), instant_or_none(before.get(attr.UNTIL))
            except InvalidInput:  # a malformed entry
                continue
    yield _latest(present), None


def _latest(row: Row) -> Schedule:
    """The schedule by the row's attributes; if they are invalid, by the last accepted definition."""
    try:
        return Schedule.from_row(row)
    except InvalidInput:
        before = row.get(attr.ACCEPTED_DEFINITION)
        if not isinstance(before, Mapping):
            raise
        unset = dict.fromkeys((*attr.DEFINITION, attr.CATCH_UP, attr.OVERLAP))
        return Schedule.from_row({**row, **unset, **before, attr.SCHEDULE_STATE: None})


def _instants(
    eras: list[tuple[Schedule, datetime | None]],
    first: datetime | None,
    since: datetime,
    last: datetime,
    limit: int,
) -> list[datetime]:
    """The first ``limit`` from ``first`` to ``last``; without ``first``, the latest ones after ``since``."""
    found: list[datetime] = []
    if first is not None:
        for schedule, begin, end in _ranges(eras, first, last):
            found += _nominals(schedule, begin, end, limit - len(found))
        return found
    for schedule, begin, end in reversed(_ranges(eras, since, last)):
        found[:0] = _latest_nominals(schedule, begin, end, limit - len(found))
    return found


def _ranges(
    eras: list[tuple[Schedule, datetime | None]], first: datetime, last: datetime
) -> list[tuple[Schedule, datetime, datetime]]:
    """What of a range each definition was in force, oldest first."""
    ranges = []
    for schedule, until in eras:
        end = last if until is None else min(last, until)
        ranges.append((schedule, first, end))
        first = max(first, end + _INSTANT)
    return ranges


def _nominals(schedule: Schedule, first: datetime, last: datetime, limit: int) -> list[datetime]:
    return [one.instant for one in occurrences_between(schedule, first, last, limit)]


def _latest_nominals(schedule: Schedule, first: datetime, last: datetime, limit: int) -> list[datetime]:
    """The latest ``limit``: they are computed forwards only, so a range with more is halved until it has no more."""
    found = _nominals(schedule, first, last, limit + 1) if limit else []
    if len(found) <= limit:
        return found
    middle = first + (last - first) / 2
    later = _latest_nominals(schedule, middle, last, limit)
    return [*_latest_nominals(schedule, first, middle - _INSTANT, limit - len(later)), *later]


def _run_now_instants(row: Row, schedule: Schedule, first: datetime, last: datetime) -> dict[str, datetime]:
    kept = row.get(attr.RAN_NOW)
    instants = (instant_or_none(value) for value in (kept if isinstance(kept, (list, tuple)) else ()))
    return {
        schedule.occurrence_id(instant, extra=RUN_NOW): instant
        for instant in instants
        if instant is not None and first <= instant <= last
    }


def _backfilled(row: Row, first: datetime | None, last: datetime) -> set[datetime]:
    """The instants of the ranges that were backfilled, each by the timing at that time."""
    kept, found = row.get(attr.BACKFILLED), set[datetime]()
    for entry in kept if isinstance(kept, (list, tuple)) else ():
        former = FormerDefinition.from_row(entry)  # up to the last backfilled one
        since = instant_or_none(entry.get(attr.FROM)) if former is not None else None
        if former is None or since is None:  # a malformed entry
            continue
        nominal = former.next_after((since if first is None else max(since, first)) - _INSTANT)
        while nominal is not None and nominal <= last and len(found) < _MAX_INSTANTS:
            found.add(nominal)
            nominal = former.next_after(nominal)
    return found


def _made(task_id: str, instant: datetime, *, row: Row, run_now: bool = False) -> ScheduleOccurrence:
    return ScheduleOccurrence(
        occurrence_at=instant,
        status=state_shown(row),
        task_id=task_id,
        bucket=text_or_none(row.get(attr.TASK_DATE_TIME)),
        finished_at=instant_or_none(row.get(attr.FINISHED_AT)),
        error=text_or_none(row.get(attr.ERROR)),
        run_now=run_now,
    )


def _judged(one: ScheduleOccurrence, schedule: Schedule, now: datetime) -> ScheduleOccurrence:
    """Returns the occurrence, with whether it completed in time."""
    expected_by = schedule.expected_by(one.occurrence_at)
    if expected_by is None:
        return one
    in_time: bool | None
    if one.status == Status.COMPLETED:
        in_time = None if one.finished_at is None else one.finished_at <= expected_by
    elif one.status in (Status.CANCELLED, "gone", "unknown") or one.reason == MissedFor.PAUSED:
        in_time = None
    else:
        in_time = False if one.status == "missed" or now >= expected_by else None
    return replace(one, in_time=in_time)


def _not_made(instant: datetime, schedule: Schedule, paused_at: datetime | None) -> ScheduleOccurrence:
    """``paused_at``: when a schedule was paused that still is."""
    for missed in reversed(schedule.missed):
        if missed.first <= instant <= missed.last:
            return ScheduleOccurrence(occurrence_at=instant, status="missed", reason=str(missed.reason))
    if paused_at is not None and instant > paused_at:
        return ScheduleOccurrence(occurrence_at=instant, status="missed", reason=str(MissedFor.PAUSED))
    if instant == schedule.buffered_occurrence_at or (
        schedule.next_occurrence_at is not None and instant >= schedule.next_occurrence_at
    ):
        return ScheduleOccurrence(occurrence_at=instant, status="due")
    is_forgotten = len(schedule.missed) >= MAX_MISSED_ENTRIES and instant < schedule.missed[0].first
    return ScheduleOccurrence(occurrence_at=instant, status="unknown" if is_forgotten else "gone")

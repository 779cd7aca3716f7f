"""Schedules as the client returns them and lists them. A row may hold anything, so nothing here refuses one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from typing import Annotated

from dynatick.actions.plain_value import plain
from dynatick.client.task_update import MAX_KEY_BYTES, in_version
from dynatick.client.thread_pool import many_rows
from dynatick.client.views import NextPageToken, instant_or_none, number_or, text_or_none, version_of
from dynatick.domain import attributes as attr
from dynatick.domain.buckets import Grid, instant_of
from dynatick.domain.conditional_update import as_read
from dynatick.domain.durations import exact_text
from dynatick.domain.expressions import Rate, clock_warnings, shortest_gap, upcoming
from dynatick.domain.instants import format_instant
from dynatick.domain.numbers import is_whole
from dynatick.domain.row import RowView, is_terminal
from dynatick.domain.schedule import CatchUp, Missed, Overlap, Schedule, ScheduleState, handed_on, is_or_was_schedule
from dynatick.domain.task import Row, check_subject, size_of
from dynatick.domain.view import Json, View, WholeRow
from dynatick.engine.ports import Store
from dynatick.errors import InvalidInput, StoreError

_COMPARED = 50  # occurrences that are compared with the ticks
_DEFINITION = ("expression", "timezone", "start_date", "end_date", "flexible_time_window", "catch_up", "overlap",
               "expected_within_seconds", "action", "payload")  # fmt: skip
_IN_ROW = {
    "retry_policy": attr.RETRY_POLICY, "timeout_seconds": attr.TIMEOUT_SECONDS, "subject": attr.SUBJECT,
    "limit_key": attr.LIMIT_KEY,
}  # fmt: skip

_TRIES = 20
_TOGETHER = 25  # rows to a read: they may be large
_READ_AHEAD = 200  # rows, read by several requests at a time
_MAX_PAGE_BYTES = 4_000_000  # of rows, after which a page ends


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleView(WholeRow):
    """A schedule as it was when it was read. Instants of occurrences are nominal: those of the expression."""

    TYPED = (attr.TASK_ID, attr.SCHEDULE_STATE, "warnings")

    schedule_id: Annotated[str, Json(name=attr.TASK_ID)]
    expression: Annotated[str | None, Json(name=attr.SCHEDULE_EXPRESSION)]
    timezone: Annotated[str, Json(name=attr.SCHEDULE_EXPRESSION_TIMEZONE)]
    state: Annotated[
        str,
        Json(name=attr.SCHEDULE_STATE),
        "ENABLED, DISABLED (paused), COMPLETED, FAILED; or unscheduled: no tick has read it yet.",
    ]
    state_reason: str | None
    owner: Annotated[str | None, Json(name=attr.SCHEDULE_OWNER), "The deployment that declares it."]
    start_date: datetime | None
    end_date: datetime | None
    flexible_time_window: int
    catch_up: str
    overlap: str
    expected_within_seconds: Annotated[int | None, "When an occurrence must have completed."]
    action: str | None
    payload: Mapping[str, object]
    next_occurrence_at: Annotated[datetime | None, "The next occurrence."]
    last_occurrence_at: Annotated[datetime | None, "The latest one."]
    last_task_id: Annotated[str | None, "The task of that occurrence."]
    missed_occurrences: Annotated[int, "How many were not made, without those of pauses."]
    created_at: datetime | None
    error: Annotated[str | None, "Why it failed."]
    warnings: Annotated[tuple[str, ...], Json(optional=True), "Behaviour that may be unexpected."]
    row: Annotated[Mapping[str, object], Json(hidden=True)] = field(repr=False)  # under the table's names

    @property
    def attributes(self) -> Mapping[str, object]:
        """The row's other attributes, the user's own, which its occurrences get."""
        return handed_on(self.row)

    @property
    def limit_key(self) -> Annotated[object, "What limits its tasks, such as customer:4711."]:
        return self.row.get(attr.LIMIT_KEY)

    @property
    def has_ended(self) -> bool:
        """Whether it makes no more occurrences, for good."""
        return is_terminal(self.row)

    @property
    def missed(self) -> Sequence[Missed]:
        """The latest ones that were not made, and why, the first of them first."""
        kept = self.row.get(attr.MISSED)
        return [known for one in kept if (known := Missed.from_row(one))] if isinstance(kept, list) else []

    @property
    def version(self) -> str:
        """Identifies this state of the row: it changes whenever the row does."""
        return version_of(self.row)

    def differences(self, row: Row, given: Row) -> dict[str, tuple[object, object]]:
        """In which arguments of ``insert`` its definition differs from that of a row which was composed of what was
        ``given``, and not written: its own value, and the row's."""
        other = ScheduleView.from_row(row)
        both = {name: (getattr(self, name), getattr(other, name)) for name in _DEFINITION}
        if given.get(attr.START_DATE) is None and _is_rate(other) and (_is_rate(self) or self.start_date is None):
            del both["start_date"]  # that of its first tick
        both |= {name: (self.row.get(attribute), other.row.get(attribute)) for name, attribute in _IN_ROW.items()}
        return {name: (own, others) for name, (own, others) in both.items() if own != others}

    @classmethod
    def from_row(cls, row: Row, *, warnings: tuple[str, ...] = ()) -> ScheduleView:
        values = {name: plain(value) for name, value in row.items()}
        payload = values.get(attr.PAYLOAD)
        expression = next((row[name] for name in attr.RECURRENCE if row.get(name) is not None), None)
        return cls(
            schedule_id=RowView(row).task_id,
            expression=text_or_none(expression),
            timezone=text_or_none(row.get(attr.SCHEDULE_EXPRESSION_TIMEZONE)) or "UTC",
            state=text_or_none(row.get(attr.SCHEDULE_STATE)) or "unscheduled",
            state_reason=text_or_none(row.get(attr.STATE_REASON)),
            owner=text_or_none(row.get(attr.SCHEDULE_OWNER)),
            start_date=instant_or_none(row.get(attr.START_DATE)),
            end_date=instant_or_none(row.get(attr.END_DATE)),
            flexible_time_window=number_or(row.get(attr.FLEXIBLE_TIME_WINDOW), 0),
            catch_up=text_or_none(row.get(attr.CATCH_UP)) or str(CatchUp.LATEST),
            overlap=text_or_none(row.get(attr.OVERLAP)) or str(Overlap.SKIP),
            expected_within_seconds=_seconds_or_none(row.get(attr.EXPECTED_WITHIN_SECONDS)),
            action=text_or_none(row.get(attr.ACTION)),
            payload=payload if isinstance(payload, dict) else {},
            next_occurrence_at=instant_or_none(row.get(attr.NEXT_OCCURRENCE_AT)),
            last_occurrence_at=instant_or_none(row.get(attr.LAST_OCCURRENCE_AT)),
            last_task_id=text_or_none(row.get(attr.LAST_TASK_ID)),
            missed_occurrences=number_or(row.get(attr.MISSED_OCCURRENCES), 0),
            created_at=instant_or_none(row.get(attr.CREATED_AT)),
            error=text_or_none(row.get(attr.ERROR)),
            warnings=warnings,
            row=values,
        )

    def to_row(self) -> dict[str, object]:
        """Returns the row, with the state ``unscheduled`` if it has none, and the warnings."""
        return {**self.row, attr.SCHEDULE_STATE: self.state} | (
            {"warnings": list(self.warnings)} if self.warnings else {}
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class SchedulePage(View):
    """A page of the schedules, in order of state and id."""

    FORM = "ScheduleList"

    schedules: tuple[ScheduleView, ...]
    next_page_token: NextPageToken = None


def warnings_of(row: Row, grid: Grid, now: datetime) -> tuple[str, ...]:
    """Warnings about behaviour that may be unexpected. None for a schedule that has ended or is invalid."""
    if is_terminal(row):
        return ()
    try:
        schedule = Schedule.from_row(row)
        ticks, policies = _of_ticks(schedule, grid, now), _of_policies(schedule)
        return (*ticks, *_of_deadlines(schedule, grid), *policies, *_of_clocks(schedule, now))
    except InvalidInput:
        return ()


def _of_ticks(schedule: Schedule, grid: Grid, now: datetime) -> list[str]:
    tick = timedelta(minutes=grid.tick_minutes)
    gap = shortest_gap(schedule.expression)
    if gap < tick:
        makes = "each of them is made" if schedule.overlap is Overlap.ALLOW else "overlap decides which are made"
        return [
            f"its occurrences come as close as {exact_text(gap)}, and ticks every {exact_text(tick)}: "
            f"several fall due at one tick, and {makes}"
        ]
    if gap % tick and isinstance(schedule.expression, Rate):
        return [
            f"its interval of {exact_text(gap)} is not a multiple of the tick interval, {exact_text(tick)}: "
            "each occurrence starts at the first tick after its time"
        ]
    off = _between_ticks(schedule, grid, now)
    if off is not None:
        return [
            f"it has times between the ticks, which come every {exact_text(tick)}, such as {format_instant(off)}: "
            "such an occurrence starts at the first tick after its time"
        ]
    return []


def _between_ticks(schedule: Schedule, grid: Grid, now: datetime) -> datetime | None:
    """The first of the next occurrences between two ticks. None with a window, which spreads starts anyway."""
    if schedule.window_minutes or (isinstance(schedule.expression, Rate) and schedule.start is None):
        return None
    occurrences = upcoming(schedule.expression, now, zone=schedule.zone, start=schedule.start, end=schedule.end)
    nominals = (one.instant for one in islice(occurrences, _COMPARED))
    return next((one for one in nominals if instant_of(grid.tick_at_or_after(one)) != one), None)


def _of_deadlines(schedule: Schedule, grid: Grid) -> list[str]:
    """Occurrences that are overdue although nothing goes wrong."""
    tick, seconds = timedelta(minutes=grid.tick_minutes), schedule.expected_within_seconds
    found: list[str] = []
    if seconds is None:
        return found
    if timedelta(seconds=seconds) < tick:
        found.append(
            f"its expectedWithinSeconds, {seconds}, is shorter than the tick interval, {exact_text(tick)}: "
            "an occurrence between ticks may be overdue before it begins"
        )
    if shortest_gap(schedule.expression) < tick and schedule.overlap is not Overlap.ALLOW:
        found.append(
            "of several occurrences at one tick, those that overlap leaves out are overdue: "
            "set overlap allow, or no expectedWithinSeconds"
        )
    return found


def _of_policies(schedule: Schedule) -> list[str]:
    if schedule.catch_up is CatchUp.ALL and schedule.overlap is Overlap.SKIP:
        return ["catchUp all with overlap skip: of several late occurrences only the first is made; set overlap allow"]
    return []


def _of_clocks(schedule: Schedule, now: datetime) -> list[str]:
    """The clock changes that affect its occurrences within a year."""
    found = clock_warnings(schedule.expression, now, zone=schedule.zone, start=schedule.start, end=schedule.end)
    return [f"{one} ({schedule.zone})" for one in found]


def _is_rate(view: ScheduleView) -> bool:
    return str(view.expression).strip().startswith("rate(")


def _seconds_or_none(value: object) -> int | None:
    return int(value) if is_whole(value) else None


def schedule_page(
    store: Store, state: str | None, limit: int, page_token: str | None, *, subject: str | None = None
) -> SchedulePage:
    """One page of the schedules of a state, or of all states; only of a subject, if there is one. Raises
    InvalidInput."""
    keys = _keys(state, subject)
    first, after = _position(page_token, list(keys))
    found: list[ScheduleView] = []
    size = 0
    for n, (one, (name, value)) in enumerate(islice(keys.items(), first, None), first):
        while True:
            page = store.listed_by(name, value, after=after, limit=limit - len(found))
            for part in (page.ids[at : at + _TOGETHER] for at in range(0, len(page.ids), _TOGETHER)):
                rows = store.get_many(part)
                for task_id in part:
                    if size >= _MAX_PAGE_BYTES:
                        return SchedulePage(schedules=tuple(found), next_page_token=f"{one}:{after}")
                    after = task_id
                    if (row := rows.get(task_id)) is not None and _is_listed(row, name, value, state):
                        found.append(ScheduleView.from_row(row))
                        size += size_of(row)
            after = page.after
            if len(found) >= limit and (after is not None or n + 1 < len(keys)):
                token = f"{one}:{after}" if after is not None else f"{list(keys)[n + 1]}:"
                return SchedulePage(schedules=tuple(found), next_page_token=token)
            if after is None:
                break
    return SchedulePage(schedules=tuple(found))


def _keys(state: str | None, subject: str | None) -> dict[str, tuple[str, str]]:
    """The keys of an index under which schedules are listed, by their names in page tokens. Raises InvalidInput."""
    states = [check_state(state)] if state is not None else [str(one) for one in ScheduleState]
    if subject is not None:
        return {"subject": (attr.SUBJECT, check_subject(subject))}
    return {one: (attr.SCHEDULE_STATE, one) for one in states}


def _is_listed(row: Row, name: str, value: str, state: str | None) -> bool:
    return row.get(name) == value and is_or_was_schedule(row) and state in (None, row.get(attr.SCHEDULE_STATE))


def schedule_rows(store: Store, states: Iterable[str], *, subject: str | None = None) -> Iterator[Row]:
    """The whole rows of the schedules of some states, or of a subject in whatever state, read as they are consumed.
    Raises InvalidInput."""
    keys = [(attr.SCHEDULE_STATE, one) for one in states] if subject is None else _keys(None, subject).values()
    for name, value in keys:
        after = None
        while True:
            page = store.listed_by(name, value, after=after, limit=_READ_AHEAD)
            rows = many_rows(store, page.ids)
            yield from (rows[one] for one in page.ids if one in rows and _is_listed(rows[one], name, value, None))
            if (after := page.after) is None:
                break


def delete_schedule(store: Store, schedule_id: str, row: Row | None, version: str | None = None) -> None:
    """Removes a schedule whose row was read. The delete is conditional: a row that replaces it at this very moment
    belongs to another caller, and may be a task. Raises TaskChanged if it isn't in the ``version``, StoreError."""
    for _ in range(_TRIES):
        if row is None or not is_or_was_schedule(row):
            return
        decisive = as_read(row, attr.OUTCOME, attr.STATUS, *attr.RECURRENCE)
        if store.delete(schedule_id, conditions=decisive if version is None else in_version(row, version)):
            return
        row = store.get(schedule_id)
    raise StoreError(f"cannot delete {schedule_id!r}: other requests changed it {_TRIES} times")


def check_state(state: object) -> str:
    """A ``scheduleState``. Raises InvalidInput."""
    for known in ScheduleState:
        if state == str(known):
            return str(known)
    raise InvalidInput(attr.SCHEDULE_STATE, state, f"expected one of {', '.join(ScheduleState)}")


def _position(token: object, states: list[str]) -> tuple[int, str | None]:
    """Where a page begins: the index of its first state, and the id before its first schedule."""
    if token is None:
        return 0, None
    state, colon, after = token.partition(":") if isinstance(token, str) else ("", "", "")
    if not colon or state not in states or len(after.encode("utf-8", "replace")) > MAX_KEY_BYTES:
        raise InvalidInput("pageToken", token, "expected the token of the page before, with the same state")
    return states.index(state), after or None

"""Recurring schedules: insert, look up, edit, pause, and see what they did and will do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from decimal import Decimal

from dynatick.client import task_update
from dynatick.client.bucket_scope import instants
from dynatick.client.history import check_limit
from dynatick.client.insertion import Exists, Failed, Inserted, InsertResult
from dynatick.client.new_task import Composed, NewTask, Time, payload_of, row_of, text_of
from dynatick.client.schedule_occurrences import (
    ScheduleOccurrence,
    expected_occurrences,
    latest_occurrences,
    occurrences_between,
)
from dynatick.client.schedule_views import SchedulePage, ScheduleView, warnings_of
from dynatick.client.settings_cache import SettingsCache
from dynatick.client.views import TaskView
from dynatick.domain.buckets import Bucket, Grid, instant_of, minute_of, parse_time
from dynatick.domain.conditional_update import ConditionalUpdate, as_read, merge_updates
from dynatick.domain.expressions import Occurrence, Rate
from dynatick.domain.instants import format_instant
from dynatick.domain.normalise import Defaults
from dynatick.domain.recurrence import edited, occurrence
from dynatick.domain.retry import RetryPolicy
from dynatick.domain.schedule import (
    DEFINITION,
    RECURRENCE,
    SCHEDULE_ATTRIBUTES,
    Schedule,
    ScheduleState,
    check_schedule_id,
    is_or_was_schedule,
)
from dynatick.domain.task import Row, check_action, size_of
from dynatick.domain.timeout import check_timeout
from dynatick.engine.ports import Clock, Store, StoreFailure
from dynatick.errors import (
    InvalidInput,
    InvalidInputs,
    ItemTooLarge,
    ScheduleNotFound,
    StoreError,
    TaskExists,
    TransitionRefused,
)
from dynatick.store.codec import check_size

MAX_BACKFILL = 1000
_TRIES = 20
_TOGETHER = 25  # rows that are fetched at a time: they may be large
_PAGE_BYTES = 4_000_000  # of large rows, after which a page ends
_OPEN = (str(ScheduleState.ENABLED), str(ScheduleState.DISABLED))
_GIVEN = frozenset({*DEFINITION, "catchUp", "overlap", "stateReason"})  # what whoever inserts a schedule may say of it
_KEPT = 10  # runs by hand, and backfills, that a history finds
UPDATABLE = {
    "expression": "scheduleExpression",
    "timezone": "scheduleExpressionTimezone",
    "start_date": "startDate",
    "end_date": "endDate",
    "flexible_time_window": "flexibleTimeWindow",
    "action": "action",
    "payload": "payload",
    "retry_policy": "retryPolicy",
    "timeout_seconds": "timeoutSeconds",
    "catch_up": "catchUp",
    "overlap": "overlap",
}


class Schedules:
    """The schedules of a table, as ``TaskClient.schedules``.

    Arguments mean what the attributes of the same name mean (``start_date``: ``startDate``). Methods raise InvalidInput
    for what cannot be taken, before anything is written; ScheduleNotFound; StoreError if the table does not answer.
    """

    def __init__(self, store: Store, settings_cache: SettingsCache, clock: Clock, *, check_actions: bool) -> None:
        self._store, self._settings_cache, self._clock = store, settings_cache, clock
        self._check_actions = check_actions

    def insert(
        self,
        schedule_id: str,
        expression: str,
        *,
        timezone: str | None = None,
        start_date: Time | None = None,
        end_date: Time | None = None,
        flexible_time_window: int | None = None,
        action: str | None = None,
        payload: Mapping[str, object] | None = None,
        retry_policy: RetryPolicy | Mapping[str, object] | None = None,
        timeout_seconds: int | Decimal | None = None,
        catch_up: str | None = None,
        overlap: str | None = None,
        enabled: bool = True,
        reason: str | None = None,
        attributes: Mapping[str, object] | None = None,
    ) -> ScheduleView:
        """Inserts a schedule, and returns it as it was written, with warnings about what may surprise.

        ``expression``: ``rate(…)``, ``cron(…)`` or ``at(…)``; ``timezone``: an IANA name, UTC by default.
        ``flexible_time_window``: minutes over which starts are spread. ``catch_up``: latest (default), all, none.
        ``overlap``: skip (default), allow, bufferOne. ``enabled`` False: it begins paused, for the ``reason`` that is
        kept as ``stateReason``. Raises TaskExists if there is a row of this id.
        """
        if isinstance(attributes, Mapping):
            for name in attributes:
                if name in SCHEDULE_ATTRIBUTES:
                    raise InvalidInput(name, attributes[name], "it has an argument of its own, or is set by Dynatick")
        template = NewTask(
            task_id=schedule_id,
            action=action,
            payload=payload,
            retry_policy=retry_policy,
            timeout_seconds=timeout_seconds,
            attributes={} if attributes is None else attributes,
        )
        recurrence: dict[str, object] = {
            "scheduleExpression": expression,
            "scheduleExpressionTimezone": timezone,
            "startDate": start_date,
            "endDate": end_date,
            "flexibleTimeWindow": flexible_time_window,
            "catchUp": None if catch_up is None else str(catch_up),
            "overlap": None if overlap is None else str(overlap),
            "scheduleState": None if enabled else str(ScheduleState.DISABLED),
            "stateReason": None if reason is None else text_of(reason, "stateReason"),
        }
        now = self._clock()
        row = self._composed(template, recurrence, now).row
        if not self._store.create(row):
            raise TaskExists(schedule_id)
        return self._view(row, now)

    def compose(self, row: Mapping[str, object]) -> Composed:
        """A new schedule's row, from one under the table's names as put-item would take it. Raises InvalidInput."""
        recurrence = {name: row[name] for name in _GIVEN if row.get(name) is not None}
        others = {name: value for name, value in row.items() if name not in _GIVEN}
        for name in sorted(others.keys() & SCHEDULE_ATTRIBUTES):
            raise InvalidInput(name, others[name], "leave it out: it is set by Dynatick")
        if "stateReason" in recurrence:
            recurrence["stateReason"] = text_of(recurrence["stateReason"], "stateReason")
        return self._composed(NewTask.from_row(others), recurrence, self._clock())

    def _composed(self, template: NewTask, recurrence: Mapping[str, object], now: datetime) -> Composed:
        """The row to be written, checked. Raises InvalidInput."""
        wrong = InvalidInputs()
        row = row_of(template, wrong)
        if "taskId" in row:
            with wrong:
                check_schedule_id(template.task_id)
        for name, value in recurrence.items():
            if value is not None:
                with wrong:
                    row[name] = _date(value, name) if name in ("startDate", "endDate") else value
        if template.action is None or "action" in row:
            with wrong:
                self._check_action(row)
        if row.get("timeoutSeconds") is not None:
            with wrong:
                self._settings_cache.check_timeout(row["timeoutSeconds"])
        with wrong:
            _check_recurrence(row)
        wrong.raise_all()
        change = edited(row, {}, now=now, grid=self._grid(), defaults=self._defaults())
        whole = {name: value for name, value in {**row, **change.set}.items() if name not in change.remove}
        check_size(whole)
        # Before the first tick nobody knows the default action nor the ticks: then the scheduler completes it.
        complete = self._can_complete(row)
        return Composed(whole if complete else row, complete)

    def get(self, schedule_id: str) -> ScheduleView:
        """The schedule, read consistently."""
        return self._view(self._row(schedule_id), self._clock())

    def list(self, state: str | None = None, *, limit: int = 100, page_token: str | None = None) -> SchedulePage:
        """Schedules in order of state and id: those of one state (ENABLED, DISABLED, COMPLETED, FAILED), or all.

        ``limit``: at most so many, up to 1,000, and fewer if they are large; the last page has no ``next_page_token``.
        Without warnings.
        """
        states = [_state(state)] if state is not None else [str(one) for one in ScheduleState]
        check_limit(limit)
        first, after = _position(page_token, states)
        found: list[ScheduleView] = []
        size = 0
        for n, one in enumerate(states[first:], first):
            while True:
                page = self._store.schedules(one, after=after, limit=limit - len(found))
                for part in (page.ids[at : at + _TOGETHER] for at in range(0, len(page.ids), _TOGETHER)):
                    rows = self._store.get_many(part)
                    for task_id in part:
                        if size >= _PAGE_BYTES:
                            return SchedulePage(schedules=tuple(found), next_page_token=f"{one}:{after}")
                        after = task_id
                        if (row := rows.get(task_id)) is not None and row.get("scheduleState") == one:
                            found.append(ScheduleView.from_row(row))
                            size += size_of(row)
                after = page.after
                if len(found) >= limit and (after is not None or n + 1 < len(states)):
                    token = f"{one}:{after}" if after is not None else f"{states[n + 1]}:"
                    return SchedulePage(schedules=tuple(found), next_page_token=token)
                if after is None:
                    break
        return SchedulePage(schedules=tuple(found))

    def export(self, state: str | None = None) -> Iterator[Row]:
        """Whole rows, as they are consumed: of one state, or of those that have not ended. Numbers as Decimal."""
        return self._rows((_state(state),) if state is not None else _OPEN)

    def update(self, schedule_id: str, *, version: str | None = None, **edits: object) -> ScheduleView:
        """Changes what is given, by the names of ``insert``'s arguments; None takes an attribute off.

        ``version``: only if the schedule is still the one that a ``ScheduleView`` showed, by its ``version``; else
        TaskChanged. Each run changes it, too.

        Occurrences that were made already stay as they are; runs that are due now are still made; what comes after
        them follows the new definition, from now on. Raises TransitionRefused if the schedule has ended.
        """
        unknown = next((name for name in edits if name not in UPDATABLE), None)
        if unknown is not None:
            raise InvalidInput(unknown, edits[unknown], f"expected any of {', '.join(UPDATABLE)}")
        wanted: dict[str, object] = {}
        wrong = InvalidInputs()
        for name, value in edits.items():
            with wrong:
                wanted[UPDATABLE[name]] = _as_stored(name, value)
        with wrong:
            if wanted.get("scheduleExpression", "") is None:
                raise InvalidInput("scheduleExpression", None, "a schedule has one; delete the schedule to end it")
        if wanted.get("timeoutSeconds") is not None:
            with wrong:
                self._settings_cache.check_timeout(wanted["timeoutSeconds"])
        with wrong:
            _check_recurrence(wanted)
        if wrong and wanted.keys() & {"action", "payload"}:
            with wrong:  # so that all that is wrong is told
                self._check_action({**(self._store.get(task_update.known_id(schedule_id)) or {}), **wanted})
        wrong.raise_all()
        return self._edit(schedule_id, "update", lambda row: wanted, version)

    def pause(self, schedule_id: str, reason: str | None = None) -> ScheduleView:
        """No further run falls due from now on. Those that are due now are still made."""
        noted = None if reason is None else text_of(reason, "stateReason")
        edits = {"scheduleState": str(ScheduleState.DISABLED), "stateReason": noted}
        return self._edit(schedule_id, "pause", lambda row: edits if _is_enabled(row) else {"stateReason": noted})

    def resume(self, schedule_id: str) -> ScheduleView:
        """Runs are made again, from now on; those of the pause are not made up."""

        def edits(row: Row) -> dict[str, object]:
            if _is_enabled(row):
                return {}
            return {"scheduleState": str(ScheduleState.ENABLED), "stateReason": None}

        return self._edit(schedule_id, "resume", edits)

    def delete(self, schedule_id: str) -> None:
        """Ends the schedule and removes its row. Occurrences that were made stay."""
        row: Row | None = self._row(schedule_id)
        for _ in range(_TRIES):
            # What somebody puts in its place at this very moment is another's, and may be a task.
            if row is None or not is_or_was_schedule(row):
                return
            if self._store.delete(schedule_id, conditions=as_read(row, "outcome", "status", *RECURRENCE)):
                return
            row = self._store.get(schedule_id)
        raise StoreError(f"cannot delete {schedule_id!r}: it was changed by others {_TRIES} times")

    def run_now(self, schedule_id: str) -> TaskView:
        """One occurrence at the next tick, beside the expression, be the schedule paused or not.

        Raises TaskExists if there was one this second already; TransitionRefused if the schedule has ended.
        """
        row = self._row(schedule_id)
        schedule, now = _open(row, "run"), self._clock()
        nominal = now.replace(microsecond=0)
        task = self._occurrence(row, schedule, nominal, extra="#now")
        self._note_occurrence(schedule_id, nominal)  # first, so that no run is made that the history would not know of
        if not self._store.create(task):
            raise TaskExists(str(task["taskId"]))
        return TaskView.from_row(task)

    def preview(self, schedule_id: str, count: int = 10) -> Sequence[Occurrence]:
        """The next runs, with notes where a clock's jump skips or doubles one. A paused one's as if it were resumed."""
        check_limit(count, "count")
        row = self._row(schedule_id)
        if row.get("outcome") is not None:
            return []
        return expected_occurrences(self._begun(row), self._clock(), count)

    def backfill(self, schedule_id: str, *, start: Time, end: Time, dry_run: bool = False) -> Iterator[InsertResult]:
        """Makes the occurrences of nominal instants from ``start`` to ``end`` (itself part of it, and not after now)
        that were not made: at the next tick, one result each, in order. Those that are there stay as they are.

        At most 1,000 at a time. ``dry_run``: says only which are missing. Overlap is not looked at.
        """
        row = self._row(schedule_id)
        _open(row, "backfill")
        schedule, now = self._begun(row), self._clock()
        first, last = instants(start, end)
        last = min(last, now)
        if last < first:
            raise InvalidInput("end", str(end), f"expected it not to be before start, {start}, which must be past")
        runs = [run.instant for run in occurrences_between(schedule, first, last, MAX_BACKFILL + 1)]
        if len(runs) > MAX_BACKFILL:
            raise InvalidInput(
                "end", str(end), f"there are more than {MAX_BACKFILL} runs in this range: take it in parts"
            )
        rows = [self._occurrence(row, schedule, run) for run in runs]
        if runs and not dry_run:
            self._note_backfill(schedule, runs[0], runs[-1])
        return self._insert(rows, dry_run)

    def history(
        self,
        schedule_id: str,
        *,
        start: Time | None = None,
        end: Time | None = None,
        limit: int = 100,
    ) -> Sequence[ScheduleOccurrence]:
        """What became of the runs from ``start`` to ``end`` (default: now), oldest first; without ``start``, of the
        latest ``limit``. Runs that were not made are told with the reason.
        """
        check_limit(limit)
        row, now = self._row(schedule_id), self._clock()
        begin, last = instants(now if start is None else start, now if end is None else end)
        first, last = None if start is None else begin, min(last, now)
        if first is not None and last < first:
            raise InvalidInput(
                "end", str(end or now), f"expected it not to be before start, {start}, which must be past"
            )
        return latest_occurrences(self._store, row, first, last, limit)

    def _insert(self, rows: Iterable[Row], dry_run: bool) -> Iterator[InsertResult]:
        many = list(rows)
        ids = [str(row["taskId"]) for row in many]
        if dry_run:
            there = self._store.get_many(ids, only=("status",))
            answers: Iterable[bool | StoreFailure] = [task_id not in there for task_id in ids]
        else:
            answers = self._store.create_many(many)
        for position, (task_id, answer) in enumerate(zip(ids, answers, strict=True)):
            if isinstance(answer, StoreFailure):
                kind = ItemTooLarge if answer.too_large else StoreError
                yield Failed(position, task_id, kind(answer.error))
            else:
                yield Inserted(position, task_id) if answer else Exists(position, task_id)

    def _occurrence(self, row: Row, schedule: Schedule, nominal: datetime, extra: str = "") -> Row:
        now, grid = self._clock(), self._grid()
        task_id = schedule.occurrence_id(nominal, extra=extra)
        bucket = Bucket(grid.tick_after(minute_of(now)), grid.shard_of(task_id))
        with_action = row if row.get("action") is not None else {**row, "action": self._defaults().action}
        return occurrence(with_action, schedule, nominal, bucket, now=now, extra=extra)

    def _note_occurrence(self, schedule_id: str, nominal: datetime) -> None:
        """So that the schedule's history finds it."""
        instant = format_instant(nominal)

        def note(row: Row) -> dict[str, object]:
            earlier = row.get("ranNow")
            kept = [one for one in earlier if one != instant] if isinstance(earlier, (list, tuple)) else []
            return {"ranNow": [*kept, instant][-_KEPT:]}

        self._note(schedule_id, "ranNow", note)

    def _note_backfill(self, schedule: Schedule, first: datetime, last: datetime) -> None:
        """Likewise: it may go back beyond the schedule's creation, or name other times than the definition of then."""
        entry = schedule.timing() | {"from": format_instant(first), "until": format_instant(last)}

        def note(row: Row) -> dict[str, object]:
            earlier = row.get("backfilled")
            kept = [one for one in earlier if one != entry] if isinstance(earlier, (list, tuple)) else []
            return {"backfilled": [*kept, entry][-_KEPT:]}

        self._note(schedule.schedule_id, "backfilled", note)

    def _note(self, schedule_id: str, name: str, note: Callable[[Row], dict[str, object]]) -> None:
        task_update.carry_out(
            self._store,
            schedule_id,
            lambda row: ConditionalUpdate(
                task_id=schedule_id, set=note(row), conditions=as_read(row, name), returning=True
            ),
        )

    def _edit(
        self,
        schedule_id: str,
        wish: str,
        edits_of: Callable[[Row], Mapping[str, object]],
        version: str | None = None,
    ) -> ScheduleView:
        self._row(schedule_id)
        grid, defaults = self._grid(), self._defaults()

        def decide(row: Row) -> ConditionalUpdate:
            _open(row, wish)
            now, edits = self._clock(), dict(edits_of(row))
            if edits.keys() & {"action", "payload"}:  # what is there already does not keep a schedule from being paused
                self._check_action({**row, **edits})
            change = edited(row, edits, now=now, grid=grid, defaults=defaults)
            check_size({**row, **change.set})
            if row.get("status") is None and not self._can_complete({**row, **edits}):
                gone = tuple(name for name, value in edits.items() if value is None and name in row)
                set_ = {name: value for name, value in edits.items() if value is not None}
                change = ConditionalUpdate(
                    task_id=schedule_id, set=set_, remove=gone, conditions=change.conditions, returning=True
                )
            if not change.set and not change.remove:  # there is nothing to do; this says so with a write
                change = ConditionalUpdate(
                    task_id=schedule_id, set={"scheduleId": schedule_id}, conditions=change.conditions, returning=True
                )
            return change if version is None else merge_updates(change, conditions=task_update.in_version(row, version))

        return self._view(task_update.carry_out(self._store, schedule_id, decide), self._clock())

    def _rows(self, states: Iterable[str]) -> Iterator[Row]:
        for state in states:
            after = None
            while True:
                page = self._store.schedules(state, after=after, limit=_TOGETHER)
                rows = self._store.get_many(page.ids) if page.ids else {}
                yield from (rows[one] for one in page.ids if one in rows and rows[one].get("scheduleState") == state)
                if (after := page.after) is None:
                    break

    def _row(self, schedule_id: str) -> Row:
        row = self._store.get(task_update.known_id(schedule_id))
        if row is None or not is_or_was_schedule(row):
            raise ScheduleNotFound(schedule_id)
        return row

    def _begun(self, row: Row) -> Schedule:
        """The schedule of a row; of a rate that nobody has looked at yet as if it began now."""
        schedule = Schedule.from_row(row)
        if schedule.start is None and isinstance(schedule.expression, Rate):
            return replace(schedule, start=instant_of(self._grid().tick_after(minute_of(self._clock()))))
        return schedule

    def _can_complete(self, row: Row) -> bool:
        """Whether this knows all that the scheduler would set: the ticks in force, and the default action."""
        settings = self._settings_cache.current()
        return settings is not None and (row.get("action") is not None or settings.default_action is not None)

    def _view(self, row: Row, now: datetime) -> ScheduleView:
        return ScheduleView.from_row(row, warnings=warnings_of(row, self._grid(), now))

    def _check_action(self, row: Row) -> None:
        action = row.get("action")
        if action is not None and self._check_actions:
            self._settings_cache.check_action(check_action(action))
        name = self._defaults().action if action is None else check_action(action)
        self._settings_cache.check_payload(name, row.get("payload"), of_handlers=self._check_actions)

    def _grid(self) -> Grid:
        settings = self._settings_cache.current()
        return settings.grid if settings else Grid()

    def _defaults(self) -> Defaults:
        settings = self._settings_cache.current()
        action = settings.default_action if settings else None
        days = settings.retention_days if settings else None
        plain = Defaults()
        return Defaults(
            action=plain.action if action is None else action,
            retention_days=plain.retention_days if days is None else days,
        )


def _check_recurrence(row: Row) -> None:
    """Checks each attribute that says when a schedule runs, and how, by itself. Raises InvalidInput for all that are
    wrong; how they go together is seen when the schedule is made of them."""
    wrong = InvalidInputs()
    for name in row:
        if name in _GIVEN and row[name] is not None:
            expression = {} if name in RECURRENCE else {"scheduleExpression": "rate(1 day)"}
            with wrong:
                Schedule.from_row({"taskId": "-", **expression, name: row[name]})
    wrong.raise_all()


def _open(row: Row, wish: str) -> Schedule:
    """Raises TransitionRefused for a schedule that has ended."""
    if row.get("outcome") is not None:
        state = str(row.get("scheduleState", row["outcome"]))
        allowed = (ScheduleState.ENABLED, ScheduleState.DISABLED)
        raise TransitionRefused(str(row["taskId"]), wish, state, allowed, what="schedule")
    return Schedule.from_row(row)


def _is_enabled(row: Row) -> bool:
    return row.get("scheduleState") in (None, str(ScheduleState.ENABLED))


def _as_stored(name: str, value: object) -> object:
    if value is None:
        return None
    match name:
        case "start_date" | "end_date":
            return _date(value, UPDATABLE[name])
        case "payload":
            return payload_of(value)
        case "retry_policy":
            if isinstance(value, RetryPolicy):
                return value.to_row()
            RetryPolicy.from_row(value)
            return value
        case "timeout_seconds":
            return check_timeout(value)
        case "action":
            return text_of(value, "action")
        case "catch_up" | "overlap":
            return str(value)
        case _:
            return value


def _date(value: object, name: str) -> str | None:
    return None if value is None else format_instant(_instant(value, name))


def _instant(value: object, name: str) -> datetime:
    found = parse_time(str(value) if isinstance(value, Bucket) else value, name)
    return found.instant if isinstance(found, Bucket) else found


def _state(state: object) -> str:
    for known in ScheduleState:
        if state == str(known):
            return str(known)
    raise InvalidInput("scheduleState", state, f"expected one of {', '.join(ScheduleState)}")


def _position(token: object, states: list[str]) -> tuple[int, str | None]:
    if token is None:
        return 0, None
    state, colon, after = token.partition(":") if isinstance(token, str) else ("", "", "")
    if not colon or state not in states or len(after.encode("utf-8", "replace")) > task_update.MAX_KEY_BYTES:
        raise InvalidInput("pageToken", token, "expected the token of the page before, with the same state")
    return states.index(state), after or None

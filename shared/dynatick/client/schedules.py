"""The client for recurring schedules in Python."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from decimal import Decimal

from dynatick.client import task_update
from dynatick.client.history import check_limit
from dynatick.client.insertion import InsertResult
from dynatick.client.new_task import Composed, NewTask, row_of, stored_value
from dynatick.client.schedule_occurrences import (
    RUN_NOW,
    ExpectedOccurrence,
    ScheduleOccurrence,
    expected_occurrences,
    insert_occurrences,
    latest_occurrences,
    nominals_before,
    note_backfill,
    note_run_now,
    occurrences_between,
)
from dynatick.client.schedule_sync import ScheduleChange, SyncResult, compare, own_rows
from dynatick.client.schedule_views import (
    SchedulePage,
    ScheduleView,
    check_state,
    delete_schedule,
    schedule_page,
    schedule_rows,
    warnings_of,
)
from dynatick.client.settings_cache import SettingsCache
from dynatick.client.views import TaskView, text_or_none, version_of
from dynatick.domain import attributes as attr
from dynatick.domain.buckets import Bucket, Time, instant_of, minute_of
from dynatick.domain.conditional_update import ConditionalUpdate, merge_updates
from dynatick.domain.expressions import Occurrence, Rate
from dynatick.domain.instants import EPOCH
from dynatick.domain.occurrences import occurrence_row
from dynatick.domain.recurrence import bucket_of_occurrence, edited
from dynatick.domain.retry import RetryPolicy
from dynatick.domain.row import RowView, is_terminal
from dynatick.domain.schedule import (
    Schedule,
    ScheduleState,
    check_owner,
    check_schedule_id,
    is_or_was_schedule,
    is_schedule,
)
from dynatick.domain.selection import instants
from dynatick.domain.task import Row, check_action
from dynatick.engine.conditional_write import create, write
from dynatick.engine.ports import Clock, Store
from dynatick.errors import (
    InvalidInput,
    InvalidInputs,
    ScheduleNotFound,
    StoreError,
    TaskExists,
    TransitionRefused,
)
from dynatick.store.codec import with_item

MAX_BACKFILL = 1000
MAX_FORECAST = 100_000
_TRIES = 20
_NOT_ENDED = (str(ScheduleState.ENABLED), str(ScheduleState.DISABLED))
_INPUT = (*attr.DEFINITION, attr.CATCH_UP, attr.OVERLAP, attr.EXPECTED_WITHIN_SECONDS, attr.STATE_REASON)
"""Attributes of a schedule, beside those that its tasks get, that a caller may set."""

UPDATABLE = {
    "expression": attr.SCHEDULE_EXPRESSION,
    "timezone": attr.SCHEDULE_EXPRESSION_TIMEZONE,
    "start_date": attr.START_DATE,
    "end_date": attr.END_DATE,
    "flexible_time_window": attr.FLEXIBLE_TIME_WINDOW,
    "action": attr.ACTION,
    "payload": attr.PAYLOAD,
    "retry_policy": attr.RETRY_POLICY,
    "timeout_seconds": attr.TIMEOUT_SECONDS,
    "limit_key": attr.LIMIT_KEY,
    "catch_up": attr.CATCH_UP,
    "overlap": attr.OVERLAP,
    "expected_within_seconds": attr.EXPECTED_WITHIN_SECONDS,
}


class Schedules:
    """The schedules of a table, as ``TaskClient.schedules``.

    Arguments mean what the attributes of the same name mean (``start_date``: ``startDate``). Methods raise InvalidInput
    for invalid arguments, before anything is written; ScheduleNotFound; StoreError if the table does not answer.
    """

    def __init__(self, store: Store, settings_cache: SettingsCache, clock: Clock) -> None:
        self._store, self._settings_cache, self._clock = store, settings_cache, clock

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
        subject: str | None = None,
        limit_key: str | None = None,
        catch_up: str | None = None,
        overlap: str | None = None,
        expected_within_seconds: int | Decimal | None = None,
        enabled: bool = True,
        reason: str | None = None,
        attributes: Mapping[str, object] | None = None,
    ) -> ScheduleView:
        """Inserts a schedule, and returns it as it was written, with warnings.

        ``expression``: ``rate(…)``, ``cron(…)`` or ``at(…)``; ``timezone``: an IANA name, UTC by default.
        ``flexible_time_window``: minutes over which starts are spread. ``catch_up``: latest (default), all, none.
        ``overlap``: skip (default), allow, bufferOne. ``expected_within_seconds``: when an occurrence must have
        completed, from the time at which it may start; else it is reported as overdue. ``subject``: what it and its
        tasks are about, to find them by; it can't be changed. ``limit_key``: of its tasks. ``enabled`` False: it is
        paused from the start, and the ``reason`` is stored as ``stateReason``. Raises TaskExists if a task or schedule
        has this id.
        """
        if isinstance(attributes, Mapping):
            for name in attributes:
                if name in attr.SCHEDULE_ATTRIBUTES:
                    raise InvalidInput(name, attributes[name], "it has an argument of its own, or is set by Dynatick")
        template = NewTask(
            task_id=schedule_id,
            action=action,
            payload=payload,
            retry_policy=retry_policy,
            timeout_seconds=timeout_seconds,
            subject=subject,
            limit_key=limit_key,
            attributes={} if attributes is None else attributes,
        )
        recurrence: dict[str, object] = {
            attr.SCHEDULE_EXPRESSION: expression,
            attr.SCHEDULE_EXPRESSION_TIMEZONE: timezone,
            attr.START_DATE: start_date,
            attr.END_DATE: end_date,
            attr.FLEXIBLE_TIME_WINDOW: flexible_time_window,
            attr.CATCH_UP: catch_up,
            attr.OVERLAP: overlap,
            attr.EXPECTED_WITHIN_SECONDS: expected_within_seconds,
            attr.SCHEDULE_STATE: None if enabled else str(ScheduleState.DISABLED),
            attr.STATE_REASON: reason,
        }
        now = self._clock()
        row = self._compose(template, recurrence, now).row
        if not create(self._store, row):
            raise TaskExists(schedule_id)
        return self._view(row, now)

    def compose(self, row: Mapping[str, object]) -> Composed:
        """A new schedule's row, from one under the table's names, as put-item takes it. Raises InvalidInput."""
        return self._compose_row(row, self._clock())

    def _compose_row(self, row: Mapping[str, object], now: datetime) -> Composed:
        others = {name: value for name, value in row.items() if name not in _INPUT}
        for name in sorted(others.keys() & attr.SCHEDULE_ATTRIBUTES):
            raise InvalidInput(name, others[name], "leave it out: it is set by Dynatick")
        recurrence = {name: row[name] for name in _INPUT if name in row}
        return self._compose(NewTask.from_row(others), recurrence, now)

    def _compose(self, template: NewTask, recurrence: Mapping[str, object], now: datetime) -> Composed:
        """A new schedule's row, from what its tasks get and the attributes of its recurrence. Raises InvalidInput."""
        wrong = InvalidInputs()
        row = row_of(template, wrong)
        if attr.TASK_ID in row:
            with wrong:
                check_schedule_id(template.task_id)
        for name, value in recurrence.items():
            if value is not None:
                with wrong:
                    row[name] = stored_value(name, value)
        if template.action is None or attr.ACTION in row:
            with wrong:
                self._check_action(row)
        self._settings_cache.check_limits(row, wrong)
        _check_recurrence(row, wrong)
        wrong.raise_all()
        change = edited(row, {}, now=now, grid=self._settings_cache.grid(), defaults=self._settings_cache.defaults())
        encoded = with_item(change.applied_to(row))
        # Before the first tick neither the default action nor the ticks are known: then the scheduler completes it.
        is_complete = self._can_complete(row)
        return Composed(encoded if is_complete else {**row, attr.CREATED_AT: encoded[attr.CREATED_AT]}, is_complete)

    def _can_complete(self, row: Row) -> bool:
        """Whether the client knows everything that the scheduler would set: the ticks and the default action."""
        settings = self._settings_cache.current()
        return settings is not None and (row.get(attr.ACTION) is not None or settings.default_action is not None)

    def _check_action(self, row: Row) -> None:
        """Raises InvalidInput for an unknown action, or a payload that the action refuses."""
        if (action := row.get(attr.ACTION)) is not None:
            self._settings_cache.check_action(check_action(action))
        name = self._settings_cache.defaults().action if action is None else check_action(action)
        self._settings_cache.check_payload(name, row.get(attr.PAYLOAD))

    def get(self, schedule_id: str) -> ScheduleView:
        """The schedule, read consistently."""
        return self._view(self._row(schedule_id), self._clock())

    def list(
        self,
        state: str | None = None,
        *,
        subject: str | None = None,
        limit: int = 100,
        page_token: str | None = None,
    ) -> SchedulePage:
        """Schedules in order of state and id: those of one state (ENABLED, DISABLED, COMPLETED, FAILED), or all. Those
        of a ``subject`` are in order of id.

        ``limit``: the maximum number, up to 1,000; a page has fewer if its rows are large. The last page has no
        ``next_page_token``. The views have no warnings.
        """
        check_limit(limit)
        return schedule_page(self._store, state, limit, page_token, subject=subject)

    def export(self, state: str | None = None, *, subject: str | None = None) -> Iterator[Row]:
        """The whole rows of one state, or of all that have not ended, or all of a ``subject``, read as they are
        consumed. Numbers as Decimal."""
        if subject is not None and state is not None:
            raise InvalidInput("subject", subject, "expected either a subject or a state, not both")
        return schedule_rows(self._store, (check_state(state),) if state is not None else _NOT_ENDED, subject=subject)

    def update(self, /, schedule_id: str, *, version: str | None = None, **edits: object) -> ScheduleView:
        """Changes attributes, by the names of ``insert``'s arguments; None removes one.

        ``version``: that of a ``ScheduleView``; raises TaskChanged if the schedule has changed since. Each occurrence
        changes it, too.

        Occurrences that exist stay as they are, and those due now are still made. Later ones follow the new
        definition. Raises TransitionRefused if the schedule has ended.
        """
        unknown = next((name for name in edits if name not in UPDATABLE), None)
        if unknown is not None:
            raise InvalidInput(unknown, edits[unknown], f"expected any of {', '.join(UPDATABLE)}")
        changed: dict[str, object] = {}
        wrong = InvalidInputs()
        for name, value in edits.items():
            with wrong:
                changed[UPDATABLE[name]] = stored_value(UPDATABLE[name], value)
        with wrong:
            if changed.get(attr.SCHEDULE_EXPRESSION, "") is None:
                raise InvalidInput(attr.SCHEDULE_EXPRESSION, None, "a schedule has one; delete the schedule to end it")
        self._settings_cache.check_limits(changed, wrong)
        _check_recurrence(changed, wrong)
        if wrong and changed.keys() & {attr.ACTION, attr.PAYLOAD}:
            with wrong:  # so that every error is reported
                self._check_action({**(self._store.get(task_update.known_id(schedule_id)) or {}), **changed})
        wrong.raise_all()
        return self._edit(schedule_id, "update", lambda row: changed, version)

    def pause(self, schedule_id: str, reason: str | None = None, *, version: str | None = None) -> ScheduleView:
        """No further occurrence falls due from now on. Those that are due now are still made. ``version``: as for
        ``update``."""
        state_reason = stored_value(attr.STATE_REASON, reason)
        edits = {attr.SCHEDULE_STATE: str(ScheduleState.DISABLED), attr.STATE_REASON: state_reason}
        return self._edit(
            schedule_id, "pause", lambda row: edits if _is_enabled(row) else {attr.STATE_REASON: state_reason}, version
        )

    def resume(self, schedule_id: str, *, version: str | None = None) -> ScheduleView:
        """Makes occurrences again, from now on; those of the pause are not made. ``version``: as for ``update``."""

        def edits(row: Row) -> dict[str, object]:
            if _is_enabled(row):
                return {}
            return {attr.SCHEDULE_STATE: str(ScheduleState.ENABLED), attr.STATE_REASON: None}

        return self._edit(schedule_id, "resume", edits, version)

    def delete(self, schedule_id: str, *, version: str | None = None) -> None:
        """Ends the schedule and removes its row. Occurrences that exist stay. ``version``: as for ``update``."""
        self._settings_cache.current()
        delete_schedule(self._store, schedule_id, self._row(schedule_id), version)

    def run_now(self, schedule_id: str, *, version: str | None = None) -> TaskView:
        """Makes an extra occurrence at the next tick, whether the schedule is paused or not. ``version``: as for
        ``update``.

        Raises TaskExists if it made one in this second already; TransitionRefused if the schedule has ended.
        """
        row = self._row(schedule_id)
        schedule, now = _open_schedule(row, "run"), self._clock()
        nominal = now.replace(microsecond=0)
        task = self._occurrence(row, schedule, nominal, extra=RUN_NOW)
        note_run_now(
            self._store, schedule_id, nominal, version
        )  # first, so that the history finds every such occurrence
        if not create(self._store, task):
            raise TaskExists(RowView(task).task_id)
        return TaskView.from_row(task)

    def preview(self, schedule_id: str, count: int = 10) -> Sequence[Occurrence]:
        """The next occurrences, with notes where the clock changes. A paused schedule's: as if it were resumed."""
        check_limit(count, "count")
        row = self._row(schedule_id)
        if is_terminal(row):
            return []
        return expected_occurrences(self._with_start(row), self._clock(), count)

    def forecast(self, *, until: Time, limit: int = MAX_FORECAST) -> Sequence[ExpectedOccurrence]:
        """The occurrences of all schedules from now to before ``until``, in order of time. Paused schedules have none.

        Reads the rows of all schedules, and raises InvalidInput for more than ``limit`` occurrences.
        """
        end, _ = instants(until, until, self._clock())
        grid = self._settings_cache.grid()
        found: list[ExpectedOccurrence] = []
        for row in schedule_rows(self._store, (str(ScheduleState.ENABLED),)):
            try:
                schedule = self._with_start(row)
            except InvalidInput:  # a tick reports it
                continue
            for nominal in nominals_before(schedule, self._clock(), end, limit + 1 - len(found)):
                bucket = bucket_of_occurrence(schedule, nominal, grid)
                found.append(
                    ExpectedOccurrence(RowView(row).task_id, nominal, str(bucket), text_or_none(row.get(attr.ACTION)))
                )
            if len(found) > limit:
                raise InvalidInput("until", str(until), f"expected a time with at most {limit} occurrences until then")
        return sorted(found, key=lambda one: (one.bucket, one.schedule_id))

    def backfill(self, schedule_id: str, *, start: Time, end: Time, dry_run: bool = False) -> Iterator[InsertResult]:
        """Makes the occurrences from ``start`` to ``end`` (both included, and not after now) that do not exist: at the
        next tick, with one result each, in order. Those that exist stay as they are.

        At most 1,000 in a call. ``dry_run``: only returns which ones are missing. ``overlap`` does not apply.
        """
        row = self._row(schedule_id)
        _open_schedule(row, "backfill")
        schedule, now = self._with_start(row), self._clock()
        first, last = instants(start, end, now)
        last = min(last, now)
        if last < first:
            raise InvalidInput("end", str(end), f"expected a time not before start, {start}, which must be past")
        nominals = [one.instant for one in occurrences_between(schedule, first, last, MAX_BACKFILL + 1)]
        if len(nominals) > MAX_BACKFILL:
            expected = f"expected at most {MAX_BACKFILL} occurrences in the range: split it"
            raise InvalidInput("end", str(end), expected)
        rows = [self._occurrence(row, schedule, nominal) for nominal in nominals]
        if rows and not dry_run:
            note_backfill(self._store, schedule, nominals[0], nominals[-1])
        return insert_occurrences(self._store, rows, dry_run)

    def history(
        self,
        schedule_id: str,
        *,
        start: Time | None = None,
        end: Time | None = None,
        limit: int = 100,
    ) -> Sequence[ScheduleOccurrence]:
        """The occurrences from ``start`` to ``end`` (default: now), oldest first; without ``start``, the latest
        ``limit``. Those that were not made are listed with the reason. ``in_time`` follows from the schedule's present
        ``expectedWithinSeconds``.
        """
        check_limit(limit)
        row, now = self._row(schedule_id), self._clock()
        begin, last = instants(now if start is None else start, now if end is None else end, now)
        first, last = None if start is None else begin, min(last, now)
        if first is not None and last < first:
            raise InvalidInput("end", str(end or now), f"expected a time not before start, {start}, which must be past")
        return latest_occurrences(self._store, row, first, last, limit, now)

    def sync(
        self, declared: Iterable[Mapping[str, object]], *, owner: str, prune: bool = False, dry_run: bool = False
    ) -> Sequence[ScheduleChange]:
        """Makes the schedules of ``owner``, a deployment, those that it declares: creates and changes them, in the
        order of their ids. Returns what was done for each, or ``dry_run``: what would be.

        ``declared``: rows under the table's names, as ``declared_schedules`` returns them. ``prune``: schedules that
        the owner declared earlier and does no longer are removed; without it they are only returned. Their occurrences
        stay, and end by themselves. A schedule of another owner, or one that no deployment declares, is a conflict, and
        stays as it is. Whether a schedule is paused is not declared: it stays so. One that has no occurrence from now
        on is over, and not created. Raises InvalidInput for an invalid declaration before anything is written;
        repeated, it does what was left.
        """
        owner = check_owner(owner)
        given = self._declared(declared)
        present = dict(self._store.get_many(list(given))) if given else {}
        composed: dict[str, tuple[Row, str | None]] = {}
        wrong = InvalidInputs()
        for schedule_id, values in given.items():
            try:
                composed[schedule_id] = self._compose_declared(values, present.get(schedule_id), owner)
            except InvalidInput as error:
                for one in (error, *error.others):
                    with wrong:
                        raise InvalidInput(f"schedules.{schedule_id}.{one.field}", one.value, one.expected) from None
        wrong.raise_all()
        for own in own_rows(self._store, owner):
            present.setdefault(RowView(own).task_id, own)
        changes: list[ScheduleChange] = []
        for schedule_id in sorted({*given, *present}):
            row: Row | None = present.get(schedule_id)
            wanted, over = composed.get(schedule_id, (None, None))
            tried: ScheduleChange | None = None
            for _ in range(_TRIES):
                declares = given.get(schedule_id, {})
                change = compare(schedule_id, wanted, declares, row, owner=owner, prune=prune, over=over)
                if dry_run or self._is_made(change, wanted, row):
                    is_gone = change.result is SyncResult.NONE and row is None
                    is_done = is_gone or change.result is SyncResult.UNCHANGED
                    changes.append(tried if tried is not None and is_done else change)  # its answer was lost
                    break
                row, tried = self._store.get(schedule_id), change
            else:
                raise StoreError(f"cannot sync {schedule_id!r}: other requests changed it {_TRIES} times")
        return [one for one in changes if one.result is not SyncResult.NONE]

    def _declared(self, declared: Iterable[Mapping[str, object]]) -> dict[str, Mapping[str, object]]:
        """By their ids. Raises InvalidInput."""
        given: dict[str, Mapping[str, object]] = {}
        for row in declared:
            if not isinstance(row, Mapping):
                raise InvalidInput("declared", row, "expected maps under the table's names, such as scheduleExpression")
            schedule_id = check_schedule_id(row.get(attr.TASK_ID))
            if schedule_id in given:
                raise InvalidInput(attr.TASK_ID, schedule_id, "expected each id once: it is declared twice")
            for name in sorted(row.keys() - {attr.TASK_ID, *attr.DECLARED}, key=str):
                known = ", ".join(sorted(attr.DECLARED))
                raise InvalidInput(f"schedules.{schedule_id}.{name}", row[name], f"expected any of {known}")
            given[schedule_id] = row
        return given

    def _compose_declared(self, row: Mapping[str, object], present: Row | None, owner: str) -> tuple[Row, str | None]:
        """A declared schedule's row; and if it has no occurrence from now on, why: then it is as it was composed long
        ago, when it had some."""
        own = {attr.SCHEDULE_STATE: str(ScheduleState.ENABLED), attr.SCHEDULE_OWNER: owner}
        try:
            return {**self._compose_row(row, self._clock()).row, **own}, None
        except InvalidInput as error:
            composed = {**self._compose_row(row, EPOCH).row, **own}  # raises whatever else is wrong
            over = error.expected
        if present is not None and is_schedule(present) and present.get(attr.SCHEDULE_OWNER) == owner:
            differences = ScheduleView.from_row(present).differences(composed, row)
            self._edited(present, _edits(differences, composed))  # raises if that leaves it without an occurrence
        return composed, over

    def _is_made(self, change: ScheduleChange, wanted: Row | None, row: Row | None) -> bool:
        """Carries out a change of what was read. False: another request was first, so it is to be decided again."""
        match change.result:
            case SyncResult.CREATE:
                assert wanted is not None
                return create(self._store, wanted)
            case SyncResult.CHANGE:
                assert wanted is not None and row is not None
                if is_terminal(row):  # it makes no occurrences any more, so another takes its place
                    return self._remove(change.schedule_id, row) and create(self._store, wanted)
                update = self._edited(row, _edits(change.differences, wanted))
                update = merge_updates(update, conditions=task_update.in_version(row, version_of(row)))
                return task_update.Tried(update, write(self._store, update)).written() is not None
            case SyncResult.REMOVE:
                assert row is not None
                return self._remove(change.schedule_id, row)
            case _:
                return True

    def _remove(self, schedule_id: str, row: Row) -> bool:
        return self._store.delete(schedule_id, conditions=task_update.in_version(row, version_of(row)))

    def _edit(
        self,
        schedule_id: str,
        action: str,  # what the caller does, for the error
        edits_of: Callable[[Row], Mapping[str, object]],
        version: str | None = None,
    ) -> ScheduleView:
        self._row(schedule_id)

        def decide(row: Row) -> ConditionalUpdate:
            _open_schedule(row, action)
            return self._edited(row, edits_of(row))

        row = task_update.carry_out(self._store, schedule_id, task_update.only_in(version, decide))
        return self._view(row, self._clock())

    def _edited(self, row: Row, edits: Mapping[str, object]) -> ConditionalUpdate:
        """The update that changes attributes of a schedule that has not ended. Raises InvalidInput."""
        schedule_id = RowView(row).task_id
        grid, defaults = self._settings_cache.grid(), self._settings_cache.defaults()
        if edits.keys() & {attr.ACTION, attr.PAYLOAD}:  # an unknown action that it has already prevents no pause
            self._check_action({**row, **edits})
        change = edited(row, edits, now=self._clock(), grid=grid, defaults=defaults)
        with_item({**row, **change.set})
        if RowView(row).is_unscheduled and not self._can_complete({**row, **edits}):
            change = ConditionalUpdate(
                task_id=schedule_id,
                set={name: value for name, value in edits.items() if value is not None},
                remove=tuple(name for name, value in edits.items() if value is None and name in row),
                conditions=change.conditions,
                returning=True,
            )
        if not change.set and not change.remove:  # a write all the same, for its conditions
            change = replace(change, set={attr.SCHEDULE_ID: schedule_id}, returning=True)
        return change

    def _row(self, schedule_id: str) -> Row:
        row = self._store.get(task_update.known_id(schedule_id))
        if row is None or not is_or_was_schedule(row):
            raise ScheduleNotFound(schedule_id)
        return row

    def _with_start(self, row: Row) -> Schedule:
        """The schedule of a row; a rate that no tick has placed yet starts at the next tick."""
        schedule = Schedule.from_row(row)
        if schedule.start is None and isinstance(schedule.expression, Rate):
            return replace(schedule, start=instant_of(self._settings_cache.grid().tick_after(minute_of(self._clock()))))
        return schedule

    def _occurrence(self, row: Row, schedule: Schedule, nominal: datetime, extra: str = "") -> Row:
        """The row of an occurrence that runs at the next tick."""
        now, grid = self._clock(), self._settings_cache.grid()
        task_id = schedule.occurrence_id(nominal, extra=extra)
        bucket = Bucket(grid.tick_after(minute_of(now)), grid.shard_of(schedule.limit_key or task_id))
        if row.get(attr.ACTION) is None:
            row = {**row, attr.ACTION: self._settings_cache.defaults().action}
        return occurrence_row(row, schedule, nominal, bucket, now=now, extra=extra)

    def _view(self, row: Row, now: datetime) -> ScheduleView:
        return ScheduleView.from_row(row, warnings=warnings_of(row, self._settings_cache.grid(), now))


def _check_recurrence(row: Row, wrong: InvalidInputs) -> None:
    """Checks each attribute of the recurrence by itself; whether they fit together is checked when the schedule is made
    of them."""
    for name in row:
        if name in _INPUT and row[name] is not None:
            expression = {} if name in attr.RECURRENCE else {attr.SCHEDULE_EXPRESSION: "rate(1 day)"}
            with wrong:
                Schedule.from_row({attr.TASK_ID: "-", **expression, name: row[name]})


def _edits(differences: Iterable[str], wanted: Row) -> dict[str, object]:
    """What a schedule is to have instead, under the table's names."""
    return {UPDATABLE[name]: wanted.get(UPDATABLE[name]) for name in differences if name in UPDATABLE}


def _is_enabled(row: Row) -> bool:
    return row.get(attr.SCHEDULE_STATE) in (None, str(ScheduleState.ENABLED))


def _open_schedule(row: Row, action: str) -> Schedule:
    """The schedule of a row. Raises TransitionRefused if it has ended."""
    if is_terminal(row):
        state = str(row.get(attr.SCHEDULE_STATE, row[attr.OUTCOME]))
        raise TransitionRefused(RowView(row).task_id, action, state, _NOT_ENDED, what="schedule")
    return Schedule.from_row(row)

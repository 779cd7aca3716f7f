"""From a caller's arguments to a schedule's row: everything is checked here, before anything is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from dynatick.client.new_task import Composed, NewTask, payload_of, row_of, text_of
from dynatick.client.settings_cache import SettingsCache
from dynatick.domain import attributes as attr
from dynatick.domain.buckets import Bucket, parse_time
from dynatick.domain.instants import format_instant
from dynatick.domain.recurrence import edited
from dynatick.domain.retry import RetryPolicy
from dynatick.domain.schedule import (
    Schedule,
    check_schedule_id,
)
from dynatick.domain.task import Row, check_action
from dynatick.domain.timeout import check_timeout
from dynatick.errors import InvalidInput, InvalidInputs
from dynatick.store.codec import with_item

INPUT_ATTRIBUTES = frozenset(
    {*attr.DEFINITION, attr.CATCH_UP, attr.OVERLAP, attr.EXPECTED_WITHIN_SECONDS, attr.STATE_REASON}
)  # that a caller may set


@dataclass(frozen=True, slots=True)
class ScheduleChecks:
    """Checks schedules against the current settings. ``check_actions``: against the processor's handlers, too."""

    settings_cache: SettingsCache
    check_actions: bool

    def compose_row(self, row: Mapping[str, object], now: datetime) -> Composed:
        """A new schedule's row, from one under the table's names, as put-item takes it. Raises InvalidInput."""
        recurrence = {name: row[name] for name in INPUT_ATTRIBUTES if row.get(name) is not None}
        others = {name: value for name, value in row.items() if name not in INPUT_ATTRIBUTES}
        for name in sorted(others.keys() & attr.SCHEDULE_ATTRIBUTES):
            raise InvalidInput(name, others[name], "leave it out: it is set by Dynatick")
        if attr.STATE_REASON in recurrence:
            recurrence[attr.STATE_REASON] = text_of(recurrence[attr.STATE_REASON], attr.STATE_REASON)
        return self.compose(NewTask.from_row(others), recurrence, now)

    def compose(self, template: NewTask, recurrence: Mapping[str, object], now: datetime) -> Composed:
        """A new schedule's row, from what its tasks get and the attributes of its recurrence. Raises InvalidInput."""
        wrong = InvalidInputs()
        row = row_of(template, wrong)
        if attr.TASK_ID in row:
            with wrong:
                check_schedule_id(template.task_id)
        for name, value in recurrence.items():
            if value is not None:
                with wrong:
                    row[name] = _date(value, name) if name in (attr.START_DATE, attr.END_DATE) else value
        if template.action is None or attr.ACTION in row:
            with wrong:
                self.check_action(row)
        if row.get(attr.TIMEOUT_SECONDS) is not None:
            with wrong:
                self.settings_cache.check_timeout(row[attr.TIMEOUT_SECONDS])
        with wrong:
            check_recurrence(row)
        wrong.raise_all()
        change = edited(row, {}, now=now, grid=self.settings_cache.grid(), defaults=self.settings_cache.defaults())
        whole = {name: value for name, value in {**row, **change.set}.items() if name not in change.remove}
        encoded = with_item(whole)
        # Before the first tick neither the default action nor the ticks are known: then the scheduler completes it.
        complete = self.can_complete(row)
        return Composed(encoded if complete else row, complete)

    def can_complete(self, row: Row) -> bool:
        """Whether the client knows everything that the scheduler would set: the ticks and the default action."""
        settings = self.settings_cache.current()
        return settings is not None and (row.get(attr.ACTION) is not None or settings.default_action is not None)

    def check_action(self, row: Row) -> None:
        """Raises InvalidInput for an unknown action, or a payload that the action refuses."""
        action = row.get(attr.ACTION)
        if action is not None and self.check_actions:
            self.settings_cache.check_action(check_action(action))
        name = self.settings_cache.defaults().action if action is None else check_action(action)
        self.settings_cache.check_payload(name, row.get(attr.PAYLOAD), of_handlers=self.check_actions)


def check_recurrence(row: Row) -> None:
    """Checks each attribute of the recurrence by itself. Raises InvalidInput for every invalid one; whether they fit
    together is checked when the schedule is made of them."""
    wrong = InvalidInputs()
    for name in row:
        if name in INPUT_ATTRIBUTES and row[name] is not None:
            expression = {} if name in attr.RECURRENCE else {attr.SCHEDULE_EXPRESSION: "rate(1 day)"}
            with wrong:
                Schedule.from_row({attr.TASK_ID: "-", **expression, name: row[name]})
    wrong.raise_all()


def stored_value(argument: str, name: str, value: object) -> object:
    """The value of an argument as the row holds it, under the attribute's ``name``. Raises InvalidInput."""
    if value is None:
        return None
    match argument:
        case "start_date" | "end_date":
            return _date(value, name)
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
            return text_of(value, attr.ACTION)
        case "catch_up" | "overlap":
            return str(value)
        case _:
            return value


def _date(value: object, name: str) -> str:
    time = parse_time(str(value) if isinstance(value, Bucket) else value, name)
    return format_instant(time.instant if isinstance(time, Bucket) else time)

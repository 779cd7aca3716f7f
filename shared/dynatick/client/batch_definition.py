"""A batch as it is asked for: checked whole, and as the row that begins it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sized
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from dynatick.client.batch_loading import scheduled
from dynatick.client.new_task import NewTask, row_of, time_of
from dynatick.client.settings_cache import SettingsCache
from dynatick.domain import attributes as attr
from dynatick.domain.batches import BATCH_ACTION, MAX_OVER, Batch
from dynatick.domain.durations import duration_of
from dynatick.domain.instants import format_instant, up_to_millisecond
from dynatick.domain.numbers import is_count
from dynatick.domain.packs import MAX_BATCH, check_batch_id
from dynatick.domain.task import Row
from dynatick.engine.ports import Clock
from dynatick.errors import InvalidInput, InvalidInputs
from dynatick.json_reader import dumps
from dynatick.tracing import current_traceparent

_MAX_OF_MEMBERS: Final = 256 * 1024  # as JSON, which is longer than DynamoDB's form
_NOT_OF_MEMBERS = (attr.TASK_ID, attr.ACTION, *attr.TIME_INPUTS)


@dataclass(frozen=True, slots=True)
class Definitions:
    """Makes batches of what is asked for, by the current settings."""

    settings_cache: SettingsCache
    clock: Clock
    check_actions: bool

    def of(self, task: NewTask, *, over: timedelta | str | None, total: int | None, then: object) -> tuple[Batch, Row]:
        """The batch that is asked for, and its row. Raises InvalidInput."""
        wrong = InvalidInputs()
        now = self.clock()
        with wrong:
            check_batch_id(task.task_id)
        values = row_of(replace(task, task_id="-"), wrong)  # its own is checked as a batch's
        with wrong:
            if task.action is None:
                raise InvalidInput(attr.ACTION, None, "expected the name of an action")
            if self.check_actions and attr.ACTION in values:
                self.settings_cache.check_action(str(values[attr.ACTION]))
        if attr.TIMEOUT_SECONDS in values:
            with wrong:
                self.settings_cache.check_timeout(values[attr.TIMEOUT_SECONDS])
        if self.check_actions and attr.LIMIT_KEY in values:
            with wrong:
                self.settings_cache.check_limit_key(values[attr.LIMIT_KEY])
        length = timedelta()
        with wrong:
            length = _length(over)
        if length and total is None:
            with wrong:
                raise InvalidInput("total", None, "expected the number of payloads, over which the time is spread")
        follows = None
        with wrong:
            follows = self._then(then)
        of_members = {name: value for name, value in values.items() if name not in _NOT_OF_MEMBERS}
        with wrong:
            _check_size(of_members)
        wrong.raise_all()
        times: dict[str, object] = {name: values[name] for name in attr.TIME_INPUTS if name in values}
        due_at = now
        if times:
            due_at = time_of(task.task_id, times, now=now, grid=self.settings_cache.grid()).due_at
        batch = Batch(
            action=str(values[attr.ACTION]),
            due_at=up_to_millisecond(due_at),
            over=length,
            total=total,
            then=follows,
            of_members=of_members,
        )
        row: dict[str, object] = {
            attr.TASK_ID: task.task_id,
            attr.DUE_AT: format_instant(batch.last_due_at),
            attr.PAYLOAD: batch.to_payload(),
            **batch.listed(),
        }
        if (parent := of_members.get(attr.TRACEPARENT, current_traceparent())) is not None:
            row[attr.TRACEPARENT] = parent
        created_at = format_instant(now)
        return batch, scheduled(
            row, BATCH_ACTION, created_at=created_at, clock=self.clock, settings_cache=self.settings_cache
        )

    def _then(self, then: object) -> Mapping[str, object] | None:
        """The row of the task that follows, without its id. Raises InvalidInput."""
        if then is None:
            return None
        if isinstance(then, Mapping):
            if attr.TASK_ID in then:
                raise InvalidInput(
                    f"then.{attr.TASK_ID}", then[attr.TASK_ID], "leave it out: it follows from the batch"
                )
            then = NewTask.from_row({attr.TASK_ID: "-", **then})
        if not isinstance(then, NewTask):
            raise InvalidInput("then", then, "expected a task, such as handler.after(payload)")
        wrong = InvalidInputs()
        row = row_of(then, wrong)
        wrong.raise_all()
        for name in (attr.TASK_DATE_TIME, attr.DUE_AT):
            if name in row:
                raise InvalidInput(f"then.{name}", row[name], "leave it out: it runs when all members have ended")
        if self.check_actions and attr.LIMIT_KEY in row:
            self.settings_cache.check_limit_key(row[attr.LIMIT_KEY])
        action = row.get(attr.ACTION)
        if isinstance(action, str):
            if self.check_actions:
                self.settings_cache.check_action(action)
            self.settings_cache.check_payload(action, row.get(attr.PAYLOAD), of_handlers=self.check_actions)
        return {name: value for name, value in row.items() if name != attr.TASK_ID}


def _check_size(of_members: Row) -> None:
    """Raises InvalidInput for attributes beside which there might be no room for a member's payload and its errors."""
    if (size := len(dumps(of_members).encode())) > _MAX_OF_MEMBERS:
        expected = f"expected at most {_MAX_OF_MEMBERS} bytes as JSON: a row of a member has them beside its payload"
        raise InvalidInput("attributes", f"{size} bytes", expected)


def _length(over: object) -> timedelta:
    length = timedelta() if over is None else duration_of(over, "over") if isinstance(over, str) else over
    if not isinstance(length, timedelta) or not timedelta() <= length <= MAX_OVER or length.microseconds:
        raise InvalidInput("over", over, "expected whole seconds, a day at most, such as timedelta(hours=2) or 2h")
    return length


def check_iterable(payloads: object) -> None:
    if isinstance(payloads, Mapping | str | bytes) or not isinstance(payloads, Iterable):
        raise InvalidInput("payloads", f"a {type(payloads).__name__}", "expected an iterable of payloads")


def total_of(payloads: object, total: object) -> int | None:
    """The number of payloads, as far as it is known before they are read. Raises InvalidInput."""
    if payloads is not None:
        check_iterable(payloads)
    elif total is None:
        raise InvalidInput("total", None, "expected payloads, or the number of those that are loaded in parts")
    if total is not None and (not is_count(total, 0) or total > MAX_BATCH):
        raise InvalidInput("total", total, f"expected a whole number up to {MAX_BATCH}")
    length = len(payloads) if isinstance(payloads, Sized) else None
    if length is not None and total not in (None, length):
        raise InvalidInput("total", total, f"expected the number of payloads, {length}")
    if length is not None and length > MAX_BATCH:
        raise InvalidInput("payloads", f"{length} payloads", f"expected at most {MAX_BATCH}")
    return length if length is not None else None if total is None else int(total)

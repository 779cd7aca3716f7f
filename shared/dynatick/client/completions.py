"""Completes tasks that their handlers have handed over, by their completion tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from dynatick.actions.plain_value import kept_result
from dynatick.client.batch_members import find_member
from dynatick.client.new_task import not_before_next_tick
from dynatick.client.settings_cache import SettingsCache
from dynatick.client.task_update import Decide, Unchanged, carry_out, state_shown
from dynatick.client.views import number_or
from dynatick.domain import attributes as attr
from dynatick.domain import lifecycle
from dynatick.domain.buckets import Bucket
from dynatick.domain.completion import CompletionToken
from dynatick.domain.conditional_update import ConditionalUpdate
from dynatick.domain.instants import parse_instant
from dynatick.domain.retry import GiveUp, decide_retry
from dynatick.domain.row import RowView
from dynatick.domain.task import Row, Status, Task
from dynatick.engine.ports import Clock, Store
from dynatick.engine.rules import SKEW_MARGIN
from dynatick.errors import CompletionRefused, InvalidInput, TaskNotFound

HANDING_OVER: Final = timedelta(seconds=10)
"""So long a completion that comes while its handler still runs waits for the handler to return."""

_NO_TASK: Final = "no task waits with it: its attempt is over, or it is of another table"


class _StillRuns(Exception):
    """The handler has not returned yet."""


@dataclass(frozen=True, slots=True)
class Completions:
    """``waits``: makes the seconds between tries until a timeout is over."""

    store: Store
    settings_cache: SettingsCache
    clock: Clock
    waits: Callable[[timedelta], Iterator[float]]
    pause: Callable[[float], object]
    jitter: Callable[[], float]

    def complete(self, token: str, result: object) -> Row:
        """The row, completed."""
        kept = kept_result(result)
        return self._settle(token, partial(self._completed, kept), _is_completed)

    def fail(self, token: str, error: object, *, retry: bool) -> Row:
        """The row, to be retried or failed."""
        if not isinstance(error, str) or not error.strip():
            raise InvalidInput(attr.ERROR, error, "expected a text that says why")
        return self._settle(token, partial(self._failed, error, retry), partial(_has_failed, error, retry))

    def heartbeat(self, token: str) -> Row:
        """The row, with a later deadline."""
        return self._settle(token, self._prolonged, lambda row: False)

    def _settle(self, text: str, decide: Callable[[Row], ConditionalUpdate], is_done: Callable[[Row], bool]) -> Row:
        """``is_done``: whether a row that is no longer open shows that the same has taken effect before."""
        token = CompletionToken.parse(text)

        def checked(row: Row) -> ConditionalUpdate:
            if not token.is_of(row):
                raise CompletionRefused(_NO_TASK)
            _require_open(row, is_done)
            return decide(row)

        self.settings_cache.current()
        further = self.waits(HANDING_OVER)
        while True:
            try:
                return self._carry_out(token.task_id, checked)
            except Unchanged as unchanged:
                return unchanged.row
            except _StillRuns:
                pass
            if (wait := next(further, None)) is None:
                raise CompletionRefused(f"the handler of {token.task_id!r} has not returned yet: send it again")
            self.pause(wait)

    def _carry_out(self, task_id: str, checked: Decide) -> Row:
        with suppress(TaskNotFound):
            return carry_out(self.store, task_id, checked)
        member = find_member(self.store, task_id)
        if member is not None:
            checked({**member.as_row(self.store), attr.LEASE: member.lease})  # its pack runs: nothing is written (22)
        elif self.store.get(task_id) is None:
            raise CompletionRefused(_NO_TASK)
        raise _StillRuns  # it gets its row when its handler returns, or has got it just now

    def _completed(self, result: object, row: Row) -> ConditionalUpdate:
        days = self.settings_cache.defaults().retention_days
        change = lifecycle.complete(Task.from_row(row), now=self.clock(), retention_days=days, result=result)
        return lifecycle.by_token(row, change)

    def _failed(self, error: str, retry: bool, row: Row) -> ConditionalUpdate:
        if not RowView(row).awaits_completion:
            raise _StillRuns
        task, now = Task.from_row(row), self.clock()
        decision = decide_retry(
            task.retry_policy,
            attempt=task.attempt,
            first_started_at=task.first_started_at or now,
            now=now,
            permanent=not retry,
            retry_after=None,
            jitter=self.jitter(),
        )
        if isinstance(decision, GiveUp):
            soon = self._bucket(task.shard_key, now, now)
            return lifecycle.fail_by_token(row, now=now, bucket=soon, error=error)
        bucket = self._bucket(task.shard_key, decision.at, now)
        return lifecycle.by_token(row, lifecycle.retry(task, now=now, at=decision.at, bucket=bucket, error=error))

    def _prolonged(self, row: Row) -> ConditionalUpdate:
        seconds = number_or(row.get(attr.HEARTBEAT_SECONDS), 0)
        if not seconds:  # its handler has asked for none, or has not returned yet
            raise Unchanged(row)
        now = self.clock()
        until = min(now + timedelta(seconds=seconds), parse_instant(row.get(attr.COMPLETE_BY), attr.COMPLETE_BY))
        bucket = self._bucket(RowView(row).shard_key, until + SKEW_MARGIN, now)
        return lifecycle.heartbeat(row, until=until, bucket=bucket)

    def _bucket(self, shard_key: str, at: datetime, now: datetime) -> Bucket:
        grid = self.settings_cache.grid()
        return not_before_next_tick(grid.bucket_of(shard_key, at), shard_key, now=now, grid=grid)


def _is_completed(row: Row) -> bool:
    return state_shown(row) == Status.COMPLETED


def _has_failed(error: str, retry: bool, row: Row) -> bool:
    """Whether its failure is recorded, or to be; of a task that waits for its time again, that of this attempt, since
    it may have been cancelled and restored instead."""
    if state_shown(row) != Status.SCHEDULED:
        return state_shown(row) in (Status.FAILED, Status.WAITING)
    task = Task.from_row(row)
    ended = {attr.RUN: task.run, attr.ATTEMPT: task.attempt, attr.ERROR: lifecycle.short(error)}
    return retry and any(ended.items() <= last.items() for last in task.attempts[-1:])


def _require_open(row: Row, is_done: Callable[[Row], bool]) -> None:
    """Raises Unchanged for what has taken effect before, CompletionRefused for a task that no completion can change."""
    view, state = RowView(row), state_shown(row)
    if view.is_running and view.error is None:
        return
    if is_done(row):
        raise Unchanged(row)
    is_now = "has failed" if state == Status.WAITING else f"is {state}"
    at = row.get(attr.FINISHED_AT)
    since = "" if at is None else f" since {at}"
    why = "" if view.error is None else f" ({view.error})"
    raise CompletionRefused(f"the task {view.task_id!r} {is_now}{since}{why}")

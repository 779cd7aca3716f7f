"""What comes of the runs that a change of many tasks has begun: how many completed, failed again, still wait."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Annotated

from dynatick.client.tasks import watch
from dynatick.client.views import TaskView, number_or, text_or_none
from dynatick.domain import attributes as attr
from dynatick.domain.lifecycle import state_of
from dynatick.domain.task import Row, Status
from dynatick.domain.view import View
from dynatick.engine.ports import Store

MAX_FOLLOWED = 10_000
_MAX_READ = 1000  # rows at a time

_ENDED = {str(Status.COMPLETED): "completed", str(Status.FAILED): "failed", str(Status.CANCELLED): "cancelled"}


@dataclass(frozen=True, kw_only=True, slots=True)
class RunCounts(View):
    """What has come of the runs."""

    followed: Annotated[int, "How many runs."]
    completed: int
    failed: int
    cancelled: int
    changed: Annotated[int, "Their task was redriven or replaced since, or is gone."]

    @property
    def waiting(self) -> Annotated[int, "Have not ended: they wait, run, or are to be tried again."]:
        return self.followed - self.completed - self.failed - self.cancelled - self.changed

    def __str__(self) -> str:
        """``61 completed, 5 failed again, 2 waiting``; without zeros but of those that have completed. They are runs of
        redriven tasks."""
        parts = [f"{self.completed} completed"]
        for number, words in (
            (self.failed, "failed again"),
            (self.cancelled, "cancelled"),
            (self.changed, "changed since"),
            (self.waiting, "waiting"),
        ):
            if number:
                parts.append(f"{number} {words}")
        return ", ".join(parts)


@dataclass(slots=True)
class FollowedRuns:
    """Runs, until they have ended. Not safe for several threads at a time."""

    followed: int = 0
    not_followed: int = 0  # beyond the first 10,000
    _open: dict[str, int] = field(default_factory=dict)  # the run of each task
    _ended: dict[str, int] = field(default_factory=dict)  # how many, by how

    def add(self, task: TaskView) -> None:
        """Follows the run that a task has now, once."""
        if self._open.get(task.task_id) == task.run:
            return
        if self.followed >= MAX_FOLLOWED:
            self.not_followed += 1
            return
        self.followed += 1
        self._open[task.task_id] = task.run

    def refresh(self, store: Store) -> None:
        """Reads up to 1,000 of the tasks whose runs have not ended, those that were not read for longest first. Raises
        StoreError."""
        ids = list(self._open)[:_MAX_READ]
        if not ids:
            return
        rows = store.get_many(ids, only=(attr.STATUS, attr.OUTCOME, attr.RUN))
        for task_id in ids:
            run = self._open.pop(task_id)
            ended = _ended(rows.get(task_id), run)
            if ended is None:
                self._open[task_id] = run
            else:
                self._ended[ended] = self._ended.get(ended, 0) + 1

    def wait(
        self, store: Store, *, timeout: timedelta | None, pause: Callable[[float], None] = time.sleep
    ) -> RunCounts:
        """Waits until all have ended or the time is up (None: never), and returns the counts. Raises StoreError."""

        def poll() -> RunCounts:
            self.refresh(store)
            return self.counts()

        return watch(poll, lambda _: self.has_ended, timeout=timeout, seconds=time.monotonic, pause=pause)

    @property
    def has_ended(self) -> bool:
        """Whether all of them had ended when they were read."""
        return not self._open

    def counts(self) -> RunCounts:
        """As they were read."""
        found: Mapping[str, int] = {name: self._ended.get(name, 0) for name in (*_ENDED.values(), "changed")}
        return RunCounts(followed=self.followed, **found)


def _ended(row: Row | None, run: int) -> str | None:
    """How a run of a task has ended; None: it has not."""
    if row is None or number_or(row.get(attr.RUN), 1) != run:
        return "changed"
    return _ENDED.get(text_or_none(row.get(attr.OUTCOME)) or str(state_of(row)))

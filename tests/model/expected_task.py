"""The oracle's records: tasks as their inserters meant them, claims, executions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

from tests.sandbox.limits import Stay

if TYPE_CHECKING:
    from tests.model.faulty_store import Actor
    from tests.model.schedule_oracle import ScheduleOracle

MARGIN = 4.0  # s that the clocks of two hosts may differ by
RUN, END, FAIL = "run", "end", "fail"
"""What a task must do: be executed; end, somehow; be marked failed unexecuted."""


def number(value: object, otherwise: int = 0) -> int:
    """A count in a row, which users may have written."""
    return int(value) if isinstance(value, (int, Decimal)) and not isinstance(value, bool) else otherwise


@dataclass(eq=False)
class ExpectedTask:
    """A task from its insert until its row is deleted or replaced."""

    number: int
    task_id: str
    must: str = RUN
    not_before: float = -math.inf  # when it may be executed, as seconds of the simulation
    due: float = -math.inf  # the latest of the times that were asked for: its bucket is an interval later at most
    script: Sequence[str] = ("ok",)  # what its attempts do; the last one holds for all that follow
    maximum: int = 4  # attempts a run
    backoff: float = 5.0
    stray: bool = False  # it was put with an expiry, and may be deleted for it before the scheduler has seen it
    unseen: bool = False  # something about it was kept from the scheduler: only reconcile can find it
    edited_to: float | None = None  # the time that was set by hand, until it is seen
    began: bool = False  # its row is, or was, in the table
    gone: bool = False  # deleted, or replaced
    created_at: float = math.inf
    open_since: float = math.inf  # the beginning of its present run
    ended_at: float = math.inf
    schedule: ScheduleOracle | None = None  # of a schedule
    original: ExpectedTask | None = None  # of one that is restored or made again: the one that has the same keys

    @property
    def first(self) -> ExpectedTask:
        return self.original or self

    def is_open_since(self, moment: float) -> bool:
        """Returns whether it has been open since then, and still is."""
        return self.ended_at == math.inf and self.open_since < moment and not self.gone


@dataclass(eq=False)
class Claim:
    """A claim that took effect."""

    task: ExpectedTask
    run: int
    attempt: int
    process: Actor
    released: bool = False


@dataclass(eq=False)
class Execution:
    """An action that was begun. ``result``: None as long as it runs, and for ever if it was killed."""

    task: ExpectedTask
    run: int
    attempt: int
    token: str
    key: str
    process: Actor
    result: str | None = None
    commits: bool = False  # it has returned an effect, which is named by its key
    ended_at: float = math.inf
    limit_key: str | None = None
    action: str = "log"
    began_at: float = 0.0
    waited: bool = False  # for a completion, as its row said
    overdue_at: float = math.inf  # when that has to have come
    waits_until: float = math.inf  # when its row said no more that it does

    @property
    def is_running(self) -> bool:
        return self.result is None and not self.process.dead and not self.process.frozen

    @property
    def stay(self) -> Stay:
        """With a limit key: of what was handed over, until it waits no more; of what was killed, to the hard end."""
        end = self.process.ends if self.result is None else self.ended_at
        if self.result == "later" or self.waited:
            end = min(self.waits_until, self.overdue_at if self.waited else self.process.ends)
        return Stay(task_id=self.task.task_id, key=str(self.limit_key), begin=self.began_at, end=end)

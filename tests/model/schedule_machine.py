"""Everything that may happen to schedules and to their occurrences, as rules in any request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from hypothesis import strategies as st
from tests.model.base_machine import IDS, POLICIES, BaseMachine, plans
from tests.model.completion import complete_all, complete_schedules
from tests.model.expected_task import ExpectedTask
from tests.model.faulty_store import Plan, Request
from tests.model.schedule_oracle import ScheduleOracle
from tests.model.steps import ShortRepr, chosen, step
from tests.model.times import EXPRESSIONS

from dynatick.client.insertion import Exists
from dynatick.domain.buckets import instant_of, minute_of
from dynatick.domain.conditional_update import Absent, ConditionalUpdate
from dynatick.domain.instants import format_instant
from dynatick.domain.lifecycle import is_terminal

MINUTE = "rate(1 minute)"

expressions = st.sampled_from((MINUTE, MINUTE, MINUTE, *EXPRESSIONS))
# What its occurrences' attempts do. Most schedules run something that is over soon.
scripts = st.sampled_from(
    (("ok",), ("ok",), ("ok",), ("error", "ok"), ("long",), ("permanent",), ("poison", "ok"), ("hang", "ok"), ("slow",))
)


@dataclass(frozen=True, repr=False)
class ScheduleRow(ShortRepr):
    """A schedule as put-item takes it, or a client. ``starts``, ``ends``: seconds from now."""

    expression: str = MINUTE
    starts: float | None = None
    ends: float | None = None
    catch_up: str | None = None
    overlap: str | None = None
    window: int | None = None  # minutes
    expected_within: int | None = None  # seconds within which an occurrence must complete
    enabled: bool = True

    def attributes(self, now: datetime) -> dict[str, object]:
        zone = EXPRESSIONS[self.expression].zone
        row = {
            "scheduleExpression": self.expression,
            "scheduleExpressionTimezone": None if zone == "UTC" else zone,
            "startDate": _date(now, self.starts),
            "endDate": _date(now, self.ends),
            "catchUp": self.catch_up,
            "overlap": self.overlap,
            "flexibleTimeWindow": self.window,
            "expectedWithinSeconds": self.expected_within,
            "scheduleState": None if self.enabled else "DISABLED",
        }
        return {name: value for name, value in row.items() if value is not None}


def _date(now: datetime, seconds: float | None) -> str | None:
    return None if seconds is None else format_instant((now + timedelta(seconds=seconds)).replace(microsecond=0))


rows = chosen(
    ScheduleRow,
    expression=expressions,
    starts=(None, None, None, -1800.0, 90.0, 600.0),
    ends=(None, None, None, None, 700.0),
    catch_up=(None, "latest", "all", "all", "none"),
    overlap=(None, "skip", "allow", "allow", "bufferOne"),
    window=(None,) * 7 + (3,),
    expected_within=(None, None, 20, 90, 400),
    enabled=(True, True, True, True, False),
)
EDITS: Mapping[str, Mapping[str, object]] = {
    "pause": {"scheduleState": "DISABLED"},
    "resume": {"scheduleState": "ENABLED"},
    "every other minute": {"scheduleExpression": "rate(2 minutes)", "scheduleExpressionTimezone": "UTC"},
    "by the clock": {"scheduleExpression": "cron(0/5 * * * ? *)", "scheduleExpressionTimezone": "UTC"},
    "all": {"catchUp": "all"},
    "allow": {"overlap": "allow"},
}


class ScheduleMachine(BaseMachine):
    """The rules for schedules. ``nth``: of their occurrences, from the latest on."""

    of = "schedules"
    ids = ("s", "t")
    pauses = (0.003, 0.2, 2.0, 15.0, 50.0, 400.0, 2000.0)
    tick_minutes = (1, 1, 2, 5)

    @step(task_id=IDS, row=rows, script=scripts, policy=POLICIES)
    def put(self, task_id: str, row: ScheduleRow, script: tuple[str, ...], policy: Any) -> None:
        """put-item, over whatever was there."""
        task = self._schedule(task_id, script, policy)
        attributes = row.attributes(self.model.simulation.instant) | ({"retryPolicy": policy} if policy else {})
        self.model.put(task, attributes)

    @step(task_id=IDS, row=rows, script=scripts, plan=plans)
    def insert(self, task_id: str, row: ScheduleRow, script: tuple[str, ...], plan: Plan) -> None:
        given = row.attributes(self.model.simulation.instant)
        task = self._schedule(task_id, script, None)
        options = {
            "timezone": given.get("scheduleExpressionTimezone"), "start_date": given.get("startDate"),
            "end_date": given.get("endDate"), "catch_up": row.catch_up, "overlap": row.overlap, "enabled": row.enabled,
            "flexible_time_window": row.window, "expected_within_seconds": row.expected_within,
            "attributes": {"expected": task.number},
        }  # fmt: skip
        request = Request("insert", tasks={task_id: task})
        self._send(request, lambda c: c.schedules.insert(task_id, row.expression, **options), plan)

    def _schedule(self, task_id: str, script: tuple[str, ...], policy: Any) -> ExpectedTask:
        task = self._expect(task_id, script, policy)
        task.schedule = ScheduleOracle(task, self.model.oracle)
        return task

    # -- changes -------------------------------------------------------------------------------------------------------

    @step(task_id=IDS, operation=("pause", "resume", "run", "delete"), plan=plans)
    def change(self, task_id: str, operation: str, plan: Plan) -> None:
        name = "run_now" if operation == "run" else operation
        self._send(Request(operation), lambda c: getattr(c.schedules, name)(task_id), plan)

    @step(task_id=IDS, expression=expressions, plan=plans)
    def update(self, task_id: str, expression: str, plan: Plan) -> None:
        zone = EXPRESSIONS[expression].zone
        self._send(Request("update"), lambda c: c.schedules.update(task_id, expression=expression, timezone=zone), plan)

    @step(task_id=IDS, edit=sorted(EDITS))
    def edit(self, task_id: str, edit: str) -> None:
        """update-item, by hand."""
        row = self.model.table.get(task_id)
        if row is not None and not is_terminal(row):
            change = ConditionalUpdate(task_id=task_id, set=EDITS[edit], conditions=(Absent("outcome"),))
            self.model.table.write(self.model.hand, change)

    @step(task_id=IDS, minutes=(3, 10, 40), plan=plans)
    def backfill(self, task_id: str, minutes: int, plan: Plan) -> None:
        """The runs of the last ``minutes``."""
        row = self.model.table.get(task_id)
        now = self.model.simulation.instant
        start, end = instant_of(minute_of(now) - minutes), now
        seen = row is not None and row.get("status") is not None  # before, its revision is not known
        task = self.model.oracle.task_of(row) if row is not None and seen else None

        def do(client: Any) -> object:
            results = list(client.schedules.backfill(task_id, start=start, end=end))
            for result in results:
                if isinstance(result, Exists) and task is not None and not task.gone:
                    self._check_exists(task, result.task_id)
            return results

        self._send(Request("backfill"), do, plan)

    def _check_exists(self, task: ExpectedTask, task_id: str) -> None:
        schedule = task.schedule
        if (
            schedule is not None
            and schedule.is_new_revision
            and (task.number, task_id) not in self.model.oracle.occurrences
        ):
            self.model.oracle.report(f"{task_id}: reported to exist, and the schedule never made it")

    # -- occurrences ---------------------------------------------------------------------------------------------------

    @step(nth=st.integers(0, 4), operation=("cancel", "redrive", "restore", "run_now", "reschedule"), plan=plans)
    def change_occurrence(self, nth: int, operation: str, plan: Plan) -> None:
        task_id = self._occurrence(nth)
        if task_id is None:
            return
        if operation != "reschedule":
            self._send(Request(operation), lambda c: getattr(c, operation)(task_id), plan)
            return
        at = self.model.simulation.instant + timedelta(minutes=3)
        request = Request(operation, not_before=self.model.oracle.seconds(at))
        self._send(request, lambda c: c.reschedule(task_id, due_at=at), plan)

    @step(nth=st.integers(0, 4))
    def delete_occurrence(self, nth: int) -> None:
        """delete-item, by hand."""
        task_id = self._occurrence(nth)
        if task_id is not None:
            self.model.table.delete(self.model.hand, task_id)

    def _occurrence(self, nth: int) -> str | None:
        found = sorted(
            (str(row["dueAt"]), str(row["taskId"]))
            for row in self.model.table.everything()
            if "#" in str(row["taskId"]) and row.get("scheduleId") in self.ids
        )
        return found[-1 - nth][1] if nth < len(found) else None

    def _complete(self) -> None:
        complete_schedules(self.model)
        if not self.model.oracle.violations:
            complete_all(self.model)

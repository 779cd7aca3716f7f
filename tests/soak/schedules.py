"""The soak's recurring schedules. Each of their runs is known beforehand, and is judged as a task that was inserted."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from tests.sandbox.journal import INSERT, YES, Answered, Asked
from tests.soak.rig import Rig
from tests.soak.tasks import LENIENT

from dynatick.domain.buckets import instant_of, minute_of
from dynatick.domain.instants import format_instant
from dynatick.store.codec import encode

INTERFACE = "schedule"
MINUTES = (1, 2)  # between two runs, in turn


class Schedules:
    def __init__(self, rig: Rig) -> None:
        self._rig, self._here = rig, rig.here

    def insert(self) -> None:
        """Raw items; their last run is due when the storm is over."""
        now, plan = self._here.clock(), self._rig.plan
        first = instant_of(minute_of(now) + 2)
        last = instant_of(minute_of(now + timedelta(minutes=plan.minutes * plan.speed)))
        for number in range(plan.schedules):
            every = MINUTES[number % len(MINUTES)]
            row = {
                "taskId": f"schedule-{number}",
                "scheduleExpression": f"rate({every} minute{'s' if every > 1 else ''})",
                "startDate": format_instant(first),
                "endDate": format_instant(max(first, last)),
                "catchUp": "all",
                "overlap": "allow",
                "retryPolicy": LENIENT,
            }
            self._note(occurrences(str(row["taskId"]), first, max(first, last), every))
            self._rig.dynamodb.put_item(TableName=self._rig.table, Item=encode(row))

    def _note(self, ids: Iterator[str]) -> None:
        at = self._here.now()
        for task_id in ids:
            asked = Asked(number=task_id, what=INSERT, interface=INTERFACE, task_id=task_id, life=task_id, at=at)
            self._here.journal.add(asked, Answered(number=task_id, answer=YES, at=at))


def occurrences(schedule_id: str, first: datetime, last: datetime, every: int) -> Iterator[str]:
    """The id of each run's task."""
    at = first
    while at <= last:
        yield f"{schedule_id}#1#{format_instant(at)}"
        at += timedelta(minutes=every)

"""The soak's recurring schedules. Each of their runs is known beforehand, and is judged as a task that was inserted."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from tests.sandbox.journal import INSERT
from tests.soak.rig import Rig
from tests.soak.tasks import LENIENT

from dynatick.domain.buckets import instant_of, minute_of
from dynatick.domain.instants import format_instant
from dynatick.store.codec import encode

MINUTES = (1, 2)  # between two runs, in turn


def insert_schedules(rig: Rig) -> None:
    """Raw items; their last run is due when the storm is over."""
    now, plan = rig.clock(), rig.plan
    first = instant_of(minute_of(now) + 2)
    last = max(first, instant_of(minute_of(now + timedelta(minutes=plan.minutes * plan.speed))))
    for number in range(plan.schedules):
        every = MINUTES[number % len(MINUTES)]
        row = {
            "taskId": f"schedule-{number}",
            "scheduleExpression": f"rate({every} minute{'s' if every > 1 else ''})",
            "startDate": format_instant(first),
            "endDate": format_instant(last),
            "catchUp": "all",
            "overlap": "allow",
            "retryPolicy": LENIENT,
        }
        rig.note(INSERT, *occurrences(str(row["taskId"]), first, last, every), interface="schedule")
        rig.dynamodb.put_item(TableName=rig.table, Item=encode(row))


def occurrences(schedule_id: str, first: datetime, last: datetime, every: int) -> Iterator[str]:
    """The id of each run's task."""
    at = first
    while at <= last:
        yield f"{schedule_id}#1#{format_instant(at)}"
        at += timedelta(minutes=every)

"""Planning: the wake-ups of a shard's next buckets (protocol 19).

The pass that raised ``plannedThrough`` polls those buckets once, two ticks ahead, by the index alone, and sends
wake-ups for the instants at which tasks are due. What comes later is sent by the writer of the instant. Planning is
bounded in time and memory: what is left out runs at its tick.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from itertools import islice

from dynatick.domain.buckets import Bucket
from dynatick.domain.due import Due, due_of
from dynatick.domain.schedule import is_listed_as_schedule
from dynatick.domain.task import is_own_row
from dynatick.engine.execution import Services
from dynatick.engine.ports import Entry
from dynatick.engine.report import PassReport
from dynatick.engine.wake_up import send_wake_ups, wake_ups_of
from dynatick.errors import DynatickError

MAX_PLANNED = 50_000
"""Tasks that one pass plans: they are in memory at once."""

MAX_TIME = timedelta(seconds=10)
"""The limit for planning, in a thread of its own: until then its pass does not end."""

_PAGE = 2000
_CHUNK = 100  # wake-ups that are sent before the time is checked again


def send_planned(services: Services, report: PassReport, minutes: Iterable[int]) -> None:
    """Polls these buckets and sends the wake-ups of what is open in them, counted in the report. Doesn't raise:
    wake-ups are hints."""
    if services.wake_ups is None:
        return
    until = services.clock() + MAX_TIME
    for minute in minutes:
        bucket = Bucket(minute, report.shard)
        due: list[Due | None] = []
        on_time = False
        after: str | None = None
        try:
            while services.clock() < until and report.planned + len(due) < MAX_PLANNED:
                page = services.store.query_bucket(bucket, after=after, limit=_PAGE)
                for entry in page.entries:
                    found = None if entry.action in services.rules.limited_actions else _due_in(entry, bucket)
                    if isinstance(found, Due):
                        due.append(found)
                    on_time = on_time or found is True
                after = page.after
                if after is None:
                    break
        except DynatickError as error:
            report.planning_failed = str(error)
        report.planned += len(due)
        if on_time:
            due.append(None)
        wake_ups = wake_ups_of(((bucket, one) for one in due), threads=services.rules.threads)
        while chunk := list(islice(wake_ups, _CHUNK)):
            in_time = services.clock() < until
            report.unsent += send_wake_ups(services.wake_ups, chunk) if in_time else len(chunk)


def _due_in(entry: Entry, bucket: Bucket) -> Due | bool | None:
    """The instant of a task that a wake-up can run; True: it is due on the tick, or is a schedule; None: neither."""
    if is_own_row(entry.task_id):
        return None
    if entry.schedule_id is not None and is_listed_as_schedule(entry.task_id, entry.schedule_id):
        return True
    due = due_of(entry.task_id, entry.due_at, entry.next_attempt_at)
    if due is None or due.at > bucket.instant:
        return None
    return True if due.at == bucket.instant else due

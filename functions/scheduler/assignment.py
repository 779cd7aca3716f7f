"""Assignment policies: when a task runs that came without a time.

The parameter ``AssignmentPolicy`` names one as ``module:function``. It is given the task, the present instant and the
grid in force, and returns the instant at which the task is due (aware), or None for the next tick. It must be quick
and must not fail: a task for which it raises is marked failed, with what it raised as the reason.
"""

from __future__ import annotations

import zlib
from datetime import UTC, datetime, time, timedelta

from dynatick import Grid, Unassigned

QUIET_UNTIL, QUIET_FROM = time(8, 0), time(20, 0)


def next_tick(task: Unassigned, now: datetime, grid: Grid) -> datetime | None:
    """As soon as possible."""
    return None


def in_daytime(task: Unassigned, now: datetime, grid: Grid) -> datetime | None:
    """At the next tick between 08:00 and 20:00 UTC; what comes in at night waits for the morning."""
    if QUIET_UNTIL <= now.time() < QUIET_FROM:
        return None
    morning = datetime.combine(now.date(), QUIET_UNTIL, tzinfo=UTC)
    return morning if morning > now else morning + timedelta(days=1)


def spread_over_an_hour(task: Unassigned, now: datetime, grid: Grid) -> datetime | None:
    """Anywhere within the next hour, always the same for one id: takes the edge off a crowd that comes at once."""
    return now + timedelta(seconds=zlib.crc32(task.task_id.encode()) % 3600)

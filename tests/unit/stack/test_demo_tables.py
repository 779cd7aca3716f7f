"""The tables at the end of the demo."""

import io
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table

from dynatick.client import IdleTicks, TaskEntry, TaskView, TickView
from dynatick_stack.demo import tables

NOON = datetime(2026, 12, 31, 12, 0, tzinfo=UTC)
ERROR = "taskDateTime: '2027-02-31#12:00' is not accepted; there is no such time (day is out of range for month)"


def lines(*shown: Table, width: int) -> list[str]:
    file = io.StringIO()
    console = Console(file=file, width=width)
    for table in shown:
        console.print(table)
    return [line.rstrip() for line in file.getvalue().splitlines()]


def entry(task_id: str, bucket: str, status: str, **more: Any) -> TaskEntry:
    return TaskEntry(task_id=task_id, bucket=bucket, status=status, action="log", **more)


ENTRIES = [
    entry("bad", "2026-12-31#12:00", "failed", error=ERROR),
    entry("past [bold]", "2026-12-31#12:00", "completed", due_at=datetime(2021, 12, 31, 3, 0, tzinfo=UTC)),
    entry("retried", "2026-12-31#12:01", "completed", due_at=NOON + timedelta(seconds=3)),
]
TASKS = {
    "past [bold]": {"taskDateTime": "2026-12-31#12:00", "startedAt": "2026-12-31T12:00:04.125Z", "attempt": 1},
    "retried": {"taskDateTime": "2026-12-31#12:01", "startedAt": "2026-12-31T12:01:00.500Z", "attempt": 2},
}


@pytest.mark.parametrize(
    ("width", "error"),
    [(160, ERROR[:95] + "…"), (100, ERROR[:35] + "…")],
)
def test_each_bucket_has_its_table(width: int, error: str) -> None:
    tasks = {task_id: TaskView.from_row({"taskId": task_id} | row) for task_id, row in TASKS.items()}
    shown = lines(*tables.history(ENTRIES, tasks, width=width), width=width)
    assert [line for line in shown if not set(line) <= {"─"}] == [
        "2026-12-31#12:00: 1 completed, 1 failed",
        "taskId       action  status     attempt  due         started  error",
        f"bad          log     failed                                   {error}",
        # As it is written: what is in brackets is no markup.
        "past [bold]  log     completed        1  2021-12-31   +4.1 s",
        "2026-12-31#12:01: 1 completed",
        "taskId       action  status     attempt  due         started  error",
        "retried      log     completed        2  12:00:03     +0.5 s",
    ]


def test_no_bucket_no_table() -> None:
    assert list(tables.history([], {}, width=100)) == []


def test_ticks_and_idle_ticks() -> None:
    counts: dict[str, Any] = dict.fromkeys(
        (
            "buckets",
            "released",
            "expired",
            "recovered",
            "deferred",
            "superseded",
            "unrecorded",
            "unfinished",
            "moved",
            "occurrences",
            "missed",
            "lateness_mean_ms",
        ),
        0,
    )
    tick = TickView(
        tick="2026-12-31#12:05", shard=0, continuation=0, started_at=NOON + timedelta(minutes=5, seconds=4),
        finished_at=NOON + timedelta(minutes=5, seconds=5), first_start_ms=19, continued=False, due=6, claimed=5,
        completed=3, failed=1, retried=1, lateness_max_ms=4100, **counts,
    )  # fmt: skip
    idle = IdleTicks(shard=0, since="2026-12-31#12:00", until="2026-12-31#12:04", ticks=5)
    assert [line for line in lines(tables.ticks([idle, tick]), width=140) if not set(line) <= {"─"}] == [
        "Ticks",
        "tick                        began    took  due  claimed  completed  failed  retried  first start     late",
        "2026-12-31#12:00 to 12:04    idle",
        "2026-12-31#12:05           +4.0 s  +1.0 s    6        5          3       1        1        19 ms  4100 ms",
    ]

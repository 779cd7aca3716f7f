"""How late tasks begin with Precision second, on the local stack: ``make bench OF=lateness``.

Two times for each task: from its due time to the start of its handler, as users see it, with the emulator's queue in
it; and from the later of its due time and the start of its invocation, which is Dynatick's own.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from dynatick.domain.instants import format_instant, parse_instant
from dynatick_stack import local
from dynatick_stack.checkout import MODULE, with_handlers
from dynatick_stack.local import LocalStack
from dynatick_stack.scratch import run_in_scratch

HANDLERS = """\
import time

from dynatick import task


@task("clock")
def clock(payload: dict[str, object]) -> object:
    return {"began": repr(time.time())}
"""
TIMEOUT = timedelta(seconds=120)  # of an invocation: its leases end so long after it began
UNTIL_PLANNED = timedelta(minutes=3, seconds=10)  # so that ticks plan what is inserted now
MINUTES = 5  # over which tasks are due
BURSTS, OF_A_BURST = 10, 250
PERCENTILES = (50, 90, 99, 99.9, 100)


@dataclass(frozen=True, slots=True)
class Start:
    """When a task's handler began."""

    due: datetime
    began: datetime
    entered: datetime  # its invocation

    @property
    def seen(self) -> float:
        return (self.began - self.due).total_seconds()

    @property
    def own(self) -> float:
        return (self.began - max(self.due, self.entered)).total_seconds()


def lateness(tasks: int = 10_000) -> int:
    """Exit code 1: a task began early, or did not run once."""
    return run_in_scratch("lateness", lambda folder: _run(folder, tasks))


def _run(folder: Path, number: int) -> int:
    parameters = {"TickMinutes": "1", "Precision": "second", "HandlersModule": MODULE, "DefaultAction": "clock"}
    root = with_handlers(folder / "checkout", HANDLERS)
    stack = local.up(0, parameters, state_dir=folder / "local", root=root)
    return _report(list(_measure(stack, number)), number)


def _measure(stack: LocalStack, number: int) -> Iterator[Start]:
    client = stack.task_client()
    first, dice = datetime.now(UTC) + UNTIL_PLANNED, random.Random(13)
    bursts = [dice.randrange(MINUTES * 60) for _ in range(BURSTS)]
    in_bursts = min(number // 4, BURSTS * OF_A_BURST)
    offsets = [bursts[n % BURSTS] + dice.random() for n in range(in_bursts)]
    offsets += [dice.random() * MINUTES * 60 for _ in range(number - in_bursts)]
    tasks = [
        {"taskId": f"late-{n:05d}", "dueAt": format_instant(first + timedelta(seconds=offset))}
        for n, offset in enumerate(offsets)
    ]
    counts = client.insert_many(tasks)
    print(f"{counts.inserted} tasks inserted, due from {format_instant(first)} on, for {MINUTES} minutes", flush=True)
    end = first + timedelta(minutes=MINUTES, seconds=90)
    time.sleep(max(0.0, (end - datetime.now(UTC)).total_seconds()))
    for n in range(number):
        row = client.get(f"late-{n:05d}").row
        result = row.get("result")
        if isinstance(result, dict) and row.get("attempt") == 1:
            yield Start(
                due=parse_instant(row["dueAt"], "dueAt"),
                began=datetime.fromtimestamp(float(result["began"]), UTC),
                entered=parse_instant(row["leaseUntil"], "leaseUntil") - TIMEOUT,
            )


def _report(starts: Sequence[Start], number: int) -> int:
    early = sum(start.began < start.due for start in starts)
    figures = {
        "tasks": len(starts),
        "early": early,
        "seen_ms": _percentiles([start.seen for start in starts]),
        "own_ms": _percentiles([start.own for start in starts]),
    }
    print(json.dumps(figures))
    return int(early > 0 or len(starts) < number)


def _percentiles(seconds: Sequence[float]) -> dict[str, int]:
    ordered = sorted(seconds)
    return {
        f"p{percent:g}": round(1000 * ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))])
        for percent in PERCENTILES
    }

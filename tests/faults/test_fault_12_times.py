"""Times in every notation, and times that do not exist: refused with a reason, or run at the first tick that may be."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from tests.faults.conftest import NewWorld, Report
from tests.faults.world import World

from dynatick.domain.instants import EPOCH, format_instant, parse_instant
from dynatick.errors import InvalidInput

GRID = timedelta(minutes=5)
BERLIN = ZoneInfo("Europe/Berlin")
# Clocks go back at 01:00 UTC: 02:00 to 03:00 in Berlin is there twice.
FOLD = datetime(2026, 10, 25, 0, 21, 10, tzinfo=UTC)
# Clocks go forward at 01:00 UTC: 02:00 to 03:00 in Berlin is not there at all.
GAP = datetime(2027, 3, 28, 0, 21, 10, tzinfo=UTC)

# On the day of the fold: the attribute, its value, and when it is due (None: refused).
AT = "2026-10-25T00:"
TIMES: list[tuple[str, object, str | None]] = [
    ("dueAt", f"{AT}25:00Z", f"{AT}25:00Z"),  # on a tick
    ("dueAt", f"{AT}27:00Z", f"{AT}27:00Z"),  # off the ticks
    ("dueAt", f"{AT}29:59.999Z", f"{AT}29:59.999Z"),
    ("dueAt", f"{AT}31z", f"{AT}31:00Z"),  # without seconds
    ("dueAt", "2026-10-25T02:31:00+02:00", f"{AT}31:00Z"),  # the first 02:31 of that night
    ("dueAt", "2026-10-25T02:31:00+01:00", "2026-10-25T01:31:00Z"),  # the second
    ("dueAt", 1792888260, f"{AT}31:00Z"),
    ("dueAt", "1999-12-31T23:59:59Z", "now"),  # long past
    ("dueAt", f"{AT}21:05Z", "now"),  # within the current minute, and past
    ("dueAt", f"{AT}21:50Z", f"{AT}21:50Z"),  # within the current minute, and to come
    ("taskDateTime", "2026-10-25#00:30", f"{AT}30:00Z"),
    ("taskDateTime", "2026-10-25#00:33", f"{AT}33:00Z"),  # off the ticks
    ("taskDateTime", "2026-10-25#00:20", "now"),  # closed
    ("taskDateTime", f"{AT}33:20Z", f"{AT}33:20Z"),
    ("delaySeconds", 0, "now"),
    ("delaySeconds", 90, f"{AT}22:40Z"),
    ("dueAt", "2026-10-25T00:27:00", None),  # naive
    ("dueAt", "2026-10-25T24:00:00Z", None),
    ("dueAt", "2026-02-31T12:00:00Z", None),
    ("dueAt", "2026-10-25T00:27:60Z", None),  # a leap second
    ("dueAt", "2026-10-25T00:27:00 Europe/Berlin", None),
    ("dueAt", "now", None),
    ("dueAt", 1792888260000, None),  # milliseconds
    ("taskDateTime", "2026-10-25#24:00", None),
    ("delaySeconds", -1, None),
]


def instant(when: str) -> datetime:
    """When a task may run at the earliest; ``now``: at once."""
    return EPOCH if when == "now" else parse_instant(when, "when")


def check(world: World, due: Mapping[str, str], report: Report, *, failed: int) -> None:
    """Ticks through the night. Each task has run then, at the first tick at or after its time and its insertion."""
    there = world.clock()
    while world.clock() < there.replace(hour=1, minute=36):
        assert world.tick_on_grid(5).what == "returned"
    world.finish()
    ran = {execution.task_id: execution.instant for execution in world.ledger.done()}
    assert set(ran) == set(due)
    for task_id, at in ran.items():
        when = instant(due[task_id])
        assert when <= at < max(when, there) + GRID + timedelta(seconds=5), (task_id, at)
    figures = report(world)
    assert figures.otherwise == ({"failed": failed} if failed else {})
    assert figures.executed == len(due)


def test_fault_12_times_in_raw_rows(new_world: NewWorld, report: Report) -> None:
    world = new_world(start=FOLD, DYNATICK_TICK_MINUTES="5")
    due, refused = {}, []
    for number, (name, value, when) in enumerate(TIMES):
        task_id = f"{number:02d} {value}"
        world.put(taskId=task_id, fails=when is None, **{name: value})
        if when is None:
            refused.append(task_id)
        else:
            due[task_id] = when
    world.deliver(world.stream.new())
    rows = world.rows()
    for task_id in refused:
        assert rows[task_id]["outcome"] == "failed"
        assert "is not accepted" in str(rows[task_id]["error"]) or "no such time" in str(rows[task_id]["error"])
    assert {letter["taskId"] for letter in world.letters()} == set(refused)
    check(world, due, report, failed=len(refused))


@pytest.mark.parametrize("start", [FOLD, GAP], ids=["fold", "gap"])
def test_fault_12_times_by_the_client(new_world: NewWorld, start: datetime, report: Report) -> None:
    """Datetimes of that night in Berlin, which only the client takes."""
    world = new_world(start=start, DYNATICK_TICK_MINUTES="5")
    night = world.clock().astimezone(BERLIN).replace(hour=2, minute=31, second=0, microsecond=0)
    due = {}
    for fold in (0, 1):
        world.insert(f"fold-{fold}", due_at=night.replace(fold=fold))
        due[f"fold-{fold}"] = format_instant(night.replace(fold=fold))
    with pytest.raises(InvalidInput, match=r"is not accepted"):
        world.client.insert("naive", due_at=night.replace(tzinfo=None))
    assert world.store.get("naive") is None
    check(world, due, report, failed=0)

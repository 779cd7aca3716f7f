"""Times in every notation, and times that do not exist: refused with a reason, or run at the first tick that may be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest
from tests.faults.conftest import NewWorld, Report
from tests.faults.world import World

from dynatick.domain.buckets import Bucket
from dynatick.domain.instants import EPOCH, parse_instant
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
    ("dueAt", f"{AT}25:01Z", f"{AT}25:01Z"),
    ("dueAt", f"{AT}29:59.999Z", f"{AT}29:59.999Z"),
    ("dueAt", f"{AT}31z", f"{AT}31:00Z"),  # without seconds
    ("dueAt", "2026-10-25 00:31Z", f"{AT}31:00Z"),
    ("dueAt", "2026-10-25T02:31:00+02:00", f"{AT}31:00Z"),  # the first 02:31 of that night
    ("dueAt", "2026-10-25T02:31:00+01:00", "2026-10-25T01:31:00Z"),  # the second
    ("dueAt", "2026-10-24T20:01:00-04:30", f"{AT}31:00Z"),
    ("dueAt", 1792888260, f"{AT}31:00Z"),
    ("dueAt", Decimal("1792888260.5"), f"{AT}31:00.500Z"),
    ("dueAt", "1999-12-31T23:59:59Z", "now"),  # long past
    ("dueAt", f"{AT}21:05Z", "now"),  # within the current minute, and past
    ("dueAt", f"{AT}21:50Z", f"{AT}21:50Z"),  # within the current minute, and to come
    ("taskDateTime", "2026-10-25#00:30", f"{AT}30:00Z"),
    ("taskDateTime", "2026-10-25#00:33", f"{AT}33:00Z"),  # off the ticks
    ("taskDateTime", "2026-10-25#00:20", "now"),  # closed
    ("taskDateTime", "2020-02-29#00:00", "now"),
    ("taskDateTime", f"{AT}33:20Z", f"{AT}33:20Z"),
    ("delaySeconds", 0, "now"),
    ("delaySeconds", Decimal("0.5"), "now"),
    ("delaySeconds", 90, f"{AT}22:40Z"),
    ("dueAt", "2026-10-25T00:27:00", None),  # naive
    ("dueAt", "2026-10-25T24:00:00Z", None),
    ("dueAt", "2026-02-31T12:00:00Z", None),
    ("dueAt", "2027-02-29T12:00:00Z", None),
    ("dueAt", "2026-10-25T00:60:00Z", None),
    ("dueAt", "2026-10-25T00:27:60Z", None),  # a leap second
    ("dueAt", "2026-10-25T00:27:00+24:00", None),
    ("dueAt", "2026-10-25T00:27:00 Europe/Berlin", None),
    ("dueAt", "25.10.2026 00:27", None),
    ("dueAt", "20261025T002700Z", None),
    ("dueAt", "now", None),
    ("dueAt", " ", None),
    ("dueAt", 1792888260000, None),  # milliseconds
    ("dueAt", -1, None),
    ("taskDateTime", "2026-10-25#24:00", None),
    ("taskDateTime", "2026-02-31#12:00", None),
    ("taskDateTime", "2026-10-25#0:30", None),
    ("taskDateTime", "2026-10-25#00:30#01", None),
    ("delaySeconds", -1, None),
    ("delaySeconds", "60", None),
    ("delaySeconds", Decimal("1E+30"), None),
]
ARGUMENTS = {"dueAt": "due_at", "taskDateTime": "task_date_time", "delaySeconds": "delay_seconds"}


def moments(now: datetime) -> Iterator[tuple[str, datetime | None, str | None]]:
    """Datetimes of that night in Berlin, which only the client takes: name, value, when it is due."""
    local = now.astimezone(BERLIN)
    for fold in (0, 1):
        when = local.replace(hour=2, minute=31, second=0, microsecond=0, fold=fold)
        yield f"fold-{fold}", when, when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    yield "naive", local.replace(hour=2, minute=31, tzinfo=None), None


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
    world = new_world(start=start, DYNATICK_TICK_MINUTES="5")
    cases: list[tuple[str, str, object, str | None]] = [
        (f"moment-{name}", "dueAt", value, when) for name, value, when in moments(world.clock())
    ]
    if start == FOLD:
        cases += [(f"{n:02d} {value}", name, value, when) for n, (name, value, when) in enumerate(TIMES)]
    due = {}
    for task_id, name, value, when in cases:
        if when is None:
            with pytest.raises(InvalidInput, match=r"is not accepted|there is no such time"):
                world.client.insert(task_id, **{ARGUMENTS[name]: value})  # type: ignore[arg-type]
            assert world.store.get(task_id) is None
        else:
            world.insert(task_id, **{ARGUMENTS[name]: value})
            due[task_id] = when
    check(world, due, report, failed=0)


def test_fault_12_times_over_midnight(new_world: NewWorld, report: Report) -> None:
    """Every seven seconds over midnight and the turn of the year."""
    world = new_world(start=datetime(2026, 12, 31, 23, 57, 10, tzinfo=UTC), DYNATICK_TICK_MINUTES="2")
    for second in range(0, 300, 7):
        world.insert(f"t{second:03d}", due_at=world.clock() + timedelta(seconds=second))
    due = {task_id: parse_instant(row["dueAt"], "dueAt") for task_id, row in world.rows().items()}
    for _ in range(4):
        world.tick_on_grid(2)
    world.finish()
    for execution in world.ledger.done():
        at = execution.instant
        assert due[execution.task_id] <= at < due[execution.task_id] + timedelta(minutes=2, seconds=5)
        row = world.row(execution.task_id)
        assert Bucket.parse(row["taskDateTime"]).minute % 2 == 0
    assert report(world).executed == len(due)

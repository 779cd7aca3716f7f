"""Times and durations as they are typed."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest
from tests.builders import NOON, InProcess
from tests.unit.cli.conftest import Shell

from dynatick import InvalidInput
from dynatick.cli.arguments import minutes_of, seconds_of, shift_of
from dynatick.domain.durations import duration_of
from dynatick.domain.instants import relative_time


@pytest.mark.parametrize(
    ("text", "time"),
    [
        (" now ", "2026-12-31T12:00:00Z"), ("-1h", "2026-12-31T11:00:00Z"),
        ("+1d2h3m4s", "2027-01-01T14:03:04Z"), ("1798718400", Decimal(1798718400)),
        ("1798718400.5", Decimal("1798718400.5")), ("2026-12-31#12:00", "2026-12-31#12:00"),
        ("tomorrow", "tomorrow"), ("+", "+"), ("", ""),  # the client says what is wrong with them
    ],
)  # fmt: skip
def test_times(text: str, time: object) -> None:
    assert relative_time(text, "dueAt", NOON) == time


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("10m", "add a sign: +10m is later than now, -10m earlier"),
        ("+10", "add a unit: +10s, +10m or +10h"),
        ("-3600", "add a unit: -3600s, -3600m or -3600h"),
        ("-999999d", "expected a time between 1970 and 9998"),
    ],
)
def test_a_time_that_could_mean_two_things_is_refused_with_a_hint(text: str, hint: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        relative_time(text, "dueAt", NOON)
    assert str(refused.value) == f"dueAt: '{text}' is not accepted; {hint}"


@pytest.mark.parametrize(
    "text", ["", "h", "30m1h", "1h 30m", "1w", "-1h", "+1h", "1H", "nan", "1e3", "1234567s", "\u0661h"]
)
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(InvalidInput, match="expected numbers with their units, such as 90s, 60m, 2h, 1h30m or 1d"):
        duration_of(text, "last")
    with pytest.raises(InvalidInput, match="expected a number of seconds, or a duration such as 90s"):
        seconds_of(text, "delaySeconds")


def test_durations_shifts_and_minutes() -> None:
    seconds = {"90": 90, "0": 0, "1.5": Decimal("1.5"), "-1": -1, "90s": 90, "1h30m": 5400, "3d": 259200}
    assert {text: seconds_of(text, "delaySeconds") for text in seconds} == seconds
    minutes = {"15": 15, "15m": 15, "1h30m": 90, "120s": 2, "-1": -1, None: None}
    assert {text: minutes_of(text, "window") for text in minutes} == minutes
    assert shift_of("+1h", "by") == timedelta(hours=1)
    assert shift_of("-1h30m", "by") == timedelta(hours=-1, minutes=-30)
    for text in ("1h", "+0s", "+60", ""):
        with pytest.raises(InvalidInput, match=r"expected a duration with its sign, such as \+1h for later"):
            shift_of(text, "by")


def test_they_are_taken_wherever_a_time_is(shell: Shell, world: InProcess) -> None:
    for arguments, due in (
        ("add a --delay 2h", "2026-12-31T14:00"), ("add b --delay 90", "2026-12-31T12:01"),
        ("add c --at +1h30m", "2026-12-31T13:30"), ("add d --at=now", "2026-12-31T12:00"),
        ("reschedule a --at +10m", "2026-12-31T12:10"), ("update a --delay 1d", "2027-01-01T12:00"),
    ):  # fmt: skip
        assert str(shell("task", *arguments.split(), "-o", "json").json["dueAt"])[:16] == due, arguments
    assert shell("task", "add", "e", "--timeout-seconds", "2m", "-o", "json").json["timeoutSeconds"] == 120
    assert shell("task", "add", "f", "--subject", "customer:7", "-o", "json").json["subject"] == "customer:7"
    assert ["subject", "customer:7"] in [line.split() for line in shell("task", "get", "f").lines]
    assert shell("task", "add", "g", "--limit-key", "customer:7", "-o", "json").json["limitKey"] == "customer:7"
    assert [["limit", "key"], ["customer:7"]] in [
        [line.split()[:2], line.split()[2:]] for line in shell("task", "get", "g").lines
    ]
    world.store.create({"taskId": "x", "taskDateTime": "2026-12-31#12:04", "outcome": "completed"})
    world.ticks(3)
    world.clock.forward(minutes=1)  # the present minute is part of the last hour
    for span in (["--from", "-1h", "--to", "+1m"], ["--from=-1h", "--to=+60s"], ["--last", "2h"]):
        listed = shell("task", "list", *span, "-o", "json").json["tasks"]
        assert {task["taskId"] for task in listed} == {"b", "d", "x"}, span
        counts = shell("bucket", "list", *span, "-o", "json").json["buckets"]
        assert sum(one["total"] for one in counts) == 3
        assert len(shell("task", "export", *span).lines) == 3
        assert "pass" in [one["kind"] for one in shell("tick", "list", *span, "-o", "json").json["ticks"]]
    made = shell("schedule", "add", "s", "rate(1 hour)", "--start-date", "+1h", "--flexible-time-window", "15m")
    assert made.code == 0 and "2026-12-31T13:" in made.out
    assert shell("schedule", "history", "s", "--from", "-1h", "--to", "now").code == 0
    assert shell("expr", "next", "rate(1 hour)", "--from", "+1h", "--count", "1", "-o", "json").code == 0

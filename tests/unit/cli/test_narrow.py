"""Tables on narrow terminals: no line is longer than the terminal is wide, and every time stands whole on its line."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

import pytest

from dynatick.cli import bucket, task_display, tick
from dynatick.cli.output import Column, Output, show_one, show_table

TIME = re.compile(r"\d{4}-\d\d-\d\d[#T][\d:]*Z?")
BUCKETS = [f"2026-12-31#12:{minute:02d}" for minute in range(3)]
INSTANT = "2026-12-31T12:00:00Z"
LONG = "order-2026-confirmation-of-the-customer-4711"

COUNTS = {"unscheduled": 1, "scheduled": 10_000, "running": 100, "completed": 123_456, "failed": 7, "cancelled": 1,
          "total": 133_565}  # fmt: skip
TASK = {"taskId": LONG, "status": "completed", "action": "send-reminder", "dueAt": INSTANT, "finishedAt": INSTANT,
        "attempt": 3, "error": "SMTP: the server refused it"}  # fmt: skip
IDLE = {"tick": "2026-12-31#12:02 … 12:07", "shard": 0, "what": "5 idle"}
PASS = {"shard": 0, "what": "pass", "due": 5, "claimed": 5, "completed": 4, "failed": 1, "retried": 0, "missed": 0,
        "latenessP99Ms": 812, "latenessMaxMs": 1200, "tookMs": 1400}  # fmt: skip

# The columns, the rows, and the column of times that is always there.
ROWS: dict[str, tuple[Sequence[Column], list[dict[str, object]], str]] = {
    "bucket list": (bucket._COLUMNS, [{"bucket": name, **COUNTS} for name in BUCKETS], "bucket"),
    "task list": (task_display.COLUMNS, [{"taskDateTime": name, **TASK} for name in BUCKETS], "taskDateTime"),
    "tick list": (tick._COLUMNS, [IDLE, *({"tick": name, **PASS} for name in BUCKETS)], "tick"),
}


@pytest.fixture(params=[80, 60, 40])
def width(request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(type(sys.stdout), "isatty", lambda stream: True)  # it is another one in the test itself
    monkeypatch.setenv("COLUMNS", str(request.param))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    return int(request.param)


def shown(capsys: pytest.CaptureFixture[str], table: str) -> list[str]:
    columns, rows, _ = ROWS[table]
    show_table(rows, columns)
    return re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()


@pytest.mark.parametrize("table", ROWS)
def test_tables(capsys: pytest.CaptureFixture[str], width: int, table: str) -> None:
    _, rows, always = ROWS[table]
    lines = shown(capsys, table)
    assert max(map(len, lines)) <= width
    times = TIME.findall("\n".join(lines))
    assert {len(time) for time in times} <= {len(BUCKETS[0]), len(INSTANT)}
    assert [time for time in times if "#" in time] == [str(row[always])[:16] for row in rows]


def test_what_matters_most_stays_and_empty_columns_go_first(capsys: pytest.CaptureFixture[str], width: int) -> None:
    of_buckets, last_of_ticks = {
        80: ("SCHEDULED RUNNING COMPLETED FAILED CANCELLED TOTAL", "LATE MS"),
        60: ("SCHEDULED COMPLETED FAILED TOTAL", "CLAIMED COMPLETED"),
        40: ("FAILED TOTAL", "WHAT DUE"),
    }[width]
    assert shown(capsys, "bucket list")[0].split() == ["BUCKET", *of_buckets.split()]
    assert " ".join(shown(capsys, "tick list")[0].split()).endswith(last_of_ticks)
    show_table([{"bucket": BUCKETS[0], "cancelled": 2, "unscheduled": 1, "total": 3}], bucket._COLUMNS)
    heading = capsys.readouterr().out.splitlines()[0]
    assert ("UNSCHEDULED" in heading, "FAILED" in heading) == (width > 40, False)


def test_of_a_task_every_time_stands_whole(capsys: pytest.CaptureFixture[str], width: int) -> None:
    show_one({"name": "x" * 60, "due": INSTANT}, Output.TABLE)
    lines = capsys.readouterr().out
    assert INSTANT in lines and max(map(len, lines.splitlines())) <= width

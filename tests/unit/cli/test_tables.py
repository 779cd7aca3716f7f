"""Every table of the command line fits the terminal, down to 60 columns, and keeps what matters there."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Sequence
from datetime import timedelta

import pytest
from tests.builders import InProcess, scheduled_row
from tests.unit.cli.conftest import Shell, fail

from dynatick import TaskClient, cli
from dynatick.cli.output import Column, show_table
from dynatick.domain import attributes as attr
from dynatick.domain.buckets import Bucket
from dynatick_stack.plan import command as plan

INSTANT = "2026-12-31T12:00:00Z"
UUID = "3f2b8c1e-0b1f-4c53-9a35-1d2c3b4a5f60"
LONG = "order-2026-confirmation-of-the-customer-4711-and-his-wife"
ERROR = "RuntimeError: the server at https://example.com/a/long/path answered 503, and said that it is down for good"
VALUES: dict[str, object] = {
    attr.TASK_DATE_TIME: "2026-12-31#12:00", "bucket": "2026-12-31#12:00", "tick": "2026-12-31#12:00 … 12:07",
    attr.STATUS: "unscheduled", attr.SCHEDULE_STATE: "DISABLED", "state": "redriven", "taskStatus": "unscheduled",
    "result": "rescheduled", "kind": "expired-lease", "what": "pass, part 2", "local": "2026-12-31 13:00 CET",
    attr.SCHEDULE_EXPRESSION: "cron(0 9 ? * MON-FRI *) America/Argentina/Buenos_Aires", "inTime": "no",
    attr.ACTION: "send-reminder", attr.ERROR: ERROR, "why": ERROR, "remedy": ERROR, "reason": "missed",
}  # fmt: skip


def tables() -> dict[str, Sequence[Column]]:
    """All tables that modules of the command line define."""
    names = [one.name for one in pkgutil.iter_modules(cli.__path__) if one.name != "__main__"]
    modules = [importlib.import_module(f"{cli.__name__}.{name}") for name in names]
    return {
        f"{module.__name__.rpartition('.')[2]}.{name}": value
        for module in (*modules, plan)
        for name, value in vars(module).items()
        if isinstance(value, tuple) and value and all(isinstance(one, Column) for one in value)
    }


def row(columns: Sequence[Column], row_id: str) -> dict[str, object]:
    def value(number: int, column: Column) -> object:
        if column.attribute in (attr.TASK_ID, attr.BATCH_ID):
            return row_id
        is_time = column.attribute.endswith("At") or column.to_seconds
        default = (
            INSTANT
            if is_time
            else 123_456 + number
            if column.right
            else "some words to read"
            if column.folds
            else "yes"
        )
        return VALUES.get(column.attribute, default)

    return {column.attribute: value(number, column) for number, column in enumerate(columns)}


@pytest.fixture(params=[60, 80, 120])
def width(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setenv("COLUMNS", str(request.param))
    return int(request.param)


def test_every_table_is_found() -> None:
    assert {"action._COLUMNS", "dead_letter._COLUMNS", "task_display.COLUMNS", "schedule.HISTORY"} <= tables().keys()
    assert len(tables()) >= 17


@pytest.mark.parametrize("table", tables())
@pytest.mark.parametrize("row_id", ["welcome-42", UUID, LONG])
def test_no_line_is_wider_than_the_terminal_and_what_matters_is_there(
    capsys: pytest.CaptureFixture[str], width: int, table: str, row_id: str
) -> None:
    columns = tables()[table]
    shown = row(columns, row_id)
    show_table([shown, shown], columns)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    for column in columns:
        if column.attribute in (attr.TASK_ID, attr.BATCH_ID):
            assert text.split().count(row_id) == 2, "an id is whole, so that it can be copied"
        elif not column.spare and not column.folds:
            assert text.count(str(shown[column.attribute])) >= 2, f"{column.heading} is missing or cut"
    for column in columns:
        if column.heading in " ".join(lines[:2]).split("  ") and column.folds:
            words = str(shown[column.attribute]).split()
            assert all(word in text for word in words if len(word) <= 16), f"{column.heading} is cut"


@pytest.mark.parametrize("row_id", ["ä" * 500, "x" * 200])
def test_an_id_that_is_longer_than_the_terminal_takes_several_lines_from_its_edge(
    capsys: pytest.CaptureFixture[str], width: int, row_id: str
) -> None:
    columns = tables()["task_display.COLUMNS"]
    show_table([row(columns, row_id)], columns)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    assert row_id in "".join(lines)


def test_without_a_terminal_a_row_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    columns = tables()["dead_letter._COLUMNS"]
    show_table([row(columns, LONG)], columns)
    assert len(capsys.readouterr().out.splitlines()) == 2


COMMANDS = [
    "task list --last 1h", "bucket list --last 1h", "tick list", "action list", "schedule list", "batch list --last 1h",
    "failure list",
    "schedule preview report-to-the-accountants-of-the-company", "deadletter list", "deadletter redrive --dry-run",
    "task cancel --bucket 2026-12-31#13:00 --dry-run", "doctor", "status", "settings",
    f"task get {UUID}", "expr next rate(1_hour)",
]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_commands(shell: Shell, world: InProcess, width: int, command: str) -> None:
    client = TaskClient(world.store, clock=world.clock)
    world.actions.behaviour[UUID] = fail
    client.insert(UUID, delay_seconds=1, action="log")
    client.insert(LONG, due_at="2026-12-31T13:00:00Z", action="log")
    client.schedules.insert("report-to-the-accountants-of-the-company", "rate(1 hour)", action="log")
    world.store.create(scheduled_row("lost", Bucket.parse("2026-12-31#11:00")))
    batch = "newsletter-of-december-to-everybody-who-wants-it"
    client.batches.insert([{}], batch_id=batch, action="log", delay=timedelta(seconds=1))
    world.next_tick()
    ended = shell(*(word.replace("_", " ") if "rate" in word else word for word in command.split()))
    assert ended.out
    assert max(map(len, ended.lines)) <= width
    for task_id in (UUID, LONG):
        if task_id[:20] in ended.out and command != "status":
            assert task_id in ended.out.split(), "an id is whole"

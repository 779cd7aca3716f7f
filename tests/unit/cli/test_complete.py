"""Whatever the Python client can do, the command line can; every command prints in each way, and is in its page."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields

import pytest
from tests.builders import InProcess
from tests.unit.cli.conftest import Shell
from tests.unit.reference_page import text
from typer.main import get_command

from dynatick import TaskClient
from dynatick.cli import bucket, expr, schedule, task, tick
from dynatick.cli.app import app
from dynatick.cli.exit_code import ExitCode
from dynatick.cli.session import Session
from dynatick.client import DeadLetters
from dynatick.client.batches import Batches
from dynatick.client.change_records import ChangeRecords
from dynatick.client.operations import Operations
from dynatick.client.schedules import Schedules

# Each command with the methods that it is for.
OF_TASKS = {
    "task add": "insert insert_task", "task import": "insert_many insert_lazily insert_rows compose",
    "task get": "get", "task cancel": "cancel cancel_many", "task delete": "delete delete_many",
    "task reschedule": "reschedule reschedule_many", "task update": "update", "task redrive": "redrive redrive_many",
    "task run": "run_now run_now_many", "task restore": "restore restore_many", "task list": "history iter_history",
    "task export": "export",
    "task wait": "wait", "bucket list": "bucket_counts iter_listed", "bucket show": "bucket_departures count_tasks",
    "bucket wait": "wait_for_bucket", "settings": "settings", "complete": "complete", "fail": "fail",
    "heartbeat": "heartbeat",
}  # fmt: skip
OF_OPERATIONS = {
    "tick list": "ticks tick_range ticks_and_counts", "bucket list": "listed_pages",
    "doctor": "check_payloads doctor health",
    "pause": "pause pause_action", "resume": "resume resume_action",
    "status": "status", "task explain": "explain", "action list": "actions minute_counts waiting_by_action",
    "failure list": "failures",
}  # fmt: skip
OF_SCHEDULES = {
    "schedule preview": "forecast preview", "schedule add": "insert", "schedule get": "get", "schedule list": "list",
    "schedule update": "update", "schedule pause": "pause", "schedule resume": "resume", "schedule delete": "delete",
    "schedule run": "run_now", "schedule backfill": "backfill", "schedule history": "history",
    "schedule export": "export", "schedule import": "compose", "schedule sync": "sync",
}  # fmt: skip
OF_DEAD_LETTERS = {"deadletter list": "list", "deadletter redrive": "count redrive", "deadletter purge": "purge"}
OF_CHANGES = {"change list": "list", "change show": "get runs_of", "change abort": "abort"}
OF_BATCHES = {
    "batch add": "insert load_pack seal", "batch show": "get", "batch members": "members members_page",
    "batch cancel": "cancel", "batch reschedule": "reschedule", "batch redrive": "redrive",
    "batch list": "list", "batch wait": "wait has_ended",
}  # fmt: skip
NO_VERBS = {"batches", "connect", "dead_letters", "operations", "schedules", "select", "store"}  # ways to the rest
NO_VERBS |= {"transact_put"}  # for a transaction of a program
NO_VERBS |= {
    "new",
    "begin",
    "end",
    "forget",
    "recorded",
    "is_to_end",
}  # what commands and pages write of their own changes
SHARED = {"--table", "--stack", "--region", "--profile", "--endpoint-url", "--local", "--output"}


@pytest.mark.parametrize(
    ("of", "verbs"),
    [
        (TaskClient, OF_TASKS),
        (Operations, OF_OPERATIONS),
        (Schedules, OF_SCHEDULES),
        (Batches, OF_BATCHES),
        (ChangeRecords, OF_CHANGES),
        (DeadLetters, OF_DEAD_LETTERS),
    ],
)
def test_everything_that_the_client_does_has_a_command(of: type, verbs: dict[str, str]) -> None:
    methods = {name for name, _ in inspect.getmembers(of) if not name.startswith("_")} - NO_VERBS
    assert methods == set(" ".join(verbs.values()).split())
    for path in verbs:
        command = get_command(app)
        for name in path.split():
            command = command.commands[name]  # type: ignore[attr-defined]
        assert {option for one in command.params for option in one.opts} >= SHARED, path


@pytest.mark.parametrize(
    "arguments",
    [
        "task add new --delay 60", "task get there", "task list --bucket 2026-12-31#13:00",
        "task update there --payload {}", "task reschedule there --delay 600", "task run there", "task cancel there",
        "task cancel --bucket 2026-12-31#13:00 --dry-run", "bucket show 2026-12-31#13:00",
        "bucket list --from 2026-12-31#12:00 --to 2026-12-31#14:00", "tick list", "action list", "settings", "doctor",
        "failure list", "change list",
        "schedule add s rate(5minutes)", "schedule get nightly", "schedule list",
        "schedule update nightly --overlap allow", "schedule pause nightly", "schedule resume nightly",
        "schedule run nightly", "schedule preview nightly", "schedule history nightly --from 2026-12-31#11:00",
        "schedule backfill nightly --from 2026-12-31#11:00 --to 2026-12-31#12:00 --dry-run", "task delete there",
        "schedule delete nightly", "deadletter list", "deadletter redrive --dry-run",
        "deadletter purge --obsolete", "expr next rate(5minutes)", "expr explain rate(5minutes)",
    ],
)  # fmt: skip
def test_every_command_prints_in_each_way(shell: Shell, world: InProcess, arguments: str) -> None:
    words = [word.replace("5minutes", "5 minutes") for word in arguments.split()]
    for output in ("table", "json", "jsonl"):
        for row in world.store.scan(open_only=False).rows:
            if not str(row["taskId"]).startswith("_dynatick#"):
                world.store.delete(str(row["taskId"]))
        shell("task", "add", "there", "--at", "2026-12-31#13:00", "--action", "log")
        shell("schedule", "add", "nightly", "rate(5 minutes)")
        ended = shell(*words, "--output", output)
        assert ended.code == 0, ended.err
        lines = ended.out.splitlines()
        match output:
            case "json":
                assert ended.json is not None
            case "jsonl":
                assert all(line[0] in '{"' and line[-1] in '}"' for line in lines)
            case "table":
                assert lines == ended.lines


def test_there_are_no_settings_before_a_tick(shell: Shell, world: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shell("settings", "-o", "json").json["tickMinutes"] == 1
    monkeypatch.setattr(TaskClient, "settings", lambda client: None)
    ended = shell("settings")
    assert (ended.code, ended.out) == (4, "")
    assert ended.err == "error: no tick has run yet; the first one writes the settings\n"


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("sch", "schedule"),
        ("task re", "reschedule restore redrive"),
        ("task list --stat", "--status"),
        ("local u", "up"),
    ],
)
def test_the_shell_completes(shell: Shell, monkeypatch: pytest.MonkeyPatch, line: str, offered: str) -> None:
    monkeypatch.setenv("_DYNATICK_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", f"dynatick {line}")
    monkeypatch.setenv("COMP_CWORD", str(len(line.split())))
    ended = shell()
    assert (ended.code, ended.out.split()) == (0, offered.split())


TEXT = text("cli.md")


def test_every_command_has_its_section() -> None:
    known = {
        f"dynatick {noun.app.info.name} {one.name or getattr(one.callback, '__name__', '')}"
        for noun in (task, bucket, schedule, tick, expr)
        for one in noun.app.registered_commands
    }
    sections = set(re.findall(r"^## (dynatick .+)$", TEXT, re.MULTILINE))
    assert known < sections and "dynatick doctor" in sections and "dynatick local up" in sections
    for section in sections:
        assert f"(#{section.replace(' ', '-')})" in TEXT


def test_every_shared_option_and_exit_code_is_there_once() -> None:
    shared = TEXT.partition("## What comes out")[0]
    for option in fields(Session):
        name = f"`--{option.name.replace('_', '-')}"
        assert len(re.findall(rf"^\| {name}[ `]", shared, re.MULTILINE)) == 1
    assert "`--output`, `-o` `table\\|json\\|jsonl` | How to print data. Default: `table`." in TEXT
    assert re.findall(r"^\| (\d+) \|", TEXT, re.MULTILINE) == [str(code.value) for code in ExitCode]


@pytest.mark.parametrize("path", re.findall(r"^## dynatick (.+)$", TEXT, re.MULTILINE))
def test_every_command_explains_itself(shell: Shell, path: str) -> None:
    ended = shell(*path.split(), "--help")
    assert ended.code == 0 and "\x1b" not in ended.out

"""Whatever the Python client can do, the command line can; and every command prints in each way."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.builders import InProcess
from tests.unit.cli.conftest import Shell
from typer.main import get_command

from dynatick import TaskClient
from dynatick.cli.app import app
from dynatick.client import DeadLetters
from dynatick.client.schedules import Schedules

OF_TASKS = {
    "insert": "task add",
    "insert_task": "task add",
    "insert_many": "task import",
    "insert_lazily": "task import",
    "insert_rows": "task import",
    "compose": "task import",
    "get": "task get",
    "cancel": "task cancel",
    "delete": "task delete",
    "reschedule": "task reschedule",
    "update": "task update",
    "redrive": "task redrive",
    "run_now": "task run",
    "redrive_many": "task redrive",
    "cancel_many": "task cancel",
    "reschedule_many": "task reschedule",
    "history": "task list",
    "iter_history": "task list",
    "export": "task export",
    "bucket_counts": "bucket list",
    "bucket_departures": "bucket show",
    "ticks": "tick list",
    "tick_range": "tick list",
    "doctor": "doctor",
    "health": "doctor",
    "settings": "settings",
    "iter_listed": "bucket list",
    "pause": "pause",
    "resume": "resume",
    "status": "status",
    "explain": "task explain",
    "wait": "task wait",
    "wait_for_bucket": "bucket wait",
}
OF_SCHEDULES = {
    "forecast": "schedule preview",
    "insert": "schedule add",
    "get": "schedule get",
    "list": "schedule list",
    "update": "schedule update",
    "pause": "schedule pause",
    "resume": "schedule resume",
    "delete": "schedule delete",
    "run_now": "schedule run",
    "preview": "schedule preview",
    "backfill": "schedule backfill",
    "history": "schedule history",
    "export": "schedule export",
    "compose": "schedule import",
}
OF_DEAD_LETTERS = {
    "list": "deadletter list",
    "count": "deadletter redrive",
    "redrive": "deadletter redrive",
    "purge": "deadletter purge",
}
NO_VERBS = {"connect", "dead_letters", "schedules"}  # ways to the rest
COMMAND = Path(sys.executable).with_name("dynatick")
SHARED = {"--table", "--stack", "--region", "--profile", "--endpoint-url", "--local", "--output"}


def methods(of: type) -> set[str]:
    """What it offers."""
    return {name for name, _ in inspect.getmembers(of) if not name.startswith("_")} - NO_VERBS


def options(path: str) -> set[str]:
    """Those of a command; raises KeyError where there is none."""
    command = get_command(app)
    for name in path.split():
        command = command.commands[name]  # type: ignore[attr-defined]
    return {option for one in command.params for option in one.opts}


@pytest.mark.parametrize(
    ("of", "verbs"), [(TaskClient, OF_TASKS), (Schedules, OF_SCHEDULES), (DeadLetters, OF_DEAD_LETTERS)]
)
def test_everything_that_the_client_does_has_a_command(of: type, verbs: dict[str, str]) -> None:
    assert methods(of) - {"store"} == set(verbs)
    for path in verbs.values():
        assert options(path) >= SHARED, path


@pytest.mark.parametrize(
    "arguments",
    [
        "task add new --delay 60", "task get there", "task list --bucket 2026-12-31#13:00",
        "task update there --payload {}", "task reschedule there --delay 600", "task run there", "task cancel there",
        "task cancel --bucket 2026-12-31#13:00 --dry-run", "bucket show 2026-12-31#13:00",
        "bucket list --from 2026-12-31#12:00 --to 2026-12-31#14:00", "tick list", "settings", "doctor",
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
        if output == "json":
            assert ended.json is not None
        if output == "jsonl":
            assert all(line[0] in '{"' and line[-1] in '}"' for line in ended.out.splitlines())
        if output == "table":
            assert all(line == line.rstrip() for line in ended.out.splitlines())


def test_before_the_first_tick_no_settings_are_in_force(
    shell: Shell, world: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert shell("settings", "-o", "json").json["tickMinutes"] == 1
    monkeypatch.setattr(TaskClient, "settings", lambda client: None)
    ended = shell("settings")
    assert (ended.code, ended.out) == (4, "")
    assert ended.err == "error: no tick has run yet; the first one writes the settings\n"


def completed(*words: str, home: Path) -> list[str]:
    """What the shell offers for the last word, by the script that it is given."""
    line = " ".join(f"'{word}'" for word in ("dynatick", *words))
    script = f"""
        source ~/.bashrc
        COMP_WORDS=({line}); COMP_CWORD={len(words)}
        _dynatick_completion dynatick
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    return subprocess.run(
        ["bash", "-c", script],
        env={"HOME": str(home), "PATH": f"{COMMAND.parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()


def test_the_shell_completes(tmp_path: Path) -> None:
    installed = subprocess.run(
        # The shell is found among the parents, so it must not give way to its only command.
        ["bash", "-c", f"'{COMMAND}' --install-completion bash; exit $?"],
        env={"HOME": str(tmp_path), "PATH": os.environ["PATH"], "SHELL": "/bin/bash"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert installed.returncode == 0, installed.stderr
    assert completed("sch", home=tmp_path) == ["schedule"]
    assert {"add", "update", "import", "export"} <= set(completed("task", "", home=tmp_path))
    assert completed("task", "list", "--stat", home=tmp_path) == ["--status"]
    assert completed("task", "list", "--output", "", home=tmp_path) == ["table", "json", "jsonl"]
    assert "up" in completed("local", "", home=tmp_path)

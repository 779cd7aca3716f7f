"""The `dynatick` command against the deployed system."""

from __future__ import annotations

import io
import json
import subprocess
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from tests.builders import key_of
from tests.e2e import programs
from tests.e2e.support import DeployedStack, bucket, iso

from dynatick import cli

OK, CONFLICT = 0, 5


def run(world: DeployedStack | None, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Runs the command; --local finds the stack of the folder that DYNATICK_STATE_DIR names."""
    if world is not None:
        environ["DYNATICK_STATE_DIR"] = str(world.stack.state_dir)
    return programs.run(*programs.DYNATICK, *arguments, **environ)


def ask(world: DeployedStack, *arguments: str) -> Any:
    """Returns the JSON that a successful command prints. It runs in this process: a new one takes longer to begin than
    the command itself."""
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as environ, redirect_stdout(printed):
        environ.setenv("DYNATICK_STATE_DIR", str(world.stack.state_dir))
        assert cli.run([*arguments, "--local", "--output", "json"]) == OK
    return json.loads(printed.getvalue())


def test_a_task_from_its_insert_to_its_history(world: DeployedStack, tmp_path: Path) -> None:
    payload = json.dumps({"url": f"{world.receiver.url}/cli"})
    added = ask(world, "task", "add", "cli-hook", "--action", "webhook", "--payload", payload)
    assert added["taskId"] == "cli-hook"
    later = ask(world, "task", "add", "cli-later", "--at", "2030-01-01T13:07:00+01:00")
    assert (later["status"], later["taskDateTime"]) == ("scheduled", "2030-01-01#12:07")
    file = tmp_path / "tasks.jsonl"
    file.write_text("".join(json.dumps({"taskId": f"cli-many-{n}", "delaySeconds": 1}) + "\n" for n in range(30)))
    imported = run(world, "task", "import", str(file), "--local")
    assert imported.returncode == OK, imported.stderr

    assert ask(world, "task", "get", "cli-later")["dueAt"] == "2030-01-01T12:07:00Z"
    waiting = ask(world, "bucket", "show", "2030-01-01#12:07")
    assert [task["taskId"] for task in waiting["tasks"]] == ["cli-later"]
    assert waiting["counts"] == {"scheduled": 1}
    moved = ask(world, "task", "reschedule", "cli-later", "--at", "2030-01-02T00:00:30Z")
    assert moved["taskDateTime"] == "2030-01-02#00:01"
    assert ask(world, "task", "cancel", "cli-later")["status"] == "cancelled"

    many = [f"cli-many-{n}" for n in range(30)]
    world.run_to_end(["cli-hook", *many])
    done = ask(world, "task", "get", "cli-hook")
    assert (done["status"], done["attempt"], done["result"]) == ("completed", 1, {"status": 204})
    assert world.runs("cli-hook") == [("/cli", key_of(world.the("cli-hook")))]

    held = done["taskDateTime"]
    shown = ask(world, "bucket", "show", held)
    assert "cli-hook" in {task["taskId"] for task in shown["tasks"]}
    assert shown["counts"]["completed"] == len([task for task in shown["tasks"] if task["status"] == "completed"])
    listed = ask(world, "task", "list", "--from", iso(-600), "--to", iso(600), "--status", "completed")
    assert {"cli-hook", *many} <= {task["taskId"] for task in listed["tasks"]}
    counts = ask(world, "bucket", "list", "--from", iso(-600), "--to", iso(600))
    assert sum(one["counts"].get("completed", 0) for one in counts["buckets"]) >= 31

    ticks = ask(world, "tick", "list", "--last", "30m")
    assert sum(tick.get("completed", 0) for tick in ticks["ticks"]) >= 31
    # For people: a line each, with a heading.
    table = run(world, "tick", "list", "--local")
    assert table.returncode == OK
    assert table.stdout.splitlines()[0].split()[:4] == ["TICK", "SHARD", "WHAT", "DUE"]
    assert "cli-hook" in run(world, "task", "list", "--bucket", held, "--local").stdout
    assert run(world, "tick", "run", "--local").returncode == OK

    status = run(world, "local", "status")
    assert status.returncode == OK
    assert world.stack.endpoint in status.stdout


def test_the_same_without_local(world: DeployedStack) -> None:
    """A table's name, an endpoint and credentials come from the environment, as they do for AWS."""
    named = {"DYNATICK_TABLE": world.stack.table, "AWS_ENDPOINT_URL": world.stack.endpoint, "AWS_REGION": "us-east-1"}
    add = ("task", "add", "cli-environment", "--at", bucket(600), "-o", "jsonl")
    added = run(None, *add, **named, **programs.KEYS)
    assert added.returncode == OK, added.stderr
    assert json.loads(added.stdout)["status"] == world.status("cli-environment") == "scheduled"
    again = run(None, *add, **named, **programs.KEYS)
    assert (again.returncode, "exists already" in again.stderr) == (CONFLICT, True)

"""`task redrive` with another payload, and its dry run."""

from __future__ import annotations

import json

import pytest
from tests.builders import InProcess
from tests.unit.cli.conftest import Shell, fail

BUCKET = "2026-12-31#12:01"


@pytest.fixture
def failed(world: InProcess, shell: Shell) -> InProcess:
    for name in ("a", "b"):
        world.actions.behaviour[name] = fail
        shell("task", "add", name, "--delay", "1", "--action", "log", "--payload", json.dumps({"text": name, "n": 1}))
    world.next_tick()
    return world


def test_a_named_task_is_redriven_with_another_payload_after_a_dry_run(shell: Shell, failed: InProcess) -> None:
    asked = (
        "task",
        "redrive",
        "a",
        "--set",
        "body=hello = you",
        "--set",
        "n=2",
        "--set",
        "tags=[1]",
        "--unset",
        "text",
    )
    would = {"body": "hello = you", "n": 2, "tags": [1]}
    dry = shell(*asked, "--dry-run", "-o", "json").json
    assert (dry["payload"], dry["run"], failed.outcome("a")) == (would, 2, "failed")
    assert shell(*asked, "-o", "json").json["payload"] == would
    whole = shell("task", "redrive", "b", "--payload", '{"body": "x"}', "-o", "json").json
    assert (whole["payload"], whole["status"]) == ({"body": "x"}, "scheduled")


def test_several_and_all_of_a_bucket_are_redriven_with_changed_fields(shell: Shell, failed: InProcess) -> None:
    dry = shell("task", "redrive", "a", "b", "--set", "n=2", "--dry-run")
    assert (dry.code, dry.err, failed.outcome("a")) == (0, "2 to be redriven\n", "failed")
    assert shell("task", "redrive", "--bucket", BUCKET, "--set", "n=2", "--dry-run").err == "2 to be redriven\n"
    assert shell("task", "redrive", "--bucket", BUCKET, "--set", "n=2").err == "2 redriven\n"
    assert [failed.row(name)["payload"] for name in "ab"] == [{"text": name, "n": 2} for name in "ab"]


def test_a_failed_task_is_updated(shell: Shell, failed: InProcess) -> None:
    assert shell("task", "update", "a", "--payload", '{"n": 3}', "-o", "json").json["status"] == "failed"
    refused = shell("task", "update", "a", "--delay", "1h")
    assert (refused.code, refused.err.startswith("error: cannot reschedule task 'a': it is failed")) == (5, True)

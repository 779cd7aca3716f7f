"""``dynatick bucket show --summary``, and ranges from now on."""

from __future__ import annotations

import pytest
from tests.builders import InProcess, scheduled_row
from tests.unit.cli.conftest import Shell, fail

from dynatick import TaskClient
from dynatick.domain.buckets import Bucket


@pytest.fixture
def ran(world: InProcess) -> InProcess:
    """At 12:01: of send-reminder one completed and one failed, of log one is due at 13:00."""
    world.actions.behaviour["bad"] = fail
    for task_id, bucket, action in (
        ("good", "12:01", "send-reminder"), ("bad", "12:01", "send-reminder"), ("later", "13:00", "log"),
    ):  # fmt: skip
        world.store.create(scheduled_row(task_id, Bucket.parse(f"2026-12-31#{bucket}"), action=action))
    world.next_tick()
    return world


def test_the_tasks_of_a_range_are_counted_by_status_and_action(shell: Shell, ran: InProcess) -> None:
    ended = shell("bucket", "show", "--summary", "--last", "1h", "--next", "2h")
    assert [line.split() for line in ended.lines] == [
        ["ACTION", "UNSCHEDULED", "SCHEDULED", "RUNNING", "WAITING", "COMPLETED", "FAILED", "CANCELLED", "TOTAL"],
        ["log", "1", "1"],
        ["send-reminder", "1", "1", "2"],
        ["(all)", "1", "1", "1", "3"],
    ]
    assert ended.err.startswith("Lateness: p50 ")
    document = shell("bucket", "show", "2026-12-31#12:01", "--summary", "-o", "json").json
    assert document["actions"] == {"send-reminder": {"completed": 1, "failed": 1}}
    assert (document["counts"], document["total"]) == ({"completed": 1, "failed": 1}, 2)
    assert shell("bucket", "show", "--summary", "--next", "10m").err == "There are none\n"


def test_a_task_without_an_action_counts_for_the_default_one(shell: Shell, world: InProcess) -> None:
    TaskClient(world.store, clock=world.clock).insert("plain", delay_seconds=90)
    lines = shell("bucket", "show", "--summary", "--next", "10m").lines
    assert lines[1].split()[0] == world.rules.defaults.action


@pytest.mark.parametrize("command", ["task list", "bucket list", "batch list", "task cancel --dry-run"])
def test_a_range_may_go_on_from_now(shell: Shell, ran: InProcess, command: str) -> None:
    assert shell(*command.split(), "--next", "1h").code == 0
    listed = shell("task", "list", "--next", "1h", "-o", "jsonl")
    assert ["later" in line for line in listed.lines] == [True]
    assert "later" not in shell("task", "list", "--next", "30m").out
    assert shell("task", "list", "--next", "1h", "--from", "now", "--to", "+1h").code != 0

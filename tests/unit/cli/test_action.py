"""``dynatick action list``: as the page of the actions, by the same function."""

from __future__ import annotations

import pytest
from tests.builders import InProcess, scheduled_row
from tests.unit.cli.conftest import Shell, fail

from dynatick.domain.buckets import Bucket


@pytest.fixture
def ran(world: InProcess) -> InProcess:
    world.tick()
    for task_id in ("a", "b", "bad"):
        bucket = Bucket.parse("2026-12-31#12:01")
        world.store.create(scheduled_row(task_id, bucket, action="send-reminder"))
    world.actions.behaviour["bad"] = fail
    world.next_tick()
    return world


def test_actions_are_listed(shell: Shell, ran: InProcess) -> None:
    heading, line = shell("action", "list").lines
    assert heading.split("  ")[0] == "ACTION"
    assert line.split()[:7] == ["send-reminder", "0", "0", "0", "3", "33.3", "%"]
    assert line.split()[7:] == ["256", "ms", "256", "ms", "0", "ms", "0", "ms"]
    (one,) = shell("action", "list", "--last", "1h", "-o", "json").json["actions"]
    assert (one["action"], one["due"], one["past"]["failed"], one["before"]["attempts"]) == ("send-reminder", 0, 1, 0)


def test_nothing_ran(shell: Shell, world: InProcess) -> None:
    assert shell("action", "list").err == "Nothing ran in the last 24h, and nothing is due\n"


def test_a_range_that_is_too_long(shell: Shell, world: InProcess) -> None:
    ended = shell("action", "list", "--last", "5d")
    assert ended.code != 0
    assert "at most 3 days" in ended.err

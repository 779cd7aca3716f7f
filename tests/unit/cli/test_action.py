"""``dynatick action list``: as the page of the actions, by the same function."""

from __future__ import annotations

import pytest
from tests.builders import InProcess
from tests.unit.cli.conftest import Shell, run_reminders

from dynatick.client.action_counts import NOT_COUNTED
from dynatick.engine.rules import Precision
from dynatick.engine.settings import publish_settings


@pytest.fixture
def ran(world: InProcess) -> InProcess:
    return run_reminders(world, "a", "b", "bad", failing=["bad"])


def test_actions_are_listed(shell: Shell, ran: InProcess) -> None:
    heading, line = shell("action", "list").lines
    assert heading.split("  ")[0] == "ACTION"
    assert line.split()[:7] == ["send-reminder", "0", "0", "0", "3", "33.3", "%"]
    assert line.split()[7:] == ["256", "ms", "256", "ms", "0", "ms", "0", "ms"]
    (one,) = shell("action", "list", "--last", "1h", "-o", "json").json["actions"]
    assert (one["action"], one["due"], one["past"]["failed"], one["before"]["attempts"]) == ("send-reminder", 0, 1, 0)


def test_nothing_ran(shell: Shell, world: InProcess) -> None:
    assert shell("action", "list").err == "Nothing ran in the last 24h, and nothing is due\n"


def test_no_share_is_given_where_wake_ups_run_tasks(shell: Shell, ran: InProcess) -> None:
    publish_settings(ran.store, ran.rules.grid, now=ran.clock(), precision=Precision.SECOND)
    ended = shell("action", "list")
    assert ended.err == f"{NOT_COUNTED}\n"
    assert ended.lines[1].split()[:5] == ["send-reminder", "0", "0", "0", "1"], "no attempts, and no share: a number"
    document = shell("action", "list", "-o", "json").json
    assert document["notCounted"] == NOT_COUNTED
    assert document["actions"][0]["past"].keys() & {"attempts", "completed", "failedPercent"} == set()


def test_what_wake_ups_completed_is_not_denied(shell: Shell, world: InProcess) -> None:
    publish_settings(world.store, world.rules.grid, now=world.clock(), precision=Precision.SECOND)
    assert shell("action", "list").err == f"{NOT_COUNTED}\nNothing failed in the last 24h, and nothing is due\n"

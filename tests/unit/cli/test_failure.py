"""``dynatick failure list``, and what selects tasks by its fingerprints: as the page, by the same function."""

from __future__ import annotations

import pytest
from tests.builders import InProcess
from tests.unit.cli.conftest import Shell, run_reminders

from dynatick.client.failures import fingerprint_of

FINGERPRINT = fingerprint_of("SMTP: refused [2J")


@pytest.fixture
def failed(world: InProcess) -> InProcess:
    return run_reminders(world, "a", "bad-1", "bad-2", failing=["bad-1", "bad-2"])


def test_failures_are_listed_in_groups(shell: Shell, failed: InProcess) -> None:
    listed = shell("failure", "list")
    heading, line = listed.lines
    assert heading.split() == ["FINGERPRINT", "TASKS", "ACTION", "FIRST", "LAST", "NEW", "ERROR"]
    assert line.split()[:3] == [FINGERPRINT, "2", "send-reminder"]
    assert line.endswith("new  SMTP: refused [2J"), "the settings were first written at this start"
    command = f"dynatick task redrive --dry-run --last 24h --fingerprint {FINGERPRINT}"
    assert listed.err == f"The first group: {command}\n"
    (one,) = shell("failure", "list", "--last", "1h", "-o", "json").json["failures"]
    assert (one["count"], one["actions"], one["new"]) == (2, {"send-reminder": 2}, True)
    shown = shell(*command.split()[1:])
    assert shown.err == "2 to be redriven\n"


def test_tasks_are_listed_and_redriven_by_fingerprint(shell: Shell, failed: InProcess) -> None:
    given = ("--last", "1h", "--fingerprint", FINGERPRINT)
    page = shell("task", "list", "--status", "failed", *given, "-o", "json").json
    assert [one["taskId"] for one in page["tasks"]] == ["bad-1", "bad-2"]
    assert shell("task", "redrive", "--last", "1h", "--fingerprint", "0" * 10).err == "There are none\n"
    assert shell("task", "redrive", *given).err.startswith("2 redriven\n")
    assert shell("failure", "list").err == "No task of the last 24h is failed now\n"


def test_a_redrive_waits_for_its_runs_and_says_what_came_of_them(
    shell: Shell, failed: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = ("task", "redrive", "--last", "1h", "--fingerprint", FINGERPRINT, "--wait")
    assert shell(*given, "--dry-run").err == "2 to be redriven\n", "there is nothing to wait for"
    monkeypatch.setattr("time.sleep", lambda seconds: failed.next_tick())
    del failed.actions.behaviour["bad-1"]
    ended = shell(*given)
    assert ended.err.splitlines() == [
        "2 redriven", "2 redriven: 1 completed, 1 failed again", "error: 1 did not complete"
    ]  # fmt: skip
    assert ended.code == 8
    in_time = shell("task", "redrive", "bad-2", "--wait", "--timeout", "1s")
    assert in_time.err.splitlines()[-2:] == ["1 redriven: 0 completed, 1 failed again", "error: 1 did not complete"]
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    late = shell("task", "redrive", "bad-2", "--wait", "--timeout", "0s")
    assert late.code == 9 and late.err.endswith("1 have not ended in time\n")

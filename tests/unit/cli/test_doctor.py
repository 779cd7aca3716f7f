"""``dynatick doctor``: what it prints of the table and of the account's executions, and how it ends."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import InProcess, scheduled_row
from tests.unit.cli.conftest import Shell, Terminal

from dynatick.cli import doctor
from dynatick.cli.doctor import executions_of
from dynatick.client.doctor import MAX_FINDINGS
from dynatick.domain.buckets import Bucket, minute_of
from dynatick.domain.executions import RECOVERIES, Executions
from dynatick.engine import recovery
from dynatick.engine.rules import Precision
from dynatick.engine.settings import publish_settings
from dynatick_stack import template


def later(world: InProcess, minutes: int = 60) -> Bucket:
    return Bucket(minute_of(world.clock()) + minutes)


def test_it_only_reads_unless_it_is_told_to_repair(shell: Shell, world: InProcess) -> None:
    world.store.create({"taskId": "lost", "delaySeconds": 1})
    ended = shell("doctor")
    assert ended.code == 7
    assert ended.lines == [
        "WHAT              TASK  WHY                      REMEDY",
        "never-normalised  lost  it was never normalised  it is made a task",
    ]
    assert ended.err == (
        "Read 1 task or schedule that has not ended: 1 never-normalised\n"
        "error: 1 of 1 not repaired: dynatick doctor --repair repairs what it can\n"
    )
    repaired = shell("doctor", "--repair")
    assert repaired.code == 0
    assert repaired.lines[1].split() == ["never-normalised", "lost", "it", "was", "never", "normalised", "yes"]
    assert repaired.err == "Read 1 task or schedule that has not ended: 1 never-normalised; 1 repaired\n"
    ended = shell("doctor")
    assert (ended.code, ended.out) == (0, "")
    assert ended.err == "Read 1 task or schedule that has not ended: nothing wrong\n"
    assert shell("doctor", "--output", "json").json == {
        "healthy": True, "scanned": 1, "found": 0, "repaired": 0, "kinds": {}, "retiredShards": {}, "missedTicks": 0,
        "wokenLate": 0, "paused": None, "concurrentExecutions": None, "findings": [],
    }  # fmt: skip
    world.next_tick()
    assert world.outcome("lost") == "completed"


def unfit(shell: Shell, world: InProcess) -> None:
    """Two tasks of three wait with payloads that their handler refuses since."""
    for n, payload in enumerate(({}, {}, {"to": "ann"})):
        shell("task", "add", f"mail-{n}", "--delay", "1h", "--action", "log", "--payload", json.dumps(payload))
    schema = {"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]}
    publish_settings(world.store, world.rules.grid, now=world.clock(), payload_schemas={"log": json.dumps(schema)})


def test_tasks_that_will_fail_for_their_payloads_are_named(shell: Shell, world: InProcess) -> None:
    unfit(shell, world)
    ended = shell("doctor")
    assert (ended.code, ended.out) == (7, "")
    assert ended.err == (
        "Will fail: 2 log: payload.to: it is missing (such as mail-0)\n"
        "Read 3 tasks and schedules that have not ended: 2 that will fail\n"
        "error: 2 waiting tasks will fail: upgrade their payloads (@task(…, upgrade=…)), or update the tasks\n"
    )
    payloads = shell("doctor", "-o", "json").json["payloads"]
    assert (payloads["checked"], payloads["failing"], payloads["complete"]) == (3, 2, True)
    (line,) = [line for line in shell("status").lines if line.startswith("will fail")]
    assert " ".join(line.split()) == "will fail 2 log: payload.to: it is missing (such as mail-0); of the next 3"


def test_what_it_cannot_repair_it_leaves_and_says_so(shell: Shell, world: InProcess) -> None:
    world.store.create({"taskId": "bad", "action": 7})
    ended = shell("doctor", "--repair", "-o", "json")
    assert ended.code == 7
    (finding,) = ended.json["findings"]
    assert finding == {
        "kind": "not-understood", "taskId": "bad", "why": "it cannot be made a task, and is not marked failed",
        "remedy": "the daily reconcile marks it failed with the reason, which goes to the dead-letter queue too",
        "repaired": False, "left": "the daily reconcile repairs it, which can send to the dead-letter queue",
    }  # fmt: skip
    assert "outcome" not in world.row("bad")
    assert ended.err.endswith("error: 1 of 1 not repaired: see above\n")
    world.handle({"dynatick": {"reconcile": True}})
    assert world.outcome("bad") == "failed"


def test_every_finding_is_a_line_of_jsonl_and_the_rest_is_bounded(shell: Shell, world: InProcess) -> None:
    number = MAX_FINDINGS + 5
    for n in range(number):
        world.store.create({"taskId": f"lost-{n:04d}"})
    lines = shell("doctor", "--output", "jsonl").out.splitlines()
    assert [json.loads(line)["taskId"] for line in lines] == [f"lost-{n:04d}" for n in range(number)]
    table = shell("doctor")
    assert len(table.out.splitlines()) == 1 + MAX_FINDINGS
    assert "… and 5 more; --output jsonl lists all\n" in table.err
    document = shell("doctor", "--output", "json").json
    assert (document["found"], len(document["findings"])) == (number, MAX_FINDINGS)


def test_what_is_reported_and_is_no_fault(shell: Shell, world: InProcess) -> None:
    """Tasks that no wake-up began, retired shards, missing ticks, a pause."""
    world.rules = replace(world.rules, precision=Precision.SECOND)
    for seconds in (10, 20, 58):
        world.store.create(scheduled_row(f"t{seconds}", later(world, 1), dueAt=f"2026-12-31T12:00:{seconds}Z"))
    world.next_tick()
    ended = shell("doctor")
    late = "2 tasks of the last hour were begun by ticks, because no wake-up came in time"
    assert (ended.code, ended.out, ended.err.splitlines()[0]) == (0, "", late)
    world.reconfigure(shard_count=2)
    world.next_tick()
    world.store.create(scheduled_row("x", later(world)._replace(shard=1)))
    world.reconfigure(shard_count=1)
    world.next_tick()
    world.clock.forward(minutes=4)
    ended = shell("doctor")
    assert (ended.code, ended.out) == (0, "")
    assert ended.err == (
        "Shard 1 gets no new tasks, and still holds 1 that have not ended; ticks serve it\n"
        "4 ticks of the last hour are missing; tasks that were due run later\n"
        f"{late}\n"
        "Read 1 task or schedule that has not ended: nothing wrong\n"
    )
    shell("pause", "--reason", "a release", "--by", "ada")
    world.clock.forward(hours=3)
    ended = shell("doctor")
    assert (ended.code, ended.out) == (0, "")
    assert re.match(r"Paused since 2026-12-31T12:0\S+ by ada: a release\nTo end it: dynatick resume\n", ended.err)
    assert shell("doctor", "-o", "json").json["paused"]["by"] == "ada"


def test_progress(shell: Shell, world: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dynatick.cli.doctor._PAGES_PER_MESSAGE", 1)
    for n in range(1100):
        world.store.create(scheduled_row(f"t{n}", later(world)))
    assert shell("doctor").err.splitlines()[:2] == [
        "Read 1 MB: 998 tasks and schedules that have not ended, 0 findings",
        "Read 2 MB: 1100 tasks and schedules that have not ended, 0 findings",
    ]
    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    monkeypatch.setenv("TERM", "xterm")
    world.store.create({"taskId": "lost"})
    ended = shell("doctor", "--output", "json")
    assert ended.json["found"] == 1, "what is shown of the progress does not mix with the data"
    assert "Read 1101 tasks" in terminal.getvalue()


Account = Callable[..., None]


@pytest.fixture
def account(world: InProcess, monkeypatch: pytest.MonkeyPatch) -> Account:
    """Says what the account allows, and with which parameters the stack ``mine`` is deployed."""

    def has(allowed: int, number: str = "123456789012", **parameters: str) -> None:
        found = [
            {"ParameterKey": name, "ParameterValue": value}
            for name, value in {**template.defaults(), **parameters}.items()
        ]

        def describe_stacks(*, StackName: str) -> dict[str, Any]:
            if StackName != "mine":
                raise ClientError({"Error": {"Code": "ValidationError", "Message": "no such stack"}}, "DescribeStacks")
            return {
                "Stacks": [
                    {"StackId": f"arn:aws:cloudformation:eu-central-1:{number}:stack/mine/1", "Parameters": found}
                ]
            }

        limits = {"AccountLimit": {"ConcurrentExecutions": 5000, "UnreservedConcurrentExecutions": allowed}}
        aws = SimpleNamespace(describe_stacks=describe_stacks, get_account_settings=lambda: limits)
        monkeypatch.setattr(doctor, "aws_client", lambda session, service: aws)

    return has


def test_too_few_executions_have_a_remedy(shell: Shell, account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    account(100, MaxWorkers="90", Precision="second", ApiEndpoint="DISABLED")
    ended = shell("doctor", "--stack", "mine")
    assert ended.code == 0, "the quota is no fault of the table"
    assert ended.err.splitlines()[-1] == (
        "The account allows 100 concurrent executions, and this stack can take 125 (1 for ticks, 90 for workers, "
        "10 for wake-ups, 20 for recoveries, 4 for the stream): ticks of some shards may find none left. Raise the "
        "quota, or set MaxWorkers to 65 or less"
    )
    assert shell("doctor", "--stack", "mine", "-o", "json").json["concurrentExecutions"] == {
        "allowed": 100, "needed": 125, "ticks": 1, "workers": 90, "wakeUps": 10, "recoveries": 20, "stream": 4,
        "api": 0, "imports": 0,
    }  # fmt: skip
    for allowed, advice in ((35, ", or set MaxWorkers to 0"), (30, "")):
        account(allowed, MaxWorkers="90", Precision="second", ApiEndpoint="DISABLED")
        assert shell("doctor", "--stack", "mine").err.rstrip().endswith(f"Raise the quota{advice}")
    account(1000, MaxWorkers="90")
    assert shell("doctor", "--stack", "mine").err == "Read 0 tasks and schedules that have not ended: nothing wrong\n"
    account(10)
    monkeypatch.setenv("DYNATICK_STACK", "mine")
    assert shell("doctor").err.endswith(
        "ticks of some shards may find none left. Raise the quota, or lower ApiWaitSeconds or ApiRequestsPerSecond\n"
    )


def test_without_the_right_it_says_that_it_does_not_know(shell: Shell, account: Account) -> None:
    account(1000)
    ended = shell("doctor", "--stack", "other")
    assert ended.code == 0
    assert ended.err.splitlines()[-1].startswith("Whether the account's concurrent executions suffice is not known: ")
    assert "no such stack" in shell("doctor", "--stack", "other", "-o", "json").json["concurrentExecutions"]["problem"]


def test_an_emulator_has_no_quota_of_executions(shell: Shell, account: Account) -> None:
    account(10, number="000000000000")
    assert shell("doctor", "--stack", "mine").err == "Read 0 tasks and schedules that have not ended: nothing wrong\n"


def test_parameters_that_take_executions() -> None:
    of = executions_of({"MaxWorkers": "3", "ShardCount": "1"}, 8)
    assert of == Executions(ticks=8, workers=24), "every shard that was ever in use counts"
    of = executions_of({"StreamParallelism": "2", "WarmThroughput": "40000", "WakeUpConcurrency": "7"}, 1)
    assert of.stream == 80, "the stream has a shard for each partition of the table"
    assert of.wake_ups == 0, "with Precision tick there are none"
    assert RECOVERIES == recovery.MAX_RECOVERIES


def test_requests_that_wait_and_imports_take_executions_too() -> None:
    api = {"ApiRequestsPerSecond": "50"}
    for wait, taken in (("10", 550), ("2", 150), ("0", 100)):
        assert executions_of(api | {"ApiWaitSeconds": wait}, 1).api == taken
    assert executions_of(api | {"ApiEndpoint": "DISABLED"}, 1).api == 0
    of = executions_of(api | {"ImportBucket": "yes"}, 1)
    assert (of.imports, of.total) == (1, 1 + RECOVERIES + 4 + 550 + 1)
    assert "550 for the HTTP API, 1 for an import" in of.in_words()


@given(shards=st.integers(1, 256), allowed=st.integers(1, 5000), wake_ups=st.integers(0, 100))
def test_that_many_workers_leave_a_tick_for_each_shard(shards: int, allowed: int, wake_ups: int) -> None:
    none = Executions(ticks=shards, workers=0, wake_ups=wake_ups)
    maximum = none.max_workers(allowed)
    if none.total <= allowed:
        assert Executions(ticks=shards, workers=maximum * shards, wake_ups=wake_ups).total <= allowed
        assert Executions(ticks=shards, workers=(maximum + 1) * shards, wake_ups=wake_ups).total > allowed
    else:
        assert maximum == 0

"""Settings and health over HTTP."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from tests.builders import NOON, InProcess
from tests.unit.api.support import Caller, read

from dynatick.domain.buckets import Grid
from dynatick.domain.limit_keys import parse_limits
from dynatick.domain.normalise import Defaults
from dynatick.engine import settings
from dynatick.engine.rules import Rules
from dynatick.engine.settings import publish_settings
from dynatick.store.memory import MemoryStore


class Counted(MemoryStore):
    """Counts requests for rows."""

    requests = 0

    def get(self, task_id: str) -> Any:
        self.requests += 1
        return super().get(task_id)

    def get_many(self, task_ids: Any, **how: Any) -> Any:
        asked = self.requests + 1
        found = super().get_many(task_ids, **how)  # by get, in memory
        self.requests = asked
        return found


def installed(shards: int = 1) -> tuple[InProcess, Caller]:
    world = InProcess(store=Counted(), rules=Rules(grid=Grid(shard_count=shards)))
    return world, Caller(store=world.store, clock=world.clock)  # type: ignore[arg-type]


def health(world: InProcess, caller: Caller) -> tuple[int, Any]:
    assert isinstance(world.store, Counted)
    world.store.requests = 0
    answer = caller.send("GET", "/v1/health")
    assert world.store.requests <= 2
    return answer.status, read(answer)


def test_settings_are_those_in_force(caller: Caller) -> None:
    schema = {"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]}
    publish_settings(
        caller.store, Grid(tick_minutes=5, shard_count=2), now=caller.clock(), max_timeout_seconds=112,
        actions=["log", "mail", "raw", "webhook"],
        defaults=Defaults(action="mail", retention_days=7, key_limits=parse_limits(["customer=1", "mail=100/m"])),
        payload_schemas={"mail": json.dumps(schema), "gone": "{}"},
    )  # fmt: skip
    assert caller.ask("GET", "/v1/settings") == {
        "tickMinutes": 5, "shardCount": 2, "shardsEver": 2, "actions": ["log", "mail", "raw", "webhook"],
        "handlers": {"mail": schema, "raw": None}, "defaultAction": "mail", "retentionDays": 7,
        "maxTimeoutSeconds": 112, "schemaVersion": 1, "keyLimits": {"customer": "1", "mail": "100/m"},
    }  # fmt: skip


def test_a_table_of_another_version_is_refused(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "SCHEMA_VERSION", 2)
    problem = caller.refused("other-version", "POST", "/v1/tasks", {"taskId": "a"})
    assert problem["status"] == 503
    assert "rows of version 1, and this Dynatick is for version 2; deploy this Dynatick, or" in problem["detail"]
    assert caller.store.get("a") is None


@pytest.mark.parametrize("shards", [1, 3])
def test_missing_ticks_are_counted_before_they_make_it_unhealthy(shards: int, caplog: pytest.LogCaptureFixture) -> None:
    world, caller = installed(shards)
    world.ticks(3)
    world.clock.forward(seconds=20)
    status, row = health(world, caller)
    assert (status, row["healthy"], row["missingTicks"], row["findings"]) == (200, True, 0, [])
    assert row["lastTick"] == "2026-12-31T12:03:00Z"
    assert row["lastTickAgeSeconds"] == 20.2
    found = caller.client.operations.health()
    assert (found.is_healthy, found.last_tick) == (True, NOON + timedelta(minutes=3)), "the client says the same"
    world.clock.to(NOON + timedelta(minutes=7))
    status, row = health(world, caller)
    assert (status, row["missingTicks"]) == (200, 2)
    world.clock.forward(minutes=1, seconds=1)
    status, row = health(world, caller)
    assert (status, row["code"], row["healthy"], row["missingTicks"]) == (503, "unhealthy", False, 3)
    assert [finding["kind"] for finding in row["findings"]] == ["cursor-behind"] * shards
    assert "no tick has come since 2026-12-31#12:03" in row["detail"]
    assert [record for record in caplog.records if record.levelname == "ERROR"] == [], "it is no fault of the API"


def test_health_is_that_of_the_shard_that_is_furthest_behind() -> None:
    world, caller = installed(shards=2)
    world.ticks(2)
    world.clock.forward(minutes=27)
    world.handle({"dynatick": {"tick": "2026-12-31#12:29", "shard": 0}})
    status, row = health(world, caller)
    assert (status, row["lastTick"]) == (503, "2026-12-31T12:02:00Z")


def test_before_the_first_tick_there_are_no_settings_and_no_ticks() -> None:
    world, caller = installed()
    status, row = health(world, caller)
    assert (status, row["lastTick"], row["lastTickAgeSeconds"]) == (503, None, None)
    assert [finding["kind"] for finding in row["findings"]] == ["no-tick"]
    for method, path in (("GET", "settings"), ("POST", "pause")):
        problem = caller.refused("no-settings", method, f"/v1/{path}", None if method == "GET" else {})
        assert (problem["status"], "no tick has come yet" in problem["detail"]) == (404, True)
    assert caller.ask("GET", "/v1/ticks") == {"ticks": [], "nextStart": None}


def test_the_state_an_explanation_and_a_pause() -> None:
    world, caller = installed()
    world.tick()
    caller.ask("POST", "/v1/tasks", {"taskId": "t", "delaySeconds": 5})
    world.next_tick()
    state = caller.ask("GET", "/v1/status")
    assert (state["state"], state["completed"], state["health"]["healthy"]) == ("running", 1, True)
    assert (state["last24Hours"]["attempts"], state["last24Hours"]["failed"]) == (1, 0)
    assert caller.ask("GET", "/v1/status", query="hours=24")["since"] == "2026-12-30T12:02:00Z"
    explained = caller.ask("GET", "/v1/tasks/t/explanation")
    assert explained["sentence"].startswith("t ran at 2026-12-31T12:01:00")
    assert [event["what"] for event in explained["events"]][:2] == ["inserted", "due"]
    caller.refused("task-not-found", "GET", "/v1/tasks/nobody/explanation")
    paused = caller.ask("POST", "/v1/pause", {"reason": "a bad deployment", "by": "ada"})
    assert (paused["by"], paused["reason"]) == ("ada", "a bad deployment")
    assert caller.ask("GET", "/v1/settings")["paused"] == paused
    world.clock.forward(hours=2)
    status, found = health(world, caller)
    assert (status, found["paused"], found["findings"]) == (200, paused, [])
    assert caller.ask("POST", "/v1/pause", {"by": "bob"}) == paused
    resumed = caller.ask("POST", "/v1/resume")
    assert resumed["ended"].pop("until").startswith("2026-12-31T14:01:")
    assert resumed == {"paused": None, "ended": paused}
    assert caller.ask("POST", "/v1/resume") == {"paused": None, "ended": None}
    assert "paused" not in caller.ask("GET", "/v1/settings")


def test_the_pause_of_an_action() -> None:
    world, caller = installed()
    caller.refused("no-settings", "POST", "/v1/actions/log/pause", {})
    world.tick()
    paused = caller.ask("POST", "/v1/actions/log/pause", {"reason": "the disk is full", "by": "ada"})
    assert (paused["action"], paused["by"], paused["reason"]) == ("log", "ada", "the disk is full")
    assert caller.ask("POST", "/v1/actions/log/pause") == paused
    assert caller.ask("GET", "/v1/settings")["pausedActions"] == [paused]
    assert caller.ask("GET", "/v1/actions")["actions"][0]["paused"] == paused
    world.tick()
    status, found = health(world, caller)
    assert (status, found["pausedActions"], found["paused"]) == (200, [paused], None)
    ended = caller.ask("POST", "/v1/actions/log/resume")
    assert ended["paused"] is None
    assert {*ended["ended"]} == {*paused, "until", "waitingBeginBy"}
    assert caller.ask("POST", "/v1/actions/log/resume") == {"paused": None, "ended": None}
    assert "pausedActions" not in caller.ask("GET", "/v1/settings")


def test_the_actions() -> None:
    world, caller = installed()
    world.tick()
    caller.ask("POST", "/v1/tasks", {"taskId": "t", "delaySeconds": 5})
    caller.ask("POST", "/v1/tasks", {"taskId": "later", "delaySeconds": 90})
    world.next_tick()
    world.clock.forward(minutes=2)
    (log,) = caller.ask("GET", "/v1/actions")["actions"]
    assert (log["action"], log["due"], log["past"]["completed"], log["before"]["attempts"]) == ("log", 1, 1, 0)
    assert log == caller.client.operations.actions().actions[0].to_row()
    assert caller.ask("GET", "/v1/actions", query="last=1m")["actions"][0]["past"]["attempts"] == 0

"""Recurring schedules over HTTP."""

from __future__ import annotations

import pytest
from tests.builders import InProcess
from tests.unit.api.support import Caller, read

ROW = {
    "taskId": "nightly", "scheduleExpression": "cron(0 3 * * ? *)", "scheduleExpressionTimezone": "Europe/Berlin",
    "action": "log", "payload": {"n": 1}, "team": "blue",
}  # fmt: skip


def test_a_schedule_is_inserted_under_the_tables_names_and_listed(caller: Caller) -> None:
    more = {"catchUp": "all", "overlap": "allow", "endDate": 1_830_000_000}
    answer = caller.send("POST", "/v1/schedules", ROW | more)
    assert (answer.status, answer.response["headers"]["Location"]) == (201, "/v1/schedules/nightly")
    made = read(answer)
    assert {name: made[name] for name in ROW} == ROW
    assert (made["scheduleState"], made["nextOccurrenceAt"]) == ("ENABLED", "2027-01-01T02:00:00Z")
    assert (made["catchUp"], made["overlap"], made["endDate"]) == ("all", "allow", "2027-12-28T13:20:00Z")
    assert caller.ask("GET", "/v1/schedules/nightly") == made
    caller.refused("task-exists", "POST", "/v1/schedules", ROW)
    skipped = caller.ask("POST", "/v1/schedules", ROW | {"taskId": "s", "scheduleExpression": "cron(30 2 * * ? *)"})
    assert skipped["warnings"][0] == "02:30 does not exist on 2027-03-28: skipped (Europe/Berlin)"
    assert skipped["warnings"] == caller.ask("GET", "/v1/schedules/s/preview")["warnings"]
    caller.ask("POST", "/v1/schedules/s/pause")
    ids = [one["taskId"] for page in caller.parts("/v1/schedules", "limit=1") for one in page["schedules"]]
    assert ids == ["nightly", "s"]
    paused = caller.ask("GET", "/v1/schedules", query="scheduleState=DISABLED")
    assert [one["taskId"] for one in paused["schedules"]] == ["s"]


def test_edited_paused_resumed_deleted(caller: Caller) -> None:
    caller.ask("POST", "/v1/schedules", ROW)
    edited = caller.ask("PATCH", "/v1/schedules/nightly", {"scheduleExpression": "rate(2 hours)", "payload": {"n": 2}})
    assert (edited["scheduleExpression"], edited["payload"]) == ("rate(2 hours)", {"n": 2})
    less = caller.ask("PATCH", "/v1/schedules/nightly", {"payload": None, "scheduleExpressionTimezone": None})
    assert ("payload" in less, less["scheduleExpressionTimezone"]) == (False, "UTC")
    assert caller.ask("PATCH", "/v1/schedules/nightly", {"expectedWithinSeconds": 30})["expectedWithinSeconds"] == 30
    paused = caller.ask("POST", "/v1/schedules/nightly/pause", {"reason": "holidays"})
    assert (paused["scheduleState"], paused["stateReason"]) == ("DISABLED", "holidays")
    resumed = caller.ask("POST", "/v1/schedules/nightly/resume")
    assert (resumed["scheduleState"], "stateReason" in resumed) == ("ENABLED", False)
    assert caller.ask("POST", "/v1/schedules/nightly/pause")["scheduleState"] == "DISABLED"
    gone = caller.send("DELETE", "/v1/schedules/nightly")
    assert (gone.status, gone.response["body"], gone.response["headers"]["X-Request-Id"]) == (204, "", "request-1")
    caller.refused("schedule-not-found", "DELETE", "/v1/schedules/nightly")


def test_if_match_guards_a_change_that_would_not_be_refused_anyway(caller: Caller) -> None:
    seen = caller.send("POST", "/v1/schedules", ROW).response["headers"]["ETag"]
    caller.ask("PATCH", "/v1/schedules/nightly", {"payload": {"n": 2}}, if_match=seen)
    caller.refused("changed", "PATCH", "/v1/schedules/nightly", {"payload": {"n": 3}}, if_match=seen)
    assert caller.ask("GET", "/v1/schedules/nightly")["payload"] == {"n": 2}
    for body in ({"overlap": "AAA"}, {"scheduleExpression": "never"}, {"action": "unheard-of"}, {"payload": [1]}):
        caller.refused("invalid-input", "PATCH", "/v1/schedules/nightly", body, if_match='"old"')


@pytest.mark.parametrize("call", ["POST /pause", "POST /resume", "POST /run", "DELETE "])
def test_if_match_guards_every_verb(caller: Caller, call: str) -> None:
    caller.ask("POST", "/v1/schedules", ROW)
    method, _, verb = call.partition(" ")
    before, number = caller.client.schedules.get("nightly"), len(caller.store.scan(open_only=False).rows)
    caller.refused("changed", method, f"/v1/schedules/nightly{verb}", if_match='"old"')
    assert caller.client.schedules.get("nightly") == before
    assert len(caller.store.scan(open_only=False).rows) == number, "an occurrence was made"
    assert caller.send(method, f"/v1/schedules/nightly{verb}", if_match=f'"{before.version}"').status < 300


def test_its_runs(caller: Caller) -> None:
    """Occurrences to come, past ones, one that was asked for, and those that were left out."""
    late = {"scheduleExpression": "rate(1 hour)", "overlap": "allow", "expectedWithinSeconds": 3600}
    caller.ask("POST", "/v1/schedules", ROW | late)
    first, *_ = caller.ask("GET", "/v1/schedules/nightly/preview", query="count=3")["occurrences"]
    assert first == {"occurrenceAt": "2026-12-31T12:01:00Z", "notes": []}
    asked = caller.send("POST", "/v1/schedules/nightly/run")
    assert asked.status == 201
    assert caller.ask("GET", asked.response["headers"]["Location"]) == read(asked)
    assert (read(asked)["scheduleId"], read(asked)["team"]) == ("nightly", "blue")
    world = InProcess(store=caller.store, clock=caller.clock)
    world.next_tick()
    caller.clock.forward(hours=3)
    world.tick()
    now, *others = runs = caller.ask("GET", "/v1/schedules/nightly/history")["occurrences"]
    assert (now["taskId"], now["status"], now["runNow"]) == (read(asked)["taskId"], "completed", True)
    assert [(one["occurrenceAt"][11:16], one["status"], one.get("reason"), one.get("inTime")) for one in others] == [
        ("12:01", "completed", None, True), ("13:01", "missed", "outage", False),
        ("14:01", "missed", "outage", False), ("15:01", "completed", None, True),
    ]  # fmt: skip
    assert not any("runNow" in one for one in others)
    assert caller.ask("GET", "/v1/schedules/nightly/history", query="limit=2")["occurrences"] == runs[-2:]
    span = {"start": "2026-12-31T12:00:00Z", "end": "2026-12-31T23:00:00Z"}
    counts = [
        caller.ask("POST", "/v1/schedules/nightly/backfill", body)["counts"]
        for body in ({**span, "dryRun": True}, span, span)
    ]
    assert counts == [{"exists": 2, "wouldInsert": 2}, {"exists": 2, "inserted": 2}, {"exists": 4}]

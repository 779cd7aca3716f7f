"""``dynatick schedule …``: what it prints for people and for programs, and how it ends."""

from __future__ import annotations

import json
import re

from tests.builders import InProcess
from tests.unit.cli.conftest import Shell, fail

HOURLY = "cron(0 * * * ? *)"


def test_add_with_all_that_a_schedule_has(shell: Shell, world: InProcess) -> None:
    ended = shell(
        "schedule", "add", "report", "cron(30 2 ? * MON-FRI *)", "--tz", "Europe/Berlin", "--payload", '{"n": 1.50}',
        "--attributes", '{"team": "blue"}', "--overlap", "allow", "--catch-up", "none", "--end-date", "1830297600",
        "--start-date", "2027-01-01T00:30:00+01:00", "--flexible-time-window", "15", "--timeout-seconds", "60",
        "--retry-policy", '{"maximumRetryAttempts": 1}', "--expected-within-seconds", "1h30m", "--action", "log",
        "--paused", "--reason", "not yet", "--limit-key", "host:a",
    )  # fmt: skip
    assert (ended.code, ended.err) == (0, "")  # clocks jump on Sundays
    shown = dict(line.split(maxsplit=1) for line in ended.lines)
    assert shown.pop("createdAt").startswith("2026-12-31T12:00:")
    assert shown == {
        "taskId": "report", "scheduleExpression": "cron(30 2 ? * MON-FRI *)",
        "scheduleExpressionTimezone": "Europe/Berlin", "catchUp": "none", "overlap": "allow", "action": "log",
        "payload": '{"n":1.5}', "scheduleState": "DISABLED", "stateReason": "not yet", "team": "blue",
        "startDate": "2026-12-31T23:30:00Z", "endDate": "2028-01-01T00:00:00Z", "flexibleTimeWindow": "15",
        "retryPolicy": '{"maximumRetryAttempts":1}', "timeoutSeconds": "60", "expectedWithinSeconds": "5400",
        "limitKey": "host:a",
    }  # fmt: skip


def test_warnings_go_to_stderr_beside_the_data(shell: Shell, world: InProcess) -> None:
    world.reconfigure(tick_minutes=10)
    world.tick()
    warning = shell("schedule", "add", "s", "rate(4 minutes)").err
    assert re.fullmatch("note: its occurrences come as close as 4 min, and ticks every 10 min: .*\n", warning)
    for verb in (("get",), ("update", "--payload", "{}"), ("preview",)):
        assert shell("schedule", *verb, "s").err == warning
    assert shell("schedule", "pause", "s").err == shell("schedule", "resume", "s").err == ""


def test_list(shell: Shell, world: InProcess) -> None:
    assert shell("schedule", "list").err == "There are none\n"
    shell("schedule", "add", "b", "rate(1 minute)")
    shell("schedule", "add", "a", HOURLY, "--tz", "Europe/Berlin")
    shell("schedule", "pause", "a", "--reason", "stocktaking")
    world.put(taskId="c", cronExpression="whenever")
    world.ticks(1)
    ended = shell("schedule", "list")
    head, *rows = [" ".join(line.split()) for line in ended.lines]
    assert head == "SCHEDULE STATE EXPRESSION ACTION NEXT OCCURRENCE LAST OCCURRENCE MISSED WHY"
    assert rows[0] == "b ENABLED rate(1 minute) log 2026-12-31T12:02:00Z 2026-12-31T12:01:00Z"
    assert rows[1] == "a DISABLED cron(0 * * * ? *) Europe/Berlin log stocktaking"
    assert rows[2].startswith("c FAILED whenever ")
    assert "cronExpression: 'whenever' is not accepted" in ended.out
    page = shell("schedule", "list", "--limit", "2", "-o", "json").json
    assert [one["taskId"] for one in page["schedules"]] == ["b", "a"]
    rest = shell("schedule", "list", "--page-token", page["nextPageToken"], "-o", "jsonl")
    assert ([json.loads(line)["taskId"] for line in rest.lines], rest.err) == (["c"], "")
    assert shell("schedule", "list", "--limit", "1").err.startswith("There are more: --page-token ")
    paused = shell("schedule", "list", "--state", "DISABLED", "-o", "json").json
    assert [one["taskId"] for one in paused["schedules"]] == ["a"]


def test_update_and_delete(shell: Shell, world: InProcess) -> None:
    shell("schedule", "add", "s", "rate(1 hour)", "--payload", '{"n": 1}', "--end-date", "2027-06-01T00:00:00Z")
    update = ("schedule", "update", "s", "-o", "json")
    changed = shell(*update, "--expression", "rate(2 hours)", "--timeout-seconds", "90", "--remove", "payload").json
    assert (changed["scheduleExpression"], changed["timeoutSeconds"]) == ("rate(2 hours)", 90)
    assert ("payload" in changed, changed["endDate"]) == (False, "2027-06-01T00:00:00Z")
    less = shell(*update, "--remove", "endDate", "--remove", "timeoutSeconds").json
    assert "endDate" not in less and "timeoutSeconds" not in less
    assert shell("schedule", "delete", "s").err == "deleted s\n"
    shell("schedule", "add", "s", HOURLY)
    assert shell("schedule", "delete", "s", "-o", "json").json == {"taskId": "s", "deleted": True}


def test_run_and_history(shell: Shell, world: InProcess) -> None:
    world.actions.behaviour["s#1#2026-12-31T12:02:00Z"] = fail
    shell("schedule", "add", "s", "rate(1 minute)")
    assert shell("schedule", "history", "s").err == "There are none\n"
    task = shell("schedule", "run", "s", "-o", "json").json
    assert re.fullmatch(r"s#1#2026-12-31T12:00:\d\dZ#now", task["taskId"])
    world.ticks(2)
    world.clock.forward(minutes=5)
    world.tick()
    runs = shell("schedule", "history", "s", "-o", "json").json["occurrences"]
    assert [(run["occurrenceAt"][11:16], run["status"], run.get("reason")) for run in runs[1:4]] == [
        ("12:01", "completed", None), ("12:02", "failed", None), ("12:03", "missed", "outage"),
    ]  # fmt: skip
    tick = next(one for one in shell("tick", "list", "-o", "json").json["ticks"] if one.get("missed"))
    assert (tick["tick"], tick["occurrences"], tick["missed"]) == ("2026-12-31#12:07", 1, 4)
    table = shell("schedule", "history", "s").lines
    assert table[0].split() == ["OCCURRENCE", "STATUS", "BUCKET", "FINISHED", "REASON", "ERROR", "TASK"]
    assert "run now" in table[1] and "SMTP: refused" in table[3] and "missed" in table[4] and "outage" in table[4]
    span = ("--from", "2026-12-31T12:01:00Z", "--to", "2026-12-31#12:02")
    for options, times in ((span, ["12:01", "12:02"]), (("--limit", "1"), ["12:07"])):
        some = shell("schedule", "history", "s", *options, "-o", "jsonl").lines
        assert [json.loads(line)["occurrenceAt"][11:16] for line in some] == times


def test_preview(shell: Shell, world: InProcess) -> None:
    shell("schedule", "add", "s", "cron(30 2 * * ? *)", "--tz", "Europe/Berlin", "--start-date", "2027-03-26T12:00:00Z")
    ended = shell("schedule", "preview", "s", "--count", "2")
    assert ended.lines == [
        "OCCURRENCE            LOCAL TIME                   NOTES",
        "2027-03-27T01:30:00Z  Sat 2027-03-27 02:30 +01:00",
        "2027-03-29T00:30:00Z  Mon 2027-03-29 02:30 +02:00  02:30 does not exist on 2027-03-28: skipped",
    ]
    assert ended.err.splitlines()[0] == "note: 02:30 does not exist on 2027-03-28: skipped (Europe/Berlin)"
    document = shell("schedule", "preview", "s", "--count", "2", "-o", "json").json
    assert [len(one["notes"]) for one in document["occurrences"]] == [0, 1]
    assert document["warnings"] == shell("schedule", "get", "s", "-o", "json").json["warnings"]
    shell("schedule", "add", "once", "at(2026-12-31T12:00:30)")
    world.ticks(1)
    assert shell("schedule", "preview", "once").err == "There are none\n"


def test_backfill(shell: Shell, world: InProcess) -> None:
    shell("schedule", "add", "s", HOURLY)
    span = ("--from", "2026-12-31T10:30:00Z", "--to", "2026-12-31T12:00:00Z")
    would = shell("schedule", "backfill", "s", *span, "--dry-run")
    assert [line.split(maxsplit=1)[1] for line in would.lines[1:]] == ["would be made"] * 2
    made = shell("schedule", "backfill", "s", *span, "-o", "json").json["occurrences"]
    assert [(one["taskId"][-9:], one["result"]) for one in made] == [("11:00:00Z", "made"), ("12:00:00Z", "made")]
    again = shell("schedule", "backfill", "s", *span, "-o", "jsonl")
    assert [json.loads(line)["result"] for line in again.lines] == ["exists"] * 2
    runs = shell("schedule", "history", "s", "-o", "json").json["occurrences"]
    assert [run["status"] for run in runs] == ["scheduled"] * 2
    nothing = shell("schedule", "backfill", "s", "--from", "2026-12-31T10:10:00Z", "--to", "2026-12-31T10:20:00Z")
    assert nothing.err == "There are none\n"


def test_whether_occurrences_were_in_time(shell: Shell, world: InProcess) -> None:
    shell("schedule", "add", "s", "rate(1 minute)", "--expected-within-seconds", "60")
    world.ticks(7)
    assert "EXPECTED WITHIN" in shell("schedule", "list").lines[0]
    latest = [line.split() for line in shell("schedule", "get", "s").lines if line.startswith("2026-12-31T12:")]
    assert [(line[0], line[1], line[4]) for line in latest] == [
        (f"2026-12-31T12:0{minute}:00Z", "completed", "yes") for minute in range(3, 8)
    ]
    assert "IN TIME" in shell("schedule", "history", "s").out
    shell("schedule", "update", "s", "--remove", "expectedWithinSeconds")
    assert "IN TIME" not in shell("schedule", "history", "s").out + shell("schedule", "get", "s").out

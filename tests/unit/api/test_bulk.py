"""Many tasks over HTTP, buckets and ticks, and answers that end where a function's do."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

import pytest
from tests.builders import NOON, InProcess
from tests.unit.api.support import Caller, event, read
from tests.unit.api.test_tasks import end
from tests.unit.client.support import fail

from dynatick.api import buckets, limits, ticks
from dynatick.api.limits import BUDGET_SECONDS
from dynatick.domain import attributes as attr
from dynatick.domain.buckets import Bucket, Grid
from dynatick.domain.task import Row, Status
from dynatick.engine.rules import Rules

BUCKET, PATH = "2026-12-31#13:00", "/v1/buckets/2026-12-31%2313:00"
RANGE = {"start": "2026-12-31T12:00:00Z", "end": "2027-01-10T12:00:00Z"}


def fill(caller: Caller, number: int, bucket: str = BUCKET, prefix: str = "t", **more: object) -> None:
    tasks = [{"taskId": f"{prefix}{n}", "taskDateTime": bucket, "action": "log", **more} for n in range(number)]
    assert caller.ask("POST", "/v1/tasks/bulk", {"tasks": tasks})["counts"] == {"inserted": number}


def test_one_result_a_task(caller: Caller) -> None:
    tasks = [
        {"taskId": "a", "delaySeconds": 60}, {"taskId": "a", "delaySeconds": 60}, {"taskId": "b", "dueAt": "noon"},
        {"payload": {}}, {"taskId": "c", "action": "webhook", "payload": {"url": 7}},
        {"taskId": "d", "own": {"n": 0.5}},
    ]  # fmt: skip
    answer = caller.ask("POST", "/v1/tasks/bulk", {"tasks": tasks})
    reported = [(one["position"], one.get("taskId"), one["result"], one.get("pointer")) for one in answer["results"]]
    assert reported == [
        (0, "a", "inserted", None), (1, "a", "exists", None), (2, "b", "refused", "#/tasks/2/dueAt"),
        (3, None, "refused", "#/tasks/3/taskId"), (4, "c", "refused", "#/tasks/4/payload/url"),
        (5, "d", "inserted", None),
    ]  # fmt: skip
    assert answer["counts"] == {"inserted": 2, "exists": 1, "refused": 3}
    assert caller.ask("GET", "/v1/tasks/d")["own"] == {"n": 0.5}


def test_an_answer_that_is_too_long_has_the_first_error_of_each_task(caller: Caller) -> None:
    """As of rows that were read from a table: they have what Dynatick sets."""
    names = sorted(attr.OWN_ATTRIBUTES - {attr.TASK_ID, *attr.TIME_INPUTS})
    tasks = [{"taskId": f"t{n}", **{name: [1] for name in names}} for n in range(1000)]
    few, many = ({"tasks": tasks[:number]} for number in (1, 1000))
    (first,) = caller.ask("POST", "/v1/tasks/bulk", few)["results"]
    assert len(first["errors"]) > 30
    answered = caller.send("POST", "/v1/tasks/bulk", many)
    assert len(answered.response["body"]) <= limits.MAX_CHARACTERS
    results = read(answered)["results"]
    assert [(one["position"], len(one["errors"])) for one in results] == [(n, 1) for n in range(1000)]


def test_a_dry_run_changes_nothing_and_counts_all_and_a_bucket_is_cancelled_bit_by_bit(caller: Caller) -> None:
    fill(caller, 5)
    ask = {"bucket": BUCKET, "limit": 2}
    dry = caller.ask("POST", "/v1/tasks/cancel", {**ask, "dryRun": True})
    would = [{"taskId": task_id, "result": "wouldChange"} for task_id in ("t0", "t1")]
    assert dry == {"results": would, "counts": {"wouldChange": 5}, "more": False, "nextStart": None,
                   "began": "2026-12-31T12:00:00Z"}  # fmt: skip
    in_bucket = "bucket=2026-12-31%2313:00"
    pages = list(caller.parts("/v1/tasks", f"{in_bucket}&limit=3"))
    assert [[one["taskId"] for one in page["tasks"]] for page in pages] == [["t0", "t1", "t2"], ["t3", "t4"]]
    answers = [caller.ask("POST", "/v1/tasks/cancel", ask) for _ in range(3)]
    assert [(one["counts"]["changed"], one["more"]) for one in answers] == [(2, True), (2, True), (1, False)]
    assert caller.ask("GET", PATH)["counts"] == {"cancelled": 5}
    assert len(caller.ask("GET", "/v1/tasks", query=f"{in_bucket}&status=cancelled")["tasks"]) == 5
    other = f"bucket=2026-12-31%2314:00&pageToken={pages[0]['nextPageToken']}"
    assert caller.refused_fields("GET", "/v1/tasks", query=other) == ["pageToken"]


def test_failed_ones_get_another_run(caller: Caller) -> None:
    fill(caller, 3)
    for task_id, error in (("t0", "HTTP 503"), ("t1", "HTTP 404")):
        end(caller, task_id, Status.FAILED, error)
    caller.clock.forward(hours=2)
    (changed,) = caller.ask("POST", "/v1/tasks/redrive", {"bucket": BUCKET, "error": "503"})["results"]
    assert (changed["taskId"], changed["result"]) == ("t0", "changed")
    assert caller.ask("GET", "/v1/tasks/t0")["run"] == 2
    caller.ask("POST", "/v1/tasks/t2/cancel")
    caller.refused("invalid-input", "POST", "/v1/tasks/redrive", {**RANGE, "status": "cancelled"})
    again = caller.ask("POST", "/v1/tasks/run", {**RANGE, "status": "cancelled"})
    assert [one["taskId"] for one in again["results"]] == ["t2"]


def test_failed_ones_are_redriven_with_another_payload(caller: Caller) -> None:
    fill(caller, 2, payload={"text": "x", "n": 1})
    for task_id in ("t0", "t1"):
        end(caller, task_id, Status.FAILED, "no")
    change = {"set": {"body": "y"}, "unset": ["text"]}
    dry = caller.ask("POST", "/v1/tasks/t0/redrive", {**change, "dryRun": True})
    assert (dry["payload"], dry["status"]) == ({"n": 1, "body": "y"}, "scheduled")
    assert caller.ask("GET", "/v1/tasks/t0")["status"] == "failed"
    caller.refused("invalid-input", "POST", "/v1/tasks/t0/redrive", {"payload": {}, "unset": ["n"]})
    patched = caller.ask("PATCH", "/v1/tasks/t0", {"payload": {"n": 2, "text": "z"}})
    assert (patched["status"], patched["payload"]) == ("failed", {"n": 2, "text": "z"})
    assert caller.ask("POST", "/v1/tasks/redrive", {"bucket": BUCKET, **change})["counts"] == {"changed": 2}
    assert [caller.ask("GET", f"/v1/tasks/t{n}")["payload"]["n"] for n in range(2)] == [2, 1]
    end(caller, "t1", Status.FAILED, "no")
    assert caller.ask("POST", "/v1/tasks/t1/redrive", {"payload": {"all": "new"}})["payload"] == {"all": "new"}


def test_cancelled_ones_are_restored_to_their_time_and_waiting_ones_run_now(caller: Caller) -> None:
    fill(caller, 4)
    caller.ask("POST", "/v1/tasks/cancel", {"bucket": BUCKET})
    for limit, more in ((3, True), (3, False)):
        assert caller.ask("POST", "/v1/tasks/restore", {**RANGE, "limit": limit})["more"] is more
    assert caller.ask("GET", PATH)["counts"] == {"scheduled": 4}
    for changed in (3, 1, 0):
        answer = caller.ask("POST", "/v1/tasks/run", {**RANGE, "limit": 3})
        assert answer["counts"] == ({"changed": changed} if changed else {})
    assert {caller.ask("GET", f"/v1/tasks/t{n}")["taskDateTime"] for n in range(4)} == {"2026-12-31#12:01"}


@pytest.mark.parametrize(
    "selected",
    [{"subject": "customer:1"}, RANGE, {"start": RANGE["start"], "end": "2026-12-31T12:02:00Z"}],
)
@pytest.mark.parametrize(("verb", "ended"), [("redrive", "failed"), ("run", "completed"), ("run", "failed")])
def test_whoever_repeats_a_request_while_there_is_more_changes_each_task_once(
    caller: Caller, verb: str, ended: str, selected: Mapping[str, object]
) -> None:
    """Meanwhile those that were changed have ended again."""
    world = InProcess(store=caller.store, clock=caller.clock)
    world.tick()
    for n in range(5):
        if ended == "failed":
            world.actions.behaviour[f"t{n}"] = fail
        caller.client.insert(f"t{n}", delay_seconds=1, subject="customer:1")
    world.next_tick()
    world.clock.forward(seconds=1)
    asked: dict[str, object] = {**selected, "status": ended, "limit": 3}
    counts = []
    while len(counts) < 9:
        answer = caller.ask("POST", f"/v1/tasks/{verb}", asked)
        counts.append(answer["counts"])
        if not answer["more"]:
            break
        asked |= {"began": answer["began"]} | ({"start": answer["nextStart"]} if answer["nextStart"] else {})
        world.next_tick()
    assert counts == [{"changed": 3}, {"changed": 2}]
    world.next_tick()
    assert [world.row(f"t{n}")["run"] for n in range(5)] == [2] * 5
    if "end" not in selected:
        assert caller.ask("POST", f"/v1/tasks/{verb}", {**asked, "dryRun": True})["counts"] == {}


def test_whoever_repeats_a_request_comes_past_the_tasks_that_are_skipped(caller: Caller) -> None:
    fill(caller, 5, prefix="a")
    fill(caller, 2, prefix="b")
    for n in range(5):
        caller.store.put({**caller.client.get(f"a{n}").row, "status": "running", "lease": "x", "attempt": 1})
    answers = [caller.ask("POST", "/v1/tasks/delete", {"bucket": BUCKET, "limit": 1}) for _ in range(3)]
    assert [(one["counts"].get("changed", 0), one["more"]) for one in answers] == [(1, True), (1, True), (0, False)]
    assert [[one["result"] for one in answer["results"]] for answer in answers] == [["changed"]] * 2 + [["skipped"]]
    assert answers[2]["counts"] == {"skipped": 5}
    assert {record.state for record in caller.client.operations.changes.list()} == {"done"}


def test_the_members_of_a_pack_are_counted_and_its_row_is_one_result(caller: Caller) -> None:
    batch = {"batchId": "a", "action": "log", "dueAt": "2026-12-31T13:00:00Z", "payloads": [{}] * 700}
    caller.ask("POST", "/v1/batches", batch)
    fill(caller, 1)
    ask = {"bucket": BUCKET, "limit": 2}
    assert caller.ask("POST", "/v1/tasks/cancel", {**ask, "dryRun": True})["counts"] == {
        "wouldChange": 701,
        "skipped": 1,
    }
    first, rest = (caller.ask("POST", "/v1/tasks/cancel", ask) for _ in range(2))
    changed = [(one["taskId"], one["tasks"]) for one in first["results"] if one["result"] == "changed"]
    assert changed == [("a/000000000-000000499", 500), ("a/000000500-000000699", 200)]
    assert [one["counts"]["changed"] for one in (first, rest)] == [700, 1]
    assert first["more"] and not rest["more"]


def test_a_request_that_skips_very_many_ends_in_time(caller: Caller) -> None:
    fill(caller, 450)
    for n in range(450):
        caller.store.put({**caller.client.get(f"t{n}").row, "status": "running", "lease": "x", "attempt": 1})
    answer = in_a_hurry(caller, 0).ask("POST", "/v1/tasks/delete", {"bucket": BUCKET, "limit": 100})
    assert (100 <= answer["counts"]["skipped"] < 450, len(answer["results"]), answer["more"]) == (True, 100, True)
    (record,) = caller.client.operations.changes.list()
    assert record.state == "done"


def test_when_a_change_began_is_an_instant_that_has_passed(caller: Caller) -> None:
    for began in ("2026-12-31T12:00:00", "noon", "-1h", "2026-12-31T12:01:01Z"):
        assert caller.refused_fields("POST", "/v1/tasks/cancel", {**RANGE, "began": began}) == ["#/began"]
    of_another_function = "2026-12-31T12:00:59Z"
    answer = caller.ask("POST", "/v1/tasks/cancel", {**RANGE, "began": of_another_function})
    assert answer["began"] == of_another_function


def test_buckets_of_a_range(caller: Caller) -> None:
    fill(caller, 3)
    fill(caller, 2, "2027-01-05#00:00", "u")
    caller.ask("POST", "/v1/tasks/t0/cancel")
    answer = caller.ask("GET", "/v1/buckets", query="start=2026-12-31T12:00:00Z&end=2027-01-06T00:00:00Z")
    assert answer == {
        "buckets": [
            {"bucket": BUCKET, "counts": {"cancelled": 1, "scheduled": 2}, "total": 3},
            {"bucket": "2027-01-05#00:00", "counts": {"scheduled": 2}, "total": 2},
        ],
        "nextStart": None,
    }
    assert caller.ask("GET", "/v1/buckets/2026-12-31%2314:00") == {
        "bucket": "2026-12-31#14:00", "counts": {}, "total": 0, "nextPageToken": None,
    }  # fmt: skip


def in_a_hurry(caller: Caller, polls: int) -> Caller:
    """The same API, whose time is up after a given number of looks at the clock."""
    times = iter([0.0] * (1 + polls))
    return Caller(store=caller.store, clock=caller.clock, seconds=lambda: next(times, BUDGET_SECONDS + 1))


def test_a_bucket_with_very_many_tasks_is_counted_in_parts(caller: Caller) -> None:
    caller.publish_settings(shard_count=3)
    fill(caller, 1000)
    fill(caller, 700, prefix="u")
    caller.ask("POST", "/v1/tasks/u5/cancel")
    first = in_a_hurry(caller, 1).ask("GET", PATH)
    rest = in_a_hurry(caller, 1).ask("GET", PATH, query=f"pageToken={first['nextPageToken']}")
    assert all(one["total"] == sum(one["counts"].values()) <= 1000 for one in (first, rest))
    assert rest["nextPageToken"] is None
    whole = caller.ask("GET", PATH)["counts"]
    assert whole == Counter(first["counts"]) + Counter(rest["counts"]) == {"scheduled": 1699, "cancelled": 1}


def test_a_dry_run_counts_as_far_as_it_comes(caller: Caller) -> None:
    fill(caller, 50)
    answer = in_a_hurry(caller, 20).ask("POST", "/v1/tasks/cancel", {"bucket": BUCKET, "dryRun": True, "limit": 5})
    assert (answer["more"], answer["nextStart"], len(answer["results"])) == (True, None, 5)
    assert 5 <= answer["counts"]["wouldChange"] < 50
    whole = in_a_hurry(caller, 0).ask("POST", "/v1/tasks/cancel", {"bucket": BUCKET})
    assert (whole["counts"], whole["more"]) == ({"changed": 50}, False), "what is begun is reported to its end"


def test_when_time_is_up_it_says_where_to_go_on(caller: Caller) -> None:
    """A range that is long, or of many shards, is read in parts: it says so there, too."""
    caller.publish_settings(shard_count=100)
    minutes = [1, 4, 5, 6, 59, 60, 61]
    for minute in minutes:
        caller.client.insert(f"m{minute}", due_at=NOON + timedelta(minutes=minute))
    start, end = "2026-12-31T12:01:00Z", "2026-12-31T13:01:00Z"
    stopped = in_a_hurry(caller, 1).ask("POST", "/v1/tasks/cancel", {"start": start, "end": end})
    assert stopped["more"]
    changed, at = [stopped["counts"]["changed"]], stopped["nextStart"]
    while at is not None:
        answer = caller.ask("POST", "/v1/tasks/cancel", {"start": at, "end": end, "limit": 2})
        changed.append(answer["counts"].get("changed", 0))
        at = answer["nextStart"]
        assert answer["more"] is (at is not None)
    assert (sum(changed), max(changed[1:])) == (len(minutes) - 1, 2)
    for polls in (1, 3):  # the time is up within a part, and between two
        found, answers, at = [], 0, start
        while at is not None:
            answer = in_a_hurry(caller, polls).ask("GET", "/v1/buckets", query=f"start={at}&end={end}")
            found += [Bucket.parse(one["bucket"]).instant for one in answer["buckets"]]
            at, answers = answer["nextStart"], answers + 1
        assert found == [NOON + timedelta(minutes=minute) for minute in minutes[:-1]], "each once, in order"
        assert answers > 2


LAMBDA_BYTES = 6 * 1024 * 1024


def test_schedules_with_large_payloads(caller: Caller) -> None:
    """Quotation marks take the most room: the gateway's form has them as text of JSON once more."""
    for n in range(20):
        row = {"taskId": f"s{n:02}", "scheduleExpression": "rate(1 day)", "payload": {"text": '"' * 370_000}}
        caller.ask("POST", "/v1/schedules", row)
    pages = list(caller.parts("/v1/schedules", "limit=1000"))
    assert [one["taskId"] for page in pages for one in page["schedules"]] == [f"s{n:02}" for n in range(20)]
    assert all(len(json.dumps({"body": json.dumps(page)})) < LAMBDA_BYTES - 1000 for page in pages)


def test_the_largest_task_fits(caller: Caller) -> None:
    caller.client.insert("a", payload={"text": "\x01" * 390_000})
    answer = caller.send("GET", "/v1/tasks/a")
    assert (answer.status, len(json.dumps(answer.response)) < LAMBDA_BYTES) == (200, True)


def test_a_change_of_tasks_with_long_ids_is_answered_with_as_many_results_as_fit(caller: Caller) -> None:
    letters = "\x01" * 1000  # six characters each, in JSON
    for n in range(600):
        caller.client.insert(f"{n:03}{letters}", task_date_time=BUCKET, action="log")
    answer = caller.send("POST", "/v1/tasks/cancel", {"bucket": BUCKET})
    assert (answer.status, len(json.dumps(answer.response)) < LAMBDA_BYTES) == (200, True)
    found = read(answer)
    assert (found["counts"], found["more"]) == ({"changed": 600}, False)
    assert 300 < len(found["results"]) < 600


def passes(*answers: Any) -> list[tuple[str, int]]:
    return [(one["tick"], one["shard"]) for answer in answers for one in answer["ticks"] if one["kind"] == "pass"]


def test_ticks_come_in_parts_of_a_size_and_of_reads(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is asked for, one request reads no more than the gateway waits for."""
    caller.publish_settings(shard_count=2)
    world = InProcess(store=caller.store, clock=caller.clock, rules=Rules(grid=Grid(shard_count=2)))
    for n in range(6):
        caller.client.insert(f"t{n}", delay_seconds=1)
        world.next_tick()
    whole = caller.ask("GET", "/v1/ticks")
    assert (whole["nextStart"], len(passes(whole)) >= 6) == (None, True)
    with monkeypatch.context() as small:
        small.setattr(limits, "MAX_CHARACTERS", 1500)
        pages = list(caller.parts("/v1/ticks", start="2026-12-31T12:00:00Z"))
    assert all(0 < len(page["ticks"]) < len(whole["ticks"]) for page in pages)
    assert passes(*pages) == passes(whole)
    monkeypatch.setattr(ticks, "MAX_RECORDS", 5)  # two minutes of two shards
    asked: list[int] = []
    get_many = caller.store.get_many

    def counted(task_ids: Iterable[str], **how: Any) -> Mapping[str, Row]:
        asked.append(len(ids := list(task_ids)))
        return get_many(ids, **how)

    monkeypatch.setattr(caller.store, "get_many", counted)
    parts = caller.parts("/v1/ticks", "end=2026-12-31T12:07:00Z", start="2026-12-31T12:00:00Z")
    assert passes(*parts) == passes(whole)
    assert len(asked) > 4 and max(asked) <= 5


def test_very_many_tasks_and_buckets_come_in_smaller_pages(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(10):
        caller.client.insert(f"t{n}", task_date_time=f"2026-12-31#13:0{n // 2}")
    monkeypatch.setattr(buckets, "MAX_BUCKETS", 2)
    span = "end=2026-12-31T13:05:00Z", "start=2026-12-31T13:00:00Z"
    pages = caller.parts("/v1/buckets", span[0], start="2026-12-31T13:00:00Z")
    assert [[one["bucket"][-1] for one in page["buckets"]] for page in pages] == [["0", "1"], ["2", "3"], ["4"]]
    monkeypatch.setattr(limits, "MAX_CHARACTERS", 500)
    pages = list(caller.parts("/v1/tasks", "&".join(span)))
    assert all(0 < len(page["tasks"]) < 6 for page in pages)
    assert [one["taskId"] for page in pages for one in page["tasks"]] == [f"t{n}" for n in range(10)]


def test_a_range_may_be_relative_to_now(caller: Caller) -> None:
    caller.client.insert("soon", due_at=caller.clock() + timedelta(minutes=5))
    caller.client.insert("later", due_at=caller.clock() + timedelta(hours=3))
    dry_run = {"start": "now", "end": "+2h", "dryRun": True}
    listed = caller.ask("GET", "/v1/tasks", query="start=-1h&end=%2B2h")["tasks"]
    selected = caller.ask("POST", "/v1/tasks/cancel", dry_run)["results"]
    assert [one["taskId"] for one in listed] == [one["taskId"] for one in selected] == ["soon"]
    assert [one["total"] for one in caller.ask("GET", "/v1/buckets", query="start=-1h&end=%2B4h")["buckets"]] == [1, 1]


def test_the_tasks_of_a_subject_are_listed_cancelled_and_deleted(caller: Caller) -> None:
    fill(caller, 3, "2027-03-01#12:00", subject="customer:ada")
    fill(caller, 1, "2027-03-01#12:00", prefix="other")
    weekly = {"taskId": "weekly", "scheduleExpression": "rate(7 days)", "subject": "customer:ada"}
    caller.ask("POST", "/v1/schedules", weekly)
    pages = list(caller.parts("/v1/tasks", "subject=customer:ada&limit=2"))
    assert [[one["taskId"] for one in page["tasks"]] for page in pages] == [["t0", "t1"], ["t2"]]
    schedules = caller.ask("GET", "/v1/schedules", query="subject=customer:ada")["schedules"]
    assert [one["taskId"] for one in schedules] == ["weekly"]
    of_ada = {"subject": "customer:ada"}
    dry_run = caller.ask("POST", "/v1/tasks/cancel", of_ada | {"dryRun": True})
    assert (dry_run["counts"], dry_run["more"], dry_run["nextStart"]) == ({"wouldChange": 3}, False, None)
    assert caller.ask("POST", "/v1/tasks/cancel", of_ada | {"limit": 1})["more"] is True
    assert caller.ask("POST", "/v1/tasks/cancel", of_ada)["counts"] == {"changed": 2}
    deleted = caller.ask("POST", "/v1/tasks/delete", of_ada)
    assert [one["taskId"] for one in deleted["results"]] == ["weekly", "t0", "t1", "t2"]
    assert caller.client.get("other0").status == "scheduled"


def test_a_request_that_changes_many_tasks_has_one_record_of_who_sent_it(caller: Caller) -> None:
    fill(caller, 3)
    fill(caller, 2, "2027-01-03#13:00", "late-")
    ask = {**RANGE, "action": "log", "limit": 1000}
    signed = event("POST", "/v1/tasks/cancel", {**ask, "dryRun": True})
    signed["requestContext"]["authorizer"] = {"iam": {"userArn": "arn:aws:iam::123456789012:user/ada"}}
    assert caller.api.handle(signed, None).status == 200
    changes = caller.client.operations.changes
    assert changes.list() == [], "a dry run has none"
    signed["body"] = json.dumps(ask)
    assert caller.api.handle(signed, None).status == 200
    (record,) = changes.list()
    assert (record.change, record.changed, record.state, record.interface) == ("cancel", 5, "done", "HTTP")
    assert record.by == "arn:aws:iam::123456789012:user/ada"
    assert record.given == {
        "from": "2026-12-31T12:00:00Z", "to": "2027-01-10T12:00:00Z", "action": "log", "limit": "1000",
    }  # fmt: skip
    caller.clock.forward(seconds=1)
    with_token = event("POST", "/v1/tasks/restore", {"bucket": BUCKET})
    with_token["requestContext"]["authorizer"] = {"jwt": {"claims": {"sub": "ada@example.com"}, "scopes": None}}
    assert caller.api.handle(with_token, None).status == 200
    caller.clock.forward(seconds=1)
    caller.ask("POST", "/v1/tasks/cancel", {"bucket": BUCKET})
    assert [(one.change, one.by, one.changed) for one in changes.list()[:2]] == [
        ("cancel", None, 3), ("restore", "ada@example.com", 3),
    ]  # fmt: skip

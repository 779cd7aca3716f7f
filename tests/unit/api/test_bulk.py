"""Many tasks over HTTP, buckets and ticks."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

from tests.builders import NOON
from tests.unit.api.support import Caller
from tests.unit.api.test_tasks import end

from dynatick.api.ranges import BUDGET_SECONDS
from dynatick.domain.buckets import Bucket
from dynatick.domain.task import Status

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


def test_a_dry_run_changes_nothing_and_counts_all_and_a_bucket_is_cancelled_bit_by_bit(caller: Caller) -> None:
    fill(caller, 5)
    ask = {"bucket": BUCKET, "limit": 2}
    dry = caller.ask("POST", "/v1/tasks/cancel", {**ask, "dryRun": True})
    would = [{"taskId": task_id, "result": "wouldChange"} for task_id in ("t0", "t1")]
    assert dry == {"results": would, "counts": {"wouldChange": 5}, "more": False, "nextStart": None}
    assert caller.ask("GET", PATH)["counts"] == {"scheduled": 5}
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
    again = caller.ask("POST", "/v1/tasks/redrive", {**RANGE, "status": "cancelled"})
    assert [one["taskId"] for one in again["results"]] == ["t2"]


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
    """Also where a range is read in parts, because it is long or the installation has many shards."""
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

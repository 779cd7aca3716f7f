"""Batches over HTTP."""

from __future__ import annotations

from tests.unit.api.support import Caller, read

BATCH = {
    "batchId": "news", "action": "log", "dueAt": "2026-12-31T12:30:00Z", "overSeconds": 3600, "tenant": "t1",
    "payloads": [{"n": n} for n in range(1200)], "then": {"action": "log", "payload": {"of": "news"}},
}  # fmt: skip


def test_a_batch_is_inserted_under_the_tables_names(caller: Caller) -> None:
    answer = caller.send("POST", "/v1/batches", BATCH)
    assert (answer.status, answer.response["headers"]["Location"]) == (201, "/v1/batches/news")
    assert read(answer) == {
        "batchId": "news", "action": "log", "dueAt": "2026-12-31T12:30:00Z", "lastDueAt": "2026-12-31T13:30:00Z",
        "members": 1200, "packsWritten": 3,
    }  # fmt: skip
    again = caller.ask("POST", "/v1/batches", BATCH)
    assert again["packsWritten"] == 0
    shown = caller.ask("GET", "/v1/batches/news")
    assert (shown["status"], shown["members"], shown["counts"]) == ("scheduled", 1200, {"open": 1200})
    assert shown["then"] == "news/then"
    member = caller.ask("GET", "/v1/tasks/~bmV3cy8wMDAwMDEwMDc")  # news/000001007
    assert (member["payload"], member["tenant"], member["batchId"]) == ({"n": 1007}, "t1", "news")
    (counts,) = caller.ask("GET", "/v1/buckets", query="start=2026-12-31T12:30:00Z&end=2026-12-31T12:31:00Z")["buckets"]
    assert counts["counts"] == {"scheduled": 500}


def test_a_batch_has_the_limit_key_that_is_given(caller: Caller) -> None:
    caller.ask("POST", "/v1/batches", {**BATCH, "limitKey": "customer:4711"})
    assert caller.ask("GET", "/v1/batches/news")["limitKey"] == "customer:4711"
    assert caller.ask("GET", "/v1/tasks/~bmV3cy8wMDAwMDEwMDc")["limitKey"] == "customer:4711"
    assert caller.refused_fields("POST", "/v1/batches", {**BATCH, "batchId": "b", "limitKey": "x"}) == ["#/limitKey"]


def test_a_batch_is_loaded_in_parts(caller: Caller) -> None:
    parts = [BATCH["payloads"][first : first + 500] for first in (0, 500, 1000)]  # type: ignore[index]
    begun = {**BATCH, "payloads": None, "total": 1200}
    first = caller.send("POST", "/v1/batches", begun)
    assert (first.status, read(first)["packsWritten"], "members" in read(first)) == (201, 0, False)
    for number in (2, 0, 0):
        loaded = caller.ask("PUT", f"/v1/batches/news/packs/{number}", {"payloads": parts[number]})
        assert (loaded["number"], loaded["members"]) == (number, len(parts[number]))
    refused = caller.refused("not-possible-now", "POST", "/v1/batches/news/seal")
    assert refused["detail"].endswith("it is not complete; load what is missing first: pack 1")
    caller.ask("PUT", "/v1/batches/news/packs/1", {"payloads": parts[1]})
    assert caller.ask("POST", "/v1/batches/news/seal")["members"] == 1200
    assert caller.ask("POST", "/v1/batches", BATCH)["packsWritten"] == 0
    put = ("PUT", "/v1/batches/news/packs/2")
    assert caller.refused_fields(*put, {"payloads": parts[1]}) == ["#/payloads"]
    assert caller.refused_fields(*put, {"payloads": [*parts[2][:-1], 5]}) == ["#/payloads/199"]
    assert caller.refused_fields(*put, {"payloads": parts[2], "total": 1}) == ["#/total"]
    assert caller.refused_fields("PUT", "/v1/batches/news/packs/3", {"payloads": []}) == ["number"]
    assert caller.refused_fields("PUT", "/v1/batches/news/packs/x", {"payloads": []}) == ["number"]
    assert caller.refused_fields("POST", "/v1/batches", {**begun, "total": -1}) == ["#/total"]
    caller.refused("task-not-found", "PUT", "/v1/batches/none/packs/0", {"payloads": [{}]})
    caller.refused("task-not-found", "POST", "/v1/batches/none/seal")


def test_members_are_listed_by_page_and_status(caller: Caller) -> None:
    caller.ask("POST", "/v1/batches", BATCH)
    caller.ask("POST", "/v1/tasks/~bmV3cy8wMDAwMDEwMDc/cancel")  # news/000001007
    pages = list(caller.parts("/v1/batches/news/members", "limit=500"))
    assert [len(page["members"]) for page in pages] == [500, 500, 200]
    assert [one["payload"]["n"] for page in pages for one in page["members"]] == list(range(1200))
    (cancelled,) = caller.parts("/v1/batches/news/members", "status=cancelled")
    assert [one["taskId"] for one in cancelled["members"]] == ["news/000001007"]
    assert caller.refused_fields("GET", "/v1/batches/news/members", query="status=open") == ["status"]
    assert caller.refused_fields("GET", "/v1/batches/news/members", query="pageToken=x") == ["pageToken"]
    caller.refused("task-not-found", "GET", "/v1/batches/none/members")


def test_a_batch_is_cancelled(caller: Caller) -> None:
    caller.ask("POST", "/v1/batches", BATCH)
    assert caller.ask("POST", "/v1/batches/news/cancel") == {"batchId": "news", "cancelled": 1200, "running": 0}
    assert caller.ask("GET", "/v1/batches/news")["counts"] == {"cancelled": 1200}
    (record,) = caller.client.operations.changes.list()
    assert (record.change, record.changed, record.interface) == ("cancel batch", 1200, "HTTP")


def test_a_batch_is_rescheduled_and_redriven(caller: Caller) -> None:
    caller.ask("POST", "/v1/batches", BATCH)
    moved = caller.ask("PATCH", "/v1/batches/news", {"dueAt": "2026-12-31T12:45:00Z"})
    assert moved == {
        "batchId": "news", "dueAt": "2026-12-31T12:45:00Z", "lastDueAt": "2026-12-31T13:45:00Z", "rescheduled": 1200,
        "running": 0,
    }  # fmt: skip
    assert caller.ask("POST", "/v1/batches/news/redrive") == {"batchId": "news", "redriven": 0}
    for body, fields in (({"dueAt": "x"}, ["#/dueAt"]), ({}, ["#/taskDateTime"]), ({"over": 1}, ["#/over"])):
        assert caller.refused_fields("PATCH", "/v1/batches/news", body) == fields
    caller.ask("POST", "/v1/batches/news/cancel")
    assert (
        "it is cancelled"
        in caller.refused("not-possible-now", "PATCH", "/v1/batches/news", {"delaySeconds": 1})["detail"]
    )


def test_batches_are_listed_by_page(caller: Caller) -> None:
    for n in range(3):
        caller.ask("POST", "/v1/batches", {**BATCH, "batchId": f"b{n}", "dueAt": f"2026-12-31T12:3{n}:00Z"})
    first = caller.ask("GET", "/v1/batches", query="limit=2")
    assert [(one["batchId"], one["status"], one["members"]) for one in first["batches"]] == [
        ("b2", "scheduled", 1200), ("b1", "scheduled", 1200),
    ]  # fmt: skip
    rest = caller.ask("GET", "/v1/batches", query=f"limit=2&pageToken={first['nextPageToken']}")
    assert ([one["batchId"] for one in rest["batches"]], rest["nextPageToken"]) == (["b0"], None)
    none = caller.ask("GET", "/v1/batches", query="start=2026-12-31T14:00:00Z&end=2026-12-31T15:00:00Z")
    assert none["batches"] == []
    assert caller.refused_fields("GET", "/v1/batches", query="start=2026-12-31T14:00:00Z") == ["end"]
    assert caller.refused_fields("GET", "/v1/batches", query="limit=0") == ["limit"]
    assert caller.refused_fields("GET", "/v1/batches", query="pageToken=x") == ["pageToken"]


def test_what_is_refused_names_the_field(caller: Caller) -> None:
    for more, fields in (
        ({"payloads": [{"n": 1}, {"n": 1}, 5]}, ["#/payloads/2"]),
        ({"overSeconds": 86_401}, ["#/overSeconds"]),
        ({"overSeconds": "x"}, ["#/overSeconds"]),
        ({"overSeconds": True}, ["#/overSeconds"]),
        ({"delaySeconds": "x", "dueAt": None}, ["#/delaySeconds"]),
        ({"delaySeconds": "60", "dueAt": None}, ["#/delaySeconds"]),
        ({"delaySeconds": True, "dueAt": None}, ["#/delaySeconds"]),
        ({"delay_seconds": 60, "dueAt": None}, ["#/delay_seconds"]),
        ({"batchId": ""}, ["#/batchId"]),
        ({"action": "nope"}, ["#/action"]),
        ({"then": {"taskId": "x"}}, ["#/then/taskId"]),
        ({"then": {"action": "nope", "delaySeconds": "1h"}}, ["#/then/action", "#/then/delaySeconds"]),
        ({"limitKey": "customer"}, ["#/limitKey"]),
        ({"payloads": None}, ["#/total"]),
        ({"total": 1}, ["#/total"]),
    ):
        assert caller.refused_fields("POST", "/v1/batches", {**BATCH, **more}) == fields, more
    assert caller.refused("task-not-found", "GET", "/v1/batches/none")["detail"].startswith("batchId: ")
    caller.ask("POST", "/v1/batches", BATCH)
    differs = caller.refused("task-exists", "POST", "/v1/batches", {**BATCH, "action": "webhook"})
    assert "its action is 'log', not 'webhook'" in differs["detail"]

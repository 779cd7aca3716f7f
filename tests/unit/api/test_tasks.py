"""Single tasks over HTTP, and answers that wait until a task or a bucket has ended."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.builders import NOON, InProcess
from tests.unit.api.support import Caller, Time, event, read

from dynatick import CompleteLater, TaskClient
from dynatick.api import Api
from dynatick.client import Refused
from dynatick.domain.completion import completion_token
from dynatick.domain.lifecycle import terminal
from dynatick.domain.task import Status

LATER = "2026-12-31T15:00:00Z"


def end(caller: Caller, task_id: str, status: Status, error: str | None = None) -> None:
    """The row that the processor leaves when it has run a task."""
    row = dict(caller.store.get(task_id) or {})
    caller.store.delete(task_id)
    assert caller.store.create({**row, **terminal(status, NOON, 30, error)})


def test_a_task_is_inserted_under_the_tables_names(caller: Caller) -> None:
    row = {
        "taskId": "welcome-42", "dueAt": LATER, "action": "webhook",
        "payload": {"url": "https://example.com/hook", "data": {"price": 0.1, "many": 10**30}},
        "retryPolicy": {"maximumRetryAttempts": 5}, "timeoutSeconds": 60, "subject": "customer:7", "team": "blue",
        "limitKey": "host:example.com",
    }  # fmt: skip
    answer = caller.send("POST", "/v1/tasks", row)
    assert answer.status == 201
    assert answer.response["headers"]["Location"] == "/v1/tasks/welcome-42"
    task = read(answer)
    assert {name: task[name] for name in row} == row
    assert (task["status"], task["taskDateTime"], task["attempt"], task["run"]) == (
        "scheduled", "2026-12-31#15:00", 0, 1,
    )  # fmt: skip
    assert caller.ask("GET", "/v1/tasks/welcome-42") == task
    assert caller.client.get("welcome-42").to_row() == task


def test_null_is_as_good_as_nothing_and_without_an_id_it_gets_one(caller: Caller) -> None:
    body = {"dueAt": None, "delaySeconds": 30, "note": None}
    task, other = (caller.ask("POST", "/v1/tasks", body) for _ in range(2))
    assert task["taskId"] != other["taskId"]
    assert task["taskDateTime"] == "2026-12-31#12:01"
    assert (task["note"], "payload" in task) == (None, False)  # one's own attributes are one's own


def test_no_interface_takes_what_a_repeated_request_is_known_by(caller: Caller) -> None:
    """A caller who may only insert would otherwise have its own task returned to another caller's request."""
    row = {"delaySeconds": 60, "action": "log"}
    victim = caller.ask("POST", "/v1/tasks", row, idempotency_key="order-8")
    squatted = {"taskId": "squatted", "idempotencyDigest": caller.client.get(victim["taskId"]).row["idempotencyDigest"]}
    (result,) = caller.ask("POST", "/v1/tasks/bulk", {"tasks": [squatted]})["results"]
    assert (result["result"], result["pointer"]) == ("refused", "#/tasks/0/idempotencyDigest")
    (refused,) = caller.client.insert_lazily([squatted])
    assert isinstance(refused, Refused)
    assert refused.error.expected == "leave it out: it is set by Dynatick"


def test_a_repeated_request_is_known_by_its_key(caller: Caller) -> None:
    row = {"delaySeconds": 60, "payload": {"n": 1.5}}
    first = caller.send("POST", "/v1/tasks", row, idempotency_key="order-7")
    caller.clock.forward(hours=1)
    again = caller.send("POST", "/v1/tasks", row, idempotency_key="order-7")
    assert (first.status, again.status) == (201, 200)
    assert read(again) == read(first)
    assert again.response["headers"]["Idempotency-Replayed"] == "true"
    assert "Idempotency-Replayed" not in first.response["headers"]
    assert caller.ask("POST", "/v1/tasks", row, idempotency_key="order-8")["taskId"] != read(first)["taskId"]
    for other in (2, "1.5"):
        differs = row | {"payload": {"n": other}}
        caller.refused("idempotency-key-reused", "POST", "/v1/tasks", differs, idempotency_key="order-7")


def test_a_key_beside_an_id_of_ones_own(caller: Caller) -> None:
    row = {"taskId": "mine", "delaySeconds": 60}
    made = caller.ask("POST", "/v1/tasks", row, idempotency_key="k")
    assert caller.ask("POST", "/v1/tasks", row, idempotency_key="k") == made
    caller.refused("idempotency-key-reused", "POST", "/v1/tasks", row, idempotency_key="l")
    caller.refused("task-exists", "POST", "/v1/tasks", row)
    caller.ask("PATCH", "/v1/tasks/mine", {"payload": {"other": True}})
    caller.ask("POST", "/v1/tasks/mine/cancel")
    again = caller.ask("POST", "/v1/tasks", row, idempotency_key="k")
    assert again["status"] == "cancelled", "the task, whatever became of it"
    caller.client.insert("without-a-key")
    caller.refused("task-exists", "POST", "/v1/tasks", {"taskId": "without-a-key"}, idempotency_key="k")


@pytest.mark.parametrize(
    ("task_id", "path"),
    [
        ("+491701234567", "%2B491701234567"), ("ada@example.com", "ada%40example.com"),
        ("ada@example.com", "ada@example.com"), ("2026#7 ä", "2026%237%20%C3%A4"), ("100%", "~MTAwJQ"),
        ("%41", "~JTQx"), ("a%2Fb", "~YSUyRmI"), ("a/b", "~YS9i"), ("a?b", "~YT9i"), ("~a", "~fmE"), ("..", "~Li4"),
        ("bulk", "~YnVsaw"), ("bulky", "bulky"),
    ],
)  # fmt: skip
def test_any_id_can_stand_in_a_path(caller: Caller, task_id: str, path: str) -> None:
    made = caller.send("POST", "/v1/tasks", {"taskId": task_id, "delaySeconds": 60})
    own_path = made.response["headers"]["Location"]
    assert {caller.ask("GET", one)["taskId"] for one in (own_path, f"/v1/tasks/{path}")} == {task_id}
    assert caller.ask("POST", f"/v1/tasks/{path}/cancel")["status"] == "cancelled"


@pytest.mark.parametrize("path", ["100%25", "%25%32%35", "a%252525b", "a%252541", "%ff", "%25ff"])
def test_a_percent_sign_in_a_path_names_no_task(caller: Caller, path: str) -> None:
    """What the gateway would decode once more may be another task's id, so it is refused, and says what is right."""
    caller.ask("POST", "/v1/tasks", {"taskId": "aA", "delaySeconds": 60})
    for method, where in (("GET", path), ("POST", f"{path}/cancel"), ("PATCH", path)):
        body = {"payload": {}} if method == "PATCH" else None
        request = event(method, f"/v1/tasks/{where}", body)
        if "ff" in path:
            request["rawPath"] = f"/v1/tasks/{where}"
        problem = read(caller.api.handle(request, None))
        assert (problem["status"], problem["errors"][0]["parameter"]) == (422, "path")
        assert "~ and the id in base64url" in problem["detail"]
    caller.ask("POST", "/v1/tasks", {"taskId": "a", "delaySeconds": 60})
    assert caller.ask("GET", "/v1/tasks/a%3Fb")["taskId"] == "a", "an encoded question mark ends a path"


def test_a_waiting_task_is_changed_and_if_match_guards_the_change(caller: Caller) -> None:
    seen = caller.send("POST", "/v1/tasks", {"taskId": "a", "delaySeconds": 60}).response["headers"]["ETag"]
    assert caller.send("GET", "/v1/tasks/a").response["headers"]["ETag"] == seen
    both = {"payload": {"n": 1}, "taskDateTime": "2026-12-31#16:00"}
    changed = caller.send("PATCH", "/v1/tasks/a", both, if_match=seen)
    assert (changed.status, read(changed)) == (200, read(changed) | both)
    problem = caller.refused("changed", "PATCH", "/v1/tasks/a", {"payload": {"n": 2}}, if_match=seen)
    assert problem["status"] == 412
    now = changed.response["headers"]["ETag"]
    assert caller.ask("PATCH", "/v1/tasks/a", {"dueAt": LATER}, if_match=now)["taskDateTime"] == "2026-12-31#15:00"
    assert caller.ask("PATCH", "/v1/tasks/a", {"payload": {"n": 4}}, if_match="*")["payload"] == {"n": 4}


@pytest.mark.parametrize(
    ("verb", "status"),
    [("cancel", "cancelled"), ("run", "scheduled"), ("restore", "scheduled"), ("redrive", "scheduled")],
)
def test_if_match_guards_every_verb(caller: Caller, verb: str, status: str) -> None:
    caller.ask("POST", "/v1/tasks", {"taskId": "a", "dueAt": LATER})
    if verb == "restore":
        caller.ask("POST", "/v1/tasks/a/cancel")
    if verb == "redrive":
        end(caller, "a", Status.FAILED, "no such mailbox")
    before = caller.client.get("a")
    caller.refused("changed", "POST", f"/v1/tasks/a/{verb}", if_match='"old"')
    assert caller.client.get("a") == before
    assert caller.ask("POST", f"/v1/tasks/a/{verb}", if_match=f'"{before.version}"')["status"] == status


def test_what_would_be_refused_anyway_is_refused_for_that(caller: Caller) -> None:
    """RFC 9110, 13.2.1: a precondition is for what would otherwise be done."""
    hook = {"action": "webhook", "payload": {"url": "https://x.org"}}
    caller.ask("POST", "/v1/tasks", {"taskId": "a", "dueAt": LATER, **hook})
    for body in ({"dueAt": "noon"}, {"payload": {"url": 7}}, {"payload": {"data": "x" * 400_000}}):
        caller.refused("invalid-input", "PATCH", "/v1/tasks/a", body, if_match='"old"')
    caller.ask("POST", "/v1/tasks/a/cancel")
    caller.refused("not-possible-now", "PATCH", "/v1/tasks/a", {"payload": {}}, if_match='"old"')
    caller.refused("task-not-found", "PATCH", "/v1/tasks/b", {"payload": {}}, if_match='"old"')


def test_a_task_is_deleted_and_then_is_not_there(caller: Caller) -> None:
    etag = caller.send("POST", "/v1/tasks", {"taskId": "a/b", "delaySeconds": 60}).response["headers"]["ETag"]
    caller.ask("PATCH", "/v1/tasks/~YS9i", {"payload": {"n": 1}})
    caller.refused("changed", "DELETE", "/v1/tasks/~YS9i", if_match=etag)
    gone = caller.send("DELETE", "/v1/tasks/~YS9i")
    assert (gone.status, gone.response["body"]) == (204, "")
    assert caller.store.get("a/b") is None
    for method, verb in (("GET", ""), ("DELETE", ""), ("POST", "/cancel"), ("POST", "/run"), ("POST", "/redrive"),
                         ("POST", "/restore")):  # fmt: skip
        caller.refused("task-not-found", method, f"/v1/tasks/~YS9i{verb}")
    caller.refused("task-not-found", "PATCH", "/v1/tasks/~YS9i", {"payload": {}})


def test_the_verbs_and_what_stands_in_their_way(caller: Caller) -> None:
    caller.ask("POST", "/v1/tasks", {"taskId": "a", "dueAt": LATER})
    assert caller.ask("POST", "/v1/tasks/a/run")["taskDateTime"] == "2026-12-31#12:01"
    problem = caller.refused("not-possible-now", "POST", "/v1/tasks/a/redrive")
    assert (problem["taskStatus"], problem["allowed"]) == ("scheduled", ["failed"])
    assert caller.ask("POST", "/v1/tasks/a/cancel")["outcome"] == "cancelled"
    caller.refused("not-possible-now", "POST", "/v1/tasks/a/cancel")
    assert "is restored" in caller.refused("not-possible-now", "POST", "/v1/tasks/a/redrive")["detail"]
    again = caller.ask("POST", "/v1/tasks/a/restore")
    assert (again["status"], again["run"]) == ("scheduled", 1)
    end(caller, "a", Status.FAILED, "no")
    assert caller.ask("POST", "/v1/tasks/a/redrive")["run"] == 2
    end(caller, "a", Status.COMPLETED)
    assert caller.ask("POST", "/v1/tasks/a/run")["run"] == 3


def test_the_simple_form_inserts_a_task_and_can_be_repeated_by_its_key(caller: Caller) -> None:
    hook = {"url": "https://example.com/hook", "data": {"n": 1}}
    body = {"action": "webhook", "payload": hook, "run_at": "2027-05-17T15:00:00Z"}
    first, again = (caller.send("POST", "/schedule-task", body, idempotency_key="order-7") for _ in range(2))
    assert (first.status, again.status, read(first)) == (201, 200, read(again))
    task = caller.ask("GET", f"/v1/tasks/{read(first)['taskId']}")
    assert (task["action"], task["payload"]) == (body["action"], body["payload"])
    assert (task["dueAt"], task["taskDateTime"]) == ("2027-05-17T15:00:00Z", "2027-05-17#15:00")
    other = body | {"run_at": "2027-01-01T00:00:00Z"}
    caller.refused("idempotency-key-reused", "POST", "/schedule-task", other, idempotency_key="order-7")
    assert caller.ask("POST", "/schedule-task", body)["taskId"] != read(first)["taskId"]


@pytest.mark.parametrize(
    ("path", "query", "missing"),
    [
        ("/v1/tasks", "status=failed", ["start", "end"]),
        ("/v1/tasks", "end=2026-12-31T00:00:00Z&limit=5", ["start"]),
        ("/v1/buckets", "", ["start", "end"]),
    ],
)
def test_a_list_without_a_time_shows_what_is_missing(caller: Caller, path: str, query: str, missing: list[str]) -> None:
    problem = caller.refused("invalid-input", "GET", path, query=query)
    assert [error["parameter"] for error in problem["errors"]] == missing
    assert ("bucket=2026-12-31%2312:00" in problem["detail"]) is (path == "/v1/tasks")
    example = problem["detail"].rpartition("for instance ")[2]
    assert ("status=failed" in example) is ("status" in query)
    path, _, works = example.partition("?")
    assert [] in caller.ask("GET", path, query=works).values()


BUCKET = "/v1/buckets/2026-12-31%2313:00"


@pytest.fixture
def time(caller: Caller) -> Time:
    """The clock of the caller, whose tasks ``a`` and ``b`` are due at one."""
    made = Time()
    caller.api = Api(caller.client, seconds=lambda: made.now, pause=made.pause)
    for task_id in ("a", "b"):
        caller.client.insert(task_id, task_date_time="2026-12-31#13:00")
    return made


def test_a_task_is_waited_for_while_it_is_there_and_has_not_ended(caller: Caller, time: Time) -> None:
    time.after[3] = lambda: caller.client.cancel("a")
    for _ in range(2):  # then it has ended
        assert caller.ask("GET", "/v1/tasks/a", query="waitSeconds=10")["outcome"] == "cancelled"
        assert time.waits == [0.5, 0.75, 1.125]
    time.after[4] = lambda: caller.client.delete("b")
    for task_id in ("nobody", "b"):
        caller.refused("task-not-found", "GET", f"/v1/tasks/{task_id}", query="waitSeconds=5")
    assert len(time.waits) == 4


def test_when_the_time_is_up_it_is_shown_as_it_is(caller: Caller, time: Time) -> None:
    for query, waited in (("waitSeconds=7", 7), ("", 0), ("waitSeconds=0", 0)):
        time.waits.clear()
        assert caller.ask("GET", "/v1/tasks/a", query=query)["status"] == "scheduled"
        assert sum(time.waits) == pytest.approx(waited)
    time.waits.clear()
    time.after[2] = lambda: caller.client.cancel("a")
    found = caller.ask("GET", BUCKET, query="waitSeconds=4")
    assert (found["counts"], found["nextPageToken"]) == ({"cancelled": 1, "scheduled": 1}, None)
    assert sum(time.waits) == pytest.approx(4)


def test_it_waits_no_longer_than_the_installation_allows(caller: Caller, time: Time) -> None:
    """Each request that waits keeps an execution of the account from the ticks."""
    for allowed in (3, 0):
        time.waits.clear()
        caller.api = Api(caller.client, seconds=lambda: time.now, pause=time.pause, max_wait_seconds=allowed)
        assert caller.ask("GET", "/v1/tasks/a", query="waitSeconds=10")["status"] == "scheduled"
        assert sum(time.waits) == pytest.approx(allowed)


def test_a_bucket_is_waited_for_until_all_have_ended(caller: Caller, time: Time) -> None:
    time.after |= {1: lambda: caller.client.cancel("a"), 3: lambda: caller.client.cancel("b")}
    assert caller.ask("GET", BUCKET, query="waitSeconds=10")["counts"] == {"cancelled": 2}
    assert len(time.waits) == 3
    caller.ask("GET", "/v1/buckets/2026-12-31%2314:00", query="waitSeconds=10")  # an empty one
    assert len(time.waits) == 3


def test_a_bucket_that_is_too_large_to_count_at_once_is_not_waited_for(
    caller: Caller, time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(1001):
        caller.client.insert(f"t{n:04}", task_date_time="2026-12-31#13:00")
    history = TaskClient.history

    def slow(*arguments: object, **options: object) -> object:
        time.now += 16
        return history(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(TaskClient, "history", slow)
    found = caller.ask("GET", BUCKET, query="waitSeconds=10")
    assert found["counts"] == {"scheduled": 1000}
    assert (found["nextPageToken"] is not None, time.waits) == (True, [])


def test_a_put_says_what_has_happened(caller: Caller) -> None:
    path = "/v1/tasks/a-b"
    made = caller.send("PUT", path, {"dueAt": LATER, "action": "log", "payload": {"n": 1}})
    assert (made.status, read(made)["effect"], made.response["headers"]["Location"]) == (201, "created", path)
    assert read(made)["task"] == caller.ask("GET", path)
    other = {"dueAt": LATER, "action": "log", "payload": {"n": 2}, "taskId": "a-b"}
    again = caller.send("PUT", path, other)
    assert (again.status, read(again)["effect"], read(again)["task"]["payload"]) == (200, "replaced", {"n": 2})
    assert again.response["headers"]["ETag"] == f'"{caller.client.get("a-b").version}"'
    for query, due_at, effect in (
        ("", LATER, "kept"),
        ("ifExists=keep", "2026-12-31T17:00:00Z", "kept"),
        ("ifExists=postpone&untilSeconds=3600", "2026-12-31T15:30:00Z", "postponed"),
        ("ifExists=postpone&untilSeconds=3600", "2026-12-31T15:10:00Z", "kept"),
    ):
        answer = caller.send("PUT", path, {**other, "dueAt": due_at}, query=query)
        assert (answer.status, read(answer)["effect"]) == (200, effect), query


def test_a_put_heeds_the_version_of_the_task(caller: Caller) -> None:
    task = {"dueAt": "2026-12-31T15:00:00Z", "action": "log", "payload": {"n": 1}}
    assert caller.refused("changed", "PUT", "/v1/tasks/a", task, If_Match='"5c1e"')["status"] == 412
    assert caller.client.store.get("a") is None, "it inserts none"
    old = caller.send("PUT", "/v1/tasks/a", task).response["headers"]["ETag"]
    present = caller.send("PUT", "/v1/tasks/a", {**task, "payload": {"n": 2}}, If_Match=old)
    assert present.status == 200
    for query in ("ifExists=keep", "ifExists=replace", "ifExists=postpone"):
        caller.refused("changed", "PUT", "/v1/tasks/a", {**task, "payload": {"n": 3}}, query=query, If_Match=old)
        caller.refused("changed", "PUT", "/v1/tasks/a", {**task, "payload": {"n": 2}}, query=query, If_Match=old)
    assert caller.client.get("a").payload == {"n": 2}
    new = present.response["headers"]["ETag"]
    assert caller.ask("PUT", "/v1/tasks/a", task, query="ifExists=keep", If_Match=new)["effect"] == "kept"
    for query, headers, field in (
        ("ifExists=refuse", {"If_Match": new}, "If-Match"), ("", {"If_Match": "*"}, "If-Match"),
        ("", {"If_None_Match": "*"}, "If-None-Match"),
    ):  # fmt: skip
        assert caller.refused_fields("PUT", "/v1/tasks/a", task, query=query, **headers) == [field]


def test_a_put_that_is_refused(caller: Caller) -> None:
    task = {"dueAt": LATER, "action": "log"}
    caller.ask("PUT", "/v1/tasks/a", task)
    refused = caller.send("PUT", "/v1/tasks/a", task, query="ifExists=refuse")
    assert (refused.status, read(refused)["code"]) == (409, "task-exists")
    for query, body, where, said in (
        ("ifExists=overwrite", task, "ifExists", "Input should be 'refuse', 'keep', 'replace' or 'postpone'"),
        ("untilSeconds=60", task, "untilSeconds", "expected a number up to 31622400, with ifExists=postpone only"),
        ("ifExists=postpone&untilSeconds=1e9", task, "untilSeconds", "expected a number up to 31622400"),
        ("ifExists=postpone&untilSeconds=0", task, "untilSeconds", "greater than 0"),
        ("", {**task, "taskId": "b"}, "taskId", "expected 'a', as in the path, or none"),
        ("", {"action": "log"}, "#/dueAt", "expected a time, one of taskDateTime, dueAt, delaySeconds"),
        ("", {**task, "action": "webhook", "payload": {"url": "https://a.example/"}}, "#/action", "expected 'log'"),
    ):
        answer = caller.send("PUT", "/v1/tasks/a", body, query=query)
        (error,) = read(answer)["errors"]
        assert (answer.status, error.get("parameter") or error["pointer"]) == (422, where), error
        assert said in error["detail"]
    row = dict(caller.store.get("a") or {})
    caller.store.put({**row, "status": "running", "lease": "x", "attempt": 1})
    left_alone = caller.send("PUT", "/v1/tasks/a", task)
    assert left_alone.status == 409
    assert {name: read(left_alone)[name] for name in ("code", "taskStatus")} == {
        "code": "not-possible-now",
        "taskStatus": "running",
    }
    caller.store.put(row)
    end(caller, "a", Status.COMPLETED)
    assert caller.ask("PUT", "/v1/tasks/a", task)["effect"] == "kept"
    anew = caller.ask("PUT", "/v1/tasks/a", {**task, "payload": {"n": 1}})
    assert (anew["effect"], anew["task"]["status"], anew["task"]["run"]) == ("restarted", "scheduled", 2)


def test_a_completion_by_its_token(caller: Caller) -> None:
    world = InProcess(store=caller.store, clock=caller.clock)
    world.actions.behaviour |= dict.fromkeys("abc", lambda *_: CompleteLater(timedelta(hours=8), timedelta(hours=1)))
    tokens = {}
    for task_id in "abc":
        caller.ask("POST", "/v1/tasks", {"taskId": task_id, "delaySeconds": 1})
    world.next_tick()
    for task_id in "abc":
        tokens[task_id] = completion_token(str(world.row(task_id)["lease"]), task_id)

    assert "lease" not in caller.ask("GET", "/v1/tasks/a"), "a reader could make the token of it"
    beat = caller.ask("POST", "/v1/completions", {"token": tokens["a"], "outcome": "heartbeat"})
    assert (beat["status"], beat["heartbeatSeconds"]) == ("waiting", 3600)
    for _ in range(2):
        done = caller.ask("POST", "/v1/completions", {"token": tokens["a"], "result": {"n": [1, 0.5]}})
        assert (done["status"], done["result"]) == ("completed", {"n": [1, 0.5]})
    failed = {"token": tokens["b"], "outcome": "failed", "error": "no codec", "retry": True}
    assert caller.ask("POST", "/v1/completions", failed)["status"] == "scheduled"
    caller.ask("POST", "/v1/tasks/c/cancel")
    refused = caller.send("POST", "/v1/completions", {"token": tokens["c"]})
    assert (refused.status, read(refused)["code"]) == (409, "completion-refused")
    assert "the task 'c' is cancelled since" in read(refused)["detail"]

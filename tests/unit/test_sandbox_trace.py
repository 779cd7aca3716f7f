"""The trace of a world notes of each request what the product meant by it."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.httpsession import URLLib3Session
from proof.replay import refusal_of
from tests.builders import NOON, scheduled_row
from tests.sandbox.clock import SharedClock
from tests.sandbox.folder import SharedFolder
from tests.sandbox.locks import end, exits_without
from tests.sandbox.seam import respond
from tests.sandbox.trace import CutOff, Tracer, events_of, traced
from tests.trace import change_of, row_of
from tests.unit.engine.support import bucket_at

from dynatick.domain.conditional_update import Absent, AtLeast, ConditionalUpdate, Is, Plus
from dynatick.store.dynamodb import DynamoStore
from dynatick.store.wire import Connections

TABLE = "sandbox-1"
CHANGES = (
    ConditionalUpdate(task_id="a", set={"status": "running", "attempt": Plus(1)}, conditions=(Absent("outcome"),)),
    ConditionalUpdate(
        task_id="a'b",
        set={"outcome": "completed", "result": {"n": 1, "of": [True, None]}, 'od"d': None},
        remove=("error", "trace"),
        conditions=(Is("lease", "t"), Is("version", 3), Is("is", False), AtLeast("attempt", 2), Absent("x")),
    ),
    ConditionalUpdate(task_id="c", set={"payload": "long " * 40}, conditions=(Is("payload", {"a": 1}),)),
)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> DynamoStore:
    """On a table that takes each request and does nothing."""

    def send(_: object, request: AWSPreparedRequest) -> AWSResponse:
        body = json.loads(request.body or b"{}")
        answer: dict[str, Any] = {"Responses": [{} for _ in body.get("Statements", ())]}
        if "IndexName" in body:
            last = {"taskId": {"S": "b"}, "taskDateTime": {"S": str(bucket_at(1))}}
            items = [{"taskId": {"S": name}, "taskDateTime": {"S": str(bucket_at(1))}} for name in ("a", "b")]
            answer = {"Items": items, "LastEvaluatedKey": last}
        elif "Scan" in str(request.headers.get("X-Amz-Target")):
            answer = {"Items": [{"taskId": {"S": "a"}}], "LastEvaluatedKey": {"taskId": {"S": "a"}}}
        return respond(request, answer)

    for connections in (URLLib3Session, Connections):
        monkeypatch.setattr(connections, "send", send)
    return DynamoStore(TABLE, endpoint_url="http://127.0.0.1:1")


@pytest.fixture
def folder(tmp_path: Path) -> SharedFolder:
    SharedClock(tmp_path / "clock", NOON, speed=0.0)
    return SharedFolder(tmp_path)


def noted(tracer: Tracer) -> list[dict[str, Any]]:
    """What it has noted after the header and the processes."""
    return [dict(event) for event in events_of(tracer.file)][4:]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.task_id)
@pytest.mark.parametrize("in_batch", [False, True])
def test_a_conditional_write_is_noted_as_it_was_meant(
    store: DynamoStore, folder: SharedFolder, change: ConditionalUpdate, in_batch: bool
) -> None:
    with traced(folder, TABLE, {}) as tracer:
        assert store.write_many([change]) if in_batch else store.write(change)
    (event,) = noted(tracer)
    assert {"remove": [], **change_of(change)} == {name: event[name] for name in ("id", "if", "set", "remove")}
    assert (event["e"], event["ok"], event["by"]) == ("write", True, "client")


def test_creations_polls_and_deletions_are_noted(store: DynamoStore, folder: SharedFolder) -> None:
    row = scheduled_row("it's", bucket_at(1), payload={"a": 1})
    with traced(folder, TABLE, {}) as tracer:
        store.create(row)
        store.create_many([row])
        store.query_bucket(bucket_at(1), after="0", limit=2)
        store.query_bucket(bucket_at(1), outcome="failed")
        store.scan(after="0")
        store.delete("it's", (Is("status", "scheduled"),))
    created, too, polled, scanned, deleted = noted(tracer)
    assert created["e"] == too["e"] == "create" and created["row"] == too["row"] == row_of(row)
    assert (polled["bucket"], polled["after"], polled["through"]) == (str(bucket_at(1)), "0", "b")
    assert (scanned["e"], scanned["after"], scanned["through"], scanned["ids"]) == ("scan", "0", "a", ["a"])
    assert polled["entries"] == [["a", None], ["b", None]]
    assert (deleted["e"], deleted["id"], deleted["if"]) == ("delete", "it's", [["status", "is", "scheduled"]])


def test_a_trace_of_which_a_write_is_missing_is_refused(store: DynamoStore, folder: SharedFolder) -> None:
    change = ConditionalUpdate(task_id="t", set={"dueAt": "x"}, conditions=(Is("status", "scheduled"),))
    with traced(folder, TABLE, {"lag": 120.0, "skew": 4.0}) as tracer:
        store.create(scheduled_row("t", bucket_at(1)))
        store.write(change)
    events = list(events_of(tracer.file))
    assert refusal_of(events) is None
    refused = refusal_of([one for one in events if one["e"] != "create"])
    assert refused is not None and refused.rule == "table"


def test_a_request_that_was_cut_off_makes_a_trace_worthless(store: DynamoStore, folder: SharedFolder) -> None:
    with traced(folder, TABLE, {}) as tracer, pytest.raises(ConnectionError):
        tracer.send(_request(), _breaks)
    with pytest.raises(CutOff, match="were killed while a request was under way"):
        list(events_of(tracer.file))


def in_a_child(work: Callable[[], object]) -> int:
    """How a forked process ends that does this: minus the signal, or its exit code."""
    if not (pid := os.fork()):
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            work()
        finally:
            os._exit(3)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.parametrize(
    ("leave", "code"), [(lambda: end(signal.SIGKILL), -signal.SIGKILL), (lambda: os._exit(1), 1)], ids=["end", "exit"]
)
def test_a_process_ends_between_two_requests(folder: SharedFolder, leave: Callable[[], None], code: int) -> None:
    tracer, is_sending, answered = Tracer(folder, TABLE), threading.Event(), folder.path / "answered"

    def answer(request: AWSPreparedRequest) -> AWSResponse:
        is_sending.set()
        time.sleep(0.05)  # wait: another thread tries to end the process meanwhile
        answered.touch()
        return respond(request, {"Items": []})

    def send_and_leave() -> None:
        threading.Thread(target=tracer.send, args=(_request(), answer), daemon=True).start()
        with exits_without():
            is_sending.wait(60)
            leave()

    assert in_a_child(send_and_leave) == code
    assert answered.exists()
    assert list(events_of(tracer.file)) == []


def test_a_process_whose_time_is_up_sends_and_notes_nothing_more(folder: SharedFolder) -> None:
    tracer, sent = Tracer(folder, TABLE), folder.path / "sent"

    def overstay() -> None:
        tracer.begin("processor", {}, until=folder.now(), skew=0.0)
        tracer.ends_at = folder.now()
        tracer.send(_request(), lambda request: sent.touch())

    assert in_a_child(overstay) == -signal.SIGALRM
    assert not sent.exists()
    assert [event["e"] for event in events_of(tracer.file)] == ["process"]


def _request() -> AWSPreparedRequest:
    headers: Any = {"X-Amz-Target": "DynamoDB_20120810.Query"}
    return AWSPreparedRequest("POST", "http://127.0.0.1:1", headers, b'{"TableName": "sandbox-1"}', False)


def _breaks(_: object) -> AWSResponse:
    raise ConnectionError("reset")

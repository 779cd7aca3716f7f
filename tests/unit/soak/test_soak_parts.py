"""The soak's parts: its plan, and what its processes write down of their calls."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.exceptions import ConnectionClosedError
from botocore.httpsession import URLLib3Session
from proof.replay import Event, Replay
from tests.builders import NOON
from tests.sandbox.clock import SharedClock
from tests.sandbox.folder import SharedFolder
from tests.sandbox.journal import FaultInjected, Line, Recorded, Tail, append
from tests.sandbox.seam import Fault, Seam, respond
from tests.sandbox.watch import Watch
from tests.soak.chaos import Chaos
from tests.soak.plan import Plan
from tests.soak.run import judge_trace

from dynatick.domain.buckets import Bucket
from dynatick.domain.conditional_update import ConditionalUpdate
from dynatick.domain.lifecycle import claim
from dynatick.store import partiql
from dynatick.store.codec import encode


def test_a_seed_repeats_the_plan_and_another_one_does_not() -> None:
    def drawn(seed: int) -> list[Any]:
        plan = Plan(seed=seed, minutes=1)
        every = (plan.ticks(), plan.started(), plan.faults("processor"), plan.kills(), plan.skews(), plan.deployments(),
                 plan.refusals(), plan.wake_ups())  # fmt: skip
        return [list(islice(one, 300)) for one in every]

    assert drawn(7) == drawn(7)
    assert all(one != other for one, other in zip(drawn(7), drawn(8), strict=True))


Run = Callable[..., list[Line]]


@pytest.fixture
def folder(tmp_path: Path) -> SharedFolder:
    SharedClock(tmp_path / "clock")
    return SharedFolder(tmp_path)


@pytest.fixture
def send(folder: SharedFolder, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Sends a batch through a seam that is watched; the journal after it. Statements of the task ``b1`` are refused."""

    def answer(_session: object, request: AWSPreparedRequest) -> AWSResponse:
        statements = json.loads(request.body)["Statements"]  # type: ignore[arg-type]
        failed = {"Error": {"Code": "ConditionalCheckFailed"}}
        return respond(request, {"Responses": [failed if "b1" in json.dumps(one) else {} for one in statements]})

    def sent(statements: Sequence[Any], *faults: Fault) -> list[Line]:
        seam = Seam()
        Watch(folder, seam)
        seam.arm(faults)
        headers = {"X-Amz-Target": "DynamoDB_20120810.BatchExecuteStatement"}
        body = json.dumps({"Statements": statements}).encode()
        request = AWSPreparedRequest("POST", "http://127.0.0.1:1/", headers, body, False)
        with seam.installed():
            try:
                URLLib3Session.send(None, request)  # type: ignore[arg-type]
            except ConnectionClosedError:
                assert any(fault.do == "lose response" for fault in faults)
        return list(folder.journal)

    monkeypatch.setattr(URLLib3Session, "send", answer)
    monkeypatch.setattr(Seam, "_freeze", lambda self, kind: None)
    return sent


def test_a_trace_that_is_refused_is_a_problem_of_the_soak_and_is_kept() -> None:
    lawful: list[Event] = [{"e": "trace"}, {"e": "process", "at": 1.0, "by": 1, "kind": "client"}]
    broken = {"e": "poll", "at": 2.0, "by": 2, "bucket": "2026-12-31#12:00", "entries": []}
    assert judge_trace(Replay(), iter(lawful)) is None
    why = judge_trace(Replay(), iter([*lawful, broken, {"e": "rest", "at": 3.0}]))
    assert why is not None
    assert why.startswith("the trace is refused, line 3: ")
    kept = Path(why.rpartition(": ")[2])
    assert [json.loads(line)["e"] for line in kept.read_text().splitlines()] == ["trace", "process", "poll", "rest"]
    kept.unlink()


def records(*names: str) -> list[Any]:
    ended = {"status": "completed", "outcome": "completed", "finishedAt": "x"}
    return [partiql.update("tasks", ConditionalUpdate(task_id=n, set=ended, conditions=())) for n in names]


def test_what_is_recorded_and_when_a_task_may_be_tried_again(send: Run) -> None:
    again = {"status": "scheduled", "taskDateTime": "x", "nextAttemptAt": "2026-12-31T12:00:00.250Z"}
    statement = partiql.update("tasks", ConditionalUpdate(task_id="a1", set=again, conditions=()))
    (line,) = send([statement, *records("b1", "c1")])
    assert isinstance(line, Recorded)
    assert line.task_ids == ["a1", "c1"]
    assert line.not_before == {"a1": datetime(2026, 12, 31, 12, 0, 0, 250_000, tzinfo=UTC).timestamp()}


@pytest.mark.parametrize(
    ("fault", "cut_off", "recorded"),
    [
        ("throttle", ["a1", "c1"], []),
        ("throttle parts", ["a1", "c1"], ["a1"]),  # at least the last
        ("lose response", ["a1", "c1"], ["a1", "c1"]),
        ("wait", [], ["a1", "c1"]),  # a record that is only delayed is not cut off
        ("freeze after", [], ["a1", "c1"]),
    ],
)
def test_a_record_that_meets_a_fault(fault: str, cut_off: list[str], recorded: list[str], send: Run) -> None:
    injected, *after = send(records("a1", "c1"), Fault(at="record", do=fault))
    assert isinstance(injected, FaultInjected)
    assert (injected.fault, injected.task_ids) == (fault, cut_off)
    assert [line.task_ids for line in after if isinstance(line, Recorded)] == ([recorded] if recorded else [])


def test_claims_are_no_records_and_inserts_are_noted_for_the_stream(folder: SharedFolder, send: Run) -> None:
    assert send([partiql.update("tasks", claim("a1", Bucket(1), token="t", lease_until=NOON, now=NOON))]) == []
    assert not folder.unstreamed.exists()
    inserts = [partiql.insert("tasks", encode({"taskId": n, "status": "scheduled"})) for n in ("a1", "b1")]
    assert send(inserts) == []
    assert Tail(folder.unstreamed).new() == ["a1"]


def test_a_record_that_the_emulator_left_out_has_its_binaries_as_text(folder: SharedFolder) -> None:
    append(folder.unstreamed, "b/pack")
    item = {"taskId": {"S": "b/pack"}, "status": {"S": "scheduled"}, "body": {"B": b"\x00\xff"}}
    dynamodb = SimpleNamespace(get_item=lambda **_: {"Item": item})
    world: Any = SimpleNamespace(folder=folder, table="tasks", dynamodb=dynamodb)
    (record,) = Chaos(world, Plan(seed=1, minutes=1)).not_streamed()
    assert record["dynamodb"]["NewImage"] == {**item, "body": {"B": "AP8="}}

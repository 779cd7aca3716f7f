"""The soak's parts: its plan, its journal, what its processes write down, and its clock."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.exceptions import ConnectionClosedError
from botocore.httpsession import URLLib3Session
from tests.builders import NOON
from tests.sandbox.clock import SharedClock
from tests.sandbox.folder import SharedFolder
from tests.sandbox.history import history_of
from tests.sandbox.journal import Died, Line, Met, Recorded, Tail, Ticked, read
from tests.sandbox.seam import Fault, Seam, answer
from tests.sandbox.verdict import Verdict
from tests.sandbox.watch import Watch
from tests.soak.plan import Plan
from tests.soak.run import Soaked
from tests.soak.summary import lines

from dynatick.domain.buckets import Bucket
from dynatick.domain.conditional_update import ConditionalUpdate
from dynatick.domain.lifecycle import claim
from dynatick.store import partiql
from dynatick.store.codec import encode

# -- plan --------------------------------------------------------------------------------------------------------------


def test_a_seed_repeats_the_plan_and_another_one_does_not() -> None:
    def drawn(seed: int) -> list[Any]:
        plan = Plan(seed=seed, minutes=1)
        every = (
            plan.ticks(), plan.started(), plan.faults("processor"), plan.kills(), plan.skews(), plan.deployments(),
            plan.refusals(), plan.wake_ups(),
        )  # fmt: skip
        return [list(islice(one, 300)) for one in every]

    assert drawn(7) == drawn(7)
    for one, other in zip(drawn(7), drawn(8), strict=True):
        assert one != other


# -- what a process writes down ----------------------------------------------------------------------------------------


class Engine:
    """Answers each batch: those of the tasks named it refuses."""

    def __init__(self, *refused: str) -> None:
        self._refused = refused

    def __call__(self, _session: object, request: AWSPreparedRequest) -> AWSResponse:
        statements = json.loads(request.body)["Statements"]  # type: ignore[arg-type]
        failed = {"Error": {"Code": "ConditionalCheckFailed"}}
        responses = [failed if any(name in json.dumps(one) for name in self._refused) else {} for one in statements]
        return answer(request, 200, {"Responses": responses})


Send = Callable[..., list[Line]]


@pytest.fixture
def here(tmp_path: Path) -> SharedFolder:
    SharedClock(tmp_path / "clock")
    return SharedFolder(tmp_path)


@pytest.fixture
def send(here: SharedFolder, monkeypatch: pytest.MonkeyPatch) -> Send:
    """Sends a batch through a seam that is watched; the journal after it."""

    def sent(engine: Engine, statements: Sequence[Any], *faults: Fault) -> list[Line]:
        monkeypatch.setattr(URLLib3Session, "send", engine)
        seam = Seam()
        Watch(here, seam)
        seam.arm(faults)
        headers = {"X-Amz-Target": "DynamoDB_20120810.BatchExecuteStatement"}
        body = json.dumps({"Statements": statements}).encode()
        request = AWSPreparedRequest("POST", "http://127.0.0.1:1/", headers, body, False)
        with seam.installed():
            try:
                URLLib3Session.send(None, request)  # type: ignore[arg-type]
            except ConnectionClosedError:
                assert any(fault.do == "lose answer" for fault in faults)
        return list(read(here.path / "journal"))

    return sent


def records(*names: str) -> list[Any]:
    ended = {"status": "completed", "outcome": "completed", "finishedAt": "x"}
    return [partiql.update("tasks", ConditionalUpdate(task_id=n, set=ended, conditions=())) for n in names]


def test_what_the_engine_has_recorded_and_when_a_task_may_be_tried_again(send: Send) -> None:
    again = {"status": "scheduled", "taskDateTime": "x", "nextAttemptAt": "2026-12-31T12:00:00.250Z"}
    statement = partiql.update("tasks", ConditionalUpdate(task_id="a1", set=again, conditions=()))
    (line,) = send(Engine("b1"), [statement, *records("b1", "c1")])
    assert isinstance(line, Recorded)
    assert line.task_ids == ["a1", "c1"]
    assert line.not_before == {"a1": datetime(2026, 12, 31, 12, 0, 0, 250_000, tzinfo=UTC).timestamp()}


@pytest.mark.parametrize(("fault", "recorded"), [("throttle", []), ("throttle parts", ["a1"])])  # at least the last
def test_what_did_not_reach_the_engine_is_not_recorded(fault: str, recorded: list[str], send: Send) -> None:
    met, *lines = send(Engine(), records("a1", "b1"), Fault(at="record", do=fault))
    assert isinstance(met, Met)
    assert [line.task_ids for line in lines if isinstance(line, Recorded)] == ([recorded] if recorded else [])


def test_what_is_recorded_is_written_down_also_if_the_answer_is_lost(send: Send) -> None:
    met, recorded = send(Engine(), records("a1"), Fault(at="record", do="lose answer"))
    assert isinstance(met, Met)
    assert (met.fault, met.task_ids) == ("lose answer", ["a1"])
    assert isinstance(recorded, Recorded)


@pytest.mark.parametrize("fault", ["wait", "freeze after"])
def test_a_record_that_is_only_delayed_is_not_cut_off(fault: str, send: Send, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Seam, "_freeze", lambda self, kind: None)
    met, recorded = send(Engine(), records("a1"), Fault(at="record", do=fault))
    assert isinstance(met, Met)
    assert met.task_ids == []
    assert isinstance(recorded, Recorded)


def test_claims_are_no_records_and_inserts_are_noted_for_the_stream(here: SharedFolder, send: Send) -> None:
    claims = [partiql.update("tasks", claim("a1", Bucket(1), token="t", lease_until=NOON, now=NOON))]
    assert send(Engine(), claims) == []
    assert not here.unstreamed.exists()
    inserts = [partiql.insert("tasks", encode({"taskId": n, "status": "scheduled"})) for n in ("a1", "b1")]
    assert send(Engine("b1"), inserts) == []
    assert Tail(here.unstreamed).new() == [b'"a1"']


# -- summary -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("problems", [[], ["a: lost"]])
def test_the_summary_says_whether_it_is_red(problems: list[str]) -> None:
    verdict = Verdict(problems=problems)
    verdict.record_results["lost"] = len(problems)
    history = history_of([Died(pid=1, role="processor", why="killed"), Ticked(recorded_as="dropped")])
    ended = Soaked(plan=Plan(seed=5, minutes=5), history=history, verdict=verdict, buckets=30, settled_in=20.0)
    text = "\n".join(lines(ended))
    assert "seed 5" in text
    assert ("RED" in text) == bool(problems)
    assert ("nothing lost" in text) != bool(problems)

"""The soak's parts: its plan, its journal, what its processes write down, and its clock."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.exceptions import ConnectionClosedError
from botocore.httpsession import URLLib3Session
from rich.console import Console
from tests.builders import NOON
from tests.sandbox.clock import SharedClock
from tests.sandbox.seam import Fault, Seam, answer
from tests.soak import journal
from tests.soak.history import history_of
from tests.soak.journal import Began, Died, Disturbed, Journal, Line, Met, Recorded, Tail, Ticked, parse, read
from tests.soak.orders import Orders
from tests.soak.plan import SKEW, Plan
from tests.soak.run import Soaked
from tests.soak.schedules import occurrences
from tests.soak.surroundings import Surroundings
from tests.soak.tables import table
from tests.soak.tasks import draw
from tests.soak.verdict import Verdict
from tests.soak.watch import Watch

from dynatick.domain.buckets import Bucket
from dynatick.domain.conditional_update import ConditionalUpdate
from dynatick.domain.lifecycle import claim
from dynatick.store import partiql
from dynatick.store.codec import encode

# -- plan --------------------------------------------------------------------------------------------------------------


def drawn(seed: int, number: int = 300) -> list[Any]:
    plan = Plan(seed=seed, minutes=1)
    every = (
        plan.ticks(), plan.started(), plan.faults("processor"), plan.kills(), plan.skews(), plan.deployments(),
        plan.refusals(),
    )  # fmt: skip
    return [list(islice(one, number)) for one in every]


def test_a_seed_repeats_the_plan_and_another_one_does_not() -> None:
    assert drawn(7) == drawn(7)
    for one, other in zip(drawn(7), drawn(8), strict=True):
        assert one != other


def test_everything_is_in_the_plan() -> None:
    ticks, started, faults, kills, skews, deployments, _ = drawn(1, 1000)
    assert {recorded_as for record_results in ticks for recorded_as, _ in record_results} == {
        "dropped",
        "in a gap",
        "on time",
        "late",
        "repeated",
    }
    assert {len(delays) for delays in started} == {0, 1, 2}
    done = Counter(fault.do for some in faults for fault in some)
    assert set(done) == {"throttle", "fail before", "lose answer", "throttle parts", "leave keys", "kill before", "kill after"}  # fmt: skip  # noqa: E501
    assert {role for _, role, _ in kills} == {"processor", "scheduler", "inserter"}
    assert max(map(abs, skews)) <= SKEW
    shards = [3, *(number for _, number in deployments)]
    assert {*shards} == {1, 2, 3, 4, 5}
    assert all(before != after for before, after in pairwise(shards))


def test_a_schedule_has_a_task_for_each_of_its_runs() -> None:
    made = list(occurrences("s", NOON, NOON + timedelta(minutes=5), 2))
    assert made == [f"s#1#2026-12-31T12:0{minute}:00Z" for minute in (0, 2, 4)]
    assert list(occurrences("s", NOON, NOON, 1)) == ["s#1#2026-12-31T12:00:00Z"]


def test_tasks_that_must_fail_are_few_and_marked() -> None:
    dice = Plan(seed=3, minutes=1).dice("tasks")
    tasks = [draw(dice, f"t{n}", f"t{n}", NOON) for n in range(2000)]
    for task in tasks:
        plan: Any = task.row["payload"]
        assert plan["life"] == task.life
        assert task.fails == bool(plan.get("kill") or plan.get("permanent") or plan.get("failures", 0) > 2)
    assert 0 < sum(task.fails for task in tasks) < 200
    assert 0 < sum("hangs" in task.row["payload"] for task in tasks) < 30  # type: ignore[operator]


# -- journal -----------------------------------------------------------------------------------------------------------

LINES: list[Line] = [
    journal.Asked(number="1", what="insert", door="insert", task_id="ä\n", life="l", at=1.5, fails=True),
    journal.Answered(number="1", answer="yes", at=2.5, run=1),
    Began(pid=1, task_id="ä\n", life="l", run=1, attempt=1, key="k", due_at=1.0, at=3.0),
    journal.Ended(pid=1, task_id="ä\n", life="l", run=1, attempt=1, done=True, at=4.0),
    Recorded(pid=1, task_ids=["ä\n"]),
    Met(pid=1, fault="throttle", call="claim", task_ids=[]),
    Died(pid=1, role="processor", why="killed"),
    Ticked(recorded_as="dropped"),
    Disturbed(what="shards changed"),
]


def test_a_journal_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = Journal(tmp_path / "journal")
    written.add(*LINES[:3])
    written.add(*LINES[3:], sync=False)
    assert list(read(tmp_path / "journal")) == LINES


def test_a_tail_gives_each_line_once_and_no_half_ones(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    tail = Tail(path)
    assert tail.new() == []
    path.write_bytes(b"one\ntw")
    assert tail.new() == [b"one"]
    assert tail.new() == []
    with path.open("ab") as file:
        file.write(b"o\nthree\n")
    assert tail.new() == [b"two", b"three"]


def test_a_line_of_no_known_kind_is_an_error() -> None:
    with pytest.raises(KeyError):
        parse(b'["Guessed", {}]')


# -- orders ------------------------------------------------------------------------------------------------------------


def test_orders_come_when_they_are_due_and_count_until_they_are_done() -> None:
    orders = Orders()
    assert orders.idle
    orders.put({"n": 2}, after=0.05)
    orders.put({"n": 1})
    orders.put({"n": 3}, after=3600)
    taken = [orders.take(5.0), orders.take(5.0)]
    assert [order.event["n"] for order in taken if order] == [1, 2]
    assert orders.take(0.01) is None
    assert not orders.idle


def test_what_is_under_way_is_not_idle() -> None:
    orders = Orders()
    orders.put({})
    assert orders.take(1.0) is not None
    assert not orders.idle
    orders.done()
    assert orders.idle


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


@pytest.fixture
def here(tmp_path: Path) -> Surroundings:
    SharedClock(tmp_path / "clock")
    return Surroundings(tmp_path)


def send(here: Surroundings, engine: Engine, statements: Sequence[Any], *faults: Fault,
         monkeypatch: pytest.MonkeyPatch) -> list[Line]:  # fmt: skip
    """Sends a batch through a seam that is watched; the journal after it."""
    monkeypatch.setattr(URLLib3Session, "send", engine)
    seam = Seam()
    Watch(here, seam)
    seam.arm(faults)
    request = AWSPreparedRequest(
        "POST", "http://127.0.0.1:1/", {"X-Amz-Target": "DynamoDB_20120810.BatchExecuteStatement"},
        json.dumps({"Statements": statements}).encode(), False,
    )  # fmt: skip
    with seam.installed():
        try:
            URLLib3Session.send(None, request)  # type: ignore[arg-type]
        except ConnectionClosedError:
            assert any(fault.do == "lose answer" for fault in faults)
    return list(read(here.journal_path))


def records(*names: str) -> list[Any]:
    changes = [
        ConditionalUpdate(
            task_id=n, set={"status": "completed", "outcome": "completed", "finishedAt": "x"}, conditions=()
        )
        for n in names
    ]
    return [partiql.update("tasks", change) for change in changes]


def test_what_the_engine_has_recorded(here: Surroundings, monkeypatch: pytest.MonkeyPatch) -> None:
    (line,) = send(here, Engine("b1"), records("a1", "b1", "c1"), monkeypatch=monkeypatch)
    assert isinstance(line, Recorded)
    assert line.task_ids == ["a1", "c1"]


def test_what_is_recorded_is_written_down_also_if_the_answer_is_lost(
    here: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = Fault(at="record", do="lose answer")
    met, recorded = send(here, Engine(), records("a1"), fault, monkeypatch=monkeypatch)
    assert isinstance(met, Met)
    assert (met.fault, met.task_ids) == ("lose answer", ["a1"])
    assert isinstance(recorded, Recorded)


def test_what_did_not_reach_the_engine_is_not_recorded(here: Surroundings, monkeypatch: pytest.MonkeyPatch) -> None:
    (met,) = send(here, Engine(), records("a1"), Fault(at="record", do="throttle"), monkeypatch=monkeypatch)
    assert isinstance(met, Met)


def test_a_record_of_which_a_part_was_throttled(here: Surroundings, monkeypatch: pytest.MonkeyPatch) -> None:
    fault = Fault(at="record", do="throttle parts", amount=0.0)  # at least one: the last
    _, recorded = send(here, Engine(), records("a1", "b1"), fault, monkeypatch=monkeypatch)
    assert isinstance(recorded, Recorded)
    assert recorded.task_ids == ["a1"]


def test_claims_are_no_records_and_inserts_are_told_to_the_stream(
    here: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims = [partiql.update("tasks", claim("a1", Bucket(1), token="t", lease_until=NOON, now=NOON))]
    assert send(here, Engine(), claims, monkeypatch=monkeypatch) == []
    assert not here.unstreamed.exists()
    inserts = [partiql.insert("tasks", encode({"taskId": n, "status": "scheduled"})) for n in ("a1", "b1")]
    assert send(here, Engine("b1"), inserts, monkeypatch=monkeypatch) == []
    assert Tail(here.unstreamed).new() == [b'"a1"']


# -- clock and table ---------------------------------------------------------------------------------------------------


def test_a_fast_clock_is_the_same_for_everybody(tmp_path: Path) -> None:
    first = SharedClock(tmp_path / "clock", NOON, speed=1000.0)
    second = SharedClock(tmp_path / "clock")
    began = first()
    assert second.speed == 1000.0
    before = second()
    while (second() - before).total_seconds() < 10:
        pass
    assert first() >= before
    assert began >= NOON
    first.forward(days=1)
    assert (second() - began).total_seconds() >= 86_400


@pytest.mark.parametrize("problems", [[], ["a: lost"]])
def test_the_table_says_whether_it_is_red(problems: list[str]) -> None:
    verdict = Verdict(problems=problems)
    verdict.record_results["lost"] = len(problems)
    ended = Soaked(
        plan=Plan(seed=5, minutes=5), history=history_of(LINES), verdict=verdict, buckets=30, settled_in=20.0
    )
    console = Console(width=100)
    with console.capture() as captured:
        console.print(table(ended))
    text = captured.get()
    assert "seed 5" in text
    assert ("RED" in text) == bool(problems)
    assert ("nothing lost" in text) != bool(problems)

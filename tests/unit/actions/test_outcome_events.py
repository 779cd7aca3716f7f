"""Events of ends on the bus: calls that fit, what is refused, silence, and the queue for what is lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.actions.support import SDK_ERRORS, Clock, Sqs

from dynatick.actions.outcome_events import MAX_CALL_BYTES, PUT_FOR, QUIET_FOR, TRIES, OutcomeEventBus
from dynatick.domain.ends import End
from dynatick.domain.task import Status

REFUSED, SILENT = SDK_ERRORS
BUS = "arn:aws:events:eu-west-1:123456789012:event-bus/tasks"


class Events:
    """A client of EventBridge. ``judge`` is given the number of the call, and says which entries are refused."""

    def __init__(self, judge: Callable[[int, list[dict[str, Any]]], set[int]] = lambda n, entries: set()) -> None:
        self.judge = judge
        self.calls: list[list[dict[str, Any]]] = []

    def put_events(self, *, Entries: list[dict[str, Any]]) -> dict[str, Any]:
        self.calls.append(list(Entries))
        bad = self.judge(len(self.calls), Entries)
        refusal = {"ErrorCode": "ThrottlingException", "ErrorMessage": "slow down"}
        answers = [dict(refusal) if n in bad else {"EventId": str(n)} for n in range(len(Entries))]
        return {"FailedEntryCount": len(bad), "Entries": answers}


def bus(events: Events, sqs: Any = None, clock: Any = None) -> OutcomeEventBus:
    return OutcomeEventBus(
        events, BUS, table="tasks", sqs=sqs or Sqs(), queue_url="https://sqs.example/1/own", clock=clock or Clock()
    )


def ends(number: int, **more: object) -> list[End]:
    return [End(Status.FAILED, {"taskId": f"t{n}", "createdAt": "c", "run": 1, **more}) for n in range(number)]


def test_ten_events_share_a_call_if_they_fit() -> None:
    events = Events()
    assert bus(events).put(ends(23)) == (23, None)
    assert [len(call) for call in events.calls] == [10, 10, 3]
    (entry, *_) = events.calls[0]
    assert (entry["EventBusName"], entry["Source"], entry["DetailType"]) == (BUS, "dynatick", "Task Failed")
    assert json.loads(entry["Detail"]) == {
        "id": "t0#c#1#", "table": "tasks", "taskId": "t0", "createdAt": "c", "run": 1
    }  # fmt: skip
    large = Events()
    assert bus(large).put(ends(20, error="ü" * 10_000)) == (20, None)
    assert len(large.calls) > 2
    assert max(len(json.dumps(call)) for call in large.calls) <= MAX_CALL_BYTES + 100


def test_the_id_of_an_end_is_the_same_each_time_and_another_for_a_later_end_of_the_run() -> None:
    events = Events()
    made = bus(events)
    for at in ("one", "one", "two"):
        made.put(ends(1, finishedAt=at))
    first, again, later = (json.loads(call[0]["Detail"])["id"] for call in events.calls)
    assert (first == again, first == later) == (True, False)


def test_what_is_refused_alone_is_put_again_alone_a_bounded_number_of_times() -> None:
    events = Events(lambda n, entries: {1, 3} if n == 1 else set())
    assert bus(events).put(ends(5)) == (5, None)
    assert [len(call) for call in events.calls] == [5, 2]
    stubborn = Events(lambda n, entries: {len(entries) - 1} if n > 1 else set())
    assert bus(stubborn).put(ends(15)) == (10, "ThrottlingException: slow down")
    assert [len(call) for call in stubborn.calls] == [10, *[5, 1, 1]]
    assert len(stubborn.calls) == 1 + TRIES


def test_an_answer_that_names_fewer_events_leaves_the_others_open() -> None:
    class Short(Events):
        def put_events(self, *, Entries: list[dict[str, Any]]) -> dict[str, Any]:
            return {"Entries": super().put_events(Entries=Entries)["Entries"][:1]}

    assert bus(Short()).put(ends(3)) == (3, None), "one with each try"
    assert bus(Short()).put(ends(4)) == (0, "the answer names fewer events")


@pytest.mark.parametrize("error", SDK_ERRORS)
def test_a_bus_that_takes_no_call_is_not_called_again_and_a_silent_one_not_for_a_while(error: Exception) -> None:
    def judge(n: int, entries: list[dict[str, Any]]) -> set[int]:
        if n == 2:
            raise error
        return set()

    events, clock = Events(judge), Clock()
    made = bus(events, clock=clock)
    taken, problem = made.put(ends(30))
    assert (taken, problem, len(events.calls)) == (10, str(error), 2)
    clock.forward(QUIET_FOR.total_seconds() - 1)
    assert made.put(ends(3))[0] == (0 if error is SILENT else 3)
    clock.forward(1)
    assert made.put(ends(3)) == (3, None)


def test_an_invocation_puts_for_a_limited_time() -> None:
    clock = Clock()

    def judge(n: int, entries: list[dict[str, Any]]) -> set[int]:
        clock.forward(PUT_FOR.total_seconds() / 2 + 1)
        return set()

    assert bus(Events(judge), clock=clock).put(ends(50)) == (20, None)


def test_what_is_set_aside_can_be_put_later_as_it_is() -> None:
    sqs = Sqs()
    assert bus(Events(), sqs).set_aside(ends(12)) == (12, None)
    assert [len(call) for call in sqs.calls] == [10, 2]
    assert json.loads(sqs.taken[11]["Detail"])["taskId"] == "t11"
    assert sqs.taken[0].keys() == {"EventBusName", "Source", "DetailType", "Detail"}
    for verdict in ("busy", "lost"):
        full = bus(Events(), Sqs(lambda body, verdict=verdict: verdict if "t11" in body["Detail"] else "ok"))  # type: ignore[misc]
        taken, problem = full.set_aside(ends(12))
        assert (taken, problem is None) == (10, False)

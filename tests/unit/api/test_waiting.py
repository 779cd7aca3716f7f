"""Answers that wait until a task has ended, or a bucket."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.api.support import Caller

from dynatick.api import Api

BUCKET = "/v1/buckets/2026-12-31%2313:00"


class Time:
    """A clock that goes on while an answer waits. ``after``: what happens after a given number of waits."""

    def __init__(self) -> None:
        self.now, self.waits, self.after = 0.0, list[float](), dict[int, Callable[[], object]]()

    def pause(self, seconds: float) -> None:
        self.now += seconds
        self.waits.append(seconds)
        self.after.get(len(self.waits), lambda: None)()


@pytest.fixture
def time(caller: Caller) -> Time:
    """Of the caller, whose tasks ``a`` and ``b`` are due at one."""
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


def test_a_bucket_is_waited_for_until_all_have_ended(caller: Caller, time: Time) -> None:
    time.after |= {1: lambda: caller.client.cancel("a"), 3: lambda: caller.client.cancel("b")}
    assert caller.ask("GET", BUCKET, query="waitSeconds=10")["counts"] == {"cancelled": 2}
    assert len(time.waits) == 3
    caller.ask("GET", "/v1/buckets/2026-12-31%2314:00", query="waitSeconds=10")  # an empty one
    assert len(time.waits) == 3


def test_a_bucket_that_is_too_large_to_count_at_once_is_not_waited_for(caller: Caller, time: Time) -> None:
    for n in range(1001):
        caller.client.insert(f"t{n:04}", task_date_time="2026-12-31#13:00")
    history = caller.client.history

    def slow(*arguments: object, **options: object) -> object:
        time.now += 16
        return history(*arguments, **options)  # type: ignore[arg-type]

    caller.client.history = slow  # type: ignore[method-assign, assignment]
    found = caller.ask("GET", BUCKET, query="waitSeconds=10")
    assert found["counts"] == {"scheduled": 1000}
    assert (found["nextPageToken"] is not None, time.waits) == (True, [])


@pytest.mark.parametrize("wrong", ["-1", "11", "1.5", "soon", ""])
@pytest.mark.parametrize("path", ["/v1/tasks/a", BUCKET])
def test_no_other_time_is_accepted(caller: Caller, time: Time, path: str, wrong: str) -> None:
    assert caller.refused_fields("GET", path, query=f"waitSeconds={wrong}") == ["waitSeconds"]

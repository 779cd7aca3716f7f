"""A client puts a row, sees the mistake, and puts it again, corrected, before the stream has shown the first one."""

from __future__ import annotations

import pytest
from tests.builders import InProcess

from dynatick.domain.conditional_update import ConditionalUpdate, Result
from dynatick.store.memory import MemoryStore

TIME = "2026-12-31#12:01"


@pytest.mark.parametrize(
    "mistake",
    [{"retryPolicy": {"maximumRetryAttempts": "many"}}, {"payload": "not a map"}, {"scheduleId": 7},
     {"scheduleExpression": "rate(1 day)"}, {"taskDateTime": "noon"}, {"status": "banana"}, {"action": 7}],
)  # fmt: skip
def test_the_first_put_does_not_cost_the_second_one(mistake: dict[str, object]) -> None:
    system = InProcess()
    assert isinstance(system.store, MemoryStore)
    system.tick()
    first = {"taskId": "a", "taskDateTime": TIME, **mistake}
    system.store.put({"taskId": "a", "taskDateTime": TIME})
    system.stream(first)
    system.stream(system.row("a"), first)
    assert system.row("a")["status"] == "scheduled"
    assert system.dead_letters.letters == []
    system.next_tick()
    assert system.outcome("a") == "completed"


def test_not_even_if_it_comes_in_the_midst_of_the_first_ones_rejection() -> None:
    """Between reading the row and marking it failed."""
    first = {"taskId": "a", "taskDateTime": TIME, "payload": "not a map"}

    class Corrected(MemoryStore):
        def write(self, change: ConditionalUpdate) -> Result:
            if change.task_id == "a" and self.get("a") == first:
                self.put({"taskId": "a", "taskDateTime": TIME})
            return super().write(change)

    system = InProcess(store=Corrected())
    assert isinstance(system.store, MemoryStore)
    system.tick()
    system.store.put(first)
    system.stream(first)
    system.next_tick()
    assert system.outcome("a") == "completed"


def test_a_mistake_that_stays_sends_one_dead_letter_with_the_present_row() -> None:
    system = InProcess()
    assert isinstance(system.store, MemoryStore)
    system.tick()
    first = {"taskId": "a", "payload": "not a map", "number": 1}
    system.store.put({**first, "number": 2})
    system.stream(first)
    system.stream(system.row("a"), first)
    assert system.outcome("a") == "failed"
    assert [letter.row["number"] for letter in system.dead_letters.letters] == [2]

"""The simulation itself: what happens in it depends on nothing but its seeds."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from tests.model.base_machine import BaseMachine
from tests.model.simulation import Process, Simulation
from tests.model.situations import SITUATIONS
from tests.model.standins import SimQueue, inside
from tests.model.steps import replayed
from tests.model.tables import in_memory, machine_on
from tests.model.task_machine import TaskMachine

from dynatick.domain import attributes as attr
from dynatick.domain.task import Row


@pytest.fixture
def process() -> Process:
    return Process(Simulation(), "p")


def run(process: Process, until: float, *works: Callable[[], object]) -> None:
    for work in works:
        process.simulation.spawn(process, work)
    process.simulation.run_until(until)


def test_a_killed_process_does_nothing_more_and_leaves_no_thread(process: Process) -> None:
    simulation, done = process.simulation, list[str]()

    def work() -> None:
        try:
            simulation.sleep(10)
        finally:
            done.append("cleaned up")
        done.append("went on")

    with inside(simulation):
        simulation.at(5, process.kill)
        run(process, 100, work)
    assert done == ["cleaned up"]
    assert not process.threads


def test_a_frozen_process_stands_still_until_it_thaws(process: Process) -> None:
    simulation, done = process.simulation, list[tuple[object, float]]()
    with inside(simulation):
        queue = SimQueue()
        simulation.at(5, process.freeze)
        simulation.at(8, lambda: queue.put("it"))
        simulation.at(50, process.thaw)
        run(
            process,
            49,
            lambda: done.append((simulation.sleep(10), simulation.now)),  # type: ignore[func-returns-value]
            lambda: done.append((queue.get(), simulation.now)),
        )
        assert done == []
        simulation.run_until(100)
    assert sorted(done, key=str) == [("it", 50), (None, 50)]


def test_an_error_in_a_thread_is_not_lost(process: Process) -> None:
    with inside(process.simulation), pytest.raises(ZeroDivisionError):
        run(process, 1, lambda: 1 / 0)


def test_the_same_steps_give_the_same_run_in_no_threads_of_their_own() -> None:
    threads = set(threading.enumerate())
    once, again = (
        replayed(
            machine_on(in_memory, TaskMachine), SITUATIONS["workers start late, die and outlive their orders"].steps
        )
        for _ in range(2)
    )
    assert without_tokens(once) == without_tokens(again)
    assert len(once.model.table.history) > 100
    assert set(threading.enumerate()) <= threads


def without_tokens(machine: BaseMachine) -> list[tuple[float, str, Row | None]]:
    """The changes of the table, without what is random in a row: the token of its insert."""
    return [
        (at, task_id, None if row is None else {name: row[name] for name in row if name != attr.INSERT_TOKEN})
        for at, task_id, row in machine.model.table.history
    ]

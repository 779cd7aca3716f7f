"""The simulation itself: what happens in it depends on nothing but its seeds."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import CodeType
from unittest.mock import patch

import pytest
from tests.model import environment
from tests.model.installation import Installation, Tick
from tests.model.seam import Fault, Plan
from tests.model.simulation import Process, Simulation
from tests.model.standins import SimQueue, inside
from tests.model.tables import in_memory

from dynatick.domain.lifecycle import state_of

Note = Callable[[object], None]
Work = Callable[[Simulation, Note], None]


def ran(*works: Work) -> list[object]:
    """What the threads of one process note, each given the means to."""
    simulation = Simulation()
    noted: list[object] = []
    with inside(simulation):
        process = Process(simulation, "p")
        for work in works:
            simulation.spawn(process, lambda work=work: work(simulation, noted.append))
        simulation.run_until(1000)
    return noted


def test_a_killed_process_does_nothing_more_and_leaves_no_thread() -> None:
    simulation = Simulation()
    noted: list[str] = []
    with inside(simulation):
        process = Process(simulation, "p")

        def work() -> None:
            try:
                simulation.sleep(10)
            finally:
                noted.append("cleaned up")
            noted.append("went on")

        simulation.spawn(process, work)
        simulation.at(5, process.kill)
        simulation.run_until(100)
    assert noted == ["cleaned up"]
    assert not process.strands


def test_a_frozen_process_stands_still_until_it_thaws() -> None:
    simulation = Simulation()
    noted: list[tuple[str, float]] = []
    with inside(simulation):
        process, queue = Process(simulation, "p"), SimQueue()

        def sleeper() -> None:
            simulation.sleep(10)
            noted.append(("slept", simulation.now))

        def taker() -> None:
            noted.append((queue.get(), simulation.now))

        simulation.spawn(process, sleeper)
        simulation.spawn(process, taker)
        simulation.at(5, process.freeze)
        simulation.at(8, lambda: queue.put("it"))
        simulation.at(50, process.thaw)
        simulation.run_until(49)
        assert noted == []
        simulation.run_until(100)
    assert sorted(noted) == [("it", 50), ("slept", 50)]


def hung(entry_point: CodeType) -> list[str]:
    """What is wrong with a task that outlives two invocations of 20 s, the function having this entry point."""
    model = Installation(*in_memory()[:2])
    short = Plan(life=20.0)
    with inside(model.simulation), patch.object(environment, "APP", entry_point):
        model.put(model.book.enter("hung", script=("hang", "hang", "ok")), {"delaySeconds": 30})
        model.ticks([Tick(plans=(short,)), Tick(plans=(short, short)), Tick(), Tick()])  # the second reclaims it
        model.rest()
    assert model.table.get("hung")["status"] == "completed"
    return model.book.wrong


def test_a_process_that_ends_with_its_task_is_fenced_and_one_that_does_not_is_noticed() -> None:
    text = environment.PATH.read_text(encoding="utf-8")
    assert text.count("os._exit(") == 1
    assert hung(environment.APP) == []
    kept = hung(compile(text.replace("os._exit(", "int("), "app.py", "exec"))
    assert any("hung: goes on after it was taken over" in words for words in kept)


def test_an_error_in_a_thread_is_not_lost() -> None:
    def work(simulation: Simulation, note: Note) -> None:
        raise ValueError("x")

    with pytest.raises(ValueError, match="x"):
        ran(work)


def trace(seed: int) -> list[str]:
    """All that happens to rows in a run with a fault in it."""
    model = Installation(*in_memory()[:2])
    happened: list[str] = []
    model.table.listeners.append(
        lambda by, effect: happened.append(
            f"{model.simulation.now:.6f} {effect.task_id} {'gone' if effect.new is None else state_of(effect.new)}"
        )
    )
    with inside(model.simulation):
        for n in range(20):
            model.put(model.book.enter(f"t{n}", script=("error", "ok")), {"delaySeconds": 30})
        plans = (Plan(seed=seed, faults=(Fault(20, "killed after"),)), Plan(seed=seed + 1), Plan(seed=seed + 2))
        model.ticks([Tick(plans=plans)] * 8)
        model.rest()
    assert model.book.wrong == []
    assert sum("completed" in line for line in happened) == 20
    return happened


def test_the_same_seeds_give_the_same_run_and_others_another() -> None:
    assert trace(1) == trace(1)
    assert trace(1) != trace(2)


def test_the_engine_begins_no_thread_of_its_own_in_it() -> None:
    before = {thread.name for thread in threading.enumerate()}
    trace(3)
    assert {thread.name for thread in threading.enumerate()} <= before

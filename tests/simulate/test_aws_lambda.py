"""The limits of Lambda that the simulation keeps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from tests.model.faulty_store import Actor
from tests.model.simulation import Simulation
from tests.simulate.assumptions import Assumptions
from tests.simulate.aws_lambda import Function

from dynatick.errors import StoreError


class Rig:
    """A function whose invocations take ``seconds``, and when each began."""

    def __init__(self, seconds: float = 1.0, *, timeout: float = 60.0, fails: int = 0, **assumptions: Any) -> None:
        self.simulation = Simulation()
        self.seconds, self.fails = seconds, fails
        self.began: list[float] = []
        self.assumptions = Assumptions(event_delay=(0.05, 0.05), cold_start=(1.0, 1.0), **assumptions)
        self.function = Function(self.simulation, self.assumptions, lambda: self, timeout, lambda actor: None)  # type: ignore[arg-type, return-value]

    def invoke(self, actor: Actor, event: Mapping[str, object], left: Callable[[], float]) -> None:
        """Runs an event as an environment does."""
        self.began.append(self.simulation.now)
        self.simulation.sleep(self.seconds)
        if self.fails:
            self.fails -= 1
            raise StoreError("set up by a test")


def test_an_environment_starts_cold_and_is_used_again() -> None:
    rig = Rig()
    rig.function.invoke({})
    rig.simulation.run_until(10)
    rig.function.invoke({})
    rig.simulation.run_until(20)
    assert rig.began == pytest.approx([1.05, 10.05])
    assert (rig.function.invocations, rig.function.cold_starts) == (2, 1)
    assert rig.function.seconds == pytest.approx(3.0, abs=0.01)  # a cold start is billed too


def test_environments_start_no_faster_than_the_ramp() -> None:
    rig = Rig(seconds=1000.0, timeout=2000.0, ramp=10.0, ramp_burst=20)
    for _ in range(100):
        rig.function.invoke({})
    for seconds in (1, 3, 5):
        rig.simulation.run_until(seconds)
        assert rig.function.running <= 20 + 10 * seconds + 1
    rig.simulation.run_until(60)
    assert rig.function.running == 100


def test_an_invocation_that_raised_is_made_again_after_a_minute() -> None:
    rig = Rig(fails=1)
    rig.function.invoke({})
    rig.simulation.run_until(200)
    assert rig.began == pytest.approx([1.05, 62.1], abs=0.1)
    assert rig.function.errors == 1


def test_a_process_whose_time_is_up_is_killed_and_not_used_again() -> None:
    rig = Rig(seconds=100.0, timeout=30.0)
    rig.function.invoke({})
    rig.simulation.run_until(50)
    assert (rig.function.killed, rig.function.running) == (1, 0)
    rig.seconds = 1.0
    rig.function.invoke({})
    rig.simulation.run_until(100)
    assert rig.function.cold_starts == 2

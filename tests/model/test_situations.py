"""Each situation is reached and violates nothing, also with further faults and paces at random."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.model.faulty_store import FAULTS, Fault, Plan
from tests.model.search import shrunk
from tests.model.situations import SITUATIONS
from tests.model.steps import Counterexample, Step, replay, replayed, varied
from tests.model.tables import in_memory, machine_on


def disturbed(steps: Sequence[Step], rng: random.Random) -> Sequence[Step]:
    """The same steps, with further faults."""

    def other(value: Any) -> Any:
        if not isinstance(value, Plan) or rng.random() < 0.5:
            return value
        fault = Fault(
            call=rng.randint(1, 30),
            kind=rng.choice(FAULTS),
            seconds=rng.choice((3.0, 10.0, 50.0, 100.0)),
            calls=rng.choice((1, 1, 2, 6)),
        )
        return replace(
            value,
            seed=rng.choice((0, rng.randint(1, 9999))),
            faults=(*value.faults, fault),
            skew=rng.choice((0.0, 2.0, -2.0)),
            unlogged=value.unlogged or rng.random() < 0.2,
        )

    return [varied(one, other) for one in steps]


@pytest.mark.parametrize("name", SITUATIONS)
def test_a_situation_is_reached_and_violates_nothing(name: str) -> None:
    machine = replayed(machine_on(in_memory), SITUATIONS[name].steps)
    assert machine.violations == ""
    assert SITUATIONS[name].reached(machine.model)


@pytest.mark.draws
@pytest.mark.parametrize("name", SITUATIONS)
def test_no_fault_in_a_situation_violates_anything(name: str, variation: int) -> None:
    steps = disturbed(SITUATIONS[name].steps, random.Random(variation))
    if violations := replay(machine_on(in_memory), steps):
        found = shrunk(Counterexample(violations.partition("\n")[0], steps))
        pytest.fail(f"{violations}\nTo be kept in tests/model/counterexamples.py:\n{found}")

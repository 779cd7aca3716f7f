"""Each situation is reached, and harms no task; neither does it with other faults and paces at random."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
from tests.model import environment
from tests.model.installation import Installation
from tests.model.machine import Machine
from tests.model.seam import FAULTS, Fault, Plan
from tests.model.search import smaller, text_of
from tests.model.situations import SITUATIONS
from tests.model.steps import Found, Step, changed, play
from tests.model.tables import in_memory, machine_on


def played(steps: Sequence[Step]) -> tuple[str, Installation]:
    """What is wrong, and how all was at the end."""
    made = list[Machine]()

    class Kept(machine_on(in_memory)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            made.append(self)

    return play(Kept, steps), made[0].model


def otherwise(steps: Sequence[Step], dice: random.Random) -> Sequence[Step]:
    """The same steps, and something goes wrong on the way."""

    def other(name: str, value: Any) -> Any:
        if not isinstance(value, Plan) or dice.random() < 0.5:
            return value
        fault = Fault(
            call=dice.randint(1, 30),
            kind=dice.choice(FAULTS),
            seconds=dice.choice((3.0, 10.0, 50.0, 100.0)),
            calls=dice.choice((1, 1, 2, 6)),
        )
        return replace(
            value,
            seed=dice.choice((0, dice.randint(1, 9999))),
            faults=(*value.faults, fault),
            skew=dice.choice((0.0, 2.0, -2.0)),
            unlogged=value.unlogged or dice.random() < 0.2,
        )

    return [changed(one, other) for one in steps]


@pytest.mark.parametrize("name", SITUATIONS)
def test_a_situation_is_reached_and_harms_no_task(name: str) -> None:
    said, model = played(SITUATIONS[name].steps)
    assert said == ""
    assert SITUATIONS[name].reached(model)


@pytest.mark.parametrize("name", SITUATIONS)
def test_no_fault_in_a_situation_harms_a_task(name: str, variations: Sequence[int]) -> None:
    for start in variations:
        steps = otherwise(SITUATIONS[name].steps, random.Random(start))
        if said := play(machine_on(in_memory), steps):
            found = Found(said.partition("\n")[0], steps)
            pytest.fail(f"{said}\nTo be kept in tests/model/kept_faults.py:\n{text_of(smaller(found))}")


def test_a_process_that_only_ends_if_its_function_returns_is_noticed() -> None:
    text, ends = environment.PATH.read_text(encoding="utf-8"), "if processor.running:"
    assert text.count(ends) == 1
    entry_point = compile(text.replace(ends, "if processor.running and not sys.exc_info()[1]:"), "app.py", "exec")
    with patch.object(environment, "APP", entry_point):
        said, _ = played(SITUATIONS["a process raises while a task runs, and ends"].steps)
    assert "a: taken over while it runs" in said

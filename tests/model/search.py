"""Searches for a sequence of operations and faults that shows that a rule is missing, cuts it down and prints it.

    python -m tests.model.search                      with all rules: a fault of the product
    python -m tests.model.search 3 "however late"     without rule 3, the one with these words in tests/mutations.py
    python -m tests.model.search --schedules          the same with schedules; their mutations are those of "rule" 0

What it prints is to be kept: in ``kept_faults.py``, or in ``kept_breaks.py``.
"""

# ruff: noqa: T201 - what it prints is what it is for

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from unittest.mock import patch

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.errors import HypothesisException
from hypothesis.internal.conjecture.providers import HypothesisProvider
from hypothesis.stateful import run_state_machine_as_test
from tests.model.breaking import MUTATIONS, Mutation, broken
from tests.model.machine import Machine
from tests.model.schedule_machine import ScheduleMachine
from tests.model.steps import Found, Step, cut_down, play, words_of
from tests.model.surroundings import Surroundings
from tests.model.tables import TableOf, in_memory, machine_on

STEPS = 30


def search(
    table: TableOf,
    examples: int,
    *,
    start: int | None,
    steps: int = STEPS,
    machine: type[Surroundings] = Machine,
) -> Found | None:
    """Tries so many sequences, each of so many steps; the same seed makes up the same ones, None: others each time.

    Returns the first of which the machine says that something is wrong.
    """
    of_table, last = machine_on(table, machine), list[Surroundings]()

    def made() -> Surroundings:
        last[:] = [of_table()]
        return last[0]

    wanted = settings(
        max_examples=examples,
        stateful_step_count=steps,
        phases=[Phase.generate],  # cutting down the steps themselves is much quicker than hypothesis's way
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        print_blob=False,
    )
    # Hypothesis now and then draws a constant that it found in a module: the same seed would make up other sequences
    # whenever a module, of the tests too, is imported or changed.
    without_constants = patch.object(HypothesisProvider, "_maybe_draw_constant", lambda *_, **__: None)
    try:
        with without_constants:
            run_state_machine_as_test(seed(random.randrange(2**32) if start is None else start)(made), settings=wanted)
    except HypothesisException:
        raise
    except Exception as wrong:
        return Found(words_of(wrong).partition("\n")[0], list(last[0].steps))
    return None


def smaller(
    found: Found, table: TableOf = in_memory, *, machine: type[Surroundings] = Machine, seconds: float = 60.0
) -> Found:
    """The same finding with fewer and simpler steps, within so many seconds."""
    of_table, kind, end = machine_on(table, machine), kind_of(found.says), time.monotonic() + seconds
    said = found.says

    def still(steps: Sequence[Step]) -> bool:
        nonlocal said
        if time.monotonic() > end:
            return False
        first = play(of_table, steps).partition("\n")[0]
        if kind_of(first) != kind:
            return False
        said = first
        return True

    return Found(said, cut_down(found.steps, still)) if still(found.steps) else found


def kind_of(line: str) -> str:
    """What a line of the book says, without names and numbers: the first words after the time and the task."""
    words = line.split(": ", 2)[-1]
    return " ".join("".join(c if c.isalpha() or c == " " else " " for c in words).split()[:3])


def text_of(found: Found) -> str:
    """As it is kept."""
    return "\n".join(
        ["Found(", f"    {found.says!r},", "    [", *(f"        {s!r}," for s in found.steps), "    ],", ")"]
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rule", nargs="?", type=int)
    parser.add_argument("words", nargs="?", default="")
    parser.add_argument("--schedules", action="store_true")
    parser.add_argument("--examples", type=int, default=3000)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seconds", type=float, default=60.0, help="seconds for cutting down what was found")
    parser.add_argument("--seed", type=int, default=None)
    given = parser.parse_args()
    machine = ScheduleMachine if given.schedules or given.rule == 0 else Machine
    chosen: Sequence[Mutation | None] = [None]
    if given.rule is not None:
        chosen = [m for m in MUTATIONS if m.rule == given.rule and given.words in m.what]
    for mutation in chosen:
        with ExitStack() as stack:
            if mutation is not None:
                stack.enter_context(broken(mutation))
            began = time.monotonic()
            found = search(in_memory, given.examples, start=given.seed, steps=given.steps, machine=machine)
            what = "with all rules" if mutation is None else f"without rule {mutation.rule}: {mutation.what}"
            took = f"{time.monotonic() - began:.0f} s"
            print(f"# {what}: {'nothing' if found is None else 'found'} in {took}", flush=True)
            if found is not None:
                print(text_of(smaller(found, machine=machine, seconds=given.seconds)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Searches for a sequence of operations and faults that violates the oracle, shrinks it and prints it.

    python -m tests.model.search                      the product as it is
    python -m tests.model.search 3 "however late"     without rule 3, by the mutation with these words
    python -m tests.model.search --schedules          the same with schedules; their mutations are those of "rule" 0
    python -m tests.model.search --batches            the same with batches; their rules are 20 to 22
    python -m tests.model.search --keys               the same with limit keys; their rules are 23 and 24
    python -m tests.model.search --batches --keys     the same with batches that have limit keys
    python -m tests.model.search --rates              the same with rate limits; their mutations are those of "rule" -1

The counterexample is to be kept in ``counterexamples.py``.
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
from tests.model.base_machine import BaseMachine
from tests.model.batch_machine import BatchMachine, KeyedBatchMachine
from tests.model.key_machine import KeyMachine
from tests.model.mutated import mutated
from tests.model.rate_machine import RateMachine
from tests.model.schedule_machine import ScheduleMachine
from tests.model.steps import Counterexample, Step, kind_of, replay, shrink, violations_of
from tests.model.tables import TableOf, in_memory, machine_on
from tests.model.task_machine import TaskMachine
from tests.mutation import Mutation
from tests.mutations import MUTATIONS, OF_RATES

STEPS = 30


def search(
    table: TableOf, examples: int, *, start: int, steps: int = STEPS, machine: type[BaseMachine] = TaskMachine
) -> Counterexample | None:
    """Tries ``examples`` sequences of ``steps`` steps each; the same seed ``start`` makes the same ones.

    Returns the first that violates the oracle.
    """
    of_table, last = machine_on(table, machine), list[BaseMachine]()

    def made() -> BaseMachine:
        last[:] = [of_table()]
        return last[0]

    wanted = settings(
        max_examples=examples,
        stateful_step_count=steps,
        phases=[Phase.generate],  # ``shrunk`` is much quicker than hypothesis's way, which knows nothing of the steps
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
            run_state_machine_as_test(seed(start)(made), settings=wanted)
    except HypothesisException:
        raise
    except Exception as error:
        return Counterexample(violations_of(error).partition("\n")[0], list(last[0].steps))
    return None


def shrunk(
    found: Counterexample,
    table: TableOf = in_memory,
    *,
    machine: type[BaseMachine] = TaskMachine,
    seconds: float = 60.0,
) -> Counterexample:
    """A violation of the same kind with fewer and simpler steps, within ``seconds``."""
    of_table, end = machine_on(table, machine), time.monotonic() + seconds

    def first_violation(steps: Sequence[Step]) -> str:
        return replay(of_table, steps).partition("\n")[0]

    def still(steps: Sequence[Step]) -> bool:
        return time.monotonic() < end and kind_of(first_violation(steps)) == kind_of(found.violation)

    steps = shrink(found.steps, still)
    return Counterexample(first_violation(steps), steps)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rule", nargs="?", type=int)
    parser.add_argument("words", nargs="?", default="")
    parser.add_argument("--schedules", action="store_true")
    parser.add_argument("--batches", action="store_true")
    parser.add_argument("--keys", action="store_true")
    parser.add_argument("--rates", action="store_true")
    parser.add_argument("--examples", type=int, default=3000)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seconds", type=float, default=60.0, help="seconds for shrinking a counterexample")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 20))
    given = parser.parse_args()
    print(f"# seed {given.seed}", flush=True)
    machine: type[BaseMachine] = ScheduleMachine if given.schedules or given.rule == 0 else TaskMachine
    if given.batches or 20 <= (given.rule or 0) < 23:
        machine = BatchMachine
    if given.keys or (given.rule or 0) >= 23:
        machine = KeyedBatchMachine if given.batches else KeyMachine
    if given.rates or given.rule == OF_RATES:
        machine = RateMachine
    chosen: Sequence[Mutation | None] = [None]
    if given.rule is not None:
        chosen = [m for m in MUTATIONS if m.rule == given.rule and given.words in m.what]
    for mutation in chosen:
        with ExitStack() as stack:
            if mutation is not None:
                stack.enter_context(mutated(mutation))
            began = time.monotonic()
            found = search(in_memory, given.examples, start=given.seed, steps=given.steps, machine=machine)
            what = "with all rules" if mutation is None else f"without rule {mutation.rule}: {mutation.what}"
            took = f"{time.monotonic() - began:.0f} s"
            print(f"# {what}: {'nothing' if found is None else 'found'} in {took}", flush=True)
            if found is not None:
                print(shrunk(found, machine=machine, seconds=given.seconds), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

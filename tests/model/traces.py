"""Plays sequences of the model, and has the trace of each replayed by the rules alone (proof/replay.py).

    python -m tests.model.traces --traces 100000          10^5, in two processes, with seeds that it prints
    python -m tests.model.traces --traces 400 --seed 7    the same ones again

A trace is one sequence: the life of an installation with up to a few hundred tasks. Exit code 1 if one is refused, or
violates the oracle; its trace is kept.
"""

# ruff: noqa: T201 - what it prints is what it is for

from __future__ import annotations

import argparse
import gc
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from unittest.mock import patch

from proof.replay import Event, Refused, Replay
from tests.model.base_machine import BaseMachine
from tests.model.batch_machine import BatchMachine, KeyedBatchMachine
from tests.model.conftest import small_buckets
from tests.model.key_machine import KeyMachine
from tests.model.rate_machine import RateMachine
from tests.model.schedule_machine import ScheduleMachine
from tests.model.search import search
from tests.model.tables import in_memory
from tests.model.task_machine import TaskMachine

MACHINES: Sequence[type[BaseMachine]] = (
    TaskMachine, ScheduleMachine, BatchMachine, KeyMachine, KeyedBatchMachine, RateMachine,
)  # fmt: skip
ROUND = 25  # traces of a machine with one seed


@dataclass
class Played:
    """What came of some traces."""

    seed: int
    of: str
    traces: int = 0
    tasks: int = 0
    events: int = 0
    checks: Counter[str] = field(default_factory=Counter)
    refused: list[str] = field(default_factory=list)  # why, and where the trace is
    violated: str | None = None  # what the oracle reports of the last sequence, which ended the round


def play(machine: type[BaseMachine], seed: int, traces: int) -> Played:
    """A round: the same seed gives the same traces."""
    played = Played(seed, machine.of)

    def take(model: BaseMachine) -> None:
        replayed = Replay()
        try:
            for event in model.model.trace.events:
                replayed.feed(event)
        except Refused as refused:
            played.refused.append(f"{refused}: {_keep(model.model.trace.events)}")
        played.traces += 1
        played.tasks += len(replayed.tasks)
        played.events += replayed.events
        played.checks += replayed.checks

    with small_buckets(), patch.object(BaseMachine, "replay_trace", take):
        found = search(in_memory, traces, start=seed, machine=machine)
    played.violated = None if found is None else found.violation
    return played


def traces_of(machine: type[BaseMachine], seed: int, traces: int) -> Sequence[Sequence[Event]]:
    """The traces of a round."""
    made: list[Sequence[Event]] = []

    def take(model: BaseMachine) -> None:
        made.append(model.model.trace.events)

    with small_buckets(), patch.object(BaseMachine, "replay_trace", take):
        found = search(in_memory, traces, start=seed, machine=machine)
    assert found is None, f"the oracle, {machine.of}, seed {seed}: {found}"
    return made[:traces]  # hypothesis may play one more


def _keep(events: Sequence[Event]) -> str:
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", prefix="trace-", delete=False) as file:
        file.writelines(json.dumps(event) + "\n" for event in events)
    return file.name


def rounds(traces: int, seed: int) -> Iterator[tuple[type[BaseMachine], int, int]]:
    """The machines by turns, each with the seeds from ``seed`` on."""
    for n in range(-(-traces // ROUND)):
        yield MACHINES[n % len(MACHINES)], seed + n // len(MACHINES), min(ROUND, traces - n * ROUND)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=int, default=1000, metavar="N", help="how many (1000)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 20))
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args(arguments)
    print(f"Seed {given.seed}: the same traces again by --traces {given.traces} --seed {given.seed}", flush=True)
    total, began, violated = Played(given.seed, "all"), time.monotonic(), 0
    # Looking for cycles as often as by default takes a tenth of the CPU.
    with ProcessPoolExecutor(given.processes, initializer=gc.set_threshold, initargs=(50_000, 10, 10)) as pool:
        for one in as_completed([pool.submit(play, *round_) for round_ in rounds(given.traces, given.seed)]):
            played = one.result()
            for name in ("traces", "tasks", "events"):
                setattr(total, name, getattr(total, name) + getattr(played, name))
            total.checks += played.checks
            total.refused += played.refused
            for text in played.refused:
                print(f"refused, {played.of}, seed {played.seed}: {text}", flush=True)
            if played.violated is not None:
                violated += 1
                print(f"the oracle, {played.of}, seed {played.seed}: {played.violated}", flush=True)
    print(
        f"{total.traces - len(total.refused):,} traces accepted, {len(total.refused)} refused, {violated} violated the "
        f"oracle: {total.tasks:,} tasks, {total.events:,} events, {time.monotonic() - began:,.0f} s"
    )
    numbers = sorted(
        total.checks.items(), key=lambda item: (not item[0].isdigit(), int(item[0]) if item[0].isdigit() else 0)
    )
    print("Checks by rule: " + ", ".join(f"{rule}: {number:,}" for rule, number in numbers))
    return 1 if total.refused or violated else 0


if __name__ == "__main__":
    sys.exit(main())

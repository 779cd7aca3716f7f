"""`python -m tests.simulate`: bursts against AWS's limits, as a table; exit code 1 if a task was lost, else 0."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace

from tests.simulate import document
from tests.simulate.burst import Burst, simulate_burst
from tests.simulate.report import COLUMNS, markdown, row
from tests.simulate.world import Scenario

BURSTS = (
    Scenario(tasks=10_000, shards=4, threads=64),
    Scenario(tasks=100_000, shards=16, threads=64, warm=16_000),
    Scenario(tasks=1_000_000, shards=64, threads=80, warm=40_000),
)
SHOWN = 20  # problems of a burst


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    bursts = [_timed(scenario) for scenario in _bursts(options)]
    table = markdown(COLUMNS, [row(burst) for burst in bursts])
    _print(table)
    for burst in bursts:
        for problem in burst.problems[:SHOWN]:
            _print(f"{burst.scenario.tasks:,} tasks: {problem}")
    if options.write:
        document.write("burst", table)
    return 1 if any(burst.problems for burst in bursts) else 0


def _bursts(options: argparse.Namespace) -> list[Scenario]:
    """Those of the table, or the one that the options describe."""
    changes = {
        name: value
        for name, value in vars(options).items()
        if name in Scenario.__dataclass_fields__ and value is not None
    }
    if not changes.keys() & {"tasks"}:
        return [replace(burst, **changes) for burst in BURSTS]
    nearest = min(BURSTS, key=lambda burst: abs(burst.tasks - changes["tasks"]))
    return [replace(nearest, **changes)]


def _timed(scenario: Scenario) -> Burst:
    began = time.process_time()
    burst = simulate_burst(scenario)
    sys.stderr.write(f"{scenario.tasks:,} tasks: simulated in {time.process_time() - began:.0f} s of CPU\n")
    return burst


def _print(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - what it prints is what it is for


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulate", description=__doc__)
    parser.add_argument("--tasks", type=int, help="one burst of so many tasks; without it, those of the table")
    parser.add_argument("--shards", type=int)
    parser.add_argument("--workers", type=int, help="of each shard")
    parser.add_argument("--threads", type=int, help="of each process")
    parser.add_argument("--task-ms", type=int, help="that a task waits for others (200)")
    parser.add_argument("--bytes", type=int, dest="row_bytes", help="of a task's row (700)")
    parser.add_argument("--warm", type=float, help="write units a second that table and index are warm for")
    parser.add_argument("--write", action="store_true", help="writes the table to docs/simulation.md")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())

"""`python -m tests.simulate`: bursts against AWS's limits, as a table; exit code 1 if a task was lost, else 0."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from dataclasses import replace

from tests.simulate import document, report
from tests.simulate.burst import Burst, simulate_burst
from tests.simulate.world import Scenario

from dynatick.domain.plan import Plan, Wishes, plan_burst, plan_steady

BURSTS = (10_000, 100_000, 1_000_000)
WITHIN = 60.0  # seconds, in which the last task is to begin
SHOWN = 20  # problems of a burst


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    fleet = {name: getattr(options, name) for name in ("shards", "workers", "threads", "warm")}
    changes = {name: value for name, value in fleet.items() if value is not None}
    wishes = Wishes(task_seconds=options.task_ms / 1000, row_bytes=options.row_bytes)
    plans = [plan_burst(tasks, WITHIN, wishes) for tasks in ([options.tasks] if options.tasks else BURSTS)]
    bursts = [_timed(replace(Scenario.of(plan), **changes)) for plan in plans]
    tables = _tables(bursts, [None if changes else plan for plan in plans], wishes)
    for name, table in tables.items():
        _print(f"{_TITLES[name]}\n\n{table}\n")
    for burst in bursts:
        for problem in burst.problems[:SHOWN]:
            _print(f"{burst.scenario.tasks:,} tasks: {problem}")
    if options.write:
        for name, table in tables.items():
            document.write(name, str(table))
    return 1 if any(burst.problems for burst in bursts) else 0


def _tables(bursts: list[Burst], plans: list[Plan | None], wishes: Wishes) -> Mapping[str, report.Table]:
    beyond = (
        ("10,000,000 in a minute", plan_burst(10_000_000, WITHIN, wishes)),
        ("100,000,000 a day, peak 5x; price of a month", plan_steady(100_000_000, 5, wishes)),
    )
    return {
        "fleets": report.fleets([burst.scenario for burst in bursts]),
        "starts": report.starts(bursts, plans),
        "uses": report.uses(bursts),
        "extrapolated": report.extrapolated(beyond),
    }


_TITLES = {
    "fleets": "On what the tasks of one minute run",
    "starts": "When they start, in seconds after they are due",
    "uses": "What that takes",
    "extrapolated": "Extrapolated, by the arithmetic of `dynatick plan`, not simulated",
}


def _timed(scenario: Scenario) -> Burst:
    began = time.process_time()
    burst = simulate_burst(scenario)
    sys.stderr.write(f"{scenario.tasks:,} tasks: simulated in {time.process_time() - began:.0f} s of CPU\n")
    return burst


def _print(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - what it prints is what it is for


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulate", description=__doc__)
    parser.add_argument(
        "--tasks", type=int, help="one burst of so many tasks; without it, 10,000, 100,000 and a million"
    )
    parser.add_argument("--shards", type=int, help="instead of the plan's; so the following")
    parser.add_argument("--workers", type=int, help="of each shard")
    parser.add_argument("--threads", type=int, help="of each process")
    parser.add_argument("--task-ms", type=int, default=200, help="that a task waits for others (200)")
    parser.add_argument("--bytes", type=int, dest="row_bytes", default=700, help="of a task's row (700)")
    parser.add_argument("--warm", type=float, help="write units a second that table and index are warm for")
    parser.add_argument("--write", action="store_true", help="writes the tables to docs/simulation.md")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())

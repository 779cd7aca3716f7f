"""`python -m tests.simulate`: bursts against AWS's limits and more, as tables; exit code 1 if something is wrong."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from tests.simulate import report
from tests.simulate.assumptions import Assumptions
from tests.simulate.batch import FLEET, simulate_batch
from tests.simulate.burst import simulate_burst
from tests.simulate.chaos import SCENARIOS, simulate_chaos
from tests.simulate.days import simulate_days
from tests.simulate.inserting import Inserting, simulate_inserting
from tests.simulate.keys import FLEET as KEY_FLEET
from tests.simulate.keys import simulate_keys
from tests.simulate.schedules import simulate_schedules
from tests.simulate.world import Scenario
from tests.simulate.zones import compare_zones

from dynatick.engine.rules import Precision
from dynatick_stack.markdown import write_parts
from dynatick_stack.plan.capacity import PlanOptions
from dynatick_stack.plan.loads import plan_burst, plan_schedules, plan_steady
from dynatick_stack.template import ROOT

Found = TypeVar("Found")
Simulated = tuple[Mapping[str, str], Sequence[str]]
"""Tables by their names in the document, and what is wrong."""

DOCUMENT = ROOT / "docs" / "simulation.md"
BURSTS = (10_000, 100_000, 1_000_000)
SCHEDULES = 100_000
MEMBERS, BESIDE = 1_000_000, 1_000  # of a batch, and tasks that are due with it
KEYED, TASKS_OF_KEY = 1_000_000, 100  # tasks with limit keys, and those of each key
LATE_TICKS = (1.0, 8.0, 20.0)  # seconds
WITHIN = 60.0  # seconds, in which the last task is to begin
SHOWN = 20  # problems


def main(arguments: list[str] | None = None) -> int:
    given = _arguments(arguments)
    tables, problems = _SIMULATIONS[given.of](given)
    for name, table in tables.items():
        _print(f"{_TITLES[name]}\n\n{table}\n")
    if given.write:
        write_parts(DOCUMENT, tables)
    for problem in problems[:SHOWN]:
        _print(problem)
    return 1 if problems else 0


def _bursts(given: argparse.Namespace) -> Simulated:
    options, changes = _plan_options(given), _changes(given)
    plans = [plan_burst(tasks, WITHIN, options) for tasks in ([given.tasks] if given.tasks else BURSTS)]
    bursts = [_timed(simulate_burst, replace(Scenario.of(plan), **changes)) for plan in plans]
    beyond = (
        ("10,000,000 in a minute", plan_burst(10_000_000, WITHIN, options)),
        ("100,000,000 a day, peak 5x; price of a month", plan_steady(100_000_000, 5, options)),
    )
    tables = {
        "fleets": report.fleets([burst.scenario for burst in bursts]),
        "starts": report.starts(bursts, [None if changes else plan for plan in plans]),
        "uses": report.uses(bursts),
        "extrapolated": report.extrapolated(beyond),
    }
    return tables, [f"{burst.scenario.tasks:,} tasks: {problem}" for burst in bursts for problem in burst.problems]


def _inserting(given: argparse.Namespace) -> Simulated:
    options, found = _plan_options(given), list[Inserting]()
    plans = [plan_burst(tasks, WITHIN, options) for tasks in ([given.tasks] if given.tasks else BURSTS)]
    for planned in plans:
        scenario = replace(Scenario.of(planned), **_changes(given))
        clients = planned.inserting.clients
        found.append(_timed(lambda one, clients=clients: simulate_inserting(one, clients), scenario))
    missing = [f"{one.missing:,} of {one.scenario.tasks:,} tasks are missing" for one in found if one.missing]
    return {"inserting": report.inserting(found, plans)}, missing


def _schedules(given: argparse.Namespace) -> Simulated:
    planned = plan_schedules(given.tasks or SCHEDULES, 60.0, _plan_options(given))
    found = _timed(simulate_schedules, replace(Scenario.of(planned), **_changes(given)))
    return {"schedules": report.schedules(found)}, found.problems


def _batch(given: argparse.Namespace) -> Simulated:
    scenario = replace(
        Scenario(tasks=BESIDE, members=given.tasks or MEMBERS, task_ms=given.task_ms, **FLEET), **_changes(given)
    )
    delays = LATE_TICKS if given.tick_delay is None else (given.tick_delay,)
    scenarios = [replace(scenario, assumptions=Assumptions(tick_delay=delay)) for delay in delays]
    scenarios.append(replace(scenarios[-1], precision=Precision.SECOND))
    found = [_timed(simulate_batch, one) for one in scenarios]
    alone = [simulate_burst(replace(one, members=0)).last_start for one in scenarios]
    tables = {"batch": report.batches(found, alone), "batch-inserting": report.batch_inserting(found[0])}
    return tables, [f"{report.tick_of(run.scenario)}: {problem}" for run in found for problem in run.problems]


def _keys(given: argparse.Namespace) -> Simulated:
    tasks = given.tasks or KEYED
    keys, flood = max(1, tasks // TASKS_OF_KEY), tasks // 10
    scenarios = [
        Scenario(tasks=tasks, shards=16, keys=[("tenant=4", keys, tasks)], task_ms=given.task_ms, **KEY_FLEET),
        Scenario(
            tasks=flood + BESIDE,
            shards=1,
            keys=[("flood=1", 1, flood), ("customer=1", BESIDE // 10, BESIDE)],
            task_ms=given.task_ms,
            **KEY_FLEET,
        ),
    ]
    found = [_timed(simulate_keys, replace(one, **_changes(given))) for one in scenarios]
    return {"keys": report.keys(found)}, [problem for run in found for problem in run.problems]


def _zones(given: argparse.Namespace) -> Simulated:
    found = compare_zones(given.zones, given.seed)
    return {"zones": report.zones(found)}, found.compared.problems


def _days(given: argparse.Namespace) -> Simulated:
    found = simulate_days(given.days, given.seed)
    return {"days": report.days(found), "days-windows": report.windows(found.windows)}, found.problems


def _chaos(given: argparse.Namespace) -> Simulated:
    found = [simulate_chaos(name) for name in SCENARIOS]
    return {"chaos": report.chaos(found)}, [problem for one in found for problem in one.problems]


_SIMULATIONS: Mapping[str, Callable[[argparse.Namespace], Simulated]] = {
    "bursts": _bursts,
    "inserting": _inserting,
    "schedules": _schedules,
    "batch": _batch,
    "keys": _keys,
    "zones": _zones,
    "days": _days,
    "chaos": _chaos,
}


def _plan_options(given: argparse.Namespace) -> PlanOptions:
    return PlanOptions(
        task_seconds=given.task_ms / 1000,
        row_bytes=given.row_bytes,
        to_the_second=given.precision is Precision.SECOND,
    )


def _changes(given: argparse.Namespace) -> Mapping[str, Any]:
    """Returns the settings that differ from the plan's."""
    fleet = {name: getattr(given, name) for name in ("shards", "workers", "threads", "warm")}
    changes: dict[str, Any] = {name: value for name, value in fleet.items() if value is not None}
    if given.tick_delay is not None:
        changes["assumptions"] = Assumptions(tick_delay=given.tick_delay)
    return changes


_TITLES = {
    "fleets": "On what the tasks of one minute run",
    "starts": "When they start, in seconds after they are due",
    "uses": "What that takes",
    "inserting": "What inserting the tasks of one minute takes",
    "schedules": "Schedules of rate(1 minute)",
    "batch": "A batch that is due in one minute, and tasks beside it: starts in seconds after they are due",
    "batch-inserting": "What inserting the batch takes",
    "keys": "Tasks with limit keys that are due in one minute: starts in seconds after they are due",
    "zones": "A hundred years of schedules in every time zone",
    "days": "Days with deployments, outages and pauses",
    "days-windows": "When runs began in these days",
    "chaos": "Chaos, by the scenarios of a benchmark",
    "extrapolated": "Extrapolated, by the arithmetic of `dynatick plan`, not simulated",
}


def _timed(simulate: Callable[[Scenario], Found], scenario: Scenario) -> Found:
    began = time.process_time()
    found = simulate(scenario)
    sys.stderr.write(
        f"{scenario.members or scenario.tasks:,}: simulated in {time.process_time() - began:.0f} s of CPU\n"
    )
    return found


def _print(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - what it prints is what it is for


def _arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulate", description=__doc__)
    parser.add_argument("--of", choices=_SIMULATIONS, default="bursts")
    parser.add_argument("--tasks", type=int, help="of one burst, schedules, or members; without it, several bursts")
    parser.add_argument("--shards", type=int, help="instead of the plan's; so the following")
    parser.add_argument("--workers", type=int, help="of each shard")
    parser.add_argument("--threads", type=int, help="of each process")
    parser.add_argument("--task-ms", type=int, default=200, help="that a task waits for others (200)")
    parser.add_argument("--bytes", type=int, dest="row_bytes", default=700, help="of a task's row (700)")
    parser.add_argument("--warm", type=float, help="write units a second that table and index are warm for")
    parser.add_argument("--tick-delay", type=float, help="seconds from the minute to its tick (1)")
    parser.add_argument("--precision", type=Precision, choices=Precision, default=Precision.TICK, help="the template's")
    parser.add_argument("--zones", type=int, help="the number of clocks that differ, drawn by the seed, instead of all")
    parser.add_argument("--days", type=float, default=14.0, help="of an installation's life (14)")
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn (0)")
    parser.add_argument("--write", action="store_true", help="writes the tables to docs/simulation.md")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())

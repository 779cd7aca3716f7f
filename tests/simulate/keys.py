"""Tasks with limit keys, all due in one minute: many keys of as many tasks, or one with most of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite

from tests.model.simulation import Simulation
from tests.model.standins import inside
from tests.sandbox.limits import Stay, broken
from tests.simulate.world import Counts, Scenario, World, id_of

from dynatick.domain.limit_keys import class_of

MAX_TICKS = 600  # from the due one on
SETTLING_TICKS = 7  # after the last has ended, as after a burst
FLEET = {"threads": 128, "memory_mb": 1769, "warm": 40_000.0}


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """How the tasks of a class of keys began. Times in seconds after they were due; infinite: one did not start."""

    keys: int
    tasks: int
    limit: str
    by_limit: float  # what the last start can't be earlier than, by the limit of the key with most tasks
    p50: float
    p99: float
    last_start: float


@dataclass(frozen=True, kw_only=True, slots=True)
class KeyRun:
    """``by_threads``: what the last start can't be earlier than, by the threads of the shard with most tasks."""

    scenario: Scenario
    groups: Sequence[Group]
    by_threads: float
    used: Counts  # from the due time on
    problems: Sequence[str]  # tasks that did not end, or ran more than once; limits that were broken


def simulate_keys(scenario: Scenario) -> KeyRun:
    """Runs tasks with limit keys in a simulation of its own, until all have ended."""
    simulation = Simulation()
    with inside(simulation):
        world = World(scenario, simulation)
        world.warm_up()
        world.fill(lambda client: client.insert_task(world.new_task(0)))
        simulation.run_until(world.due_at)
        before, ticks, after = world.counts(), 0, 0
        while ticks < MAX_TICKS and after < SETTLING_TICKS:
            world.tick(world.due + ticks)
            ticks += 1
            after += all(world.action.executions)
            simulation.run_until(world.due_at + 60 * ticks)
        return _judge(world, world.counts() - before)


def _judge(world: World, used: Counts) -> KeyRun:
    scenario, of_key, shards = world.scenario, dict[str, list[int]](), dict[int, int]()
    for n in range(scenario.tasks):
        key = world.key_of(n)
        of_key.setdefault(key, []).append(n)
        shard = world.rules.grid.shard_of(key)
        shards[shard] = shards.get(shard, 0) + 1
    task = scenario.task_ms / 1000
    return KeyRun(
        scenario=scenario,
        groups=[_group(world, name, of_key) for name in scenario.classes],
        by_threads=_waves(max(shards.values()), scenario.threads) * task,
        used=used,
        problems=[
            *_problems(world),
            *(text for key, numbers in of_key.items() for text in _broken(world, key, numbers)),
        ],
    )


def _group(world: World, name: str, of_key: dict[str, list[int]]) -> Group:
    mine = {key: numbers for key, numbers in of_key.items() if class_of(key) == name}
    late = sorted(world.action.late[n] for numbers in mine.values() for n in numbers)
    limit, largest = world.rules.key_limits[name], max(map(len, mine.values()))
    by_places = 0.0 if limit.at_once is None else _waves(largest, limit.at_once) * world.scenario.task_ms / 1000
    return Group(
        keys=len(mine),
        tasks=len(late),
        limit=limit.text,
        by_limit=max(by_places, (largest - 1) * limit.interval.total_seconds()),
        p50=late[len(late) // 2],
        p99=late[len(late) * 99 // 100],
        last_start=late[-1],
    )


def _waves(tasks: int, at_once: int) -> int:
    """How many have to follow one another before the last begins."""
    return -(-tasks // at_once) - 1


def _broken(world: World, key: str, numbers: Sequence[int]) -> Iterator[str]:
    action = world.action
    begun = [n for n in numbers if isfinite(action.late[n])]
    stays = [Stay(task_id=id_of(n), key=key, begin=action.late[n], end=action.ended[n]) for n in begun]
    return broken(stays, world.rules.key_limits, skew=1e-6)  # instants have microseconds


def _problems(world: World) -> Iterator[str]:
    items = world.dynamodb.table.items
    for n, executions in enumerate(world.action.executions):
        status = items[id_of(n)][0].get("status", {}).get("S")
        if (status, executions) != ("completed", 1):
            yield f"{id_of(n)} of {world.key_of(n)}: {status}, after {executions} executions"

"""A batch whose members are all due in one minute, on one shard and a new table, and tasks of their own beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.model.simulation import Simulation
from tests.model.standins import inside
from tests.simulate.world import ACTION, WARMING_TICKS, Counts, Scenario, World, id_of

from dynatick.domain.batches import then_id
from dynatick.domain.buckets import instant_of
from dynatick_stack.bench.installation import letter

BATCH_ID = "8-newsletter"  # in the middle of the tasks, by its id
INSERT_MINUTES = 3  # before it is due
TICKS = 7  # from the due one on: the batch's own task comes back until all members have ended
READ_AT_A_TIME = 500  # payloads
FLEET = {"shards": 1, "workers": 64, "threads": 128, "memory_mb": 1024}
"""On a new table. A million members of 200 ms in 25 s need 8,000 threads."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchRun:
    """How a batch ended. Times in seconds; those of starts after the due time, infinite if one did not start."""

    scenario: Scenario
    inserting: Counts
    insert_seconds: float
    insert_requests: int
    used: Counts  # from the due time on
    p50: float
    p99: float
    last_start: float
    tasks_last_start: float  # of the tasks beside it
    max_running: int  # executions of the function at once
    problems: Sequence[str]  # members and tasks that did not end, or ran more than once; what followed more than once


def simulate_batch(scenario: Scenario) -> BatchRun:
    """Inserts a batch by one client with a CPU of its own, and runs it, in a simulation of its own."""
    simulation = Simulation()
    with inside(simulation):
        world = World(scenario, simulation, due_after=WARMING_TICKS + 1 + INSERT_MINUTES)
        world.warm_up()
        world.fill(lambda client: client.insert_task(world.new_task(0)))
        for n in range(-INSERT_MINUTES, TICKS):
            world.tick(world.due + n)
        began, before, ended = simulation.now, world.counts(), list[float]()
        requests = world.dynamodb.database.counts.total.calls
        world.spawn("client", lambda: (_insert(world), ended.append(simulation.now)))
        while not ended:
            event = simulation.next_event()
            assert event is not None, "the client waits for ever"
            simulation.run_until(event)
        inserting = world.counts() - before
        requests = world.dynamodb.database.counts.total.calls - requests
        simulation.run_until(world.due_at)
        before = world.counts()
        simulation.run_until(world.due_at + 60 * TICKS)
        late = sorted(world.action.late[scenario.tasks :])
        return BatchRun(
            scenario=scenario,
            inserting=inserting,
            insert_seconds=ended[0] - began,
            insert_requests=requests,
            used=world.counts() - before,
            p50=late[len(late) // 2],
            p99=late[len(late) * 99 // 100],
            last_start=late[-1],
            tasks_last_start=max(world.action.late[: scenario.tasks]),
            max_running=world.function.max_running,
            problems=list(_problems(world)),
        )


def _insert(world: World) -> None:
    world.client().batches.insert(
        _payloads(world),
        batch_id=BATCH_ID,
        action=ACTION,
        due_at=instant_of(world.due),
        total=world.scenario.members,
        then={"action": ACTION},
    )


def _payloads(world: World) -> Iterator[Mapping[str, object]]:
    """Payloads of 200 bytes; to check and to compress them takes CPU."""
    for n in range(world.scenario.members):
        if n % READ_AT_A_TIME == 0:
            seconds = READ_AT_A_TIME * world.assumptions.member_insert_cpu
            world.simulation.sleep(world.dynamodb.wait_for_cpu(seconds))
        yield letter(n)


def _problems(world: World) -> Iterator[str]:
    tasks, items = world.scenario.tasks, world.dynamodb.table.items
    for n, executions in enumerate(world.action.executions):
        if executions != 1:
            name = id_of(n) if n < tasks else f"member {n - tasks}"
            yield f"{name}: {executions} executions"
    for n in range(tasks):
        if (status := items[id_of(n)][0].get("status", {}).get("S")) != "completed":
            yield f"{id_of(n)}: {status}"
    result = items[BATCH_ID][0].get("result", {}).get("M")
    if result != {"members": {"N": f"{world.scenario.members}"}, "completed": {"N": f"{world.scenario.members}"}}:
        yield f"the batch has {result}"
    if then_id(BATCH_ID) not in items:
        yield "what follows was not inserted"

"""The limits of DynamoDB that the simulation keeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from tests.model.simulation import Process, Simulation
from tests.simulate.assumptions import SPLIT_AFTER, Assumptions
from tests.simulate.capacity import Capacity
from tests.simulate.dynamodb import INDEX, SimulatedDynamoDB, SimulatedStore

from dynatick.domain.conditional_update import Absent, ConditionalUpdate, Unknown, Written
from dynatick.domain.executions import PARTITION_WRITE_UNITS


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def written_within_a_second(capacity: Capacity, keys: list[str], clock: Clock) -> int:
    """How many of three writes of one unit a key and millisecond are admitted, after a second in which all was used."""
    admitted = 0
    for millisecond in range(2000):
        clock.now += 0.001
        for key in keys * 3:
            if capacity.admits_write(key):
                capacity.take_write(key, 1)
                admitted += millisecond >= 1000
    return admitted


@pytest.mark.parametrize(
    ("keys", "warm", "quota", "written"),
    [(1, 40_000, 40_000, PARTITION_WRITE_UNITS), (30, 4000, 40_000, 4000), (30, 40_000, 5000, 5000)],
)
def test_keys_share_the_partitions_that_they_lie_on_up_to_the_quota(
    keys: int, warm: int, quota: int, written: int
) -> None:
    clock = Clock()
    capacity = Capacity(warm, clock, quota=quota)
    found = written_within_a_second(capacity, [f"key-{n}" for n in range(keys)], clock)
    assert found == pytest.approx(written, rel=0.01)
    assert capacity.refused_writes > 0


def test_a_partition_that_stays_hot_splits_and_a_cool_one_does_not() -> None:
    clock = Clock()
    capacity = Capacity(1000, clock)

    def partitions_after(end: float) -> int:
        while clock.now < end:
            clock.now += 0.5
            capacity.take_write("a", 600)
            capacity.admits_write("a")
        return capacity.partitions

    assert partitions_after(SPLIT_AFTER - 1) == 1
    clock.now += 10  # with no refusal
    assert partitions_after(SPLIT_AFTER + 100) == 1
    assert partitions_after(2 * SPLIT_AFTER + 20) == 2


# -- the table, by way of the store -----------------------------------------------------------------------------------


class Bench:
    """A table with room for a given number of writes a second, and one process that works on it."""

    def __init__(self, warm: float = 1000, *, cpu_share: float = 1.0) -> None:
        self.simulation = Simulation()
        self.service = SimulatedDynamoDB(
            self.simulation, Assumptions(), lambda: Capacity(warm, lambda: self.simulation.now)
        )
        self.store = SimulatedStore(self.service, cpu_share=cpu_share)

    def run(self, work: Any) -> Any:
        answers: list[Any] = []
        self.simulation.spawn(Process(self.simulation, "tester"), lambda: answers.append(work(self.store)))
        while not answers:
            self.simulation.run_until(self.simulation.next_event() or 0.0)
        return answers[0]

    def use_up(self, capacity: Capacity, units: float) -> None:
        for partition in capacity._partitions:
            partition.writes.has_room(self.simulation.now)
            partition.writes.take(units)


def change(task_id: str) -> ConditionalUpdate:
    return ConditionalUpdate(task_id=task_id, set={"attempt": 1}, conditions=(Absent("attempt"),))


def test_a_throttled_batch_is_sent_again_by_the_store_and_succeeds() -> None:
    bench = Bench()
    bench.run(lambda store: store.create_many([{"taskId": f"t{n}"} for n in range(25)]))
    bench.use_up(bench.service.table.capacity, 1200)
    began = bench.simulation.now
    results = bench.run(lambda store: (store.write_many([change(f"t{n}") for n in range(25)]), bench.simulation.now))
    assert results[0] == [Written()] * 25
    assert 0.1 < results[1] - began < 2
    assert bench.service.table.capacity.refused_writes >= 25


def test_an_index_without_capacity_holds_up_writes_to_the_table_that_it_shows_and_no_others() -> None:
    bench = Bench()
    bench.run(lambda store: store.create({"taskId": "a", "taskDateTime": "2026-12-31#12:00"}))
    bench.use_up(bench.service.table.of_indexes[INDEX], 1e6)
    assert bench.run(lambda store: store.write_many([change("a")])) == [Written()]
    ended = ConditionalUpdate(task_id="a", set={"outcome": "completed"})
    (result,) = bench.run(lambda store: store.write_many([ended]))
    assert isinstance(result, Unknown) and "ProvisionedThroughputExceeded" in result.error
    assert bench.service.table.of_indexes[INDEX].refused_writes > 0
    assert bench.service.table.capacity.refused_writes == 0


def test_requests_of_one_process_share_its_cpu() -> None:
    def seconds(cpu_share: float, threads: int) -> float:
        bench, ends = Bench(40_000, cpu_share=cpu_share), []
        process = Process(bench.simulation, "tester")

        def work() -> None:
            for _ in range(20):
                bench.store.get("a")
            ends.append(bench.simulation.now)

        for _ in range(threads):
            bench.simulation.spawn(process, work)
        bench.simulation.run_until(1000)
        return max(ends)

    of_one = seconds(1.0, 1)
    assert 20 * (0.001 + 0.003) < of_one < 0.3
    assert seconds(1.0, 20) >= 400 * 0.001  # not at the same time
    assert seconds(0.1, 20) >= 400 * 0.01

"""Two tasks with the same id, or nearly the same: a second insert is refused, a plain put replaces what waits.

What it does to a task in flight is fault 26.
"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.builders import key_of
from tests.faults.conftest import Report
from tests.faults.world import World

from dynatick import TaskExists
from dynatick.client import Exists, Inserted

LONG = "i" * 1000
ALIKE = [
    "a", "A", "a ", " a", "a#", "a#1", "a#1#1", "a.1", "a/1", "a-1", "a_1", "a\t", "a\u200b",
    "caf\u00e9", "cafe\u0301",  # the same to the eye
    *(LONG[:size] + tail for size in (62, 63, 126, 127, 253, 254, 998) for tail in ("1", "2")),
    "0", "00", "0.0", "1e3", "1000", "null", "None", "\U0001f600", "\U0001f601",
]  # fmt: skip


def test_fault_13_the_second_insert_is_refused(world: World, report: Report) -> None:
    """Also by several clients at once, and within one call."""

    def insert(number: int) -> int:
        try:
            world.insert(f"t{number % 20:02d}", delay_seconds=30, payload={"number": number})
        except TaskExists as error:
            assert f"t{number % 20:02d}" in str(error)
            return 0
        return 1

    with ThreadPoolExecutor(4) as pool:
        taken = Counter()  # type: ignore[var-annotated]
        for number, accepted in enumerate(pool.map(insert, range(80))):
            taken[number % 20] += accepted
    assert taken == dict.fromkeys(range(20), 1)
    before = world.rows()
    with pytest.raises(TaskExists):
        world.client.insert("t00", delay_seconds=90)
    many = [{"taskId": f"t{n % 30:02d}", "delaySeconds": 30} for n in range(60)]
    results = list(world.client.insert_lazily(many))
    assert [isinstance(result, Inserted) for result in results] == [20 <= n < 30 for n in range(60)]
    assert all(isinstance(result, (Inserted, Exists)) for result in results)
    after = world.rows()
    assert {task_id: after[task_id] for task_id in before} == before
    world.note_inserts(many[result.position] for result in results if isinstance(result, Inserted))
    world.next_tick()
    world.finish()
    assert report(world).executed == 30


def test_fault_13_ids_that_are_nearly_the_same(world: World, report: Report) -> None:
    world.insert_many([{"taskId": task_id, "delaySeconds": 30} for task_id in ALIKE])
    world.next_tick()
    world.finish()
    executed = world.ledger.done()
    assert Counter(execution.task_id for execution in executed) == dict.fromkeys(ALIKE, 1)
    assert len({execution.key for execution in executed}) == len(ALIKE)
    assert report(world).executed == len(ALIKE)


def test_fault_13_a_plain_put_replaces_what_waits(world: World, report: Report) -> None:
    """Whatever time the old one had. It never runs; the new one runs once, with another key."""
    for number in range(20):
        world.insert(f"t{number:02d}", delay_seconds=[30, 90, 3600][number % 3], payload={"permanent": True})
    world.deliver(world.stream.new())
    replaced = {key_of(row) for row in world.rows().values()}
    for number in range(20):
        world.put(taskId=f"t{number:02d}", delaySeconds=100)
    world.deliver(world.stream.new())
    world.next_tick()
    world.finish()
    runs = [(execution.task_id, execution.key) for execution in world.ledger.begun()]
    rows = world.rows()
    assert sorted(runs) == [(f"t{n:02d}", key_of(rows[f"t{n:02d}"])) for n in range(20)]
    assert not replaced & {key for _, key in runs}
    figures = report(world)
    assert figures.executed == 20
    assert figures.otherwise == {"replaced": 20}

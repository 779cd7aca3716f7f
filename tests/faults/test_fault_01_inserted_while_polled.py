"""A task is inserted while its bucket is being polled: all run, at the latest one tick later."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from tests.faults.conftest import Report
from tests.faults.world import LIFE, World
from tests.sandbox.seam import Fault

from dynatick.domain.buckets import Bucket, instant_of, minute_of

BEFORE, DURING, AT_THE_END = 200, 400, 50


def test_fault_01_inserted_while_its_bucket_is_polled(world: World, report: Report) -> None:
    """Half of the newcomers are what an old client writes, complete and into the closed bucket; half are raw rows."""
    bucket = Bucket(minute_of(world.clock()) + 1)
    world.insert_many([{"taskId": f"before-{n:03d}", "taskDateTime": bucket} for n in range(BEFORE)])
    complete = {"taskDateTime": str(bucket), "dueAt": "2026-12-31T12:01:00Z", "action": "note", "attempt": 0, "run": 1,
                "status": "scheduled", "createdAt": "2026-12-31T12:00:59Z"}  # fmt: skip
    world.clock.to(instant_of(bucket.minute) + timedelta(milliseconds=200))

    # A pass that takes its time: small pages, each after a while, so that it polls while rows come in.
    sandbox = world.sandbox()
    slow = [
        Fault(at="poll", do="small pages", amount=25, times=None),
        Fault(at="poll", do="wait", amount=0.02, times=None),
        Fault(at="release shard", do="freeze before"),
    ]
    sandbox.begin(world.event(), life=LIFE, faults=slow)

    def put(number: int) -> None:
        task_id = f"{'abcdefgh'[number % 8]}-{number:03d}"  # before and behind those that are looked at
        if number % 2:
            world.put(taskId=task_id, **complete)
        else:
            world.put(taskId=task_id, taskDateTime=str(bucket))

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(put, range(DURING)))
    assert len(world.ledger.begun()) < BEFORE + DURING, "the pass was over before the rows were in"

    # Its last poll is over, its end is not written yet: these are too late for this pass.
    assert world.end(sandbox).what == "frozen"
    in_this_pass = len(world.ledger.done())
    assert in_this_pass > BEFORE
    for number in range(DURING, DURING + AT_THE_END):
        put(number)
    world.deliver(world.stream.new())  # at once, as the stream is
    sandbox.thaw()
    assert world.end(sandbox).what == "returned"
    assert len(world.ledger.done()) == in_this_pass

    assert world.next_tick().what == "returned"
    executed = {execution.task_id: execution.instant for execution in world.ledger.done()}
    assert len(executed) == BEFORE + DURING + AT_THE_END
    assert max(executed.values()) < instant_of(bucket.minute + 2)

    world.finish()
    figures = report(world)
    assert figures.executed == figures.inserted

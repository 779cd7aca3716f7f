"""The connection breaks after a write took effect, and the SDK sends it again: all goes on as if the answer had come.

Each write is disturbed by its kind, one kind after another, below the SDK's own retries. Nothing fails that was not
executed, and no task has more than one attempt to lose. Every single call, and answers that never come, has
tests/model/test_repeated_writes.py.
"""

from __future__ import annotations

import json
from datetime import timedelta

from tests.faults.conftest import NewWorld
from tests.sandbox.journal import Began
from tests.sandbox.seam import Fault, Seam
from tests.sandbox.world import AFTER_LEASE, SECOND, World

ONCE = {"maximumRetryAttempts": 0}


def again(kind: str) -> list[Fault]:
    return [Fault(at=kind, do="lose response")]


def test_fault_43_the_writes_of_passes_and_of_the_scheduler(world: World) -> None:
    world.next_tick()
    for kind in ("acquire shard", "claim", "record", "release shard", "own row"):
        world.insert_for_next_tick([f"{kind}-{n}" for n in range(3)], retryPolicy=ONCE)
        outcome = world.next_tick(faults=again(kind))
        assert outcome.hits == {f"lose response @ {kind}": 1}
        assert {row["outcome"] for row in world.rows().values()} == {"completed"}, kind
    world.put(taskId="late", taskDateTime=str(world.bucket(-3)), retryPolicy=ONCE)
    assert sum(outcome.hit for outcome in world.deliver_stream(faults=again("other"))) == 1
    world.assert_survived(repeated=0)


def test_fault_43_the_claim_of_a_wake_up(new_world: NewWorld) -> None:
    world = new_world(**SECOND)
    world.tick()
    world.insert("t", due_at=world.clock() + timedelta(seconds=20), retry_policy=ONCE)
    world.deliver_stream()
    ((event, at),) = world.wake_ups()
    world.clock.to(at)
    delivery = {"Records": [{"eventSource": "aws:sqs", "messageId": "1", "body": json.dumps(event)}]}
    outcome = world.invoke(delivery, faults=again("claim"))
    assert outcome.hits == {"lose response @ claim": 1}
    assert len([*world.journal.of(Began)]) == 1
    assert world.row("t")["outcome"] == "completed"
    world.assert_survived(repeated=0)


def test_fault_43_the_reclaim_of_a_recovery(world: World) -> None:
    world.next_tick()
    world.insert_for_next_tick(["t"], retryPolicy={"maximumRetryAttempts": 1, "minBackoffSeconds": 0})
    assert world.next_tick(faults=[Fault(at="claim", do="kill after")]).what == "killed"
    world.clock.forward(seconds=AFTER_LEASE)
    world.next_tick(faults=again("reclaim"))
    assert world.row("t")["outcome"] == "completed"
    assert world.row("t")["attempt"] == 2
    world.assert_survived()


def test_fault_43_the_requests_of_a_client(world: World) -> None:
    """Each is answered as it took effect, an insert too."""
    world.next_tick()
    seam = Seam()
    with seam.installed():
        for kind in ("put", "insert"):
            seam.arm(again(kind))
            tasks = [{"taskId": f"{kind}-{n}", "delaySeconds": 30} for n in range(3)]
            if kind == "put":
                world.client.insert("put-0", delay_seconds=30)
                world.note("insert", "put-0")
            else:
                counts = world.client.insert_many(tasks)
                assert (counts.inserted, counts.exists) == (3, 0)
                world.note_inserts(tasks)
        seam.arm(again("cancel"))
        assert world.client.cancel("put-0").status == "cancelled"
        world.note("cancel", "put-0")
    assert seam.hits == {f"lose response @ {kind}": 1 for kind in ("put", "insert", "cancel")}
    world.assert_survived(cancelled=1)

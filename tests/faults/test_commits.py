"""Effects that a handler commits with its outcome: both take effect, or neither."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.sandbox.journal import Began
from tests.sandbox.seam import Fault
from tests.sandbox.world import AFTER_LEASE, World

POLICY = {"maximumRetryAttempts": 3, "minBackoffSeconds": 0}
STEPS = ["kill before", "kill after", "lose response", "throttle", "fail before"]


def effects_of(world: World) -> str:
    """A table of a user's, in which each execution that is committed counts itself under its idempotency key."""
    name = f"{world.table}-effects"
    world.dynamodb.create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
    )
    return name


def counted(world: World, effects: str) -> Counter[str]:
    items = world.dynamodb.scan(TableName=effects, ConsistentRead=True)["Items"]
    return Counter({item["id"]["S"]: int(item["times"]["N"]) for item in items})


def keys_of(world: World, task_ids: list[str]) -> set[str]:
    return {began.key for began in world.journal.of(Began) if began.task_id in task_ids}


@pytest.mark.parametrize("do", STEPS)
def test_fault_40_an_outcome_with_effects_is_disturbed(world: World, do: str) -> None:
    effects = effects_of(world)
    ids = world.insert_soon(5, payload={"commit": effects}, retryPolicy=POLICY)
    members = world.insert_batch("news", [{"commit": effects} if n == 3 else {} for n in range(6)], retryPolicy=POLICY)
    outcome = world.next_tick(faults=[Fault(at="commit", do=do, skip=1)])
    assert outcome.what == ("killed" if do.startswith("kill") else "returned"), outcome
    world.clock.forward(seconds=AFTER_LEASE)
    world.assert_survived()
    found = counted(world, effects)
    assert set(found.values()) == {1}
    assert set(found) == keys_of(world, [*ids, members[3]])


def test_fault_40_a_lost_lease_writes_nothing(world: World) -> None:
    """The process is frozen before it commits; another one takes its tasks over, and it goes on."""
    effects = effects_of(world)
    ids = world.insert_soon(5, payload={"commit": effects}, retryPolicy=POLICY)
    sandbox = world.frozen_tick(Fault(at="commit", do="freeze before"))
    world.clock.forward(seconds=AFTER_LEASE)
    world.next_tick()
    world.next_tick()
    sandbox.thaw()
    assert world.end(sandbox).what in ("returned", "error", "exited"), "its time has been up for long"
    world.finish()
    # Lambda would have ended it with its lease: here they are executed twice, and how it ends depends on the machine.
    world.report(world.judge(schedules_end=False))
    assert {world.row(task_id)["outcome"] for task_id in ids} == {"completed"}
    assert counted(world, effects) == Counter(keys_of(world, ids))


def test_fault_40_a_condition_of_its_own_does_not_hold(world: World) -> None:
    effects = effects_of(world)
    again = world.insert_soon(["again"], payload={"commit": effects, "refused": 2}, retryPolicy=POLICY)
    world.insert_soon(["never"], payload={"commit": effects, "refused": 99}, retryPolicy=POLICY, fails=True)
    world.next_tick()
    assert counted(world, effects) == Counter()
    world.assert_survived(failed=1)
    assert counted(world, effects) == Counter(keys_of(world, again))
    assert "nothing of its Commit was written: items[0]" in str(world.row("never")["error"])

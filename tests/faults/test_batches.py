"""Packs of a batch: whatever happens to them, no member is lost, and its neighbours are repeated once at most."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.sandbox.journal import Began
from tests.sandbox.seam import Fault
from tests.sandbox.world import AFTER_LEASE, World

from dynatick.domain.packs import Pack, body_id

MEMBERS = 40
STEPS = [(at, do) for at in ("claim", "read", "extract", "record") for do in ("kill before", "kill after")]


def plans(number: int = MEMBERS, **others: dict[str, object]) -> list[dict[str, object]]:
    return [others.get(f"m{n}", {}) for n in range(number)]


@pytest.mark.parametrize(("at", "do"), STEPS, ids=[f"{do} {at}" for at, do in STEPS])
def test_fault_33_dies_while_a_pack_runs(world: World, at: str, do: str) -> None:
    world.insert_batch("news", plans(m7={"failures": 1}))
    outcome = world.next_tick(faults=[Fault(at=at, do=do)])
    assert outcome.what == "killed", (at, do)
    world.clock.forward(seconds=AFTER_LEASE)
    world.assert_survived()
    attempts = Counter(began.task_id for began in world.journal.of(Began))
    assert max(attempts.values()) <= 3 and sum(attempts.values()) <= 2 * MEMBERS + 1


def test_fault_33_a_member_kills_its_process(world: World) -> None:
    """It fails when its attempts are used up. Its neighbours get rows too, and run again beside it as tasks do: none of
    them has its last attempt while it runs."""
    policy = {"maximumRetryAttempts": 2, "minBackoffSeconds": 0}
    members = world.insert_batch("news", plans(m20={"kill": True}), retryPolicy=policy)
    assert world.next_tick().what == "killed"
    for _ in range(12):
        world.clock.forward(seconds=AFTER_LEASE)
        world.next_tick()
    world.clock.forward(seconds=AFTER_LEASE)
    world.assert_survived(failed=1)
    attempts = Counter(began.task_id for began in world.journal.of(Began))
    assert attempts[members[20]] == 3
    assert max(attempts.values()) == 3


def test_fault_36_the_body_of_a_pack_is_missing(world: World) -> None:
    """The pack fails with the reason and a dead letter, alone."""
    lost, kept = world.insert_batch("lost", plans(3), fails=True), world.insert_batch("kept", plans(3))
    (pack_id,) = (row["taskId"] for row in world.packs() if Pack.of(row).batch_id == "lost")  # type: ignore[union-attr]
    world.dynamodb.delete_item(TableName=world.table, Key={"taskId": {"S": body_id(str(pack_id))}})
    world.assert_survived(failed=3)
    rows = world.rows()
    assert {rows[one]["outcome"] for one in lost} == {"failed"}
    assert {rows[one]["outcome"] for one in kept} == {"completed"}
    assert [letter["taskId"] for letter in world.dead_letters()] == [pack_id]
    assert {began.task_id for began in world.journal.of(Began)} == set(kept)

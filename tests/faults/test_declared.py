"""Deployments declare schedules, and meet running occurrences, each other, what was inserted by hand, lost answers."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any

import pytest
from tests.sandbox.journal import INSERT
from tests.sandbox.seam import Fault, Seam
from tests.sandbox.world import World

from dynatick import TaskClient
from dynatick.domain.buckets import instant_of, minute_of
from dynatick.domain.instants import format_instant

EVERY_RUN: dict[str, Any] = {"scheduleExpression": "rate(1 minute)", "catchUp": "all", "overlap": "allow"}


def declared(*ids: str, **values: Any) -> list[dict[str, Any]]:
    return [{"taskId": schedule_id, **EVERY_RUN, **values} for schedule_id in ids]


def sync(world: World, rows: Sequence[dict[str, Any]], owner: str = "mine") -> dict[str, str]:
    changes = world.client.schedules.sync(rows, owner=owner, prune=True)
    return {one.schedule_id: str(one.result) for one in changes}


def runs(schedule_id: str, first: datetime, last: datetime) -> set[str]:
    """The ids of the occurrences of these minutes."""
    minutes = range(minute_of(first), minute_of(last) + 1)
    return {f"{schedule_id}#1#{format_instant(instant_of(minute))}" for minute in minutes}


@pytest.mark.parametrize("at", ["record", "advance", "occurrence"])
def test_fault_42_a_declared_schedule_is_removed_while_its_occurrence_runs(world: World, at: str) -> None:
    """It ends, and its occurrence runs to its end; a second owner changes nothing, nor does the first of others."""
    world.next_tick()
    world.put(taskId="by-hand", **EVERY_RUN)
    world.deliver_stream()
    assert sync(world, declared("removed", "stays")) == {"removed": "create", "stays": "create"}
    assert sync(world, declared("theirs"), "other") == {"theirs": "create"}
    first = world.bucket(1).instant
    frozen = world.frozen_tick(Fault(at=at, do="freeze before"))
    assert sync(world, declared("stays")) == {"removed": "remove", "stays": "unchanged"}
    wanted = declared("by-hand", "stays", "theirs", overlap="skip")
    conflicts = {"by-hand": "conflict", "stays": "conflict"}
    assert sync(world, wanted, "other") == {**conflicts, "theirs": "change"}
    world.thaw(frozen)
    for _ in range(3):
        world.next_tick()
    rows = world.rows()
    assert {name: rows[name].get("scheduleOwner") for name in ("by-hand", "stays", "theirs")} == {
        "by-hand": None, "stays": "mine", "theirs": "other",
    }  # fmt: skip
    assert (rows["by-hand"]["overlap"], rows["stays"]["overlap"], "removed" in rows) == ("allow", "allow", False)
    expected = runs("removed", first, first)
    for schedule_id in ("by-hand", "stays", "theirs"):
        expected |= runs(schedule_id, first, world.clock())
        world.client.schedules.delete(schedule_id)
    world.note(INSERT, *sorted(expected))
    world.assert_survived(len(expected), repeated=0)
    assert world.executed() == expected


def test_fault_42_two_owners_declare_the_same_ids_at_once(world: World) -> None:
    """Each id is of one of them, who created it, and the answer to the other one says so."""
    ids = [f"s{n:02d}" for n in range(30)]
    owners = ("mine", "other")

    def deploy(owner: str) -> dict[str, str]:
        changes = TaskClient(world.store, clock=world.clock).schedules.sync(
            declared(*ids, payload={"owner": owner}), owner=owner, prune=True
        )
        return {one.schedule_id: str(one.result) for one in changes}

    with ThreadPoolExecutor(2) as pool:
        results = dict(zip(owners, pool.map(deploy, owners), strict=True))
    rows = world.rows()
    for schedule_id in ids:
        of = str(rows[schedule_id]["scheduleOwner"])
        assert rows[schedule_id]["payload"] == {"owner": of}
        assert {owner: results[owner][schedule_id] for owner in owners} == {
            owner: "create" if owner == of else "conflict" for owner in owners
        }
    for owner in owners:
        sync(world, [], owner)
    assert world.rows() == {}
    world.assert_survived(0)


def test_fault_42_answers_of_a_deployment_are_lost(world: World) -> None:
    """The SDK sends the write again, and it is known for its own."""
    world.next_tick()
    seam = Seam()
    steps = [("put", declared("s"), "create"), ("other", declared("s", timeoutSeconds=60), "change"),
             ("delete", [], "remove")]  # fmt: skip
    with seam.installed():
        for kind, rows, result in steps:
            seam.arm([Fault(at=kind, do="lose response")])
            assert sync(world, rows) == {"s": result}
            assert set(sync(world, rows).values()) <= {"unchanged"}
    assert seam.hits == {f"lose response @ {kind}": 1 for kind, *_ in steps}
    assert world.rows() == {}
    world.assert_survived(0)

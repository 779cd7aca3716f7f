"""Tasks with limit keys: one key has thousands; the process with the limits lease dies, freezes, or loses the shard or
an answer; the number of shards changes. The verdict judges the limits (tests/sandbox/limits.py)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

import pytest
from tests.faults.conftest import NewWorld
from tests.faults.test_completions import complete
from tests.sandbox.handlers import ACTION
from tests.sandbox.journal import Began
from tests.sandbox.process import Sandbox
from tests.sandbox.seam import Fault
from tests.sandbox.world import AFTER_LEASE, SECOND, TIMEOUT, World

from dynatick.domain.buckets import Bucket, Grid
from dynatick.domain.instants import format_instant
from dynatick.engine.cursor import cursor_id
from dynatick.engine.limits import limits_id
from dynatick.store.codec import encode

FLOOD, OTHERS = 300, 100  # tasks of one key, and keys of one task
TICK = timedelta(minutes=1)
Task = tuple[str, str, Mapping[str, Any]]  # its id, its limit key, and what it is made of beside


def keyed_world(new_world: NewWorld, **settings: str) -> World:
    return new_world(DYNATICK_KEY_LIMITS="tenant=1,pair=2", **settings)


def insert(world: World, tasks: Iterable[Task], *, shards: int | None = 1, minutes: int = 1) -> None:
    """Raw rows, due at one of the next ticks, in the shards of their keys; ``shards`` None: all in the first one."""
    grid, bucket = Grid(shard_count=shards or 1), world.bucket(minutes)
    at = {"dueAt": format_instant(bucket.instant), "createdAt": format_instant(world.clock())}
    common = {"action": ACTION, "status": "scheduled", "attempt": 0, "run": 1, **at}
    rows = [
        {"taskId": task_id, "limitKey": key, "taskDateTime": str(Bucket(bucket.minute, shard)), **common, **more}
        for task_id, key, more in tasks
        for shard in [0 if shards is None else grid.shard_of(key)]
    ]
    for n in range(0, len(rows), 25):
        some = rows[n : n + 25]
        world.dynamodb.batch_write_item(
            RequestItems={world.table: [{"PutRequest": {"Item": encode(row)}} for row in some]}
        )
    world.note_inserts(rows)


def many(key: str, number: int, name: str = "", **more: Any) -> list[Task]:
    return [(f"{name or key}-{n:05d}", key, more) for n in range(number)]


def flood(scale: int) -> list[Task]:
    """The index lists those of one key before all others."""
    return [
        *many("tenant:flood", FLOOD * scale, "a-flood"),
        *(one for n in range(OTHERS) for one in many(f"tenant:{n:03d}", 1, f"b-other-{n:03d}")),
        *many("pair:a", 20, "c-pair", payload={"seconds": 0.01}),
    ]


def begun(world: World) -> list[Began]:
    return world.journal.of(Began)


def assert_no_other_was_delayed(attempts: list[Began]) -> None:
    """The tasks of other keys have begun within a tick, and before those of the large one had ended."""
    others = [one for one in attempts if one.task_id.startswith("b-other")]
    assert others
    assert others[-1].at - attempts[0].at < TICK.total_seconds()
    before = attempts[: attempts.index(others[-1])]
    assert sum(one.task_id.startswith("a-flood") for one in before) < FLOOD / 2


def test_fault_37_one_key_has_thousands_of_tasks_and_the_holder_of_the_limits_lease_dies(
    new_world: NewWorld, scale: int
) -> None:
    world = keyed_world(new_world)
    insert(world, flood(scale))
    assert world.next_tick(faults=[Fault(at="record", do="kill before")]).what == "killed"
    died = begun(world)
    assert died

    # No other process runs any of them before its hard end, though it holds the shard.
    world.insert_soon(["without a key"])
    assert world.next_tick().what == "returned"
    assert [one.task_id for one in begun(world)[len(died) :]] == ["without a key"]

    world.clock.forward(seconds=AFTER_LEASE)
    assert world.next_tick().what == "returned"
    after = begun(world)[len(died) + 1 :]
    assert {one.task_id for one in after if one.task_id.startswith("b-other")} >= (
        {f"b-other-{n:03d}-00000" for n in range(OTHERS)} - {one.task_id for one in died}
    )
    # What the other had claimed is reclaimed alone, when nothing else of the pass runs.
    assert_no_other_was_delayed([one for one in after if one.attempt == 1])
    world.assert_survived()


@pytest.mark.parametrize("at", ["acquire limits", "release limits", "hold limits"])
@pytest.mark.parametrize("do", ["lose response", "throttle", "fail before", "kill before", "kill after"])
def test_fault_37_a_write_of_the_limits_record_fails_or_has_no_answer(new_world: NewWorld, at: str, do: str) -> None:
    world = keyed_world(new_world)
    insert(world, [*many("tenant:a", 5), *many("pair:a", 5), ("later", "tenant:a", {"payload": {"later": 600}})])
    outcome = world.next_tick(faults=[Fault(at=at, do=do)])
    if do.startswith("kill"):
        assert outcome.what == "killed"
        world.clock.forward(seconds=AFTER_LEASE)
    else:
        assert (outcome.what, outcome.hit) == ("returned", 1)
    for _ in range(3):
        world.next_tick()
    complete(world, "later")
    world.assert_survived()


@pytest.mark.parametrize(("at", "do"), [("claim", "kill after"), ("extract", "kill after"), ("record", "kill before")])
def test_fault_37_the_holder_dies_while_packs_of_keys_are_open(new_world: NewWorld, at: str, do: str) -> None:
    """Beside tasks of the same keys, and a member that is attempted again."""
    world = keyed_world(new_world)
    world.next_tick()  # so that the classes are known
    for name, key in (("one", "tenant:a"), ("two", "pair:a")):
        plans = [{"failures": 1} if n == 3 else {"seconds": 0.005} for n in range(20)]
        world.load_batch(name, plans, limit_key=key)
    insert(world, [*many("tenant:a", 10, "task-a"), *many("pair:a", 10, "task-b")])
    assert world.next_tick(faults=[Fault(at=at, do=do)]).what == "killed"
    world.clock.forward(seconds=AFTER_LEASE)
    world.assert_survived()
    of_batch = [one for one in begun(world) if one.limit_key == "tenant:a" and one.task_id.startswith("one/")]
    assert len({one.task_id for one in of_batch}) == 20


def held_by(world: World) -> object:
    return world.row(limits_id(0))["lease"]


def test_fault_37_the_holder_of_the_limits_lease_freezes_and_another_takes_the_shard(new_world: NewWorld) -> None:
    world = keyed_world(new_world)
    insert(world, many("tenant:a", 8))
    frozen = world.frozen_tick(Fault(at="claim", do="freeze after"))
    assert held_by(world) is not None
    world.insert_soon(["without a key"])
    assert world.next_tick().what == "returned"  # its shard lease is over, and the limits lease is not
    assert [one.task_id for one in begun(world)] == ["without a key"]
    world.clock.forward(seconds=AFTER_LEASE)
    assert world.next_tick().what == "returned"
    assert len(begun(world)) == 1 + 8
    frozen.thaw()
    world.end(frozen)
    assert all(one.pid != frozen.pid for one in begun(world))  # what it had claimed does not begin after its end
    world.assert_survived(repeated=0)


def test_fault_37_a_process_that_froze_goes_on_before_its_end(new_world: NewWorld) -> None:
    """Another has taken the shard, and runs nothing of its keys; it ends what it has claimed, and gives the lease
    back."""
    world = keyed_world(new_world)
    insert(world, many("tenant:a", 8))
    frozen = world.frozen_tick(Fault(at="claim", do="freeze after"))
    assert world.next_tick().what == "returned"
    assert not begun(world)
    world.thaw(frozen)
    assert begun(world)
    assert held_by(world) is None
    world.assert_survived(repeated=0)


def test_fault_37_a_process_is_ended_while_a_task_of_a_key_runs_in_it(new_world: NewWorld) -> None:
    """It is frozen within, and ended by Lambda when its time is up."""
    world = keyed_world(new_world)
    insert(world, many("tenant:a", 8))
    frozen = world.frozen_tick(Fault(at="record", do="freeze before"))
    ran = len(begun(world))
    assert ran
    world.next_tick()
    assert len(begun(world)) == ran
    world.kill(frozen)
    world.next_tick()
    assert held_by(world) is not None or len(begun(world)) > ran
    world.clock.forward(seconds=AFTER_LEASE)
    world.assert_survived()


# -- fault 38: the number of shards changes ----------------------------------------------------------------------------


def process(world: World, shards: int, *faults: Fault) -> Sandbox:
    """The pass of the present minute's tick, by a process that was deployed with this number of shards."""
    sandbox = world.sandbox(DYNATICK_SHARD_COUNT=str(shards))
    sandbox.wait_until_ready()
    sandbox.begin(world.event(), timeout=TIMEOUT, faults=faults)
    return sandbox


KEYS = [f"tenant:{n}" for n in range(6)]


def test_fault_38_the_number_of_shards_changes_while_tasks_wait_run_and_are_to_be_completed(
    new_world: NewWorld,
) -> None:
    world = keyed_world(new_world, DYNATICK_SHARD_COUNT="1")
    later = {"payload": {"later": 900}}
    insert(world, [*((f"later-{key}", key, later) for key in KEYS[:2]), *(one for key in KEYS for one in many(key, 6))])
    world.to_next_minute()
    old = process(world, 1, Fault(at="claim", do="freeze after"))
    assert world.end(old).what == "frozen"

    world.deploy(DYNATICK_SHARD_COUNT="4")
    insert(world, (one for key in KEYS for one in many(key, 4, f"next-{key}")), shards=4)
    insert(world, (one for key in KEYS for one in many(key, 3, f"stray-{key}")), shards=None)
    assert world.next_tick().what == "returned"
    assert not begun(world)  # the old process may yet run some
    world.thaw(old)
    for _ in range(2):
        world.next_tick()
    assert {one.task_id for one in begun(world)} >= {f"later-{key}" for key in KEYS[:2]}

    # An old process publishes the old number again, and back, minute by minute; then it becomes two.
    for _ in range(2):
        assert world.end(process(world, 1)).what == "returned"
        assert world.tick().what == "returned"
        world.to_next_minute()
    for key in KEYS[:2]:  # the place is kept, in whatever shard its key is by now
        assert [one.task_id for one in begun(world) if key in one.task_id][-1] == f"later-{key}"
        complete(world, f"later-{key}")
    world.deploy(DYNATICK_SHARD_COUNT="2")
    world.assert_survived(repeated=0)


def test_fault_38_raw_rows_name_the_shard_of_another_key(new_world: NewWorld) -> None:
    world = keyed_world(new_world, DYNATICK_SHARD_COUNT="4")
    world.tick()
    grid, bucket = Grid(shard_count=4), world.bucket(1)
    for n in range(12):
        key = f"pair:{n % 3}"
        wrong = Bucket(bucket.minute, (grid.shard_of(key) + 1 + n % 2) % 4)
        world.put(taskId=f"t{n:02d}", taskDateTime=str(wrong), limitKey=key, payload={"seconds": 0.01})
    world.next_tick()
    world.assert_survived(repeated=0)
    for row in world.rows().values():
        assert Bucket.parse(row["taskDateTime"]).shard == grid.shard_of(str(row["limitKey"]))


# -- before their tick -------------------------------------------------------------------------------------------------


# Before its first record: all of them may be in that one, and then it has ended.
@pytest.mark.parametrize("fault", [Fault(at="claim", do="kill after"), Fault(at="record", do="kill before")])
def test_fault_37_a_woken_pass_dies_between_ticks(new_world: NewWorld, fault: Fault) -> None:
    """It dies while tasks of its keys run, and a later second has been written to its cursor."""
    world = keyed_world(new_world, **SECOND)
    world.to_next_minute()
    tick = world.bucket(2).instant
    for n in range(12):
        due = format_instant(tick + timedelta(seconds=20 if n < 8 else 25))
        world.insert_soon([f"k{n:02d}"], limitKey=f"tenant:{n % 2}", dueAt=due)
    world.deliver_stream()
    for at in (tick - TICK, tick):
        world.clock.to(at)
        assert world.tick().what == "returned"
    first, second = (
        event
        for event, at in sorted(world.wake_ups(), key=lambda one: one[1])
        if "before" in event["dynatick"]["wakeUp"]
    )

    world.clock.to(tick + timedelta(seconds=20))
    body = [{"eventSource": "aws:sqs", "messageId": "1", "body": json.dumps(first)}]
    assert world.invoke({"Records": body}).what == "returned"
    (pass_of_first,) = world.started()
    assert world.invoke(pass_of_first, faults=[fault]).what == "killed"
    died = begun(world)
    assert {one.task_id for one in died} <= {f"k{n:02d}" for n in range(8)}

    world.clock.to(tick + timedelta(seconds=25))
    assert world.wake(second).what == "returned"
    assert world.row(cursor_id(0))["wokenAt"] == format_instant(tick + timedelta(seconds=25))
    assert world.row(limits_id(0))["lease"] is not None
    world.insert_soon(["without a key"], dueAt=format_instant(tick + TICK))
    world.next_tick()
    assert [one.task_id for one in begun(world)[len(died) :]] == ["without a key"]  # what has no key does not wait

    world.clock.forward(seconds=AFTER_LEASE)
    world.next_tick()
    assert {one.task_id for one in begun(world)} == {*(f"k{n:02d}" for n in range(12)), "without a key"}
    assert world.row(cursor_id(0))["wokenAt"] is None
    world.assert_survived()

"""Packs of a batch: whatever happens to them, no member is lost, and its neighbours are repeated once at most."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from itertools import count
from typing import Any, cast

import pytest
from tests.faults.conftest import NewWorld
from tests.sandbox.handlers import ACTION
from tests.sandbox.journal import INSERT, Began
from tests.sandbox.seam import Fault
from tests.sandbox.world import AFTER_LEASE, World

from dynatick import TaskClient, TransitionRefused
from dynatick.domain.packs import Pack, body_id, member_id
from dynatick.engine.ports import Store
from dynatick.errors import InvalidInput
from dynatick.store.dynamodb import DynamoStore

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


@pytest.mark.parametrize("retries", [1, 2])
def test_fault_33_a_member_kills_its_process(world: World, retries: int) -> None:
    """It fails when its attempts are used up. Its neighbours get rows too, and run again beside it as tasks do: none of
    them has its last attempt while it runs."""
    policy = {"maximumRetryAttempts": retries, "minBackoffSeconds": 0}
    members = world.insert_batch("news", plans(m20={"kill": True}), retryPolicy=policy)
    assert world.next_tick().what == "killed"
    for _ in range(12):
        world.clock.forward(seconds=AFTER_LEASE)
        world.next_tick()
    world.clock.forward(seconds=AFTER_LEASE)
    world.assert_survived(failed=1)
    attempts = Counter(began.task_id for began in world.journal.of(Began))
    assert attempts[members[20]] == retries + 1
    assert max(attempts.values()) == retries + 1


class CutOffError(BaseException):
    """The loader's process ends here; nothing handles it."""


class CutStore:
    """The table of a loader that dies at one of its writes, before or after it took effect."""

    def __init__(self, store: DynamoStore, write: int, *, after: bool) -> None:
        self._store, self._left, self._after = store, write, after

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        return partial(self._write, method) if name in ("create", "create_many", "write", "write_many") else method

    def _write(self, method: Callable[..., object], *arguments: Any, **more: Any) -> object:
        self._left -= 1
        if self._left == 0 and not self._after:
            raise CutOffError
        answer = method(*arguments, **more)
        if self._left == 0:
            raise CutOffError
        return answer


def test_fault_34_loading_is_cut_off_and_repeated(world: World) -> None:
    """At each of its writes: the row of the batch, the number of members, bodies, packs, the seal."""
    cut_off = 0
    for after in (False, True):
        for write in count(1):
            client = TaskClient(cast(Store, CutStore(world.store, write, after=after)), clock=world.clock)
            batch_id = f"news/{write}-{after}"
            try:
                world.load_batch(batch_id, plans(7, m3={"failures": 1}), client=client)
                break
            except CutOffError:
                cut_off += 1
                world.load_batch(batch_id, plans(7, m3={"failures": 1}))
    assert cut_off == 2 * 5
    world.assert_survived(repeated=0)
    assert {row["outcome"] for row in world.batches().values()} == {"completed"}


def test_fault_34_two_load_a_batch_at_once(world: World) -> None:
    payloads = plans(1200)
    with ThreadPoolExecutor(2) as pool:
        clients = [TaskClient(DynamoStore(world.table, endpoint_url=world.tables), clock=world.clock) for _ in range(2)]
        loaded = [
            pool.submit(client.batches.insert, payloads, batch_id="news", action=ACTION, delay=timedelta(seconds=20))
            for client in clients
        ]
        assert {one.result().members for one in loaded} == {1200}
    assert sum(one.result().packs_written for one in loaded) == 3
    members = [member_id("news", n) for n in range(1200)]
    world.note(INSERT, *members)
    world.assert_survived(executed=1200, repeated=0)


def test_fault_34_a_malformed_payload_far_in(world: World) -> None:
    """It is refused with its number, before anything of its pack is written; the same call goes on without it."""
    payloads = plans(1200, m1100={"seconds": float("nan")})
    with pytest.raises(InvalidInput, match=r"payloads\[1100\]"):
        world.load_batch("news", payloads)
    assert sum(pack.span.members for row in world.packs() if (pack := Pack.of(row))) in (0, 500, 1000)
    payloads[1100] = {}
    world.load_batch("news", payloads)
    world.assert_survived(executed=1201, repeated=0)


AT = [(at, do) for at in ("claim", "extract", "record") for do in ("freeze before", "freeze after")]


@pytest.mark.parametrize("change", ["cancel", "reschedule"])
@pytest.mark.parametrize(("at", "do"), AT, ids=[f"{do} {at}" for at, do in AT])
def test_fault_35_a_member_is_changed_while_its_pack_is_at_work(world: World, at: str, do: str, change: str) -> None:
    """Exactly one wins, the client or the tick, and the answer says which."""
    # With ``over``, the batch's own task comes later: the calls are those of the pack.
    members = world.load_batch("news", plans(m7={"failures": 1}, m8={"failures": 1}), over="1m")
    sandbox = world.frozen_tick(Fault(at=at, do=do))
    changed = set[str]()
    for task_id in members[5:10]:
        try:
            if change == "cancel":
                world.cancel(task_id)
            else:
                world.reschedule(task_id, task_date_time=world.bucket(3))
            changed.add(task_id)
        except TransitionRefused as refused:
            assert refused.status in ("running", "completed", "scheduled"), refused
    world.thaw(sandbox)
    assert changed or (at, do) != ("claim", "freeze before") or change != "cancel"
    world.assert_survived(cancelled=len(changed) if change == "cancel" else 0)


def test_fault_35_a_member_is_cancelled_while_its_pack_is_released(new_world: NewWorld) -> None:
    """What has not begun when time is up waits for the next invocation. The others can't be cancelled any more."""
    world = new_world(DYNATICK_TASK_THREADS="2")
    members = world.load_batch("news", plans(**{f"m{n}": {"seconds": 0.25} for n in range(MEMBERS)}), over="1m")
    world.to_next_minute()
    world.invoke(world.event(), timeout=4.0)  # wait: its life; what it starts for the rest comes later
    (pack,) = filter(None, map(Pack.of, world.packs()))
    assert pack.done.bit_count() < MEMBERS, "they take longer than its life; how many ended, depends on the machine"
    changed = set[str]()
    for task_id in [members[0], *(members[n] for n in list(pack.open())[-3:])]:
        try:
            world.cancel(task_id)
            changed.add(task_id)
        except TransitionRefused as refused:
            assert refused.status in ("running", "completed"), refused
    assert (members[0] in changed) is not bool(pack.done & 1)
    world.assert_survived(cancelled=len(changed))


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

"""Packs with limit keys: they get turns, their members places (23)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest
from tests.builders import NOON, InProcess, scheduled_row
from tests.unit.engine.support import RiggedStore
from tests.unit.engine.test_packs import pack_of
from tests.unit.engine.test_turns import BUCKET, LOST, Watched, due, lease_of, rules_of, system_of, task_of, turns_of

from dynatick import CompleteLater, TaskClient
from dynatick.domain.buckets import Bucket, Grid, minute_of
from dynatick.domain.completion import completion_token
from dynatick.domain.conditional_update import ConditionalUpdate
from dynatick.domain.packs import Pack, Span, body_id, packed, payload_text
from dynatick.domain.row import RELEASED
from dynatick.domain.task import Row, Task
from dynatick.engine import limits
from dynatick.engine.limits import KeyTurns, Turns, limits_id
from dynatick.engine.orders import Resume
from dynatick.store.memory import MemoryStore


def put_packs(
    system: InProcess,
    key: str | None,
    members: int,
    *,
    batch_id: str = "news",
    bucket: Bucket | None = None,
    **more: object,
) -> list[str]:
    """The packs of a batch that is due at noon, of at most 500 members each."""
    ids: list[str] = []
    assert isinstance(system.store, MemoryStore)
    shard = system.rules.grid.shard_of(key or "")
    for first in range(0, members, 500):
        texts = [payload_text({"n": n}, n) for n in range(first, min(members, first + 500))]
        ((span, body),) = packed(Span(first, len(texts)), texts)
        ids.append(span.pack_id(batch_id))
        system.store.put({"taskId": body_id(ids[-1]), "body": body, "status": "body", "outcome": "none"})
        pack = Pack(batch_id=batch_id, span=span).to_attribute()
        keyed = {} if key is None else {"limitKey": key}
        where = bucket or Bucket(minute_of(NOON), shard)
        system.store.put(scheduled_row(ids[-1], where, pack=pack, **keyed, **more))
    return ids


def ran(system: InProcess) -> list[str]:
    return [task_id for task_id, _, _ in system.actions.ran]


@pytest.mark.parametrize("in_one_thread", [False, True])
def test_no_more_members_run_at_once_than_the_limit_says(in_one_thread: bool) -> None:
    system = system_of("customer=1", "host=3", takes=0.002, in_one_thread=in_one_thread)
    packs = [*put_packs(system, "customer:1", 30, batch_id="one"), *put_packs(system, "host:a", 30, batch_id="three")]
    free = put_packs(system, None, 30, batch_id="free")
    for n in range(10):
        due(system, f"task-{n}", "customer:1")
    system.tick()
    assert [system.outcome(pack_id) for pack_id in (*packs, *free)] == ["completed"] * 3
    assert len(ran(system)) == len(set(ran(system))) == 100
    assert system.actions.maximum["customer:1"] == 1
    assert system.actions.maximum["host:a"] <= 3
    if not in_one_thread:
        assert system.actions.maximum["host:a"] > 1
    assert system.row(limits_id(0))["lease"] is None


@pytest.mark.parametrize("in_one_thread", [False, True])
def test_a_key_alternates_between_its_tasks_and_its_pack(in_one_thread: bool) -> None:
    """However many of either there are."""
    system = system_of("customer=1", in_one_thread=in_one_thread, threads=4)
    for n in range(200):
        due(system, f"task-{n:03}", "customer:1")
    put_packs(system, "customer:1", 200)
    system.tick()
    kinds = [task_id[:4] for task_id in ran(system)]
    assert Counter(kinds) == {"task": 200, "news": 200}
    for start in range(20, 300, 20):
        assert 5 <= kinds[start : start + 20].count("news") <= 15


def test_a_batch_of_a_key_delays_no_other_key_and_no_other_batch() -> None:
    system = system_of("tenant=1", takes=0.001, threads=2)
    flood = put_packs(system, "tenant:flood", 1_500, batch_id="a-flood")
    put_packs(system, "tenant:other", 20, batch_id="b-other")
    put_packs(system, None, 20, batch_id="c-free")
    for n in range(20):
        due(system, f"d-{n:02}", f"tenant:{n}")
    system.tick()
    order = ran(system)
    last_of = {name: max(i for i, one in enumerate(order) if one.startswith(name)) for name in ("a", "b", "c", "d")}
    assert max(last_of[name] for name in "bcd") < 400
    assert [system.outcome(pack_id) for pack_id in flood] == ["completed"] * 3


def test_one_pack_of_a_key_is_open_at_a_time() -> None:
    """If the process dies, each member of what it has open gets a row."""
    system = system_of("tenant=2", threads=8)
    packs = put_packs(system, "tenant:a", 1_500)
    seen: set[int] = set()

    def note(*_: object) -> None:
        seen.add(sum(system.row(pack_id)["status"] == "running" for pack_id in packs))

    for n in range(0, 1_500, 50):
        system.actions.behaviour[f"news/{n:09}"] = note
    system.tick()
    assert seen == {1}
    assert [system.outcome(pack_id) for pack_id in packs] == ["completed"] * 3


def test_only_so_many_packs_are_open_in_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_OPEN_PACKS", 3)
    system = system_of("tenant=1", in_one_thread=True)
    packs = [put_packs(system, f"tenant:{n}", 5, batch_id=f"b{n}")[0] for n in range(10)]
    seen: list[int] = []

    def note(*_: object) -> None:
        seen.append(sum(system.row(pack_id)["status"] == "running" for pack_id in packs))

    for n in range(10):
        system.actions.behaviour[f"b{n}/000000001"] = note
    system.tick()
    assert max(seen) == 3
    assert [system.outcome(pack_id) for pack_id in packs] == ["completed"] * 10


def test_a_member_that_does_not_complete_is_attempted_again_with_its_key() -> None:
    system = system_of("customer=1", in_one_thread=True)
    ((pack_id),) = put_packs(system, "customer:1", 5, retryPolicy={"maximumRetryAttempts": 2, "minBackoffSeconds": 0})
    attempts: list[int] = []

    def fails_once(task: Task, *_: object) -> None:
        attempts.append(task.attempt)
        if len(attempts) == 1:
            raise ValueError("not yet")

    system.actions.behaviour["news/000000002"] = fails_once
    system.tick()
    row = system.row("news/000000002")
    assert (row["status"], row["limitKey"], row["attempt"]) == ("scheduled", "customer:1", 1)
    assert system.outcome(pack_id) == "completed"
    system.next_tick()
    assert (system.outcome("news/000000002"), attempts) == ("completed", [1, 2])


def test_while_another_process_has_the_lease_no_member_begins() -> None:
    system = system_of("customer=1", in_one_thread=True)
    (pack_id,) = put_packs(system, "customer:1", 5)
    lease = lease_of(system, "other", minutes=10)
    lease.acquire()
    system.tick()
    assert (ran(system), system.row(pack_id)["status"]) == ([], "scheduled")
    lease.release({})
    system.next_tick()
    assert system.outcome(pack_id) == "completed"


def test_a_pack_in_the_shard_of_another_key_is_placed_and_not_run_there() -> None:
    system = system_of("customer=1", grid=Grid(shard_count=8), in_one_thread=True)
    own = system.rules.grid.shard_of("customer:1")
    (pack_id,) = put_packs(system, "customer:1", 3, bucket=Bucket(minute_of(NOON), (own + 1) % 8))
    system.tick()
    assert (ran(system), system.row(pack_id)["status"]) == ([], "scheduled")
    assert Bucket.parse(system.row(pack_id)["taskDateTime"]).shard == own
    system.next_tick()
    assert system.outcome(pack_id) == "completed"


def test_the_members_of_a_rate_begin_in_its_intervals() -> None:
    """On a clock that stands still in a pass, one in each; what waits is not claimed meanwhile."""
    system = system_of("mail=2/m", in_one_thread=True)
    (pack_id,) = put_packs(system, "mail:x", 3)
    system.tick()
    assert len(ran(system)) == 1
    row = system.row(pack_id)
    assert (row["status"], row["leaseUntil"], pack_of(system, pack_id).done) == ("running", RELEASED, 0b1)
    system.clock.forward(seconds=20)
    assert len(system.tick()) == 1  # no continuation: it could not begin anything either
    assert len(ran(system)) == 1
    system.ticks(3)
    assert (system.outcome(pack_id), len(ran(system))) == ("completed", 3)


def test_a_member_that_waits_for_a_completion_keeps_its_place() -> None:
    system = system_of("customer=1", in_one_thread=True)
    (pack_id,) = put_packs(system, "customer:1", 3)
    system.actions.behaviour["news/000000000"] = lambda *_: CompleteLater(within=timedelta(hours=1))
    system.tick()
    assert (ran(system), system.row("news/000000000")["status"]) == (["news/000000000"], "waiting")
    assert system.row(pack_id)["leaseUntil"] == RELEASED
    system.next_tick()
    assert len(ran(system)) == 1
    token = completion_token(str(system.row("news/000000000")["lease"]), "news/000000000")
    TaskClient(system.store, clock=system.clock).complete(token)
    system.next_tick()
    assert (system.outcome(pack_id), len(ran(system))) == ("completed", 3)


def test_a_member_whose_row_got_no_answer_has_one_before_its_pack_waits_for_its_turn_again() -> None:
    """It was handed over, so it has the place. Without a row it would begin again with its pack."""
    store = RiggedStore()
    system = InProcess(store=store, rules=rules_of("customer=1", in_one_thread=True), actions=Watched(0.0))
    (pack_id,) = put_packs(system, "customer:1", 3, retryPolicy={"maximumRetryAttempts": 1})
    handed = "news/000000000"
    system.actions.behaviour[handed] = lambda *_: CompleteLater(within=timedelta(hours=1))
    asked: list[str] = []

    def refuses_twice(change: ConditionalUpdate) -> bool:
        is_refused = change.task_id == handed and len(asked) < 2
        asked.extend([handed] * is_refused)
        return is_refused

    store.throttled = refuses_twice
    system.tick()
    assert (len(asked), ran(system)) == (2, [handed])
    assert (system.row(handed)["status"], pack_of(system, pack_id).extracted) == ("running", 0b1)
    assert system.row(pack_id)["leaseUntil"] == RELEASED
    del system.actions.behaviour[handed]
    system.ticks(20)
    assert Counter(ran(system)) == {handed: 2, "news/000000001": 1, "news/000000002": 1}
    assert sorted(attempt for task_id, _, attempt in system.actions.ran if task_id == handed) == [1, 2]
    assert system.outcome(pack_id) == "completed"


def test_a_member_that_is_being_handed_over_keeps_its_place() -> None:
    """It has no row yet when its place is written."""
    system = system_of("customer=2")
    lease = lease_of(system, "mine")
    turns = turns_of(system, lease)
    pack = open_pack(turns, "news/000000000-000000004", "customer:1")
    first, second = (replace(task_of(f"news/00000000{n}", "customer:1"), lease=f"token/{n}") for n in range(2))
    for member in (first, second):
        assert turns.begins_member(pack, member.task_id, tasks_may=True)
        assert turns.hold([member])
        turns.look_at_held()
        assert turns.has_place("news/000000000")
        if member is first:
            waiting = {"status": "waiting", "leaseUntil": "2026-12-31T20:00:00Z"}
            due(system, first.task_id, "customer:1", lease=first.lease, **waiting)
        turns.is_handed_over(member)
    assert set(lease.held) == {first.task_id, second.task_id}
    assert turns.has_place(second.task_id)
    turns.look_at_held()  # the row of the second was not created
    assert (set(lease.held), turns.has_place(second.task_id)) == ({first.task_id}, False)


def test_a_member_that_there_is_no_time_for_gives_its_place_back() -> None:
    """Else the next invocation would wait for the lease."""
    system = system_of("customer=1", in_one_thread=True)
    (pack_id,) = put_packs(system, "customer:1", 2)
    due(system, "task", "customer:1")
    system.actions.timeouts["news/000000000"] = 90

    def takes_long(*_: object) -> None:
        system.clock.forward(seconds=40)

    system.actions.behaviour["task"] = takes_long
    first, following = system.tick()
    assert first.passed is not None and following.passed is not None
    assert (first.passed.released, following.passed.released) == (2, 0)
    assert ran(system) == ["task", "news/000000000", "news/000000001"]
    assert system.outcome(pack_id) == "completed"


def test_of_a_pack_that_a_dead_process_had_no_member_begins_again_with_it() -> None:
    system = system_of("customer=1", in_one_thread=True)
    (pack_id,) = put_packs(system, "customer:1", 5, **LOST)
    due(system, "task", "customer:1")
    system.tick()
    assert (ran(system), system.outcome(pack_id)) == (["task"], "completed")
    rows = [system.row(f"news/{n:09}") for n in range(5)]
    assert {(row["status"], row["limitKey"], row["attempt"]) for row in rows} == {("running", "customer:1", 1)}


# -- turns alone -------------------------------------------------------------------------------------------------------


def pack_task(pack_id: str, key: str, *, attempt: int = 1) -> Task:
    return replace(task_of(pack_id, key), attempt=attempt)


def open_pack(turns: KeyTurns, pack_id: str, key: str) -> Task:
    """Lets a pack wait, and opens it."""
    assert turns.offer(BUCKET, pack_id, key)
    assert [task_id for _, task_id in turns.take(25)] == [pack_id]
    pack = pack_task(pack_id, key)
    assert turns.opens(pack)
    return pack


def members_of(batch_id: str) -> Iterator[str]:
    return (f"{batch_id}/{n:09}" for n in range(500))


PACK = "000000000-000000499"


def test_a_pack_has_no_place_and_its_members_have() -> None:
    turns = turns_of(system_of("customer=2"))
    pack, members = open_pack(turns, f"a/{PACK}", "customer:1"), members_of("a")
    assert not turns.has_place(f"a/{PACK}")
    assert [turns.begins_member(pack, next(members), tasks_may=True) for _ in range(3)] == [True, True, False]
    turns.freed(task_of("a/000000001", "customer:1"))
    assert turns.begins_member(pack, "a/000000002", tasks_may=True)


def test_tasks_and_the_open_pack_of_a_key_alternate() -> None:
    turns = turns_of(system_of("customer=1"))
    pack, members = open_pack(turns, f"a/{PACK}", "customer:1"), members_of("a")
    for n in range(9):
        turns.offer(BUCKET, f"task-{n}", "customer:1")
    begun: list[str] = []
    for _ in range(6):
        member = next(members)
        if turns.begins_member(pack, member, tasks_may=True):
            begun.append(member)
        else:
            begun += [task_id for _, task_id in turns.take(25)]
        turns.freed(task_of(begun[-1], "customer:1"))
    assert [task_id[:1] for task_id in begun] == ["t", "a", "t", "a", "t", "a"]


def test_a_pack_waits_for_no_task_that_can_not_be_claimed() -> None:
    turns = turns_of(system_of("customer=1"))
    pack = open_pack(turns, f"a/{PACK}", "customer:1")
    turns.offer(BUCKET, "task", "customer:1")
    assert not turns.begins_member(pack, "a/000000000", tasks_may=True)
    assert turns.begins_member(pack, "a/000000000", tasks_may=False)


def test_of_a_key_with_an_open_pack_one_task_has_its_turn_at_once() -> None:
    turns = turns_of(system_of("customer=4"))
    pack = open_pack(turns, f"a/{PACK}", "customer:1")
    for n in range(4):
        turns.offer(BUCKET, f"task-{n}", "customer:1")
    assert [task_id for _, task_id in turns.take(25)] == ["task-0"]
    assert turns.begins_member(pack, "a/000000000", tasks_may=True)
    assert [task_id for _, task_id in turns.take(25)] == ["task-1"]


def test_the_next_pack_of_a_key_waits_until_the_first_is_freed() -> None:
    turns = turns_of(system_of("customer=4"))
    first = open_pack(turns, f"a/{PACK}", "customer:1")
    assert turns.offer(BUCKET, f"b/{PACK}", "customer:1")
    assert (turns.take(25), turns.offer(BUCKET, f"a/{PACK}", "customer:1")) == ([], False)
    assert not turns.opens(pack_task(f"b/{PACK}", "customer:1"))  # another process may have claimed it
    turns.freed(first)
    assert [task_id for _, task_id in turns.take(25)] == [f"b/{PACK}"]


def test_of_a_key_no_more_than_a_few_packs_wait_in_memory_and_hold_up_no_task() -> None:
    turns = turns_of(system_of("customer=1"))
    packs = [f"a/{n:09}-{n + 499:09}" for n in range(0, 15_000, 500)]
    assert [turns.offer(BUCKET, pack_id, "customer:1") for pack_id in packs] == [True] * 20 + [False] * 10
    assert turns.offer(BUCKET, "task", "customer:1")
    assert turns.to_read_on() is None
    for _ in range(17):
        for _, task_id in turns.take(1):
            turns.freed(task_of(task_id, "customer:1"))
    assert turns.to_read_on() == ("customer:1", Resume(BUCKET.minute, packs[20][:-1]))


def test_a_key_whose_pack_found_no_room_comes_before_the_next_pack_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_OPEN_PACKS", 1)
    turns = turns_of(system_of("customer=1"))
    first = open_pack(turns, f"a/{PACK}", "customer:1")
    turns.offer(BUCKET, f"b/{PACK}", "customer:1")
    turns.offer(BUCKET, f"c/{PACK}", "customer:2")
    assert turns.take(25) == []
    turns.freed(first)
    assert [task_id for _, task_id in turns.take(25)] == [f"c/{PACK}"]


def test_what_only_has_the_id_of_a_pack_has_a_place() -> None:
    turns = turns_of(system_of("customer=1"))
    turns.offer(BUCKET, f"a/{PACK}", "customer:1")
    assert len(turns.take(25)) == 1
    assert turns.admits(task_of(f"a/{PACK}", "customer:1"))
    assert turns.has_place(f"a/{PACK}")
    turns.offer(BUCKET, "task", "customer:1")
    assert turns.take(25) == []


def test_a_pack_that_is_open_keeps_its_pass() -> None:
    system = system_of("customer=1")
    turns = turns_of(system)
    pack = open_pack(turns, f"a/{PACK}", "customer:1")
    assert turns.goes_on_until(NOON)
    turns.freed(pack)
    assert not turns.goes_on_until(NOON)


def test_a_process_without_the_lease_opens_no_pack() -> None:
    system = system_of("customer=1")
    pack = pack_task(f"a/{PACK}", "customer:1")
    assert not Turns(system.rules.key_limits).opens(pack)
    assert Turns(system.rules.key_limits).opens(replace(pack, limit_key=None))
    lease_of(system, "other").acquire()
    assert not turns_of(system).opens(pack)


def test_after_the_lease_was_given_back_no_member_begins() -> None:
    turns = turns_of(system_of("customer=1"))
    pack = open_pack(turns, f"a/{PACK}", "customer:1")
    turns.end()
    assert not turns.begins_member(pack, "a/000000000", tasks_may=False)


def test_a_member_with_the_id_of_a_task_that_has_a_place_waits() -> None:
    turns = turns_of(system_of("customer=2"))
    pack = open_pack(turns, f"a/{PACK}", "customer:1")
    assert turns.admits(task_of("a/000000000", "customer:1"))
    assert not turns.begins_member(pack, "a/000000000", tasks_may=True)


# -- packs that wait in vain -------------------------------------------------------------------------------------------


def test_a_pack_whose_key_has_no_place_is_released_and_waits_for_its_turn() -> None:
    """A task that takes long has the place. If the process dies meanwhile, no member needs a row."""
    system = system_of("customer=1")
    (pack_id,) = put_packs(system, "customer:1", 30)
    due(system, "task-1", "customer:1")
    due(system, "task-2", "customer:1")
    seen: list[object] = []

    def takes_long(*_: object) -> None:
        while len(seen) < 60 and RELEASED not in seen:
            seen.append(system.row(pack_id).get("leaseUntil"))
            time.sleep(0.02)  # wait: until the pack is released
            system.clock.forward(seconds=1)

    system.actions.behaviour["task-2"] = takes_long  # it begins between the opening of the pack and its first member
    system.tick()
    assert len(seen) > 10 and seen[-1] == RELEASED
    assert system.outcome(pack_id) == "completed"
    assert len(ran(system)) == len(set(ran(system))) == 32


def test_a_row_of_a_pack_has_its_key() -> None:
    row: Row = scheduled_row(f"a/{PACK}", BUCKET, limitKey="customer:1")
    in_common = Pack(batch_id="a", span=Span(0, 500)).in_common(row)
    assert in_common["limitKey"] == "customer:1"

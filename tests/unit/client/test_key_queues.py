"""What waits for which limit key: `explain`, `status`, the doctor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import pytest
from tests.builders import NOON, scheduled_row
from tests.unit.engine.support import World, bucket_at, world

from dynatick import TaskClient
from dynatick.client import key_queues
from dynatick.client.operations import KeyLoad
from dynatick.domain import attributes as attr
from dynatick.domain.batches import BATCH_ACTION, Batch
from dynatick.domain.buckets import Bucket, Grid
from dynatick.domain.limit_keys import parse_limits
from dynatick.domain.normalise import Defaults
from dynatick.domain.packs import Pack, Span
from dynatick.domain.row import RELEASED
from dynatick.engine.limits import Held, LimitsRecord, limits_id
from dynatick.engine.reconcile import Kind
from dynatick.engine.rules import Rules

KEY = "customer:4711"


@dataclass
class Keyed:
    """An installation with limits by key at 12:01:05, and the client on it."""

    world: World
    client: TaskClient

    def put(self, task_id: str, key: str | None = KEY, minutes: int = 1, **more: object) -> None:
        keyed = {} if key is None else {attr.LIMIT_KEY: key}
        self.world.store.put(
            scheduled_row(task_id, bucket_at(minutes), dueAt="2026-12-31T12:01:00.000Z", **keyed, **more)
        )

    def run(self, task_id: str, key: str = KEY, seconds: int = 0, minutes: int = 1, **more: object) -> None:
        started = f"2026-12-31T12:01:{seconds:02}.000Z"
        until = {"leaseUntil": "2026-12-31T12:15:00.000Z", "status": "running"} | more
        self.put(task_id, key, minutes, startedAt=started, lease="token", attempt=1, **until)

    def record(self, **values: object) -> None:
        self.world.store.put({attr.TASK_ID: limits_id(0), **LimitsRecord(shard=0, version=1, **values).to_row()})

    def explain(self, task_id: str) -> str:
        return self.client.operations.explain(task_id).sentence.removeprefix(f"{task_id} is due since ")


def keyed(*limits: str, **grid: int) -> Keyed:
    rules = Rules(grid=Grid(**grid), defaults=Defaults(key_limits=parse_limits(limits)))
    made = world(rules=rules)
    made.tick()
    made.clock.to(NOON + timedelta(seconds=65))
    return Keyed(made, TaskClient(made.store, clock=made.clock))


def at(minutes: int, seconds: int = 0) -> datetime:
    return NOON + timedelta(minutes=minutes, seconds=seconds)


def test_a_task_waits_for_those_of_its_key_that_run_and_that_come_before_it() -> None:
    one = keyed("customer=1")
    one.run("a")
    for name in "bcde":
        one.put(name)
        one.put(f"{name}-of-another", "customer:1")
    one.put("ended", outcome="completed", status="completed")
    assert one.explain("e") == (
        "2026-12-31T12:01:00Z and waits for its key: customer:4711 has 1 of 1 running (a, since "
        "2026-12-31T12:01:00Z); 3 wait before it"
    )
    assert one.explain("b").endswith("(a, since 2026-12-31T12:01:00Z); it is the next")
    assert one.explain("c").endswith("; 1 waits before it")


def put_pack(one: Keyed, members: int, *, batch_id: str = "news", **more: object) -> str:
    """A pack with this number of members, of which the first has completed."""
    span = Span(0, members)
    one.put(span.pack_id(batch_id), pack=Pack(batch_id=batch_id, span=span, done=1).to_attribute(), **more)
    batch = Batch(action="log", due_at=NOON, members=members, total=members)
    one.world.store.put(scheduled_row(batch_id, bucket_at(1), action=BATCH_ACTION, payload=batch.to_payload()))
    return span.pack_id(batch_id)


def test_the_members_of_a_pack_are_counted() -> None:
    one = keyed("customer=1")
    pack_id = put_pack(one, 10)
    one.put("z")
    assert one.explain("z").endswith("its key: 9 of customer:4711 wait before it")
    assert one.explain(pack_id).startswith("2026-12-31T12:01:00Z")
    assert one.explain("news/000000004").endswith("its key: 3 of customer:4711 wait before it")
    (load,) = one.client.operations.status().keys
    assert (load.waiting, load.running) == (11, 0)


def test_an_open_pack_alternates_with_the_tasks_of_its_key() -> None:
    one = keyed("customer=1")
    running = {"status": "running", "lease": "token", "leaseUntil": "2026-12-31T12:15:00.000Z", "attempt": 1}
    pack_id = put_pack(one, 10, **running, startedAt="2026-12-31T12:01:00.000Z")
    one.put("z")
    assert one.explain("z") == (
        "2026-12-31T12:01:00Z and waits for its key: its turns alternate with those of members of news; it is the next"
    )
    sentence = (
        "runs, or waits for its turn: since 2026-12-31T12:01:00Z members of its pack begin as customer:4711 has places "
        "for them"
    )
    for task_id in (pack_id, "news/000000004"):
        assert one.explain(task_id) == f"{task_id} {sentence}"
    put_pack(one, 10, **(running | {"leaseUntil": RELEASED}))
    assert one.explain("news/000000004").endswith("waits with its pack for a turn of customer:4711")


def test_one_that_waits_where_its_turn_is_expected_says_when() -> None:
    one = keyed("customer=2")
    one.run("a", seconds=2)
    one.run("b", seconds=1)
    one.put("c")
    one.put("d", minutes=9)
    assert one.explain("d") == (
        "2026-12-31T12:01:00Z and waits for its key: customer:4711 has 2 of 2 running (b, since 2026-12-31T12:01:01Z "
        "and 1 more); 1 waits before it; its turn is expected at 2026-12-31T12:09:00Z"
    )


def test_a_task_that_waits_for_a_completion_keeps_the_place_of_its_key() -> None:
    one = keyed("customer=1")
    handed_over = {"status": "waiting", "leaseUntil": "2026-12-31T20:00:00.000Z"}
    one.run("handed-over", seconds=3, minutes=480, **handed_over)
    one.put("next")
    one.record(held=(Held("handed-over", KEY, "token"), Held("ended", KEY, "gone"), Held("other", "customer:2", "x")))
    assert "customer:4711 has 1 of 1 running (handed-over, since 2026-12-31T12:01:03Z)" in one.explain("next")


def test_the_limits_of_a_process_that_died_are_held_until_its_end() -> None:
    one = keyed("customer=1")
    one.put("a")
    one.put("b")
    one.record(lease="another", lease_until=at(14, 30))
    assert one.explain("b") == (
        "2026-12-31T12:01:00Z and waits for its key: until 2026-12-31T12:14:30Z the limits of its shard are held by a "
        "process that may have died; 1 waits before it"
    )
    one.world.clock.to(at(3))
    one.world.tick()
    one.put("b", key=None)
    assert "its key" not in one.explain("b")


def test_a_rate_says_when_the_next_may_begin() -> None:
    one = keyed("host=10/m", "mail=4:1/s")
    one.put("a", "host:x")
    one.record(starts={"host:x": at(1, 9)})
    assert one.explain("a") == (
        "2026-12-31T12:01:00Z and waits for its key: at most 10/m of host:x begin, the next at 2026-12-31T12:01:09Z; "
        "it is the next"
    )
    one.put("b", "mail:x")
    assert "key" not in one.explain("b"), "nothing is before it"
    one.put("c", "mail:x")
    assert one.explain("c").endswith("its key: at most 1/s of mail:x begin; 1 waits before it")


def test_more_than_it_reads_are_not_said_to_be_all(monkeypatch: pytest.MonkeyPatch) -> None:
    one = keyed("customer=1")
    monkeypatch.setattr(key_queues, "_MAX_ROWS", 101)
    one.run("a")
    for n in range(150):
        one.put(f"b-{n:03}")
    one.world.rigged.forget()
    assert one.explain("b-140").endswith("; at least 100 wait before it")
    assert one.explain("b-050").endswith("; 50 wait before it")
    monkeypatch.setattr(key_queues, "_MAX_QUERIES", 3)
    monkeypatch.setattr(key_queues, "_PAGE", 20)
    assert one.explain("b-140").endswith("; at least 39 wait before it"), "one bucket is empty"
    monkeypatch.setattr(key_queues, "_MAX_QUERIES", 1)
    assert one.explain("b-140").endswith("its key: not all of customer:4711 that come before it were read")


def test_other_reasons_come_before_its_key_and_after_it() -> None:
    one = keyed("customer=1", "host=2")
    one.run("a")
    one.put("b")
    one.world.clock.to(at(5))
    assert "and waits because no tick has come since" in one.explain("b")
    one.client.operations.pause(reason="a bad night")
    assert "and waits because all is paused" in one.explain("b")
    one.client.operations.resume()
    one.put("c", "host:1", minutes=5)
    assert "its key" not in one.explain("c"), "its key has a place"


def test_a_key_whose_class_has_no_limit_any_more() -> None:
    one = keyed("host=2")
    one.put("a")
    one.put("later", minutes=30, nextAttemptAt="2026-12-31T12:30:00.000Z")
    says = "; its key customer:4711 has no limit, for KeyLimits has no class customer"
    assert one.explain("a") == f"2026-12-31T12:01:00Z: the next tick runs it, at 2026-12-31T12:02:00Z{says}"
    assert one.client.operations.explain("later").sentence.endswith(says)
    assert one.client.operations.doctor().unlimited == {"customer": 2}
    assert one.client.operations.doctor().is_healthy


def test_a_task_in_the_shard_of_another_key_is_placed_first() -> None:
    one = keyed("customer=1", shard_count=4)
    shard = (one.world.rules.grid.shard_of(KEY) + 1) % 4
    one.world.store.put(scheduled_row("stray", Bucket(bucket_at(1).minute, shard), limitKey=KEY))
    assert "its key" not in one.explain("stray")


def loads(found: Sequence[KeyLoad]) -> list[tuple[str, str | None, int, int]]:
    return [(one.key, one.limit, one.waiting, one.running) for one in found]


def test_status_names_the_busiest_keys() -> None:
    one = keyed("customer=1", "host=4:10/s")
    one.run("a")
    for n in range(3):
        one.put(f"b-{n}")
    one.put("put-off", minutes=20)
    one.put("later", minutes=30, nextAttemptAt="2026-12-31T12:30:00.000Z")
    one.put("mail", "gone:1")
    one.put("free", key=None)
    for n in range(6):
        one.put(f"c-{n}", f"host:{n}")
        one.put(f"d-{n}", "host:0")
    one.put("e", "host:1")
    found = one.client.operations.status()
    assert loads(found.keys)[:3] == [("host:0", "4:10/s", 7, 0), (KEY, "1", 4, 1), ("host:1", "4:10/s", 2, 0)]
    assert len(found.keys) == 5
    assert found.to_row()["keys"][1] == {"limitKey": KEY, "limit": "1", "waiting": 4, "running": 1}
    (without,) = [load for load in keyed_status("gone:1") if load.key == "gone:1"]
    assert (without.limit, without.waiting) == (None, 1)
    assert "keys" not in keyed("customer=1").client.operations.status().to_row()


def keyed_status(key: str) -> Sequence[KeyLoad]:
    one = keyed("customer=1")
    one.put("a", key)
    return one.client.operations.status().keys


def test_the_doctor_finds_limits_that_no_tick_acquires() -> None:
    one = keyed("customer=1")
    one.put("a")
    one.record(lease="another", lease_until=at(2))
    one.world.clock.to(at(61))
    assert Kind.LIMITS_STUCK not in one.client.operations.doctor().kinds
    one.world.clock.to(at(63))
    found = one.client.operations.doctor()
    (finding,) = [finding for finding in found.findings if finding.kind is Kind.LIMITS_STUCK]
    assert finding.task_id == limits_id(0)
    assert finding.why == "shard 0: 1 tasks wait for limit keys, and its limits lease ended at 2026-12-31T12:02:00Z"
    assert found.kinds[Kind.LIMITS_STUCK] == 1 and found.found == len(found.findings)
    one.client.operations.pause()
    assert Kind.LIMITS_STUCK not in one.client.operations.doctor().kinds

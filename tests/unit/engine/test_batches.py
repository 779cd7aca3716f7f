"""The task of a batch: it completes when every member has ended, and inserts what follows, once."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from hashlib import sha256
from typing import Any

import pytest
from tests.builders import NOON, InProcess, scheduled_row
from tests.unit.engine.support import raises
from tests.unit.engine.test_packs import put_pack

from dynatick import TaskClient
from dynatick.domain.batches import BATCH_ACTION, Batch, then_id
from dynatick.domain.buckets import Bucket, minute_of
from dynatick.domain.packs import Pack, Span, packed, payload_text
from dynatick.engine import batches
from dynatick.engine.batches import packs_of, standings
from dynatick.errors import PermanentError, RetryableError, StoreError

THEN = {"action": "log", "payload": {"of": "news"}, "delaySeconds": 0}


def put_batch(world: InProcess, members: int | None, **more: Any) -> None:
    payload = Batch(action="log", due_at=NOON, members=members, **more).to_payload()
    row = scheduled_row("news", Bucket(minute_of(NOON)), action=BATCH_ACTION, payload=payload)
    world.store.put(row)  # type: ignore[attr-defined]


def test_what_follows_is_inserted_when_all_have_ended() -> None:
    world = InProcess()
    world.actions.behaviour["news/000000001"] = raises(RetryableError("busy"))
    world.actions.behaviour["news/000000002"] = raises(PermanentError("gone"))
    put_pack(world, [{}] * 4)
    put_batch(world, 4, then=THEN)
    world.tick()
    assert (world.row("news")["status"], world.store.get(then_id("news"))) == ("scheduled", None)
    assert standings(world.store, "news", 4) == {"completed": 2, "open": 1, "failed": 1}
    del world.actions.behaviour["news/000000001"]
    world.ticks(6)
    assert world.outcome("news") == "completed"
    assert world.row("news")["result"] == {"members": 4, "completed": 3, "failed": 1}
    row = world.row(then_id("news"))
    assert row["payload"] == {"of": "news"}
    world.stream(row)
    world.ticks(2)
    assert world.outcome("news/then") == "completed"


def test_a_batch_whose_members_are_not_all_in_waits() -> None:
    world = InProcess()
    put_pack(world, [{}] * 4)
    put_batch(world, None)
    world.tick()
    world.ticks(3)
    assert world.outcome("news") is None
    row = world.row("news")
    world.store.put({**row, "payload": Batch(action="log", due_at=NOON, members=4).to_payload()})  # type: ignore[attr-defined]
    world.ticks(5)
    assert world.row("news")["result"] == {"members": 4, "completed": 4}


@pytest.mark.parametrize("fails", [False, True], ids=["at its turn", "though a turn fails"])
def test_a_batch_takes_as_long_as_its_members_do(fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tasks that are rescheduled end at maximumEventAgeInSeconds, or after many turns."""
    world = InProcess()
    put_batch(world, 4, then=THEN)
    begun = {"turn": Decimal(20_000), "firstStartedAt": "2026-11-30T12:00:00Z"}
    world.store.put({**world.row("news"), **begun})  # type: ignore[attr-defined]
    world.actions.behaviour["news/000000001"] = raises(RetryableError("busy"))
    put_pack(world, [{}] * 4)
    if fails:
        monkeypatch.setattr(batches, "standings", raises(StoreError("throttled")))
    world.tick()
    monkeypatch.undo()
    assert world.row("news")["status"] == "scheduled"
    del world.actions.behaviour["news/000000001"]
    world.ticks(30)
    assert world.outcome("news") == "completed"
    assert world.store.get(then_id("news")) is not None


def test_a_batch_of_none_ends_at_once() -> None:
    world = InProcess()
    put_batch(world, 0, then=THEN)
    world.tick()
    assert world.outcome("news") == "completed"
    assert world.store.get("news/then") is not None


@pytest.mark.parametrize(
    "present",
    [
        {"followUpOf": "news", "payload": {"of": "since then it was given another"}},
        {"followUpOf": "news", "createdAt": "2026-12-31T11:59:57Z"},  # by a clock that is behind
        {"action": "log", "payload": {"of": "news"}},  # by an earlier version
    ],
)
def test_what_follows_is_inserted_once_however_often_the_batch_is_looked_at(present: dict[str, object]) -> None:
    world = InProcess()
    put_batch(world, 0, then=THEN)
    world.store.put({"taskId": "news/then", "status": "completed", "outcome": "completed", **present})  # type: ignore[attr-defined]
    world.tick()
    assert world.outcome("news") == "completed"
    assert world.row("news/then")["outcome"] == "completed"


def test_what_followed_and_has_expired_is_not_inserted_again_after_a_redrive() -> None:
    world = InProcess()
    world.actions.behaviour["news/000000001"] = raises(PermanentError("gone"))
    put_pack(world, [{}] * 2)
    put_batch(world, 2, then=THEN)
    world.tick()
    world.ticks(3)
    assert (world.outcome("news"), world.row("news")["followUps"]) == ("completed", ["news/then"])
    del world.actions.behaviour["news/000000001"]
    client = TaskClient(world.store, clock=world.clock)
    client.batches.redrive("news")
    assert world.row("news")["status"] == "scheduled"
    world.store.delete("news/then")
    world.ticks(5)
    assert (world.outcome("news"), world.row("news")["result"]) == ("completed", {"members": 2, "completed": 2})
    assert (world.store.get("news/then"), world.row("news")["followUps"]) == (None, ["news/then"])


@pytest.mark.parametrize(
    "present",
    [
        {"action": "log", "payload": {"of": "other"}},
        {"followUpOf": "other", "action": "log", "payload": {"of": "news"}},
        # What followed an earlier batch of this id.
        {"followUpOf": "news", "createdAt": "2026-12-30T12:00:00Z"},
        {"action": "log", "payload": {"of": "news"}, "createdAt": "2026-12-30T12:00:00Z"},
    ],
)
def test_a_batch_fails_if_another_task_has_the_id_of_what_follows(present: dict[str, object]) -> None:
    world = InProcess()
    put_batch(world, 0, then=THEN)
    world.store.put({"taskId": "news/then", "status": "completed", "outcome": "completed", **present})  # type: ignore[attr-defined]
    world.tick()
    row = world.row("news")
    assert (row["outcome"], [letter.row["taskId"] for letter in world.dead_letters.letters]) == ("failed", ["news"])
    assert "another task has the id news/then; delete that one, and redrive this one" in str(row["error"])
    client = TaskClient(world.store, clock=world.clock)
    client.delete("news/then")
    client.redrive("news")
    world.ticks(2)
    assert (world.outcome("news"), world.row("news/then")["payload"]) == ("completed", {"of": "news"})


@pytest.mark.parametrize(
    "payload",
    [
        {},
        {"action": "log"},
        {"action": "log", "dueAt": "x", "overSeconds": 0},
        {"action": "log", "dueAt": "2026-12-31T12:00:00Z", "overSeconds": 86401},
    ],
)
def test_a_row_is_no_batch_because_it_says_so(payload: object) -> None:
    world = InProcess()
    world.store.put(scheduled_row("x", Bucket(minute_of(NOON)), action=BATCH_ACTION, payload=payload))  # type: ignore[attr-defined]
    world.tick()
    assert world.outcome("x") == "failed"


def test_halves_of_packs_are_found() -> None:
    world = InProcess()
    payloads = [{"noise": "".join(sha256(f"{n}-{k}".encode()).hexdigest() for k in range(10))} for n in range(100)]
    texts = [payload_text(one, n) for n, one in enumerate(payloads)]
    spans = [span for span, _ in packed(Span(0, 100), texts)]
    assert len(spans) > 1 and sum(span.members for span in spans) == 100
    for span in spans:
        pack = Pack(batch_id="news", span=span)
        world.store.put({"taskId": span.pack_id("news"), "status": "scheduled", "pack": pack.to_attribute()})  # type: ignore[attr-defined]
    assert sorted(pack.span.first for _, pack in packs_of(world.store, "news", 100)) == sorted(
        one.first for one in spans
    )
    assert standings(world.store, "news", 100) == {"open": 100}


def test_a_bucket_counts_members() -> None:
    world = InProcess()
    world.actions.behaviour["news/000000002"] = raises(PermanentError("gone"))
    put_pack(world, [{}] * 4)
    put_pack(world, [{}] * 3, batch_id="waiting", taskDateTime="2026-12-31#12:30", dueAt="2026-12-31T12:30:00Z")
    client = TaskClient(world.store, clock=world.clock)
    world.tick()
    (noon, later) = client.bucket_counts(start=NOON, end=NOON + timedelta(hours=1))
    assert noon.counts == {"completed": 3, "failed": 1}
    assert later.counts == {"scheduled": 3}
    (entry, failed) = client.history("2026-12-31#12:00").entries
    assert (entry.members, failed.task_id) == ({"completed": 3}, "news/000000002")

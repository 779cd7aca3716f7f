"""Batches: any number of tasks of one action, loaded so that the same call goes on where it was."""

from __future__ import annotations

import asyncio
import sys
import types
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

import pytest
from tests.builders import InProcess, key_of, scheduled_row
from tests.unit.client.support import be_first, client_of, examples, fail, fail_for_now, page, released, started
from tests.unit.engine.support import World, bucket_at

from dynatick import (
    BatchDiffers,
    BatchNotFound,
    InvalidInput,
    RetryableError,
    StoreError,
    TaskChanged,
    TaskClient,
    TaskExists,
    TaskNotFound,
    TransitionRefused,
    task,
    use_client,
)
from dynatick.actions.testing import MemoryDeadLetterQueue
from dynatick.client import Changed, ChangeUnknown, ManyResult, Skipped, TaskView, WouldChange, batch_loading, batches
from dynatick.client.async_tasks import AsyncTaskClient
from dynatick.client.batches import BatchCancelled, BatchRedriven, BatchRescheduled
from dynatick.domain.buckets import Bucket, Grid
from dynatick.domain.conditional_update import Written
from dynatick.domain.instants import format_instant
from dynatick.domain.lifecycle import claim, release_claim
from dynatick.domain.packs import Pack, Span, body_id
from dynatick.domain.task import Row
from dynatick.engine.ports import StoreFailure
from dynatick.engine.rules import Rules
from dynatick.testing import VirtualInstallation

AT = "2026-12-31T12:30:00Z"
DAY: dict[str, Any] = {"action": "log", "due_at": AT}
HOUR: dict[str, Any] = {"start": "2026-12-31T12:00:00Z", "end": "2026-12-31T12:45:00Z"}


def numbered(number: int) -> list[dict[str, object]]:
    return [{"n": n} for n in range(number)]


def at(hour: int, minute: int) -> datetime:
    return datetime(2026, 12, 31, hour, minute, tzinfo=UTC)


def rows_of(world: InProcess) -> dict[str, Row]:
    """The rows of packs, bodies and batches."""
    rows = world.store.scan(open_only=False).rows
    return {str(row["taskId"]): row for row in rows if "createdAt" in row and row.get("status") != "change"}


def noise(characters: int, seed: int) -> str:
    """Text that can hardly be compressed."""
    parts = (sha256(f"{seed}-{n}".encode()).hexdigest() for n in range(-(-characters // 64)))
    return "".join(parts)[:characters]


def spans(world: InProcess, batch_id: str = "news") -> list[tuple[int, int]]:
    packs = [pack for row in rows_of(world).values() if (pack := Pack.of(row)) and pack.batch_id == batch_id]
    return sorted((pack.span.first, pack.span.members) for pack in packs)


def run_until(world: World, minute: int) -> None:
    while world.clock().minute < minute:
        world.next_tick()


def break_after(world: World, monkeypatch: pytest.MonkeyPatch, creates: int) -> None:
    """The table answers this number of calls that create rows, and no further one."""
    create, left = world.store.create_many, [creates]

    def create_some(rows: Sequence[Row]) -> Sequence[bool | StoreFailure]:
        left[0] -= 1
        return create(rows) if left[0] >= 0 else [StoreFailure("no answer")] * len(rows)

    monkeypatch.setattr(world.store, "create_many", create_some)


def test_a_batch_runs_each_member_and_then_what_follows(world: World, client: TaskClient) -> None:
    inserted = client.batches.insert(
        numbered(1203), batch_id="news", then={"action": "log", "payload": {"of": "news"}}, subject="campaign:1",
        attributes={"tenant": "t1"}, **DAY,
    )  # fmt: skip
    assert str(inserted) == "news: 1,203 members, due 2026-12-31T12:30:00Z"
    assert (inserted.members, inserted.packs_written) == (1203, 3)
    assert spans(world) == [(0, 500), (500, 500), (1000, 203)]
    assert len({row["createdAt"] for row in rows_of(world).values()}) == 1
    view = client.batches.get("news")
    assert (view.status, view.members, view.counts, view.then) == ("scheduled", 1203, {"open": 1203}, "news/then")
    run_until(world, 33)
    view = client.batches.get("news")
    assert (view.status, view.counts, view.ends_at) == ("completed", {"completed": 1203}, None)
    assert [world.actions.times(f"news/{n:09}") for n in (0, 499, 500, 1202)] == [1, 1, 1, 1]
    world.stream(world.row("news/then"))
    run_until(world, 35)
    assert world.outcome("news/then") == "completed"
    member = client.get("news/000000777")
    assert (member.status, member.payload, member.subject) == ("completed", {"n": 777}, "campaign:1")
    assert (member.attributes, member.attempt, member.row["batchId"]) == ({"tenant": "t1"}, 1, "news")
    assert key_of(member.row) in world.actions.keys


def test_members_are_spread_over_a_time(world: World, client: TaskClient) -> None:
    client.batches.insert(numbered(2000), batch_id="news", over="1h", **DAY)
    due = [row["dueAt"] for task_id, row in sorted(rows_of(world).items()) if "-" in task_id]
    assert due == [f"2026-12-31T{time}:00Z" for time in ("12:30", "12:45", "13:00", "13:15")]
    assert world.row("news")["dueAt"] == "2026-12-31T13:30:00Z"
    view = client.batches.get("news")
    assert (view.due_at.minute, view.last_due_at - view.due_at) == (30, timedelta(hours=1))
    run_until(world, 46)
    view = client.batches.get("news")
    assert view.counts == {"completed": 1000, "open": 1000}
    assert view.ends_at is not None and view.ends_at >= view.last_due_at


@pytest.mark.parametrize(
    ("due_at", "over", "due", "last_bucket"),
    [
        ("2026-12-31T23:50:00Z", "20m", "23:50 23:55 00:00 00:05", "2027-01-01#00:05"),
        # Where clocks go from 02:00 to 03:00 in between, an hour is an hour.
        ("2027-03-28T01:30:00+01:00", "1h", "00:30 00:45 01:00 01:15", "2027-03-28#01:15"),
        # Shorter than a tick: all but the first lie in the bucket of the next one.
        ("2026-12-31T12:30:00Z", "40s", "12:30:00 12:30:10 12:30:20 12:30:30", "2026-12-31#12:31"),
    ],
    ids=["over midnight", "over a change of clocks", "shorter than a tick"],
)
def test_a_batch_over_a_time_goes_on(due_at: str, over: str, due: str, last_bucket: str) -> None:
    world = World()
    world.clock.to(datetime.fromisoformat(due_at).astimezone(UTC) - timedelta(minutes=5))
    world.tick()
    client = client_of(world)
    client.batches.insert(numbered(2000), batch_id="news", action="log", due_at=due_at, over=over)
    packs = [row for task_id, row in sorted(rows_of(world).items()) if "-" in task_id]
    assert [str(row["dueAt"])[11:].startswith(time) for row, time in zip(packs, due.split(), strict=True)] == [True] * 4
    assert packs[-1]["taskDateTime"] == last_bucket
    world.clock.to(Bucket.parse(last_bucket).instant)
    for _ in range(4):
        world.tick()
        world.clock.forward(minutes=1)
    assert client.batches.get("news").counts == {"completed": 2000}
    assert len(world.actions.ran) == 2000


def test_an_iterable_is_read_as_it_is_written(world: World, client: TaskClient) -> None:
    read = []

    def payloads() -> Iterator[Mapping[str, object]]:
        for payload in numbered(60_000):
            read.append(len(spans(world)) if len(read) % 20_000 == 0 else 0)
            yield payload

    assert client.batches.insert(payloads(), batch_id="news", **DAY).members == 60_000
    assert read[40_000] > 0, "packs are in the table before the iterable has ended"
    assert len(spans(world)) == 120


@pytest.mark.parametrize(("ticks", "shards"), [(5, 1), (60, 1), (1, 4)])
def test_a_batch_from_before_the_first_tick_runs_with_whatever_grid_it_has(ticks: int, shards: int) -> None:
    """Its rows lie on minutes and in shard 0 then; the stream or the first tick puts them elsewhere."""
    world = World(rules=Rules(grid=Grid(tick_minutes=ticks, shard_count=shards)))
    client = client_of(world)
    client.batches.insert(numbered(2000), batch_id="news", over="20m", action="log", due_at="2026-12-31T12:03:00Z")
    for row in list(rows_of(world).values()):
        world.stream(row)
    world.next_tick()
    while world.clock() < at(14, 1):
        world.next_tick()
    assert client.batches.get("news").counts == {"completed": 2000}
    assert {world.actions.times(f"news/{n:09}") for n in range(2000)} == {1}


def test_over_a_time_the_number_must_be_known(client: TaskClient) -> None:
    with pytest.raises(InvalidInput, match=r"^total: .* expected the number of payloads"):
        client.batches.insert(iter(numbered(10)), batch_id="news", over="2h", **DAY)
    client.batches.insert(iter(numbered(10)), batch_id="news", over="2h", total=10, **DAY)
    assert client.batches.get("news").counts == {"open": 10}


@pytest.mark.parametrize("given", [9, 11, 499, 501, 1000])
def test_another_number_than_was_said_is_refused(world: World, client: TaskClient, given: int) -> None:
    for total in (10, 500):
        with pytest.raises(InvalidInput, match=f"^payloads: .* expected {total}, as the batch was begun with"):
            client.batches.insert(iter(numbered(given)), batch_id=f"of-{total}", total=total, **DAY)
        assert client.batches.get(f"of-{total}").members is None


def test_one_that_will_not_end_at_its_present_rate_has_no_end(world: World, client: TaskClient) -> None:
    """One member has ended in centuries: at that rate, the others end after the last instant that there is."""
    client.batches.insert(numbered(200), batch_id="news", action="log", due_at="1970-01-01T00:00:00Z")
    client.batches.insert(numbered(200), batch_id="mails", action="log", due_at="2026-12-01T00:00:00Z")
    for batch_id in ("news", "mails"):
        client.cancel(f"{batch_id}/000000007")
    for view in (client.batches.get("news"), *client.batches.list().batches):
        assert view.counts == {"open": 199, "cancelled": 1}
        assert (view.ends_at is None) == (view.batch_id == "news")


def test_a_batch_of_none_ends_at_once(world: World, client: TaskClient) -> None:
    for batch_id, payloads in (("list", []), ("iterator", iter([]))):
        assert client.batches.insert(payloads, batch_id=batch_id, action="log").members == 0
    world.ticks(2)
    for batch_id in ("list", "iterator"):
        view = client.batches.wait(batch_id, timeout=timedelta())
        assert (view.status, view.counts, list(client.batches.members(batch_id))) == ("completed", {}, [])


def test_payloads_that_do_not_fit_into_one_pack_take_several(world: World, client: TaskClient) -> None:
    payloads: list[dict[str, object]] = [{"n": n, "noise": noise(300, n)} for n in range(700)]
    payloads[10] = {"n": 10, "noise": noise(90_000, 10)}
    assert client.batches.insert(payloads, batch_id="a/b/c", **DAY).members == 700
    found = spans(world, "a/b/c")
    assert len(found) > 8 and sum(members for _, members in found) == 700
    assert (10, 1) in found
    assert [view.payload["n"] for view in client.batches.members("a/b/c")] == list(range(700))
    assert client.get("a/b/c/000000010").payload == payloads[10]
    assert client.batches.insert(payloads, batch_id="a/b/c", **DAY).packs_written == 0
    run_until(world, 33)
    assert client.batches.get("a/b/c").counts == {"completed": 700}


# -- the same call again -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("creates", range(8))
@pytest.mark.parametrize("sized", [True, False])
def test_after_a_crash_the_same_call_goes_on(
    world: World, client: TaskClient, monkeypatch: pytest.MonkeyPatch, creates: int, sized: bool
) -> None:
    monkeypatch.setattr(batch_loading, "THREADS", 1)
    monkeypatch.setattr(batch_loading, "_AT_A_TIME", 1)
    payloads = numbered(1700)

    def load() -> int:
        return client.batches.insert(payloads if sized else iter(payloads), batch_id="news", **DAY).packs_written

    with monkeypatch.context() as patch:
        break_after(world, patch, creates)
        with pytest.raises(StoreError, match="the same call goes on from there"):
            load()
    there = len(spans(world))
    assert client.batches.get("news").members is None
    for pack_id, row in rows_of(world).items():
        assert "pack" not in row or world.store.get(body_id(pack_id)) is not None
    world.clock.forward(minutes=2)
    assert load() == 4 - there
    assert len({row["createdAt"] for row in rows_of(world).values()}) == 1
    assert client.batches.get("news").counts == {"open": 1700}
    assert load() == 0
    run_until(world, 35)
    assert client.batches.get("news").counts == {"completed": 1700}
    assert len(world.actions.ran) == 1700


def test_two_loaders_at_once_end_well(world: World, client: TaskClient) -> None:
    second = []

    def payloads() -> Iterator[Mapping[str, object]]:
        for n, payload in enumerate(numbered(1300)):
            if n == 700:
                second.append(client.batches.insert(iter(numbered(1300)), batch_id="news", **DAY))
            yield payload

    assert client.batches.insert(payloads(), batch_id="news", **DAY).members == 1300
    assert [one.members for one in second] == [1300]
    assert spans(world) == [(0, 500), (500, 500), (1000, 300)]


@pytest.mark.parametrize(
    ("other", "name"),
    [
        ({"action": "webhook"}, "action is 'log', not 'webhook'"),
        ({"due_at": "2026-12-31T12:31:00Z"}, "dueAt is"),
        ({"over": "1h"}, "overSeconds is 0, not 3600"),
        ({"then": {"action": "log"}}, "then differs"),
        ({"subject": "customer:2"}, "ofMembers differs"),
        ({"payloads": numbered(4)}, "total is 3, not 4"),
        ({"payloads": iter(numbered(4))}, "members is 3, not 4"),
    ],
)
def test_another_definition_is_refused(client: TaskClient, other: dict[str, Any], name: str) -> None:
    client = TaskClient(client.store, clock=client._clock, check_actions=False)
    first: dict[str, Any] = {"payloads": numbered(3), "batch_id": "news", **DAY}
    client.batches.insert(**first)
    with pytest.raises(BatchDiffers, match=r"^batchId: a batch 'news' exists already, and its ") as error:
        client.batches.insert(**{**first, **other})
    assert name in str(error.value)
    assert client.batches.get("news").members == 3


def test_of_a_delay_the_first_call_counts(world: World, client: TaskClient) -> None:
    for _ in range(2):
        inserted = client.batches.insert(numbered(3), batch_id="news", action="log", delay=timedelta(hours=1))
        assert inserted.due_at.isoformat() == "2026-12-31T13:00:00+00:00"
        world.clock.forward(minutes=5)


def test_the_same_definition_is_recognised_however_the_table_writes_it(client: TaskClient) -> None:
    for _ in range(2):
        client.batches.insert(
            [{"rate": 0.1, "tags": ("a", "b"), "none": None}],
            batch_id="news",
            retry_policy={"maximumRetryAttempts": 2},
            then={"action": "log", "payload": {"rate": 1.5, "tags": ("a", "b"), "whole": 2.0}},
            attributes={"weight": 0.1, "both": {"a", "b"}, "bytes": b"x"},
            timeout_seconds=20,
            **DAY,
        )


@pytest.mark.parametrize("is_sealed", [True, False])
def test_another_payload_than_before_is_refused(world: World, client: TaskClient, is_sealed: bool) -> None:
    client.batches.insert(numbered(3), batch_id="news", **DAY)
    row = world.row("news")
    unsealed = {name: value for name, value in dict(row["payload"]).items() if name != "members"}  # type: ignore[call-overload]
    if not is_sealed:
        world.store.put({**row, "payload": unsealed})  # as if it had crashed before
    with pytest.raises(InvalidInput, match=r"^payloads\[1\]: .* choose another batch id"):
        client.batches.insert([{"n": 0}, {"n": "x"}, {"n": 2}], batch_id="news", **DAY)


@pytest.mark.parametrize("before", [True, False])
def test_members_that_are_in_other_packs_are_not_written_again(
    world: World, client: TaskClient, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    small, large = numbered(500), [{"n": n, "noise": noise(300, n)} for n in range(500)]
    payloads = [large, small] if before else [small, large]
    with monkeypatch.context() as patch:
        break_after(world, patch, 2)  # a body, and its pack
        patch.setattr(batch_loading, "_AT_A_TIME", 1)
        patch.setattr(batch_loading, "THREADS", 1)
        with pytest.raises((StoreError, InvalidInput)):
            client.batches.insert(iter([*payloads[0], 5]), batch_id="news", **DAY)  # type: ignore[list-item]
    there = spans(world)
    assert len(there) == 1 and there[0][0] == 0
    with pytest.raises(InvalidInput, match=r"^payloads\[0\]: .* its pack is news/000000000-000000"):
        client.batches.insert(iter(payloads[1]), batch_id="news", **DAY)
    assert [span for span in spans(world) if span[0] == 0] == there


@pytest.mark.parametrize("is_deleted", [True, False])
def test_an_id_is_not_taken_again_while_packs_of_an_earlier_batch_are_there(
    world: World, client: TaskClient, is_deleted: bool
) -> None:
    """They count as completed, and the members given would not run."""
    client.batches.insert(numbered(3), batch_id="news", action="log", then={"action": "log"})
    world.ticks(3)
    if is_deleted:
        client.delete("news")
    else:  # it has expired before them
        world.store.delete("news")
    for _ in range(2):  # the second call goes on where the first ended
        with pytest.raises(InvalidInput, match=r"^batchId: 'news' .* of an earlier batch .* choose another batch id"):
            client.batches.insert(numbered(3), batch_id="news", action="log")
    assert client.batches.cancel("news").cancelled == 0
    client.delete("news")
    world.store.delete(Span(0, 3).pack_id("news"))  # it has expired, too
    client.batches.insert(numbered(3), batch_id="news", action="log")
    world.ticks(3)
    assert client.batches.get("news").counts == {"completed": 3}
    assert [world.actions.times(f"news/{n:09}") for n in range(3)] == [2, 2, 2]


def test_larger_packs_of_an_earlier_batch_are_not_taken_for_its_own(world: World, client: TaskClient) -> None:
    client.batches.insert(numbered(500), batch_id="news", action="log")
    world.ticks(3)
    client.delete("news")
    large = [{"n": n, "noise": noise(300, n)} for n in range(500)]
    with pytest.raises(InvalidInput, match=r"news/000000000-000000499 is that of an earlier batch of this id"):
        client.batches.insert(large, batch_id="news", action="log")
    assert spans(world) == [(0, 500)]


def test_smaller_packs_of_an_earlier_batch_are_none_of_a_batch(world: World, client: TaskClient) -> None:
    large = [{"n": n, "noise": noise(300, n)} for n in range(500)]
    client.batches.insert(large, batch_id="news", action="log")
    world.ticks(3)
    assert len(spans(world)) > 2
    client.delete("news")
    for _ in range(2):
        client.batches.insert(numbered(500), batch_id="news", delay=timedelta(hours=1), action="log")
    assert {client.get(f"news/{n:09}").status for n in range(0, 500, 83)} == {"scheduled"}
    assert client.batches.get("news").counts == {"open": 500}


def test_what_an_earlier_batch_left_is_no_part_that_was_loaded(world: World, client: TaskClient) -> None:
    client.batches.insert(numbered(600), batch_id="news", action="log")
    world.ticks(3)
    client.delete("news")
    client.batches.insert(None, batch_id="news", total=600, action="log")
    with pytest.raises(TransitionRefused, match="load what is missing first: packs 0, 1"):
        client.batches.seal("news")
    with pytest.raises(InvalidInput, match="choose another batch id"):
        client.batches.load_pack("news", 1, numbered(600)[500:])


def test_a_task_has_the_id(client: TaskClient) -> None:
    client.insert("news", delay_seconds=3600)
    with pytest.raises(TaskExists):
        client.batches.insert(numbered(3), batch_id="news", **DAY)
    batches = client.batches
    for asks in (batches.get, batches.cancel, batches.wait, lambda batch_id: list(batches.members(batch_id))):
        for batch_id in ("news", "none"):
            with pytest.raises(BatchNotFound, match=f"^batchId: there is no batch '{batch_id}'"):
                asks(batch_id)


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"batch_id": ""}, "batchId: "),
        ({"batch_id": "x" * 1005}, "batchId: .* expected at most 1004 bytes"),
        ({"batch_id": "_dynatick#x"}, "batchId: .* reserved"),
        ({"action": "unknown"}, "action: 'unknown' is not accepted; expected one of log"),
        ({"action": "dynatick.batch"}, r"action: .*actions beginning with dynatick\. are reserved"),
        ({"action": None}, "action: "),
        ({"delay": 5}, "delay: 5 is not accepted; expected a timedelta"),
        ({"delay": timedelta(hours=1), "due_at": AT}, "delaySeconds: .* expected one time only"),
        ({"over": "soon"}, "over: "),
        ({"over": timedelta(days=2)}, "over: .* a day at most"),
        ({"over": timedelta(seconds=-1)}, "over: "),
        ({"over": timedelta(seconds=0.5)}, "over: .* expected whole seconds"),
        ({"total": 4}, "total: 4 is not accepted; expected the number of payloads, 3"),
        ({"total": -1}, "total: "),
        ({"payloads": iter([]), "total": 100_000_001}, "total: .* up to 100000000"),
        ({"payloads": {"n": 1}}, "payloads: 'a dict' is not accepted"),
        ({"payloads": 5}, "payloads: "),
        ({"timeout_seconds": 0}, "timeoutSeconds: "),
        ({"retry_policy": {"x": 1}}, "retryPolicy"),
        ({"subject": ""}, "subject: "),
        ({"attributes": {"pack": 1}}, "pack: .* leave it out: it is set by Dynatick"),
        ({"attributes": {"batchId": "x"}}, "batchId: .* leave it out"),
        ({"attributes": {"note": "x" * 262_144}}, "attributes: '262156 bytes' .* at most 262144 bytes as JSON"),
        ({"attributes": {"due_at": AT}}, "due_at: .* expected dueAt: under this name it sets no time"),
        ({"attributes": {"runAt": AT}}, "runAt: .* expected dueAt"),
        ({"attributes": {"delayseconds": 60}}, "delayseconds: .* expected delaySeconds"),
        ({"attributes": {"Over": "2h"}}, "Over: .* expected over, in JSON overSeconds"),
        ({"attributes": {"over_seconds": 7200}, "due_at": AT}, "over_seconds: .* it spreads nothing"),
        ({"then": 5}, "then: 5 is not accepted; expected a task"),
        ({"then": {"taskId": "x"}}, "then.taskId: .* leave it out"),
        ({"then": {"action": "log", "dueAt": AT}}, "then.dueAt: .* leave it out"),
        ({"then": {"action": "unknown"}}, "then.action: 'unknown'"),
        ({"then": {"action": "log", "payload": 5}}, "then.payload: "),
        ({"then": {"action": "log", "delaySeconds": "1h"}}, "then.delaySeconds: '1h' .* expected a number of seconds"),
        ({"then": {"action": "log", "delaySeconds": -1}}, "then.delaySeconds: -1 "),
        ({"then": {"action": "log", "delaySeconds": True}}, "then.delaySeconds: True "),
        ({"then": {"action": "log", "delaySeconds": 10**12}}, "then.delaySeconds: "),
        ({"then": {"action": "log", "delay_seconds": 3600}}, "then.delay_seconds: .* expected delaySeconds"),
        ({"then": {"action": "log", "timeoutSeconds": 5000}}, "then.timeoutSeconds: 5000 "),
    ],
)
def test_bad_input_is_named(world: World, client: TaskClient, given: dict[str, Any], message: str) -> None:
    arguments = {"payloads": numbered(3), "batch_id": "news", "action": "log"} | given
    with pytest.raises(InvalidInput, match=f"^{message}"):
        client.batches.insert(**arguments)
    assert rows_of(world) == {}


def test_an_attribute_beside_a_time_may_have_any_name(client: TaskClient) -> None:
    named = {"due": "soon", "over": True, "leftover": 1}
    client.batches.insert(numbered(3), batch_id="news", over="1h", attributes=named, **DAY)
    assert {name: client.get("news/000000000").attributes[name] for name in named} == named


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (5, r"payloads\[501\]: 'a int' is not accepted; expected a map of names to values"),
        ({"a": {"b": {1: 2}}}, r"payloads\[501\]"),
        ({"a": {"b": ""}, "": 1}, r"payloads\[501\]"),
        ({"a": float("nan")}, r"payloads\[501\]"),
        ({"a": "\ud800"}, r"payloads\[501\]"),
        ({"a": object()}, r"payloads\[501\]"),
        ({"a": "x" * 102_400}, r"payloads\[501\]: .* expected at most 102400 bytes as JSON; store the data in S3"),
    ],
)
def test_a_payload_is_checked_before_anything_of_its_pack_is_written(
    world: World, client: TaskClient, payload: Any, message: str
) -> None:
    payloads: list[Any] = numbered(1000)
    payloads[501] = payload
    with pytest.raises(InvalidInput, match=f"^{message}"):
        client.batches.insert(payloads, batch_id="news", **DAY)
    assert spans(world) in ([], [(0, 500)])
    payloads[501] = {"n": 501}
    client.batches.insert(payloads, batch_id="news", **DAY)
    assert client.batches.get("news").counts == {"open": 1000}


def test_no_interface_takes_what_only_batches_have(world: World, client: TaskClient) -> None:
    for given in ({"action": "dynatick.batch"}, {"action": "dynatick.other"}, {"attributes": {"pack": {}}}):
        with pytest.raises(InvalidInput):
            client.insert("x", delay_seconds=5, **given)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="reserved"):
        client.schedules.insert("s", "rate(1 day)", action="dynatick.batch")
    client.schedules.insert("s", "rate(1 day)", action="log")
    with pytest.raises(InvalidInput, match="reserved"):
        client.schedules.update("s", action="dynatick.batch")


@pytest.mark.parametrize(
    "more",
    [
        {"pack": {"batchId": "x", "first": 0, "members": 1}},
        {"batchId": "x"},
        {"action": "dynatick.batch", "payload": {}},
    ],
)
def test_a_raw_row_is_no_pack_and_no_batch(world: World, client: TaskClient, more: dict[str, object]) -> None:
    row = world.put(taskId="x/000000000-000000000", dueAt=AT, **more)
    assert row["outcome"] == "failed"
    assert str(row["error"]).startswith(f"{next(iter(more))}: ")


# -- members -----------------------------------------------------------------------------------------------------------


def test_members_are_listed_in_order_with_those_that_have_rows(world: World, client: TaskClient) -> None:
    world.actions.behaviour |= {"news/000000001": fail, "news/000000502": fail_for_now}
    client.batches.insert(numbered(504), batch_id="news", action="log")
    assert {view.status for view in client.batches.members("news")} == {"scheduled"}
    client.cancel("news/000000503")
    world.next_tick()
    views = list(client.batches.members("news"))
    assert [view.task_id for view in views] == [f"news/{n:09}" for n in range(504)]
    assert [view.payload["n"] for view in views] == list(range(504))
    by_status = {status: [int(str(v.payload["n"])) for v in client.batches.members("news", status)]
                 for status in ("failed", "scheduled", "cancelled", "running")}  # fmt: skip
    assert by_status == {"failed": [1], "scheduled": [502], "cancelled": [503], "running": []}
    assert client.batches.get("news").counts == {"completed": 501, "failed": 1, "open": 1, "cancelled": 1}
    assert client.get("news/000000001").error == "it broke"


def test_a_member_is_cancelled_only_while_its_pack_waits(world: World, client: TaskClient) -> None:
    client.batches.insert(numbered(4), batch_id="news", action="log")
    seen = client.get("news/000000002")
    assert (seen.status, seen.payload, seen.outcome) == ("scheduled", {"n": 2}, None)
    assert client.cancel("news/000000002", version=seen.version).status == "cancelled"
    with pytest.raises(TransitionRefused, match="it is cancelled; possible only while it is"):
        client.cancel("news/000000002")
    with pytest.raises(TaskChanged):
        client.run_now("news/000000002", version=seen.version)
    pack_id = Span(0, 4).pack_id("news")
    started(world, pack_id)
    with pytest.raises(TransitionRefused, match="it is running"):
        client.cancel("news/000000001")
    assert client.get("news/000000001").status == "running"
    for missing in ("news/000000004", "none/000000000", "news/4", "news/then", "/000000001"):
        for ask in (client.get, client.cancel):
            with pytest.raises(TaskNotFound):
                ask(missing)


@pytest.mark.parametrize(("change", "status"), [("cancel", "cancelled"), ("delete", "deleted")])
def test_a_member_that_is_cancelled_or_deleted_is_not_run(
    world: World, client: TaskClient, change: str, status: str
) -> None:
    client.batches.insert(numbered(4), batch_id="news", action="log")
    getattr(client, change)("news/000000002", version=client.get("news/000000002").version)
    world.ticks(3)
    assert [world.actions.times(f"news/00000000{n}") for n in range(4)] == [1, 1, 0, 1]
    assert change == "delete" or client.get("news/000000002").status == status
    assert client.batches.get("news").counts == {"completed": 3, status: 1}


def test_another_is_faster_than_the_cancellation_of_a_member(world: World, client: TaskClient) -> None:
    client.batches.insert(numbered(4), batch_id="news", action="log")
    pack_id = Span(0, 4).pack_id("news")
    with world.rigged.meanwhile(lambda change: True, lambda: client.cancel("news/000000003")):
        assert client.cancel("news/000000001").status == "cancelled"
    pack = Pack.of(world.row(pack_id))
    assert pack is not None and pack.excluded == 0b1010
    with (
        world.rigged.meanwhile(lambda change: True, lambda: started(world, pack_id)),
        pytest.raises(TransitionRefused, match="it is running"),
    ):
        client.cancel("news/000000002")


Change = Callable[[TaskClient, str], Any]

WAITING: dict[str, tuple[Change, dict[str, object]]] = {
    "another time": (lambda c, i: c.reschedule(i, due_at="2026-12-31T12:50:00Z"), {"status": "scheduled"}),
    "at once": (lambda c, i: c.run_now(i), {"status": "scheduled"}),
    "another payload": (lambda c, i: c.update(i, payload={"m": 1}), {"status": "scheduled", "payload": {"m": 1}}),
}
"""Changes of a member that waits, and what it is then."""


@pytest.mark.parametrize("change", WAITING)
def test_a_member_that_is_changed_is_a_task_like_any_other_from_then_on(
    world: World, client: TaskClient, change: str
) -> None:
    client.batches.insert(numbered(4), batch_id="news", subject="x", attributes={"tenant": "t1"}, **DAY)
    key = key_of(client.get("news/000000002").row)
    do, expected = WAITING[change]
    view = do(client, "news/000000002")
    assert {name: getattr(view, name) for name in expected} == expected
    row = world.row("news/000000002")
    assert (row["batchId"], row["subject"], row["tenant"], row["attempt"]) == ("news", "x", "t1", 0)
    assert "pack" not in row and key_of(row) == key
    world.stream(row)
    run_until(world, 55)
    assert [world.actions.times(f"news/00000000{n}") for n in range(4)] == [1] * 4
    assert client.batches.get("news").counts == {"completed": 4}


@pytest.mark.parametrize("again", ["run", "update the time"])
def test_a_member_that_was_changed_twice_at_once_is_changed_once(world: World, client: TaskClient, again: str) -> None:
    """The second finds the row that the first has made."""
    client.batches.insert(numbered(4), batch_id="news", **DAY)

    def other() -> None:
        client.reschedule("news/000000002", due_at="2026-12-31T12:40:00Z")

    with world.rigged.meanwhile(lambda change: "pack" in change.set, other):
        if again == "run":
            client.run_now("news/000000002")
        else:
            client.update("news/000000002", due_at="2026-12-31T12:50:00Z")
    pack = Pack.of(world.row(Span(0, 4).pack_id("news")))
    assert pack is not None and (pack.extracted, pack.excluded) == (0b100, 0)
    run_until(world, 55)
    assert [world.actions.times(f"news/00000000{n}") for n in range(4)] == [1] * 4


def test_a_member_whose_pack_was_claimed_meanwhile_is_not_changed(world: World, client: TaskClient) -> None:
    client.batches.insert(numbered(4), batch_id="news", action="log")
    pack_id = Span(0, 4).pack_id("news")
    with (
        world.rigged.meanwhile(lambda change: "pack" in change.set, lambda: started(world, pack_id)),
        pytest.raises(TransitionRefused, match="it is running"),
    ):
        client.reschedule("news/000000002", due_at=AT)
    assert world.store.get("news/000000002") is None


def test_a_member_that_has_ended_is_changed_once_its_pack_has(world: World, client: TaskClient) -> None:
    client.batches.insert(numbered(4), batch_id="news", action="log")
    client.cancel("news/000000001")
    pack_id = Span(0, 4).pack_id("news")
    pack = Pack.of(world.row(pack_id))
    assert pack is not None
    waiting = world.row(pack_id)
    running = {"status": "running", "lease": "x", "attempt": 1, "pack": replace(pack, done=0b1000).to_attribute()}
    world.store.put({**waiting, **running})
    for change in (lambda: client.run_now("news/000000003"), lambda: client.restore("news/000000001"),
                   lambda: client.delete("news/000000001")):  # fmt: skip
        with pytest.raises(TransitionRefused, match="others of its pack run; try it again in a moment"):
            change()
    world.store.put(waiting)
    world.ticks(2)
    assert client.batches.get("news").counts == {"completed": 3, "cancelled": 1}
    assert client.restore("news/000000001").status == "scheduled"
    again = client.run_now("news/000000003")
    assert (again.status, again.run, again.payload) == ("scheduled", 2, {"n": 3})
    client.delete("news/000000002")
    with pytest.raises(TaskNotFound):
        client.get("news/000000002")
    world.ticks(3)
    assert [world.actions.times(f"news/00000000{n}") for n in range(4)] == [1, 1, 1, 2]
    assert [(view.task_id[-1], view.status) for view in client.batches.members("news")] == [
        ("0", "completed"), ("1", "completed"), ("3", "completed")
    ]  # fmt: skip
    with pytest.raises(TransitionRefused, match="possible only while it is failed"):
        client.redrive("news/000000000")


@pytest.mark.parametrize("at_once", [True, False])
def test_a_member_that_was_deleted_does_not_come_back_if_its_pack_did_not_know_of_its_row(
    world: World, client: TaskClient, at_once: bool
) -> None:
    """Its process died within the seconds until it would have written that."""
    client.batches.insert(numbered(3), batch_id="news", action="log")
    pack_id, member = Span(0, 3).pack_id("news"), "news/000000001"
    waiting = world.row(pack_id)
    world.store.put(scheduled_row(member, bucket_at(5), attempt=1, batchId="news", createdAt=waiting["createdAt"]))
    world.store.put({**waiting, "status": "running", "lease": "x", "attempt": 1, "leaseUntil": "2026-12-31T12:09:00Z"})

    def delete() -> str:
        """Returns why it was refused."""
        if not at_once:
            (one,) = client.delete_many(bucket=str(bucket_at(5)))
            return one.reason if isinstance(one, Skipped) else ""
        try:
            client.delete(member)
        except TransitionRefused as refused:
            return str(refused)
        return ""

    assert "others of its pack run; try it again in a moment" in delete()
    assert world.row(member)["status"] == "scheduled"
    world.store.put(waiting)  # it was released, as it had been claimed
    assert delete() == ""
    world.ticks(8)
    assert world.store.get(member) is None
    assert client.batches.get("news").counts == {"completed": 2, "deleted": 1}
    assert member not in world.ran


def test_a_member_whose_payload_is_gone_is_shown_and_not_run_without(world: World, client: TaskClient) -> None:
    client.batches.insert(numbered(3), batch_id="news", **DAY)
    world.store.delete(body_id(Span(0, 3).pack_id("news")))
    assert client.get("news/000000001").payload == {}
    assert [view.payload for view in client.batches.members("news")] == [{}, {}, {}]
    with pytest.raises(InvalidInput, match="the row with the payloads of its members is missing"):
        client.run_now("news/000000001")
    assert client.cancel("news/000000001").status == "cancelled"


@pytest.mark.parametrize("change", WAITING)
@pytest.mark.parametrize("takes_effect", [True, False])
def test_the_lost_answer_of_a_members_change_is_found_by_its_row(
    world: World, client: TaskClient, change: str, takes_effect: bool
) -> None:
    client.batches.insert(numbered(4), batch_id="news", **DAY)
    if takes_effect:
        world.rigged.unanswered = lambda change: "pack" in change.set
        assert WAITING[change][0](client, "news/000000002").status == "scheduled"
    else:
        world.rigged.throttled = lambda change: "pack" in change.set
        with pytest.raises(StoreError, match="cannot change 'news/000000002'"):
            WAITING[change][0](client, "news/000000002")
    assert (world.store.get("news/000000002") is not None) is takes_effect


def test_what_there_is_no_member_with_is_not_found(client: TaskClient) -> None:
    client.batches.insert(numbered(4), batch_id="news", **DAY)
    changes: list[Change] = [*(do for do, _ in WAITING.values()), lambda c, i: c.delete(i), lambda c, i: c.restore(i),
                             lambda c, i: c.redrive(i, dry_run=True)]  # fmt: skip
    for change in changes:
        with pytest.raises(TaskNotFound):
            change(client, "news/000000009")


def test_an_export_has_members_as_tasks_and_continues_within_a_pack(world: World, client: TaskClient) -> None:
    world.actions.behaviour["news/000000001"] = fail
    client.insert("a", **DAY)
    client.insert("z", **DAY)
    client.batches.insert(numbered(602), batch_id="news", **DAY)
    client.cancel("news/000000003")
    run_until(world, 31)
    rows = list(client.export("2026-12-31#12:30"))
    ids = [str(row["taskId"]) for row in rows]
    assert sorted(ids) == ["a", *(f"news/{n:09}" for n in range(602)), "z"]
    assert next(row["payload"] for row in rows if row["taskId"] == "news/000000600") == {"n": 600}
    for number in range(0, 604, 67):
        after = (str(rows[number]["taskDateTime"]), ids[number])
        assert [row["taskId"] for row in client.export("2026-12-31#12:30", after=after)] == ids[number + 1 :]
    by_status = {status: [row["taskId"] for row in client.export("2026-12-31#12:30", status=status)]
                 for status in ("failed", "scheduled", "completed")}  # fmt: skip
    assert (by_status["failed"], by_status["scheduled"]) == (["news/000000001"], [])
    assert len(by_status["completed"]) == 602


# -- the end of a batch ------------------------------------------------------------------------------------------------


def test_a_cancelled_batch_runs_nothing_more(world: World, client: TaskClient) -> None:
    world.actions.behaviour["news/000000001"] = fail_for_now
    client.batches.insert(numbered(1200), batch_id="news", over="20m", action="log", then={"action": "log"})
    world.next_tick()  # the first pack
    started(world, Span(500, 500).pack_id("news"))
    done = client.batches.cancel("news")
    assert done == BatchCancelled(batch_id="news", cancelled=201, running=500)
    assert client.batches.cancel("news") == BatchCancelled(batch_id="news", cancelled=0, running=500)
    ran = len(world.actions.ran)
    world.ticks(25)
    assert len(world.actions.ran) == ran
    view = client.batches.get("news")
    assert (view.status, view.counts["completed"], view.counts["cancelled"]) == ("cancelled", 499, 201)
    assert world.store.get("news/then") is None


def test_a_task_that_has_the_id_of_a_member_is_none_of_the_batch(world: World, client: TaskClient) -> None:
    world.actions.behaviour |= {"news/000000001": fail, "news/000000002": fail_for_now}
    client.batches.insert(numbered(1000), batch_id="news", over="20m", action="log")
    client.insert("news/000000001", action="log", due_at=AT)
    world.next_tick()
    assert [letter.row["taskId"] for letter in world.dead_letters.letters] == ["news/000000001"]
    assert client.batches.get("news").counts == {"completed": 498, "failed": 1, "open": 501}
    assert [view.task_id for view in client.batches.members("news", "failed")] == []
    assert client.batches.cancel("news") == BatchCancelled(batch_id="news", cancelled=501, running=0)
    assert client.get("news/000000001").status == "scheduled"


@pytest.mark.parametrize("creates", range(1, 8))
def test_a_batch_that_is_not_all_in_can_be_cancelled(
    world: World, client: TaskClient, monkeypatch: pytest.MonkeyPatch, creates: int
) -> None:
    monkeypatch.setattr(batch_loading, "THREADS", 1)
    monkeypatch.setattr(batch_loading, "_AT_A_TIME", 1)
    with monkeypatch.context() as patch:
        break_after(world, patch, creates)
        with pytest.raises(StoreError):
            client.batches.insert(iter(numbered(1700)), batch_id="news", **DAY)
    there = sum(members for _, members in spans(world))
    assert client.batches.cancel("news").cancelled == there
    with pytest.raises(TransitionRefused, match="cannot load batch 'news': it is cancelled"):
        client.batches.insert(iter(numbered(1700)), batch_id="news", **DAY)
    run_until(world, 35)
    assert world.actions.ran == []


def test_what_is_loaded_after_the_cancellation_is_cancelled_too(world: World, client: TaskClient) -> None:
    def payloads() -> Iterator[Mapping[str, object]]:
        for n, payload in enumerate(numbered(1300)):
            if n == 700:
                client.batches.cancel("news")
            yield payload

    with pytest.raises(TransitionRefused, match="cannot load batch 'news': it is cancelled"):
        client.batches.insert(payloads(), batch_id="news", total=1300, **DAY)
    run_until(world, 35)
    assert world.actions.ran == []


def test_a_batch_is_given_another_time(world: World, client: TaskClient) -> None:
    client.batches.insert(numbered(2000), batch_id="news", over="20m", **DAY)
    client.reschedule("news/000001999", due_at="2026-12-31T12:20:00Z")
    moved = client.batches.reschedule("news", due_at="2026-12-31T12:10:00Z")
    assert moved == BatchRescheduled(
        batch_id="news", due_at=at(12, 10), last_due_at=at(12, 30), rescheduled=1999, running=0
    )
    due = [world.row(Span(first, 500).pack_id("news"))["dueAt"] for first in range(0, 2000, 500)]
    assert due == [f"2026-12-31T12:{minute}:00Z" for minute in (10, 15, 20, 25)]
    assert world.row("news/000001999")["dueAt"] == "2026-12-31T12:20:00Z"
    run_until(world, 17)
    assert client.batches.get("news").counts == {"completed": 1000, "open": 1000}
    again = client.batches.reschedule("news", delay=timedelta(minutes=23))  # at 12:40
    assert (again.rescheduled, again.running) == (999, 0)
    world.ticks(50)
    assert client.batches.get("news").counts == {"completed": 2000}
    assert {world.actions.times(f"news/{n:09}") for n in range(2000)} == {1}
    with pytest.raises(TransitionRefused, match="cannot reschedule batch 'news': it is completed"):
        client.batches.reschedule("news", due_at=AT)


def test_a_rescheduling_that_was_cut_off_goes_on(world: World, client: TaskClient) -> None:
    client.batches.insert(numbered(1500), batch_id="news", **DAY)
    last = Span(1000, 500).pack_id("news")
    world.rigged.throttled = lambda change: change.task_id == last
    with pytest.raises(StoreError):
        client.batches.reschedule("news", due_at="2026-12-31T12:45:00Z")
    world.rigged.clear_faults()
    assert client.batches.get("news").due_at == at(12, 45)
    assert client.batches.reschedule("news", due_at="2026-12-31T12:45:00Z").rescheduled == 500
    assert {row["dueAt"] for row in rows_of(world).values()} == {"2026-12-31T12:45:00Z"}


def test_a_batch_may_be_due_on_the_last_day_there_is(world: World, client: TaskClient) -> None:
    far = "9998-12-31T22:59:59Z"
    made = client.batches.insert(numbered(3), batch_id="far", action="log", due_at=far, over="1h")
    assert (made.members, format_instant(made.last_due_at)) == (3, "9998-12-31T23:59:59Z")
    client.batches.insert(numbered(3), batch_id="news", **DAY)
    client.batches.reschedule("news", due_at="9998-12-31T23:59:59Z")
    assert [client.batches.get(one).status for one in ("far", "news")] == ["scheduled", "scheduled"]
    body = body_id(Span(0, 3).pack_id("news"))
    assert world.row(body)["expiresAt"] > datetime(9999, 12, 31, tzinfo=UTC).timestamp()


def test_payloads_are_kept_as_long_as_their_pack_waits(world: World, client: TaskClient) -> None:
    client.batches.insert(numbered(3), batch_id="news", **DAY)
    body = body_id(Span(0, 3).pack_id("news"))
    before = world.row(body)["expiresAt"]
    client.batches.reschedule("news", due_at="2027-03-01T00:00:00Z")
    assert world.row(body)["expiresAt"] == before
    client.batches.reschedule("news", due_at="2027-12-31T12:30:00Z")
    assert world.row(body)["expiresAt"] == before + 365 * 86_400


def test_a_batch_that_is_not_all_in_is_not_rescheduled(
    world: World, client: TaskClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        break_after(world, patch, 1)
        with pytest.raises(StoreError):
            client.batches.insert(numbered(1500), batch_id="news", **DAY)
    with pytest.raises(TransitionRefused, match="cannot reschedule batch 'news': it is not loaded; load all"):
        client.batches.reschedule("news", due_at="2026-12-31T12:45:00Z")
    with pytest.raises(BatchNotFound):
        client.batches.reschedule("none", due_at="2026-12-31T12:45:00Z")
    with pytest.raises(InvalidInput, match="expected a time"):
        client.batches.reschedule("news")


def test_of_a_batch_the_failed_are_redriven(world: World, client: TaskClient) -> None:
    """It runs again until they have ended; what follows is inserted once."""
    world.actions.behaviour |= {"news/000000001": fail, "news/000000502": fail}
    client.batches.insert(numbered(1000), batch_id="news", action="log", then={"action": "log"})
    client.cancel("news/000000003")
    gone = Span(500, 500).pack_id("news")
    world.store.delete(body_id(gone))
    world.ticks(3)
    view = client.batches.get("news")
    assert (view.status, view.counts) == ("completed", {"completed": 498, "failed": 501, "cancelled": 1})
    world.stream(world.row("news/then"))
    assert client.batches.redrive("news") == BatchRedriven(batch_id="news", redriven=501)
    view = client.batches.get("news")
    assert (view.status, view.counts["open"]) == ("running", 501)
    assert client.batches.redrive("news").redriven == 0
    world.actions.behaviour.clear()
    world.ticks(4)
    view = client.batches.get("news")
    assert (view.status, view.counts) == ("completed", {"completed": 499, "failed": 500, "cancelled": 1})
    assert (world.actions.times("news/000000001"), world.actions.times("news/000000000")) == (2, 1)
    assert world.actions.times("news/then") == 1


def test_a_pack_that_was_released_is_cancelled_with_its_batch(world: World, client: TaskClient) -> None:
    """One that waits for a turn of its limit key is running by its status, for hours."""
    client.batches.insert(numbered(4), batch_id="news", **DAY)
    released(world, Span(0, 4).pack_id("news"))
    assert client.batches.cancel("news") == BatchCancelled(batch_id="news", cancelled=4, running=0)
    run_until(world, 35)
    assert (world.actions.ran, client.batches.get("news").counts) == ([], {"cancelled": 4})


def test_a_pack_that_was_released_is_given_another_time_with_its_batch(world: World, client: TaskClient) -> None:
    client.batches.insert(numbered(4), batch_id="news", **DAY)
    released(world, Span(0, 4).pack_id("news"))
    moved = client.batches.reschedule("news", due_at="2026-12-31T12:40:00Z")
    assert (moved.rescheduled, moved.running) == (4, 0)
    run_until(world, 39)
    assert world.actions.ran == []
    run_until(world, 43)
    assert client.batches.get("news").counts == {"completed": 4}
    assert {attempt for _, _, attempt in world.actions.ran} == {1}


def test_members_of_a_pack_that_was_released_are_changed(world: World, client: TaskClient) -> None:
    client.batches.insert(numbered(6), batch_id="news", **DAY)
    pack_id = Span(0, 6).pack_id("news")
    released(world, pack_id)
    assert client.get("news/000000001").status == "running"
    assert client.cancel("news/000000001").status == "cancelled"
    client.delete("news/000000002")
    client.reschedule("news/000000003", due_at="2026-12-31T13:00:00Z")
    assert client.update("news/000000004", payload={"n": "another"}).status == "scheduled"
    assert client.run_now("news/000000005").status == "scheduled"
    assert (world.row(pack_id)["status"], len(list(Pack.of(world.row(pack_id)).open()))) == ("running", 1)  # type: ignore[union-attr]
    late = release_claim({**world.row(pack_id), "leaseUntil": AT, "attempt": 1}, "t")
    assert late is not None and not isinstance(world.store.write(late), Written), "its release comes twice"
    run_until(world, 35)
    assert sorted(task_id for task_id, _, _ in world.actions.ran) == [f"news/{n:09}" for n in (0, 4, 5)]
    while world.clock() < at(13, 3):
        world.next_tick()
    assert world.actions.times("news/000000003") == 1
    assert client.batches.get("news").counts == {"completed": 4, "cancelled": 1, "deleted": 1}


def test_a_member_is_not_changed_once_its_released_pack_is_claimed(world: World, client: TaskClient) -> None:
    client.batches.insert(numbered(4), batch_id="news", **DAY)
    pack_id = Span(0, 4).pack_id("news")
    released(world, pack_id)
    bucket = Bucket.parse(world.row(pack_id)["taskDateTime"])
    again = claim(pack_id, bucket, token="t2", lease_until=at(23, 0), now=world.clock(), released=True)
    with be_first(world, lambda: world.store.write(again)), pytest.raises(TransitionRefused, match="it is running"):
        client.cancel("news/000000001")
    assert Pack.of(world.row(pack_id)) == Pack(batch_id="news", span=Span(0, 4))


@pytest.mark.parametrize(
    ("change", "task_id", "instead"),
    [
        (lambda client, task_id: client.cancel(task_id), "news", "a batch; cancel it with its members"),
        (lambda client, task_id: client.reschedule(task_id, due_at=AT), "news", "a batch; its members have the time"),
        (lambda client, task_id: client.update(task_id, payload={}), "news", "a batch; it stays as it was inserted"),
        (lambda client, task_id: client.delete(task_id), "news", "a batch; cancel it with its members"),
        (lambda client, task_id: client.update(task_id, payload={}), Span(0, 4).pack_id("news"),
         "the pack of a batch; its members have the payloads"),
    ],
)  # fmt: skip
def test_a_batch_is_not_changed_as_a_task(
    client: TaskClient, change: Callable[[TaskClient, str], object], task_id: str, instead: str
) -> None:
    client.batches.insert(numbered(4), batch_id="news", **DAY)
    with pytest.raises(TransitionRefused, match=f"it is {instead}"):
        change(client, task_id)
    skipped = list(client.cancel_many("2026-12-31#12:30"))
    assert sorted(type(one).__name__ for one in skipped) == ["Changed", "Skipped"]


def test_a_change_of_many_tasks_counts_members(world: World, client: TaskClient) -> None:
    """Those that it changes: of a deletion all that have no row of their own."""
    client.batches.insert(numbered(4), batch_id="news", **DAY)
    client.cancel("news/000000001")
    client.reschedule("news/000000002", due_at="2026-12-31T13:00:00Z")
    pack_id = Span(0, 4).pack_id("news")

    def tasks(results: Iterable[ManyResult]) -> dict[str, int]:
        return {one.task_id: one.tasks for one in results if isinstance(one, Changed | WouldChange)}

    for change in (client.cancel_many, client.restore_many, client.run_now_many, client.delete_many):
        members = 3 if change == client.delete_many else 2
        assert tasks(change(prefix="news/", dry_run=True, **HOUR)) == {pack_id: members}
        assert tasks(change(prefix="news/", **HOUR)) == {pack_id: members}
    assert [one.changed for one in client.operations.changes.list()] == [2, 2, 2, 3]


def test_a_pack_that_has_run_is_not_run_again(world: World, client: TaskClient) -> None:
    """It would run none of its members, and be answered as done."""
    client.batches.insert(numbered(3), batch_id="news", **DAY)
    pack_id = Span(0, 3).pack_id("news")
    run_until(world, 35)
    with pytest.raises(TransitionRefused, match="it is completed; no member is left in this pack; run members by"):
        client.run_now(pack_id)
    (skipped,) = client.run_now_many("2026-12-31#12:30", prefix=pack_id, status="completed")
    assert isinstance(skipped, Skipped)
    assert client.run_now("news/000000001").run == 2
    client.batches.insert(numbered(2), batch_id="off", action="log", due_at="2026-12-31T13:00:00Z")
    client.cancel("off/000000000")
    client.cancel("off/000000001")
    client.cancel(pack_id := Span(0, 2).pack_id("off"))
    with pytest.raises(TransitionRefused, match="it is cancelled; no member is left in this pack; restore members by"):
        client.restore(pack_id)


@pytest.mark.parametrize("batch_id", [7, "", "x" * 3000, "news"])
def test_a_task_that_names_a_batch_and_is_none_of_its_members_is_run_again(
    world: World, client: TaskClient, batch_id: object
) -> None:
    client.insert("a", due_at=AT)
    client.cancel("a")
    world.rigged.put({**world.row("a"), "batchId": batch_id})
    assert client.run_now("a").run == 2


@pytest.mark.parametrize(
    "start",
    [
        lambda client: list(client.restore_many(**HOUR)),
        lambda client: list(client.run_now_many(status="cancelled", **HOUR)),
        lambda client: client.restore(Span(0, 4).pack_id("news")),
        lambda client: client.restore("news/000000001"),
        lambda client: client.redrive("news/000000003"),
        lambda client: list(client.redrive_many(**HOUR)),
        lambda client: list(client.dead_letters.redrive()),
    ],
)
def test_a_batch_that_has_ended_counts_again_what_is_started_anew(
    world: World, client: TaskClient, start: Callable[[TaskClient], object]
) -> None:
    """What follows it is inserted once."""
    client.dead_letter_queue = world.dead_letters = MemoryDeadLetterQueue()
    world.actions.behaviour["news/000000003"] = fail
    client.batches.insert(numbered(4), batch_id="news", then={"action": "log"}, **DAY)
    client.run_now("news/000000003")
    world.ticks(2)
    client.cancel(Span(0, 4).pack_id("news"))
    run_until(world, 33)
    assert client.batches.get("news").counts == {"cancelled": 3, "failed": 1}
    world.stream(world.row("news/then"))
    world.actions.behaviour.clear()
    dry_run = list(client.restore_many(dry_run=True, **HOUR))
    assert (len(dry_run), world.row("news")["status"]) == (1, "completed")
    start(client)
    assert client.batches.get("news").status == "running"
    run_until(world, 40)
    view = client.batches.get("news")
    members = Counter(one.status for one in client.batches.members("news"))
    assert (view.status, view.counts) == ("completed", members)
    assert members["completed"] >= 1
    assert world.actions.times("news/then") == 1


def test_only_the_batch_of_a_member_is_reopened_and_once(world: World, client: TaskClient) -> None:
    """Not one that was cancelled, nor a later one with its id; nor is anything changed if its row can't be."""
    for n in range(3):
        client.batches.insert(numbered(2), batch_id=f"b{n}", **DAY)
        client.cancel(Span(0, 2).pack_id(f"b{n}"))
    client.batches.cancel("b1")
    run_until(world, 33)
    later = {**world.row("b2"), "createdAt": "2026-12-31T12:31:00Z"}
    world.rigged.put(later)
    world.rigged.throttled = lambda change: change.task_id == "b0"
    with pytest.raises(StoreError):
        client.restore(Span(0, 2).pack_id("b0"))
    results = {one.task_id: type(one) for one in client.restore_many(prefix="b0/", **HOUR)}
    assert results == {Span(0, 2).pack_id("b0"): ChangeUnknown}
    assert world.row(Span(0, 2).pack_id("b0"))["status"] == "cancelled"
    world.rigged.throttled = lambda change: False
    assert {type(client.restore(Span(0, 2).pack_id(f"b{n}"))) for n in range(3)} == {TaskView}
    assert (world.row("b0")["run"], world.row("b1")["status"], world.row("b2")) == (2, "cancelled", later)


def test_a_batch_that_has_ended_is_not_cancelled(world: World, client: TaskClient) -> None:
    client.batches.insert(numbered(4), batch_id="news", action="log")
    world.ticks(3)
    with pytest.raises(TransitionRefused, match="cannot cancel batch 'news': it is completed"):
        client.batches.cancel("news")
    client.delete("news")
    with pytest.raises(BatchNotFound):
        client.batches.get("news")


def test_waiting_ends_when_every_member_has_ended(world: World, client: TaskClient) -> None:
    attempts = []

    def at_first(*_: object) -> None:
        attempts.append(1)
        if len(attempts) == 1:
            raise RetryableError("busy")

    world.actions.behaviour["news/000000001"] = at_first
    client.batches.insert(numbered(4), batch_id="news", action="log")
    view = client.batches.wait("news", pause=lambda seconds: world.ticks(1))
    assert (view.status, view.counts, len(attempts)) == ("completed", {"completed": 4}, 2)


# -- task functions, and asyncio ---------------------------------------------------------------------------------------


@dataclass
class Mail:
    to: str
    copies: int = 1


@task("log", retry_policy={"maximumRetryAttempts": 2})
def send(mail: Mail) -> None:
    """Never called here."""


@task("report", subject=lambda mail: f"customer:{mail.to}")
def report(mail: Mail) -> None:
    """Never called here."""


def test_a_task_function_schedules_a_batch(world: World) -> None:
    client = client_of(world, check_actions=False)
    with use_client(client):
        mails = [Mail(f"{n}@example.com") for n in range(3)]
        inserted = send.schedule_batch(mails, batch_id="news", due_at=AT, over="2h", then=report.after(Mail("all")))
        assert inserted.members == 3
        assert client.get("news/000000001").payload == {"to": "1@example.com", "copies": 1}
        row = world.row(Span(0, 3).pack_id("news"))
        assert isinstance(policy := row["retryPolicy"], Mapping) and policy["maximumRetryAttempts"] == 2
        payload = world.row("news")["payload"]
        assert isinstance(payload, Mapping)
        assert payload["then"] == {
            "action": "report", "payload": {"to": "all", "copies": 1}, "subject": "customer:all",
        }  # fmt: skip
        with pytest.raises(InvalidInput, match=r"^payloads\[1\]\.copies: "):
            send.schedule_batch([Mail("a"), Mail("b", "x")], batch_id="other", due_at=AT)  # type: ignore[arg-type]


def test_the_testing_kit_sees_members_as_tasks() -> None:
    module = types.ModuleType("handlers_of_a_batch")
    sent: list[str] = []

    @task("send", retry_policy={"maximumRetryAttempts": 1})
    def send(mail: Mail) -> None:
        sent.append(mail.to)
        if mail.to == "b" and sent.count("b") == 1:
            raise RetryableError("busy")

    @task("sum-up")
    def sum_up(mail: Mail) -> None:
        pass

    module.send, module.sum_up = send, sum_up  # type: ignore[attr-defined]
    with VirtualInstallation(handlers=module) as dynatick:
        send.schedule_batch([Mail("a"), Mail("b"), Mail("c")], batch_id="news", then=sum_up.after(Mail("all")),
                            delay=timedelta(hours=1))  # fmt: skip
        assert [one.task_id for one in dynatick.waiting] == ["news", *(f"news/00000000{n}" for n in range(3))]
        assert dynatick.waiting[2].payload == {"to": "b", "copies": 1}
        dynatick.advance(hours=2)
        assert sorted((one.task_id, one.outcome, one.attempt) for one in dynatick.executed) == [
            ("news/000000000", "completed", 1),
            ("news/000000001", "completed", 2),
            ("news/000000001", "retried", 1),
            ("news/000000002", "completed", 1),
            ("news/then", "completed", 1),
        ]
        assert [one.payload.to for one in dynatick.executed_of(send)] == ["b", "a", "c", "b"]
        assert dynatick.waiting == []


def test_the_example_of_the_page(
    world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (example,) = examples(page("batches.md"))
    module = types.ModuleType("newsletter")
    monkeypatch.setitem(sys.modules, "newsletter", module)  # where the types of its functions are looked up
    with use_client(client_of(world, check_actions=False)):
        exec(example, module.__dict__)
    assert capsys.readouterr().out.rstrip() == example.rstrip().rpartition("# ")[2]


def parts_of(number: int) -> list[list[dict[str, object]]]:
    return [numbered(number)[first : first + 500] for first in range(0, number, 500)]


def test_a_batch_is_loaded_in_parts_in_any_order(world: World, client: TaskClient) -> None:
    batches, parts = client.batches, parts_of(1203)
    begun = batches.insert(None, batch_id="news", total=1203, over="1h", **DAY)
    assert (begun.members, begun.packs_written) == (None, 0)
    assert str(begun).startswith("news: no members yet, due ")
    assert batches.load_pack("news", 2, iter(parts[2])).packs_written == 1
    with pytest.raises(TransitionRefused, match=r"cannot seal batch 'news': it is not complete; load .*: packs 0, 1"):
        batches.seal("news")
    assert batches.load_pack("news", 0, parts[0]).packs_written == 1
    assert batches.load_pack("news", 0, parts[0]).packs_written == 0, "again"
    assert batches.insert(None, batch_id="news", total=1203, over="1h", **DAY).packs_written == 0
    with pytest.raises(TransitionRefused, match=r"missing first: pack 1$"):
        batches.seal("news")
    assert client.batches.get("news").members is None
    batches.load_pack("news", 1, parts[1])
    assert (batches.seal("news").members, batches.seal("news").members) == (1203, 1203)
    assert batches.load_pack("news", 1, parts[1]).packs_written == 0, "changes nothing any more"
    assert spans(world) == [(0, 500), (500, 500), (1000, 203)]
    due = [row["dueAt"] for task_id, row in sorted(rows_of(world).items()) if "-" in task_id]
    assert due == [f"2026-12-31T{time}Z" for time in ("12:30:00", "12:54:56", "13:19:52")]
    assert batches.insert(numbered(1203), batch_id="news", over="1h", **DAY).packs_written == 0, "the same batch"
    world.ticks(95)
    assert batches.get("news").counts == {"completed": 1203}


def test_a_part_that_has_ended_and_was_deleted_is_not_run_again(world: World, client: TaskClient) -> None:
    """TTL deletes packs after the retention, also while their batch is not sealed."""
    batches, parts = client.batches, parts_of(1203)
    batches.insert(None, batch_id="news", total=1203, **DAY)
    batches.load_pack("news", 0, parts[0])
    run_until(world, 35)
    assert len(world.actions.ran) == 500
    world.store.delete(Span(0, 500).pack_id("news"))
    world.clock.forward(days=91)
    refusal = (
        "batch 'news': it is older than the 30 days for which tasks are kept after they end; its members 0 to 499 were "
        "loaded, and may have run: cancel it, and insert those that have not run as another batch"
    )
    with pytest.raises(TransitionRefused, match=f"cannot load {refusal}"):
        batches.load_pack("news", 0, parts[0])
    with pytest.raises(TransitionRefused, match=f"cannot load {refusal}"):
        batches.insert(numbered(1203), batch_id="news", **DAY)
    assert batches.load_pack("news", 1, parts[1]).packs_written == 1, "it never was"
    with pytest.raises(TransitionRefused, match=f"cannot seal {refusal}"):
        batches.seal("news")
    assert batches.cancel("news").cancelled == 500
    assert Counter(world.actions.ran).most_common(1)[0][1] == 1


@pytest.mark.parametrize("part", [19, 20, 39])
def test_a_part_that_is_loaded_long_before_those_before_it_is_cancelled(
    world: World, client: TaskClient, part: int
) -> None:
    client.batches.insert(None, batch_id="news", total=20_000, **DAY)
    client.batches.load_pack("news", part, numbered(500))
    assert sum(1 for _ in client.batches.members("news")) == 500
    page = client.batches.members_page("news", limit=1)
    assert [member.task_id for member in page.members] == [f"news/{part * 500:09d}"]
    assert len(client.batches.members_page("news", limit=1000, page_token=page.next_page_token).members) == 499
    assert client.batches.cancel("news").cancelled == 500


def test_a_loader_goes_on_after_the_retention(world: World, client: TaskClient) -> None:
    """Of what was loaded, nothing has ended."""
    client.batches.insert(None, batch_id="news", total=502, **DAY)
    client.batches.load_pack("news", 0, numbered(500))
    world.clock.forward(days=91)
    assert client.batches.load_pack("news", 0, numbered(500)).packs_written == 0
    assert client.batches.load_pack("news", 1, numbered(502)[500:]).packs_written == 1
    assert client.batches.seal("news").members == 502


def test_what_is_missing_of_a_large_batch_is_found_without_reading_all_of_it(
    world: World, client: TaskClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.batches.insert(None, batch_id="news", total=100_000_000, over="1h", **DAY)
    asked: list[str] = []
    get_many = world.store.get_many

    def noted(ids: Sequence[str], **options: Any) -> dict[str, Row]:
        asked.extend(ids)
        return get_many(ids, **options)

    monkeypatch.setattr(world.store, "get_many", noted)
    with pytest.raises(TransitionRefused, match="packs 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, …"):
        client.batches.seal("news")
    assert len(asked) < 100 * 1000, "of 200,000 packs, each with as many parts"


def test_a_part_that_does_not_fit_into_one_row_takes_several(world: World, client: TaskClient) -> None:
    payloads: list[dict[str, object]] = [{"text": noise(200, n)} for n in range(500)]
    client.batches.insert(None, batch_id="news", total=501, **DAY)
    assert client.batches.load_pack("news", 0, payloads).packs_written > 2
    assert client.batches.load_pack("news", 1, [{}]).packs_written == 1
    assert client.batches.seal("news").members == 501
    assert [view.payload for view in client.batches.members("news")] == [*payloads, {}]


@pytest.mark.parametrize(
    ("number", "payloads", "message"),
    [
        (0, numbered(499), "payloads: '499 payloads' is not accepted; expected 500, those of the members 0 to 499"),
        (0, numbered(501), "payloads: '501 payloads'"),
        (1, numbered(500), "payloads: '500 payloads' is not accepted; expected 2, those of the members 500 to 501"),
        (2, numbered(1), "number: 2 is not accepted; expected a number from 0 to 1, since .* with 502 members"),
        (-1, numbered(1), "number: -1 "), ("1", numbered(2), "number: '1' "), (True, numbered(2), "number: True "),
        (1, [{}, 5], r"payloads\[1\]: "), (1, [{"n": 1}, {"n": {"": 1}}], r"payloads\[1\].n: "),
        (1, {}, "payloads: 'a dict'"), (1, None, "payloads: 'a NoneType'"),
    ],
)  # fmt: skip
def test_a_part_that_is_none_is_refused(
    world: World, client: TaskClient, number: Any, payloads: Any, message: str
) -> None:
    client.batches.insert(None, batch_id="news", total=502, **DAY)
    with pytest.raises(InvalidInput, match=message):
        client.batches.load_pack("news", number, payloads)
    assert spans(world) == []


def test_a_part_is_refused_if_another_was_there_or_none_can_be(world: World, client: TaskClient) -> None:
    with pytest.raises(InvalidInput, match="total: None is not accepted; expected payloads, or the number"):
        client.batches.insert(None, batch_id="news", **DAY)
    with pytest.raises(BatchNotFound):
        client.batches.load_pack("news", 0, [{}])
    with pytest.raises(BatchNotFound):
        client.batches.seal("news")
    client.batches.insert(None, batch_id="news", total=2, **DAY)
    client.batches.load_pack("news", 0, numbered(2))
    with pytest.raises(InvalidInput, match=r"payloads\[1\]: .*it is not the payload that the batch was begun with"):
        client.batches.load_pack("news", 0, [{"n": 0}, {"n": 2}])
    with pytest.raises(InvalidInput):
        client.batches.insert(iter([{}, 5]), batch_id="half", **DAY)  # type: ignore[list-item]
    for call in (lambda: client.batches.load_pack("half", 0, [{}]), lambda: client.batches.seal("half")):
        with pytest.raises(InvalidInput, match="total: None is not accepted; begin the batch with"):
            call()


def test_a_part_of_a_batch_that_was_cancelled_is_not_run(
    world: World, client: TaskClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.batches.insert(None, batch_id="news", total=502, **DAY)
    create = world.store.create_many

    def cancelled_first(rows: Sequence[Row]) -> Sequence[bool | StoreFailure]:
        if any("pack" in row for row in rows):
            client.batches.cancel("news")
        return create(rows)

    with monkeypatch.context() as patch:
        patch.setattr(world.store, "create_many", cancelled_first)
        with pytest.raises(TransitionRefused, match="cannot load batch 'news': it is cancelled"):
            client.batches.load_pack("news", 1, numbered(2))
    for call in (lambda: client.batches.load_pack("news", 1, numbered(2)), lambda: client.batches.seal("news")):
        with pytest.raises(TransitionRefused, match="it is cancelled"):
            call()
    run_until(world, 35)
    assert world.actions.ran == []


def test_members_are_listed_by_page(world: World, client: TaskClient, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in (7, 501, 1100):
        world.actions.behaviour[f"news/{number:09}"] = fail
    client.batches.insert(numbered(1203), batch_id="news", action="log")
    client.cancel("news/000000502")

    def listed(limit: int, status: str | None = None) -> tuple[list[int], int]:
        found, token, pages = list[int](), None, 0
        while True:
            page = client.batches.members_page("news", status, limit=limit, page_token=token)
            assert len(page.members) <= limit
            found, pages = [*found, *(int(one.task_id[-9:]) for one in page.members)], pages + 1
            if (token := page.next_page_token) is None:
                return found, pages

    assert listed(1000) == ([*range(1203)], 2)
    assert listed(401) == ([*range(1203)], 3)
    run_until(world, 4)
    assert listed(2, "failed") == ([7, 501, 1100], 2)
    assert listed(3, "failed") == ([7, 501, 1100], 1)
    assert listed(1, "cancelled") == ([502], 1)
    monkeypatch.setattr(batches, "_MAX_PACKS", 1)
    assert listed(1000, "failed") == ([7, 501, 1100], 3)
    for given, message in (
        ({"limit": 0}, "limit: 0 "), ({"status": "open"}, "status: 'open' .* expected one of scheduled, running"),
        ({"page_token": "x"}, "pageToken: 'x' "), ({"page_token": "-1"}, "pageToken: '-1' "),
    ):  # fmt: skip
        with pytest.raises(InvalidInput, match=message):
            client.batches.members_page("news", **given)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="status: 'open'"):
        list(client.batches.members("news", "open"))
    with pytest.raises(BatchNotFound):
        client.batches.members_page("none")


def test_batches_are_listed_the_latest_first(world: World, client: TaskClient) -> None:
    world.actions.behaviour["ended/000000001"] = fail
    client.batches.insert(numbered(3), batch_id="ended", action="log")
    client.batches.insert(numbered(4), batch_id="called-off", **DAY)
    client.batches.cancel("called-off")
    run_until(world, 4)
    client.batches.insert(numbered(1000), batch_id="runs", action="log", over="2h")
    run_until(world, 6)
    client.batches.insert(numbered(5), batch_id="to-come", action="log", due_at="2026-12-31T20:00:00Z")
    client.batches.insert(numbered(5), batch_id="next-week", action="log", due_at="2027-01-07T12:00:00Z")
    client.insert("other", action="log", due_at=AT)
    with pytest.raises(InvalidInput):
        client.batches.insert(iter([{}, 5]), batch_id="half", action="log", due_at="2026-12-31T20:00:00Z")  # type: ignore[list-item]
    listed = client.batches.list()
    assert [(one.batch_id, one.status, one.members, one.ended, one.failed) for one in listed.batches] == [
        ("next-week", "scheduled", 5, None, None), ("to-come", "scheduled", 5, None, None),
        ("half", "scheduled", None, None, None), ("runs", "running", 1000, 500, 0),
        ("called-off", "cancelled", 4, 4, 0), ("ended", "completed", 3, 3, 1),
    ]  # fmt: skip
    assert listed.next_page_token is None
    for limit in (1, 2, 5):
        found, token = list[str](), None
        while True:
            page = client.batches.list(limit=limit, page_token=token)
            found += [one.batch_id for one in page.batches]
            if (token := page.next_page_token) is None:
                break
        assert found == [one.batch_id for one in listed.batches]
    later = client.batches.list(start="+1d", end="+10d")
    assert ([one.batch_id for one in later.batches], later.next_page_token) == (["next-week"], None)
    assert [one.batch_id for one in client.batches.list(last="1h").batches] == ["ended"]
    to_the_minute = client.batches.list(start="2026-12-31T12:30:00Z", end="2026-12-31T20:00:00Z")
    assert [one.batch_id for one in to_the_minute.batches] == ["runs", "called-off"]
    assert client.batches.list(start="2026-12-31T12:30:10Z", end="2026-12-31T12:30:20Z").batches == ()
    client.batches.reschedule("next-week", due_at="2026-12-31T12:29:59Z")
    assert [one.batch_id for one in client.batches.list(limit=4).batches] == ["to-come", "half", "runs", "called-off"]
    token = client.batches.list(limit=1).next_page_token
    for page_token in ("x", "now x", "2026-12-31T12:30:00Z", "2026-12-31T12:30Z x", token):
        with pytest.raises(InvalidInput, match="pageToken: "):
            client.batches.list(start="+1d", end="+10d", page_token=page_token)
    with pytest.raises(InvalidInput, match="limit: 0 is not accepted"):
        client.batches.list(limit=0)
    with pytest.raises(InvalidInput, match="start"):
        client.batches.list(start="yesterday", end="now")


def test_a_list_of_batches_leaves_out_what_is_none(world: World, client: TaskClient) -> None:
    client.batches.insert(numbered(3), batch_id="news", **DAY)
    listed = {"listedAs": "batch", "listedAt": AT}
    world.put(taskId="raw", dueAt=AT, **listed)
    world.put(taskId="malformed", action="dynatick.batch", payload="x", dueAt=AT, **listed)
    assert [one.batch_id for one in client.batches.list().batches] == ["news"]


def test_a_list_of_batches_polls_no_bucket_and_reads_no_rows_of_other_tasks(
    world: World, client: TaskClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.batches.insert(numbered(3), batch_id="news", **DAY)
    client.insert("other", action="log", due_at=AT)
    read, get_many = set[str](), world.store.get_many

    def noted(task_ids: Iterable[str], **more: Any) -> Mapping[str, Row]:
        read.update(ids := list(task_ids))
        return get_many(ids, **more)

    monkeypatch.setattr(world.store, "get_many", noted)
    monkeypatch.delattr(type(world.store), "query_bucket")
    assert [one.batch_id for one in client.batches.list().batches] == ["news"]
    assert [one.batch_id for one in client.batches.list(start="-1h", end="+20d").batches] == ["news"]
    assert read == {"news"}


def test_the_same_for_asyncio(world: World) -> None:
    async def main() -> None:
        async with AsyncTaskClient(client_of(world)) as client:
            assert (await client.batches.insert(numbered(3), batch_id="news", **DAY)).members == 3
            assert [one.batch_id for one in (await client.batches.list()).batches] == ["news"]
            page = await client.batches.members_page("news", limit=2)
            assert ([one.payload["n"] for one in page.members], page.next_page_token) == ([0, 1], "2")
            assert [one.payload["n"] async for one in client.batches.members("news")] == [0, 1, 2]
            assert (await client.batches.cancel("news")).cancelled == 3
            assert (await client.batches.wait("news")).counts == {"cancelled": 3}

    asyncio.run(main())


def test_a_member_is_explained_as_a_task(world: World, client: TaskClient) -> None:
    client.batches.insert(numbered(4), batch_id="news", **DAY)
    found = client.operations.explain("news/000000002")
    assert (found.status, "is due at 2026-12-31T12:30:00Z" in found.sentence) == ("scheduled", True)
    assert client.operations.explain("news/000000009").status is None

"""An action is paused by a client: what the client returns, and what others see."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest
from tests.builders import NOON, scheduled_row
from tests.unit.client.support import be_first, before_deletes, client_of, world_of
from tests.unit.engine.support import World

from dynatick import TaskClient
from dynatick.domain.buckets import Bucket, minute_of
from dynatick.domain.conditional_update import Written
from dynatick.domain.lifecycle import claim
from dynatick.domain.limit_keys import parse_limits
from dynatick.domain.normalise import Defaults
from dynatick.errors import ConfigurationError, InvalidInput, TransitionRefused
from dynatick.store.memory import MemoryStore

MINUTE = timedelta(minutes=1)
LATER = NOON + timedelta(hours=3)


def until_moved(world: World, client: TaskClient) -> None:
    """Ticks until the task t lies in a later bucket."""
    for _ in range(8):
        world.next_tick()
        if Bucket.parse(client.get("t").bucket).minute > minute_of(world.clock()):
            return
    raise AssertionError("it was not moved")


def test_pause_and_resume_say_what_is_in_force_and_when_what_waits_begins(world: World, client: TaskClient) -> None:
    paused = client.operations.pause_action("log", reason="the disk is full", by="ada")
    assert (paused.action, paused.since, paused.by, paused.reason) == ("log", NOON, "ada", "the disk is full")
    world.clock.forward(minutes=20)
    assert client.operations.pause_action("log", by="bob") == paused
    ended = client.operations.resume_action("log")
    assert ended == replace(paused, until=NOON + 20 * MINUTE, waiting_begin_by=NOON + 26 * MINUTE)
    assert client.operations.resume_action("log") is None


@pytest.mark.parametrize(
    ("action", "message"),
    [
        ("lgo", "expected one of log"),
        ("", "expected the name of an action"),
        ("dynatick.batch", "reserved"),
        ("x" * 300, "at most"),
    ],
)
def test_an_action_that_is_none_is_refused(client: TaskClient, action: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        client.operations.pause_action(action)


def test_before_the_first_tick_nothing_can_be_paused() -> None:
    with pytest.raises(ConfigurationError, match="no tick has come yet"):
        TaskClient(MemoryStore()).operations.pause_action("log")


def test_it_is_seen_in_the_settings_health_status_doctor_and_list(world: World, client: TaskClient) -> None:
    client.insert("t", delay_seconds=30, action="log")
    client.insert("later", delay_seconds=3600, action="log")
    paused = client.operations.pause_action("log", reason="the disk is full")
    until_moved(world, client)
    settings = client.settings()
    assert settings is not None and dict(settings.paused_actions) == {"log": paused}
    assert client.operations.health().paused_actions == (paused,)
    assert client.operations.health().is_healthy
    status = client.operations.status(hours=2)
    assert (status.state, status.due_now, status.waiting) == ("running", 1, 1)
    assert status.oldest_due == NOON + timedelta(seconds=30)
    diagnosis = client.operations.doctor()
    assert (diagnosis.paused_actions, diagnosis.findings) == ((paused,), ())
    (entry,) = client.operations.actions().actions
    assert (entry.action, entry.paused, entry.due) == ("log", paused, 1)
    assert entry.to_row()["paused"] == {"action": "log", "since": "2026-12-31T12:00:00Z", "reason": "the disk is full"}


def test_an_action_of_which_nothing_waits_or_ran_is_listed_while_it_is_paused(client: TaskClient) -> None:
    assert client.operations.actions().actions == ()
    client.operations.pause_action("log")
    assert [entry.action for entry in client.operations.actions().actions] == ["log"]


def test_a_task_says_that_its_action_is_paused_and_when_it_is_looked_at_again(world: World, client: TaskClient) -> None:
    def sentence() -> str:
        return client.operations.explain("t").sentence

    client.insert("t", delay_seconds=30, action="log")
    client.operations.pause_action("log", reason="the disk is full", by="ada")
    why = r"its action is paused since 2026-12-31T12:00:00Z by ada: the disk is full"
    assert re.fullmatch(rf"t is due at 2026-12-31T12:00:30Z, .*; but {why}", sentence())
    world.ticks(2)
    assert re.fullmatch(rf"t is due since 2026-12-31T12:00:30Z, and waits because {why}", sentence())
    until_moved(world, client)
    at = client.get("t").bucket
    looked_at = rf"; it is looked at again at {str(at).replace('#', 'T')}:00Z"
    assert re.fullmatch(rf"t is due since 2026-12-31T12:00:30Z, and waits because {why}{looked_at}", sentence())
    client.operations.resume_action("log")
    assert sentence() == f"t is due since 2026-12-31T12:00:30Z: the tick of {at} runs it"


def test_one_that_was_claimed_says_that_it_was_released(world: World, client: TaskClient) -> None:
    client.operations.pause_action("log")
    row = {"taskId": "raw", "taskDateTime": str(Bucket(minute_of(NOON) + 1)), "action": "log"}
    world.store.put(row)
    world.next_tick()
    assert re.fullmatch(
        "raw was claimed, and released, and waits because its action is paused since 2026-12-31T12:00:00Z",
        client.operations.explain("raw").sentence,
    )


@pytest.fixture
def waiting(world: World, client: TaskClient) -> str:
    """An occurrence that a tick has made while its action is paused: claimed, released, and moved."""
    client.operations.pause_action("log")
    client.schedules.insert("digest", "rate(2 minutes)", action="log", payload={"n": 0})
    world.ticks(12)
    client.schedules.pause("digest")
    (task_id,) = (str(row["taskId"]) for row in world.store.scan(open_only=True).rows if "lease" in row)
    assert (client.get(task_id).status, client.get(task_id).attempt, world.ran) == ("running", 0, [])
    return task_id


@pytest.mark.parametrize(
    ("asks", "status", "times"),
    [
        (lambda client, task_id: client.cancel(task_id), "cancelled", 0),
        (lambda client, task_id: list(client.cancel_many(start=NOON, end=LATER)), "cancelled", 0),
        (lambda client, task_id: client.delete(task_id), None, 0),
        (lambda client, task_id: list(client.delete_many(start=NOON, end=LATER)), None, 0),
        (lambda client, task_id: client.reschedule(task_id, due_at=LATER), "scheduled", 0),
        (lambda client, task_id: list(client.reschedule_many(start=NOON, end=LATER, due_at=LATER)), "scheduled", 0),
        (lambda client, task_id: client.run_now(task_id), "scheduled", 1),
        (lambda client, task_id: client.update(task_id, payload={"n": 1}), "running", 1),
    ],
)
def test_what_was_released_is_changed_as_what_waits(
    world: World, client: TaskClient, waiting: str, asks: Callable[[TaskClient, str], object], status: str, times: int
) -> None:
    """Nothing of it runs, though its status says so."""
    asks(client, waiting)
    row = world.store.get(waiting)
    assert (None if row is None else row["status"]) == status
    world.ticks(20)
    assert world.ran == []
    client.operations.resume_action("log")
    world.ticks(20)
    assert world.actions.ran == [(waiting, 1, 1)] * times, "the attempt that was released does not count"
    while world.clock() < LATER:
        world.next_tick()
    world.ticks(2)
    assert len(world.ran) == (status in ("scheduled", "running"))


def test_a_request_loses_to_the_claim_of_what_was_released(
    world: World, client: TaskClient, waiting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = world.row(waiting)
    bucket = Bucket.parse(row["taskDateTime"])

    def claimed() -> None:
        change = claim(waiting, bucket, token="t", lease_until=LATER, now=world.clock(), released=True)
        assert isinstance(world.store.write(change), Written)

    requests: list[Callable[[str], object]] = [
        client.cancel, client.run_now, partial(client.reschedule, due_at=LATER),
        partial(client.update, payload={"n": 1}),
    ]  # fmt: skip
    for request in requests:
        with be_first(world, claimed), pytest.raises(TransitionRefused, match="it is running"):
            request(waiting)
        world.store.put(row)
    before_deletes(world, monkeypatch, claimed)
    with pytest.raises(TransitionRefused, match="it is running"):
        client.delete(waiting)


def test_what_waits_for_it_with_a_dead_process_or_a_limit_key_is_nothing_that_the_doctor_finds() -> None:
    world = world_of(defaults=Defaults(key_limits=parse_limits(["host=1"])))
    client = client_of(world)
    bucket = Bucket(minute_of(NOON) + 1)
    for task_id, more in {
        "died": {"status": "running", "attempt": 1, "lease": "t", "leaseUntil": "2026-12-31T12:01:00Z"},
        "keyed": {"limitKey": "host:a"},
    }.items():
        world.store.put(scheduled_row(task_id, bucket, **more))
    client.operations.pause_action("log")
    for _ in range(30):
        world.next_tick(6)
    assert world.actions.ran == []
    assert client.operations.doctor().findings == ()
    client.operations.resume_action("log")
    world.ticks(20)
    assert {task_id for task_id, _, _ in world.actions.ran} == {"died", "keyed"}

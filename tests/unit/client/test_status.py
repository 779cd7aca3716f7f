"""The client shows an installation at work: its status, its ticks, and tasks that are waited for."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest
from tests.builders import NOON
from tests.unit.client.support import client_of, world_of
from tests.unit.engine.support import World, fails, ids

from dynatick import InvalidInput, MemoryStore, TaskClient
from dynatick.client import installation
from dynatick.client.operations import IdleTicks, InstallationStatus, MissedTicks, TickEntry, TickView
from dynatick.domain.conditional_update import ConditionalUpdate
from dynatick.domain.instants import format_instant
from dynatick.domain.task import Task
from dynatick.engine.cursor import cursor_id
from dynatick.engine.ports import ActionContext
from dynatick.engine.rules import Rules
from dynatick.engine.settings import publish_settings
from dynatick.errors import WaitTimedOut

MINUTE = timedelta(minutes=1)
ONCE = {"maximumRetryAttempts": 0}


def test_status_counts_what_ran_failed_and_waits(world: World, client: TaskClient) -> None:
    seen: list[InstallationStatus] = []

    def no_mailbox(task: Task, context: ActionContext) -> None:
        raise LookupError("no such mailbox")

    world.actions.behaviour = {
        "alone": lambda task, context: seen.append(client.operations.status()),
        "bad-0": fails, "bad-1": fails, "worse": no_mailbox,
    }  # fmt: skip
    client.insert("alone", due_at=NOON + timedelta(seconds=30))
    world.next_tick()
    assert [(status.due_now, status.running) for status in seen] == [(1, 1)]
    for task_id in (*ids(5), "bad-0", "bad-1", "worse", "never"):
        client.insert(task_id, delay_seconds=30, retry_policy=ONCE)
    client.cancel("never")
    client.insert("soon", due_at=NOON + timedelta(hours=23))
    client.insert("later", due_at=NOON + timedelta(hours=26))
    world.next_tick()
    client.insert("due", due_at=world.clock())
    world.clock.forward(seconds=90)
    found = client.operations.status(hours=24)
    assert (found.state, found.completed, found.failed, found.cancelled) == ("running", 6, 3, 1)
    assert (found.waiting, found.due_now, found.running) == (1, 1, 0)
    assert (found.oldest_due, found.next_tick) == (NOON + 3 * MINUTE, NOON + 4 * MINUTE)
    assert found.until - found.since == timedelta(hours=48)
    assert set(found.lateness) == {"p50", "p99", "max"}
    frequent, other = found.failures
    assert (frequent.action, frequent.error, frequent.count) == ("log", "ValueError: no", 2)
    assert frequent.task_id in ("bad-0", "bad-1")
    assert (other.error, other.count, other.task_id) == ("LookupError: no such mailbox", 1, "worse")
    assert other.first == other.last == client.get("worse").finished_at


def test_states(world: World, client: TaskClient) -> None:
    assert client.operations.status().state == "running"
    publish_settings(world.store, world.rules.grid, now=NOON, processor_problem="no handlers")
    assert (client.operations.status().state, client.operations.status().processor_problem) == (
        "failing",
        "no handlers",
    )
    world.next_tick()
    client.operations.pause()
    assert client.operations.status().state == "paused"
    client.operations.resume()
    world.clock.forward(minutes=30)
    assert client.operations.status().state == "stopped"
    assert TaskClient(MemoryStore()).operations.status().state == "stopped", "no tick has come yet"


def test_status_polls_no_more_buckets_than_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "MAX_POLLS", 1000)
    world = world_of(shard_count=2)
    world.tick()
    world.rigged.forget()
    found = client_of(world).operations.status(hours=24)
    assert len(world.rigged.polls) <= 1000
    assert found.until - found.since == timedelta(hours=8), "four hours each way"
    monkeypatch.setattr(installation, "MAX_ENTRIES", 3)
    world.insert(*ids(5))
    world.next_tick()
    found = client_of(world).operations.status(hours=24)
    assert (found.completed, found.until - found.since) == (5, timedelta(hours=5)), "one hour of the past was enough"


def test_status_makes_no_more_than_160_requests_and_counts_the_attempts_of_a_day(
    world: World, client: TaskClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.actions.behaviour = {"bad": fails}
    for task_id in ("good", "bad"):
        client.insert(task_id, delay_seconds=30, retry_policy=ONCE)
    world.next_tick()
    client.redrive("bad")
    world.clock.forward(hours=20)
    world.ticks(6)  # which also drain what lies behind
    client.insert("due", due_at=world.clock())
    world.clock.forward(seconds=90)
    asked: list[object] = []
    for name in ("get_many", "query_bucket"):
        read = getattr(world.rigged, name)
        monkeypatch.setattr(
            world.rigged, name, lambda *given, read=read, **more: (asked.append(given), read(*given, **more))[1]
        )
    found = client.operations.status()
    assert 120 < len(asked) < 160, "and the settings"
    assert (found.day.attempts, found.day.failed, found.day.completed) == (3, 2, 1)
    assert found.until - found.since == timedelta(hours=2)
    assert (found.due_now, found.not_counted) == (1, None)


def test_what_is_due_is_read_back_to_the_oldest_bucket_that_is_not_drained(world: World, client: TaskClient) -> None:
    client.insert("old", delay_seconds=90)
    world.clock.forward(hours=5)
    found = client.operations.status()
    assert (found.due_now, found.oldest_due) == (1, NOON + 2 * MINUTE)
    assert timedelta(hours=5) <= world.clock() - found.since <= timedelta(hours=7)


@pytest.mark.parametrize("hours", [0, 25, True, "1"])
def test_a_wrong_number_of_hours_is_refused(client: TaskClient, hours: object) -> None:
    with pytest.raises(InvalidInput, match="expected a number from 1 to 24"):
        client.operations.status(hours=hours)  # type: ignore[arg-type]


def reported(entries: Sequence[TickEntry]) -> list[str]:
    """Returns each entry in short: its kind and the minutes that it stands for."""
    lines = []
    for entry in entries:
        if isinstance(entry, TickView):
            lines.append(f"pass {entry.tick[-5:]} claimed {entry.claimed}")
        else:
            kind = {IdleTicks: "idle", MissedTicks: "missed"}[type(entry)]
            lines.append(f"{kind} {entry.since[-5:]} to {entry.until[-5:]}: {entry.ticks}")
    return lines


def test_ticks_with_work_and_idle_ones_in_between(world: World, client: TaskClient) -> None:
    assert TaskClient(MemoryStore()).operations.ticks() == [], "before the first tick"
    world.ticks(3)
    client.insert("a", delay_seconds=1)
    client.insert("b", delay_seconds=1)
    world.ticks(4)
    client.insert("c", delay_seconds=1)
    world.ticks(1)
    every = ["idle 12:00 to 12:03: 4", "pass 12:04 claimed 2", "idle 12:05 to 12:07: 3", "pass 12:08 claimed 1"]
    assert reported(client.operations.ticks()) == every
    assert reported(client.operations.ticks(MINUTE)) == every[3:], "of the last minute"
    for start, end, expected in [
        ("12:02", "12:04", every[:1]), ("12:04", "12:05", every[1:2]), ("12:05", "12:06", every[2:3]),
        ("12:03", "12:06", every[:3]), ("11:00", "12:00", []),
    ]:  # fmt: skip
        assert (
            reported(client.operations.ticks(start=f"2026-12-31T{start}:00Z", end=f"2026-12-31T{end}:00Z")) == expected
        )
    (view,) = [entry for entry in client.operations.ticks() if isinstance(entry, TickView) and entry.claimed == 2]
    assert (view.shard, view.continuation, view.due, view.completed, view.failed) == (0, 0, 2, 2, 0)
    assert timedelta(milliseconds=200) <= view.started_at - NOON - 4 * MINUTE < MINUTE
    assert (view.to_row()["kind"], view.to_row()["startedAt"]) == ("pass", format_instant(view.started_at))
    mean, *late = [view.to_row()[f"lateness{of}Ms"] for of in ("Mean", "P50", "P99", "Max")]
    assert late == sorted(late)
    assert 0 < mean <= late[-1]
    assert 200 <= view.lateness_p50_ms <= view.lateness_max_ms


def test_missing_ticks_are_reported_and_a_malformed_cursor_hides_no_pass(world: World, client: TaskClient) -> None:
    world.ticks(1)
    world.clock.forward(minutes=5)  # 12:06
    client.insert("b", delay_seconds=1)
    world.ticks(1)
    assert reported(client.operations.ticks()) == [
        "idle 12:00 to 12:01: 2",
        "missed 12:02 to 12:06: 5",
        "pass 12:07 claimed 1",
    ]
    world.clock.forward(minutes=10)  # 12:17
    assert reported(client.operations.ticks())[-1] == "missed 12:08 to 12:15: 8"  # the last two may be on their way
    world.store.write(ConditionalUpdate(task_id=cursor_id(0), set={"checkpoint": "soon"}))
    assert reported(client.operations.ticks())[-1] == "pass 12:07 claimed 1"
    assert client.operations.doctor().missed_ticks == 0


def test_ticks_that_a_longer_pass_has_served_are_not_missing(world: World, client: TaskClient) -> None:
    client.insert("slow", delay_seconds=1)
    world.actions.behaviour["slow"] = lambda *_: world.clock.forward(seconds=100) and None
    world.next_tick()  # from 12:01 to 12:02:40
    world.next_tick()  # 12:03
    assert reported(client.operations.ticks()) == [
        "idle 12:00 to 12:00: 1",
        "pass 12:01 claimed 1",
        "idle 12:03 to 12:03: 1",
    ]


def test_a_pass_that_continued_is_shown_in_its_parts(world: World, client: TaskClient) -> None:
    world.life, world.rules = timedelta(seconds=20), Rules(in_one_thread=True)
    # The first: nothing is claimed after it, though there is time to record what ends.
    takes = iter([16])
    for n in range(60):
        client.insert(f"t{n}", delay_seconds=1)
        world.actions.behaviour[f"t{n}"] = lambda *_: world.clock.forward(seconds=next(takes, 0)) and None
    world.next_tick()
    passes = [entry for entry in client.operations.ticks() if isinstance(entry, TickView)]
    assert len(passes) > 1
    assert [view.continuation for view in passes] == list(range(len(passes)))
    # The last part may have found nothing left to do; then it has no record.
    assert all(view.continued for view in passes[:-1])
    assert sum(view.claimed - view.released for view in passes) == 60


def test_a_task_is_waited_for_until_it_has_ended_or_time_is_up(world: World, client: TaskClient) -> None:
    client.insert("t", due_at=NOON + 3 * MINUTE)
    client.insert("later", due_at=NOON + timedelta(hours=1))
    waits: list[float] = []
    ended = client.wait("t", pause=lambda seconds: waits.append(seconds) or (world.next_tick() and None))
    assert (ended.status, len(waits), waits == sorted(waits)) == ("completed", 3, True)
    assert client.wait("t", pause=lambda seconds: pytest.fail("it has ended")).status == "completed"
    waits.clear()
    with pytest.raises(WaitTimedOut, match="task 'later' has not ended in time"):
        client.wait(
            "later",
            timeout=timedelta(seconds=30),
            pause=lambda seconds: waits.append(seconds) or (world.clock.forward(seconds=seconds) and None),
        )
    assert 29 < sum(waits) < 31
    assert max(waits) == 5.0


def test_a_bucket_is_waited_for(world: World, client: TaskClient) -> None:
    world.actions.behaviour["bad"] = fails
    for task_id in ("good", "bad"):
        client.insert(task_id, due_at=NOON + 2 * MINUTE, retry_policy=ONCE)
    with pytest.raises(WaitTimedOut, match="bucket 2026-12-31#12:02"):
        client.wait_for_bucket("2026-12-31#12:02", timeout=timedelta())
    found = client.wait_for_bucket("2026-12-31#12:02", pause=lambda seconds: world.next_tick() and None)
    assert found.counts == {"completed": 1, "failed": 1}
    assert client.wait_for_bucket("2026-12-31#12:30").counts == {}

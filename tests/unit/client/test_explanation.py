"""`explain` describes a task in each of its states."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from tests.builders import NOON, scheduled_row
from tests.unit.engine.support import World, bucket_at, fails

from dynatick import TaskClient
from dynatick.actions.rate_limit import RateLimits
from dynatick.client.operations import Explanation
from dynatick.domain.task import Task
from dynatick.engine.ports import ActionContext
from dynatick.engine.rates import RateRecords, Unused
from dynatick.engine.settings import publish_settings
from dynatick.errors import RateLimited, Reschedule

SOON = NOON + timedelta(seconds=50)
MINUTE = timedelta(minutes=1)


def said(found: Explanation) -> str:
    """The sentence, with figures that depend on the machine's speed as ``#``."""
    return re.sub(r"(?<=:\d\d)\.\d+(?=Z)|[\d.]+(?= m?s\b)", "#", found.sentence)


def sentence(client: TaskClient, task_id: str = "t") -> str:
    return client.operations.explain(task_id).sentence


def events(found: Explanation) -> list[str]:
    return [event.what if event.error is None else f"{event.what}: {event.error}" for event in found.events]


def test_one_that_ran_a_schedule_and_its_occurrence(world: World, client: TaskClient) -> None:
    client.insert("t", due_at=SOON)
    client.schedules.insert("nightly", "rate(1 minute)", action="log")
    world.next_tick()
    found = client.operations.explain("t")
    assert said(found) == "t ran at 2026-12-31T12:01:00#Z, # s after it was due, and took # ms"
    assert events(found) == ["inserted", "due", "attempt 1 of 4 began", "completed", "its row expires"]
    assert list(found.events) == sorted(found.events, key=lambda event: str(event.at))
    assert "nightly is a schedule: `dynatick schedule get`" in sentence(client, "nightly")
    assert "due, a run of the schedule nightly" in events(client.operations.explain("nightly#1#2026-12-31T12:01:00Z"))


def test_one_that_took_several_attempts(world: World, client: TaskClient) -> None:
    def at_last(task: Task, context: ActionContext) -> None:
        if context.attempt < 3:
            raise ValueError("not yet")

    world.actions.behaviour["t"] = at_last
    client.insert("t", retry_policy={"minBackoffSeconds": 0}, due_at=SOON)
    world.ticks(4)
    found = client.operations.explain("t")
    assert said(found) == "t completed at 2026-12-31T12:03:00#Z with the 3rd attempt"
    assert [re.sub(r"after .* ms", "after #", one) for one in events(found)] == [
        "inserted", "due", "attempt 1 of 4 failed after #: ValueError: not yet",
        "attempt 2 of 4 failed after #: ValueError: not yet", "attempt 3 of 4 began", "completed", "its row expires",
    ]  # fmt: skip
    assert [bool(event.trace) for event in found.events] == [False, False, False, True, False, False, False]


def test_one_that_waits_for_its_next_attempt(world: World, client: TaskClient) -> None:
    world.actions.behaviour["t"] = fails
    client.insert("t", retry_policy={"minBackoffSeconds": 600, "maxBackoffSeconds": 600}, due_at=SOON)
    world.next_tick()
    world.clock.forward(seconds=4)
    found = client.operations.explain("t")
    assert re.fullmatch(
        r"t waits for its 2nd attempt at 2026-12-31T12:\S+Z, in \d+ min: the 1st failed # s ago with ValueError: "
        r"no; the tick of 2026-12-31#12:\d\d runs it; nothing holds it up",
        said(found),
    ), said(found)
    assert events(found)[-1] == "attempt 2 of 4"
    world.clock.forward(hours=1)
    assert "and waits because no tick has come since 2026-12-31T12:01:00Z" in sentence(client)


def test_one_that_failed_and_is_redriven_keeps_its_earlier_runs(world: World, client: TaskClient) -> None:
    world.actions.behaviour["t"] = fails
    client.insert("t", retry_policy={"maximumRetryAttempts": 0}, due_at=SOON)
    world.next_tick()
    assert said(client.operations.explain("t")) == "t failed at 2026-12-31T12:01:00#Z, after 1 attempt: ValueError: no"
    world.actions.behaviour.clear()
    client.redrive("t")
    world.next_tick()
    assert any("of run 1 failed" in one for one in events(client.operations.explain("t")))
    assert said(client.operations.explain("t")).startswith("t ran at 2026-12-31T12:02:00#Z")


@pytest.mark.parametrize(
    ("due", "seconds", "expected"),
    [
        # later, at a tick and between two
        (timedelta(days=3, minutes=1), 0, "t is due at 2027-01-03T12:01:00Z, in 3 days; nothing holds it up"),
        (timedelta(days=3, seconds=10), 0, "t is due at 2027-01-03T12:00:10Z, in 3 days; the tick of "
                                           "2027-01-03#12:01 runs it; nothing holds it up"),
        # between its due time and its tick, and when that has begun
        (timedelta(seconds=50), 55, "t is due since 2026-12-31T12:00:50Z: the tick of 2026-12-31#12:01 runs it"),
        (MINUTE, 61, "t is due since 2026-12-31T12:01:00Z: the next tick runs it, at 2026-12-31T12:02:00Z"),
        # when no tick has come in time, and in two minutes more
        (MINUTE, 170, "t is due since 2026-12-31T12:01:00Z: the next tick runs it, at 2026-12-31T12:03:00Z"),
        (MINUTE, 181, "t is due since 2026-12-31T12:01:00Z, and waits because no tick has come since "
                      "2026-12-31T12:00:00Z"),
    ],
)  # fmt: skip
def test_one_due_later_or_now(world: World, client: TaskClient, due: timedelta, seconds: int, expected: str) -> None:
    client.insert("t", due_at=NOON + due)
    world.clock.to(NOON + timedelta(seconds=seconds))
    assert sentence(client) == expected


def test_one_that_is_held_up_by_a_pause_and_by_a_processor_that_cannot_start(world: World, client: TaskClient) -> None:
    client.insert("t", due_at=SOON)
    client.operations.pause(reason="a release", by="ada")
    expected = r"t is due at 2026-12-31T12:00:50Z, .*; but all is paused since \S+Z \(a release\)"
    assert re.fullmatch(expected, sentence(client))
    world.ticks(2)
    expected = r"t is due since 2026-12-31T12:00:50Z, and waits because all is paused since \S+Z \(a release\)"
    assert re.fullmatch(expected, sentence(client))
    client.operations.resume()
    publish_settings(world.store, world.rules.grid, now=NOON, processor_problem="HandlersModule: no")
    world.clock.forward(minutes=2)
    assert sentence(client).endswith("and waits because the processor can't start: HandlersModule: no")


def test_one_that_runs_and_one_whose_process_died(client: TaskClient, world: World) -> None:
    client.insert("t", due_at=SOON)
    client.insert("dies", due_at=NOON + 2 * MINUTE)
    found: list[str] = []
    world.actions.behaviour["t"] = lambda task, context: found.append(sentence(client))
    world.next_tick()
    assert "t is running since" in found[0] and "attempt 1 of 4; its lease ends at" in found[0]
    world.clock.forward(minutes=1)
    world.claim("dies", until=world.clock() + timedelta(seconds=10))
    assert "is running since" in sentence(client, "dies")
    world.clock.forward(seconds=30)
    assert "dies waits for a tick to make the next attempt: its process died" in sentence(client, "dies")


@pytest.mark.parametrize(
    ("limit", "task"),
    [
        ("log=12/m", {}),
        ("webhook:api.example.com=12/m", {"action": "webhook", "payload": {"url": "https://API.example.com:8443/a"}}),
        ("webhook=12/m", {"action": "webhook", "payload": {"url": "https://api.example.com/a"}}),
    ],
)
def test_one_that_may_wait_for_its_rate_in_its_process(
    limit: str, task: dict[str, object], world: World, client: TaskClient
) -> None:
    name = limit.partition("=")[0]
    world.rigged.put(scheduled_row("t", bucket_at(1), **task))
    world.clock.forward(seconds=60)
    world.claim("t")
    assert "t is running since" in sentence(client), "nothing with this limit has begun yet"
    records = RateRecords(world.store, lambda: "a token")
    limits = RateLimits([limit], clock=world.clock, records=records)
    limits.acquire(Task.from_row(world.row("t")), name)
    world.clock.forward(seconds=2)
    assert sentence(client) == (
        f"t is claimed since 2026-12-31T12:01:00Z, and runs or waits for its start: at most 12/m of {name} begin, and "
        f"the next start that is free is at 2026-12-31T12:01:05Z; attempt 1 of 4; its lease ends at "
        f"2026-12-31T12:03:00Z"
    )
    world.clock.forward(seconds=4)
    assert "t is running since" in sentence(client), "a start is free, and it has begun"
    world.clock.forward(seconds=55)
    until = world.clock() + MINUTE
    records.reserve(name, 5 * MINUTE / 60, 1, earliest=world.clock(), latest=until, unused=Unused(NOON, NOON))
    assert "t is running since" in sentence(client), "nothing waits from tick to tick"


@pytest.mark.parametrize("odd", [{"payload": {"url": "https://[a"}}, {"payload": {"url": 1}}, {"payload": "none"}, {}])
def test_one_of_a_webhook_whose_payload_is_odd(odd: dict[str, object], world: World, client: TaskClient) -> None:
    world.rigged.put({**scheduled_row("t", bucket_at(1)), "action": "webhook", **odd})
    world.claim("t")
    assert "t is running since" in sentence(client)


def test_one_that_its_handler_rescheduled_or_its_limit_deferred(world: World, client: TaskClient) -> None:
    def run(task: Task, _: ActionContext) -> None:
        raise Reschedule(after=600) if task.task_id == "polls" else RateLimited(600, defer=True)

    for task_id in ("polls", "limited"):
        world.actions.behaviour[task_id] = run
        client.insert(task_id, due_at=SOON)
    world.next_tick()
    assert "polls waits for its 2nd turn, as its handler asked, at 2026-12-31T12:1" in sentence(client, "polls")
    assert "limited waits for its rate limit, which allows it at" in sentence(client, "limited")


def test_one_that_never_ran(world: World, client: TaskClient) -> None:
    client.insert("t", due_at=SOON)
    client.cancel("t")
    assert re.fullmatch(
        r"t never ran: it was cancelled at 2026-12-31T12:00:00\S*Z, and was due at 2026-12-31T12:00:50Z",
        sentence(client),
    )
    world.store.put({"taskId": "new"})
    assert "new is new: the scheduler function has not read it yet" in sentence(client, "new")
    none = client.operations.explain("nobody")
    assert (none.status, none.events) == (None, ())
    assert none.sentence == (
        "there is no task of this id: it was never inserted, was deleted, or has expired 30 days after it ended"
    )
    world.ticks(10)
    world.store.put(scheduled_row("late", bucket_at(1)))
    assert "its bucket was drained without it: `dynatick doctor --repair`" in sentence(client, "late")


@pytest.mark.parametrize("row", [
    {"status": "scheduled", "taskDateTime": "tomorrow"}, {"status": "paused"}, {"status": 7}, {"attempts": "none"},
    {"status": "failed", "outcome": "failed", "attempts": [1, {"attempt": "x", "startedAt": "noon"}]},
    {"status": "running", "lease": "x", "leaseUntil": "later"}, {"status": "running"},
    {"status": "scheduled", "taskDateTime": "2026-12-31#12:01#7"}, {"malformedReason": "no"},
    {"status": "scheduled", "taskDateTime": "2026-12-31#12:01", "retryPolicy": 7,
     "nextAttemptAt": "2026-12-31T12:09:00Z"},
    {"status": "completed", "outcome": "completed"},
])  # fmt: skip
def test_no_row_is_too_odd(world: World, client: TaskClient, row: dict[str, object]) -> None:
    world.store.put({"taskId": "odd", **row})
    found = client.operations.explain("odd")
    assert found.sentence.startswith("odd ")
    assert len(found.to_row()["events"]) == len(found.events)  # type: ignore[arg-type]

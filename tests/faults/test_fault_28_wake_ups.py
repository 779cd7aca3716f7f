"""Wake-ups are lost, doubled, late, early, malformed or stale, or their queue is down: the tick runs what none ran."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from itertools import pairwise

import pytest
from tests.faults.conftest import NewWorld, Report
from tests.faults.world import SECOND, WakeUp, World
from tests.sandbox.wake_ups import QUEUE_DOWN

from dynatick.domain.buckets import instant_of, minute_of

MINUTES = 4
POLICY = {"minBackoffSeconds": 6, "maxBackoffSeconds": 6}
BACKOFF = timedelta(seconds=3)  # jitter takes up to half of it off


def as_sent(wake_up: WakeUp) -> list[WakeUp]:
    return [wake_up]


def shifted(seconds: float) -> Callable[[WakeUp], list[WakeUp]]:
    return lambda wake_up: [(wake_up[0], wake_up[1] + timedelta(seconds=seconds))]


MODES: dict[str, Callable[[WakeUp], list[WakeUp]]] = {
    "as sent": as_sent,
    "lost": lambda wake_up: [],
    "doubled": lambda wake_up: [wake_up, wake_up],
    "a minute late": shifted(61),
    "half a minute early": shifted(-30),
    "a few seconds early": shifted(-3),
    "none, for their queue is down": as_sent,
    "every other one lost": lambda wake_up: [wake_up] if int(wake_up[1].timestamp()) % 2 else [],
}


def insert(world: World, number: int = 40) -> None:
    """Tasks that are due at parts of seconds, some of which fail at first, and some that have no time."""
    for n in range(number):
        world.insert(
            f"t{n:02d}",
            due_at=world.clock() + timedelta(seconds=20 + 3.07 * n),
            payload={"failures": 1} if n % 4 == 0 else {},
            retry_policy=POLICY,
        )
    for n in range(4):
        world.put(taskId=f"untimed-{n}")


def live(world: World, mode: Callable[[WakeUp], list[WakeUp]], minutes: int = MINUTES) -> Counter[str]:
    """So many minutes with ticks, the stream, and the wake-ups as ``mode`` delivers them, in order of time. Returns how
    many wake-ups were sent, and delivered."""
    counted: Counter[str] = Counter()
    waiting: list[WakeUp] = []
    end = minute_of(world.clock()) + minutes

    def come() -> None:
        world.deliver(world.stream.new())
        sent = world.wake_ups()
        counted["sent"] += len(sent)
        waiting.extend(one for wake_up in sent for one in mode(wake_up))
        waiting.sort(key=lambda one: one[1])

    for minute in range(minute_of(world.clock()) + 1, end + 1):
        come()
        while waiting and waiting[0][1] < instant_of(minute):
            event, at = waiting.pop(0)
            world.clock.to(at)
            assert world.wake(event).what == "returned"
            counted["delivered"] += 1
            come()
        world.clock.to(instant_of(minute) + timedelta(milliseconds=200))
        assert world.tick().what == "returned"
    return counted


def starts(world: World) -> Iterator[tuple[str, list[tuple[datetime, datetime]]]]:
    """Of each task: when each attempt began, and when it was due."""
    begun = world.ledger.begun()
    for task_id in {one.task_id for one in begun}:
        yield task_id, [(one.instant, datetime.fromtimestamp(one.due_at, one.instant.tzinfo)) for one in begun
                        if one.task_id == task_id]  # fmt: skip


def assert_none_is_early(world: World) -> None:
    for task_id, attempts in starts(world):
        first, due = attempts[0]
        assert first >= due, f"{task_id} began {due - first} early"
        for (earlier, _), (later, _) in pairwise(attempts):
            assert later - earlier >= BACKOFF, f"the backoff of {task_id} was cut short"


@pytest.mark.parametrize("mode", MODES)
def test_fault_28_wake_ups_come_as_they_should_not(new_world: NewWorld, mode: str, report: Report) -> None:
    is_down = mode == "none, for their queue is down"
    world = new_world(**SECOND, **({QUEUE_DOWN: "1"} if is_down else {}))
    insert(world)
    counted = live(world, MODES[mode])
    world.finish()
    assert_none_is_early(world)
    figures = report(world)
    assert (figures.executed, figures.repeated) == (44, 0)
    assert counted["sent"] == 0 if is_down else counted["sent"] > 30
    if mode == "as sent":
        late = [first - due for _, attempts in starts(world) for first, due in attempts[:1]]
        assert sorted(late)[len(late) * 3 // 4] < timedelta(seconds=10), "most began at their second"


def test_fault_28_messages_are_malformed_stale_or_of_others(new_world: NewWorld, report: Report) -> None:
    world = new_world(**SECOND)
    insert(world)
    world.deliver(world.stream.new())
    kept = world.wake_ups()
    assert kept
    tick = {"tick": world.clock().strftime("%Y-%m-%d#%H:%M")}
    strange: list[object] = [None, 7, "", [], {}, {"dynatick": {}}, {"dynatick": tick}, {"dynatick": {"wakeUp": None}}]
    for event, _ in kept:
        order = event["dynatick"]["wakeUp"]
        strange += [{"dynatick": {"wakeUp": {**order, name: value}}} for name in order for value in (None, 7, "x", [])]
    for event in strange:
        assert world.wake(json.dumps(event)).what == "returned"
    live(world, as_sent)
    world.clock.forward(minutes=30)
    for event, _ in kept:
        assert world.wake(event).what == "returned"
    world.finish()
    assert_none_is_early(world)
    assert report(world).executed == 44


def test_fault_28_a_stream_that_repeats_its_batch_breeds_no_wake_ups(new_world: NewWorld, report: Report) -> None:
    """Over an hour: one wake-up each time that the stream shows a task which waits, and none once it has ended."""
    world = new_world(**SECOND)
    insert(world, 12)
    records = world.stream.new()
    sent = []
    for _ in range(60):
        world.deliver(records)
        wake_ups = world.wake_ups()
        sent.append(len(wake_ups))
        for event, at in sorted(wake_ups, key=lambda one: one[1]):
            if at <= world.clock() + timedelta(minutes=1):
                world.wake(event)
        assert world.next_tick().what == "returned"
    assert max(sent) <= 20
    assert sum(sent[10:]) == 0, "all have ended"
    world.finish()
    assert_none_is_early(world)
    assert report(world).executed == 16

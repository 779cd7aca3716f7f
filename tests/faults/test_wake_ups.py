"""Wake-ups are lost, doubled, late, early, malformed or stale, or their queue is down: the tick runs what none ran."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import groupby, pairwise
from operator import itemgetter

import pytest
from tests.faults.conftest import NewWorld
from tests.sandbox.journal import Began
from tests.sandbox.worker import QUEUE_DOWN
from tests.sandbox.world import SECOND, WakeUp, World

from dynatick.domain.buckets import instant_of, minute_of

Delivery = Callable[[WakeUp], list[WakeUp]]
POLICY = {"minBackoffSeconds": 6, "maxBackoffSeconds": 6}
BACKOFF = timedelta(seconds=3)  # jitter takes up to half of it off


def shifted(seconds: float) -> Delivery:
    return lambda wake_up: [(wake_up[0], wake_up[1] + timedelta(seconds=seconds))]


DELIVERIES: dict[str, Delivery] = {
    "as sent": lambda wake_up: [wake_up],
    "lost": lambda wake_up: [],
    "doubled": lambda wake_up: [wake_up, wake_up],
    "a minute late": shifted(61),
    "half a minute early": shifted(-30),
    "a few seconds early": shifted(-3),
    "none, for their queue is down": lambda wake_up: [wake_up],
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


def run(world: World, minutes: int = 4, delivery: Delivery = DELIVERIES["as sent"]) -> int:
    """Lets ``minutes`` pass with ticks, the stream, and the wake-ups as ``delivery`` has them, in order of time.
    Returns how many wake-ups were sent."""
    sent, waiting = 0, list[WakeUp]()
    for _ in range(minutes):
        tick = instant_of(minute_of(world.clock()) + 1)
        while True:
            world.deliver_stream()
            wake_ups = world.wake_ups()
            sent += len(wake_ups)
            waiting = sorted((*waiting, *(one for each in wake_ups for one in delivery(each))), key=itemgetter(1))
            if not waiting or waiting[0][1] >= tick:
                break
            event, at = waiting.pop(0)
            world.clock.to(at)
            assert world.wake(event).what == "returned"
        world.clock.to(tick + timedelta(milliseconds=200))
        assert world.tick().what == "returned"
    return sent


def assert_none_is_early(world: World) -> list[timedelta]:
    """Nor a retry. Returns how late each task began."""
    late: list[timedelta] = []
    begun = sorted(world.journal.of(Began), key=lambda one: (one.task_id, one.at))
    for task_id, attempts in groupby(begun, key=lambda one: one.task_id):
        first, *_ = instants = [(one.instant, datetime.fromtimestamp(one.due_at, UTC)) for one in attempts]
        late.append(first[0] - first[1])
        assert late[-1] >= timedelta(0), f"{task_id} began {-late[-1]} early"
        for (earlier, _), (later, _) in pairwise(instants):
            assert later - earlier >= BACKOFF, f"the backoff of {task_id} was cut short"
    return sorted(late)


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_fault_28_wake_ups_come_as_they_should_not(new_world: NewWorld, delivery: str) -> None:
    is_down = delivery == "none, for their queue is down"
    world = new_world(**SECOND, **({QUEUE_DOWN: "1"} if is_down else {}))
    insert(world)
    sent = run(world, delivery=DELIVERIES[delivery])
    world.assert_survived(executed=44, repeated=0)
    late = assert_none_is_early(world)
    assert sent == 0 if is_down else sent > 30
    if delivery == "as sent":
        assert late[len(late) * 3 // 4] < timedelta(seconds=30), "most began before the tick of their bucket"


def test_fault_28_messages_are_malformed_stale_or_of_others(new_world: NewWorld) -> None:
    world = new_world(**SECOND)
    insert(world)
    world.deliver_stream()
    kept = world.wake_ups()
    assert kept
    tick = {"tick": world.clock().strftime("%Y-%m-%d#%H:%M")}
    strange: list[object] = [None, 7, "", [], {}, {"dynatick": {}}, {"dynatick": tick}, {"dynatick": {"wakeUp": None}}]
    for event, _ in kept:
        order = event["dynatick"]["wakeUp"]
        strange += [{"dynatick": {"wakeUp": {**order, name: value}}} for name in order for value in (None, 7, "x", [])]
    for event in strange:
        assert world.wake(json.dumps(event)).what == "returned"
    run(world)
    world.clock.forward(minutes=30)
    for event, _ in kept:
        assert world.wake(event).what == "returned"
    world.assert_survived(executed=44)
    assert_none_is_early(world)


def test_fault_28_a_stream_that_repeats_its_batch_breeds_no_wake_ups(new_world: NewWorld) -> None:
    """Over an hour: one wake-up each time that the stream shows a task which waits, and none once it has ended."""
    world = new_world(**SECOND)
    insert(world, 12)
    records = world.stream.new()
    sent = []
    for _ in range(60):
        world.deliver(records)
        wake_ups = world.wake_ups()
        sent.append(len(wake_ups))
        for event, at in sorted(wake_ups, key=itemgetter(1)):
            if at <= world.clock() + timedelta(minutes=1):
                world.wake(event)
        assert world.next_tick().what == "returned"
    assert max(sent) <= 20
    assert sum(sent[10:]) == 0, "all have ended"
    world.assert_survived(executed=16)
    assert_none_is_early(world)


# -- fault 29: a task is cancelled, rescheduled, edited, deleted or replaced after its wake-up was sent. It does not
# run, up to the very second. ------------------------------------------------------------------------------------------


def later(world: World) -> str:
    return (world.clock() + timedelta(seconds=90)).strftime("%Y-%m-%dT%H:%M:%SZ")


CHANGES: dict[str, Callable[[World, str], object]] = {
    "cancelled": lambda world, task_id: world.cancel(task_id),
    "rescheduled": lambda world, task_id: world.reschedule(task_id, due_at=later(world)),
    "edited by hand": lambda world, task_id: world.edit(task_id, "dueAt", later(world)),
    "deleted": lambda world, task_id: world.delete(task_id),
    "replaced": lambda world, task_id: world.put(taskId=task_id, dueAt=later(world)),
}


@pytest.mark.parametrize("seen", [True, False], ids=["seen by the scheduler", "not yet seen"])
@pytest.mark.parametrize("change", CHANGES)
def test_fault_29_changed_after_its_wake_up_was_sent(new_world: NewWorld, change: str, seen: bool) -> None:
    world = new_world(**SECOND)
    due = world.clock() + timedelta(seconds=30)
    ids = [f"t{n}" for n in range(10)]
    for task_id in ids:
        world.insert(task_id, due_at=due)
    world.deliver_stream()
    sent = world.wake_ups()
    assert len(sent) == 1
    world.clock.to(due - timedelta(seconds=1))
    for task_id in ids:
        CHANGES[change](world, task_id)
    if seen:
        world.deliver_stream()
    world.clock.to(due)
    for event, _ in sent * 2:
        assert world.wake(event).what == "returned"
    assert not world.journal.of(Began)
    run(world, 3)
    ended = {"cancelled": {"cancelled": 10}, "deleted": {"deleted": 10}, "replaced": {"executed": 10, "replaced": 10}}
    world.assert_survived(**ended.get(change, {}))
    assert_none_is_early(world)

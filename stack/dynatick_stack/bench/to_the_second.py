"""What tasks cost with Precision second and with tick, counted on an installation from insert to drained buckets.

The clock stands still: each wake-up is delivered when all of its tasks are due, and how long its invocation would have
waited until then follows from the delay with which it was sent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from dynatick.domain.buckets import instant_of, minute_of
from dynatick.domain.instants import format_instant
from dynatick.engine.rules import Precision
from dynatick_stack.bench.installation import ACTION, Clock, Installation
from dynatick_stack.bench.units import Meter
from dynatick_stack.bench.wake_up_price import Sqs, Tasks, Woken
from dynatick_stack.counting.counts import Counts, Engine

SETTLED = 5  # ticks after the last task: by then its bucket is drained

Insert = Callable[[Installation, Sequence[tuple[str, datetime]]], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Counted:
    """What tasks have cost."""

    ticks: int
    counts: Counts
    woken: Woken


def timed(installation: Installation, tasks: Sequence[tuple[str, datetime]]) -> None:
    """Inserts tasks with a time, by the client."""
    rows = [{"taskId": task_id, "dueAt": format_instant(at), "action": ACTION} for task_id, at in tasks]
    assert installation.client.insert_many(rows).inserted == len(rows)


def count(
    engine: Engine, precision: Precision, tasks: Tasks, *, shards: int = 1, insert: Insert = timed, ahead: int = 4
) -> Counted:
    """``ahead``: minutes from the insert to the first one; with more than two, ticks plan the tasks."""
    clock = Clock(still=True)
    sqs = Sqs(clock)
    queue = sqs.queue() if precision is Precision.SECOND else None
    installation = Installation.fresh(engine.url, stream=True, shard_count=shards, clock=clock, wake_ups=queue)
    for _ in range(SETTLED):
        _minute(installation, sqs)
    meter = Meter(engine)
    begin = instant_of(minute_of(clock()) + ahead)
    due = [(task_id, begin + after) for task_id, after in tasks]
    insert(installation, due)
    installation.schedule()
    messages = ticks = 0
    waited = timedelta()
    last = minute_of(max((at for _, at in due), default=begin)) + 1 + SETTLED
    while minute_of(clock()) < last:
        waits = _minute(installation, sqs)
        messages, waited, ticks = messages + len(waits), waited + sum(waits, timedelta()), ticks + 1
    counts = meter.read()
    rows = installation.store.get_many([task_id for task_id, _ in tasks]).values()
    assert [row["status"] for row in rows] == ["completed"] * len(tasks), "all have ended"
    installation.delete()
    woken = Woken(tasks=len(tasks), sends=sqs.sends, messages=messages, waited=waited)
    return Counted(ticks=ticks, counts=counts, woken=woken)


def _minute(installation: Installation, sqs: Sqs) -> list[timedelta]:
    """Delivers what the queue has for this minute, and then the next tick comes. Returns for how long each delivery has
    waited."""
    end, waits = instant_of(minute_of(installation.clock()) + 1), []
    while ready := [one for one in sqs.messages if one.last < end]:
        message = min(ready, key=lambda one: one.last)
        sqs.messages.remove(message)
        installation.clock.to(message.last)
        delivery = {"Records": [{"body": message.body}]}
        invoked = installation.processor.handle(delivery, hard_end=installation.clock() + timedelta(minutes=2))
        assert invoked.malformed_wake_up is None, invoked.malformed_wake_up
        waits.append(max(message.last - message.at, timedelta()))
        installation.schedule()
    installation.next_tick()
    installation.schedule()
    return waits

"""What wake-ups cost beyond precision tick: messages, invocations, and the time for which they wait.

Computed with the engine's own grouping and delays for tasks that ticks plan; the tests count the same on an
installation.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from dynatick.actions.wake_up_queue import QueueWakeUps
from dynatick.domain.buckets import Bucket, Grid, instant_of
from dynatick.domain.row import Due
from dynatick.engine.orders import WakeUp, parse_wake_up, send_wake_ups, wake_ups_of
from dynatick.engine.ports import ENVELOPE
from dynatick.engine.rules import TICKS_PLANNED, Rules
from dynatick.wiring import WAKE_UP_LEAD
from dynatick_stack.bench.installation import START, Clock
from dynatick_stack.markdown import Table
from dynatick_stack.plan.figures import GB_SECOND, LAMBDA_REQUEST

# us-east-1, November 2026
SQS_REQUEST = 0.40 / 1e6
CHUNK = 64 * 1024  # bytes that SQS bills as one request
POLLERS, POLL_SECONDS = 5, 20  # Lambda's, of a queue that is empty: long polls
MONTH = timedelta(days=365 / 12)

SEED = 14
AFTER_THE_MINUTE = timedelta(milliseconds=100)  # ticks begin
SHARDS = (1, 8)
MINUTES = {1: 30, 10: 6, 100: 1}  # by tasks a second
MEMORY_MB = (256, 1024)

Tasks = Sequence[tuple[str, timedelta]]
"""Ids, and how long after a minute each is due."""


@dataclass(frozen=True, slots=True)
class Message:
    """A wake-up in the queue. ``at``: when its delay has passed."""

    at: datetime
    body: str

    @property
    def last(self) -> datetime:
        """Its last instant: until then its invocation waits."""
        order = parse_wake_up(json.loads(self.body)[ENVELOPE]["wakeUp"])
        return order.due[-1].at if isinstance(order, WakeUp) else order.at


@dataclass
class Sqs:
    """The client of a queue that keeps what it is sent, and counts requests as they are billed."""

    clock: Clock
    sends: int = 0
    messages: list[Message] = field(default_factory=list)

    def send_message_batch(self, *, QueueUrl: str, Entries: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        self.sends += -(-sum(len(entry["MessageBody"]) for entry in Entries) // CHUNK)
        for entry in Entries:
            at = self.clock() + timedelta(seconds=entry["DelaySeconds"])
            self.messages.append(Message(at, entry["MessageBody"]))
        return {}

    def queue(self) -> QueueWakeUps:
        """The product's queue on this client."""
        return QueueWakeUps(self, "https://sqs.example/1/wake-ups", clock=self.clock, lead=WAKE_UP_LEAD)


@dataclass(frozen=True, kw_only=True, slots=True)
class Woken:
    """What the wake-ups of tasks took. Each message is sent, received and deleted, and invokes the processor."""

    tasks: int
    sends: int  # billed
    messages: int
    waited: timedelta  # by all invocations, from the end of the delay until the last of their tasks was due

    def a_million(self, memory_mb: int) -> float:
        """The price for a million such tasks."""
        requests = (self.sends + 2 * self.messages) * SQS_REQUEST + self.messages * LAMBDA_REQUEST
        return (requests + self.waited.total_seconds() * memory_mb / 1024 * GB_SECOND) / self.tasks * 1e6


def spread(rate: int, minutes: int) -> Tasks:
    """``rate`` tasks a second, each at random within its share of the time."""
    dice = random.Random(SEED)
    return [
        (f"{dice.getrandbits(64):016x}", timedelta(milliseconds=int(1000 * (n + dice.random()) / rate)))
        for n in range(rate * 60 * minutes)
    ]


def woken(tasks: Tasks, *, shards: int = 1, threads: int = Rules().threads) -> Woken:
    """What the wake-ups take that ticks send for tasks that were inserted before."""
    grid, by_bucket = Grid(shard_count=shards), defaultdict[Bucket, list[Due]](list)
    for task_id, after in tasks:
        by_bucket[grid.bucket_of(task_id, START + after)].append(Due(START + after, task_id))
    clock = Clock(START - timedelta(hours=1), still=True)
    sqs = Sqs(clock)
    for bucket in sorted(by_bucket):
        clock.to(instant_of(bucket.minute - TICKS_PLANNED * grid.tick_minutes) + AFTER_THE_MINUTE)
        due = ((bucket, one) for one in by_bucket[bucket])
        send_wake_ups(sqs.queue(), wake_ups_of(due, threads=threads))
    waited = sum((max(one.last - one.at, timedelta()) for one in sqs.messages), timedelta())
    return Woken(tasks=len(tasks), sends=sqs.sends, messages=len(sqs.messages), waited=waited)


def idle_polls() -> float:
    """The price of Lambda's polls of the empty queue for a month."""
    return POLLERS * MONTH.total_seconds() / POLL_SECONDS * SQS_REQUEST


def table() -> Table:
    """The table of docs/cost.md."""
    rows = []
    for shards in SHARDS:
        for rate, minutes in MINUTES.items():
            found = woken(spread(rate, minutes), shards=shards)
            rows.append(
                (str(rate), str(shards), f"{found.messages / found.tasks:.3f}",
                 f"{found.waited.total_seconds() / found.tasks * 1000:,.0f} ms",
                 *(f"${found.a_million(memory):.2f}" for memory in MEMORY_MB))
            )  # fmt: skip
    columns = ("Tasks a second", "ShardCount", "messages a task", "waiting a task")
    return (*columns, *(f"a million, {memory:,} MB" for memory in MEMORY_MB)), rows

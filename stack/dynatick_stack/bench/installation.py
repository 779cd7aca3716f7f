"""Dynatick on a table of an endpoint, with a clock that can be put forward: what the benchmarks measure.

Processor and scheduler are those of the functions, without Lambda around them. The actions are the product's, with one
handler more that does nothing.
"""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any
from urllib.request import urlopen

import boto3
import orjson

from dynatick.actions import build_actions
from dynatick.actions.registry import Action
from dynatick.client import Inserted, TaskClient
from dynatick.domain.buckets import Bucket, Grid, instant_of, minute_of
from dynatick.domain.limit_keys import parse_limits
from dynatick.domain.normalise import Defaults
from dynatick.domain.task import Task
from dynatick.engine.counts import PassReport
from dynatick.engine.ports import ActionContext, Invoker, WakeUps
from dynatick.engine.rules import Precision, Rules
from dynatick.errors import PermanentError
from dynatick.store.dynamodb import DynamoStore
from dynatick.testing.functions import Functions, rule_event
from dynatick.testing.table import is_for_stream
from dynatick_stack.template import table_definition

REGION = "us-east-1"
ACTION = "nothing"
FAILING = "failing"
INDEX = "taskDateTime-index"
STREAM_BATCH = 100  # as the template's
START = datetime(2026, 12, 31, 12, 0, tzinfo=UTC)


class Clock:
    """Runs with the machine's from where it was set, or stands still there, and can be put forward."""

    def __init__(self, now: datetime = START, *, still: bool = False) -> None:
        self._base, self._began, self._still = now, time.monotonic(), still

    def __call__(self) -> datetime:
        return self._base if self._still else self._base + timedelta(seconds=time.monotonic() - self._began)

    def to(self, instant: datetime) -> None:
        """Puts it forward; an earlier instant changes nothing."""
        self._base += max(instant - self(), timedelta())


class Nothing:
    """An action that does nothing."""

    def run(self, task: Task, context: ActionContext) -> object:
        return None


class Failing:
    """An action that fails for good."""

    def run(self, task: Task, context: ActionContext) -> object:
        raise PermanentError("as planned")


def dynamodb(endpoint: str) -> Any:
    """A boto3 client of the endpoint, as boto3 makes it."""
    return boto3.client("dynamodb", endpoint_url=endpoint, region_name=REGION)


def make_table(endpoint: str, *, stream: bool = False) -> str:
    """A new table by the template's schema. Its stream is left out where nobody reads it, for engines keep it."""
    name = f"dynatick-bench-{uuid.uuid4().hex[:12]}"
    definition = table_definition()
    if not stream:
        del definition["StreamSpecification"]
    client = dynamodb(endpoint)
    client.create_table(TableName=name, **definition)
    client.get_waiter("table_exists").wait(TableName=name, WaiterConfig={"Delay": 1})
    return name


@dataclass
class Installation:
    """One table with everything that works on it. Shards of a tick, and continuations, run one after another."""

    endpoint: str
    table: str
    shard_count: int = 1
    threads: int = Rules().threads
    max_workers: int = 0
    key_limits: tuple[str, ...] = ()  # as in KeyLimits
    clock: Clock = field(default_factory=Clock)
    wake_ups: WakeUps | None = None  # given: Precision second
    action: Action = field(default_factory=Nothing)  # of the tasks
    invoker: Invoker | None = None  # given: invocations that the processor asks for are another one's

    def __post_init__(self) -> None:
        self.rules = Rules(
            grid=Grid(shard_count=self.shard_count),
            precision=Precision.TICK if self.wake_ups is None else Precision.SECOND,
            threads=self.threads,
            max_workers=self.max_workers,
            defaults=Defaults(key_limits=parse_limits(self.key_limits)),
        )
        self.store = DynamoStore(self.table, region=REGION, endpoint_url=self.endpoint)
        self.client = TaskClient(self.store, clock=self.clock)
        self.invocations = 0  # those that were made
        self.actions = build_actions(handlers_module=None, clock=self.clock)
        self.actions.add(ACTION, self.action)
        self.actions.add(FAILING, Failing())
        self.functions = Functions(
            store=self.store,
            clock=self.clock,
            actions=self.actions,
            rules=self.rules,
            wake_ups=self.wake_ups,
            tokens=map(f"{uuid.uuid4().hex}.{{}}".format, itertools.count(1)),  # as long as the function's
            invoker=self.invoker,
        )
        self.processor = self.functions.processor

    @classmethod
    def fresh(cls, endpoint: str, *, stream: bool = False, **more: Any) -> Installation:
        """Returns an installation on a new table, after its first tick."""
        made = cls(endpoint, make_table(endpoint, stream=stream), **more)
        made.tick()
        return made

    def delete(self) -> None:
        dynamodb(self.endpoint).delete_table(TableName=self.table)

    # -- the processor ---------------------------------------------------------------------------------------------

    def _handle(self, event: Mapping[str, object], seconds: float) -> list[PassReport]:
        """One invocation: a pass, or none, if it polls idle shards."""
        self.invocations += 1
        invoked = self.processor.handle(event, hard_end=self.clock() + timedelta(seconds=seconds))
        if invoked.fault is not None:
            raise invoked.fault
        return [] if invoked.passed is None else [invoked.passed]

    def tick(self, *, seconds: float = 120) -> list[PassReport]:
        """The present minute's tick, with all that it starts; each invocation may take so long."""
        return self.first_passes(seconds=seconds) + self.run_asked(seconds=seconds)

    def run_asked(self, *, seconds: float = 120) -> list[PassReport]:
        """What the processor has asked for."""
        reports: list[PassReport] = []
        while started := self.functions.started:
            reports += self._handle(started.pop(0), seconds)
        return reports

    def first_passes(self, *, seconds: float) -> list[PassReport]:
        """The present minute's tick without what it starts."""
        return self._handle(rule_event(self.clock()), seconds)

    def next_tick(self) -> list[PassReport]:
        """Time goes on to the next minute, and its tick."""
        self.forward()
        return self.tick()

    def forward(self) -> None:
        self.clock.to(instant_of(minute_of(self.clock()) + 1) + timedelta(milliseconds=100))

    def bucket(self, ahead: int = 1) -> Bucket:
        """The bucket of a tick that is still to come."""
        return Bucket(minute_of(self.clock()) + ahead)

    # -- the scheduler ---------------------------------------------------------------------------------------------

    def schedule(self) -> int:
        """The scheduler on what the stream brings, until nothing comes any more. Returns how many batches it got."""
        batches = 0
        while records := self._records():
            passing = [record for record in records if _passes(record)]
            for start in range(0, len(passing), STREAM_BATCH):
                self.functions.deliver(passing[start : start + STREAM_BATCH])
                batches += 1
        return batches

    def _records(self) -> list[dict[str, Any]]:
        """What has come since the last call: the counting endpoint has a stream in a form of its own."""
        with urlopen(f"{self.endpoint}/records/{self.table}") as answer:
            found: list[dict[str, Any]] = orjson.loads(answer.read())
        return found

    def insert(self, number: int, bucket: Bucket, *, prefix: str = "t", fail_every: int = 0, **more: object) -> None:
        """Inserts tasks that do nothing, by the client. ``fail_every`` n: each n-th fails for good. ``more``: further
        attributes."""
        rows = (
            {**row(f"{prefix}{n}", bucket, FAILING if fail_every and n % fail_every == 0 else ACTION), **more}
            for n in range(number)
        )
        wrong = [result for result in self.client.insert_lazily(rows) if not isinstance(result, Inserted)]
        assert not wrong, wrong[:3]

    def insert_batch(self, number: int, bucket: Bucket) -> None:
        """Inserts a batch whose members do nothing, by the client."""
        self.client.batches.insert(map(letter, range(number)), batch_id="batch", action=ACTION, due_at=bucket.instant)

    def fill(
        self, number: int, bucket: Bucket, *, prefix: str = "t", limit_key: Callable[[int], str] | None = None
    ) -> None:
        """Writes tasks as the client does, quicker. ``limit_key``: that of the n-th."""
        self.insert(1, bucket, prefix="example-")
        example = self.store.get("example-0")
        assert example is not None
        self.store.delete("example-0")
        for first in range(0, number, 1000):
            rows = [
                {**example, "taskId": f"{prefix}{n:07}", **({} if limit_key is None else {"limitKey": limit_key(n)})}
                for n in range(first, min(first + 1000, number))
            ]
            assert all(created is True for created in self.store.create_many(rows))


def row(task_id: str, bucket: Bucket, action: str = ACTION) -> dict[str, object]:
    """A task as a caller gives it: well below 1 KB, with a payload."""
    return {
        "taskId": task_id,
        "taskDateTime": str(bucket),
        "action": action,
        "payload": {"to": "ada@example.com", "text": "It is time"},
    }


def letter(n: int) -> dict[str, object]:
    """The payload of a member: 200 bytes as JSON, of which 16 are random."""
    code = sha256(str(n).encode()).hexdigest()[:32]
    text = "Your contract ends in four weeks. Renew it on the page that this link leads to."
    return {"to": f"{code[:8]}@example.com", "subject": "Your contract", "text": text, "code": code}


def _passes(record: Mapping[str, Any]) -> bool:
    """Whether the template's stream filter hands a record to the scheduler."""
    event = record["eventName"]
    return event != "REMOVE" and is_for_stream(record["dynamodb"]["NewImage"], is_new=event == "INSERT")

"""Helpers for the tests of the deployed system: they read its table, and wait for conditions."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from boto3.dynamodb.types import TypeDeserializer, TypeSerializer

from dynatick.client import TaskClient
from dynatick.domain.buckets import Bucket, instant_of, minute_of
from dynatick_stack import local, template
from dynatick_stack.demo.observe import DeadLetters
from dynatick_stack.demo.receiver import Answer, Call, Receiver, answer
from dynatick_stack.local import LocalStack

ORDINARY = ("DEBUG", "INFO")
ENDED = ("completed", "failed", "cancelled")
# The scheduler's first batch waits for the function to start.
STREAM_SECONDS = 30.0
# A task waits for the next minute at the most, and a pass takes a moment.
TICK_SECONDS = 90.0
# How many times as long as that a busy machine may take.
SLOWEST_MACHINE = 4
# Time enough to insert something before the tick that it is for.
ROOM_SECONDS = 8

_to_dynamodb = TypeSerializer().serialize
_from_dynamodb = TypeDeserializer().deserialize

Row = dict[str, Any]


def eventually(condition: Callable[[], object], *, within: float, what: object = "") -> None:
    """Waits for a condition; fails if it doesn't come. ``what`` is said then; a function of it is asked.

    ``within``: seconds that it should take at the most on a machine with nothing else to do.
    """
    within *= SLOWEST_MACHINE
    end = time.monotonic() + within
    while not condition():
        if time.monotonic() > end:
            said = what() if callable(what) else what
            raise AssertionError(f"not within {within:.0f} s: {said or condition}")
        time.sleep(0.1)  # wait: between two looks at the condition


def now() -> datetime:
    return datetime.now(UTC)


def bucket(minutes: int, *, shard: int = 0, of: datetime | None = None) -> str:
    """The bucket of a given number of minutes after the present one."""
    return str(Bucket(minute_of(of or now()) + minutes, shard))


def iso(seconds: float) -> str:
    return (now() + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def instant(text: object) -> datetime:
    """An instant of a row. As texts they don't compare: some have milliseconds."""
    return datetime.fromisoformat(str(text))


def room(seconds: float = ROOM_SECONDS) -> None:
    """Waits for the next minute if this one is nearly over, so that what follows fits before the tick."""
    end = instant_of(minute_of(now()) + 1)
    if end - now() < timedelta(seconds=seconds):
        eventually(lambda: now() >= end, within=seconds + 5, what="the next minute")


@dataclass(kw_only=True)
class DeployedStack:
    """A deployed stack, with a receiver for its webhooks."""

    stack: LocalStack
    receiver: Receiver
    client: TaskClient = field(init=False)
    letters: DeadLetters = field(init=False)
    dynamodb: Any = field(init=False)
    _ticked: int = field(default=0, init=False)
    _ticked_at: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self.client = self.stack.task_client()
        self.letters = DeadLetters(self.stack)
        self.dynamodb = self.stack.client("dynamodb")

    # -- raw rows --------------------------------------------------------------------------------------------------

    def put(self, task_id: str, **attributes: object) -> None:
        """Does what `put-item` does."""
        item = {name: _to_dynamodb(value) for name, value in {"taskId": task_id, **attributes}.items()}
        self.dynamodb.put_item(TableName=self.stack.table, Item=item)

    def put_webhook(self, task_id: str, path: str = "/", **attributes: object) -> None:
        """A task whose executions the receiver counts."""
        payload = {"url": f"{self.receiver.url}{path}"}
        self.put(task_id, **{"action": "webhook", "payload": payload} | attributes)

    def edit(self, task_id: str, **attributes: object) -> None:
        """Does what `update-item` does with SET."""
        self.dynamodb.update_item(
            TableName=self.stack.table,
            Key={"taskId": {"S": task_id}},
            UpdateExpression="SET " + ", ".join(f"#{name} = :{name}" for name in attributes),
            ExpressionAttributeNames={f"#{name}": name for name in attributes},
            ExpressionAttributeValues={f":{name}": _to_dynamodb(value) for name, value in attributes.items()},
        )

    def row(self, task_id: str) -> Row | None:
        answer = self.dynamodb.get_item(TableName=self.stack.table, Key={"taskId": {"S": task_id}}, ConsistentRead=True)
        return _plain(answer["Item"]) if "Item" in answer else None

    def the(self, task_id: str) -> Row:
        """A row that must be there."""
        row = self.row(task_id)
        assert row is not None, f"there is no row {task_id}"
        return row

    def rows(self) -> Iterator[Row]:
        """Every task of the table, without our own rows."""
        for page in self.dynamodb.get_paginator("scan").paginate(TableName=self.stack.table, ConsistentRead=True):
            for item in page["Items"]:
                if not item["taskId"]["S"].startswith("_dynatick#"):
                    yield _plain(item)

    def status(self, task_id: str) -> object:
        row = self.row(task_id)
        return None if row is None else row.get("status")

    def runs(self, task_id: str) -> list[tuple[str, str]]:
        """Path and idempotency key of each webhook that a task has sent."""
        return [(call.path, call.key) for call in self.receiver.of(task_id)]

    # -- the functions ---------------------------------------------------------------------------------------------

    def tick_by_hand(self) -> None:
        """Sends the rule's event without waiting: some tests need an invocation that dies."""
        event = {"source": "aws.events", "time": now().strftime("%Y-%m-%dT%H:%M:%SZ")}
        self.stack.client("lambda").invoke(
            FunctionName=self.stack.outputs["ProcessorFunctionName"],
            InvocationType="Event",
            Payload=json.dumps(event).encode(),
        )

    def run_until(
        self,
        condition: Callable[[], object],
        *,
        within: float = TICK_SECONDS,
        what: object = "",
        tick_every: float = 60,
    ) -> None:
        """Waits for a condition, with ticks by hand beside the rule's own: it fires up to ten seconds late here.

        At the beginning of each minute, and every ``tick_every`` seconds.
        """

        def checked() -> object:
            minute, seconds = minute_of(now()), time.monotonic() - self._ticked_at
            if minute != self._ticked or seconds >= tick_every:
                self._ticked, self._ticked_at = minute, time.monotonic()
                self.tick_by_hand()
            return condition()

        def said() -> str:
            return f"{what() if callable(what) else what}\n" + "\n".join(self.complaints())

        eventually(checked, within=within, what=said)

    def run_to_end(
        self, task_ids: Iterable[str], *, within: float = TICK_SECONDS, tick_every: float = 60
    ) -> dict[str, Row]:
        """Waits until all of these have ended; their rows."""
        ids = list(task_ids)

        def waiting() -> list[str]:
            return [task_id for task_id in ids if (self.row(task_id) or {}).get("outcome") not in ENDED]

        self.run_until(
            lambda: not waiting(),
            within=within,
            what=lambda: [self.row(one) for one in waiting()],
            tick_every=tick_every,
        )
        return {task_id: self.the(task_id) for task_id in ids}

    def settled(self, task_id: str, *, within: float = STREAM_SECONDS) -> Row:
        """The row once the scheduler has made a task of it."""
        eventually(lambda: self.status(task_id) is not None, within=within, what=lambda: self.row(task_id))
        return self.the(task_id)

    def complaints(self) -> list[str]:
        """Returns the log lines above INFO: they explain most of what goes wrong."""
        return [
            str(line) for line in self.stack.logs() if line.record is None or line.record.get("level") not in ORDINARY
        ][:40]

    def letters_of(self, task_id: str) -> list[Mapping[str, Any]]:
        return [letter for letter in self.letters.take() if letter["taskId"] == task_id]


@contextmanager
def deployed(
    state_dir: Path,
    *,
    root: Path = template.ROOT,
    answers: Callable[[Call, int], Answer] = answer,
    **parameters: object,
) -> Iterator[DeployedStack]:
    """A stack of a test's own, from the checkout at ``root``; its webhook receiver answers as ``answers`` says."""
    given = {name: str(value) for name, value in parameters.items()}
    try:
        with Receiver(answers) as receiver:
            stack = local.up(0, given, state_dir=state_dir, root=root)
            yield DeployedStack(stack=stack, receiver=receiver)
    finally:
        local.down(state_dir=state_dir)


def _plain(item: Mapping[str, Any]) -> Row:
    return {name: _from_dynamodb(value) for name, value in item.items()}

"""A running stack seen from outside: rows, webhooks, dead letters, log lines."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from dynatick.client import TaskClient, TaskView
from dynatick.client.operations import IdleTicks, TickView
from dynatick.domain.buckets import Bucket, minute_of
from dynatick_stack.demo.receiver import Call, Receiver
from dynatick_stack.local import LocalStack
from dynatick_stack.logs import LogLine, LogReader

ENDED = frozenset({"completed", "failed", "cancelled"})


def served_through(client: TaskClient, since: str) -> str:
    """The latest tick after ``since`` that has done its work; ``since`` if none has."""
    ends = [since]
    for tick in client.operations.ticks(start=since, end=str(Bucket(minute_of(datetime.now(UTC)) + 1))):
        if isinstance(tick, TickView) and tick.finished_at is not None:
            ends.append(tick.tick)
        elif isinstance(tick, IdleTicks):
            ends.append(tick.until)
    return max(ends)


class DeadLetters:
    """Takes messages out of the dead-letter queue, and keeps them."""

    def __init__(self, stack: LocalStack) -> None:
        self._sqs = stack.client("sqs")
        self._url = stack.outputs["DeadLetterQueueUrl"]
        self._taken: list[Mapping[str, Any]] = []

    def take(self) -> list[Mapping[str, Any]]:
        """All that ever came, in the order in which they were taken."""
        while messages := self._sqs.receive_message(QueueUrl=self._url, MaxNumberOfMessages=10).get("Messages"):
            for message in messages:
                self._taken.append(json.loads(message["Body"]))
                self._sqs.delete_message(QueueUrl=self._url, ReceiptHandle=message["ReceiptHandle"])
        return list(self._taken)


class Observer:
    """What there was to see of the tasks with these ids, when ``read`` was called last."""

    def __init__(self, stack: LocalStack, client: TaskClient, receiver: Receiver, ids: Sequence[str]) -> None:
        self._client, self._receiver, self._ids = client, receiver, ids
        self._letters = DeadLetters(stack)
        self._logs = LogReader(stack.endpoint, since=time.time())
        self.tasks: Mapping[str, TaskView] = {}  # those that are in the table
        self.calls: Sequence[Call] = ()
        self.letters: Sequence[Mapping[str, Any]] = ()

    def read(self) -> list[LogLine]:
        """What the functions wrote since the last time."""
        rows = self._client.store.get_many(self._ids)
        self.tasks = {task_id: TaskView.from_row(row) for task_id, row in rows.items()}
        self.calls, self.letters = self._receiver.calls, self._letters.take()
        return [line for line in self._logs.read() if line.record is not None]

    @property
    def waiting(self) -> int:
        return sum(task.status not in ENDED for task in self.tasks.values())

    def __str__(self) -> str:
        counts = Counter(task.status for task in self.tasks.values())
        shown = "  ".join(f"{status} {number}" for status, number in sorted(counts.items()))
        return f"{shown}  |  webhooks {len(self.calls)}  dead letters {len(self.letters)}"

"""Looks at a running stack from outside: rows, dead letters, webhooks, log lines."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from dynatick.client import TaskClient, TaskEntry, TaskView, TickEntry
from dynatick.domain.buckets import Bucket, minute_of
from dynatick_stack.demo.receiver import Call, Receiver
from dynatick_stack.local import LocalStack
from dynatick_stack.logs import LogLine, LogReader

ENDED = frozenset({"completed", "failed", "cancelled"})
PAGE = 1000


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What there was to see at one moment."""

    at: datetime
    tasks: Mapping[str, TaskView]  # those that are in the table
    calls: Sequence[Call]
    letters: Sequence[Mapping[str, Any]]  # messages of the dead-letter queue
    lines: Sequence[LogLine] = ()  # that the functions wrote since the look before

    @property
    def counts(self) -> Counter[str]:
        return Counter(task.status for task in self.tasks.values())

    @property
    def waiting(self) -> int:
        return sum(1 for task in self.tasks.values() if task.status not in ENDED)


class DeadLetters:
    """Takes messages out of the dead-letter queue, and keeps them."""

    def __init__(self, stack: LocalStack) -> None:
        self._sqs = stack.client("sqs")
        self._url = stack.outputs["DeadLetterQueueUrl"]
        self._taken: list[Mapping[str, Any]] = []

    def take(self) -> list[Mapping[str, Any]]:
        """All that ever came, in the order in which they were taken."""
        while True:
            messages = self._sqs.receive_message(QueueUrl=self._url, MaxNumberOfMessages=10).get("Messages", [])
            if not messages:
                return list(self._taken)
            for message in messages:
                self._taken.append(json.loads(message["Body"]))
                self._sqs.delete_message(QueueUrl=self._url, ReceiptHandle=message["ReceiptHandle"])


@dataclass(kw_only=True)
class Observer:
    """Looks at the tasks with these ids."""

    stack: LocalStack
    client: TaskClient
    receiver: Receiver
    ids: Sequence[str]
    _letters: DeadLetters = field(init=False)
    _logs: LogReader = field(init=False)

    def __post_init__(self) -> None:
        self._letters = DeadLetters(self.stack)
        self._logs = LogReader(self.stack.endpoint, since=time.time())

    def look(self) -> Seen:
        rows = self.client.store.get_many(self.ids) if self.ids else {}
        return Seen(
            at=datetime.now(UTC),
            tasks={task_id: TaskView.from_row(row) for task_id, row in rows.items()},
            calls=self.receiver.calls,
            letters=self._letters.take(),
            lines=[line for line in self._logs.read() if line.record is not None],
        )


def listed(client: TaskClient, start: datetime, end: datetime) -> list[TaskEntry]:
    """The history of every bucket from one instant to another, in order."""
    entries: list[TaskEntry] = []
    token: str | None = None
    while True:
        page = client.history(start=start, end=end, limit=PAGE, page_token=token)
        entries += page.entries
        token = page.next_page_token
        if token is None:
            return entries


def ticks(client: TaskClient, start: datetime, end: datetime) -> list[TickEntry]:
    """What the ticks from one instant to another did."""
    return client.ticks(start=Bucket(minute_of(start)), end=Bucket(minute_of(end) + 1))


def by_id(entries: Iterable[TaskEntry]) -> dict[str, list[TaskEntry]]:
    """A task is listed in one bucket; if it is not, that shows here."""
    found: dict[str, list[TaskEntry]] = {}
    for entry in entries:
        found.setdefault(entry.task_id, []).append(entry)
    return found

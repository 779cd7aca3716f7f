"""A Dynatick of a test's own: a table, a queue and a clock, with the functions in processes that may die."""

from __future__ import annotations

import json
import os
import signal
import uuid
from collections.abc import Collection
from datetime import datetime
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import boto3
from tests.sandbox.clock import START, SharedClock
from tests.sandbox.folder import FOLDER, SharedFolder
from tests.sandbox.handlers import ACTION
from tests.sandbox.history import History
from tests.sandbox.journal import INSERT, INSIDE, ITSELF, RANDOM, TIME, YES, Answered, Asked, Died, Line
from tests.sandbox.process import Sandbox
from tests.sandbox.stream import Stream
from tests.sandbox.verdict import Evidence

from dynatick import TaskClient
from dynatick.domain.task import Row, is_own_row
from dynatick.engine.cursor import Cursor, cursor_id
from dynatick.store.codec import decode
from dynatick.store.dynamodb import DynamoStore
from dynatick_stack.template import ROOT, table_definition


class SandboxInstallation:
    """``endpoint``: of the emulator. ``dynamodb``: of another DynamoDB than its own. ``speed``: of the clock.
    ``environ``: settings of the functions beside those that are always needed.
    """

    worker: str  # the program of a sandbox

    def __init__(
        self,
        endpoint: str,
        folder: Path,
        *,
        dynamodb: str | None = None,
        start: datetime = START,
        speed: float = 1.0,
        **environ: str,
    ) -> None:
        tables = dynamodb or endpoint
        self.folder, self.here = folder, SharedFolder(folder)
        self.log = folder / "log"  # what all processes print
        self.table = f"sandbox-{uuid.uuid4().hex}"
        self.dynamodb = boto3.client("dynamodb", endpoint_url=tables)
        self.dynamodb.create_table(TableName=self.table, **table_definition())
        self.dynamodb.get_waiter("table_exists").wait(TableName=self.table)
        self._sqs = boto3.client("sqs", endpoint_url=endpoint)
        self.queue = self._sqs.create_queue(QueueName=self.table)["QueueUrl"]
        self.clock = SharedClock(folder / "clock", start, speed=speed)  # made before another process looks for it
        self.ledger = self.here.ledger
        self.stream = Stream(self.table, partial(boto3.client, endpoint_url=tables))
        self.store = DynamoStore(self.table, endpoint_url=tables)
        self.client = TaskClient(self.store, clock=self.clock)
        self.lives: dict[str, str] = {}  # of the tasks that this process has inserted: the last of each id
        self._numbers = count()
        self._letters: list[dict[str, Any]] = []
        self._sandboxes: list[Sandbox] = []
        self.environ = {
            "PATH": os.environ.get("PATH", os.defpath),
            "PYTHONPATH": str(ROOT),
            **{name: value for name, value in os.environ.items() if name.startswith("AWS_")},
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ENDPOINT_URL_DYNAMODB": tables,
            "AWS_ENDPOINT_URL_DYNAMODB_STREAMS": tables,
            "AWS_LAMBDA_FUNCTION_NAME": "processor",
            "DYNATICK_TABLE": self.table,
            "DYNATICK_DEAD_LETTER_QUEUE_URL": self.queue,
            "DYNATICK_DEFAULT_ACTION": ACTION,
            "DYNATICK_HANDLERS_MODULE": "tests.sandbox.handlers",
            "POWERTOOLS_METRICS_NAMESPACE": "Dynatick",
            "POWERTOOLS_SERVICE_NAME": "sandbox",
            FOLDER: str(folder),
            **environ,
        }

    def close(self) -> None:
        """Ends all processes, and deletes table and queue."""
        for sandbox in self._sandboxes:
            sandbox.close()
        self.dynamodb.delete_table(TableName=self.table)
        self._sqs.delete_queue(QueueUrl=self.queue)

    def sandbox(self, function: str = "processor", *arguments: str) -> Sandbox:
        """A new process of a function; it starts, and is not waited for."""
        own = {"DYNATICK_ASSIGNMENT_POLICY": "assignment:next_tick"} if function == "scheduler" else {}
        made = Sandbox(self.worker, function, *arguments, environ=self.environ | own, log=self.log)
        self._sandboxes.append(made)
        return made

    def rows(self) -> dict[str, Row]:
        """Every row that is no own one, by id."""
        pages = self.dynamodb.get_paginator("scan").paginate(TableName=self.table, ConsistentRead=True)
        rows = (decode(item) for page in pages for item in page["Items"])
        return {str(row["taskId"]): row for row in rows if not is_own_row(row["taskId"])}

    def cursors(self) -> list[Cursor]:
        found: list[Cursor] = []
        while (row := self.store.get(cursor_id(len(found)))) is not None:
            found.append(Cursor.from_row(len(found), row))
        return found

    def letters(self) -> list[dict[str, Any]]:
        """The messages that have come to the dead-letter queue, earlier calls' included; they are taken out."""
        while messages := self._sqs.receive_message(QueueUrl=self.queue, MaxNumberOfMessages=10).get("Messages"):
            for message in messages:
                self._letters.append(json.loads(message["Body"]))
                self._sqs.delete_message(QueueUrl=self.queue, ReceiptHandle=message["ReceiptHandle"])
        return self._letters

    # -- the journal -----------------------------------------------------------------------------------------------

    def note(self, what: str, *ids: str, interface: str = "client", fails: Collection[str] = (),
             due_at: datetime | None = None) -> None:  # fmt: skip
        """Writes down what was asked for these tasks, and done. ``fails``: those of them that can't but fail.
        ``due_at``: as the answer showed it."""
        at, lines = self.here.now(), list[Line]()
        for task_id in ids:
            life = self.lives.setdefault(task_id, task_id) if what == INSERT else self.lives.get(task_id, task_id)
            asked = Asked(number=f"test.{next(self._numbers)}", what=what, interface=interface, task_id=task_id,
                          life=life, at=at, fails=task_id in fails)  # fmt: skip
            due = None if due_at is None else due_at.timestamp()
            lines += [asked, Answered(number=asked.number, answer=YES, at=at, due_at=due)]
        self.here.journal.add(*lines)

    def note_death(self, sandbox: Sandbox, code: int, *, struck: bool = False) -> None:
        """Writes down that a process has died. ``struck``: killed from outside."""
        why = {-signal.SIGKILL: RANDOM if struck else INSIDE, -signal.SIGALRM: TIME}.get(code, ITSELF)
        self.here.journal.add(Died(pid=sandbox.pid, role=sandbox.function, why=why))

    def evidence(self, history: History, **given: Any) -> Evidence:
        """For the verdict: with what table and queue hold now, and with what the caller knows."""
        return Evidence(
            history=history,
            rows=self.rows(),
            drained={shard: cursor.drained_through for shard, cursor in enumerate(self.cursors())},
            letters={(one["taskId"], str(one.get("createdAt")), one.get("run", 1)) for one in self.letters()},
            findings=[f"{finding.task_id}: {finding.why}" for finding in self.client.doctor().findings],
            **given,
        )

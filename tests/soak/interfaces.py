"""The interfaces to the table, with the journal's lines: before a call the request, after it the response."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import count
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from tests.sandbox.folder import SharedFolder
from tests.sandbox.journal import BATCH, CANCEL, DELETE, INSERT, OK, REFUSED, REPLACE, UNKNOWN, Responded
from tests.soak.batches import RandomBatch
from tests.soak.tasks import RandomTask

from dynatick import TaskClient
from dynatick.client import Exists, Inserted, NewTask, TaskView
from dynatick.errors import DynatickError, StoreError, TaskExists
from dynatick.store.codec import encode
from dynatick_stack.template import ROOT

BARE, TIMED, SINGLE, MANY, COMMAND = "put-item", "put-item with a time", "insert", "insert_many", "task import"
_ERRORS = (DynatickError, ClientError, BotoCoreError)
NEW = {"ConditionExpression": "attribute_not_exists(taskId)"}
_IMPORT_SECONDS = 60


class Interfaces:
    """``name`` is a prefix of the request ids, unlike any other process's."""

    def __init__(self, name: str, folder: SharedFolder, client: TaskClient, dynamodb: Any, table: str) -> None:
        self._name, self._numbers = name, count()
        self._folder, self._client, self._dynamodb, self._table = folder, client, dynamodb, table

    # -- inserting. Each returns the tasks of which it is known that they are in. ----------------------------------

    def put_bare(self, task: RandomTask) -> list[RandomTask]:
        """put-item, without a time, under an id that no client had; so does the next."""
        return self._request(INSERT, BARE, task, lambda: self._put(task.row, **NEW))

    def put_timed(self, task: RandomTask) -> list[RandomTask]:
        return self._request(INSERT, TIMED, task, lambda: self._put(task.timed, **NEW))

    def insert(self, task: RandomTask) -> list[RandomTask]:
        new = NewTask.from_row(task.timed)
        names = ("task_date_time", "due_at", "delay_seconds", "payload", "retry_policy", "limit_key")
        arguments: dict[str, Any] = {name: getattr(new, name) for name in names}
        return self._request(INSERT, SINGLE, task, lambda: self._client.insert(new.task_id, **arguments))

    def insert_many(self, tasks: Sequence[RandomTask]) -> list[RandomTask]:
        ids = self._note_requests(INSERT, MANY, tasks)
        taken: list[RandomTask] = []
        results = self._client.insert_lazily([task.timed for task in tasks])
        for request_id, task, result in zip(ids, tasks, results, strict=True):
            # One that exists may be our own, inserted by a call whose response was lost.
            assert isinstance(result, Inserted | Exists) or isinstance(result.error, StoreError), result
            self._note_response(request_id, OK if isinstance(result, Inserted) else UNKNOWN)
            taken += [task] if isinstance(result, Inserted) else []
        return taken

    def command(self, tasks: Sequence[RandomTask], file: Path) -> list[RandomTask]:
        """A file and `dynatick task import`."""
        file.write_text("".join(json.dumps(task.timed) + "\n" for task in tasks))
        ids = self._note_requests(INSERT, COMMAND, tasks)
        ran = subprocess.run(
            [sys.executable, "-m", "tests.soak.commands", "task", "import", str(file), "--output", "json"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=_IMPORT_SECONDS,
            check=False,
        )
        succeeded = ran.returncode == 0
        if succeeded and json.loads(ran.stdout)["inserted"] != len(tasks):
            raise AssertionError(f"the command line reports success, and: {ran.stdout}")
        for request_id in ids:
            self._note_response(request_id, OK if succeeded else UNKNOWN)
        return list(tasks) if succeeded else []

    def load(self, batch: RandomBatch) -> list[RandomTask]:
        """A batch, in parts. What follows is judged by the batch's row: of its insert, nothing is known."""
        tasks = [*batch.members, batch.then]
        ids = self._note_requests(INSERT, BATCH, tasks)
        try:
            batch.load(self._client)
            status = OK
        except _ERRORS:
            status = UNKNOWN
        for request_id in ids[:-1]:
            self._note_response(request_id, status)
        self._note_response(ids[-1], UNKNOWN)
        return batch.members if status == OK else []

    # -- changing --------------------------------------------------------------------------------------------------

    def replace(
        self, task: RandomTask, *, timed: bool, bypassed: Callable[[], AbstractContextManager[None]]
    ) -> list[RandomTask]:
        """put-item over whatever is there. Without faults: sent twice by the SDK, it would be two tasks."""
        with bypassed():
            row = task.timed if timed else task.row
            return self._request(REPLACE, TIMED if timed else BARE, task, lambda: self._put(row))

    def delete(self, task: RandomTask) -> None:
        key = {"TableName": self._table, "Key": {"taskId": {"S": task.task_id}}}
        self._request(DELETE, "delete-item", task, lambda: self._dynamodb.delete_item(**key))

    def change(self, operation: str, task: RandomTask, call: Callable[[], TaskView]) -> None:
        """Changes a task that is there, by the client: CANCEL, RESCHEDULE, RUN."""
        self._request(operation, "client", task, call)

    def change_batch(self, operation: str, batch_id: str, call: Callable[[], object]) -> None:
        """Changes a batch by the client: CANCEL, RESCHEDULE, REDRIVE."""
        self._request(operation, BATCH, RandomTask(task_id=batch_id, incarnation=batch_id, row={}), call)

    def note_cancelled(self, batch_id: str) -> None:
        """Writes down that a batch which its loader had left was cancelled."""
        self.change_batch(CANCEL, batch_id, lambda: None)

    # -- the journal -----------------------------------------------------------------------------------------------

    def _request(
        self, operation: str, interface: str, task: RandomTask, call: Callable[[], object]
    ) -> list[RandomTask]:
        """Makes a call; the task if it succeeded."""
        (request_id,) = self._note_requests(operation, interface, [task])
        try:
            view = call()
        except _ERRORS as error:
            # By a call whose response was lost, which the SDK has made again, it may have been done all the same.
            is_clear = isinstance(error, DynatickError) and not isinstance(error, StoreError | TaskExists)
            self._note_response(request_id, REFUSED if is_clear else UNKNOWN)
            return []
        shown: dict[str, Any] = {}
        if isinstance(view, TaskView):
            shown = {"run": view.run, "due_at": view.due_at and view.due_at.timestamp()}
        self._note_response(request_id, OK, **shown)
        return [task]

    def _note_requests(self, operation: str, interface: str, tasks: Sequence[RandomTask]) -> list[str]:
        requests = [
            task.requested(f"{self._name}.{next(self._numbers)}", operation, interface, self._folder.now())
            for task in tasks
        ]
        self._folder.journal.add(*requests)
        return [request.request_id for request in requests]

    def _note_response(self, request_id: str, status: str, **shown: Any) -> None:
        self._folder.journal.add(Responded(request_id=request_id, status=status, at=self._folder.now(), **shown))

    def _put(self, row: Mapping[str, object], **condition: str) -> None:
        self._dynamodb.put_item(TableName=self._table, Item=encode(row), **condition)

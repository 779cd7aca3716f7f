"""The interfaces to the table, with the journal's lines: before a call what is asked, after it the answer."""

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
from tests.sandbox.journal import DELETE, INSERT, NO, REPLACE, UNCLEAR, YES, Answered
from tests.soak.tasks import Drawn

from dynatick import TaskClient
from dynatick.client import Exists, Inserted, NewTask, TaskView
from dynatick.errors import DynatickError, StoreError, TaskExists
from dynatick.store.codec import encode
from dynatick_stack.template import ROOT

BARE, TIMED, SINGLE, MANY, COMMAND = "put-item", "put-item with a time", "insert", "insert_many", "task import"
_ERRORS = (DynatickError, ClientError, BotoCoreError)
_IMPORT_SECONDS = 60


class Interfaces:
    """``name`` is a prefix of the asks' numbers, unlike any other process's."""

    def __init__(self, name: str, here: SharedFolder, client: TaskClient, dynamodb: Any, table: str) -> None:
        self._name, self._numbers = name, count()
        self._here, self._client, self._dynamodb, self._table = here, client, dynamodb, table

    # -- inserting -------------------------------------------------------------------------------------------------

    def put(self, task: Drawn, *, timed: bool) -> bool:
        """put-item, under an id that no client had. ``timed`` False: and without anything else, if it has no plan."""
        row = task.timed if timed else {"taskId": task.task_id}
        (number,) = self._ask(INSERT, TIMED if timed else BARE, [task])
        return self._note_answer(number, lambda: self._put(row, ConditionExpression="attribute_not_exists(taskId)"))

    def insert(self, task: Drawn) -> bool:
        (number,) = self._ask(INSERT, SINGLE, [task])
        new = NewTask.from_row(task.timed)
        return self._note_answer(
            number,
            lambda: self._client.insert(
                new.task_id,
                task_date_time=new.task_date_time,
                due_at=new.due_at,
                delay_seconds=new.delay_seconds,
                payload=new.payload,
                retry_policy=new.retry_policy,
            ),
        )

    def insert_many(self, tasks: Sequence[Drawn]) -> list[Drawn]:
        """Those of which it is known that they are in."""
        numbers = self._ask(INSERT, MANY, tasks)
        taken: list[Drawn] = []
        for number, task, result in zip(
            numbers, tasks, self._client.insert_lazily([task.timed for task in tasks]), strict=True
        ):
            # One that exists may be our own, inserted by a call whose answer was lost.
            answer = YES if isinstance(result, Inserted) else UNCLEAR
            assert isinstance(result, Inserted | Exists) or isinstance(result.error, StoreError), result
            self._answer(number, answer)
            taken += [task] if answer == YES else []
        return taken

    def command(self, tasks: Sequence[Drawn], file: Path) -> list[Drawn]:
        """A file and `dynatick task import`."""
        file.write_text("".join(json.dumps(task.timed) + "\n" for task in tasks))
        numbers = self._ask(INSERT, COMMAND, tasks)
        ran = subprocess.run(
            [sys.executable, "-m", "tests.soak.commands", "task", "import", str(file), "--output", "json"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=_IMPORT_SECONDS,
            check=False,
        )
        if ran.returncode == 0 and json.loads(ran.stdout)["inserted"] != len(tasks):
            raise AssertionError(f"the command line says that all is well, and: {ran.stdout}")
        for number in numbers:
            self._answer(number, YES if ran.returncode == 0 else UNCLEAR)
        return list(tasks) if ran.returncode == 0 else []

    # -- changing --------------------------------------------------------------------------------------------------

    def replace(self, task: Drawn, *, timed: bool, aside: Callable[[], AbstractContextManager[None]]) -> bool:
        """put-item over whatever is there. Without faults: sent twice by the SDK, it would be two tasks."""
        (number,) = self._ask(REPLACE, TIMED if timed else BARE, [task])
        with aside():
            return self._note_answer(number, lambda: self._put(task.timed if timed else task.row))

    def delete(self, task: Drawn) -> bool:
        (number,) = self._ask(DELETE, "delete-item", [task])
        return self._note_answer(
            number, lambda: self._dynamodb.delete_item(TableName=self._table, Key={"taskId": {"S": task.task_id}})
        )

    def change(self, what: str, task: Drawn, call: Callable[[], TaskView]) -> bool:
        """What the client does with a task that is there: CANCEL, RESCHEDULE, RUN."""
        (number,) = self._ask(what, "client", [task])
        return self._note_answer(number, call)

    # -- the journal -----------------------------------------------------------------------------------------------

    def _ask(self, what: str, interface: str, tasks: Sequence[Drawn]) -> list[str]:
        numbers = [f"{self._name}.{next(self._numbers)}" for _ in tasks]
        at = self._here.now()
        pairs = zip(numbers, tasks, strict=True)
        self._here.journal.add(*(task.asked(number, what, interface, at) for number, task in pairs))
        return numbers

    def _note_answer(self, number: str, call: Callable[[], object]) -> bool:
        """Makes a call and writes down its answer; true if it was done."""
        try:
            answered = call()
        except _ERRORS as error:
            self._answer(number, UNCLEAR if _is_unclear(error) else NO)
            return False
        shown: dict[str, Any] = {}
        if isinstance(answered, TaskView):
            shown = {"run": answered.run, "due_at": answered.due_at and answered.due_at.timestamp()}
        self._answer(number, YES, **shown)
        return True

    def _answer(self, number: str, answer: str, **shown: Any) -> None:
        self._here.journal.add(Answered(number=number, answer=answer, at=self._here.now(), **shown))

    def _put(self, row: Mapping[str, object], **condition: str) -> None:
        self._dynamodb.put_item(TableName=self._table, Item=encode(row), **condition)


def _is_unclear(error: Exception) -> bool:
    """Whether it may have been done all the same: by a call whose answer was lost, which the SDK has made again."""
    return not isinstance(error, DynatickError) or isinstance(error, StoreError | TaskExists)

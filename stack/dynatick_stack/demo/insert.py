"""Puts the batch into the table by the doors that it names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from dynatick.client import Exists, Inserted, InsertUnknown, Refused, TaskClient
from dynatick.client.connect import ClientSettings, open_store
from dynatick.errors import DynatickError, InvalidInput
from dynatick_stack.demo.batch import Door, Expected
from dynatick_stack.deploy import REGION
from dynatick_stack.errors import StackError
from dynatick_stack.local import LocalStack


def task_client(stack: LocalStack) -> TaskClient:
    """The Python client on a local stack, whatever credentials the user has."""
    settings = ClientSettings(
        table=stack.table, region=REGION, endpoint_url=stack.endpoint, credentials=("test", "test")
    )
    return TaskClient(open_store(settings))


def insert(batch: Sequence[Expected], *, dynamodb: Any, table: str, client: TaskClient) -> dict[str, str | None]:
    """For each task that was sent, by id: None if it is in the table, else why it was refused."""
    sent: dict[str, str | None] = {}
    for one in batch:
        if one.door is Door.PUT_ITEM:
            dynamodb.put_item(TableName=table, Item=one.item)
            sent[one.task_id] = None
        elif one.door is Door.INSERT:
            try:
                client.insert(**{_snake(name): value for name, value in one.item.items()})
                sent[one.task_id] = None
            except InvalidInput as refusal:
                sent[one.task_id] = str(refusal)
            except DynatickError as problem:
                raise StackError(f"{one.name}: {problem}") from problem
    many = [one for one in batch if one.door is Door.INSERT_MANY]
    for one, result in zip(many, client.insert_lazily([one.item for one in many]), strict=True):
        match result:
            case Inserted():
                sent[one.task_id] = None
            case Refused(error=reason):
                sent[one.task_id] = str(reason)
            case Exists():
                sent[one.task_id] = "a task of this id exists already"
            case InsertUnknown(error=fault):
                raise StackError(f"{one.name}: {fault}")
    return sent


def _snake(name: str) -> str:
    return re.sub(r"[A-Z]", lambda match: f"_{match[0].lower()}", name)

"""The tables that the model is held against."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import boto3
from botocore.exceptions import ClientError
from tests.model.base_machine import BaseMachine, FreshTable
from tests.model.task_machine import TaskMachine

from dynatick.store.codec import encode
from dynatick.store.dynamodb import DynamoStore
from dynatick.store.memory import MemoryStore
from dynatick_stack.template import table_definition

TableOf = Callable[[], FreshTable]


def in_memory() -> FreshTable:
    store = MemoryStore()
    return store, store.put, lambda: None


def in_dynamodb(endpoint: str | None, *, batched: bool) -> FreshTable:
    """A table at an endpoint; None: moto's, where it stands in for AWS."""
    name = f"model-{uuid.uuid4().hex}"
    client = boto3.client("dynamodb", endpoint_url=endpoint)
    client.create_table(TableName=name, **table_definition())
    client.get_waiter("table_exists").wait(TableName=name)

    def put(row: Any) -> None:
        try:
            client.put_item(TableName=name, Item=encode(row))
        except ClientError as error:
            if "Item size" not in str(error):  # engines count differently, and a row that is refused is not there
                raise

    store = DynamoStore(name, endpoint_url=endpoint, batched=batched)
    return store, put, lambda: client.delete_table(TableName=name) and None


def machine_on(table: TableOf, machine: type[BaseMachine] = TaskMachine) -> type[BaseMachine]:
    """A state machine over fresh tables of a kind."""
    return type("Model", (machine,), {"table": staticmethod(table)})

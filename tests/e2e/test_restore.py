"""The restore drill of docs/how-to/operate.md, with the emulator's DynamoDB and CloudFormation.

The emulator restores to the present, whatever time is asked for: what came after it is what follows here. Streams, TTL
and recovery of the restored table are switched on as AWS wants it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.support import deployed, eventually

from dynatick import TaskClient, TaskNotFound
from dynatick_stack import template
from dynatick_stack.local import LocalStack

pytestmark = pytest.mark.long

RESTORED = "restored"


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[LocalStack]:
    with deployed(tmp_path / "local", TickState="DISABLED") as world:
        yield world.stack


def test_the_restore_drill(stack: LocalStack) -> None:
    client = stack.task_client()
    waits_until = "2036-12-31T12:00:00Z"
    client.insert("ended", delay_seconds=1, action="log")
    client.insert("waits", due_at=waits_until, action="log")
    eventually(lambda: ticked(stack, client, "ended") == "completed", within=150)
    client.insert("ran-since", delay_seconds=1, action="log")
    old = stack.table

    restore(stack)
    client.insert("inserted-since", due_at=waits_until, action="log")
    eventually(lambda: ticked(stack, client, "ran-since") == "completed", within=150)
    dynamodb = stack.client("dynamodb")
    # As if the scheduler had not seen it at that time: the new stream does not show it.
    dynamodb.put_item(TableName=RESTORED, Item={"taskId": {"S": "unseen"}, "delaySeconds": {"N": "1"}})
    complete_the_table(dynamodb)
    adopt(stack)
    assert stack.table == RESTORED
    assert dynamodb.describe_table(TableName=old)["Table"]["TableStatus"] == "ACTIVE", "the old one is kept"

    client = stack.task_client()
    assert client.operations.doctor(repair=True).repaired >= 1
    for task_id in ("ran-since", "unseen"):
        eventually(lambda task_id=task_id: ticked(stack, client, task_id) == "completed", within=150)  # type: ignore[misc]
    assert client.get("ended").run == client.get("ran-since").run == 1, "so their keys are those of before"
    assert client.get("ended").attempt == 1
    assert client.get("waits").status == "scheduled"
    with pytest.raises(TaskNotFound):
        client.get("inserted-since")
    assert client.operations.doctor().findings == ()


def ticked(stack: LocalStack, client: TaskClient, task_id: str) -> object:
    stack.tick()
    return client.get(task_id).status


def restore(stack: LocalStack) -> None:
    dynamodb = stack.client("dynamodb")
    dynamodb.restore_table_to_point_in_time(
        SourceTableName=stack.table, TargetTableName=RESTORED, UseLatestRestorableTime=True
    )
    dynamodb.get_waiter("table_exists").wait(TableName=RESTORED)


def complete_the_table(dynamodb: Any) -> None:
    """A restored table has indexes, and neither stream nor TTL nor point-in-time recovery."""
    wanted = template.table_definition()
    dynamodb.update_table(TableName=RESTORED, StreamSpecification=wanted["StreamSpecification"])
    ttl = {"AttributeName": "expiresAt", "Enabled": True}
    dynamodb.update_time_to_live(TableName=RESTORED, TimeToLiveSpecification=ttl)
    recovery = {"PointInTimeRecoveryEnabled": True}
    dynamodb.update_continuous_backups(TableName=RESTORED, PointInTimeRecoverySpecification=recovery)
    table = dynamodb.describe_table(TableName=RESTORED)["Table"]
    assert {one["IndexName"] for one in table["GlobalSecondaryIndexes"]} == {
        "taskDateTime-index", "schedules-index", "subject-index", "lists-index",
    }  # fmt: skip
    assert table["LatestStreamArn"]


def adopt(stack: LocalStack) -> None:
    """Deletes the stack, imports the table into a new one of the same name, and deploys the whole template over it."""
    cloudformation = stack.client("cloudformation")
    cloudformation.delete_stack(StackName=stack.name)
    cloudformation.get_waiter("stack_delete_complete").wait(StackName=stack.name, WaiterConfig={"Delay": 1})
    whole = template.load()
    needed = {
        "Parameters": ("DeletionProtection", "WarmThroughput", "MaxWriteUnits"),
        "Conditions": ("IsEmulator", "IsWarmed", "HasMaxWriteUnits"),
        "Resources": ("TasksTable",),
    }
    alone = {part: {name: whole[part][name] for name in names} for part, names in needed.items()}
    table = {"ResourceType": "AWS::DynamoDB::Table", "LogicalResourceId": "TasksTable"}
    cloudformation.create_change_set(
        StackName=stack.name,
        ChangeSetName="adopt",
        ChangeSetType="IMPORT",
        TemplateBody=json.dumps(alone),
        ResourcesToImport=[{**table, "ResourceIdentifier": {"TableName": RESTORED}}],
    )
    waiting = {"StackName": stack.name, "ChangeSetName": "adopt", "WaiterConfig": {"Delay": 1}}
    cloudformation.get_waiter("change_set_create_complete").wait(**waiting)
    cloudformation.execute_change_set(StackName=stack.name, ChangeSetName="adopt")
    cloudformation.get_waiter("stack_import_complete").wait(StackName=stack.name, WaiterConfig={"Delay": 1})
    stack.redeploy(TickState="DISABLED")

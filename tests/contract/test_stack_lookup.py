"""The command line finds the table and the functions of a stack in CloudFormation, on the emulator."""

from __future__ import annotations

import json

import boto3
import pytest

from dynatick.cli.exit_code import CommandFailed, ExitCode
from dynatick.cli.session import Session
from dynatick.cli.stack import TABLE, resource

PROPERTIES = {
    "TableName": "found-by-its-stack", "BillingMode": "PAY_PER_REQUEST",
    "KeySchema": [{"AttributeName": "taskId", "KeyType": "HASH"}],
    "AttributeDefinitions": [{"AttributeName": "taskId", "AttributeType": "S"}],
}  # fmt: skip
TEMPLATE = {"Resources": {"TasksTable": {"Type": "AWS::DynamoDB::Table", "Properties": PROPERTIES}}}


def test_a_stack_is_looked_up(emulator_endpoint: str) -> None:
    cloudformation = boto3.client("cloudformation", endpoint_url=emulator_endpoint)
    cloudformation.create_stack(StackName="mine", TemplateBody=json.dumps(TEMPLATE))
    cloudformation.get_waiter("stack_create_complete").wait(StackName="mine", WaiterConfig={"Delay": 1})
    session = Session(endpoint_url=emulator_endpoint)
    assert resource(session, "mine", TABLE) == "found-by-its-stack"
    with pytest.raises(CommandFailed, match="the stack 'mine' has no ProcessorFunction") as refused:
        resource(session, "mine", "ProcessorFunction")
    assert refused.value.code is ExitCode.NOT_FOUND
    with pytest.raises(CommandFailed, match="there is no stack 'nope' there; see --stack") as refused:
        resource(session, "nope", TABLE)
    assert refused.value.code is ExitCode.NOT_FOUND

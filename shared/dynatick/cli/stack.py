"""What a CloudFormation stack calls its table and its functions."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from dynatick.cli.exits import CommandFailed, ExitCode, hint_of

if TYPE_CHECKING:
    from dynatick.cli.session import Session

TABLE = "TasksTable"
PROCESSOR = "ProcessorFunction"


def resource(session: Session, stack: str, name: str) -> str:
    """The name that a resource of the template has in a stack. Raises CommandFailed."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        cloudformation = aws_client(session, "cloudformation")
        answer = cloudformation.describe_stack_resource(StackName=stack, LogicalResourceId=name)
    except (BotoCoreError, ClientError) as error:
        said = getattr(error, "response", {}).get("Error", {})
        if said.get("Code") == "ValidationError":  # for either of the two that is not there
            there = f"the stack {stack!r} has no {name}: it was not made of Dynatick's template; see --stack"
            absent = f"there is no stack {stack!r} there; see --stack, --region and --profile"
            message = there if name in said.get("Message", "") else absent
            raise CommandFailed(ExitCode.NOT_FOUND, message) from error
        hint = hint_of(error)
        message = f"cannot look up the stack {stack!r}: {error}" + (f" ({hint})" if hint else "")
        raise CommandFailed(ExitCode.UNREACHABLE, message) from error
    return str(answer["StackResourceDetail"]["PhysicalResourceId"])


def aws_client(session: Session, service: str) -> Any:
    """A client of an AWS service, found as the table is."""
    import boto3
    from botocore.config import Config

    # The SDK for Python reads AWS_DEFAULT_REGION only; the other SDKs and Lambda say AWS_REGION.
    region = session.region or os.environ.get("AWS_REGION") or None
    profile = boto3.Session(profile_name=session.profile, region_name=region)
    # A function is waited for as long as one may run, and never started twice.
    config = Config(connect_timeout=3, read_timeout=900, retries={"total_max_attempts": 1})
    return profile.client(service, endpoint_url=session.endpoint_url, config=config)  # type: ignore[call-overload]

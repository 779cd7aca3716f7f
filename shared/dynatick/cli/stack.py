"""Looks up the names of a CloudFormation stack's table, functions and queue."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dynatick.cli.exit_code import CommandFailed, ExitCode, hint_of

if TYPE_CHECKING:
    from dynatick.cli.session import Session

TABLE = "TasksTable"
PROCESSOR = "ProcessorFunction"
DEAD_LETTER_QUEUE = "DeadLetterQueue"  # its physical id is its URL


def resource(session: Session, stack: str, name: str) -> str:
    """The name of a template's resource in a stack. Raises CommandFailed."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        cloudformation = aws_client(session, "cloudformation")
        answer = cloudformation.describe_stack_resource(StackName=stack, LogicalResourceId=name)
    except (BotoCoreError, ClientError) as error:
        details = getattr(error, "response", {}).get("Error", {})
        if details.get("Code") == "ValidationError":  # there is no such stack, or no such resource
            other = f"the stack {stack!r} has no {name}: it was deleted, or is not of Dynatick's template; see --stack"
            absent = f"there is no stack {stack!r} there; see --stack, --region and --profile"
            message = other if name in details.get("Message", "") else absent
            raise CommandFailed(ExitCode.NOT_FOUND, message) from error
        hint = hint_of(error)
        message = f"cannot look up the stack {stack!r}: {error}" + (f" ({hint})" if hint else "")
        raise CommandFailed(ExitCode.UNREACHABLE, message) from error
    return str(answer["StackResourceDetail"]["PhysicalResourceId"])


def caller(session: Session) -> str | None:
    """The ARN that the session's credentials are of, for which no permission is needed; None: STS gives no answer."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        return str(aws_client(session, "sts", read_seconds=3).get_caller_identity()["Arn"])
    except (BotoCoreError, ClientError):
        return None


def profiles() -> Mapping[str, Any]:
    """The profiles of this machine, as the SDK reads its configuration; none if it can't."""
    from botocore.exceptions import BotoCoreError
    from botocore.session import Session

    try:
        found: Mapping[str, Any] = Session().full_config["profiles"]
    except BotoCoreError:
        return {}
    return found


def aws_client(session: Session, service: str, *, read_seconds: int = 900) -> Any:
    """A client of an AWS service, with the session's options."""
    import boto3
    from botocore.config import Config

    # The SDK for Python reads AWS_DEFAULT_REGION only; the other SDKs and Lambda say AWS_REGION.
    region = session.region or os.environ.get("AWS_REGION") or None
    profile = boto3.Session(profile_name=session.profile, region_name=region)
    # It waits as long as a function may run, and never starts one twice.
    config = Config(connect_timeout=3, read_timeout=read_seconds, retries={"total_max_attempts": 1})
    return profile.client(service, endpoint_url=session.endpoint_url, config=config)  # type: ignore[call-overload]

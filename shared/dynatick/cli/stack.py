"""Finds a stack's table, functions and queue: of CloudFormation's by its name, of the local one by its endpoint."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from dynatick.cli.exit_code import CommandFailed, ExitCode, hint_of

if TYPE_CHECKING:
    from dynatick.cli.session import Session
    from dynatick.client.connect import ClientSettings

GROUP = "dynatick.local_endpoint"
ENDPOINT = "http://127.0.0.1:4566"
REGION = "us-east-1"
CREDENTIALS = ("test", "test")
_HOW = "start it with dynatick dev in your project, or make up in a clone"


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
    from botocore.parsers import ResponseParserError  # of the JSON in which DynamoDB Local answers

    try:
        return str(aws_client(session, "sts", read_seconds=3).get_caller_identity()["Arn"])
    except (BotoCoreError, ClientError, ResponseParserError):
        return None


def region(session: Session) -> str | None:
    """The region that the session's table is in; None: the SDK's configuration names none."""
    from botocore.exceptions import BotoCoreError
    from botocore.session import Session as Profile

    if session.local or session.region:
        return REGION if session.local else session.region
    try:
        configured = Profile(profile=session.profile).get_config_variable("region")
    except BotoCoreError:
        configured = None
    return os.environ.get("AWS_REGION") or configured


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


@dataclass(frozen=True, kw_only=True, slots=True)
class LocalStack:
    """A running local stack."""

    endpoint: str
    outputs: Mapping[str, str]

    @property
    def table(self) -> str:
        return self.outputs["TasksTableName"]

    @property
    def processor(self) -> str:
        return self.outputs["ProcessorFunctionName"]

    def settings(self, settings: ClientSettings) -> ClientSettings:
        """Settings for the local stack, whatever the user's environment has."""
        return replace(settings, endpoint_url=self.endpoint, region=REGION, profile=None, credentials=CREDENTIALS)


def find_local(endpoint_url: str | None = None) -> LocalStack:
    """The local stack at an endpoint, or where the plug-in runs it. Raises CommandFailed."""
    endpoint = endpoint_url or _endpoint()
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        stacks = local_client("cloudformation", endpoint).describe_stacks()["Stacks"]
    except (BotoCoreError, ClientError) as error:
        raise CommandFailed(ExitCode.UNREACHABLE, f"there is no local stack at {endpoint}: {_HOW} ({error})") from error
    for stack in stacks:  # a project's has a name of its own
        outputs = {one["OutputKey"]: one["OutputValue"] for one in stack.get("Outputs", [])}
        if "TasksTableName" in outputs:
            return LocalStack(endpoint=endpoint, outputs=outputs)
    raise CommandFailed(ExitCode.UNREACHABLE, f"the local stack at {endpoint} is not deployed yet")


def local_client(service: str, endpoint: str) -> Any:
    """A client of the local stack."""
    import boto3
    from botocore.config import Config

    key, secret = CREDENTIALS
    return boto3.client(
        service,  # type: ignore[call-overload]
        endpoint_url=endpoint,
        region_name=REGION,
        aws_access_key_id=key,
        aws_secret_access_key=secret,
        # A function may run for the longest time that Lambda allows.
        config=Config(connect_timeout=3, read_timeout=900, retries={"total_max_attempts": 1}),
    )


def _endpoint() -> str:
    """Where the plug-in runs the local stack; where it runs by default if there is no plug-in, as without a checkout.
    The plug-in builds on this package, not the other way round."""
    for plugin in entry_points(group=GROUP):
        try:
            endpoint: Callable[[], str] = plugin.load()
        except ImportError:
            continue
        return endpoint()
    return ENDPOINT

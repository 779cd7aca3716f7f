"""Finds the local stack: by the plug-in that runs it, else at its default endpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from dynatick.cli.exit_code import CommandFailed, ExitCode

if TYPE_CHECKING:
    from dynatick.client.connect import ClientSettings

GROUP = "dynatick.local_endpoint"
ENDPOINT = "http://127.0.0.1:4566"
REGION = "us-east-1"
CREDENTIALS = ("test", "test")
_HOW = "start it with dynatick dev in your project, or make up in a clone"


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


def find(endpoint_url: str | None = None) -> LocalStack:
    """The local stack at an endpoint, or where the plug-in runs it. Raises CommandFailed."""
    endpoint = endpoint_url or _endpoint()
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        stacks = aws_client("cloudformation", endpoint).describe_stacks()["Stacks"]
    except (BotoCoreError, ClientError) as error:
        raise CommandFailed(ExitCode.UNREACHABLE, f"there is no local stack at {endpoint}: {_HOW} ({error})") from error
    for stack in stacks:  # a project's has a name of its own
        outputs = {one["OutputKey"]: one["OutputValue"] for one in stack.get("Outputs", [])}
        if "TasksTableName" in outputs:
            return LocalStack(endpoint=endpoint, outputs=outputs)
    raise CommandFailed(ExitCode.UNREACHABLE, f"the local stack at {endpoint} is not deployed yet")


def aws_client(service: str, endpoint: str) -> Any:
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

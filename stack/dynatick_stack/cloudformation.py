"""A CloudFormation stack, of AWS or of the emulator: what it is, what failed in it, and waiting until it is at rest."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

from dynatick_stack.errors import DeployError, NotRunningError
from dynatick_stack.venv import Say

if TYPE_CHECKING:
    from mypy_boto3_cloudformation import CloudFormationClient
    from mypy_boto3_cloudformation.type_defs import StackResourceSummaryTypeDef, StackTypeDef

IN_PROGRESS = "_IN_PROGRESS"
MAX_SECONDS = 3600.0

Found = TypeVar("Found")


class Stack:
    """Methods raise BotoCoreError and ClientError as the SDK does."""

    def __init__(self, client: CloudFormationClient, name: str, *, poll_seconds: float) -> None:
        self.client = client
        self.name = name
        self._poll_seconds = poll_seconds

    def describe(self, stack_id: str | None = None) -> StackTypeDef | None:
        """None if there is none. A deleted one is found by its id only."""
        from botocore.exceptions import ClientError

        try:
            return self.client.describe_stacks(StackName=stack_id or self.name)["Stacks"][0]
        except ClientError as error:
            if "does not exist" in str(error):
                return None
            raise

    def existing(self) -> StackTypeDef:
        """Raises NotRunningError if there is none."""
        found = self.describe()
        if found is None:
            raise NotRunningError(f"There is no stack {self.name} at {self.client.meta.endpoint_url}")
        return found

    def outputs(self) -> dict[str, str]:
        """Returns the outputs by name. Raises NotRunningError if there is no stack."""
        return {one["OutputKey"]: one["OutputValue"] for one in self.existing().get("Outputs", [])}

    def parameters(self) -> dict[str, str]:
        """Those in force; none if there is no stack."""
        found = self.describe()
        return {} if found is None else parameters_of(found)

    def resources(self) -> Iterator[StackResourceSummaryTypeDef]:
        for page in self.client.get_paginator("list_stack_resources").paginate(StackName=self.name):
            yield from page["StackResourceSummaries"]

    def reasons(self, since: float) -> list[str]:
        """Why resources failed since that time, the first of them first: the others mostly follow from it."""
        pages = self.client.get_paginator("describe_stack_events").paginate(StackName=self.name)
        events = [one for page in pages for one in page["StackEvents"] if one["Timestamp"].timestamp() >= since - 1]
        return [
            f"  {one['LogicalResourceId']}: {one.get('ResourceStatusReason', 'no reason given')}"
            for one in reversed(events)
            if one["ResourceStatus"].endswith("_FAILED")
        ]

    def wait(self, since: float, *, say: Say = lambda text: None, stack_id: str | None = None) -> str:
        """The status in which it comes to rest. Says what fails meanwhile. Raises DeployError after an hour."""
        said: set[str] = set()
        for found in self.polled(lambda: self.describe(stack_id)):
            if found is None:
                break
            for text in self.reasons(since):
                if text not in said:
                    said.add(text)
                    say(text)
            if not found["StackStatus"].endswith(IN_PROGRESS):
                return found["StackStatus"]
        return "DELETE_COMPLETE"

    def polled(self, describe: Callable[[], Found]) -> Iterator[Found]:
        """What it returns now and from time to time. Raises DeployError after an hour."""
        end = time.monotonic() + MAX_SECONDS
        while time.monotonic() < end:
            yield describe()
            time.sleep(self._poll_seconds)
        raise DeployError(f"{self.name} has not come to rest within an hour; look at its events in CloudFormation")


def parameters_of(stack: StackTypeDef) -> dict[str, str]:
    return {one["ParameterKey"]: one["ParameterValue"] for one in stack.get("Parameters", [])}

"""A CloudFormation stack, of AWS or of the emulator; and a change of it: what fails, and waiting for its end."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

from dynatick_stack.errors import DeployError, NotRunningError
from dynatick_stack.venv import Say

if TYPE_CHECKING:
    from mypy_boto3_cloudformation import CloudFormationClient
    from mypy_boto3_cloudformation.type_defs import StackEventTypeDef, StackResourceSummaryTypeDef, StackTypeDef

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

    def polled(self, describe: Callable[[], Found]) -> Iterator[Found]:
        """What it returns now and from time to time. Raises DeployError after an hour."""
        end = time.monotonic() + MAX_SECONDS
        while time.monotonic() < end:
            yield describe()
            time.sleep(self._poll_seconds)
        raise DeployError(f"{self.name} has not come to rest within an hour; look at its events in CloudFormation")


class Operation:
    """A change of a stack, which is to be asked for with ``token``: all its events carry it. So neither clocks nor
    earlier changes matter, and a request that the SDK sends again changes nothing."""

    def __init__(self, stack: Stack, stack_id: str | None = None) -> None:
        """``stack_id``: of a stack that is deleted, for a deleted one is found by its id only."""
        self.token = f"dynatick-{uuid.uuid4()}"
        self.reasons: list[str] = []  # why resources failed, the first of them first: the others mostly follow from it
        self._stack = stack
        self._id = stack_id
        self._newest: str | None = None  # the id of the newest event that was read

    def wait(self, *, say: Say = lambda text: None) -> str:
        """Returns the status in which the stack comes to rest. Says what fails meanwhile. Raises DeployError after an
        hour."""
        for found in self._stack.polled(lambda: self._stack.describe(self._id)):
            if found is None:
                break
            new = [
                f"  {one['LogicalResourceId']}: {one.get('ResourceStatusReason', 'no reason given')}"
                for one in reversed(list(self._new_events()))
                if one["ResourceStatus"].endswith("_FAILED")
            ]
            self.reasons += new
            for text in new:
                say(text)
            if not found["StackStatus"].endswith(IN_PROGRESS):
                return found["StackStatus"]
        return "DELETE_COMPLETE"

    def _new_events(self) -> Iterator[StackEventTypeDef]:
        """Those of this change since the last call, the newest first. Reads no page beyond them."""
        known, pages = self._newest, self._stack.client.get_paginator("describe_stack_events")
        for page in pages.paginate(StackName=self._id or self._stack.name):
            for event in page["StackEvents"]:
                if event["EventId"] == known or event.get("ClientRequestToken") != self.token:
                    return
                if self._newest == known:
                    self._newest = event["EventId"]
                yield event


def parameters_of(stack: StackTypeDef) -> dict[str, str]:
    return {one["ParameterKey"]: one["ParameterValue"] for one in stack.get("Parameters", [])}

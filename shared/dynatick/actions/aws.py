"""Shared by the actions for AWS services: allowed targets, clients with a time limit, and the meaning of errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dynatick.actions.allow_list import AllowedArns
from dynatick.actions.aws_client import ClientCache
from dynatick.actions.rate_limit import RateLimits
from dynatick.domain.task import Task
from dynatick.engine.ports import ActionContext, Clock
from dynatick.errors import ActionError, PermanentError, RetryableError, shown

CALL_SECONDS = 14.0
"""Seconds for a call and its second try. With the default timeout, a task starts at least this long before its process
ends."""

MIN_SECONDS = 3.0
"""A call that has less time is not made."""

LAST_SECONDS = 5
"""Kept free after a call: to connect, and to record the result."""

_PERMANENT = frozenset(
    {
        # The target does not exist, or the request is malformed: a retry would fail too.
        "AWS.SimpleQueueService.NonExistentQueue", "BatchRequestTooLong", "EndpointDisabled", "InvalidArn",
        "InvalidArgument", "InvalidAttributeName", "InvalidAttributeValue", "InvalidBatchEntryId",
        "InvalidExecutionInput", "InvalidMessageContents", "InvalidName", "InvalidParameter",
        "InvalidParameterException", "InvalidParameterValue", "InvalidParameterValueException",
        "InvalidRequestContentException", "MalformedDetail", "MissingParameter", "NotFound", "NotFoundException",
        "ParameterValueInvalid", "QueueDoesNotExist", "RequestEntityTooLargeException", "RequestTooLargeException",
        "ResourceNotFoundException", "StateMachineDeleting", "StateMachineDoesNotExist", "StateMachineTypeNotSupported",
        "UnsupportedMediaTypeException", "UnsupportedOperation", "ValidationError", "ValidationException",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class FailedEntry:
    """An entry of a batch that the target refused, with the service's error code."""

    code: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Service:
    """An AWS service, and which of its targets tasks may call."""

    name: str  # as boto3 calls it
    allowed: AllowedArns
    clients: ClientCache
    clock: Clock
    action: str = ""
    limits: RateLimits | None = None

    def check(self, arn: str, field: str) -> None:
        """Refuses a target that the installation does not allow. Raises PermanentError."""
        if arn not in self.allowed:
            raise PermanentError(f"{field}: {shown(arn)} is not among {self.allowed.parameter}")

    def client(self, arn: str, task: Task, context: ActionContext, *, waits: int | None = None) -> Any:
        """A client in the target's region, for a call that is made at once and ends before the process does.

        It tries twice; with ``waits`` it tries once and waits for the answer for that many seconds, or for as long as
        the process has. Takes a token from the action's rate limit: call it after all checks, so that a refused task
        takes none. Raises RateLimited if the task may start only later, RetryableError if no time is left for a call.
        """
        if self.limits is not None:
            self.limits.acquire(task, self.action)
        left = (context.deadline - self.clock()).total_seconds()
        if left < MIN_SECONDS:
            raise RetryableError("no time was left to call the target")
        region = arn.split(":")[3]
        if waits is None:
            return self.clients(self.name, region=region, seconds=min(CALL_SECONDS, left))
        if waits + LAST_SECONDS <= left:
            return self.clients(self.name, region=region, seconds=waits, tries=1, exact=True)
        return self.clients(self.name, region=region, seconds=left - LAST_SECONDS, tries=1)


def failure_of(error: Exception) -> ActionError:
    """The SDK's error as an ActionError, without the service's message, which may contain parts of the payload."""
    from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError

    match error:
        case ActionError():
            return error
        case ClientError():
            return error_of(str(error.response.get("Error", {}).get("Code", "Unknown")))
        case ParamValidationError():
            return PermanentError("the payload can't be sent: the SDK refused it (ParamValidationError)")
        case BotoCoreError():
            return RetryableError(f"the target could not be reached, or did not answer ({type(error).__name__})")
        case _:
            return RetryableError(f"it could not be sent ({type(error).__name__})")


def error_of(code: str) -> ActionError:
    """The error for a service's error code: PermanentError or RetryableError."""
    message = f"the target refused it ({code})"
    return PermanentError(message) if code in _PERMANENT else RetryableError(message)

"""What the actions on AWS services have in common: allowed targets, clients with an end, and what an error means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from dynatick.actions.limits import Limits
from dynatick.actions.targets import Allowed
from dynatick.domain.task import Task
from dynatick.engine.ports import ActionContext, Clock
from dynatick.errors import ActionError, PermanentError, RetryableError, shown

CALL_SECONDS = 14.0
"""For a call with its second try: a task begins at least so long before its process ends, at the default timeout."""

MIN_SECONDS = 3.0

_LAST_SECONDS = 5.0
"""To connect, and to record what became of the call."""

_PERMANENT = frozenset(
    {
        # What is asked for does not exist, or can't be understood: it won't be any better later.
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


class MakeClient(Protocol):
    """Hands out boto3 clients (see ``clients.Clients``)."""

    def __call__(
        self, service: str, *, region: str | None = None, seconds: float = 10, tries: int = 2, exact: bool = False
    ) -> Any:
        """The client that has given up after about so many seconds."""


@dataclass(frozen=True, slots=True)
class Refused:
    """An entry of a batch that was not taken."""

    code: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Service:
    """One service, as far as tasks may reach it."""

    name: str  # as boto3 calls it
    allowed: Allowed
    clients: MakeClient
    clock: Clock
    action: str = ""
    limits: Limits | None = None

    def check(self, arn: str, field: str) -> None:
        """Refuses a target that the installation does not allow. Raises PermanentError."""
        if arn not in self.allowed:
            raise PermanentError(f"{field}: {shown(arn)} is not among {self.allowed.parameter}")

    def client(self, arn: str, task: Task, context: ActionContext, *, waits: int | None = None) -> Any:
        """A client in the target's region, with an end before the process's, for a call that is made at once: the
        task's turn is taken with it, and nothing that was refused before takes one.

        It tries twice; with ``waits`` once, and waits for an answer for so many seconds, if there is time for that.
        Raises RetryableError if the process's end is now; NotYet if the task's turn is to come.
        """
        if self.limits is not None:
            self.limits.take(task, self.action)
        left = (context.deadline - self.clock()).total_seconds()
        if left < MIN_SECONDS:
            raise RetryableError("no time was left to call the target")
        region = arn.split(":")[3]
        if waits is None:
            return self.clients(self.name, region=region, seconds=min(CALL_SECONDS, left))
        if waits + _LAST_SECONDS <= left:
            return self.clients(self.name, region=region, seconds=waits, tries=1, exact=True)
        return self.clients(self.name, region=region, seconds=left - _LAST_SECONDS, tries=1)


def failure_of(error: Exception) -> ActionError:
    """An error of the SDK as an action's, without the service's words: they may hold parts of the payload."""
    from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError

    match error:
        case ActionError():
            return error
        case ClientError():
            return error_of(Refused(str(error.response.get("Error", {}).get("Code", "Unknown"))))
        case ParamValidationError():
            return PermanentError("the payload can't be sent: the SDK refused it (ParamValidationError)")
        case BotoCoreError():
            return RetryableError(f"the target could not be reached, or did not answer ({type(error).__name__})")
        case _:
            return RetryableError(f"it could not be sent ({type(error).__name__})")


def error_of(refused: Refused) -> ActionError:
    """What a service's error code means for the task."""
    said = f"the target refused it ({refused.code})"
    return PermanentError(said) if refused.code in _PERMANENT else RetryableError(said)

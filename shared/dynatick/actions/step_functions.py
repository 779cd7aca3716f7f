"""The action ``stepfunctions``: starts an execution of a state machine.

    {"stateMachineArn": "arn:aws:states:…:stateMachine:onboarding", "input": {"account": 7}}

The execution's input is the payload's plus a key ``dynatick`` with the task's id, due time, attempt, idempotency key
and schedule. The execution's name is derived from the idempotency key, so that a further attempt starts no second one.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, Field
from pydantic.dataclasses import dataclass

from dynatick.actions.aws import Service, failure_of
from dynatick.actions.payload import parsed
from dynatick.actions.payload_field import (
    CONFIG,
    CompleteWithin,
    HeartbeatSeconds,
    Text,
    arn,
    fits_message,
    handed_over,
)
from dynatick.actions.plain_value import MAX_BYTES, to_json
from dynatick.actions.task_metadata import deduplication_id, task_metadata
from dynatick.domain.completion import completion_token
from dynatick.domain.task import Task
from dynatick.engine.ports import ActionContext
from dynatick.errors import PermanentError

_MAX_NAME = 80
_MACHINE = r"stateMachine:[A-Za-z0-9_-]{1,80}(:[A-Za-z0-9_.-]{1,80})?"


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class StepFunctionsPayload:
    """The execution to start."""

    state_machine_arn: Annotated[
        Text, arn("states", _MACHINE), Field(description="The state machine, with version or alias if you like.")
    ]
    input: Annotated[
        dict[Text, Any],
        AfterValidator(fits_message),
        Field(description="The execution's input; Dynatick adds the key `dynatick`."),
    ] = Field(default_factory=dict)
    complete_within_seconds: CompleteWithin = None
    heartbeat_seconds: HeartbeatSeconds = None


class StepFunctions:
    """Starts executions."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def run(self, task: Task, context: ActionContext) -> object:
        """Starts an execution. Returns ``{"executionArn": …}``, and ``"repeated": true`` if it existed already.

        With ``completeWithinSeconds``, its input has ``dynatick.completionToken``, and it ends the task.
        """
        payload = parsed(StepFunctionsPayload, task.payload)
        machine = payload.state_machine_arn
        self._service.check(machine, "payload.stateMachineArn")
        metadata, later = (
            task_metadata(task, context),
            handed_over(payload.complete_within_seconds, payload.heartbeat_seconds),
        )
        if later is not None:
            metadata["completionToken"] = completion_token(task.lease, task.task_id)
        try:
            given = to_json({**payload.input, "dynatick": metadata})
        except ValueError as error:
            raise PermanentError(f"payload.input: {error}") from None
        if len(given) > MAX_BYTES:  # it is ASCII
            raise PermanentError(
                f"payload.input: it is {len(given)} bytes with `dynatick`; expected at most {MAX_BYTES}"
            )
        name = execution_name(task, context, each_attempt=later is not None)
        client = self._service.client(machine, task, context)
        try:
            started = client.start_execution(stateMachineArn=machine, name=name, input=given)
        except Exception as error:
            if _code_of(error) != "ExecutionAlreadyExists":
                raise failure_of(error) from None
            if later is not None:  # this very call has started it: the SDK has sent it again
                return later
            parts = machine.split(":")
            return {"executionArn": ":".join([*parts[:5], "execution", parts[6], name]), "repeated": True}
        return {"executionArn": started["executionArn"]} if later is None else later


def execution_name(task: Task, context: ActionContext, *, each_attempt: bool = False) -> str:
    """The task's id, as far as it fits a name, and a suffix that is unique to this run of the task.

    ``each_attempt``: to this attempt, whose completion token the execution has.
    """
    unique = deduplication_id(context)[:32] + (f"-{context.attempt}" if each_attempt else "")
    readable = re.sub(r"[^A-Za-z0-9_-]+", "-", task.task_id)[: _MAX_NAME - len(unique) - 1].strip("-")
    return f"{readable}-{unique}" if readable else unique


def _code_of(error: Exception) -> object:
    answered = getattr(error, "response", None)
    return answered.get("Error", {}).get("Code") if isinstance(answered, dict) else None

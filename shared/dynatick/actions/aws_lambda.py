"""The action ``lambda``: invokes a function, and waits for its answer or not.

    {"functionArn": "arn:aws:lambda:…:function:nightly-report", "input": {"day": "yesterday"}}

The function's event is ``input`` plus a key ``dynatick`` with the task's id, due time, attempt, idempotency key and
schedule.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, Strict
from pydantic.dataclasses import dataclass

from dynatick.actions.aws import LAST_SECONDS, Service, failure_of
from dynatick.actions.payload import parsed
from dynatick.actions.payload_field import CONFIG, Text, arn, timeout_of
from dynatick.actions.plain_value import to_json
from dynatick.actions.task_metadata import task_metadata
from dynatick.domain.task import Task
from dynatick.engine.ports import ActionContext
from dynatick.errors import PermanentError, RetryableError

_FUNCTION = r"function:[A-Za-z0-9_-]{1,140}(:[A-Za-z0-9$_-]{1,128})?"
_QUEUE_SECONDS = 10
_DEFAULT_TIMEOUT_SECONDS = 60
_MAX_TIMEOUT_SECONDS = 900
_TYPE = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,79}", re.ASCII)


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class LambdaPayload:
    """The function to invoke."""

    function_arn: Annotated[
        Text, arn("lambda", _FUNCTION), Field(description="The function, with version or alias if you like.")
    ]
    input: Annotated[dict[Text, Any], Field(description="The event; Dynatick adds the key `dynatick`.")] = Field(
        default_factory=dict
    )
    invocation_type: Annotated[
        Literal["Event", "RequestResponse"],
        Field(description="`Event`: Lambda queues the event. `RequestResponse`: wait for the answer, and record it."),
    ] = "Event"
    timeout_seconds: Annotated[
        int,
        Strict(),
        Field(
            ge=1,
            le=_MAX_TIMEOUT_SECONDS,
            description="How long to wait for an answer, at most until the processor ends. An attempt begins only with "
            "so much time left.",
        ),
    ] = _DEFAULT_TIMEOUT_SECONDS


def reserved_seconds(payload: Mapping[str, object]) -> int | None:
    """The longest that it takes to wait for an answer and to record it; None: no answer is waited for. Accepts any
    payload, also an invalid one."""
    if payload.get("invocationType") != "RequestResponse":
        return None
    return timeout_of(payload, _DEFAULT_TIMEOUT_SECONDS, _MAX_TIMEOUT_SECONDS) + LAST_SECONDS


class LambdaFunction:
    """Invokes functions."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def run(self, task: Task, context: ActionContext) -> object:
        """Invokes the function. Returns its answer, or ``{"requestId": …}`` of the queued event.

        Raises RetryableError if the function failed or did not answer in time; the next attempt invokes it again with
        the same idempotency key.
        """
        payload = parsed(LambdaPayload, task.payload)
        self._service.check(payload.function_arn, "payload.functionArn")
        try:
            event = to_json({**payload.input, "dynatick": task_metadata(task, context)}).encode()
        except ValueError as error:
            raise PermanentError(f"payload.input: {error}") from None
        waits = payload.invocation_type == "RequestResponse"
        # Without an answer, the client does not call again at once: the function may still be running.
        client = self._service.client(
            payload.function_arn, task, context, waits=payload.timeout_seconds if waits else _QUEUE_SECONDS
        )
        try:
            answer = client.invoke(
                FunctionName=payload.function_arn, InvocationType=payload.invocation_type, Payload=event
            )
            content = answer["Payload"].read() if waits else b""
        except Exception as error:
            raise failure_of(error) from None
        if not waits:
            return {"requestId": answer["ResponseMetadata"].get("RequestId")}
        found = _json(content)
        if answer.get("FunctionError"):
            raise RetryableError(f"the function failed{_kind_of(found)}; its log says why")
        return found


def _json(text: bytes) -> object:
    try:
        found: object = json.loads(text or b"null")
    except (ValueError, RecursionError):
        return None
    return found


def _kind_of(answer: object) -> str:
    """The error's type in brackets. Not its message, which may contain the function's data."""
    kind = answer.get("errorType") if isinstance(answer, dict) else None
    return f" ({kind})" if isinstance(kind, str) and _TYPE.fullmatch(kind) else ""

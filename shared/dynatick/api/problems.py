"""Errors as answers: RFC 9457 problem details, all in the same form, with a ``code`` for programs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

from aws_lambda_powertools.event_handler import Response

from dynatick.domain.view import Json, View
from dynatick.errors import (
    MISSING,
    CompletionRefused,
    ConfigurationError,
    DynatickError,
    InvalidInput,
    ItemTooLarge,
    QueueError,
    ScheduleNotFound,
    StoreError,
    TaskChanged,
    TaskExists,
    TaskNotFound,
    TransitionRefused,
    shown,
)

CONTENT_TYPE = "application/problem+json"
TYPE = "urn:dynatick:problem:"
MAX_WRONG = 50  # wrong fields in one answer

CODES: Final[Mapping[str, tuple[int, str]]] = {
    "malformed-body": (400, "The body is not JSON in UTF-8"),
    "not-found": (404, "There is no such path"),
    "task-not-found": (404, "There is no task of this id"),
    "schedule-not-found": (404, "There is no schedule of this id"),
    "no-settings": (404, "No tick has come yet"),
    "no-dead-letter-queue": (404, "The API knows no dead-letter queue"),
    "method-not-allowed": (405, "The path has no such method"),
    "task-exists": (409, "A task or schedule of this id exists already"),
    "not-possible-now": (409, "The state of the task or schedule does not allow it"),
    "completion-refused": (409, "The attempt that the token is of is over"),
    "changed": (412, "It has changed since the version of If-Match"),
    "body-too-large": (413, "The body is too large"),
    "item-too-large": (413, "The task would be larger than the table accepts"),
    "unsupported-media-type": (415, "The body is not declared as JSON"),
    "invalid-input": (422, "A value is not accepted"),
    "idempotency-key-reused": (422, "The Idempotency-Key was used for something else"),
    "internal": (500, "An unexpected error of the service"),
    "unavailable": (503, "The table, or the dead-letter queue, does not answer now"),
    "other-version": (503, "The table's rows are of another version than the API"),
    "unhealthy": (503, "Tasks may not run when they are due"),
}
"""Every code, with its status and its meaning. ``detail`` is about the request."""


@dataclass(frozen=True, slots=True)
class Wrong(View):
    """An invalid value."""

    FORM = "WrongField"

    detail: str
    pointer: Annotated[str | None, "Its place in the body, as a JSON pointer."] = None
    parameter: Annotated[str | None, "The parameter in path, query or header."] = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ProblemDetails(View):
    """An error (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    code: Annotated[str, "For programs: it does not change between versions."]
    request_id: Annotated[str, "The request's name in the logs: give it to the operator."]
    errors: Annotated[Sequence[Wrong], Json(optional=True)] = ()


@dataclass(kw_only=True, eq=False)
class Problem(DynatickError):
    """An error as an answer."""

    code: str
    detail: str
    errors: Sequence[Wrong] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    more: Mapping[str, object] = field(default_factory=dict)  # extension members

    @property
    def status(self) -> int:
        return CODES[self.code][0]

    def to_json(self, request_id: str) -> dict[str, object]:
        status, title = CODES[self.code]
        details = ProblemDetails(
            type=TYPE + self.code,
            title=title,
            status=status,
            detail=self.detail,
            code=self.code,
            request_id=request_id,
            errors=self.errors[:MAX_WRONG],
        )
        return {**details.to_row(), **self.more}

    def to_response(self, request_id: str) -> Response[str]:
        return Response(
            status_code=self.status,
            content_type=CONTENT_TYPE,
            body=json.dumps(self.to_json(request_id)),
            headers=dict(self.headers),
        )


def problem_of(error: Exception, parameters: frozenset[str]) -> Problem | None:
    """The problem of an error of the client; None for an unexpected error.

    ``parameters``: the names of values in path, query or header, not in the body.
    """
    match error:
        case Problem():
            return error
        case InvalidInput():
            errors = [wrong(one, parameters) for one in (error, *error.others)]
            return Problem(code="invalid-input", detail=str(error), errors=errors)
        case ScheduleNotFound():
            return Problem(code="schedule-not-found", detail=str(error))
        case TaskNotFound():
            return Problem(code="task-not-found", detail=str(error))
        case TaskExists():
            return Problem(code="task-exists", detail=str(error))
        case TransitionRefused():
            return Problem(
                code="not-possible-now",
                detail=str(error),
                more={"taskStatus": error.status, "allowed": list(error.allowed)},
            )
        case CompletionRefused():
            return Problem(code="completion-refused", detail=str(error))
        case TaskChanged():
            return Problem(code="changed", detail=str(error))
        case ItemTooLarge():
            return Problem(code="item-too-large", detail="the task would be larger than the table takes")
        case ConfigurationError():
            return Problem(code="other-version", detail=str(error))
        case QueueError():
            detail = "the dead-letter queue did not answer. Repeat the request"
            return Problem(code="unavailable", detail=detail, headers={"Retry-After": "1"})
        case StoreError():  # its text may name hosts and tables, so only the log has it
            detail = "the table did not answer; whether a write took effect is not known. Repeat the request"
            return Problem(code="unavailable", detail=detail, headers={"Retry-After": "1"})
    return None


def wrong(error: InvalidInput, parameters: frozenset[str]) -> Wrong:
    """The invalid value of an error."""
    detail = f"{shown(error.value)} is not accepted; {error.expected}"
    if error.field in parameters:
        return Wrong(detail, parameter=error.field)
    return Wrong(detail, pointer=pointer(path_of(error.field)))


def invalid(errors: Sequence[Mapping[str, Any]]) -> Problem:
    """The problem of a request with an invalid form, from pydantic's errors."""
    found = []
    for error in errors:
        place, *path = error["loc"]
        detail = MISSING if error.get("type") == "missing" else str(error["msg"])
        if place == "body" or not path:
            found.append(Wrong(detail, pointer=pointer([str(part) for part in path])))
        else:
            found.append(Wrong(detail, parameter=str(path[0])))
    first = found[0]
    where = first.parameter or first.pointer or "body"
    return Problem(code="invalid-input", detail=f"{where}: {first.detail}", errors=found)


def pointer(path: Sequence[str]) -> str:
    """A JSON pointer (RFC 6901) as a fragment: ``#/payload/url``; ``#`` is the whole body."""
    return "#" + "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in path)


def path_of(field: str) -> list[str]:
    """The parts of ``payload.items[0].url``."""
    return [] if field == "body" else [part for part in re.split(r"\.|\[(\d+)\]", field) if part]

"""The operations of the API as a table: each with its path, its function, and its possible answers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response
from pydantic import BaseModel

from dynatick.actions.plain_value import to_json
from dynatick.api.problems import CODES, CONTENT_TYPE, ProblemDetails
from dynatick.domain.view import View, form_name

JSON: Final = "application/json"
ALWAYS = ("not-found", "method-not-allowed", "internal", "unavailable", "other-version")
WITH_BODY = ("malformed-body", "body-too-large", "unsupported-media-type", "invalid-input")
_VARIABLE = re.compile(r"<(\w+)>")

HEADERS: Final[Mapping[str, str]] = {
    "X-Request-Id": "The request's name in the logs.",
    "ETag": "The version, for If-Match.",
    "Location": "The path of the inserted task or schedule.",
    "Retry-After": "Seconds to wait before the request is repeated.",
    "Allow": "The methods that are possible.",
    "Idempotency-Replayed": "true: a repetition, answered with the task of the first request.",
}


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One method of one path."""

    name: str  # the operationId of the document
    method: str
    path: str  # variables as <taskId>
    call: Callable[..., Response[str]]
    summary: str
    description: str = ""
    tag: str
    answers: Mapping[int, tuple[str, type[View] | None]]  # by status: a description, and the form
    headers: tuple[str, ...] = ()  # of those answers
    problems: tuple[str, ...] = ()  # codes, without those of any request
    parameters: frozenset[str] = field(default_factory=frozenset)  # the names of values in path, query or header

    @property
    def has_body(self) -> bool:
        return "body" in self.call.__annotations__

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes of all possible problems."""
        takes = WITH_BODY if self.has_body else ()
        codes = {*ALWAYS, *takes, *self.problems}
        return tuple(code for code in CODES if code in codes)

    def responses(self) -> dict[int, Any]:
        """All answers, in Powertools' form for the document."""
        found: dict[int, Any] = {}
        for status, (words, view) in self.answers.items():
            names = ("X-Request-Id", *self.headers)
            content = {} if view is None else {JSON: _form(view)}
            found[status] = {"description": words, "content": content, "headers": _headers(names)}
        for status in sorted({CODES[code][0] for code in self.codes}):
            own = [code for code in self.codes if CODES[code][0] == status]
            names = ("X-Request-Id", *{405: ("Allow",), 503: ("Retry-After",)}.get(status, ()))
            found[status] = {
                "description": "; ".join(f"{CODES[code][1]} (`{code}`)" for code in own),
                "content": {CONTENT_TYPE: _form(ProblemDetails)},
                "headers": _headers(names),
            }
        return found


class Table:
    """Finds operations by path."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        self.documented_paths = list(dict.fromkeys(_VARIABLE.sub(r"{\1}", one.path) for one in operations))
        # Paths without variables first: /v1/tasks/bulk is not a task named bulk.
        self.operations = sorted(operations, key=lambda one: "<" in one.path)
        self._patterns = [(re.compile(_VARIABLE.sub("[^/]+", one.path)), one) for one in self.operations]

    def register(self, resolver: APIGatewayHttpResolver) -> None:
        for one in self.operations:
            resolver.route(
                one.path,
                one.method,
                summary=one.summary,
                description=one.description or None,
                responses=one.responses(),
                tags=[one.tag],
                operation_id=one.name,
            )(one.call)

    def find(self, method: str, path: str) -> Operation | None:
        """The operation of a request."""
        return next((one for one in self._of(path) if one.method == method), None)

    def methods_of(self, path: str) -> list[str]:
        """The methods of a path; none for an unknown path."""
        return sorted(one.method for one in self._of(path))

    def _of(self, path: str) -> list[Operation]:
        """All operations of a path; those of a path without variables come first."""
        fitting = [one for found, one in self._patterns if found.fullmatch(path)]
        return [one for one in fitting if one.path == fitting[0].path]


def answer(value: View | Mapping[str, object], status: int = 200, **headers: str) -> Response[str]:
    """An answer under the table's names. Headers: ETag, Location …, with _ for -."""
    return Response(
        status_code=status,
        content_type=JSON,
        body=to_json(value.to_row() if isinstance(value, View) else value),
        headers={name.replace("_", "-"): text for name, text in headers.items()},
    )


def values_of(body: BaseModel) -> dict[str, Any]:
    """The attributes of a body, unchanged; Dynatick's own without null."""
    values = {name: getattr(body, name) for name in body.model_fields_set if name in type(body).model_fields}
    return {name: value for name, value in values.items() if value is not None} | (body.__pydantic_extra__ or {})


def _form(view: type[View]) -> dict[str, Any]:
    return {"schema": {"$ref": f"#/components/schemas/{form_name(view)}"}}


def _headers(names: Sequence[str]) -> dict[str, Any]:
    return {name: {"description": HEADERS[name], "schema": {"type": "string"}} for name in names}

"""The operations of the API: each a method with its path and its possible answers, all of them in a table."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar, get_type_hints

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response
from aws_lambda_powertools.event_handler.openapi.params import Header, Param
from pydantic import BaseModel

from dynatick.actions.plain_value import to_json
from dynatick.api.problems import CODES, CONTENT_TYPE, ProblemDetails
from dynatick.domain.view import View, form_name

if TYPE_CHECKING:
    from dynatick.api.limits import Waiting
    from dynatick.client import TaskClient

Call = TypeVar("Call", bound=Callable[..., Response[str]])
Answers = Mapping[int, tuple[str, type[View] | None]]
"""By status: a description, and the form."""

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
    "Accept-Post": "The media type that is accepted.",
    "Idempotency-Replayed": "true: a repetition, answered with the task of the first request.",
}


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One method of one path."""

    method: str
    path: str  # variables as <taskId>
    name: str  # the operationId of the document
    summary: str
    description: str
    answers: Answers
    headers: tuple[str, ...]  # of those answers
    problems: tuple[str, ...]  # codes, without those of any request
    call: Callable[..., Response[str]]
    tag: str

    @property
    def parameters(self) -> frozenset[str]:
        """The names of values in path, query or header."""
        hints = get_type_hints(self.call, include_extras=True).values()
        found = (one for hint in hints for one in getattr(hint, "__metadata__", ()) if isinstance(one, Param))
        return frozenset(header_name(str(one.alias)) if isinstance(one, Header) else str(one.alias) for one in found)

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
            is_replay = status == 200 and "idempotency-key-reused" in self.problems
            names = ("X-Request-Id", *self.headers, *(("Idempotency-Replayed",) if is_replay else ()))
            content = {} if view is None else {JSON: _form(view)}
            found[status] = {"description": words, "content": content, "headers": _headers(names)}
        for status in sorted({CODES[code][0] for code in self.codes}):
            own = [code for code in self.codes if CODES[code][0] == status]
            names = ("X-Request-Id", *{405: ("Allow",), 415: ("Accept-Post",), 503: ("Retry-After",)}.get(status, ()))
            found[status] = {
                "description": "; ".join(f"{CODES[code][1]} (`{code}`)" for code in own),
                "content": {CONTENT_TYPE: _form(ProblemDetails)},
                "headers": _headers(names),
            }
        return found


def route(
    request: str,
    name: str,
    summary: str,
    *,
    description: str = "",
    answers: Answers,
    headers: tuple[str, ...] = (),
    problems: tuple[str, ...] = (),
) -> Callable[[Call], Call]:
    """Makes a method of ``Routes`` the call of an operation. ``request``: its method and path, ``GET /v1/ticks``."""
    method, path = request.split()

    def mark(call: Call) -> Call:
        call.operation = partial(  # type: ignore[attr-defined]
            Operation, method=method, path=path, name=name, summary=summary, description=description,
            answers=answers, headers=headers, problems=problems,
        )  # fmt: skip
        return call

    return mark


class Routes:
    """Operations on one kind of thing."""

    tag: ClassVar[str]  # theirs in the document

    def __init__(self, client: TaskClient, waiting: Waiting) -> None:
        self._client = client
        self._waiting = waiting
        self._seconds = waiting.seconds

    def operations(self) -> list[Operation]:
        """Those of the methods that ``route`` marks, in their order."""
        marked = ((name, call) for name, call in vars(type(self)).items() if hasattr(call, "operation"))
        return [call.operation(call=getattr(self, name), tag=self.tag) for name, call in marked]


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


def header_name(name: str) -> str:
    """The name of a header as it is written; Powertools keeps it in lower case."""
    return "-".join(word.capitalize() for word in name.split("-"))


def values_of(body: BaseModel) -> dict[str, Any]:
    """The attributes of a body, unchanged; Dynatick's own without null."""
    values = {name: getattr(body, name) for name in body.model_fields_set if name in type(body).model_fields}
    return {name: value for name, value in values.items() if value is not None} | (body.__pydantic_extra__ or {})


def _form(view: type[View]) -> dict[str, Any]:
    return {"schema": {"$ref": f"#/components/schemas/{form_name(view)}"}}


def _headers(names: Sequence[str]) -> dict[str, Any]:
    return {name: {"description": HEADERS[name], "schema": {"type": "string"}} for name in names}

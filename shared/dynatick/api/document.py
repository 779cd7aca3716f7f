"""The OpenAPI document of the HTTP API, made from the operations and forms that serve it."""

from __future__ import annotations

import json
import re
import types
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import Any, Literal, get_args, get_origin

import dynatick
from dynatick.api.application import Api
from dynatick.api.problems import CONTENT_TYPE, ProblemDetails
from dynatick.api.routes import HEADERS, header_name
from dynatick.client import TaskClient, payload_schemas
from dynatick.domain.view import Member, View, WholeRow, form_name, members
from dynatick.store.memory import MemoryStore

_DESCRIPTION = """\
Tasks to run later, by any HTTP client. An attribute means the same here as in the table, on the command line and in
the Python client. An error is a problem details document (RFC 9457) with a `code` for programs and the `requestId` of
the logs; the gateway itself answers 401 and 403 (not authorised), 413 (too large for it), 429 (too many
requests) and 503 in a form of its own.
"""
_OF_ROWS = "With every attribute of its row; rows are not always written by Dynatick, so attributes have any type."
_NOT_OURS = ("HTTPValidationError", "ValidationError", "ResponseValidationError")
_SECURITY = {
    "iam": {
        "type": "apiKey",
        "name": "Authorization",
        "in": "header",
        "description": "AWS Signature Version 4 for the service `execute-api`; the caller needs `execute-api:Invoke`.",
        "x-amazon-apigateway-authtype": "awsSigv4",
    },
    "token": {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "JWT",
        "description": "Where the template's parameter ApiAuthorization says JWT.",
    },
}


def document() -> dict[str, Any]:
    """The document, as plain JSON values. The same for each deployment of this version."""
    api = Api(TaskClient(MemoryStore()))
    made: dict[str, Any] = json.loads(
        api.resolver.get_openapi_json_schema(
            title="Dynatick", version=dynatick.__version__, description=_DESCRIPTION.replace("\n", " ").strip()
        )
    )
    schemas = made["components"]["schemas"]
    for name in _NOT_OURS:
        schemas.pop(name, None)
    for name, schema in payload_schemas().items():
        schemas[f"Payload.{name}"] = _within(schema, f"#/components/schemas/Payload.{name}")
    problems: dict[str, Any] = {}
    for operations in made["paths"].values():
        for operation in operations.values():
            _tidy_operation(operation, problems)
    for schema in schemas.values():
        _tidy_form(schema)
    answers = [form for one in api.table.operations for _, form in one.answers.values()]
    for view in (ProblemDetails, *answers):
        if view is not None:
            _add_form(view, schemas)
    made["components"]["headers"] = {
        name: {"description": words, "schema": {"type": "string"}} for name, words in HEADERS.items()
    }
    made["servers"] = [
        {
            "url": "{ApiUrl}",
            "description": "The stack's output ApiUrl",
            "variables": {"ApiUrl": {"default": "http://127.0.0.1:8080"}},
        }
    ]
    made["components"]["responses"] = {name: problems[name] for name in sorted(problems)}
    made["components"]["securitySchemes"] = _SECURITY
    made["security"] = [{"iam": []}, {"token": []}]
    made["paths"] = {path: made["paths"][path] for path in api.table.documented_paths}
    made["components"]["schemas"] = {name: schemas[name] for name in sorted(schemas)}
    whole: dict[str, Any] = _whole(made)
    return whole


def text() -> str:
    """The document as text, as it is committed."""
    return json.dumps(document(), indent=2, ensure_ascii=False) + "\n"


_TYPES: Mapping[object, dict[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    datetime: {"type": "string", "format": "date-time"},
    type(None): {"type": "null"},
    object: {},
    Any: {},
}


def _add_form(view: type[View], schemas: dict[str, Any]) -> None:
    """Adds the schema of a view's ``to_row``, and those of the views in it."""
    if (name := form_name(view)) in schemas:
        return
    words = f"{view.__doc__} {_OF_ROWS if issubclass(view, WholeRow) else ''}"
    form = schemas[name] = {
        "additionalProperties": True,
        "description": " ".join(words.split()).replace("``", "`"),
        "title": name,
        "type": "object",
    }
    shown = list(_all_members(view))
    form["properties"] = {member.name: _described(view, member, schemas) for member in shown}
    form["required"] = [member.name for member in shown if _is_always_there(view, member)]


def _all_members(view: Any) -> Iterator[Member]:
    for member in members(view):
        yield from _all_members(member.hint) if member.json.inline else (member,)


def _is_always_there(view: type[View], member: Member) -> bool:
    if issubclass(view, WholeRow):
        return member.name in view.TYPED and not member.json.optional
    return not member.json.optional and (member.json.null or type(None) not in get_args(member.hint))


def _described(view: type[View], member: Member, schemas: dict[str, Any]) -> dict[str, Any]:
    is_known = not issubclass(view, WholeRow) or member.name in view.TYPED
    schema = _schema_of(member.hint, schemas) if is_known else {}
    if not member.json.null:
        schema = _tidy_value(schema)  # it is left out instead
    return {**schema, "description": member.description} if member.description else schema


def _schema_of(hint: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    if hint in _TYPES:
        return dict(_TYPES[hint])
    kind, inner = get_origin(hint), get_args(hint)
    if kind is Literal:
        return {"type": "string", "enum": list(inner)}
    if kind is types.UnionType:
        kinds = [_schema_of(part, schemas) for part in inner]
        if _TYPES[str] in kinds:  # any text, not only a known one
            kinds = [one for one in kinds if "enum" not in one]
        return kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
    if kind is not None and issubclass(kind, Sequence):
        return {"type": "array", "items": _schema_of(inner[0], schemas)}
    if kind is not None:
        return {"type": "object", "additionalProperties": _schema_of(inner[1], schemas) or True}
    if issubclass(hint, Enum):
        return {"type": "string", "enum": [str(one.value) for one in hint]}
    _add_form(hint, schemas)
    return {"$ref": f"#/components/schemas/{form_name(hint)}"}


def _tidy_operation(operation: dict[str, Any], problems: dict[str, Any]) -> None:
    """Removes what Powertools adds, and defines each problem once, for all operations."""
    operation["responses"] = {
        status: answer
        for status, answer in sorted(operation["responses"].items())
        if "HTTPValidationError" not in json.dumps(answer)
    }
    for status, answer in operation["responses"].items():
        answer["headers"] = {name: {"$ref": f"#/components/headers/{name}"} for name in answer["headers"]}
        if not answer["content"]:
            del answer["content"]
        elif CONTENT_TYPE in answer["content"]:
            name = ".".join(re.findall("`([a-z-]+)`", answer["description"]))
            problems[name] = answer
            operation["responses"][status] = {"$ref": f"#/components/responses/{name}"}
    for parameter in operation.get("parameters", []):
        if parameter["in"] == "header":
            parameter["name"] = header_name(parameter["name"])
        parameter["schema"] = _tidy_value(parameter["schema"])
        parameter["schema"].pop("description", None)
        if "examples" in parameter["schema"]:
            parameter["example"] = parameter["schema"].pop("examples")[0]


def _tidy_form(schema: dict[str, Any]) -> None:
    for name, value in schema.get("properties", {}).items():
        value.pop("title", None)  # the name once more
        schema["properties"][name] = value


def _tidy_value(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a parameter, which is never null."""
    schema.pop("title", None)
    kinds = [kind for kind in schema.pop("anyOf", []) if kind != {"type": "null"}]
    return {**schema, **kinds[0]} if kinds else schema


def _whole(value: Any) -> Any:
    """Whole numbers without a fraction: 1, not 1.0."""
    if isinstance(value, dict):
        return {key: _whole(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_whole(part) for part in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _within(schema: Any, place: str) -> Any:
    """A schema as a part of the document, with its references adjusted."""
    if isinstance(schema, dict):
        return {
            key: value.replace("#/$defs/", f"{place}/$defs/") if key == "$ref" else _within(value, place)
            for key, value in schema.items()
        }
    return [_within(part, place) for part in schema] if isinstance(schema, list) else schema

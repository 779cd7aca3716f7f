"""The OpenAPI document of the HTTP API, made from the operations and forms that serve it."""

from __future__ import annotations

import json
import re
from typing import Any

import dynatick
from dynatick.api.application import Api
from dynatick.api.problems import CONTENT_TYPE
from dynatick.api.routes import HEADERS
from dynatick.client import TaskClient, payload_schemas
from dynatick.store.memory import MemoryStore

_DESCRIPTION = """\
Tasks to run later, by any HTTP client. An attribute means the same here as in the table, on the command line and in
the Python client. An error is a problem details document (RFC 9457) with a `code` for programs and the `requestId` of
the logs; the gateway itself answers 401 and 403 (not authorised), 413 (too large for it), 429 (too many
requests) and 503 in a form of its own.
"""
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
            parameter["name"] = "-".join(word.capitalize() for word in parameter["name"].split("-"))
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

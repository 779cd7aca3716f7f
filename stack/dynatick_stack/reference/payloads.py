"""The fields of the built-in actions' payloads, from the types that check them."""

from collections.abc import Iterator
from typing import Any

from dynatick.actions.payload import payload_schemas
from dynatick_stack.markdown import table

_TYPES = {"string": "text", "integer": "whole number", "number": "number", "object": "map", "boolean": "true or false"}
_TITLES = {
    "SsmSecret": "Secret of SSM",
    "ManagedSecret": "Secret of Secrets Manager",
    "SecretText": "Text with a secret",
}


def parts() -> dict[str, str]:
    """A table of fields for each action, and for each type that several of them use."""
    schemas = payload_schemas()
    shared = {
        _anchor(name): definition for schema in schemas.values() for name, definition in schema.get("$defs", {}).items()
    }
    return {name: _fields(schema) for name, schema in (schemas | shared).items() if "properties" in schema}


def _fields(schema: dict[str, Any]) -> str:
    required = set(schema.get("required", ()))
    rows = [
        (f"`{name}`", _type(field), "required" if name in required else _default(field), field.get("description", ""))
        for name, field in sorted(schema["properties"].items(), key=lambda one: one[0] not in required)
    ]
    return table(["Field", "Type", "Default", "What it is"], rows)


def _default(field: dict[str, Any]) -> str:
    value = field.get("default")
    return "" if value is None or value == "" else f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def _type(field: dict[str, Any]) -> str:
    return " or ".join(dict.fromkeys(_types(field)))


def _types(field: dict[str, Any]) -> Iterator[str]:
    if "enum" in field:
        yield ", ".join(f"`{one}`" for one in field["enum"])
    elif "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        yield f"[{_TITLES.get(name, name)}](#{_anchor(name)})"
    elif branches := field.get("oneOf") or field.get("anyOf"):
        for branch in branches:
            if branch.get("type") != "null":
                yield from _types(branch)
    elif field.get("type") == "array":
        yield f"list of {_type(field['items'])}"
    elif field.get("type") == "object" and isinstance(field.get("additionalProperties"), dict):
        inner = _type(field["additionalProperties"])
        yield "map" if inner == "anything" else f"map of names to {inner}"
    elif "type" in field:
        yield _TYPES[field["type"]] + _bounds(field)
    else:
        yield "anything"


def _bounds(field: dict[str, Any]) -> str:
    low = field.get("minimum", field.get("exclusiveMinimum"))
    high = field.get("maximum")
    return "" if low is None or high is None else f", {low:g} to {high:g}"


def _anchor(name: str) -> str:
    return _TITLES.get(name, name).lower().replace(" ", "-")

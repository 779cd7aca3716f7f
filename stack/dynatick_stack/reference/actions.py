"""docs/reference/actions.md: the built-in actions and their payloads, from the types that check them."""

from collections.abc import Iterator
from typing import Any

from dynatick.actions.payloads import payload_schemas
from dynatick_stack.reference import markdown
from dynatick_stack.reference.markdown import entries

# What each does, which parameter names its targets, and what its result is; the page refuses to be made when one is
# missing or too many.
_ACTIONS = entries("""\
eventbridge | Puts an event on a bus, up to ten in a call | `AllowedEventBusArns` | `{"eventId": …}` |
    in `detail.dynatick`
lambda | Invokes a function | `AllowedFunctionArns` | `{"requestId": …}`, or the function's answer |
    in the event's `dynatick`
log | Writes one line to the processor's log | - | none | in the line
sns | Publishes a message to a topic, up to ten in a call | `AllowedTopicArns` | `{"messageId": …}` |
    in message attributes
sqs | Sends a message to a queue, up to ten in a call | `AllowedQueueArns` | `{"messageId": …}` | in message attributes
stepfunctions | Starts an execution; a repeat starts no second one of a standard state machine |
    `AllowedStateMachineArns` | `{"executionArn": …}` | in the input's `dynatick`
webhook | Sends a request to a URL | `AllowedWebhookHosts` | `{"status": 204}` | in headers
""")

_TYPES = {"string": "text", "integer": "whole number", "number": "number", "object": "map", "boolean": "true or false"}


def page() -> str:
    """As the types are now. Raises ValueError for an action that nobody has described, or that is gone."""
    schemas = payload_schemas()
    if set(_ACTIONS) != set(schemas):
        raise ValueError(f"actions that are not described here, or are gone: {set(_ACTIONS) ^ set(schemas)}")
    shared: dict[str, dict[str, Any]] = {}
    parts: list[str] = []
    for name, schema in schemas.items():
        does, parameter, result, _ = _ACTIONS[name]
        targets = f" Where to: {parameter}." if parameter != "-" else ""
        parts += [f"## {name}", f"{does}.{targets} Its result: {result}."]
        parts.append(_fields(schema) if "properties" in schema else "Its payload may be anything.")
        shared |= schema.get("$defs", {})
    for name, schema in sorted(shared.items()):
        parts += [f"## {_title(name)}", schema["description"], _fields(schema)]
    return markdown.page(
        "Actions and their payloads",
        "What a task does is its `action`, and `payload` are its arguments. Beside the built-in ones, which are\n"
        "here, there are your [handlers](../how-to/handlers.md). A payload that does not fit is refused by each door\n"
        "of ours, and fails its task for good if it came by another.",
        "Each target is told the task's id, due time, attempt, idempotency key, and schedule if it has one:",
        markdown.table(
            ["Action", "What it does", "How the target is told"],
            [(f"[`{name}`](#{name})", does, told) for name, (does, _, _, told) in _ACTIONS.items()],
        ),
        *parts,
    )


def _fields(schema: dict[str, Any]) -> str:
    required = set(schema.get("required", ()))
    rows = [
        (
            f"`{name}`",
            _type(field),
            "required" if name in required else _default(field),
            field.get("description", ""),
        )
        for name, field in sorted(schema["properties"].items(), key=lambda one: one[0] not in required)
    ]
    return markdown.table(["Field", "Type", "Default", "What it is"], rows)


def _default(field: dict[str, Any]) -> str:
    value = field.get("default")
    return "" if value is None or value == "" else f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def _type(field: dict[str, Any]) -> str:
    return " or ".join(dict.fromkeys(_types(field)))


def _types(field: dict[str, Any]) -> Iterator[str]:
    if "enum" in field:
        yield ", ".join(f"`{one}`" for one in field["enum"])
    elif "$ref" in field:
        title = _title(field["$ref"].rpartition("/")[2])
        yield f"[{title}](#{title.lower().replace(' ', '-')})"
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


def _title(name: str) -> str:
    return {
        "SsmSecret": "Secret of SSM",
        "ManagedSecret": "Secret of Secrets Manager",
        "SecretText": "Text with a secret",
    }.get(name, name)

"""docs/reference/actions.md: the built-in actions and their payloads, from the types that check them."""

import json
from collections.abc import Iterator
from typing import Any

from dynatick.actions.payload import check_payload, payload_schemas
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

# One payload each, which the page checks.
_EXAMPLES: dict[str, dict[str, Any]] = {
    "eventbridge": {
        "eventBusArn": "arn:aws:events:eu-west-1:123456789012:event-bus/default",
        "source": "shop",
        "detailType": "Trial Ended",
        "detail": {"account": 7},
    },
    "lambda": {
        "functionArn": "arn:aws:lambda:eu-west-1:123456789012:function:report",
        "invocationType": "RequestResponse",
        "input": {"customer": "ACME"},
    },
    "sns": {
        "topicArn": "arn:aws:sns:eu-west-1:123456789012:reminders",
        "subject": "A reminder",
        "message": "The train leaves at two.",
        "messageAttributes": {"kind": "travel"},
    },
    "sqs": {
        "queueArn": "arn:aws:sqs:eu-west-1:123456789012:orders",
        "message": {"order": 42, "do": "cancel"},
    },
    "stepfunctions": {
        "stateMachineArn": "arn:aws:states:eu-west-1:123456789012:stateMachine:onboarding",
        "input": {"account": 7},
    },
    "webhook": {
        "url": "https://www.example.com/articles/7/unpublish",
        "headers": {"Authorization": {"secret": {"ssm": "/dynatick/site-token"}, "prefix": "Bearer "}},
        "data": {"article": 7},
        "expectedStatuses": [204, 409],
    },
}

_ABOUT = """\
What a task does is its `action`, and `payload` are its arguments. Beside the built-in ones, which are here, there are
your [handlers](../how-to/handlers.md). A payload that does not fit is refused by our interfaces, and fails its task
for good if it came by another.

Where tasks may go is decided by the template's [parameters](parameters.md), not by who inserts them: each kind below
names its own. A kind for AWS services that has no target allowed is not there, and the processor's role reaches just
the targets that are. `AllowedActions` leaves out kinds altogether. `ActionRateLimits` says how fast a kind may be used,
or a host: `webhook:api.example.com=10/s,lambda=300/m`. What comes faster waits for its turn, in the processor if that
is before the next tick, else in a later bucket, and loses no attempt by it.

Tasks that are due together and go to the same topic, queue or bus share calls, and each entry's own answer counts for
its task. What fails is tried again as the task's `retryPolicy` says; what can't succeed, such as a queue that does not
exist, is not. As a call can come twice, the target gets what shows repeats; FIFO targets and standard state
machines drop them by themselves."""

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
        if "properties" in schema:
            check_payload(name, _EXAMPLES[name])
            parts.append(f"```json\n{json.dumps(_EXAMPLES[name], indent=2)}\n```")
        parts.append(_fields(schema) if "properties" in schema else "Its payload may be anything.")
        shared |= schema.get("$defs", {})
    for name, schema in sorted(shared.items()):
        parts += [f"## {_title(name)}", schema["description"], _fields(schema)]
    return markdown.page(
        "Actions and their payloads",
        _ABOUT,
        "Each target gets the task's id, due time, attempt, idempotency key, and schedule if it has one:",
        markdown.table(
            ["Action", "What it does", "How the target gets it"],
            [(f"[`{name}`](#{name})", does, how) for name, (does, _, _, how) in _ACTIONS.items()],
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

"""Converts schedules of EventBridge Scheduler, as ``aws scheduler get-schedule`` prints them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from dynatick.bulk.conversion import DESCRIPTION, Conversion
from dynatick.domain import attributes as attr
from dynatick.domain.expressions import At, Rate, check_zone, parse_expression
from dynatick.domain.instants import format_instant, parse_instant
from dynatick.domain.schedule import Overlap, ScheduleState
from dynatick.domain.terminal_text import quoted
from dynatick.errors import InvalidInput
from dynatick.json_reader import documents, dumps, loads

_KNOWN = frozenset(
    {
        "ActionAfterCompletion", "Arn", "CreationDate", "Description", "EndDate", "FlexibleTimeWindow", "GroupName",
        "KmsKeyArn", "LastModificationDate", "Name", "ResponseMetadata", "ScheduleExpression",
        "ScheduleExpressionTimezone", "StartDate", "State", "Target",
    }
)  # fmt: skip
_RETRIES = {"MaximumRetryAttempts": 185, "MaximumEventAgeInSeconds": 86_400}  # its defaults
_DEFAULT_GROUP = "default"
_PLACEHOLDER = re.compile(r"<aws\.scheduler\.[\w-]+>")
_ARN = re.compile(r"arn:[\w-]+:(?P<service>[\w-]+):(?P<region>[\w-]*):(?P<account>\d*):(?P<resource>.+)", re.ASCII)
_TARGETS = {
    "lambda": ("lambda", "function:"),
    "sqs": ("sqs", ""),
    "sns": ("sns", ""),
    "states": ("stepfunctions", "stateMachine:"),
    "events": ("eventbridge", "event-bus/"),
}
"""For each service of a target's ARN: our action, and how the resource begins."""


def read_eventbridge_scheduler(text: str, *, id_prefix: str = "") -> Iterator[Conversion]:
    """The schedules of one document or many: objects, lists of them, and objects with ``Schedules``.

    The id of each is its name, after ``GROUP/`` if its group is not the default one. Raises InvalidInput for a text
    that is not JSON.
    """
    try:
        for line, document in documents(text):
            found = _schedules_of(document)
            for number, one in enumerate(found, 1):
                place = f"line {line}" if len(found) == 1 else f"line {line}, element {number}"
                yield _conversion(one, line, place, id_prefix)
    except ValueError as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput("file", text, f"expected the JSON that aws scheduler get-schedule prints: {error}") from None


def _schedules_of(document: object) -> list[object]:
    if isinstance(document, Mapping) and isinstance(document.get("Schedules"), list):
        return list(document["Schedules"])
    return document if isinstance(document, list) else [document]


def _conversion(one: object, line: int, place: str, id_prefix: str) -> Conversion:
    """``place``: its name, if it has none of its own."""
    name, text = place, dumps(one)
    notes: list[str] = []
    try:
        if not isinstance(one, Mapping):
            raise InvalidInput("schedule", one, "expected the JSON object of a schedule")
        name = id_prefix + _id_of(one)
        row = {attr.TASK_ID: name, **_timing(one, notes), **_target(one, notes)}
        if isinstance(described := one.get("Description"), str) and described:
            row[DESCRIPTION] = described
        notes += _left_out(one)
        return Conversion(line=line, name=name, text=text, row=row, notes=tuple(notes))
    except InvalidInput as error:
        return Conversion(line=line, name=name, text=text, error=error)


def _id_of(one: Mapping[str, object]) -> str:
    name, group = one.get("Name"), one.get("GroupName", _DEFAULT_GROUP)
    if not isinstance(name, str) or not name:
        raise InvalidInput("Name", name, "expected the name of the schedule")
    if not isinstance(group, str) or not group:
        raise InvalidInput("GroupName", group, "expected the name of a group")
    return name if group == _DEFAULT_GROUP else f"{group}/{name}"


def _timing(one: Mapping[str, object], notes: list[str]) -> dict[str, object]:
    if "ScheduleExpression" not in one:
        group = str(one.get("GroupName", _DEFAULT_GROUP))
        command = f"aws scheduler get-schedule --name {quoted(str(one['Name']))} --group-name {quoted(group)}"
        expected = f"list-schedules prints neither it nor the input; import what {command} prints"
        raise InvalidInput("ScheduleExpression", None, expected)
    expression = parse_expression(one["ScheduleExpression"], "ScheduleExpression")
    found: dict[str, object] = {
        attr.SCHEDULE_EXPRESSION: expression.text,
        attr.SCHEDULE_EXPRESSION_TIMEZONE: check_zone(
            one.get("ScheduleExpressionTimezone") or "UTC", "ScheduleExpressionTimezone"
        ),
        attr.OVERLAP: str(Overlap.ALLOW),
    }
    for theirs, ours in (("StartDate", attr.START_DATE), ("EndDate", attr.END_DATE)):
        if one.get(theirs) is not None:
            found[ours] = _instant(one[theirs], theirs)
    if isinstance(expression, Rate) and attr.START_DATE not in found:
        created = one.get("CreationDate")
        if created is None:
            notes.append(
                "it has no StartDate: its rate counts from the import, so it runs at other minutes than before"
            )
        else:
            found[attr.START_DATE] = _instant(created, "CreationDate")
            notes.append("it has no StartDate: its rate counts from its CreationDate; compare that with its last runs")
    state = one.get("State", "ENABLED")
    if state == str(ScheduleState.DISABLED):
        found[attr.SCHEDULE_STATE] = state
    elif state != str(ScheduleState.ENABLED):
        raise InvalidInput("State", state, "expected ENABLED or DISABLED")
    window = _map(one, "FlexibleTimeWindow")
    match window.get("Mode", "OFF"):
        case "OFF":
            pass
        case "FLEXIBLE":
            minutes = window.get("MaximumWindowInMinutes")
            if minutes is None:
                raise InvalidInput(
                    "FlexibleTimeWindow.MaximumWindowInMinutes", None, "expected minutes, from 1 to 1440"
                )
            found[attr.FLEXIBLE_TIME_WINDOW] = minutes
            notes.append("within its FlexibleTimeWindow it starts later by always the same time")
        case mode:
            raise InvalidInput("FlexibleTimeWindow.Mode", mode, "expected OFF or FLEXIBLE")
    match one.get("ActionAfterCompletion", "NONE"):
        case "DELETE":
            notes.append("ActionAfterCompletion DELETE: after its last run it stays as COMPLETED for RetentionDays")
        case _ if isinstance(expression, At) or attr.END_DATE in found:
            notes.append("ActionAfterCompletion NONE: it is removed RetentionDays after its last run")
        case _:
            pass
    return found


def _instant(value: object, field: str) -> str:
    return format_instant(parse_instant(value, field).replace(microsecond=0))


def _target(one: Mapping[str, object], notes: list[str]) -> dict[str, object]:
    """Action, payload and retry policy."""
    target = _map(one, "Target")
    arn = target.get("Arn")
    match = _ARN.fullmatch(arn) if isinstance(arn, str) else None
    if match is None:
        raise InvalidInput("Target.Arn", arn, "expected the ARN of a target")
    if match["service"] == "scheduler":
        expected = "expected a target of its own: no action calls an API by its name; write a handler that does"
        raise InvalidInput("Target.Arn", arn, expected)
    action, prefix = _TARGETS.get(match["service"], ("", ""))
    if not action or not match["resource"].startswith(prefix):
        kinds = "a function, queue, topic, state machine or event bus"
        raise InvalidInput("Target.Arn", arn, f"expected {kinds}: no action calls others; write a handler that does")
    text = target.get("Input")
    if text is not None and not isinstance(text, str):
        raise InvalidInput("Target.Input", text, "expected a text")
    if text is not None and (placeholder := _PLACEHOLDER.search(text)):
        expected = (
            f"expected an input without {placeholder[0]}: nothing takes its place here; what the target gets of each "
            "task has its dueAt, idempotencyKey and attempt"
        )
        raise InvalidInput("Target.Input", text, expected)
    payload = _payload(action, str(arn), text, target, notes)
    if target.get("RoleArn") is not None:
        notes.append("RoleArn is left out: the processor calls the target, which AllowedTargetArns must name")
    if target.get("DeadLetterConfig"):
        notes.append("DeadLetterConfig is left out: what fails for good is in the installation's dead-letter queue")
    policy = {**_RETRIES, **_map(target, "RetryPolicy")}
    return {
        attr.ACTION: action,
        attr.PAYLOAD: payload,
        attr.RETRY_POLICY: {
            attr.MAXIMUM_RETRY_ATTEMPTS: policy["MaximumRetryAttempts"],
            attr.MAXIMUM_EVENT_AGE_IN_SECONDS: policy["MaximumEventAgeInSeconds"],
        },
    }


def _payload(
    action: str, arn: str, text: str | None, target: Mapping[str, object], notes: list[str]
) -> dict[str, object]:
    if text is None and action in ("sns", "sqs"):
        expected = "expected an input: without one the target gets an event that only EventBridge Scheduler makes"
        raise InvalidInput("Target.Input", None, expected)
    if text is None:
        notes.append("it has no Input: the target gets no 'Scheduled Event' any more, but an empty one")
    match action:
        case "sqs":
            group = _map(target, "SqsParameters").get("MessageGroupId")
            return {"queueArn": arn, "message": text} | ({} if group is None else {"messageGroupId": group})
        case "sns":
            return {"topicArn": arn, "message": text}
        case "lambda":
            return {"functionArn": arn, "input": _input(text)}
        case "stepfunctions":
            return {"stateMachineArn": arn, "input": _input(text)}
        case _:
            event = _map(target, "EventBridgeParameters")
            names = {"source": event.get("Source"), "detailType": event.get("DetailType")}
            given = {name: value for name, value in names.items() if value is not None}
            return {"eventBusArn": arn, **given, "detail": _input(text)}


def _input(text: str | None) -> object:
    """The input as a map, to which Dynatick can add its key. Raises InvalidInput."""
    value = {} if text is None else loads(text, "Target.Input")
    if not isinstance(value, dict):
        raise InvalidInput("Target.Input", text, "expected a JSON object, to which the key dynatick can be added")
    return value


def _map(one: Mapping[str, object], name: str) -> Mapping[str, object]:
    value = one.get(name)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidInput(name, value, "expected an object")
    return value


def _left_out(one: Mapping[str, object]) -> list[str]:
    notes = [f"{name} is left out" for name in sorted(one.keys() - _KNOWN) if one[name] is not None]
    if one.get("KmsKeyArn"):
        notes.append("KmsKeyArn is left out: the table's key encrypts the payload")
    return notes

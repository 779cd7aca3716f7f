"""Validation of the built-in actions' payloads.

Each action declares its payload type in its own module. The interfaces and the action itself validate with it, and the
API's JSON Schema and the reference are generated from it. pydantic is imported when a payload type is first used: its
import is slow, and would delay a cold start.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar, cast

from dynatick.actions.plain_value import plain
from dynatick.errors import MISSING, InvalidInput, PermanentError, shown

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError

_PAYLOAD_TYPES = {
    "eventbridge": "dynatick.actions.eventbridge:EventBridgePayload",
    "lambda": "dynatick.actions.aws_lambda:LambdaPayload",
    "log": None,  # accepts any payload
    "sns": "dynatick.actions.sns:SnsPayload",
    "sqs": "dynatick.actions.sqs:SqsPayload",
    "stepfunctions": "dynatick.actions.step_functions:StepFunctionsPayload",
    "webhook": "dynatick.actions.webhook_payload:WebhookPayload",
}
BUILT_IN = tuple(sorted(_PAYLOAD_TYPES))
"""The built-in actions. No handler may have one of these names, even if the installation lacks that action."""

_SHOWN_ERRORS = 5
_SHOWN_CHARACTERS = 200

Payload = TypeVar("Payload")

_adapters: dict[type[Any], TypeAdapter[Any]] = {}
_known_names: dict[type[Any], tuple[str, ...]] = {}


def check_payload(action: str, payload: object) -> None:
    """Refuses a payload that the built-in action can't use. Raises InvalidInput, without the value.

    Ignores other actions: ``payload_schema`` checks the payloads of handlers.
    """
    kind = _type_of(action)
    if kind is None:
        return
    parser = _Parser(kind)
    parser.parse({} if payload is None else payload)
    if parser.error is not None:
        raise parser.error


def parsed(kind: type[Payload], payload: Mapping[str, object]) -> Payload:
    """A task's payload as a value of the type ``kind``. Raises PermanentError, without the value."""
    parser = _Parser(kind)
    value = parser.parse(payload)
    if parser.error is not None:
        raise PermanentError(f"{parser.error.field}: {parser.error.expected}{parser.more}")
    return cast(Payload, value)


def payload_schemas() -> dict[str, dict[str, Any]]:
    """The JSON Schema (2020-12) of each built-in action's payload, by the action's name."""
    anything: dict[str, Any] = {"type": "object", "title": "LogPayload", "description": "Any map; it is not logged."}
    kinds = {name: _type_of(name) for name in BUILT_IN}
    return {
        name: anything if kind is None else _adapter(kind).json_schema(by_alias=True) for name, kind in kinds.items()
    }


def field_problems(error: ValidationError, known: Iterable[str] = ()) -> list[tuple[str, str]]:
    """(field, problem) for each field that does not fit, without values. Bounded in number and length.

    ``known``: the fields of the payload, for the problem of one that is not known.
    """
    details = error.errors(include_url=False, include_input=False)
    found: list[tuple[str, str]] = []
    for detail in details[:_SHOWN_ERRORS]:
        # A part in angle brackets is the label of a union's choice, not a field.
        parts = [str(part) for part in detail["loc"] if not str(part).startswith("<")]
        context = detail.get("ctx", {})
        path = ".".join(("payload", *parts, *([context["field"]] if "field" in context else [])))
        problem = MISSING if detail["type"] == "missing" else detail["msg"]
        if detail["type"] == "extra_forbidden" and len(parts) == 1 and (names := ", ".join(known)):
            problem = f"unknown; expected any of {names}"
        found.append((path[:_SHOWN_CHARACTERS], problem[:_SHOWN_CHARACTERS]))
    if len(details) > _SHOWN_ERRORS:
        found.append(("", f"and {len(details) - _SHOWN_ERRORS} more"))
    return found


def invalid_payload(error: ValidationError, raw: object, known: Iterable[str] = ()) -> InvalidInput:
    """The problems of a payload: the first, with the others in ``others``; without values. ``known``: its fields."""
    first, *others = (
        InvalidInput(field, _described(_at(raw, field)), text) for field, text in field_problems(error, known) if field
    )
    first.others = tuple(others)
    return first


class _Parser:
    """Parses a payload and keeps the error, which has the kind of the value instead of the value."""

    def __init__(self, kind: type[Any]) -> None:
        self._kind = kind
        self.error: InvalidInput | None = None
        self.more = ""  # the texts of further errors

    def parse(self, payload: object) -> object:
        from pydantic import ValidationError

        if not isinstance(payload, Mapping):
            self._set("payload", payload, "expected a map of names to values")
            return None
        raw: dict[str, object] = {}
        for name, value in payload.items():
            try:
                raw[str(name)] = plain(value)
            except ValueError as error:
                self._set(f"payload.{name}"[:_SHOWN_CHARACTERS], value, str(error))
                return None
        adapter = _adapter(self._kind)
        names = _names(self._kind)
        if unknown := sorted(set(raw) - set(names)):
            listed = ", ".join(shown(name) for name in unknown[:_SHOWN_ERRORS])
            self._set("payload", raw, f"unknown {listed}; expected any of {', '.join(names)}")
            return None
        try:
            return adapter.validate_python(raw)
        except ValidationError as error:
            self.error = invalid_payload(error, raw)
            _, *others = field_problems(error)
            self.more = "".join(f"; {path}{': ' if path else ''}{problem}" for path, problem in others)
        return None

    def _set(self, field: str, value: object, text: str) -> None:
        # The kind of the value, not the value: errors appear in the index, in logs and in messages.
        self.error = InvalidInput(field, _described(value), text)


def _described(value: object) -> str:
    match value:
        case None:
            return "nothing"
        case str():
            return f"a text of {len(value)} characters"
        case bool():
            return str(value).lower()
        case int() | float() | Decimal():
            return "a number"
        case Mapping():
            return "a map"
        case list() | tuple():
            return "a list"
        case _:
            return f"a {type(value).__name__}"


def _at(raw: object, path: str) -> object:
    for part in path.split(".")[1:]:
        if isinstance(raw, list) and part.isdecimal():
            raw = raw[int(part)] if int(part) < len(raw) else None
        else:
            raw = raw.get(part) if isinstance(raw, Mapping) else None
    return raw


def _type_of(action: str) -> type[Any] | None:
    home = _PAYLOAD_TYPES.get(action)
    if home is None:
        return None
    module, _, name = home.partition(":")
    return cast("type[Any]", getattr(import_module(module), name))


def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    if kind not in _adapters:  # if two threads build one, either serves
        _adapters[kind] = TypeAdapter(kind)
    return _adapters[kind]


def _names(kind: type[Any]) -> tuple[str, ...]:
    if kind not in _known_names:
        _known_names[kind] = tuple(sorted(_adapter(kind).json_schema(by_alias=True)["properties"]))
    return _known_names[kind]

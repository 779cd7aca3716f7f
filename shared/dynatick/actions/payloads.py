"""What the payloads of the built-in actions look like, and whether one is right.

Each kind declares its payload as a type in its own file. From there come the check at every door, the check before
execution, the JSON Schema of the API and the reference. pydantic is imported with the first of them that is needed, for
it is dear at a cold start.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar, cast

from dynatick.actions.values import plain
from dynatick.errors import InvalidInput, PermanentError, shown

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError

_HOMES = {
    "eventbridge": "dynatick.actions.eventbridge:EventBridgePayload",
    "lambda": "dynatick.actions.awslambda:LambdaPayload",
    "log": None,  # takes anything
    "sns": "dynatick.actions.sns:SnsPayload",
    "sqs": "dynatick.actions.sqs:SqsPayload",
    "stepfunctions": "dynatick.actions.stepfunctions:StepFunctionsPayload",
    "webhook": "dynatick.actions.webhookpayload:WebhookPayload",
}
BUILT_IN = tuple(sorted(_HOMES))
"""The names of the built-in kinds; no handler may have one of them, deployed or not."""

_SHOWN_ERRORS = 5
_SHOWN_CHARACTERS = 200

Payload = TypeVar("Payload")

_adapters: dict[type[Any], TypeAdapter[Any]] = {}
_known_names: dict[type[Any], tuple[str, ...]] = {}


def check_payload(action: str, payload: object) -> None:
    """Refuses what the built-in action could not work with. Raises InvalidInput, without the value in it.

    What handlers could not work with, the settings row tells (``payload_schema``).
    """
    kind = _type_of(action)
    if kind is None:
        return
    problem = _Problem(kind)
    problem.parse({} if payload is None else payload)
    if problem.refusal is not None:
        raise problem.refusal


def parsed(kind: type[Payload], payload: Mapping[str, object]) -> Payload:
    """A task's payload as its action takes it. Raises PermanentError, without the value in it."""
    problem = _Problem(kind)
    value = problem.parse(payload)
    if problem.refusal is not None:
        raise PermanentError(f"{problem.refusal.field}: {problem.refusal.expected}{problem.more}")
    return cast(Payload, value)


def payload_schemas() -> dict[str, dict[str, Any]]:
    """The JSON Schema (2020-12) of each built-in action's payload, by the action's name."""
    anything: dict[str, Any] = {"type": "object", "title": "LogPayload", "description": "Anything; it is not logged."}
    kinds = {name: _type_of(name) for name in BUILT_IN}
    return {
        name: anything if kind is None else _adapter(kind).json_schema(by_alias=True) for name, kind in kinds.items()
    }


def field_problems(error: ValidationError) -> list[tuple[str, str]]:
    """Which fields do not fit and why, without the values: they are the user's. Bounded."""
    details = error.errors(include_url=False, include_input=False)
    found: list[tuple[str, str]] = []
    for detail in details[:_SHOWN_ERRORS]:
        # Parts in angle brackets are no names, but which of several forms was taken.
        parts = [str(part) for part in detail["loc"] if not str(part).startswith("<")]
        context = detail.get("ctx", {})
        path = ".".join(("payload", *parts, *([context["field"]] if "field" in context else [])))
        found.append((path[:_SHOWN_CHARACTERS], detail["msg"][:_SHOWN_CHARACTERS]))
    if len(details) > _SHOWN_ERRORS:
        found.append(("", f"and {len(details) - _SHOWN_ERRORS} more"))
    return found


def refusal(error: ValidationError, raw: object) -> InvalidInput:
    """The problems of a payload as our own error, the first with the others on it, without the values."""
    first, *others = (
        InvalidInput(field, _described(_at(raw, field)), text) for field, text in field_problems(error) if field
    )
    first.others = tuple(others)
    return first


class _Problem:
    """Parses, and keeps what is wrong: the field, what was found there (not what it says), what it should be."""

    def __init__(self, kind: type[Any]) -> None:
        self._kind = kind
        self.refusal: InvalidInput | None = None
        self.more = ""  # what else is wrong

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
            self.refusal = refusal(error, raw)
            _, *others = field_problems(error)
            self.more = "".join(f"; {path}{': ' if path else ''}{problem}" for path, problem in others)
        return None

    def _set(self, field: str, value: object, text: str) -> None:
        # What it is and not what it says: errors stand in the index, in logs and in messages.
        self.refusal = InvalidInput(field, _described(value), text)


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
    home = _HOMES.get(action)
    if home is None:
        return None
    module, _, name = home.partition(":")
    return cast("type[Any]", getattr(import_module(module), name))


def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    if kind not in _adapters:  # two threads may build the same one; either will do
        _adapters[kind] = TypeAdapter(kind)
    return _adapters[kind]


def _names(kind: type[Any]) -> tuple[str, ...]:
    if kind not in _known_names:
        _known_names[kind] = tuple(sorted(_adapter(kind).json_schema(by_alias=True)["properties"]))
    return _known_names[kind]

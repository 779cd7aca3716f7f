"""The JSON Schema of a handler's payload, so that an interface refuses at insertion what the handler's type refuses.

``schema_of`` derives it from the type, and leaves out what JSON Schema can't express. A payload that does not fit the
schema does not fit the type; one that fits may still be refused by the type, for instance by a validator of the user.
``check_schema`` converts values as the handler does: a text of digits is a number.

One thing is refused at insertion only: fields that the type does not name, unless it says by ``extra`` of its
configuration that it allows or ignores more. Such a field is misspelt, or its sender expects what the handler doesn't
do. A task that is in the table runs: its field may be one that the type has lost since.

A handler that upgrades old payloads takes two types: the schema of the present one has that of the older one under
``UPGRADED``. What fits either is accepted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from dynatick.actions.plain_value import plain
from dynatick.errors import InvalidInput

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationInfo, ValidatorFunctionWrapHandler
    from pydantic_core import SchemaValidator

Schema = dict[str, Any]

UPGRADED = "upgraded"

MAX_ALTERNATIVES = 1000
"""How many ``anyOf`` within another are tried for one payload: that takes up to a tenth of a second."""

_FORMATS = {"date": "date", "time": "time", "datetime": "date-time", "timedelta": "duration", "uuid": "uuid"}
_LENGTHS = {"min_length": "minItems", "max_length": "maxItems"}
_BOUNDS = {
    "ge": "minimum", "le": "maximum", "gt": "exclusiveMinimum", "lt": "exclusiveMaximum", "multiple_of": "multipleOf"
}  # fmt: skip
_NUMBERS: tuple[type, ...] = (int, float)
_TEXT_IS_CHANGED = ("strip_whitespace", "to_lower", "to_upper")  # before its length and pattern are checked
_OF_NAMES = ("populate_by_name", "validate_by_name")


def schema_of(adapter: TypeAdapter[Any]) -> str | None:
    """The JSON Schema of a type, as text; None if it would accept everything."""
    writer = _Writer()
    schema = writer.of(adapter.core_schema, {})
    if not schema:
        return None
    return json.dumps(schema | ({"$defs": writer.defs} if writer.defs else {}), separators=(",", ":"))


def with_upgraded(present: str | None, older: str | None) -> str | None:
    """The schema of a handler that also takes payloads of an older type, which it upgrades."""
    if present is None or older is None:
        return None
    return json.dumps(json.loads(present) | {UPGRADED: json.loads(older)}, separators=(",", ":"))


def check_schema(text: str, payload: object) -> None:
    """Refuses a payload that does not fit the schema ``text``. Raises InvalidInput, without the value.

    Alternatives within alternatives multiply the work: after ``MAX_ALTERNATIVES`` it is left to the handler.
    """
    try:
        _check(text, payload)
    except InvalidInput:
        older = json.loads(text).get(UPGRADED)
        if older is None:
            raise
        try:
            _check(json.dumps(older), payload)
        except InvalidInput:
            older = None
        if older is None:
            raise  # as of the present type


def takes_with_more(text: str, payload: object) -> bool:
    """Whether a payload would fit the schema if that allowed fields that it does not name, as a handler's type does."""
    try:
        _check(json.dumps(_open(json.loads(text))), payload)
    except InvalidInput:
        return False
    return True


def _open(schema: Any) -> Any:
    """The schema without what closes it."""
    if isinstance(schema, list):
        return [_open(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {name: _open(part) for name, part in schema.items() if (name, part) != ("additionalProperties", False)}


def _check(text: str, payload: object) -> None:
    from dynatick.actions.payload import invalid_payload

    validator = _validator(text)
    if validator is None:
        return
    from pydantic import ValidationError

    try:
        raw = _as_kept(plain({} if payload is None else payload))
    except ValueError as error:
        raise InvalidInput("payload", f"a {type(payload).__name__}", str(error)) from None
    try:
        validator.validate_python(raw, context=_Alternatives())
    except _TooManyAlternatives:
        return
    except ValidationError as error:
        raise invalid_payload(error, raw, known=_fields_of(json.loads(text))) from None


class _TooManyAlternatives(Exception):
    """The check of a payload would take too long."""


@dataclass(slots=True)
class _Alternatives:
    """The ``anyOf`` that are being tried for a payload, one within another, and how many were tried within others."""

    depth: int = 0
    tried: int = 0


def _bounded(value: object, handler: ValidatorFunctionWrapHandler, info: ValidationInfo[_Alternatives]) -> object:
    alternatives = info.context
    assert alternatives is not None
    alternatives.tried += alternatives.depth > 0
    if alternatives.tried > MAX_ALTERNATIVES:
        raise _TooManyAlternatives
    alternatives.depth += 1
    try:
        return handler(value)
    finally:
        alternatives.depth -= 1


class _Writer:
    """Converts pydantic's core schema. An unknown part becomes ``{}``, which accepts everything."""

    def __init__(self) -> None:
        self.defs: dict[str, Schema] = {}
        self._definitions: dict[str, Mapping[str, Any]] = {}
        self._names: dict[str, str] = {}  # from pydantic's names, which differ between processes

    def of(self, core: Mapping[str, Any], config: Mapping[str, Any]) -> Schema:
        of_its_own = core["type"] in ("model", "dataclass")  # which take nothing from what they are in
        config = {**({} if of_its_own else config), **core.get("config", {})}
        match core["type"]:
            case "none":
                return {"type": "null"}
            case "bool":
                return {"type": "boolean"}
            case "int" | "float" as kind:
                return {"type": "integer" if kind == "int" else "number", **_kept(core, _BOUNDS)}
            case "decimal":
                return {"anyOf": [{"type": "number"}, {"type": "string"}]}
            case "str":
                return _text(core, config)
            case "date" | "time" | "datetime" | "timedelta" | "uuid" as kind:
                return {"type": "string", "format": _FORMATS[kind]}
            case "literal":
                return _one_of(core["expected"])
            case "enum" if core.get("sub_type") in (None, "str"):
                return _members(core)
            case "list" | "set" | "frozenset" as kind:
                items = self.of(core["items_schema"], config) if "items_schema" in core else {}
                unique = {} if kind == "list" else {"uniqueItems": True}
                return {"type": "array", **unique, **({"items": items} if items else {}), **_kept(core, _LENGTHS)}
            case "tuple":
                return {"type": "array"}
            case "dict":
                values = self.of(core["values_schema"], config) if "values_schema" in core else {}
                return {"type": "object", **({"additionalProperties": values} if values else {})}
            case "typed-dict" | "model-fields" | "dataclass-args":
                return self._fields(core, config)
            case "function-after" | "default":
                return self.of(core["schema"], config)
            case "dataclass":
                made = self.of(core["schema"], config)
                if "properties" in made:  # what its __init__ doesn't take is in a payload made from a value
                    made["properties"] |= {name: {} for name in core["fields"] if name not in made["properties"]}
                return made
            case "model" if not core.get("custom_init"):
                return self.of(core["schema"], config)
            case "nullable":
                return _any_of([self.of(core["schema"], config), {"type": "null"}])
            case "union":
                choices = [one[0] if isinstance(one, tuple) else one for one in core["choices"]]
                return _any_of([self.of(one, config) for one in choices])
            case "tagged-union":
                return _any_of([self.of(one, config) for one in core["choices"].values()])
            case "definitions":
                self._definitions |= {one["ref"]: one for one in core["definitions"]}
                return self.of(core["schema"], config)
            case "definition-ref":
                return self._ref(core["schema_ref"])
        return {}

    def _ref(self, ref: str) -> Schema:
        if ref not in self._definitions:
            return {}
        if ref not in self._names:
            name = self._names[ref] = f"d{len(self._names) + 1}"
            self.defs[name] = {}  # keeps the order of first use
            self.defs[name] = self.of(self._definitions[ref], {})
        return {"$ref": f"#/$defs/{self._names[ref]}"}

    def _fields(self, core: Mapping[str, Any], config: Mapping[str, Any]) -> Schema:
        fields = core["fields"]
        listed = fields.items() if isinstance(fields, dict) else [(one["name"], one) for one in fields]
        by_name = any(config.get(name) for name in _OF_NAMES) or config.get("validate_by_alias") is False
        properties: dict[str, Schema] = {}
        required: list[str] = []
        closed = not _allows_more(core, config)
        computed = core.get("computed_fields", ())  # in a payload made from a value
        properties |= {one.get("alias") or one["property_name"]: {} for one in computed}
        for name, field in listed:
            if field.get("init") is False:
                continue
            alias = field.get("validation_alias", name)
            if not isinstance(alias, str) or (alias != name and by_name):
                closed = False  # the field has several names
                continue
            properties[alias] = self.of(field["schema"], config)
            if core["type"] == "typed-dict":
                needed = field.get("required", core.get("total", True))
            else:
                needed = field["schema"]["type"] != "default"
            if needed:
                required.append(alias)
        made: Schema = {"type": "object", "properties": properties}
        if required:
            made["required"] = required
        return made | ({"additionalProperties": False} if closed else {})


def _allows_more(core: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    """Whether a type says that its values may have fields that it does not name."""
    said = core.get("extra_behavior")
    if said is None or core["type"] == "typed-dict":  # for which pydantic says "ignore" if nothing is said
        said = config.get("extra_fields_behavior", said if said != "ignore" else None)
    return said in ("allow", "ignore")


def _text(core: Mapping[str, Any], config: Mapping[str, Any]) -> Schema:
    if core.get("coerce_numbers_to_str") or config.get("coerce_numbers_to_str"):
        return {}
    made: Schema = {"type": "string", **_kept(core, {"min_length": "minLength"})}
    if any(core.get(name) or config.get(f"str_{name}") for name in _TEXT_IS_CHANGED):
        return made
    made |= _kept(core, {"max_length": "maxLength"})
    engine = core.get("regex_engine", config.get("regex_engine", "rust-regex"))
    if isinstance(core.get("pattern"), str) and engine == "rust-regex":
        made["pattern"] = core["pattern"]
    return made


def _kept(core: Mapping[str, Any], names: Mapping[str, str]) -> Schema:
    return {right: core[name] for name, right in names.items() if type(core.get(name)) in _NUMBERS}


def _members(core: Mapping[str, Any]) -> Schema:
    usual: Any = Enum._missing_
    if core["cls"]._missing_.__func__ is not usual.__func__:  # an enum with its own _missing_ may accept any value
        return {}
    return _one_of([one.value for one in core["members"]])


def _one_of(values: list[Any]) -> Schema:
    plain_ones = all(value is None or type(value) in (str, int, bool) for value in values)
    return {"enum": values} if plain_ones else {}


def _any_of(choices: list[Schema]) -> Schema:
    return {"anyOf": choices} if all(choices) else {}


def _fields_of(schema: Mapping[str, Any]) -> list[str]:
    """The fields of a payload; none if they differ."""
    if "$ref" in schema:
        return _fields_of(schema["$defs"][schema["$ref"].rpartition("/")[2]])
    return list(schema.get("properties", ()))


def _as_kept(value: object) -> object:
    """The value as a handler reads it from the table: 1.0 is 1."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {name: _as_kept(part) for name, part in value.items()}
    return [_as_kept(part) for part in value] if isinstance(value, list) else value


@lru_cache(maxsize=256)
def _validator(text: str) -> SchemaValidator | None:
    """The validator of a schema; None for a malformed schema: then only the handler validates."""
    from pydantic_core import SchemaError, SchemaValidator, core_schema

    try:
        schema = json.loads(text)
        definitions = [{**_core(one), "ref": f"#/$defs/{name}"} for name, one in schema.get("$defs", {}).items()]
        return SchemaValidator(core_schema.definitions_schema(_core(schema), definitions))  # type: ignore[arg-type]
    except (SchemaError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _core(schema: Mapping[str, Any]) -> Any:
    """The schema as a core schema of pydantic."""
    from pydantic_core import core_schema as core

    def bounds(names: Mapping[str, str]) -> dict[str, Any]:
        return {argument: schema[name] for argument, name in names.items() if name in schema}

    match schema:
        case {"$ref": str(ref)}:
            return core.definition_reference_schema(ref)
        case {"anyOf": [*choices]}:
            # The angle brackets mark a label that is not part of the field's path (see field_problems).
            union = core.union_schema([(_core(one), "<form>") for one in choices])
            # An alternative to null is tried once, and multiplies nothing.
            return (
                union
                if {"type": "null"} in choices[1:] and len(choices) == 2
                else core.with_info_wrap_validator_function(_bounded, union)
            )
        case {"enum": [*values]}:
            return core.literal_schema(values)
        case {"type": "null"}:
            return core.none_schema()
        case {"type": "boolean"}:
            return core.bool_schema()
        case {"type": "integer"}:
            return core.int_schema(**bounds(_BOUNDS))
        case {"type": "number"}:
            return core.float_schema(**bounds(_BOUNDS))
        case {"type": "string", "format": form} if form in _FORMATS.values():
            kind = next(name for name, value in _FORMATS.items() if value == form)
            return {"type": kind}
        case {"type": "string"}:
            names = {"min_length": "minLength", "max_length": "maxLength", "pattern": "pattern"}
            return core.str_schema(**bounds(names))
        case {"type": "array"}:
            make: Any = core.set_schema if schema.get("uniqueItems") else core.list_schema
            return make(_core(schema.get("items", {})), **bounds(_LENGTHS))
        case {"type": "object", "properties": fields}:
            required = schema.get("required", [])
            return core.typed_dict_schema(
                {name: core.typed_dict_field(_core(one), required=name in required) for name, one in fields.items()},
                extra_behavior="forbid" if schema.get("additionalProperties") is False else "ignore",
            )
        case {"type": "object"}:
            return core.dict_schema(values_schema=_core(schema.get("additionalProperties", {})))
        case _:
            return core.any_schema()

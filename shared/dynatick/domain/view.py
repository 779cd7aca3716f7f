"""What a user gets to read, as a dataclass: its fields declare the JSON, and the HTTP API's document describes them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from enum import Enum
from functools import cache
from typing import Annotated, Any, ClassVar, get_args, get_origin, get_type_hints

from dynatick.domain.instants import format_instant


@dataclass(frozen=True, kw_only=True, slots=True)
class Json:
    """How a value is in the JSON, in the annotation of its field."""

    name: str | None = None  # else the field's in camel case
    null: bool = False  # None is null there; else it is left out
    inline: bool = False  # its own values are there instead of it
    optional: bool = False  # it is left out if it is empty or false
    hidden: bool = False

    def shows(self, value: object) -> bool:
        if value is None:
            return self.null
        return not self.optional or (value is not False and value not in ("", (), [], {}))


@dataclass(frozen=True, slots=True)
class Member:
    """A field, or a property whose return type is ``Annotated``."""

    attribute: str
    hint: object
    json: Json
    description: str

    @property
    def name(self) -> str:
        head, *rest = self.attribute.split("_")
        return self.json.name or head + "".join(part.capitalize() for part in rest)


class View:
    """A dataclass that is returned as JSON. ``Annotated`` has what a field's type doesn't say: a text that describes
    it, and a ``Json``."""

    __slots__ = ()
    FORM: ClassVar[str] = ""  # its name in the HTTP API's document, if that isn't the class's

    def to_row(self) -> dict[str, object]:
        """Returns the values under the table's names, as plain JSON."""
        row: dict[str, object] = {}
        for member in members(type(self)):  # type: ignore[arg-type]
            value = getattr(self, member.attribute)
            if member.json.inline:
                row |= value.to_row()
            elif member.json.shows(value):
                row[member.name] = as_json(value)
        return row


def form_name(view: type[View]) -> str:
    """Its name in the HTTP API's document."""
    return view.FORM or view.__name__.removesuffix("View")


class WholeRow(View):
    """The JSON is a whole row. It is not always written by Dynatick, so its attributes have any type."""

    __slots__ = ()
    TYPED: ClassVar[tuple[str, ...]] = ()  # names in the JSON whose values have the types of the fields


@cache
def members(view: Any) -> tuple[Member, ...]:
    """What is shown of a view: its properties, then its fields."""
    properties = inspect.getmembers(view, lambda value: isinstance(value, property))
    hints = {name: get_type_hints(value.fget, include_extras=True).get("return") for name, value in properties}
    hints = {name: hint for name, hint in hints.items() if get_origin(hint) is Annotated}
    of_fields = get_type_hints(view, include_extras=True)
    meanings = {field.name: str(field.metadata.get("meaning", "")) for field in fields(view)}
    hints |= {name: of_fields[name] for name in meanings}
    found = (_member(name, hint, meanings.get(name, "")) for name, hint in hints.items())
    return tuple(member for member in found if not member.json.hidden)


def _member(attribute: str, hint: object, meaning: str) -> Member:
    more: tuple[object, ...] = ()
    if get_origin(hint) is Annotated:
        hint, *more = get_args(hint)  # type: ignore[assignment]
    json = next((one for one in more if isinstance(one, Json)), Json())
    return Member(attribute, hint, json, next((one for one in more if isinstance(one, str)), meaning))


def as_json(value: object) -> object:
    match value:
        case View():
            return value.to_row()
        case datetime():
            return format_instant(value)
        case Enum():
            return value.value
        case list() | tuple():
            return [as_json(part) for part in value]
        case Mapping():
            return {str(key): as_json(part) for key, part in value.items()}
    return value

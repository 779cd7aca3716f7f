"""The schemas of handlers' payloads: a payload that does not fit the schema does not fit the type."""

from __future__ import annotations

import json
import logging
import uuid
from dataclasses import InitVar, dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from functools import partial, reduce
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NotRequired, TypeVar

import pytest
from boto3.dynamodb.types import Binary
from hypothesis import example, given
from hypothesis import strategies as st
from jsonschema_rs import Draft202012Validator
from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    HttpUrl,
    RootModel,
    StringConstraints,
    TypeAdapter,
    WithJsonSchema,
    computed_field,
    create_model,
    model_validator,
)
from tests.unit.actions.support import a_context, a_task
from typing_extensions import TypedDict

from dynatick.actions.handlers import Handler
from dynatick.actions.payload_schema import check_schema, schema_of
from dynatick.actions.registry import MAX_SCHEMA_BYTES, MAX_SCHEMAS_BYTES, Registry
from dynatick.errors import InvalidInput, PermanentError
from dynatick.store.codec import decode, encode

T = TypeVar("T")


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1


class Lenient(Enum):
    A = "a"

    @classmethod
    def _missing_(cls, value: object) -> Lenient:
        return cls.A


@dataclass
class Node:
    name: str
    next: Node | None = None
    others: list[Node] = field(default_factory=list)


@dataclass
class Counted:
    start: InitVar[int]
    total: int = field(init=False)

    def __post_init__(self, start: int) -> None:
        self.total = start


class Child(BaseModel):
    x: int


CLOSED = ConfigDict(extra="forbid")
STRIP = ConfigDict(str_strip_whitespace=True)
Strict = create_model("Strict", __config__=CLOSED | ConfigDict(strict=True), a=(int, ...), b=(str, "b"))
Closed = create_model("Closed", __config__=CLOSED, a=(Child, ...), b=(list[Child], []))
Aliased = create_model(
    "Aliased", __config__=CLOSED | ConfigDict(populate_by_name=True),
    a=(int, Field(alias="aye")), b=(str, Field("b", validation_alias=AliasChoices("bee", "be"))),
)  # fmt: skip
Ignoring = create_model("Ignoring", __config__=ConfigDict(extra="ignore"), a=(Child, ...))
Allowing = create_model("Allowing", __config__=ConfigDict(extra="allow"), a=(int, ...))
OneAlias = create_model("OneAlias", a=(int, Field(alias="aye")))
Stripped = create_model(
    "Stripped", __config__=STRIP, a=(str, Field(max_length=3, min_length=1)),
    b=(Annotated[str, StringConstraints(pattern="^x$")], "x"),
)  # fmt: skip
Numbers = create_model("Numbers", __config__=ConfigDict(coerce_numbers_to_str=True), a=(str, ...))
Lines = RootModel[dict[str, list[int]]]
Cat = create_model("Cat", kind=(Literal["cat"], ...), lives=(int, ...))
Dog = create_model("Dog", kind=(Literal["dog"], ...), name=(str, ...))
Pets = create_model("Pets", pet=(Cat | Dog, Field(discriminator="kind")))


class Partly(TypedDict):
    a: int
    b: NotRequired[str]


class Optional(TypedDict, total=False):
    a: Annotated[int, Field(ge=0, lt=10, multiple_of=2)]


class IgnoringDict(TypedDict, total=False):
    __pydantic_config__ = ConfigDict(extra="ignore")  # type: ignore[misc]
    a: int


class Computing(BaseModel):
    a: int

    @computed_field  # type: ignore[prop-decorator]
    @property
    def twice(self) -> int:
        return 2 * self.a


class Turned(BaseModel):
    """Has a validator that changes the value first."""

    a: int

    @model_validator(mode="before")
    @classmethod
    def turn(cls, value: Any) -> Any:
        return {"a": 1} if value == {} else value


class OwnInit(BaseModel):
    a: int

    def __init__(self, **values: Any) -> None:
        super().__init__(a=len(values))


class Holder(BaseModel, Generic[T]):
    held: T


class Wide(BaseModel):
    at: datetime | None = None
    day: date = date(2026, 1, 1)
    for_: timedelta = Field(timedelta(), alias="for")
    amount: Decimal = Decimal(0)
    id: uuid.UUID | int = 0
    flag: bool = False
    ratio: float = Field(0.0, gt=-1, le=1)
    colour: Colour = Colour.RED
    level: Level = Level.LOW
    lenient: Lenient = Lenient.A
    which: Literal["x", 1, None] = "x"
    pair: tuple[int, str] = (1, "a")
    tags: set[str] = Field(default_factory=set, max_length=2)
    frozen: frozenset[int] = frozenset()
    raw: bytes = b""
    url: HttpUrl | None = None
    path: Path = Path()
    code: Annotated[str, Field(pattern=r"^\d{2}$")] = "00"
    says: Annotated[str, WithJsonSchema({"type": "integer"})] = ""
    shouted: Annotated[int, BeforeValidator(lambda value: 1)] = 1
    small: Annotated[int, AfterValidator(lambda value: value)] = 1
    lists: list[list[int]] = Field(default_factory=list, max_length=2)


KINDS: list[Any] = [
    Node, Counted, Strict, Closed, Ignoring, Allowing, IgnoringDict, Computing,
    Aliased, OneAlias, Turned, OwnInit, Stripped, Numbers, Lines, Holder[int],
    Holder[Child | None], Pets, Partly, Optional, Wide, dict[str, int], dict[str, Node],
]  # fmt: skip
NAMES = sorted(
    {"a", "b", "aye", "bee", "x", "name", "next", "others", "start", "total", "held", "pet", "kind", "lives", "for"}
    | set(Wide.model_fields)
)

scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 12), st.decimals(-3, 3, places=1), st.just(Binary(b"x")),
    st.sampled_from(["", "a", " abc ", "1", "1.5", "x", "cat", "dog", "red", "true", "00", "\u0661\u0661", "2026-12-31",
                     "2026-12-31T12:00:00Z", "PT5S", "https://example.com", str(uuid.UUID(int=1))]),
)  # fmt: skip
values = st.recursive(
    scalars | st.sets(st.text("ab", min_size=1), min_size=1, max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
    max_leaves=6,
)
payloads = st.dictionaries(st.sampled_from(NAMES), values, max_size=4)


def handler_of(kind: Any) -> Handler:
    def handle(payload: Any) -> object:
        return None

    handle.__annotations__["payload"] = kind
    return Handler("typed", handle)


HANDLERS = {kind: handler_of(kind) for kind in KINDS}


@given(st.sampled_from(KINDS), payloads)
@example(Wide, {"code": "\u0661\u0661"})
@example(Wide, {"says": "text", "shouted": [], "lenient": 7})
@example(Wide, {"which": 1.0, "flag": "yes", "at": 0, "ratio": "0.5", "amount": "1.10"})
@example(Stripped, {"a": " abc ", "b": " x "})
@example(Numbers, {"a": 1})
@example(Aliased, {"a": 1, "be": "b"})
@example(Turned, {})
@example(OwnInit, {"x": 1})
def test_what_the_schema_refuses_the_type_refuses_too(kind: Any, payload: dict[str, Any]) -> None:
    schema = HANDLERS[kind].payload_schema()
    if schema is None:
        return
    try:
        check_schema(schema, payload)
    except InvalidInput as refused:
        if any("unknown; " in one.expected or "Extra inputs" in one.expected for one in (refused, *refused.others)):
            return  # the type ignores such a field, unless it says otherwise
        row = decode(encode({"taskId": "t", "payload": payload}))
        task = a_task(row["payload"])
        with pytest.raises(PermanentError):
            HANDLERS[kind].run(task, a_context(task))


@pytest.mark.parametrize(
    ("kind", "payload", "message"),
    [
        (Node, {}, "payload.name: 'nothing' is not accepted; it is missing"),
        (Node, {"name": 5}, "payload.name: 'a number' is not accepted; Input should be a valid string"),
        (Node, {"name": "a", "next": {"name": None}}, "payload.next.name: 'nothing' is not accepted; "),
        (Node, {"name": "a", "others": [{"name": "b"}, {}]}, "payload.others.1.name: 'nothing' is not accepted; "),
        (Counted, {"start": "many"}, "payload.start: 'a text of 4 characters' is not accepted; "),
        (Strict, {"a": 1, "hidden": "x"}, "payload.hidden: 'a text of 1 characters' is not accepted; "),
        (Closed, {"a": {"x": []}}, "payload.a.x: 'a list' is not accepted; Input should be a valid integer"),
        (OneAlias, {"a": 1}, "payload.aye: "),
        (Holder[Child | None], {"held": {}}, "payload.held.x: "),
        (Pets, {"pet": {"kind": "cow"}}, "payload.pet.kind: 'a text of 3 characters' is not accepted; "),
        (Partly, {"b": "b"}, "payload.a: "),
        (Optional, {"a": 10}, "payload.a: 'a number' is not accepted; Input should be less than 10"),
        (Optional, {"a": 3}, "payload.a: 'a number' is not accepted; Input should be a multiple of 2"),
        (Stripped, {"a": ""}, "payload.a: 'a text of 0 characters' is not accepted; "),
        (Wide, {"at": "tomorrow"}, "payload.at: 'a text of 8 characters' is not accepted; "),
        (Wide, {"colour": "green"}, "payload.colour: 'a text of 5 characters' is not accepted; Input should be 'red'"),
        (Wide, {"tags": ["a", "b", "c"]}, "payload.tags: 'a list' is not accepted; "),
        (Wide, {"code": "7"}, "payload.code: 'a text of 1 characters' is not accepted; String should match pattern"),
        (Wide, {"amount": []}, "payload.amount: 'a list' is not accepted; "),
        (dict[str, int], {"a": "b"}, "payload.a: "),
        (
            Node,
            {"name": "a", "nxt": None},
            "payload.nxt: 'nothing' is not accepted; unknown; expected any of name, next, o",
        ),
        (Partly, {"a": 1, "c": 2}, "payload.c: 'a number' is not accepted; unknown; expected any of a, b"),
        (
            Ignoring,
            {"a": {"x": 1, "y": 2}, "c": 3},
            "payload.a.y: 'a number' is not accepted; Extra inputs are not perm",
        ),
    ],
)
def test_a_payload_that_does_not_fit_is_refused_without_its_value(kind: Any, payload: Any, message: str) -> None:
    schema = handler_of(kind).payload_schema()
    assert schema is not None
    with pytest.raises(InvalidInput) as refused:
        check_schema(schema, payload)
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize("kind", KINDS)
def test_a_types_schema_is_valid_and_the_same_each_time(kind: Any) -> None:
    """It is written only after a change, so it must be the same in each process."""
    schema = handler_of(kind).payload_schema()
    assert schema == schema_of(TypeAdapter(kind))
    assert str(id(kind)) not in (schema or "")
    Draft202012Validator(json.loads(schema or "{}"))


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        (Ignoring, {"a": {"x": 1}, "c": 3}),
        (Allowing, {"a": 1, "c": 3}),
        (IgnoringDict, {"c": 3}),
        (Aliased, {"aye": 1, "bee": "b", "b": "b"}),
        (Counted, {"start": 1, "total": 1}),
        (Computing, {"a": 1, "twice": 2}),
    ],
)
def test_fields_that_the_type_does_not_name_are_taken_where_it_says_so_or_makes_them(kind: Any, payload: Any) -> None:
    check_schema(handler_of(kind).payload_schema() or "{}", payload)


@pytest.mark.parametrize(("kind", "payload"), [(Node, {"name": "a", "old": 1}), (Partly, {"a": 1, "c": 2})])
def test_a_task_runs_whose_payload_has_a_field_that_the_type_has_lost(kind: Any, payload: Any) -> None:
    task = a_task(payload)
    assert handler_of(kind).run(task, a_context(task)) is None


def test_other_validators_match_the_schema() -> None:
    validator = Draft202012Validator(json.loads(handler_of(Node).payload_schema() or ""))
    nodes = [{"name": "a", "others": others} for others in ([], [{"name": "b"}], [{}])]
    assert [validator.is_valid(node) for node in nodes] == [True, True, False]


@pytest.mark.parametrize("kind", [Any, dict, dict[str, Any], Turned])
def test_a_type_that_accepts_everything_has_no_schema(kind: Any) -> None:
    assert handler_of(kind).payload_schema() is None


@pytest.mark.parametrize(
    "schema",
    ["", "no JSON", "[]", "3", '{"type":"string","pattern":"("}', '{"$ref":"#/$defs/nowhere"}', '{"anyOf":[7]}',
     '{"type":"object","properties":[]}', '{"type":"integer","minimum":"x"}', '{"type":"later"}'],
)  # fmt: skip
def test_a_malformed_schema_refuses_nothing(schema: str) -> None:
    check_schema(schema, {"a": 1})


def test_alternatives_within_alternatives_take_no_longer_than_they_may() -> None:
    """Each level doubles the work: the deep payload would take half an hour. The handler judges it instead."""

    def chain(length: int, end: object) -> object:
        return reduce(lambda value, _: {"next": value}, range(length), end)

    text = json.dumps({
        "type": "object",
        "properties": {"first": {"$ref": "#/$defs/link"}},
        "$defs": {"link": {"anyOf": [
            {"type": "object", "properties": {"next": {"$ref": "#/$defs/link"}, name: {"type": "integer"}}}
            for name in ("a", "b")
        ] + [{"type": "integer"}]}},
    })  # fmt: skip
    with pytest.raises(InvalidInput):
        check_schema(text, {"first": chain(3, "x")})
    check_schema(text, {"first": chain(28, "x")})


def test_schemas_that_are_too_large_unknown_or_not_allowed_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    class Strange:
        """A type that pydantic cannot validate: the tasks fail."""

    registry = Registry()
    sizes = dict.fromkeys((f"part-{n}" for n in range(MAX_SCHEMAS_BYTES // MAX_SCHEMA_BYTES)), MAX_SCHEMA_BYTES)
    for name, size in {"large": MAX_SCHEMA_BYTES + 1, **sizes, "zz-none-is-left": 1, "not-allowed": 1}.items():
        registry.add(name, handler_of(dict), schema=partial("x".__mul__, size))
    registry.add("strange", handler_of(Strange), schema=handler_of(Strange).payload_schema)
    registry.restrict_to(set(registry.names()) - {"not-allowed"})
    with caplog.at_level(logging.WARNING, "dynatick.actions"):
        found = registry.payload_schemas()
        assert registry.payload_schemas() is found
    assert sorted(found) == sorted(sizes)
    logged = {vars(record)["handler"]: vars(record) for record in caplog.records}
    assert list(logged) == ["large", "strange", "zz-none-is-left"]
    assert {one["action"] for one in logged.values()} == {"payload_schema_left_out"}
    assert "Strange" in logged["strange"]["problem"]

"""The two languages of conditions and updates, expressions and PartiQL, made into functions of an item.

Both share one grammar here: ``#name`` and ``:value`` are the expressions', ``?`` and ``IS MISSING`` PartiQL's.
Attributes are top-level ones. Whatever Dynatick does not write is refused, never guessed.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from typing import Any, TypeVar

from dynatick_stack.counting.rules import Item, Refused, Value

T = TypeVar("T")
Values = Any  # by which values are looked up: a list (PartiQL's ?) or a dict (:value)
Operand = Callable[[Item, Values], "Value | None"]
Condition = Callable[[Item, Values], bool]

_TOKEN = re.compile(
    r"""\s*(?:(?P<text>'(?:[^']|'')*')|(?P<quoted>"(?:[^"]|"")*")|(?P<number>\d+)|(?P<value>:\w+|\?)"""
    r"""|(?P<name>#\w+)|(?P<word>[A-Za-z_]\w*)|(?P<sign><=|>=|<>|[=<>(){},+*:]))"""
)
_ORDER: Mapping[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True, slots=True)
class Update:
    """What a write changes."""

    set: tuple[tuple[str, Operand], ...] = ()
    remove: tuple[str, ...] = ()

    def apply(self, item: Item, values: Values) -> dict[str, Value]:
        """The item as it is afterwards. All values are taken from the item as it was."""
        changed = dict(item)
        for name, operand in self.set:
            value = operand(item, values)
            if value is None:
                raise Refused("The provided expression refers to an attribute that does not exist in the item")
            changed[name] = value
        for name in self.remove:
            changed.pop(name, None)
        return changed


@dataclass(frozen=True, slots=True)
class Statement:
    """An INSERT of ``values``, or an UPDATE."""

    table: str
    values: Mapping[str, Operand] | None = None
    update: Update = Update()
    where: Condition = lambda item, values: True
    equal: Mapping[str, Operand] = field(default_factory=dict)  # what the condition says must be equal
    returning: bool = False  # all, as it is afterwards


@lru_cache(maxsize=4096)
def parse_condition(text: str, names: tuple[tuple[str, str], ...]) -> tuple[Condition, Mapping[str, Operand]]:
    """A condition expression, and the equalities that it demands. ``names``: what stands for #names."""
    parser = _Parser(text, dict(names))
    return parser.whole(parser.condition), parser.equal


@lru_cache(maxsize=4096)
def parse_update(text: str, names: tuple[tuple[str, str], ...]) -> Update:
    """An update expression."""
    parser = _Parser(text, dict(names))
    return parser.whole(parser.update)


@lru_cache(maxsize=4096)
def parse_statement(text: str) -> Statement:
    """A PartiQL statement, as many as are alike parsed once."""
    parser = _Parser(text, {})
    return parser.whole(parser.statement)


class _Parser:
    def __init__(self, text: str, names: Mapping[str, str]) -> None:
        self.names = names
        self.tokens: list[tuple[str, str]] = []
        position, text = 0, text.strip()
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                raise Refused(f"cannot read {text[position : position + 20]!r}")
            self.tokens.append((str(match.lastgroup), match[str(match.lastgroup)]))
            position = match.end()
        self.at = 0
        self.marks = 0  # of ? so far
        self.equal: dict[str, Operand] = {}

    def whole(self, part: Callable[[], T]) -> T:
        found = part()
        if self.at < len(self.tokens):
            raise Refused(f"cannot use {self.tokens[self.at][1]!r} here")
        return found

    # -- tokens ----------------------------------------------------------------------------------------------------

    def peek(self, ahead: int = 0) -> str:
        where = self.at + ahead
        return self.tokens[where][1].upper() if where < len(self.tokens) else ""

    def take(self, *expected: str) -> bool:
        if all(self.peek(n) == word for n, word in enumerate(expected)):
            self.at += len(expected)
            return True
        return False

    def need(self, *expected: str) -> None:
        if not self.take(*expected):
            raise Refused(f"expected {' '.join(expected)}, found {self.peek() or 'the end'}")

    def next(self) -> tuple[str, str]:
        if self.at >= len(self.tokens):
            raise Refused("the statement ends too early")
        self.at += 1
        return self.tokens[self.at - 1]

    def attribute(self) -> str:
        kind, text = self.next()
        match kind:
            case "word":
                return text
            case "quoted":
                return text[1:-1].replace('""', '"')
            case "name" if text in self.names:
                return self.names[text]
        raise Refused(f"expected an attribute, found {text!r}")

    # -- values ----------------------------------------------------------------------------------------------------

    def operand(self) -> Operand:
        kind, text = self.next()
        match kind:
            case "value":
                key: int | str = text
                if text == "?":
                    key, self.marks = self.marks, self.marks + 1
                return _given(key)
            case "number":
                return lambda item, values: {"N": text}
        self.at -= 1
        name = self.attribute()
        return lambda item, values: item.get(name)

    def value(self) -> Operand:
        left = self.operand()
        if not self.take("+"):
            return left
        right = self.operand()
        return lambda item, values: _sum(left(item, values), right(item, values))

    # -- conditions ------------------------------------------------------------------------------------------------

    def condition(self) -> Condition:
        demanded = dict(self.equal)
        parts = [self.conjunction()]
        while self.take("OR"):
            parts.append(self.conjunction())
            self.equal = demanded  # of alternatives none is demanded
        return parts[0] if len(parts) == 1 else lambda item, values: any(part(item, values) for part in parts)

    def conjunction(self) -> Condition:
        parts = [self.comparison()]
        while self.take("AND"):
            parts.append(self.comparison())
        return parts[0] if len(parts) == 1 else lambda item, values: all(part(item, values) for part in parts)

    def comparison(self) -> Condition:
        if self.take("("):
            inner = self.condition()
            self.need(")")
            return inner
        if self.peek(1) == "(":
            return self.test(self.next()[1].lower())
        start = self.at
        left = self.operand()
        if self.take("IS", "MISSING"):
            return lambda item, values: left(item, values) is None
        path = self.tokens[start]
        sign, right = self.next()[1], self.operand()
        if sign == "=":
            if path[0] in ("word", "quoted", "name"):
                self.equal[self._attribute_at(start)] = right
            return lambda item, values: _equal(left(item, values), right(item, values))
        if sign == "<>":
            return lambda item, values: not _equal(left(item, values), right(item, values))
        if sign not in _ORDER:
            raise Refused(f"cannot compare by {sign}")
        return lambda item, values: _ordered(_ORDER[sign], left(item, values), right(item, values))

    def _attribute_at(self, start: int) -> str:
        here, self.at = self.at, start
        name = self.attribute()
        self.at = here
        return name

    def test(self, name: str) -> Condition:
        self.need("(")
        path = self.attribute()
        other: Operand = self.operand() if self.take(",") else lambda item, values: None
        self.need(")")
        match name:
            case "attribute_exists":
                return lambda item, _: path in item
            case "attribute_not_exists":
                return lambda item, _: path not in item
            case "attribute_type":
                return lambda item, values: (other(item, values) or {})["S"] in item.get(path, {})
            case "begins_with":
                return lambda item, values: item.get(path, {}).get("S", "").startswith((other(item, values) or {})["S"])
        raise Refused(f"there is no function {name}")

    # -- updates and statements ------------------------------------------------------------------------------------

    def update(self) -> Update:
        sets: list[tuple[str, Operand]] = []
        removes: list[str] = []
        while self.peek() in ("SET", "REMOVE"):
            clause = self.next()[1].upper()
            while True:
                name = self.attribute()
                if clause == "SET":
                    self.need("=")
                    sets.append((name, self.value()))
                else:
                    removes.append(name)
                if not self.take(","):
                    break
        if not (sets or removes):
            raise Refused("an update must change something")
        return Update(tuple(sets), tuple(removes))

    def statement(self) -> Statement:
        if self.take("INSERT", "INTO"):
            return self.insertion()
        self.need("UPDATE")
        table, update = self.attribute(), self.update()
        self.need("WHERE")
        where = self.condition()
        returning = self.take("RETURNING", "ALL", "NEW", "*")
        return Statement(table, update=update, where=where, equal=self.equal, returning=returning)

    def insertion(self) -> Statement:
        table = self.attribute()
        self.need("VALUE", "{")
        values: dict[str, Operand] = {}
        while not self.take("}"):
            kind, text = self.next()
            if kind != "text":
                raise Refused(f"expected 'name', found {text!r}")
            self.need(":")
            values[text[1:-1].replace("''", "'")] = self.operand()
            self.take(",")
        return Statement(table, values)


def _given(key: int | str) -> Operand:
    def given(_: Item, values: Values) -> Value:
        try:
            found: Value = values[key]
        except LookupError:
            raise Refused(f"there is no value for {key}") from None
        return found

    return given


def _equal(one: Value | None, other: Value | None) -> bool:
    """Whether two values are the same; numbers by what they mean, sets in whatever order."""
    if one is None or other is None:
        return False
    return one == other or _meaning(one) == _meaning(other)


def _meaning(value: Value) -> object:
    ((kind, content),) = value.items()
    match kind:
        case "N":
            return kind, Decimal(content)
        case "NS":
            return kind, frozenset(map(Decimal, content))
        case "SS" | "BS":
            return kind, frozenset(content)
        case "L":
            return kind, [_meaning(part) for part in content]
        case "M":
            return kind, {name: _meaning(part) for name, part in content.items()}
    return kind, content


def _ordered(compare: Callable[[Any, Any], bool], one: Value | None, other: Value | None) -> bool:
    if one is None or other is None or one.keys() != other.keys():
        return False
    ((kind, a),), ((_, b),) = one.items(), other.items()
    return compare(Decimal(a), Decimal(b)) if kind == "N" else compare(a.encode(), b.encode())


def _sum(left: Value | None, right: Value | None) -> Value:
    if left is None or right is None or "N" not in left or "N" not in right:
        raise Refused("an operand of the sum is no number, or not there")
    return {"N": format((Decimal(left["N"]) + Decimal(right["N"])).normalize(), "f")}

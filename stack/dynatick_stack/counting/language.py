"""The two languages of conditions and updates, expressions and PartiQL, made into functions of an item.

Both share one grammar here: ``#name`` and ``:value`` are the expressions', ``?``, ``'text'`` and ``IS MISSING``
PartiQL's. Attributes are top-level ones. Whatever else there is, is refused, never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from typing import Any

from dynatick_stack.counting.errors import Refused
from dynatick_stack.counting.rules import Item, Value, value_bytes

Values = Any  # by which values are looked up: a list (PartiQL's ?) or a dict (:value)
Operand = Callable[[Item, Values], "Value | None"]
Condition = Callable[[Item, Values], bool]

_TOKEN = re.compile(
    r"""\s*(?:(?P<text>'(?:[^']|'')*')|(?P<quoted>"(?:[^"]|"")*")|(?P<number>\d+(?:\.\d+)?)|(?P<value>:\w+|\?)"""
    r"""|(?P<name>#\w+)|(?P<word>[A-Za-z_]\w*)|(?P<sign><=|>=|<>|[=<>(){}\[\],+\-*.:]))"""
)
_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


@dataclass(frozen=True, slots=True)
class Update:
    """What a write changes."""

    set: tuple[tuple[str, Operand], ...] = ()
    add: tuple[tuple[str, Operand], ...] = ()
    remove: tuple[str, ...] = ()

    def apply(self, item: Item, values: Values) -> dict[str, Value]:
        """The item as it is afterwards. All values are taken from the item as it was."""
        changed = dict(item)
        for name, operand in self.set:
            value = operand(item, values)
            if value is None:
                raise Refused("The provided expression refers to an attribute that does not exist in the item")
            changed[name] = value
        for name, operand in self.add:
            changed[name] = _sum(item.get(name, {"N": "0"}), operand(item, values), 1)
        for name in self.remove:
            changed.pop(name, None)
        return changed


@dataclass(frozen=True, slots=True)
class Statement:
    """A PartiQL statement."""

    verb: str  # insert, update, delete, select
    table: str
    index: str | None = None
    names: tuple[str, ...] = ()  # of an INSERT
    values: tuple[Operand, ...] = ()
    update: Update = Update()
    where: Condition | None = None
    equal: Mapping[str, Operand] = field(default_factory=dict)  # what the condition says must be equal
    returning: str | None = None  # as in "all new"


@lru_cache(maxsize=4096)
def parse_condition(text: str, names: tuple[tuple[str, str], ...]) -> tuple[Condition, Mapping[str, Operand]]:
    """A condition expression, and the equalities that it demands. ``names``: what stands for #names."""
    parser = _Parser(text, dict(names))
    condition = parser.condition()
    parser.end()
    return condition, parser.equal


@lru_cache(maxsize=4096)
def parse_update(text: str, names: tuple[tuple[str, str], ...]) -> Update:
    """An update expression."""
    parser = _Parser(text, dict(names))
    update = parser.update()
    parser.end()
    return update


@lru_cache(maxsize=4096)
def parse_statement(text: str) -> Statement:
    """A PartiQL statement, as many as are alike parsed once."""
    parser = _Parser(text, {})
    statement = parser.statement()
    parser.end()
    return statement


def equal(one: Value | None, other: Value | None) -> bool:
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
        case _:
            return kind, content


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
        self.depth = 0  # below an OR or NOT nothing is demanded

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

    def end(self) -> None:
        if self.at < len(self.tokens):
            raise Refused(f"cannot use {self.tokens[self.at][1]!r} here")

    def path(self) -> str:
        kind, text = self.next()
        match kind:
            case "word":
                found = text
            case "quoted":
                found = text[1:-1].replace('""', '"')
            case "name" if text in self.names:
                found = self.names[text]
            case _:
                raise Refused(f"expected an attribute, found {text!r}")
        if self.peek() in (".", "["):
            raise Refused("only top-level attributes are known")
        return found

    # -- values ----------------------------------------------------------------------------------------------------

    def operand(self) -> Operand:
        kind, text = self.next()
        match kind:
            case "value" if text == "?":
                self.marks += 1
                return _marked(self.marks - 1)
            case "value":
                return _named(text)
            case "number":
                return _constant({"N": text})
            case "text":
                return _constant({"S": text[1:-1].replace("''", "'")})
            case "word" if self.peek() == "(":
                return self.function(text.lower())
        self.at -= 1
        return _attribute(self.path())

    def function(self, name: str) -> Operand:
        self.need("(")
        path = self.path()
        match name:
            case "size":
                operand: Operand = lambda item, _: {"N": str(value_bytes(item[path]))} if path in item else None  # noqa: E731
            case "if_not_exists":
                self.need(",")
                other = self.operand()
                operand = lambda item, values: item[path] if path in item else other(item, values)  # noqa: E731
            case _:
                raise Refused(f"there is no function {name}")
        self.need(")")
        return operand

    def value(self) -> Operand:
        left = self.operand()
        if self.peek() in ("+", "-"):
            sign = 1 if self.next()[1] == "+" else -1
            right = self.operand()
            return lambda item, values: _sum(left(item, values), right(item, values), sign)
        return left

    # -- conditions ------------------------------------------------------------------------------------------------

    def condition(self) -> Condition:
        demanded = dict(self.equal)
        parts = [self.conjunction()]
        while self.take("OR"):
            self.equal = demanded
            self.depth += 1
            parts.append(self.conjunction())
            self.depth -= 1
        return parts[0] if len(parts) == 1 else lambda item, values: any(part(item, values) for part in parts)

    def conjunction(self) -> Condition:
        parts = [self.negation()]
        while self.take("AND"):
            parts.append(self.negation())
        return parts[0] if len(parts) == 1 else lambda item, values: all(part(item, values) for part in parts)

    def negation(self) -> Condition:
        if self.take("NOT"):
            self.depth += 1
            part = self.negation()
            self.depth -= 1
            return lambda item, values: not part(item, values)
        if self.take("("):
            inner = self.condition()
            self.need(")")
            return inner
        return self.comparison()

    def comparison(self) -> Condition:
        if self.peek(1) == "(" and self.peek() != "SIZE" and self.tokens[self.at][0] == "word":
            return self.test(self.next()[1].lower())
        start = self.at
        left = self.operand()
        path = None
        if self.tokens[start][0] in ("word", "quoted", "name") and self.at == start + 1:
            path, self.at = self._path_at(start), start + 1
        if self.take("IS"):
            return self.missing(path)
        if self.take("BETWEEN"):
            low = self.operand()
            self.need("AND")
            high = self.operand()
            return _both(_ordered(">=", left, low), _ordered("<=", left, high))
        sign = self.next()[1]
        right = self.operand()
        if sign == "=":
            if path is not None and not self.depth:
                self.equal[path] = right
            return lambda item, values: equal(left(item, values), right(item, values))
        if sign == "<>":
            return lambda item, values: not equal(left(item, values), right(item, values))
        return _ordered(sign, left, right)

    def _path_at(self, start: int) -> str:
        self.at = start
        return self.path()

    def missing(self, path: str | None) -> Condition:
        negated = self.take("NOT")
        kind = self.next()[1].upper()
        if path is None or kind not in ("MISSING", "NULL"):
            raise Refused(f"cannot use IS {kind}")
        if kind == "MISSING":
            return lambda item, _: (path in item) is negated
        return lambda item, _: ("NULL" in item.get(path, {})) is not negated

    def test(self, name: str) -> Condition:
        self.need("(")
        path = self.path()
        other = self.operand() if self.take(",") else _constant({"S": ""})
        self.need(")")
        match name:
            case "attribute_exists":
                return lambda item, _: path in item
            case "attribute_not_exists":
                return lambda item, _: path not in item
            case "attribute_type":
                return lambda item, values: (other(item, values) or {}).get("S") in item.get(path, {})
            case "begins_with":
                return lambda item, values: item.get(path, {}).get("S", "").startswith(_text(other(item, values)))
            case "contains":
                return lambda item, values: _contains(item.get(path, {}), other(item, values))
        raise Refused(f"there is no function {name}")

    # -- updates and statements ------------------------------------------------------------------------------------

    def update(self) -> Update:
        sets: list[tuple[str, Operand]] = []
        adds: list[tuple[str, Operand]] = []
        removes: list[str] = []
        while self.peek() in ("SET", "ADD", "REMOVE"):
            clause = self.next()[1].upper()
            while True:
                path = self.path()
                if clause == "SET":
                    self.need("=")
                    sets.append((path, self.value()))
                elif clause == "ADD":
                    adds.append((path, self.operand()))
                else:
                    removes.append(path)
                if not self.take(","):
                    break
        if not (sets or adds or removes):
            raise Refused("an update must change something")
        return Update(tuple(sets), tuple(adds), tuple(removes))

    def statement(self) -> Statement:
        verb = self.next()[1].lower()
        match verb:
            case "insert":
                self.need("INTO")
                return self.insertion()
            case "update":
                table, update = self.path(), self.update()
                where = self.where()
                return Statement(verb, table, update=update, where=where, equal=self.equal, returning=self.returning())
            case "delete":
                self.need("FROM")
                table, where = self.path(), self.where()
                return Statement(verb, table, where=where, equal=self.equal, returning=self.returning())
            case "select":
                self.need("*")
                self.need("FROM")
                table, index = self.path_or_index()
                return Statement(verb, table, index, where=self.where(), equal=self.equal)
        raise Refused(f"there is no statement {verb}")

    def path_or_index(self) -> tuple[str, str | None]:
        name = self.next()[1].strip('"')
        return name, self.next()[1].strip('"') if self.take(".") else None

    def insertion(self) -> Statement:
        table = self.path()
        self.need("VALUE")
        self.need("{")
        names: list[str] = []
        values: list[Operand] = []
        while not self.take("}"):
            kind, text = self.next()
            if kind != "text":
                raise Refused(f"expected 'name', found {text!r}")
            names.append(text[1:-1].replace("''", "'"))
            self.need(":")
            values.append(self.operand())
            self.take(",")
        return Statement("insert", table, names=tuple(names), values=tuple(values))

    def where(self) -> Condition:
        self.need("WHERE")
        return self.condition()

    def returning(self) -> str | None:
        if not self.take("RETURNING"):
            return None
        which = f"{self.next()[1]} {self.next()[1]}".lower()
        self.need("*")
        return which


def _marked(number: int) -> Operand:
    def mark(_: Item, values: Values) -> Value:
        try:
            found: Value = values[number]
        except IndexError:
            raise Refused("there are fewer Parameters than question marks") from None
        return found

    return mark


def _named(name: str) -> Operand:
    def named(_: Item, values: Values) -> Value:
        if name not in values:
            raise Refused(f"ExpressionAttributeValues has no {name}")
        found: Value = values[name]
        return found

    return named


def _constant(value: Value) -> Operand:
    return lambda item, values: value


def _attribute(name: str) -> Operand:
    return lambda item, values: item.get(name)


def _both(one: Condition, other: Condition) -> Condition:
    return lambda item, values: one(item, values) and other(item, values)


def _ordered(sign: str, left: Operand, right: Operand) -> Condition:
    if sign not in _COMPARE:
        raise Refused(f"cannot compare by {sign}")
    compare = _COMPARE[sign]

    def ordered(item: Item, values: Values) -> bool:
        one, other = left(item, values), right(item, values)
        if one is None or other is None or one.keys() != other.keys():
            return False
        ((kind, a),), ((_, b),) = one.items(), other.items()
        return compare(Decimal(a), Decimal(b)) if kind == "N" else compare(a.encode(), b.encode())

    return ordered


def _sum(left: Value | None, right: Value | None, sign: int) -> Value:
    if left is None or right is None or "N" not in left or "N" not in right:
        raise Refused("an operand of the sum is no number, or not there")
    return {"N": format((Decimal(left["N"]) + sign * Decimal(right["N"])).normalize(), "f")}


def _text(value: Value | None) -> str:
    return str((value or {}).get("S", ""))


def _contains(value: Value, part: Value | None) -> bool:
    if part is None:
        return False
    ((kind, content),) = part.items()
    if "S" in value:
        return kind == "S" and content in value["S"]
    return content in value.get(f"{kind}S", []) or part in value.get("L", [])

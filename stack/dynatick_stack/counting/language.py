"""The two languages of conditions and updates, expressions and PartiQL, made into functions of an item.

Both share one grammar here: ``#name`` and ``:value`` are the expressions', ``?`` and ``IS MISSING`` PartiQL's.
Attributes are top-level ones. What Dynatick does not write is refused, never guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from itertools import count
from typing import Any

from lark import Lark, Token, Transformer, v_args
from lark.exceptions import UnexpectedInput, VisitError

from dynatick_stack.counting.rules import Item, Refused, Value

Values = Any  # by which values are looked up: a list (PartiQL's ?) or a dict (:value)
Operand = Callable[[Item, Values], "Value | None"]

_GRAMMAR = r"""
?condition: conjunction | conjunction ("OR" conjunction)+ -> any_of
?conjunction: test | test ("AND" test)+ -> all_of
?test: "(" condition ")"
    | "NOT" test -> negated
    | attribute "=" operand -> equal
    | attribute ">=" operand -> at_least
    | attribute "BETWEEN" operand "AND" operand -> between
    | attribute "IS" "MISSING" -> missing
    | "attribute_exists" "(" attribute ")" -> exists
    | "attribute_not_exists" "(" attribute ")" -> missing
    | "attribute_type" "(" attribute "," operand ")" -> of_type
    | "begins_with" "(" attribute "," operand ")" -> begins

update: ("SET" assignment ("," assignment)*)? remove*
assignment: attribute "=" (operand | added)
added: operand "+" operand
remove: "REMOVE" attribute ("," attribute)*

?statement: "INSERT" "INTO" attribute "VALUE" "{" pair ("," pair)* "}" -> insertion
    | "UPDATE" attribute update "WHERE" condition [RETURNING] -> changing
pair: TEXT ":" operand
RETURNING: "RETURNING ALL NEW *"

?operand: MARK -> mark | VALUE -> value | NUMBER -> number | attribute -> current
attribute: WORD -> word | QUOTED -> quoted | NAME -> name
MARK: "?"
VALUE: /:\w+/
NUMBER: /\d+/
NAME: /#\w+/
WORD: /[A-Za-z_]\w*/
QUOTED: /"([^"]|"")*"/
TEXT: /'([^']|'')*'/
%ignore /\s+/
"""
_PARSER = Lark(_GRAMMAR, parser="lalr", start=["condition", "update", "statement"])


@dataclass(frozen=True, slots=True)
class Condition:
    """``equal``: what it demands to be equal, of all the attributes."""

    holds: Callable[[Item, Values], bool]
    equal: Mapping[str, Operand] = field(default_factory=dict)


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
    where: Condition = Condition(lambda item, values: True)
    returning: bool = False  # all, as it is afterwards


@lru_cache(maxsize=4096)
def parse_condition(text: str, names: tuple[tuple[str, str], ...]) -> Condition:
    """A condition expression. ``names``: what stands for #names."""
    found: Condition = _parsed(text, "condition", names)
    return found


@lru_cache(maxsize=4096)
def parse_update(text: str, names: tuple[tuple[str, str], ...]) -> Update:
    """An update expression."""
    found: Update = _parsed(text, "update", names)
    return found


@lru_cache(maxsize=4096)
def parse_statement(text: str) -> Statement:
    """A PartiQL statement, as many as are alike parsed once."""
    found: Statement = _parsed(text, "statement", ())
    return found


def _parsed(text: str, start: str, names: tuple[tuple[str, str], ...]) -> Any:
    try:
        return _Meaning(dict(names)).transform(_PARSER.parse(text, start))
    except (UnexpectedInput, VisitError) as error:
        raise Refused(f"cannot read {text!r}: {error}") from None


@v_args(inline=True)
class _Meaning(Transformer[Token, Any]):
    """Makes functions of the grammar's rules, from the innermost outwards and from left to right."""

    def __init__(self, names: Mapping[str, str]) -> None:
        super().__init__()
        self.names = names
        self.marks = count()  # of ? so far

    # -- attributes and values

    def word(self, token: str) -> str:
        return str(token)

    def quoted(self, token: str) -> str:
        return token[1:-1].replace('""', '"')

    def name(self, token: str) -> str:
        return self.names[token]

    def mark(self, _: str) -> Operand:
        return _given(next(self.marks))

    def value(self, token: str) -> Operand:
        return _given(str(token))

    def number(self, token: str) -> Operand:
        return lambda item, values: {"N": str(token)}

    def current(self, name: str) -> Operand:
        return lambda item, values: item.get(name)

    def added(self, left: Operand, right: Operand) -> Operand:
        return lambda item, values: {"N": str(_number(left(item, values)) + _number(right(item, values)))}

    # -- conditions

    def any_of(self, *parts: Condition) -> Condition:
        return Condition(lambda item, values: any(part.holds(item, values) for part in parts))

    def all_of(self, *parts: Condition) -> Condition:
        equal = {name: operand for part in parts for name, operand in part.equal.items()}
        return Condition(lambda item, values: all(part.holds(item, values) for part in parts), equal)

    def negated(self, part: Condition) -> Condition:
        return Condition(lambda item, values: not part.holds(item, values))

    def equal(self, name: str, right: Operand) -> Condition:
        return Condition(lambda item, values: _equal(item.get(name), right(item, values)), {name: right})

    def at_least(self, name: str, right: Operand) -> Condition:
        return Condition(
            lambda item, values: "N" in item.get(name, ()) and _number(item[name]) >= _number(right(item, values))
        )

    def between(self, name: str, first: Operand, last: Operand) -> Condition:
        return Condition(
            lambda item, values: _text(first(item, values)) <= _text(item.get(name)) <= _text(last(item, values))
        )

    def exists(self, name: str) -> Condition:
        return Condition(lambda item, values: name in item)

    def missing(self, name: str) -> Condition:
        return Condition(lambda item, values: name not in item)

    def of_type(self, name: str, kind: Operand) -> Condition:
        return Condition(lambda item, values: _text(kind(item, values)) in item.get(name, {}))

    def begins(self, name: str, prefix: Operand) -> Condition:
        return Condition(lambda item, values: _text(item.get(name)).startswith(_text(prefix(item, values))))

    # -- updates and statements

    def assignment(self, name: str, operand: Operand) -> tuple[str, Operand]:
        return name, operand

    def remove(self, *names: str) -> list[str]:
        return list(names)

    def update(self, *parts: tuple[str, Operand] | list[str]) -> Update:
        removed = [name for part in parts if isinstance(part, list) for name in part]
        return Update(tuple(part for part in parts if isinstance(part, tuple)), tuple(removed))

    def pair(self, token: str, operand: Operand) -> tuple[str, Operand]:
        return token[1:-1].replace("''", "'"), operand

    def insertion(self, table: str, *pairs: tuple[str, Operand]) -> Statement:
        return Statement(table, dict(pairs))

    def changing(self, table: str, update: Update, where: Condition, returning: str | None) -> Statement:
        return Statement(table, update=update, where=where, returning=returning is not None)


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


def _number(value: Value | None) -> Decimal:
    if value is None or "N" not in value:
        raise Refused("an operand is no number, or not there")
    return Decimal(value["N"])


def _text(value: Value | None) -> str:
    return str((value or {}).get("S", ""))

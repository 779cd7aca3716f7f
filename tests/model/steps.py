"""A run of the machine as a list of its steps, which can be printed, replayed, varied and shrunk."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from itertools import islice
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule
from hypothesis.strategies import SearchStrategy


class ShortRepr:
    """Prints as the call that makes it, without defaults."""

    def __repr__(self) -> str:
        given = [f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if getattr(self, f.name) != f.default]  # type: ignore[arg-type]
        return f"{type(self).__name__}({', '.join(given)})"


class Step:
    """A rule of the machine, with its arguments."""

    def __init__(self, name: str, **given: Any) -> None:
        self.name = name
        self.given: Mapping[str, Any] = given

    def __repr__(self) -> str:
        return f"Step({', '.join([repr(self.name), *(f'{name}={value!r}' for name, value in self.given.items())])})"


@dataclass(frozen=True)
class Counterexample:
    """A sequence that violates the oracle."""

    violation: str  # a part of what the oracle reports
    steps: Sequence[Step]

    def __str__(self) -> str:
        steps = "".join(f"        {one!r},\n" for one in self.steps)
        return f"Counterexample(\n    {self.violation!r},\n    [\n{steps}    ],\n)"


def chosen(kind: type[Any], /, **values: Any) -> SearchStrategy[Any]:
    """Makes one of a kind, with each field as a strategy gives it, or one of some values."""
    return st.builds(kind, **{name: _strategy(value) for name, value in values.items()})


def step(first: bool = False, **values: Any) -> Callable[[Callable[..., None]], Any]:
    """A rule that records its use in ``self.steps``; ``first``: the one with which a run begins."""
    make = initialize if first else rule
    return lambda function: make(**{name: _strategy(value) for name, value in values.items()})(_recorded(function))


def _strategy(values: Any) -> SearchStrategy[Any]:
    return values if isinstance(values, SearchStrategy) else st.sampled_from(values)


def _recorded(function: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(function)
    def recorded(machine: Any, **given: Any) -> None:
        machine.steps.append(Step(function.__name__, **given))
        function(machine, **given)

    return recorded


def replay(machine: type[Any], steps: Sequence[Step]) -> str:
    """Replays the steps on a fresh machine, to its end. Returns the violations, or what the engine raised that nothing
    but a mistake in it raises; nothing if all is well."""
    violations: str = replayed(machine, steps).violations
    return violations


def replayed(machine: type[Any], steps: Sequence[Step]) -> Any:
    """The machine at the end of such a replay, with its ``violations``."""
    made = machine()
    made.violations = ""
    try:
        for one in steps:
            getattr(made, one.name)(**one.given)
            made.no_violation()
    except Exception as error:
        made.violations = violations_of(error)
    try:
        made.teardown()
    except Exception as error:
        made.violations = made.violations or violations_of(error)
    return made


def violations_of(error: Exception) -> str:
    return str(error) if isinstance(error, AssertionError) else f"raised: the engine: {error!r}"


def kind_of(violation: str) -> str:
    """A violation without names and numbers: the first words after the time and the task."""
    words = violation.lstrip("0123456789.: ").split(": ", 1)[-1]
    return " ".join("".join(c if c.isalpha() or c == " " else " " for c in words).split()[:3])


def varied(one: Step, other: Callable[[Any], Any]) -> Step:
    """The step with other values: ``other`` is asked for each, however deep."""

    def within(value: Any) -> Any:
        value = other(value)
        if is_dataclass(value) and not isinstance(value, type):
            return replace(value, **{f.name: within(getattr(value, f.name)) for f in fields(value)})
        return type(value)(within(part) for part in value) if isinstance(value, (list, tuple)) else value

    return Step(one.name, **{name: within(value) for name, value in one.given.items()})


def shrink(steps: Sequence[Step], still: Callable[[Sequence[Step]], bool]) -> Sequence[Step]:
    """Fewer and simpler steps for which ``still`` holds."""
    has_shrunk = True
    while has_shrunk:
        has_shrunk, failed = False, 0
        while (candidate := next(islice(_simpler(steps), failed, None), None)) is not None:
            if still(candidate):
                steps, has_shrunk = candidate, True
            else:
                failed += 1
    return steps


def _simpler(value: Any) -> Iterator[Any]:
    """The value with some parts left out, or with one part that has its default or is simpler."""
    if isinstance(value, Step):
        for name, part in value.given.items():
            yield from (Step(value.name, **{**value.given, name: simpler}) for simpler in _simpler(part))
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            if (part := getattr(value, field.name)) != field.default is not MISSING:
                yield replace(value, **{field.name: field.default})
                yield from (replace(value, **{field.name: simpler}) for simpler in _simpler(part))
    elif isinstance(value, (list, tuple)) and value and not isinstance(value[0], int):
        for size in (8, 4, 2, 1):
            for n in reversed(range(len(value) - size + 1)):
                if fewer := [*value[:n], *value[n + size :]]:
                    yield type(value)(fewer)
        for n, part in enumerate(value):
            yield from (type(value)([*value[:n], simpler, *value[n + 1 :]]) for simpler in _simpler(part))

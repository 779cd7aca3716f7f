"""A run of the machine as a list of its steps, which can be written down, played again and cut down."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from typing import Any

from hypothesis.stateful import initialize, rule


class Brief:
    """Prints as the call that makes it, without what is as usual."""

    def __repr__(self) -> str:
        changed = [f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if getattr(self, f.name) != f.default]  # type: ignore[arg-type]
        return f"{type(self).__name__}({', '.join(changed)})"


class Step:
    """One rule of the machine, with what it was given."""

    def __init__(self, name: str, **given: Any) -> None:
        self.name = name
        self.given: Mapping[str, Any] = given

    def __repr__(self) -> str:
        return f"Step({', '.join([repr(self.name), *(f'{name}={value!r}' for name, value in self.given.items())])})"


def step(**strategies: Any) -> Callable[[Callable[..., None]], Any]:
    """A rule that notes its use in ``self.steps``."""
    return lambda function: rule(**strategies)(_noted(function))


def first_step(**strategies: Any) -> Callable[[Callable[..., None]], Any]:
    """The one with which a run begins."""
    return lambda function: initialize(**strategies)(_noted(function))


def _noted(function: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(function)
    def noted(machine: Any, **given: Any) -> None:
        machine.steps.append(Step(function.__name__, **given))
        function(machine, **given)

    return noted


def play(machine: type[Any], steps: Sequence[Step]) -> str:
    """Plays the steps on a fresh machine, to the end. Returns what it says is wrong, or what the engine raised that
    nothing but a mistake in it raises; nothing if all is well."""
    made = machine()
    said = ""
    try:
        for one in steps:
            getattr(made, one.name)(**one.given)
            made.nothing_is_wrong()
    except Exception as wrong:
        said = words_of(wrong)
    try:
        made.teardown()
    except Exception as wrong:
        said = said or words_of(wrong)
    return said


def words_of(error: Exception) -> str:
    return str(error) if isinstance(error, AssertionError) else f"raised: the engine: {error!r}"


def cut_down(steps: Sequence[Step], still: Callable[[Sequence[Step]], bool]) -> Sequence[Step]:
    """Fewer and simpler steps for which ``still`` holds."""
    again = True
    while again:
        again = False
        for size in (8, 4, 2, 1):
            start = len(steps) - size
            while start >= 0:
                fewer = [*steps[:start], *steps[start + size :]]
                if still(fewer):
                    steps, again = fewer, True
                start -= size
        for n, one in enumerate(steps):
            for simpler in _simpler_steps(one):
                if still(tried := [*steps[:n], simpler, *steps[n + 1 :]]):
                    steps, again = tried, True
                    break
    return steps


def changed(one: Step, other: Callable[[str, Any], Any]) -> Step:
    """The step with other values: ``other`` is asked for each, however deep, with the name that it has."""

    def within(name: str, value: Any) -> Any:
        value = other(name, value)
        if is_dataclass(value) and not isinstance(value, type):
            return replace(value, **{f.name: within(f.name, getattr(value, f.name)) for f in fields(value)})
        return type(value)(within(name, one) for one in value) if isinstance(value, (list, tuple)) else value

    return Step(one.name, **{name: within(name, value) for name, value in one.given.items()})


def _simpler_steps(one: Step) -> Iterator[Step]:
    for name, value in one.given.items():
        if name == "script" and value != ("ok",):
            for n in range(len(value)):
                yield Step(one.name, **{**one.given, name: value[:n] + value[n + 1 :] or ("ok",)})
        for simpler in _simpler(value):
            yield Step(one.name, **{**one.given, name: simpler})


def _simpler(value: Any) -> Iterator[Any]:
    if is_dataclass(value) and not isinstance(value, type):
        usual = {f.name: f.default for f in fields(value)}
        changed = [name for name in usual if getattr(value, name) != usual[name] is not MISSING]
        if changed and MISSING not in usual.values():
            yield type(value)()
        for name in changed:
            yield replace(value, **{name: usual[name]})
        for name in usual:
            for simpler in _simpler(getattr(value, name)):
                yield replace(value, **{name: simpler})
    elif isinstance(value, (list, tuple)) and all(is_dataclass(one) for one in value):
        kind = type(value)
        for n in range(len(value)):
            if len(value) > 1 or kind is tuple:  # a list of ticks is never empty
                yield kind([*value[:n], *value[n + 1 :]])
        for n, one in enumerate(value):
            for simpler in _simpler(one):
                yield kind([*value[:n], simpler, *value[n + 1 :]])


@dataclass(frozen=True)
class Found:
    """A sequence that something was found with."""

    says: str  # a part of what the machine said of it
    steps: Sequence[Step]

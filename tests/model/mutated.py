"""Applies a mutation of ``tests/mutations.py`` to the running code, as that file applies it to a copy."""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from unittest.mock import patch

from tests.model import environment, stream
from tests.mutation import ROOT, TEMPLATE, Mutation
from tests.sandbox.stream import patterns

from dynatick_stack import template


@contextmanager
def mutated(mutation: Mutation) -> Iterator[None]:
    """While this lasts, the rule does not hold."""
    path, text = mutation.applied()
    if path == environment.PATH:
        with patch.object(environment, "APP", compile(text, str(path), "exec")):
            yield
    elif mutation.function == TEMPLATE:
        with patch.object(stream, "FILTER", _filter_of(text)):
            yield
    else:
        with _functions_of(path, text):
            yield


def _filter_of(text: str) -> list[dict[str, object]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "template.yaml")
        path.write_text(text, encoding="utf-8")
        changed = template.load(path)
    with patch.object(template, "load", lambda: changed):
        return patterns()


@contextmanager
def _functions_of(path: Path, text: str) -> Iterator[None]:
    """Gives the functions of a module the code that they would have if this were its text: code that has imported them
    runs it too."""
    module = importlib.import_module(".".join(path.relative_to(ROOT / "shared").with_suffix("").parts))
    codes = dict(_codes(compile(text, str(path), "exec", dont_inherit=True)))
    originals = [(function, function.__code__) for function in _functions(module)]
    for function, _ in originals:
        function.__code__ = codes[function.__qualname__]
    try:
        yield
    finally:
        for function, code in originals:
            function.__code__ = code


def _codes(of: CodeType) -> Iterator[tuple[str, CodeType]]:
    """The code of all functions within, by qualified name."""
    for one in of.co_consts:
        if isinstance(one, CodeType):
            yield one.co_qualname, one
            yield from _codes(one)


def _functions(module: ModuleType) -> Iterator[FunctionType]:
    """Yields the functions that the module's text defines at its top level and in its classes."""
    classes = [v for v in vars(module).values() if isinstance(v, type) and v.__module__ == module.__name__]
    for value in [value for place in (module, *classes) for value in vars(place).values()]:
        if isinstance(value, (staticmethod, classmethod)):
            value = value.__func__
        elif isinstance(value, property):
            value = value.fget
        if isinstance(value, FunctionType) and value.__code__.co_filename == module.__file__:
            yield value

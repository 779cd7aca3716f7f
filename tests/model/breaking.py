"""Takes a rule of the protocol out of the running code, as ``tests/mutations.py`` takes it out of a copy."""

from __future__ import annotations

import dis
import importlib
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from unittest.mock import patch

from tests.model import stream
from tests.mutations import MUTATIONS, ROOT, Mutation
from tests.sandbox.stream import patterns

from dynatick_stack import template

__all__ = ["MUTATIONS", "Mutation", "broken"]


@contextmanager
def broken(mutation: Mutation) -> Iterator[None]:
    """While this lasts, the rule does not hold."""
    path = ROOT / mutation.file
    text = path.read_text(encoding="utf-8")
    assert text.count(mutation.old) == 1, f"{mutation.what}: its text is not in {mutation.file}, or not only once"
    changed = text.replace(mutation.old, mutation.new)
    with _template_as(changed) if path == template.TEMPLATE else _module_as(path, changed):
        yield


@contextmanager
def _template_as(text: str) -> Iterator[None]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "template.yaml")
        path.write_text(text, encoding="utf-8")
        changed = template.load(path)
    with patch.object(template, "load", lambda: changed):
        shown = patterns()
    with patch.object(stream, "FILTER", shown):
        yield


@contextmanager
def _module_as(path: Path, text: str) -> Iterator[None]:
    """Gives the functions of a module the code that they would have if this were its text: code that has imported them
    runs it too."""
    name = ".".join(path.relative_to(ROOT / "shared").with_suffix("").parts)
    module = importlib.import_module(name)
    wanted = _codes(compile(text, str(path), "exec", dont_inherit=True))
    put_back = []
    for qualified, function in _functions(module).items():
        code = wanted[qualified]
        if _differ(function.__code__, code):
            put_back.append((function, function.__code__))
            function.__code__ = code
    assert put_back, f"this changes no function of {name}"
    try:
        yield
    finally:
        for function, code in put_back:
            function.__code__ = code


def _codes(of: CodeType) -> Mapping[str, CodeType]:
    """All functions' code within, by qualified name."""
    found = {}
    for one in of.co_consts:
        if isinstance(one, CodeType):
            found[one.co_qualname] = one
            found.update(_codes(one))
    return found


def _functions(module: ModuleType) -> Mapping[str, FunctionType]:
    """Those that the module's text defines at its top level and in its classes."""
    found = {}
    places = [module, *(v for v in vars(module).values() if isinstance(v, type) and v.__module__ == module.__name__)]
    for place in places:
        for value in vars(place).values():
            if isinstance(value, (staticmethod, classmethod)):
                value = value.__func__
            elif isinstance(value, property):
                value = value.fget
            if isinstance(value, FunctionType) and value.__code__.co_filename == module.__file__:
                found[value.__qualname__] = value
    return found


def _differ(one: CodeType, other: CodeType) -> bool:
    """Whether they do something else, wherever they stand in the file."""
    return _shape(one) != _shape(other)


def _shape(code: CodeType) -> object:
    consts = tuple(_shape(c) if isinstance(c, CodeType) else c for c in code.co_consts)
    return [(i.opname, i.arg) for i in dis.get_instructions(code)], code.co_names, consts, code.co_varnames

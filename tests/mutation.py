"""Takes a rule or a guard out of a function, wherever the function is by now.

A function is found by its qualified name, and changed by its syntax tree: moving it to another module, or formatting
it anew, changes nothing here. What can no longer be taken out, or would be taken out without effect, is an error.
"""

from __future__ import annotations

import ast
import builtins
import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
SEARCHED = ("shared/dynatick", "functions")
TEMPLATE = "template.yaml"

Function = ast.FunctionDef | ast.AsyncFunctionDef


class CannotMutate(Exception):
    """The function, or what is to be changed in it, is not there, or not only once; or the change has no effect."""


@dataclass(frozen=True)
class Mutation:
    """A rule, or a guard for it, taken out.

    ``function``: its qualified name, as in ``Window.progress``, after the folder of its module and a colon where others
    have that name: ``engine:close``. ``old``: an expression or statement in it, once; "": all that it does. In it,
    ``f(...)`` is any call of ``f``. ``new``: what is there instead; "": nothing. For ``template.yaml`` they are texts.
    """

    rule: int
    what: str  # happens instead
    function: str
    old: str
    new: str
    tests: str  # files, or folders, of which a test fails
    unreachable: str = ""  # why no sequence of tests/model shows it

    def applied(self, root: Path = ROOT) -> tuple[Path, str]:
        """The file that it changes, and its text then. Raises CannotMutate."""
        if self.function == TEMPLATE:
            path = root / TEMPLATE
            text = path.read_text(encoding="utf-8")
            if text.count(self.old) != 1 or self.old == self.new:
                raise CannotMutate(f"{self.what}: its text is not in {TEMPLATE}, or not only once")
            return path, text.replace(self.old, self.new)
        path, function = _found(self.function, root)
        text = path.read_text(encoding="utf-8")
        changed = self._changed(function)
        _check_names(changed, function, _parsed(text), root)
        return path, _spliced(text, function, changed)

    def _changed(self, function: Function) -> Function:
        changed = copy.deepcopy(function)
        old, new = ast.parse(self.old).body, ast.parse(self.new).body or [ast.Pass()]
        if not old:
            changed.body = new
        else:
            times = _count(function, old)
            if times != 1:
                raise CannotMutate(f"{self.what}: {self.old!r} is {times} times in {self.function}")
            changed = _Change(old, new).visit(changed)
        if ast.dump(changed) == ast.dump(function):
            raise CannotMutate(f"{self.what}: it changes nothing in {self.function}")
        return ast.fix_missing_locations(changed)


def _count(function: Function, old: list[ast.stmt]) -> int:
    """How many times an expression, or else a sequence of statements, is in a function."""
    if len(old) == 1 and isinstance(old[0], ast.Expr):
        return sum(_equals(node, old[0].value) for node in ast.walk(function))
    bodies = [body for node in ast.walk(function) for _, body in ast.iter_fields(node) if isinstance(body, list)]
    return sum(_equals(body[n : n + len(old)], old) for body in bodies for n in range(len(body)))


class _Change(ast.NodeTransformer):
    """Replaces the statements, or else the expression, that equal ``old``: they are there once."""

    def __init__(self, old: list[ast.stmt], new: list[ast.stmt]) -> None:
        self._old, self._new = old, new

    def generic_visit(self, node: ast.AST) -> ast.AST:
        for _, body in ast.iter_fields(node):
            for n in range(len(body) if isinstance(body, list) else 0):
                if _equals(body[n : n + len(self._old)], self._old):
                    body[n : n + len(self._old)] = self._new
                    return node
        return super().generic_visit(node)

    def visit(self, node: ast.AST) -> ast.AST:
        if len(self._old) != 1 or not isinstance(self._old[0], ast.Expr) or not _equals(node, self._old[0].value):
            return super().visit(node)
        if len(self._new) != 1 or not isinstance(self._new[0], ast.Expr):
            raise CannotMutate(f"{ast.unparse(node)} is a part of a statement: only an expression can replace it")
        return self._new[0].value


def _equals(node: object, pattern: object) -> bool:
    """Whether a part of a syntax tree is this pattern, in which ``f(...)`` is any call of ``f``."""
    if isinstance(pattern, list):
        return isinstance(node, list) and len(node) == len(pattern) and all(map(_equals, node, pattern))
    if not isinstance(pattern, ast.AST):
        return node == pattern and type(node) is type(pattern)
    if type(node) is not type(pattern):
        return False
    if isinstance(pattern, ast.Call) and isinstance(node, ast.Call) and _is_any(pattern.args):
        return _equals(node.func, pattern.func)
    return all(_equals(getattr(node, name, None), getattr(pattern, name, None)) for name in pattern._fields)


def _is_any(arguments: list[ast.expr]) -> bool:
    return len(arguments) == 1 and isinstance(arguments[0], ast.Constant) and arguments[0].value is ...


def _found(name: str, root: Path) -> tuple[Path, Function]:
    """The function of this name, and its file. Raises CannotMutate unless there is just one."""
    folder, _, qualified = name.rpartition(":")
    has_name = re.compile(rf"\bdef {qualified.rpartition('.')[2]}\b")
    found = [
        (path, function)
        for path, text in _sources(root).items()
        if (not folder or folder in path.relative_to(root).parts) and has_name.search(text)
        for function in _functions(text).get(qualified, ())
    ]
    if len(found) != 1:
        raise CannotMutate(f"{len(found)} functions are called {name}: {', '.join(str(path) for path, _ in found)}")
    return found[0]


@cache
def _sources(root: Path) -> dict[Path, str]:
    return {
        path: path.read_text(encoding="utf-8")
        for folder in SEARCHED
        for path in sorted((root / folder).rglob("*.py"))
        if ".venv" not in path.parts
    }


@cache
def _functions(text: str) -> dict[str, list[Function]]:
    """The functions of a module, by qualified name. Those within functions are not listed."""
    found: dict[str, list[Function]] = {}

    def walk(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef):
                walk(node.body, f"{prefix}{node.name}.")
            elif isinstance(node, Function):
                found.setdefault(prefix + node.name, []).append(node)

    walk(_parsed(text).body, "")
    return found


@cache
def _parsed(text: str) -> ast.Module:
    return ast.parse(text)


def _spliced(text: str, old: Function, new: Function) -> str:
    """The text with another function in place of one of its functions."""
    lines = text.splitlines(keepends=True)
    first = min(node.lineno for node in (old, *old.decorator_list)) - 1
    indent = " " * old.col_offset
    body = "".join(f"{indent}{line}\n" if line else "\n" for line in ast.unparse(new).splitlines())
    return "".join([*lines[:first], body, *lines[old.end_lineno :]])


def _check_names(new: Function, old: Function, module: ast.Module, root: Path) -> None:
    """Raises CannotMutate for a name that nothing has any more: tests would fail for that alone."""
    of_module = {name for node in module.body for name in _bound(node)}
    set_here = {node.id for node in ast.walk(new) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    if unknown := _names(new) - _names(old) - set_here - of_module - {*dir(builtins)}:
        raise CannotMutate(f"{old.name} does not know {', '.join(sorted(unknown))}")
    attributes = {node.attr for node in ast.walk(new) if isinstance(node, ast.Attribute)}
    if unknown := attributes - _words(root):
        raise CannotMutate(f"nothing has an attribute {', '.join(sorted(unknown))}")


def _names(function: Function) -> set[str]:
    """The names in a function, its parameters too."""
    nodes = list(ast.walk(function))
    return {node.id for node in nodes if isinstance(node, ast.Name)} | {
        node.arg for node in nodes if isinstance(node, ast.arg)
    }


def _bound(node: ast.stmt) -> Iterator[str]:
    """The names that a statement of a module gives something."""
    if isinstance(node, Function | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from (alias.asname or alias.name.split(".")[0] for alias in node.names)
    else:
        yield from (part.id for part in ast.walk(node) if isinstance(part, ast.Name))


@cache
def _words(root: Path) -> set[str]:
    """Each word of the package: more than the attributes of its classes, and quickly found."""
    return set(re.findall(r"\w+", " ".join(_sources(root).values())))

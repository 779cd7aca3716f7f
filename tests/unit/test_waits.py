"""Every wait in the tests is a condition with a generous limit, or says beside it why it is not: ``# wait: why``.

A test that sleeps until something has surely happened, that gives it a few seconds, or that asserts how long it took,
fails on a busy machine, and then says nothing about the code.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
GENEROUS = 30  # seconds
# What waits, by the method's or the function's name, and where its limit stands if it is not given by name.
LIMIT_AT = {
    "acquire": None, "communicate": None, "get": None, "invoke": None, "join": 0, "request": None, "result": 0,
    "run": None, "urlopen": None, "wait": 0, "wait_for": 1, "wait_until": 1, "eventually": None,
}  # fmt: skip
LIMITS = {"timeout", "within"}
_MAY_WAIT = re.compile(r"sleep|timeout|within|join\(|result\(|wait|monotonic|perf_counter|time\(\)")  # to parse fewer
CLOCKS = {"monotonic", "perf_counter", "time"}
# Simulated time, programs that are run by hand, and what waits for a real service on purpose.
LEFT_OUT = {"model", "simulate", "soak"}


def waits(source: str) -> Iterator[tuple[int, str]]:
    """The line and the kind of each wait that needs a reason and has none."""
    lines, tree = source.splitlines(), ast.parse(source)
    numbers = {
        target.id: statement.value.value
        for statement in tree.body
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant)
        for target in statement.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            kind = _kind(node, numbers)
        elif isinstance(node, ast.Compare):
            kind = "an asserted duration" if any(map(_is_clock, _elapsed(node))) else None
        else:
            continue
        before = lines[node.lineno - 2 : node.lineno - 1] if node.lineno > 1 else []
        span = [line for line in before if line.lstrip().startswith("#")] + lines[node.lineno - 1 : node.end_lineno]
        if kind and not any("# wait: " in line for line in span):
            yield node.lineno, kind


def _kind(call: ast.Call, numbers: dict[str, object]) -> str | None:
    name = _name(call.func)
    if name == "sleep":
        in_simulation = isinstance(call.func, ast.Attribute) and _name(call.func.value) not in ("time", "asyncio")
        return None if in_simulation else "a sleep"
    if name not in LIMIT_AT and not _expects(call):
        return None
    given = [keyword.value for keyword in call.keywords if keyword.arg in LIMITS]
    if not given and (at := LIMIT_AT.get(name)) is not None and isinstance(call.func, ast.Attribute):
        given = call.args[at : at + 1]
    in_a_browser = _expects(call)
    for value in given:
        limit = numbers.get(value.id) if isinstance(value, ast.Name) else getattr(value, "value", None)
        if isinstance(limit, (int, float)) and not isinstance(limit, bool):
            seconds = limit / 1000 if in_a_browser else limit
            if seconds < GENEROUS:
                return f"a limit of {seconds:g} s"
    return None


def _expects(call: ast.Call) -> bool:
    """Whether it is an expectation of Playwright, whose limits are milliseconds."""
    part = call.func
    while isinstance(part, (ast.Attribute, ast.Call)):
        if isinstance(part, ast.Call) and _name(part.func) == "expect":
            return True
        part = part.value if isinstance(part, ast.Attribute) else part.func
    return False


def _elapsed(comparison: ast.Compare) -> Iterator[ast.expr]:
    """What is compared with a number: ``clock() - began``."""
    if any(isinstance(side, ast.Constant) for side in comparison.comparators):
        for part in ast.walk(comparison.left):
            if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Sub):
                yield part.left


def _is_clock(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in CLOCKS


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


@pytest.mark.parametrize(
    ("source", "kinds"),
    [
        ("time.sleep(1)", ["a sleep"]),
        ("sleep(1)", ["a sleep"]),
        ("simulation.sleep(1)", []),
        ("time.sleep(1)  # wait: the server is late on purpose", []),
        ("done.wait(5)", ["a limit of 5 s"]),
        ("done.wait(timeout=5)", ["a limit of 5 s"]),
        ("SOON = 5\ndone.wait(SOON)", ["a limit of 5 s"]),
        ("done.wait(60)", []),
        ("queue.get(timeout=0.5)", ["a limit of 0.5 s"]),
        ("row.get(1)", []),
        ("processes.wait_until(ended, 5)", ["a limit of 5 s"]),
        ("eventually(ended, within=5)", ["a limit of 5 s"]),
        ("expect(page).to_have_text('x', timeout=10_000)", ["a limit of 10 s"]),
        ("expect(page).to_have_text('x', timeout=60_000)", []),
        ("assert time.monotonic() - began < 5", ["an asserted duration"]),
        ("assert clock.now - began < 5", []),
    ],
)
def test_a_wait_is_noticed(source: str, kinds: list[str]) -> None:
    assert [kind for _, kind in waits(source)] == kinds


def test_every_wait_has_a_generous_limit_or_says_why_not() -> None:
    listed = [
        f"{path.relative_to(TESTS)}:{line}: {kind}"
        for path in sorted(TESTS.rglob("*.py"))
        if path.relative_to(TESTS).parts[0] not in LEFT_OUT
        if _MAY_WAIT.search(source := path.read_text("utf-8"))
        for line, kind in waits(source)
    ]
    assert listed == []

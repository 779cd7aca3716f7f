"""Imports are measured as Lambda makes them: from bytecode."""

from __future__ import annotations

from pathlib import Path

import pytest

from dynatick_stack.bench.imports import run_seconds


@pytest.mark.parametrize("told", ["", "1"])
def test_nothing_is_compiled_after_the_first_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: str) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", told)
    folder, compiled = tmp_path / "function", tmp_path / "compiled"
    folder.mkdir()
    source = folder / "app.py"
    source.write_text("import os; assert os.environ['NAME'] == 'value'\n")
    program = "import app; import pathlib; assert pathlib.Path(app.__spec__.cached).is_relative_to({!r})"
    assert run_seconds(program.format(str(compiled)), folder, {"NAME": "value"}, compiled) > 0
    (cached,) = compiled.rglob("app.*.pyc")
    before = cached.stat().st_mtime_ns
    run_seconds(program.format(str(compiled)), folder, {"NAME": "value"}, compiled)
    assert cached.stat().st_mtime_ns == before
    assert not list(folder.rglob("*.pyc"))

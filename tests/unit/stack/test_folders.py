"""The folders of a checkout, of a project, and those that projects share."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from dynatick_stack import folders, venv


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"XDG_CACHE_HOME": "/var/cache/ada"}, Path("/var/cache/ada/dynatick")),
        ({"XDG_CACHE_HOME": "relative"}, Path.home() / ".cache" / "dynatick"),
        ({}, Path.home() / ".cache" / "dynatick"),
    ],
)
def test_the_users_cache(environ: dict[str, str], expected: Path) -> None:
    assert folders.user_cache(environ) == expected


def test_an_environment_without_pip_uses_that_of_the_emulator(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert venv.python_with_pip(print) == Path(sys.executable)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(venv, "emulator_python", lambda say: tmp_path / "python")
    assert venv.python_with_pip(print) == tmp_path / "python"

"""Where things lie, for a checkout, a project, and what projects share."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from dynatick_stack import folders, template, venv
from dynatick_stack.folders import CACHE
from dynatick_stack.venv import VENV


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


def test_a_project_is_found_from_its_subfolders(tmp_path: Path) -> None:
    (tmp_path / "dynatick.toml").touch()
    below = tmp_path / "app" / "mail"
    below.mkdir(parents=True)
    assert folders.project_of(below) == folders.project_of(tmp_path) == tmp_path
    assert folders.state_of(below) == tmp_path / ".dynatick" / "local"


def test_a_checkout_keeps_everything_in_itself(tmp_path: Path) -> None:
    assert folders.IS_CHECKOUT
    assert folders.ROOT == template.ROOT == Path(__file__).parents[3]
    assert folders.state_of(tmp_path) == folders.ROOT / ".dynatick" / "local"
    assert folders.ROOT / ".dynatick" / "cache" == CACHE
    assert folders.ROOT / ".venv-local" == VENV


def test_an_environment_without_pip_uses_that_of_the_emulator(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert venv.python_with_pip(print) == Path(sys.executable)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(venv, "emulator_python", lambda say: tmp_path / "python")
    assert venv.python_with_pip(print) == tmp_path / "python"

"""dynatick init: three files that work as they are, and none that was there is touched."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dynatick.cli.exit_code import CommandFailed, ExitCode
from dynatick_stack import project
from dynatick_stack.init import stack_name, write_project

FILES = ["dynatick.toml", "handlers.py", "test_handlers.py"]


def test_it_writes_three_files_and_their_test_passes(tmp_path: Path) -> None:
    folder = tmp_path / "my reminders"
    write_project(folder)
    assert sorted(path.name for path in folder.iterdir()) == FILES
    assert (project.read(folder).name, project.read(folder).module) == ("my-reminders", "handlers")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=folder, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert (ran.returncode, "1 passed" in ran.stdout) == (0, True), ran.stdout


@pytest.mark.parametrize("name", FILES)
def test_it_overwrites_nothing(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(CommandFailed, match=f"{name} is there already; nothing was written") as refused:
        write_project(tmp_path)
    assert refused.value.code == ExitCode.CONFLICT
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(name, "mine")]


@pytest.mark.parametrize(
    ("folder", "name"), [("my_app.v2", "my-app-v2"), ("2fast", "stack-2fast"), ("", "stack"), ("ü" * 99, "stack")]
)
def test_the_stack_is_named_after_the_folder(folder: str, name: str) -> None:
    assert stack_name(folder) == name
    assert project.STACK_NAME.fullmatch(stack_name(folder))

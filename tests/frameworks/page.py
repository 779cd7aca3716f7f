"""A project from an empty folder, with the files that a page shows, and its tests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"
WAIT_SECONDS = 300
FILE = re.compile(r"^```\w+\n# ([\w./]+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def write_project(page: str, folder: Path) -> set[str]:
    """Writes the files of a page, and returns their names. One that is there already is continued."""
    names = set()
    for name, text in FILE.findall((HOW_TO / page).read_text(encoding="utf-8")):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
        names.add(name)
    return names


def environment(**more: str) -> dict[str, str]:
    """That of a person: without this run's own variables, and without a table."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "DYNATICK_"))}
    return kept | more


def run(folder: Path, *arguments: str) -> str:
    """Runs Python in a project, and returns what it printed. Raises AssertionError with that unless it ends with 0."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder, env=environment(PYTHONPATH=str(folder)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, timeout=WAIT_SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout


def run_tests(folder: Path, *arguments: str) -> str:
    return run(folder, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments)

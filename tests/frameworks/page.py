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
    """Writes the files of a page, and returns their names."""
    names = set()
    for name, text in FILE.findall((HOW_TO / page).read_text(encoding="utf-8")):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        names.add(name)
    return names


def run_tests(folder: Path, *arguments: str, **environment: str) -> str:
    """Runs pytest in a project, and returns what it printed. Raises AssertionError with that."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "DYNATICK_"))}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=folder, env={**kept, "PYTHONPATH": str(folder), **environment}, capture_output=True, text=True,
        timeout=WAIT_SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout

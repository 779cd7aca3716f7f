"""A program of the checkout as a person runs it: a process with a folder of its own, and what it leaves there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from dynatick_stack import processes


def start(folder: Path, module: str, *arguments: str) -> subprocess.Popen[str]:
    """Runs a module. ``folder``: where it makes its own."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "DYNATICK_"))}
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        env=environment | {"TMPDIR": str(folder), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def left(folder: Path) -> list[str]:
    """Processes that have anything to do with the folder, and what lies in it."""
    running = [command for _, command in processes._command_lines() if str(folder.resolve()) in command]
    return [*running, *(path.name for path in folder.iterdir())]

"""Programs of the checkout as a person runs them: processes with an environment of their own, and what they print."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from tests.e2e.support import eventually

from dynatick_stack import processes

DYNATICK = (sys.executable, "-m", "dynatick.cli")
SHOWN = 4000  # characters, of what a program printed last
KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}


def environment(**more: str) -> dict[str, str]:
    """This process's, without the settings that decide which installation a command speaks to."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "DYNATICK_", "PYTEST_"))}
    return kept | more


def run(*command: str, cwd: Path | None = None, **environ: str) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end; nobody answers its questions."""
    return subprocess.run(
        command, cwd=cwd, env=environment(**environ), stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=600, check=False,
    )  # fmt: skip


def start(folder: Path, module: str, *arguments: str) -> subprocess.Popen[str]:
    """Starts a module. ``folder``: where it makes its own."""
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments], env=environment(TMPDIR=str(folder), PYTHONUNBUFFERED="1"),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def left(folder: Path) -> list[str]:
    """Processes that have anything to do with the folder, and what lies in it."""
    running = [command for _, command in processes._command_lines() if str(folder.resolve()) in command]
    return [*running, *(path.name for path in folder.iterdir())]


class Running:
    """A program that runs beside a test, and what it has printed."""

    def __init__(
        self, *command: str, cwd: Path, environ: dict[str, str], say: Callable[[str], object] = lambda line: None
    ) -> None:
        """``say``: gets each line as it comes."""
        self.process = subprocess.Popen(
            command, cwd=cwd, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.output = ""
        self._say = say
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.output += line
            self._say(line.rstrip())

    def shows(self, pattern: str, *, within: float = 180) -> re.Match[str]:
        """Waits until it has printed this."""
        found: list[re.Match[str]] = []

        def is_there() -> bool:
            found[:] = re.finditer(pattern, self.output, re.MULTILINE)
            return bool(found) or self.process.poll() is not None

        eventually(is_there, within=within, what=lambda: f"{pattern}\n[…]{self.output[-SHOWN:]}")
        assert found, self.output
        return found[0]

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Ends it, if it has not ended yet. Its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        eventually(lambda: self.process.poll() is not None, within=180, what=lambda: self.output)
        self._reader.join(60)
        return self.process.returncode

"""Finds and ends the emulator's processes: itself and the workers that run the functions.

They are known by their command lines, which name the folder of the local stack, not by a number
written down earlier: a number may be lost with a half-finished start, or belong to another program
by now.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

GRACE_SECONDS = 3.0


def marker(state_dir: Path) -> str:
    """What the emulator's command line carries. Python ignores -X options that it doesn't know."""
    return f"dynatick={state_dir}"


def worker_folder(state_dir: Path) -> Path:
    """Where the emulator unpacks functions; their workers run a file in it."""
    return state_dir / "tmp"


def running(state_dir: Path) -> dict[int, str]:
    """Processes of the local stack in this folder, by id, with their command lines."""
    return {
        pid: command
        for pid, command in _command_lines()
        if f"{marker(state_dir)} " in command or f" {worker_folder(state_dir)}/" in command
    }


def _command_lines() -> Iterator[tuple[int, str]]:
    """All processes. One that has ended and only waits for its parent to notice isn't listed."""
    if Path("/proc/self/cmdline").exists():
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                words = (folder / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue  # It ended meanwhile.
            if words[0]:
                yield int(folder.name), b" ".join(words).decode(errors="replace")
    else:
        listed = subprocess.run(
            ["ps", "-A", "-ww", "-o", "pid=,stat=,args="],
            capture_output=True,
            text=True,
            check=True,
        )
        for line in listed.stdout.splitlines():
            pid, state, command = (*line.split(None, 2), "")[:3]
            if not state.startswith("Z"):
                yield int(pid), f"{command} "


def emulator(state_dir: Path) -> int | None:
    """The emulator itself, if it runs."""
    for pid, command in running(state_dir).items():
        if marker(state_dir) in command:
            return pid
    return None


def stop(state_dir: Path) -> bool:
    """End all of them; true if there were any. Politely first, for what that is worth."""
    if not running(state_dir):
        return False
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in running(state_dir):
            _send(pid, number)
        if wait_until(lambda: not running(state_dir), GRACE_SECONDS):
            break
    return True


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):  # It may have ended by itself meanwhile.
        os.kill(pid, number)


def wait_until(condition: Callable[[], bool], seconds: float, *, every: float = 0.05) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(every)
    return True

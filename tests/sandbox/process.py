"""A sandbox of Lambda, seen from outside: a child process that can be killed, frozen and thawed.

As on Lambda, it is frozen between its invocations, however the last one ended: what its threads had begun goes on in
the next one.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.sandbox.seam import Fault

from dynatick_stack.template import ROOT

TIMEOUT_SECONDS = 300.0  # seconds for an invocation, far more than any takes, on a busy machine too


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The outcome of an invocation."""

    what: str  # "returned", "error", "killed", "exited" (by itself), "frozen"
    value: Any = None  # what it returned, its error, or the kind of call at which it was frozen
    hits: Mapping[str, int] = field(default_factory=dict)  # faults that it met

    @property
    def hit(self) -> int:
        """How many faults it met, of whatever kind."""
        return sum(self.hits.values())


class Sandbox:
    """A process that runs one invocation at a time."""

    def __init__(self, function: str, *, environ: Mapping[str, str], log: Path) -> None:
        self.function, self._log = function, log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.sandbox.worker", function],
                cwd=ROOT,
                env=dict(environ),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                start_new_session=True,  # Ctrl-C is for our own process, which ends it in order
            )
        self._unread = b""
        self._ready = False

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def begin(self, event: Mapping[str, Any], *, timeout: float, faults: Sequence[Fault] = ()) -> None:
        """Starts an invocation, and does not wait for it. ``timeout``: its seconds by the shared clock."""
        self.wait_until_ready()
        assert self._process.stdin is not None
        order = {"event": event, "timeout": timeout, "faults": [asdict(fault) for fault in faults]}
        self._process.send_signal(signal.SIGCONT)  # before what a pipe may not hold
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        self._process.stdin.flush()

    def wait(self, timeout: float = TIMEOUT_SECONDS) -> Outcome:
        """Waits until the invocation has ended, or was frozen in the middle."""
        response = self._response(timeout)
        if response is None:
            code = self._process.wait(TIMEOUT_SECONDS)
            return Outcome(what="killed" if code == -signal.SIGKILL else "exited", value=code)
        # It responds just before it stops, or dies, which the next caller finds out.
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        if "frozen" in response:
            return Outcome(what="frozen", value=response["frozen"])
        what = "error" if "error" in response else "returned"
        return Outcome(what=what, value=response.get(what), hits=response["hits"])

    def wait_until_ready(self) -> None:
        if not self._ready:
            assert self._response(TIMEOUT_SECONDS) == {"ready": True}, tail(self._log)
            self._ready = True

    def thaw(self) -> None:
        """Lets a frozen process go on."""
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """Kills the process at once, wherever it is, as Lambda ends a sandbox."""
        self._process.kill()
        self._process.wait(TIMEOUT_SECONDS)

    def close(self) -> None:
        self.kill()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()

    def _response(self, timeout: float) -> dict[str, Any] | None:
        """The next line that the process writes; None if it has ended."""
        assert self._process.stdout is not None
        pipe, end = self._process.stdout.fileno(), time.monotonic() + timeout
        while b"\n" not in self._unread:
            readable, _, _ = select.select([pipe], [], [], max(end - time.monotonic(), 0))
            assert readable, f"no response within {timeout:.0f} s\n{tail(self._log)}"
            read = os.read(pipe, 65_536)
            if not read:
                return None
            self._unread += read
        line, _, self._unread = self._unread.partition(b"\n")
        response: dict[str, Any] = json.loads(line)
        return response


def tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-20:])

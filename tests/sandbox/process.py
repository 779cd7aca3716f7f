"""A sandbox of Lambda, seen from outside: a child process that can be killed, frozen and thawed.

As on Lambda, it is frozen between its invocations, however the last one ended: what its threads had begun goes on in
the next one.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
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
        self._unread = b""
        self._ready = False
        self._code: int | None = None  # with which it has ended
        stdin, to_stdin = os.pipe()
        from_output, output = os.pipe()
        self._input, self._output = os.fdopen(to_stdin, "wb"), os.fdopen(from_output, "rb", buffering=0)
        with log.open("ab") as stderr:
            socket.send_fds(_parent(), [b"+"], [stdin, output, stderr.fileno()])
        os.close(stdin)
        os.close(output)
        self._send(function=function, environ=dict(environ))
        begun = self._response(TIMEOUT_SECONDS)
        assert begun is not None
        self.pid: int = begun["pid"]

    @property
    def alive(self) -> bool:
        if self._code is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, 0)
                return True
        return False

    def begin(self, event: Mapping[str, Any], *, timeout: float, faults: Sequence[Fault] = ()) -> None:
        """Starts an invocation, and does not wait for it. ``timeout``: its seconds by the shared clock."""
        self.wait_until_ready()
        self.thaw()  # before what a pipe may not hold
        self._send(event=event, timeout=timeout, faults=[asdict(fault) for fault in faults])

    def wait(self, timeout: float = TIMEOUT_SECONDS) -> Outcome:
        """Waits until the invocation has ended, or was frozen in the middle."""
        response = self._response(timeout)
        if response is None:
            return Outcome(what="killed" if self._code == -signal.SIGKILL else "exited", value=self._code)
        # It responds just before it stops, or dies, which the next caller finds out.
        assert self._response(timeout) in ({"stopped": True}, None)
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
        if self._code is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            while self._response(TIMEOUT_SECONDS) is not None:
                pass

    def close(self) -> None:
        self.kill()
        self._output.close()
        with suppress(OSError):
            self._input.close()

    def _send(self, **line: Any) -> None:
        self._input.write(json.dumps(line).encode() + b"\n")
        self._input.flush()

    def _response(self, timeout: float) -> dict[str, Any] | None:
        """The next line that the process, or its parent, writes; None if it has ended."""
        end = time.monotonic() + timeout
        while b"\n" not in self._unread:
            readable, _, _ = select.select([self._output], [], [], max(end - time.monotonic(), 0))
            assert readable, f"no response within {timeout:.0f} s\n{tail(self._log)}"
            read = self._output.read(65_536)
            assert read, "the parent of the sandboxes has ended"
            self._unread += read
        line, _, self._unread = self._unread.partition(b"\n")
        try:
            response: dict[str, Any] = json.loads(line)
        except ValueError:  # empty, or it died while it wrote
            return self._response(timeout)
        self._code = response.get("ended")
        return response if self._code is None else None


_starting = threading.Lock()
_control: socket.socket | None = None


def _parent() -> socket.socket:
    """The socket of the process that forks sandboxes. It is started once, and ends with this process."""
    global _control
    with _starting:
        if _control is None:
            _control, theirs = socket.socketpair()
            with theirs:
                subprocess.Popen(
                    [sys.executable, "-m", "tests.sandbox.forks", str(theirs.fileno())],
                    cwd=ROOT,
                    env={"PATH": os.environ.get("PATH", os.defpath), "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0"},
                    stdin=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,  # Ctrl-C is for our own process, which ends it in order
                )
        return _control


def tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-20:])

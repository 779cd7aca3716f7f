"""Counts the polls of all processes, and lets each take as long as a slow table would, by the shared clock.

The clock of such a world all but stands still otherwise, so that how long polling takes does not depend on the machine.
"""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path

from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from tests.faults.lag import LaggingIndex
from tests.sandbox.calls import Call
from tests.sandbox.clock import SharedClock
from tests.sandbox.seam import Send

FILE = "polls"  # in a world's folder: a byte for each


class Polls:
    """What ``Seam.watch`` calls. ``seconds``: by how much each poll moves the clock."""

    def __init__(self, folder: Path, clock: SharedClock, seconds: float, index: LaggingIndex | None) -> None:
        self._file = os.open(folder / FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._clock, self._seconds, self._index = clock, seconds, index
        self._lock = threading.Lock()

    def __call__(self, call: Call, request: AWSPreparedRequest, send: Send) -> AWSResponse | None:
        if call.kind == "poll":
            with self._lock:
                os.write(self._file, b".")
                if self._seconds:
                    fcntl.flock(self._file, fcntl.LOCK_EX)  # other processes move it, too
                    self._clock.forward(seconds=self._seconds)
                    fcntl.flock(self._file, fcntl.LOCK_UN)
        return self._index(call, request, send) if self._index is not None else None

"""Counts the polls of all processes, and lets each take as long as a slow table would, by the shared clock.

The clock of such a world all but stands still otherwise, so that how long polling takes does not depend on the machine.
And it stands while a task is in flight: on a machine that stalls for a second, its lease would expire meanwhile.
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
MAX_WAIT = 10  # real seconds that a poll waits for what is in flight


class Polls:
    """What ``Seam.watch`` calls. ``seconds``: by how much each poll moves the clock."""

    def __init__(self, folder: Path, clock: SharedClock, seconds: float, index: LaggingIndex | None) -> None:
        self._file = os.open(folder / FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._clock, self._seconds, self._index = clock, seconds, index
        self._in_flight: set[str] = set()  # the tasks that this process has claimed, and has not recorded
        self._changed = threading.Condition()

    def __call__(self, call: Call, request: AWSPreparedRequest, send: Send) -> AWSResponse | None:
        ids = {write.task_id for write in call.writes}
        with self._changed:
            if call.kind == "claim":
                self._in_flight |= ids
            elif call.kind == "poll":
                self._note()
        answered = self._index(call, request, send) if self._index is not None else None
        if call.kind == "record":
            with self._changed:
                self._in_flight -= ids
                self._changed.notify_all()
        return answered

    def _note(self) -> None:
        os.write(self._file, b".")
        if self._seconds:
            if not self._changed.wait_for(lambda: not self._in_flight, MAX_WAIT):
                self._in_flight.clear()  # another process has claimed them
            fcntl.flock(self._file, fcntl.LOCK_EX)  # other processes move it, too
            self._clock.forward(seconds=self._seconds)
            fcntl.flock(self._file, fcntl.LOCK_UN)

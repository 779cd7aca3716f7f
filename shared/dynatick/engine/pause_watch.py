"""Notices that everything is paused, while an invocation works."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta

from dynatick.engine.installation_settings import read_pause
from dynatick.engine.io_pool import begin
from dynatick.engine.ports import Clock, Store

PAUSE_CHECK = timedelta(seconds=5)
"""So often it is read. What begins tasks may know of a pause no later than ten seconds after it."""


class PauseWatch:
    """Whether everything is paused. Any thread may ask: none waits for the table.

    Once it was paused, it stays so for this invocation.
    """

    def __init__(self, store: Store, clock: Clock, *, known_at: datetime, in_one_thread: bool = False) -> None:
        """``known_at``: it was not paused then. ``in_one_thread``: it is read in the thread that asks."""
        self._store, self._clock, self._in_one_thread = store, clock, in_one_thread
        self._read_at = known_at + PAUSE_CHECK
        self._reading = threading.Lock()
        self._is_paused = False
        self.fault: Exception | None = None  # the first read that failed

    def is_paused(self) -> bool:
        """Whether it is, as known from the last read. Begins another read if that is older than ``PAUSE_CHECK``."""
        if not self._is_paused and self._clock() >= self._read_at and self._reading.acquire(blocking=False):
            self._read_at = self._clock() + PAUSE_CHECK
            begin(self._read, name="dynatick-pause", in_one_thread=self._in_one_thread)
        return self._is_paused

    def _read(self) -> None:
        try:
            self._is_paused = read_pause(self._store) is not None
        except Exception as error:  # the coordinator raises it once everything in flight is recorded
            self.fault = self.fault or error
        finally:
            self._reading.release()

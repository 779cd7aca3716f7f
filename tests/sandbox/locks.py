"""Locks on files, between the processes of a test, and how a process stops or ends without one.

A thread may have such a lock at the moment at which its process is frozen. Nobody else would get it again. And if its
process ended then, nobody would know whether what the thread did has taken effect.
"""

from __future__ import annotations

import fcntl
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

_held = threading.Lock()  # while a thread of this process has a file locked


@contextmanager
def locked(file: Any, *, shared: bool = False) -> Iterator[None]:
    """Keeps other processes out. ``file``: open, or its descriptor. ``shared``: only those that write."""
    with _held:
        fcntl.flock(file, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)


def stop() -> None:
    """Stops this process while no thread of it has a file locked. Returns once it was thawed.

    The signal may stop this thread a moment later than it is sent. SIGCONT must be blocked in all threads, and so waits
    for this one (worker.py). A handler would not do: it runs in the main thread alone, which the kernel need not
    choose, nor Python wake up.
    """
    with _held:
        os.kill(os.getpid(), signal.SIGSTOP)
        signal.sigwait({signal.SIGCONT})


def end(number: int) -> None:
    """Ends this process by a signal while no thread of it has a file locked. Does not return."""
    with _held:
        os.kill(os.getpid(), number)
        threading.Event().wait()  # the signal may end this thread a moment later than it is sent


@contextmanager
def exits_without() -> Iterator[None]:
    """Meanwhile this process exits while no thread of it has a file locked."""
    leave = os._exit

    def leave_without(status: int) -> None:
        with _held:
            leave(status)

    with patch.object(os, "_exit", leave_without):
        yield

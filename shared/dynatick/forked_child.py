"""A handler may fork. The child has a copy of the thread that called the handler, and must do none of our work with it.

What starts a process properly, as ``subprocess`` and ``multiprocessing`` do, never comes back here in the child.
"""

from __future__ import annotations

import os
import sys
import traceback
from types import TracebackType

process_id = os.getpid


class EndChildren:
    """A context that only the process which entered it leaves. A child that was forked inside, and comes to the end of
    it, ends there as one of ``multiprocessing`` does: with the status that ``sys.exit`` asked for, 0 without an error,
    or 1 after any other, which is printed."""

    __slots__ = ("_parent",)

    def __enter__(self) -> None:
        self._parent = process_id()

    def __exit__(self, kind: object, error: BaseException | None, trace: TracebackType | None) -> None:
        if process_id() != self._parent:
            end_child(error)


def end_child(error: BaseException | None = None) -> None:
    """Ends this process. Its other threads are gone since the fork, and what runs at the exit of a process is the
    parent's."""
    status = 1
    try:
        if error is None or (isinstance(error, SystemExit) and error.code is None):
            status = 0
        elif not isinstance(error, SystemExit):
            traceback.print_exception(error)
        elif isinstance(error.code, int):
            status = error.code
        else:
            print(error.code, file=sys.stderr)  # noqa: T201 - as the interpreter does
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status & 0xFF)

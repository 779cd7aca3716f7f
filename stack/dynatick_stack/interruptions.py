"""Ctrl-C, and requests to end, in programs that have something to clean up."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

AGAIN_SECONDS = 1.0
# With the alarm by which one comes again.
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)

_comes_again = False


@contextmanager
def ends_when_interrupted(said: str, code: int) -> Iterator[None]:
    """Ends the program at the first interruption in the block, when what cleans up in it has done so (``finally``).
    ``said``: is printed then, unless it is empty; ``code``: the exit code.

    Further interruptions do nothing, since people press Ctrl-C again. (Were they ignored, children would inherit it.)
    But Python drops a KeyboardInterrupt that it meets while it deletes an object, as HTTP clients often do. So the
    first is raised anew every second, until the end of the block or ``begin_to_clean_up``. Nor does Python get to do
    what it does at its end: that may wait for a lock of what was interrupted.
    """
    is_interrupted = False

    def interrupt(number: int, _frame: FrameType | None) -> None:
        global _comes_again
        nonlocal is_interrupted
        if not is_interrupted or number == signal.SIGALRM:
            is_interrupted = _comes_again = True
            signal.setitimer(signal.ITIMER_REAL, AGAIN_SECONDS)
            raise KeyboardInterrupt

    earlier = {number: signal.signal(number, interrupt) for number in _SIGNALS}
    try:
        yield
    except KeyboardInterrupt:
        begin_to_clean_up()
        with suppress(OSError):  # nobody may be there to read it
            if said:
                print(said, file=sys.stderr)
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
    finally:
        begin_to_clean_up()
        for number, handler in earlier.items():
            signal.signal(number, handler)


def begin_to_clean_up() -> None:
    """Says that an interruption, if there was one, has arrived: it does not come again."""
    global _comes_again
    if _comes_again:
        _comes_again = False
        signal.setitimer(signal.ITIMER_REAL, 0)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Puts off interruptions until the end of the block. What is started in it doesn't inherit that."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Signals are handled by the main thread only.
        return
    came: list[int] = []
    earlier = {number: signal.signal(number, lambda number, _: came.append(number)) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0])

"""Whole lines on the standard output of a process with threads.

``print`` writes a text and its end in two steps. What another thread writes between them, a record of the log or a
metric, would be in the midst of that line, and neither could be read.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any, TextIO, cast


class WholeLines:
    """Passes on what a thread writes once its line has ended, or it flushes. All else is done by the output itself.

    It takes no lock, so that a child which a handler forks never waits for one.
    """

    def __init__(self, output: TextIO) -> None:
        self._output = output
        self._begun: dict[threading.Thread, str] = {}  # lines that have not ended

    def write(self, text: str) -> int:
        thread = threading.current_thread()
        whole, end, rest = (self._begun.pop(thread, "") + text).rpartition("\n")
        if rest:
            self._begun[thread] = rest
        if end:
            self._output.write(whole + end)
        return len(text)

    def writelines(self, texts: Iterable[str]) -> None:
        self.write("".join(texts))

    def flush(self) -> None:
        if begun := self._begun.pop(threading.current_thread(), ""):
            self._output.write(begun)
        self._output.flush()

    def end_lines(self) -> None:
        """Writes what all threads have begun."""
        for thread in [*self._begun]:
            if begun := self._begun.pop(thread, ""):
                self._output.write(begun + "\n")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._output, name)


@contextmanager
def whole_lines() -> Iterator[None]:
    """Within it, what is printed comes in whole lines. What no line has ended is written at the end.

    Within another one it changes nothing: a simulation begins invocations before others have ended, or never ends them.
    """
    output: object = sys.stdout
    if isinstance(output, WholeLines):
        yield
        return
    lines = WholeLines(sys.stdout)
    with redirect_stdout(cast(TextIO, lines)):
        try:
            yield
        finally:
            lines.end_lines()

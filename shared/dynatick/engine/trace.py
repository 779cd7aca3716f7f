"""What an error says, and where it was raised: short texts, as a row keeps them.

An error may be of any class, and its class may do anything when it is asked. Nothing here raises, and nothing takes
longer or returns more for a larger error.
"""

from __future__ import annotations

import linecache
import traceback
from collections import deque
from pathlib import Path
from types import FrameType

MAX_FRAMES = 4
MAX_BYTES = 800
"""The limit for a trace, in UTF-8."""

MAX_MESSAGE_CHARACTERS = 10_000
"""The limit for a message, before a row shortens it further."""

_UNREADABLE = "(the error has no readable message)"
_MAX_STATEMENT = 120
_PACKAGE = str(Path(__file__).parents[1])
_ROOTS = ("/opt/python/", "/var/task/", "site-packages/", "dist-packages/")


def message_of(error: BaseException) -> str:
    """What ``str`` returns for an error, shortened."""
    try:
        return str.__getitem__(str(error), slice(MAX_MESSAGE_CHARACTERS))  # a str, even of a subclass of it
    except BaseException:  # its __str__ may even call sys.exit
        return _UNREADABLE


def described(error: BaseException) -> str:
    """``ValueError: no such mailbox``."""
    try:
        name = str(type(error).__name__)
    except BaseException:  # of a metaclass
        name = "Exception"
    return f"{name}: {message_of(error)}"


def trace_of(error: BaseException) -> str | None:
    """One line for each frame, the innermost last: ``handlers.py:14 in send: deliver(mail)``. Dynatick's own frames are
    left out, and so are values of variables. None: there is no other frame, or the error doesn't say where."""
    try:
        # One that is raised in place of the handler's own names that one as its cause.
        frames = _frames(error) or (_frames(error.__cause__) if error.__cause__ is not None else [])
        lines = [_line(frame, number) for frame, number in frames]
    except BaseException:  # of an error whose traceback or cause is a property
        return None
    while len("\n".join(lines).encode()) > MAX_BYTES and len(lines) > 1:
        del lines[0]
    return "\n".join(lines).encode()[:MAX_BYTES].decode(errors="ignore") or None


def _frames(error: BaseException) -> list[tuple[FrameType, int]]:
    """The last frames that are not Dynatick's own, with their lines."""
    walked = traceback.walk_tb(error.__traceback__)
    return list(deque((one for one in walked if not _file(one[0]).startswith(_PACKAGE)), MAX_FRAMES))


def _line(frame: FrameType, number: int) -> str:
    statement = _statement(frame, number)
    shown = statement if len(statement) <= _MAX_STATEMENT else statement[: _MAX_STATEMENT - 1] + "…"
    return _printable(
        f"{_short(_file(frame)[-MAX_BYTES:])}:{number} in {frame.f_code.co_name[:MAX_BYTES]}"
        + (f": {shown}" if shown else "")
    )


def _statement(frame: FrameType, number: int) -> str:
    """The line of source; empty if it can't be read."""
    try:
        linecache.checkcache(_file(frame))
        return linecache.getline(_file(frame), number, frame.f_globals).strip()
    except Exception:  # a module's loader, or a file's name that no system has
        return ""


def _file(frame: FrameType) -> str:
    return frame.f_code.co_filename


def _printable(text: str) -> str:
    """A text without control characters and lone surrogates, which no table takes."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def _short(file: str) -> str:
    """A file as its author knows it: below the folder that Lambda or pip has put it in."""
    for root in _ROOTS:
        _, found, below = file.rpartition(root)
        if found:
            return below
    return "/".join(Path(file).parts[-2:])

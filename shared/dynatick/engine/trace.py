"""Where an attempt has failed: the last lines of a traceback, few and short, as a row keeps them."""

from __future__ import annotations

import traceback
from pathlib import Path

MAX_FRAMES = 4
MAX_CHARACTERS = 800
_MAX_STATEMENT = 120
_PACKAGE = str(Path(__file__).parents[1])
_ROOTS = ("/opt/python/", "/var/task/", "site-packages/", "dist-packages/")


def trace_of(error: BaseException) -> str | None:
    """One line for each frame, the innermost last: ``handlers.py:14 in send: deliver(mail)``. Dynatick's own frames are
    left out, and so are values of variables. None: there is no other frame."""
    frames = _frames(error)
    if not frames and error.__cause__ is not None:  # raised in place of the handler's own
        frames = _frames(error.__cause__)
    lines = [_line(frame) for frame in frames[-MAX_FRAMES:]]
    while len("\n".join(lines)) > MAX_CHARACTERS and len(lines) > 1:
        del lines[0]
    return "\n".join(lines)[:MAX_CHARACTERS] or None


def _frames(error: BaseException) -> list[traceback.FrameSummary]:
    return [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(_PACKAGE)]


def _line(frame: traceback.FrameSummary) -> str:
    statement = (frame.line or "").strip()
    shown = statement if len(statement) <= _MAX_STATEMENT else statement[: _MAX_STATEMENT - 1] + "…"
    return f"{_short(frame.filename)}:{frame.lineno} in {frame.name}" + (f": {shown}" if shown else "")


def _short(file: str) -> str:
    """A file as its author knows it: below the folder that Lambda or pip has put it in."""
    for root in _ROOTS:
        _, found, below = file.rpartition(root)
        if found:
            return below
    return "/".join(Path(file).parts[-2:])

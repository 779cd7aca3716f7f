"""Which errors are the same one: those that differ only in what names a single thing."""

from __future__ import annotations

import re

_MAX = 300

_MAIL = re.compile(r"[^\s'\"<>(),;:]+@[^\s'\"<>(),;:]+")
_NAMED = re.compile(r"(?<![\w-])(?=[\w-]*\d)[\w-]{4,}(?![\w-])", re.ASCII)  # an id, a long number, a date


def shape(error: str) -> str:
    """The first line of an error, with ``…`` for addresses, and for words of four characters or more with a digit."""
    line = error.strip().partition("\n")[0][:_MAX]
    return _NAMED.sub("…", _MAIL.sub("…", line))

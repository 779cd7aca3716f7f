"""The pattern of an error: errors that differ only in an id, an address or a number have the same one."""

from __future__ import annotations

import re

_MAX = 300

_MAIL = re.compile(r"[^\s'\"<>(),;:]+@[^\s'\"<>(),;:]+")
_NAMED = re.compile(r"(?<![\w-])(?=[\w-]*\d)[\w-]{4,}(?![\w-])", re.ASCII)  # an id, a long number, a date


def error_pattern(error: str) -> str:
    """Returns the first line of an error, with ``…`` for addresses and for words of four characters or more with a
    digit."""
    line = error.strip().partition("\n")[0][:_MAX]
    return _NAMED.sub("…", _MAIL.sub("…", line))

"""How the parts of the parser say that something is wrong, and where."""

from __future__ import annotations


class Refused(Exception):
    """The reason, and the index of the character that it is about, if it is about one."""

    def __init__(self, reason: str, index: int | None = None) -> None:
        super().__init__(reason if index is None else f"at character {index + 1}: {reason}")

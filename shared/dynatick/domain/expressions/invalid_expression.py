"""The error of the parser's parts, with its position."""

from __future__ import annotations


class InvalidExpression(Exception):
    """The text is not an expression. ``index``: of the character that is wrong, if it is one."""

    def __init__(self, reason: str, index: int | None = None) -> None:
        super().__init__(reason if index is None else f"at character {index + 1}: {reason}")

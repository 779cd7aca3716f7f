"""Text for terminals, and commands for shells: a task's id, or what a file names, may hold anything. Pure."""

from __future__ import annotations

import shlex


def printable(text: str) -> str:
    """The text with control characters escaped."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def one_line(text: str) -> str:
    """The text on one line, without control characters."""
    return printable(" ".join(text.split()))


def suggested(command: str, *arguments: str) -> str:
    """A command to paste into a shell, with its arguments quoted."""
    options_end = ("--",) if any(argument.startswith("-") for argument in arguments) else ()
    return " ".join([command, *options_end, *map(quoted, arguments)])


def quoted(argument: str) -> str:
    """One argument of a command to paste into a shell."""
    return shlex.quote(printable(argument))

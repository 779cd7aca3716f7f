"""``dynatick task import``: a file of tasks, one JSON object a line."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from dynatick.cli.exits import CommandFailed, ExitCode
from dynatick.cli.output import one_line, say, show_one
from dynatick.cli.session import Session
from dynatick.cli.values import json_of
from dynatick.errors import InvalidInput

MAX_LINE_BYTES = 4 * 1024 * 1024  # no item comes near it
_EVERY = 10_000  # results between two messages, where no terminal shows a bar
_PATIENCE = 200  # failures in a row after which the table is taken to be away


@dataclass(slots=True)
class _Lines:
    """The tasks of a file, with the numbers of the lines that are under way. What is no task is told at once."""

    file: IO[bytes]
    numbers: deque[int] = field(default_factory=deque)
    refused: int = 0
    bytes_read: int = 0

    def __iter__(self) -> Iterator[Mapping[str, object]]:
        number = 0
        while line := self.file.readline(MAX_LINE_BYTES + 1):
            number += 1
            self.bytes_read += len(line)
            if len(line) > MAX_LINE_BYTES:
                raise CommandFailed(ExitCode.INVALID, f"line {number} is longer than {MAX_LINE_BYTES} bytes")
            try:
                row = _task_of(line, first=number == 1)
            except InvalidInput as error:
                self.refused += 1
                say(f"line {number}: {one_line(str(error))}")
                continue
            if row is not None:
                self.numbers.append(number)
                yield row


def import_tasks(session: Session, name: str) -> None:
    """Inserts the tasks of a file and prints how many of which fate. Raises CommandFailed if not all are in."""
    from dynatick.client import Exists, Failed, Inserted, Refused

    client = session.client()
    counts = {"inserted": 0, "exists": 0, "refused": 0, "failed": 0}
    failures = 0  # in a row
    with _opened(name) as (file, size), _progress(size) as advance:
        lines = _Lines(file)
        for result in client.insert_many(lines):
            number = lines.numbers.popleft()
            match result:
                case Inserted():
                    counts["inserted"] += 1
                case Exists():
                    counts["exists"] += 1
                case Refused(error=refusal):
                    counts["refused"] += 1
                    say(f"line {number}: {one_line(str(refusal))}")
                case Failed(error=failure):
                    counts["failed"] += 1
                    say(f"line {number}: {one_line(str(failure))}")
            failures = failures + 1 if isinstance(result, Failed) else 0
            if failures >= _PATIENCE:
                break
            advance(lines.bytes_read, counts)
        counts["refused"] += lines.refused
    show_one(counts, session.output)
    if failures >= _PATIENCE:
        message = f"stopped at line {number}: {failures} failures in a row; import the file again, what is in stays"
        raise CommandFailed(ExitCode.UNREACHABLE, message)
    if counts["failed"]:
        raise CommandFailed(
            ExitCode.UNREACHABLE, f"{counts['failed']} tasks could not be inserted; import the file again"
        )
    if counts["refused"]:
        raise CommandFailed(ExitCode.INVALID, f"{counts['refused']} lines were refused; the other tasks are in")


def _task_of(line: bytes, *, first: bool) -> Mapping[str, object] | None:
    """The task of a line; None if the line is empty. Raises InvalidInput."""
    try:
        text = line.decode("utf-8-sig" if first else "utf-8").strip()
    except UnicodeDecodeError as error:
        raise InvalidInput("line", line, f"expected UTF-8: {error.reason}") from None
    if not text:
        return None
    row = json_of(text, "line")
    if not isinstance(row, dict):
        raise InvalidInput("line", row, "expected a JSON object with taskId")
    return row


@contextmanager
def _opened(name: str) -> Iterator[tuple[IO[bytes], int | None]]:
    """The file, and its size where that is known."""
    if name == "-":
        yield sys.stdin.buffer, None
        return
    with ExitStack() as opened:
        path = Path(name)
        try:
            file = opened.enter_context(path.open("rb"))
        except OSError as error:
            raise CommandFailed(ExitCode.NOT_FOUND, f"cannot read {name}: {error.strerror}") from error
        yield file, path.stat().st_size if path.is_file() else None


@contextmanager
def _progress(size: int | None) -> Iterator[Callable[[int, Mapping[str, int]], None]]:
    """Something that shows how far it has come: a bar on a terminal, else a line now and then."""
    if not sys.stderr.isatty():
        yield _tell
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn("Importing"), BarColumn(), TextColumn("{task.fields[said]}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        job = bar.add_task("", total=size, said="")
        yield lambda read, counts: bar.update(job, completed=read, said=_said(counts))


def _tell(_read: int, counts: Mapping[str, int]) -> None:
    if sum(counts.values()) % _EVERY == 0:
        say(_said(counts))


def _said(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {fate}" for fate, number in counts.items() if number)

"""``dynatick task export``: the tasks of a bucket or a range, as a file that can be imported again."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from dynatick.bulk.formats import FileFormat
from dynatick.cli.exits import CommandFailed, ExitCode
from dynatick.cli.output import say
from dynatick.errors import StoreError

if TYPE_CHECKING:
    from dynatick.domain.task import Row

_EVERY = 10_000  # tasks between two messages, where no terminal shows a line


@dataclass(slots=True)
class _Counted:
    """Rows on their way, counted; and the bucket of the latest."""

    rows: Iterable[Row]
    advance: Callable[[int, str], None]
    number: int = 0
    bucket: str = ""

    def __iter__(self) -> Iterator[Row]:
        for row in self.rows:
            self.number, self.bucket = self.number + 1, str(row.get("taskDateTime"))
            yield row
            self.advance(self.number, self.bucket)


def export_tasks(rows: Iterable[Row], form: FileFormat, file: str, *, with_state: bool) -> None:
    """Writes rows to a file, or to stdout (``-``), as they come. Raises CommandFailed."""
    from dynatick.bulk.export import export_lines

    with _progress() as advance, _opened(file) as out:
        counted = _Counted(rows, advance)
        try:
            for line in export_lines(counted, form, with_state=with_state):
                out.write(line)
        except (StoreError, KeyboardInterrupt):
            if counted.bucket:
                say(f"{counted.number} written, up to the bucket {counted.bucket}; go on with --from {counted.bucket}")
            raise
    say(f"{counted.number} exported")


@contextmanager
def _opened(name: str) -> Iterator[TextIO]:
    if name == "-":
        yield sys.stdout
        sys.stdout.flush()
        return
    with ExitStack() as opened:
        try:
            # Rows of CSV bring their own ends.
            file = opened.enter_context(Path(name).open("w", encoding="utf-8", newline=""))
        except OSError as error:
            raise CommandFailed(ExitCode.NOT_FOUND, f"cannot write {name}: {error.strerror}") from error
        yield file


@contextmanager
def _progress() -> Iterator[Callable[[int, str], None]]:
    """Something that shows how far it has come: a line that changes on a terminal, else a line now and then."""
    if not sys.stderr.isatty() or sys.stdout.isatty():  # lines of two kinds on one terminal would be a mess
        yield _tell
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn

    columns = (SpinnerColumn(), TextColumn("Exporting  {task.fields[said]}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        job = bar.add_task("", total=None, said="")
        yield lambda number, bucket: bar.update(job, said=f"{number} tasks, {bucket}")


def _tell(number: int, _bucket: str) -> None:
    if number % _EVERY == 0:
        say(f"{number} exported")

"""``dynatick task export``, ``schedule export``: writes rows to a file that can be imported again."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, cast

import typer

from dynatick.bulk.record import FileFormat, format_of
from dynatick.cli.arguments import OutputFile, OutputFormat, SelectionOptions, Status
from dynatick.cli.checkpoint import Checkpoint
from dynatick.cli.exit_code import opening
from dynatick.cli.output import printable_lines, say
from dynatick.cli.session import Session, with_options
from dynatick.domain import attributes as attr
from dynatick.domain.row import RowView
from dynatick.domain.terminal_text import quoted
from dynatick.errors import InvalidInput, StoreError

if TYPE_CHECKING:
    from dynatick.domain.task import Row

    After = tuple[str, str]

_ROWS_PER_MESSAGE = 10_000  # without a terminal


@with_options
def export_file(
    session: Session,
    file: OutputFile = "-",
    *,
    selecting: SelectionOptions,
    status: Status = None,
    form: OutputFormat = None,
    state: Annotated[
        bool, typer.Option("--state", help="Also the state of each task: status, error and so on.")
    ] = False,
    restart: Annotated[
        bool, typer.Option("--restart", help="Begin anew, instead of continuing an interrupted run.")
    ] = False,
) -> None:
    """Write the tasks of a bucket, of a range or of a subject to a file that can be imported again.

    An interrupted export continues when it is run again with the same options; the file FILE.progress says where. With
    times relative to now it begins anew.
    """
    client = session.client()
    selection, chosen = selecting.select(client, status=status), chosen_format(form, file)
    arguments = {"table": session.address(client), **selection.words(), "state": state, "format": str(chosen)}

    def rows(after: After | None) -> Iterator[Row]:
        return client.export(selection, after=after)

    export_tasks(rows, file, chosen, arguments, restart=restart, with_state=state)


def chosen_format(form: FileFormat | None, file: str) -> FileFormat:
    """The named format, else the one of the file's name. Raises InvalidInput."""
    chosen = form or (FileFormat.NDJSON if file == "-" else format_of(file))
    if chosen is FileFormat.JSON:
        raise InvalidInput("format", str(chosen), "expected ndjson or csv")
    return chosen


def export_tasks(
    rows: Callable[[After | None], Iterable[Row]],
    file: str,
    form: FileFormat,
    arguments: Mapping[str, object],
    *,
    restart: bool = False,
    with_state: bool = False,
) -> None:
    """Writes rows to a file, or to stdout, as they come. Raises CommandFailed.

    Continues a file that an interrupted run has begun, by the same ``arguments``: which rows and how. ``rows``: returns
    those after a place.
    """
    from dynatick.bulk.export import export_lines

    path = Path(file)
    is_file = file != "-" and (path.is_file() or not path.exists())  # and neither a pipe nor a device
    checkpoint = Checkpoint(path, _Place.parse) if is_file else None
    place = None if checkpoint is None or restart else checkpoint.read()
    if place is not None and place.arguments != arguments:
        place = None
    if place is not None:
        say(f"Continuing after {place.number} rows, where the run before ended; --restart begins anew")
    with _progress(file) as advance, _opened(file, place) as out:
        run = _Run(out, advance, checkpoint, place or _Place(arguments=arguments))
        counted = run.counted(rows(None if place is None else place.after))
        try:
            run.write(export_lines(counted, form, with_state=with_state, heading=place is None))
        except (StoreError, KeyboardInterrupt):
            run.interrupted()
            raise
        if checkpoint is not None:
            checkpoint.forget()
    say(f"{run.place.number} exported")


def export_schedules(rows: Iterable[Row], form: FileFormat, file: str) -> None:
    """Writes schedules to a file, or to stdout. Raises CommandFailed."""
    from dynatick.bulk.export import export_lines
    from dynatick.bulk.task_definition import SCHEDULE_DEFINITION

    with _progress(file) as advance, _opened(file, None) as out:
        run = _Run(out, advance, None, _Place(arguments={}))
        run.write(export_lines(run.counted(rows), form, defines=SCHEDULE_DEFINITION))
    say(f"{run.place.number} exported")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Place:
    """How far an export is: ``number`` rows, up to the one whose bucket and id are ``after``."""

    offset: int = 0
    number: int = 0
    after: After | None = None
    arguments: Mapping[str, object]

    @classmethod
    def parse(cls, recorded: Mapping[str, Any]) -> _Place:
        """Raises TypeError, KeyError or ValueError for anything else than a recorded place."""
        bucket, task_id = recorded["after"]
        return cls(
            offset=int(recorded["offset"]),
            number=int(recorded["number"]),
            after=(str(bucket), str(task_id)),
            arguments=recorded["arguments"],
        )


@dataclass(slots=True)
class _Run:
    """Lines that are being written."""

    out: IO[bytes]
    advance: Callable[[int, str], None]
    checkpoint: Checkpoint[_Place] | None
    place: _Place
    _row: After | None = None  # of the row that is being written

    def counted(self, rows: Iterable[Row]) -> Iterator[Row]:
        for row in rows:
            self._row = (str(row.get(attr.TASK_DATE_TIME)), RowView(row).task_id)
            yield row

    def write(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.out.write(content := line.encode("utf-8"))
            offset = self.place.offset + len(content)
            if self._row is None:  # the heading
                self.place = replace(self.place, offset=offset)
                continue
            self.place = replace(self.place, offset=offset, number=self.place.number + 1, after=self._row)
            self.advance(self.place.number, self._row[0])
            self._keep()

    def interrupted(self) -> None:
        """Says how to continue."""
        if self.place.after is None:
            return
        if self.checkpoint is not None:
            self._keep(now=True)
            say(f"{self.place.number} written; run it again to continue")
        else:
            bucket = self.place.after[0]
            say(f"{self.place.number} written, up to the bucket {bucket}; continue with --from {quoted(bucket)}")

    def _keep(self, *, now: bool = False) -> None:
        if self.checkpoint is not None and (now or self.checkpoint.is_due):
            self.out.flush()
            self.checkpoint.keep(self.place, now=now)


class _Terminal:
    """Writes lines for a person: a cell may hold what a terminal would obey."""

    def write(self, content: bytes) -> None:
        sys.stdout.buffer.write(printable_lines(content.decode()).encode())

    def flush(self) -> None:
        sys.stdout.buffer.flush()


@contextmanager
def _opened(name: str, place: _Place | None) -> Iterator[IO[bytes]]:
    if name == "-":
        sys.stdout.flush()
        yield cast("IO[bytes]", _Terminal()) if sys.stdout.isatty() else sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    with ExitStack() as opened:
        with opening(name, "write"):
            file: IO[Any] = opened.enter_context(Path(name).open("wb" if place is None else "r+b"))
        if place is not None:
            file.truncate(place.offset)
            file.seek(place.offset)
        yield file


@contextmanager
def _progress(file: str) -> Iterator[Callable[[int, str], None]]:
    """Shows the progress: by a changing line on a terminal, unless rows go there, else by a line for every 10,000."""
    if not sys.stderr.isatty() or (file == "-" and sys.stdout.isatty()):
        yield _say_number
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn

    columns = (SpinnerColumn(), TextColumn("Exporting  {task.fields[written]}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        job = bar.add_task("", total=None, written="")
        yield lambda number, bucket: bar.update(job, written=f"{number} rows, {bucket}")


def _say_number(number: int, _bucket: str) -> None:
    if number % _ROWS_PER_MESSAGE == 0:
        say(f"{number} exported")

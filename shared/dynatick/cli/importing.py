"""``dynatick task import``: inserts the tasks of a file, or of stdin; ``schedule import`` of our own format, too."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from dynatick.bulk.record import FileFormat, Source, format_of
from dynatick.bulk.task_definition import PREFIX
from dynatick.cli.arguments import InputFile, InputFormat
from dynatick.cli.checkpoint import Checkpoint
from dynatick.cli.exit_code import CommandFailed, ExitCode, opening
from dynatick.cli.output import say, show_one
from dynatick.cli.session import Session, with_options
from dynatick.domain.terminal_text import one_line
from dynatick.errors import DynatickError, InvalidInput, TaskNotFound

if TYPE_CHECKING:
    from dynatick.bulk.importing import Import, LineError
    from dynatick.bulk.record import Read
    from dynatick.client.insertion import InsertCounts

_LINES_PER_MESSAGE = 10_000  # without a terminal


@dataclass(frozen=True, kw_only=True, slots=True)
class FileOptions:
    """The options of an import: how a file in our own format is read, and where its errors go."""

    form: InputFormat = None
    errors: Annotated[str | None, typer.Option(metavar="FILE", help="Where to write the refused lines, as NDJSON.")] = (
        None
    )
    id_prefix: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help=f"The prefix of derived ids, for lines without a taskId. Default: {PREFIX}."),
    ] = None
    drop_state: Annotated[
        bool, typer.Option("--drop-state", help="Ignore the state that an export with --state contains.")
    ] = False
    restart: Annotated[
        bool, typer.Option("--restart", help="Begin at the first line, instead of continuing an interrupted run.")
    ] = False


@with_options
def import_file(session: Session, file: InputFile, *, options: FileOptions) -> None:
    """Insert the tasks of a file, under the table's names (taskId, dueAt …). Existing tasks stay as they are.

    A line with a scheduleExpression becomes a schedule. An interrupted import continues when it is run again on
    the same table with the same options; the file FILE.progress says where.
    """
    import_tasks(session, file, options, schedules_only=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Place:
    """How far an import is."""

    offset: int
    line: int
    latest: str | None  # the id of the latest task that is in the table
    counts: Mapping[str, int]
    arguments: Mapping[str, object]  # where the tasks go, and how the file is read
    errors: int | None = None  # bytes of the file of errors

    @classmethod
    def of(cls, run: Import, arguments: Mapping[str, object], errors: ErrorsFile | None) -> _Place:
        return cls(
            offset=run.offset,
            line=run.line,
            latest=run.latest,
            counts=run.tally.to_row(),
            arguments=arguments,
            errors=None if errors is None else errors.size,
        )

    @classmethod
    def parse(cls, recorded: Mapping[str, Any]) -> _Place:
        """Raises TypeError, KeyError or ValueError for anything else than a recorded place."""
        from dynatick.client.insertion import InsertCounts

        place = cls(**recorded)
        numbers = (place.offset, place.line, *InsertCounts.from_row(place.counts).to_row().values())
        if not all(type(number) is int and number >= 0 for number in numbers):
            raise ValueError(recorded)
        return place


@dataclass(slots=True)
class ErrorsFile:
    """The file of ``--errors``: an NDJSON document for each line that was not inserted."""

    file: IO[bytes]
    size: int = 0

    def write(self, line: str) -> None:
        self.file.write(line.encode() + b"\n")
        self.size += len(line.encode()) + 1

    @classmethod
    def open(cls, path: Path, size: int | None) -> ErrorsFile:
        """Opens it empty, or with its first ``size`` bytes. Raises OSError."""
        kept = size is not None and path.is_file() and path.stat().st_size >= size
        file = path.open("r+b" if kept else "wb")
        if kept and size is not None:
            file.truncate(size)
            file.seek(size)
        return cls(file, size if kept and size is not None else 0)


def import_tasks(session: Session, file: str, options: FileOptions, *, schedules_only: bool) -> None:
    """Inserts the tasks of a file and prints the counts. Raises CommandFailed unless all are inserted."""
    from dynatick.bulk.file_reader import read
    from dynatick.bulk.importing import Import
    from dynatick.client.insertion import InsertCounts

    client = session.client()
    with ExitStack() as opened:
        source, path = open_source(file, opened)
        form = options.form or (FileFormat.NDJSON if path is None else format_of(path.name))
        id_prefix = PREFIX if options.id_prefix is None else options.id_prefix
        arguments = {
            "table": session.address(client),
            "format": str(form),
            "idPrefix": id_prefix,
            "dropState": options.drop_state,
            "schedulesOnly": schedules_only,
        }
        checkpoint = Checkpoint(path, _Place.parse) if path is not None and path.is_file() else None
        place = None if checkpoint is None or options.restart else checkpoint.read()
        if place is not None and (place.arguments != arguments or not _has_latest(client.get, place)):
            place = None
        if place is not None:
            say(f"Continuing at line {place.line}, where the run before ended; --restart begins anew")
        errors = _errors(options.errors, path, None if place is None else place.errors, opened)
        run = Import(
            insert_rows=client.insert_rows,
            report=_say_error if errors is None else lambda error: errors.write(error.to_json()),
            id_prefix=id_prefix,
            drop_state=options.drop_state,
            schedules_only=schedules_only,
        )
        if place is not None:
            run.offset, run.line, run.latest = place.offset, place.line, place.latest
            run.tally = InsertCounts.from_row(place.counts)
        here = _Place.of(run, arguments, errors)
        with _progress(None if path is None or checkpoint is None else path.stat().st_size) as advance:
            try:
                for _ in run.run(read(source, form, offset=run.offset, number=run.line)):
                    if run.offset != here.offset:
                        here = _Place.of(run, arguments, errors)
                        if checkpoint is not None:
                            checkpoint.keep(here)
                    advance(run.offset, run.tally)
            except (KeyboardInterrupt, DynatickError, OSError):
                _keep(checkpoint, here, errors)
                raise
        if run.complete and not run.tally.unknown:
            if checkpoint is not None:
                checkpoint.forget()
        else:
            _keep(checkpoint, here, errors)
    show_one(run.tally.to_row(), session.output)
    if run.complete and not run.tally.total:
        say("The file is empty")
    _judge(run, options.errors)


def _judge(run: Import, errors: str | None) -> None:
    """Raises CommandFailed unless all tasks are in the table."""
    tally = run.tally
    where = "" if errors is None else f"; see {errors}"
    if run.gave_up:
        message = f"the table took none of the last lines, from line {run.line} on; run it again to continue there"
        raise CommandFailed(ExitCode.UNREACHABLE, message + where)
    if tally.unknown:
        tasks = "1 task" if tally.unknown == 1 else f"{tally.unknown} tasks"
        message = f"{tasks} got no answer; run it again to continue at line {run.line}"
        raise CommandFailed(ExitCode.UNREACHABLE, message + where)
    if tally.refused:
        lines = "1 line was" if tally.refused == 1 else f"{tally.refused} lines were"
        others = (
            "the others" if run.unreadable is None else f"nothing after line {run.unreadable} was read; those before"
        )
        raise CommandFailed(ExitCode.INVALID, f"{lines} refused; {others} were inserted{where}")


def _has_latest(get: Callable[[str], object], place: _Place) -> bool:
    """Whether the table has the latest task of the run before: it may have been created anew since."""
    if place.latest is None:
        return False
    try:
        get(place.latest)
    except (TaskNotFound, InvalidInput):
        return False
    return True


def _keep(checkpoint: Checkpoint[_Place] | None, place: _Place, errors: ErrorsFile | None) -> None:
    if errors is not None:
        errors.file.flush()
    if checkpoint is not None and place.latest is not None:
        checkpoint.keep(place, now=True)


def open_source(name: str, opened: ExitStack) -> tuple[Source, Path | None]:
    """Opens the file, and its path; None for stdin."""
    if name == "-":
        return lambda _offset: sys.stdin.buffer.read, None
    path = Path(name)
    with opening(name):
        unread = [opened.enter_context(path.open("rb"))]  # a pipe that is closed loses what was written into it

    def open_at(offset: int) -> Read:
        file = unread.pop() if unread else opened.enter_context(path.open("rb"))
        if offset:
            file.seek(offset)
        return file.read

    return open_at, path


def _errors(name: str | None, path: Path | None, size: int | None, opened: ExitStack) -> ErrorsFile | None:
    if name is None:
        return None
    target = Path(name)
    if path is not None and target.exists() and target.samefile(path):
        raise CommandFailed(ExitCode.USAGE, "--errors names the file that is imported")
    return errors_file(name, opened, size)


def errors_file(name: str, opened: ExitStack, size: int | None = None) -> ErrorsFile:
    """Opens the file of ``--errors``. Raises CommandFailed."""
    with opening(name, "write"):
        errors = ErrorsFile.open(Path(name), size)
    opened.enter_context(errors.file)
    return errors


def _say_error(error: LineError) -> None:
    say(f"line {error.line}: {one_line(error.message)}")


@contextmanager
def _progress(size: int | None) -> Iterator[Callable[[int, InsertCounts], None]]:
    """Shows the progress: by a bar on a terminal, else by a line for every 10,000 lines."""
    if not sys.stderr.isatty():
        yield _say_counts
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("Importing"), BarColumn(), TimeRemainingColumn(), TextColumn("{task.fields[counts]}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        job = bar.add_task("", total=size, counts="")
        yield lambda read, tally: bar.update(job, completed=read, counts=str(tally))


def _say_counts(_read: int, tally: InsertCounts) -> None:
    if tally.total % _LINES_PER_MESSAGE == 0:
        say(str(tally))

"""``dynatick task import``: the tasks of a file, or of stdin."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dynatick.bulk.file_format import FileFormat, format_of
from dynatick.bulk.record import Source
from dynatick.cli.checkpoint import Checkpoint, ErrorsFile, Place
from dynatick.cli.exit_code import CommandFailed, ExitCode
from dynatick.cli.output import one_line, say, show_one
from dynatick.cli.session import Session
from dynatick.errors import DynatickError, InvalidInput, TaskNotFound

if TYPE_CHECKING:
    from dynatick.bulk.importing import Import, LineError, Tally
    from dynatick.bulk.line_reader import Read

_EVERY = 10_000  # lines between two messages, where no terminal shows a bar


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportOptions:
    """What the command line says of an import."""

    file: str  # - for stdin
    form: FileFormat | None  # None: by the file's name
    errors: str | None
    id_prefix: str
    drop_state: bool
    restart: bool
    schedules_only: bool


def import_tasks(session: Session, options: ImportOptions) -> None:
    """Inserts the tasks of a file and prints how many of which fate. Raises CommandFailed if not all are in."""
    from dynatick.bulk.file_reader import read
    from dynatick.bulk.importing import Import, Tally

    client = session.client()
    with ExitStack() as opened:
        source, path = _source(options.file, opened)
        form = options.form or (FileFormat.NDJSON if path is None else format_of(path.name))
        checkpoint = Checkpoint(path) if path is not None and path.is_file() else None
        place = None if checkpoint is None or options.restart else checkpoint.read()
        if place is not None and not _is_in(client.get, place):
            place = None
        if place is not None:
            say(f"Going on at line {place.line}, where the run before ended; --restart begins anew")
        errors = _errors(options, path, None if place is None else place.errors, opened)
        run = Import(
            insert_rows=client.insert_rows,
            report=_say if errors is None else lambda error: errors.write(error.to_json()),
            id_prefix=options.id_prefix,
            drop_state=options.drop_state,
            schedules_only=options.schedules_only,
        )
        if place is not None:
            run.offset, run.line, run.latest, run.tally = place.offset, place.line, place.latest, Tally(**place.counts)
        here = _place(run, errors)
        with _progress(None if path is None or checkpoint is None else path.stat().st_size) as advance:
            try:
                for _ in run.run(read(source, form, offset=run.offset, number=run.line)):
                    if run.offset != here.offset:
                        here = _place(run, errors)
                        if checkpoint is not None:
                            checkpoint.keep(here)
                    advance(run.offset, run.tally)
            except (KeyboardInterrupt, DynatickError, OSError):
                _keep(checkpoint, here, errors)
                raise
        if run.complete and not run.tally.failed:
            if checkpoint is not None:
                checkpoint.forget()
        else:
            _keep(checkpoint, here, errors)
    show_one(run.tally.to_row(), session.output)
    if run.complete and not run.tally.total:
        say("There is nothing in it")
    _judge(run, options)


def _judge(run: Import, options: ImportOptions) -> None:
    """Raises CommandFailed if not all tasks are in."""
    tally = run.tally
    where = "" if options.errors is None else f"; see {options.errors}"
    if run.gave_up:
        message = f"the table took none of the last lines, up to line {run.line}; run it again to go on there"
        raise CommandFailed(ExitCode.UNREACHABLE, message + where)
    if tally.failed:
        tasks = "1 task" if tally.failed == 1 else f"{tally.failed} tasks"
        message = f"{tasks} could not be inserted; run it again to go on at line {run.line}"
        raise CommandFailed(ExitCode.UNREACHABLE, message + where)
    if tally.refused:
        lines = "1 line was" if tally.refused == 1 else f"{tally.refused} lines were"
        raise CommandFailed(ExitCode.INVALID, f"{lines} refused; the others are in{where}")


def _is_in(get: Callable[[str], object], place: Place) -> bool:
    """Whether the table has what the run before has inserted: it may have been another one."""
    if place.latest is None:
        return False
    try:
        get(place.latest)
    except (TaskNotFound, InvalidInput):
        return False
    return True


def _place(run: Import, errors: ErrorsFile | None) -> Place:
    return Place(
        offset=run.offset,
        line=run.line,
        latest=run.latest,
        counts=run.tally.to_row(),
        errors=None if errors is None else errors.size,
    )


def _keep(checkpoint: Checkpoint | None, place: Place, errors: ErrorsFile | None) -> None:
    if errors is not None:
        errors.file.flush()
    if checkpoint is not None and place.latest is not None:
        checkpoint.keep(place, now=True)


def _source(name: str, opened: ExitStack) -> tuple[Source, Path | None]:
    """What reads the file, and its path; None for stdin."""
    if name == "-":
        return lambda _offset: sys.stdin.buffer.read, None
    path = Path(name)

    def open_at(offset: int) -> Read:
        file = opened.enter_context(path.open("rb"))
        if offset:
            file.seek(offset)
        return file.read

    try:
        with path.open("rb") as file:
            file.seekable()
    except OSError as error:
        raise CommandFailed(ExitCode.NOT_FOUND, f"cannot read {name}: {error.strerror}") from error
    return open_at, path


def _errors(options: ImportOptions, path: Path | None, size: int | None, opened: ExitStack) -> ErrorsFile | None:
    if options.errors is None:
        return None
    target = Path(options.errors)
    if path is not None and target.exists() and target.samefile(path):
        raise CommandFailed(ExitCode.USAGE, "--errors names the file that is imported")
    try:
        errors = ErrorsFile.open(target, size)
    except OSError as error:
        raise CommandFailed(ExitCode.NOT_FOUND, f"cannot write {options.errors}: {error.strerror}") from error
    opened.enter_context(errors.file)
    return errors


def _say(error: LineError) -> None:
    say(f"line {error.line}: {one_line(error.message)}")


@contextmanager
def _progress(size: int | None) -> Iterator[Callable[[int, Tally], None]]:
    """Something that shows how far it has come: a bar on a terminal, else a line now and then."""
    if not sys.stderr.isatty():
        yield _tell
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("Importing"), BarColumn(), TimeRemainingColumn(), TextColumn("{task.fields[said]}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        job = bar.add_task("", total=size, said="")
        yield lambda read, tally: bar.update(job, completed=read, said=str(tally))


def _tell(_read: int, tally: Tally) -> None:
    if tally.total % _EVERY == 0:
        say(str(tally))

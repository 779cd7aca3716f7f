"""``dynatick task export``, ``schedule export``: rows as a file that can be imported again."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from dynatick.bulk.file_format import FileFormat, format_of
from dynatick.cli.checkpoint import ENDING, digest
from dynatick.cli.exit_code import CommandFailed, ExitCode
from dynatick.cli.output import say
from dynatick.errors import InvalidInput, StoreError

if TYPE_CHECKING:
    from dynatick.domain.task import Row

    After = tuple[str, str]

_EVERY = 10_000  # rows between two messages, where no terminal shows a line
_NOTED_EVERY = 1.0  # seconds: what a killed run does again


@dataclass(frozen=True, kw_only=True, slots=True)
class ExportOptions:
    """What the command line says of an export. ``asked``: which rows, and how; only the same can go on."""

    file: str  # - for stdout
    form: FileFormat
    asked: Mapping[str, object]
    restart: bool = False
    with_state: bool = False


def chosen_format(form: FileFormat | None, file: str) -> FileFormat:
    """The format that is named, else that of the file's name. Raises InvalidInput."""
    chosen = form or (FileFormat.NDJSON if file == "-" else format_of(file))
    if chosen is FileFormat.JSON:
        raise InvalidInput("format", str(chosen), "expected ndjson or csv")
    return chosen


def export_tasks(rows: Callable[[After | None], Iterable[Row]], options: ExportOptions) -> None:
    """Writes the rows after a place to a file, or to stdout, as they come. Raises CommandFailed.

    A file that an interrupted run has begun is gone on with.
    """
    from dynatick.bulk.export import export_lines

    path = Path(options.file)
    is_file = options.file != "-" and (path.is_file() or not path.exists())  # and neither a pipe nor a device
    note = _Note(path, options.asked) if is_file else None
    place = None if note is None or options.restart else note.read()
    if place is not None:
        say(f"Going on after {place.number} rows, where the run before ended; --restart begins anew")
    with _progress(options.file) as advance, _opened(options.file, place) as out:
        run = _Run(out, advance, note, place or _Place())
        counted = run.counted(rows(None if place is None else place.after))
        try:
            run.write(export_lines(counted, options.form, with_state=options.with_state, heading=place is None))
        except (StoreError, KeyboardInterrupt):
            run.interrupted()
            raise
        if note is not None:
            note.forget()
    say(f"{run.place.number} exported")


def export_schedules(rows: Iterable[Row], form: FileFormat, file: str) -> None:
    """Writes schedules to a file, or to stdout. Raises CommandFailed."""
    from dynatick.bulk.export import export_lines
    from dynatick.bulk.task_definition import SCHEDULE_DEFINITION

    with _progress(file) as advance, _opened(file, None) as out:
        run = _Run(out, advance, None, _Place())
        run.write(export_lines(run.counted(rows), form, defines=SCHEDULE_DEFINITION))
    say(f"{run.place.number} exported")


@dataclass(slots=True)
class _Place:
    """How far an export is: so many rows and bytes, up to the row whose bucket and id are ``after``."""

    number: int = 0
    size: int = 0
    after: After | None = None


@dataclass(slots=True)
class _Note:
    """The note beside the file, of how far it is. A folder that cannot be written to costs the note alone."""

    file: Path
    asked: Mapping[str, object]
    _noted_at: float = -_NOTED_EVERY

    @property
    def path(self) -> Path:
        return self.file.with_name(self.file.name + ENDING)

    def read(self) -> _Place | None:
        """The place that is noted; None if there is none, if something else was asked, or the file is not as it was."""
        try:
            noted = json.loads(self.path.read_bytes())
            bucket, task_id = noted["after"]
            place = _Place(int(noted["number"]), int(noted["size"]), (str(bucket), str(task_id)))
            fits = noted["asked"] == dict(self.asked) and self.file.stat().st_size >= place.size > 0
            fits = fits and noted["digest"] == digest(self.file, place.size)
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return place if fits else None

    def keep(self, place: _Place, out: IO[bytes], *, now: bool = False) -> None:
        """Notes a place, every second or so; ``now``: at once."""
        if place.after is None or not (now or time.monotonic() - self._noted_at >= _NOTED_EVERY):
            return
        self._noted_at = time.monotonic()
        out.flush()
        noted = {"asked": dict(self.asked), "number": place.number, "size": place.size, "after": place.after}
        partial = self.path.with_name(self.path.name + ".partial")
        try:
            noted["digest"] = digest(self.file, place.size)
            partial.write_text(json.dumps(noted))
            partial.replace(self.path)
        except OSError:
            pass  # then a run that is interrupted begins anew

    def forget(self) -> None:
        """All is written."""
        self.path.unlink(missing_ok=True)


@dataclass(slots=True)
class _Run:
    """Lines on their way."""

    out: IO[bytes]
    advance: Callable[[int, str], None]
    note: _Note | None
    place: _Place
    _row: After | None = None  # of the row that is being written

    def counted(self, rows: Iterable[Row]) -> Iterator[Row]:
        for row in rows:
            self._row = (str(row.get("taskDateTime")), str(row["taskId"]))
            yield row

    def write(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.out.write(content := line.encode("utf-8"))
            self.place.size += len(content)
            if self._row is None:  # the heading
                continue
            self.place.number, self.place.after = self.place.number + 1, self._row
            self.advance(self.place.number, self._row[0])
            if self.note is not None:
                self.note.keep(self.place, self.out)

    def interrupted(self) -> None:
        """Says how to go on."""
        if self.place.after is None:
            return
        if self.note is not None:
            self.note.keep(self.place, self.out, now=True)
            say(f"{self.place.number} written; run it again to go on")
        else:
            bucket = self.place.after[0]
            say(f"{self.place.number} written, up to the bucket {bucket}; go on with --from {bucket}")


@contextmanager
def _opened(name: str, place: _Place | None) -> Iterator[IO[bytes]]:
    if name == "-":
        sys.stdout.flush()
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    with ExitStack() as opened:
        try:
            file: IO[Any] = opened.enter_context(Path(name).open("wb" if place is None else "r+b"))
        except OSError as error:
            raise CommandFailed(ExitCode.NOT_FOUND, f"cannot write {name}: {error.strerror}") from error
        if place is not None:
            file.truncate(place.size)
            file.seek(place.size)
        yield file


@contextmanager
def _progress(file: str) -> Iterator[Callable[[int, str], None]]:
    """Something that shows how far it has come: a line that changes on a terminal, else a line now and then."""
    # Lines of two kinds on one terminal would be a mess.
    if not sys.stderr.isatty() or (file == "-" and sys.stdout.isatty()):
        yield _tell
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn

    columns = (SpinnerColumn(), TextColumn("Exporting  {task.fields[said]}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        job = bar.add_task("", total=None, said="")
        yield lambda number, bucket: bar.update(job, said=f"{number} rows, {bucket}")


def _tell(number: int, _bucket: str) -> None:
    if number % _EVERY == 0:
        say(f"{number} exported")

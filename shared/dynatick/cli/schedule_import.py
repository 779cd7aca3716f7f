"""``dynatick schedule import``: of our own format, or converted from that of another scheduler."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dynatick.bulk.conversion import Conversion, Origin
from dynatick.cli.arguments import InputFile
from dynatick.cli.exit_code import CommandFailed, ExitCode, opening
from dynatick.cli.importing import FileOptions, errors_file, import_tasks
from dynatick.cli.output import Column, say, show_many, show_one
from dynatick.cli.session import Session, with_options
from dynatick.domain import attributes as attr
from dynatick.domain.instants import format_instant
from dynatick.domain.terminal_text import one_line
from dynatick.errors import InvalidInput, StoreError

if TYPE_CHECKING:
    from dynatick.client import TaskClient

_NEXT = 5  # occurrences that a dry run shows
_COLUMNS = (
    Column("LINE", "line", right=True, spare=1),
    Column("SCHEDULE", attr.TASK_ID, folds=True),
    Column("EXPRESSION", attr.SCHEDULE_EXPRESSION, folds=True),
    Column("ZONE", attr.SCHEDULE_EXPRESSION_TIMEZONE, spare=1),
    Column("ACTION", attr.ACTION, spare=1),
    Column("NEXT OCCURRENCES", "nextOccurrences", folds=True),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ConversionOptions:
    """What converts a file of another scheduler."""

    from_: Annotated[
        Origin | None, typer.Option("--from", help="Convert the file of another scheduler, instead of ours.")
    ] = None
    action: Annotated[
        str | None, typer.Option(help="Of a crontab: the action, whose payload has the command. Required for it.")
    ] = None
    tz: Annotated[
        str | None, typer.Option("--tz", metavar="ZONE", help="Of a crontab: its time zone before a CRON_TZ.")
    ] = None
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="With --from: show them, and insert none. Checks payloads if a table is named."),
    ] = False


@with_options
def import_file(session: Session, file: InputFile, *, conversion: ConversionOptions, options: FileOptions) -> None:
    """Insert the schedules of a file. Each line needs a scheduleExpression. Existing schedules stay as they are.

    With --from, the file is what `aws scheduler get-schedule` or `crontab -l` prints. Each schedule is converted, or
    refused with the reason; what is other than before is said.
    """
    if conversion.from_ is None:
        if conversion.dry_run or conversion.action is not None or conversion.tz is not None:
            raise CommandFailed(ExitCode.USAGE, "--dry-run, --action and --tz need --from")
        import_tasks(session, file, options, schedules_only=True)
        return
    if options.form is not None or options.drop_state or options.restart:
        raise CommandFailed(ExitCode.USAGE, "--format, --drop-state and --restart have no effect with --from")
    found = _converted(session, file, conversion.from_, conversion, options.id_prefix)
    if not found:
        say("The file has no schedules")
    if conversion.dry_run:
        _show(session, found, options.errors)
    else:
        _insert(session, found, options.errors)


def _converted(
    session: Session, file: str, origin: Origin, options: ConversionOptions, id_prefix: str | None
) -> list[Conversion]:
    """Raises CommandFailed and InvalidInput."""
    text, now = _text(file), session.clock()
    if origin is Origin.CRONTAB:
        from dynatick.bulk.crontab import read_crontab

        if not options.action:
            raise CommandFailed(ExitCode.USAGE, "--from crontab needs --action NAME, a handler that runs the command")
        return list(read_crontab(text, action=options.action, zone=options.tz, now=now, id_prefix=id_prefix or ""))
    from dynatick.bulk.eventbridge_scheduler import read_eventbridge_scheduler

    if options.action is not None or options.tz is not None:
        raise CommandFailed(ExitCode.USAGE, "--action and --tz are for --from crontab; each schedule has its own")
    return list(read_eventbridge_scheduler(text, id_prefix=id_prefix or ""))


def _text(file: str) -> str:
    """Raises CommandFailed, and InvalidInput for a file that is not UTF-8."""
    with opening(file):
        content = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput("file", content[:200], f"expected UTF-8: {error.reason}") from None


def _insert(session: Session, found: Sequence[Conversion], errors: str | None) -> None:
    """Inserts them and prints the counts. Raises CommandFailed unless all are in the table."""
    from dynatick.bulk.importing import Import
    from dynatick.bulk.record import Record

    client = session.client()
    _say_notes(found)
    schedules = _schedules(found)
    records = (
        Record(line=number, end=number, next_line=number + 1, text=one.text, row=one.row, error=one.error)
        for number, one in enumerate(schedules)
    )
    with _report(errors) as report:
        run = Import(
            insert_rows=client.insert_rows,
            report=lambda error: report(schedules[error.line], error.field, error.message),
            schedules_only=True,
        )
        for _ in run.run(records):
            pass
    show_one(run.tally.to_row(), session.output)
    if run.tally.unknown:
        message = f"{run.tally.unknown} of {len(schedules)} got no answer; run it again"
        raise CommandFailed(ExitCode.UNREACHABLE, message)
    _judge(run.tally.refused, "refused; the others were inserted")


def _show(session: Session, found: Sequence[Conversion], errors: str | None) -> None:
    """Inserts them into a table in memory, and shows what they are and when they run. Raises CommandFailed."""
    from dynatick.client import Exists, Refused

    now = session.clock().replace(microsecond=0)
    _say_notes(found)
    client = _trial(session, now)
    rows: list[dict[str, object]] = []
    refused = 0
    with _report(errors) as report:
        for one in _schedules(found):
            error, exists = one.error, False
            for result in () if one.row is None else client.insert_rows([one.row]):
                exists = exists or isinstance(result, Exists)
                if isinstance(result, Refused):
                    error = result.error
            if error is not None:
                refused += 1
                report(one, error.field, str(error))
            elif exists:
                _say_of(one, "the file has the same schedule, or another of its id, before: it is inserted once")
            else:
                rows.append(_row(one, now))
    show_many(rows, _COLUMNS, session.output, name="schedules")
    _judge(refused, "would be refused; the others would be inserted")


def _trial(session: Session, now: datetime) -> TaskClient:
    """A client of a table in memory that has the settings of the one that is named, if one is: by these, actions and
    payloads are checked as in an insert."""
    from dynatick.client import TaskClient
    from dynatick.engine.settings import SETTINGS_ID
    from dynatick.store.memory import MemoryStore

    store = MemoryStore()
    try:
        if session.names_table():
            settings = session.client().store.get(SETTINGS_ID)
            if settings is not None:
                store.put(settings)
        else:
            say("note: no table is named, so actions and payloads are not checked")
    except StoreError as error:
        say(f"note: actions and payloads are not checked: {one_line(str(error))}")
    return TaskClient(store, clock=lambda: now)


@contextmanager
def _report(errors: str | None) -> Iterator[Callable[[Conversion, str, str], None]]:
    """Reports a refused schedule with field and message: on stderr, or as a line of JSON of a file."""
    from dynatick.bulk.importing import LineError

    if errors is None:
        yield lambda one, field, message: _say_of(one, message)
        return
    with ExitStack() as opened:
        file = errors_file(errors, opened)
        yield lambda one, field, message: file.write(LineError(one.line, field, message, one.text).to_json())


def _row(one: Conversion, now: datetime) -> dict[str, object]:
    """A schedule as it would be, and its next occurrences, a paused one's too; a rate without a start counts from
    ``now``."""
    from dynatick.domain.expressions import Rate, upcoming
    from dynatick.domain.schedule import Schedule

    assert one.row is not None
    schedule = Schedule.from_row(one.row)
    start = schedule.start or (now if isinstance(schedule.expression, Rate) else None)
    following = islice(upcoming(schedule.expression, now, zone=schedule.zone, start=start, end=schedule.end), _NEXT)
    return {
        "line": one.line,
        **one.row,
        "nextOccurrences": [format_instant(occurrence.instant) for occurrence in following],
        "notes": list(one.notes),
    }


def _schedules(found: Sequence[Conversion]) -> list[Conversion]:
    """Returns the conversions that are more than notes."""
    return [one for one in found if one.row is not None or one.error is not None]


def _say_notes(found: Sequence[Conversion]) -> None:
    for one in found:
        for note in one.notes:
            _say_of(one, f"note: {note}")


def _say_of(one: Conversion, message: str) -> None:
    say(f"{one_line(one.name)}: {one_line(message)}")


def _judge(refused: int, what: str) -> None:
    """Raises CommandFailed if any was refused."""
    if refused:
        raise CommandFailed(ExitCode.INVALID, f"{refused} {'schedule' if refused == 1 else 'schedules'} {what}")

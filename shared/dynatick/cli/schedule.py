"""``dynatick schedule …``: recurring schedules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dynatick.cli.arguments import (
    Ids,
    LimitKey,
    OutputFile,
    OutputFormat,
    PageToken,
    Payload,
    RetryPolicy,
    Subject,
    Timeout,
    map_of,
    minutes_of,
    seconds_of,
)
from dynatick.cli.bulk_change import change_each, delete_each
from dynatick.cli.exporting import chosen_format, export_schedules
from dynatick.cli.output import NONE, Column, Output, say, show_many, show_one, show_page, show_table
from dynatick.cli.schedule_import import import_file
from dynatick.cli.schedule_sync import sync
from dynatick.cli.session import Session, command
from dynatick.cli.task_display import show_task
from dynatick.domain import attributes as attr
from dynatick.domain.instants import format_instant
from dynatick.errors import InvalidInput

if TYPE_CHECKING:
    from dynatick.client import ScheduleView, TaskView

Zone = Annotated[str | None, typer.Option("--tz", metavar="ZONE", help="IANA time zone, such as Europe/Berlin.")]
StartDate = Annotated[str | None, typer.Option(metavar="TIME", help="No occurrence before; a rate counts from here.")]
EndDate = Annotated[str | None, typer.Option(metavar="TIME", help="No occurrence after.")]
Window = Annotated[
    str | None,
    typer.Option("--flexible-time-window", metavar="DURATION", help="Spread starts over this time: minutes, or 1h30m."),
]
CatchUp = Annotated[str | None, typer.Option(help="Which late occurrences to make: latest (default), all or none.")]
Overlap = Annotated[
    str | None, typer.Option(help="While the occurrence before has not ended: skip (default), allow or bufferOne.")
]
ExpectedWithin = Annotated[
    str | None,
    typer.Option(metavar="DURATION", help="So long after its time it must have completed; else it is overdue."),
]
ActionName = Annotated[str | None, typer.Option("--action", help="What to run. Default: the installation's.")]

_SHOWN = (
    attr.TASK_ID, attr.SCHEDULE_EXPRESSION, attr.CRON_EXPRESSION, attr.SCHEDULE_EXPRESSION_TIMEZONE, attr.START_DATE,
    attr.END_DATE, attr.FLEXIBLE_TIME_WINDOW, attr.CATCH_UP, attr.OVERLAP, attr.EXPECTED_WITHIN_SECONDS, attr.ACTION,
    attr.SUBJECT, attr.LIMIT_KEY, attr.PAYLOAD, attr.RETRY_POLICY, attr.TIMEOUT_SECONDS, attr.SCHEDULE_OWNER,
    attr.SCHEDULE_STATE, attr.STATE_REASON, attr.ERROR, attr.NEXT_OCCURRENCE_AT, attr.TASK_DATE_TIME,
    attr.BUFFERED_OCCURRENCE_AT, attr.LAST_OCCURRENCE_AT, attr.LAST_TASK_ID, attr.MISSED_OCCURRENCES, attr.CREATED_AT,
)  # fmt: skip
"""The attributes that the table shows, in this order, before the user's own. JSON has all of them."""

_IN_TIME = "inTime"

COLUMNS = (
    Column("SCHEDULE", attr.TASK_ID, folds=True),
    Column("STATE", attr.SCHEDULE_STATE),
    Column("EXPRESSION", attr.SCHEDULE_EXPRESSION, folds=True),  # with its zone
    Column("ACTION", attr.ACTION, folds=True, spare=1),
    Column("NEXT OCCURRENCE", attr.NEXT_OCCURRENCE_AT),
    Column("LAST OCCURRENCE", attr.LAST_OCCURRENCE_AT, spare=2),
    Column("EXPECTED WITHIN", attr.EXPECTED_WITHIN_SECONDS, right=True, spare=3),
    Column("MISSED", attr.MISSED_OCCURRENCES, right=True, spare=2),
    Column("OWNER", attr.SCHEDULE_OWNER, folds=True, spare=3),
    Column("WHY", "why", folds=True),
)
CHANGED = (
    Column("SCHEDULE", attr.TASK_ID, folds=True),
    Column("WHAT", "result"),
    Column("STATE", attr.SCHEDULE_STATE, spare=1),
    Column("NEXT OCCURRENCE", attr.NEXT_OCCURRENCE_AT, spare=1),
    Column("WHY", "why", folds=True),
)
PREVIEW = (Column("OCCURRENCE", "occurrenceAt"), Column("LOCAL TIME", "local"), Column("NOTES", "notes", folds=True))
HISTORY = (
    Column("OCCURRENCE", "occurrenceAt"),
    Column("STATUS", attr.STATUS),
    Column("BUCKET", attr.TASK_DATE_TIME, spare=1),
    Column("FINISHED", attr.FINISHED_AT, to_seconds=True, spare=1),
    Column("IN TIME", _IN_TIME),
    Column("REASON", "reason"),
    Column("ERROR", attr.ERROR, folds=True),
    Column("TASK", attr.TASK_ID, folds=True),
)
MADE = (Column("TASK", attr.TASK_ID, folds=True), Column("RESULT", "result"), Column("ERROR", attr.ERROR, folds=True))

app = typer.Typer(
    name="schedule", help="Recurring schedules: insert, edit, pause, see their occurrences.", no_args_is_help=True
)

ScheduleId = Annotated[str, typer.Argument(metavar="ID", help="The schedule's id.", show_default=False)]
OfSubject = Annotated[str | None, typer.Option("--subject", metavar="TEXT", help="Only those with this subject.")]
_LATEST = 5  # occurrences that `get` shows
Limit = Annotated[int, typer.Option(help="The maximum number to list, up to 1,000.")]


@dataclass(frozen=True, kw_only=True, slots=True)
class DefinitionOptions:
    """What a schedule is defined by, apart from its expression."""

    tz: Zone = None
    start_date: StartDate = None
    end_date: EndDate = None
    flexible_time_window: Window = None
    action: ActionName = None
    payload: Payload = None
    retry_policy: RetryPolicy = None
    timeout_seconds: Timeout = None
    limit_key: LimitKey = None
    catch_up: CatchUp = None
    overlap: Overlap = None
    expected_within_seconds: ExpectedWithin = None

    def arguments(self, session: Session) -> dict[str, Any]:
        """Returns the client's arguments; None for an option that is not given. Raises InvalidInput."""
        return {
            "timezone": self.tz,
            "start_date": session.time(self.start_date, attr.START_DATE),
            "end_date": session.time(self.end_date, attr.END_DATE),
            "flexible_time_window": minutes_of(self.flexible_time_window, attr.FLEXIBLE_TIME_WINDOW),
            "action": self.action,
            "payload": map_of(self.payload, attr.PAYLOAD),
            "retry_policy": map_of(self.retry_policy, attr.RETRY_POLICY),
            "timeout_seconds": seconds_of(self.timeout_seconds, attr.TIMEOUT_SECONDS),
            "limit_key": self.limit_key,
            "catch_up": self.catch_up,
            "overlap": self.overlap,
            "expected_within_seconds": seconds_of(self.expected_within_seconds, attr.EXPECTED_WITHIN_SECONDS),
        }


def argument_names(attributes: Sequence[str]) -> list[str]:
    """The client's arguments of attributes to remove. Raises InvalidInput."""
    from dynatick.client.schedules import UPDATABLE

    arguments = {attribute: argument for argument, attribute in UPDATABLE.items() if argument != "expression"}
    for name in attributes:
        if name not in arguments:
            raise InvalidInput("remove", name, f"expected one of {', '.join(arguments)}")
    return [arguments[name] for name in attributes]


def columns_of(columns: Sequence[Column], rows: Sequence[Mapping[str, object]]) -> list[Column]:
    """The columns of a list, without those about deadlines and owners where no schedule has one."""
    optional = (attr.EXPECTED_WITHIN_SECONDS, attr.SCHEDULE_OWNER, _IN_TIME)
    return [one for one in columns if one.attribute not in optional or any(one.attribute in row for row in rows)]


def show_schedule(session: Session, view: ScheduleView, *, notes: bool = True) -> None:
    """Prints a schedule. ``notes``: with its warnings."""
    if session.output is not Output.TABLE:
        show_one(view.to_row(), session.output)
        return
    row = view.to_row()
    shown = {name: row[name] for name in _SHOWN if name in row} | dict(view.attributes)
    show_one(shown, session.output)
    if notes:
        say_notes(view)


def say_notes(view: ScheduleView) -> None:
    """Prints its warnings to stderr."""
    for warning in view.warnings:
        say(f"note: {warning}")


@command(app)
def add(
    session: Session,
    schedule_id: ScheduleId,
    expression: Annotated[
        str,
        typer.Argument(metavar="EXPR", help="rate(5 minutes), cron(0 9 ? * MON-FRI *), at(…).", show_default=False),
    ],
    *,
    definition: DefinitionOptions,
    paused: Annotated[bool, typer.Option("--paused", help="It makes no occurrences until it is resumed.")] = False,
    reason: Annotated[str | None, typer.Option(help="Why it is paused; stored as stateReason.")] = None,
    subject: Subject = None,
    attributes: Annotated[
        str | None, typer.Option(metavar="JSON|@FILE", help="More attributes, for your own use.")
    ] = None,
) -> None:
    """Insert a schedule. Refused if a task or schedule has this id."""
    view = session.client().schedules.insert(
        schedule_id,
        expression,
        **definition.arguments(session),
        enabled=not paused,
        reason=reason,
        subject=subject,
        attributes=map_of(attributes, "attributes"),
    )
    show_schedule(session, view)


@command(app)
def get(session: Session, schedule_id: ScheduleId) -> None:
    """Show a schedule, and whether its latest occurrences completed in time, if it expects that."""
    schedules = session.client().schedules
    view = schedules.get(schedule_id)
    show_schedule(session, view)
    if view.expected_within_seconds is not None and session.output is Output.TABLE:
        rows = [one.to_row() for one in schedules.history(schedule_id, limit=_LATEST)]
        show_table(rows, columns_of(HISTORY, rows))


def _expression(view: ScheduleView) -> str | None:
    """An expression with its zone, unless that is UTC."""
    zone = view.row.get(attr.SCHEDULE_EXPRESSION_TIMEZONE)
    return view.expression if zone in (None, "UTC") else f"{view.expression} {zone}"


@command(app, "list")
def list_schedules(
    session: Session,
    state: Annotated[
        str | None, typer.Option(help="Only these: ENABLED, DISABLED (paused), COMPLETED, FAILED.")
    ] = None,
    subject: OfSubject = None,
    limit: Limit = 100,
    page_token: PageToken = None,
) -> None:
    """List schedules, with their next and latest occurrences."""
    page = session.client().schedules.list(state, subject=subject, limit=limit, page_token=page_token)
    rows = [view.to_row() for view in page.schedules]
    if session.output is Output.TABLE:
        rows = [
            {**row, attr.SCHEDULE_EXPRESSION: _expression(view), "why": view.error or view.state_reason}
            for row, view in zip(rows, page.schedules, strict=True)
        ]
    columns = columns_of(COLUMNS, rows)
    show_page(rows, columns, session.output, name="schedules", token=page.next_page_token)


app.command("import")(import_file)
app.command("sync")(sync)


@command(app, "export")
def export_file(
    session: Session,
    file: OutputFile = "-",
    state: Annotated[
        str | None,
        typer.Option(help="Only these: ENABLED, DISABLED (paused), COMPLETED, FAILED. Default: the first two."),
    ] = None,
    subject: OfSubject = None,
    form: OutputFormat = None,
) -> None:
    """Write schedules to a file that can be imported again: their definitions, not their occurrences."""
    chosen = chosen_format(form, file)
    export_schedules(session.client().schedules.export(state, subject=subject), chosen, file)


@command(app)
def update(
    session: Session,
    schedule_id: ScheduleId,
    expression: Annotated[str | None, typer.Option(metavar="EXPR", help="Another expression.")] = None,
    *,
    definition: DefinitionOptions,
    remove: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Remove an attribute, such as endDate. May be repeated."),
    ] = None,
) -> None:
    """Change a schedule. Tasks that it has made stay as they are."""
    arguments = {"expression": expression, **definition.arguments(session)}
    edits = {name: value for name, value in arguments.items() if value is not None}
    edits |= dict.fromkeys(argument_names(remove or ()))
    if not edits:
        raise InvalidInput("update", None, "expected at least one change; see --help")
    show_schedule(session, session.client().schedules.update(schedule_id, **edits))


@command(app)
def pause(
    session: Session,
    schedule_ids: Ids,
    reason: Annotated[str | None, typer.Option(help="Why; it is shown with the schedule.")] = None,
) -> None:
    """Pause schedules: they make no occurrences from now on."""
    _change(session, schedule_ids, partial(session.client().schedules.pause, reason=reason), "paused")


@command(app)
def resume(session: Session, schedule_ids: Ids) -> None:
    """Resume schedules: they make occurrences again, from now on."""
    _change(session, schedule_ids, session.client().schedules.resume, "resumed")


@command(app)
def delete(session: Session, schedule_ids: Ids) -> None:
    """End schedules and remove them. Tasks that they have made stay."""
    delete_each(session, schedule_ids, session.client().schedules.delete, columns=CHANGED, name="schedules")


@command(app, "run")
def run_now(session: Session, schedule_ids: Ids) -> None:
    """Make an extra occurrence of each at the next tick."""

    def show(task: TaskView) -> None:
        show_task(task, session.output, session.clock())

    change_each(session, schedule_ids, session.client().schedules.run_now, "to run", show=show)


@command(app)
def preview(
    session: Session,
    schedule_id: ScheduleId,
    count: Annotated[int, typer.Option(help="The number of occurrences, up to 1,000.")] = 10,
) -> None:
    """Show the next occurrences, and how clock changes affect them."""
    from dynatick.cli.expr import wall_time

    schedules = session.client().schedules
    found, view = schedules.preview(schedule_id, count), schedules.get(schedule_id)
    rows = [{"occurrenceAt": format_instant(one.instant), "notes": list(one.notes)} for one in found]
    if session.output is not Output.TABLE:
        show_many(rows, (), session.output, name="occurrences", more={"warnings": list(view.warnings)})
        return
    locals_ = [{"local": wall_time(one.instant, view.timezone), "notes": "; ".join(one.notes)} for one in found]
    shown = [{**row, **local} for row, local in zip(rows, locals_, strict=True)]
    show_many(shown, PREVIEW, session.output, name="occurrences", nothing=NONE)
    if shown:
        say_notes(view)


@command(app)
def backfill(
    session: Session,
    schedule_id: ScheduleId,
    from_: Annotated[str, typer.Option("--from", metavar="TIME", help="First instant.", show_default=False)],
    to: Annotated[str, typer.Option(metavar="TIME", help="Last instant, included.", show_default=False)],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the missing ones, and make none.")] = False,
) -> None:
    """Make the missing occurrences of a past range, at the next tick."""
    from dynatick.cli.exit_code import CommandFailed, ExitCode
    from dynatick.client import Exists, InsertUnknown

    start, end = session.time(from_, "start"), session.time(to, "end")
    assert start is not None and end is not None
    results = session.client().schedules.backfill(schedule_id, start=start, end=end, dry_run=dry_run)
    rows: list[dict[str, object]] = []
    unknown = 0
    for result in results:
        made = "would be made" if dry_run else "made"
        row: dict[str, object] = {
            attr.TASK_ID: result.task_id,
            "result": "exists" if isinstance(result, Exists) else made,
        }
        if isinstance(result, InsertUnknown):
            unknown += 1
            row |= {"result": "unknown", "error": str(result.error)}
        rows.append(row)
    show_many(rows, MADE, session.output, name="occurrences", nothing=NONE)
    if unknown:
        raise CommandFailed(ExitCode.UNREACHABLE, f"{unknown} of {len(rows)} got no answer; repeat the command")


@command(app)
def history(
    session: Session,
    schedule_id: ScheduleId,
    from_: Annotated[str | None, typer.Option("--from", metavar="TIME", help="First instant.")] = None,
    to: Annotated[str | None, typer.Option(metavar="TIME", help="Last instant. Default: now.")] = None,
    limit: Limit = 100,
) -> None:
    """List the occurrences that were due, with their status."""
    start, end = session.time(from_, "start"), session.time(to, "end")
    found = session.client().schedules.history(schedule_id, start=start, end=end, limit=limit)
    rows = [one.to_row() for one in found]
    if session.output is Output.TABLE:
        rows = [{**row, "reason": "run now"} if "runNow" in row else row for row in rows]
    show_many(rows, columns_of(HISTORY, rows), session.output, name="occurrences", nothing=NONE)


def _change(session: Session, ids: Sequence[str], change: Callable[[str], ScheduleView], done: str) -> None:
    def row(view: ScheduleView) -> Mapping[str, object]:
        at = view.next_occurrence_at
        return {attr.SCHEDULE_STATE: view.state} | ({} if at is None else {attr.NEXT_OCCURRENCE_AT: format_instant(at)})

    show = partial(show_schedule, session, notes=False)
    change_each(session, ids, change, done, show=show, row=row, columns=CHANGED, name="schedules")

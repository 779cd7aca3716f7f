"""``dynatick schedule …``: recurring schedules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dynatick.bulk.file_format import FileFormat
from dynatick.cli.argument_values import map_of, minutes_of, seconds_of
from dynatick.cli.bulk_change import change_each
from dynatick.cli.exporting import chosen_format, export_schedules
from dynatick.cli.output import Column, Output, say, show_many, show_one, show_table
from dynatick.cli.session import Session, on_table
from dynatick.cli.task import Timeout, import_command
from dynatick.cli.task_display import show_task
from dynatick.cli.task_selection import Ids
from dynatick.domain.instants import format_instant
from dynatick.errors import InvalidInput

if TYPE_CHECKING:
    from dynatick.client import ScheduleView, TaskView

app = typer.Typer(
    name="schedule", help="Recurring schedules: insert, edit, pause, see their runs.", no_args_is_help=True
)

ScheduleId = Annotated[str, typer.Argument(metavar="ID", help="The schedule's id.", show_default=False)]
Zone = Annotated[str | None, typer.Option("--tz", metavar="ZONE", help="IANA time zone, such as Europe/Berlin.")]
StartDate = Annotated[str | None, typer.Option(metavar="TIME", help="No run before; a rate counts from here.")]
EndDate = Annotated[str | None, typer.Option(metavar="TIME", help="No run after.")]
Window = Annotated[
    str | None,
    typer.Option("--flexible-time-window", metavar="DURATION", help="Spread starts over so many minutes, or 1h30m."),
]
CatchUp = Annotated[str | None, typer.Option(help="Runs that an outage delayed: latest (default), all or none.")]
Overlap = Annotated[
    str | None, typer.Option(help="While the run before has not ended: skip (default), allow or bufferOne.")
]
ActionName = Annotated[str | None, typer.Option("--action", help="What to run. Default: the installation's.")]
Payload = Annotated[str | None, typer.Option(metavar="JSON|@FILE", help="The action's arguments, a JSON object.")]
Policy = Annotated[str | None, typer.Option(metavar="JSON|@FILE", help='Such as {"maximumRetryAttempts": 5}.')]
Limit = Annotated[int, typer.Option(help="Most to list, up to 1,000.")]

_SHOWN = (
    "taskId", "scheduleExpression", "cronExpression", "scheduleExpressionTimezone", "startDate", "endDate",
    "flexibleTimeWindow", "catchUp", "overlap", "action", "payload", "retryPolicy", "timeoutSeconds",
    "scheduleState", "stateReason", "error", "nextOccurrenceAt", "taskDateTime", "bufferedOccurrenceAt",
    "lastOccurrenceAt", "lastTaskId", "missedOccurrences", "createdAt",
)  # fmt: skip
"""What people see of a schedule, in this order, and its own attributes. Programs get it all."""

COLUMNS = (
    Column("SCHEDULE", "taskId", folds=True),
    Column("STATE", "scheduleState"),
    Column("EXPRESSION", "scheduleExpression", folds=True),
    Column("ZONE", "scheduleExpressionTimezone", spare=1),
    Column("ACTION", "action", folds=True, spare=1),
    Column("NEXT RUN", "nextOccurrenceAt"),
    Column("LAST RUN", "lastOccurrenceAt", spare=1),
    Column("MISSED", "missedOccurrences", right=True, spare=1),
    Column("WHY", "why", folds=True),
)
_CHANGED = (
    Column("SCHEDULE", "taskId", folds=True),
    Column("WHAT", "result"),
    Column("STATE", "scheduleState", spare=1),
    Column("NEXT RUN", "nextOccurrenceAt", spare=1),
    Column("WHY", "why", folds=True),
)
PREVIEW = (Column("RUN", "occurrenceAt"), Column("LOCAL TIME", "local"), Column("NOTES", "notes", folds=True))
RUNS = (
    Column("RUN", "occurrenceAt"),
    Column("STATUS", "status"),
    Column("BUCKET", "taskDateTime", spare=1),
    Column("FINISHED", "finishedAt", to_seconds=True, spare=1),
    Column("REASON", "reason"),
    Column("ERROR", "error", folds=True),
    Column("TASK", "taskId", folds=True),
)


@app.command()
@on_table
def add(
    session: Session,
    schedule_id: ScheduleId,
    expression: Annotated[
        str,
        typer.Argument(metavar="EXPR", help="rate(5 minutes), cron(0 9 ? * MON-FRI *), at(…).", show_default=False),
    ],
    tz: Zone = None,
    start_date: StartDate = None,
    end_date: EndDate = None,
    flexible_time_window: Window = None,
    action: ActionName = None,
    payload: Payload = None,
    retry_policy: Policy = None,
    timeout_seconds: Timeout = None,
    catch_up: CatchUp = None,
    overlap: Overlap = None,
    paused: Annotated[bool, typer.Option("--paused", help="Do not run it before it is resumed.")] = False,
    reason: Annotated[str | None, typer.Option(help="Why it begins paused; kept as stateReason.")] = None,
    attributes: Annotated[
        str | None, typer.Option(metavar="JSON|@FILE", help="More attributes, for your own use.")
    ] = None,
) -> None:
    """Insert a schedule. Refused if there is a task or schedule of this id."""
    view = session.client().schedules.insert(
        schedule_id,
        expression,
        timezone=tz,
        start_date=session.time(start_date, "startDate"),
        end_date=session.time(end_date, "endDate"),
        flexible_time_window=minutes_of(flexible_time_window, "flexibleTimeWindow"),
        action=action,
        payload=map_of(payload, "payload"),
        retry_policy=map_of(retry_policy, "retryPolicy"),
        timeout_seconds=seconds_of(timeout_seconds, "timeoutSeconds"),
        catch_up=catch_up,
        overlap=overlap,
        enabled=not paused,
        reason=reason,
        attributes=map_of(attributes, "attributes"),
    )
    _show(session, view)


@app.command()
@on_table
def get(session: Session, schedule_id: ScheduleId) -> None:
    """Show a schedule."""
    _show(session, session.client().schedules.get(schedule_id))


@app.command("list")
@on_table
def list_schedules(
    session: Session,
    state: Annotated[
        str | None, typer.Option(help="Only these: ENABLED, DISABLED (paused), COMPLETED, FAILED.")
    ] = None,
    limit: Limit = 100,
    page_token: Annotated[str | None, typer.Option(help="Go on where the page before ended.")] = None,
) -> None:
    """List schedules, with their next and latest runs."""
    page = session.client().schedules.list(state, limit=limit, page_token=page_token)
    token = page.next_page_token
    beside = {} if token is None else {"nextPageToken": token}
    rows = [view.to_row() for view in page.schedules]
    if session.output is Output.TABLE:
        whys = [
            {"scheduleExpression": view.expression, "why": view.error or view.state_reason} for view in page.schedules
        ]
        rows = [{**row, **why} for row, why in zip(rows, whys, strict=True)]
    show_many(rows, COLUMNS, session.output, name="schedules", beside=beside)
    if token is not None and session.output is not Output.JSON:
        say(f"There are more: --page-token {token}")
    elif not rows and session.output is Output.TABLE:
        say("There are none")


app.command("import", help="Insert the schedules of a file. Each line needs a scheduleExpression.")(
    import_command(schedules_only=True)
)


@app.command("export")
@on_table
def export_file(
    session: Session,
    file: Annotated[
        str, typer.Argument(metavar="[FILE]", help=".ndjson, .jsonl or .csv. Default: stdout.", show_default=False)
    ] = "-",
    state: Annotated[
        str | None,
        typer.Option(help="Only these: ENABLED, DISABLED (paused), COMPLETED, FAILED. Default: the first two."),
    ] = None,
    form: Annotated[
        FileFormat | None, typer.Option("--format", help="Default: by the file's name; to stdout, ndjson.")
    ] = None,
) -> None:
    """Write schedules to a file that can be imported again: what defines them, not their runs."""
    chosen = chosen_format(form, file)
    export_schedules(session.client().schedules.export(state), chosen, file)


@app.command()
@on_table
def update(
    session: Session,
    schedule_id: ScheduleId,
    expression: Annotated[str | None, typer.Option(metavar="EXPR", help="Another expression.")] = None,
    tz: Zone = None,
    start_date: StartDate = None,
    end_date: EndDate = None,
    flexible_time_window: Window = None,
    action: ActionName = None,
    payload: Payload = None,
    retry_policy: Policy = None,
    timeout_seconds: Timeout = None,
    catch_up: CatchUp = None,
    overlap: Overlap = None,
    remove: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Take an attribute off, such as endDate. May be given several times."),
    ] = None,
) -> None:
    """Change a schedule. Tasks that it has made stay as they are."""
    given: dict[str, Any] = {
        "expression": expression,
        "timezone": tz,
        "start_date": session.time(start_date, "startDate"),
        "end_date": session.time(end_date, "endDate"),
        "flexible_time_window": minutes_of(flexible_time_window, "flexibleTimeWindow"),
        "action": action,
        "payload": map_of(payload, "payload"),
        "retry_policy": map_of(retry_policy, "retryPolicy"),
        "timeout_seconds": seconds_of(timeout_seconds, "timeoutSeconds"),
        "catch_up": catch_up,
        "overlap": overlap,
    }
    edits = {name: value for name, value in given.items() if value is not None}
    edits |= dict.fromkeys(_arguments(remove or ()))
    if not edits:
        raise InvalidInput("update", None, "expected at least one thing to change; see --help")
    _show(session, session.client().schedules.update(schedule_id, **edits))


@app.command()
@on_table
def pause(
    session: Session,
    schedule_ids: Ids,
    reason: Annotated[str | None, typer.Option(help="Why; it is shown with the schedule.")] = None,
) -> None:
    """Make no runs from now on."""
    _change(session, schedule_ids, partial(session.client().schedules.pause, reason=reason), "paused")


@app.command()
@on_table
def resume(session: Session, schedule_ids: Ids) -> None:
    """Make runs again, from now on."""
    _change(session, schedule_ids, session.client().schedules.resume, "resumed")


@app.command()
@on_table
def delete(session: Session, schedule_ids: Ids) -> None:
    """End schedules and remove them. Tasks that they have made stay."""
    schedules = session.client().schedules

    def remove(schedule_id: str) -> str:
        schedules.delete(schedule_id)
        return schedule_id

    def show(schedule_id: str) -> None:
        if session.output is Output.TABLE:
            say(f"deleted {schedule_id}")
        else:
            show_one({"taskId": schedule_id, "deleted": True}, session.output)

    change_each(
        session, schedule_ids, remove, "deleted", show=show, row=lambda _: {}, columns=_CHANGED, name="schedules"
    )


@app.command("run")
@on_table
def run_now(session: Session, schedule_ids: Ids) -> None:
    """Make one task of each at the next tick, beside its expression."""

    def show(task: TaskView) -> None:
        show_task(task, session.output, session.clock())

    change_each(session, schedule_ids, session.client().schedules.run_now, "to run", show=show)


@app.command()
@on_table
def preview(
    session: Session,
    schedule_id: ScheduleId,
    count: Annotated[int, typer.Option(help="How many runs, up to 1,000.")] = 10,
) -> None:
    """Show the next runs, and what a clock's jump does to them."""
    from dynatick.cli.expression_text import wall_time

    schedules = session.client().schedules
    runs, view = schedules.preview(schedule_id, count), schedules.get(schedule_id)
    rows = [{"occurrenceAt": format_instant(run.instant), "notes": list(run.notes)} for run in runs]
    if session.output is not Output.TABLE:
        show_many(rows, (), session.output, name="runs", beside={"warnings": list(view.warnings)})
        return
    if not rows:
        say("There are none")
        return
    locals_ = [{"local": wall_time(run.instant, view.timezone), "notes": "; ".join(run.notes)} for run in runs]
    show_table([{**row, **local} for row, local in zip(rows, locals_, strict=True)], PREVIEW)
    _say_notes(view)


@app.command()
@on_table
def backfill(
    session: Session,
    schedule_id: ScheduleId,
    from_: Annotated[str, typer.Option("--from", metavar="TIME", help="First instant.", show_default=False)],
    to: Annotated[str, typer.Option(metavar="TIME", help="Last instant, part of it.", show_default=False)],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say which runs are missing, and make none.")] = False,
) -> None:
    """Make the runs of a past range that were not made, at the next tick."""
    from dynatick.cli.exit_code import CommandFailed, ExitCode
    from dynatick.client import Exists, Failed

    start, end = session.time(from_, "start"), session.time(to, "end")
    assert start is not None and end is not None
    results = session.client().schedules.backfill(schedule_id, start=start, end=end, dry_run=dry_run)
    rows: list[dict[str, object]] = []
    failed = 0
    for result in results:
        made = "would be made" if dry_run else "made"
        status = "there already" if isinstance(result, Exists) else made
        row: dict[str, object] = {"taskId": result.task_id, "result": status}
        if isinstance(result, Failed):
            failed += 1
            row |= {"result": "failed", "error": str(result.error)}
        rows.append(row)
    columns = (Column("TASK", "taskId", folds=True), Column("RESULT", "result"), Column("ERROR", "error", folds=True))
    show_many(rows, columns, session.output, name="runs")
    if not rows and session.output is Output.TABLE:
        say("There are none")
    if failed:
        raise CommandFailed(ExitCode.UNREACHABLE, f"{failed} of {len(rows)} could not be written; do it again")


@app.command()
@on_table
def history(
    session: Session,
    schedule_id: ScheduleId,
    from_: Annotated[str | None, typer.Option("--from", metavar="TIME", help="First instant.")] = None,
    to: Annotated[str | None, typer.Option(metavar="TIME", help="Last instant. Default: now.")] = None,
    limit: Limit = 100,
) -> None:
    """List the runs that were due, with what became of them."""
    start, end = session.time(from_, "start"), session.time(to, "end")
    runs = session.client().schedules.history(schedule_id, start=start, end=end, limit=limit)
    rows = [run.to_row() for run in runs]
    if session.output is Output.TABLE:
        rows = [{**row, "reason": "run now"} if "runNow" in row else row for row in rows]
    show_many(rows, RUNS, session.output, name="runs")
    if not rows and session.output is Output.TABLE:
        say("There are none")


def _change(session: Session, ids: Sequence[str], change: Callable[[str], ScheduleView], done: str) -> None:
    def row(view: ScheduleView) -> Mapping[str, object]:
        next_run = (
            {} if view.next_occurrence_at is None else {"nextOccurrenceAt": format_instant(view.next_occurrence_at)}
        )
        return {"scheduleState": view.state, **next_run}

    show = partial(_show, session, notes=False)
    change_each(session, ids, change, done, show=show, row=row, columns=_CHANGED, name="schedules")


def _show(session: Session, view: ScheduleView, *, notes: bool = True) -> None:
    if session.output is not Output.TABLE:
        show_one(view.to_row(), session.output)
        return
    row = view.to_row()
    shown = {name: row[name] for name in _SHOWN if name in row} | dict(view.attributes)
    show_one(shown, session.output)
    if notes:
        _say_notes(view)


def _say_notes(view: ScheduleView) -> None:
    for warning in view.warnings:
        say(f"note: {warning}")


def _arguments(names: Sequence[str]) -> list[str]:
    """From attributes' names to those of the client's arguments."""
    from dynatick.client.schedules import UPDATABLE

    arguments = {attribute: argument for argument, attribute in UPDATABLE.items() if argument != "expression"}
    for name in names:
        if name not in arguments:
            raise InvalidInput("remove", name, f"expected one of {', '.join(arguments)}")
    return [arguments[name] for name in names]

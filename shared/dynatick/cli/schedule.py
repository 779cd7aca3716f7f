"""``dynatick schedule …``: recurring schedules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from dynatick.bulk.file_format import FileFormat
from dynatick.cli.argument_values import map_of
from dynatick.cli.bulk_change import change_each
from dynatick.cli.exporting import chosen_format, export_schedules
from dynatick.cli.output import Column, Output, say, show_many, show_one, show_table
from dynatick.cli.schedule_display import CHANGED, COLUMNS, HISTORY, PREVIEW, columns_of, say_notes, show_schedule
from dynatick.cli.schedule_import import import_file
from dynatick.cli.schedule_options import DefinitionOptions, argument_names
from dynatick.cli.session import Session, on_table
from dynatick.cli.task_display import show_task
from dynatick.cli.task_selection import Ids
from dynatick.domain import attributes as attr
from dynatick.domain.instants import format_instant
from dynatick.errors import InvalidInput

if TYPE_CHECKING:
    from dynatick.client import ScheduleView, TaskView

app = typer.Typer(
    name="schedule", help="Recurring schedules: insert, edit, pause, see their occurrences.", no_args_is_help=True
)

ScheduleId = Annotated[str, typer.Argument(metavar="ID", help="The schedule's id.", show_default=False)]
_LATEST = 5  # occurrences that `get` shows
Limit = Annotated[int, typer.Option(help="The maximum number to list, up to 1,000.")]


@app.command()
@on_table
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
        attributes=map_of(attributes, "attributes"),
    )
    show_schedule(session, view)


@app.command()
@on_table
def get(session: Session, schedule_id: ScheduleId) -> None:
    """Show a schedule, and whether its latest occurrences completed in time, if it expects that."""
    schedules = session.client().schedules
    view = schedules.get(schedule_id)
    show_schedule(session, view)
    if view.expected_within_seconds is not None and session.output is Output.TABLE:
        rows = [one.to_row() for one in schedules.history(schedule_id, limit=_LATEST)]
        show_table(rows, columns_of(HISTORY, rows))


@app.command("list")
@on_table
def list_schedules(
    session: Session,
    state: Annotated[
        str | None, typer.Option(help="Only these: ENABLED, DISABLED (paused), COMPLETED, FAILED.")
    ] = None,
    limit: Limit = 100,
    page_token: Annotated[str | None, typer.Option(help="Continue after the page before.")] = None,
) -> None:
    """List schedules, with their next and latest occurrences."""
    page = session.client().schedules.list(state, limit=limit, page_token=page_token)
    token = page.next_page_token
    more = {} if token is None else {"nextPageToken": token}
    rows = [view.to_row() for view in page.schedules]
    if session.output is Output.TABLE:
        whys = [
            {attr.SCHEDULE_EXPRESSION: view.expression, "why": view.error or view.state_reason}
            for view in page.schedules
        ]
        rows = [{**row, **why} for row, why in zip(rows, whys, strict=True)]
    show_many(rows, columns_of(COLUMNS, rows), session.output, name="schedules", more=more)
    if token is not None and session.output is not Output.JSON:
        say(f"There are more: --page-token {token}")
    elif not rows and session.output is Output.TABLE:
        say("There are none")


app.command("import")(import_file)


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
    """Write schedules to a file that can be imported again: their definitions, not their occurrences."""
    chosen = chosen_format(form, file)
    export_schedules(session.client().schedules.export(state), chosen, file)


@app.command()
@on_table
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


@app.command()
@on_table
def pause(
    session: Session,
    schedule_ids: Ids,
    reason: Annotated[str | None, typer.Option(help="Why; it is shown with the schedule.")] = None,
) -> None:
    """Pause schedules: they make no occurrences from now on."""
    _change(session, schedule_ids, partial(session.client().schedules.pause, reason=reason), "paused")


@app.command()
@on_table
def resume(session: Session, schedule_ids: Ids) -> None:
    """Resume schedules: they make occurrences again, from now on."""
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
            show_one({attr.TASK_ID: schedule_id, "deleted": True}, session.output)

    change_each(
        session, schedule_ids, remove, "deleted", show=show, row=lambda _: {}, columns=CHANGED, name="schedules"
    )


@app.command("run")
@on_table
def run_now(session: Session, schedule_ids: Ids) -> None:
    """Make an extra occurrence of each at the next tick."""

    def show(task: TaskView) -> None:
        show_task(task, session.output, session.clock())

    change_each(session, schedule_ids, session.client().schedules.run_now, "to run", show=show)


@app.command()
@on_table
def preview(
    session: Session,
    schedule_id: ScheduleId,
    count: Annotated[int, typer.Option(help="The number of occurrences, up to 1,000.")] = 10,
) -> None:
    """Show the next occurrences, and how clock changes affect them."""
    from dynatick.cli.expression_text import wall_time

    schedules = session.client().schedules
    found, view = schedules.preview(schedule_id, count), schedules.get(schedule_id)
    rows = [{"occurrenceAt": format_instant(one.instant), "notes": list(one.notes)} for one in found]
    if session.output is not Output.TABLE:
        show_many(rows, (), session.output, name="occurrences", more={"warnings": list(view.warnings)})
        return
    if not rows:
        say("There are none")
        return
    locals_ = [{"local": wall_time(one.instant, view.timezone), "notes": "; ".join(one.notes)} for one in found]
    show_table([{**row, **local} for row, local in zip(rows, locals_, strict=True)], PREVIEW)
    say_notes(view)


@app.command()
@on_table
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
    columns = (
        Column("TASK", attr.TASK_ID, folds=True),
        Column("RESULT", "result"),
        Column("ERROR", "error", folds=True),
    )
    show_many(rows, columns, session.output, name="occurrences")
    if not rows and session.output is Output.TABLE:
        say("There are none")
    if unknown:
        raise CommandFailed(ExitCode.UNREACHABLE, f"{unknown} of {len(rows)} got no answer; repeat the command")


@app.command()
@on_table
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
    show_many(rows, columns_of(HISTORY, rows), session.output, name="occurrences")
    if not rows and session.output is Output.TABLE:
        say("There are none")


def _change(session: Session, ids: Sequence[str], change: Callable[[str], ScheduleView], done: str) -> None:
    def row(view: ScheduleView) -> Mapping[str, object]:
        at = view.next_occurrence_at
        return {attr.SCHEDULE_STATE: view.state} | ({} if at is None else {attr.NEXT_OCCURRENCE_AT: format_instant(at)})

    show = partial(show_schedule, session, notes=False)
    change_each(session, ids, change, done, show=show, row=row, columns=CHANGED, name="schedules")

"""``dynatick task …``: insert tasks, change them, see them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from dynatick.bulk.derived_id import PREFIX
from dynatick.bulk.file_format import FileFormat
from dynatick.cli.argument_values import map_of, seconds_of, shift_of
from dynatick.cli.bulk_change import Wish, are_named, change_each, change_many, each
from dynatick.cli.exit_code import CommandFailed, ExitCode, code_of, told
from dynatick.cli.exporting import ExportOptions, chosen_format, export_tasks
from dynatick.cli.importing import ImportOptions, import_tasks
from dynatick.cli.listing import Listing
from dynatick.cli.output import Column, Output, one_line, say, show_many, show_one
from dynatick.cli.session import Session, on_table
from dynatick.cli.task_display import item_of, show_raw, show_task
from dynatick.cli.task_selection import Filters, Ids, IdsOrNone, Range, Span, ids_of, is_single
from dynatick.errors import DynatickError, InvalidInput

if TYPE_CHECKING:
    from dynatick.client import HistoryPage, TaskClient, TaskEntry, TaskView
    from dynatick.domain.task import Row

app = typer.Typer(name="task", help="Insert tasks, change them, see them.", no_args_is_help=True)

TaskId = Annotated[str, typer.Argument(metavar="ID", help="The task's id.", show_default=False)]
At = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="When: 2026-12-31T12:07:00Z, 2026-12-31#12:00, epoch seconds, +10m or now."),
]
Delay = Annotated[
    str | None, typer.Option(metavar="DURATION", help="When: so long from now, as 90s, 2h, 1h30m, 3d; or seconds.")
]
Payload = Annotated[str | None, typer.Option(metavar="JSON|@FILE", help="The action's arguments, a JSON object.")]
Timeout = Annotated[
    str | None,
    typer.Option(metavar="DURATION", help="What an attempt takes at the most; it is not begun with less time left."),
]
Waiting = Annotated[str | None, typer.Option(help="Only those that are scheduled, or unscheduled. Default: both.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say which tasks are meant, and change none.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking, which is done on a terminal only.")]
Limit = Annotated[int, typer.Option(help="Most tasks to list.")]
PageToken = Annotated[str | None, typer.Option(help="Go on where the page before ended.")]
Status = Annotated[
    str | None, typer.Option(help="Only these: scheduled, running, completed, failed, cancelled, unscheduled.")
]

COLUMNS = (
    Column("TASK", "taskId", folds=True),
    Column("BUCKET", "taskDateTime"),
    Column("STATUS", "status"),
    Column("ACTION", "action", folds=True),
    Column("DUE", "dueAt", to_seconds=True, spare=1),
    Column("FINISHED", "finishedAt", to_seconds=True, spare=1),
    Column("ATTEMPT", "attempt", right=True, spare=1),
    Column("ERROR", "error", folds=True),
)


@app.command()
@on_table
def add(
    session: Session,
    task_id: TaskId,
    at: At = None,
    delay: Delay = None,
    action: Annotated[str | None, typer.Option(help="What to run. Default: the installation's.")] = None,
    payload: Payload = None,
    retry_policy: Annotated[
        str | None, typer.Option(metavar="JSON|@FILE", help='Such as {"maximumRetryAttempts": 5}.')
    ] = None,
    timeout_seconds: Timeout = None,
    attributes: Annotated[
        str | None, typer.Option(metavar="JSON|@FILE", help="More attributes of the row, for your own use.")
    ] = None,
) -> None:
    """Insert a task. Refused if there is one of this id."""
    view = session.client().insert(
        task_id,
        due_at=session.time(at, "dueAt"),
        delay_seconds=seconds_of(delay, "delaySeconds"),
        action=action,
        payload=map_of(payload, "payload"),
        retry_policy=map_of(retry_policy, "retryPolicy"),
        timeout_seconds=seconds_of(timeout_seconds, "timeoutSeconds"),
        attributes=map_of(attributes, "attributes"),
    )
    _show(session, view)


@app.command()
@on_table
def get(
    session: Session,
    task_ids: Ids,
    raw: Annotated[bool, typer.Option("--raw", help="The item as the table holds it, in DynamoDB's JSON.")] = False,
) -> None:
    """Show tasks. With --output json, their whole rows."""
    client = session.client()

    def read(task_id: str) -> TaskView | Row:
        view = client.get(task_id)
        return client.store.get(task_id) or view.row if raw else view

    show_each(session, task_ids, read)


@app.command("list")
@on_table
def list_tasks(
    session: Session,
    *,
    range_: Range,
    status: Status = None,
    filters: Filters,
    attempts: Annotated[
        bool,
        typer.Option("--attempts", help="The attempts of ended tasks too: reads half a unit per task and 4 KB of it."),
    ] = False,
    limit: Limit = 100,
    page_token: PageToken = None,
) -> None:
    """List the tasks of a bucket or of a range, with their status."""
    span = range_.span(session.clock())
    client = session.client()
    page = list_page(
        client, span, status=status, filters=filters, attempts=attempts, limit=limit, page_token=page_token
    )
    show_page(session, page)


@app.command()
@on_table
def cancel(
    session: Session,
    task_ids: IdsOrNone = None,
    *,
    range_: Range,
    status: Waiting = None,
    filters: Filters,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Call waiting tasks off: those named, or all of a bucket or range."""
    if are_named(task_ids, **range_.given(), status=status, **filters.given(), dry_run=dry_run):
        change_each(session, task_ids or (), session.client().cancel, "cancelled", show=partial(_show, session))
        return
    span = range_.span(session.clock())
    change_many(
        session,
        partial(
            session.client().cancel_many,
            span.bucket,
            start=span.start,
            end=span.end,
            status=status,
            **filters.arguments(),
        ),
        Wish("cancel", "cancelled", dry_run=dry_run, yes=yes),
    )


@app.command()
@on_table
def delete(session: Session, task_ids: Ids) -> None:
    """Remove tasks that wait or have ended. Nothing is left of them."""

    def show(task_id: str) -> None:
        if session.output is Output.TABLE:
            say(f"deleted {task_id}")
        else:
            show_one({"taskId": task_id, "deleted": True}, session.output)

    client = session.client()

    def remove(task_id: str) -> str:
        client.delete(task_id)
        return task_id

    change_each(session, task_ids, remove, "deleted", show=show, row=lambda _: {})


@app.command()
@on_table
def reschedule(
    session: Session,
    task_ids: IdsOrNone = None,
    *,
    at: At = None,
    delay: Delay = None,
    by: Annotated[
        str | None,
        typer.Option(metavar="SHIFT", help="Each so much later or earlier: +1h, -30m. Of a bucket or range."),
    ] = None,
    range_: Range,
    status: Waiting = None,
    filters: Filters,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Give waiting tasks another time: those named, or all of a bucket or range."""
    if at is None and delay is None and by is None:
        raise CommandFailed(ExitCode.USAGE, "say when: --at, --delay or --by")
    due_at, delay_seconds = session.time(at, "dueAt"), seconds_of(delay, "delaySeconds")
    shift = None if by is None else shift_of(by, "by")
    if are_named(task_ids, **range_.given(), status=status, **filters.given(), dry_run=dry_run, by=by):
        change = partial(session.client().reschedule, due_at=due_at, delay_seconds=delay_seconds)
        change_each(session, task_ids or (), change, "rescheduled", show=partial(_show, session))
        return
    if shift is not None and (at is not None or delay is not None):
        raise CommandFailed(ExitCode.USAGE, "--by moves each from where it is, so --at and --delay say nothing")
    span = range_.span(session.clock())
    change_many(
        session,
        partial(
            session.client().reschedule_many,
            span.bucket,
            start=span.start,
            end=span.end,
            status=status,
            **filters.arguments(),
            due_at=due_at,
            delay_seconds=delay_seconds,
            shift=shift,
        ),
        Wish("reschedule", "rescheduled", dry_run=dry_run, yes=yes),
    )


@app.command()
@on_table
def update(session: Session, task_id: TaskId, at: At = None, delay: Delay = None, payload: Payload = None) -> None:
    """Change a waiting task: its time, its payload, or both at once."""
    changed = map_of(payload, "payload")
    if at is None and delay is None and changed is None:
        raise CommandFailed(ExitCode.USAGE, "say what to change: --at, --delay or --payload")
    view = session.client().update(
        task_id,
        due_at=session.time(at, "dueAt"),
        delay_seconds=seconds_of(delay, "delaySeconds"),
        payload=changed,
    )
    _show(session, view)


@app.command("run")
@on_table
def run_now(session: Session, task_ids: Ids) -> None:
    """Run tasks at the next tick: waiting ones, or ones that have ended once more."""
    change_each(session, task_ids, session.client().run_now, "to run", show=partial(_show, session))


@app.command()
@on_table
def redrive(
    session: Session,
    task_ids: IdsOrNone = None,
    *,
    range_: Range,
    status: Annotated[str | None, typer.Option(help="Those that are failed (the default), or cancelled.")] = None,
    filters: Filters,
    error: Annotated[str | None, typer.Option(metavar="TEXT", help="Only those with this in their error.")] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Give failed or cancelled tasks another run, at the next tick: those named, or all of a bucket or range."""
    if are_named(task_ids, **range_.given(), status=status, **filters.given(), error=error, dry_run=dry_run):
        change_each(session, task_ids or (), session.client().redrive, "redriven", show=partial(_show, session))
        return
    span = range_.span(session.clock())
    change_many(
        session,
        partial(
            session.client().redrive_many,
            span.bucket,
            start=span.start,
            end=span.end,
            status=status or "failed",
            **filters.arguments(),
            error=error,
        ),
        Wish("redrive", "redriven", dry_run=dry_run, yes=yes),
    )


def import_command(*, schedules_only: bool) -> Callable[..., None]:
    """The command that imports a file. ``schedules_only``: a line that is none is refused."""

    @on_table
    def import_file(
        session: Session,
        file: Annotated[
            str, typer.Argument(metavar="FILE", help=".ndjson, .jsonl, .json or .csv; - for stdin.", show_default=False)
        ],
        form: Annotated[
            FileFormat | None, typer.Option("--format", help="Default: by the file's name; of stdin, ndjson.")
        ] = None,
        errors: Annotated[
            str | None, typer.Option(metavar="FILE", help="Where to write the lines that are refused, as NDJSON.")
        ] = None,
        id_prefix: Annotated[
            str, typer.Option(metavar="TEXT", help="How ids begin that are derived, for lines without a taskId.")
        ] = PREFIX,
        drop_state: Annotated[
            bool, typer.Option("--drop-state", help="Leave out what an export with --state says beside the tasks.")
        ] = False,
        restart: Annotated[
            bool, typer.Option("--restart", help="Begin at the first line, although an interrupted run got further.")
        ] = False,
    ) -> None:
        """Insert the tasks of a file, under the table's names (taskId, dueAt …). What is in already stays as it is.

        A line with a scheduleExpression becomes a schedule. Interrupted and run again, it goes on; FILE.progress,
        beside the file, says where.
        """
        options = ImportOptions(
            file=file,
            form=form,
            errors=errors,
            id_prefix=id_prefix,
            drop_state=drop_state,
            restart=restart,
            schedules_only=schedules_only,
        )
        import_tasks(session, options)

    return import_file


app.command("import")(import_command(schedules_only=False))


@app.command("export")
@on_table
def export_file(
    session: Session,
    file: Annotated[
        str, typer.Argument(metavar="[FILE]", help=".ndjson, .jsonl or .csv. Default: stdout.", show_default=False)
    ] = "-",
    *,
    range_: Range,
    status: Status = None,
    filters: Filters,
    form: Annotated[
        FileFormat | None, typer.Option("--format", help="Default: by the file's name; to stdout, ndjson.")
    ] = None,
    state: Annotated[bool, typer.Option("--state", help="Also what became of each task: status, error …")] = False,
    restart: Annotated[
        bool, typer.Option("--restart", help="Begin anew, although an interrupted run has written a part.")
    ] = False,
) -> None:
    """Write the tasks of a bucket, or of a range, to a file that can be imported again.

    Interrupted and run again with the same options, it goes on; FILE.progress, beside the file, says where. With times
    counted from now it begins anew.
    """
    span = range_.span(session.clock())
    chosen = chosen_format(form, file)
    client = session.client()
    table = getattr(client.store, "table", session.table)
    # Not as typed: an hour from now is another one when it is run again.
    between = {name: None if time is None else str(time) for name, time in (("from", span.start), ("to", span.end))}
    given = {name: value for name, value in filters.given().items() if value is not None}
    asked = {"table": table, "bucket": span.bucket, **between, "status": status, "state": state, **given}
    options = ExportOptions(
        file=file, form=chosen, asked={**asked, "format": str(chosen)}, restart=restart, with_state=state
    )

    def rows(after: tuple[str, str] | None) -> Iterator[Row]:
        return client.export(
            span.bucket, start=span.start, end=span.end, status=status, **filters.arguments(), after=after
        )

    export_tasks(rows, options)


def list_page(
    client: TaskClient,
    span: Span,
    *,
    status: str | None = None,
    filters: Filters | None = None,
    attempts: bool = False,
    limit: int,
    page_token: str | None,
) -> HistoryPage:
    """Up to ``limit`` tasks as one page, in as many as it takes: a page of the client's may hold few."""
    from dynatick.client import HistoryPage
    from dynatick.client.history import MAX_LIMIT

    if limit < 1:
        raise InvalidInput("limit", limit, "expected a number, 1 or more")
    found: list[TaskEntry] = []
    token = page_token
    while True:
        page = client.history(
            span.bucket,
            start=span.start,
            end=span.end,
            status=status,
            **(filters or Filters()).arguments(),
            attempts=attempts,
            limit=min(limit - len(found), MAX_LIMIT),
            page_token=token,
        )
        found += page.entries
        token = page.next_page_token
        if token is None or len(found) >= limit:
            return HistoryPage(entries=tuple(found), next_page_token=token)


def show_page(session: Session, page: HistoryPage, beside: Mapping[str, object] | None = None) -> None:
    """Prints a page, and says how to go on after it."""
    rows = [entry.to_row() for entry in page.entries]
    token = page.next_page_token
    more = {} if token is None else {"nextPageToken": token}
    show_many(rows, COLUMNS, session.output, name="tasks", beside={**(beside or {}), **more})
    if token is not None and session.output is not Output.JSON:
        say(f"There are more: --page-token {token}")
    elif not rows and session.output is Output.TABLE:
        say("There are none")


def show_each(session: Session, typed: Sequence[str], read: Callable[[str], TaskView | Row]) -> None:
    """Prints tasks as they are read, each as a block or a document, and of others why not. Raises CommandFailed."""
    if is_single(typed):
        _show(session, read(typed[0]))
        return
    failed: list[ExitCode] = []
    ids = ids_of(typed)
    shown = 0
    with Listing((), Output.JSON if session.output is Output.JSON else Output.JSONL, name="tasks") as listing:
        for _, answer in each(ids, read):
            if isinstance(answer, DynatickError):
                failed.append(code_of(answer))
                say(f"error: {one_line(told(answer))}")
                continue
            if session.output is Output.JSON:
                listing.add(item_of(answer) if isinstance(answer, Mapping) else answer.to_row())
            else:
                if shown and session.output is Output.TABLE:
                    print()
                _show(session, answer)
            shown += 1
    if failed:
        raise CommandFailed(max(failed), f"{len(failed)} of {len(ids)} not shown")


def _show(session: Session, task: TaskView | Row) -> None:
    if isinstance(task, Mapping):
        show_raw(task, session.output)
    else:
        show_task(task, session.output, session.clock())

"""``dynatick task …``: insert tasks, change them, see them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from dynatick.bulk.formats import FileFormat
from dynatick.bulk.ids import PREFIX
from dynatick.cli.exits import CommandFailed, ExitCode
from dynatick.cli.exporting import ExportOptions, chosen_format, export_tasks
from dynatick.cli.importing import ImportOptions, import_tasks
from dynatick.cli.many import require_one_way, show_results
from dynatick.cli.output import Column, Output, say, show_many, show_one
from dynatick.cli.session import Session, on_table
from dynatick.cli.values import map_of, require_range, time_of
from dynatick.errors import InvalidInput

if TYPE_CHECKING:
    from dynatick.client import HistoryPage, TaskClient, TaskEntry

app = typer.Typer(name="task", help="Insert tasks, change them, see them.", no_args_is_help=True)

TaskId = Annotated[str, typer.Argument(metavar="ID", help="The task's id.", show_default=False)]
At = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="When: 2026-12-31T12:07:00Z, 2026-12-31#12:00 or epoch seconds."),
]
Delay = Annotated[float | None, typer.Option(metavar="SECONDS", help="When: so many seconds from now.")]
OneOrMany = Annotated[
    str | None, typer.Argument(metavar="ID", help="The task's id, if one is meant.", show_default=False)
]
Bucket = Annotated[str | None, typer.Option(metavar="BUCKET", help="Such as 2026-12-31#12:00.")]
From = Annotated[str | None, typer.Option("--from", metavar="TIME", help="First instant of a range.")]
To = Annotated[str | None, typer.Option(metavar="TIME", help="End of the range, not itself part of it.")]
Payload = Annotated[str | None, typer.Option(metavar="JSON|@FILE", help="The action's arguments, a JSON object.")]
Timeout = Annotated[
    int | None,
    typer.Option(metavar="SECONDS", help="How long an attempt takes at the most; it is not begun with less time left."),
]
OfAction = Annotated[str | None, typer.Option(help="Only those of this action.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say which tasks are meant, and change none.")]
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
    Column("DUE", "dueAt", to_seconds=True, spare=True),
    Column("FINISHED", "finishedAt", to_seconds=True, spare=True),
    Column("ATTEMPT", "attempt", right=True, spare=True),
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
        due_at=time_of(at),
        delay_seconds=delay,
        action=action,
        payload=map_of(payload, "payload"),
        retry_policy=map_of(retry_policy, "retryPolicy"),
        timeout_seconds=timeout_seconds,
        attributes=map_of(attributes, "attributes"),
    )
    show_one(view.to_row(), session.output)


@app.command()
@on_table
def get(session: Session, task_id: TaskId) -> None:
    """Show a task."""
    show_one(session.client().get(task_id).to_row(), session.output)


@app.command("list")
@on_table
def list_tasks(
    session: Session,
    bucket: Bucket = None,
    from_: From = None,
    to: To = None,
    status: Status = None,
    limit: Limit = 100,
    page_token: PageToken = None,
) -> None:
    """List the tasks of a bucket or of a range, with their status."""
    client = session.client()
    show_page(
        session, list_page(client, bucket=bucket, from_=from_, to=to, status=status, limit=limit, page_token=page_token)
    )


@app.command()
@on_table
def cancel(
    session: Session,
    task_id: OneOrMany = None,
    bucket: Bucket = None,
    from_: From = None,
    to: To = None,
    action: OfAction = None,
    dry_run: DryRun = False,
) -> None:
    """Call a waiting task off, or all of a bucket or range."""
    filters = {"bucket": bucket, "from": from_, "to": to, "action": action, "dry-run": dry_run or None}
    if require_one_way(task_id, **filters):
        show_one(session.client().cancel(str(task_id)).to_row(), session.output)
        return
    results = session.client().cancel_many(
        bucket, start=time_of(from_), end=time_of(to), action=action, dry_run=dry_run
    )
    show_results(session, results, "cancelled")


@app.command()
@on_table
def delete(session: Session, task_id: TaskId) -> None:
    """Remove a task that waits or has ended. Nothing is left of it."""
    session.client().delete(task_id)
    if session.output is Output.TABLE:
        say(f"deleted {task_id}")
    else:
        show_one({"taskId": task_id, "deleted": True}, session.output)


@app.command()
@on_table
def reschedule(session: Session, task_id: TaskId, at: At = None, delay: Delay = None) -> None:
    """Give a waiting task another time."""
    if at is None and delay is None:
        raise CommandFailed(ExitCode.USAGE, "say when: --at or --delay")
    view = session.client().reschedule(task_id, due_at=time_of(at), delay_seconds=delay)
    show_one(view.to_row(), session.output)


@app.command()
@on_table
def update(session: Session, task_id: TaskId, at: At = None, delay: Delay = None, payload: Payload = None) -> None:
    """Change a waiting task: its time, its payload, or both at once."""
    changed = map_of(payload, "payload")
    if at is None and delay is None and changed is None:
        raise CommandFailed(ExitCode.USAGE, "say what to change: --at, --delay or --payload")
    view = session.client().update(task_id, due_at=time_of(at), delay_seconds=delay, payload=changed)
    show_one(view.to_row(), session.output)


@app.command("run")
@on_table
def run_now(session: Session, task_id: TaskId) -> None:
    """Run a task at the next tick: a waiting one, or one that has ended once more."""
    show_one(session.client().run_now(task_id).to_row(), session.output)


@app.command()
@on_table
def retry(
    session: Session,
    task_id: OneOrMany = None,
    bucket: Bucket = None,
    from_: From = None,
    to: To = None,
    status: Annotated[str | None, typer.Option(help="Those that are failed (the default), or cancelled.")] = None,
    action: OfAction = None,
    error: Annotated[str | None, typer.Option(metavar="TEXT", help="Only those with this in their error.")] = None,
    dry_run: DryRun = False,
) -> None:
    """Give a failed or cancelled task another run, at the next tick, or all of a bucket or range."""
    filters = {"bucket": bucket, "from": from_, "to": to, "status": status, "action": action, "error": error}
    if require_one_way(task_id, **filters, **{"dry-run": dry_run or None}):
        show_one(session.client().retry(str(task_id)).to_row(), session.output)
        return
    results = session.client().retry_many(
        bucket,
        start=time_of(from_),
        end=time_of(to),
        status=status or "failed",
        action=action,
        error=error,
        dry_run=dry_run,
    )
    show_results(session, results, "retried")


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
    bucket: Bucket = None,
    from_: From = None,
    to: To = None,
    status: Status = None,
    form: Annotated[
        FileFormat | None, typer.Option("--format", help="Default: by the file's name; to stdout, ndjson.")
    ] = None,
    state: Annotated[bool, typer.Option("--state", help="Also what became of each task: status, error …")] = False,
    restart: Annotated[
        bool, typer.Option("--restart", help="Begin anew, although an interrupted run has written a part.")
    ] = False,
) -> None:
    """Write the tasks of a bucket, or of a range, to a file that can be imported again.

    Interrupted and run again with the same options, it goes on; FILE.progress, beside the file, says where.
    """
    require_range(bucket, from_, to)
    chosen = chosen_format(form, file)
    client, start, end = session.client(), time_of(from_), time_of(to)
    table = getattr(client.store, "table", session.table)
    asked = {"table": table, "bucket": bucket, "from": from_, "to": to, "status": status, "state": state}
    options = ExportOptions(
        file=file, form=chosen, asked={**asked, "format": str(chosen)}, restart=restart, with_state=state
    )
    export_tasks(lambda after: client.export(bucket, start=start, end=end, status=status, after=after), options)


def list_page(
    client: TaskClient,
    *,
    bucket: str | None = None,
    from_: str | None = None,
    to: str | None = None,
    status: str | None = None,
    limit: int,
    page_token: str | None,
) -> HistoryPage:
    """Up to ``limit`` tasks as one page, in as many as it takes: a page of the client's may hold few."""
    from dynatick.client import HistoryPage
    from dynatick.client.history import MAX_LIMIT

    require_range(bucket, from_, to)
    if limit < 1:
        raise InvalidInput("limit", limit, "expected a number, 1 or more")
    found: list[TaskEntry] = []
    token = page_token
    while True:
        page = client.history(
            bucket,
            start=time_of(from_),
            end=time_of(to),
            status=status,
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

"""``dynatick task …``: insert tasks, change them, list them. And ``dynatick complete``, ``fail`` and ``heartbeat``, for
those that their handlers have handed over."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from dynatick.cli.arguments import (
    Asking,
    At,
    ChangedPayload,
    Delay,
    Fingerprint,
    Ids,
    IdsOrNone,
    Limit,
    LimitKey,
    PageToken,
    Payload,
    RetryPolicy,
    SelectionOptions,
    Status,
    Subject,
    TaskId,
    Timeout,
    Wait,
    Waiting,
    WaitTimeout,
    error_filter,
    ids_of,
    is_single,
    map_of,
    seconds_of,
    shift_of,
    timeout_of,
)
from dynatick.cli.bulk_change import (
    BulkCommand,
    are_named,
    change_each,
    change_many,
    check_wait,
    delete_each,
    wait_for_runs,
)
from dynatick.cli.exit_code import CommandFailed, ExitCode, code_of, error_text
from dynatick.cli.exporting import export_file
from dynatick.cli.importing import import_file
from dynatick.cli.output import Output, say, show_document, show_outcome, show_rows
from dynatick.cli.session import Session, command, with_options
from dynatick.cli.task_display import list_page, show_each, show_explanation, show_tasks, show_view
from dynatick.domain import attributes as attr
from dynatick.domain.durations import duration_of
from dynatick.domain.task import Status as TaskStatus
from dynatick.domain.terminal_text import one_line
from dynatick.errors import DynatickError
from dynatick.json_reader import loads

if TYPE_CHECKING:
    from dynatick.client import TaskView
    from dynatick.domain.task import Row

Token = Annotated[
    str,
    typer.Argument(
        metavar="TOKEN",
        envvar="DYNATICK_COMPLETION_TOKEN",
        help="context.completion_token of its handler; - reads it from stdin. A secret.",
        show_default=False,
        show_envvar=True,
    ),
]

app = typer.Typer(name="task", help="Insert tasks, change them, list them.", no_args_is_help=True)


@command(app)
def add(
    session: Session,
    task_id: TaskId,
    at: At = None,
    delay: Delay = None,
    action: Annotated[str | None, typer.Option(help="What to run. Default: the installation's.")] = None,
    payload: Payload = None,
    retry_policy: RetryPolicy = None,
    timeout_seconds: Timeout = None,
    subject: Subject = None,
    limit_key: LimitKey = None,
    attributes: Annotated[
        str | None, typer.Option(metavar="JSON|@FILE", help="More attributes of the row, for your own use.")
    ] = None,
    if_exists: Annotated[
        str | None,
        typer.Option(
            metavar="refuse|keep|replace|postpone",
            help="If a task has this id: refuse, keep that one, replace it, or only move it to a later time.",
        ),
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Postpone it by so much at most, after its first time.")
    ] = None,
) -> None:
    """Insert a task. Refused if a task or schedule has this id, unless --if-exists says otherwise."""
    view = session.client().insert(
        task_id,
        due_at=session.time(at, attr.DUE_AT),
        delay_seconds=seconds_of(delay, attr.DELAY_SECONDS),
        action=action,
        payload=map_of(payload, attr.PAYLOAD),
        retry_policy=map_of(retry_policy, attr.RETRY_POLICY),
        timeout_seconds=seconds_of(timeout_seconds, attr.TIMEOUT_SECONDS),
        subject=subject,
        limit_key=limit_key,
        attributes=map_of(attributes, "attributes"),
        if_exists="refuse" if if_exists is None else if_exists,
        until=None if until is None else duration_of(until, "until"),
    )
    if if_exists is not None:
        say(f"{view.effect} {one_line(task_id)}")
    show_view(session, view)


@command(app)
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


@command(app)
def wait(session: Session, task_ids: Ids, timeout: WaitTimeout = None) -> None:
    """Wait until tasks have ended. Exit code 8 if one has not completed, 9 if time is up."""
    limit = timeout_of(timeout)
    client, end = session.client(), None if limit is None else session.clock() + limit
    ids, failed, alone = ids_of(task_ids), list[ExitCode](), is_single(task_ids)

    def ended() -> Iterator[TaskView]:
        for task_id in ids:
            try:
                view = client.wait(task_id, timeout=None if end is None else end - session.clock())
            except KeyboardInterrupt:
                say(f"Stopped waiting for {one_line(task_id)}; the task itself goes on")
                raise
            except DynatickError as error:
                if alone:
                    raise
                failed.append(code_of(error))
                say(f"error: {one_line(error_text(error))}")
                continue
            if view.status != TaskStatus.COMPLETED:
                failed.append(ExitCode.NOT_COMPLETED)
            yield view

    if session.output is not Output.TABLE and not alone:
        show_rows((view.to_row() for view in ended()), (), session.output, name="tasks")
    else:
        for view in ended():
            error = "" if view.error is None else f": {one_line(view.error)}"
            show_outcome(f"{view.status} {one_line(view.task_id)}{error}", view, session.output)
    if failed:
        raise CommandFailed(max(failed), f"{len(failed)} did not complete")


@command(app, "explain")
def explain_task(session: Session, task_id: TaskId) -> None:
    """Say why a task is where it is, what has happened to it, and what will."""
    found = session.client().operations.explain(task_id)
    if session.output is Output.TABLE and found.status is not None:
        show_explanation(found)
    elif session.output is not Output.TABLE:
        show_document(found.to_row(), session.output)
    if found.status is None:
        raise CommandFailed(ExitCode.NOT_FOUND, found.sentence)


@command(app, "list")
def list_tasks(
    session: Session,
    *,
    selecting: SelectionOptions,
    status: Status = None,
    fingerprint: Fingerprint = None,
    attempts: Annotated[
        bool,
        typer.Option("--attempts", help="The attempts of ended tasks, too: half a read unit per task and 4 KB."),
    ] = False,
    limit: Limit = 100,
    page_token: PageToken = None,
) -> None:
    """List the tasks of a bucket, of a range or of a subject, with their status."""
    client = session.client()
    selection = selecting.select(client, status=status, error=error_filter(None, fingerprint))
    page = list_page(client, selection, attempts=attempts, limit=limit, page_token=page_token)
    show_tasks(session, page, attempts=attempts)


@command(app)
def cancel(
    session: Session,
    task_ids: IdsOrNone = None,
    *,
    selecting: SelectionOptions,
    status: Waiting = None,
    asking: Asking,
) -> None:
    """Cancel waiting tasks: those named, or all of a bucket, range or subject."""
    if are_named(task_ids, **selecting.given(), status=status, dry_run=asking.dry_run):
        change_each(session, task_ids or (), session.client().cancel, "cancelled", show=partial(show_view, session))
        return
    client = session.client()
    cancel = partial(client.cancel_many, selecting.select(client, status=status))
    change_many(session, cancel, BulkCommand("cancel", "cancelled", asking))


@command(app)
def delete(
    session: Session,
    task_ids: IdsOrNone = None,
    *,
    selecting: SelectionOptions,
    status: Status = None,
    asking: Asking,
) -> None:
    """Delete the rows of tasks that wait or have ended: those named, or all of a bucket, of a range or of a subject.

    By --subject alone, its schedules are deleted, too, and batches with their members.
    """
    if are_named(task_ids, **selecting.given(), status=status, dry_run=asking.dry_run):
        delete_each(session, task_ids or (), session.client().delete)
        return
    client = session.client()
    delete = partial(client.delete_many, selecting.select(client, status=status))
    change_many(session, delete, BulkCommand("delete", "deleted", asking))


@command(app)
def reschedule(
    session: Session,
    task_ids: IdsOrNone = None,
    *,
    at: At = None,
    delay: Delay = None,
    by: Annotated[
        str | None,
        typer.Option(metavar="SHIFT", help="Shift each of them: +1h later, -30m earlier."),
    ] = None,
    selecting: SelectionOptions,
    status: Waiting = None,
    asking: Asking,
) -> None:
    """Give waiting tasks another time: those named, or all of a bucket, range or subject."""
    if at is None and delay is None and by is None:
        raise CommandFailed(ExitCode.USAGE, "give a time: --at, --delay or --by")
    due_at, delay_seconds = session.time(at, attr.DUE_AT), seconds_of(delay, attr.DELAY_SECONDS)
    shift = None if by is None else shift_of(by, "by")
    if are_named(task_ids, **selecting.given(), status=status, dry_run=asking.dry_run, by=by):
        change = partial(session.client().reschedule, due_at=due_at, delay_seconds=delay_seconds)
        change_each(session, task_ids or (), change, "rescheduled", show=partial(show_view, session))
        return
    if shift is not None and (at is not None or delay is not None):
        raise CommandFailed(ExitCode.USAGE, "--at and --delay have no effect with --by; use one of them only")
    client = session.client()
    move = partial(
        client.reschedule_many,
        selecting.select(client, status=status),
        due_at=due_at,
        delay_seconds=delay_seconds,
        shift=shift,
    )
    repeated = None if shift is None else "shifts all once more"
    change_many(session, move, BulkCommand("reschedule", "rescheduled", asking, repeated=repeated))


@command(app)
def update(session: Session, task_id: TaskId, at: At = None, delay: Delay = None, payload: Payload = None) -> None:
    """Change a waiting task: its time, its payload, or both at once; or the payload of a failed one."""
    changed = map_of(payload, attr.PAYLOAD)
    if at is None and delay is None and changed is None:
        raise CommandFailed(ExitCode.USAGE, "give a change: --at, --delay or --payload")
    view = session.client().update(
        task_id,
        due_at=session.time(at, attr.DUE_AT),
        delay_seconds=seconds_of(delay, attr.DELAY_SECONDS),
        payload=changed,
    )
    show_view(session, view)


@command(app, "run")
def run_now(
    session: Session,
    task_ids: IdsOrNone = None,
    *,
    selecting: SelectionOptions,
    status: Annotated[
        str | None, typer.Option(help="Only these: scheduled, unscheduled, completed, failed, cancelled.")
    ] = None,
    asking: Asking,
) -> None:
    """Run tasks at the next tick: those named, ended ones again; or the waiting ones of a bucket, range or subject."""
    if are_named(task_ids, **selecting.given(), status=status, dry_run=asking.dry_run):
        change_each(session, task_ids or (), session.client().run_now, "set to run", show=partial(show_view, session))
        return
    client = session.client()
    run = partial(client.run_now_many, selecting.select(client, status=status))
    change_many(session, run, BulkCommand("run", "set to run", asking))


@command(app)
def restore(
    session: Session,
    task_ids: IdsOrNone = None,
    *,
    selecting: SelectionOptions,
    asking: Asking,
) -> None:
    """Take cancellations back: those of the tasks named, or all of a bucket, range or subject. The tasks wait for their
    time again; if that has passed, they run at the next tick."""
    if are_named(task_ids, **selecting.given(), dry_run=asking.dry_run):
        change_each(session, task_ids or (), session.client().restore, "restored", show=partial(show_view, session))
        return
    client = session.client()
    restore = partial(client.restore_many, selecting.select(client))
    change_many(session, restore, BulkCommand("restore", "restored", asking))


@command(app)
def redrive(
    session: Session,
    task_ids: IdsOrNone = None,
    *,
    selecting: SelectionOptions,
    status: Annotated[str | None, typer.Option(help="Failed ones, which are the default.", hidden=True)] = None,
    error: Annotated[str | None, typer.Option(metavar="TEXT", help="Only those with this in their error.")] = None,
    fingerprint: Fingerprint = None,
    changed: ChangedPayload,
    wait: Wait = False,
    timeout: WaitTimeout = None,
    asking: Asking,
) -> None:
    """Start failed tasks anew, at the next tick: those named, or all of a bucket, range or subject. With their payload,
    or with another one, which is checked by the handler's type."""
    from dynatick.client.change_records import FollowedRuns

    check_wait(timeout, wait=wait)
    client, runs = session.client(), FollowedRuns()
    if are_named(task_ids, **selecting.given(), status=status, error=error, fingerprint=fingerprint):
        done = "to be redriven" if asking.dry_run else "redriven"
        change = partial(client.redrive, **changed.arguments(), dry_run=asking.dry_run)

        def redrive_one(task_id: str) -> TaskView:
            view = change(task_id)
            if not asking.dry_run:
                runs.add(view)
            return view

        change_each(session, task_ids or (), redrive_one, done, show=partial(show_view, session))
        if wait:
            wait_for_runs(session, runs, timeout, done)
        return
    selection = selecting.select(client, status=status, error=error_filter(error, fingerprint))
    redrive = partial(client.redrive_many, selection, **changed.arguments())
    change_many(session, redrive, BulkCommand("redrive", "redriven", asking, runs))
    if wait:
        wait_for_runs(session, runs, timeout, "redriven")


app.command("import")(import_file)
app.command("export")(export_file)


@with_options
def complete(
    session: Session,
    token: Token,
    result: Annotated[str | None, typer.Option(metavar="JSON", help="What is recorded.")] = None,
) -> None:
    """Complete a task that its handler has handed over. The same again changes nothing."""
    show_view(session, session.client().complete(_token_of(token), None if result is None else loads(result, "result")))


@with_options
def fail(
    session: Session,
    token: Token,
    error: Annotated[str, typer.Option(help="Why.")],
    retry: Annotated[bool, typer.Option("--retry", help="It is attempted again, by its retry policy.")] = False,
) -> None:
    """Fail a task that its handler has handed over; without --retry, for good, with the next tick."""
    show_view(session, session.client().fail(_token_of(token), error, retry=retry))


@with_options
def heartbeat(session: Session, token: Token) -> None:
    """Say that the work on a task goes on. Exit code 5 if it was cancelled, or its attempt is over."""
    show_view(session, session.client().heartbeat(_token_of(token)))


def _token_of(token: str) -> str:
    return sys.stdin.read().strip() if token == "-" else token

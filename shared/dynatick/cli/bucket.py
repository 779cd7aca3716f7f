"""``dynatick bucket …``: lists the tasks of buckets, and counts them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from dynatick.cli.arguments import Last, Limit, Next, PageToken, Status, WaitTimeout, check_range, timeout_of
from dynatick.cli.exit_code import CommandFailed, ExitCode
from dynatick.cli.output import NONE, Column, Output, say, show_document, show_many, show_outcome
from dynatick.cli.session import Session, command
from dynatick.cli.task_display import list_page, show_tasks
from dynatick.domain.departure_text import DEPARTURE_TEXT
from dynatick.domain.durations import milliseconds_text
from dynatick.domain.task import Status as TaskStatus

if TYPE_CHECKING:
    from dynatick.client.views import TaskCounts

app = typer.Typer(name="bucket", help="List the tasks of buckets, and count them.", no_args_is_help=True)

_SPARE = {"unscheduled": 6, "scheduled": 3, "running": 4, "waiting": 7, "completed": 2, "failed": 1, "cancelled": 5}
_COLUMNS = (
    Column("BUCKET", "bucket"),
    *(Column(status.upper(), status, right=True, spare=spare) for status, spare in _SPARE.items()),
    Column("TOTAL", "total", right=True),
)
_BY_ACTION = (Column("ACTION", "action", folds=True), *_COLUMNS[1:])


@command(app)
def show(
    session: Session,
    bucket: Annotated[
        str | None, typer.Argument(metavar="[BUCKET]", help="Such as 2026-12-31#12:00.", show_default=False)
    ] = None,
    summary: Annotated[
        bool, typer.Option("--summary", help="Only how many tasks there are, by status and action; also of a range.")
    ] = False,
    from_: Annotated[str | None, typer.Option("--from", metavar="TIME", help="First instant of the range.")] = None,
    to: Annotated[str | None, typer.Option(metavar="TIME", help="End of it, not itself part of it.")] = None,
    last: Last = None,
    next_: Next = None,
    status: Status = None,
    limit: Limit = 100,
    page_token: PageToken = None,
) -> None:
    """Show a bucket: its tasks, how many there are of each status, and how late those that have ended began.

    It also says how many ran and failed there and have gone elsewhere since, by a retry, a further turn or a redrive.
    With --summary, it counts the tasks of the bucket, or of a range, by status and action.
    """
    if summary:
        if bucket is None:
            check_range(from_, to, last, next_, which="a bucket, --last, --next")
        counted = session.client().count_tasks(bucket, start=from_, end=to, last=last, next=next_, status=status)
        _show_summary(session.output, counted)
        return
    if bucket is None or not from_ is to is last is next_ is None:
        raise CommandFailed(ExitCode.USAGE, "name one bucket; --summary counts those of a range")
    client = session.client()
    page = list_page(client, client.select(bucket, status=status), limit=limit, page_token=page_token)
    whole = page if status is None and page_token is None else None
    counts = next(iter(client.bucket_counts(bucket, listed=whole)), None)
    if session.output is Output.TABLE and counts is not None:
        there = ", ".join(f"{number} {name}" for name, number in sorted(counts.counts.items()))
        say(f"{bucket}: {there or 'nothing is there now'}")
        if counts.left:
            gone = ", ".join(f"{number} {DEPARTURE_TEXT[name]}" for name, number in counts.left.items())
            say(f"{counts.ran} ran there, {counts.failed} of them failed. Gone elsewhere since: {gone}")
        if counts.lateness_max_ms is not None:
            found = (counts.lateness_p50_ms, counts.lateness_p99_ms, counts.lateness_max_ms)
            p50, p99, longest = (milliseconds_text(one or 0) for one in found)
            say(f"Lateness: p50 {p50}, p99 {p99}, max {longest}")
    show_tasks(session, page, {"counts": {}, **({} if counts is None else counts.to_row()), "bucket": bucket})


def _show_summary(output: Output, counted: TaskCounts) -> None:
    if output is not Output.TABLE:
        show_document(counted.to_row(), output)
        return
    rows: list[Mapping[str, object]] = [
        {"action": action, **counts, "total": sum(counts.values())} for action, counts in counted.actions.items()
    ]
    if len(rows) > 1:
        rows.append({"action": "(all)", **counted.counts, "total": counted.total})
    show_many(rows, _BY_ACTION, output, name="actions", nothing=NONE)
    if counted.lateness:
        say(f"Lateness: {', '.join(f'{name} {milliseconds_text(ms)}' for name, ms in counted.lateness.items())}")


@command(app)
def wait(
    session: Session,
    bucket: Annotated[str, typer.Argument(metavar="BUCKET", help="Such as 2026-12-31#12:00.", show_default=False)],
    timeout: WaitTimeout = None,
) -> None:
    """Wait until every task of a bucket has ended, or has gone to another. Exit code 8 if one has failed, 9 if time is
    up."""
    found = session.client().wait_for_bucket(bucket, timeout=timeout_of(timeout))
    counts = ", ".join(f"{number} {name}" for name, number in sorted(found.counts.items()))
    show_outcome(f"{bucket}: {counts or 'empty'}", found, session.output)
    if failed := found.counts.get(TaskStatus.FAILED, 0):
        raise CommandFailed(ExitCode.NOT_COMPLETED, f"{failed} failed")


@command(app, "list")
def list_buckets(
    session: Session,
    from_: Annotated[str | None, typer.Option("--from", metavar="TIME", help="First instant.")] = None,
    to: Annotated[str | None, typer.Option(metavar="TIME", help="End, not itself part of it.")] = None,
    last: Last = None,
    next_: Next = None,
) -> None:
    """List the buckets of a range that hold tasks, with how many there are of each status."""
    check_range(from_, to, last, next_)
    found = session.client().bucket_counts(start=from_, end=to, last=last, next=next_)
    rows = [
        {"bucket": one.bucket, **one.counts, "total": one.total} if session.output is Output.TABLE else one.to_row()
        for one in found
    ]
    show_many(rows, _COLUMNS, session.output, name="buckets", nothing=NONE)

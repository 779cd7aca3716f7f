"""``dynatick batch …``: any number of tasks of one action, inserted as one."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dynatick.bulk.record import FileFormat, format_of
from dynatick.cli.arguments import (
    At,
    Delay,
    InputFormat,
    Last,
    LimitKey,
    Next,
    PageToken,
    RangeEnd,
    RangeStart,
    RetryPolicy,
    Subject,
    Timeout,
    WaitTimeout,
    check_range,
    map_of,
    seconds_of,
    timeout_of,
)
from dynatick.cli.exit_code import CommandFailed, ExitCode
from dynatick.cli.importing import open_source
from dynatick.cli.output import Column, Output, say, show_one, show_outcome, show_page, show_pairs, show_rows
from dynatick.cli.session import Session, command
from dynatick.cli.task_display import whole_page
from dynatick.domain import attributes as attr
from dynatick.domain.instants import format_instant
from dynatick.domain.task import Status
from dynatick.domain.terminal_text import one_line
from dynatick.errors import InvalidInput

if TYPE_CHECKING:
    from dynatick.client.batches import BatchView

app = typer.Typer(
    name="batch", help="Any number of tasks of one action, inserted as one.", no_args_is_help=True
)  # fmt: skip

BatchId = Annotated[str, typer.Argument(metavar="ID", help="The batch's id.", show_default=False)]
_BAR = 40  # characters
_PER_MESSAGE = 100_000  # payloads, on a terminal
_OF_BATCHES = (
    Column("BATCH", attr.BATCH_ID, folds=True),
    Column("STATUS", attr.STATUS),
    Column("ACTION", attr.ACTION, folds=True),
    Column("DUE", attr.DUE_AT, to_seconds=True, spare=1),
    Column("MEMBERS", attr.MEMBERS, right=True),
    Column("ENDED", "ended", right=True),
    Column("FAILED", "failed", right=True),
)
_COLUMNS = (
    Column("TASK", attr.TASK_ID, folds=True),
    Column("STATUS", attr.STATUS),
    Column("FINISHED AT", attr.FINISHED_AT, to_seconds=True, spare=1),
    Column("ATTEMPT", attr.ATTEMPT, right=True, spare=2),
    Column("ERROR", attr.ERROR, folds=True),
)


@command(app)
def add(
    session: Session,
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="A payload in each line: .ndjson, .jsonl or .csv; - for stdin.", show_default=False
        ),
    ],
    *,
    batch_id: Annotated[str, typer.Option("--id", metavar="ID", help="The batch's id.", show_default=False)],
    action: Annotated[str, typer.Option(help="What to run with each payload.", show_default=False)],
    due: At = None,
    delay: Delay = None,
    over: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Spread evenly over this time, as 90s, 2h; a day at most.")
    ] = None,
    then: Annotated[
        str | None,
        typer.Option(metavar="JSON|@FILE", help='A task for when all have ended: {"action": …, "payload": …}.'),
    ] = None,
    total: Annotated[int | None, typer.Option(help="The number of payloads, for --over with stdin or a pipe.")] = None,
    form: InputFormat = None,
    retry_policy: RetryPolicy = None,
    timeout_seconds: Timeout = None,
    subject: Subject = None,
    limit_key: LimitKey = None,
    attributes: Annotated[
        str | None, typer.Option(metavar="JSON|@FILE", help="More attributes of each member, for your own use.")
    ] = None,
) -> None:
    """Insert a task for each payload of a file. The same command again goes on where it was.

    In a CSV file, each column is a field of the payload, a text; one whose name ends in :json contains JSON.
    """
    if over is not None and total is None and _can_be_read_twice(file):
        total = sum(1 for _ in _payloads(file, form))
    due_at = session.time(due, attr.DUE_AT)
    if due_at is not None and delay is None and (delay := _delay_in(due)) is not None:
        due_at = None
    inserted = session.client().batches.insert(
        _reported(_payloads(file, form)),
        batch_id=batch_id,
        action=action,
        due_at=due_at,
        delay=_delay_of(delay),
        over=over,
        total=total,
        then=map_of(then, "then"),
        retry_policy=map_of(retry_policy, attr.RETRY_POLICY),
        timeout_seconds=seconds_of(timeout_seconds, attr.TIMEOUT_SECONDS),
        subject=subject,
        limit_key=limit_key,
        attributes=map_of(attributes, "attributes"),
    )
    show_outcome(one_line(str(inserted)), inserted, session.output)


@command(app)
def show(session: Session, batch_id: BatchId) -> None:
    """Show a batch: how many of its members have ended, and when all will have."""
    _show(session, session.client().batches.get(batch_id))


@command(app, "list")
def list_batches(
    session: Session,
    from_: RangeStart = None,
    to: RangeEnd = None,
    last: Last = None,
    next_: Next = None,
    limit: Annotated[int, typer.Option(help="The maximum number of batches.")] = 100,
    page_token: PageToken = None,
) -> None:
    """List batches, the latest first, by when their last members are due."""
    if from_ is not None or to is not None:
        check_range(from_, to, last, next_)
    batches = session.client().batches

    def read(limit: int, token: str | None) -> tuple[Sequence[BatchView], str | None]:
        page = batches.list(start=from_, end=to, last=last, next=next_, limit=limit, page_token=token)
        return page.batches, page.next_page_token

    views, token = whole_page(read, limit, page_token)
    show_page([view.to_row() for view in views], _OF_BATCHES, session.output, name="batches", token=token)


@command(app, "members")
def list_members(
    session: Session,
    batch_id: BatchId,
    status: Annotated[
        str | None, typer.Option(help="Only these: scheduled, running, completed, failed or cancelled.")
    ] = None,
) -> None:
    """List the members of a batch, in order of number."""
    members = session.client().batches.members(batch_id, status)
    show_rows((view.to_row() for view in members), _COLUMNS, session.output, name="members")


@command(app)
def cancel(session: Session, batch_id: BatchId) -> None:
    """Cancel the members that wait, and what would follow. Those that run end by themselves."""
    done = session.client().batches.cancel(batch_id)
    words = f"{_members(done.cancelled)} cancelled; {done.running:,} that run end by themselves"
    show_outcome(words, done, session.output)


@command(app)
def reschedule(session: Session, batch_id: BatchId, due: At = None, delay: Delay = None) -> None:
    """Give the members that wait another time. Those with rows of their own keep theirs."""
    done = session.client().batches.reschedule(batch_id, due_at=session.time(due, attr.DUE_AT), delay=_delay_of(delay))
    due_at = _range(done.due_at, done.last_due_at)
    words = f"{_members(done.rescheduled)} due {due_at}; {done.running:,} run already"
    show_outcome(words, done, session.output)


@command(app)
def redrive(session: Session, batch_id: BatchId) -> None:
    """Start the members that have failed anew, at the next tick."""
    done = session.client().batches.redrive(batch_id)
    show_outcome(f"{_members(done.redriven)} redriven", done, session.output)


@command(app)
def wait(session: Session, batch_id: BatchId, timeout: WaitTimeout = None) -> None:
    """Wait until every member has ended. Exit code 8 unless all have completed, 9 if time is up."""
    view = session.client().batches.wait(batch_id, timeout=timeout_of(timeout))
    _show(session, view)
    others = sum(number for status, number in view.counts.items() if status != Status.COMPLETED)
    if others or view.status != Status.COMPLETED:
        raise CommandFailed(ExitCode.NOT_COMPLETED, f"{_members(others)} did not complete")


def _delay_in(due: str | None) -> str | None:
    """The delay that a relative time is; None: it is another time. Of a delay the first call counts, so that the same
    command goes on later."""
    typed = "" if due is None else due.strip()
    return "0" if typed == "now" else typed[1:] if typed.startswith("+") else None


def _delay_of(text: str | None) -> timedelta | None:
    seconds = seconds_of(text, attr.DELAY_SECONDS)
    return None if seconds is None else timedelta(seconds=float(seconds))


def _range(first: datetime, last: datetime) -> str:
    return format_instant(first) if first == last else f"{format_instant(first)} to {format_instant(last)}"


def _members(number: int) -> str:
    return "1 member" if number == 1 else f"{number:,} members"


def _show(session: Session, view: BatchView) -> None:
    if session.output is not Output.TABLE:
        show_one(view.to_row(), session.output)
        return
    pairs: list[tuple[str, object]] = [
        (attr.BATCH_ID, view.batch_id),
        ("status", str(view.status)),
        ("action", view.action),
        ("due", _range(view.due_at, view.last_due_at)),
    ]
    if view.limit_key is not None:
        pairs.append(("limit key", view.limit_key))
    if view.members is None:
        pairs.append(("members", "not all are in yet"))
    else:
        ended = view.ended or 0
        full = _BAR if not view.members else _BAR * ended // view.members
        pairs.append(("members", f"{'█' * full}{'░' * (_BAR - full)}  {ended:,} of {view.members:,} have ended"))
        pairs += [(status, f"{number:,}") for status, number in sorted(view.counts.items())]
    if view.ends_at is not None:
        pairs.append(("ends about", format_instant(view.ends_at.replace(microsecond=0))))
    if view.then is not None:
        pairs.append(("then", view.then))
    if view.finished_at is not None:
        pairs.append(("finished", format_instant(view.finished_at)))
    show_pairs(pairs)


def _can_be_read_twice(file: str) -> bool:
    """No: stdin, and what is no regular file, such as a pipe. A file that is not there is refused when it is read."""
    path = Path(file)
    return file != "-" and (path.is_file() or not path.exists())


def _payloads(file: str, form: FileFormat | None) -> Iterator[Mapping[str, object]]:
    """The payloads of a file. Raises CommandFailed, and InvalidInput with the number of a line that has none."""
    from dynatick.bulk.file_reader import read

    with ExitStack() as opened:
        source, path = open_source(file, opened)
        chosen = form or (FileFormat.NDJSON if path is None else format_of(path.name))
        for record in read(source, chosen, of_payloads=True):
            if record.error is not None:
                raise InvalidInput(f"line {record.line}", record.error.value, record.error.expected)
            assert record.row is not None
            yield record.row


def _reported(payloads: Iterator[Mapping[str, object]]) -> Iterator[Mapping[str, object]]:
    """The same, with a message for each 100,000 on a terminal."""
    for number, payload in enumerate(payloads):
        if number and number % _PER_MESSAGE == 0 and sys.stderr.isatty():
            say(f"{number:,} payloads")
        yield payload

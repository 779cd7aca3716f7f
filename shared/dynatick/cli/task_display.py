"""Tasks as people read them: one as a short block, several as a table."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from dynatick.cli.arguments import ids_of, is_single
from dynatick.cli.bulk_change import each
from dynatick.cli.exit_code import CommandFailed, ExitCode, code_of, error_text
from dynatick.cli.output import Column, Output, say, show_document, show_one, show_page, show_pairs, show_rows
from dynatick.cli.session import Session
from dynatick.domain import attributes as attr
from dynatick.domain.durations import relative_text
from dynatick.domain.instants import format_instant
from dynatick.domain.selection import Selection
from dynatick.domain.terminal_text import one_line
from dynatick.errors import DynatickError, InvalidInput

if TYPE_CHECKING:
    from dynatick.client import HistoryPage, TaskClient, TaskEntry, TaskView
    from dynatick.client.operations import Explanation, PayloadCheck
    from dynatick.domain.task import Row

T = TypeVar("T")
COLUMNS = (
    Column("TASK", attr.TASK_ID, folds=True),
    Column("BUCKET", attr.TASK_DATE_TIME),
    Column("STATUS", attr.STATUS),
    Column("ACTION", attr.ACTION, folds=True),
    Column("DUE", attr.DUE_AT, to_seconds=True, spare=1),
    Column("FINISHED", attr.FINISHED_AT, to_seconds=True, spare=1),
    Column("ATTEMPT", attr.ATTEMPT, right=True, spare=1),
    Column("ERROR", attr.ERROR, folds=True),
)
"""``ATTEMPT`` only if the attempts of ended tasks are read: the index has those of waiting ones alone."""


def show_task(view: TaskView, output: Output, now: datetime) -> None:
    """Prints a task: the most important attributes as a block, or its whole row as JSON."""
    from dynatick.domain.schedule import is_or_was_schedule

    if output is Output.TABLE and not is_or_was_schedule(view.row):
        show_pairs([*_block(view, now).items(), *view.attributes.items()])  # which may have the same names
    else:
        show_one(view.to_row(), output)


def item_of(row: Row) -> Mapping[str, object]:
    """A row in DynamoDB's JSON, with the types of its values."""
    from dynatick.store.codec import encode

    text = json.dumps(encode(row), default=lambda binary: base64.b64encode(bytes(binary)).decode())
    item: Mapping[str, object] = json.loads(text)
    return item


def show_raw(row: Row, output: Output) -> None:
    """Prints a row as the table holds it."""
    show_document(item_of(row), Output.JSON if output is Output.TABLE else output)


def _block(view: TaskView, now: datetime) -> Mapping[str, object]:
    row = view.row
    later = [
        f"{name} {number}" for name, number, first in (("run", view.run, 1), ("turn", view.turn, 0)) if number > first
    ]
    run = f" ({', '.join(later)})" if later else ""
    lines = {
        "id": view.task_id,
        "status": view.status,
        "due": _when(view.due_at, now),
        "first due": _when(view.first_due_at, now),
        "next attempt": _when(view.next_attempt_at, now),
        "complete by": _when(view.complete_by, now),
        "heartbeat by": _when(view.heartbeat_by, now),
        "delay": None if view.due_at is not None or attr.DELAY_SECONDS not in row else f"{row[attr.DELAY_SECONDS]} s",
        "bucket": view.bucket,
        "attempts": None if attr.ATTEMPT not in row else f"{view.attempt}{run}",
        "action": view.action,
        "subject": row.get(attr.SUBJECT),
        "limit key": row.get(attr.LIMIT_KEY),
        "trace": view.traceparent,
        "follow-up of": view.follow_up_of,
        "follow-ups": ", ".join(view.follow_ups) or None,
        "payload": row.get(attr.PAYLOAD),
        "schedule": row.get(attr.SCHEDULE_ID),
        "retry policy": row.get(attr.RETRY_POLICY),
        "timeout": None if row.get(attr.TIMEOUT_SECONDS) is None else f"{row[attr.TIMEOUT_SECONDS]} s",
        "result": view.result,
        "error": view.error,
        "last error": None if view.error is not None else _last_error(row.get(attr.ATTEMPTS)),
        "created": _when(view.created_at, now),
        "started": _when(view.started_at, now),
        "finished": _when(view.finished_at, now),
        "expires": _when(view.expires_at, now),
    }
    return {name: value for name, value in lines.items() if value is not None}


def ago(instant: datetime, now: datetime) -> str:
    """An instant to the second, with its distance from now."""
    return _when(instant, now) or format_instant(instant)


def unfit_lines(check: PayloadCheck, *, fails: bool = True) -> Iterator[str]:
    """Waiting tasks whose payloads do not fit, a line for each reason: those that will fail, or those that will not."""
    for one in check.groups:
        if one.fails is fails:
            yield one_line(f"{one.count} {one.action}: {one.error} (such as {one.task_id})")


def _when(instant: datetime | None, now: datetime) -> str | None:
    """An instant to the second, with its distance from now."""
    if instant is None:
        return None
    return f"{format_instant(instant.replace(microsecond=0))} ({relative_text(instant, now)})"


def _last_error(attempts: object) -> object:
    """The error of the latest attempt that failed. The attribute may hold anything."""
    entries = attempts if isinstance(attempts, (list, tuple)) else ()
    return next((one[attr.ERROR] for one in reversed(entries) if isinstance(one, Mapping) and attr.ERROR in one), None)


def list_page(
    client: TaskClient,
    selection: Selection,
    *,
    attempts: bool = False,
    limit: int,
    page_token: str | None,
) -> HistoryPage:
    """Up to ``limit`` tasks as one page, of several requests: a page of the client may hold fewer."""
    from dynatick.client import HistoryPage

    def read(limit: int, token: str | None) -> tuple[Sequence[TaskEntry], str | None]:
        page = client.history(selection, attempts=attempts, limit=limit, page_token=token)
        return page.entries, page.next_page_token

    found, token = whole_page(read, limit, page_token)
    return HistoryPage(entries=tuple(found), next_page_token=token)


def whole_page(
    read: Callable[[int, str | None], tuple[Sequence[T], str | None]], limit: int, token: str | None
) -> tuple[Sequence[T], str | None]:
    """Up to ``limit`` of a list, and the token of what follows, by several requests. ``read``: gets the limit and the
    token of a page, which may hold fewer."""
    from dynatick.client.history import MAX_LIMIT

    if limit < 1:
        raise InvalidInput("limit", limit, "expected a number of at least 1")
    found: list[T] = []
    while True:
        some, token = read(min(limit - len(found), MAX_LIMIT), token)
        found += some
        if token is None or len(found) >= limit:
            return found, token


def show_tasks(
    session: Session, page: HistoryPage, more: Mapping[str, object] | None = None, *, attempts: bool = False
) -> None:
    """Prints a page, and how to get the next one. ``attempts``: they have been read of ended tasks, too."""
    rows = [_listed(entry) if session.output is Output.TABLE else entry.to_row() for entry in page.entries]
    columns = [one for one in COLUMNS if attempts or one.attribute != attr.ATTEMPT]
    show_page(rows, columns, session.output, name="tasks", token=page.next_page_token, more=more)


def _listed(entry: TaskEntry) -> dict[str, object]:
    """A task as a table shows it; a pack as what it has."""
    from dynatick.domain.packs import parse_pack_id

    row = entry.to_row()
    if entry.members is None or (named := parse_pack_id(entry.task_id)) is None:
        return row
    batch_id, span = named
    counts = ", ".join(f"{number} {status}" for status, number in sorted(entry.members.items()))
    return {**row, attr.TASK_ID: f"{span.members} members of {batch_id}", attr.STATUS: counts or "in rows of their own"}


def show_each(session: Session, typed: Sequence[str], read: Callable[[str], TaskView | Row]) -> None:
    """Prints tasks as they are read, each as a block or a document, and errors. Raises CommandFailed for errors."""
    if is_single(typed):
        show_view(session, read(typed[0]))
        return
    failed: list[ExitCode] = []
    ids = ids_of(typed)

    def found() -> Iterator[TaskView | Row]:
        for _, answer in each(ids, read):
            if isinstance(answer, DynatickError):
                failed.append(code_of(answer))
                say(f"error: {one_line(error_text(answer))}")
            else:
                yield answer

    if session.output is Output.JSON:
        rows = (item_of(one) if isinstance(one, Mapping) else one.to_row() for one in found())
        show_rows(rows, (), session.output, name="tasks")
    else:
        for number, one in enumerate(found()):
            if number and session.output is Output.TABLE:
                print()
            show_view(session, one)
    if failed:
        raise CommandFailed(max(failed), f"{len(failed)} of {len(ids)} could not be shown")


def show_view(session: Session, task: TaskView | Row) -> None:
    if isinstance(task, Mapping):
        show_raw(task, session.output)
    else:
        show_task(task, session.output, session.clock())


def show_explanation(found: Explanation) -> None:
    """Prints the sentence, then a line for each event; below one with a trace, its lines, the innermost first."""
    print(one_line(found.sentence))
    for event in found.events:
        at = "" if event.at is None else event.at.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
        error = "" if event.error is None else f"   {one_line(event.error)}"
        print(f"  {at:<23}  {one_line(event.what)}{error}")
        for line in reversed((event.trace or "").splitlines()):
            print(f"{'':29}{one_line(line)}")

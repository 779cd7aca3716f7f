"""``dynatick change …``: changes of many tasks, by whom, and what came of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dynatick.cli.arguments import Wait, WaitTimeout
from dynatick.cli.bulk_change import check_wait, wait_for_runs
from dynatick.cli.exit_code import CommandFailed, ExitCode
from dynatick.cli.output import Column, Output, say, show_many, show_outcome
from dynatick.cli.session import Session, command
from dynatick.domain.durations import duration_of
from dynatick.domain.instants import format_instant
from dynatick.domain.terminal_text import one_line, suggested

if TYPE_CHECKING:
    from dynatick.client.operations import ChangeView

app = typer.Typer(
    name="change", help="Show who has changed many tasks at once, and what came of it.", no_args_is_help=True
)

ChangeId = Annotated[str, typer.Argument(metavar="ID", help="As dynatick change list shows it.")]

_COLUMNS = (
    Column("ID", "changeId"),
    Column("AT", "at", to_seconds=True, spare=1),
    Column("CHANGE", "change"),
    Column("TASKS", "changed", right=True),
    Column("STATE", "state"),
    Column("GIVEN", "given", folds=True),
    Column("BY", "by", folds=True),
)


@command(app, "list")
def list_changes(
    session: Session,
    last: Annotated[str, typer.Option(metavar="DURATION", help="Those of the last 2h, 7d, up to 31d.")] = "7d",
    limit: Annotated[int, typer.Option(help="The maximum number of changes, up to 1,000.")] = 100,
) -> None:
    """List the changes of many tasks by a filter, the latest first: by commands, pages, programs and over HTTP."""
    found = session.client().operations.changes.list(last=duration_of(last, "last"), limit=limit)
    rows = [one.to_row() for one in found]
    if session.output is Output.TABLE:
        rows = [{**row, "given": _given(one)} for one, row in zip(found, rows, strict=True)]
    show_many(rows, _COLUMNS, session.output, name="changes")
    if session.output is Output.TABLE:
        from dynatick.client.change_records import FOLLOWED

        redriven = next((one for one in found if one.change in FOLLOWED), None)
        if not found:
            say(f"Nothing was changed by a filter in the last {last}")
        elif redriven is not None:
            say(f"What came of the runs: {suggested('dynatick change show', redriven.change_id)}")


@command(app)
def show(
    session: Session,
    change_id: ChangeId,
    wait: Wait = False,
    timeout: WaitTimeout = None,
) -> None:
    """Show a change of many tasks, and of a redrive what has come of its runs by now."""
    check_wait(timeout, wait=wait)
    changes = session.client().operations.changes
    found = changes.get(change_id)
    if found is None:
        raise _absent(change_id)
    show_outcome("\n".join(_lines(found)), found, session.output)
    if wait:
        wait_for_runs(session, changes.runs_of(found), timeout, "redriven")


@command(app)
def abort(session: Session, change_id: ChangeId) -> None:
    """Abort a change of many tasks that a page of dynatick ui makes: it ends after the tasks that are being changed."""
    asked = session.client().operations.changes.abort(change_id, by=session.caller())
    if asked is None:
        raise _absent(change_id)
    words = f"Its process is asked to end it, by {one_line(asked.abort_by or 'unknown')}"
    show_outcome(f"{words}\nWhat came of it: {suggested('dynatick change show', change_id)}", asked, session.output)


def _absent(change_id: str) -> CommandFailed:
    return CommandFailed(ExitCode.NOT_FOUND, f"there is no change {one_line(change_id)}; they are kept for 31 days")


def _given(one: ChangeView) -> str:
    return one_line(" ".join(f"{name}={value}" for name, value in one.given.items()))


def _lines(one: ChangeView) -> list[str]:
    by = "" if one.by is None else f" by {one_line(one.by)}"
    by += "" if one.interface is None else f" ({one_line(one.interface)})"
    lines = [f"{one_line(one.change)} at {format_instant(one.at)}{by}"]
    lines += [f"Given: {_given(one)}"] if one.given else []
    if one.ended_at is None:
        lines.append("Its end is not known: it goes on, or its process has died")
        lines += [f"{one_line(one.abort_by)} has asked to abort it"] if one.abort_by else []
    else:
        lines.append(f"{one.state}: {one.words}")
    lines += [f"Problem: {one_line(one.problem)}"] if one.problem else []
    if one.runs is not None:
        more = f"; {one.not_followed:,} more are not followed" if one.not_followed else ""
        lines.append(f"Of their runs {one.runs}{more}")
    return lines

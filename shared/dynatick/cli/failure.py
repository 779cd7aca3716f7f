"""``dynatick failure …``: failed tasks in groups of the same error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from dynatick.cli.output import Column, Output, say, show_many
from dynatick.cli.session import Session, command
from dynatick.domain.durations import duration_of
from dynatick.domain.instants import format_instant
from dynatick.domain.terminal_text import one_line, quoted

if TYPE_CHECKING:
    from dynatick.client.operations import FailureGroup

app = typer.Typer(name="failure", help="Show what has failed, in groups of the same error.", no_args_is_help=True)

_COLUMNS = (
    Column("FINGERPRINT", "fingerprint"),
    Column("TASKS", "count", right=True),
    Column("ACTION", "actions", folds=True),
    Column("FIRST", "first", to_seconds=True, spare=2),
    Column("LAST", "last", to_seconds=True, spare=1),
    Column("NEW", "new", spare=3),
    Column("ERROR", "error", folds=True),
)


@command(app, "list")
def list_failures(
    session: Session,
    last: Annotated[
        str, typer.Option(metavar="DURATION", help="What failed in the last 2h, 24h, up to 7d, and is failed now.")
    ] = "24h",
) -> None:
    """List the tasks that are failed now, in groups of the same error: those with the most tasks first. Errors are the
    same if only numbers, ids and addresses differ.

    A group is new if none of it failed before the last deployment that changed the settings. task list and task redrive
    take a fingerprint.
    """
    client, distance = session.client(), duration_of(last, "last")
    settings, found = client.settings(), client.operations.failures(distance)
    deployed, since = None if settings is None else settings.updated_at, session.clock() - distance
    rows = [{**one.to_row(), "new": one.is_new_since(deployed, since)} for one in found]
    if session.output is not Output.TABLE:
        show_many(rows, _COLUMNS, session.output, name="failures")
        return
    show_many(
        [_line(one, row) for one, row in zip(found, rows, strict=True)], _COLUMNS, session.output, name="failures"
    )
    if not found:
        say(f"No task of the last {last} is failed now")
        return
    redrive = "The first group: dynatick task redrive --dry-run"
    say(f"{redrive} --last {quoted(last)} --fingerprint {quoted(found[0].fingerprint)}")


def _line(one: FailureGroup, row: Mapping[str, object]) -> Mapping[str, object]:
    return {
        **row,
        "actions": ", ".join(one.actions),
        "first": format_instant(one.first),
        "new": "new" if row["new"] else None,
        "error": one_line(one.error or "no error given"),
    }

"""``dynatick action …``: what each action's tasks do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from dynatick.cli.installation import say_paused
from dynatick.cli.output import Column, Output, say, show_many
from dynatick.cli.session import Session, command
from dynatick.domain.durations import duration_of, milliseconds_text
from dynatick.domain.terminal_text import one_line

if TYPE_CHECKING:
    from dynatick.client.operations import ActionFigures, ActionSummary

app = typer.Typer(name="action", help="Show what the tasks of each action do.", no_args_is_help=True)

_COLUMNS = (
    Column("ACTION", "action", folds=True),
    Column("DUE", "due", right=True),
    Column("RUNNING", "running", right=True, spare=5),
    Column("RETRYING", "retrying", right=True, spare=4),
    Column("ATTEMPTS", "attempts", right=True, spare=1),
    Column("FAILED", "failed", right=True),
    Column("BEFORE", "before", right=True),
    Column("LATE P50", "lateP50", right=True, spare=6),
    Column("LATE P99", "lateP99", right=True, spare=3),
    Column("TOOK P50", "tookP50", right=True, spare=6),
    Column("TOOK P99", "tookP99", right=True, spare=2),
)


@command(app, "list")
def list_actions(
    session: Session,
    last: Annotated[
        str, typer.Option(metavar="DURATION", help="What ran in the last 2h, 24h, up to 3d, and in as long before.")
    ] = "24h",
) -> None:
    """List the actions: what waits, what ran, how much of it failed, how late it began and how long it took; and how
    much failed in the same time before. The action of which the most failed comes first.

    Where wake-ups run tasks (Precision second), FAILED and BEFORE are the numbers of the attempts that failed."""
    found = session.client().operations.actions(duration_of(last, "last"))
    if session.output is not Output.TABLE:
        rows = [one.to_row() for one in found.actions]
        more = {} if found.not_counted is None else {"notCounted": found.not_counted}
        show_many(rows, _COLUMNS, session.output, name="actions", more=more)
        return
    show_many([_line(one) for one in found.actions], _COLUMNS, session.output, name="actions")
    if found.not_counted is not None:
        say(found.not_counted)
    for one in found.actions:
        if one.paused is not None:
            say_paused(f"{one_line(one.action)} is paused", one.paused, one.action)
    if not found.actions:
        say(f"Nothing {'ran' if found.not_counted is None else 'failed'} in the last {last}, and nothing is due")


def _line(one: ActionSummary) -> Mapping[str, object]:
    past = one.now
    return {
        "action": one.action,
        "due": one.due,
        "running": one.running,
        "retrying": one.retrying,
        "attempts": past.attempts,
        "failed": _failed(past),
        "before": _failed(one.before),
        "lateP50": _time(past.lateness_p50_ms),
        "lateP99": _time(past.lateness_p99_ms),
        "tookP50": _time(past.duration_p50_ms),
        "tookP99": _time(past.duration_p99_ms),
    }


def _failed(figures: ActionFigures) -> str | None:
    """The share of the attempts that failed; if it is not known, their number."""
    if figures.failed_percent is not None:
        return f"{figures.failed_percent:g} %"
    return None if figures.attempts == 0 and not figures.failures else str(figures.failures)


def _time(milliseconds: int | None) -> str | None:
    return None if milliseconds is None else milliseconds_text(milliseconds)

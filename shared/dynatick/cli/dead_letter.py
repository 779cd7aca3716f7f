"""``dynatick deadletter …``: list the dead letters, redrive their tasks, and delete them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from dynatick.cli.arguments import Wait, WaitTimeout, Yes
from dynatick.cli.bulk_change import check_answered, check_wait, confirm, is_interactive, list_results, wait_for_runs
from dynatick.cli.output import Column, Output, say, show_many
from dynatick.cli.session import Session, command
from dynatick.domain import attributes as attr
from dynatick.domain.terminal_text import one_line

if TYPE_CHECKING:
    from dynatick.client import DeadLetters, HandledLetter, HandledLetters
    from dynatick.client.change_records import FollowedRuns

app = typer.Typer(
    name="deadletter",
    help="List the messages of tasks that failed for good, redrive their tasks, and delete messages.",
    no_args_is_help=True,
)

QueueUrl = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="The dead-letter queue. Default: that of --stack or --local, else DYNATICK_DEAD_LETTER_QUEUE_URL.",
    ),
]
Action = Annotated[str | None, typer.Option(help="Only those of this action.")]
Error = Annotated[str | None, typer.Option(metavar="TEXT", help="Only those with this in their error.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="List what would be done, and change nothing.")]

_WOULD = {"redriven": "to be redriven", "dropped": "to be dropped", "purged": "to be purged"}
_COLUMNS = (
    Column("TASK", attr.TASK_ID, folds=True),
    Column("STATE", "state"),
    Column("NOW", "taskStatus", spare=1),
    Column("ACTION", attr.ACTION, folds=True, spare=3),
    Column("FAILED AT", "failedAt", to_seconds=True),
    Column("RUN", attr.RUN, right=True, spare=4),
    Column("ATTEMPT", attr.ATTEMPT, right=True, spare=5),
    Column("ERROR", attr.ERROR, folds=True),
)
_RESULTS = (
    Column("TASK", attr.TASK_ID, folds=True),
    Column("WHAT", "result"),
    Column("STATE", "state"),
    Column("FAILED AT", "failedAt", to_seconds=True, spare=1),
    Column("WHY", "why", folds=True),
)


@command(app, "list")
def list_letters(
    session: Session,
    queue_url: QueueUrl = None,
    limit: Annotated[int, typer.Option(help="The maximum number of messages, up to 10,000.")] = 100,
) -> None:
    """List dead letters, each with the state of its task now: failed still, redriven since, or gone.

    It hides the messages from other readers while it reads.
    """
    page = session.dead_letters(queue_url).list(limit=limit)
    rows = [one.to_row() for one in page.letters]
    more = {"complete": page.complete, "messages": page.messages, "hidden": page.hidden}
    show_many(rows, _COLUMNS, session.output, name="deadLetters", more=more)
    if session.output is not Output.TABLE:
        return
    if not page.complete:
        say(f"A sample: the queue holds about {page.messages} messages; see --limit")
    elif not rows:
        say("There are none")
    if page.hidden:
        say(f"About {page.hidden} more are hidden, since another reader has just received them")


@command(app)
def redrive(
    session: Session,
    queue_url: QueueUrl = None,
    *,
    action: Action = None,
    error: Error = None,
    wait: Wait = False,
    timeout: WaitTimeout = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Redrive the tasks whose failure is current, and delete their messages; obsolete ones, too."""
    from dynatick.client.change_records import FollowedRuns

    check_wait(timeout, wait=wait)
    letters, runs = session.dead_letters(queue_url), FollowedRuns()
    _ask(letters, "Redrive the tasks of", dry_run=dry_run, yes=yes)

    handled = letters.redrive(action=action, error=error, dry_run=dry_run)
    _show(session, handled, dry_run=dry_run, runs=None if dry_run else runs)
    if wait and not dry_run:
        wait_for_runs(session, runs, timeout, "redriven")


@command(app)
def purge(
    session: Session,
    queue_url: QueueUrl = None,
    *,
    obsolete: Annotated[
        bool, typer.Option("--obsolete", help="Only those whose task was redriven since, or is gone.")
    ] = False,
    action: Action = None,
    error: Error = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Delete dead letters: all, or those that are obsolete. Their tasks stay as they are."""
    letters = session.dead_letters(queue_url)
    _ask(letters, "Purge the obsolete of" if obsolete else "Purge", dry_run=dry_run, yes=yes)
    handled = letters.purge(obsolete=obsolete, action=action, error=error, dry_run=dry_run)
    _show(session, handled, dry_run=dry_run)


def _ask(letters: DeadLetters, verb: str, *, dry_run: bool, yes: bool) -> None:
    """Asks on a terminal. Raises CommandFailed unless the answer is yes."""
    if not dry_run and not yes and is_interactive():
        confirm(f"{verb} about {letters.count()} messages?")


def _show(session: Session, handled: HandledLetters, *, dry_run: bool, runs: FollowedRuns | None = None) -> None:
    """Prints the result of each letter, and the counts. ``runs`` follows those that were begun. Raises CommandFailed if
    some results are unknown."""

    def rows() -> Iterator[Mapping[str, object]]:
        for one in handled:
            if runs is not None and one.task is not None:
                runs.add(one.task)
            yield _row(one, dry_run=dry_run)

    check_answered(
        list_results(session, rows(), _RESULTS, name="deadLetters", more=lambda: {"complete": handled.complete})
    )
    if not handled.complete:
        say("There may be more; repeat the command")


def _row(one: HandledLetter, *, dry_run: bool) -> Mapping[str, object]:
    result = str(one.result)
    why = one.reason if one.reason is not None else one.letter.error
    row = {**one.letter.to_row(), "result": _WOULD.get(result, result) if dry_run else result}
    return row if why is None else {**row, "why": one_line(why)}

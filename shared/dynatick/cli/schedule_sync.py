"""``dynatick schedule sync``: the schedules that a project declares, and those that the table has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Annotated

import typer

from dynatick.cli.exit_code import CommandFailed, ExitCode
from dynatick.cli.output import NONE, Column, Output, show_many
from dynatick.cli.session import Session, with_options
from dynatick.domain import attributes as attr

if TYPE_CHECKING:
    from dynatick.client import ScheduleChange

GROUP = "dynatick.declared_schedules"
_DONE = {"create": "created", "change": "changed", "remove": "removed", "keep": "kept"}
_COLUMNS = (
    Column("SCHEDULE", attr.TASK_ID, folds=True),
    Column("WHAT", "what"),
    Column("WHY", "reason", folds=True),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Declared:
    """What a project declares, as the plug-in reads it."""

    owner: str  # the name of its stack
    region: str | None
    schedules: Sequence[Mapping[str, object]]  # rows under the table's names


@with_options
def sync(
    session: Session,
    stage: Annotated[str | None, typer.Option(help="A stage of dynatick.toml.")] = None,
    prune: Annotated[bool, typer.Option("--prune", help="Remove those that are no longer declared.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")] = False,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="With --dry-run: exit code 7 if anything differs.")
    ] = False,
) -> None:
    """Make the schedules of this project as its handlers and dynatick.toml declare them.

    The table is that of the project's stack, unless an option names another. Schedules that others inserted stay as
    they are: exit code 5 if one of them has the id of a declared one.
    """
    from dynatick.client.schedule_sync import DRIFT, SyncResult

    if exit_code and not dry_run:
        raise CommandFailed(ExitCode.USAGE, "--exit-code needs --dry-run")
    declared = _plugin()(stage)
    if not (session.local or session.table or session.stack):
        session.stack, session.region = declared.owner, session.region or declared.region
    changes = session.client().schedules.sync(declared.schedules, owner=declared.owner, prune=prune, dry_run=dry_run)
    rows = [one.to_row() for one in changes]
    if session.output is Output.TABLE:
        rows = [{**row, "what": what(one, is_done=not dry_run)} for row, one in zip(rows, changes, strict=True)]
    show_many(rows, _COLUMNS, session.output, name="schedules", more={"owner": declared.owner}, nothing=NONE)
    if conflicts := sum(one.result is SyncResult.CONFLICT for one in changes):
        raise CommandFailed(ExitCode.CONFLICT, _untouched(conflicts, len(changes), declared.owner))
    if exit_code and any(one.result in DRIFT for one in changes):
        raise typer.Exit(ExitCode.FOUND)


def _untouched(conflicts: int, total: int, owner: str) -> str:
    stay = "stays as it is: the id is" if conflicts == 1 else "stay as they are: the ids are"
    return f"{conflicts} of {total} schedules {stay} not that of one of {owner}"


def what(change: ScheduleChange, *, is_done: bool) -> str:
    """What was done, or would be."""
    return _DONE.get(change.result, str(change.result)) if is_done else str(change.result)


def _plugin() -> Callable[[str | None], Declared]:
    """What reads the project of this folder. The plug-in builds on this package, not the other way round."""
    for plugin in entry_points(group=GROUP):
        try:
            found: Callable[[str | None], Declared] = plugin.load()
        except ImportError as error:
            message = f"schedule sync needs more packages: pip install 'dynatick[cli]' ({error})"
            raise CommandFailed(ExitCode.UNEXPECTED, message) from None
        return found
    raise CommandFailed(ExitCode.UNEXPECTED, "schedule sync needs the whole of dynatick: pip install 'dynatick[cli]'")

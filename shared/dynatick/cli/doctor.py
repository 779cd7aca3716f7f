"""``dynatick doctor``: what is wrong with the table, and repairing it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from dynatick.cli.exit_code import CommandFailed, ExitCode
from dynatick.cli.output import Column, Output, say, show_document, show_many
from dynatick.cli.session import Session, on_table
from dynatick.domain import attributes as attr

if TYPE_CHECKING:
    from dynatick.client import Diagnosis
    from dynatick.engine.diagnosis import Finding
    from dynatick.engine.reconcile import Reconciled

_PAGES_PER_MESSAGE = 100  # without a terminal

_COLUMNS = (
    Column("WHAT", "kind"),
    Column("TASK", attr.TASK_ID, folds=True),
    Column("WHY", "why", folds=True),
)
_REMEDY = Column("REMEDY", "remedy", folds=True)
_REPAIRED = Column("REPAIRED", "repair", folds=True)


@on_table
def doctor(
    session: Session,
    repair: Annotated[
        bool, typer.Option("--repair", help="Repair what can be repaired. Without it, nothing is written.")
    ] = (False),
) -> None:
    """Find tasks that no tick would run, and other faults; repair them with --repair.

    Reads the whole table: one read unit per 4 KB. With a stack named, also whether the account's concurrent executions
    suffice for it. Exit code 7 if there are findings that are not repaired.
    """
    from dynatick.cli.concurrency import room_of
    from dynatick.client.doctor import finding_row

    def report(finding: Finding) -> None:
        show_document(finding_row(finding), session.output)

    client = session.client()
    with _progress(alone=session.output is not Output.JSONL) as page_read:
        found = client.doctor(
            repair=repair, report=report if session.output is Output.JSONL else None, page_read=page_read
        )
    rows = [finding_row(finding) for finding in found.findings]
    settings = client.settings()
    room = None if settings is None else room_of(session, settings.shards_ever)
    match session.output:
        case Output.JSON:
            executions = None if room is None else room.to_row()
            show_document({**found.to_row(), "concurrentExecutions": executions, "findings": rows}, session.output)
        case Output.TABLE if rows:
            repairs = [{**row, "repair": row.get("left", "yes" if row["repaired"] else "")} for row in rows]
            show_many(repairs, (*_COLUMNS, _REPAIRED if repair else _REMEDY), session.output, name="findings")
        case _:
            pass
    _sum_up(found, shown=len(rows) if session.output is not Output.JSONL else found.found)
    if room is not None and (message := room.message()) is not None:
        say(message)
    if not found.is_healthy:
        left = found.found - found.repaired
        how = "see above" if repair else "dynatick doctor --repair repairs what it can"
        raise CommandFailed(ExitCode.FOUND, f"{left} of {found.found} not repaired: {how}")


def _sum_up(found: Diagnosis, *, shown: int) -> None:
    if found.pause is not None:
        say(f"Paused {found.pause}")
    if found.found > shown:
        say(f"… and {found.found - shown} more; --output jsonl lists all")
    for shard, number in sorted(found.retired.items()):
        say(f"Shard {shard} gets no new tasks, and still holds {number} that have not ended; ticks serve it")
    if found.missed_ticks:
        say(f"{found.missed_ticks} ticks of the last hour are missing; tasks that were due run later")
    if found.woken_late:
        say(f"{found.woken_late} tasks of the last hour were begun by ticks, because no wake-up came in time")
    kinds = ", ".join(f"{number} {kind}" for kind, number in found.kinds.items()) or "nothing wrong"
    repaired = f"; {found.repaired} repaired" if found.repaired else ""
    say(f"Read {found.scanned} tasks and schedules that have not ended: {kinds}{repaired}")


@contextmanager
def _progress(*, alone: bool) -> Iterator[Callable[[Reconciled], None]]:
    """Shows the progress: by a changing line on a terminal, if nothing else is printed there (``alone``); else by a
    line for every 100 pages."""
    if not alone or not sys.stderr.isatty():
        yield _say_progress
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True, highlight=False)
    with Live("Reading the table", console=console, transient=True, redirect_stdout=False) as line:
        yield lambda report: line.update(_progress_text(report))


def _say_progress(report: Reconciled) -> None:
    if report.pages % _PAGES_PER_MESSAGE == 0:
        say(_progress_text(report))


def _progress_text(report: Reconciled) -> str:
    read = f"{report.scanned} tasks and schedules that have not ended"
    return f"Read {report.pages} MB: {read}, {report.found} findings"

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

if TYPE_CHECKING:
    from dynatick.client import Diagnosis
    from dynatick.engine.diagnosis import Finding
    from dynatick.engine.reconcile import Reconciled

_EVERY = 100  # pages between two messages, where no terminal shows how far it is

_COLUMNS = (
    Column("WHAT", "kind"),
    Column("TASK", "taskId", folds=True),
    Column("WHY", "why", folds=True),
)
_REMEDY = Column("REMEDY", "remedy", folds=True)
_MENDED = Column("MENDED", "fate", folds=True)


@on_table
def doctor(
    session: Session,
    repair: Annotated[
        bool, typer.Option("--repair", help="Repair what can be repaired. Without it nothing is written.")
    ] = (False),
) -> None:
    """Look for tasks that no tick would run, and for what else is wrong; repair it with --repair.

    Reads the whole table: one read unit for each 4 KB. Exit code 7 if something is wrong and not repaired.
    """
    from dynatick.client.doctor import finding_row

    def tell(finding: Finding) -> None:
        show_document(finding_row(finding), session.output)

    client = session.client()
    with _progress(alone=session.output is not Output.JSONL) as page_read:
        found = client.doctor(repair=repair, tell=tell if session.output is Output.JSONL else None, page_read=page_read)
    rows = [finding_row(finding) for finding in found.findings]
    match session.output:
        case Output.JSON:
            show_document({**found.to_row(), "findings": rows}, session.output)
        case Output.TABLE if rows:
            record_results = [{**row, "fate": row.get("left", "yes" if row["repaired"] else "")} for row in rows]
            show_many(record_results, (*_COLUMNS, _MENDED if repair else _REMEDY), session.output, name="findings")
        case _:
            pass
    _sum_up(found, shown=len(rows) if session.output is not Output.JSONL else found.found)
    if not found.is_healthy:
        left = found.found - found.repaired
        how = "see above" if repair else "dynatick doctor --repair repairs what wants no person"
        raise CommandFailed(ExitCode.FOUND, f"{left} of {found.found} not repaired: {how}")


def _sum_up(found: Diagnosis, *, shown: int) -> None:
    if found.found > shown:
        say(f"… and {found.found - shown} more; --output jsonl lists all")
    for shard, number in sorted(found.retired.items()):
        say(f"Shard {shard} gets no new tasks, and still holds {number} that have not ended; ticks serve it")
    if found.missed_ticks:
        say(f"{found.missed_ticks} ticks of the last hour are missing; what was due then runs later")
    kinds = ", ".join(f"{number} {kind}" for kind, number in found.kinds.items()) or "nothing wrong"
    repaired = f"; {found.repaired} repaired" if found.repaired else ""
    say(f"Looked at {found.scanned} tasks and schedules that have not ended: {kinds}{repaired}")


@contextmanager
def _progress(*, alone: bool) -> Iterator[Callable[[Reconciled], None]]:
    """Something that shows how far it has come: a line that changes on a terminal, if it is ``alone`` there; else a
    line now and then."""
    if not alone or not sys.stderr.isatty():
        yield _say_now_and_then
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True, highlight=False)
    with Live("Reading the table", console=console, transient=True, redirect_stdout=False) as line:
        yield lambda report: line.update(_said(report))


def _say_now_and_then(report: Reconciled) -> None:
    if report.pages % _EVERY == 0:
        say(_said(report))


def _said(report: Reconciled) -> str:
    looked = f"{report.scanned} tasks and schedules that have not ended"
    return f"Read {report.pages} MB: {looked}, {report.found} with something wrong"

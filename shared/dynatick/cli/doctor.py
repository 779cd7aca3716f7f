"""``dynatick doctor``: what is wrong with the table, and repairing it.

It also looks whether the account's concurrent executions leave an invocation for each shard's tick.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from dynatick.cli.exit_code import CommandFailed, ExitCode
from dynatick.cli.installation import say_paused
from dynatick.cli.output import Column, Output, say, show_document, show_many
from dynatick.cli.session import Session, with_options
from dynatick.cli.stack import aws_client
from dynatick.cli.task_display import unfit_lines
from dynatick.domain import attributes as attr
from dynatick.domain.executions import PARTITION_WRITE_UNITS, STREAM_SHARDS, Executions
from dynatick.domain.terminal_text import one_line

if TYPE_CHECKING:
    from dynatick.client.operations import Diagnosis
    from dynatick.engine.reconcile import Finding, Reconciled

_PAGES_PER_MESSAGE = 100  # without a terminal
_EMULATOR_ACCOUNT = "000000000000"

_COLUMNS = (
    Column("WHAT", "kind"),
    Column("TASK", attr.TASK_ID, folds=True),
    Column("WHY", "why", folds=True),
)
_REMEDY = Column("REMEDY", "remedy", folds=True)
_REPAIRED = Column("REPAIRED", "repair", folds=True)


@dataclass(frozen=True, slots=True)
class Room:
    """What the account allows, and what the stack can take of it. ``problem``: why that is not known."""

    allowed: int = 0
    executions: Executions | None = None
    problem: str | None = None

    def to_row(self) -> dict[str, object]:
        """Returns what the command line prints."""
        if self.executions is None:
            return {"problem": self.problem}
        of = self.executions
        return {
            "allowed": self.allowed,
            "needed": of.total,
            "ticks": of.ticks,
            "workers": of.workers,
            "wakeUps": of.wake_ups,
            "recoveries": of.recoveries,
            "stream": of.stream,
            "api": of.api,
            "imports": of.imports,
        }

    def message(self) -> str | None:
        """What to say to a person; None: there is room enough."""
        if self.executions is None:
            return f"Whether the account's concurrent executions suffice is not known: {self.problem}"
        of = self.executions
        if of.total <= self.allowed:
            return None
        text = (
            f"The account allows {self.allowed:,} concurrent executions, and this stack can take {of.total:,} "
            f"({of.in_words()}): ticks of some shards may find none left. Raise the quota"
        )
        fitting = of.max_workers(self.allowed)
        if of.total - of.workers + fitting * of.ticks <= self.allowed:
            text += f", or set MaxWorkers to {fitting}" + (" or less" if fitting else "")
        return text + (", or lower ApiWaitSeconds or ApiRequestsPerSecond" if of.api else "")


def room_of(session: Session, shards_ever: int) -> Room | None:
    """Returns the room of the session's stack; None if no stack is named, or it is on an emulator, which has no such
    quota."""
    stack = session.stack or os.environ.get("DYNATICK_STACK")
    if not stack:
        return None
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        limit = aws_client(session, "lambda").get_account_settings()["AccountLimit"]
        (found,) = aws_client(session, "cloudformation").describe_stacks(StackName=stack)["Stacks"]
    except (BotoCoreError, ClientError) as error:
        return Room(problem=str(error))
    if f":{_EMULATOR_ACCOUNT}:" in found["StackId"]:
        return None
    parameters = {one["ParameterKey"]: one["ParameterValue"] for one in found.get("Parameters", ())}
    # What other functions have reserved is not for this stack, and it reserves nothing.
    return Room(int(limit["UnreservedConcurrentExecutions"]), executions_of(parameters, shards_ever))


def executions_of(parameters: Mapping[str, str], shards_ever: int) -> Executions:
    """Returns the executions that a stack's parameters allow. Each shard that was ever in use has ticks and workers."""
    stream_shards = max(STREAM_SHARDS, int(parameters.get("WarmThroughput", "0")) // PARTITION_WRITE_UNITS)
    return Executions(
        ticks=shards_ever,
        workers=shards_ever * int(parameters.get("MaxWorkers", "0")),
        wake_ups=int(parameters.get("WakeUpConcurrency", "0")) if parameters.get("Precision") == "second" else 0,
        stream=stream_shards * int(parameters.get("StreamParallelism", "1")),
        api=0 if parameters.get("ApiEndpoint") == "DISABLED" else _of_api(parameters),
        imports=parameters.get("ImportBucket") == "yes",
    )


def _of_api(parameters: Mapping[str, str]) -> int:
    """The requests that the gateway lets through while the first of them waits; one that doesn't takes a second. It
    accepts as many at once as in a second."""
    rate, wait = int(parameters.get("ApiRequestsPerSecond", "0")), int(parameters.get("ApiWaitSeconds", "10"))
    return rate * (1 + max(1, wait))


@with_options
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

    def report(finding: Finding) -> None:
        show_document(finding.to_row(), session.output)

    client = session.client()
    with _progress(alone=session.output is not Output.JSONL) as page_read:
        found = client.operations.doctor(
            repair=repair, report=report if session.output is Output.JSONL else None, page_read=page_read
        )
    rows = [finding.to_row() for finding in found.findings]
    settings = client.settings()
    room = None if settings is None else room_of(session, settings.shards_ever)
    match session.output:
        case Output.JSON:
            executions = None if room is None else room.to_row()
            show_document({**found.to_row(), "concurrentExecutions": executions}, session.output)
        case Output.TABLE if rows:
            repairs = [{**row, "repair": row.get("left", "yes" if row["repaired"] else "")} for row in rows]
            show_many(repairs, (*_COLUMNS, _REPAIRED if repair else _REMEDY), session.output, name="findings")
        case _:
            pass
    _sum_up(found, shown=len(rows) if session.output is not Output.JSONL else found.found)
    if room is not None and (message := room.message()) is not None:
        say(message)
    if left := found.found - found.repaired:
        how = "see above" if repair else "dynatick doctor --repair repairs what it can"
        raise CommandFailed(ExitCode.FOUND, f"{left} of {found.found} not repaired: {how}")
    if found.payloads is not None and (number := found.payloads.failing):
        remedy = "upgrade their payloads (@task(…, upgrade=…)), or update the tasks"
        raise CommandFailed(ExitCode.FOUND, f"{number} waiting task{'s' * (number > 1)} will fail: {remedy}")


def _sum_up(found: Diagnosis, *, shown: int) -> None:
    if found.pause is not None:
        say_paused("Paused", found.pause)
    for of_action in found.paused_actions:
        say_paused(f"{one_line(of_action.action)} is paused", of_action, of_action.action)
    if found.found > shown:
        say(f"… and {found.found - shown} more; --output jsonl lists all")
    for shard, number in sorted(found.retired.items()):
        say(f"Shard {shard} gets no new tasks, and still holds {number} that have not ended; ticks serve it")
    for name, number in found.unlimited.items():
        say(f"{number} tasks have a limit key of the class {name}, which KeyLimits doesn't have: they have no limit")
    if found.missed_ticks:
        say(f"{found.missed_ticks} ticks of the last hour are missing; tasks that were due run later")
    if found.woken_late:
        say(f"{found.woken_late} tasks of the last hour were begun by ticks, because no wake-up came in time")
    for unfit in () if found.payloads is None else unfit_lines(found.payloads):
        say(f"Will fail: {unfit}")
    faults = [f"{number} {kind}" for kind, number in found.kinds.items()]
    if found.payloads is not None and found.payloads.failing:
        faults.append(f"{found.payloads.failing} that will fail")
    repaired = f"; {found.repaired} repaired" if found.repaired else ""
    wrong = ", ".join(faults) or "nothing wrong"
    say(f"Read {_scanned(found.scanned)}: {wrong}{repaired}")


def _scanned(number: int) -> str:
    return (
        f"{number} tasks and schedules that have not ended" if number != 1 else "1 task or schedule that has not ended"
    )


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
    return f"Read {report.pages} MB: {_scanned(report.scanned)}, {report.found} findings"

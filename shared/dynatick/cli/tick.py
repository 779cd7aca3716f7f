"""``dynatick tick …``: lists ticks, and runs one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dynatick.cli.arguments import RangeStart
from dynatick.cli.exit_code import CommandFailed, ExitCode
from dynatick.cli.output import NONE, Column, Output, show_many
from dynatick.cli.session import Session, command
from dynatick.domain import attributes as attr
from dynatick.domain.buckets import Bucket, minute_of
from dynatick.domain.durations import duration_of
from dynatick.domain.terminal_text import one_line
from dynatick.errors import InvalidInput

if TYPE_CHECKING:
    from dynatick.client.operations import TickEntry, TickView

app = typer.Typer(name="tick", help="List ticks, or run one now.", no_args_is_help=True)

_COLUMNS = (
    Column("TICK", "tick"),
    Column("SHARD", "shard", right=True, spare=2),
    Column("WHAT", "what"),
    Column("DUE", "due", right=True),
    Column("CLAIMED", "claimed", right=True, spare=3),
    Column("COMPLETED", "completed", right=True, spare=1),
    Column("FAILED", "failed", right=True),
    Column("RETRIED", "retried", right=True, spare=2),
    Column("MISSED", "missed", right=True, spare=2),
    Column("P99 MS", attr.LATENESS_P99_MS, right=True, spare=2),
    Column("LATE MS", attr.LATENESS_MAX_MS, right=True, spare=1),
    Column("TOOK MS", "tookMs", right=True, spare=2),
)


@command(app, "list")
def list_ticks(
    session: Session,
    last: Annotated[
        str | None, typer.Option(metavar="DURATION", help="The last 90s, 60m, 2h, 1h30m, 1d. Default: 60m.")
    ] = None,
    from_: RangeStart = None,
    to: Annotated[str | None, typer.Option(metavar="TIME", help="End of the range. Default: now.")] = None,
) -> None:
    """List ticks: a line for each with work, and one for consecutive idle, missed or paused ones."""
    if last is not None and (from_ or to):
        raise InvalidInput("last", last, "expected either a duration or a range, not both")
    if from_ or to:
        entries = session.client().operations.ticks(start=session.time(from_, "start"), end=session.time(to, "end"))
    else:
        entries = session.client().operations.ticks(duration_of(last or "60m", "last"))
    _show(session, entries)


@command(app, "run")
def run_tick(
    session: Session,
    function: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The processor function. Default: that of --stack, or of --local."),
    ] = None,
) -> None:
    """Run the processor for the current minute, wait for it, and show its tick."""
    name = function if function is not None else session.processor()
    client = session.client()
    minute = minute_of(session.clock())
    before = client.operations.ticks(start=Bucket(minute), end=Bucket(minute + 1))
    _invoke(_lambda(session), name, {"dynatick": {"tick": str(Bucket(minute))}})
    # The minute may have had a tick before.
    after = client.operations.ticks(start=Bucket(minute), end=Bucket(minute + 1))
    settings = client.settings()
    paused = None if settings is None or settings.pause is None else one_line(str(settings.pause))
    nothing = "It found nothing to do" if paused is None else f"It ran nothing: paused {paused}"
    _show(session, [entry for entry in after if entry not in before], nothing=nothing)


def _show(session: Session, entries: list[TickEntry], *, nothing: str = NONE) -> None:
    rows = [_line(entry) if session.output is Output.TABLE else entry.to_row() for entry in entries]
    show_many(rows, _COLUMNS, session.output, name="ticks", nothing=nothing)


def _line(entry: TickEntry) -> Mapping[str, object]:
    """The line of an entry in the table."""
    from dynatick.client.operations import TickView

    if isinstance(entry, TickView):
        part = f", part {entry.continuation + 1}" if entry.continuation or entry.continued else ""
        return {**entry.to_row(), "what": f"pass{part}", "tookMs": _took(entry)}
    until = entry.until.partition("#")[2]
    return {
        "tick": entry.since if entry.since == entry.until else f"{entry.since} … {until}",
        "shard": entry.shard,
        "what": f"{entry.ticks} {entry.kind}",
    }


def _took(entry: TickView) -> int | None:
    if entry.started_at is None or entry.finished_at is None:
        return None
    return round((entry.finished_at - entry.started_at).total_seconds() * 1000)


def _lambda(session: Session) -> Any:
    from dynatick.cli.stack import aws_client, local_client

    if session.local:
        return local_client("lambda", session.local_stack().endpoint)
    return aws_client(session, "lambda")


def _invoke(client: Any, name: str, event: Mapping[str, object]) -> None:
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        answer = client.invoke(FunctionName=name, Payload=json.dumps(event).encode())
    except (BotoCoreError, ClientError) as error:
        known = getattr(error, "response", {}).get("Error", {}).get("Code") != "ResourceNotFoundException"
        code = ExitCode.UNREACHABLE if known else ExitCode.NOT_FOUND
        raise CommandFailed(code, f"cannot invoke {name}: {error}") from error
    output = answer["Payload"].read().decode(errors="replace")
    if "FunctionError" in answer:
        raise CommandFailed(ExitCode.UNEXPECTED, f"the processor failed: {output}")

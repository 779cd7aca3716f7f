"""The options that select tasks: ids, or a bucket or range with filters."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Annotated, TypedDict

import typer

from dynatick.cli.argument_values import time_of
from dynatick.cli.exit_code import CommandFailed, ExitCode
from dynatick.domain.buckets import instant_of, minute_of
from dynatick.domain.durations import duration_of
from dynatick.domain.instants import EXPECTED_RANGE, format_instant
from dynatick.errors import InvalidInput

_STDIN = "-"

Ids = Annotated[
    list[str], typer.Argument(metavar="ID...", help="Ids; - reads them from stdin, one a line.", show_default=False)
]
IdsOrNone = Annotated[
    list[str] | None,
    typer.Argument(metavar="ID...", help="Ids; - reads them from stdin.", show_default=False),
]
Last = Annotated[str | None, typer.Option(metavar="DURATION", help="Instead of a range: the last 90s, 2h, 1h30m, 1d.")]


@dataclass(frozen=True, slots=True)
class Span:
    """A bucket, or the instants from ``start`` to before ``end``, as the client takes them."""

    bucket: str | None
    start: str | Decimal | None
    end: str | Decimal | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Range:
    """The options that select buckets."""

    bucket: Annotated[str | None, typer.Option(metavar="BUCKET", help="Such as 2026-12-31#12:00.")] = None
    from_: Annotated[str | None, typer.Option("--from", metavar="TIME", help="First instant of a range.")] = None
    to: Annotated[str | None, typer.Option(metavar="TIME", help="End of the range, not itself part of it.")] = None
    last: Last = None

    def span(self, now: datetime) -> Span:
        """The bucket or range. Raises CommandFailed unless there is a bucket, or both ends of a range; InvalidInput."""
        if self.bucket is not None:
            used = [f"--{name}" for name, value in self.by_option().items() if value is not None and name != "bucket"]
            if used:
                message = f"{used[0]} has no effect with --bucket; use one of them only"
                raise CommandFailed(ExitCode.USAGE, message)
            return Span(self.bucket, None, None)
        return span_of(self.from_, self.to, self.last, now, which="--bucket, --last")

    def by_option(self) -> Mapping[str, object]:
        """The values by the names of the options."""
        return {"bucket": self.bucket, "from": self.from_, "to": self.to, "last": self.last}


class FilterArguments(TypedDict):
    """The filters, as the client's arguments."""

    action: str | None
    schedule_id: str | None
    prefix: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Filters:
    """The options that filter tasks."""

    action: Annotated[str | None, typer.Option(help="Only tasks of this action.")] = None
    schedule: Annotated[str | None, typer.Option(metavar="ID", help="Only tasks of this schedule.")] = None
    prefix: Annotated[str | None, typer.Option(metavar="TEXT", help="Only tasks whose id begins with this.")] = None

    def arguments(self) -> FilterArguments:
        """The client's arguments."""
        return FilterArguments(action=self.action, schedule_id=self.schedule, prefix=self.prefix)

    def by_option(self) -> Mapping[str, object]:
        """The values by the names of the options."""
        return {"action": self.action, "schedule": self.schedule, "prefix": self.prefix}


def span_of(from_: str | None, to: str | None, last: str | None, now: datetime, *, which: str = "--last") -> Span:
    """A range by both its ends, or up to the present minute. Raises CommandFailed if there is neither, InvalidInput."""
    if last is not None:
        if from_ is not None or to is not None:
            raise InvalidInput("last", last, "expected either --last or a range, not both")
        try:
            start = format_instant(now - duration_of(last, "last"))
        except OverflowError:
            raise InvalidInput("last", last, EXPECTED_RANGE) from None
        return Span(None, start, format_instant(instant_of(minute_of(now) + 1)))
    if from_ is None or to is None:
        missing = "--to" if from_ is not None else "--from" if to is not None else None
        every = f"select tasks by {which}, or --from and --to"
        raise CommandFailed(ExitCode.USAGE, every if missing is None else f"a range has two ends; give {missing}")
    return Span(None, time_of(from_, "start", now), time_of(to, "end", now))


def ids_of(typed: Sequence[str]) -> list[str]:
    """The ids without duplicates; - reads them from stdin. Raises CommandFailed."""
    ids: dict[str, None] = {}
    for one in typed:
        ids |= dict.fromkeys(_read() if one == _STDIN else (one,))
    return list(ids)


def is_single(typed: Sequence[str]) -> bool:
    """Whether exactly one id is named, so that the output is not a list."""
    return len(typed) == 1 and typed[0] != _STDIN


def _read() -> list[str]:
    try:
        lines = [line.rstrip("\r\n") for line in sys.stdin]
    except UnicodeDecodeError as error:
        raise CommandFailed(ExitCode.INVALID, f"stdin is not UTF-8: {error}") from error
    return [line for line in lines if line.strip()]

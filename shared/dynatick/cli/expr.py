"""``dynatick expr …``: what a schedule expression means, and when it runs. Needs no table and no AWS."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Annotated

import typer

from dynatick.cli.argument_values import time_of
from dynatick.cli.output import Column, Output, say, show_document, show_list, show_table
from dynatick.cli.session import Session
from dynatick.domain.buckets import Bucket, parse_time
from dynatick.domain.expressions import (
    Expression,
    Occurrence,
    Rate,
    check_fires,
    check_zone,
    clock_warnings,
    parse_expression,
    shortest_gap,
    upcoming,
)
from dynatick.domain.expressions.time_zone import zone_of
from dynatick.domain.instants import format_instant

app = typer.Typer(
    name="expr", help="See what a schedule expression means, and when it runs. Needs no table.", no_args_is_help=True
)

_MAX = 100_000
_COLUMNS = (Column("RUN", "run"), Column("LOCAL TIME", "local"), Column("NOTES", "notes", folds=True))

Text = Annotated[str, typer.Argument(metavar="EXPR", help="Such as 'cron(0 12 ? * MON-FRI *)'.", show_default=False)]
Zone = Annotated[str, typer.Option("--tz", metavar="ZONE", help="IANA name of the time zone, such as Europe/Berlin.")]
From = Annotated[
    str | None, typer.Option("--from", metavar="TIME", help="Runs strictly after this instant. Default: now.")
]
StartDate = Annotated[
    str | None, typer.Option(metavar="TIME", help="No run before; a rate counts from here. Default: --from.")
]
EndDate = Annotated[str | None, typer.Option(metavar="TIME", help="No run after.")]
Count = Annotated[int, typer.Option(min=1, max=_MAX, help="How many runs.")]
Print = Annotated[Output, typer.Option("--output", "-o", help="How to print data.")]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Asked:
    """The expression and the bounds of one command line, understood."""

    expression: Expression
    zone: str
    after: datetime
    start: datetime | None
    end: datetime | None

    @classmethod
    def of(cls, text: str, zone: str, after: str | None, start: str | None, end: str | None) -> _Asked:
        """Raises InvalidInput, also where nothing runs after the instant that is asked about."""
        expression = parse_expression(text)
        now = Session().clock().replace(microsecond=0)
        instant = now if after is None else _instant(after, "from", now)
        asked = cls(
            expression=expression,
            zone=check_zone(zone),
            after=instant,
            start=_instant(start, "startDate", now) if start else instant if isinstance(expression, Rate) else None,
            end=_instant(end, "endDate", now) if end else None,
        )
        check_fires(asked.expression, after=asked.after, zone=asked.zone, start=asked.start, end=asked.end)
        return asked

    def runs(self) -> Iterator[Occurrence]:
        return upcoming(self.expression, self.after, zone=self.zone, start=self.start, end=self.end)

    def warnings(self) -> list[str]:
        return clock_warnings(self.expression, self.after, zone=self.zone, start=self.start, end=self.end)


@app.command()
def explain(
    expression: Text,
    tz: Zone = "UTC",
    from_: From = None,
    start_date: StartDate = None,
    end_date: EndDate = None,
    count: Count = 5,
    output: Print = Output.TABLE,
) -> None:
    """Say in plain words what an expression means, with its next runs and what the clock's jumps do to it."""
    from dynatick.cli.expression_text import duration, in_words

    asked = _Asked.of(expression, tz, from_, start_date, end_date)
    runs = list(islice(asked.runs(), count))
    gap, warnings = shortest_gap(asked.expression), asked.warnings()
    if output is not Output.TABLE:
        document = {
            "scheduleExpression": asked.expression.text,
            "scheduleExpressionTimezone": asked.zone,
            "description": in_words(asked.expression, asked.zone),
            "shortestIntervalSeconds": None if gap == timedelta.max else int(gap.total_seconds()),
            "runs": [_run(one, asked.zone) for one in runs],
            "warnings": warnings,
        }
        show_document(document, output)
        return
    print(in_words(asked.expression, asked.zone))
    if gap != timedelta.max:
        print(f"Shortest interval: {duration(gap)}")
    print()
    _table(runs, asked.zone)
    if len(runs) < count:
        print("\nThat is the last run")
    if warnings:
        print("\nClock changes within a year:")
        for warning in warnings:
            print(f"  {warning}")


@app.command("next")
def next_runs(
    expression: Text,
    tz: Zone = "UTC",
    from_: From = None,
    start_date: StartDate = None,
    end_date: EndDate = None,
    count: Count = 5,
    output: Print = Output.TABLE,
) -> None:
    """List the next runs. With --output json, a list of instants in UTC."""
    asked = _Asked.of(expression, tz, from_, start_date, end_date)
    runs = list(islice(asked.runs(), count))
    if output is Output.TABLE:
        _table(runs, asked.zone)
    else:
        show_list([format_instant(one.instant) for one in runs], output)
    if len(runs) < count:
        say("That is the last run")


def _instant(text: str, field: str, now: datetime) -> datetime:
    time = parse_time(time_of(text, field, now), field)
    return time.instant if isinstance(time, Bucket) else time


def _run(one: Occurrence, zone: str) -> dict[str, object]:
    local = one.instant.astimezone(zone_of(zone))
    return {"run": format_instant(one.instant), "local": local.isoformat(), "notes": list(one.notes)}


def _table(runs: Iterable[Occurrence], zone: str) -> None:
    from dynatick.cli.expression_text import wall_time

    rows = [{**_run(one, zone), "local": wall_time(one.instant, zone), "notes": "; ".join(one.notes)} for one in runs]
    show_table(rows, _COLUMNS)

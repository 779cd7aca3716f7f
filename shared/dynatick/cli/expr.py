"""``dynatick expr …``: explains schedule expressions in plain words and lists their occurrences. Needs no table."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Annotated, assert_never

import typer

from dynatick.cli.output import Column, Output, say, show_document, show_list, show_table
from dynatick.cli.session import Session, command
from dynatick.domain import attributes as attr
from dynatick.domain.durations import exact_text
from dynatick.domain.expressions import (
    At,
    Cron,
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
from dynatick.domain.expressions.cron import DaysOfMonth, Weekdays
from dynatick.domain.expressions.model import FIRST_YEAR, LAST_YEAR
from dynatick.domain.expressions.occurrence import zone_of
from dynatick.domain.instants import format_instant
from dynatick.domain.selection import instant

_WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_RANGE = re.compile(r"\w+-\w+")
_STEP = re.compile(r"(\*|\d+)/(\d+)")

app = typer.Typer(
    name="expr", help="Explain schedule expressions and list their occurrences. Needs no table.", no_args_is_help=True
)

_MAX_COUNT = 100_000
_COLUMNS = (Column("OCCURRENCE", "occurrenceAt"), Column("LOCAL TIME", "local"), Column("NOTES", "notes", folds=True))

Text = Annotated[str, typer.Argument(metavar="EXPR", help="Such as 'cron(0 12 ? * MON-FRI *)'.", show_default=False)]


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpressionOptions:
    """Which occurrences of an expression to show, and how."""

    tz: Annotated[
        str, typer.Option("--tz", metavar="ZONE", help="IANA name of the time zone, such as Europe/Berlin.")
    ] = "UTC"
    from_: Annotated[
        str | None,
        typer.Option("--from", metavar="TIME", help="Occurrences strictly after this instant. Default: now."),
    ] = None
    start_date: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="No occurrence before; a rate counts from here. Default: --from."),
    ] = None
    end_date: Annotated[str | None, typer.Option(metavar="TIME", help="No occurrence after.")] = None
    count: Annotated[int, typer.Option(min=1, max=_MAX_COUNT, help="The number of occurrences.")] = 5
    output: Annotated[Output, typer.Option("--output", "-o", help="How to print data.")] = Output.TABLE


def in_words(expression: Expression, zone: str) -> str:
    """One sentence without its full stop."""
    match expression:
        case Rate():
            return f"Every {expression.text[5:-1].removeprefix('1 ')}, counted from the schedule's start"
        case At():
            local = expression.local
            return f"Once, on {local:%A} {local.day} {local:%B %Y} at {local:%H:%M:%S} ({zone})"
        case Cron():
            return f"{_of_cron(expression)} ({zone})"
        case _:
            assert_never(expression)


def wall_time(instant: datetime, zone: str) -> str:
    """What the clock of a zone shows, with weekday and offset, and seconds only where there are any."""
    local = instant.astimezone(zone_of(zone))
    clock = f"{local:%H:%M:%S}".removesuffix(":00")
    offset = local.isoformat(timespec="minutes")[len("2026-12-31T12:00") :]  # it has seconds in Monrovia until 1972
    return f"{local:%a %Y-%m-%d} {clock} {offset}"


def _of_cron(cron: Cron) -> str:
    from cron_descriptor import Options, get_description

    options = Options()
    options.locale_code = "en_US"
    options.day_of_week_start_index_zero = False
    options.use_24hour_time_format = True
    options.verbose = True
    minutes, hours, day_of_month, month, day_of_week, year = cron.text[5:-1].split()
    if isinstance(cron.days, DaysOfMonth):
        day_of_month = _plain(day_of_month, cron.days.days, 31)
    if isinstance(cron.days, Weekdays):
        names = [_WEEKDAYS[number - 1] for number in sorted(cron.days.weekdays)]
        day_of_week = _plain(day_of_week, names, 7)
    fields = (
        "0",
        _plain(minutes, cron.minutes, 60, steps=True),
        _plain(hours, cron.hours, 24, steps=True),
        day_of_month,
        _plain(month, cron.months, 12),
        day_of_week,
        _plain(year, cron.years, LAST_YEAR - FIRST_YEAR + 1),
    )
    return str(get_description(" ".join(fields), options))


def _plain(text: str, values: Sequence[int | str], size: int, *, steps: bool = False) -> str:
    """A field as the library describes it well: as it stands if it is simple, else as a list of its values.

    A step stays one if it goes round evenly, as every 20 minutes does and every 25 does not.
    """
    if len(values) == size:
        return "*"
    if _RANGE.fullmatch(text) and len(values) > 1:
        return text
    step = _STEP.fullmatch(text)
    first = values[0]
    if (
        steps
        and step
        and len(values) > 1
        and size % int(step[2]) == 0
        and isinstance(first, int)
        and first < int(step[2])
    ):
        return text
    return ",".join(str(value) for value in values)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Query:
    """The expression and the bounds of one command line."""

    expression: Expression
    zone: str
    after: datetime
    start: datetime | None
    end: datetime | None

    @classmethod
    def of(cls, text: str, options: ExpressionOptions) -> _Query:
        """Raises InvalidInput, also if there is no occurrence after the instant."""
        expression = parse_expression(text)
        now = Session().clock().replace(microsecond=0)
        begin = now if options.from_ is None else instant(options.from_, "from", now)
        start = instant(options.start_date, attr.START_DATE, now) if options.start_date else None
        query = cls(
            expression=expression,
            zone=check_zone(options.tz),
            after=begin,
            start=begin if start is None and isinstance(expression, Rate) else start,
            end=instant(options.end_date, attr.END_DATE, now) if options.end_date else None,
        )
        check_fires(query.expression, after=query.after, zone=query.zone, start=query.start, end=query.end)
        return query

    def occurrences(self) -> Iterator[Occurrence]:
        return upcoming(self.expression, self.after, zone=self.zone, start=self.start, end=self.end)

    def warnings(self) -> list[str]:
        return clock_warnings(self.expression, self.after, zone=self.zone, start=self.start, end=self.end)


@command(app)
def explain(expression: Text, options: ExpressionOptions) -> None:
    """Describe an expression in words, with its next occurrences and how clock changes affect them."""
    query = _Query.of(expression, options)
    occurrences, output = list(islice(query.occurrences(), options.count)), options.output
    gap, warnings = shortest_gap(query.expression), query.warnings()
    if output is not Output.TABLE:
        document = {
            attr.SCHEDULE_EXPRESSION: query.expression.text,
            attr.SCHEDULE_EXPRESSION_TIMEZONE: query.zone,
            "description": in_words(query.expression, query.zone),
            "shortestIntervalSeconds": None if gap == timedelta.max else int(gap.total_seconds()),
            "occurrences": [_row(one, query.zone) for one in occurrences],
            "warnings": warnings,
        }
        show_document(document, output)
        return
    print(in_words(query.expression, query.zone))
    if gap != timedelta.max:
        print(f"Shortest interval: {exact_text(gap)}")
    print()
    _table(occurrences, query.zone)
    if len(occurrences) < options.count:
        print("\nThat is the last occurrence")
    if warnings:
        print("\nClock changes within a year:")
        for warning in warnings:
            print(f"  {warning}")


@command(app, "next")
def next_occurrences(expression: Text, options: ExpressionOptions) -> None:
    """List the next occurrences. With --output json, a list of instants in UTC."""
    query = _Query.of(expression, options)
    occurrences, output = list(islice(query.occurrences(), options.count)), options.output
    if output is Output.TABLE:
        _table(occurrences, query.zone)
    else:
        show_list([format_instant(one.instant) for one in occurrences], output)
    if len(occurrences) < options.count:
        say("That is the last occurrence")


def _row(one: Occurrence, zone: str) -> dict[str, object]:
    local = one.instant.astimezone(zone_of(zone))
    return {"occurrenceAt": format_instant(one.instant), "local": local.isoformat(), "notes": list(one.notes)}


def _table(occurrences: Iterable[Occurrence], zone: str) -> None:
    rows = [
        {**_row(one, zone), "local": wall_time(one.instant, zone), "notes": "; ".join(one.notes)} for one in occurrences
    ]
    show_table(rows, _COLUMNS)

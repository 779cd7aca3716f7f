"""Options that several commands share, and their values: times, durations, JSON, and what selects tasks."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, TypedDict

import typer

from dynatick.cli.exit_code import CommandFailed, ExitCode
from dynatick.domain.buckets import instant_of, minute_of
from dynatick.domain.durations import EXAMPLES, duration_of, duration_or_none
from dynatick.domain.instants import EXPECTED_RANGE, format_instant
from dynatick.errors import InvalidInput
from dynatick.json_reader import loads

TaskId = Annotated[str, typer.Argument(metavar="ID", help="The task's id.", show_default=False)]
At = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="When: 2026-12-31T12:07:00Z, 2026-12-31#12:00, epoch seconds, +10m or now."),
]
Delay = Annotated[
    str | None, typer.Option(metavar="DURATION", help="When: this time from now, as 90s, 2h, 1h30m, 3d; or seconds.")
]
Payload = Annotated[str | None, typer.Option(metavar="JSON|@FILE", help="The action's arguments, a JSON object.")]
Timeout = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION", help="The longest that an attempt may take; it does not start with less time left."
    ),
]
WaitTimeout = Annotated[
    str | None, typer.Option("--timeout", metavar="DURATION", help="Such as 90s or 10m. Default: as long as it takes.")
]
Waiting = Annotated[str | None, typer.Option(help="Only scheduled, or only unscheduled ones. Default: both.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="List the selected tasks, and change none.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask. Without a terminal, it never asks.")]
Limit = Annotated[int, typer.Option(help="The maximum number of tasks.")]
PageToken = Annotated[str | None, typer.Option(help="Continue after the page before.")]
Status = Annotated[
    str | None, typer.Option(help="Only these: scheduled, running, completed, failed, cancelled, unscheduled.")
]

_NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?", re.ASCII)
_MAX_FILE_BYTES = 4 * 1024 * 1024  # no item comes near it

_STDIN = "-"

Ids = Annotated[
    list[str], typer.Argument(metavar="ID...", help="Ids; - reads them from stdin, one a line.", show_default=False)
]
IdsOrNone = Annotated[
    list[str] | None,
    typer.Argument(metavar="ID...", help="Ids; - reads them from stdin.", show_default=False),
]
Last = Annotated[str | None, typer.Option(metavar="DURATION", help="Instead of a range: the last 90s, 2h, 1h30m, 1d.")]


def time_of(text: str | None, field: str, now: datetime) -> str | Decimal | None:
    """A time as the client takes it: ``now``, +10m and -1h are relative to ``now``, a number is epoch seconds. The
    client parses any other text. Raises InvalidInput."""
    if text is None:
        return None
    typed = text.strip()
    if typed == "now":
        return format_instant(now)
    sign, length = (typed[0], typed[1:]) if typed[:1] in ("+", "-") else ("", typed)
    if _NUMBER.fullmatch(length):
        if sign:
            raise InvalidInput(field, text, f"add a unit: {sign}{length}s, {sign}{length}m or {sign}{length}h")
        return Decimal(length)
    distance = duration_or_none(length)
    if distance is None:
        return text
    if not sign:
        raise InvalidInput(field, text, f"add a sign: +{length} is later than now, -{length} earlier")
    try:
        return format_instant(now + distance if sign == "+" else now - distance)
    except OverflowError:
        raise InvalidInput(field, text, EXPECTED_RANGE) from None


def shift_of(text: str, field: str) -> timedelta:
    """A shift of a time: +1h later, -30m earlier. Raises InvalidInput."""
    typed = text.strip()
    distance = duration_or_none(typed[1:]) if typed[:1] in ("+", "-") else None
    if not distance:
        raise InvalidInput(field, text, "expected a duration with its sign, such as +1h for later or -30m for earlier")
    return distance if typed[0] == "+" else -distance


def seconds_of(text: str | None, field: str) -> int | Decimal | None:
    """A duration in seconds; a number is one in seconds. Raises InvalidInput."""
    if text is None:
        return None
    typed = text.strip()
    distance = duration_or_none(typed)
    if distance is not None:
        return distance // timedelta(seconds=1)
    if not _NUMBER.fullmatch(typed):
        raise InvalidInput(field, text, f"expected a number of seconds, or a duration such as {EXAMPLES}")
    return Decimal(typed) if "." in typed else int(typed)


def minutes_of(text: str | None, field: str) -> int | None:
    """A duration in minutes; a whole number is one in minutes. Raises InvalidInput."""
    if text is None:
        return None
    typed = text.strip()
    distance = duration_or_none(typed)
    if distance is not None and not distance % timedelta(minutes=1):
        return distance // timedelta(minutes=1)
    if not re.fullmatch(r"-?\d{1,9}", typed, re.ASCII):
        raise InvalidInput(field, text, "expected a whole number of minutes, or a duration such as 15m or 1h30m")
    return int(typed)


def map_of(text: str | None, field: str) -> dict[str, object] | None:
    """A JSON object, from the text or from ``@file`` (``@-``: stdin). Raises InvalidInput, CommandFailed."""
    if text is None:
        return None
    value = loads(_read(text[1:]) if text.startswith("@") else text, field)
    if not isinstance(value, dict):
        raise InvalidInput(field, value, "expected a JSON object")
    return value


def _fields_of(typed: Sequence[str]) -> dict[str, object]:
    """The values of fields, each typed as FIELD=VALUE: JSON, else text. Raises InvalidInput."""
    fields: dict[str, object] = {}
    for one in typed:
        name, sign, text = one.partition("=")
        if not sign or not name:
            raise InvalidInput("set", one, "expected FIELD=VALUE, such as text=hello or copies=2")
        try:
            fields[name] = loads(text, name)
        except InvalidInput:
            fields[name] = text
    return fields


def _read(name: str) -> str:
    try:
        if name == "-":
            return sys.stdin.read(_MAX_FILE_BYTES)
        with Path(name).open("rb") as file:
            return file.read(_MAX_FILE_BYTES).decode("utf-8-sig")
    except OSError as error:
        raise CommandFailed(ExitCode.NOT_FOUND, f"cannot read {name}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CommandFailed(ExitCode.INVALID, f"{name} is not UTF-8: {error}") from error


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


class PayloadArguments(TypedDict):
    """Another payload, as the client's arguments."""

    payload: dict[str, object] | None
    set_fields: dict[str, object]
    unset_fields: Sequence[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangedPayload:
    """The options that give tasks another payload."""

    payload: Annotated[
        str | None, typer.Option(metavar="JSON|@FILE", help="With this payload in the place of its own.")
    ] = None
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="FIELD=VALUE", help="With this value of a field: JSON, else text. Repeatable."),
    ] = None
    unset: Annotated[list[str] | None, typer.Option(metavar="FIELD", help="Without this field. Repeatable.")] = None

    def arguments(self) -> PayloadArguments:
        """The client's arguments. Raises InvalidInput."""
        return PayloadArguments(
            payload=map_of(self.payload, "payload"),
            set_fields=_fields_of(self.set_ or ()),
            unset_fields=tuple(self.unset or ()),
        )


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
        ids |= dict.fromkeys(_ids_on_stdin() if one == _STDIN else (one,))
    return list(ids)


def is_single(typed: Sequence[str]) -> bool:
    """Whether exactly one id is named, so that the output is not a list."""
    return len(typed) == 1 and typed[0] != _STDIN


def _ids_on_stdin() -> list[str]:
    try:
        lines = [line.rstrip("\r\n") for line in sys.stdin]
    except UnicodeDecodeError as error:
        raise CommandFailed(ExitCode.INVALID, f"stdin is not UTF-8: {error}") from error
    return [line for line in lines if line.strip()]

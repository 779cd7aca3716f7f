"""Options that several commands share, and their values: times, durations, JSON, and what selects tasks."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict

import typer

from dynatick.bulk.record import FileFormat
from dynatick.cli.exit_code import CommandFailed, ExitCode, opening
from dynatick.domain.durations import EXAMPLES, duration_of, duration_or_none
from dynatick.domain.selection import ErrorFilter, Selection
from dynatick.errors import InvalidInput
from dynatick.json_reader import loads

if TYPE_CHECKING:
    from dynatick.client import TaskClient

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
Subject = Annotated[
    str | None, typer.Option(help="What it is about, such as customer:4711, to find it by. It can't be changed.")
]
LimitKey = Annotated[
    str | None,
    typer.Option(metavar="CLASS:TEXT", help="What limits it, such as customer:4711, of a class of KeyLimits."),
]
WaitTimeout = Annotated[
    str | None, typer.Option("--timeout", metavar="DURATION", help="Such as 90s or 10m. Default: as long as it takes.")
]
Wait = Annotated[
    bool, typer.Option("--wait", help="Wait until their runs have ended, and say how: exit codes of task wait.")
]
Waiting = Annotated[str | None, typer.Option(help="Only scheduled, or only unscheduled ones. Default: both.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask. Without a terminal, it never asks.")]
Limit = Annotated[int, typer.Option(help="The maximum number of tasks.")]
PageToken = Annotated[str | None, typer.Option(help="Continue after the page before.")]
RangeStart = Annotated[str | None, typer.Option("--from", metavar="TIME", help="First instant of a range.")]
RangeEnd = Annotated[str | None, typer.Option(metavar="TIME", help="End of the range, not itself part of it.")]
RetryPolicy = Annotated[str | None, typer.Option(metavar="JSON|@FILE", help='Such as {"maximumRetryAttempts": 5}.')]
InputFile = Annotated[
    str, typer.Argument(metavar="FILE", help=".ndjson, .jsonl, .json or .csv; - for stdin.", show_default=False)
]
InputFormat = Annotated[
    FileFormat | None, typer.Option("--format", help="Default: by the file's name; of stdin, ndjson.")
]
OutputFile = Annotated[
    str, typer.Argument(metavar="[FILE]", help=".ndjson, .jsonl or .csv. Default: stdout.", show_default=False)
]
OutputFormat = Annotated[
    FileFormat | None, typer.Option("--format", help="Default: by the file's name; to stdout, ndjson.")
]
Fingerprint = Annotated[
    str | None, typer.Option(metavar="DIGITS", help="Only those of this group of dynatick failure list.")
]
Status = Annotated[
    str | None, typer.Option(help="Only these: scheduled, running, completed, failed, cancelled, unscheduled.")
]

_NUMBER = re.compile(r"[+-]?\d{1,12}(?:\.\d+)?", re.ASCII)  # no longer than a timedelta can be
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
Next = Annotated[
    str | None,
    typer.Option("--next", metavar="DURATION", help="Instead of a range, or with --last: the next 2h, 1d."),
]


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


def timeout_of(text: str | None) -> timedelta | None:
    """How long to wait; None: as long as it takes. Raises InvalidInput."""
    return None if text is None else duration_of(text, "timeout")


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
        with opening(name), Path(name).open("rb") as file:
            return file.read(_MAX_FILE_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CommandFailed(ExitCode.INVALID, f"{name} is not UTF-8: {error}") from error


@dataclass(frozen=True, kw_only=True, slots=True)
class Asking:
    """The options of a change of many tasks: whether to make it, and whether to ask before."""

    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the selected tasks, and change none.")] = False
    yes: Yes = False


@dataclass(frozen=True, kw_only=True, slots=True)
class SelectionOptions:
    """The options that select tasks."""

    bucket: Annotated[str | None, typer.Option(metavar="BUCKET", help="Such as 2026-12-31#12:00.")] = None
    from_: RangeStart = None
    to: RangeEnd = None
    last: Last = None
    next_: Next = None
    subject: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Only tasks with this subject; a range is not needed then.")
    ] = None
    action: Annotated[str | None, typer.Option(help="Only tasks of this action.")] = None
    schedule: Annotated[str | None, typer.Option(metavar="ID", help="Only tasks of this schedule.")] = None
    prefix: Annotated[str | None, typer.Option(metavar="TEXT", help="Only tasks whose id begins with this.")] = None

    def given(self) -> Mapping[str, str]:
        """Those that are used, by the names of the options."""
        values = {option.name.rstrip("_"): getattr(self, option.name) for option in fields(self)}
        return {name: value for name, value in values.items() if value is not None}

    def select(self, client: TaskClient, *, status: str | None = None, error: ErrorFilter | None = None) -> Selection:
        """Raises CommandFailed unless there is a bucket, a subject, or both ends of a range; InvalidInput."""
        if self.bucket is None:
            if self.subject is None or self.from_ is not None or self.to is not None:
                check_range(self.from_, self.to, self.last, self.next_, which="--bucket, --subject, --last, --next")
        elif used := {"from", "to", "last", "next"} & self.given().keys():
            message = f"--{min(used)} has no effect with --bucket; use one of them only"
            raise CommandFailed(ExitCode.USAGE, message)
        return client.select(
            self.bucket,
            start=self.from_,
            end=self.to,
            last=self.last,
            next=self.next_,
            status=status,
            action=self.action,
            schedule_id=self.schedule,
            subject=self.subject,
            prefix=self.prefix,
            error=error,
        )


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


def error_filter(error: str | None, fingerprint: str | None) -> ErrorFilter | None:
    """What selects tasks by their error. Raises InvalidInput, CommandFailed."""
    if fingerprint is None:
        return error
    if error is not None:
        raise CommandFailed(ExitCode.USAGE, "--error has no effect with --fingerprint; use one of them only")
    from dynatick.client.failures import has_fingerprint

    return has_fingerprint(fingerprint)


def check_range(
    from_: str | None, to: str | None, last: str | None, ahead: str | None, *, which: str = "--last, --next"
) -> None:
    """Raises CommandFailed unless there is a range, by both its ends or by its length up to now or from now on."""
    if last is ahead is None and (from_ is None or to is None):
        missing = "--to" if from_ is not None else "--from" if to is not None else None
        every = f"select tasks by {which}, or --from and --to"
        raise CommandFailed(ExitCode.USAGE, every if missing is None else f"a range has two ends; give {missing}")


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

"""Values as they are typed: times, durations, JSON."""

from __future__ import annotations

import json
import re
import sys
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

from dynatick.cli.exits import CommandFailed, ExitCode
from dynatick.errors import InvalidInput

_NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?", re.ASCII)
_DURATION = re.compile(r"(\d{1,6})([smhd])", re.ASCII)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_MAX_FILE_BYTES = 4 * 1024 * 1024  # no item comes near it


def time_of(text: str | None) -> str | Decimal | None:
    """A time: a number is epoch seconds; what else it means is the client's to say."""
    return Decimal(text) if text is not None and _NUMBER.fullmatch(text.strip()) else text


def duration_of(text: str, field: str) -> timedelta:
    """A duration such as 90s, 60m, 2h, 1d. Raises InvalidInput."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise InvalidInput(field, text, "expected a number with its unit, such as 90s, 60m, 2h or 1d")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


def require_range(bucket: str | None, from_: str | None, to: str | None) -> None:
    """Raises CommandFailed unless a bucket is named, or both ends of a range."""
    if bucket is not None:
        given = [name for name, value in (("--from", from_), ("--to", to)) if value is not None]
        if given:
            raise CommandFailed(ExitCode.USAGE, f"--bucket names one bucket, so {given[0]} says nothing; leave one out")
    elif from_ is None or to is None:
        missing = "--to" if from_ is not None else "--from" if to is not None else None
        both = "say which tasks are meant: --bucket, or --from and --to"
        raise CommandFailed(ExitCode.USAGE, both if missing is None else f"a range needs both its ends; give {missing}")


def map_of(text: str | None, field: str) -> dict[str, object] | None:
    """A JSON object, given as it stands or as ``@file`` (``@-``: stdin). Raises InvalidInput, CommandFailed."""
    if text is None:
        return None
    value = json_of(_read(text[1:]) if text.startswith("@") else text, field)
    if not isinstance(value, dict):
        raise InvalidInput(field, value, "expected a JSON object")
    return value


def json_of(text: str, field: str) -> object:
    """A JSON value; numbers keep their digits. Raises InvalidInput."""
    try:
        value: object = json.loads(text, parse_float=Decimal, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise InvalidInput(field, text, f"expected JSON: {reason}") from None
    return value


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


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not a number that a table can hold")

"""Parses the values of options: times, durations, JSON."""

from __future__ import annotations

import re
import sys
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path

from dynatick.cli.exit_code import CommandFailed, ExitCode
from dynatick.domain.durations import EXAMPLES, duration_or_none
from dynatick.domain.instants import EXPECTED_RANGE, format_instant
from dynatick.errors import InvalidInput
from dynatick.json_reader import loads

_NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?", re.ASCII)
_MAX_FILE_BYTES = 4 * 1024 * 1024  # no item comes near it


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

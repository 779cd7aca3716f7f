"""Converts a user's crontab: each line with a command becomes a schedule, or is refused with the reason.

What cron does is kept: it tries a command once, does not catch up on what it missed, and does not wait for the command
that it started before.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise, takewhile

from dynatick.bulk.conversion import DESCRIPTION, Conversion
from dynatick.bulk.task_definition import with_id
from dynatick.domain import attributes as attr
from dynatick.domain.expressions import Cron, check_zone, clock_warnings, parse_expression
from dynatick.domain.expressions.cron import MONTHS, WEEKDAYS
from dynatick.domain.expressions.occurrence import zone_of
from dynatick.domain.schedule import CatchUp, Overlap
from dynatick.errors import InvalidInput

_MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MACRO_NAMES = "@yearly, @annually, @monthly, @weekly, @daily, @midnight or @hourly"
_ASSIGNMENT = re.compile(r"""(?P<quote>["']?)(?P<name>[A-Za-z_]\w*)(?P=quote)\s*=\s*(?P<value>.*)""", re.ASCII)
_PART = re.compile(r"(?:(?P<all>\*)|(?P<low>\w+)(?:-(?P<high>\w+))?)(?:/(?P<step>\d+))?", re.ASCII)
_PERCENT = re.compile(r"(?<!\\)%")
_REDIRECTS = re.compile(r"\d*[<>|]")
_ZONE = "CRON_TZ"
_MAX_SLUG, _DIGEST, _MAX_DESCRIPTION = 40, 8, 200  # characters
_HALF_MONTHS_AHEAD = 240  # over which the offsets of a zone are compared: ten years


@dataclass(frozen=True, slots=True)
class _Kind:
    """A field: its name, its first and last value, and names for values."""

    name: str
    first: int
    last: int
    names: Mapping[str, int] = field(default_factory=dict)


_MINUTE, _HOUR, _DAY = _Kind("minute", 0, 59), _Kind("hour", 0, 23), _Kind("day of month", 1, 31)
_MONTH = _Kind("month", 1, 12, {name: number for number, name in enumerate(MONTHS, 1)})
_WEEKDAY = _Kind("day of week", 0, 7, {name: number for number, name in enumerate(WEEKDAYS)})


def read_crontab(
    text: str, *, action: str, zone: str | None = None, now: datetime, id_prefix: str = ""
) -> Iterator[Conversion]:
    """The schedules of a crontab as ``crontab -l`` prints it.

    ``zone``: the time zone of lines before which there is no ``CRON_TZ``; None: UTC, with a note. The payload of each
    is ``{"command": …}``, with ``stdin`` if the line has text after a ``%``. Ids begin with the words of the command,
    and follow from time, zone, command and action. ``description`` is the comment right above, else the command. Raises
    InvalidInput for an unknown ``zone``.
    """
    current: str | InvalidInput = check_zone(zone or "UTC")
    is_named = zone is not None
    comment: list[str] = []
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.strip()
        if line.startswith("#"):
            comment.append(line.lstrip("#").strip())
            continue
        described, comment = " ".join(filter(None, comment)), []
        if not line:
            continue
        assignment = _ASSIGNMENT.fullmatch(line)
        if assignment is not None:
            if assignment["name"] == _ZONE:
                is_named = True
                try:
                    current = check_zone(assignment["value"].strip().strip("\"'"), _ZONE)
                except InvalidInput as error:
                    current = error
                    yield Conversion(line=number, name=f"line {number}", text=line, error=error)
            else:
                note = f"{assignment['name']} is left out: set what the command needs in the handler's environment"
                yield _note(number, note)
            continue
        if not is_named:
            is_named = True
            note = f"from here on read on the clock of UTC, as no {_ZONE} is before it; --tz names that of the machine"
            yield _note(number, note)
        try:
            if isinstance(current, InvalidInput):
                raise InvalidInput(
                    "line", line, f"the {_ZONE} before it is not accepted, so its time zone is not known"
                )
            yield _schedule(number, line, current, action, now, id_prefix, described)
        except InvalidInput as error:
            yield Conversion(line=number, name=f"line {number}", text=line, error=error)


def _note(number: int, note: str) -> Conversion:
    return Conversion(line=number, name=f"line {number}", text="", notes=(note,))


def _schedule(
    number: int, line: str, zone: str, action: str, now: datetime, id_prefix: str, described: str
) -> Conversion:
    fields, command = _split(line)
    expression, is_hourly = _expression(fields)
    ours = "UTC" if is_hourly and _has_whole_hours(zone, now) else zone
    parsed = parse_expression(expression)
    assert isinstance(parsed, Cron)
    notes = [
        f"{warning}; cron may run it once more then, or right after a gap"
        for warning in clock_warnings(parsed, now, zone=ours)
    ]
    command, stdin = _without_percent(command)
    row = {
        attr.SCHEDULE_EXPRESSION: parsed.text,
        attr.SCHEDULE_EXPRESSION_TIMEZONE: ours,
        attr.ACTION: action,
        attr.PAYLOAD: {"command": command} | ({} if stdin is None else {"stdin": stdin}),
        attr.CATCH_UP: str(CatchUp.NONE),
        attr.OVERLAP: str(Overlap.ALLOW),
        attr.RETRY_POLICY: {attr.MAXIMUM_RETRY_ATTEMPTS: 0},
    }
    prefix = f"{id_prefix}{_slug(command)}"
    whole = with_id(row, prefix)
    whole[attr.TASK_ID] = str(whole[attr.TASK_ID])[: len(prefix) + _DIGEST]
    whole[DESCRIPTION] = (described or command)[:_MAX_DESCRIPTION]
    return Conversion(line=number, name=f"line {number}", text=line, row=whole, notes=tuple(notes))


def _slug(command: str) -> str:
    """The words of a command up to a redirection or a pipe, of paths the last part, as the beginning of an id."""
    words = takewhile(lambda word: not _REDIRECTS.match(word), command.split())
    joined = "-".join(word.rstrip("/").rpartition("/")[2] for word in words)
    name = re.sub(r"[^A-Za-z0-9]+", "-", joined, flags=re.ASCII)[:_MAX_SLUG].strip("-")
    return f"{name}-" if name else ""


def _split(line: str) -> tuple[str, str]:
    """The five fields and the command. Raises InvalidInput."""
    if line.startswith("@"):
        name, *rest = line.split(None, 1)
        if name.lower() == "@reboot":
            raise InvalidInput("line", line, "there is no machine here that starts; insert a task instead")
        if name.lower() not in _MACROS:
            raise InvalidInput("line", line, f"expected {_MACRO_NAMES}, or five fields and a command")
        fields, command = _MACROS[name.lower()], "".join(rest)
    else:
        parts = line.split(None, 5)
        if len(parts) < 6:
            raise InvalidInput("line", line, "expected five fields and a command")
        fields, command = " ".join(parts[:5]), parts[5]
    if not command:
        raise InvalidInput("line", line, "expected a command after the time")
    if command.split()[0] == "root":
        expected = "expected a user's crontab; its sixth field is a user, as in /etc/crontab: leave that field out"
        raise InvalidInput("line", line, expected)
    return fields, command


def _without_percent(command: str) -> tuple[str, str | None]:
    """The command, and what it reads: ``%`` begins that, further ones are line ends, and ``\\%`` is the character."""
    first, *more = (part.replace("\\%", "%") for part in _PERCENT.split(command))
    return first.rstrip(), "\n".join(more) + "\n" if more else None


def _expression(fields: str) -> tuple[str, bool]:
    """The ``cron(…)`` of five fields, and whether cron runs it in each hour that passes. Raises InvalidInput."""
    texts = fields.upper().split()
    minute, hour, day, month = (
        _values(text, kind) for text, kind in zip(texts[:4], (_MINUTE, _HOUR, _DAY, _MONTH), strict=True)
    )
    weekday = {number % 7 for number in _values(texts[4], _WEEKDAY)}
    every_day, every_weekday = len(day) == 31, len(weekday) == 7
    start = f"{_written(minute, _MINUTE)} {_written(hour, _HOUR)}"
    by_day = f"{_written(day, _DAY)} {_written(month, _MONTH)} ?"
    by_weekday = f"? {_written(month, _MONTH)} {_written_weekdays(weekday)}"
    if texts[2].startswith("*") or texts[4].startswith("*"):  # both have to be right
        if not every_day and not every_weekday:
            expected = (
                "expected '*' for day of month or day of week: as one of them begins with '*', cron runs the line on "
                "days that both name, and a cron(…) takes one of them"
            )
            raise InvalidInput("line", fields, expected)
        days = by_weekday if every_day and not every_weekday else by_day
    elif every_day or every_weekday:  # one of them is enough
        days = f"* {_written(month, _MONTH)} ?"
    else:
        expected = (
            "expected '*' for day of month or day of week: cron runs the line on days that either names, and a cron(…) "
            f"takes one of them; cron({start} {by_day} *) and cron({start} {by_weekday} *) would run it twice on days "
            "that both name"
        )
        raise InvalidInput("line", fields, expected)
    repeats = texts[0].startswith("*") or texts[1].startswith("*")  # also in the hour that the clock shows twice
    return f"cron({start} {days} *)", repeats and len(hour) == 24 and days == "* * ?"


def _values(text: str, kind: _Kind) -> set[int]:
    """The values of a field. Raises InvalidInput."""
    found: set[int] = set()
    for part in text.split(","):
        match = _PART.fullmatch(part)
        if match is None:
            raise InvalidInput(
                kind.name, text, f"expected numbers from {kind.first} to {kind.last}, as in 1,5-10 or */2"
            )
        first, last = kind.first, kind.last
        if not match["all"]:
            first = _value(match["low"], text, kind)
            last = first if match["high"] is None else _value(match["high"], text, kind)
            if match["step"] and match["high"] is None:
                raise InvalidInput(kind.name, text, "expected a range or '*' before the step, as in 5-59/10")
            if last < first:
                raise InvalidInput(kind.name, text, "expected a range that ends after it begins")
        step = int(match["step"] or 1)
        if step < 1:
            raise InvalidInput(kind.name, text, "expected a step from 1 on")
        found.update(range(first, last + 1, step))
    return found


def _value(word: str, text: str, kind: _Kind) -> int:
    if word in kind.names:
        return kind.names[word]
    if not word.isdecimal() or not kind.first <= int(word) <= kind.last:
        raise InvalidInput(kind.name, text, f"expected numbers from {kind.first} to {kind.last}")
    return int(word)


def _written(values: Collection[int], kind: _Kind) -> str:
    """A field of a ``cron(…)``: ``*``, a range, a range with a step, or a list."""
    listed = sorted(values)
    if len(listed) == kind.last - kind.first + 1:
        return "*"
    steps = {later - earlier for earlier, later in pairwise(listed)}
    if len(listed) < 3 or len(steps) > 1:
        return ",".join(map(str, listed))
    step = steps.pop()
    if step == 1:
        return f"{listed[0]}-{listed[-1]}"
    return f"{listed[0]}/{step}" if listed[-1] + step > kind.last else f"{listed[0]}-{listed[-1]}/{step}"


def _written_weekdays(values: Collection[int]) -> str:
    """A day of week by names: a range, or a list."""
    names = [WEEKDAYS[number] for number in sorted(values)]
    is_range = len(names) > 2 and max(values) - min(values) == len(names) - 1
    return f"{names[0]}-{names[-1]}" if is_range else ",".join(names)


def _has_whole_hours(zone: str, now: datetime) -> bool:
    """Whether the clock of a zone shows the same minutes as that of UTC, now and over the next ten years."""
    instants = (now + timedelta(days=15 * number) for number in range(_HALF_MONTHS_AHEAD))
    offsets = (instant.astimezone(zone_of(zone)).utcoffset() for instant in instants)
    return zone_of(zone) is UTC or all(
        offset is not None and offset % timedelta(hours=1) == timedelta() for offset in offsets
    )

"""Converts a user's crontab: each line with a command becomes a schedule, or is refused with the reason.

What cron does is kept: it tries a command once, does not catch up on what it missed, and does not wait for the command
that it started before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import takewhile

from dynatick.bulk.conversion import DESCRIPTION, Conversion
from dynatick.bulk.task_definition import with_id
from dynatick.domain import attributes as attr
from dynatick.domain.expressions import Cron, check_zone, clock_warnings, parse_expression
from dynatick.domain.expressions.occurrence import zone_of
from dynatick.domain.expressions.unix import MACROS, cron_of
from dynatick.domain.schedule import CatchUp, Overlap
from dynatick.errors import InvalidInput

_MACRO_NAMES = "@yearly, @annually, @monthly, @weekly, @daily, @midnight or @hourly"
_ASSIGNMENT = re.compile(r"""(?P<quote>["']?)(?P<name>[A-Za-z_]\w*)(?P=quote)\s*=\s*(?P<value>.*)""", re.ASCII)
_PERCENT = re.compile(r"(?<!\\)%")
_REDIRECTS = re.compile(r"\d*[<>|]")
_ZONE = "CRON_TZ"
_MAX_SLUG, _DIGEST, _MAX_DESCRIPTION = 40, 8, 200  # characters
_HALF_MONTHS_AHEAD = 240  # over which the offsets of a zone are compared: ten years


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
    inner, is_hourly = cron_of(fields)
    ours = "UTC" if is_hourly and _has_whole_hours(zone, now) else zone
    parsed = parse_expression(f"cron({inner})")
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
        if name.lower() not in MACROS:
            raise InvalidInput("line", line, f"expected {_MACRO_NAMES}, or five fields and a command")
        fields, command = MACROS[name.lower()], "".join(rest)
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


def _has_whole_hours(zone: str, now: datetime) -> bool:
    """Whether the clock of a zone shows the same minutes as that of UTC, now and over the next ten years."""
    instants = (now + timedelta(days=15 * number) for number in range(_HALF_MONTHS_AHEAD))
    offsets = (instant.astimezone(zone_of(zone)).utcoffset() for instant in instants)
    return zone_of(zone) is UTC or all(
        offset is not None and offset % timedelta(hours=1) == timedelta() for offset in offsets
    )

"""The batch file: one task a line, as JSON, with how it must end.

    {"name": …, "item": {…}, "ends": "completed", "by": 1}

``item`` goes in by ``put-item``, in DynamoDB's JSON, as any SDK would send it. ``door`` says otherwise: ``insert`` or
``insert-many`` of the Python client, with the item as plain JSON. ``ends`` is the final status, or ``refused``; ``by``
the latest tick, counted from the insert, at which it ends; ``error`` a piece of the reason; ``attempts`` how often it
runs (once if it completes, unless it says so); ``calls`` how many webhooks arrive.

Placeholders stand for times: ``{{tick+2}}`` is the second tick after now as ``2026-12-31#12:00``, ``{{iso+45}}`` the
instant 45 seconds from now in RFC 3339 (``{{iso+45@+05:30}}`` with that offset, or that of a zone such as
``Europe/Berlin``), ``{{epoch+45}}`` the same in epoch seconds, ``{{minute-300}}`` the minute of an instant as a bucket.
``{{receiver}}`` is the address of the webhook receiver.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from enum import StrEnum
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from dynatick.domain.buckets import Bucket, Grid, minute_of
from dynatick.domain.instants import format_instant
from dynatick_stack.errors import StackError

BATCH = Path(__file__).with_name("batch.jsonl")
REFUSED = "refused"
ENDS = ("completed", "failed", REFUSED)
FIELDS = frozenset({"name", "door", "item", "ends", "by", "error", "attempts", "calls"})
OPEN, CLOSE = "{{", "}}"

_PLACEHOLDER = re.compile(r"\{\{(tick|iso|epoch|minute)([+-]\d+)(?:@([A-Za-z0-9_/+:-]+))?\}\}|\{\{(receiver)\}\}")
_OFFSET = re.compile(r"([+-])(\d\d):(\d\d)")


class Door(StrEnum):
    PUT_ITEM = "put-item"
    INSERT = "insert"
    INSERT_MANY = "insert-many"


@dataclass(frozen=True, kw_only=True)
class Expected:
    """A task of the batch, and what must become of it."""

    name: str
    task_id: str
    door: Door
    item: Mapping[str, Any]  # ready to be sent: attribute values of boto3, or plain values for the client
    ends: str
    by: int
    error: str | None = None
    attempts: int | None = None  # None: any number
    calls: int = 0


def read(path: Path, *, now: datetime, receiver: str = "", grid: Grid | None = None) -> list[Expected]:
    """The batch of a file, with its placeholders filled in. Raises StackError, which names the line."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise StackError(f"The batch can't be read: {error}") from error
    batch: list[Expected] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith("//"):
            continue
        try:
            batch.append(expected(json.loads(fill(line, now=now, receiver=receiver, grid=grid))))
        except (ValueError, KeyError, TypeError) as error:
            problem = f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)
            raise StackError(f"{path.name}, line {number}: {problem}") from error
    ids = [one.task_id for one in batch]
    if twice := sorted({task_id for task_id in ids if ids.count(task_id) > 1}):
        raise StackError(f"{path.name}: these ids stand there twice: {', '.join(twice)}")
    if not batch:
        raise StackError(f"{path.name}: there is no task in it")
    return batch


def expected(entry: Mapping[str, Any]) -> Expected:
    """An entry of the file. Raises ValueError, KeyError."""
    if unknown := sorted(set(entry) - FIELDS):
        raise ValueError(f"unknown {', '.join(unknown)}; known are {', '.join(sorted(FIELDS))}")
    door = Door(entry.get("door", Door.PUT_ITEM))
    ends = entry["ends"]
    if ends not in ENDS:
        raise ValueError(f"ends: {ends!r} is none of {', '.join(ENDS)}")
    if ends == REFUSED and door is Door.PUT_ITEM:
        raise ValueError("ends: the table refuses nothing that is put into it; use a door of the client")
    item = to_boto3(entry["item"]) if door is Door.PUT_ITEM else entry["item"]
    task_id = item["taskId"]
    return Expected(
        name=entry["name"],
        task_id=str(task_id["S"] if door is Door.PUT_ITEM else task_id),
        door=door,
        item=item,
        ends=ends,
        by=int(entry.get("by", 0) if ends == REFUSED else entry["by"]),
        error=entry.get("error"),
        attempts=entry.get("attempts", 1 if ends == "completed" else None),
        calls=int(entry.get("calls", 0)),
    )


def fill(text: str, *, now: datetime, receiver: str = "", grid: Grid | None = None) -> str:
    """The text with its placeholders filled in. Raises ValueError for one that isn't known."""
    ticks = grid or Grid()

    def value(match: re.Match[str]) -> str:
        kind, number, zone = match[1], int(match[2] or 0), match[3]
        if match[4]:
            return receiver
        instant = now.astimezone(UTC).replace(microsecond=0) + timedelta(seconds=number)
        if kind == "tick":
            first = ticks.tick_after(minute_of(now))
            return str(Bucket(first + (number - 1) * ticks.tick_minutes))
        if kind == "minute":
            return str(Bucket(minute_of(instant)))
        if kind == "epoch":
            return str(int(instant.timestamp()))
        return instant.astimezone(_zone(zone)).isoformat() if zone else format_instant(instant)

    filled = _PLACEHOLDER.sub(value, text)
    if OPEN in filled:
        start = filled.index(OPEN)
        end = filled.find(CLOSE, start)
        raise ValueError(f"unknown placeholder {filled[start : end + 2 if end >= 0 else None]}")
    return filled


def to_boto3(item: Mapping[str, Any]) -> dict[str, Any]:
    """DynamoDB's JSON as boto3 takes it: the same, but for binaries, which are base64 in JSON only."""
    return {name: _attribute(value) for name, value in item.items()}


def last_tick(batch: Sequence[Expected]) -> int:
    """The tick by which all must have ended, counted from the insert."""
    return max(one.by for one in batch)


def _attribute(value: object) -> dict[str, Any]:
    if not isinstance(value, Mapping) or len(value) != 1:
        raise ValueError(f"{value!r} is no attribute value such as {{'S': 'text'}}")
    ((kind, content),) = value.items()
    match kind:
        case "B":
            return {"B": base64.b64decode(content)}
        case "BS":
            return {"BS": [base64.b64decode(part) for part in content]}
        case "L":
            return {"L": [_attribute(part) for part in content]}
        case "M":
            return {"M": to_boto3(content)}
        case _:
            return {kind: content}


def _zone(name: str) -> tzinfo:
    if match := _OFFSET.fullmatch(name):
        offset = timedelta(hours=int(match[2]), minutes=int(match[3]))
        return timezone(-offset if match[1] == "-" else offset)
    try:
        return ZoneInfo(name)
    except ZoneInfoNotFoundError as error:
        raise ValueError(f"this machine doesn't know the time zone {name}") from error

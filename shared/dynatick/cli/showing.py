"""A task as people read it: what matters, in a short block."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from dynatick.cli.output import Output, show_document, show_one, show_pairs
from dynatick.domain.instants import format_instant

if TYPE_CHECKING:
    from dynatick.client import TaskView
    from dynatick.domain.task import Row

_UNITS = (("d", timedelta(days=1)), ("h", timedelta(hours=1)), ("m", timedelta(minutes=1)), ("s", timedelta(seconds=1)))


def show_task(view: TaskView, output: Output, now: datetime) -> None:
    """A task: for people a block of what matters, for programs its whole row."""
    from dynatick.domain.schedule import is_or_was_schedule

    if output is Output.TABLE and not is_or_was_schedule(view.row):
        show_pairs([*_block(view, now).items(), *view.attributes.items()])  # whose names may be the same
    else:
        show_one(view.to_row(), output)


def item_of(row: Row) -> Mapping[str, object]:
    """A row as DynamoDB's JSON says it, with the types of its values."""
    from dynatick.store.codec import encode

    text = json.dumps(encode(row), default=lambda binary: base64.b64encode(bytes(binary)).decode())
    item: Mapping[str, object] = json.loads(text)
    return item


def show_raw(row: Row, output: Output) -> None:
    """A row as the table holds it."""
    show_document(item_of(row), Output.JSON if output is Output.TABLE else output)


def _block(view: TaskView, now: datetime) -> Mapping[str, object]:
    row = view.row
    run = f" (run {view.run})" if view.run > 1 else ""
    lines = {
        "id": view.task_id,
        "status": view.status,
        "due": _when(view.due_at, now),
        "delay": None if view.due_at is not None or "delaySeconds" not in row else f"{row['delaySeconds']} s",
        "bucket": view.bucket,
        "attempts": None if "attempt" not in row else f"{view.attempt}{run}",
        "action": view.action,
        "payload": row.get("payload"),
        "schedule": row.get("scheduleId"),
        "retry policy": row.get("retryPolicy"),
        "timeout": None if row.get("timeoutSeconds") is None else f"{row['timeoutSeconds']} s",
        "result": view.result,
        "error": view.error,
        "last error": None if view.error is not None else _last_error(row.get("attempts")),
        "created": _when(view.created_at, now),
        "started": _when(view.started_at, now),
        "finished": _when(view.finished_at, now),
        "expires": _when(view.expires_at, now),
    }
    return {name: value for name, value in lines.items() if value is not None}


def _when(instant: datetime | None, now: datetime) -> str | None:
    """An instant to the second, and how far it is away."""
    if instant is None:
        return None
    ahead = instant - now
    unit, length = next((one for one in _UNITS if abs(ahead) >= one[1]), _UNITS[-1])
    number = abs(ahead) // length
    away = "now" if not number else f"in {number}{unit}" if ahead > timedelta() else f"{number}{unit} ago"
    return f"{format_instant(instant.replace(microsecond=0))} ({away})"


def _last_error(attempts: object) -> object:
    """Of the latest attempt that failed. Anybody may have written the list."""
    entries = attempts if isinstance(attempts, (list, tuple)) else ()
    return next((one["error"] for one in reversed(entries) if isinstance(one, Mapping) and "error" in one), None)

"""Packs in the world's table: put there as a client does, and read as the tasks that their members are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from dynatick.domain.batches import status_of_member
from dynatick.domain.buckets import Grid
from dynatick.domain.instants import format_instant
from dynatick.domain.packs import Pack, Span, body_id, packed, payload_text
from dynatick.domain.row import is_terminal
from dynatick.domain.task import Row, Status


def rows_of(
    batch_id: str, payloads: Sequence[Mapping[str, object]], *, due_at: datetime, now: datetime, grid: Grid, **more: Any
) -> Iterator[dict[str, object]]:
    """Bodies and packs, each body before its pack."""
    texts = [payload_text(payload, n) for n, payload in enumerate(payloads)]
    for span, body in packed(Span(0, len(texts)), texts):
        pack_id = span.pack_id(batch_id)
        yield {"taskId": body_id(pack_id), "body": body, "status": "body", "outcome": "none"}
        yield {
            "taskId": pack_id, "dueAt": format_instant(due_at), "taskDateTime": str(grid.bucket_of(pack_id, due_at)),
            "status": "scheduled", "attempt": 0, "run": 1, "createdAt": format_instant(now),
            "pack": Pack(batch_id=batch_id, span=span).to_attribute(), **more,
        }  # fmt: skip


def with_members(rows: Mapping[str, Row]) -> dict[str, Row]:
    """The rows of a table with one for each member, instead of those of packs."""
    found = {task_id: row for task_id, row in rows.items() if row.get("pack") is None}
    for row in rows.values():
        if (pack := Pack.of(row)) is not None:
            for n in range(pack.span.members):
                found.setdefault(pack.member_id(n), _as_row(row, pack, n))
    return found


def _as_row(row: Row, pack: Pack, n: int) -> Row:
    status = status_of_member(row, pack, n)
    has_ended = is_terminal(row) or status in (str(Status.COMPLETED), str(Status.CANCELLED))
    kept = {name: value for name, value in row.items() if name not in ("pack", "outcome", "payload")}
    member = {**kept, "taskId": pack.member_id(n), "status": status}
    return {**member, "outcome": status} if has_ended else member

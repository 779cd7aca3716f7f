"""The tables at the end: the history of each bucket, the ticks, the counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from dynatick.client import TaskEntry, TaskView, TickEntry, TickView
from dynatick.domain.buckets import Bucket
from dynatick_stack.demo.verdict import Evidence
from dynatick_stack.demo.view import STATUSES

COLUMNS = ("taskId", "action", "status", "attempt", "due", "started", "error")
RIGHT = ("attempt", "started")
BETWEEN = 2  # spaces between two columns


def history(entries: Sequence[TaskEntry], tasks: Mapping[str, TaskView], *, width: int) -> Iterator[Table]:
    """A table for each bucket, as its history lists it; attempts and starts are from the tasks themselves.

    ``width``: how much there is for a line. An error is shortened to what is left of it.
    """
    rows = {entry: _row(entry, tasks.get(entry.task_id)) for entry in entries}
    widths = [max(map(len, column)) for column in zip(COLUMNS, *rows.values(), strict=True)]
    error = max(width - sum(widths[:-1]) - BETWEEN * len(COLUMNS), len(COLUMNS[-1]))
    for bucket, group in groupby(entries, key=lambda entry: entry.bucket):
        listed = list(group)
        counts = Counter(entry.status for entry in listed)
        title = f"{bucket}: {', '.join(f'{counts[status]} {status}' for status in sorted(counts))}"
        table = _table(title)
        for name, wide in zip(COLUMNS, [*widths[:-1], error], strict=True):
            table.add_column(name, no_wrap=True, width=wide, justify="right" if name in RIGHT else "left")
        for entry in listed:
            cells = [Text(cell, overflow="ellipsis") for cell in rows[entry]]
            cells[2].stylize(STATUSES.get(entry.status, ""))
            table.add_row(*cells)
        yield table


def _row(entry: TaskEntry, task: TaskView | None) -> list[str]:
    return [
        entry.task_id,
        entry.action or "",
        entry.status,
        str(task.attempt) if task is not None and task.attempt else "",
        _due(entry),
        started(task),
        entry.error or "",
    ]


def started(task: TaskView | None) -> str:
    """When the latest attempt began, in seconds after its tick."""
    bucket = None if task is None else Bucket.canonical(task.bucket)
    if task is None or task.started_at is None or bucket is None:
        return ""
    return f"{(task.started_at - bucket.instant).total_seconds():+.1f} s"


def ticks(entries: Sequence[TickEntry]) -> Table:
    table = _table("Ticks")
    table.add_column("tick", no_wrap=True, min_width=16)
    for name in ("began", "took", "due", "claimed", "completed", "failed", "retried", "first start", "late"):
        table.add_column(name, justify="right", no_wrap=True)
    for entry in entries:
        if not isinstance(entry, TickView):
            kind = type(entry).__name__.removesuffix("Ticks").lower()
            table.add_row(entry.since if entry.ticks == 1 else f"{entry.since} to {entry.until[-5:]}", kind)
            continue
        bucket = Bucket.canonical(entry.tick)
        table.add_row(
            entry.tick,
            _after(bucket.instant if bucket else None, entry.started_at),
            _after(entry.started_at, entry.finished_at),
            *(str(number) for number in (entry.due, entry.claimed, entry.completed, entry.failed, entry.retried)),
            "" if entry.first_start_ms is None else f"{entry.first_start_ms} ms",
            f"{entry.lateness_max_ms} ms" if entry.lateness_max_ms else "",
        )
    return table


def counts(found: Evidence) -> list[str]:
    """The sums, in words."""
    completed, failed = found.count("completed"), found.count("failed")
    must_fail = {one.task_id for one in found.batch if one.ends == "failed"}
    as_expected = sum(task.status == "failed" for name, task in found.seen.tasks.items() if name in must_fail)
    keys = {call.key for call in found.seen.calls}
    return [
        f"inserted {len(found.inserted)} = completed {completed} + failed {failed} "
        f"({as_expected} of these as expected), waiting {found.seen.waiting}",
        f"refused at the client's door {len(found.refused)}",
        f"dead letters {len(found.seen.letters)} of {found.letters_expected}",
        f"webhook calls {len(found.seen.calls)} of {found.calls_expected}, "
        f"with {len(keys)} idempotency keys for {len({call.task_id for call in found.seen.calls})} tasks",
    ]


def _table(title: str) -> Table:
    return Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=SIMPLE_HEAD,
        show_edge=False,
        padding=(0, 1, 0, 0),
    )


def _due(entry: TaskEntry) -> str:
    if entry.due_at is None:
        return ""
    bucket = Bucket.canonical(entry.bucket)
    near = bucket is not None and abs((bucket.instant - entry.due_at).total_seconds()) < 3600
    return f"{entry.due_at:%H:%M:%S}" if near else f"{entry.due_at:%Y-%m-%d}"


def _after(start: datetime | None, end: datetime | None) -> str:
    return "" if start is None or end is None else f"+{(end - start).total_seconds():.1f} s"

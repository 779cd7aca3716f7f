"""Reconcile (protocol 15): a scan that finds every task that no tick would see, and settles it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from dynatick.domain.buckets import Bucket
from dynatick.domain.lifecycle import is_terminal
from dynatick.domain.task import Row, is_own_row
from dynatick.engine.cursor import read_cursor
from dynatick.engine.settle import Settler
from dynatick.errors import DynatickError

EXAMPLES = 20


@dataclass(kw_only=True, slots=True)
class Reconciled:
    """What a reconcile found. ``after``: where the next one goes on, None when the whole table was read."""

    scanned: int = 0
    found: int = 0
    mended: int = 0
    failed: int = 0
    after: str | None = None
    examples: list[tuple[str, str]] = field(default_factory=list)  # (taskId, what was wrong), the first few


def reconcile(
    settler: Settler,
    *,
    stop_at: datetime,
    clock: Callable[[], datetime],
    after: str | None = None,
    mend: bool = True,
) -> Reconciled:
    """Reads the whole table, consistently, until ``stop_at``; ``mend`` False only reports.

    One row that cannot be mended now does not keep the others from it: it is counted, and found again next time.
    """
    report = Reconciled()
    drained: dict[int, int] = {}
    while True:
        page = settler.store.scan(after=after)
        for row in page.rows:
            report.scanned += 1
            wrong = what_is_wrong(row, settler, drained, clock())
            if wrong is None:
                continue
            report.found += 1
            if len(report.examples) < EXAMPLES:
                report.examples.append((str(row["taskId"]), wrong))
            if mend:
                try:
                    settler.settle(str(row["taskId"]))
                    report.mended += 1
                except DynatickError:
                    report.failed += 1
        after = page.after
        if after is None or clock() >= stop_at:
            report.after = after
            return report


def what_is_wrong(row: Row, settler: Settler, drained: dict[int, int], now: datetime) -> str | None:
    """Why no tick would see this row; None if one will, or need not. ``drained``: S by shard, filled in here.

    S is read before the row's fate is decided and only grows, so a row in a bucket at or before it is past hope.
    """
    if is_terminal(row) or is_own_row(row.get("taskId")):
        return None
    if settler.make_ready(row) is not None:
        return "it was never normalised"
    bucket = Bucket.canonical(row.get("taskDateTime"))
    if bucket is None:
        return "its taskDateTime names no bucket"
    if bucket.shard >= settler.in_force.shards_ever:
        return f"its shard {bucket.shard} is not served"
    if bucket.shard not in drained:
        drained[bucket.shard] = read_cursor(settler.store, bucket.shard, now).drained_through
    if bucket.minute <= drained[bucket.shard]:
        return "its bucket was drained without it"
    return None

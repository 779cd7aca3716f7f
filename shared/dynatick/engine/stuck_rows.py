"""Defers rows that no tick can work on, so that they don't keep the drained watermark back (protocol 3)."""

from __future__ import annotations

from datetime import datetime

from dynatick.domain.buckets import Bucket
from dynatick.domain.conditional_update import Written
from dynatick.domain.lifecycle import defer
from dynatick.domain.retry import deferral
from dynatick.domain.row import RowView
from dynatick.engine.claims import is_stuck
from dynatick.engine.conditional_write import write
from dynatick.engine.execution import Services
from dynatick.engine.poll_window import Window
from dynatick.engine.report import PassReport
from dynatick.engine.rules import SKEW_MARGIN

MAX_DEFERRED = 200  # rows in one pass


def defer_stuck(services: Services, window: Window, report: PassReport, *, hard_end: datetime) -> None:
    """Moves stuck rows out of buckets that had their final poll."""
    left = MAX_DEFERRED
    for minute, poll in list(window.stuck_polls()):
        deferred, poll.stuck = poll.stuck[:left], []
        for task_id in deferred:
            _defer(services, Bucket(minute, report.shard), task_id, report, hard_end)
        left -= len(deferred)


def _defer(services: Services, bucket: Bucket, task_id: str, report: PassReport, hard_end: datetime) -> None:
    """Moves a row to a tick after the end of this process, each time later than the last. The next tick finds that it
    no longer holds its bucket back."""
    placer, now = services.placer, services.clock()
    row = services.store.get(task_id)
    if row is None or not is_stuck(row, bucket, placer, now):
        return
    at = max(now + deferral(RowView(row).deferrals), hard_end + SKEW_MARGIN)
    later = services.settings.grid.bucket_of(task_id, at)
    result = write(services.store, defer(row, later))
    placer.check_moves({task_id: later})
    report.deferred += isinstance(result, Written)

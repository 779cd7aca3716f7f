"""Counts the tasks that a request moves out of past buckets, in the records of these buckets."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from typing import Final

from dynatick.client.settings_cache import SettingsCache
from dynatick.client.task_update import state_shown
from dynatick.domain import attributes as attr
from dynatick.domain.buckets import Bucket, minute_of
from dynatick.domain.conditional_update import ConditionalUpdate
from dynatick.domain.row import RowView
from dynatick.domain.task import Row, Status
from dynatick.engine.bucket_record import count_departures, log_uncounted
from dynatick.engine.ports import Clock, Store
from dynatick.errors import DynatickError

Decide = Callable[[Row], ConditionalUpdate]

_REDRIVEN: Final = {
    str(Status.FAILED): attr.REDRIVEN_FAILED,
    str(Status.COMPLETED): attr.REDRIVEN_COMPLETED,
    str(Status.CANCELLED): attr.REDRIVEN_CANCELLED,
}


class Departures:
    """Counts the tasks that one request takes out of past buckets. Decisions may be made in several threads; the other
    methods are for one."""

    def __init__(self, store: Store, settings_cache: SettingsCache, clock: Clock) -> None:
        self._store, self._settings_cache, self._clock = store, settings_cache, clock
        self._noted: dict[str, tuple[Bucket, str]] = {}  # by task: its bucket when its update was last decided
        self._counted: dict[Bucket, Counter[str]] = {}

    def noting(self, decide: Decide) -> Decide:
        """``decide``, noting the bucket of the row that it gets."""

        def decide_and_note(row: Row) -> ConditionalUpdate:
            change = decide(row)
            task_id, departure = RowView(row).task_id, departure_of(row, change, now=self._clock())
            if departure is None:
                self._noted.pop(task_id, None)
            else:
                self._noted[task_id] = departure
            return change

        return decide_and_note

    def count(self, task_id: str) -> None:
        """Counts a task whose update was written."""
        if (departure := self._noted.pop(task_id, None)) is not None:
            bucket, name = departure
            self._counted.setdefault(bucket, Counter())[name] += 1

    def write(self) -> None:
        """Adds what was counted to the records. If that fails, it is logged: the tasks were changed all the same."""
        counted, self._counted = self._counted, {}
        if not counted:
            return
        try:
            days = self._settings_cache.defaults().retention_days
            count_departures(self._store, counted, token=uuid.uuid4().hex, now=self._clock(), retention_days=days)
        except DynatickError as error:
            log_uncounted(error)


def departure_of(row: Row, change: ConditionalUpdate, *, now: datetime) -> tuple[Bucket, str] | None:
    """The past bucket that an update moves a task out of, and as what it is counted there; None: it does not."""
    bucket = Bucket.canonical(row.get(attr.TASK_DATE_TIME))
    to = change.set.get(attr.TASK_DATE_TIME)
    if bucket is None or to is None or to == str(bucket) or bucket.minute > minute_of(now):
        return None
    return bucket, _REDRIVEN.get(state_shown(row), attr.MOVED)

"""A table in memory with its stream, which knows the next bucket in which something is open."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from typing import Any

from dynatick.domain import attributes as attr
from dynatick.domain.buckets import Bucket
from dynatick.domain.packs import Pack
from dynatick.domain.task import Row, Status
from dynatick.engine.ports import Entry
from dynatick.store.codec import Item, decode, entry_of
from dynatick.store.memory import MemoryStore

_OWN_STATUSES = ("body", "bucket", "change", "cursor", "limits", "reconcile", "settings", "tick")
_OPEN_STATUSES = (str(Status.SCHEDULED), str(Status.WAITING), "recurring")


class Table(MemoryStore):
    """Notes each change for the stream. ``recorded`` is called with each row whose attempt has ended."""

    def __init__(self, recorded: Callable[[str, Row], object]) -> None:
        super().__init__()
        self._recorded = recorded
        self._records: list[Mapping[str, Any]] = []
        self._open: dict[Bucket, set[str]] = {}
        self._soonest: list[Bucket] = []  # a heap; it may hold buckets in which nothing is open any more

    def take_records(self) -> list[Mapping[str, Any]]:
        """Removes and returns the records of the stream, in order: those that pass the template's filter."""
        taken, self._records = self._records, []
        return taken

    def first_open_bucket(self) -> Bucket | None:
        """The earliest bucket with a task that has not ended, or a schedule."""
        while self._soonest and self._soonest[0] not in self._open:
            heapq.heappop(self._soonest)
        return self._soonest[0] if self._soonest else None

    def open_rows(self) -> list[Row]:
        """The tasks that have not ended, and the schedules, of all buckets."""
        return [decode(self._items[task_id]) for ids in self._open.values() for task_id in ids]

    def open_entries(self, bucket: Bucket) -> list[Entry]:
        """Those of one bucket, as the index lists them."""
        return [entry_of(self._items[task_id]) for task_id in self._open.get(bucket, ())]

    def _replace(self, task_id: str, item: Item | None) -> None:
        old = self._items.get(task_id)
        super()._replace(task_id, item)
        before, after = _where_open(old), _where_open(item)
        if before != after:
            self._move(task_id, Bucket.canonical(before), Bucket.canonical(after))
        if item is None or item == old:
            return
        if is_for_stream(item, is_new=old is None):
            images = {"NewImage": item} if old is None else {"NewImage": item, "OldImage": old}
            self._records.append({"dynamodb": {"SequenceNumber": str(len(self._records)), **images}})
        was_running = attr.BATCH_ID in item if old is None else _status(old) == Status.RUNNING
        if was_running and _status(item) != Status.RUNNING:  # a member has no row before it is extracted
            self._recorded(task_id, decode(item))
        if attr.PACK in item and (pack := Pack.of(decode(item))) is not None:
            for n in range(pack.span.members):
                if pack.done >> n & 1:
                    self._recorded(pack.member_id(n), {attr.STATUS: str(Status.COMPLETED)})

    def _move(self, task_id: str, before: Bucket | None, after: Bucket | None) -> None:
        if before is not None:
            self._open[before].discard(task_id)
            if not self._open[before]:
                del self._open[before]
        if after is not None:
            if after not in self._open:
                heapq.heappush(self._soonest, after)
            self._open.setdefault(after, set()).add(task_id)


def _where_open(item: Item | None) -> str | None:
    """The name of the bucket that lists an item which has not ended; None: none does."""
    if item is None or "S" in item.get(attr.OUTCOME, {}):
        return None
    name: str | None = item.get(attr.TASK_DATE_TIME, {}).get("S")
    return name


def is_for_stream(item: Item, *, is_new: bool) -> bool:
    """The filter of the scheduler function in template.yaml, for a row that was put or changed."""
    status = _status(item)
    if status is None:
        return True
    return status not in _OWN_STATUSES if is_new else status in _OPEN_STATUSES


def _status(item: Item) -> str | None:
    status: str | None = item.get(attr.STATUS, {}).get("S")
    return status

"""Tables in memory, with their indexes and streams; each request answers with what it costs."""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right, insort
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

from dynatick_stack.counting.errors import Refused
from dynatick_stack.counting.rules import (
    PAGE_BYTES,
    Item,
    Value,
    index_write_units,
    item_bytes,
    read_units,
    table_write_units,
)

MAX_ITEM_BYTES = 400 * 1024
MAX_SORT_KEY_BYTES = 1024
STREAM_RECORDS = 1_000_000  # kept; the oldest are dropped


@dataclass(slots=True)
class Cost:
    """Capacity units of one request."""

    table: float = 0
    indexes: dict[str, float] = field(default_factory=dict)

    @property
    def total(self) -> float:
        return self.table + sum(self.indexes.values())


@dataclass(frozen=True, slots=True)
class Read:
    """What a query or scan has read: a page."""

    items: list[Item]
    scanned: int
    last: Item | None  # the key to go on after
    cost: Cost


@dataclass(slots=True)
class Index:
    """A global index. It holds keys only; what it projects is taken from the table, which shows every write at once."""

    name: str
    hash_key: str
    range_key: str
    projected: frozenset[str] | None  # None: all
    buckets: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def entry(self, item: Item | None) -> Item | None:
        """An item as the index shows it; None if it does not."""
        if item is None or "S" not in item.get(self.hash_key, ()):
            return None
        if self.projected is None:
            return item
        return {name: value for name, value in item.items() if name in self.projected}


class Table:
    """One table with a hash key, and global indexes whose range key is the table's key. All keys are text."""

    def __init__(self, name: str, definition: Mapping[str, Any]) -> None:
        self.name = name
        self.definition = definition
        self.created = time.time()
        self.items: dict[str, tuple[Item, int]] = {}  # with their sizes
        keys = {schema["KeyType"]: schema["AttributeName"] for schema in definition["KeySchema"]}
        if set(keys) != {"HASH"}:
            raise Refused("this endpoint knows tables with a hash key only")
        self.key = keys["HASH"]
        indexes = [self._index(found) for found in definition.get("GlobalSecondaryIndexes", ())]
        self.indexes = {index.name: index for index in indexes}
        self.ids: list[str] = []  # for scans: sorted when one comes
        streams = definition.get("StreamSpecification", {}).get("StreamEnabled", False)
        self.records: deque[dict[str, Any]] | None = deque(maxlen=STREAM_RECORDS) if streams else None
        self.sequence = 0

    def _index(self, found: Mapping[str, Any]) -> Index:
        keys = {schema["KeyType"]: schema["AttributeName"] for schema in found["KeySchema"]}
        if keys.get("RANGE") != self.key:
            raise Refused("this endpoint knows indexes whose range key is the table's key only")
        projection = found["Projection"]
        kept = frozenset((self.key, keys["HASH"], *projection.get("NonKeyAttributes", ())))
        return Index(
            found["IndexName"], keys["HASH"], keys["RANGE"], None if projection["ProjectionType"] == "ALL" else kept
        )

    # -- writing ---------------------------------------------------------------------------------------------------

    def write(self, key: str, decide: Callable[[Item | None], Item | None]) -> tuple[Item | None, Item | None, Cost]:
        """Replaces an item by what ``decide`` makes of it (None: there is none). Returns before, after, cost.

        ``decide`` may raise Refused: then nothing is written, and ``cost_of_refusal`` says what that costs.
        """
        before, size = self.items.get(key, (None, 0))
        after = decide(before)
        size_after = 0 if after is None else self._check(key, after)
        cost = Cost(table_write_units(size, size_after))
        for index in self.indexes.values():
            units = self._rewrite(index, key, before, after)
            if units:
                cost.indexes[index.name] = units
        if after is None:
            self.items.pop(key, None)
        else:
            self.items[key] = (after, size_after)
        if self.records is not None and before != after:
            self._tell(key, before, after)
        return before, after, cost

    def cost_of_refusal(self, key: str) -> Cost:
        """A failed condition costs as a write of the item that it met."""
        return Cost(table_write_units(self.items.get(key, (None, 0))[1], None))

    def _check(self, key: str, item: Item) -> int:
        size = item_bytes(item)
        if size > MAX_ITEM_BYTES:
            raise Refused("Item size has exceeded the maximum allowed size")
        if not key or item.get(self.key) != {"S": key}:
            raise Refused(f"One or more parameter values were invalid: the key {self.key} may not change or be empty")
        for index in self.indexes.values():
            if index.hash_key in item:
                if item[index.hash_key].keys() != {"S"}:
                    raise Refused(
                        "One or more parameter values were invalid: Type mismatch for Index Key "
                        f"{index.hash_key} Expected: S Actual: {next(iter(item[index.hash_key]))} "
                        f"IndexName: {index.name}"
                    )
                if len(key.encode()) > MAX_SORT_KEY_BYTES:
                    raise Refused("One or more parameter values were invalid: Size of rangekey has exceeded the limit")
        return size

    def _rewrite(self, index: Index, key: str, before: Item | None, after: Item | None) -> int:
        old = None if before is None else before.get(index.hash_key)
        new = None if after is None else after.get(index.hash_key)
        if old is None and new is None:
            return 0
        units = index_write_units(index.entry(before), index.entry(after), (index.hash_key,))
        if old != new:
            if old is not None:
                keys = index.buckets[old["S"]]
                del keys[bisect_left(keys, key)]
                if not keys:
                    del index.buckets[old["S"]]
            if new is not None:
                insort(index.buckets[new["S"]], key)
        return units

    # -- reading ---------------------------------------------------------------------------------------------------

    def get(self, key: str, *, consistent: bool) -> tuple[Item | None, Cost]:
        """One item."""
        item, size = self.items.get(key, (None, 0))
        return item, Cost(read_units(size, consistent=consistent))

    def query(
        self,
        index: Index,
        bucket: str,
        *,
        low: str | None = None,
        after: str | None = None,
        limit: int | None = None,
        keep: Callable[[Item], bool] | None = None,
        forward: bool = True,
    ) -> Read:
        """A page of an index's bucket, in order of the table's key, from ``low`` on, or after a key."""
        keys = index.buckets.get(bucket, [])
        if forward:
            start = bisect_right(keys, after) if after is not None else bisect_left(keys, low) if low is not None else 0
            coming: Iterable[str] = (keys[n] for n in range(start, len(keys)))
        else:
            end = len(keys) if after is None else bisect_left(keys, after)
            coming = (keys[n] for n in range(end - 1, -1, -1))
        entries = ((key, index.entry(self.items[key][0])) for key in coming)
        page = self._page(((key, entry, item_bytes(entry)) for key, entry in entries if entry is not None), limit, keep)
        items, scanned, size, last = page
        units = read_units(size, consistent=False)
        key = None if last is None else {index.hash_key: {"S": bucket}, self.key: {"S": last}}
        return Read(items, scanned, key, Cost(0, {index.name: units}))

    def scan(
        self,
        *,
        after: str | None,
        limit: int | None,
        keep: Callable[[Item], bool] | None,
        consistent: bool,
        segment: int = 0,
        segments: int = 1,
    ) -> Read:
        """A page of the table or of a segment, in order of its key (a real one has an order of its own)."""
        if after is None or not self.ids:
            self.ids = sorted(self.items)
        start = 0 if after is None else bisect_right(self.ids, after)
        coming = (self.ids[n] for n in range(start, len(self.ids)))
        if segments > 1:
            coming = (key for key in coming if crc32(key.encode()) % segments == segment)
        there = ((key, *self.items[key]) for key in coming if key in self.items)
        items, scanned, size, last = self._page(there, limit, keep)
        key = None if last is None else {self.key: {"S": last}}
        return Read(items, scanned, key, Cost(read_units(size, consistent=consistent)))

    @staticmethod
    def _page(
        coming: Iterator[tuple[str, Item, int]], limit: int | None, keep: Callable[[Item], bool] | None
    ) -> tuple[list[Item], int, int, str | None]:
        """Items kept, items read, their size, and the last key if there is more. A page ends before the filter."""
        items: list[Item] = []
        scanned = size = 0
        for key, item, more in coming:
            scanned += 1
            size += more
            if keep is None or keep(item):
                items.append(item)
            if size >= PAGE_BYTES or scanned == limit:
                # Like the real one, which does not look whether anything follows.
                return items, scanned, size, key
        return items, scanned, size, None

    # -- the stream ------------------------------------------------------------------------------------------------

    def _tell(self, key: str, before: Item | None, after: Item | None) -> None:
        self.sequence += 1
        change: dict[str, Any] = {
            "ApproximateCreationDateTime": int(time.time()),
            "Keys": {self.key: {"S": key}},
            "SequenceNumber": str(self.sequence),
            "SizeBytes": 0,
            "StreamViewType": "NEW_AND_OLD_IMAGES",
        }
        if before is not None:
            change["OldImage"] = before
        if after is not None:
            change["NewImage"] = after
        assert self.records is not None
        self.records.append(
            {
                "eventID": str(self.sequence),
                "eventName": "INSERT" if before is None else "REMOVE" if after is None else "MODIFY",
                "eventVersion": "1.1",
                "eventSource": "aws:dynamodb",
                "awsRegion": "us-east-1",
                "dynamodb": change,
            }
        )


def key_of(table: Table, key: Mapping[str, Value]) -> str:
    """The key of a request. Raises Refused."""
    found = key.get(table.key, {}).get("S")
    if not isinstance(found, str) or not found:
        raise Refused(f"The provided key element does not match the schema: expected {table.key} as text")
    return found

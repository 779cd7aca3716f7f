"""The table in memory, for tests. It passes the same contract tests as the store on DynamoDB.

Rows are kept encoded, so that a value that no table can hold is refused here too. The bucket index has no lag.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import TypeVar

import orjson

from dynatick.domain import attributes as attr
from dynatick.domain.buckets import Bucket
from dynatick.domain.conditional_update import (
    Absent,
    AtLeast,
    Condition,
    ConditionalUpdate,
    Is,
    Lost,
    Plus,
    Result,
    Unknown,
    Written,
)
from dynatick.domain.row import RowView, is_terminal
from dynatick.domain.task import MAX_TASK_ID_BYTES, Row, Status
from dynatick.engine.ports import Cancelled, Counted, Listing, Page, ScanPage, StoreFailure
from dynatick.errors import ItemTooLarge, StoreError
from dynatick.store.codec import (
    MAX_ITEM_BYTES,
    NOT_PLAIN,
    Item,
    decode,
    encode,
    encode_value,
    encoded_bytes,
    entry_of,
)
from dynatick.store.transactions import encoded_entry

PAGE = 1000
T = TypeVar("T")


def _is_counted(item: Item, count: Counted) -> bool:
    if count is Counted.OPEN:
        return not any(name in item for name in NOT_PLAIN)
    has_run = item.get(attr.OUTCOME) == {"S": Status.COMPLETED} and attr.LATE_MILLISECONDS in item
    return has_run and attr.PACK_MEMBERS not in item


class MemoryStore:
    """The Store port over a dict."""

    table = "memory"

    def __init__(self) -> None:
        self._items: dict[str, Item] = {}
        self._buckets: dict[str, set[str]] = {}  # the index: the ids of the items in each bucket
        self._lock = threading.RLock()
        self.committed: list[Mapping[str, object]] = []  # what transactions have written beside, in order

    def get(self, task_id: str) -> Row | None:
        with self._lock:
            item = self._items.get(task_id)
        return None if item is None else decode(item)

    def get_many(
        self, task_ids: Iterable[str], *, consistent: bool = True, only: Collection[str] = ()
    ) -> Mapping[str, Row]:
        rows = {task_id: row for task_id in dict.fromkeys(task_ids) if (row := self.get(task_id)) is not None}
        if not only:
            return rows
        return {
            task_id: {name: value for name, value in row.items() if name == attr.TASK_ID or name in only}
            for task_id, row in rows.items()
        }

    def put(self, row: Row) -> None:
        """Puts a row like DynamoDB's ``PutItem``: accepts any item, and replaces one with the same id."""
        item = encode(row)
        _check(item)
        with self._lock:
            self._replace(RowView(row).task_id, item)

    def create(self, row: Row) -> bool:
        item = encode(row)
        _check(item)
        with self._lock:
            if RowView(row).task_id in self._items:
                return False
            self._replace(RowView(row).task_id, item)
            return True

    def create_many(self, rows: Sequence[Row]) -> Sequence[bool | StoreFailure]:
        answers: list[bool | StoreFailure] = []
        for row in rows:
            try:
                answers.append(self.create(row))
            except StoreError as error:
                answers.append(StoreFailure(str(error), too_large=isinstance(error, ItemTooLarge)))
        return answers

    def write(self, change: ConditionalUpdate) -> Result:
        with self._lock:
            item = self._items.get(change.task_id)
            if item is None:
                return Lost()
            if not all(_holds(item, part) for part in change.conditions):
                return Lost(decode(item))
            changed = dict(item)
            for name, value in change.set.items():
                if isinstance(value, Plus):
                    changed[name] = {"N": str(Decimal(item[name]["N"]) + value.number)}
                else:
                    changed[name] = encode_value(value, name)
            for name in change.remove:
                changed.pop(name, None)
            try:
                _check(changed)
            except StoreError as error:
                return Unknown(str(error), too_large=isinstance(error, ItemTooLarge))
            self._replace(change.task_id, changed)
            return Written(decode(changed) if change.returning else None)

    def write_many(self, changes: Sequence[ConditionalUpdate]) -> Sequence[Result]:
        return [self.write(change) for change in changes]

    def transact(
        self,
        change: ConditionalUpdate | None = None,
        row: Row | None = None,
        items: Sequence[Mapping[str, object]] = (),
        *,
        token: str | None = None,
    ) -> Result | Cancelled:
        """Of ``items``, puts of new tasks take effect; ``committed`` has those that did, for other tables too."""
        entries = [encoded_entry(item, n, self.table, change, row) for n, item in enumerate(items)]
        puts = [entry["Put"]["Item"] for entry in entries if entry.get("Put", {}).get("TableName") == self.table]
        ids = [item[attr.TASK_ID]["S"] for item in puts]
        if len(ids) > len(set(ids)):
            return Cancelled(
                "ValidationException: Transaction request cannot include multiple operations on one item", True
            )
        with self._lock:
            if row is not None and RowView(row).task_id in self._items:
                return Lost()
            for n, item in enumerate(puts):
                if item[attr.TASK_ID]["S"] in self._items:
                    return Cancelled(f"items[{n}]: ConditionalCheckFailed")
            before = dict(self._items)
            result: Result = Written() if change is None else MemoryStore.write(self, change)
            if isinstance(result, Lost):
                return Lost()
            if isinstance(result, Written):
                try:
                    for new in (*([] if row is None else [encode(row)]), *puts):
                        _check(new)
                        self._replace(new[attr.TASK_ID]["S"], new)
                except StoreError as error:
                    for task_id in {*self._items, *before}:
                        if self._items.get(task_id) is not before.get(task_id):
                            self._replace(task_id, before.get(task_id))
                    return Unknown(str(error), too_large=isinstance(error, ItemTooLarge))
                self.committed += items
            return result

    def query_bucket(
        self,
        bucket: Bucket,
        *,
        after: str | None = None,
        open_only: bool = True,
        outcome: str | None = None,
        limit: int | None = None,
        prefix: str | None = None,
        count: Counted | None = None,
    ) -> Page:
        with self._lock:
            ids = sorted(
                i
                for i in self._buckets.get(str(bucket), ())
                if (after is None or i > after) and i.startswith(prefix or "")
            )
            page, last = _page_of(ids, limit)
            items = [self._items[i] for i in page]
        counted = 0
        if count is not None and outcome is None and not open_only:
            listed = [item for item in items if not _is_counted(item, count)]
            items, counted = listed, len(items) - len(listed)
        entries = [entry_of(item) for item in items]
        if outcome is not None:
            entries = [entry for entry in entries if entry.outcome == outcome]
        elif open_only:
            entries = [entry for entry in entries if entry.outcome is None]
        return Page(entries, last, counted)

    def listed_by(self, name: str, value: str, *, after: str | None = None, limit: int | None = None) -> Listing:
        wanted = {"S": value}
        with self._lock:
            ids = sorted(
                i for i, item in self._items.items() if item.get(name) == wanted and (after is None or i > after)
            )
        return Listing(*_page_of(ids, limit))

    def latest_listed(
        self, name: str, *, start: str, end: str, after: str | None = None, limit: int | None = None
    ) -> Listing:
        at, _, task_id = (after or "").partition(" ")
        with self._lock:
            places = sorted(
                (
                    (item[attr.LISTED_AT]["S"], i)
                    for i, item in self._items.items()
                    if item.get(attr.LISTED_AS) == {"S": name}
                    and start <= item.get(attr.LISTED_AT, {}).get("S", "") <= end
                ),
                reverse=True,
            )
        rest = [place for place in places if after is None or place < (at, task_id)]
        page, last = _page_of(rest, limit)
        return Listing([i for _, i in page], None if last is None else " ".join(last))

    def scan(self, *, after: str | None = None, open_only: bool = True) -> ScanPage:
        with self._lock:
            ids = sorted(i for i in self._items if after is None or i > after)
            page, last = _page_of(ids)
            rows = [decode(self._items[i]) for i in page]
        kept = [row for row in rows if not (open_only and is_terminal(row))]
        return ScanPage(kept, last)

    def delete(self, task_id: str, conditions: Sequence[Condition] = ()) -> bool:
        with self._lock:
            if not all(_holds(self._items.get(task_id, {}), part) for part in conditions):
                return False
            self._replace(task_id, None)
            return True

    def _replace(self, task_id: str, item: Item | None) -> None:
        """The one place where an item and its entry in the index change; None: it is deleted. Called with the lock."""
        old = self._items.pop(task_id, None) if item is None else self._items.get(task_id)
        if item is not None:
            self._items[task_id] = item
        before, after = _bucket_name(old), _bucket_name(item)
        if before == after:
            return
        if before is not None:
            self._buckets[before].discard(task_id)
            if not self._buckets[before]:
                del self._buckets[before]
        if after is not None:
            self._buckets.setdefault(after, set()).add(task_id)


def _page_of(found: Sequence[T], limit: int | None = None) -> tuple[Sequence[T], T | None]:
    """The first of them, and the last of those; None if there are no more."""
    page = found[: min(limit or PAGE, PAGE)]
    return page, page[-1] if len(page) < len(found) else None


def _bucket_name(item: Item | None) -> str | None:
    """The bucket in which the index lists an item; None: it doesn't, as in DynamoDB if the value isn't text."""
    return None if item is None else item.get(attr.TASK_DATE_TIME, {}).get("S")


def _holds(item: Item, part: Condition) -> bool:
    match part:
        case Is(name, value):
            return item.get(name) == encode_value(value, name)
        case Absent(name):
            return name not in item
        case AtLeast(name, value):
            return "N" in item.get(name, {}) and Decimal(item[name]["N"]) >= value


def _surely_fits(item: Item) -> bool:
    """Whether even its JSON, which is always longer, is short enough: that is quick to find out."""
    try:
        return len(orjson.dumps(item)) <= MAX_ITEM_BYTES
    except TypeError:  # binaries, and text that UTF-8 can't hold
        return False


def _check(item: Item) -> None:
    if not _surely_fits(item) and encoded_bytes(item) > MAX_ITEM_BYTES:
        raise ItemTooLarge("Item size has exceeded the maximum allowed size")
    if attr.TASK_DATE_TIME in item and len(item[attr.TASK_ID]["S"].encode()) > MAX_TASK_ID_BYTES:
        raise ItemTooLarge("the index sort key exceeds the size limit of 1024 bytes")
    for name in (attr.TASK_DATE_TIME, attr.SCHEDULE_STATE, attr.SUBJECT, attr.LISTED_AS, attr.LISTED_AT):
        if name in item and not item[name].get("S"):
            kind = next(iter(item[name]))
            raise StoreError(f"{name} is the key of an index, which holds only text that is not empty (S): not {kind}")

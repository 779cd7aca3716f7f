"""Tables in memory, with their indexes and streams, and the calls of DynamoDB's API on them; each is counted."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dynatick_stack.counting.counts import Count, Counts
from dynatick_stack.counting.language import Statement, parse_condition, parse_statement, parse_update
from dynatick_stack.counting.rules import (
    PAGE_BYTES,
    Item,
    Refused,
    Throttled,
    Value,
    index_write_units,
    item_bytes,
    read_units,
    table_write_units,
)

Request = Mapping[str, Any]
Answer = dict[str, Any]
Decide = Callable[[Item | None], Item | None]

MAX_ITEM_BYTES = 400 * 1024
MAX_SORT_KEY_BYTES = 1024
MAX_STATEMENTS = 25
MAX_STATEMENT_BYTES = 8192
MAX_KEYS = 100
READS = ("GetItem", "BatchGetItem", "Query", "Scan")
WRITES = ("PutItem", "UpdateItem", "DeleteItem", "BatchExecuteStatement", "TransactWriteItems")
MAX_PARTS = 100


@dataclass(slots=True)
class Index:
    """A global index. It holds the table's keys only, in their order; what it projects is taken from the table, which
    shows every write at once."""

    name: str
    hash_key: str
    range_key: str
    projected: frozenset[str]
    buckets: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def entry(self, item: Item | None) -> Item | None:
        """An item as the index shows it; None if it does not."""
        if item is None or "S" not in item.get(self.hash_key, ()) or self.range_key not in item:
            return None
        return {name: value for name, value in item.items() if name in self.projected}


class Table:
    """One table with a hash key, and global indexes. All keys are text."""

    def __init__(self, definition: Mapping[str, Any]) -> None:
        self.definition = definition
        self.items: dict[str, tuple[Item, int]] = {}  # with their sizes
        (schema,) = definition["KeySchema"]
        self.key: str = schema["AttributeName"]
        self.indexes = {found["IndexName"]: self._index(found) for found in definition["GlobalSecondaryIndexes"]}
        self.ids: list[str] = []  # for scans: sorted when one begins
        self.streams: bool = definition.get("StreamSpecification", {}).get("StreamEnabled", False)
        self.records: list[Answer] = []

    def _index(self, found: Mapping[str, Any]) -> Index:
        keys = {schema["KeyType"]: schema["AttributeName"] for schema in found["KeySchema"]}
        kept = frozenset((self.key, *keys.values(), *found["Projection"].get("NonKeyAttributes", ())))
        return Index(found["IndexName"], keys["HASH"], keys["RANGE"], kept)

    def key_of(self, item: Mapping[str, Value]) -> str:
        """The key of a request. Raises Refused."""
        found = item.get(self.key, {}).get("S")
        if not isinstance(found, str) or not found:
            raise Refused(f"The provided key element does not match the schema: expected {self.key} as text")
        return found

    def write(self, key: str, decide: Decide) -> tuple[Item | None, Item | None, float]:
        """Replaces an item by what ``decide`` makes of it (None: there is none). Returns before, after, units.

        ``decide`` may raise Refused: then nothing is written, and it costs as a write of the item that it met.
        """
        before, size = self.items.get(key, (None, 0))
        after = decide(before)
        size_after = self.check(key, after)
        units = table_write_units(size, size_after)
        entries = [(index, index.entry(before), index.entry(after)) for index in self.indexes.values()]
        of_indexes = [
            (index, new or old or {}, index_write_units(old, new, (index.hash_key, index.range_key)))
            for index, old, new in entries
        ]
        self.admit(key, units, of_indexes)
        for index, old, new in entries:
            _rewrite(index, key, old, new)
        if after is None:
            self.items.pop(key, None)
        else:
            self.items[key] = (after, size_after)
        if self.streams and before != after:
            self._record(before, after)
        return before, after, units + sum(more for _, _, more in of_indexes)

    def admit(self, key: str, units: int, of_indexes: Sequence[tuple[Index, Item, int]]) -> None:
        """Called before each write takes effect, with its units: of the table, and of each index, whose entry it
        changes. This table has room for all; one with limits raises Throttled."""

    def refusal_units(self, key: str) -> float:
        return table_write_units(self.items.get(key, (None, 0))[1], None)

    def check(self, key: str, item: Item | None) -> int:
        """The size of an item that is to be written; None: it is to be deleted. Raises Refused."""
        if item is None:
            return 0
        size = item_bytes(item)
        if size > MAX_ITEM_BYTES:
            raise Refused("Item size has exceeded the maximum allowed size")
        if item.get(self.key) != {"S": key}:
            raise Refused(f"One or more parameter values were invalid: the key {self.key} may not change")
        for index in self.indexes.values():
            for name in (index.hash_key, index.range_key):
                if name in item and item[name].keys() != {"S"}:
                    raise Refused(
                        "One or more parameter values were invalid: Type mismatch for Index Key "
                        f"{name} Expected: S Actual: {next(iter(item[name]))} IndexName: {index.name}"
                    )
            if index.hash_key in item and len(key.encode()) > MAX_SORT_KEY_BYTES:
                raise Refused("One or more parameter values were invalid: Size of rangekey has exceeded the limit")
        return size

    def _record(self, before: Item | None, after: Item | None) -> None:
        images = {"OldImage": before, "NewImage": after}
        change = {"SequenceNumber": str(len(self.records))} | {k: v for k, v in images.items() if v is not None}
        name = "INSERT" if before is None else "REMOVE" if after is None else "MODIFY"
        self.records.append({"eventName": name, "dynamodb": change})


def _rewrite(index: Index, key: str, old: Item | None, new: Item | None) -> None:
    """Moves a key from one bucket of an index to another, by its entries before and after."""
    before, after = (None if entry is None else entry[index.hash_key]["S"] for entry in (old, new))
    if before == after:
        return
    if before is not None:
        keys = index.buckets[before]
        del keys[bisect_left(keys, key)]
    if after is not None:
        insort(index.buckets[after], key)


class Database:
    """All tables. Not for several threads."""

    def __init__(self) -> None:
        self.tables: dict[str, Table] = {}
        self.counts = Counts({})
        self._units = 0.0  # of the present request, so far
        self._refused = 0  # of its statements
        self._calls: Mapping[str, Callable[[Request], Answer]] = {
            "CreateTable": self._create_table,
            "DescribeTable": self._describe_table,
            "DeleteTable": self._delete_table,
            "GetItem": self._get_item,
            "PutItem": self._put_item,
            "UpdateItem": self._update_item,
            "DeleteItem": self._delete_item,
            "BatchGetItem": self._batch_get_item,
            "BatchExecuteStatement": self._batch_execute_statement,
            "TransactWriteItems": self._transact_write_items,
            "Query": self._query,
            "Scan": self._scan,
        }

    def call(self, operation: str, request: Request) -> Answer:
        """Carries out a request, and counts it. Raises Refused."""
        if operation not in self._calls:
            raise Refused(f"this endpoint does not know {operation}", "UnknownOperationException")
        self._units, self._refused = 0.0, 0
        try:
            return self._calls[operation](request)
        except Refused:
            self._refused += 1
            raise
        finally:
            self._count(operation, request)

    def taken(self, table: str) -> list[Answer]:
        """The records of a table's stream since the last time."""
        found, self.tables[table].records = self.tables[table].records, []
        return found

    def _count(self, operation: str, request: Request) -> None:
        asked = len(request.get("Statements", request.get("TransactItems", (request,))))
        if operation == "BatchGetItem":
            asked = sum(len(wanted["Keys"]) for wanted in request["RequestItems"].values())
        if operation in READS:
            count = Count(reads=1, statements=asked, read_units=self._units, refused=self._refused)
        elif operation in WRITES:
            count = Count(writes=1, statements=asked, write_units=self._units, refused=self._refused)
        else:
            return
        self.counts.add(operation, count)

    def _table(self, name: str) -> Table:
        if name not in self.tables:
            raise Refused("Cannot do operations on a non-existent table", "ResourceNotFoundException")
        return self.tables[name]

    # -- tables ----------------------------------------------------------------------------------------------------

    def _create_table(self, request: Request) -> Answer:
        if request["TableName"] in self.tables:
            raise Refused("Table already exists", "ResourceInUseException")
        self.tables[request["TableName"]] = Table(request)
        return {"TableDescription": self._describe_table(request)["Table"]}

    def _describe_table(self, request: Request) -> Answer:
        defined = self._table(request["TableName"]).definition
        indexes = [{**index, "IndexStatus": "ACTIVE"} for index in defined["GlobalSecondaryIndexes"]]
        shown = {name: defined[name] for name in ("TableName", "KeySchema", "AttributeDefinitions")}
        return {"Table": {**shown, "TableStatus": "ACTIVE", "GlobalSecondaryIndexes": indexes}}

    def _delete_table(self, request: Request) -> Answer:
        description = self._describe_table(request)["Table"]
        del self.tables[request["TableName"]]
        return {"TableDescription": description}

    # -- single items ----------------------------------------------------------------------------------------------

    def _get_item(self, request: Request) -> Answer:
        table = self._table(request["TableName"])
        item = self._read(table, table.key_of(request["Key"]), request)
        return {} if item is None else {"Item": item}

    def _read(self, table: Table, key: str, request: Request) -> Item | None:
        item, size = table.items.get(key, (None, 0))
        self._units += read_units(size, consistent=request.get("ConsistentRead", False))
        return None if item is None else _projected(item, request)

    def _put_item(self, request: Request) -> Answer:
        return self._write(request, "Put")

    def _delete_item(self, request: Request) -> Answer:
        return self._write(request, "Delete")

    def _update_item(self, request: Request) -> Answer:
        return self._write(request, "Update")

    def _write(self, request: Request, kind: str) -> Answer:
        before, after = self._written(*self._decided(request, kind))
        attributes = {"ALL_OLD": before, "ALL_NEW": after}.get(request.get("ReturnValues", "NONE"))
        return {} if attributes is None else {"Attributes": attributes}

    def _decided(self, request: Request, kind: str) -> tuple[Table, str, Decide]:
        """The table and the key of a write, and what it makes of the item there. ``kind``: as in a transaction."""
        table = self._table(request["TableName"])
        condition = _condition(request, "ConditionExpression")
        update = parse_update(request["UpdateExpression"], _names(request)) if kind == "Update" else None

        def decide(item: Item | None) -> Item | None:
            if condition is not None and not condition(item or {}):
                shown = item if request.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD" else None
                raise Refused("The conditional request failed", "ConditionalCheckFailedException", item=shown)
            if update is not None:
                return update.apply(item or request["Key"], request.get("ExpressionAttributeValues", {}))
            return {"Put": request.get("Item"), "ConditionCheck": item}.get(kind)

        return table, table.key_of(request["Item" if kind == "Put" else "Key"]), decide

    def _written(self, table: Table, key: str, decide: Decide) -> tuple[Item | None, Item | None]:
        try:
            before, after, units = table.write(key, decide)
        except Throttled:
            raise  # which costs nothing
        except Refused:
            self._units += table.refusal_units(key)
            raise
        self._units += units
        return before, after

    # -- many items ------------------------------------------------------------------------------------------------

    def _batch_get_item(self, request: Request) -> Answer:
        ((name, wanted),) = request["RequestItems"].items()
        table = self._table(name)
        keys = [table.key_of(key) for key in wanted["Keys"]]
        if len(keys) > MAX_KEYS:
            raise Refused(f"Too many items requested for the BatchGetItem call: at most {MAX_KEYS}")
        if len(set(keys)) < len(keys):
            raise Refused("Provided list of item keys contains duplicates")
        found = [self._read(table, key, wanted) for key in keys]
        return {"Responses": {name: [item for item in found if item is not None]}, "UnprocessedKeys": {}}

    def _batch_execute_statement(self, request: Request) -> Answer:
        statements = request["Statements"]
        if not 1 <= len(statements) <= MAX_STATEMENTS:
            raise Refused(f"Member must have length between 1 and {MAX_STATEMENTS}")
        if any(len(one["Statement"].encode()) > MAX_STATEMENT_BYTES for one in statements):
            raise Refused(f"Member must have length less than or equal to {MAX_STATEMENT_BYTES}")
        parsed = [(parse_statement(one["Statement"]), one.get("Parameters", ())) for one in statements]
        keys = [self._key(statement, values) for statement, values in parsed]
        if len(set(keys)) < len(keys):
            raise Refused("Duplicate item in the batch")
        answers = [self._execute(statement, key, values) for (statement, values), key in zip(parsed, keys, strict=True)]
        return {"Responses": answers}

    def _transact_write_items(self, request: Request) -> Answer:
        """All of them or none. Each costs twice what it costs the table by itself; the index costs what it does."""
        parts = [self._decided(part, kind) for one in request["TransactItems"] for kind, part in one.items()]
        if not 1 <= len(parts) <= MAX_PARTS:
            raise Refused(f"Member must have length between 1 and {MAX_PARTS}")
        if len({(id(table), key) for table, key, _ in parts}) < len(parts):
            raise Refused("Transaction request cannot include multiple operations on one item")
        reasons = [_reason(*part) for part in parts]
        if any(reason["Code"] != "None" for reason in reasons):
            self._units += 2 * sum(table.refusal_units(key) for table, key, _ in parts)
            codes = ", ".join(reason["Code"] for reason in reasons)
            message = f"Transaction cancelled, please refer cancellation reasons for specific reasons [{codes}]"
            raise Refused(message, "TransactionCanceledException", reasons=reasons)
        for part in parts:
            before, after = (0 if item is None else item_bytes(item) for item in self._written(*part))
            self._units += table_write_units(before, after)
        return {}

    def _key(self, statement: Statement, values: Any) -> str:
        table = self._table(statement.table)
        named = statement.where.equal if statement.values is None else statement.values
        if table.key not in named:
            raise Refused("Where clause does not contain a mandatory equality on all key attributes")
        return table.key_of({table.key: named[table.key]({}, values) or {}})

    def _execute(self, statement: Statement, key: str, values: Any) -> Answer:
        """The answer to one statement of a batch. An UPDATE never creates an item."""

        def decide(item: Item | None) -> Item | None:
            if statement.values is not None:
                if item is not None:
                    raise Refused("Duplicate primary key exists in table", "DuplicateItemException")
                return {name: operand({}, values) or {} for name, operand in statement.values.items()}
            if item is None or not statement.where.holds(item, values):
                # Not with the item: some say that the real one returns it if asked, others have not seen it do so.
                raise Refused("The conditional request failed", "ConditionalCheckFailedException")
            return statement.update.apply(item, values)

        answer: Answer = {"TableName": statement.table}
        try:
            _, after = self._written(self._table(statement.table), key, decide)
        except Refused as error:
            self._refused += 1
            # Answers to statements of a batch have codes of their own.
            code = "ValidationError" if error.code == "ValidationException" else error.code.removesuffix("Exception")
            return answer | {"Error": {"Code": code, "Message": str(error)}}
        return answer | ({"Item": after} if statement.returning else {})

    # -- queries ---------------------------------------------------------------------------------------------------

    def _query(self, request: Request) -> Answer:
        table = self._table(request["TableName"])
        values = request.get("ExpressionAttributeValues", {})
        index = table.indexes[request["IndexName"]]
        condition = parse_condition(request["KeyConditionExpression"], _names(request))
        bucket = (condition.equal[index.hash_key]({}, values) or {})["S"]
        keys = index.buckets.get(bucket, [])
        if " AND " in request["KeyConditionExpression"]:  # only what fits is read, and paid
            hashed = {index.hash_key: {"S": bucket}}
            keys = [
                key for key in keys
                if condition.holds({**hashed, index.range_key: table.items[key][0][index.range_key]}, values)
            ]  # fmt: skip
        start = request.get("ExclusiveStartKey")
        if index.range_key == table.key:
            first = 0 if start is None else bisect_right(keys, table.key_of(start))
        else:
            keys = sorted(keys, key=lambda key: (table.items[key][0][index.range_key]["S"], key))
            if not request.get("ScanIndexForward", True):
                keys.reverse()
            first = 0 if start is None else keys.index(table.key_of(start)) + 1
        entries = ((keys[n], index.entry(table.items[keys[n]][0]) or {}) for n in range(first, len(keys)))
        answer, last = self._page(((key, entry, item_bytes(entry)) for key, entry in entries), request, False)
        if last is None:
            return answer
        ranged = {index.range_key: table.items[last][0][index.range_key]}
        return answer | {"LastEvaluatedKey": {index.hash_key: {"S": bucket}, **ranged, table.key: {"S": last}}}

    def _scan(self, request: Request) -> Answer:
        """Scans in the order of the table's key (a real one has an order of its own)."""
        table, start = self._table(request["TableName"]), request.get("ExclusiveStartKey")
        if start is None or not table.ids:
            table.ids = sorted(table.items)
        first = 0 if start is None else bisect_right(table.ids, table.key_of(start))
        coming: Iterable[str] = (table.ids[n] for n in range(first, len(table.ids)))
        there = ((key, *table.items[key]) for key in coming if key in table.items)
        answer, last = self._page(there, request, request.get("ConsistentRead", False))
        return answer | ({} if last is None else {"LastEvaluatedKey": {table.key: {"S": last}}})

    def _page(
        self, coming: Iterable[tuple[str, Item, int]], request: Request, consistent: bool
    ) -> tuple[Answer, str | None]:
        """A page, and its last key if there may be more. It ends before the filter."""
        keep, limit = _condition(request, "FilterExpression"), request.get("Limit")
        items: list[Item] = []
        scanned = size = 0
        last = None
        for key, item, more in coming:
            scanned, size = scanned + 1, size + more
            if keep is None or keep(item):
                items.append(_projected(item, request))
            if size >= PAGE_BYTES or scanned == limit:
                last = key  # like the real one, which does not check whether anything follows
                break
        self._units += read_units(size, consistent=consistent)
        return {"Count": len(items), "ScannedCount": scanned, "Items": items}, last


def _reason(table: Table, key: str, decide: Decide) -> dict[str, str]:
    """Why a part of a transaction can't take effect."""
    try:
        table.check(key, decide(table.items.get(key, (None, 0))[0]))
    except Refused as error:
        code = "ValidationError" if error.code == "ValidationException" else error.code.removesuffix("Exception")
        return {"Code": code, "Message": str(error)}
    return {"Code": "None"}


def _names(request: Request) -> tuple[tuple[str, str], ...]:
    return tuple(request.get("ExpressionAttributeNames", {}).items())


def _condition(request: Request, name: str) -> Callable[[Item], bool] | None:
    text: str | None = request.get(name)
    if text is None:
        return None
    condition, values = parse_condition(text, _names(request)), request.get("ExpressionAttributeValues", {})
    return lambda item: condition.holds(item, values)


def _projected(item: Item, request: Request) -> Item:
    text = request.get("ProjectionExpression")
    if text is None:
        return item
    names = dict(_names(request))
    wanted = {names.get(part.strip(), part.strip()) for part in text.split(",")}
    return {name: value for name, value in item.items() if name in wanted}

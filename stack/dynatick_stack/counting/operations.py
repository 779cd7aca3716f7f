"""The calls of DynamoDB's API that are known here, each from its request to its answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dynatick_stack.counting.errors import Refused, condition_failed
from dynatick_stack.counting.language import (
    Condition,
    Operand,
    Statement,
    Update,
    parse_condition,
    parse_statement,
    parse_update,
)
from dynatick_stack.counting.rules import Item
from dynatick_stack.counting.tables import Cost, Index, Read, Table, key_of

Request = Mapping[str, Any]
Answer = dict[str, Any]

MAX_STATEMENTS = 25
MAX_STATEMENT_BYTES = 8192
MAX_KEYS = 100
REGION = "arn:aws:dynamodb:us-east-1:000000000000:table/"


class Database:
    """All tables. Not for several threads."""

    def __init__(self) -> None:
        self.tables: dict[str, Table] = {}
        self._calls: dict[str, Callable[[Request], Answer]] = {
            "CreateTable": self.create_table,
            "DescribeTable": self.describe_table,
            "DeleteTable": self.delete_table,
            "ListTables": lambda request: {"TableNames": sorted(self.tables)},
            "GetItem": self.get_item,
            "PutItem": self.put_item,
            "UpdateItem": self.update_item,
            "DeleteItem": self.delete_item,
            "BatchGetItem": self.batch_get_item,
            "BatchExecuteStatement": self.batch_execute_statement,
            "ExecuteStatement": self.execute_statement,
            "Query": self.query,
            "Scan": self.scan,
            "ListStreams": self.list_streams,
            "DescribeStream": self.describe_stream,
            "GetShardIterator": self.get_shard_iterator,
            "GetRecords": self.get_records,
        }

    def call(self, operation: str, request: Request) -> Answer:
        """Carries out a request. Raises Refused."""
        if operation not in self._calls:
            raise Refused(f"this endpoint does not know {operation}", "UnknownOperationException")
        return self._calls[operation](request)

    def table(self, name: object) -> Table:
        found = self.tables.get(str(name).rpartition("/")[2])
        if found is None:
            raise Refused("Cannot do operations on a non-existent table", "ResourceNotFoundException")
        return found

    # -- tables ----------------------------------------------------------------------------------------------------

    def create_table(self, request: Request) -> Answer:
        name = request["TableName"]
        if name in self.tables:
            raise Refused(f"Table already exists: {name}", "ResourceInUseException")
        self.tables[name] = Table(name, request)
        return {"TableDescription": self._description(self.tables[name])}

    def describe_table(self, request: Request) -> Answer:
        return {"Table": self._description(self.table(request["TableName"]))}

    def delete_table(self, request: Request) -> Answer:
        table = self.table(request["TableName"])
        del self.tables[table.name]
        return {"TableDescription": self._description(table)}

    @staticmethod
    def _description(table: Table) -> Answer:
        answer = {
            "TableName": table.name,
            "TableStatus": "ACTIVE",
            "TableArn": f"{REGION}{table.name}",
            "CreationDateTime": table.created,
            "KeySchema": table.definition["KeySchema"],
            "AttributeDefinitions": table.definition["AttributeDefinitions"],
            "ItemCount": len(table.items),
            "GlobalSecondaryIndexes": [
                {**index, "IndexStatus": "ACTIVE"} for index in table.definition.get("GlobalSecondaryIndexes", ())
            ],
        }
        if table.records is not None:
            answer["LatestStreamArn"] = _stream_arn(table)
        return answer

    # -- single items ----------------------------------------------------------------------------------------------

    def get_item(self, request: Request) -> Answer:
        table = self.table(request["TableName"])
        item, cost = table.get(key_of(table, request["Key"]), consistent=request.get("ConsistentRead", False))
        answer: Answer = {} if item is None else {"Item": _projected(item, request)}
        return _with_cost(answer, request, table, cost)

    def put_item(self, request: Request) -> Answer:
        item: Item = request["Item"]
        return self._write(request, key_of(self.table(request["TableName"]), item), lambda _: item)

    def delete_item(self, request: Request) -> Answer:
        return self._write(request, key_of(self.table(request["TableName"]), request["Key"]), lambda _: None)

    def update_item(self, request: Request) -> Answer:
        table = self.table(request["TableName"])
        key = key_of(table, request["Key"])
        values = request.get("ExpressionAttributeValues", {})
        text = request.get("UpdateExpression")
        update = Update() if text is None else parse_update(text, _names(request))
        return self._write(request, key, lambda item: update.apply(item or {table.key: {"S": key}}, values))

    def _write(self, request: Request, key: str, decide: Callable[[Item | None], Item | None]) -> Answer:
        table = self.table(request["TableName"])
        condition = _condition(request, "ConditionExpression")

        def conditioned(item: Item | None) -> Item | None:
            if condition is not None and not condition(item or {}):
                all_old = request.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD"
                raise condition_failed(item if all_old else None)
            return decide(item)

        try:
            before, after, cost = table.write(key, conditioned)
        except Refused as error:
            error.units = table.cost_of_refusal(key).total
            raise
        answer: Answer = {}
        match request.get("ReturnValues", "NONE"):
            case "ALL_OLD" if before is not None:
                answer["Attributes"] = before
            case "ALL_NEW" if after is not None:
                answer["Attributes"] = after
            case "UPDATED_NEW" if after is not None:
                changed = {name: value for name, value in after.items() if value != (before or {}).get(name)}
                answer["Attributes"] = changed
        return _with_cost(answer, request, table, cost)

    # -- many items ------------------------------------------------------------------------------------------------

    def batch_get_item(self, request: Request) -> Answer:
        responses: dict[str, list[Item]] = {}
        consumed: list[Answer] = []
        if sum(len(wanted["Keys"]) for wanted in request["RequestItems"].values()) > MAX_KEYS:
            raise Refused(f"Too many items requested for the BatchGetItem call: at most {MAX_KEYS}")
        for name, wanted in request["RequestItems"].items():
            table = self.table(name)
            keys = [key_of(table, key) for key in wanted["Keys"]]
            if len(set(keys)) < len(keys):
                raise Refused("Provided list of item keys contains duplicates")
            total = Cost()
            responses[name] = []
            for key in keys:
                item, cost = table.get(key, consistent=wanted.get("ConsistentRead", False))
                total.table += cost.table
                if item is not None:
                    responses[name].append(_projected(item, wanted))
            consumed.append(_consumed(table, total))
        answer: Answer = {"Responses": responses, "UnprocessedKeys": {}}
        return answer | ({"ConsumedCapacity": consumed} if _wants_cost(request) else {})

    def batch_execute_statement(self, request: Request) -> Answer:
        statements = request["Statements"]
        if not 1 <= len(statements) <= MAX_STATEMENTS:
            raise Refused(f"Member must have length between 1 and {MAX_STATEMENTS}")
        if any(len(one["Statement"].encode()) > MAX_STATEMENT_BYTES for one in statements):
            raise Refused(f"Member must have length less than or equal to {MAX_STATEMENT_BYTES}")
        parsed = [parse_statement(one["Statement"]) for one in statements]
        if len({statement.verb == "select" for statement in parsed}) > 1:
            raise Refused("Mixing read and write operations is not allowed in a single batch")
        values = [one.get("Parameters", ()) for one in statements]
        keys = [self._key(statement, given) for statement, given in zip(parsed, values, strict=True)]
        if len(set(keys)) < len(keys):
            raise Refused("Duplicate item in the batch")
        responses: list[Answer] = []
        consumed: list[Answer] = []
        for statement, given, (_, key) in zip(parsed, values, keys, strict=True):
            table = self.table(statement.table)
            answer: Answer = {"TableName": table.name}
            try:
                item, cost = self._carry_out(statement, table, key, given)
                if item is not None:
                    answer["Item"] = item
            except Refused as error:
                cost = table.cost_of_refusal(key)
                answer["Error"] = {"Code": _code_in_batch(error), "Message": str(error)}
            responses.append(answer)
            consumed.append(_consumed(table, cost))
        return {"Responses": responses} | ({"ConsumedCapacity": consumed} if _wants_cost(request) else {})

    def execute_statement(self, request: Request) -> Answer:
        statement = parse_statement(request["Statement"])
        values = request.get("Parameters", ())
        table = self.table(statement.table)
        item, cost = self._carry_out(statement, table, self._key(statement, values)[1], values)
        return _with_cost({"Items": [] if item is None else [item]}, request, table, cost)

    def _key(self, statement: Statement, values: Any) -> tuple[str, str]:
        """The table and the key that a statement is about."""
        table = self.table(statement.table)
        if statement.index is not None:
            raise Refused("statements on an index are not known here; use Query")
        if statement.verb == "insert":
            found: Operand | None = dict(zip(statement.names, statement.values, strict=True)).get(table.key)
        else:
            found = statement.equal.get(table.key)
        if found is None:
            raise Refused("Where clause does not contain a mandatory equality on all key attributes")
        return table.name, key_of(table, {table.key: found({}, values) or {}})

    @staticmethod
    def _carry_out(statement: Statement, table: Table, key: str, values: Any) -> tuple[Item | None, Cost]:
        """What a statement returns, and its cost. An UPDATE never creates an item."""
        where = statement.where
        if statement.verb == "select":
            item, cost = table.get(key, consistent=False)
            return (item if item is not None and where is not None and where(item, values) else None), cost

        def decide(item: Item | None) -> Item | None:
            if statement.verb == "insert":
                if item is not None:
                    raise Refused("Duplicate primary key exists in table", "DuplicateItemException")
                new = {n: operand({}, values) for n, operand in zip(statement.names, statement.values, strict=True)}
                return {name: value for name, value in new.items() if value is not None}
            if item is None or (where is not None and not where(item, values)):
                # Not with the item: some say that the real one returns it if asked, others have not seen it do so.
                raise condition_failed(None)
            return None if statement.verb == "delete" else statement.update.apply(item, values)

        before, after, cost = table.write(key, decide)
        match statement.returning:
            case "all new":
                return after, cost
            case "all old":
                return before, cost
            case "modified new" if after is not None:
                changed = {name for name, _ in (*statement.update.set, *statement.update.add)}
                return {name: value for name, value in after.items() if name in changed}, cost
        return None, cost

    # -- queries ---------------------------------------------------------------------------------------------------

    def query(self, request: Request) -> Answer:
        table = self.table(request["TableName"])
        values = request.get("ExpressionAttributeValues", {})
        index = table.indexes.get(request.get("IndexName", ""))
        if index is None:
            raise Refused("this endpoint knows queries of a global index only; use GetItem")
        if request.get("ConsistentRead"):
            raise Refused("Consistent reads are not supported on global secondary indexes")
        condition, equal = parse_condition(request["KeyConditionExpression"], _names(request))
        if index.hash_key not in equal:
            raise Refused(f"Query condition missed key schema element: {index.hash_key}")
        bucket = (equal[index.hash_key]({}, values) or {})["S"]
        filtered = _condition(request, "FilterExpression")
        # A key condition on the range key, too, is judged by item; it would bound what is read.
        if len(equal) > 1 or " AND " in request["KeyConditionExpression"].upper():
            return self._narrow_query(request, table, index, bucket, condition, filtered)
        forward = request.get("ScanIndexForward", True)
        read = table.query(index, bucket, keep=filtered, forward=forward, **_from(request, table))
        return _page(read, request, table)

    @staticmethod
    def _narrow_query(
        request: Request,
        table: Table,
        index: Index,
        bucket: str,
        condition: Condition,
        filtered: Callable[[Item], bool] | None,
    ) -> Answer:
        """With a condition on the range key: only what fits is read, and paid."""
        values = request.get("ExpressionAttributeValues", {})
        fits = {
            key
            for key in index.buckets.get(bucket, ())
            if condition({index.hash_key: {"S": bucket}, index.range_key: {"S": key}}, values)
        }
        narrow = Index(index.name, index.hash_key, index.range_key, index.projected, {bucket: sorted(fits)})
        forward = request.get("ScanIndexForward", True)
        read = table.query(narrow, bucket, keep=filtered, forward=forward, **_from(request, table))
        return _page(read, request, table)

    def scan(self, request: Request) -> Answer:
        table = self.table(request["TableName"])
        if "IndexName" in request:
            raise Refused("this endpoint knows scans of a table only")
        segment, segments = request.get("Segment", 0), request.get("TotalSegments", 1)
        if ("Segment" in request) != ("TotalSegments" in request) or not 0 <= segment < segments:
            raise Refused("Segment is zero-based and must be less than TotalSegments, which goes with it")
        keep = _condition(request, "FilterExpression")
        read = table.scan(
            keep=keep,
            consistent=request.get("ConsistentRead", False),
            segment=segment,
            segments=segments,
            **_from(request, table),
        )
        return _page(read, request, table)

    # -- streams ---------------------------------------------------------------------------------------------------

    def list_streams(self, request: Request) -> Answer:
        names = [request["TableName"]] if "TableName" in request else sorted(self.tables)
        tables = [self.table(name) for name in names]
        streams = [{"StreamArn": _stream_arn(t), "TableName": t.name} for t in tables if t.records is not None]
        return {"Streams": streams}

    def describe_stream(self, request: Request) -> Answer:
        table = self._streaming(request["StreamArn"])
        shard = {"ShardId": "shardId-000000000000", "SequenceNumberRange": {"StartingSequenceNumber": "1"}}
        description = {"StreamArn": _stream_arn(table), "StreamStatus": "ENABLED", "TableName": table.name}
        return {"StreamDescription": description | {"Shards": [shard]}}

    def get_shard_iterator(self, request: Request) -> Answer:
        table = self._streaming(request["StreamArn"])
        after = {
            "TRIM_HORIZON": 0,
            "LATEST": table.sequence,
            "AFTER_SEQUENCE_NUMBER": int(request.get("SequenceNumber", 0)),
            "AT_SEQUENCE_NUMBER": int(request.get("SequenceNumber", 1)) - 1,
        }[request["ShardIteratorType"]]
        return {"ShardIterator": f"{table.name}|{after}"}

    def get_records(self, request: Request) -> Answer:
        name, _, after = request["ShardIterator"].rpartition("|")
        table = self._streaming(name)
        assert table.records is not None
        first = table.sequence - len(table.records)  # this many are gone
        start = max(int(after) - first, 0)
        found = [table.records[n] for n in range(start, min(start + request.get("Limit", 1000), len(table.records)))]
        last = found[-1]["dynamodb"]["SequenceNumber"] if found else after
        return {"Records": found, "NextShardIterator": f"{table.name}|{last}"}

    def _streaming(self, arn: str) -> Table:
        table = self.table(arn.partition("/stream/")[0])
        if table.records is None:
            raise Refused("the table has no stream", "ResourceNotFoundException")
        return table


def _code_in_batch(error: Refused) -> str:
    """Answers to statements of a batch have codes of their own."""
    return {"ValidationException": "ValidationError"}.get(error.code, error.code.removesuffix("Exception"))


def _stream_arn(table: Table) -> str:
    return f"{REGION}{table.name}/stream/1"


def _names(request: Request) -> tuple[tuple[str, str], ...]:
    return tuple(request.get("ExpressionAttributeNames", {}).items())


def _condition(request: Request, name: str) -> Callable[[Item], bool] | None:
    text: str | None = request.get(name)
    if text is None:
        return None
    condition, _ = parse_condition(text, _names(request))
    values = request.get("ExpressionAttributeValues", {})

    def holds(item: Item) -> bool:
        return condition(item, values)

    return holds


def _from(request: Request, table: Table) -> Answer:
    start = request.get("ExclusiveStartKey")
    return {"after": None if start is None else key_of(table, start), "limit": request.get("Limit")}


def _projected(item: Item, request: Request) -> Item:
    text = request.get("ProjectionExpression")
    if text is None:
        return item
    names = dict(_names(request))
    wanted = {names.get(part.strip(), part.strip()) for part in text.split(",")}
    return {name: value for name, value in item.items() if name in wanted}


def _page(read: Read, request: Request, table: Table) -> Answer:
    answer: Answer = {"Count": len(read.items), "ScannedCount": read.scanned}
    if request.get("Select") != "COUNT":
        answer["Items"] = [_projected(item, request) for item in read.items]
    if read.last is not None:
        answer["LastEvaluatedKey"] = read.last
    return _with_cost(answer, request, table, read.cost)


def _wants_cost(request: Request) -> bool:
    return bool(request.get("ReturnConsumedCapacity", "NONE") != "NONE")


def _with_cost(answer: Answer, request: Request, table: Table, cost: Cost) -> Answer:
    if _wants_cost(request):
        answer["ConsumedCapacity"] = _consumed(table, cost)
    return answer


def _consumed(table: Table, cost: Cost) -> Answer:
    return {
        "TableName": table.name,
        "CapacityUnits": cost.total,
        "Table": {"CapacityUnits": cost.table},
        "GlobalSecondaryIndexes": {name: {"CapacityUnits": units} for name, units in cost.indexes.items()},
    }

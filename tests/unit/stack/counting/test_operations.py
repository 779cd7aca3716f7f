"""The calls, on the template's own table."""

from __future__ import annotations

from typing import Any

import pytest

from dynatick_stack.counting.errors import Refused
from dynatick_stack.counting.operations import Database
from dynatick_stack.template import table_definition

BUCKET = "2026-12-31#12:00"
INDEX = "taskDateTime-index"


@pytest.fixture
def database() -> Database:
    made = Database()
    made.call("CreateTable", {"TableName": "tasks", **table_definition()})
    return made


def put(database: Database, task_id: str, **more: Any) -> dict[str, Any]:
    item = {"taskId": {"S": task_id}, "taskDateTime": {"S": BUCKET}} | more
    return database.call("PutItem", {"TableName": "tasks", "Item": item, "ReturnConsumedCapacity": "INDEXES"})


def query(database: Database, **more: Any) -> dict[str, Any]:
    request = {
        "TableName": "tasks",
        "IndexName": INDEX,
        "KeyConditionExpression": "taskDateTime = :b",
        "ExpressionAttributeValues": {":b": {"S": BUCKET}},
        "ReturnConsumedCapacity": "INDEXES",
    }
    return database.call("Query", request | more)


def execute(database: Database, *statements: tuple[str, list[dict[str, str]]]) -> dict[str, Any]:
    return database.call(
        "BatchExecuteStatement",
        {
            "Statements": [{"Statement": text, "Parameters": values} for text, values in statements],
            "ReturnConsumedCapacity": "INDEXES",
        },
    )


def units(answer: dict[str, Any]) -> float:
    found: float = answer["ConsumedCapacity"]["CapacityUnits"]
    return found


def test_a_put_writes_table_and_index(database: Database) -> None:
    answer = put(database, "t1")
    assert answer["ConsumedCapacity"] == {
        "TableName": "tasks",
        "CapacityUnits": 2,
        "Table": {"CapacityUnits": 1},
        "GlobalSecondaryIndexes": {INDEX: {"CapacityUnits": 1}},
    }
    raw = {"TableName": "tasks", "Item": {"taskId": {"S": "raw"}}, "ReturnConsumedCapacity": "TOTAL"}
    assert units(database.call("PutItem", raw)) == 1  # in no bucket, so in no index


def test_an_update_of_what_is_not_projected_writes_the_table_only(database: Database) -> None:
    put(database, "t1", status={"S": "scheduled"})
    request = {
        "TableName": "tasks",
        "Key": {"taskId": {"S": "t1"}},
        "UpdateExpression": "SET #s = :r",
        "ExpressionAttributeNames": {"#s": "status"},
        "ExpressionAttributeValues": {":r": {"S": "running"}},
        "ReturnConsumedCapacity": "INDEXES",
        "ReturnValues": "ALL_NEW",
    }
    answer = database.call("UpdateItem", request)
    assert units(answer) == 1
    assert answer["Attributes"]["status"] == {"S": "running"}
    assert units(database.call("UpdateItem", request | {"UpdateExpression": "SET outcome = :r",
                                                        "ExpressionAttributeNames": {}})) == 2  # fmt: skip
    moved = request | {"UpdateExpression": "SET taskDateTime = :r", "ExpressionAttributeNames": {}}
    assert units(database.call("UpdateItem", moved)) == 3


def test_a_failed_condition_costs_and_changes_nothing(database: Database) -> None:
    put(database, "t1", payload={"S": "x" * 3000})
    with pytest.raises(Refused) as refused:
        database.call(
            "PutItem",
            {
                "TableName": "tasks",
                "Item": {"taskId": {"S": "t1"}},
                "ConditionExpression": "attribute_not_exists(taskId)",
            },
        )
    assert refused.value.code == "ConditionalCheckFailedException"
    assert refused.value.units == 3
    assert "payload" in database.call("GetItem", {"TableName": "tasks", "Key": {"taskId": {"S": "t1"}}})["Item"]


def test_each_statement_of_a_batch_is_judged_and_paid_for_itself(database: Database) -> None:
    put(database, "t1", status={"S": "scheduled"})
    put(database, "t2", status={"S": "completed"})
    claim = 'UPDATE "tasks" SET "status"=? WHERE "taskId"=? AND "status"=? RETURNING ALL NEW *'
    values = [{"S": "running"}, {"S": "t1"}, {"S": "scheduled"}]
    answer = execute(
        database,
        (claim, values),
        (claim, [values[0], {"S": "t2"}, values[2]]),
        (claim, [values[0], {"S": "t3"}, values[2]]),
    )
    won, lost, missing = answer["Responses"]
    assert won["Item"]["status"] == {"S": "running"}
    assert lost["Error"]["Code"] == missing["Error"]["Code"] == "ConditionalCheckFailed"
    assert [one["CapacityUnits"] for one in answer["ConsumedCapacity"]] == [1, 1, 1]
    get = {"TableName": "tasks", "Key": {"taskId": {"S": "t3"}}}
    assert "Item" not in database.call("GetItem", get)  # an UPDATE never creates


def test_an_insert_of_a_known_id_says_so(database: Database) -> None:
    insert = "INSERT INTO \"tasks\" VALUE {'taskId':?}"
    first = execute(database, (insert, [{"S": "t1"}]))
    again = execute(database, (insert, [{"S": "t1"}]))
    assert "Error" not in first["Responses"][0]
    assert again["Responses"][0]["Error"]["Code"] == "DuplicateItem"


@pytest.mark.parametrize(
    "statements",
    [
        [('UPDATE "tasks" SET "a"=? WHERE "taskId"=?', [{"S": "x"}, {"S": "t1"}])] * 2,  # one key twice
        [("INSERT INTO \"tasks\" VALUE {'taskId':?}", [{"S": f"t{n}"}]) for n in range(26)],
        [('UPDATE "tasks" SET "a"=? WHERE "b"=?', [{"S": "x"}, {"S": "t1"}])],  # no key
        [
            ('UPDATE "tasks" SET "a"=? WHERE "taskId"=?', [{"S": "x"}, {"S": "t1"}]),
            ('SELECT * FROM "tasks" WHERE "taskId"=?', [{"S": "t2"}]),
        ],
        [(f'UPDATE "tasks" SET "{"a" * 9000}"=? WHERE "taskId"=?', [{"S": "x"}, {"S": "t1"}])],
    ],
)
def test_a_batch_that_is_refused_as_a_whole(database: Database, statements: list[Any]) -> None:
    with pytest.raises(Refused):
        execute(database, *statements)


def test_a_query_pays_for_what_it_reads_not_for_what_it_shows(database: Database) -> None:
    for n in range(100):
        put(database, f"t{n:03}", **({"outcome": {"S": "completed"}} if n % 2 else {}))
    answer = query(database, FilterExpression="attribute_not_exists(outcome)")
    assert (answer["Count"], answer["ScannedCount"]) == (50, 100)
    # An entry: 12 + 16 for the bucket, 6 + 4 for the id; half of them 7 + 9 for the outcome.
    size = 100 * (12 + 16 + 6 + 4) + 50 * (7 + 9)
    assert size == 4600
    assert units(answer) == 1.0  # two times 4 KB, eventually consistent
    assert units(query(database, ExpressionAttributeValues={":b": {"S": "nothing"}})) == 0.5


def test_pages_of_a_query(database: Database) -> None:
    for n in range(25):
        put(database, f"t{n:02}", error={"S": "x" * 100_000})
    first = query(database)
    assert first["Count"] == 11  # the one that reaches 1 MB is the last of its page
    assert first["LastEvaluatedKey"] == {"taskDateTime": {"S": BUCKET}, "taskId": {"S": "t10"}}
    rest = query(database, ExclusiveStartKey=first["LastEvaluatedKey"], Limit=3)
    assert [item["taskId"]["S"] for item in rest["Items"]] == ["t11", "t12", "t13"]
    backwards = query(database, ScanIndexForward=False, Limit=2)
    assert [item["taskId"]["S"] for item in backwards["Items"]] == ["t24", "t23"]


def test_a_condition_on_the_range_key_narrows_what_is_read(database: Database) -> None:
    for n in range(10):
        put(database, f"t{n}", error={"S": "x" * 4000})
    answer = query(
        database,
        KeyConditionExpression="taskDateTime = :b AND taskId > :t",
        ExpressionAttributeValues={":b": {"S": BUCKET}, ":t": {"S": "t7"}},
    )
    assert answer["ScannedCount"] == 2
    assert units(answer) == 1.0


def test_a_scan_reads_all_of_it(database: Database) -> None:
    for n in range(10):
        put(database, f"t{n}", payload={"S": "x" * 5000})
    answer = database.call("Scan", {"TableName": "tasks", "ConsistentRead": True, "ReturnConsumedCapacity": "TOTAL"})
    assert answer["Count"] == 10
    assert units(answer) == 13  # 50,420 bytes


def test_many_keys_are_paid_one_by_one(database: Database) -> None:
    put(database, "t1")
    keys = [{"taskId": {"S": "t1"}}, {"taskId": {"S": "t2"}}]
    request = {"RequestItems": {"tasks": {"Keys": keys, "ConsistentRead": True}}, "ReturnConsumedCapacity": "TOTAL"}
    answer = database.call("BatchGetItem", request)
    assert len(answer["Responses"]["tasks"]) == 1
    assert answer["ConsumedCapacity"][0]["CapacityUnits"] == 2


def test_the_stream_shows_both_images_in_order(database: Database) -> None:
    put(database, "t1")
    put(database, "t1")  # nothing changes: nothing is told
    put(database, "t1", status={"S": "scheduled"})
    database.call("DeleteItem", {"TableName": "tasks", "Key": {"taskId": {"S": "t1"}}})
    arn = database.call("DescribeTable", {"TableName": "tasks"})["Table"]["LatestStreamArn"]
    iterator = database.call(
        "GetShardIterator", {"StreamArn": arn, "ShardId": "shardId-000000000000", "ShardIteratorType": "TRIM_HORIZON"}
    )["ShardIterator"]
    first = database.call("GetRecords", {"ShardIterator": iterator, "Limit": 2})
    rest = database.call("GetRecords", {"ShardIterator": first["NextShardIterator"]})
    records = [*first["Records"], *rest["Records"]]
    assert [record["eventName"] for record in records] == ["INSERT", "MODIFY", "REMOVE"]
    assert "OldImage" not in records[0]["dynamodb"]
    assert records[1]["dynamodb"]["NewImage"]["status"] == {"S": "scheduled"}
    assert not database.call("GetRecords", {"ShardIterator": rest["NextShardIterator"]})["Records"]


@pytest.mark.parametrize(
    ("operation", "request_", "code"),
    [
        ("GetItem", {"TableName": "others", "Key": {}}, "ResourceNotFoundException"),
        ("GetItem", {"TableName": "tasks", "Key": {"id": {"S": "x"}}}, "ValidationException"),
        ("PutItem", {"TableName": "tasks", "Item": {"taskId": {"N": "1"}}}, "ValidationException"),
        ("PutItem", {"TableName": "tasks", "Item": {"taskId": {"S": "x"}, "taskDateTime": {"N": "1"}}},
         "ValidationException"),
        ("PutItem", {"TableName": "tasks", "Item": {"taskId": {"S": "x"}, "payload": {"S": "x" * 410_000}}},
         "ValidationException"),
        ("TransactWriteItems", {}, "UnknownOperationException"),
        ("CreateTable", {"TableName": "tasks"}, "ResourceInUseException"),
    ],
)  # fmt: skip
def test_refusals(database: Database, operation: str, request_: dict[str, Any], code: str) -> None:
    with pytest.raises(Refused) as refused:
        database.call(operation, request_)
    assert refused.value.code == code

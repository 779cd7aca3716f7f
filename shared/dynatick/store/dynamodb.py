"""The table in DynamoDB. Only this package uses pynamodb and the SDK's errors.

Single requests use pynamodb's connection, with expressions and without a model, because a row may have any shape.
Batches of conditional writes, which pynamodb does not support, use PartiQL: 25 statements in a
``BatchExecuteStatement``, each with its own answer. ``wire.py`` sends batches and reads of many rows.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any
from weakref import WeakSet

from botocore.exceptions import BotoCoreError, ClientError
from botocore.session import Session, get_session
from pynamodb.connection import TableConnection
from pynamodb.connection.base import MetaTable
from pynamodb.exceptions import DoesNotExist
from pynamodb.expressions.condition import Condition as PynamoCondition
from pynamodb.expressions.operand import Path

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
from dynatick.domain.row import RowView
from dynatick.domain.task import Row, Status, size_of
from dynatick.engine.ports import Cancelled, Counted, Listing, Page, ScanPage, StoreFailure
from dynatick.errors import ConfigurationError, ItemTooLarge, StoreError, shown
from dynatick.store import partiql
from dynatick.store.codec import NOT_PLAIN, decode, encode, encode_value, entry_of
from dynatick.store.failures import SDK_ERRORS, SENT_AGAIN, failure_code, is_too_large, translated
from dynatick.store.sdk_internals import (
    AttributeName,
    limit_unanswered,
    refuse_other_answers,
    register_large_reader,
    use_session,
)
from dynatick.store.transactions import cancelled, encoded_entry, is_lost, is_ours_too_large, is_to_be_sent_again
from dynatick.store.wire import Wire

INDEX = "taskDateTime-index"
LISTS_INDEX = "lists-index"
SPARSE_INDEXES = {attr.SCHEDULE_STATE: "schedules-index", attr.SUBJECT: "subject-index"}  # by their keys
BATCH = 25  # statements in one BatchExecuteStatement (DynamoDB quotas)
KEYS = 100  # keys in one BatchGetItem (DynamoDB quotas)
WHOLE_ROWS = 25  # keys in one BatchGetItem that reads whole rows, which can be large
ANSWER_BYTES = 8_000_000  # of the rows in an answer to a batch, after an answer with large rows
TRIES_WITHOUT_ANSWER = 2  # of a request, if there is a limit to its time
TRIES = 6  # of a batch, for the part that was throttled or left unprocessed
TRANSACTION_TRIES = 3  # of a transaction that meets others on its rows: then it has had no effect, and says so
MAX_CONNECTIONS = 64  # that are kept open; a page of the dashboard reads up to 48 buckets at a time

_RETRIABLE = frozenset(
    {
        "ThrottlingError",
        "ProvisionedThroughputExceeded",
        "RequestLimitExceeded",
        "InternalServerError",
        "TransactionConflict",
    }
)


_stores: WeakSet[DynamoStore] = WeakSet()
_of_parent: list[object] = []
"""Connections that this process has by a fork. To close them could wait for a lock of a thread that is not here."""


def _connect_in_child() -> None:
    _of_parent.extend(store.connect_in_child() for store in list(_stores))


if hasattr(os, "register_at_fork"):  # which Windows lacks
    os.register_at_fork(after_in_child=_connect_in_child)


class DynamoStore:
    """The Store port on a DynamoDB table.

    ``batched`` False: one request for each write, for an engine whose PartiQL has no conditional updates. ``pause``
    waits between tries, in seconds. ``session``: for other credentials than the environment's. ``timeout_seconds``: how
    long a request and the one that reads its effect wait for a table that is silent, together; None: as long as
    a function that runs tasks can.
    """

    def __init__(
        self,
        table: str,
        *,
        region: str | None = None,
        endpoint_url: str | None = None,
        batched: bool = True,
        pause: Callable[[float], None] = time.sleep,
        session: Session | None = None,
        timeout_seconds: float | None = None,
    ) -> None:
        self.table = table
        self._batched = batched
        self._pause = pause
        self._session = session or get_session()
        self._is_session_given = session is not None
        self._region = region
        self._endpoint_url = endpoint_url
        self._timeout_seconds = timeout_seconds
        self._sent = threading.local()  # ``times``: how often the insert under way was sent
        self._batch_size = BATCH  # statements in one request; fewer after an answer with large rows
        self._connect()
        _stores.add(self)
        if session is not None:
            with translated("connect"):
                _ = self._client

    def _connect(self) -> None:
        limit = self._timeout_seconds
        timeout = None if limit is None else limit / (2 * TRIES_WITHOUT_ANSWER)
        self._connection = TableConnection(
            self.table,
            region=self._region,
            host=self._endpoint_url,
            connect_timeout_seconds=3 if timeout is None else timeout,
            read_timeout_seconds=10 if timeout is None else timeout,
            max_retry_attempts=5,
            max_pool_connections=MAX_CONNECTIONS,
            meta_table=MetaTable(
                {
                    "TableName": self.table,
                    "KeySchema": [{"AttributeName": attr.TASK_ID, "KeyType": "HASH"}],
                    "AttributeDefinitions": [
                        {"AttributeName": attr.TASK_ID, "AttributeType": "S"},
                        {"AttributeName": attr.TASK_DATE_TIME, "AttributeType": "S"},
                    ],
                    "GlobalSecondaryIndexes": [
                        {
                            "IndexName": INDEX,
                            "KeySchema": [
                                {"AttributeName": attr.TASK_DATE_TIME, "KeyType": "HASH"},
                                {"AttributeName": attr.TASK_ID, "KeyType": "RANGE"},
                            ],
                        }
                    ],
                }
            ),
        )
        self._wire: Wire | None = None
        self._prepared_client: Any = None

    def connect_in_child(self) -> tuple[object, ...]:
        """Forgets the connections of the process that this one was forked from, and returns what holds them."""
        held = (self._connection, self._wire)
        self._connect()
        return held

    @property
    def address(self) -> str:
        """The URL of the endpoint, which names the region, with the table's name. Raises StoreError."""
        with translated("connect"):
            return f"{self._client.meta.endpoint_url}/{self.table}"

    def get(self, task_id: str) -> Row | None:
        with translated("read a row"):
            try:
                answer = self._requests.get_item(task_id, consistent_read=True)
            except DoesNotExist:
                return None
        item = answer.get("Item") if answer else None
        return decode(item) if item else None

    def get_many(
        self, task_ids: Iterable[str], *, consistent: bool = True, only: Collection[str] = ()
    ) -> Mapping[str, Row]:
        wanted = list(dict.fromkeys(task_ids))
        found: dict[str, Row] = {}
        form: dict[str, Any] = {"ConsistentRead": consistent}
        if only:
            names = {f"#{n}": name for n, name in enumerate({attr.TASK_ID, *only})}
            form |= {"ProjectionExpression": ", ".join(names), "ExpressionAttributeNames": names}
        at_once = KEYS if only else WHOLE_ROWS
        for start in range(0, len(wanted), at_once):
            keys: list[dict[str, Any]] = [{attr.TASK_ID: {"S": i}} for i in wanted[start : start + at_once]]
            for attempt in range(TRIES):
                with translated("read rows"):
                    answer = self._call("BatchGetItem", {"RequestItems": {self.table: {**form, "Keys": keys}}})
                for item in answer["Responses"].get(self.table, []):
                    found[item[attr.TASK_ID]["S"]] = decode(item)
                keys = answer.get("UnprocessedKeys", {}).get(self.table, {}).get("Keys", [])
                if not keys:
                    break
                self._back_off(attempt)
            else:
                raise StoreError(f"cannot read rows: {len(keys)} keys were left unprocessed {TRIES} times")
        return found

    def create(self, row: Row) -> bool:
        item = encode(row)
        attributes = {name: value for name, value in item.items() if name != attr.TASK_ID}
        self._sent.times = 0
        try:
            self._requests.put_item(
                RowView(row).task_id, attributes=attributes, condition=Path(attr.TASK_ID).does_not_exist()
            )
        except SDK_ERRORS as error:
            failure = failure_code(error)
            if failure == "ConditionalCheckFailedException":
                if self._sent.times > 1:
                    raise StoreError(f"cannot insert the row: {SENT_AGAIN}") from error
                return False
            if is_too_large(failure, str(error)):
                raise ItemTooLarge(f"cannot insert the row: {error}") from error
            raise StoreError(f"cannot insert the row: {error}") from error
        return True

    def create_many(self, rows: Sequence[Row]) -> Sequence[bool | StoreFailure]:
        if not self._batched:
            return [self._create_one(row) for row in rows]
        return [answer for n in range(0, len(rows), BATCH) for answer in self._create_batch(rows[n : n + BATCH])]

    def write(self, change: ConditionalUpdate) -> Result:
        try:
            answer = self._requests.update_item(
                change.task_id, **_update(change), return_values="ALL_NEW" if change.returning else "NONE"
            )
        except SDK_ERRORS as error:
            failure = failure_code(error)
            if failure == "ConditionalCheckFailedException":
                return Lost()
            return Unknown(f"{failure}: {error}", is_too_large(failure, str(error)))
        return Written(decode(answer["Attributes"]) if change.returning else None)

    def write_many(self, changes: Sequence[ConditionalUpdate]) -> Sequence[Result]:
        if not self._batched:
            return [self.write(change) for change in changes]
        results: dict[int, Result] = {}
        statements = {
            n: statement
            for n, change in enumerate(changes)
            if (statement := partiql.update(self.table, change)) is not None and partiql.fits(statement)
        }
        for n, answer in zip(statements, self._execute(list(statements.values())), strict=True):
            # An engine may accept only one REMOVE in a statement: send such an update as a single request.
            if len(changes[n].remove) <= 1 or not partiql.is_refused(answer):
                results[n] = partiql.result_of(answer, changes[n].returning)
        return [results[n] if n in results else self.write(change) for n, change in enumerate(changes)]

    def transact(
        self,
        change: ConditionalUpdate | None = None,
        row: Row | None = None,
        items: Sequence[Mapping[str, object]] = (),
        *,
        token: str | None = None,
    ) -> Result | Cancelled:
        parts = [encoded_entry(item, n, self.table, change, row) for n, item in enumerate(items)]
        connection, ours = self._requests.connection, list[dict[str, Any]]()
        if change is not None:
            ours.append({"Update": connection.get_operation_kwargs(self.table, change.task_id, **_update(change))})
        if row is not None:
            is_free = {
                "ConditionExpression": "attribute_not_exists(#id)",
                "ExpressionAttributeNames": {"#id": attr.TASK_ID},
            }
            ours.append({"Put": {"TableName": self.table, "Item": encode(row), **is_free}})
        request: dict[str, Any] = {"TransactItems": [*ours, *parts]}
        request |= {} if token is None else {"ClientRequestToken": token}
        for attempt in range(TRANSACTION_TRIES):
            try:
                self._client.transact_write_items(**request)
            except (ClientError, BotoCoreError) as error:
                if is_lost(error, len(ours)):
                    return Lost()
                if is_to_be_sent_again(error) and attempt < TRANSACTION_TRIES - 1:
                    self._back_off(attempt)
                    continue
                code, text = failure_code(error), str(error)
                if is_ours_too_large(error, len(ours)) or (not items and is_too_large(code, text)):
                    return Unknown(f"{code}: {text}", too_large=True)
                return cancelled(error, len(ours), parts) or Unknown(f"{code}: {text}")
            return Written()
        raise AssertionError

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
        name = {"S": str(bucket)}
        query: dict[str, Any] = {
            "KeyConditionExpression": "#bucket = :bucket",
            "ExpressionAttributeNames": {"#bucket": attr.TASK_DATE_TIME},
            "ExpressionAttributeValues": {":bucket": name},
        }
        if prefix is not None:
            query["KeyConditionExpression"] += " AND begins_with(#id, :prefix)"
            query["ExpressionAttributeNames"]["#id"] = attr.TASK_ID
            query["ExpressionAttributeValues"][":prefix"] = {"S": prefix}
        if outcome is not None:
            query["FilterExpression"] = "#outcome = :outcome"
            query["ExpressionAttributeNames"]["#outcome"] = attr.OUTCOME
            query["ExpressionAttributeValues"][":outcome"] = {"S": outcome}
        elif open_only:
            # An outcome that is NULL, written by a user, counts as missing.
            query["FilterExpression"] = "attribute_not_exists(#outcome) OR attribute_type(#outcome, :null)"
            query["ExpressionAttributeNames"]["#outcome"] = attr.OUTCOME
            query["ExpressionAttributeValues"][":null"] = {"S": "NULL"}
        elif count is Counted.COMPLETED:
            query["FilterExpression"] = (
                "NOT (#outcome = :completed AND attribute_exists(#late) AND attribute_not_exists(#members))"
            )
            query["ExpressionAttributeNames"] |= {
                "#outcome": attr.OUTCOME, "#late": attr.LATE_MILLISECONDS, "#members": attr.PACK_MEMBERS,
            }  # fmt: skip
            query["ExpressionAttributeValues"][":completed"] = {"S": str(Status.COMPLETED)}
        elif count is Counted.OPEN:
            names = {f"#n{n}": name for n, name in enumerate(NOT_PLAIN)}
            query["FilterExpression"] = " OR ".join(f"attribute_exists({name})" for name in names)
            query["ExpressionAttributeNames"] |= names
        start = None if after is None else {attr.TASK_DATE_TIME: name, attr.TASK_ID: {"S": after}}
        answer = self._query("query a bucket", INDEX, query, start, limit)
        last = answer.get("LastEvaluatedKey")
        entries = [entry_of(item) for item in answer["Items"]]
        is_counted = outcome is None and not open_only and count is not None
        counted = answer["ScannedCount"] - len(entries) if is_counted else 0
        return Page(entries, last[attr.TASK_ID]["S"] if last else None, counted)

    def listed_by(self, name: str, value: str, *, after: str | None = None, limit: int | None = None) -> Listing:
        query: dict[str, Any] = {
            "KeyConditionExpression": "#name = :value",
            "ExpressionAttributeNames": {"#name": name},
            "ExpressionAttributeValues": {":value": {"S": value}},
        }
        key = None if after is None else {name: {"S": value}, attr.TASK_ID: {"S": after}}
        answer = self._query(f"list by {name}", SPARSE_INDEXES[name], query, key, limit)
        last = answer.get("LastEvaluatedKey")
        return Listing([item[attr.TASK_ID]["S"] for item in answer["Items"]], last[attr.TASK_ID]["S"] if last else None)

    def latest_listed(
        self, name: str, *, start: str, end: str, after: str | None = None, limit: int | None = None
    ) -> Listing:
        query: dict[str, Any] = {
            "KeyConditionExpression": "#as = :as AND #at BETWEEN :start AND :end",
            "ExpressionAttributeNames": {"#as": attr.LISTED_AS, "#at": attr.LISTED_AT},
            "ExpressionAttributeValues": {":as": {"S": name}, ":start": {"S": start}, ":end": {"S": end}},
            "ScanIndexForward": False,
        }
        at, _, task_id = (after or "").partition(" ")
        place = {attr.LISTED_AS: {"S": name}, attr.LISTED_AT: {"S": at}, attr.TASK_ID: {"S": task_id}}
        key = None if after is None else place
        answer = self._query(f"list what is listed as {name}", LISTS_INDEX, query, key, limit)
        last = answer.get("LastEvaluatedKey")
        return Listing(
            [item[attr.TASK_ID]["S"] for item in answer["Items"]],
            f"{last[attr.LISTED_AT]['S']} {last[attr.TASK_ID]['S']}" if last else None,
        )

    def _query(
        self, what: str, index: str, query: dict[str, Any], start: Mapping[str, Any] | None, limit: int | None
    ) -> Mapping[str, Any]:
        """Queries an index. ``start``: the key after which to go on; None: from the first on."""
        query |= {"TableName": self.table, "IndexName": index}
        if start is not None:
            query["ExclusiveStartKey"] = start
        if limit is not None:
            query["Limit"] = limit
        with translated(what):
            return self._call("Query", query)

    def scan(self, *, after: str | None = None, open_only: bool = True) -> ScanPage:
        # An outcome that is NULL, written by a user, counts as missing.
        is_open = Path(attr.OUTCOME).does_not_exist() | Path(attr.OUTCOME).is_type("NULL")
        with translated("scan the table"):
            answer = self._requests.scan(
                filter_condition=is_open if open_only else None,
                exclusive_start_key=after,
                consistent_read=True,
            )
        last = answer.get("LastEvaluatedKey")
        return ScanPage([decode(item) for item in answer["Items"]], last[attr.TASK_ID]["S"] if last else None)

    def delete(self, task_id: str, conditions: Sequence[Condition] = ()) -> bool:
        condition: PynamoCondition | None = None
        for part in conditions:
            condition = _condition(part) if condition is None else condition & _condition(part)
        try:
            self._requests.delete_item(task_id, condition=condition)
        except SDK_ERRORS as error:
            if failure_code(error) == "ConditionalCheckFailedException":
                return False
            raise StoreError(f"cannot delete a row: {error}") from error
        return True

    @property
    def _requests(self) -> TableConnection:
        """The connection for single requests, with the reader for large answers registered."""
        _ = self._client
        return self._connection

    @property
    def _client(self) -> Any:
        if self._is_session_given and self._prepared_client is None:
            use_session(self._connection, self._session)
        try:
            client = self._connection.connection.client
        except ValueError as error:
            if isinstance(error, BotoCoreError):
                raise
            given = str(error).removeprefix("Invalid endpoint: ")  # the SDK may have it from the environment
            expected = "expected a URL such as http://127.0.0.1:4566"
            raise ConfigurationError("endpoint_url", f"{shown(given)} is not accepted; {expected}") from None
        if client is not self._prepared_client:  # pynamodb creates another one as long as there are no credentials
            refuse_other_answers(client)
            register_large_reader(client)
            client.meta.events.register("before-send.dynamodb.PutItem", self._count_sent, unique_id="dynatick-sent")
            if self._timeout_seconds is not None:
                limit_unanswered(client, self._tries_left)
            self._prepared_client = client
        return client

    def _tries_left(self, operation: str) -> int:
        """How often the SDK's client may send a request that gets no answer: the wire has sent its own once."""
        return TRIES_WITHOUT_ANSWER - (self._wire is not None and self._wire.sends(operation))

    def _count_sent(self, **_: object) -> None:
        """Handles botocore's event before each try of a request, in the thread that sends it."""
        self._sent.times = getattr(self._sent, "times", 0) + 1

    def _call(self, operation: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        if self._wire is None:
            self._wire = Wire(self._client, self._session)  # two threads may create one; either serves
        return self._wire.call(operation, request)

    def _create_batch(self, rows: Sequence[Row]) -> Sequence[bool | StoreFailure]:
        statements = {n: partiql.insert(self.table, encode(row)) for n, row in enumerate(rows) if not size_of(row)}
        batch = [n for n, statement in statements.items() if partiql.fits(statement)]
        answers = dict(zip(batch, self._execute([statements[n] for n in batch]), strict=True))
        return [partiql.created_of(answers[n]) if n in answers else self._create_one(row) for n, row in enumerate(rows)]

    def _create_one(self, row: Row) -> bool | StoreFailure:
        try:
            return self.create(row)
        except StoreError as error:
            return StoreFailure(str(error), too_large=isinstance(error, ItemTooLarge))

    def _execute(self, statements: Sequence[dict[str, Any]]) -> list[Mapping[str, Any]]:
        """One answer for each statement, in order. Throttled statements are sent again, up to ``TRIES`` times."""
        answers: dict[int, Mapping[str, Any]] = {}
        waiting = list(range(len(statements)))
        for attempt in range(TRIES):
            again: list[int] = []
            start = 0
            while start < len(waiting):
                part = waiting[start : start + self._batch_size]
                for n, answer in zip(part, self._execute_batch([statements[n] for n in part]), strict=True):
                    answers[n] = partiql.unless_sent_again(answer) if attempt else answer
                    if partiql.error_of(answer)[0] in _RETRIABLE:
                        again.append(n)
                start += len(part)
            waiting = again
            if not waiting:
                break
            self._back_off(attempt)
        return [answers[n] for n in range(len(statements))]

    def _execute_batch(self, statements: Sequence[dict[str, Any]]) -> Sequence[Mapping[str, Any]]:
        try:
            answer = self._call("BatchExecuteStatement", {"Statements": statements})
            responses: Sequence[Mapping[str, Any]] = answer["Responses"]
            if answer.get("ResponseMetadata", {}).get("RetryAttempts"):
                responses = [partiql.unless_sent_again(response) for response in responses]
        except (ClientError, BotoCoreError) as error:
            code = failure_code(error)
            if code == "ValidationException" and len(statements) > 1:
                # One malformed statement fails the whole batch before anything is written: send each by itself.
                return [answer for statement in statements for answer in self._execute_batch([statement])]
            # The request failed: the SDK has retried it already, and parts of it may have taken effect.
            return [{"Error": {"Code": code, "Message": str(error)}}] * len(statements)
        large = sum(len(text) for one in responses for text in getattr(one.get("Item"), "large", {}).values())
        self._batch_size = max(1, min(BATCH, len(responses) * ANSWER_BYTES // large)) if large else BATCH
        return responses

    def _back_off(self, attempt: int) -> None:
        self._pause(random.uniform(0.5, 1.0) * 0.05 * 2**attempt)


def _update(change: ConditionalUpdate) -> dict[str, Any]:
    """What pynamodb needs for an update."""
    condition: PynamoCondition = Path(attr.TASK_ID).exists()
    for part in change.conditions:
        condition = condition & _condition(part)
    actions = [
        AttributeName(n).set(AttributeName(n) + v.number if isinstance(v, Plus) else encode_value(v, n))
        for n, v in change.set.items()
    ]
    actions += [AttributeName(n).remove() for n in change.remove]
    return {"actions": actions, "condition": condition}


def _condition(part: Condition) -> PynamoCondition:
    match part:
        case Is(name, value):
            return AttributeName(name) == encode_value(value, name)
        case Absent(name):
            return AttributeName(name).does_not_exist()
        case AtLeast(name, value):
            return AttributeName(name) >= encode_value(value, name)

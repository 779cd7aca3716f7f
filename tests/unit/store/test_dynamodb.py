"""Batches of statements, where a refused one fails alone; and reads, which are consistent and of every row."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from threading import Thread
from typing import Any, NoReturn

import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.exceptions import ClientError, ConnectionClosedError
from botocore.httpsession import URLLib3Session
from botocore.session import Session
from tests.builders import ForkedChild, scheduled_row
from tests.unit.actions.support import a_server
from tests.unit.store.support import response

from dynatick.domain.buckets import Bucket
from dynatick.domain.conditional_update import ConditionalUpdate, Unknown, Written, as_read
from dynatick.engine.ports import StoreFailure
from dynatick.errors import StoreError
from dynatick.store import partiql
from dynatick.store.dynamodb import ANSWER_BYTES, TRIES, DynamoStore
from dynatick.store.large import LargeItem
from dynatick.store.wire import Connections, Wire


class Service:
    """Has an ``answer`` to each statement of a batch. If that raises, the whole batch is refused, as DynamoDB does for
    some faults."""

    answer: Callable[[Mapping[str, Any]], Mapping[str, Any]]

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.waits: list[float] = []

    def call(self, operation: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        self.batches.append(len(request["Statements"]))
        return {"Responses": [self.answer(statement) for statement in request["Statements"]]}

    def store(self) -> DynamoStore:
        return DynamoStore("tasks", region="us-east-1", pause=self.waits.append)


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Service:
    made = Service()
    monkeypatch.setattr(Wire, "call", lambda wire, *args: made.call(*args))
    return made


def refuse(code: str) -> NoReturn:
    raise ClientError({"Error": {"Code": code, "Message": "no"}}, "BatchExecuteStatement")


def update(task_id: str, **more: Any) -> ConditionalUpdate:
    return ConditionalUpdate(task_id=task_id, set={"n": 1}, **more)


def test_a_statement_that_the_table_refuses_fails_alone(service: Service) -> None:
    service.answer = lambda one: refuse("ValidationException") if {"S": "poison"} in one["Parameters"] else {}
    ids = [f"t{n}" for n in range(10)] + ["poison"] + [f"u{n}" for n in range(10)]
    results = service.store().write_many([update(i) for i in ids])
    assert [isinstance(result, Written) for result in results] == [i != "poison" for i in ids]
    assert str(results[10]).startswith("Unknown(error='ValidationException: ")
    assert service.batches == [21] + [1] * 21
    answers = service.store().create_many([scheduled_row(i, Bucket(0)) for i in ids])
    assert [answer is True for answer in answers] == [i != "poison" for i in ids]
    assert isinstance(answers[10], StoreFailure)


def test_a_batch_is_not_split_after_other_faults(service: Service) -> None:
    """Parts of it may have taken effect, and the SDK has retried it already."""
    service.answer = lambda one: refuse("ServiceUnavailable")
    results = service.store().write_many([update("a"), update("b")])
    assert all(isinstance(result, Unknown) for result in results)
    assert service.batches == [2]


@pytest.mark.parametrize(
    "refused", [lambda: {"Error": {"Code": "ValidationError", "Message": "no"}}, lambda: refuse("ValidationException")]
)
def test_updates_with_several_removes_are_sent_singly_to_an_engine_that_accepts_one(
    service: Service, monkeypatch: pytest.MonkeyPatch, refused: Callable[[], Mapping[str, Any]]
) -> None:
    """Such an engine refuses the statement alone, or its whole batch."""
    service.answer = lambda one: refused() if one["Statement"].count(" REMOVE ") > 1 else {}
    store = service.store()
    singly: list[str] = []

    def write(change: ConditionalUpdate) -> Written:
        singly.append(change.task_id)
        return Written()

    monkeypatch.setattr(store, "write", write)
    removed = {"none": (), "one": ("a",), "two": ("a", "b"), "three": ("a", "b", "c")}
    assert store.write_many([update(i, remove=names) for i, names in removed.items()]) == [Written()] * 4
    assert singly == ["two", "three"]


@pytest.mark.parametrize(("letters", "fits"), [(8100, True), (8200, False)])
def test_a_statement_fits_up_to_the_maximum_length(letters: int, fits: bool) -> None:
    statement = partiql.insert("tasks", {"taskId": {"S": "a"}, "n" * letters: {"N": "1"}})
    assert partiql.fits(statement) == fits
    assert (len(statement["Statement"]) <= 8192) == fits


@pytest.mark.parametrize("name", ["#status", ":now", "#"])
def test_an_update_with_a_name_like_a_placeholder_is_sent_singly(name: str) -> None:
    """Users may have such attributes, and conditions refer to them."""
    for more in (
        {"set": {name: 1}},
        {"remove": (name,)},
        {"conditions": as_read({name: 1}, name)},
        {"conditions": as_read({}, name)},
    ):
        change = ConditionalUpdate(**{"task_id": "a", "set": {"status": "failed"}, **more})  # type: ignore[arg-type]
        assert partiql.update("tasks", change) is None, more
    accepted = ConditionalUpdate(task_id="a", set={"a#": 1}, conditions=as_read({}, "b:"))
    assert partiql.update("tasks", accepted) is not None


def test_after_large_rows_a_batch_has_fewer_statements(service: Service) -> None:
    """Only an answer shows how large the rows are."""
    size = ANSWER_BYTES // 5
    service.answer = lambda one: {"Item": LargeItem({}, {"payload": b" " * size} if size else {})}
    store = service.store()
    changes = [update(f"t{n}", returning=True) for n in range(37)]
    assert all(isinstance(result, Written) for result in store.write_many(changes))
    assert service.batches == [25, 5, 5, 2]
    size = ANSWER_BYTES * 2
    store.write_many(changes[:7])
    size = 0
    store.write_many(changes)
    assert service.batches == [25, 5, 5, 2, 5, 1, 1, 1, 25, 11]


THROTTLED = {"Error": {"Code": "ProvisionedThroughputExceeded", "Message": "slow down"}}


@pytest.mark.parametrize(("times", "written"), [(1, True), (TRIES - 1, True), (TRIES, False)])
def test_a_throttled_statement_is_sent_again(service: Service, times: int, written: bool) -> None:
    service.answer = lambda one: (
        THROTTLED if len(service.batches) <= times and {"S": "hot"} in one["Parameters"] else {}
    )
    results = service.store().write_many([update(task_id) for task_id in ("a", "hot", "b")])
    assert [type(result) for result in results] == [Written, Written if written else Unknown, Written]
    assert service.batches == [3] + [1] * min(times, TRIES - 1)
    assert len(service.waits) >= len(service.batches) - 1


Answer = Callable[[str, Mapping[str, Any]], Mapping[str, Any]]


def store_with(answer: Answer) -> DynamoStore:
    """A store whose requests ``answer`` handles."""

    def send(request: AWSPreparedRequest, **_: object) -> AWSResponse:
        operation = request.headers["X-Amz-Target"]
        name = (operation.decode() if isinstance(operation, bytes) else operation).rpartition(".")[2]
        return response(request, json.dumps(answer(name, json.loads(request.body))).encode())

    session = Session()
    session.set_credentials("AKID", "secret")
    session.register("before-send.dynamodb", send)
    return DynamoStore("tasks", region="eu-west-1", session=session, pause=lambda seconds: None)


TAKEN = {"Error": {"Code": "DuplicateItem", "Message": "Duplicate primary key exists in table"}}
ROWS = [scheduled_row("t", Bucket.parse("2026-12-31#12:00"))]


def test_an_id_that_is_taken_is_so_for_certain_only_if_the_insert_was_sent_once(service: Service) -> None:
    """The SDK sends a batch again when the connection breaks after it took effect; so does the store, for statements
    that were throttled."""
    service.answer = lambda one: TAKEN
    assert service.store().create_many(ROWS) == [False]
    answers = iter([{"Error": {"Code": "InternalServerError", "Message": "no"}}, TAKEN])
    service.answer = lambda one: next(answers)
    (again,) = service.store().create_many(ROWS)
    assert isinstance(again, StoreFailure)
    assert "the request was sent more than once" in again.error


def test_a_batch_that_the_sdk_has_sent_again_says_nothing_of_ids_that_are_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answered: dict[str, Any] = {"Responses": [TAKEN], "ResponseMetadata": {"RetryAttempts": 1}}
    monkeypatch.setattr(Wire, "call", lambda wire, *request: answered)
    store = DynamoStore("tasks", region="us-east-1")
    (again,) = store.create_many(ROWS)
    assert isinstance(again, StoreFailure)
    answered["ResponseMetadata"] = {"RetryAttempts": 0}
    assert store.create_many(ROWS) == [False]


@pytest.mark.parametrize("times", [1, 2])
def test_a_single_insert_that_was_sent_twice_is_no_certain_refusal(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """The first answer is lost with its connection."""
    session = Session()
    session.set_credentials("key", "secret")
    store = DynamoStore("tasks", region="us-east-1", session=session)
    sent: list[str] = []

    def send(sender: object, request: AWSPreparedRequest) -> AWSResponse:
        sent.append(request.url)
        if len(sent) < times:
            raise ConnectionClosedError(endpoint_url=request.url)
        error = {"__type": "com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException", "message": "no"}
        return response(request, json.dumps(error).encode(), 400)

    monkeypatch.setattr(URLLib3Session, "send", send)
    if times == 1:
        assert not store.create(ROWS[0])
    else:
        with pytest.raises(StoreError, match="sent more than once"):
            store.create(ROWS[0])
    assert len(sent) == times


@pytest.mark.parametrize(("body", "kind"), [(b"<html>It works</html>", "text/html"), (b"{}", "application/json")])
def test_the_answer_of_a_web_server_is_no_success(monkeypatch: pytest.MonkeyPatch, body: bytes, kind: str) -> None:
    def send(sender: object, request: AWSPreparedRequest) -> AWSResponse:
        return response(request, body, kind=kind)

    for connections in (Connections, URLLib3Session):
        monkeypatch.setattr(connections, "send", send)
    session = Session()
    session.set_credentials("key", "secret")
    store = DynamoStore("tasks", region="us-east-1", session=session)
    calls: list[Callable[[], object]] = [
        lambda: store.create(ROWS[0]), lambda: store.get("t"), lambda: store.get_many(["t"]), store.scan,
        lambda: store.query_bucket(Bucket.parse("2026-12-31#12:00")), lambda: store.delete("t"),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(StoreError, match=f"the answer is not DynamoDB's, but {kind}: check the endpoint"):
            call()
    assert isinstance(store.write(update("t")), Unknown)
    assert isinstance(store.create_many(ROWS)[0], StoreFailure)


def test_the_address_of_a_table_names_its_region_and_its_endpoint() -> None:
    assert DynamoStore("tasks", region="eu-west-1").address == "https://dynamodb.eu-west-1.amazonaws.com/tasks"
    assert DynamoStore("tasks", region="eu-west-1", endpoint_url="http://h:1").address == "http://h:1/tasks"


def test_rows_are_read_consistently() -> None:
    """The closed watermark is read after a row's image; an older one would leave the row in a bucket that is closed."""
    asked: list[tuple[str, object]] = []

    def answer(name: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        part = request["RequestItems"]["tasks"] if name == "BatchGetItem" else request
        asked.append((name, part.get("ConsistentRead")))
        return {"Responses": {"tasks": []}, "Items": [], "Count": 0, "ScannedCount": 0}

    store = store_with(answer)
    store.get("t")
    store.get_many(["t"])
    store.scan()
    assert asked == [("GetItem", True), ("BatchGetItem", True), ("Scan", True)]


@pytest.mark.parametrize("times", [0, 1, TRIES - 1, TRIES])
def test_unprocessed_keys_are_requested_again(times: int) -> None:
    """An unread row must not count as missing."""
    asked: list[list[str]] = []

    def answer(name: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        keys = request["RequestItems"]["tasks"]["Keys"]
        asked.append([key["taskId"]["S"] for key in keys])
        left = [key for key in keys if key["taskId"]["S"] == "slow"] if len(asked) <= times else []
        unprocessed = {"UnprocessedKeys": {"tasks": {"Keys": left}}} if left else {}
        return {"Responses": {"tasks": [key for key in keys if key not in left]}, **unprocessed}

    store = store_with(answer)
    if times == TRIES:
        with pytest.raises(StoreError, match=f"cannot read rows: 1 keys were left unprocessed {TRIES} times"):
            store.get_many(["a", "slow", "b"])
    else:
        assert set(store.get_many(["a", "slow", "b"])) == {"a", "slow", "b"}
    assert asked == [["a", "slow", "b"], *[["slow"]] * min(times, TRIES - 1)]


@pytest.mark.parametrize("own_session", [False, True])
def test_a_forked_child_has_its_own_connections(own_session: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """On one connection it would read the answers to its parent and to other children."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "OFENVIRON")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    session = Session() if own_session else None
    if session:
        session.set_credentials("OFSESSION", "secret")
    with a_server() as server:
        server.headers, server.body = {"Content-Type": "application/x-amz-json-1.0"}, b'{"Responses": {}}'
        store = DynamoStore(
            "tasks", region="us-east-1", endpoint_url=f"http://127.0.0.1:{server.port}", session=session
        )

        def read() -> None:
            assert store.get("one") is None  # by pynamodb
            assert store.get_many(["one", "two"]) == {}  # by the wire

        read()
        kept = len(server.connections)
        child = ForkedChild()
        if child.fork():
            try:
                thread = Thread(target=read)
                thread.start()
                thread.join()
            finally:
                os._exit(0)
        assert child.ended() == (0, "")
        assert len(server.connections) == 2 * kept
        read()
        assert len(server.connections) == 2 * kept, "the parent's are still open"
        assert len(server.requests) == 6
        wanted = "OFSESSION" if own_session else "OFENVIRON"
        assert all(f"Credential={wanted}/" in one.headers["authorization"] for one in server.requests)

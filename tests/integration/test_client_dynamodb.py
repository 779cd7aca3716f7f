"""The client on a real table: DynamoDB by moto, or the endpoint of --dynamodb-endpoint.

The table is made from template.yaml. Scheduler and processor run in this process.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from datetime import timedelta

import boto3
import pytest
from moto import mock_aws
from tests.builders import InProcess

from dynatick import (
    MemoryStore,
    PermanentError,
    TaskChanged,
    TaskClient,
    TaskExists,
    TaskNotFound,
    TransitionRefused,
)
from dynatick.client import Changed, Inserted, TickView
from dynatick.domain.buckets import Bucket, Grid
from dynatick.domain.conditional_update import Lost, Written
from dynatick.domain.lifecycle import claim
from dynatick.engine.ports import Store
from dynatick.engine.rules import Rules
from dynatick.errors import StoreError
from dynatick.store.dynamodb import DynamoStore
from dynatick_stack.template import table_definition

WHEN = "2026-12-31T12:30:00Z"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "store" in metafunc.fixturenames:
        given = metafunc.config.getoption("--dynamodb-endpoint") is not None
        # moto checks a condition and writes in two steps; the store in memory does it in one.
        first = "memory" if metafunc.definition.get_closest_marker("atomic_writes") else "moto"
        metafunc.parametrize("store", [first, *(["endpoint"] if given else [])], indirect=True)


@pytest.fixture
def store(request: pytest.FixtureRequest, dynamodb_endpoint: str | None) -> Iterator[Store]:
    if request.param == "memory":
        yield MemoryStore()
        return
    endpoint = dynamodb_endpoint if request.param == "endpoint" else None
    name = f"client-{uuid.uuid4().hex}"
    with mock_aws() if endpoint is None else nullcontext():
        client = boto3.client("dynamodb", endpoint_url=endpoint)
        client.create_table(TableName=name, **table_definition())
        client.get_waiter("table_exists").wait(TableName=name)
        # moto has no conditional PartiQL.
        yield DynamoStore(name, endpoint_url=endpoint, batched=endpoint is not None)
        client.delete_table(TableName=name)


@pytest.fixture
def world(store: Store) -> InProcess:
    """After its first tick, with three shards."""
    world = InProcess(store=store, rules=Rules(grid=Grid(shard_count=3)))
    world.tick()
    return world


@pytest.fixture
def client(world: InProcess) -> TaskClient:
    return TaskClient(world.store, clock=world.clock)


def fail(*_: object) -> object:
    raise PermanentError("it broke")


PAYLOAD = {"text": "grüße", "n": 10**20, "ratio": 0.1, "raw": b"\x00\xff", "list": [None, True, {}], "set": {"a", "b"}}


def test_a_life(world: InProcess, client: TaskClient) -> None:
    once = {"maximumRetryAttempts": 0}
    written = client.insert("x", due_at=WHEN, retry_policy=once, attributes={"own": {1, 2}, "no": None})
    assert client.get("x") == written
    with pytest.raises(TaskExists):
        client.insert("x")
    changed = client.update("x", payload=PAYLOAD, delay_seconds=90, version=written.version)
    assert client.get("x") == changed
    assert changed.payload == PAYLOAD
    with pytest.raises(TaskChanged):
        client.update("x", payload={}, version=written.version)
    assert client.reschedule("x", delay_seconds=30).bucket is not None
    world.actions.behaviour["x"] = fail
    world.next_tick()
    failed = client.get("x")
    assert (failed.status, failed.error, failed.attempt) == ("failed", "it broke", 1)
    del world.actions.behaviour["x"]
    assert client.redrive("x").run == 2
    world.next_tick()
    assert client.get("x").status == "completed"
    assert client.run_now("x").run == 3
    assert client.cancel("x").status == "cancelled"
    with pytest.raises(TransitionRefused):
        client.reschedule("x", delay_seconds=5)
    with pytest.raises(TaskNotFound):
        client.get("y")


def test_history_over_shards_and_pages(world: InProcess, client: TaskClient) -> None:
    tasks = [{"taskId": f"t{n:02}", "dueAt": f"2026-12-31T12:0{1 + n % 2}:00Z"} for n in range(22)]
    assert list(client.insert_lazily(tasks)) == [Inserted(n, f"t{n:02}") for n in range(22)]
    client.cancel("t00")
    world.actions.behaviour["t02"] = fail
    world.next_tick()
    asked = {"start": "2026-12-31T12:00:00Z", "end": "2026-12-31T12:05:00Z"}
    page = client.history(**asked, limit=5)
    found = list(page.entries)
    while page.next_page_token is not None:
        page = client.history(**asked, limit=5, page_token=page.next_page_token)
        found += page.entries
    assert sorted(entry.task_id for entry in found) == [task["taskId"] for task in tasks]
    assert [entry.task_id for entry in client.history(**asked, status="failed").entries] == ["t02"]
    assert [(counts.bucket, dict(counts.counts)) for counts in client.bucket_counts(**asked)] == [
        ("2026-12-31#12:01", {"completed": 9, "failed": 1, "cancelled": 1}),
        ("2026-12-31#12:02", {"scheduled": 11}),
    ]
    ticks = [tick for tick in client.ticks() if isinstance(tick, TickView)]
    assert (sum(tick.completed for tick in ticks), {tick.shard for tick in ticks}) == (9, {0, 1, 2})
    assert {type(result) for result in client.redrive_many("2026-12-31#12:01")} == {Changed}


@pytest.mark.atomic_writes
@pytest.mark.parametrize("number", range(5))
def test_of_a_cancel_and_a_claim_exactly_one_wins(world: InProcess, client: TaskClient, number: int) -> None:
    bucket = Bucket.parse(client.insert("x", due_at=WHEN).bucket)
    lease_until = world.clock() + timedelta(minutes=2)

    def claimed() -> bool:
        change = claim("x", bucket, token="t", lease_until=lease_until, now=world.clock())
        result = world.store.write(change)
        assert isinstance(result, (Written, Lost))
        return isinstance(result, Written)

    def cancelled() -> bool:
        try:
            return client.cancel("x").status == "cancelled"
        except TransitionRefused as refused:
            assert refused.status == "running"
            return False

    with ThreadPoolExecutor(2) as pool:
        wishes = [claimed, cancelled] if number % 2 else [cancelled, claimed]
        won = [future.result() for future in [pool.submit(wish) for wish in wishes]]
    assert sorted(won) == [False, True]
    assert client.get("x").status == ("running" if won[wishes.index(claimed)] else "cancelled")


def test_a_missing_table_is_reported(store: DynamoStore) -> None:
    # On moto there is no endpoint to name: the SDK's calls are caught wherever they go.
    client = TaskClient.connect("no-such-table", endpoint_url=store._connection.connection.host)
    with pytest.raises(StoreError, match=r"not found|non-existent|not exist"):
        client.insert("x", delay_seconds=5)

"""The client, and the command line, on a real table: DynamoDB by moto, or the endpoint of --dynamodb-endpoint.

The table is made from template.yaml. Scheduler and processor run in this process.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import count
from pathlib import Path

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
    cli,
)
from dynatick.client import Changed, Inserted, TaskView, TickView, WouldChange
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
    if request.param == "moto":
        with mock_aws():
            # moto has no conditional PartiQL.
            yield _table(None, batched=False)
        return
    made = _table(dynamodb_endpoint, batched=True)
    yield made
    boto3.client("dynamodb", endpoint_url=dynamodb_endpoint).delete_table(TableName=made.table)


def _table(endpoint: str | None, *, batched: bool) -> DynamoStore:
    name = f"client-{uuid.uuid4().hex}"
    client = boto3.client("dynamodb", endpoint_url=endpoint)
    client.create_table(TableName=name, **table_definition())
    client.get_waiter("table_exists").wait(TableName=name)
    return DynamoStore(name, endpoint_url=endpoint, batched=batched)


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


def test_a_life(world: InProcess, client: TaskClient) -> None:
    payload = {"text": "grüße", "n": 1, "ratio": 0.1, "raw": b"\x00\xff", "list": [None, True, {}], "set": {"a", "b"}}
    written = client.insert("x", due_at=WHEN, payload=payload, retry_policy={"maximumRetryAttempts": 0})
    assert client.get("x") == written
    assert client.get("x").payload == payload
    with pytest.raises(TaskExists):
        client.insert("x")
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


def test_a_change_with_an_old_version_is_refused(client: TaskClient) -> None:
    payload = {"text": "grüße", "ratio": 0.1, "raw": b"\x00\xff", "list": [None, True, {}], "set": {"a", "b"}}
    written = client.insert("x", due_at=WHEN, payload=payload, attributes={"own": {1, 2}, "no": None})
    assert client.get("x").version == written.version
    changed = client.update("x", payload={**payload, "n": 10**20}, delay_seconds=90, version=written.version)
    assert client.get("x") == changed
    with pytest.raises(TaskChanged):
        client.update("x", payload={}, version=written.version)
    assert client.update("x", payload={}, version=changed.version).payload == {}


def test_raw_rows_are_completed_by_the_scheduler(world: InProcess, client: TaskClient) -> None:
    client.insert("plain")
    client.insert("moved")
    client.reschedule("moved", delay_seconds=90)
    for task_id in ("plain", "moved"):
        world.stream(world.row(task_id))
    world.ticks(3)
    assert {client.get(i).status for i in ("plain", "moved")} == {"completed"}


def test_history_over_shards_and_pages(world: InProcess, client: TaskClient) -> None:
    numbers = count()
    for status, number in {"completed": 8, "failed": 5, "cancelled": 3}.items():
        for _ in range(number):
            task_id = f"{status}-{next(numbers):02}"
            client.insert(task_id, due_at="2026-12-31T12:01:00Z")
            if status == "failed":
                world.actions.behaviour[task_id] = fail
            if status == "cancelled":
                client.cancel(task_id)
    world.next_tick()
    for n in range(6):
        client.insert(f"scheduled-{n}", due_at="2026-12-31T12:02:00Z")
    row = world.row("scheduled-0")
    until = world.clock() + timedelta(minutes=5)
    world.store.write(
        claim("scheduled-0", Bucket.parse(row["taskDateTime"]), token="t", lease_until=until, now=world.clock())
    )

    def found(limit: int, status: str | None = None) -> list[str]:
        ids: list[str] = []
        token = None
        while True:
            page = client.history(
                start="2026-12-31T12:00:00Z", end="2026-12-31T12:05:00Z", status=status, limit=limit, page_token=token
            )
            assert len(page.entries) <= limit
            ids += [entry.task_id for entry in page.entries]
            if (token := page.next_page_token) is None:
                return ids

    whole = found(1000)
    assert len(whole) == len(set(whole)) == 22
    assert found(1) == found(3) == found(21) == found(22) == whole
    assert len(client.history("2026-12-31#12:01").entries) == 16
    for status, number in {"completed": 8, "failed": 5, "cancelled": 3, "scheduled": 5, "running": 1}.items():
        assert len(found(2, status)) == len(found(100, status)) == number
    assert [(counts.bucket, dict(counts.counts)) for counts in client.bucket_counts(start=0, end=60)] == []
    counted = client.bucket_counts(start="2026-12-31T12:00:00Z", end="2026-12-31T12:05:00Z")
    assert [(counts.bucket, dict(counts.counts)) for counts in counted] == [
        ("2026-12-31#12:01", {"completed": 8, "failed": 5, "cancelled": 3}),
        ("2026-12-31#12:02", {"scheduled": 5, "running": 1}),
    ]
    ticks = [tick for tick in client.ticks() if isinstance(tick, TickView)]
    assert sum(tick.completed for tick in ticks) == 8
    assert {tick.shard for tick in ticks} == {0, 1, 2}


def test_many(world: InProcess, client: TaskClient) -> None:
    tasks = [
        {"taskId": f"t{n}", "dueAt": "2026-12-31T12:01:00Z"} if n % 10 else {"taskId": f"t{n}"} for n in range(120)
    ]
    assert list(client.insert_lazily(tasks)) == [Inserted(n, f"t{n}") for n in range(120)]
    again = {type(result).__name__ for result in client.insert_lazily(tasks)}
    assert again == {"Exists"}
    for n in range(0, 120, 10):
        world.stream(world.row(f"t{n}"))
    world.ticks(2)
    assert sorted(ran[0] for ran in world.actions.ran) == sorted(f"t{n}" for n in range(120))


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


@pytest.mark.atomic_writes
def test_of_two_inserts_exactly_one_wins(world: InProcess, client: TaskClient) -> None:
    def insert(n: int) -> TaskView | None:
        try:
            return client.insert("x", due_at=WHEN, payload={"n": n})
        except TaskExists:
            return None

    with ThreadPoolExecutor(4) as pool:
        views = [view for view in pool.map(insert, range(4)) if view is not None]
    assert len(views) == 1
    assert client.get("x").payload == views[0].payload


def test_a_missing_table_is_reported(store: DynamoStore) -> None:
    # On moto there is no endpoint to name: the SDK's calls are caught wherever they go.
    client = TaskClient.connect("no-such-table", endpoint_url=store._connection.connection.host)
    with pytest.raises(StoreError, match=r"not found|non-existent|not exist"):
        client.insert("x", delay_seconds=5)


def test_the_command_line(store: DynamoStore, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    where = ["--table", store.table]
    if (endpoint := store._connection.connection.host) is not None:
        where += ["--endpoint-url", endpoint]

    def run(*arguments: str) -> tuple[int, str]:
        code = cli.run([*arguments, *where, "-o", "json"])
        return code, capsys.readouterr().out

    assert run("task", "add", "x", "--at", "2099-12-31#12:00", "--payload", '{"n": 1}')[0] == 0
    assert run("task", "add", "x") == (5, "")
    file = tmp_path / "tasks.ndjson"
    file.write_text('{"taskId": "x"}\n{"taskId": "y", "taskDateTime": "2099-12-31#12:00"}\n')
    code, output = run("task", "import", str(file))
    assert (code, json.loads(output)) == (0, {"inserted": 1, "exists": 1, "refused": 0, "unknown": 0})
    code, output = run("task", "list", "--bucket", "2099-12-31#12:00")
    assert (code, [task["taskId"] for task in json.loads(output)["tasks"]]) == (0, ["y"])  # x waits for the scheduler
    assert json.loads(run("task", "cancel", "x")[1])["status"] == "cancelled"
    assert json.loads(run("task", "get", "y")[1])["status"] == "unscheduled"
    assert run("task", "get", "z") == (4, "")


def test_failed_tasks_are_redriven_by_filter(world: InProcess, client: TaskClient) -> None:
    for n in range(30):
        world.actions.behaviour[f"t{n:02d}"] = fail
        client.insert(f"t{n:02d}", task_date_time="2026-12-31#12:01")
    world.next_tick()
    filters = {"bucket": "2026-12-31#12:01", "error": "BROKE"}
    meant = list(client.redrive_many(**filters, dry_run=True))
    assert {type(result) for result in meant} == {WouldChange}
    assert {client.get(result.task_id).status for result in meant} == {"failed"}
    assert {type(result) for result in client.redrive_many(**filters)} == {Changed}
    assert list(client.redrive_many(**filters)) == []
    world.actions.behaviour.clear()
    world.next_tick()
    assert {client.get(result.task_id).status for result in meant} == {"completed"}
    assert len(meant) == 30


def test_the_doctor_repairs_what_the_stream_lost(world: InProcess, client: TaskClient) -> None:
    client.store.create({"taskId": "unseen", "delaySeconds": 5})
    client.store.create({"taskId": "null", "outcome": None})
    assert client.doctor().kinds == {"never-normalised": 2}
    assert client.doctor(repair=True).is_healthy
    assert client.doctor().found == 0
    world.next_tick()
    assert {client.get(name).status for name in ("unseen", "null")} == {"completed"}

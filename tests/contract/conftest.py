"""The stores that the contract tests run against.

In memory; DynamoDB by moto, which has no conditional PartiQL and so gets single writes; DynamoDB by the local emulator
with batches and without; by the counting endpoint of the benchmarks; and any endpoint given by --dynamodb-endpoint,
likewise. Tables are made from template.yaml.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from moto import mock_aws

from dynatick.engine.ports import Store
from dynatick.store.dynamodb import DynamoStore
from dynatick.store.memory import MemoryStore
from dynatick_stack import emulator
from dynatick_stack.counting.counts import counting
from dynatick_stack.template import table_definition

KINDS = ["memory", "moto", "counting-batched"]
# The emulator starts in half a minute, and is slow. Single writes go to moto in every run.
ON_THE_EMULATOR = {"emulator-batched": pytest.mark.long, "emulator-single": pytest.mark.night}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "store" in metafunc.fixturenames:
        given = metafunc.config.getoption("--dynamodb-endpoint") is not None
        kinds = [*KINDS] + (["endpoint-single", "endpoint-batched"] if given else [])
        if metafunc.definition.get_closest_marker("atomic_writes"):
            kinds.remove("moto")
        slow = [pytest.param(kind, marks=mark) for kind, mark in ON_THE_EMULATOR.items()]
        metafunc.parametrize("store", [*kinds, *slow], indirect=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """On moto, which is slow, what the whole engine does is run with its first parameters, and pages of a megabyte are
    not: the rest is long. In memory and on the counting endpoint all is in every run."""
    seen = {"test_store.py::test_pages_of_a_megabyte_are_all_read"}
    for item in items:
        if not isinstance(item, pytest.Function) or not item.path.is_relative_to(Path(__file__).parent):
            continue
        if "store" in item.fixturenames and item.callspec.params["store"] == "moto":
            name = f"{item.path.name}::{item.originalname}"
            if name in seen:
                item.add_marker(pytest.mark.long)
            elif "world" in item.fixturenames:
                seen.add(name)


@pytest.fixture(scope="session")
def emulator_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    state: Path = tmp_path_factory.mktemp("emulator")
    running = emulator.start(0, state_dir=state, say=lambda text: None)
    yield running.endpoint
    emulator.stop(state_dir=state)


@pytest.fixture(scope="session")
def counting_endpoint() -> Iterator[str]:
    with counting() as engine:
        yield engine.url


@pytest.fixture
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    kind: str = request.param
    if kind == "memory":
        yield MemoryStore()
    elif kind == "moto":
        with mock_aws():
            yield _table(None, batched=False)
    else:
        where, _, how = kind.partition("-")
        fixture = "dynamodb_endpoint" if where == "endpoint" else f"{where}_endpoint"
        endpoint: str = request.getfixturevalue(fixture)
        made = _table(endpoint, batched=how == "batched")
        yield made
        boto3.client("dynamodb", endpoint_url=endpoint).delete_table(TableName=made.table)


def _table(endpoint: str | None, *, batched: bool) -> DynamoStore:
    name = f"contract-{uuid.uuid4().hex}"
    client = boto3.client("dynamodb", endpoint_url=endpoint)
    client.create_table(TableName=name, **table_definition())
    client.get_waiter("table_exists").wait(TableName=name)
    return DynamoStore(name, endpoint_url=endpoint, batched=batched)

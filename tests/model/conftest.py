"""The tables that the model is held against, and how long it is tried."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import boto3
import pytest
from hypothesis import HealthCheck, settings
from moto import mock_aws
from tests.model.machine import Fresh, Machine

from dynatick.store.codec import encode
from dynatick.store.dynamodb import DynamoStore
from dynatick.store.memory import MemoryStore
from dynatick_stack import emulator
from dynatick_stack.template import table_definition

STEPS = 30

TableOf = Callable[[], Fresh]
ModelSettings = Callable[[int], settings]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--model-examples",
        type=int,
        metavar="N",
        default=None,
        help="try the model with so many random sequences, others each time; without it, with the same few each time",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if _examples(config) is not None:
        for item in items:
            if "model_settings" in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.timeout(0))


def _examples(config: pytest.Config) -> int | None:
    """Not known if pytest was given no path of this folder to begin with."""
    found: int | None = config.getoption("--model-examples", default=None)
    return found


@pytest.fixture
def model_settings(request: pytest.FixtureRequest) -> ModelSettings:
    """How a model is tried: the same sequences each time, so many, unless more are asked for."""
    asked = _examples(request.config)

    def make(examples: int) -> settings:
        return settings(
            max_examples=asked or examples,
            stateful_step_count=STEPS,
            derandomize=asked is None,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            report_multiple_bugs=False,
        )

    return make


@pytest.fixture(scope="session")
def emulator_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    state: Path = tmp_path_factory.mktemp("model-emulator")
    running = emulator.start(emulator.free_port(), state_dir=state, say=lambda text: None)
    yield running.endpoint
    emulator.stop(state_dir=state)


@pytest.fixture
def fresh_table(request: pytest.FixtureRequest) -> Iterator[TableOf]:
    """Makes tables of a kind: ``memory``; ``moto``, with single writes; ``emulator``, with batches."""
    kind: str = request.param
    with ExitStack() as stack:
        if kind == "moto":
            stack.enter_context(mock_aws())
        endpoint = request.getfixturevalue("emulator_endpoint") if kind == "emulator" else None
        yield in_memory if kind == "memory" else lambda: _in_dynamodb(endpoint, batched=kind == "emulator")


def in_memory() -> Fresh:
    store = MemoryStore()
    return store, store.put, lambda: None


def _in_dynamodb(endpoint: str | None, *, batched: bool) -> Fresh:
    name = f"model-{uuid.uuid4().hex}"
    client = boto3.client("dynamodb", endpoint_url=endpoint)
    client.create_table(TableName=name, **table_definition())
    client.get_waiter("table_exists").wait(TableName=name)

    def put(row: Any) -> None:
        client.put_item(TableName=name, Item=encode(row))

    store = DynamoStore(name, endpoint_url=endpoint, batched=batched)
    return store, put, lambda: client.delete_table(TableName=name) and None


def machine_on(table: TableOf) -> type[Machine]:
    """The state machine over fresh tables of a kind."""
    return type("Model", (Machine,), {"table": staticmethod(table)})

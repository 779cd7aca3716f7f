"""The tables that the model is held against, and how long it is tried."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from unittest.mock import patch

import pytest
from moto import mock_aws
from tests.model.batch_machine import BatchMachine, KeyedBatchMachine
from tests.model.key_machine import KeyMachine
from tests.model.rate_machine import RateMachine
from tests.model.schedule_machine import ScheduleMachine
from tests.model.tables import TableOf, in_dynamodb, in_memory
from tests.model.task_machine import TaskMachine
from tests.search.seed import search_seed

from dynatick.engine import invocation, sharing
from dynatick_stack import emulator

# What is tried on a table of which kind, how many sequences each time, and from which seed they are made up. A search
# goes on with other seeds, in memory.
FIXED = [
    *((TaskMachine, "memory", examples, part) for part, examples in enumerate((20, 60, 60, 60), 1)),
    *((TaskMachine, "moto", 2, part) for part in range(1, 3)),
    *((TaskMachine, "emulator-batched", 2, part) for part in range(1, 3)),
    *((ScheduleMachine, "memory", examples, part) for part, examples in enumerate((15, 50, 50, 50), 1)),
    *((ScheduleMachine, kind, 2, 1) for kind in ("moto", "emulator-batched")),
    *((BatchMachine, "memory", examples, part) for part, examples in enumerate((8, 40, 40), 1)),
    *((BatchMachine, kind, 2, 1) for kind in ("moto", "emulator-batched")),
    *((KeyMachine, "memory", examples, part) for part, examples in enumerate((10, 50, 50), 1)),
    *((KeyMachine, kind, 2, 1) for kind in ("moto", "emulator-batched")),
    *((RateMachine, "memory", examples, part) for part, examples in enumerate((4, 40, 40), 1)),
    *((RateMachine, kind, 2, 1) for kind in ("moto", "emulator-batched")),
    *((KeyedBatchMachine, "memory", examples, part) for part, examples in enumerate((8, 40, 40), 1)),
    *((KeyedBatchMachine, kind, 2, 1) for kind in ("moto", "emulator-batched")),
]
AT_ENDPOINT = [
    (machine, f"endpoint-{how}", 5, part)
    for machine in (TaskMachine, ScheduleMachine, BatchMachine, KeyMachine, RateMachine, KeyedBatchMachine)
    for how in ("single", "batched")
    for part in range(1, 3)
]
# Of each situation, by seed.
VARIATIONS = (pytest.param(0, marks=pytest.mark.long), pytest.param(1, marks=pytest.mark.night))
SEEDS = 100  # of each round of a search, at most


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "fresh_table" not in metafunc.fixturenames:
        return
    given = metafunc.config.getoption("--dynamodb-endpoint") is not None
    cases = []
    for machine, kind, examples, part in [*FIXED, *(AT_ENDPOINT if given else [])]:
        marks = [pytest.mark.draws] if kind == "memory" else []
        marks += [pytest.mark.night] if part > 1 else [] if kind == "memory" else [pytest.mark.long]
        cases.append(pytest.param(machine, kind, examples, part, marks=marks, id=f"{machine.of}-{kind}-{part}"))
    metafunc.parametrize(("machine", "fresh_table", "examples", "part"), cases, indirect=["fresh_table"])


@pytest.fixture
def start(part: int) -> int:
    """The seed of the sequences of a part."""
    return (search_seed() or 0) * SEEDS + part


@contextmanager
def small_buckets() -> Iterator[None]:
    """The buckets of the model hold few tasks: they are worth sharing with workers all the same."""
    with ExitStack() as stack:
        for name in ("_MIN_MEASURED", "_MAX_MEASURED"):
            stack.enter_context(patch.object(invocation, name, timedelta(milliseconds=1)))
        for name, value in (("SOON", timedelta()), ("MIN_WORK", timedelta()), ("GRAIN", 4)):
            stack.enter_context(patch.object(sharing, name, value))
        yield


@pytest.fixture(autouse=True)
def divide_small_buckets() -> Iterator[None]:
    with small_buckets():
        yield


@pytest.fixture(params=VARIATIONS)
def variation(request: pytest.FixtureRequest) -> int:
    """The seed of a variation of a sequence."""
    number: int = request.param
    return (search_seed() or 0) * SEEDS + number


@pytest.fixture(scope="session")
def emulator_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    state: Path = tmp_path_factory.mktemp("model-emulator")
    running = emulator.start(0, state_dir=state, say=lambda text: None)
    yield running.endpoint
    emulator.stop(state_dir=state)


@pytest.fixture
def fresh_table(request: pytest.FixtureRequest) -> Iterator[TableOf]:
    """Makes tables of a kind: ``memory``; ``moto``, with single writes, for it has no conditional PartiQL;
    ``emulator-batched``; and at an endpoint given by --dynamodb-endpoint, with batches and without."""
    kind: str = request.param
    where, _, how = kind.partition("-")
    with ExitStack() as stack:
        if where == "memory":
            yield in_memory
        elif where == "moto":
            stack.enter_context(mock_aws())
            yield partial(in_dynamodb, None, batched=False)
        else:
            endpoint: str = request.getfixturevalue("emulator_endpoint" if where == "emulator" else "dynamodb_endpoint")
            yield partial(in_dynamodb, endpoint, batched=how == "batched")

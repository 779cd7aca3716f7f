"""The engine and the worlds of the fault tests. ``make faults`` prints what they counted (see table.py).

With --dynamodb-endpoint their tables are there, and only queues and targets on the emulator.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.faults.figures import Figures
from tests.faults.world import World
from tests.sandbox.clock import START

from dynatick_stack import emulator

NewWorld = Callable[..., World]
Report = Callable[[Figures], Figures]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fault-scale", type=int, metavar="N", default=1, help="make the large backlogs N times as large (1)"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """In a run of all layers one process has the faults, and so one emulator."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.xdist_group("faults"))


@pytest.fixture
def scale(pytestconfig: pytest.Config) -> int:
    """How many times as large a large backlog shall be."""
    asked: int = pytestconfig.getoption("--fault-scale", default=1)
    return asked


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The endpoint of an emulator: DynamoDB with its streams, and SQS."""
    state: Path = tmp_path_factory.mktemp("engine")
    running = emulator.start(emulator.free_port(), state_dir=state, say=lambda text: None)
    yield running.endpoint
    emulator.stop(state_dir=state)


@pytest.fixture
def new_world(engine: str, dynamodb_endpoint: str | None, tmp_path: Path) -> Iterator[NewWorld]:
    """Makes worlds, after their first tick. ``start``: the time of their clock. The rest: settings of the functions."""
    with ExitStack() as worlds:
        numbers = iter(range(100))

        def make(**given: Any) -> World:
            folder = tmp_path / f"world-{next(numbers)}"
            folder.mkdir()
            start = given.pop("start", START)
            began = start - timedelta(minutes=1)
            world = worlds.enter_context(World(engine, folder, dynamodb=dynamodb_endpoint, start=began, **given))
            world.tick()  # the settings in force are known then, and the cursors there
            world.clock.to(start)  # however long that took
            return world

        yield make


@pytest.fixture
def world(new_world: NewWorld) -> World:
    return new_world()


@pytest.fixture
def report(request: pytest.FixtureRequest, record_property: Callable[[str, object], None]) -> Report:
    """Reports a test's figures to the table. Nothing may be lost, whatever the fault."""
    found = re.match(r"test_fault_(\d\d)_", request.node.name)
    assert found is not None, "the tests here are named by the number of their fault"

    def record(figures: Figures) -> Figures:
        assert figures.lost == 0, figures
        record_property("fault", {"number": int(found[1]), **asdict(figures)})
        return figures

    return record

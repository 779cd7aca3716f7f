"""The engine and the worlds of the fault tests. ``make faults`` prints what they counted (see table.py).

With --dynamodb-endpoint their tables are there, and only queues and targets on the emulator.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from proof.replay import Replay
from tests.faults.table import figures
from tests.sandbox.clock import START
from tests.sandbox.verdict import Verdict
from tests.sandbox.world import SECOND, World

from dynatick_stack import emulator

NewWorld = Callable[..., World]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--precision", choices=["tick", "second"], default="tick", help="that the faults of other tests meet (tick)"
    )
    parser.addoption(
        "--fault-scale", type=int, metavar="N", default=1, help="make the large backlogs N times as large (1)"
    )


# Beside the first test of each fault: these, too, are in every run, and all of test_silence.py, which are quick.
IN_EVERY_RUN = (
    "test_the_process_dies_at_each_step",
    "test_the_stream_loses_a_schedule",
    "test_an_overdue_occurrence_is_reported_whatever_happens_then",
)


def number_of(name: str) -> int | None:
    """Returns the number of the fault that a test injects."""
    found = re.match(r"test_fault_(\d\d)_", name)
    return found and int(found[1])


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`make test` runs one test of each fault, and a few others, with their first parameters, in a process of their
    own. The other tests are long, with their first parameters; those with others are for the night."""
    seen: set[object] = {None}
    for item in items:
        if isinstance(item, pytest.Function) and item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.xdist_group("faults"))
            if item.path.stem == "test_silence":
                continue
            of = item.originalname if item.originalname in IN_EVERY_RUN else number_of(item.name)
            if item.originalname in seen:
                item.add_marker(pytest.mark.night)
            elif of in seen:
                item.add_marker(pytest.mark.long)
            seen |= {of, item.originalname}


@pytest.fixture
def scale(pytestconfig: pytest.Config) -> int:
    """How many times as large a large backlog shall be."""
    asked: int = pytestconfig.getoption("--fault-scale", default=1)
    return asked


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The endpoint of an emulator: DynamoDB with its streams, and SQS."""
    state: Path = tmp_path_factory.mktemp("engine")
    running = emulator.start(0, state_dir=state, say=lambda text: None)
    yield running.endpoint
    emulator.stop(state_dir=state)


@pytest.fixture
def new_world(engine: str, dynamodb_endpoint: str | None, tmp_path: Path, request: pytest.FixtureRequest,
              record_property: Callable[[str, object], None]) -> Iterator[NewWorld]:  # fmt: skip
    """Makes worlds, after their first tick. ``start``: the time of their clock. The rest: settings of the functions.
    A test that sets the precision delivers wake-ups itself. ``assert_survived`` reports figures to the table.
    """

    def report(verdict: Verdict) -> None:
        record_property("fault", figures(verdict))

    def report_trace(replayed: Replay) -> None:
        record_property("trace", {"traces": 1, "events": replayed.events, "checks": replayed.checks.total()})

    with ExitStack() as worlds:
        numbers = iter(range(100))

        def make(start: Any = START, **settings: Any) -> World:
            folder = tmp_path / f"world-{next(numbers)}"
            folder.mkdir()
            delivers = "DYNATICK_PRECISION" not in settings and request.config.getoption("--precision") == "second"
            settings = SECOND | settings if delivers else settings
            begin = start - timedelta(minutes=1)
            # Those of other ways to run them have not been tried, nor those of the night's.
            is_usual = dynamodb_endpoint is None and request.node.get_closest_marker("night") is None
            world = worlds.enter_context(
                World(engine, folder, dynamodb=dynamodb_endpoint, start=begin, delivers_wake_ups=delivers,
                      is_traced=is_usual and not delivers, **settings)
            )  # fmt: skip
            world.report, world.report_trace = report, report_trace
            world.tick()  # the settings in force are known then, and the cursors there
            world.clock.to(start)  # however long that took
            return world

        yield make


@pytest.fixture
def world(new_world: NewWorld) -> World:
    return new_world()

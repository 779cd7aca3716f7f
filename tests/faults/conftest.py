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
from tests.faults.world import SECOND, World
from tests.sandbox.clock import START

from dynatick_stack import emulator

NewWorld = Callable[..., World]
Report = Callable[..., Figures]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--precision", choices=["tick", "second"], default="tick", help="that the faults of other tests meet (tick)"
    )
    parser.addoption(
        "--fault-scale", type=int, metavar="N", default=1, help="make the large backlogs N times as large (1)"
    )


# One test of each fault, and three of schedules: `make test` runs these, with their first parameters, in a process of
# their own. The others are long.
IN_EVERY_RUN = {
    "test_fault_01_inserted_while_its_bucket_is_polled",
    "test_fault_02_a_tick_is_missed_or_late",
    "test_fault_03_no_tick_while_tasks_arrive",
    "test_fault_04_pages_of_seven",
    "test_fault_05_an_insert_of_many_is_partly_accepted",
    "test_fault_06_dies_between_claiming_and_executing",
    "test_fault_07_dies_between_executing_and_recording",
    "test_fault_08_poison_among_healthy_tasks",
    "test_fault_09_malformed_rows_in_a_batch",
    "test_fault_10_cancel_races_with_execution",
    "test_fault_11_dies_between_letter_and_record",
    "test_fault_12_times_in_raw_rows",
    "test_fault_13_the_second_insert_is_refused",
    "test_fault_14_targets_that_fail",
    "test_fault_15_a_frozen_tick_wakes_up_after_others_took_over",
    "test_fault_16_a_batch_fails_half_way",
    "test_fault_17_interval_and_shards_change_with_tasks_waiting",
    "test_fault_18_deleted_after_its_process_died",
    "test_fault_19_the_table_is_away_when_it_comes_to_recording",
    "test_fault_20_what_was_claimed_at_once_and_not_begun",
    "test_fault_21_what_shows_in_the_final_poll_cannot_be_recorded",
    "test_fault_22_hostile_payloads_and_names",
    "test_fault_23_the_process_of_a_task_in_flight_is_not_kept",
    "test_fault_24_sixty_days_without_a_tick",
    "test_fault_25_a_tick_costs_what_it_did_before",
    "test_fault_26_while_the_first_pass_still_holds_it",
    "test_fault_27_killers_among_the_expired_fail_no_other",
    "test_fault_28_wake_ups_come_as_they_should_not",
    "test_fault_29_changed_after_its_wake_up_was_sent",
    "test_fault_30_workers_do_not_work_as_they_should",
    "test_fault_31_restored_to_a_point_in_time",
    "test_fault_32_rows_as_large_as_they_may_be",
    "test_the_process_dies_at_each_step",
    "test_the_stream_loses_a_schedule",
    "test_an_overdue_occurrence_is_reported_whatever_happens_then",
}


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    left = set(IN_EVERY_RUN)
    for item in items:
        if isinstance(item, pytest.Function) and item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.xdist_group("faults"))
            if item.originalname in left:
                left.remove(item.originalname)
            else:
                item.add_marker(pytest.mark.long)


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
def new_world(
    engine: str, dynamodb_endpoint: str | None, tmp_path: Path, pytestconfig: pytest.Config
) -> Iterator[NewWorld]:
    """Makes worlds, after their first tick. ``start``: the time of their clock. The rest: settings of the functions.
    A test that sets the precision delivers wake-ups itself.
    """
    with ExitStack() as worlds:
        numbers = iter(range(100))

        def make(**given: Any) -> World:
            folder = tmp_path / f"world-{next(numbers)}"
            folder.mkdir()
            start = given.pop("start", START)
            began = start - timedelta(minutes=1)
            delivers = "DYNATICK_PRECISION" not in given and pytestconfig.getoption("--precision") == "second"
            settings = SECOND | given if delivers else given
            world = worlds.enter_context(
                World(engine, folder, dynamodb=dynamodb_endpoint, start=began, delivers_wake_ups=delivers, **settings)
            )
            world.tick()  # the settings in force are known then, and the cursors there
            world.clock.to(start)  # however long that took
            return world

        yield make


@pytest.fixture
def world(new_world: NewWorld) -> World:
    return new_world()


@pytest.fixture
def report(request: pytest.FixtureRequest, record_property: Callable[[str, object], None]) -> Report:
    """Judges a test's world, and reports its figures to the table. Whatever the fault: nothing may be lost or wait, or
    be executed again unless its process died or its record was refused. ``given``: as ``World.judge`` takes it.
    """
    found = re.match(r"test_fault_(\d\d)_", request.node.name)
    assert found is not None, "the tests here are named by the number of their fault"

    def record(world: World, **given: Any) -> Figures:
        verdict = world.judge(**given)
        assert verdict.problems == []
        figures = Figures.of(verdict)
        record_property("fault", {"number": int(found[1]), **asdict(figures)})
        return figures

    return record

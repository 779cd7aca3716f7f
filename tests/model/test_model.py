"""Whatever happens, in whatever order: no task is lost, early, resurrected, executed after a cancel, or stuck; and each
run of a schedule is made once, or noted as missed.

The same sequences each time. Others, and more of them: ``make model EXAMPLES=5000``.
"""

from __future__ import annotations

import pytest
from tests.model.kept_faults import KEPT
from tests.model.kept_schedules import KEPT_FAULTS, backfill, put, tick, wait
from tests.model.machine import Machine
from tests.model.schedule_machine import ScheduleMachine, ScheduleRow
from tests.model.search import search, smaller, text_of
from tests.model.steps import Found, Step, play
from tests.model.surroundings import Surroundings
from tests.model.tables import TableOf, in_memory, machine_on


def test_no_sequence_of_operations_and_faults_harms_a_task(
    machine: type[Surroundings], fresh_table: TableOf, examples: int, start: int | None
) -> None:
    found = search(fresh_table, examples, start=start, machine=machine)
    if found is not None:
        kept = "kept_faults.py" if machine is Machine else "kept_schedules.py"
        fewer = text_of(smaller(found, fresh_table, machine=machine))
        pytest.fail(f"{found.says}\nTo be kept in tests/model/{kept}:\n{fewer}")


@pytest.mark.parametrize("name", KEPT)
def test_what_was_found_once_does_no_harm_any_more(name: str) -> None:
    found: Found = KEPT[name]
    assert play(machine_on(in_memory), found.steps) == ""


@pytest.mark.parametrize("name", KEPT_FAULTS)
def test_what_was_found_once_with_schedules_does_no_harm_any_more(name: str) -> None:
    assert play(machine_on(in_memory, ScheduleMachine), KEPT_FAULTS[name].steps) == ""


@pytest.mark.parametrize("overlap", ["allow", "skip"])
def test_an_occurrence_that_was_deleted_is_made_up_with_the_same_key(overlap: str) -> None:
    deleted = [put(ScheduleRow(overlap=overlap)), tick(), tick(), wait(50.0), Step("delete_occurrence", nth=0)]
    assert play(machine_on(in_memory, ScheduleMachine), [*deleted, backfill(3), wait(2.0), tick()]) == ""

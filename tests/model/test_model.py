"""Whatever happens, in whatever order: no task is lost, early, resurrected, executed after a cancel, or stuck; each run
of a schedule is made once, or recorded as missed; each member of a batch ends, and what follows is inserted once; and
no limit key has more tasks at once, or more often, than it may.

The same sequences each time. Others: ``make search``.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from tests.model.base_machine import BaseMachine
from tests.model.batch_machine import BatchMachine
from tests.model.counterexamples import (
    BATCH_REGRESSIONS,
    KEY_REGRESSIONS,
    REGRESSIONS,
    SCHEDULE_REGRESSIONS,
    Counterexample,
    backfill,
    put_schedule,
    tick,
    wait,
)
from tests.model.key_machine import KeyMachine
from tests.model.schedule_machine import ScheduleMachine
from tests.model.search import search, shrunk
from tests.model.steps import Step, replay
from tests.model.tables import TableOf, in_memory, machine_on
from tests.model.task_machine import TaskMachine


def test_no_sequence_of_operations_and_faults_harms_a_task(
    machine: type[BaseMachine], fresh_table: TableOf, examples: int, start: int
) -> None:
    found = search(fresh_table, examples, start=start, machine=machine)
    if found is not None:
        fewer = shrunk(found, fresh_table, machine=machine)
        pytest.fail(f"{found.violation}\nTo be kept in tests/model/counterexamples.py:\n{fewer}")


REPAIRED: Mapping[str, tuple[type[BaseMachine], Counterexample]] = {
    **{name: (TaskMachine, kept) for name, kept in REGRESSIONS.items()},
    **{name: (ScheduleMachine, kept) for name, kept in SCHEDULE_REGRESSIONS.items()},
    **{name: (BatchMachine, kept) for name, kept in BATCH_REGRESSIONS.items()},
    **{name: (KeyMachine, kept) for name, kept in KEY_REGRESSIONS.items()},
}


@pytest.mark.parametrize("name", REPAIRED)
def test_a_fault_that_was_repaired_has_not_come_back(name: str) -> None:
    machine, kept = REPAIRED[name]
    assert replay(machine_on(in_memory, machine), kept.steps) == ""


@pytest.mark.parametrize("overlap", ["allow", "skip"])
def test_an_occurrence_that_was_deleted_is_made_up_with_the_same_key(overlap: str) -> None:
    deleted = [put_schedule(overlap=overlap), tick(), tick(), wait(50.0), Step("delete_occurrence", nth=0)]
    assert replay(machine_on(in_memory, ScheduleMachine), [*deleted, backfill(3), wait(2.0), tick()]) == ""

"""Whatever happens, in whatever order: no task is lost, early, resurrected, executed after a cancel, or stuck; each run
of a schedule is made once, or recorded as missed; each member of a batch ends, and what follows is inserted once; and
no limit key has more tasks at once, or more often, than it may.

The same sequences each time. Others: ``make search``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from unittest.mock import patch

import pytest
from tests.model.base_machine import BaseMachine
from tests.model.batch_machine import BatchMachine, KeyedBatchMachine
from tests.model.counterexamples import (
    BATCH_REGRESSIONS,
    KEY_REGRESSIONS,
    ONCE,
    PLAN,
    REGRESSIONS,
    SCHEDULE_REGRESSIONS,
    SELDOM,
    Counterexample,
    backfill,
    begin,
    due,
    put_keyed,
    put_schedule,
    tick,
    wait,
)
from tests.model.installation import INDEX_LAG
from tests.model.key_machine import MANY, KeyMachine
from tests.model.rate_machine import RateMachine
from tests.model.rows import RawRow
from tests.model.schedule_machine import ScheduleMachine
from tests.model.search import search, shrunk
from tests.model.steps import Step, replay, replayed
from tests.model.tables import TableOf, in_memory, machine_on
from tests.model.task_machine import TaskMachine

from dynatick.domain.batches import OPEN
from dynatick.engine import batches


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
    **{name: (KeyedBatchMachine, kept) for name, kept in BATCH_REGRESSIONS.items()},
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


@pytest.mark.parametrize("shards", [1, 3])
def test_a_task_with_a_limit_key_begins_at_its_second_if_its_key_has_a_place(shards: int) -> None:
    """In calm, by the clock of the simulation: those that a tick plans, those that are put later, and a retry."""
    due_in = {"a": ("one:a", 70.0), "b": ("one:b", 71.2), "c": ("two:a", 71.6), "d": ("one:a", 100.0)}
    keyed = [put_keyed(RawRow(due(at)), "slow", "ok", key=key, task_id=name) for name, (key, at) in due_in.items()]
    late = put_keyed(RawRow(due(5.0)), "error", "ok", key="two:a", task_id="k00")
    steps = [begin(precise=True, grid=(1, shards)), tick(), *keyed, tick(), tick(), wait(2.0), late, tick(), tick()]
    found = replayed(machine_on(in_memory, KeyMachine), steps)
    assert found.violations == ""
    executions = [one for one in found.model.oracle.executions.values() if one.limit_key is not None]
    assert Counter(one.task.task_id for one in executions) == {"a": 1, "b": 1, "c": 1, "d": 1, "k00": 2}
    lateness = [one.began_at - one.task.not_before for one in executions if one.attempt == 1]
    assert max(lateness) < 2, "the second, rounded up, and what starts the pass"


def test_processes_of_two_shards_share_a_rate_and_use_all_of_it() -> None:
    found = replayed(machine_on(in_memory, RateMachine), SELDOM)
    assert found.violations == ""
    executions = list(found.model.oracle.executions.values())
    assert Counter(one.task.task_id for one in executions) == {f"k{n:02d}": 1 for n in range(MANY)}
    assert len({one.process for one in executions[16:22]}) == 2, "both have tasks that wait"
    began = [one.began_at for one in executions]
    assert began[-1] - began[0] < 1.1 * (MANY - 1) * 4.0


LOAD = Step("load", batch_id="a", client=0, over=0, plan=PLAN, policy=ONCE, scripts=(("ok",),), seconds=30.0)
OVERLOOKED_PACK = [begin(lag=4 * INDEX_LAG, seed=42), LOAD, wait(2.0)]
"""The index shows the batch in time, and its pack too late."""


def test_a_batch_may_wait_for_a_pack_that_only_reconcile_finds() -> None:
    found = replayed(machine_on(in_memory, BatchMachine), OVERLOOKED_PACK)
    assert found.violations == ""
    assert found.model.reconciled == [(1, 0), (0, 0)], "the pack; then nothing"


@pytest.mark.parametrize(
    ("steps", "violation"),
    [([LOAD], "a: waits for ever"), (OVERLOOKED_PACK, "a: not even reconcile has found it")],
    ids=["all are seen", "its pack is not"],
)
def test_a_batch_that_goes_on_waiting_after_its_members_is_reported(steps: list[Step], violation: str) -> None:
    with patch.object(batches, "standings", lambda *_: Counter({OPEN: 1})):
        assert violation in replay(machine_on(in_memory, BatchMachine), steps)

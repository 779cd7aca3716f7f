"""Whatever happens, in whatever order: no task is lost, early, resurrected, executed after a cancel, or stuck; each run
of a schedule is made once, or recorded as missed; each member of a batch ends, and what follows is inserted once; and
no limit key has more tasks at once, or more often, than it may.

The same sequences each time. Others: ``make search``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from unittest.mock import patch

import pytest
from tests.model.base_machine import BaseMachine
from tests.model.batch_machine import BatchMachine, KeyedBatchMachine
from tests.model.counterexamples import (
    AT_ONCE,
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
    by,
    conditions,
    due,
    known,
    put,
    put_keyed,
    put_schedule,
    tick,
    wait,
)
from tests.model.faulty_store import FREEZE_BEFORE, KILL_BEFORE, REFUSE, Fault, Plan
from tests.model.installation import INDEX_LAG, Installation, Tick
from tests.model.key_machine import MANY, KeyMachine
from tests.model.mutated import mutated
from tests.model.rate_machine import RateMachine
from tests.model.rows import RawRow, When
from tests.model.schedule_machine import ScheduleMachine
from tests.model.search import search, shrunk
from tests.model.steps import Step, replay, replayed
from tests.model.stream import StreamMode
from tests.model.tables import TableOf, in_memory, machine_on
from tests.model.task_machine import TaskMachine
from tests.mutations import MUTATIONS

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


SILENT = StreamMode(held=True)


def moved_late(fault: str) -> Sequence[Step]:
    """A pass that stood still writes a retry into a bucket that is closed by then; before it has read that, it meets a
    fault. The index shows the retry after the final poll, and the stream is silent."""
    plan = Plan(faults=(Fault(7, FREEZE_BEFORE, 100.0), Fault(29, fault, calls=9)))  # the write, and what follows it
    return [
        begin(mode=SILENT),
        tick(),
        put(known(1.0), "error", "ok", policy=AT_ONCE),
        conditions(lag=INDEX_LAG, seed=4, mode=SILENT),
        tick(by(plan), *[Tick()] * 4),
        wait(2.0),
    ]


LONG_AGO = RawRow(When(seconds=-3600.0), status="scheduled", attempt=0)
EXCUSED: Mapping[str, Sequence[Step]] = {
    "by hand": [begin(mode=SILENT), tick(), put(LONG_AGO), wait(2.0)],
    "by a process that died": moved_late(KILL_BEFORE),
    "by a process that can't read what is closed": moved_late(REFUSE),
}


@pytest.mark.parametrize("written", EXCUSED)
def test_a_row_that_no_tick_polls_is_excused_only_while_the_stream_keeps_its_record_back(written: str) -> None:
    steps, machine = EXCUSED[written], machine_on(in_memory)
    assert replay(machine, steps) == "", "at the end the scheduler finds it"
    with patch.object(Installation, "waits_for_stream", lambda *_: False):
        assert "no tick will poll it" in replay(machine, steps)
    (left_there,) = [one for one in MUTATIONS if one.what == "a newcomer to a closed bucket is left there"]
    with mutated(left_there):
        assert "waits for ever" in replay(machine, steps), "not before the end"
        assert "no tick will poll it" in replay(machine, [*steps, conditions(), wait(2.0)])


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

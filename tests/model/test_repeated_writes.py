"""The answer of each write is lost, or the SDK sends it again after it took effect: everything ends as if it had come.

A scenario is played once without a fault. Then once for each write that it made, and each fault: at that very write,
whichever process sends it. The same sequences each time; nothing is drawn.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from tests.model.base_machine import BaseMachine
from tests.model.counterexamples import (
    ALL,
    ONCE,
    SHORT,
    SOON,
    backfill,
    begin,
    change,
    change_schedule,
    due,
    insert,
    known,
    postpone,
    put,
    put_keyed,
    replace_by,
    reschedule,
    settle,
    tick,
    update,
    wait,
)
from tests.model.faulty_store import LOSE, REPEAT, Plan
from tests.model.installation import Tick
from tests.model.key_machine import KeyMachine
from tests.model.rows import RawRow, When
from tests.model.schedule_machine import ScheduleMachine, ScheduleRow
from tests.model.steps import Step, replayed
from tests.model.tables import in_memory, machine_on
from tests.model.task_machine import TaskMachine

TWICE = {"maximumRetryAttempts": 1, "minBackoffSeconds": 0}
TWO_SHARDS = (1, 2)


def of_script(task_id: str, when: When, *script: str, policy: object = None) -> Step:
    return Step("insert", task_id=task_id, when=when, script=script, policy=policy, plan=Plan(), client=0)


TASKS: Sequence[Step] = [
    begin(precise=True, grid=TWO_SHARDS),
    tick(),
    wait(2.0),
    insert("once", due(20.0), policy=ONCE),
    of_script("again", due(25.0), "error", "ok", policy=TWICE),
    of_script("fails", due(15.0), "permanent", "ok"),
    of_script("kills", due(70.0), "poison", "ok", policy=TWICE),
    insert("called off", due(300.0)),
    insert("replaced", due(200.0), policy=ONCE),
    insert("put off", due(10.0), policy=ONCE),
    put(SOON, task_id="raw"),
    put(RawRow(When(seconds=-61.0), status="scheduled", attempt=0), task_id="late"),
    put(RawRow(SOON, action=False, bad_time="soon"), task_id="malformed"),
    reschedule(due(90.0), "called off"),
    replace_by("replaced", due(40.0)),
    postpone("put off", due(35.0), 300.0),
    wait(0.5),
    change("cancel", task_id="called off"),
    wait(0.5),
    change("restore", task_id="called off"),
    wait(0.5),
    change("cancel", task_id="called off"),
    wait(40.0),
    change("redrive", task_id="fails"),
    tick(Tick(events=2)),
    wait(50.0),
    tick(),
    tick(),
    tick(),
    Step("reconcile", plan=Plan()),
    wait(5.0),
]
"""Wake-ups, passes of a busy and an idle shard, a recovery, a retry, a tick that fires twice, a client."""

TIME_IS_UP: Sequence[Step] = [
    begin(),
    tick(),
    wait(2.0),
    *(of_script(f"slow {n}", SOON, "slow", policy=ONCE) for n in range(5)),
    tick(Tick(plans=(SHORT,))),
    wait(45.0),
    put(RawRow(When(seconds=-46.0), status="scheduled", attempt=0), task_id="late"),
    Step("tick_again", tick=Tick(late=0.01), ago=0),
    tick(),
    wait(20.0),
]
"""A pass that has to release what it has claimed, and a second one of the same tick, which has something to do too."""

SCHEDULES: Sequence[Step] = [
    begin(),
    tick(),
    wait(2.0),
    Step("insert", task_id="s", row=ALL, script=("ok",), plan=Plan()),
    Step("put", task_id="t", row=ScheduleRow(expression="rate(2 minutes)"), script=("ok",), policy=ONCE),
    wait(2.0),
    tick(),
    tick(Tick(events=2)),
    change_schedule("pause"),
    tick(),
    change_schedule("resume"),
    wait(0.5),  # each request is answered before the next
    update("rate(2 minutes)"),
    wait(0.5),
    change_schedule("run"),
    wait(0.5),
    backfill(3),
    tick(),
    tick(),
]
"""Occurrences, moves of schedules, edits, extra occurrences."""

COMPLETIONS: Sequence[Step] = [
    begin(),
    tick(),
    wait(2.0),
    of_script("done", SOON, "later", policy=ONCE),
    of_script("fails", SOON, "later", policy=TWICE),
    of_script("again", SOON, "later", "ok", policy=TWICE),
    of_script("beats", SOON, "later", "ok", policy=TWICE),
    of_script("never", SOON, "later", policy=ONCE),
    of_script("with effects", SOON, "commit", policy=ONCE),
    of_script("called off", SOON, "later"),
    tick(),
    wait(20.0),
    settle("complete", "done"),
    wait(0.5),
    settle("fail", "fails"),
    wait(0.5),
    settle("fail for now", "again"),
    wait(0.5),
    change("cancel", task_id="called off"),
    wait(30.0),
    settle("heartbeat", "beats"),
    tick(),
    tick(),
    tick(),
    tick(),
    tick(),
    wait(5.0),
]
"""Effects with an outcome; and what is handed over is completed, failed, prolonged, retried, cancelled, forgotten."""

KEYS: Sequence[Step] = [
    begin(grid=TWO_SHARDS),
    tick(),
    wait(2.0),
    *(put_keyed(RawRow(SOON), task_id=f"one {n}", policy=ONCE) for n in range(4)),
    put_keyed(RawRow(SOON), "later", task_id="handed over", policy=TWICE),
    put_keyed(RawRow(SOON), "later", "ok", key="two:a", task_id="never", policy=TWICE),
    put_keyed(RawRow(SOON), "error", "ok", key="rate:a", task_id="again", policy=TWICE),
    put_keyed(RawRow(SOON), key="rate:a", task_id="in time", policy=TWICE),
    put_keyed(known(1.0, 1), key="both:a", task_id="stray", policy=TWICE),
    put_keyed(known(121.0, 0), key="both:a", task_id="second", policy=TWICE),
    tick(),
    wait(40.0),
    settle("complete", "handed over"),
    tick(),
    tick(),
    tick(),
    tick(),
    wait(5.0),
]
"""Limit keys: the lease is acquired, places are kept, and it is released; a rate, a retry, a task in another shard."""

SCENARIOS: dict[str, tuple[type[BaseMachine], Sequence[Step], set[str]]] = {
    "tasks": (
        TaskMachine,
        TASKS,
        {
            "new settings", "new cursor", "new tick", "new bucket", "cursor, held", "cursor, not held",
            "insert", "normalise", "move", "claim", "reclaim", "completed", "failed", "retry",
            "reschedule", "replace", "postpone", "cancelled", "redrive", "restore",
        },
    ),
    "time is up": (TaskMachine, TIME_IS_UP, {"release", "tick"}),
    "completions": (
        TaskMachine,
        COMPLETIONS,
        {
            "hand over", "completed", "failed by its token", "failed", "retry", "cancelled", "heartbeat", "reclaim",
            "completed with effects",
        },
    ),
    "limit keys": (
        KeyMachine,
        KEYS,
        {
            "new limits", "limits, held", "limits, held with places", "limits, not held",
            "limits, not held with places", "hand over", "move", "retry",
        },
    ),
    "schedules": (
        ScheduleMachine,
        SCHEDULES,
        {"insert", "new occurrence, claimed", "schedule", "completed", "other"},
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Played:
    """How a scenario ended."""

    violations: str
    writes: Sequence[str]  # their kinds, in order
    outcomes: dict[str, object]  # with the number of executions and of the last attempt, by task
    planned: frozenset[str]  # tasks for which a wake-up was sent


def play(scenario: str, fault: str | None = None, at: int | None = None) -> Played:
    """Plays a scenario, with a fault at its write number ``at``, from 0."""
    machine, steps, _ = SCENARIOS[scenario]
    writes: list[str] = []

    class Watched(machine_on(in_memory, machine)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model.store.fault_of = self.fault_of

        def fault_of(self, kind: str) -> str | None:
            if self.model.is_faultless:  # it comes to its end
                return None
            writes.append(kind)
            return fault if len(writes) - 1 == at else None

    made = replayed(Watched, steps)
    model = made.model
    executed = [execution.task.task_id for execution in model.oracle.executions.values()]
    return Played(
        violations=made.violations,
        writes=writes,
        outcomes={
            task_id: (row.get("outcome"), row.get("attempt"), executed.count(task_id))
            for row in model.table.everything()
            if "expected" in row and (task_id := str(row["taskId"]))
        },
        planned=frozenset(
            task_id
            for body in model.wake_up_queue.sent
            for task_id, *_ in json.loads(body)["dynatick"]["wakeUp"].get("tasks", ())
        ),
    )


def assert_as_without_a_fault(scenario: str, quiet: Played, fault: str, calls: Sequence[int]) -> None:
    for call in calls:
        found, what = play(scenario, fault, call), f"{quiet.writes[call]}, {fault}, write {call}"
        assert found.violations == "", what
        assert found.outcomes == quiet.outcomes, what
        assert found.planned == quiet.planned, what


def assert_complete(scenario: str, quiet: Played) -> None:
    kinds = {kind for write in quiet.writes for kind in write.split(" and ")}
    assert SCENARIOS[scenario][2] <= kinds, "the scenario has become another"
    assert quiet.violations == ""


@pytest.mark.parametrize("fault", [LOSE, REPEAT])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_each_kind_of_write_may_lose_its_answer_or_come_twice(scenario: str, fault: str) -> None:
    quiet = play(scenario)
    assert_complete(scenario, quiet)
    first = {kind: call for call, kind in reversed([*enumerate(quiet.writes)])}
    assert_as_without_a_fault(scenario, quiet, fault, sorted(first.values()))


@pytest.mark.long
@pytest.mark.parametrize("fault", [LOSE, REPEAT])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_each_single_write_may_lose_its_answer_or_come_twice(scenario: str, fault: str) -> None:
    quiet = play(scenario)
    assert_as_without_a_fault(scenario, quiet, fault, range(len(quiet.writes)))

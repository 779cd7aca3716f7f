"""Poison: tasks that always fail, that kill their process, that name no action there is. The others run."""

from __future__ import annotations

from tests.faults.conftest import Report
from tests.faults.world import AFTER_LEASE, World

HEALTHY = 200
ATTEMPTS = {"retryPolicy": {"maximumRetryAttempts": 2, "minBackoffSeconds": 0}}


def test_fault_08_poison_among_healthy_tasks(world: World, report: Report) -> None:
    world.insert_many([{"taskId": f"healthy-{n:03d}", "delaySeconds": 30} for n in range(HEALTHY)])
    killers = [f"killer-{n}" for n in range(3)]
    failing = [f"failing-{n}" for n in range(20)]
    unknown = [f"unknown-{n}" for n in range(10)]
    world.insert_many([{"taskId": i, "delaySeconds": 30, "payload": {"kill": True}, **ATTEMPTS} for i in killers])
    world.insert_many([{"taskId": i, "delaySeconds": 30, "payload": {"failures": 99}, **ATTEMPTS} for i in failing])
    for task_id in unknown:
        world.put(taskId=task_id, delaySeconds=30, action="no-such-action", fails=True)

    for number in range(30):
        newcomers = {f"later-{number:02d}-{n}" for n in range(5)}
        world.insert_many([{"taskId": task_id, "delaySeconds": 30} for task_id in newcomers])
        world.next_tick()
        if number:  # in the first tick they may be claimed together with a killer
            assert newcomers <= {execution.task_id for execution in world.ledger.done()}, number
        world.clock.forward(seconds=AFTER_LEASE)
        if not set(killers) & world.open():
            break
    # At most three attempts each; one may take the others' with it, in the first tick and in a recovery.
    assert 3 <= len(world.ledger.died()) <= 9
    world.finish()

    rows = world.rows()
    for task_id in killers:
        assert rows[task_id]["outcome"] == "failed"
        assert "its process died" in str(rows[task_id]["error"])
        assert rows[task_id]["attempt"] == 3
    tried = [execution.task_id for execution in world.ledger.begun() if execution.task_id in (*killers, *failing)]
    assert all(tried.count(task_id) == 3 for task_id in failing)
    assert all(1 <= tried.count(task_id) <= 3 for task_id in killers)
    letters = {letter["taskId"]: letter["error"] for letter in world.letters()}
    assert set(letters) == {*killers, *failing, *unknown}
    assert letters["failing-0"] == "failure 3, as planned"
    assert "there is no action" in letters["unknown-0"]

    figures = report(world)
    assert figures.otherwise == {"failed": len(letters)}
    assert figures.executed == figures.inserted - len(letters)

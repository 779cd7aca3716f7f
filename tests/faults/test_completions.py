"""Tasks that are completed later: a completion comes twice, late, forged, after a cancel, or never; heartbeats stop."""

from __future__ import annotations

from dataclasses import fields

import pytest
from tests.sandbox.journal import Began, Ended, Executed
from tests.sandbox.seam import Fault, Seam
from tests.sandbox.world import AFTER_LEASE, World

from dynatick import CompletionRefused
from dynatick.domain.completion import completion_token

WITHIN, HEARTBEAT = 600, 150  # seconds
POLICY = {"maximumRetryAttempts": 1, "minBackoffSeconds": 0}
LATER = {"payload": {"later": WITHIN}, "retryPolicy": POLICY}
BEATING = {"payload": {"later": WITHIN, "heartbeat": HEARTBEAT}, "retryPolicy": POLICY}


def token_of(world: World, task_id: str) -> str:
    """That of its latest attempt."""
    row = world.row(task_id)
    assert row["status"] == "waiting", row
    return completion_token(str(row["lease"]), task_id)


def complete(world: World, task_id: str, token: str | None = None) -> None:
    """Completes it, which is what its latest attempt has done."""
    done = world.client.complete(token or token_of(world, task_id), {"by": "token"})
    assert (done.status, done.result) == ("completed", {"by": "token"})
    began = [one for one in world.journal.of(Began) if one.task_id == task_id][-1]
    known = {one.name: getattr(began, one.name) for one in fields(Executed) if one.name != "at"}
    world.journal.add(Ended(**known, done=True, at=world.folder.now()))


def refused(world: World, token: str) -> str:
    """What a heartbeat and a completion hear."""
    said: set[str] = set()
    for change in (world.client.heartbeat, world.client.complete, lambda token: world.client.fail(token, "no")):
        with pytest.raises(CompletionRefused) as refusal:
            change(token)
        said.add(refusal.value.reason)
    (reason,) = said
    return reason


def test_fault_41_completions_come_twice_late_forged_after_a_cancel_or_never(world: World) -> None:
    world.insert_soon(["twice", "late", "forged", "cancelled"], **LATER)
    world.insert_soon(["never", "failed"], fails=True, **LATER)
    world.insert_soon(["beats", "stops"], **BEATING)
    world.next_tick()
    first = {task_id: token_of(world, task_id) for task_id in world.inserted}

    complete(world, "twice")
    assert world.client.complete(first["twice"], "another result").result == {"by": "token"}
    assert "no task waits with it" in refused(world, completion_token("forged", "forged"))
    complete(world, "forged")
    world.cancel("cancelled")
    assert "is cancelled" in refused(world, first["cancelled"])
    world.client.fail(first["failed"], "for good")

    for _ in range(WITHIN // 60 + 2):  # each minute a heartbeat; of another task, only the first
        world.next_tick()
        world.run_started()
        if "outcome" not in world.row("beats") and token_of(world, "beats") == first["beats"]:
            world.client.heartbeat(first["beats"])
        if "outcome" not in world.row("stops") and token_of(world, "stops") != first["stops"]:
            complete(world, "stops")
    assert "no task waits with it" in refused(world, first["stops"])
    for task_id in ("late", "never", "beats"):
        assert world.row(task_id)["attempt"] == 2, task_id
        assert "no task waits with it" in refused(world, first[task_id])
        if task_id != "never":
            complete(world, task_id)
    assert "no heartbeat came" in str(world.row("stops")["attempts"])
    assert "no completion came" in str(world.row("beats")["attempts"])
    world.clock.forward(seconds=WITHIN)
    world.assert_survived(failed=2, cancelled=1, repeated=0)
    assert "no completion came by" in str(world.row("never")["error"])
    assert (world.row("failed")["error"], world.row("failed")["attempt"]) == ("for good", 1)


@pytest.mark.parametrize("do", ["kill before", "kill after", "lose response", "throttle", "fail before"])
def test_fault_41_the_handing_over_is_disturbed(world: World, do: str) -> None:
    """Its record is lost, or its process dies before or after that. Members of a batch get their rows with it."""
    ids = world.insert_soon(4, **LATER)
    ids += world.insert_batch("news", [LATER["payload"]] * 3, retryPolicy=POLICY)
    world.next_tick(faults=[Fault(at="record", do=do)])
    world.clock.forward(seconds=AFTER_LEASE)
    world.next_tick()
    world.run_started()
    world.next_tick()
    for task_id in ids:
        complete(world, task_id)
    world.assert_survived()


@pytest.mark.parametrize("do", ["lose response", "throttle", "fail before"])
def test_fault_41_the_answer_to_a_completion_is_lost(world: World, do: str) -> None:
    """The SDK sends it again: it is answered as it took effect."""
    ids = world.insert_soon(["completed", "beats"], **BEATING)
    world.insert_soon(["failed"], fails=True, **BEATING)
    world.next_tick()
    tokens = {task_id: token_of(world, task_id) for task_id in world.inserted}
    seam = Seam()
    with seam.installed():
        seam.arm([Fault(at="record", do=do), Fault(at="by token", do=do, times=2)])
        complete(world, "completed")
        assert world.client.heartbeat(tokens["beats"]).status == "waiting"
        assert world.client.fail(tokens["failed"], "for good").error == "for good"
    assert sum(seam.hits.values()) == 3
    complete(world, "beats", tokens["beats"])
    world.assert_survived(failed=1, repeated=0)
    assert {world.row(task_id)["attempt"] for task_id in ids} == {1}

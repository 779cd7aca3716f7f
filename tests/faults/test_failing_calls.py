"""DynamoDB, the dead-letter queue and targets throttle, fail, lose responses, or take only a part of a batch."""

from __future__ import annotations

from tests.faults.conftest import NewWorld
from tests.sandbox.seam import Fault, Seam
from tests.sandbox.world import AFTER_LEASE, RECONCILE, World

from dynatick.client import Exists, Inserted, InsertUnknown
from dynatick.domain.task import is_own_row


def test_fault_05_batches_of_writes_are_partly_throttled(world: World) -> None:
    """Each try throttles other statements, and one batch outlasts all tries: the rest is written singly."""
    world.insert_soon(120)
    parts = [Fault(at=at, do="throttle parts", amount=0.4, times=10) for at in ("claim", "record")]
    outcome = world.next_tick(faults=parts)
    assert outcome.what == "returned"
    assert outcome.hits == {"throttle parts @ claim": 10, "throttle parts @ record": 10}
    completed = {task_id for task_id, row in world.rows().items() if row.get("outcome") == "completed"}
    assert completed == world.executed()
    world.assert_survived(repeated=0)


def test_fault_05_the_queue_takes_part_of_the_dead_letters(world: World) -> None:
    """A task whose dead letter is refused is not recorded as failed; it fails again, and sends it then."""
    world.insert_soon(30, payload={"permanent": True})
    outcome = world.next_tick(faults=[Fault(at="dead letters", do="refuse parts", amount=0.5, times=None)])
    assert outcome.hit > 0
    failed = {task_id for task_id, row in world.rows().items() if row.get("outcome") == "failed"}
    assert failed == world.dead_letter_ids()
    assert 0 < len(failed) < 30
    world.clock.forward(seconds=AFTER_LEASE)
    world.assert_survived(failed=30)
    assert world.dead_letter_ids() == world.inserted


def test_fault_11_dies_between_dead_letter_and_record(world: World) -> None:
    """The dead letter goes first: it may come twice, and no failure goes unreported."""
    world.insert_soon(10, payload={"permanent": True})
    # After whichever message comes first: two batches may be on their way at once.
    assert world.next_tick(faults=[Fault(at="dead letters", do="kill after", times=None)]).what == "killed"
    assert world.open() == world.inserted
    world.clock.forward(seconds=AFTER_LEASE)
    world.assert_survived(failed=10)
    assert world.dead_letter_ids() == world.inserted
    assert len(world.dead_letters()) > len(world.inserted)


def test_fault_11_what_we_keep_beside_the_tasks_is_deleted(world: World) -> None:
    """Cursors, settings, tick records: deleted by hand, with tasks overdue, due and still to come."""
    world.insert_many([{"taskId": f"t{n:03d}", "delaySeconds": 30 * n} for n in range(40)])
    world.next_tick()
    world.clock.forward(minutes=7)
    own = [task_id for task_id in world.items() if is_own_row(task_id)]
    assert len(own) >= 3
    for task_id in own:
        world.dynamodb.delete_item(TableName=world.table, Key={"taskId": {"S": task_id}})
    assert world.next_tick().what == "returned"
    assert world.invoke(RECONCILE).what == "returned"
    world.assert_survived()


# -- fault 19: tried again, and nothing counted that is not. -----------------------------------------------------------

TASKS = 300
EVERYWHERE = [
    Fault(at="any", do="fail before", chance=0.05, times=None),
    Fault(at="any", do="throttle", chance=0.05, times=None),
    Fault(at="any", do="lose response", chance=0.05, times=None),
    Fault(at="any", do="throttle parts", chance=0.3, amount=0.2, times=None),
    Fault(at="any", do="leave keys", chance=0.2, amount=0.3, times=None),  # six times in a row, a pass fails
    Fault(at="any", do="refuse parts", chance=0.3, amount=0.3, times=None),
]


def test_fault_19_the_responses_to_claims_and_records_are_lost(world: World) -> None:
    """The SDK tries again and is refused, but the rows show the process's own token: nothing waits."""
    world.insert_soon(50)
    outcome = world.next_tick(faults=[Fault(at=at, do="lose response", times=2) for at in ("claim", "record")])
    assert outcome.hits == {"lose response @ claim": 2, "lose response @ record": 2}
    assert {(row.get("outcome"), row["attempt"]) for row in world.rows().values()} == {("completed", 1)}
    world.assert_survived(repeated=0)


def test_fault_19_calls_fail_everywhere(new_world: NewWorld) -> None:
    """Calls of client, scheduler and processor fail, of every kind, for minutes."""
    world = new_world(DYNATICK_SHARD_COUNT="2")
    tasks = [
        {"taskId": f"t{n:03d}", "delaySeconds": 30, "retryPolicy": {"minBackoffSeconds": 0},
         "payload": {"failures": 1} if n % 10 == 0 else {"permanent": True} if n % 10 == 1 else {}}
        for n in range(TASKS)
    ]  # fmt: skip
    seam = Seam(seed=19)
    seam.arm(EVERYWHERE)
    with seam.installed():
        results = list(world.client.insert_lazily(tasks))
    # A task that was throttled at each try is given again. Where a response was lost, the SDK has inserted the task a
    # second time, and found its own.
    failed = [task for task, result in zip(tasks, results, strict=True) if isinstance(result, InsertUnknown)]
    assert len(failed) < TASKS / 10
    results = [result for result in results if not isinstance(result, InsertUnknown)]
    results += world.client.insert_lazily(failed)
    assert {type(result) for result in results} <= {Inserted, Exists}
    world.note_inserts(tasks)
    for number in range(60):
        world.put(taskId=f"raw-{number:02d}")
    # The scheduler makes few calls for these, so that chance alone might spare them.
    sure = Fault(at="any", do="throttle", times=2)
    assert sum(outcome.hit for outcome in world.deliver_stream(faults=[sure, *EVERYWHERE])) >= 2
    outcomes = [world.next_tick(faults=EVERYWHERE) for _ in range(4)]
    assert {outcome.what for outcome in outcomes} == {"returned"}
    # Which kinds of it is chance, and so is at which calls.
    assert sum(outcome.hit for outcome in outcomes) >= 5
    world.assert_survived(repeated=0, failed=TASKS // 10)
    assert world.dead_letter_ids() == {f"t{n:03d}" for n in range(1, TASKS, 10)}


def test_fault_19_the_table_is_away_when_it_comes_to_recording(world: World) -> None:
    """The outage outlasts the invocation. Nothing counts as done; all runs again, with the same key."""
    world.insert_soon(4)
    outcome = world.next_tick(faults=[Fault(at="record", do="refuse", times=None)])
    assert outcome.hit > 4
    assert len(world.journal.done()) == 4
    assert not any("outcome" in row for row in world.rows().values())
    world.deploy()  # the process, cut off from the table, is left alone
    world.clock.forward(seconds=AFTER_LEASE)
    world.assert_survived(executed=4, repeated=4)
    assert {row["attempt"] for row in world.rows().values()} == {2}

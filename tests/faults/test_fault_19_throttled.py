"""DynamoDB throttles, fails, and loses answers, in the middle of batches: tried again, nothing counted that is not."""

from __future__ import annotations

from tests.faults.conftest import NewWorld, Report
from tests.faults.world import AFTER_LEASE, World
from tests.sandbox.seam import Fault, Seam

from dynatick.client import Exists, Inserted, InsertUnknown

TASKS = 300
WEATHER = [
    Fault(at="any", do="fail before", chance=0.05, times=None),
    Fault(at="any", do="throttle", chance=0.05, times=None),
    Fault(at="any", do="lose answer", chance=0.05, times=None),
    Fault(at="any", do="throttle parts", chance=0.3, amount=0.2, times=None),
    Fault(at="any", do="leave keys", chance=0.2, amount=0.3, times=None),  # six times in a row, a pass fails
    Fault(at="any", do="refuse parts", chance=0.3, amount=0.3, times=None),
]


def test_fault_19_the_answers_to_claims_and_records_are_lost(world: World, report: Report) -> None:
    """They took effect. The SDK tries again and is refused, but the rows show one's own token: nothing waits."""
    world.insert_many([{"taskId": f"t{n:02d}", "delaySeconds": 30} for n in range(50)])
    outcome = world.next_tick(faults=[Fault(at=at, do="lose answer", times=2) for at in ("claim", "record")])
    assert outcome.hits == {"lose answer @ claim": 2, "lose answer @ record": 2}
    rows = world.rows()
    assert {(row.get("outcome"), row["attempt"]) for row in rows.values()} == {("completed", 1)}
    world.finish()
    figures = report(world)
    assert figures.executed == 50
    assert figures.repeated == 0


def test_fault_19_bad_weather_everywhere(new_world: NewWorld, report: Report) -> None:
    """Client, scheduler and processor meet it at every kind of call, for minutes."""
    world = new_world(DYNATICK_SHARD_COUNT="2")
    seam = Seam(seed=19)
    with seam.installed():
        seam.arm(WEATHER)
        tasks = [
            {"taskId": f"t{n:03d}", "delaySeconds": 30, "retryPolicy": {"minBackoffSeconds": 0},
             "payload": {"failures": 1} if n % 10 == 0 else {"permanent": True} if n % 10 == 1 else {}}
            for n in range(TASKS)
        ]  # fmt: skip
        results = list(world.client.insert_lazily(tasks))
        seam.arm([])
    # A task that was throttled at each try is given again. Where an answer was lost, the SDK has inserted the task a
    # second time, and found its own.
    failed = [task for task, result in zip(tasks, results, strict=True) if isinstance(result, InsertUnknown)]
    assert len(failed) < TASKS / 10
    results = [result for result in results if not isinstance(result, InsertUnknown)] + list(
        world.client.insert_lazily(failed)
    )
    assert {type(result) for result in results} <= {Inserted, Exists}
    world.note_inserts(tasks)
    for number in range(60):
        world.put(taskId=f"raw-{number:02d}")
    # The scheduler makes few calls for these, so that chance alone might spare them.
    sure = Fault(at="any", do="throttle", times=2)
    hits = sum(outcome.hit for outcome in world.deliver(world.stream.new(), faults=[sure, *WEATHER]))
    assert hits >= 2
    met = [world.next_tick(faults=WEATHER) for _ in range(4)]
    assert {outcome.what for outcome in met} == {"returned"}
    # Which kinds of it is chance, and so is at which calls.
    assert sum(outcome.hit for outcome in met) >= 5
    world.finish()
    figures = report(world)
    assert figures.executed == 60 + TASKS * 9 // 10
    assert figures.otherwise == {"failed": TASKS // 10}
    assert figures.repeated == 0
    assert {letter["taskId"] for letter in world.letters()} == {f"t{n:03d}" for n in range(1, TASKS, 10)}


def test_fault_19_the_table_is_away_when_it_comes_to_recording(world: World, report: Report) -> None:
    """For longer than the invocation lives. What ran is not counted as done; it runs again, with the same key."""
    world.insert_many([{"taskId": f"t{n}", "delaySeconds": 30} for n in range(4)])
    outcome = world.next_tick(faults=[Fault(at="record", do="refuse", times=None)])
    assert outcome.hit > 4
    executed = world.ledger.done()
    assert len(executed) == 4
    assert not any("outcome" in row for row in world.rows().values())
    world.deploy()  # the process, cut off from the table, is left alone
    world.clock.forward(seconds=AFTER_LEASE)
    world.finish()
    assert {row["attempt"] for row in world.rows().values()} == {2}
    figures = report(world)
    assert figures.executed == figures.repeated == 4

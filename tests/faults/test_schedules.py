"""Schedules under faults: no run is lost, and none is made twice.

Each nominal instant of a schedule has one occurrence. It may be executed again only where its process was killed
between execution and record, as any task.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.faults.conftest import NewWorld
from tests.faults.test_fault_21_lagging_index import seen_late
from tests.faults.worker import LAG, NO_LEASE
from tests.faults.world import AFTER_LEASE, LIFE, World
from tests.sandbox.clock import START
from tests.sandbox.journal import INSERT
from tests.sandbox.seam import Fault

from dynatick import TransitionRefused
from dynatick.domain.buckets import instant_of, minute_of
from dynatick.domain.instants import format_instant, parse_instant

EVERY_RUN: dict[str, Any] = {"catchUp": "all", "overlap": "allow"}
RECONCILE = {"dynatick": {"reconcile": True}}


def put(world: World, *ids: str, **row: Any) -> None:
    """Schedules for every minute, as raw items."""
    for schedule_id in ids:
        world.put(**{"taskId": schedule_id, "scheduleExpression": "rate(1 minute)", **row})
    world.deliver(world.stream.new())


def occurrences(world: World, schedule_id: str, revision: int = 1) -> dict[str, Any]:
    """The rows of a schedule's occurrences, by nominal instant."""
    prefix = f"{schedule_id}#{revision}#"
    return {task_id.removeprefix(prefix): row for task_id, row in world.rows().items() if task_id.startswith(prefix)}


def finish(world: World, maximum: int = 20) -> None:
    """Ticks until no task is open any more; schedules always are."""
    for _ in range(maximum):
        assert world.next_tick().what == "returned"
        if not any("outcome" not in row and row.get("status") != "recurring" for row in world.rows().values()):
            return
    raise AssertionError(f"still open: {sorted(world.open())[:10]}")


def minutes(first: datetime, last: datetime) -> list[str]:
    return [format_instant(instant_of(minute)) for minute in range(minute_of(first), minute_of(last) + 1)]


def check(world: World, *ids: str, first: datetime, last: datetime) -> None:
    """Every run of these minutes was executed, and no other; again only where it had to be."""
    check_executed(world, {f"{one}#1#{run}" for one in ids for run in minutes(first, last)})


def check_executed(world: World, expected: Collection[str]) -> None:
    """Judges the world as if these occurrences, and no others, were inserted as tasks: all were executed."""
    world.note(INSERT, *expected)
    verdict = world.judge()
    assert verdict.problems == []
    assert verdict.record_results == {"executed": len(expected)}


def started(world: World) -> datetime:
    """When the schedules that were put now have their first run."""
    return instant_of(minute_of(world.clock()) + 1)


def account(world: World, schedule_id: str, *, first: datetime, last: datetime) -> tuple[set[str], set[str]]:
    """The runs of these minutes that were executed, and those noted as missed: each is one or the other, and once; but
    for one that may still wait for the one before it to end.
    """
    prefix = f"{schedule_id}#1#"
    times = Counter(e.task_id.removeprefix(prefix) for e in world.ledger.done() if e.task_id.startswith(prefix))
    schedule = world.row(schedule_id)
    missed: list[str] = []
    for note in schedule.get("missed", []):  # type: ignore[attr-defined]
        runs = minutes(parse_instant(note["from"], "from"), parse_instant(note["until"], "until"))
        assert len(runs) == note["occurrences"]
        missed += runs
    assert len(missed) == len({*missed}) == schedule.get("missedOccurrences", 0)
    waiting = [str(schedule["bufferedOccurrenceAt"])] if "bufferedOccurrenceAt" in schedule else []
    assert sorted([*times, *missed, *waiting]) == minutes(first, last), "each once, and none beside"
    return {*times}, {*missed}


STEPS = [
    ("occurrence", "kill before"),
    ("occurrence", "kill after"),
    ("advance", "kill before"),
    ("advance", "kill after"),
    ("record", "kill before"),
    ("record", "kill after"),
    ("release shard", "kill before"),
]


def test_the_process_dies_at_each_step(world: World) -> None:
    """Also between writing an occurrence and moving its schedule on."""
    put(world, "s1", "s2", "s3", **EVERY_RUN)
    first = started(world)
    for at, do in STEPS:
        assert world.next_tick(faults=[Fault(at=at, do=do)]).what == "killed", (at, do)
    world.clock.forward(seconds=AFTER_LEASE)
    finish(world)
    check(world, "s1", "s2", "s3", first=first, last=world.clock())


@pytest.mark.parametrize("do", ["fail before", "lose answer", "throttle", "throttle parts"])
@pytest.mark.parametrize("at", ["occurrence", "advance"])
def test_the_table_fails(world: World, at: str, do: str) -> None:
    """Once, so that it is tried again, and so often that it is left for the next tick."""
    put(world, *(f"s{n}" for n in range(5)), **EVERY_RUN)
    first = started(world)
    amount = 0.5 if do == "throttle parts" else 0.0
    assert world.next_tick(faults=[Fault(at=at, do=do, amount=amount)]).hit == 1
    assert world.next_tick(faults=[Fault(at=at, do=do, amount=amount, times=30)]).hit >= 1
    world.clock.forward(seconds=AFTER_LEASE)
    finish(world)
    check(world, *(f"s{n}" for n in range(5)), first=first, last=world.clock())


@pytest.mark.parametrize(
    ("catch_up", "made"), [("all", range(1, 92)), ("latest", range(90, 92)), ("none", range(90, 92))]
)
def test_no_tick_for_ninety_minutes(world: World, catch_up: str, made: range) -> None:
    world.delivers_wake_ups = False  # with which passes would begin all the same
    put(world, "s", catchUp=catch_up, overlap="allow")
    world.next_tick(91)
    finish(world)
    expected = [format_instant(instant_of(minute_of(START) + n)) for n in (*made, *range(92, 200))]
    rows = occurrences(world, "s")
    assert list(rows) != []
    assert sorted(rows) == expected[: len(rows)]
    schedule = world.row("s")
    assert int(str(schedule.get("missedOccurrences", 0))) == 91 - len(made)
    if catch_up != "all":
        assert [dict(one)["reason"] for one in schedule["missed"]] == ["outage"]  # type: ignore[attr-defined]
    check_executed(world, {f"s#1#{run}" for run in rows})
    assert not world.ledger.died()


@pytest.mark.parametrize("lease", [True, False], ids=["shard lease", "no shard lease"])
def test_ticks_overlap(new_world: NewWorld, lease: bool) -> None:
    world = new_world(**({} if lease else {NO_LEASE: "1"}))
    put(world, *(f"s{n}" for n in range(10)), **EVERY_RUN)
    first = started(world)
    for _ in range(3):
        sandboxes = [world.sandbox() for _ in range(3)]
        for sandbox in sandboxes:
            sandbox.wait_until_ready()
        world.clock.to(instant_of(minute_of(world.clock()) + 1))
        for sandbox in sandboxes:
            sandbox.begin(world.event(), life=LIFE)
        assert [world.end(sandbox).what for sandbox in sandboxes] == ["returned"] * 3
    finish(world)
    check(world, *(f"s{n}" for n in range(10)), first=first, last=world.clock())
    assert max(Counter(e.task_id for e in world.ledger.done()).values()) == 1


@pytest.mark.parametrize("at", ["occurrence", "advance"])
def test_a_frozen_process_wakes_up_beside_its_successor(world: World, at: str) -> None:
    put(world, "s", **EVERY_RUN)
    first = started(world)
    world.clock.to(first)
    frozen = world.sandbox()
    frozen.begin(world.event(), life=LIFE, faults=[Fault(at=at, do="freeze before")])
    assert frozen.wait().what == "frozen"
    world.clock.forward(seconds=AFTER_LEASE)
    for _ in range(3):
        world.next_tick()
    frozen.thaw()
    world.end(frozen)
    finish(world)
    check(world, "s", first=first, last=world.clock())


def test_the_index_lags_while_processes_die(new_world: NewWorld) -> None:
    """The schedule has moved on, and its occurrence does not show yet: its bucket is not taken for drained."""
    world = new_world(**{LAG: "60 110"})
    with seen_late(world):
        put(world, "s1", "s2", **EVERY_RUN)
        first = started(world)
        for number in range(8):
            kill = [Fault(at="advance", do="kill after")] if number in (3, 5) else []
            world.next_tick(faults=kill)
        world.clock.forward(seconds=AFTER_LEASE)
        for _ in range(6):
            world.next_tick()
        killed = {task_id for task_id, row in world.rows().items() if row.get("attempt") == 2}
        assert killed, "nobody was killed holding an occurrence"
        last = world.clock()
        world.client.schedules.pause("s1")
        world.client.schedules.pause("s2")
        for _ in range(8):
            world.next_tick()
    check(world, "s1", "s2", first=first, last=last)


def test_the_stream_repeats_and_reorders(world: World) -> None:
    world.put(taskId="s", scheduleExpression="rate(1 minute)", **EVERY_RUN)
    records = world.stream.new()
    first = started(world)
    world.deliver(records)
    for _ in range(4):
        world.next_tick()
        later = world.stream.new()
        world.deliver([*reversed(later), *records, *later])
        records = [*records, *later]
    finish(world)
    check(world, "s", first=first, last=world.clock())


def test_the_stream_loses_a_schedule(world: World) -> None:
    """The daily reconcile makes one of it."""
    world.put(taskId="s", cronExpression="rate(1 minute)")
    world.stream.new()
    world.next_tick()
    assert "status" not in world.row("s")
    world.invoke(RECONCILE)
    first = started(world)
    finish(world)
    check(world, "s", first=first, last=world.clock())


def test_deleting(world: World) -> None:
    """The row ends the schedule; occurrences that are deleted or cancelled change nothing."""
    put(world, "stays", "goes", **EVERY_RUN, payload={"failures": 1}, retryPolicy={"minBackoffSeconds": 20})
    first = started(world)
    world.next_tick()
    run = minutes(first, first)[0]
    world.delete(f"stays#1#{run}")  # it waits for its second attempt
    world.cancel(f"goes#1#{run}")
    world.next_tick()
    world.delete("goes")
    last_of_goes = world.clock()
    for _ in range(5):
        world.next_tick()
    rows = world.rows()
    assert f"stays#1#{run}" not in rows
    assert rows[f"goes#1#{run}"]["outcome"] == "cancelled"
    assert "goes" not in rows
    done = {execution.task_id for execution in world.ledger.done()}
    assert done == {
        *(f"stays#1#{one}" for one in minutes(first + timedelta(minutes=1), world.clock() - timedelta(minutes=1))),
        *(f"goes#1#{one}" for one in minutes(first + timedelta(minutes=1), last_of_goes)),
    }


def test_the_schedule_is_deleted_while_its_tick_works(world: World) -> None:
    """It stays deleted: moving it on does not bring it back."""
    put(world, "s", **EVERY_RUN)
    first = started(world)
    world.clock.to(first)
    frozen = world.sandbox()
    frozen.begin(world.event(), life=LIFE, faults=[Fault(at="advance", do="freeze before")])
    assert frozen.wait().what == "frozen"
    world.delete("s")
    frozen.thaw()
    assert world.end(frozen).what == "returned"
    for _ in range(4):
        world.next_tick()
    assert "s" not in world.rows()
    check(world, "s", first=first, last=first)


def test_pausing_races_with_the_tick(world: World) -> None:
    """A run that was due before the pause is made, whatever comes first; and none after it."""
    put(world, "s", **EVERY_RUN)
    first = started(world)
    world.next_tick()
    world.clock.to(first + timedelta(minutes=1, seconds=5))  # its tick is late
    world.client.schedules.pause("s", "maintenance")
    world.next_tick()
    world.client.schedules.resume("s")
    world.client.schedules.pause("s", "again")
    world.client.schedules.resume("s")  # all within one interval
    resumed = world.clock()
    world.deliver(world.stream.new())
    for _ in range(3):
        world.next_tick()
    executed = Counter(execution.task_id for execution in world.ledger.done())
    paused_runs = minutes(first + timedelta(minutes=2), resumed)
    expected = [run for run in minutes(first, world.clock()) if run not in paused_runs]
    assert executed == Counter(f"s#1#{run}" for run in expected)
    assert {
        run.status for run in world.client.schedules.history("s") if format_instant(run.occurrence_at) in paused_runs
    } == {"missed"}


def test_an_edit_while_a_run_is_being_made(world: World) -> None:
    """The tick has written the occurrence and not moved the schedule on, when it is edited."""
    put(world, "s", **EVERY_RUN)
    first = started(world)
    world.clock.to(first)
    frozen = world.sandbox()
    frozen.begin(world.event(), life=LIFE, faults=[Fault(at="advance", do="freeze before")])
    assert frozen.wait().what == "frozen"
    world.client.schedules.update("s", expression="rate(2 minutes)", payload={"seconds": 0})
    frozen.thaw()
    assert world.end(frozen).what == "returned"
    for _ in range(5):
        world.next_tick()
    runs = Counter(execution.task_id for execution in world.ledger.done())
    every_other = [format_instant(first + timedelta(minutes=n)) for n in (0, 2, 4)]
    assert runs == Counter(f"s#1#{run}" for run in every_other)


def test_a_schedule_put_in_the_place_of_another(world: World) -> None:
    put(world, "s", **EVERY_RUN)
    first = started(world)
    world.next_tick()
    put(world, "s", payload={"seconds": 0}, **EVERY_RUN)
    second = started(world)
    world.next_tick()
    runs = Counter(execution.task_id for execution in world.ledger.done())
    assert runs == Counter([f"s#1#{format_instant(first)}", f"s#2#{format_instant(second)}"])
    with pytest.raises(TransitionRefused):
        world.client.cancel("s")


def test_redeployed_with_other_ticks_and_shards(new_world: NewWorld) -> None:
    world = new_world(DYNATICK_SHARD_COUNT="1")
    ids = [f"s{n}" for n in range(6)]
    put(world, *ids, **EVERY_RUN)
    first = started(world)
    for grid, shards, ticks in ((1, 1, 2), (5, 4, 2), (1, 2, 6), (2, 1, 3), (1, 1, 4)):
        world.deploy(DYNATICK_TICK_MINUTES=str(grid), DYNATICK_SHARD_COUNT=str(shards))
        for _ in range(ticks):
            world.tick_on_grid(grid)
    finish(world)
    check(world, *ids, first=first, last=world.clock())


def test_a_poison_schedule_holds_up_nobody(world: World) -> None:
    """Each of its runs kills its process; the others are made in time."""
    put(world, "poison", payload={"kill": True}, retryPolicy={"maximumRetryAttempts": 0}, overlap="allow")
    put(world, "s", **EVERY_RUN)
    first = started(world)
    for _ in range(4):
        world.next_tick()
        world.clock.forward(seconds=AFTER_LEASE)
    world.client.schedules.pause("poison")
    for _ in range(4):
        world.next_tick()
    executed = Counter(execution.task_id for execution in world.ledger.done())
    assert executed.keys() >= {f"s#1#{run}" for run in minutes(first, world.clock())}
    failed = {row["outcome"] for row in occurrences(world, "poison").values()}
    assert failed == {"failed"}


POLICIES: list[dict[str, Any]] = [
    {},
    {"catchUp": "none"},
    {"catchUp": "all", "overlap": "skip"},
    {"overlap": "bufferOne"},
    {"overlap": "allow"},
]


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_a_tick_dies_holding_a_run_and_none_comes_for_a_while(world: World, policy: dict[str, Any]) -> None:
    """It has written the occurrence and not moved the schedule on. By then that run is late, and others are due."""
    put(world, "s", **policy)
    first = started(world)
    assert world.next_tick(faults=[Fault(at="advance", do="kill before")]).what == "killed"
    world.next_tick(6)
    for _ in range(3):
        world.next_tick()
    finish(world)
    executed, _ = account(world, "s", first=first, last=world.clock())
    check_executed(world, {f"s#1#{run}" for run in executed})
    assert format_instant(first) in executed
    assert occurrences(world, "s")[format_instant(first)]["attempt"] == 2


@pytest.mark.parametrize("seed", range(3))
def test_processes_die_at_random_points(world: World, seed: int) -> None:
    dice = random.Random(seed)
    put(world, "every", **EVERY_RUN)
    put(world, "skips")
    put(world, "waits", overlap="bufferOne", catchUp="none")
    first = started(world)
    for _ in range(12):
        do = dice.choice(["kill before", "kill after"])
        world.next_tick(dice.choice([1, 1, 1, 2, 4]), faults=[Fault(at="any", do=do, skip=dice.randrange(14))])
    assert world.ledger.died()
    world.clock.forward(seconds=AFTER_LEASE)
    finish(world)
    made: set[str] = set()
    for one in ("every", "skips", "waits"):
        executed, missed = account(world, one, first=first, last=world.clock())
        assert executed
        assert not (missed and one == "every")
        made |= {f"{one}#1#{run}" for run in executed}
    check_executed(world, made)


@pytest.mark.parametrize("by_hand", [False, True], ids=["by a client", "by hand"])
def test_paused_resumed_and_edited_while_no_tick_comes(world: World, by_hand: bool) -> None:
    """All that was due before each of these is made; nothing of the pause, and then what the new definition names."""
    put(world, "s", **EVERY_RUN)
    first = started(world)

    def after(minutes: float, **edit: str) -> None:
        world.clock.to(first + timedelta(minutes=minutes - 1))
        if by_hand:
            for name, value in edit.items():
                world.dynamodb.update_item(
                    TableName=world.table,
                    Key={"taskId": {"S": "s"}},
                    UpdateExpression="SET #name = :value",
                    ExpressionAttributeNames={"#name": name},
                    ExpressionAttributeValues={":value": {"S": value}},
                )
        elif edit.get("scheduleState") == "DISABLED":
            world.client.schedules.pause("s")
        elif "scheduleState" in edit:
            world.client.schedules.resume("s")
        else:
            world.client.schedules.update("s", expression=edit["scheduleExpression"])
        world.deliver(world.stream.new())

    after(4.5, scheduleState="DISABLED")
    after(7.5, scheduleState="ENABLED")
    after(9.5, scheduleExpression="rate(2 minutes)")
    assert world.next_tick(3, faults=[Fault(at="advance", do="kill before")]).what == "killed"
    world.clock.forward(seconds=AFTER_LEASE)
    finish(world)
    last = int((world.clock() - first) / timedelta(minutes=1)) + 1
    wanted = [1, 2, 3, 4, 8, 9, *range(11, last + 1, 2)]
    check_executed(world, {f"s#1#{format_instant(first + timedelta(minutes=minute - 1))}" for minute in wanted})


def test_occurrences_are_cancelled_retried_moved_and_deleted(world: World) -> None:
    """Each changes that occurrence alone: every run of the schedule is made, and none of it again."""
    put(world, "s", **EVERY_RUN, payload={"failures": 1}, retryPolicy={"minBackoffSeconds": 900})
    first = started(world)
    for _ in range(4):
        world.next_tick()
    cancelled, moved, deleted, _ = (f"s#1#{run}" for run in minutes(first, world.clock()))  # they wait for a retry
    world.cancel(cancelled)
    world.reschedule(moved, due_at=world.clock() + timedelta(minutes=4))
    world.delete(deleted)
    world.next_tick()
    world.client.redrive(cancelled)
    for _ in range(8):
        world.next_tick()
    world.client.schedules.pause("s")
    last = world.clock()
    finish(world, maximum=60)
    tried = Counter(execution.task_id for execution in world.ledger.done())
    assert tried == Counter(f"s#1#{run}" for run in minutes(first, last) if f"s#1#{run}" != deleted)
    assert world.row(cancelled)["run"] == 2
    assert deleted not in world.rows()


def test_a_client_makes_up_what_a_late_tick_is_about_to_decide_on(world: World) -> None:
    put(world, "s", catchUp="none", overlap="allow")
    first = started(world)
    world.clock.to(first + timedelta(minutes=9, seconds=5))
    made = list(world.client.schedules.backfill("s", start=first, end=first + timedelta(minutes=4)))
    assert len(made) == 5
    world.next_tick(faults=[Fault(at="advance", do="kill before")])
    world.clock.forward(seconds=AFTER_LEASE)
    finish(world)
    executed, missed = account(world, "s", first=first, last=world.clock())
    check_executed(world, {f"s#1#{run}" for run in executed})
    assert executed >= {*minutes(first, first + timedelta(minutes=4))}
    assert missed


def test_redeployed_while_a_tick_is_at_work(world: World) -> None:
    """It goes on with the settings that it was begun with, beside those of the new version."""
    put(world, "s1", "s2", **EVERY_RUN)
    first = started(world)
    world.clock.to(first)
    old = world.sandbox()
    old.begin(world.event(), life=LIFE, faults=[Fault(at="occurrence", do="freeze before")])
    assert old.wait().what == "frozen"
    world.deploy(DYNATICK_TICK_MINUTES="5", DYNATICK_SHARD_COUNT="3")
    world.clock.forward(seconds=AFTER_LEASE)
    world.tick_on_grid(5)
    old.thaw()
    world.end(old)
    world.tick_on_grid(5)
    world.deploy(DYNATICK_TICK_MINUTES="1", DYNATICK_SHARD_COUNT="1")
    for _ in range(5):
        world.next_tick()
    finish(world)
    check(world, "s1", "s2", first=first, last=world.clock())


DEADLINE: dict[str, Any] = {
    "scheduleExpression": "cron(1 12 * * ? *)",
    "expectedWithinSeconds": 90,
    "payload": {"failures": 9},
    "retryPolicy": {"minBackoffSeconds": 3600, "maxBackoffSeconds": 3600},
}


def reports(world: World) -> list[tuple[str, str]]:
    """Of overdue occurrences: schedule and reason, as they were logged. Each is counted by the metric, too."""
    found = logged(world)
    assert counted(world) == len(found)
    return found


def logged(world: World) -> list[tuple[str, str]]:
    lines = [line for line in said(world) if line.get("action") == "occurrence_overdue"]
    return [(line["schedule_id"], line["reason"]) for line in lines]


def counted(world: World) -> float:
    return sum(sum(line.get("OccurrencesOverdue", [])) for line in said(world))


def said(world: World) -> list[dict[str, Any]]:
    """The logs and the metrics."""
    return [json.loads(line) for line in world.log.read_text().splitlines() if line.startswith("{")]


WAITS = "waits for attempt 2, at "


@pytest.mark.parametrize(
    ("fault", "times"),
    [
        (Fault(at="advance", do="kill before"), 2),  # reported, and the row has not forgotten it
        (Fault(at="advance", do="kill after"), 1),
        (Fault(at="advance", do="lose answer"), 1),
        (Fault(at="advance", do="fail before"), 1),  # the store tries again
        (Fault(at="advance", do="throttle parts", amount=1.0, times=30), 2),
        (Fault(at="any", do="kill before"), 1),  # before it has read anything
    ],
    ids=lambda value: f"{value.do} {value.at}" if isinstance(value, Fault) else "",
)
def test_an_overdue_occurrence_is_reported_whatever_happens_then(world: World, fault: Fault, times: int) -> None:
    """It waits for a retry an hour later, and its schedule has its next run tomorrow."""
    put(world, "s", **DEADLINE)
    world.next_tick()
    (run,) = occurrences(world, "s")
    assert world.row("s")["taskDateTime"] == "2026-12-31#12:03"
    world.next_tick()
    assert reports(world) == []
    assert world.next_tick(faults=[fault]).what == ("killed" if "kill" in fault.do else "returned")
    world.clock.forward(seconds=AFTER_LEASE)
    world.next_tick()
    found = reports(world)
    assert len(found) == times
    assert {(schedule_id, reason[: len(WAITS)]) for schedule_id, reason in found} == {("s", WAITS)}
    assert "awaited" not in world.row("s")
    assert world.row("s")["taskDateTime"] == "2027-01-01#12:01"
    world.next_tick(3)
    assert len(reports(world)) == times
    assert world.row(f"s#1#{run}")["status"] == "scheduled"


def test_an_overdue_occurrence_is_reported_again_if_its_metric_could_not_be_written(world: World) -> None:
    """An occurrence of the same batch runs all the same."""
    put(world, "s", **DEADLINE)
    put(world, "t", scheduleExpression="cron(3 12 * * ? *)")
    world.next_tick()
    world.next_tick()
    assert world.next_tick(faults=[Fault(at="metrics", do="fail before")]).what == "returned"
    (at,) = occurrences(world, "t")
    assert world.row(f"t#1#{at}")["outcome"] == "completed"
    world.next_tick()
    assert (len(logged(world)), counted(world)) == (2, 1)
    assert "awaited" not in world.row("s")


def test_an_occurrence_whose_process_died_is_overdue_before_it_is_reclaimed(world: World) -> None:
    put(world, "s", **DEADLINE | {"payload": {}, "expectedWithinSeconds": 60})
    killed = world.next_tick(faults=[Fault(at="record", do="kill before")])
    assert killed.what == "killed"
    world.next_tick()
    world.next_tick()
    assert reports(world) in ([("s", "still running, attempt 1")], [("s", "attempt 1 did not end: its process died")])
    finish(world)
    assert len(reports(world)) == 1


@pytest.mark.parametrize("lease", [True, False], ids=["shard lease", "no shard lease"])
def test_overlapping_ticks_report_what_is_overdue(new_world: NewWorld, lease: bool) -> None:
    """One does, and without the shard lease each that has read the row before another's write."""
    world = new_world(**({} if lease else {NO_LEASE: "1"}))
    put(world, *(f"s{n}" for n in range(5)), **DEADLINE)
    world.next_tick()
    world.next_tick()
    sandboxes = [world.sandbox() for _ in range(3)]
    for sandbox in sandboxes:
        sandbox.wait_until_ready()
    world.clock.to(instant_of(minute_of(world.clock()) + 1))
    for sandbox in sandboxes:
        sandbox.begin(world.event(), life=LIFE)
    assert [world.end(sandbox).what for sandbox in sandboxes] == ["returned"] * 3
    world.next_tick()
    times = Counter(schedule_id for schedule_id, _ in reports(world))
    assert set(times) == {f"s{n}" for n in range(5)}
    assert max(times.values()) <= (1 if lease else 3)
    assert all(world.row(f"s{n}")["taskDateTime"] == "2027-01-01#12:01" for n in range(5))


def test_a_frozen_process_does_not_undo_what_its_successor_made_of_a_deadline(world: World) -> None:
    put(world, "s", **DEADLINE)
    world.next_tick()
    world.next_tick()
    world.to_next_minute()
    frozen = world.sandbox()
    frozen.begin(world.event(), life=LIFE, faults=[Fault(at="advance", do="freeze before")])
    assert frozen.wait().what == "frozen"
    world.clock.forward(seconds=AFTER_LEASE)
    for _ in range(3):
        world.next_tick()
    after = world.row("s")
    assert "awaited" not in after
    frozen.thaw()
    world.end(frozen)
    assert world.row("s") == after
    assert len(reports(world)) == 2


def test_the_stream_and_the_index_are_behind_at_the_deadline(new_world: NewWorld) -> None:
    world = new_world(**{LAG: "60 110"})
    with seen_late(world):
        put(world, "s1", "s2", **DEADLINE)
        for _ in range(12):
            world.next_tick()
    assert sorted(schedule_id for schedule_id, _ in reports(world)) == ["s1", "s2"]

"""The rules of the protocol (docs/protocol.md), each by what goes wrong without it.

Every docstring says what breaking the rule would do to the test. Buckets are minutes after noon, when each world's
first tick has been.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal

import pytest
from tests.builders import NOON, key_of, scheduled_row
from tests.unit.engine.support import (
    NOON_MINUTE,
    Once,
    World,
    bucket_at,
    cannot,
    fails,
    ids,
    instant,
    is_claim,
    is_cursor,
    is_move,
    of,
    passed,
    rules,
    world,
)

from dynatick.domain.buckets import Bucket, Grid, minute_of
from dynatick.domain.conditional_update import ConditionalUpdate, Lost, Written
from dynatick.domain.lifecycle import cancel, reclaim, redrive, reschedule
from dynatick.domain.task import Row, Task
from dynatick.engine.assign import Arrival, assign
from dynatick.engine.cursor import acquire_shard, cursor_id, read_cursor, save
from dynatick.engine.ports import ActionContext
from dynatick.engine.reconcile import reconcile
from dynatick.errors import StoreError
from dynatick.store import memory
from dynatick.store.memory import MemoryStore

L = timedelta(seconds=120)


def world_with_closed_row() -> tuple[World, Row]:
    """With a new row in a bucket that is closed, as the stream shows it."""
    w = world()
    w.store.create(scheduled_row("t", bucket_at(-5)))
    return w, w.row("t")


def reschedules(w: World, minutes: int) -> None:
    later = reschedule(of(w.rigged.peek("t")), bucket=bucket_at(minutes), due_at=bucket_at(minutes).instant)
    assert isinstance(MemoryStore.write(w.rigged, later), Written)


def reclaims(w: World, task_id: str, attempt: int, *, lease_seconds: float) -> None:
    """Another process does, and is not heard of again."""
    now = w.clock()
    lease_until = now + timedelta(seconds=lease_seconds)
    taken = reclaim(w.row(task_id), attempt=attempt, token="another's", lease_until=lease_until, now=now)
    assert isinstance(MemoryStore.write(w.rigged, taken), Written)


def ran(w: World) -> list[str]:
    return [task_id for task_id, _, _ in w.actions.ran]


# -- 1: close first --------------------------------------------------------------------------------------------------


def test_rule_01_a_pass_closes_its_buckets_and_acquires_the_shard_in_one_write_before_it_polls() -> None:
    """Were the watermark written at the end, or the lease by itself, a poll would begin before buckets are closed."""
    w = world()
    met: list[tuple[int, bool]] = []
    w.rigged.before_poll = lambda bucket: met.append((w.cursor().closed_through, w.cursor().lease is not None))
    w.next_tick()
    assert set(met) == {(NOON_MINUTE + 1, True)}
    first = w.rigged.writes[0]
    assert is_cursor(first)
    assert first.set["closedThrough"] == "2026-12-31#12:01"
    assert first.set["lease"] is not None


def test_rule_01_c_never_goes_back() -> None:
    """Were it set to the tick instead of the later of the two, an old tick that comes late would open buckets again."""
    w = world()
    w.ticks(5)
    before = w.cursor()
    w.tick(at=NOON)
    assert w.cursor().closed_through == before.closed_through == NOON_MINUTE + 5
    assert w.cursor().drained_through >= before.drained_through


def test_rule_01_c_may_pass_what_waits_and_what_runs() -> None:
    """Did they hold the watermark back, a new task in the bucket would not be moved, and could miss its last poll."""
    w = world()
    w.insert("waits", "runs", at=bucket_at(1))
    w.claim("runs")
    w.rigged.throttled = is_claim
    w.next_tick()
    assert w.cursor().closed_through == NOON_MINUTE + 1
    assert w.outcome("waits") is None


def test_rule_01_a_tick_closes_even_while_another_process_has_the_shard_lease() -> None:
    """Did it leave closing to the holder, the watermark would lag behind the ticks while the holder works."""
    w = world()
    w.clock.forward(minutes=1)
    assert acquire_shard(w.store, 0, NOON_MINUTE + 1, token="busy", now=w.clock()).cursor is not None
    w.clock.forward(seconds=20)
    assert passed(w.tick(at=NOON + timedelta(minutes=1))).leased_elsewhere
    assert acquire_shard(w.store, 0, NOON_MINUTE + 2, token="other", now=w.clock()).cursor is None
    assert (w.cursor().closed_through, w.cursor().lease) == (NOON_MINUTE + 2, "busy")


# -- 2: poll every minute -----------------------------------------------------------------------------------------


def test_rule_02_every_minute_is_polled_when_the_grid_has_become_coarser() -> None:
    """Were only minutes of the present grid polled, the tasks of 12:07, 12:08 and 12:11 would be orphaned."""
    w = world()
    for minute in (7, 8, 11):
        w.insert(f"t{minute}", at=bucket_at(minute))
    w.reconfigure(tick_minutes=5)
    w.next_tick(10)
    assert {*ran(w)} == {"t7", "t8"}
    w.next_tick(5)
    assert ran(w)[2:] == ["t11"]


def test_rule_02_buckets_are_polled_oldest_first() -> None:
    """Were they not, a backlog would not be drained in order of due time."""
    w = world(rules=rules(threads=1))
    for minute in (9, 3, 7, 1):
        w.insert(f"t{minute}", at=bucket_at(minute))
    w.next_tick(10)
    assert ran(w) == ["t1", "t3", "t7", "t9"]
    first_looks = list(dict.fromkeys(bucket.minute for bucket in w.rigged.polls))
    assert set(first_looks) == set(range(w.cursor().drained_through + 1, NOON_MINUTE + 11)) | {NOON_MINUTE}


def test_rule_02_all_pages_of_a_bucket_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Was only the first page read, 25 of 35 would be stranded."""
    monkeypatch.setattr(memory, "PAGE", 10)
    w = world()
    w.insert(*ids(35))
    w.next_tick()
    assert len(w.actions.ran) == 35
    w.until_drained()


# -- 3: the drained watermark follows final polls that left nothing --------------------------------------------------


def test_rule_03_a_poll_is_final_only_after_the_index_lag() -> None:
    """Were a poll within the index lag final, the watermark would pass the bucket before its entry shows up."""
    w = world()
    bucket = bucket_at(1)
    w.store.create(scheduled_row("late", bucket))
    w.rigged.hidden = lambda entry: entry.task_id == "late"
    for _ in range(3):  # at 12:03 the bucket has been closed for two minutes: not yet L + 4 s
        w.next_tick()
        assert w.cursor().drained_through < bucket.minute
    assert w.clock() - bucket.instant >= L
    w.rigged.hidden = lambda entry: False
    w.ticks(3)
    assert w.outcome("late") == "completed"


def test_rule_03_wall_time_counts_and_not_buckets() -> None:
    """After an outage the closed watermark jumps over a hundred buckets; the drained one must not jump with it."""
    w = world()
    w.clock.forward(minutes=100)
    w.store.create(scheduled_row("late", bucket_at(50)))
    w.rigged.hidden = lambda entry: entry.task_id == "late"
    w.tick()
    w.clock.forward(seconds=1)
    w.tick()
    w.next_tick()
    assert w.cursor().closed_through >= NOON_MINUTE + 100
    assert w.cursor().drained_through < NOON_MINUTE + 50
    w.rigged.hidden = lambda entry: False
    w.ticks(3)
    assert w.outcome("late") == "completed"


def test_rule_03_a_row_that_is_leased_elsewhere_holds_the_watermark_back() -> None:
    """Did the watermark pass it, its process could die, and no tick would poll the bucket again."""
    w = world()
    w.insert("leased", at=bucket_at(1))
    w.claim("leased", until=NOON + timedelta(minutes=8))
    w.ticks(8)
    assert w.cursor().drained_through == NOON_MINUTE
    w.ticks(2)
    assert w.outcome("leased") == "completed"
    w.until_drained()


def test_rule_03_a_claim_that_got_no_answer_holds_the_watermark_back() -> None:
    """Did a lost claim count as done, the watermark would pass a task that still waits."""
    w = world()
    w.insert("waits", at=bucket_at(1))
    w.rigged.throttled = is_claim
    w.ticks(8)
    assert w.cursor().drained_through == NOON_MINUTE
    w.rigged.throttled = lambda change: False
    w.ticks(1)
    assert w.outcome("waits") == "completed"


def test_rule_03_a_bucket_whose_pages_were_not_all_read_holds_the_watermark_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Did a partial poll count, the watermark would pass the entries of the other pages."""
    monkeypatch.setattr(memory, "PAGE", 10)
    w = world()
    w.insert(*ids(35), at=bucket_at(1))
    w.ticks(5)
    w.rigged.forget()

    def break_off(bucket: Bucket) -> None:
        if w.rigged.polls.count(bucket_at(1)) == 3:
            raise cannot("query_bucket")

    w.rigged.before_poll = break_off
    with pytest.raises(StoreError, match="cannot query_bucket"):
        w.next_tick()
    assert w.rigged.polls.count(bucket_at(1)) == 3
    assert w.cursor().drained_through < bucket_at(1).minute
    w.rigged.before_poll = None
    w.next_tick()
    assert w.cursor().drained_through >= bucket_at(1).minute


# -- 4: the checkpoint -----------------------------------------------------------------------------------------------


def test_rule_04_the_time_of_closing_is_read_after_the_write_was_acknowledged() -> None:
    """Was it read before, a closing write that takes a minute would make polls final a minute too soon."""
    w = world()
    w.next_tick(2)
    w.rigged.meanwhile(is_cursor, lambda: w.clock.forward(seconds=55))
    w.next_tick()
    assert w.cursor().checkpoint == NOON_MINUTE + 3
    assert w.cursor().checkpoint_at >= NOON + timedelta(minutes=3, seconds=55)


def test_rule_04_the_end_write_sets_a_new_checkpoint_only_once_the_old_one_is_drained() -> None:
    """Did every tick move the checkpoint, no bucket would ever be old enough for its final poll."""
    w = world()
    marks = []
    for _ in range(6):
        w.next_tick()
        marks.append((w.cursor().checkpoint - NOON_MINUTE, w.cursor().drained_through - NOON_MINUTE))
    assert marks == [(0, -1), (0, -1), (3, 0), (3, 0), (3, 0), (6, 3)]


def test_rule_04_a_pass_costs_two_writes_of_its_cursor() -> None:
    """The close and the end; nothing else when there is nothing to do."""
    w = world()
    for _ in range(10):
        w.rigged.forget()
        w.next_tick()
        assert [is_cursor(change) for change in w.rigged.writes] == [True, True]
        assert w.cursor().lease is None


# -- 5: placement ----------------------------------------------------------------------------------------------------


def test_rule_05_a_newcomer_to_a_closed_bucket_goes_to_the_next_tick() -> None:
    """Did it stay there, no tick would poll it once the bucket is drained."""
    w = world()
    w.until_drained()
    now = minute_of(w.clock())
    row = w.put(taskId="late", taskDateTime=str(bucket_at(1)))
    assert row["taskDateTime"] == str(Bucket(now + 1))
    w.next_tick()
    assert w.outcome("late") == "completed"


def test_rule_05_the_bucket_is_compared_with_c_and_not_with_s() -> None:
    """Compared with the drained watermark, a new task in a closed bucket would stay there, and miss its poll."""
    w = world()
    w.ticks(2)
    assert w.cursor().drained_through < NOON_MINUTE + 1 <= w.cursor().closed_through
    assert w.put(taskId="late", taskDateTime=str(bucket_at(1)))["taskDateTime"] == str(bucket_at(3))


def test_rule_05_c_is_read_after_the_row() -> None:
    """Was the watermark read first, the row (put into 12:05, which is closed meanwhile) would count as on time."""
    w, image = world_with_closed_row()
    once = Once(lambda change: True)

    def meanwhile(task_id: str) -> None:
        if task_id == "t" and once(ConditionalUpdate(task_id="t")):
            reschedules(w, 5)
            w.rigged.hidden = lambda entry: True
            w.next_tick(5)
            w.ticks(7)

    w.rigged.before_read = meanwhile
    w.stream(image)
    assert w.cursor().drained_through >= bucket_at(5).minute
    w.rigged.hidden = lambda entry: False
    w.ticks(1)
    assert w.outcome("t") == "completed"


def test_rule_05_a_move_never_brings_back_a_row_that_was_deleted() -> None:
    """Without the condition that the row exists, an update would bring half of it back."""
    w, image = world_with_closed_row()
    w.rigged.meanwhile(is_move, lambda: w.store.delete("t"))
    w.stream(image)
    assert w.store.get("t") is None


def test_rule_05_a_move_is_on_condition_of_the_time_inputs_that_were_read() -> None:
    """Decided from the image alone, the move would undo a reschedule, and the task would run early."""
    w, image = world_with_closed_row()
    first = w.rigged.meanwhile(is_move, lambda: reschedules(w, 30))
    w.stream(image)
    assert first.done
    assert w.row("t")["taskDateTime"] == str(bucket_at(30))
    w.ticks(3)
    assert w.actions.times("t") == 0


def test_rule_05_an_old_image_moves_nothing() -> None:
    """The stream repeats records; a row that has moved on since must stay where it is."""
    w, image = world_with_closed_row()
    w.stream(image)
    first = w.row("t")
    w.stream(image)
    assert w.row("t") == first
    assert first["taskDateTime"] == str(bucket_at(1))


# -- 6: running rows move too ----------------------------------------------------------------------------------------


def test_rule_06_a_running_row_in_a_drained_bucket_is_moved_with_its_lease() -> None:
    """Were only waiting rows moved, a row that a late process claimed there and dropped would never be seen again."""
    w = world()
    w.until_drained()
    w.store.create(scheduled_row("t", bucket_at(0)))
    image = w.row("t")
    w.claim("t", until=w.clock() + timedelta(minutes=1), at=bucket_at(0))
    before = w.row("t")
    w.stream(image)
    row = w.row("t")
    assert Bucket.parse(row["taskDateTime"]).minute > w.cursor().closed_through
    moved = {"taskDateTime", "movedTo"}
    assert {k: v for k, v in row.items() if k not in moved} == {k: v for k, v in before.items() if k not in moved}
    w.ticks(4)
    assert w.outcome("t") == "completed"


def test_rule_06_a_move_leaves_the_task_lease_alone() -> None:
    """The record is on condition of the token, which a move leaves."""
    w = world(life=timedelta(minutes=10))

    def is_moved_meanwhile(task: Task, context: ActionContext) -> None:
        w.clock.forward(minutes=3)
        w.placer().place("t")

    w.insert("t", at=bucket_at(1))
    w.actions.behaviour["t"] = is_moved_meanwhile
    w.next_tick()
    row = w.row("t")
    assert row["taskDateTime"] != str(bucket_at(1)), "it was moved"
    assert row["outcome"] == "completed"
    w.ticks(6)
    assert w.actions.times("t") == 1


# -- 7: a move is checked again --------------------------------------------------------------------------------------


def test_rule_07_a_mover_that_was_frozen_checks_again() -> None:
    """Was the move not checked, the task would lie in 12:01 which is drained."""
    w, image = world_with_closed_row()
    w.rigged.meanwhile(is_move, lambda: w.ticks(8))
    w.stream(image)
    moves = [change.set["taskDateTime"] for change in w.rigged.writes if is_move(change)]
    assert moves == [str(bucket_at(1)), str(bucket_at(9))]
    assert w.cursor().drained_through >= bucket_at(1).minute
    w.next_tick()
    assert w.outcome("t") == "completed"


def test_rule_07_a_normalised_row_is_checked_too() -> None:
    """Normalising is a move as well: frozen before its write, it puts the row into a bucket that is drained by then."""
    w = world()
    w.store.put({"taskId": "t"})
    w.rigged.meanwhile(lambda change: change.task_id == "t", lambda: w.ticks(8))
    w.stream(w.row("t"))
    w.next_tick()
    assert w.outcome("t") == "completed"


# -- 8: our own rows are no tasks ------------------------------------------------------------------------------------


def test_rule_08_our_own_rows_have_a_status_of_their_own_and_are_left_alone() -> None:
    """Without one they would pass the stream's filter as unscheduled rows, be normalised, and run."""
    w = world()
    w.insert("t")
    w.next_tick()
    w.handle({"dynatick": {"reconcile": True}})
    own = {task_id: row for task_id in w.store._items if task_id.startswith("_dynatick#") if (row := w.row(task_id))}
    assert {row["status"] for row in own.values()} == {"cursor", "reconcile", "settings", "tick"}
    assert all(row["outcome"] == "none" for row in own.values()), "no scan for open tasks stops at them"
    assert all("taskDateTime" not in row for row in own.values()), "no bucket lists them"
    done = assign([Arrival("1", row, None) for row in own.values()], w.placer())
    assert (done.seen, done.failed) == (0, [])
    assert all(w.row(task_id) == row for task_id, row in own.items())


# -- 9: the claim ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["scheduled", None])
def test_rule_09_a_task_that_was_rescheduled_after_the_poll_does_not_run_early(status: str | None) -> None:
    """Without the bucket in the claim's condition it would run at 12:01, and not at 12:30."""
    w = world()
    raw = {"taskId": "t", "taskDateTime": str(bucket_at(1))}
    w.store.put(raw if status is None else scheduled_row("t", bucket_at(1)))
    first = w.rigged.meanwhile(is_claim, lambda: reschedules(w, 30))
    w.next_tick()
    assert first.done
    w.ticks(3)
    assert w.actions.times("t") == 0
    w.stream(w.row("t"))
    w.next_tick(26)
    assert w.outcome("t") == "completed"


def test_rule_09_a_task_that_has_ended_after_the_poll_does_not_run() -> None:
    """Without the outcome in the claim's condition a task that was ended by hand would run."""
    w = world()
    w.insert("t")
    edit = ConditionalUpdate(task_id="t", set={"outcome": "completed"})
    w.rigged.meanwhile(is_claim, lambda: MemoryStore.write(w.rigged, edit))
    w.ticks(3)
    assert (w.outcome("t"), w.actions.times("t")) == ("completed", 0)


def test_rule_09_an_unscheduled_row_is_normalised_by_its_claim() -> None:
    """Was it left to the stream, a slow stream would hold it up, and a broken one for ever."""
    w = world()
    w.store.put({"taskId": "t", "taskDateTime": str(bucket_at(1)), "payload": {"a": "b"}})
    w.next_tick()
    assert (w.outcome("t"), w.row("t")["attempt"], w.row("t")["action"]) == ("completed", 1, "log")


# -- 10: expired leases ----------------------------------------------------------------------------------------------


def test_rule_10_a_lease_is_over_only_after_the_margin_for_skewed_clocks() -> None:
    """Was it over at once, a process whose clock is behind would be overtaken while it still works."""
    w = world(life=timedelta(seconds=50))
    w.insert("t")
    w.next_tick()
    w.insert("u", at=bucket_at(2))
    w.claim("u", until=NOON + timedelta(minutes=2, seconds=10))
    w.clock.to(NOON + timedelta(minutes=2, seconds=13))
    w.tick()
    assert w.actions.times("u") == 0
    w.clock.to(NOON + timedelta(minutes=2, seconds=15))
    w.tick()
    assert w.actions.times("u") == 1
    assert w.row("u")["attempt"] == 2


@pytest.mark.parametrize(("retries", "together"), [(3, 7), (1, 1)])
def test_rule_10_expired_leases_are_reclaimed_apart_and_a_last_attempt_has_nothing_else_in_flight(
    retries: int, together: int
) -> None:
    """Beside a task that kills its process, the others lose an attempt each time, and with the last one they fail."""
    w = world()
    expired, others = ids(7, "s"), ids(30)
    policy = {"maximumRetryAttempts": Decimal(retries)}
    w.insert(*expired, *others, at=bucket_at(1), retryPolicy=policy)
    w.claim(*expired, until=NOON + timedelta(seconds=30))
    in_flight: list[tuple[str, list[str]]] = []
    begun = threading.Lock()

    def note(task: Task, context: ActionContext) -> None:
        with begun:
            running = [i for i, row in w.open_rows().items() if row["status"] == "running"]
            held = [i for i in running if str(w.rigged.peek(i)["leaseUntil"]) > instant(w.clock())]
            in_flight.append((task.task_id, held))

    w.actions.behaviour = dict.fromkeys([*expired, *others], note)
    first, *recoveries = w.next_tick()
    assert first.passed is not None
    assert (first.passed.expired, first.passed.completed) == (7, 30)
    assert sum(done.recovered.completed for done in recoveries if done.recovered is not None) == 7
    assert {task_id for task_id, _ in in_flight[-7:]} == {*expired}
    assert all({*held} <= {*expired} and len(held) <= together for _, held in in_flight[-7:])
    assert all(w.row(task_id)["attempt"] == 2 for task_id in expired)


def test_rule_10_a_task_that_kills_its_process_runs_out_of_attempts_and_is_failed_unexecuted() -> None:
    """Was the attempt counted at the record, it would kill a process for ever."""
    w = world()
    w.insert("poison", at=bucket_at(1), retryPolicy={"maximumRetryAttempts": Decimal(2)})
    w.claim("poison", until=w.clock() + timedelta(seconds=10))
    for attempt in (2, 3):  # each process that claims it dies
        w.clock.forward(seconds=20)
        reclaims(w, "poison", attempt, lease_seconds=10)
    w.clock.forward(seconds=20)
    w.next_tick()
    assert w.actions.times("poison") == 0
    row = w.row("poison")
    assert (row["outcome"], row["attempt"]) == ("failed", 3)
    assert row["error"] == "its process died, or did not finish in time, at the last of 3 attempts"
    assert [letter.row["taskId"] for letter in w.dead_letters.letters] == ["poison"]
    assert [entry["attempt"] for entry in row["attempts"]] == [1, 2, 3]


# -- 11: the lease covers the process --------------------------------------------------------------------------------


def test_rule_11_a_lease_does_not_end_before_the_process_does() -> None:
    """Did it, another would take the task over while this process still works on it."""
    w = world(life=timedelta(seconds=300))
    w.insert("plain", "expired", at=bucket_at(1))
    w.claim("expired", until=NOON + timedelta(seconds=10))
    leases: dict[str, tuple[datetime, datetime | None]] = {}

    def note(task: Task, context: ActionContext) -> None:
        leases[task.task_id] = (context.deadline, task.lease_until)

    w.actions.behaviour = {"plain": note, "expired": note}
    w.clock.to(NOON + timedelta(minutes=1))
    end = w.clock() + timedelta(seconds=300)
    w.processor.handle({"time": "2026-12-31T12:01:00Z"}, hard_end=end)
    w.processor.handle(w.started.pop(), hard_end=end)  # the recovery
    assert set(leases) == {"plain", "expired"}
    for deadline, lease_until in leases.values():
        assert deadline == end
        assert lease_until is not None
        assert lease_until >= end - timedelta(milliseconds=1), "written to the millisecond"


# -- 12: records on the claim's token --------------------------------------------------------------------------------


def test_rule_12_the_record_of_a_reclaimed_task_is_refused() -> None:
    """On condition of the status alone, a zombie would end a task that another process is working on."""
    w = world()
    w.insert("t")

    w.actions.behaviour["t"] = lambda task, context: reclaims(w, "t", attempt=2, lease_seconds=300)
    report = passed(w.next_tick())
    assert (report.completed, report.unrecorded) == (0, 1)
    assert (w.outcome("t"), w.row("t")["lease"]) == (None, "another's")


def test_rule_12_a_token_is_of_one_claim_and_not_of_a_process() -> None:
    """With one token a process, its own late record of an earlier attempt would end a later one."""
    w = world()
    w.insert(*ids(30))
    w.next_tick()
    assert len({w.row(task_id)["lease"] for task_id in ids(30)}) == 30


def test_rule_12_a_task_that_was_replaced_while_it_ran_is_another_task() -> None:
    """Only the name is the same: the old one's record must not end the new one."""
    w = world()
    w.insert("t", payload={"n": Decimal(1)})
    replaced = w.row("t")

    def is_replaced(task: Task, context: ActionContext) -> None:
        if task.payload["n"] == 1:
            w.put(taskId="t", payload={"n": Decimal(2)})

    w.actions.behaviour["t"] = is_replaced
    assert passed(w.next_tick()).superseded == 1
    assert w.outcome("t") is None
    w.next_tick()
    assert (w.outcome("t"), w.row("t")["payload"], w.row("t")["run"]) == ("completed", {"n": 2}, 1)
    assert w.actions.keys == [key_of(replaced), key_of(w.row("t"))]
    assert w.actions.keys[0] != w.actions.keys[1]


# -- 13: cancel, reschedule, redrive ---------------------------------------------------------------------------------


@pytest.mark.parametrize("claim_first", [False, True])
@pytest.mark.parametrize("wish", ["cancel", "reschedule"])
@pytest.mark.parametrize("status", ["scheduled", None])
def test_rule_13_of_a_wish_and_a_claim_exactly_one_wins(wish: str, status: str | None, claim_first: bool) -> None:
    """Allowed from running too, a task would be both executed and recorded as cancelled."""
    w = world()
    raw: Row = {"taskId": "t", "taskDateTime": str(bucket_at(1))}
    w.store.put(scheduled_row("t", bucket_at(1)) if status else raw)
    results: list[object] = []

    def wish_for(row: Row) -> None:
        if wish == "cancel":
            change = cancel(row, now=w.clock(), retention_days=30)
        else:
            change = reschedule(row, bucket=bucket_at(30), due_at=bucket_at(30).instant)
        results.append(MemoryStore.write(w.rigged, change))

    image = w.row("t")
    if claim_first:
        w.actions.behaviour["t"] = lambda task, context: wish_for(image)
    else:
        w.rigged.meanwhile(is_claim, lambda: wish_for(of(w.rigged.peek("t"))))
    w.ticks(3)
    (result,) = results
    assert isinstance(result, Lost if claim_first else Written)
    assert w.actions.times("t") == claim_first
    assert w.outcome("t") == ("completed" if claim_first else {"cancel": "cancelled"}.get(wish))


def test_rule_13_a_redriven_task_runs_again_with_another_key() -> None:
    """Into a future bucket, or no tick would see it; with run + 1, or the target would take it for done."""
    w = world()
    w.insert("t", retryPolicy={"maximumRetryAttempts": Decimal(0)})
    w.actions.behaviour["t"] = fails
    w.next_tick()
    w.actions.behaviour.clear()
    row = w.row("t")
    assert (row["outcome"], row["attempt"]) == ("failed", 1)
    again = redrive(row, bucket=bucket_at(2), due_at=w.clock(), run=2)
    assert isinstance(w.store.write(again), Written)
    w.stream(w.row("t"), row)
    assert not {"outcome", "finishedAt", "expiresAt"} & set(w.row("t"))
    w.next_tick()
    assert w.outcome("t") == "completed"
    assert w.actions.ran == [("t", 1, 1), ("t", 2, 1)]
    assert w.actions.keys == [key_of(row, 1), key_of(row, 2)]


# -- 14: shards ------------------------------------------------------------------------------------------------------


def test_rule_14_every_shard_that_was_ever_used_is_drained() -> None:
    """Were only the shards of the present number drained, what waits in the others would be orphaned."""
    w = world(rules=rules(grid=Grid(shard_count=3)))
    for shard in range(3):
        w.insert(f"t{shard}", at=bucket_at(5, shard))
    w.reconfigure(shard_count=1)
    for _ in range(5):
        w.rigged.forget()
        w.next_tick()
        assert {bucket.shard for bucket in w.rigged.polls} == {0, 1, 2}, "idle ones too"
    assert set(ran(w)) == {"t0", "t1", "t2"}


def test_rule_14_a_missing_cursor_is_created_by_the_scheduler_before_it_compares() -> None:
    """Did its first tick create it, which is late here, the drained watermark would begin after the task's bucket."""
    w = world()
    w.reconfigure(shard_count=2)
    assert w.store.get(cursor_id(1)) is None
    w.insert("t", at=bucket_at(2, 1))
    assert w.cursor(1).closed_through == w.cursor(1).drained_through == NOON_MINUTE - 1 + (w.clock() > NOON + L)
    w.next_tick(10)
    assert w.outcome("t") == "completed"


def test_rule_14_a_cursor_is_put_only_if_there_is_none() -> None:
    """Overwritten by a process that found none before, the watermark would jump over buckets that were never polled."""
    w = world()
    created = read_cursor(w.store, 1, w.clock())
    vanished = Once(lambda change: True)

    def finds_none(task_id: str) -> None:
        if task_id == cursor_id(1) and vanished(ConditionalUpdate(task_id=task_id)):
            w.store._items.pop(cursor_id(1))

    kept = w.store._items[cursor_id(1)]
    create = w.rigged.create

    def another_was_first(row: Row) -> bool:
        w.store._items[cursor_id(1)] = kept
        return create(row)

    w.rigged.before_read, w.rigged.create = finds_none, another_was_first
    w.clock.forward(minutes=10)
    assert read_cursor(w.store, 1, w.clock()).drained_through == created.drained_through
    assert vanished.done


# -- 15: reconcile ---------------------------------------------------------------------------------------------------


def test_rule_15_reconcile_places_what_the_stream_lost() -> None:
    """Without it a row in a drained bucket, which the stream never showed, waits for ever."""
    w = world()
    w.until_drained()
    w.store.create(scheduled_row("drained", bucket_at(0)))
    w.store.create(scheduled_row("unserved", bucket_at(30, 7)))
    w.store.put({"taskId": "no bucket"})
    w.store.put({"taskId": "no name", "taskDateTime": "2026-12-31T12:00:00Z", "status": "scheduled", "attempt": 0,
                 "action": "log"})  # fmt: skip
    w.ticks(5)
    assert w.actions.ran == []
    found = reconcile(w.placer(), clock=w.clock)
    assert (found.found, found.repaired, found.failed) == (4, 4, 0)
    assert w.row("unserved")["taskDateTime"] == str(bucket_at(30)), "in a shard in use, at its own tick"
    w.next_tick(30)
    assert {w.outcome(i) for i in ("drained", "unserved", "no bucket", "no name")} == {"completed"}


# -- 16: the shard lease is for efficiency only ----------------------------------------------------------------------


def test_rule_16_a_frozen_process_sets_no_watermark_back() -> None:
    """Without the version in the cursor's condition its end write would set both watermarks back."""
    w = world()
    w.clock.forward(minutes=1)
    frozen = acquire_shard(w.store, 0, NOON_MINUTE + 1, token="frozen", now=w.clock()).cursor
    assert frozen is not None
    w.ticks(12)
    before = w.cursor()
    assert before.drained_through > frozen.drained_through
    assert save(w.store, frozen, replace(frozen, lease=None, checkpoint=frozen.closed_through)) is None
    assert w.cursor() == before


def test_rule_16_what_is_written_is_never_below_what_was_read() -> None:
    """The watermarks only grow, whatever a caller asks for."""
    w = world()
    w.ticks(5)
    now = w.cursor()
    saved = save(w.store, now, replace(now, closed_through=0, drained_through=0, polled_through=0))
    assert saved == replace(now, version=now.version + 1)


def test_rule_16_two_processes_on_one_shard_execute_each_task_once() -> None:
    """Were the shard lease what protects a task, the second would execute what the first has claimed."""
    w = world()
    w.insert(*ids(40))

    def another_tick() -> None:
        """In the middle of the first one's claims: it lost the shard, and does not know it yet."""
        assert save(w.store, w.cursor(), replace(w.cursor(), lease=None, lease_until=None)) is not None
        w.tick()

    first = w.rigged.meanwhile(is_claim, another_tick)
    w.ticks(3)
    assert first.done
    assert sorted(ran(w)) == ids(40)
    assert {w.outcome(task_id) for task_id in ids(40)} == {"completed"}

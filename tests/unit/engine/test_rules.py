"""The rules of the protocol (docs/protocol.md), each by what goes wrong without it.

Every docstring says what breaking the rule would do to the test. Buckets are minutes after noon, when each world's
first tick has been. What a rule demands of one row or cursor alone is asked where that is decided: of claims,
cancellations and redrives in the table of the lifecycle, of moves in test_placement.py, of records in test_record.py,
of cursors and polls in test_watermark.py, of expired leases in test_recovery.py.
"""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.builders import NOON, scheduled_row
from tests.unit.engine.support import NOON_MINUTE, World, bucket_at, cannot, ids, is_claim, is_cursor, rules, world

from dynatick.domain.buckets import Bucket, Grid
from dynatick.domain.lifecycle import reschedule
from dynatick.domain.task import Row, Task
from dynatick.engine.cursor import cursor_id
from dynatick.engine.ports import ActionContext
from dynatick.engine.scheduler import Arrival, assign
from dynatick.errors import StoreError
from dynatick.store import memory


def test_rule_01_a_pass_closes_its_buckets_and_acquires_the_shard_in_one_write_before_it_polls(w: World) -> None:
    """Were the watermark written at the end, or the lease by itself, a poll would begin before buckets are closed."""
    met: list[tuple[int, bool]] = []
    w.rigged.before_poll = lambda bucket: met.append((w.cursor().closed_through, w.cursor().lease is not None))
    w.next_tick()
    assert set(met) == {(NOON_MINUTE + 1, True)}
    first = w.rigged.writes[0]
    assert is_cursor(first)
    assert first.set["closedThrough"] == "2026-12-31#12:01"
    assert first.set["lease"] is not None


def test_rules_02_and_03_all_pages_of_a_bucket_are_read_before_the_watermark_passes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Was only the first page read, or did a partial poll count, 25 of 35 would be stranded."""
    monkeypatch.setattr(memory, "PAGE", 10)
    w = world()
    w.insert(*ids(35), at=bucket_at(1))
    w.next_tick()
    assert len(w.ran) == 35
    w.ticks(4)
    w.rigged.forget()

    def break_off(bucket: Bucket) -> None:
        if w.rigged.polls.count(bucket_at(1)) == 3:
            raise cannot("query_bucket")

    w.rigged.before_poll = break_off
    with pytest.raises(StoreError, match="cannot query_bucket"):
        w.next_tick()
    assert w.rigged.polls.count(bucket_at(1)) == 3
    assert w.cursor().drained_through < bucket_at(1).minute
    w.rigged.clear_faults()
    w.next_tick()
    assert w.cursor().drained_through >= bucket_at(1).minute


@pytest.mark.parametrize("leased", [True, False], ids=["leased elsewhere", "its claim got no answer"])
def test_rules_01_and_03_a_row_that_cannot_be_claimed_holds_the_drained_watermark_back_and_not_the_closed_one(
    w: World,
    leased: bool,
) -> None:
    """Did the drained one pass it, no tick would poll its bucket again. Did it hold the closed one back, a newcomer
    would not be moved, and could miss the bucket's last poll."""
    w.insert("t", at=bucket_at(1))
    if leased:
        w.claim("t", until=NOON + timedelta(minutes=8))
    else:
        w.rigged.throttled = is_claim
    w.ticks(8)
    assert (w.cursor().drained_through, w.cursor().closed_through) == (NOON_MINUTE, NOON_MINUTE + 8)
    w.rigged.clear_faults()
    w.ticks(2)
    assert w.outcome("t") == "completed"
    w.until_drained()


def test_rule_04_the_time_of_closing_is_read_after_the_write_was_acknowledged(w: World) -> None:
    """Was it read before, a closing write that takes a minute would make polls final a minute too soon."""
    w.next_tick(2)
    with w.rigged.meanwhile(is_cursor, lambda: w.clock.forward(seconds=55)):
        w.next_tick()
    assert w.cursor().checkpoint == NOON_MINUTE + 3
    assert w.cursor().checkpoint_at >= NOON + timedelta(minutes=3, seconds=55)


def test_rule_04_the_end_write_sets_a_new_checkpoint_only_once_the_old_one_is_drained(w: World) -> None:
    """Did every tick move the checkpoint, no bucket would ever be old enough for its final poll."""
    marks = []
    for _ in range(6):
        w.next_tick()
        marks.append((w.cursor().checkpoint - NOON_MINUTE, w.cursor().drained_through - NOON_MINUTE))
    assert marks == [(0, -1), (0, -1), (3, 0), (3, 0), (3, 0), (6, 3)]


def test_rule_05_a_newcomer_is_compared_with_c_and_not_with_s(w: World) -> None:
    """Compared with the drained watermark, a new task in a closed bucket would stay there, and miss its poll."""
    w.ticks(2)
    assert w.cursor().drained_through < NOON_MINUTE + 1 <= w.cursor().closed_through
    assert w.put(taskId="late", taskDateTime=str(bucket_at(1)))["taskDateTime"] == str(bucket_at(3))
    w.next_tick()
    assert w.outcome("late") == "completed"


def test_rule_05_c_is_read_after_the_row() -> None:
    """Was the watermark read first, the row (put into 12:05, which is closed meanwhile) would count as on time."""
    w = world()
    w.store.create(scheduled_row("t", bucket_at(-5)))
    image = w.row("t")

    def meanwhile(task_id: str) -> None:
        if task_id == "t":
            w.rigged.before_read = None
            w.store.write(reschedule(image, bucket=bucket_at(5), due_at=bucket_at(5).instant))
            w.rigged.hidden = lambda entry: True
            w.next_tick(5)
            w.ticks(7)

    w.rigged.before_read = meanwhile
    w.stream(image)
    assert w.cursor().drained_through >= bucket_at(5).minute
    w.rigged.hidden = lambda entry: False
    w.ticks(1)
    assert w.outcome("t") == "completed"


def test_rule_06_a_running_row_in_a_drained_bucket_is_moved_with_its_lease(w: World) -> None:
    """Were only waiting rows moved, a row that a late process claimed there and dropped would never be seen again."""
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


@pytest.mark.parametrize("row", [scheduled_row("t", bucket_at(-5)), {"taskId": "t"}], ids=["moves", "normalises"])
def test_rule_07_a_mover_that_was_frozen_checks_again(w: World, row: Row) -> None:
    """Was the move not checked, the task would lie in 12:01 which is drained. Normalising is a move as well."""
    w.store.put(row)
    with w.rigged.meanwhile(lambda change: change.task_id == "t", lambda: w.ticks(8)):
        w.stream(w.row("t"))
    moves = [change.set["taskDateTime"] for change in w.rigged.writes if change.task_id == "t"]
    assert moves == [str(bucket_at(1)), str(bucket_at(9))]
    assert w.cursor().drained_through >= bucket_at(1).minute
    w.next_tick()
    assert w.outcome("t") == "completed"


def test_rule_08_our_own_rows_have_a_status_of_their_own_and_are_left_alone(
    w: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without one they would pass the stream's filter as unscheduled rows, be normalised, and run."""
    w.insert("t", "retried")
    w.behave(lambda *_: 1 / 0, "retried")
    w.next_tick()
    monkeypatch.setattr(memory, "PAGE", 1)
    w.processor.handle({"dynatick": {"reconcile": True}}, hard_end=w.clock())  # it has no time to read all
    own = {task_id: row for task_id in w.store._items if task_id.startswith("_dynatick#") if (row := w.row(task_id))}
    assert {row["status"] for row in own.values()} == {"bucket", "cursor", "reconcile", "settings", "tick"}
    assert all(row["outcome"] == "none" for row in own.values()), "no scan for open tasks stops at them"
    assert all("taskDateTime" not in row for row in own.values()), "no bucket lists them"
    done = assign([Arrival("1", row, None) for row in own.values()], w.placer())
    assert (done.seen, done.failed) == (0, [])
    assert all(w.row(task_id) == row for task_id, row in own.items())


def test_rule_11_a_lease_does_not_end_before_the_process_does() -> None:
    """Did it, another would take the task over while this process still works on it."""
    w = world(life=timedelta(seconds=300))
    w.insert("plain", "expired", at=bucket_at(1))
    w.claim("expired", until=NOON + timedelta(seconds=10))
    seen: dict[str, tuple[Task, ActionContext]] = {}
    w.behave(lambda task, context: seen.update({task.task_id: (task, context)}), "plain", "expired")
    w.clock.to(NOON + timedelta(minutes=1))
    end = w.clock() + timedelta(seconds=300)
    w.processor.handle({"time": "2026-12-31T12:01:00Z"}, hard_end=end)
    w.processor.handle(w.started.pop(), hard_end=end)  # the recovery
    assert set(seen) == {"plain", "expired"}
    for task, context in seen.values():
        assert context.deadline == end
        assert task.lease_until is not None
        assert task.lease_until >= end - timedelta(milliseconds=1), "written to the millisecond"


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
    assert set(w.ran) == {"t0", "t1", "t2"}


def test_rule_14_a_missing_cursor_is_created_by_the_scheduler_before_it_compares(w: World) -> None:
    """Did its first tick create it, which is late here, the drained watermark would begin after the task's bucket."""
    w.reconfigure(shard_count=2)
    assert w.store.get(cursor_id(1)) is None
    w.insert("t", at=bucket_at(2, 1))
    assert w.cursor(1).closed_through == w.cursor(1).drained_through < bucket_at(2, 1).minute
    w.next_tick(10)
    assert w.outcome("t") == "completed"

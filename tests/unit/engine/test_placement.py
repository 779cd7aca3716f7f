"""Placement: a row becomes a task in a bucket that some tick will poll."""

from __future__ import annotations

from decimal import Decimal

import pytest
from tests.builders import scheduled_row
from tests.unit.engine.support import Once, World, bucket_at, is_move, rules, world

from dynatick.actions.testing import MemoryDeadLetters
from dynatick.domain.buckets import Bucket, Grid
from dynatick.domain.conditional_update import ConditionalUpdate
from dynatick.domain.lifecycle import RELEASED
from dynatick.domain.task import Row
from dynatick.engine.placement import Undelivered
from dynatick.errors import StoreError
from dynatick.store.codec import item_bytes
from dynatick.store.memory import MemoryStore


def placed(w: World, row: Row) -> Row:
    """The row, after it was put and placed."""
    w.rigged.put(row)
    w.placer().place(str(row["taskId"]))
    return w.row(str(row["taskId"]))


AHEAD, CLOSED = bucket_at(5), bucket_at(-5)
RUNNING = {"status": "running", "lease": "x", "leaseUntil": "2026-12-31T12:02:00Z", "attempt": Decimal(1)}
NEXT = str(bucket_at(1))

PLACES = [
    # name, row, the bucket in which it lies then
    ("waiting, ahead", scheduled_row("t", AHEAD), str(AHEAD)),
    ("waiting, closed", scheduled_row("t", CLOSED), NEXT),
    ("waiting, just closed", scheduled_row("t", bucket_at(0)), NEXT),
    ("waiting, in a shard that was never in use", scheduled_row("t", bucket_at(5, 7)), str(AHEAD)),
    ("waiting, closed, in a shard that was never in use", scheduled_row("t", bucket_at(-5, 7)), NEXT),
    ("running, ahead", {**scheduled_row("t", AHEAD), **RUNNING}, str(AHEAD)),
    ("running, closed", {**scheduled_row("t", CLOSED), **RUNNING}, NEXT),
    ("released, closed", {**scheduled_row("t", CLOSED), **RUNNING, "leaseUntil": RELEASED}, NEXT),
    ("running, without a bucket", {"taskId": "t", "action": "log", **RUNNING}, NEXT),
    ("unscheduled", {"taskId": "t"}, NEXT),
    ("unscheduled, ahead", {"taskId": "t", "taskDateTime": str(AHEAD)}, str(AHEAD)),
    ("unscheduled, closed", {"taskId": "t", "taskDateTime": str(CLOSED)}, NEXT),
    ("unscheduled, in a shard never in use", {"taskId": "t", "taskDateTime": str(bucket_at(5, 7))}, str(AHEAD)),
    ("waiting, its bucket in another notation",
        scheduled_row("t", AHEAD, taskDateTime="2026-12-31T13:05:00+01:00"), str(AHEAD)),
    ("waiting, its bucket gone",
        {k: v for k, v in scheduled_row("t", AHEAD).items() if k != "taskDateTime"}, str(AHEAD)),
    ("waiting, from hand", {"taskId": "t", "status": "scheduled", "taskDateTime": str(AHEAD)}, str(AHEAD)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "row", "bucket"), PLACES, ids=[name for name, *_ in PLACES])
def test_the_bucket_of_a_row_that_is_placed(name: str, row: Row, bucket: str) -> None:
    w = world()
    done = placed(w, row)
    assert done["taskDateTime"] == bucket
    assert done["status"] == row.get("status", "scheduled")
    w.placer().place("t")
    assert w.row("t") == done, "and stays there"


ENDED_BY_HAND = [
    ({"status": "completed"}, "completed"), ({"status": "cancelled"}, "cancelled"), ({"status": "failed"}, "failed"),
    ({"status": "no such status"}, "failed"), ({"status": Decimal(7)}, "failed"), ({"status": ["scheduled"]}, "failed"),
    ({"status": {"scheduled": True}}, "failed"), ({"status": {"scheduled"}}, "failed"), ({"status": True}, "failed"),
]  # fmt: skip


@pytest.mark.parametrize(("edit", "outcome"), ENDED_BY_HAND)
def test_a_terminal_status_set_by_hand_ends_the_task(edit: dict[str, object], outcome: str) -> None:
    w = world()
    done = placed(w, {**scheduled_row("t", AHEAD), **edit})
    assert (done["status"], done["outcome"]) == (outcome, outcome)
    w.ticks(6)
    assert w.actions.ran == []


def test_the_expiry_of_an_open_row_is_removed() -> None:
    """TTL would delete the task before it has run."""
    w = world()
    for row in (scheduled_row("t", AHEAD), {**scheduled_row("t", AHEAD), **RUNNING}):
        done = placed(w, {**row, "expiresAt": Decimal(1_800_000_000)})
        assert done == row


PAST = {
    "attempt": Decimal(2), "run": Decimal(2), "startedAt": "2026-12-31T11:58:00Z", "lease": "x",
    "attempts": [{"run": Decimal(2), "attempt": Decimal(n), "error": "x"} for n in (1, 2)],
}  # fmt: skip


@pytest.mark.parametrize(
    ("edit", "due"),
    [({"taskDateTime": "2026-12-31T13:04:30+01:00"}, "2026-12-31T12:04:30Z"),
     ({"taskDateTime": "2026-12-31T12:04:30Z", "dueAt": "soon"}, "2026-12-31T12:04:30Z"),
     ({"taskDateTime": None}, "2026-12-31T12:05:00Z")],
)  # fmt: skip
def test_a_waiting_retry_with_a_malformed_bucket_gets_another_and_keeps_its_attempts(
    edit: dict[str, object], due: str
) -> None:
    """Were the attempts counted anew, a task that kills its process would have as many again."""
    row = {name: value for name, value in {**scheduled_row("t", AHEAD), **PAST, **edit}.items() if value is not None}
    assert placed(world(), row) == {**scheduled_row("t", AHEAD), **PAST, "dueAt": due}


def test_a_move_goes_to_the_tasks_own_shard() -> None:
    w = world(rules=rules(grid=Grid(shard_count=4)))
    assert Grid(shard_count=4).shard_of("task-1") == 3
    assert placed(w, scheduled_row("task-1", CLOSED))["taskDateTime"] == f"{NEXT}#3"
    assert placed(w, scheduled_row("task-1", AHEAD))["taskDateTime"] == str(AHEAD), "named plainly, and open: it stays"


# -- rejections ------------------------------------------------------------------------------------------------------


def test_the_dead_letter_goes_before_the_record_of_a_rejection() -> None:
    w = world()
    met: list[object] = []
    w.dead_letters = MemoryDeadLetters(refuse=lambda letter: bool(met.append(w.row("t").get("outcome"))))
    done = placed(w, {"taskId": "t", "action": Decimal(7)})
    assert met == [None]
    assert done["outcome"] == "failed"
    (letter,) = w.dead_letters.letters
    assert (letter.row["taskId"], letter.attempt, letter.error) == ("t", 0, done["error"])


def with_a_letter_that_is_refused() -> World:
    """A world with a malformed row whose message the dead-letter queue doesn't take."""
    w = world(dead_letters=MemoryDeadLetters(refuse=lambda letter: True))
    w.rigged.put({"taskId": "t", "action": Decimal(7)})
    return w


def test_a_row_whose_message_the_dead_letter_queue_refuses_is_tried_again_later() -> None:
    w = with_a_letter_that_is_refused()
    with pytest.raises(Undelivered, match="the dead-letter queue did not take 't'; it stays open"):
        w.placer().place("t")
    row = w.row("t")
    assert row == {
        "taskId": "t", "action": 7, "taskDateTime": NEXT, "movedTo": NEXT, "malformedReason": row["malformedReason"]
    }  # fmt: skip
    assert str(row["malformedReason"]).startswith("action: 7 is not accepted")


def test_a_row_that_waits_for_the_dead_letter_queue_is_moved_again_if_its_new_bucket_was_closed_meanwhile() -> None:
    """The mover may have been frozen before it wrote (7)."""
    w = with_a_letter_that_is_refused()
    first = w.rigged.meanwhile(is_move, lambda: w.next_tick(3))
    with pytest.raises(Undelivered):
        w.placer().place("t")
    assert first.done
    assert w.row("t")["taskDateTime"] == str(bucket_at(4))


def test_a_row_that_can_be_understood_by_now_is_not_failed_for_what_it_was_before() -> None:
    """It is put right between the refusal and the move, which is made on the conditions of the rejection."""
    w = with_a_letter_that_is_refused()
    meanwhile(w, ConditionalUpdate(task_id="t", set={"action": "log"}))
    w.placer().place("t")
    assert (w.row("t")["status"], "malformedReason" in w.row("t")) == ("scheduled", False)


FULL = 400 * 1024


@pytest.mark.parametrize("bulk", ["payload", "blob"])
@pytest.mark.parametrize(
    ("spare", "row"),
    [
        (40, {"taskId": "t"}),  # too full to be normalised
        (12, {"taskId": "t", "taskDateTime": str(CLOSED)}),
        (20, scheduled_row("t", CLOSED)),  # a task; too full to be moved
        (20, {**scheduled_row("t", CLOSED), **RUNNING}),
    ],
)
def test_a_row_that_is_too_large_is_marked_failed_without_its_payload(
    spare: int, row: dict[str, object], bulk: str
) -> None:
    """The scheduler raises for faults of the infrastructure only: such a row must not come again and again."""
    w = world()
    w.rigged.put({**row, bulk: {"k": ""}})
    filled = {**row, bulk: {"k": "x" * (FULL - item_bytes(w.row("t")) - spare)}}
    done = placed(w, filled)
    assert done["outcome"] == "failed"
    assert bulk not in done
    assert str(done["error"]).startswith("the row is too large")
    assert [letter.row[bulk] for letter in w.dead_letters.letters] == [filled[bulk]]


# -- races -----------------------------------------------------------------------------------------------------------


def meanwhile(w: World, edit: ConditionalUpdate) -> Once:
    """Another client's write just before the first move."""
    return w.rigged.meanwhile(is_move, lambda: MemoryStore.write(w.rigged, edit))


@pytest.mark.parametrize(
    ("edit", "moved"),
    [({"dueAt": "2026-12-31T12:07:00Z"}, True), ({"delaySeconds": Decimal(9)}, True), (RUNNING, True),
     ({"taskDateTime": NEXT}, False), ({"outcome": "completed", "status": "completed"}, False)],
)  # fmt: skip
def test_a_move_keeps_what_another_client_writes_meanwhile_and_moves_nothing_that_has_ended(
    edit: dict[str, object], moved: bool
) -> None:
    w = world()
    w.rigged.put(scheduled_row("t", CLOSED))
    first = meanwhile(w, ConditionalUpdate(task_id="t", set=edit))
    w.placer().place("t")
    assert first.done
    bucket = {"taskDateTime": NEXT, "movedTo": NEXT} if moved else {}
    assert w.row("t") == {**scheduled_row("t", CLOSED), **edit, **bucket}


def test_a_row_that_keeps_changing_is_a_fault_and_no_endless_loop() -> None:
    w = world()
    w.rigged.put(scheduled_row("t", CLOSED))
    minute = iter(range(10_000))

    def moves_on(change: ConditionalUpdate) -> None:
        if is_move(change):
            MemoryStore.write(w.rigged, ConditionalUpdate(task_id="t", set={"taskDateTime": str(Bucket(next(minute)))}))

    w.rigged.before_write = moves_on
    with pytest.raises(StoreError, match="cannot place 't': it was changed by others 30 times"):
        w.placer().place("t")


@pytest.mark.parametrize(("took_effect", "error"), [(False, "ThrottlingError"), (True, "no answer")])
def test_a_move_without_an_answer_is_a_fault_and_is_found_done_if_it_took_effect(took_effect: bool, error: str) -> None:
    w = world()
    w.rigged.put(scheduled_row("t", CLOSED))
    setattr(w.rigged, "unanswered" if took_effect else "throttled", is_move)
    with pytest.raises(StoreError, match=error):
        w.placer().place("t")
    assert w.row("t")["taskDateTime"] == (NEXT if took_effect else str(CLOSED))
    w.rigged.unanswered = w.rigged.throttled = lambda change: False
    w.placer().place("t")
    assert w.row("t")["taskDateTime"] == NEXT


# -- is_ahead --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bucket", "ahead"),
    [("2026-12-31#12:01", True), ("2026-12-31#12:00", False), ("2026-12-31#11:59", False),
     ("2027-12-31#12:00", True), ("2026-12-31#12:01#1", True),
     ("2026-12-31#12:01#2", False),  # not served
     ("2026-12-31T13:00:00Z", False), (None, False), (Decimal(7), False)],
)  # fmt: skip
def test_which_rows_lie_ahead(bucket: object, ahead: bool) -> None:
    w = world(rules=rules(grid=Grid(shard_count=2)))
    assert w.placer().is_ahead({"taskId": "t", "taskDateTime": bucket}) is ahead


def test_nothing_is_written_for_what_is_ahead_and_one_read_is_enough() -> None:
    """Every insert comes by here: the image of the stream and one read of the cursor must do."""
    w = world()
    placer = w.placer()
    w.rigged.put(scheduled_row("t", AHEAD))
    image = w.row("t")
    w.rigged.forget()
    assert placer.place("t", image) == image
    assert w.rigged.reads == ["_dynatick#cursor#0"]
    assert w.rigged.writes == []

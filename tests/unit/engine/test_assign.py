"""The scheduler's work: batches of records, with anything in them, repeated and out of order."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from tests.builders import NOON, scheduled_row
from tests.unit.engine.support import Once, World, bucket_at, cannot, is_move, rules, world

from dynatick.actions.testing import MemoryDeadLetters
from dynatick.domain.buckets import Bucket, Grid
from dynatick.domain.change import Change, Written
from dynatick.domain.lifecycle import redrive
from dynatick.domain.normalise import Defaults, unseen_run
from dynatick.domain.task import Row
from dynatick.engine.assign import Arrival, Assigned, assign
from dynatick.errors import StoreError
from dynatick.store.memory import MemoryStore

AHEAD, CLOSED, NEXT = bucket_at(5), bucket_at(-5), bucket_at(1)


def arrive(w: World, *records: tuple[Row | None, Row | None]) -> Assigned:
    """A batch of (new, old)."""
    return assign([Arrival(str(n), new, old) for n, (new, old) in enumerate(records)], w.settler())


def put(w: World, row: Row) -> tuple[Row, Row | None]:
    """put-item: the record that follows."""
    old = w.rigged.peek(str(row["taskId"]))
    w.rigged.put(row)
    return w.row(str(row["taskId"])), old


def is_unseen(run: object) -> bool:
    """Whether a run is one that nobody can have used before."""
    return int(str(run)) >= unseen_run(NOON)


def edit(w: World, task_id: str, **values: object) -> tuple[Row, Row]:
    """update-item by hand: the record that follows."""
    old = w.row(task_id)
    assert isinstance(MemoryStore.write(w.rigged, Change(task_id=task_id, set=values)), Written)
    return w.row(task_id), old


# -- single records --------------------------------------------------------------------------------------------------


def test_a_raw_row_becomes_a_task_in_two_writes_at_the_most() -> None:
    """One to normalise, and one more only if its bucket is closed."""
    for row, writes in (({"taskId": "t"}, 1), ({"taskId": "t", "taskDateTime": str(AHEAD)}, 1),
                        ({"taskId": "t", "taskDateTime": str(CLOSED)}, 2)):  # fmt: skip
        w = world()
        record = put(w, row)
        w.rigged.forget()
        done = arrive(w, record)
        assert (done.seen, done.normalised, done.rejected, list(done.failed)) == (1, 1, 0, [])
        assert len(w.rigged.writes) == writes
        assert w.row("t")["status"] == "scheduled"
        assert Bucket.parse(w.row("t")["taskDateTime"]).minute > w.cursor().closed_through


def test_a_task_of_a_client_of_ours_costs_no_write() -> None:
    w = world()
    record = put(w, scheduled_row("t", AHEAD))
    w.rigged.forget()
    arrive(w, record)
    assert w.rigged.writes == []


def test_our_own_write_comes_by_again_and_costs_nothing() -> None:
    w = world()
    record = put(w, {"taskId": "t", "taskDateTime": str(CLOSED)})
    arrive(w, record)
    settled = w.row("t")
    w.rigged.forget()
    arrive(w, (settled, record[0]))
    assert w.rigged.writes == []
    assert w.row("t") == settled


@pytest.mark.parametrize(
    ("values", "bucket", "due"),
    [
        ({"taskDateTime": "2026-12-31#12:07"}, "2026-12-31#12:07", "2026-12-31T12:07:00Z"),
        ({"taskDateTime": "2026-12-31T13:06:30+01:00"}, "2026-12-31#12:07", "2026-12-31T12:06:30Z"),
        ({"dueAt": "2026-12-31T12:06:30Z"}, "2026-12-31#12:07", "2026-12-31T12:06:30Z"),
        ({"taskDateTime": str(CLOSED)}, str(NEXT), "2026-12-31T11:55:00Z"),
        ({"payload": {"a": "b"}}, str(AHEAD), "2026-12-31T12:05:00Z"),
    ],
)
def test_a_time_that_was_changed_by_hand_moves_the_task(values: dict[str, object], bucket: str, due: str) -> None:
    w = world()
    arrive(w, put(w, scheduled_row("t", AHEAD)))
    arrive(w, edit(w, "t", **values))
    assert (w.row("t")["taskDateTime"], w.row("t")["dueAt"]) == (bucket, due)


def test_a_time_that_was_changed_into_nonsense_ends_the_task_and_tells_the_dead_letter_queue() -> None:
    w = world()
    arrive(w, put(w, scheduled_row("t", AHEAD)))
    done = arrive(w, edit(w, "t", dueAt="soon"))
    assert (done.rejected, w.outcome("t")) == (1, "failed")
    assert [letter.row["taskId"] for letter in w.dead_letters.letters] == ["t"]


def test_deletions_and_our_own_rows_are_nothing_to_do() -> None:
    w = world()
    done = arrive(w, (None, scheduled_row("t", AHEAD)), (w.row("_dynatick#cursor#0"), None))
    assert (done.seen, list(done.failed)) == (0, [])


def test_a_retrys_own_move_is_left_alone() -> None:
    w = world()
    w.insert("t")

    def fails(task: object, context: object) -> None:
        raise ValueError("not yet")

    w.actions.behaviour["t"] = fails
    old = w.row("t")
    w.next_tick()
    new = w.row("t")
    assert new["status"] == "scheduled"
    arrive(w, (new, {**old, "status": "running"}))
    assert w.row("t") == new


# -- put over an existing id -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old_run", "run"),
    [
        (Decimal(1), 2),
        (Decimal(7), 8),
        *((spoilt, None) for spoilt in (None, "7", True, Decimal("1E+125"), Decimal("1.5"))),
    ],
)
def test_a_plain_put_over_a_task_is_another_task_with_the_next_run(old_run: object, run: int | None) -> None:
    """Its idempotency key must not be the old one's, or the target would take it for done."""
    w = world()
    w.rigged.put({**scheduled_row("t", AHEAD), "run": old_run, "status": "completed", "outcome": "completed"})
    done = arrive(w, put(w, {"taskId": "t", "payload": {"new": True}}))
    assert list(done.failed) == []
    assert w.row("t")["attempt"] == 0
    assert w.row("t")["run"] == run if run else is_unseen(w.row("t")["run"])
    assert w.row("t")["payload"] == {"new": True}


def test_two_puts_in_one_batch_do_not_forget_the_run() -> None:
    w = world()
    w.rigged.put({**scheduled_row("t", AHEAD), "run": Decimal(3)})
    first = put(w, {"taskId": "t", "payload": {"n": Decimal(1)}})
    second = put(w, {"taskId": "t", "payload": {"n": Decimal(2)}})
    arrive(w, first, second)
    assert (w.row("t")["run"], w.row("t")["payload"]) == (4, {"n": 2})


def test_two_puts_in_two_batches_do_not_forget_the_run() -> None:
    """The first record is met when the second put has been made already."""
    w = world()
    w.rigged.put({**scheduled_row("t", AHEAD), "run": Decimal(3)})
    first = put(w, {"taskId": "t", "taskDateTime": str(AHEAD)})
    second = put(w, {"taskId": "t", "taskDateTime": str(bucket_at(9))})
    arrive(w, first)
    arrive(w, second)
    assert w.row("t")["taskDateTime"] == str(bucket_at(9))
    assert is_unseen(w.row("t")["run"])


def test_a_late_record_of_the_old_task_gives_the_new_one_no_run_that_was_used() -> None:
    w = world()
    first = put(w, {"taskId": "t", "taskDateTime": str(AHEAD)})
    w.rigged.put({**scheduled_row("t", AHEAD), "run": Decimal(1), "status": "completed", "outcome": "completed"})
    put(w, {"taskId": "t", "taskDateTime": str(bucket_at(9))})  # of which a later batch will tell
    arrive(w, first)
    assert is_unseen(w.row("t")["run"])


def test_a_tick_that_meets_a_task_before_the_scheduler_does_gives_it_a_run_that_was_never_used() -> None:
    w = world()
    w.rigged.put({"taskId": "t", "taskDateTime": str(bucket_at(1))})
    w.next_tick()
    row = w.row("t")
    assert row["status"] == "completed"
    assert w.actions.ran == [("t", row["run"], 1)]
    assert is_unseen(row["run"])


def test_a_row_that_was_redriven_keeps_its_run() -> None:
    w = world()
    failed = {**scheduled_row("t", CLOSED), "status": "failed", "outcome": "failed", "finishedAt": "x"}
    w.rigged.put(failed)
    again = redrive(w.row("t"), bucket=AHEAD, due_at=AHEAD.instant, run=2)
    assert isinstance(w.rigged.write(again), Written)
    arrive(w, (w.row("t"), failed))
    assert (w.row("t")["run"], w.row("t")["taskDateTime"]) == (2, str(AHEAD))


# -- batches ---------------------------------------------------------------------------------------------------------

POISON: list[dict[str, object]] = [
    {"action": Decimal(7)},
    {"status": ["scheduled"]},
    {"status": {"a": "b"}},
    {"taskDateTime": {"a": "b"}},
    {"dueAt": [Decimal(1)]},
    {"dueAt": Decimal("1E+125")},
    {"delaySeconds": Decimal("1E+125")},
    {"retryPolicy": {"maximumRetryAttempts": Decimal("1E+125")}},
    {"payload": {"k": "x" * (400 * 1024 - 60)}},
    {"run": Decimal("9" * 38), "status": "scheduled"},
    {"attempt": Decimal("-9E+120"), "status": "scheduled"},
    {"outcome": None, "taskDateTime": None, "dueAt": None},
    {"action": {"a": [Decimal(1), None, {"b": {"c"}}]}, "dueAt": {"x"}},
    {"createdAt": {"x"}, "attempts": "x", "lease": Decimal(1), "startedAt": None, "expiresAt": "never"},
]


@pytest.mark.parametrize("poison", POISON)
def test_a_bad_row_never_throws_and_never_holds_up_another(poison: dict[str, object]) -> None:
    w = world()
    records = [put(w, {"taskId": f"t{n}"}) for n in range(3)]
    records.insert(1, put(w, {"taskId": "poison", **poison}))
    done = arrive(w, *records)
    assert list(done.failed) == []
    assert [w.row(f"t{n}")["status"] for n in range(3)] == ["scheduled"] * 3
    assert w.row("poison")["status"] in ("failed", "scheduled")
    w.ticks(7)
    assert {w.outcome(f"t{n}") for n in range(3)} == {"completed"}
    assert w.outcome("poison") in ("failed", "completed")


@pytest.mark.parametrize("poison", POISON)
def test_a_bad_row_over_a_task_never_throws_either(poison: dict[str, object]) -> None:
    w = world()
    for old in (scheduled_row("t", AHEAD), {"taskId": "t", "run": Decimal("9" * 38), "status": {"a": "b"}}):
        w.rigged.put(old)
        done = arrive(w, put(w, {"taskId": "t", **poison}))
        assert list(done.failed) == []
        assert w.row("t")["status"] in ("failed", "scheduled")


@pytest.mark.parametrize("poison", [p for p in POISON if "payload" not in p])
def test_a_bad_edit_of_a_task_never_throws_either(poison: dict[str, object]) -> None:
    w = world()
    arrive(w, put(w, scheduled_row("t", AHEAD)))
    done = arrive(w, edit(w, "t", **poison))
    assert list(done.failed) == []
    assert w.row("t")["status"] in ("failed", "scheduled")
    w.ticks(7)
    assert w.outcome("t") in ("failed", "completed")


def test_a_policy_that_fails_costs_its_own_task_only() -> None:
    def policy(task: object, now: datetime, grid: Grid) -> datetime:
        return datetime.max.replace(tzinfo=UTC)

    w = world(rules=rules(defaults=Defaults(assign=policy)))
    done = arrive(w, put(w, {"taskId": "t"}), put(w, {"taskId": "u", "taskDateTime": str(AHEAD)}))
    assert (list(done.failed), w.outcome("t"), w.row("u")["status"]) == ([], "failed", "scheduled")


def test_the_whole_batch_is_written_in_batches() -> None:
    """25 conditional writes a request: the scheduler's share of a raw row must stay small (design §12)."""
    w = world()
    records = [put(w, {"taskId": f"t{n:03d}"}) for n in range(100)]
    sizes: list[int] = []
    write_many = w.rigged.write_many

    def counted(changes: Sequence[Change]) -> Sequence[object]:
        sizes.append(len(changes))
        return write_many(changes)

    w.rigged.write_many = counted
    w.rigged.forget()
    done = arrive(w, *records)
    assert (done.seen, done.normalised) == (100, 100)
    assert sizes == [100]
    assert len(w.rigged.reads) <= 2, "the settings and one cursor, however many rows"


# -- several records of one task -------------------------------------------------------------------------------------


def test_every_record_may_come_twice() -> None:
    w = world()
    records = [
        put(w, {"taskId": "a"}),
        put(w, {"taskId": "b", "taskDateTime": str(CLOSED)}),
        put(w, {"taskId": "c", "action": Decimal(1)}),
    ]
    arrive(w, *records)
    before = {i: w.row(i) for i in "abc"}
    done = arrive(w, *records, *records)
    assert list(done.failed) == []
    assert {i: w.row(i) for i in "abc"} == before
    assert len(w.dead_letters.letters) == 1


def test_an_insert_that_comes_after_its_deletion_brings_nothing_back() -> None:
    w = world()
    record = put(w, {"taskId": "t"})
    w.rigged.delete("t")
    done = arrive(w, (None, record[0]), record)
    assert (list(done.failed), w.rigged.peek("t")) == ([], None)


def test_an_edit_of_the_time_is_not_lost_behind_another_edit_in_the_same_batch() -> None:
    """The later record's images both have the new time; only the first one's show that it changed."""
    w = world()
    arrive(w, put(w, scheduled_row("t", AHEAD)))
    time = edit(w, "t", dueAt="2026-12-31T12:30:00Z")
    other = edit(w, "t", payload={"a": "b"})
    arrive(w, time, other)
    assert (w.row("t")["taskDateTime"], w.row("t")["payload"]) == (str(bucket_at(30)), {"a": "b"})


def test_of_two_edits_of_the_time_the_last_counts() -> None:
    w = world()
    arrive(w, put(w, scheduled_row("t", AHEAD)))
    one = edit(w, "t", dueAt="2026-12-31T12:30:00Z")
    other = edit(w, "t", dueAt="2026-12-31T12:40:00Z")
    arrive(w, one, other)
    assert w.row("t")["taskDateTime"] == str(bucket_at(40))


def test_an_edit_that_was_taken_back_changes_nothing() -> None:
    w = world()
    arrive(w, put(w, scheduled_row("t", AHEAD)))
    there = edit(w, "t", taskDateTime=str(bucket_at(30)))
    back = edit(w, "t", taskDateTime=str(AHEAD))
    arrive(w, there, back)
    assert (w.row("t")["taskDateTime"], w.row("t")["dueAt"]) == (str(AHEAD), "2026-12-31T12:05:00Z")


def test_an_old_record_that_comes_late_undoes_nothing() -> None:
    w = world()
    first = put(w, {"taskId": "t"})
    arrive(w, first)
    edited = edit(w, "t", taskDateTime=str(bucket_at(30)))
    arrive(w, edited)
    arrive(w, first)
    assert w.row("t")["taskDateTime"] == str(bucket_at(30))


def test_a_task_that_ran_meanwhile_is_left_as_it_is() -> None:
    w = world()
    record = put(w, {"taskId": "t", "taskDateTime": str(NEXT)})
    w.next_tick()
    before = w.row("t")
    assert before["outcome"] == "completed"
    done = arrive(w, record)
    assert (list(done.failed), w.row("t")) == ([], before)


# -- faults ----------------------------------------------------------------------------------------------------------


def test_only_the_records_that_could_not_be_settled_come_again() -> None:
    w = world()
    records = [put(w, {"taskId": f"t{n}", "taskDateTime": str(CLOSED)}) for n in range(3)]
    w.rigged.throttled = lambda change: is_move(change) and change.task_id == "t1"
    done = arrive(w, *records)
    assert [key for key, _ in done.failed] == ["1"]
    assert "ThrottlingError" in done.failed[0][1]
    assert [w.row(f"t{n}")["taskDateTime"] for n in (0, 2)] == [str(NEXT)] * 2
    w.rigged.throttled = lambda change: False
    assert list(arrive(w, records[1]).failed) == []
    assert w.row("t1")["taskDateTime"] == str(NEXT)


def test_a_write_that_got_no_answer_is_looked_at_again() -> None:
    w = world()
    record = put(w, {"taskId": "t", "taskDateTime": str(AHEAD)})
    w.rigged.unanswered = Once(lambda change: change.task_id == "t")
    done = arrive(w, record)
    assert list(done.failed) == []
    assert (w.row("t")["status"], w.row("t")["run"]) == ("scheduled", 1)


def test_a_dead_letter_queue_that_is_down_holds_up_its_own_records_only() -> None:
    w = world()
    w.dead_letters = MemoryDeadLetters(refuse=lambda letter: True)
    done = arrive(w, put(w, {"taskId": "bad", "action": Decimal(7)}), put(w, {"taskId": "good"}))
    assert [key for key, _ in done.failed] == ["0"]
    assert (w.outcome("bad"), w.row("good")["status"]) == (None, "scheduled")


def test_a_cursor_that_cannot_be_read_is_a_fault_of_every_record_that_needs_it() -> None:
    w = world()
    settler = w.settler()
    records = [put(w, {"taskId": f"t{n}"}) for n in range(2)]

    def no_cursor(task_id: str) -> None:
        if task_id.startswith("_dynatick#cursor"):
            raise cannot("read")

    w.rigged.before_read = no_cursor
    done = assign([Arrival(str(n), new, old) for n, (new, old) in enumerate(records)], settler)
    assert [key for key, _ in done.failed] == ["0", "1"]


def test_a_table_that_is_not_there_is_raised() -> None:
    """Nothing of the batch can have been done; Lambda sends it again as it is."""
    w = world()
    settler = w.settler()
    record = put(w, {"taskId": "t"})

    def is_down(changes: Sequence[Change]) -> None:
        raise cannot("write")

    w.rigged.write_many = is_down
    with pytest.raises(StoreError):
        assign([Arrival("0", *record)], settler)

"""Placement: whatever a row holds, its record of the stream gives it a bucket that some tick will poll, or ends it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from boto3.dynamodb.types import Binary
from hypothesis import example, given
from hypothesis import strategies as st
from tests.builders import key_of, scheduled_row
from tests.unit.engine.support import World, bucket_at, is_move, raises_for, rules, world

from dynatick.actions.testing import MemoryDeadLetters
from dynatick.domain.buckets import Bucket, Grid, minute_of
from dynatick.domain.conditional_update import ConditionalUpdate, Written
from dynatick.domain.ends import End, OutcomeEvents
from dynatick.domain.lifecycle import RELEASED, is_terminal
from dynatick.domain.packs import Pack, Span
from dynatick.domain.schedule import is_at_rest
from dynatick.domain.task import MAX_TASK_ID_BYTES, Row
from dynatick.engine.cursor import cursor_id
from dynatick.engine.placement import Undelivered, is_rejection
from dynatick.engine.scheduler import Arrival, Assigned, Scheduler, assign
from dynatick.engine.settings import SETTINGS_ID
from dynatick.errors import StoreError
from dynatick.store.codec import decode, encode, item_bytes
from dynatick.store.memory import MemoryStore

AHEAD, CLOSED, NEXT = bucket_at(5), bucket_at(-5), str(bucket_at(1))

RUNNING = {"status": "running", "lease": "x", "leaseUntil": "2026-12-31T12:02:00Z", "attempt": Decimal(1)}


# -- one row ---------------------------------------------------------------------------------------------------------


def placed(w: World, row: Row) -> Row:
    w.rigged.put(row)
    w.placer().place(str(row["taskId"]))
    return w.row(str(row["taskId"]))


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
    ("unscheduled, of nulls", {"taskId": "t", "outcome": None, "dueAt": None}, NEXT),
    ("waiting, from hand", {"taskId": "t", "status": "scheduled", "taskDateTime": str(AHEAD)}, str(AHEAD)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "row", "bucket"), PLACES, ids=[name for name, *_ in PLACES])
def test_the_bucket_of_a_row_that_is_placed(w: World, name: str, row: Row, bucket: str) -> None:
    w.rigged.forget()
    done = placed(w, row)
    assert done["taskDateTime"] == bucket
    assert done["status"] == row.get("status", "scheduled")
    assert len([change for change in w.rigged.writes if change.task_id == "t"]) <= 2, "to normalise, and to move"
    w.placer().place("t", row)  # the stream repeats records
    assert w.row("t") == done, "and stays there"


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


def with_a_letter_that_is_refused() -> World:
    """A world with a malformed row whose message the dead-letter queue doesn't take."""
    w = world(dead_letters=MemoryDeadLetters(refuse=lambda letter: True))
    w.rigged.put({"taskId": "t", "action": Decimal(7)})
    return w


def test_a_row_that_waits_for_the_dead_letter_queue_is_moved_again_if_its_new_bucket_was_closed_meanwhile() -> None:
    """The mover may have been frozen before it wrote (7). The row keeps why it can't be understood."""
    w = with_a_letter_that_is_refused()
    with w.rigged.meanwhile(is_move, lambda: w.next_tick(3)), pytest.raises(Undelivered, match="it stays open"):
        w.placer().place("t")
    row, there = w.row("t"), str(bucket_at(4))
    assert (row["taskDateTime"], row["movedTo"], "status" in row) == (there, there, False)
    assert str(row["malformedReason"]).startswith("action: 7 is not accepted")


def test_a_row_that_can_be_understood_by_now_is_not_failed_for_what_it_was_before() -> None:
    """It is put right between the refusal and the move, which is made on the conditions of the rejection."""
    w = with_a_letter_that_is_refused()
    repair = ConditionalUpdate(task_id="t", set={"action": "log"})
    with w.rigged.meanwhile(is_move, lambda: MemoryStore.write(w.rigged, repair)):
        w.placer().place("t")
    assert (w.row("t")["status"], "malformedReason" in w.row("t")) == ("scheduled", False)


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
    w: World, spare: int, row: dict[str, object], bulk: str
) -> None:
    """The scheduler raises for faults of the infrastructure only: such a row must not come again and again."""
    w.rigged.put({**row, bulk: {"k": ""}})
    filled = {**row, bulk: {"k": "x" * (400 * 1024 - item_bytes(w.row("t")) - spare)}}
    done = placed(w, filled)
    assert done["outcome"] == "failed"
    assert bulk not in done
    assert str(done["error"]).startswith("the row is too large")
    assert [letter.row[bulk] for letter in w.dead_letters.letters] == [filled[bulk]]


# -- races -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("edit", "moved"),
    [({"dueAt": "2026-12-31T12:07:00Z"}, True), ({"delaySeconds": Decimal(9)}, True), (RUNNING, True),
     ({"taskDateTime": NEXT}, False), ({"outcome": "completed", "status": "completed"}, False), (None, False)],
)  # fmt: skip
def test_rule_05_a_move_is_on_condition_of_the_row_that_was_read(
    w: World, edit: dict[str, object] | None, moved: bool
) -> None:
    """Decided from the image alone, it would undo what another client writes meanwhile, or bring back half of a row
    that is deleted (``None``)."""
    w.rigged.put(scheduled_row("t", CLOSED))
    change = ConditionalUpdate(task_id="t", set=edit or {})
    with w.rigged.meanwhile(
        is_move, lambda: w.store.delete("t") if edit is None else MemoryStore.write(w.rigged, change)
    ):
        w.placer().place("t")
    bucket = {"taskDateTime": NEXT, "movedTo": NEXT} if moved else {}
    assert w.rigged.peek("t") == (None if edit is None else {**scheduled_row("t", CLOSED), **edit, **bucket})


def test_a_row_that_keeps_changing_is_a_fault_and_no_endless_loop(w: World) -> None:
    w.rigged.put(scheduled_row("t", CLOSED))
    minute = iter(range(10_000))

    def moves_on(change: ConditionalUpdate) -> None:
        if is_move(change):
            MemoryStore.write(w.rigged, ConditionalUpdate(task_id="t", set={"taskDateTime": str(Bucket(next(minute)))}))

    w.rigged.before_write = moves_on
    with pytest.raises(StoreError, match="cannot place 't': it was changed by others 30 times"):
        w.placer().place("t")


def test_a_move_without_an_answer_is_found_done_if_it_took_effect() -> None:
    w = world()
    w.rigged.put(scheduled_row("t", CLOSED))
    w.rigged.throttled = is_move
    with pytest.raises(StoreError, match="ThrottlingError"):
        w.placer().place("t")
    assert w.row("t")["taskDateTime"] == str(CLOSED)
    w.rigged.clear_faults()
    w.rigged.unanswered = is_move
    w.placer().place("t")
    assert w.row("t")["taskDateTime"] == NEXT


# -- records of the stream -------------------------------------------------------------------------------------------


def arrive(w: World, *records: tuple[Row | None, Row | None]) -> Assigned:
    return assign([Arrival(str(n), new, old) for n, (new, old) in enumerate(records)], w.placer())


def put(w: World, row: Row) -> tuple[Row, Row | None]:
    """put-item: the record that follows."""
    old = w.rigged.peek(str(row["taskId"]))
    w.rigged.put(row)
    return w.row(str(row["taskId"])), old


def edit(w: World, task_id: str, **values: object) -> tuple[Row, Row]:
    """update-item by hand: the record that follows."""
    old = w.row(task_id)
    assert isinstance(MemoryStore.write(w.rigged, ConditionalUpdate(task_id=task_id, set=values)), Written)
    return w.row(task_id), old


HALF_PAST, SOON = "2026-12-31T12:30:00Z", "2026-12-31T12:06:30Z"


@pytest.mark.parametrize(
    ("edits", "bucket", "due"),
    [([{"dueAt": SOON}], "2026-12-31#12:07", SOON),
     ([{"taskDateTime": str(CLOSED)}], NEXT, "2026-12-31T11:55:00Z"),
     # In one batch only the first record's images show that the time has changed.
     ([{"dueAt": HALF_PAST}, {"payload": {"a": "b"}}], str(bucket_at(30)), HALF_PAST),
     ([{"dueAt": HALF_PAST}, {"dueAt": SOON}], "2026-12-31#12:07", SOON),
     ([{"taskDateTime": str(bucket_at(30))}, {"taskDateTime": str(AHEAD)}], str(AHEAD), "2026-12-31T12:05:00Z")],
)  # fmt: skip
def test_a_time_that_was_changed_by_hand_moves_the_task(edits: list[dict[str, object]], bucket: str, due: str) -> None:
    w = world()
    arrive(w, put(w, scheduled_row("t", AHEAD)))
    arrive(w, *[edit(w, "t", **values) for values in edits])
    assert (w.row("t")["taskDateTime"], w.row("t")["dueAt"]) == (bucket, due)
    assert w.row("t").get("payload") == edits[-1].get("payload")


def ran(w: World, task_id: str) -> str:
    """Ticks until the task has ended. Returns the idempotency key that it ran with."""
    w.until_drained()
    assert w.outcome(task_id) == "completed"
    return w.actions.keys[-1]


@pytest.mark.parametrize("first", [{}, {"taskDateTime": str(NEXT)}, {"createdAt": "2026-12-31T11:00:00Z"}])
@pytest.mark.parametrize("again", ["deleted", "put over", "put over unseen"])
def test_a_task_under_an_id_that_was_used_before_has_a_key_of_its_own(first: dict[str, object], again: str) -> None:
    """Its idempotency key must not be the old one's, or the target would take it for done."""
    w = world()
    arrive(w, put(w, {"taskId": "t", **first}))
    before = ran(w, "t")
    if again == "deleted":
        w.rigged.delete("t")
    row = {"taskId": "t", **first, "payload": {"new": True}, "taskDateTime": str(Bucket(minute_of(w.clock()) + 1))}
    record = put(w, row)
    if again != "put over unseen":  # else it is the tick that meets it first
        arrive(w, record)
    assert ran(w, "t") == key_of(w.row("t")) != before
    assert (w.row("t")["run"], w.row("t")["payload"]) == (1, {"new": True})


RECURRING = {"taskId": "s", "scheduleExpression": "rate(1 minute)"}


def revision_after(*puts: Row) -> object:
    w = world()
    for row in puts:
        arrive(w, put(w, row))
        w.clock.forward(minutes=1)
    return w.row("s")["revision"]


def test_a_schedule_put_over_another_row_makes_occurrences_with_other_ids() -> None:
    task = {"taskId": "s"}
    ended = {**RECURRING, "status": "completed", "outcome": "completed", "revision": Decimal(4)}
    assert revision_after(RECURRING) == 1
    assert revision_after(RECURRING, RECURRING, RECURRING) == 3
    assert revision_after(ended, RECURRING) == 5
    one, two = revision_after(RECURRING, task, RECURRING), revision_after(RECURRING, task, RECURRING, task, RECURRING)
    assert int(str(two)) > int(str(one)) > 1, "after a task in its place, too"


def test_only_records_whose_rows_could_not_be_placed_fail(w: World) -> None:
    records = [put(w, {"taskId": f"t{n}", "taskDateTime": str(CLOSED)}) for n in range(3)]
    w.rigged.throttled = lambda change: is_move(change) and change.task_id == "t1"
    done = arrive(w, *records)
    assert (done.seen, done.normalised, done.moved, [key for key, _ in done.failed]) == (3, 3, 2, ["1"])
    assert "ThrottlingError" in done.failed[0][1]
    assert [w.row(f"t{n}")["taskDateTime"] for n in (0, 2)] == [str(NEXT)] * 2
    w.rigged.clear_faults()
    assert list(arrive(w, records[1]).failed) == []
    assert w.row("t1")["taskDateTime"] == str(NEXT)


def test_what_no_row_can_be_placed_without_fails_each_record(w: World) -> None:
    """Without the cursor, or without the table."""
    placer = w.placer()
    arrivals = [Arrival(str(n), *put(w, {"taskId": f"t{n}"})) for n in range(2)]
    w.rigged.before_read = raises_for(cursor_id(0))
    assert [key for key, _ in assign(arrivals, placer).failed] == ["0", "1"]
    w.rigged.before_read, w.rigged.batch_fails = raises_for("t0", "t1"), lambda changes: True
    assert [key for key, _ in assign(arrivals, placer).failed] == ["0", "1"]


MALFORMED: list[dict[str, object]] = [
    {"action": Decimal(7)}, {"action": {"a": [None, {"b": {"c"}}]}}, {"dueAt": Decimal("1E+125")},
    {"taskDateTime": "soon"},  # its own time is written over, and it is malformed all the same
    {"delaySeconds": "soon"}, {"dueAt": "soon"}, {"taskDateTime": str(bucket_at(60)), "payload": "text"},
    {"taskDateTime": str(CLOSED), "action": Decimal(7)}, {"status": "banana"}, {"status": ["scheduled"]},
    {"status": "failed"}, {"status": "scheduled", "taskDateTime": "soon"},
    {**scheduled_row("bad", AHEAD), "taskDateTime": "soon"}, {"scheduleExpression": "rate(never)"},
    {"scheduleExpression": "rate(1 minute)", "taskDateTime": "soon"},
    {"scheduleExpression": "rate(never)", "status": "recurring", "scheduleId": "bad", "scheduleState": "DISABLED"},
]  # fmt: skip


@pytest.mark.parametrize("malformed", MALFORMED, ids=[str(row)[:60] for row in MALFORMED])
def test_a_dead_letter_queue_that_refuses_fails_no_record(malformed: dict[str, object]) -> None:
    """The row stays open in a bucket that the ticks poll, and is failed by the first one whose message is taken."""
    w = world(dead_letters=MemoryDeadLetters(refuse=lambda letter: True))
    done = arrive(w, put(w, {"taskId": "bad", **malformed}), put(w, {"taskId": "good"}))
    assert (list(done.failed), done.undelivered, w.outcome("bad")) == ([], 1, None)
    assert w.row("bad")["taskDateTime"] == str(NEXT)
    again = arrive(w, (w.row("bad"), None))
    assert (list(again.failed), again.undelivered) == ([], 1)
    w.next_tick()
    assert (w.outcome("good"), w.outcome("bad"), w.actions.times("bad")) == ("completed", None, 0)
    w.dead_letters = MemoryDeadLetters()
    w.next_tick()
    row = w.row("bad")
    assert (row["outcome"], "malformedReason" in row) == ("failed", False)
    (letter,) = w.dead_letters.letters
    assert (letter.attempt, letter.error) == (0, row.get("error", "its status was set to failed by hand"))
    w.ticks(3)
    assert w.actions.times("bad") == 0


@pytest.mark.parametrize(
    "mistake",
    [{"retryPolicy": {"maximumRetryAttempts": "many"}}, {"payload": "not a map"}, {"scheduleId": 7},
     {"scheduleExpression": "rate(1 day)"}, {"taskDateTime": "noon"}, {"status": "banana"}, {"action": 7}],
)  # fmt: skip
def test_a_row_that_was_put_again_corrected_is_not_failed_for_its_first_record(mistake: dict[str, object]) -> None:
    w = world()
    corrected = {"taskId": "t", "taskDateTime": NEXT}
    first = {**corrected, **mistake}
    w.rigged.put(corrected)
    w.stream(first)
    w.stream(w.row("t"), first)
    assert (w.row("t")["status"], w.dead_letters.letters) == ("scheduled", [])
    w.next_tick()
    assert w.outcome("t") == "completed"


# -- the scheduler function ------------------------------------------------------------------------------------------


def scheduler(w: World) -> Scheduler:
    return Scheduler(store=w.store, dead_letters=w.dead_letters, rules=w.rules, clock=w.clock, decode=decode)


def event_of(w: World, *rows: Row) -> Mapping[str, Any]:
    """Puts rows into the table. Returns the stream's event for them."""
    for row in rows:
        assert w.store.create(row)
    return {"Records": [{"dynamodb": {"SequenceNumber": str(n), "NewImage": encode(r)}} for n, r in enumerate(rows)]}


def test_a_dead_letter_queue_that_refuses_is_asked_once_a_batch(w: World) -> None:
    asked: list[object] = []
    w.dead_letters = MemoryDeadLetters(refuse=lambda letter: asked.append(letter) or True)
    malformed = [{"taskId": f"m{n}", "taskDateTime": str(bucket_at(5)), "action": 7} for n in range(5)]
    made = scheduler(w)
    records = event_of(w, *malformed)
    assigned = made.handle(records)
    assert (len(asked), assigned.undelivered, assigned.rejected, assigned.failed) == (1, 5, 0, [])
    assert {w.row(f"m{n}")["taskDateTime"] for n in range(5)} == {str(bucket_at(1))}, "the next tick tries again"
    made.handle(records)
    assert len(asked) == 2, "each batch tries once"


def test_the_settings_are_read_once_a_minute(w: World) -> None:
    made = scheduler(w)
    reads = []
    for n, seconds in enumerate((0, 50, 5, 6)):
        w.clock.forward(seconds=seconds)
        w.rigged.forget()
        made.handle(event_of(w, {"taskId": f"t{n}", "taskDateTime": str(bucket_at(30))}))
        reads.append(w.rigged.reads.count(SETTINGS_ID))
    assert reads == [1, 0, 0, 1]


# -- anything --------------------------------------------------------------------------------------------------------


ANYTHING: list[object] = [
    None, "", "x", 0, 1, -1, Decimal("0.5"), Decimal("1E+125"), Decimal("1E-130"), Decimal("9" * 38), True, False,
    Binary(b"\x00\xff"), {"a", "b"}, {Decimal(1), Decimal(2)}, [], {}, [1], {"a": [{"b": {"c"}}]}, "\x00", "é" * 300,
]  # fmt: skip

TIMES: list[object] = [
    "2026-12-31#12:01", "2026-12-31#12:05", "2026-12-31#11:00", "2026-12-31#12:05#3", "2026-12-31#12:05#99999",
    "1970-01-01#00:00", "9998-12-31#23:59", "9999-12-31#23:59", "2026-12-31T12:05:00Z", "2026-02-30#10:00", "tomorrow",
    "9998-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59", Decimal(1798718700), Decimal("253402300799.999"),
]  # fmt: skip

EXPRESSIONS: list[object] = [
    "rate(1 minute)", "rate(0 minutes)", "rate(never)", "cron(0 12 31 2 ? *)", "at(2026-12-31T12:10:00)",
    "at(0001-01-01T00:00:00)",
]  # fmt: skip

VALUES: Mapping[str, list[object]] = {
    "status": ["scheduled", "running", "recurring", "completed", "failed", "cancelled", "banana"],
    "outcome": [None, "completed", "none"], "taskDateTime": TIMES, "dueAt": TIMES,
    "delaySeconds": [0, 60, -1, Decimal("0.000001"), "60"], "action": ["log", "", "x" * 200],
    "payload": [{}, {"a": 1}, "text"],
    "retryPolicy": [{}, {"maximumRetryAttempts": 0}, {"maximumRetryAttempts": 186}, {"x": 1}, "never"],
    "attempt": [0, 1, 4, 10**9, "many"], "run": [0, 1, 5, 10**12], "lease": ["token", None],
    "leaseUntil": ["1970-01-01T00:00:00Z", "2026-12-31T11:00:00Z", "2026-12-31T13:00:00Z", "x"],
    "attempts": [[], [{"run": 1, "startedAt": "x"}], [{"run": [1]}], "x"],
    "createdAt": ["x", "2026-12-31T11:59:00Z"], "startedAt": ["x", "2026-12-31T11:59:00Z"], "expiresAt": [1, "x"],
    "error": ["x"], "scheduleId": ["hostile", "other"], "movedTo": TIMES, "malformedReason": ["x"],
    "scheduleExpression": EXPRESSIONS, "cronExpression": EXPRESSIONS,
    "scheduleState": ["ENABLED", "DISABLED", "COMPLETED", "x"],
    "scheduleExpressionTimezone": ["UTC", "../../etc/passwd"],
    "startDate": TIMES, "nextOccurrenceAt": TIMES, "definition": [{}, {"scheduleState": 7}, "x"],
    "dueBefore": [[{"scheduleExpression": "rate(1 minute)", "until": "2026-12-31T12:30:00Z"}], [1]],
    "revision": [0, 10**9, "x"],
}  # fmt: skip

KEYS = ("taskDateTime", "scheduleState")  # of an index: the table takes nothing but text there, and not an empty one


def values(name: str) -> st.SearchStrategy[object]:
    found = st.one_of(st.sampled_from(VALUES[name]), st.sampled_from([*VALUES[name], *ANYTHING]))
    return found.filter(lambda value: isinstance(value, str) and value != "") if name in KEYS else found


rows = st.builds(
    # An id that is longer than an index takes is taken only without its keys.
    lambda is_long, more: (
        {"taskId": "x" * (MAX_TASK_ID_BYTES + 1)} | {n: v for n, v in more.items() if n not in KEYS}
        if is_long
        else {"taskId": "hostile", **more}
    ),
    st.sampled_from([False] * 9 + [True]),
    st.lists(st.sampled_from(sorted(VALUES)), max_size=7, unique=True).flatmap(
        lambda names: st.fixed_dictionaries({name: values(name) for name in names})
    ),
)


@given(rows, st.none() | rows, st.booleans())
@example({"taskId": "hostile", "status": "running", "outcome": None, "expiresAt": 1}, None, False)
def test_every_row_is_placed_or_ended_by_its_record(row: Row, old: Row | None, refuses: bool) -> None:
    """``refuses``: the dead-letter queue takes no message, so that a malformed row waits for a tick."""
    w = world(dead_letters=MemoryDeadLetters(refuse=lambda letter: refuses))
    task_id = str(row["taskId"])
    image, _ = put(w, row)
    for _ in range(2):
        assert list(arrive(w, (image, None if old is None else {**old, "taskId": task_id})).failed) == []
    now = w.row(task_id)
    is_an_occurrence = row.get("status") == "running" and row.get("scheduleId") is not None  # as a tick writes it
    if is_terminal(now) or (is_an_occurrence and old is None):
        return
    placer = w.placer()
    change = placer.make_ready(now)
    assert change is None or (refuses and is_rejection(change)), "there is nothing left to be written"
    if refuses and len(task_id) > MAX_TASK_ID_BYTES:  # the index can't hold it
        w.dead_letters = MemoryDeadLetters()
        w.handle({"dynatick": {"reconcile": True}})
        assert w.outcome(task_id) == "failed"
    else:
        assert placer.is_ahead(now) or (change is None and is_at_rest(now)), "a tick polls it"


# -- events of ends --------------------------------------------------------------------------------------------------


class Bus:
    """The user's bus, which takes ``takes`` events in all; beyond them ``problem`` (None: there was no time)."""

    def __init__(self, takes: int = 100, problem: str | None = "down", takes_aside: int = 100) -> None:
        self.takes, self.problem, self.takes_aside = takes, problem, takes_aside
        self.got: list[object] = []
        self.aside: list[object] = []

    def put(self, ends: Sequence[End]) -> tuple[int, str | None]:
        taken = ends[: max(0, self.takes - len(self.got))]
        self.got += [end.detail["taskId"] for end in taken]
        return len(taken), self.problem if len(taken) < len(ends) else None

    def set_aside(self, ends: Sequence[End]) -> tuple[int, str | None]:
        self.aside += [end.detail["taskId"] for end in ends[: self.takes_aside]]
        return min(len(ends), self.takes_aside), "queue" if len(ends) > self.takes_aside else None


def publishing(w: World, bus: Bus) -> Scheduler:
    made = scheduler(w)
    made.bus, made.outcome_events = bus, OutcomeEvents.FAILED
    return made


def records_of(w: World, *tasks: object, age: float = 0) -> list[dict[str, Any]]:
    """The records of running tasks that have failed, some seconds ago."""
    running = {"status": "running", "action": "log", "run": 1, "attempt": 1, "taskDateTime": NEXT}
    made_at = w.clock().timestamp() - age
    return [
        {
            "eventName": "MODIFY",
            "dynamodb": {
                "SequenceNumber": task,
                "ApproximateCreationDateTime": made_at,
                "OldImage": encode({"taskId": task, **running}),
                "NewImage": encode({"taskId": task, **running, "status": "failed", "outcome": "failed"}),
            },
        }
        for task in tasks
    ]


def test_ends_are_put_on_the_bus_and_rows_have_their_places_whatever_it_says(w: World) -> None:
    for takes, age, failed in ((100, 0, []), (0, 0, ["a", "b"]), (1, 0, ["b"]), (0, 61, [])):
        bus = Bus(takes)
        row = {"taskId": f"new{takes}-{age}"}
        event = {"Records": [*records_of(w, "a", "b", age=age), *event_of(w, row)["Records"]]}
        assigned = publishing(w, bus).handle(event)
        assert w.row(row["taskId"])["status"] == "scheduled"
        assert [key for key, _ in assigned.failed] == failed
        assert (assigned.seen, assigned.events, assigned.set_aside) == (1, min(takes, 2), 2 if age else 0)
        assert bus.aside == (["a", "b"] if age else [])


def test_only_events_of_old_records_are_set_aside_and_none_for_want_of_time(w: World) -> None:
    records = [*records_of(w, "young"), *records_of(w, "old", age=61)]
    bus = Bus(0)
    assert [key for key, _ in publishing(w, bus).handle({"Records": records}).failed] == ["young"]
    assert bus.aside == ["old"]
    full = publishing(w, Bus(0, takes_aside=0)).handle({"Records": records})
    assert full.failed == [("old", "its event: queue"), ("young", "its event: queue")], "Lambda sends both again"
    late = Bus(1, None)
    assert [key for key, _ in publishing(w, late).handle({"Records": records}).failed] == ["old"]
    assert late.aside == []


@pytest.mark.parametrize(("age", "failed", "aside"), [(0, True, 0), (61, False, 3)])
def test_a_pack_with_more_events_than_an_invocation_puts_does_not_come_back_for_ever(
    w: World, age: float, failed: bool, aside: int
) -> None:
    pack = Pack(batch_id="b", span=Span(0, 5))
    row = {"taskId": pack.span.pack_id("b"), "status": "running", "run": 1, "taskDateTime": NEXT}
    (record,) = records_of(w, row["taskId"], age=age)
    record["dynamodb"] |= {
        "OldImage": encode({**row, "pack": pack.to_attribute()}),
        "NewImage": encode({**row, "pack": replace(pack, done=0b11111).to_attribute()}),
    }
    bus = Bus(2, None)
    made = publishing(w, bus)
    made.outcome_events = OutcomeEvents.ALL
    assigned = made.handle({"Records": [record]})
    assert (len(bus.got), len(bus.aside), bool(assigned.failed)) == (2, aside, failed)


def test_the_record_of_an_end_alone_needs_no_place_and_without_a_bus_says_nothing(w: World) -> None:
    w.rigged.forget()
    assigned = scheduler(w).handle({"Records": records_of(w, "gone")})
    assert (assigned.seen, assigned.events, assigned.failed) == (0, 0, [])
    assert w.rigged.reads.count("gone") == 0


def test_a_row_that_is_inserted_ended_has_an_event(w: World) -> None:
    bus = Bus()
    ended = {"taskId": "b/000000001", "status": "failed", "outcome": "failed", "run": 1, "attempt": 1}
    publishing(w, bus).handle(event_of(w, ended))
    assert bus.got == ["b/000000001"]

"""The scheduler's work: batches of records, with anything in them, repeated and out of order."""

from __future__ import annotations

from decimal import Decimal

import pytest
from tests.builders import key_of, scheduled_row
from tests.unit.engine.support import World, bucket_at, cannot, is_move, world

from dynatick.actions.testing import MemoryDeadLetters
from dynatick.domain.buckets import Bucket, minute_of
from dynatick.domain.conditional_update import ConditionalUpdate, Written
from dynatick.domain.task import Row
from dynatick.engine.assign import Arrival, Assigned, assign
from dynatick.errors import StoreError
from dynatick.store.memory import MemoryStore

AHEAD, CLOSED, NEXT = bucket_at(5), bucket_at(-5), bucket_at(1)


def arrive(w: World, *records: tuple[Row | None, Row | None]) -> Assigned:
    """A batch of (new, old)."""
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


def with_a_task() -> World:
    """A world with a task ``t`` that the scheduler has seen."""
    w = world()
    arrive(w, put(w, scheduled_row("t", AHEAD)))
    return w


def refusing() -> World:
    """A world whose dead-letter queue refuses all."""
    return world(dead_letters=MemoryDeadLetters(refuse=lambda letter: True))


# -- single records --------------------------------------------------------------------------------------------------


def test_a_raw_row_becomes_a_task_in_at_most_two_writes() -> None:
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


def test_neither_a_row_of_a_client_nor_our_own_write_that_comes_by_again_costs_a_write() -> None:
    w = world()
    by_client, raw = put(w, scheduled_row("t", AHEAD)), put(w, {"taskId": "u", "taskDateTime": str(CLOSED)})
    arrive(w, raw)
    placed = w.row("u")
    w.rigged.forget()
    arrive(w, by_client, (placed, raw[0]))
    assert w.rigged.writes == []
    assert w.row("u") == placed


@pytest.mark.parametrize(
    ("values", "bucket", "due"),
    [({"taskDateTime": "2026-12-31T13:06:30+01:00"}, "2026-12-31#12:07", "2026-12-31T12:06:30Z"),
     ({"dueAt": "2026-12-31T12:06:30Z"}, "2026-12-31#12:07", "2026-12-31T12:06:30Z"),
     ({"taskDateTime": str(CLOSED)}, str(NEXT), "2026-12-31T11:55:00Z"),
     ({"payload": {"a": "b"}}, str(AHEAD), "2026-12-31T12:05:00Z")],
)  # fmt: skip
def test_a_time_that_was_changed_by_hand_moves_the_task(values: dict[str, object], bucket: str, due: str) -> None:
    w = with_a_task()
    arrive(w, edit(w, "t", **values))
    assert (w.row("t")["taskDateTime"], w.row("t")["dueAt"]) == (bucket, due)


# -- put over an existing id -----------------------------------------------------------------------------------------


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


def test_a_schedule_put_over_another_makes_occurrences_with_other_ids() -> None:
    assert revision_after(RECURRING) == 1
    assert revision_after(RECURRING, RECURRING, RECURRING) == 3
    ended = {**RECURRING, "status": "completed", "outcome": "completed", "revision": Decimal(4)}
    assert revision_after(ended, RECURRING) == 5


def test_a_schedule_put_over_a_task_does_not_repeat_the_ids_of_a_schedule_before_that() -> None:
    task = {"taskId": "s"}
    one, two = revision_after(RECURRING, task, RECURRING), revision_after(RECURRING, task, RECURRING, task, RECURRING)
    assert int(str(two)) > int(str(one)) > 1


# -- batches ---------------------------------------------------------------------------------------------------------

MALFORMED: list[dict[str, object]] = [
    {"action": Decimal(7)},
    {"taskDateTime": "soon"},  # its own time is written over, and it is malformed all the same
    {"delaySeconds": "soon"}, {"dueAt": "soon"}, {"taskDateTime": str(bucket_at(60)), "payload": "text"},
    {"taskDateTime": str(CLOSED), "action": Decimal(7)}, {"status": "banana"}, {"status": ["scheduled"]},
    {"status": "failed"}, {"status": "scheduled", "taskDateTime": "soon"},
    {**scheduled_row("bad", AHEAD), "taskDateTime": "soon"}, {"scheduleExpression": "rate(never)"},
    {"scheduleExpression": "rate(1 minute)", "taskDateTime": "soon"},
    {"scheduleExpression": "rate(never)", "status": "recurring", "scheduleId": "bad", "scheduleState": "DISABLED"},
]  # fmt: skip


@pytest.mark.parametrize(
    ("odd", "outcome"),
    [({"action": Decimal(7)}, "failed"), ({"payload": {"k": "x" * (400 * 1024 - 60)}}, "failed"),
     ({"action": {"a": [None, {"b": {"c"}}]}}, "failed"), ({"dueAt": Decimal("1E+125")}, "failed"),
     ({"outcome": None, "taskDateTime": None, "dueAt": None}, "completed")],
    ids=["a number", "too large", "a map", "too late", "nulls"],
)  # fmt: skip
def test_an_odd_row_neither_raises_nor_delays_another(odd: dict[str, object], outcome: str) -> None:
    w = world()
    done = arrive(w, put(w, {"taskId": "t"}), put(w, {"taskId": "odd", **odd}), put(w, {"taskId": "u"}))
    assert list(done.failed) == []
    assert (w.row("t")["status"], w.row("u")["status"]) == ("scheduled", "scheduled")
    w.next_tick()
    assert (w.outcome("t"), w.outcome("odd"), w.outcome("u")) == ("completed", outcome, "completed")


def test_the_whole_batch_is_written_in_batches() -> None:
    """25 conditional writes a request: the scheduler's share of a raw row must stay small (design §12)."""
    w = world()
    records = [put(w, {"taskId": f"t{n:03d}"}) for n in range(100)]
    sizes: list[int] = []
    w.rigged.batch_fails = lambda changes: sizes.append(len(changes))
    w.rigged.forget()
    done = arrive(w, *records)
    assert (done.seen, done.normalised) == (100, 100)
    assert sizes == [100]
    assert len(w.rigged.reads) <= 2, "the settings and one cursor, however many rows"


# -- several records of one task -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("edits", "bucket"),
    [
        # the later record's images both have the new time; only the first one's show that it changed
        pytest.param([{"dueAt": "2026-12-31T12:30:00Z"}, {"payload": {"a": "b"}}], 30, id="another edit follows"),
        pytest.param([{"dueAt": "2026-12-31T12:30:00Z"}, {"dueAt": "2026-12-31T12:40:00Z"}], 40, id="the last counts"),
        pytest.param([{"taskDateTime": str(bucket_at(30))}, {"taskDateTime": str(AHEAD)}], 5, id="it was reverted"),
    ],
)
def test_of_several_edits_in_one_batch_the_last_time_counts(edits: list[dict[str, object]], bucket: int) -> None:
    w = with_a_task()
    arrive(w, *[edit(w, "t", **values) for values in edits])
    row = w.row("t")
    assert (row["taskDateTime"], row["dueAt"]) == (str(bucket_at(bucket)), f"2026-12-31T12:{bucket:02d}:00Z")
    assert row.get("payload") == edits[1].get("payload")


# -- faults ----------------------------------------------------------------------------------------------------------


def test_only_records_whose_rows_could_not_be_placed_fail() -> None:
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


@pytest.mark.parametrize("malformed", MALFORMED, ids=[str(row)[:60] for row in MALFORMED])
def test_a_dead_letter_queue_that_refuses_fails_no_record(malformed: dict[str, object]) -> None:
    """The row stays open in a bucket that the ticks poll, and is failed by the first one whose message is taken."""
    w = refusing()
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
    assert letter.error == row.get("error", "its status was set to failed by hand")
    w.ticks(3)
    assert w.actions.times("bad") == 0


def test_what_no_row_can_be_placed_without_fails_each_record_or_the_batch() -> None:
    """Without the cursor each record that needs it fails. Without the table nothing of the batch can have been done:
    Lambda sends it again as it is."""
    w = world()
    placer = w.placer()
    arrivals = [Arrival(str(n), *put(w, {"taskId": f"t{n}"})) for n in range(2)]

    def no_cursor(task_id: str) -> None:
        if task_id.startswith("_dynatick#cursor"):
            raise cannot("read")

    w.rigged.before_read = no_cursor
    assert [key for key, _ in assign(arrivals, placer).failed] == ["0", "1"]
    w.rigged.before_read, w.rigged.batch_fails = None, lambda changes: True
    with pytest.raises(StoreError):
        assign(arrivals, placer)


# -- a row that is put, and put again, corrected, before the stream has shown the first one --------------------------

PUT = {"taskId": "t", "taskDateTime": str(NEXT)}


@pytest.mark.parametrize(
    "mistake",
    [{"retryPolicy": {"maximumRetryAttempts": "many"}}, {"payload": "not a map"}, {"scheduleId": 7},
     {"scheduleExpression": "rate(1 day)"}, {"taskDateTime": "noon"}, {"status": "banana"}, {"action": 7}],
)  # fmt: skip
def test_the_first_put_does_not_cost_the_second_one(mistake: dict[str, object]) -> None:
    w = world()
    first = {**PUT, **mistake}
    w.rigged.put(PUT)
    w.stream(first)
    w.stream(w.row("t"), first)
    assert w.row("t")["status"] == "scheduled"
    assert w.dead_letters.letters == []
    w.next_tick()
    assert w.outcome("t") == "completed"

"""Whatever a row holds: its record of the stream succeeds, and the row ends, whether the dead-letter queue takes its
message at once or only later."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

from boto3.dynamodb.types import Binary
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.unit.engine.support import World, world

from dynatick.actions.testing import MemoryDeadLetters
from dynatick.domain.lifecycle import is_terminal
from dynatick.domain.schedule import is_at_rest
from dynatick.domain.task import MAX_TASK_ID_BYTES, Row
from dynatick.engine.assign import Arrival, assign
from dynatick.engine.placement import Placer
from dynatick.engine.readiness import is_rejection

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


def arrive(w: World, row: Row, old: Row | None) -> None:
    """put-item, or an edit by hand; and what the stream says of it, twice."""
    w.rigged.put(row)
    task_id = str(row["taskId"])
    image = w.row(task_id)
    for _ in range(2):
        done = assign([Arrival("1", image, None if old is None else {**old, "taskId": task_id})], w.placer())
        assert list(done.failed) == []


def left_open(w: World, task_id: str) -> Row | None:
    row = w.row(task_id)
    return None if is_terminal(row) else row


def is_malformed(placer: Placer, row: Row) -> bool:
    change = placer.make_ready(row)
    return change is not None and is_rejection(change)


def is_in_flight(row: Row) -> bool:
    """As a tick writes an occurrence: it is the tick's."""
    return row.get("status") == "running" and row.get("scheduleId") is not None


@settings(max_examples=150)
@given(rows, st.none() | rows)
@example({"taskId": "hostile", "status": "running", "outcome": None, "expiresAt": 1}, None)
def test_every_row_is_placed_or_ended_by_its_record(row: Row, old: Row | None) -> None:
    w = world()
    arrive(w, row, old)
    now = left_open(w, str(row["taskId"]))
    if now is None or (is_in_flight(row) and old is None):
        return
    placer = w.placer()
    assert placer.make_ready(now) is None, "there is nothing left to be written"
    assert is_at_rest(now) or placer.is_ahead(now), "a tick polls it"


@settings(max_examples=150)
@given(rows, st.none() | rows)
def test_a_queue_that_refuses_delays_only_the_end_of_a_malformed_row(row: Row, old: Row | None) -> None:
    w = world(dead_letters=MemoryDeadLetters(refuse=lambda letter: True))
    arrive(w, row, old)
    task_id = str(row["taskId"])
    before = left_open(w, task_id)
    w.next_tick()
    waiting = left_open(w, task_id)
    w.dead_letters = MemoryDeadLetters()
    w.ticks(2)
    w.handle({"dynatick": {"reconcile": True}})
    now = left_open(w, task_id)
    assert now is None or not is_malformed(w.placer(), now)
    if before is not None and waiting is not None and is_malformed(w.placer(), before):
        assert w.outcome(task_id) == "failed"
        assert w.actions.times(task_id) == 0
        assert [letter.row["taskId"] for letter in w.dead_letters.letters] == [task_id]

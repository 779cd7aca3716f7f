"""A write whose answer was lost, or which the SDK has sent again, recognises its own effect."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from tests.builders import NOON, scheduled_row
from tests.unit.engine.support import THROTTLED, RiggedStore, bucket_at, raises_for

import dynatick
from dynatick.domain.conditional_update import (
    Absent,
    AtLeast,
    ConditionalUpdate,
    Is,
    Lost,
    Plus,
    Result,
    Unknown,
    Written,
    as_read,
    merge_updates,
)
from dynatick.domain.lifecycle import (
    RELEASED,
    cancel,
    claim,
    complete,
    defer_claimed,
    defer_failure,
    fail,
    fail_unexecuted,
    move,
    reclaim,
    redrive,
    release,
    reschedule,
    restore,
    retry,
    revise,
    started,
)
from dynatick.domain.task import Row, Task
from dynatick.engine.conditional_write import create, create_many, write, write_many
from dynatick.engine.ports import StoreFailure
from dynatick.errors import ItemTooLarge, StoreError
from dynatick.store.memory import MemoryStore

LATER = NOON + timedelta(minutes=5)
WAITING = scheduled_row("t", bucket_at(0))
RUNNING = {**WAITING, "status": "running", "lease": "mine", "leaseUntil": "2026-12-31T12:02:00Z", "attempt": 1}
ENDED = {**WAITING, "status": "failed", "outcome": "failed", "finishedAt": "2026-12-31T11:00:00Z"}
CANCELLED = {**ENDED, "status": "cancelled", "outcome": "cancelled"}
TASK = Task.from_row(RUNNING)
ENDS = {"now": NOON, "retention_days": 7}
LEASE = {"token": "new", "lease_until": LATER, "now": NOON}

KINDS: dict[str, tuple[Row, ConditionalUpdate]] = {
    "claim": (WAITING, claim("t", bucket_at(0), **LEASE)),  # type: ignore[arg-type]
    "claim of a released task": (
        {**RUNNING, "leaseUntil": RELEASED},
        claim("t", bucket_at(0), released=True, **LEASE),  # type: ignore[arg-type]
    ),
    "reclaim": (RUNNING, reclaim(RUNNING, attempt=2, **LEASE)),  # type: ignore[arg-type]
    "completed": (RUNNING, complete(TASK, result={"n": 1}, **ENDS)),  # type: ignore[arg-type]
    "failed": (RUNNING, fail(TASK, error="no", **ENDS)),  # type: ignore[arg-type]
    "failed unexecuted": (RUNNING, fail_unexecuted(RUNNING, error="died", **ENDS)),  # type: ignore[arg-type]
    "retry": (RUNNING, retry(TASK, now=NOON, at=LATER, bucket=bucket_at(5), error="no")),
    "rate limited": (RUNNING, defer_claimed(TASK, at=LATER, bucket=bucket_at(5))),
    "release": (RUNNING, release(TASK)),
    "failure deferred": (RUNNING, defer_failure(RUNNING, bucket_at(5), now=NOON, error="no")),
    "move": (WAITING, move(WAITING, bucket_at(5))),
    "cancel": (WAITING, cancel(WAITING, **ENDS)),  # type: ignore[arg-type]
    "reschedule": (WAITING, reschedule(WAITING, bucket=bucket_at(5), due_at=LATER)),
    "revise": (WAITING, revise(WAITING, payload={"ratio": 0.1, "list": [1.5, {"x": 1e-7}, None], "tags": {0.5, 2.5}})),
    "redrive": (ENDED, redrive(ENDED, bucket=bucket_at(5), due_at=LATER, run=2)),
    "restore": (CANCELLED, restore(CANCELLED, now=NOON)),
}


def stored(row: Row) -> RiggedStore:
    store = RiggedStore()
    store.put(row)
    return store


def sent_twice(store: RiggedStore, change: ConditionalUpdate) -> Result:
    """Writes a change that took effect a moment before: its answer was lost, and the SDK has sent it again."""
    assert isinstance(MemoryStore.write(store, change), Written)
    return write(store, change)


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_write_recognises_itself_when_it_was_sent_twice_or_got_no_answer(kind: str) -> None:
    row, change = KINDS[kind]
    assert not change.is_shown_by(row)
    again = sent_twice(store := stored(row), change)
    assert isinstance(again, Written)
    assert store.reads == [], "the row came with the answer"
    store = stored(row)
    store.unanswered = lambda change: True
    assert isinstance(write(store, change), Written)
    assert store.reads == ["t"]
    (unanswered,) = write_many(store := _unanswered(row), [change])
    assert isinstance(unanswered, Written)
    if change.returning:
        assert unanswered.row == store.peek("t")


def _unanswered(row: Row) -> RiggedStore:
    store = stored(row)
    store.unanswered = lambda change: True
    return store


@pytest.mark.parametrize("kind", sorted(KINDS.keys() - {"move"}))  # a move does the same
def test_no_write_takes_the_effect_of_another_for_its_own(kind: str) -> None:
    row, change = KINDS[kind]
    for other, (_, theirs) in KINDS.items():
        if other not in (kind, "claim of a released task") and kind != "claim of a released task":
            store = stored({**row, "lease": "another's"} if "lease" in row else row)
            MemoryStore.write(store, replace(theirs, conditions=(), set=_renamed(theirs)))
            assert not change.is_shown_by(store.peek("t") or {}), other


def _renamed(change: ConditionalUpdate) -> dict[str, object]:
    """What another process would set: its own token, at another instant."""
    theirs = {"lease": "another's", "finishedAt": "2026-12-31T12:00:00.1Z", "dueAt": "2026-12-31T12:05:00.1Z"}
    theirs["restoredAt"] = "2026-12-31T12:00:00.1Z"
    return {name: theirs.get(name, value) for name, value in change.set.items() if name != "payload"}


FURTHER: list[tuple[str, dict[str, object]]] = [
    ("claim", {"taskDateTime": str(bucket_at(9))}),  # moved
    ("reclaim", {"taskDateTime": str(bucket_at(9))}),
    ("completed", {"attempts": []}),
    ("retry", {"taskDateTime": str(bucket_at(9)), "dueAt": "2026-12-31T12:09:00Z"}),
    ("reschedule", {"status": "running", "lease": "another's"}),  # claimed
    ("revise", {"status": "running", "lease": "another's"}),
    ("redrive", {"status": "running", "lease": "another's", "attempt": 1}),
    ("restore", {"status": "completed", "outcome": "completed", "finishedAt": "2026-12-31T12:00:01Z"}),
    ("restore", {"status": "cancelled", "outcome": "cancelled", "finishedAt": "2026-12-31T12:00:01Z"}),
]


@pytest.mark.parametrize(("kind", "since"), FURTHER)
def test_a_write_recognises_itself_in_a_row_that_others_have_changed_further(
    kind: str, since: dict[str, object]
) -> None:
    row, change = KINDS[kind]
    store = stored(row)
    MemoryStore.write(store, change)
    MemoryStore.write(store, ConditionalUpdate(task_id="t", set=since))
    assert change.is_shown_by(store.peek("t") or {})


def test_a_late_record_does_not_take_the_end_by_a_recovery_for_its_own() -> None:
    """Both have the lease of the same claim."""
    _, late = KINDS["failed"]
    store = stored(RUNNING)
    MemoryStore.write(store, fail_unexecuted(RUNNING, now=LATER, retention_days=7, error="its process died"))
    assert isinstance(write(store, late), Lost)


def test_a_reschedule_to_the_time_that_the_task_has_shows_nothing_once_it_was_claimed() -> None:
    same = reschedule(WAITING, bucket=bucket_at(0), due_at=NOON)
    claimed = {**WAITING, "status": "running", "lease": "another's"}
    assert not same.is_shown_by(claimed)
    assert same.is_shown_by({**WAITING, "status": "scheduled"})


def test_a_write_that_is_answered_as_usual_reads_nothing() -> None:
    store = stored(WAITING)
    change = claim("t", bucket_at(0), **LEASE)  # type: ignore[arg-type]
    assert isinstance(write(store, change), Written)
    lost = write(store, claim("t", bucket_at(0), token="late", lease_until=LATER, now=NOON))
    assert isinstance(lost, Lost)
    assert (lost.present or {})["lease"] == "new"
    assert store.reads == []
    assert write_many(store, []) == ()


def test_a_write_that_did_not_take_effect_is_reported_with_the_row_as_it_is() -> None:
    store = stored(WAITING)
    store.throttled = lambda change: True
    change = cancel(WAITING, **ENDS)  # type: ignore[arg-type]
    assert write(store, change) == replace(THROTTLED, was_read=True, present=WAITING)
    assert write(store, replace(change, task_id="none")) == replace(THROTTLED, was_read=True)
    store.before_read = raises_for("t")
    assert write(store, change) == THROTTLED
    store.clear_faults()
    assert write(store, replace(change, task_id="none")) == Lost(None)


def test_without_the_row_a_lost_write_is_unknown() -> None:
    class Silent(RiggedStore):
        def write(self, change: ConditionalUpdate) -> Result:
            return Lost()  # as an engine that doesn't return the row

    store = Silent()
    store.put(WAITING)
    store.before_read = raises_for("t")
    result = write(store, cancel(WAITING, **ENDS))  # type: ignore[arg-type]
    assert result == Unknown("cannot read: the table is not there")


def test_a_batch_that_raises_is_read_like_one_without_an_answer() -> None:
    store = stored(WAITING)
    store.put(scheduled_row("u", bucket_at(0)))
    changes = [claim(i, bucket_at(0), **LEASE) for i in ("t", "u")]  # type: ignore[arg-type]

    def raises(batch: Sequence[ConditionalUpdate]) -> bool:
        MemoryStore.write(store, batch[0])
        return True

    store.batch_fails = raises
    first, second = write_many(store, changes)
    assert isinstance(first, Written)
    assert isinstance(second, Unknown)
    assert second.was_read


def test_a_refusal_for_its_size_is_final() -> None:
    store = stored(WAITING)
    large = ConditionalUpdate(task_id="t", set={"payload": {"k": "x" * 500_000}})
    result = write(store, large)
    assert isinstance(result, Unknown)
    assert result.too_large
    assert store.reads == []


# -- marks -----------------------------------------------------------------------------------------------------------


def test_without_a_mark_a_write_is_shown_by_all_that_it_leaves() -> None:
    change = ConditionalUpdate(
        task_id="t", set={"a": 1, "n": Plus(1)}, remove=("b",), conditions=(Is("a", 0), Is("c", "x"), Absent("d"))
    )
    assert change.is_shown_by({"a": 1, "c": "x", "n": 5})
    for other in ({"a": 0, "c": "x"}, {"a": 1, "c": "y"}, {"a": 1, "c": "x", "b": 1}, {"a": 1, "c": "x", "d": 1}):
        assert not change.is_shown_by(other)
    assert not ConditionalUpdate(task_id="t", set={"a": 1}).is_shown_by({"a": True})
    at_least = ConditionalUpdate(task_id="t", conditions=(AtLeast("n", 2),))
    assert [at_least.is_shown_by({"n": n}) for n in (2, 3, 1, True, "2", None)] == [True, True] + 4 * [False]


def test_the_mark_of_several_changes_is_that_of_all_or_none() -> None:
    due, payload = reschedule(WAITING, bucket=bucket_at(5), due_at=LATER), revise(WAITING, payload={"n": 1})
    assert merge_updates(due, payload).mark == (*due.mark, *payload.mark)
    assert merge_updates(due, replace(payload, mark=())).mark == ()
    assert merge_updates(due, conditions=as_read(WAITING, "action")).mark == due.mark


# -- new rows --------------------------------------------------------------------------------------------------------


class Uncertain(RiggedStore):
    """A table that answers no creation. ``took_effect``: of a row."""

    took_effect: Callable[[Row], bool] = staticmethod(lambda row: True)

    def create(self, row: Row) -> bool:
        if self.took_effect(row):
            MemoryStore.create(self, row)
        raise StoreError("no answer")

    def create_many(self, rows: Sequence[Row]) -> Sequence[bool | StoreFailure]:
        for row in rows:
            if self.took_effect(row):
                MemoryStore.create(self, row)
        return [StoreFailure("no answer")] * len(rows)


OCCURRENCE = started(scheduled_row("o", bucket_at(0)), token="mine", lease_until=LATER, now=NOON)
NEW: dict[str, Row] = {
    "an occurrence": OCCURRENCE,
    "a task": scheduled_row("t", bucket_at(5), createdAt="2026-12-31T12:00:00.000001Z"),
    "a task without a time": {"taskId": "raw", "payload": {"n": 1}},
    "a record": {"taskId": "_dynatick#bucket#x", "writtenBy": "mine", "version": 1},
}


@pytest.mark.parametrize("kind", NEW)
def test_a_new_row_is_recognised_when_its_answer_was_lost(kind: str) -> None:
    row = NEW[kind]
    assert create(Uncertain(), row)
    assert create_many(Uncertain(), [row]) == [True]
    store = Uncertain()
    store.took_effect = lambda row: False
    with pytest.raises(StoreError, match="no answer"):
        create(store, row)
    assert create_many(store, [row]) == [StoreFailure("no answer")]


@pytest.mark.parametrize("kind", NEW)
def test_a_row_of_another_is_not_taken_for_ours(kind: str) -> None:
    row = NEW[kind]
    other = {**row, "lease": "x", "createdAt": "2026-12-31T12:00:00.000002Z", "writtenBy": "x"}
    store = Uncertain()
    store.put(other | ({"payload": {"n": 2}} if "payload" in row else {}))
    if kind == "a task without a time":  # it may be ours, changed since
        with pytest.raises(StoreError):
            create(store, row)
        assert create_many(store, [row]) == [StoreFailure("no answer")]
    else:
        assert not create(store, row)
        assert create_many(store, [row]) == [False]


def test_a_creation_that_is_answered_reads_nothing_and_one_that_can_not_be_read_is_unknown() -> None:
    store = RiggedStore()
    assert create(store, WAITING)
    assert not create(store, WAITING)
    assert create_many(store, [WAITING, ENDED | {"taskId": "u"}]) == [False, True]
    assert store.reads == []
    unreadable = Uncertain()
    unreadable.before_read = raises_for("t")
    with pytest.raises(StoreError, match="cannot read"):
        create(unreadable, WAITING)
    assert create_many(unreadable, [WAITING]) == [StoreFailure("no answer")]
    assert create_many(unreadable, []) == ()
    with pytest.raises(ItemTooLarge):
        create(store, {"taskId": "large", "payload": "x" * 500_000})


# -- no way around it ------------------------------------------------------------------------------------------------

WRITES = {"write", "write_many", "create", "create_many", "transact"}


def test_every_writer_goes_through_it() -> None:
    """A write that is sent to the store directly does not recognise itself."""
    package = Path(dynatick.__file__).parent
    direct = [
        f"{path.relative_to(package)}:{node.lineno}"
        for path in sorted(package.rglob("*.py"))
        if path.parent.name != "store" and path.name != "conditional_write.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in WRITES
        and ast.unparse(node.func.value).split(".")[-1].strip("_") in ("store", "table")
    ]
    assert direct == []

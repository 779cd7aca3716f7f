"""Changes of a scheduled row by a user: only a changed time is derived again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import scheduled_row
from tests.unit.domain.strategies import grids, near_instants
from tests.unit.domain.support import written

from dynatick.domain.buckets import Bucket, Grid
from dynatick.domain.conditional_update import ConditionalUpdate, Lost
from dynatick.domain.instants import format_instant
from dynatick.domain.lifecycle import move, reschedule, retry
from dynatick.domain.normalise import Defaults, normalise, rederive
from dynatick.domain.task import Row, Task
from dynatick.store.memory import MemoryStore

NOW = datetime(2026, 12, 31, 12, 0, 30, tzinfo=UTC)
FIVE = Grid(tick_minutes=5)
BUCKET = Bucket.parse("2026-12-31#12:30")
OLD = scheduled_row("t", BUCKET)


def derive(old: Row, new: Row, grid: Grid = FIVE, now: datetime = NOW) -> ConditionalUpdate | None:
    return rederive(old, new, now=now, grid=grid, defaults=Defaults())


def derived(old: Row, new: Row, grid: Grid = FIVE) -> Row:
    """The new row with its derived time; it has one, and our own write is no edit that has another."""
    row = written(derive(old, new, grid), new)
    assert derive(new, row, grid, NOW + timedelta(hours=1)) is None
    return row


EDITS = [
    # what was edited, the bucket and the due instant that follow
    ({"taskDateTime": "2026-12-31#13:01"}, "2026-12-31#13:05", "2026-12-31T13:01:00Z"),  # off the grid
    ({"taskDateTime": "2026-12-31T14:01:00+01:00"}, "2026-12-31#13:05", "2026-12-31T13:01:00Z"),  # an instant
    ({"taskDateTime": "2026-12-31#12:05"}, "2026-12-31#12:05", "2026-12-31T12:05:00Z"),  # earlier
    ({"taskDateTime": "2026-12-30#12:05"}, "2026-12-30#12:05", "2026-12-30T12:05:00Z"),  # past
    ({"dueAt": "2026-12-31T13:07:30Z"}, "2026-12-31#13:10", "2026-12-31T13:07:30Z"),
    ({"dueAt": None, "delaySeconds": Decimal(600)}, "2026-12-31#12:15", "2026-12-31T12:10:30Z"),
    ({"delaySeconds": Decimal(600)}, "2026-12-31#12:15", "2026-12-31T12:10:30Z"),
    ({"taskDateTime": "2026-12-31#13:00", "dueAt": "2027-01-01T00:00:00Z"}, "2026-12-31#13:00", "2026-12-31T13:00:00Z"),
    # the due instant's notation, not its tick
    ({"dueAt": "2026-12-31T13:29:00+01:00"}, "2026-12-31#12:30", "2026-12-31T12:29:00Z"),
]


@pytest.mark.parametrize(("edit", "bucket", "due"), EDITS)
def test_a_time_changed_by_a_user_moves_the_task(edit: dict[str, object], bucket: str, due: str) -> None:
    row = derived(OLD, {**OLD, **edit})
    assert (row["taskDateTime"], row["dueAt"], row["status"]) == (bucket, due, "scheduled")
    assert (row["attempt"], row["run"]) == (0, 1)


LEFT_ALONE: list[tuple[str, dict[str, object], dict[str, object]]] = [
    ("nothing", {}, {}),
    ("the payload", {}, {"payload": {"a": "b"}}),
    ("bucket and due instant, together", {}, {"taskDateTime": "2026-12-31#13:10", "dueAt": "2026-12-31T13:07:30Z"}),
    ("a due instant of the same tick", {}, {"dueAt": "2026-12-31T12:28:00Z"}),
    ("the bucket is gone: it is normalised", {}, {"taskDateTime": None}),
    ("the due instant is gone", {}, {"dueAt": None}),
    ("an unscheduled row", {"status": None}, {"taskDateTime": "2026-12-31#13:00"}),
    ("a running row", {"status": "running"}, {"status": "running", "taskDateTime": "2026-12-31#13:00"}),
    ("a row that has ended", {}, {"status": "cancelled", "outcome": "cancelled", "taskDateTime": "2026-12-31#13:00"}),
    ("a redriven one", {"status": "failed", "outcome": "failed"}, {"taskDateTime": "2026-12-31#13:00"}),
    ("a placed one", {}, {"taskDateTime": "2026-12-31#12:35", "movedTo": "2026-12-31#12:35"}),
]


@pytest.mark.parametrize(("name", "before", "edit"), LEFT_ALONE, ids=[name for name, *_ in LEFT_ALONE])
def test_rederive_returns_none_for_a_row_that_is_right(
    name: str, before: dict[str, object], edit: dict[str, object]
) -> None:
    old = {name: value for name, value in {**OLD, **before}.items() if value is not None}
    new = {name: value for name, value in {**OLD, **edit}.items() if value is not None}
    assert derive(old, new) is None


OTHER = Bucket.parse("2026-12-31#12:35")
RUNNING = {**OLD, "status": "running", "lease": "x", "leaseUntil": "2026-12-31T13:00:00Z", "attempt": Decimal(1)}
MOVES = {
    "of a retry": (RUNNING, retry(Task.from_row(RUNNING), now=NOW, at=OTHER.instant, bucket=OTHER, error="x")),
    "of a placement": (OLD, move(OLD, OTHER)),
    "of a reschedule": (OLD, reschedule(OLD, bucket=OTHER, due_at=OTHER.instant - timedelta(seconds=30))),
}


@pytest.mark.parametrize("name", MOVES)
def test_a_move_of_our_own_is_not_derived_again(name: str) -> None:
    old, change = MOVES[name]
    new = written(change, old)
    assert new["taskDateTime"] == str(OTHER)
    assert derive(old, new) is None
    if name != "of a reschedule":
        assert new["dueAt"] == OLD["dueAt"], "lateness is measured from what was asked for"


@pytest.mark.parametrize(
    ("edit", "bucket"),
    [({"dueAt": "2026-12-31T13:07:30Z"}, "2026-12-31#13:10"), ({"dueAt": "2026-12-31T12:34:00Z"}, str(OTHER)),
     ({"taskDateTime": "2026-12-31#13:00"}, "2026-12-31#13:00"), ({"delaySeconds": Decimal(600)}, "2026-12-31#12:15")],
)  # fmt: skip
def test_a_time_changed_by_a_user_counts_instead_of_the_backoff(edit: dict[str, object], bucket: str) -> None:
    waiting = written(retry(Task.from_row(RUNNING), now=NOW, at=OTHER.instant, bucket=OTHER, error="x"), RUNNING)
    row = derived(waiting, {**waiting, **edit})
    assert row["taskDateTime"] == bucket
    assert "nextAttemptAt" not in row


def test_a_time_changed_after_a_placement_moves_the_task() -> None:
    moved = written(move(OLD, OTHER), OLD)
    row = derived(moved, {**moved, "taskDateTime": "2026-12-31#18:00"})
    assert (row["taskDateTime"], row["dueAt"]) == ("2026-12-31#18:00", "2026-12-31T18:00:00Z")


@pytest.mark.parametrize(
    ("edit", "error"),
    [({"taskDateTime": "tomorrow"}, "taskDateTime: 'tomorrow' is not accepted"),
     ({"dueAt": "2027-02-01T12:00:00"}, "dueAt: '2027-02-01T12:00:00' is not accepted; its offset from UTC is missing"),
     ({"delaySeconds": "soon"}, "delaySeconds: 'soon' is not accepted")],
)  # fmt: skip
def test_a_time_changed_to_a_malformed_one_fails_the_task_with_the_reason(edit: dict[str, object], error: str) -> None:
    row = derived(OLD, {**OLD, **edit})
    assert (row["status"], row["outcome"], row["taskDateTime"]) == ("failed", "failed", "2026-12-31#12:05")
    assert str(row["error"]).startswith(error)


def test_rederive_removes_expires_at_from_a_scheduled_row() -> None:
    """DynamoDB would delete the task before it has run."""
    expiring = {**OLD, "expiresAt": Decimal(1_800_000_000)}
    assert derived(OLD, expiring) == OLD
    row = derived(OLD, {**expiring, "taskDateTime": "2026-12-31#13:00"})
    assert row == {**OLD, "taskDateTime": "2026-12-31#13:00", "dueAt": "2026-12-31T13:00:00Z"}, "both in one update"


@pytest.mark.parametrize(
    "edit",
    [{"taskDateTime": "2026-12-31#14:00"}, {"dueAt": "2026-12-31T14:00:00Z"}, {"delaySeconds": Decimal(1)},
     {"status": "running"}, {"outcome": "cancelled"}, {"action": "other"}],
)  # fmt: skip
def test_a_row_that_was_changed_again_is_not_overwritten(edit: dict[str, object]) -> None:
    new = {**OLD, "taskDateTime": "2026-12-31#13:01"}
    change = derive(OLD, new)
    assert change is not None
    store = MemoryStore()
    store.put({**new, **edit})
    assert isinstance(store.write(change), Lost)


times = st.one_of(
    st.none(), st.sampled_from(["tomorrow", "2027-02-31#12:00", True]), st.integers(0, 4_000_000_000).map(Decimal),
    near_instants.map(lambda i: format_instant(i.replace(microsecond=i.microsecond // 1000 * 1000))),
    st.builds(lambda m, k: str(Bucket(29_978_640 + m, k)), st.integers(-3000, 3000), st.integers(0, 5)),
)  # fmt: skip
edits = st.fixed_dictionaries(
    {},
    optional={"taskDateTime": times, "dueAt": times, "delaySeconds": st.integers(-5, 10_000).map(Decimal),
        "expiresAt": st.just(Decimal(1_800_000_000)), "payload": st.just({"a": "b"})},
)  # fmt: skip


@given(st.integers(0, 3000), edits, grids)
def test_a_derived_time_is_not_derived_again(later: int, edit: dict[str, object], grid: Grid) -> None:
    """The stream record of Dynatick's own write must not count as another change."""
    due = NOW + timedelta(minutes=later)
    put = {"taskId": "t", "dueAt": format_instant(due)}
    old = written(normalise(put, now=NOW, grid=grid, defaults=Defaults()), put)
    new = {name: value for name, value in {**old, **edit}.items() if value is not None}
    change = derive(old, new, grid)
    if change is None:
        return
    row = derived(old, new, grid)
    if "outcome" not in row:
        assert "expiresAt" not in row
        assert "taskDateTime" not in change.set or Task.from_row(row).bucket.minute % grid.tick_minutes == 0

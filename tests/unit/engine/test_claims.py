"""Claiming in batches, and telling apart what could not be claimed (protocol 9, 10)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal

import pytest
from tests.builders import NOON, scheduled_row
from tests.unit.engine.support import Once, World, bucket_at, is_claim, raises_for, world

from dynatick.domain.buckets import Bucket
from dynatick.domain.lifecycle import RELEASED
from dynatick.domain.task import Row
from dynatick.engine.claims import Claimer, Contended, Ineligible, LeaseExpired, Malformed, Verdict, judge
from dynatick.errors import StoreError

HERE, ELSEWHERE = bucket_at(0), bucket_at(5)

RUNNING = scheduled_row(
    "t", HERE, status="running", lease="another's", leaseUntil="2026-12-31T12:02:00Z", attempt=Decimal(1)
)

JUDGED: list[tuple[str, Row | None, Verdict | str | None]] = [
    ("there is none", None, Ineligible()),
    ("it waits here", scheduled_row("t", HERE), None),
    ("it waits elsewhere", scheduled_row("t", ELSEWHERE), Ineligible()),
    ("it waits in another shard", scheduled_row("t", HERE._replace(shard=1)), Ineligible()),
    ("unscheduled", {"taskId": "t", "taskDateTime": str(HERE)}, None),
    ("unscheduled, elsewhere", {"taskId": "t", "taskDateTime": str(ELSEWHERE)}, Ineligible()),
    ("it has no bucket any more", {"taskId": "t", "status": "scheduled"}, Ineligible()),
    ("it is running here", RUNNING, Contended()),
    ("it is running elsewhere", {**RUNNING, "taskDateTime": str(ELSEWHERE)}, Ineligible()),
    ("it was released here", {**RUNNING, "leaseUntil": RELEASED}, "again"),
    ("it was released elsewhere", {**RUNNING, "leaseUntil": RELEASED, "taskDateTime": str(ELSEWHERE)}, Ineligible()),
    ("its lease is long over", {**RUNNING, "leaseUntil": "2026-12-31T11:00:00Z"}, LeaseExpired("t", "log")),
    ("its lease is over, but for the margin", {**RUNNING, "leaseUntil": "2026-12-31T12:00:06Z"}, Contended()),
    ("over by a little more", {**RUNNING, "leaseUntil": "2026-12-31T12:00:05.999Z"}, LeaseExpired("t", "log")),
    ("it runs without a lease", {k: v for k, v in RUNNING.items() if k != "leaseUntil"}, LeaseExpired("t", "log")),
    ("its lease cannot be read", {**RUNNING, "leaseUntil": "soon"}, LeaseExpired("t", "log")),
    ("its lease is a large number", {**RUNNING, "leaseUntil": Decimal("1E+120")}, LeaseExpired("t", "log")),
    ("the next is its last", {**RUNNING, "leaseUntil": None, "attempt": 3}, LeaseExpired("t", "log", is_last=True)),
    ("it is overdue at its last", {**RUNNING, "status": "waiting", "leaseUntil": None, "attempt": 3},
     LeaseExpired("t", "log", is_overdue=True)),
    ("its attempts are used up", {**RUNNING, "leaseUntil": None, "attempt": 4}, LeaseExpired("t", "log")),
    ("no process can hold its lease", {**RUNNING, "leaseUntil": "2027-01-01T00:00:00Z"}, Contended(stuck=True)),
    ("it has ended here", {**RUNNING, "status": "completed", "outcome": "completed"}, Ineligible()),
    ("it ended, with our token", {**RUNNING, "lease": "mine", "status": "failed", "outcome": "failed"}, Ineligible()),
    ("its status is from hand", {**scheduled_row("t", HERE), "status": "completed"}, None),
    ("its status is garbage", {**scheduled_row("t", HERE), "status": ["x"]}, None),
]  # fmt: skip


@pytest.mark.parametrize(("name", "row", "verdict"), JUDGED, ids=[name for name, *_ in JUDGED])
def test_why_a_row_could_not_be_claimed(name: str, row: Row | None, verdict: Verdict | str | None) -> None:
    found = judge(row, HERE, now=NOON + timedelta(seconds=10))
    assert type(found).__name__ == "_Released" if verdict == "again" else found == verdict


# -- batches ---------------------------------------------------------------------------------------------------------


def claim(w: World, *task_ids: str, bucket: Bucket = HERE) -> Sequence[Verdict]:
    tokens = iter(range(10_000))
    claimer = Claimer(w.store, w.placer(), w.clock, lambda: f"mine/{next(tokens)}")
    return claimer.claim([(bucket, task_id) for task_id in task_ids], lease_until=w.clock() + timedelta(minutes=2))


def claim_rows(w: World, *rows: Row) -> list[str]:
    """The kinds of the verdicts on rows that lie in a bucket that is due."""
    for row in rows:
        w.rigged.put(row)
    return kinds(claim(w, *(str(row["taskId"]) for row in rows)))


def kinds(verdicts: Sequence[Verdict]) -> list[str]:
    return [type(verdict).__name__ for verdict in verdicts]


def test_a_batch_has_one_verdict_an_entry_in_order(w: World) -> None:
    rows: dict[str, Row] = {
        "waits": scheduled_row("waits", HERE),
        "moved": scheduled_row("moved", ELSEWHERE),
        "raw": {"taskId": "raw", "taskDateTime": str(HERE)},
        "crashed": {**RUNNING, "taskId": "crashed", "leaseUntil": "2026-12-31T11:00:00Z"},
        "malformed": scheduled_row("malformed", HERE, payload="x"),
        "bad": {"taskId": "bad", "taskDateTime": str(HERE), "action": Decimal(7)},
        "by hand": scheduled_row("by hand", HERE, status="completed"),
    }
    assert claim_rows(w, *rows.values(), {**RUNNING, "taskId": "runs"}) == [
        "Claimed", "Ineligible", "Claimed", "LeaseExpired", "Malformed", "Ineligible", "Ineligible", "Contended"
    ]  # fmt: skip
    assert [w.row(task_id)["attempt"] for task_id in ("waits", "raw")] == [1, 1]
    assert w.row("waits")["lease"] != w.row("raw")["lease"], "a late record of one attempt ends no other (12)"
    assert [w.outcome(task_id) for task_id in ("bad", "by hand")] == ["failed", "completed"]
    assert w.row("crashed") == rows["crashed"]


RELEASED_ROW = {**RUNNING, "taskId": "released", "leaseUntil": RELEASED, "attempt": Decimal(0)}


@pytest.mark.parametrize("lost", ["claims", "every write"])
def test_answers_that_are_lost_change_nothing(w: World, lost: str) -> None:
    w.rigged.unanswered = is_claim if lost == "claims" else (lambda change: not change.task_id.startswith("_"))
    assert claim_rows(w, scheduled_row("waits", HERE), RELEASED_ROW) == ["Claimed", "Claimed"]
    assert [w.row(i)["attempt"] for i in ("waits", "released")] == [1, 1]


def test_what_is_throttled_is_tried_once_more_and_then_left(w: World) -> None:
    first, rows = Once(lambda change: change.task_id == "once"), [scheduled_row(i, HERE) for i in ("once", "always")]
    w.rigged.throttled = lambda change: first(change) or change.task_id in ("always", "raw")
    raw = {"taskId": "raw", "taskDateTime": str(HERE)}
    assert claim_rows(w, *rows, raw) == ["Claimed", "Contended", "Contended"], "the last can't even be normalised"
    assert w.row("always") == rows[1]


def test_a_released_row_that_no_claim_fits_is_left_to_a_recovery() -> None:
    """An outcome that is there, although it says nothing: the row has not ended, and must not be passed."""
    assert claim_rows(world(), {**RELEASED_ROW, "outcome": None}) == ["LeaseExpired"]


def test_a_row_that_is_too_large_to_be_claimed_is_malformed(w: World) -> None:
    w.rigged.put(scheduled_row("t", HERE, payload={"k": "x" * (400 * 1024 - 180)}))
    (verdict,) = claim(w, "t")
    assert isinstance(verdict, Malformed)
    assert verdict.reason.startswith("the row is too large to be claimed")


def test_a_row_off_the_grid_is_normalised_and_goes_to_its_tick(w: World) -> None:
    w.reconfigure(tick_minutes=5)
    w.next_tick(5)
    w.rigged.put({"taskId": "off", "taskDateTime": str(bucket_at(3))})
    assert kinds(claim(w, "off", bucket=bucket_at(3))) == ["Ineligible"]
    assert w.row("off")["taskDateTime"] == str(bucket_at(10)), "12:05 is closed already"


def test_one_row_that_cannot_be_read_costs_the_others_nothing(w: World) -> None:
    """Giving up the whole batch would cost each task an attempt, and the time until its lease expires."""
    w.rigged.throttled, w.rigged.before_read = lambda change: change.task_id == "b", raises_for("b")
    assert claim_rows(w, *(scheduled_row(i, HERE) for i in "abc")) == ["Claimed", "Contended", "Claimed"]
    with pytest.raises(StoreError):  # but if nothing was claimed, the error is raised
        claim(w, "b")

"""Which records of the stream are ends of tasks."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from dynatick.domain.ends import MAX_TEXT_CHARACTERS, OutcomeEvents, ends_in
from dynatick.domain.packs import Pack, Span
from dynatick.domain.task import Row

ALL, FAILED, OFF = OutcomeEvents.ALL, OutcomeEvents.FAILED, OutcomeEvents.OFF
RUNNING = {"taskId": "t", "status": "running", "action": "log", "attempt": 1, "run": 1}


def ended(outcome: str = "failed", at: str = "2026-12-31T12:00:00Z", **more: object) -> Row:
    return {**RUNNING, "status": outcome, "outcome": outcome, "finishedAt": at, **more}


def ends(old: Row | None, new: Row | None, wanted: OutcomeEvents = ALL) -> list[tuple[object, str]]:
    return [(end.detail["taskId"], str(end.outcome)) for end in ends_in(old, new, wanted)]


@pytest.mark.parametrize("outcome", ["completed", "failed", "cancelled"])
def test_the_change_that_ends_a_task_is_an_end_of_the_wanted_kind(outcome: str) -> None:
    assert ends(RUNNING, ended(outcome)) == ends(None, ended(outcome)) == [("t", outcome)]
    assert ends(RUNNING, ended(outcome), FAILED) == ([("t", "failed")] if outcome == "failed" else [])
    assert ends(RUNNING, ended(outcome), OFF) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (ended(), ended(expiresAt=5)),  # its row was kept for longer
        (ended(), None),  # deleted, or expired
        (ended(), {**RUNNING, "status": "scheduled", "run": 2}),  # redriven
        (None, RUNNING),
        (RUNNING, {**RUNNING, "malformedReason": "x"}),
        (None, {"taskId": "_dynatick#tick#0", "outcome": "none", "status": "tick"}),
        ({"taskId": "_dynatick#tick#0"}, {"taskId": "_dynatick#tick#0", "outcome": "failed"}),
        (None, {"taskId": "t", "outcome": "banana"}),
        (None, {"taskId": "t", "outcome": ["failed"]}),
    ],
)  # fmt: skip
def test_no_other_change_is_one(old: Row | None, new: Row | None) -> None:
    assert ends(old, new) == []


def test_a_row_that_ends_again_in_one_write_is_an_end_again() -> None:
    assert ends(ended(), ended(at="2026-12-31T12:05:00Z")) == [("t", "failed")]
    assert ends(ended(), ended("completed", run=2)) == [("t", "completed")]


def test_a_schedule_ends_if_it_is_malformed_or_cancelled_not_with_its_last_occurrence() -> None:
    before = {"taskId": "s", "scheduleExpression": "at(2026-12-31T12:00:00)", "scheduleState": "ENABLED"}
    for outcome, state in (("failed", "FAILED"), ("cancelled", "ENABLED")):
        assert ends(before, {**before, **ended(outcome, taskId="s", scheduleState=state)}) == [("s", outcome)]
    assert ends(before, {**before, **ended("completed", taskId="s", scheduleState="COMPLETED")}) == []


def test_an_event_has_neither_payload_nor_result_nor_lease_and_always_fits() -> None:
    row = ended(
        payload={"a": 1}, result=7, lease="secret", error="e" * 10**5, subject="customer:1", attempt=Decimal(3),
        action={"a": "map"}, dueAt=b"binary", run=Decimal("NaN"), mine="x",
    )  # fmt: skip
    (end,) = ends_in(RUNNING, row, ALL)
    assert end.detail == {
        "taskId": "t", "outcome": "failed", "finishedAt": "2026-12-31T12:00:00Z", "subject": "customer:1", "attempt": 3,
        "error": "e" * MAX_TEXT_CHARACTERS,
    }  # fmt: skip


def pack_row(status: str = "running", **sets: Any) -> dict[str, object]:
    pack = Pack(batch_id="b", span=Span(10, 4), **sets)
    row = {**RUNNING, "taskId": pack.span.pack_id("b"), "status": status, "pack": pack.to_attribute(), "attempt": 2}
    return row if status in ("running", "scheduled") else {**row, "outcome": status, "finishedAt": "x"}


def member(n: int) -> str:
    return f"b/{10 + n:09}"


def test_members_end_once_as_their_pack_notes_them() -> None:
    before, after = pack_row(done=0b1), pack_row(done=0b101)
    assert ends(pack_row(), before) == [(member(0), "completed")]
    assert ends(before, after) == [(member(2), "completed")]
    assert ends(after, pack_row("completed", done=0b101, extracted=0b1010)) == [], "those have rows of their own"
    assert ends(after, pack_row("completed", done=0b1111)) == [(member(1), "completed"), (member(3), "completed")]
    assert ends(before, after, FAILED) == []
    (end,) = ends_in(before, after, ALL)
    assert (end.detail["batchId"], end.detail["attempt"], end.detail["outcome"]) == ("b", 1, "completed")


def test_cancelled_members_end_alone_or_with_their_pack() -> None:
    scheduled, without_one = pack_row("scheduled"), pack_row("scheduled", excluded=0b10)
    assert ends(scheduled, without_one) == [(member(1), "cancelled")]
    assert ends(without_one, scheduled) == [], "it was restored"
    assert ends(without_one, pack_row("cancelled", excluded=0b10)) == [
        (member(n), "cancelled") for n in (0, 2, 3)
    ]  # fmt: skip
    assert ends(pack_row(done=1), pack_row("cancelled", done=1, extracted=2)) == [
        (member(n), "cancelled") for n in (2, 3)
    ]  # fmt: skip


def test_a_pack_that_failed_is_an_end_itself_and_a_malformed_one_raises_nothing() -> None:
    assert ends(pack_row(), pack_row("failed"), FAILED) == [("b/000000010-000000013", "failed")]
    malformed = {**pack_row("failed"), "pack": {"done": 7}}
    assert ends(pack_row(), malformed) == ends(malformed | {"outcome": None}, pack_row("failed")) == [
        ("b/000000010-000000013", "failed")
    ]  # fmt: skip

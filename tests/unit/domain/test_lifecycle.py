"""The table of transitions, and each of them as a conditional write: carried out on a row in every state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import scheduled_row
from tests.unit.domain.support import written

from dynatick.domain import lifecycle
from dynatick.domain.buckets import Bucket
from dynatick.domain.conditional_update import Absent, AtLeast, ConditionalUpdate, Is, Lost, Plus, Written
from dynatick.domain.lifecycle import (
    cancel,
    claim,
    complete,
    fail,
    move,
    reclaim,
    redrive,
    release,
    reschedule,
    restore,
    retry,
)
from dynatick.domain.task import TERMINAL, UNSCHEDULED, Row, Status, Task
from dynatick.store.memory import MemoryStore

NOW = datetime(2026, 12, 31, 12, 0, 30, tzinfo=UTC)
SOON = NOW + timedelta(minutes=2)
HERE = Bucket.parse("2026-12-31#12:00")
LATER = Bucket.parse("2026-12-31#12:05")
AT = NOW + timedelta(minutes=4, seconds=1)
DAYS = 30


def test_the_table_names_who_makes_each_transition() -> None:
    """docs/lifecycle.md has its transitions with their reasons (tests/unit/test_documents.py)."""
    assert set(lifecycle.TRANSITIONS) == {UNSCHEDULED, *map(str, Status)}
    assert [lifecycle.states_before(by) for by in ("claim", "complete", "cancel", "redrive", "restore")] == [
        ("scheduled",), ("running",), ("unscheduled", "scheduled", "waiting"), ("failed",), ("cancelled",),
    ]  # fmt: skip


# -- rows in every state ---------------------------------------------------------------------------------------------

RUNNING = scheduled_row(
    "t", HERE, status="running", attempt=Decimal(1), run=Decimal(1), lease="mine", leaseUntil="2026-12-31T12:02:00Z",
    startedAt="2026-12-31T12:00:01Z",
)  # fmt: skip
ENDED = {"finishedAt": "2026-12-31T12:00:02Z", "expiresAt": Decimal(1_800_000_000)}

HANDED = {
    "status": "waiting", "taskDateTime": str(LATER), "leaseUntil": "2026-12-31T13:00:00Z",
    "completeBy": "2026-12-31T20:00:00Z", "heartbeatSeconds": Decimal(3600), "returnsTo": str(HERE),
}  # fmt: skip

STATES: dict[str, Row | None] = {
    "absent": None,
    "unscheduled": {"taskId": "t", "taskDateTime": str(HERE)},
    "scheduled": scheduled_row("t", HERE),
    "scheduled elsewhere": scheduled_row("t", LATER),
    "scheduled, not counted": {"taskId": "t", "taskDateTime": str(HERE), "status": "scheduled"},
    "scheduled again": {**RUNNING, "status": "scheduled"},
    "running": RUNNING,
    "running elsewhere": {**RUNNING, "taskDateTime": str(LATER), "movedTo": str(LATER)},
    "running for another": {**RUNNING, "lease": "another's"},
    "released": {**RUNNING, "leaseUntil": lifecycle.RELEASED, "attempt": Decimal(0)},
    "waiting": {**RUNNING, **HANDED},
    "waiting after a heartbeat": {**RUNNING, **HANDED, "leaseUntil": "2026-12-31T13:05:00Z"},
    "completed": {**RUNNING, **ENDED, "status": "completed", "outcome": "completed"},
    "failed": {**RUNNING, **ENDED, "status": "failed", "outcome": "failed", "error": "x", "delaySeconds": Decimal(5)},
    "failed before it was a task": {"taskId": "t", **ENDED, "status": "failed", "outcome": "failed", "error": "x"},
    "cancelled": {**scheduled_row("t", HERE), **ENDED, "status": "cancelled", "outcome": "cancelled"},
}


def row_of(state: str) -> Row:
    row = STATES[state]
    assert row is not None
    return row


def claimed() -> Task:
    return Task.from_row(RUNNING)


def waiting() -> Task:
    return Task.from_row(row_of("waiting"))


def by_token(state: str, change: ConditionalUpdate) -> ConditionalUpdate:
    return lifecycle.by_token(row_of(state), change)


@dataclass(frozen=True)
class Arrow:
    """A change, as it is made of a row in a state, and the states in which it takes effect."""

    make: Callable[[], ConditionalUpdate]
    takes_effect_on: tuple[str, ...]
    into: str


CLAIMED = ("running", "running elsewhere")  # what is claimed with our token, wherever it was moved
OURS = (*CLAIMED, "released")
ANY_HERE = ("scheduled", "scheduled again", "running", "running for another", "released")
CLAIM: dict[str, Any] = {"token": "new", "lease_until": SOON, "now": NOW}
END: dict[str, Any] = {"now": NOW, "retention_days": DAYS}
AGAIN: dict[str, Any] = {"bucket": LATER, "due_at": SOON}

ARROWS = {
    "claim": Arrow(lambda: claim("t", HERE, **CLAIM), ("scheduled", "scheduled again"), "running"),
    "claim what was released": Arrow(lambda: claim("t", HERE, **CLAIM, released=True), ("released",), "running"),
    "reclaim": Arrow(lambda: reclaim(RUNNING, attempt=2, **CLAIM), ("running",), "running"),
    "complete": Arrow(lambda: complete(claimed(), **END, result={"n": 1}), OURS, "completed"),
    "fail": Arrow(lambda: fail(claimed(), **END, error="x"), OURS, "failed"),
    "retry": Arrow(lambda: retry(claimed(), now=NOW, at=AT, bucket=LATER, error="x"), OURS, "scheduled"),
    "reschedule as its handler asks": Arrow(
        lambda: lifecycle.reschedule_claimed(claimed(), at=AT, bucket=LATER, first_started_at=NOW), OURS, "scheduled"),
    "release": Arrow(lambda: release(claimed()), CLAIMED, "running"),
    "keep what has ended of a pack": Arrow(lambda: lifecycle.checkpoint(claimed(), {"done": b"1"}), CLAIMED, "running"),
    "defer what is claimed": Arrow(lambda: lifecycle.defer_claimed(claimed(), at=AT, bucket=LATER), OURS, "scheduled"),
    "defer": Arrow(lambda: lifecycle.defer(RUNNING, LATER), ANY_HERE, "the same"),
    "defer a failure": Arrow(lambda: lifecycle.defer_failure(RUNNING, LATER, now=NOW, error="x"), CLAIMED, "running"),
    "end a lease": Arrow(lambda: lifecycle.end_lease(RUNNING, now=NOW), CLAIMED, "running"),
    "fail unexecuted": Arrow(lambda: lifecycle.fail_unexecuted(RUNNING, **END, error="x"), ("running",), "failed"),
    "move what waits": Arrow(lambda: move(row_of("scheduled"), LATER), ANY_HERE, "the same"),
    "cancel what waits": Arrow(lambda: cancel(row_of("scheduled"), **END),
        ("scheduled", "scheduled elsewhere", "scheduled, not counted"), "cancelled"),
    "cancel what waits again": Arrow(lambda: cancel(row_of("scheduled again"), **END), ("scheduled again",),
        "cancelled"),
    "cancel an unscheduled task": Arrow(lambda: cancel(row_of("unscheduled"), **END), ("unscheduled",), "cancelled"),
    "reschedule what waits": Arrow(lambda: reschedule(row_of("scheduled"), **AGAIN), ("scheduled",), "scheduled"),
    "cancel what was released": Arrow(lambda: cancel(row_of("released"), **END), ("released",), "cancelled"),
    "reschedule what was released": Arrow(lambda: reschedule(row_of("released"), **AGAIN), ("released",), "scheduled"),
    "give what was released another payload": Arrow(lambda: lifecycle.revise(row_of("released"), payload={"n": 1}),
        ("released",), "running"),
    "reschedule an unscheduled task": Arrow(lambda: reschedule(row_of("unscheduled"), **AGAIN), ("unscheduled",),
        "scheduled"),
    "redrive what failed": Arrow(lambda: redrive(row_of("failed"), **AGAIN, run=2), ("failed",), "scheduled"),
    "run what was cancelled": Arrow(lambda: redrive(row_of("cancelled"), **AGAIN, run=2), ("cancelled",),
        "scheduled"),
    "restore": Arrow(lambda: restore(row_of("cancelled"), now=NOW), ("cancelled",), "scheduled"),
    "restore to the next tick": Arrow(lambda: restore(row_of("cancelled"), now=NOW, bucket=LATER), ("cancelled",),
        "scheduled"),
    "hand over": Arrow(lambda: lifecycle.wait(claimed(), until=SOON, complete_by=AT, heartbeat=None, bucket=LATER),
        OURS, "waiting"),
    "heartbeat": Arrow(lambda: lifecycle.heartbeat(row_of("waiting"), until=AT, bucket=HERE), ("waiting",), "waiting"),
    "complete by token": Arrow(lambda: by_token("waiting", complete(waiting(), **END)), ("waiting",), "completed"),
    "complete by token what still runs": Arrow(lambda: by_token("running", complete(claimed(), **END)), CLAIMED,
        "completed"),
    "retry by token": Arrow(lambda: by_token("waiting", retry(waiting(), now=NOW, at=AT, bucket=LATER, error="x")),
        ("waiting",), "scheduled"),
    "fail by token": Arrow(lambda: lifecycle.fail_by_token(row_of("waiting"), now=NOW, bucket=LATER, error="x"),
        ("waiting",), "waiting"),
    "reclaim what nobody completed": Arrow(lambda: reclaim(row_of("waiting"), attempt=2, **CLAIM), ("waiting",),
        "running"),
    "fail what nobody completed": Arrow(lambda: lifecycle.fail_unexecuted(row_of("waiting"), **END, error="x"),
        ("waiting",), "failed"),
    "cancel what is handed over": Arrow(lambda: cancel(row_of("waiting"), **END),
        ("waiting", "waiting after a heartbeat"), "cancelled"),
    "give what failed another payload": Arrow(lambda: lifecycle.revise(row_of("failed"), payload={"n": 1}),
        ("failed",), "failed"),
    "redrive with another payload": Arrow(lambda: redrive(row_of("failed"), **AGAIN, run=2, payload={"n": 1}),
        ("failed",), "scheduled"),
    "run again what completed": Arrow(lambda: redrive(row_of("completed"), **AGAIN, run=2), ("completed",),
        "scheduled"),
}  # fmt: skip


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("name", ARROWS)
def test_each_change_takes_effect_on_what_it_leaves_and_on_nothing_else(name: str, state: str) -> None:
    arrow, before = ARROWS[name], STATES[state]
    store = MemoryStore()
    if before is not None:
        store.put(before)
    stored = store.get("t")
    result = store.write(arrow.make())
    after = store.get("t")

    if state not in arrow.takes_effect_on:
        assert isinstance(result, Lost)
        assert after == stored, "who loses changes nothing, and a row that is gone stays gone"
        return
    assert isinstance(result, Written)
    assert before is not None
    assert after is not None
    assert lifecycle.state_of(after) == (lifecycle.state_of(before) if arrow.into == "the same" else arrow.into)
    if not (lifecycle.state_of(before) == UNSCHEDULED and arrow.into == "the same"):
        assert lifecycle.may_follow(lifecycle.state_of(before), lifecycle.state_of(after))
    ended = after["status"] in TERMINAL
    assert lifecycle.is_terminal(after) == ended
    of_an_end = {"outcome", "finishedAt", "expiresAt"}
    assert of_an_end & after.keys() == (of_an_end if ended else set())
    if ended and lifecycle.state_of(before) != after["status"]:
        assert (after["outcome"], after["finishedAt"]) == (after["status"], "2026-12-31T12:00:30Z")
        assert after["expiresAt"] == Decimal((NOW + timedelta(days=DAYS)).timestamp())


def after(change: ConditionalUpdate, before: str | Row) -> Row:
    """A row, or that of a state, after a change that takes effect."""
    return written(change, row_of(before) if isinstance(before, str) else before)


@pytest.mark.parametrize(
    "change", [cancel(row_of("released"), **END), reschedule(row_of("released"), **AGAIN)], ids=["cancel", "reschedule"]
)
def test_what_was_released_has_made_no_attempt(change: ConditionalUpdate) -> None:
    row = after(change, "released")
    assert (row["attempt"], row.get("startedAt")) == (0, None)
    assert lifecycle.release_claim(row_of("released"), "mine") is None
    assert release(claimed()).is_shown_by(row), "a release whose answer comes late recognises its effect"


def test_a_claim_is_one_write_on_bucket_status_and_outcome() -> None:
    change = claim("t", HERE, **CLAIM)
    here = Is("taskDateTime", "2026-12-31#12:00")
    assert set(change.conditions) == {Is("status", "scheduled"), here, AtLeast("attempt", 0), Absent("outcome")}
    times = {"startedAt": "2026-12-31T12:00:30Z", "leaseUntil": "2026-12-31T12:02:30Z"}
    assert change.set == {"status": "running", "lease": "new", "attempt": Plus(1), **times}
    assert change.returning, "the payload needs no further read"
    # What the index projects would cost a second write, of the index.
    projected = "taskDateTime outcome finishedAt error action dueAt scheduleId nextAttemptAt lateMilliseconds"
    for other in (change, reclaim(RUNNING, attempt=2, **CLAIM), release(claimed())):
        assert not {*projected.split()} & {*other.set, *other.remove}


NOTE = {"run": 1, "attempt": 1, "startedAt": "2026-12-31T12:00:01Z", "finishedAt": "2026-12-31T12:00:30Z"}


def test_the_attempt_is_counted_at_the_claim_noted_by_a_reclaim_and_given_back_by_a_release() -> None:
    assert after(claim("t", HERE, **CLAIM), "scheduled")["attempt"] == 1
    assert after(claim("t", HERE, **CLAIM), "scheduled again")["attempt"] == 2
    row = after(reclaim(RUNNING, attempt=2, **CLAIM), "running")
    assert (row["attempt"], row["lease"], row["status"]) == (2, "new", "running")
    error = "its lease expired: its process died, or did not finish in time"
    assert row["attempts"] == [{**NOTE, "error": error}]
    row = after(release(claimed()), "running")
    assert (row["attempt"], row["status"], row["leaseUntil"]) == (0, "running", "1970-01-01T00:00:00Z")
    assert after(claim("t", HERE, **CLAIM, released=True), row)["attempt"] == 1


def test_a_record_has_the_result_or_the_error_on_the_row_and_among_the_attempts() -> None:
    assert after(complete(claimed(), **END, result={"n": 1}), "running")["result"] == {"n": 1}
    assert "result" not in after(complete(claimed(), **END), "running")
    row = after(fail(claimed(), **END, error="no\nroute"), "running")
    assert (row["error"], row["attempts"]) == ("no route", [{**NOTE, "error": "no route"}])


def test_a_retry_waits_in_its_new_bucket_and_names_the_attempt_before() -> None:
    """A part of a millisecond counts as a whole one: the task would otherwise begin too early."""
    at = AT + timedelta(microseconds=1)
    row = after(retry(claimed(), now=NOW, at=at, bucket=LATER, error="x"), "running")
    assert (row["taskDateTime"], row["status"], row["attempt"]) == (str(LATER), "scheduled", 1)
    assert row["dueAt"] == RUNNING["dueAt"], "when it should have run does not change"
    assert row["nextAttemptAt"] == "2026-12-31T12:04:31.001Z"
    assert [entry["attempt"] for entry in row["attempts"]] == [1]  # type: ignore[attr-defined]


def test_a_further_turn_has_all_its_attempts_and_knows_when_the_first_began() -> None:
    given = {**RUNNING, "attempts": [NOTE], "attempt": Decimal(2), "turn": Decimal(4)}
    began = NOW - timedelta(hours=1)
    row = after(lifecycle.reschedule_claimed(Task.from_row(given), at=AT, bucket=LATER, first_started_at=began), given)
    assert (row["status"], row["attempt"], row["turn"], row["run"]) == ("scheduled", 0, 5, 1)
    assert (row["taskDateTime"], row["nextAttemptAt"]) == (str(LATER), "2026-12-31T12:04:31Z")
    assert (row["dueAt"], row["firstStartedAt"]) == (RUNNING["dueAt"], "2026-12-31T11:00:30Z")
    assert "attempts" not in row


TO_COME = {"nextAttemptAt": "2026-12-31T12:04:31Z", "turn": Decimal(2), "firstStartedAt": "2026-12-31T11:00:30Z"}


@pytest.mark.parametrize(
    ("change", "state", "gone"),
    [(lambda row: complete(Task.from_row(row), **END), "running", {"nextAttemptAt"}),
     (lambda row: fail(Task.from_row(row), **END, error="x"), "running", {"nextAttemptAt"}),
     (lambda row: reschedule(row, **AGAIN), "scheduled", {"nextAttemptAt"}),
     (lambda row: redrive(row, **AGAIN, run=2), "failed", set(TO_COME))],
)  # fmt: skip
def test_another_time_or_an_end_takes_the_place_of_the_next_attempt(
    change: Callable[[Row], ConditionalUpdate], state: str, gone: set[str]
) -> None:
    row = {**row_of(state), **TO_COME}
    assert TO_COME.keys() - after(change(row), row).keys() == gone


# -- moves, and changes that were asked for --------------------------------------------------------------------------


def test_a_move_touches_the_bucket_only() -> None:
    row = after(move(RUNNING, LATER), "running")
    assert row == {**RUNNING, "taskDateTime": str(LATER), "movedTo": str(LATER)}


@pytest.mark.parametrize(
    ("name", "state", "edit"),
    [
        ("move what waits", "scheduled", {"taskDateTime": str(LATER)}),
        ("move what waits", "scheduled", {"dueAt": "2026-12-31T12:05:00Z"}),
        ("move what waits", "scheduled", {"delaySeconds": Decimal(5)}),
        ("move what waits", "scheduled", {"outcome": "x"}),
        ("redrive what failed", "failed", {"run": Decimal(2)}),
        ("redrive with another payload", "failed", {"payload": {"n": 2}}),
        ("redrive what failed", "failed", {"outcome": "completed", "status": "completed"}),
    ],
)
def test_a_change_decided_on_an_older_image_is_lost(name: str, state: str, edit: dict[str, object]) -> None:
    store = MemoryStore()
    store.put({**row_of(state), **edit})
    assert isinstance(store.write(ARROWS[name].make()), Lost)


def test_an_unscheduled_row_is_normalised_before_it_is_claimed() -> None:
    """An attempt that stands in it by hand would let a claim have it as it is, without an action."""
    raw = {"taskId": "t", "attempt": Decimal(0), "delaySeconds": Decimal(30)}
    row = after(reschedule(raw, **AGAIN), raw)
    assert row == {"taskId": "t", "status": "scheduled", "taskDateTime": str(LATER), "dueAt": "2026-12-31T12:02:30Z"}
    ended = {**raw, **ENDED, "status": "cancelled", "outcome": "cancelled"}
    assert after(redrive(ended, **AGAIN, run=2), ended) == row | {"run": 2}
    assert redrive({**ended, "action": "log"}, **AGAIN, run=2).set["attempt"] == 0


def cancelled(row: Row) -> Row:
    return after(cancel(row, **END), row)


RETRIED = {**RUNNING, "status": "scheduled", "nextAttemptAt": "2026-12-31T12:04:31Z", "attempts": [NOTE], "turn": 2}


@pytest.mark.parametrize(
    "row",
    [
        scheduled_row("t", LATER, payload={"n": 1}),
        RETRIED,
        {"taskId": "t", "dueAt": "noon"},
        {"taskId": "t", "delaySeconds": Decimal(30), "attempt": Decimal(0)},
    ],
)
def test_a_restored_task_is_what_it_was_before_it_was_cancelled(row: Row) -> None:
    """A row that was never normalised has no status again; so what its times mean is decided as of a new one."""
    ended = cancelled(row)
    assert after(restore(ended, now=SOON), ended) == {**row, "restoredAt": "2026-12-31T12:02:30Z"}


@pytest.mark.parametrize(("row", "begins"), [(scheduled_row("t", HERE), "dueAt"), (RETRIED, "nextAttemptAt")])
def test_a_restored_task_whose_time_has_passed_begins_now_at_the_next_tick(row: Row, begins: str) -> None:
    ended = cancelled(row)
    now = "2026-12-31T12:02:30Z"
    expected = {**row, begins: now, "taskDateTime": str(LATER), "restoredAt": now}
    assert after(restore(ended, now=SOON, bucket=LATER), ended) == expected
    raw = cancelled({"taskId": "t", "taskDateTime": str(HERE)})
    assert after(restore(raw, now=SOON, bucket=LATER), raw) == {
        "taskId": "t", "taskDateTime": str(HERE), "restoredAt": now
    }  # fmt: skip


def test_a_redrive_removes_what_only_an_ended_task_has() -> None:
    failed = {**row_of("failed"), "timeoutSeconds": Decimal(60)}
    row = after(redrive(failed, **AGAIN, run=2), failed)
    gone = {"outcome", "finishedAt", "expiresAt", "error", "result", "lease", "leaseUntil", "delaySeconds"}
    assert not gone & set(row)
    assert (row["status"], row["attempt"], row["run"], row["timeoutSeconds"]) == ("scheduled", 0, 2, 60)
    assert (row["taskDateTime"], row["dueAt"]) == (str(LATER), "2026-12-31T12:02:30Z")


@pytest.mark.parametrize(
    "status", ["completed", "failed", "cancelled", "scheduled", "running", None, "done", Decimal(7), ["completed"]]
)
def test_only_a_status_set_by_hand_that_ends_the_task_gets_its_outcome(status: object) -> None:
    change = lifecycle.ended_by_hand({**scheduled_row("t", HERE), "status": status}, **END)
    ends = status in ("completed", "failed", "cancelled")
    assert (change and change.set) == (lifecycle.terminal(Status(str(status)), NOW, DAYS) if ends else None)
    assert lifecycle.ended_by_hand(row_of("failed"), **END) is None


def attempts_after(number: int, run: int = 1, kept: object = ()) -> list[Row]:
    """Returns the attempts that are kept after a given number of failures of one run."""
    entries: object = kept
    for attempt in range(1, number + 1):
        row = {**RUNNING, "run": Decimal(run), "attempt": Decimal(attempt), "attempts": entries}
        entries = lifecycle.fail_unexecuted(row, now=NOW, retention_days=DAYS, error="x").set["attempts"]
    assert isinstance(entries, list)
    return entries


def test_of_many_attempts_the_first_and_the_latest_of_the_present_run_are_kept() -> None:
    """The first bounds the retries by age: without it a second run of many attempts would never grow old."""
    assert [e["attempt"] for e in attempts_after(lifecycle.MAX_ATTEMPTS_KEPT)] == list(range(1, 11))
    assert [e["attempt"] for e in attempts_after(30)] == [1, *range(22, 31)]
    entries = attempts_after(30, run=2, kept=attempts_after(12))
    assert [(e["run"], e["attempt"]) for e in entries] == [(2, 1), *((2, n) for n in range(22, 31))]
    mixed = attempts_after(2, run=2, kept=attempts_after(12))
    assert [(e["run"], e["attempt"]) for e in mixed][-2:] == [(2, 1), (2, 2)]
    assert len(mixed) == lifecycle.MAX_ATTEMPTS_KEPT
    for malformed in (None, "x", Decimal(7), {"a": 1}, {"a"}, [1, "x", None]):
        assert [e["attempt"] for e in attempts_after(1, kept=malformed)] == [1], "replaced"


@pytest.mark.parametrize(
    ("error", "line"),
    [("", ""), ("plain", "plain"), ("two\nlines\tand\r\ntabs", "two lines and tabs"), ("\x1b[31mred\x00", "[31mred"),
     ("a\ud800b", "a b"), ("x" * 300, "x" * 300), ("x" * 301, "x" * 299 + "…")],
)  # fmt: skip
def test_an_error_is_kept_on_one_bounded_line(error: str, line: str) -> None:
    assert lifecycle.short(error) == line


@given(st.text(max_size=1000))
def test_every_error_can_be_kept(error: str) -> None:
    line = lifecycle.short(error)
    assert len(line) <= lifecycle.MAX_ERROR_CHARACTERS
    assert line.isprintable()
    line.encode()
    assert lifecycle.short(line) == line

"""The verdict of soak and faults: silent when all is well, and red for each thing that must not happen."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.sandbox import journal
from tests.sandbox.history import History
from tests.sandbox.journal import (
    BATCH,
    CANCEL,
    DELETE,
    INSERT,
    KILLED,
    OK,
    REFUSED,
    REPLACE,
    RESCHEDULE,
    RUN,
    UNKNOWN,
    Line,
)
from tests.sandbox.verdict import Evidence, Verdict, judge

from dynatick.domain.batches import BATCH_ACTION, then_id
from dynatick.domain.buckets import Bucket, minute_of
from dynatick.domain.instants import format_instant
from dynatick.domain.packs import member_id

NOON = datetime(2026, 12, 31, 12, 0, tzinfo=UTC).timestamp()
BUCKET = str(Bucket(minute_of(datetime(2026, 12, 31, 12, 1, tzinfo=UTC))))
BORN, EARLIER = "2026-12-31T11:00:00.000Z", "2026-12-31T10:00:00.000Z"
DRAINED = minute_of(datetime(2026, 12, 31, 13, 0, tzinfo=UTC))
TIMEOUT = 36.0
USED_UP = "its process died, or did not finish in time, at the last of"


class Story:
    """Lines of a journal, one after another; a second passes with each. It is of the task ``a``, unless it says so."""

    def __init__(self, *, drained: int = DRAINED, **given: Any) -> None:
        self.lines: list[Line] = []
        self.rows: dict[str, dict[str, Any]] = {}
        self.batches: dict[str, dict[str, Any]] = {}
        self.dead_letters: set[tuple[str, str, int]] = set()
        self.given = {"drained": {0: drained}, "timeout": TIMEOUT, **given}

    @property
    def now(self) -> float:
        return NOON + len(self.lines)

    def add(self, *lines: Line) -> Story:
        self.lines += lines
        return self

    def request(self, operation: str = INSERT, task_id: str = "a", *, incarnation: str | None = None,
                status: str | None = OK, fails: bool = False, due: float | None = None,
                run: int | None = None, interface: str = "client") -> Story:  # fmt: skip
        number, due_at = str(len(self.lines)), None if due is None else NOON + due
        self.add(journal.Requested(request_id=number, operation=operation, interface=interface, task_id=task_id,
                           incarnation=incarnation or task_id, at=self.now, fails=fails))  # fmt: skip
        if status is not None:
            self.add(journal.Responded(request_id=number, status=status, at=self.now, run=run, due_at=due_at))
        return self

    def _attempt(self, number: int, *, key: str | None = None, late: float = 0.0, pid: int = 1, task_id: str = "a",
                 incarnation: str | None = None, run: int = 1) -> dict[str, Any]:  # fmt: skip
        return {"pid": pid, "task_id": task_id, "incarnation": incarnation or task_id, "run": run, "attempt": number,
                "key": key or f"{task_id}#{run}", "at": self.now + late}  # fmt: skip

    def begin(self, attempt: int = 1, **who: Any) -> Story:
        return self.add(journal.Began(**self._attempt(attempt, **who), due_at=NOON))

    def end(self, attempt: int = 1, *, done: bool = True, **who: Any) -> Story:
        return self.add(journal.Ended(**self._attempt(attempt, **who), done=done))

    def recorded(self, task_id: str = "a", *, pid: int = 1, again: float | None = None) -> Story:
        not_before = {} if again is None else {"a": NOON + again}
        return self.add(journal.Recorded(pid=pid, task_ids=[task_id], not_before=not_before))

    def died(self, pid: int = 1) -> Story:
        return self.add(journal.Died(pid=pid, role="processor", why=KILLED))

    def refused(self) -> Story:
        return self.add(journal.FaultInjected(pid=1, fault="throttle", call="record", task_ids=["a"]))

    def row(self, outcome: str | None = "completed", task_id: str = "a", **more: Any) -> Story:
        status = {"outcome": outcome, "status": outcome} if outcome else {"status": "scheduled"}
        row = {"taskId": task_id, "taskDateTime": BUCKET, "createdAt": BORN, "run": 1, "attempt": 1}
        self.rows[task_id] = row | status | more
        return self

    def batch(self, outcome: str | None = "completed", **counts: int) -> Story:
        """The row of a batch ``b`` of one member, which is followed by a task."""
        payload = {"action": "a", "dueAt": BORN, "overSeconds": 0, "members": 1, "total": 1, "then": {"action": "a"}}
        result = {"members": 1, **counts}
        ended = {"outcome": outcome, "result": result, "finishedAt": instant(10)} if outcome else {}
        self.batches["b"] = {"taskId": "b", "action": BATCH_ACTION, "status": outcome, "payload": payload, **ended}
        return self

    def dead_letter(self, born: str = BORN) -> Story:
        self.dead_letters.add(("a", born, 1))
        return self

    def verdict(self) -> Verdict:
        history = History().take(self.lines)
        return judge(Evidence(history=history, rows=self.rows, dead_letters=self.dead_letters,
                              batches=self.batches, **self.given))  # fmt: skip


def inserted(*, fails: bool = False, status: str | None = OK, **given: Any) -> Story:
    return Story(**given).request(fails=fails, status=status)


def done(story: Story, attempt: int = 1, **who: Any) -> Story:
    """An attempt that came to its end and into the table."""
    story.begin(attempt, **who).end(attempt, **who)
    return story.recorded(who.get("task_id", "a"), pid=who.get("pid", 1))


MEMBER, THEN = member_id("b", 0), then_id("b")


def loaded() -> Story:
    """A batch ``b`` of one member. Of its task, no client knows whether it is in."""
    return Story().request(task_id=MEMBER, interface=BATCH).request(task_id=THEN, interface=BATCH, status=UNKNOWN)


def member_done(story: Story) -> Story:
    return done(story, task_id=MEMBER).row(task_id=MEMBER)


def member_run_again(**more: Any) -> Story:
    story = done(loaded(), task_id=MEMBER).request(RUN, MEMBER, run=2)
    return done(story, task_id=MEMBER, run=2).row(task_id=MEMBER, run=2, **more)


def followed(story: Story, **who: Any) -> Story:
    return done(story, task_id=THEN, **who).row(task_id=THEN, **who)


def cancelled_batch() -> Story:
    story = loaded().request(CANCEL, "b", interface=BATCH).batch("cancelled")
    return story.row("cancelled", task_id=MEMBER, finishedAt=instant(5))


def instant(seconds: float) -> str:
    return format_instant(datetime.fromtimestamp(NOON + seconds, UTC))


# -- all is well -------------------------------------------------------------------------------------------------------


def three_that_clients_took_away() -> Story:
    """``a`` was cancelled, ``b`` deleted, and ``c`` replaced before it ran."""
    story = inserted().request(CANCEL, run=1).row("cancelled", finishedAt=instant(3))
    story.request(task_id="b").request(DELETE, "b")
    done(story.request(task_id="c").request(REPLACE, "c", incarnation="c/1"), task_id="c", incarnation="c/1", run=2)
    return story.row(task_id="c", run=2, payload={"incarnation": "c/1"})


# Each with what the verdict counts, beside the one task that was executed.
GOOD: dict[str, tuple[Callable[[], Story], dict[str, object]]] = {
    "executed once": (lambda: done(inserted()).row(), {"inserted": {"client": 1}}),
    "executed twice because its process died before the record": (
        lambda: done(inserted().begin().end().died(), 2, pid=2).row(attempt=2), {"repeated": 1, "reclaimed": 1}),
    "executed twice because its record was refused": (
        lambda: done(inserted().begin().end().refused(), 2, pid=2).row(attempt=2), {"repeated": 1, "reclaimed": 1}),
    "killed in the midst and reclaimed": (
        lambda: done(inserted().begin().died(), 2, pid=2).row(), {"reclaimed": 1}),
    "failed on purpose and tried again": (
        lambda: done(inserted().begin().end(done=False).recorded(), 2).row(), {}),
    "tried again once its backoff was over": (
        lambda: done(inserted().begin().end(done=False).recorded(again=5), 2).row(), {}),
    "tried again at another time that a client gave it": (
        lambda: done(inserted().begin().end(done=False).recorded(again=60).request(RESCHEDULE, run=1, due=7), 2).row(),
        {}),
    "begun early by no more than clocks may differ": (
        lambda: done(inserted(skew=2.0).begin(late=-4).end(done=False).recorded(again=7), 2).row(), {}),
    "run once more": (lambda: done(done(inserted()), run=2).row(run=2), {}),
    "cancelled before it ran, deleted and replaced": (
        three_that_clients_took_away, {"results": {"cancelled": 1, "deleted": 1, "replaced": 1, "executed": 1}}),
    "cancelled between two attempts": (
        lambda: inserted().begin().end(done=False).recorded().request(CANCEL, run=1)
        .row("cancelled", finishedAt=instant(5)),
        {"results": {"cancelled": 1}}),
    "an insert that was refused": (lambda: inserted(status=REFUSED), {"results": {}, "unknown": 0}),
    "an insert without a response": (lambda: inserted(status=None), {"results": {}, "unknown": 1}),
    "an insert with an unknown outcome": (lambda: inserted(status=UNKNOWN), {"results": {}, "unknown": 1}),
    "failed as it was made to": (
        lambda: inserted(fails=True).begin().end(done=False).recorded().row("failed").dead_letter(),
        {"results": {"failed": 1}}),
    "failed because every attempt was killed": (
        lambda: inserted().row("failed", attempt=4, error=f"{USED_UP} 4").dead_letter(),
        {"results": {"failed": 1}}),
    "a schedule at its end": (
        lambda: done(inserted()).row().row(task_id="s", scheduleExpression="rate(1 minute)"), {}),
    "a schedule that need not end": (
        lambda: done(inserted(schedules_end=False)).row()
        .row(None, task_id="s", scheduleExpression="rate(1 minute)", status="recurring", missedOccurrences=1), {}),
    "executed where only its target saw it": (lambda: inserted(elsewhere={"a"}).row(), {}),
    "a batch that was followed by its task": (
        lambda: followed(member_done(loaded())).batch(completed=1), {"inserted": {"batch": 1}, "unknown": 1}),
    "a batch that was cancelled": (cancelled_batch, {"results": {"cancelled": 1}, "unknown": 1}),
    "a batch that was cancelled while its member ran": (
        lambda: loaded().begin(task_id=MEMBER).request(CANCEL, "b", interface=BATCH).end(task_id=MEMBER)
        .recorded(MEMBER).row(task_id=MEMBER).batch("cancelled"),
        {"unknown": 1}),
    "a member that was run again long after its batch was cancelled": (
        lambda: cancelled_batch().request(RUN, MEMBER, run=2)
        .begin(task_id=MEMBER, run=2, late=TIMEOUT + 10).end(task_id=MEMBER, run=2, late=TIMEOUT + 11)
        .recorded(MEMBER).row(task_id=MEMBER, run=2),
        {"unknown": 1}),
    "a member that was run again after its batch had ended": (
        lambda: followed(member_run_again(finishedAt=instant(20))).batch(failed=1), {"unknown": 1}),
    "executed again after its row was restored": (
        lambda: done(done(inserted(restored={"a"}))).row(), {"repeated": 1, "reclaimed": 1}),
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_good_is(name: str) -> None:
    story, counted = GOOD[name]
    verdict = story().verdict()
    assert not verdict.problems, verdict.problems
    found = {"results": verdict.results, "inserted": verdict.inserted, "unknown": verdict.unknown,
             "repeated": sum(verdict.repeated.values()), "reclaimed": verdict.reclaimed}  # fmt: skip
    expected = {"results": {"executed": 1}, "unknown": 0, "repeated": 0, "reclaimed": 0, **counted}
    assert {name: found[name] for name in expected} == expected


# -- what must not happen ----------------------------------------------------------------------------------------------


RED: dict[str, tuple[Callable[[], Story], str]] = {
    "lost without a row": (lambda: inserted(), "lost; there is no row"),
    "lost in a drained bucket": (lambda: inserted().row(None), "where no tick polls"),
    "recorded and never executed": (lambda: inserted().row(), "was never executed"),
    "recorded for a run that was never executed": (
        lambda: done(inserted()).row(run=2), "run 2 is recorded as completed, and was never executed"),
    "killed in the midst and recorded as done": (lambda: inserted().begin().died().row(), "was never executed"),
    "waiting": (lambda: inserted(drained=DRAINED - 60).row(None), "still scheduled"),
    "waiting although no client knows that it is in": (
        lambda: inserted(status=None, drained=DRAINED - 60).row(None), "still scheduled"),
    "executed again although recorded": (
        lambda: done(done(inserted()).died(), 2, pid=2).row(), "although attempt 1 is recorded"),
    "executed again for no reason": (
        lambda: done(inserted().begin().end(), 2, pid=2).row(), "nothing came between"),
    "executed again and only another process died": (
        lambda: done(inserted().begin().end().died(pid=3), 2, pid=2).row(), "nothing came between"),
    "executed again and the record was refused before it ended": (
        lambda: done(inserted().begin().refused().end(), 2, pid=2).row(), "nothing came between"),
    "executed again while the process lived": (
        lambda: done(inserted().begin(), 2, pid=2).row(), "while the process of attempt 1 lived"),
    "two at once": (
        lambda: inserted().begin().begin(2, pid=2).end().died().end(2, pid=2).recorded(pid=2).row(),
        "while attempt 1 was at work"),
    "the same attempt twice": (
        lambda: done(inserted().begin().died(), 1, pid=2).row(), "attempt 1 was made after attempt 1"),
    "another key": (
        lambda: inserted().begin().end().died().begin(2, pid=2, key="a#7").end(2, pid=2).recorded(pid=2).row(),
        "different idempotency keys"),
    "the key of the task that it replaces": (
        lambda: done(done(inserted()).request(REPLACE, incarnation="a/1"), incarnation="a/1")
        .row(payload={"incarnation": "a/1"}),
        "has the idempotency key a#1 of a, run 1"),
    "executed after its cancellation": (
        lambda: done(inserted().request(CANCEL, run=1)).row(), "after it was cancelled"),
    "cancelled while it ran": (
        lambda: inserted().begin().request(CANCEL, run=1).end().row("cancelled", finishedAt=instant(3)),
        "while attempt 1 was at work"),
    "shown as cancelled and executed before": (
        lambda: inserted().begin().end().recorded().row("cancelled", finishedAt=instant(9)), "run 1 was executed"),
    "shown as cancelled and executed later": (
        lambda: done(inserted().request(CANCEL, status=None)).row("cancelled", finishedAt=instant(-10)),
        "after it was cancelled"),
    "there again after its deletion": (
        lambda: done(inserted().request(DELETE)).row(), "there again, after it was deleted"),
    "executed long after its deletion": (
        lambda: inserted().request(DELETE).begin(late=TIMEOUT + 10).end(), "executed long after it was deleted"),
    "there again after its replacement": (
        lambda: done(inserted().request(REPLACE, incarnation="a/1")).row(), "there again, after it was replaced"),
    "executed early": (lambda: inserted().begin(late=-2.001).end().recorded().row(), "0.001 s before it was due"),
    "tried again before its backoff was over": (
        lambda: done(inserted().begin().end(done=False).recorded(again=5.001), 2).row(),
        "attempt 2 began 0.001 s before its backoff was over"),
    "executed at the time that it had before it was rescheduled": (
        lambda: done(inserted().request(RESCHEDULE, run=1, due=4.001)).row(),
        "attempt 1 began 0.001 s before the time that it was given"),
    "executed elsewhere and never inserted": (
        lambda: done(inserted(elsewhere={"x"})).row(), "x: executed, and no client inserted it"),
    "executed again with another key after its row was restored": (
        lambda: done(done(inserted(restored={"a"})), key="a#7").row(), "different idempotency keys"),
    "executed although its insert was refused": (
        lambda: done(inserted(status=REFUSED)).row(), "executed, although its insert was refused"),
    "executed and never inserted": (
        lambda: done(inserted(), 1).row().begin(task_id="x").end(task_id="x"), "no client inserted it"),
    "a row that no client inserted": (
        lambda: done(inserted()).row().row(task_id="x"), "a row that no client inserted"),
    "failed for no reason": (
        lambda: inserted().row("failed", error="TypeError").dead_letter(), "failed, although it can't"),
    "failed before its attempts were used up": (
        lambda: inserted().row("failed", attempt=3, error=f"{USED_UP} 3").dead_letter(), "failed, although it can't"),
    "failed without a dead letter, but one that had the id before": (
        lambda: inserted(fails=True).begin().end(done=False).recorded().row("failed").dead_letter(EARLIER),
        "without a dead letter"),
    "completed although it cannot": (lambda: done(inserted(fails=True)).row(), "although it must fail"),
    "a schedule that is not at its end": (
        lambda: done(inserted()).row().row(None, "s", scheduleExpression="rate(1 minute)"),
        "s: a schedule that is None: not at its end"),
    "a schedule that missed a run": (
        lambda: done(inserted()).row().row(task_id="s", scheduleExpression="rate(1 minute)", missedOccurrences=1),
        "s: a schedule that missed 1 runs"),
    "a batch that was lost": (lambda: member_done(loaded()), "b: a batch without a row"),
    "a batch that waits": (lambda: member_done(loaded()).batch(None), "not at its end"),
    "a batch that failed": (lambda: member_done(loaded()).batch("failed"), "not at its end"),
    "a batch that no task followed": (
        lambda: member_done(loaded()).batch(completed=1), "b: completed, and no task followed"),
    "a batch that its task followed twice": (
        lambda: followed(followed(member_done(loaded())), run=2).batch(completed=1),
        "b: its task followed more than once"),
    "a batch that was cancelled and followed": (
        lambda: followed(cancelled_batch()), "b: cancelled, and its task followed"),
    "a batch that counts a member twice": (
        lambda: followed(member_done(loaded())).batch(completed=2), "a batch of 1 members whose counts are"),
    "a batch that counts a member otherwise than it ended": (
        lambda: followed(member_done(loaded())).batch(failed=1), "b: its row counts"),
    "a batch that counts a member otherwise that was run again before": (
        lambda: followed(member_run_again(finishedAt=instant(5))).batch(failed=1), "b: its row counts"),
    "a member that was never executed": (
        lambda: followed(loaded().row(task_id=MEMBER)).batch(completed=1), "was never executed"),
    "a member that was executed early": (
        lambda: followed(loaded().begin(task_id=MEMBER, late=-4.001).end(task_id=MEMBER).recorded(MEMBER)
                         .row(task_id=MEMBER)).batch(completed=1), "s before it was due"),
    "a member that began long after its batch was cancelled": (
        lambda: cancelled_batch().begin(task_id=MEMBER, late=TIMEOUT + 10).end(task_id=MEMBER),
        "executed long after its batch was cancelled"),
    "something for the doctor": (
        lambda: done(inserted(findings=["a: stale"])).row(), "the doctor: a: stale"),
}  # fmt: skip


@pytest.mark.parametrize("name", RED)
def test_red_for(name: str) -> None:
    story, expected = RED[name]
    problems = story().verdict().problems
    assert any(expected in problem for problem in problems), problems


@pytest.mark.parametrize(
    ("name", "result"),
    [("lost without a row", "lost"), ("lost in a drained bucket", "lost"), ("recorded and never executed", "lost"),
     ("waiting", "waiting"), ("waiting although no client knows that it is in", "waiting")],
)  # fmt: skip
def test_the_lost_and_those_that_wait_are_counted(name: str, result: str) -> None:
    assert RED[name][0]().verdict().results == {result: 1}

"""The verdict of soak and faults: silent when all is well, and red for each thing that must not happen."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.sandbox.history import history_of
from tests.sandbox.journal import (
    CANCEL,
    DELETE,
    INSERT,
    NO,
    RANDOM,
    REPLACE,
    RESCHEDULE,
    UNCLEAR,
    YES,
    Answered,
    Asked,
    Began,
    Died,
    Ended,
    Line,
    Met,
    Recorded,
)
from tests.sandbox.verdict import Evidence, Verdict, judge

from dynatick.domain.buckets import Bucket, minute_of
from dynatick.domain.instants import format_instant

NOON = datetime(2026, 12, 31, 12, 0, tzinfo=UTC).timestamp()
BUCKET = str(Bucket(minute_of(datetime(2026, 12, 31, 12, 1, tzinfo=UTC))))
BORN, EARLIER = "2026-12-31T11:00:00.000Z", "2026-12-31T10:00:00.000Z"
DRAINED = minute_of(datetime(2026, 12, 31, 13, 0, tzinfo=UTC))
LIFE = 36.0
USED_UP = "its process died, or did not finish in time, at the last of"


class Story:
    """Lines of a journal, told one after another; a second passes with each."""

    def __init__(self, *, drained: int = DRAINED, **given: Any) -> None:
        self.lines: list[Line] = []
        self.rows: dict[str, dict[str, Any]] = {}
        self.letters: set[tuple[str, str, int]] = set()
        self.drained = drained
        self.given = given

    @property
    def now(self) -> float:
        return NOON + len(self.lines)

    def ask(self, what: str = INSERT, task_id: str = "a", *, life: str | None = None, answer: str | None = YES,
            run: int | None = None, interface: str = "client", fails: bool = False,
            due: float | None = None) -> Story:  # fmt: skip
        number = str(len(self.lines))
        life = life or task_id
        self.lines.append(
            Asked(number=number, what=what, interface=interface, task_id=task_id, life=life, at=self.now, fails=fails)
        )
        if answer is not None:
            due_at = None if due is None else NOON + due
            self.lines.append(Answered(number=number, answer=answer, at=self.now, run=run, due_at=due_at))
        return self

    def begin(self, attempt: int = 1, *, pid: int = 1, task_id: str = "a", life: str | None = None, run: int = 1,
              key: str | None = None, late: float = 0.0) -> Story:  # fmt: skip
        self.lines.append(
            Began(pid=pid, task_id=task_id, life=life or task_id, run=run, attempt=attempt,
                  key=key or f"{task_id}#{run}", due_at=NOON, at=self.now + late)
        )  # fmt: skip
        return self

    def end(self, attempt: int = 1, *, pid: int = 1, task_id: str = "a", life: str | None = None, run: int = 1,
            done: bool = True) -> Story:  # fmt: skip
        life = life or task_id
        self.lines.append(
            Ended(pid=pid, task_id=task_id, life=life, run=run, attempt=attempt, key="", done=done, at=self.now)
        )
        return self

    def recorded(self, *task_ids: str, pid: int = 1, again: float | None = None) -> Story:
        not_before = {} if again is None else {"a": NOON + again}
        self.lines.append(Recorded(pid=pid, task_ids=list(task_ids or ("a",)), not_before=not_before))
        return self

    def died(self, pid: int = 1) -> Story:
        self.lines.append(Died(pid=pid, role="processor", why=RANDOM))
        return self

    def refused(self, *task_ids: str, pid: int = 1, fault: str = "throttle") -> Story:
        self.lines.append(Met(pid=pid, fault=fault, call="record", task_ids=list(task_ids or ("a",))))
        return self

    def row(self, outcome: str | None = "completed", task_id: str = "a", **more: Any) -> Story:
        status = {"outcome": outcome, "status": outcome} if outcome else {"status": "scheduled"}
        row = {"taskId": task_id, "taskDateTime": BUCKET, "createdAt": BORN, "run": 1, "attempt": 1}
        self.rows[task_id] = row | status | more
        return self

    def letter(self, born: str = BORN) -> Story:
        self.letters.add(("a", born, 1))
        return self

    def verdict(self) -> Verdict:
        return judge(
            Evidence(history=history_of(self.lines), rows=self.rows, drained={0: self.drained}, letters=self.letters,
                     life=LIFE, **self.given)
        )  # fmt: skip


def done(story: Story, attempt: int = 1, *, key: str | None = None, **who: Any) -> Story:
    """An attempt that came to its end and into the table."""
    return (
        story.begin(attempt, key=key, **who)
        .end(attempt, **who)
        .recorded(who.get("task_id", "a"), pid=who.get("pid", 1))
    )


def instant(seconds: float) -> str:
    return format_instant(datetime.fromtimestamp(NOON + seconds, UTC))


# -- all is well -------------------------------------------------------------------------------------------------------


def three_that_clients_took_away() -> Story:
    """``a`` was cancelled, ``b`` deleted, and ``c`` replaced before it ran."""
    story = Story().ask().ask(CANCEL, run=1).row("cancelled", finishedAt=instant(3))
    story.ask(task_id="b").ask(DELETE, "b")
    done(story.ask(task_id="c").ask(REPLACE, "c", life="c/1"), task_id="c", life="c/1", run=2)
    return story.row(task_id="c", run=2, payload={"life": "c/1"})


# Each with what the verdict counts, beside the one task that was executed.
GOOD: dict[str, tuple[Callable[[], Story], dict[str, object]]] = {
    "executed once": (lambda: done(Story().ask()).row(), {"inserted": {"client": 1}}),
    "executed twice because its process died before the record": (
        lambda: done(Story().ask().begin().end().died(), 2, pid=2).row(attempt=2), {"repeated": 1, "reclaimed": 1}),
    "executed twice because its record was refused": (
        lambda: done(Story().ask().begin().end().refused(), 2, pid=2).row(attempt=2), {"repeated": 1, "reclaimed": 1}),
    "killed in the midst and reclaimed": (
        lambda: done(Story().ask().begin().died(), 2, pid=2).row(), {"reclaimed": 1}),
    "failed on purpose and tried again": (
        lambda: done(Story().ask().begin().end(done=False).recorded(), 2).row(), {}),
    "tried again once its backoff was over": (
        lambda: done(Story().ask().begin().end(done=False).recorded(again=5), 2).row(), {}),
    "tried again at another time that a client gave it": (
        lambda: done(Story().ask().begin().end(done=False).recorded(again=60).ask(RESCHEDULE, run=1, due=7), 2).row(),
        {}),
    "begun early by no more than clocks may differ": (
        lambda: done(Story(skew=2.0).ask().begin(late=-4).end(done=False).recorded(again=7), 2).row(), {}),
    "run once more": (lambda: done(done(Story().ask()), run=2).row(run=2), {}),
    "cancelled before it ran, deleted and replaced": (
        three_that_clients_took_away, {"record_results": {"cancelled": 1, "deleted": 1, "replaced": 1, "executed": 1}}),
    "cancelled between two attempts": (
        lambda: Story().ask().begin().end(done=False).recorded().ask(CANCEL, run=1)
        .row("cancelled", finishedAt=instant(5)),
        {"record_results": {"cancelled": 1}}),
    "an insert that was refused": (lambda: Story().ask(answer=NO), {"record_results": {}, "unclear": 0}),
    "an insert without an answer": (lambda: Story().ask(answer=None), {"record_results": {}, "unclear": 1}),
    "an insert with an unclear answer": (lambda: Story().ask(answer=UNCLEAR), {"record_results": {}, "unclear": 1}),
    "failed as it was made to": (
        lambda: Story().ask(fails=True).begin().end(done=False).recorded().row("failed").letter(),
        {"record_results": {"failed": 1}}),
    "failed because every attempt was killed": (
        lambda: Story().ask().row("failed", attempt=4, error=f"{USED_UP} 4").letter(),
        {"record_results": {"failed": 1}}),
    "a schedule at its end": (
        lambda: done(Story().ask()).row().row(task_id="s", scheduleExpression="rate(1 minute)"), {}),
    "a schedule that need not end": (
        lambda: done(Story(schedules_end=False).ask()).row()
        .row(None, task_id="s", scheduleExpression="rate(1 minute)", status="recurring", missedOccurrences=1), {}),
    "executed where only its target saw it": (lambda: Story(elsewhere={"a"}).ask().row(), {}),
    "executed again after its row was restored": (
        lambda: done(done(Story(restored={"a"}).ask())).row(), {"repeated": 1, "reclaimed": 1}),
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_good_is(name: str) -> None:
    story, counted = GOOD[name]
    verdict = story().verdict()
    assert verdict.is_good, verdict.problems
    found = {"record_results": verdict.record_results, "inserted": verdict.inserted, "unclear": verdict.unclear,
             "repeated": sum(verdict.repeated.values()), "reclaimed": verdict.reclaimed}  # fmt: skip
    expected = {"record_results": {"executed": 1}, "unclear": 0, "repeated": 0, "reclaimed": 0, **counted}
    assert {name: found[name] for name in expected} == expected


# -- what must not happen ----------------------------------------------------------------------------------------------


RED: dict[str, tuple[Callable[[], Story], str]] = {
    "lost without a row": (lambda: Story().ask(), "lost; there is no row"),
    "lost in a drained bucket": (lambda: Story().ask().row(None), "where no tick polls"),
    "recorded and never executed": (lambda: Story().ask().row(), "was never executed"),
    "recorded for a run that was never executed": (
        lambda: done(Story().ask()).row(run=2), "run 2 is recorded as completed, and was never executed"),
    "killed in the midst and recorded as done": (lambda: Story().ask().begin().died().row(), "was never executed"),
    "waiting": (lambda: Story(drained=DRAINED - 60).ask().row(None), "still scheduled"),
    "waiting although no client knows that it is in": (
        lambda: Story(drained=DRAINED - 60).ask(answer=None).row(None), "still scheduled"),
    "executed again although recorded": (
        lambda: done(done(Story().ask()).died(), 2, pid=2).row(), "although attempt 1 is recorded"),
    "executed again for no reason": (
        lambda: done(Story().ask().begin().end(), 2, pid=2).row(), "nothing came between"),
    "executed again and only another process died": (
        lambda: done(Story().ask().begin().end().died(pid=3), 2, pid=2).row(), "nothing came between"),
    "executed again and the record was refused before it ended": (
        lambda: done(Story().ask().begin().refused().end(), 2, pid=2).row(), "nothing came between"),
    "executed again while the process lived": (
        lambda: done(Story().ask().begin(), 2, pid=2).row(), "while the process of attempt 1 lived"),
    "two at once": (
        lambda: Story().ask().begin().begin(2, pid=2).end().died().end(2, pid=2).recorded(pid=2).row(),
        "while attempt 1 was at work"),
    "the same attempt twice": (
        lambda: done(Story().ask().begin().died(), 1, pid=2).row(), "attempt 1 was made after attempt 1"),
    "another key": (
        lambda: Story().ask().begin().end().died().begin(2, pid=2, key="a#7").end(2, pid=2).recorded(pid=2).row(),
        "different idempotency keys"),
    "the key of the task that it replaces": (
        lambda: done(done(Story().ask()).ask(REPLACE, life="a/1"), life="a/1").row(payload={"life": "a/1"}),
        "has the idempotency key a#1 of a, run 1"),
    "executed after its cancellation": (
        lambda: done(Story().ask().ask(CANCEL, run=1)).row(), "after it had been cancelled"),
    "cancelled while it ran": (
        lambda: Story().ask().begin().ask(CANCEL, run=1).end().row("cancelled", finishedAt=instant(3)),
        "while attempt 1 was at work"),
    "shown as cancelled and executed before": (
        lambda: Story().ask().begin().end().recorded().row("cancelled", finishedAt=instant(9)), "run 1 was executed"),
    "shown as cancelled and executed later": (
        lambda: done(Story().ask().ask(CANCEL, answer=None)).row("cancelled", finishedAt=instant(-10)),
        "after it was cancelled"),
    "there again after its deletion": (
        lambda: done(Story().ask().ask(DELETE)).row(), "there again, after it had been deleted"),
    "executed long after its deletion": (
        lambda: Story().ask().ask(DELETE).begin(late=LIFE + 10).end(), "executed long after it had been deleted"),
    "there again after its replacement": (
        lambda: done(Story().ask().ask(REPLACE, life="a/1")).row(), "there again, after it had been replaced"),
    "executed early": (lambda: Story().ask().begin(late=-2.001).end().recorded().row(), "0.001 s before it was due"),
    "tried again before its backoff was over": (
        lambda: done(Story().ask().begin().end(done=False).recorded(again=5.001), 2).row(),
        "attempt 2 began 0.001 s before its backoff was over"),
    "executed at the time that it had before it was rescheduled": (
        lambda: done(Story().ask().ask(RESCHEDULE, run=1, due=4.001)).row(),
        "attempt 1 began 0.001 s before the time that it was given"),
    "executed elsewhere and never inserted": (
        lambda: done(Story(elsewhere={"x"}).ask()).row(), "x: executed, and no client inserted it"),
    "executed again with another key after its row was restored": (
        lambda: done(done(Story(restored={"a"}).ask()), key="a#7").row(), "different idempotency keys"),
    "executed and never inserted": (
        lambda: done(Story().ask(), 1).row().begin(task_id="x").end(task_id="x"), "no client inserted it"),
    "a row that no client inserted": (
        lambda: done(Story().ask()).row().row(task_id="x"), "a row that no client inserted"),
    "failed for no reason": (
        lambda: Story().ask().row("failed", error="TypeError").letter(), "failed, although it can't"),
    "failed before its attempts were used up": (
        lambda: Story().ask().row("failed", attempt=3, error=f"{USED_UP} 3").letter(), "failed, although it can't"),
    "failed without a dead letter, but one that had the id before": (
        lambda: Story().ask(fails=True).begin().end(done=False).recorded().row("failed").letter(EARLIER),
        "without a dead letter"),
    "completed although it cannot": (lambda: done(Story().ask(fails=True)).row(), "although it must fail"),
    "something for the doctor": (
        lambda: done(Story(findings=["a: stale"]).ask()).row(), "the doctor: a: stale"),
}  # fmt: skip


@pytest.mark.parametrize("name", RED)
def test_red_for(name: str) -> None:
    story, expected = RED[name]
    problems = story().verdict().problems
    assert any(expected in problem for problem in problems), problems


@pytest.mark.parametrize("more", [{"outcome": None, "status": "recurring"}, {"missedOccurrences": 1}])
def test_red_for_a_schedule_that_is_not_at_its_end_or_missed_a_run(more: dict[str, Any]) -> None:
    row: dict[str, Any] = {"taskId": "s", "status": "completed", "outcome": "completed", **more}
    story = Story()
    story.rows["s"] = {"scheduleExpression": "rate(1 minute)", **{n: v for n, v in row.items() if v is not None}}
    (problem,) = story.verdict().problems
    assert "a schedule that" in problem


@pytest.mark.parametrize(
    ("name", "result"),
    [("lost without a row", "lost"), ("lost in a drained bucket", "lost"), ("recorded and never executed", "lost"),
     ("waiting", "waiting"), ("waiting although no client knows that it is in", "waiting")],
)  # fmt: skip
def test_the_lost_and_those_that_wait_are_counted(name: str, result: str) -> None:
    assert RED[name][0]().verdict().record_results == {result: 1}

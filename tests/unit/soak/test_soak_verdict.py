"""The soak's verdict: silent when all is well, and red for each thing that must not happen."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.sandbox.journal import (
    CANCEL,
    DELETE,
    INSERT,
    NO,
    RANDOM,
    REPLACE,
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
from tests.soak.history import history_of
from tests.soak.verdict import Evidence, Verdict, judge

from dynatick.domain.buckets import Bucket, minute_of
from dynatick.domain.instants import format_instant

NOON = datetime(2026, 12, 31, 12, 0, tzinfo=UTC).timestamp()
BUCKET = str(Bucket(minute_of(datetime(2026, 12, 31, 12, 1, tzinfo=UTC))))
BORN = "2026-12-31T11:00:00.000Z"
DRAINED = minute_of(datetime(2026, 12, 31, 13, 0, tzinfo=UTC))
LIFE = 36.0
USED_UP = "its process died, or did not finish in time, at the last of"


class Story:
    """Lines of a journal, told one after another; a second passes with each."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.rows: dict[str, dict[str, Any]] = {}
        self.letters: set[tuple[str, str, int]] = set()
        self.drained = DRAINED
        self.findings: list[str] = []

    @property
    def now(self) -> float:
        return NOON + len(self.lines)

    def ask(self, what: str = INSERT, task_id: str = "a", *, life: str | None = None, answer: str | None = YES,
            run: int | None = None, interface: str = "client", fails: bool = False) -> Story:  # fmt: skip
        number = str(len(self.lines))
        self.lines.append(
            Asked(
                number=number,
                what=what,
                interface=interface,
                task_id=task_id,
                life=life or task_id,
                at=self.now,
                fails=fails,
            )
        )
        if answer is not None:
            self.lines.append(Answered(number=number, answer=answer, at=self.now, run=run))
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
        self.lines.append(
            Ended(
                pid=pid, task_id=task_id, life=life or task_id, run=run, attempt=attempt, key="", done=done, at=self.now
            )
        )
        return self

    def recorded(self, *task_ids: str, pid: int = 1) -> Story:
        self.lines.append(Recorded(pid=pid, task_ids=list(task_ids or ("a",))))
        return self

    def died(self, pid: int = 1) -> Story:
        self.lines.append(Died(pid=pid, role="processor", why=RANDOM))
        return self

    def refused(self, *task_ids: str, pid: int = 1, fault: str = "throttle") -> Story:
        self.lines.append(Met(pid=pid, fault=fault, call="record", task_ids=list(task_ids or ("a",))))
        return self

    def row(self, outcome: str | None = "completed", task_id: str = "a", **more: Any) -> Story:
        status = {"outcome": outcome, "status": outcome} if outcome else {"status": "scheduled"}
        self.rows[task_id] = {
            "taskId": task_id,
            "taskDateTime": BUCKET,
            "createdAt": BORN,
            "run": 1,
            "attempt": 1,
            **status,
            **more,
        }
        return self

    def verdict(self) -> Verdict:
        return judge(
            Evidence(history=history_of(self.lines), rows=self.rows, drained={0: self.drained}, letters=self.letters,
                     life=LIFE, findings=self.findings)
        )  # fmt: skip


def done(story: Story, attempt: int = 1, **who: Any) -> Story:
    """An attempt that came to its end and into the table."""
    return story.begin(attempt, **who).end(attempt, **who).recorded(who.get("task_id", "a"), pid=who.get("pid", 1))


def instant(seconds: float) -> str:
    return format_instant(datetime.fromtimestamp(NOON + seconds, UTC))


# -- all is well -------------------------------------------------------------------------------------------------------


def test_executed_once() -> None:
    verdict = done(Story().ask()).row().verdict()
    assert verdict.is_good
    assert verdict.record_results == {"executed": 1}
    assert verdict.inserted == {"client": 1}


@pytest.mark.parametrize("cut", [Story.died, Story.refused])
def test_executed_twice_because_the_attempt_was_cut_off_before_its_record(cut: Callable[[Story], Story]) -> None:
    story = cut(Story().ask().begin().end())
    verdict = done(story, 2, pid=2).row(attempt=2).verdict()
    assert verdict.is_good, verdict.problems
    assert sum(verdict.repeated.values()) == 1
    assert verdict.reclaimed == 1


def test_killed_in_the_midst_and_taken_over() -> None:
    verdict = done(Story().ask().begin().died(), 2, pid=2).row().verdict()
    assert verdict.is_good
    assert not verdict.repeated
    assert verdict.reclaimed == 1


def test_failed_on_purpose_and_tried_again() -> None:
    verdict = done(Story().ask().begin().end(done=False).recorded(), 2).row().verdict()
    assert verdict.is_good
    assert not verdict.repeated
    assert not verdict.reclaimed


def test_run_once_more() -> None:
    assert done(done(Story().ask()), run=2).row(run=2).verdict().is_good


def test_cancelled_before_it_ran_deleted_and_replaced() -> None:
    story = Story().ask().ask(CANCEL, run=1).row("cancelled", finishedAt=instant(3))
    story.ask(task_id="b").ask(DELETE, "b")
    done(story.ask(task_id="c").ask(REPLACE, "c", life="c/1"), task_id="c", life="c/1", run=2)
    verdict = story.row(task_id="c", run=2, payload={"life": "c/1"}).verdict()
    assert verdict.is_good, verdict.problems
    assert verdict.record_results == {"cancelled": 1, "deleted": 1, "replaced": 1, "executed": 1}


def test_cancelled_between_two_attempts() -> None:
    story = Story().ask().begin().end(done=False).recorded().ask(CANCEL, run=1).row("cancelled", finishedAt=instant(5))
    assert story.verdict().is_good


def test_an_insert_without_an_answer_need_not_be_there() -> None:
    for answer in (None, UNCLEAR, NO):
        verdict = Story().ask(answer=answer).verdict()
        assert verdict.is_good
        assert verdict.unclear == (answer != NO)
        assert not verdict.record_results


def test_failed_as_it_was_made_to() -> None:
    story = Story().ask(fails=True).begin().end(done=False).recorded().row("failed")
    story.letters.add(("a", BORN, 1))
    assert story.verdict().is_good


def test_a_schedule_at_its_end_is_no_task() -> None:
    verdict = done(Story().ask()).row().row(task_id="s", scheduleExpression="rate(1 minute)").verdict()
    assert verdict.is_good, verdict.problems
    assert sum(verdict.record_results.values()) == 1


@pytest.mark.parametrize("more", [{"outcome": None, "status": "recurring"}, {"missedOccurrences": 1}])
def test_red_for_a_schedule_that_is_not_at_its_end_or_missed_a_run(more: dict[str, Any]) -> None:
    row: dict[str, Any] = {"taskId": "s", "status": "completed", "outcome": "completed", **more}
    story = Story()
    story.rows["s"] = {"scheduleExpression": "rate(1 minute)", **{n: v for n, v in row.items() if v is not None}}
    (problem,) = story.verdict().problems
    assert "a schedule that" in problem


def test_failed_because_every_attempt_was_killed() -> None:
    story = Story().ask().row("failed", attempt=4, error=f"{USED_UP} 4")
    story.letters.add(("a", BORN, 1))
    assert story.verdict().record_results == {"failed": 1}
    assert story.verdict().is_good


# -- what must not happen ----------------------------------------------------------------------------------------------


def lost_without_a_row() -> Story:
    return Story().ask()


def lost_after_it_ran() -> Story:
    return done(Story().ask())


def lost_in_a_drained_bucket() -> Story:
    return Story().ask().row(None)


def recorded_and_never_executed() -> Story:
    return Story().ask().row()


def recorded_for_a_run_that_was_never_executed() -> Story:
    return done(Story().ask()).row(run=2)


def killed_in_the_midst_and_recorded_as_done() -> Story:
    return Story().ask().begin().died().row()


def waiting() -> Story:
    story = Story().ask().row(None)
    story.drained = DRAINED - 60
    return story


def waiting_although_no_client_knows_that_it_is_in() -> Story:
    story = Story().ask(answer=None).row(None)
    story.drained = DRAINED - 60
    return story


def executed_again_although_recorded() -> Story:
    return done(done(Story().ask()).died(), 2, pid=2).row()


def executed_again_although_recorded_and_the_answer_lost() -> Story:
    return done(Story().ask().begin().end().refused(fault="lose answer").recorded(), 2, pid=2).row()


def executed_again_for_no_reason() -> Story:
    return done(Story().ask().begin().end(), 2, pid=2).row()


def executed_again_and_only_another_process_died() -> Story:
    return done(Story().ask().begin().end().died(pid=3), 2, pid=2).row()


def executed_again_and_only_another_tasks_record_was_refused() -> Story:
    return done(Story().ask().begin().end().refused("b"), 2, pid=2).row()


def executed_again_and_the_record_was_refused_before_it_ended() -> Story:
    return done(Story().ask().begin().refused().end(), 2, pid=2).row()


def executed_again_while_the_process_lived() -> Story:
    return done(Story().ask().begin(), 2, pid=2).row()


def two_at_once() -> Story:
    return Story().ask().begin().begin(2, pid=2).end().died().end(2, pid=2).recorded(pid=2).row()


def the_same_attempt_twice() -> Story:
    return done(Story().ask().begin().died(), 1, pid=2).row()


def another_key() -> Story:
    return Story().ask().begin().end().died().begin(2, pid=2, key="a#7").end(2, pid=2).recorded(pid=2).row()


def the_key_of_another_run() -> Story:
    story = done(Story().ask())
    return story.begin(run=2, key="a#1").end(run=2).recorded().row(run=2)


def the_key_of_the_task_that_it_replaces() -> Story:
    story = done(Story().ask()).ask(REPLACE, life="a/1")
    return done(story, life="a/1").row(payload={"life": "a/1"})


def executed_after_its_cancellation() -> Story:
    return done(Story().ask().ask(CANCEL, run=1)).row()


def cancelled_while_it_ran() -> Story:
    return Story().ask().begin().ask(CANCEL, run=1).end().row("cancelled", finishedAt=instant(3))


def shown_as_cancelled_and_executed_later() -> Story:
    return done(Story().ask().ask(CANCEL, answer=None)).row("cancelled", finishedAt=instant(-10))


def there_again_after_its_deletion() -> Story:
    return done(Story().ask().ask(DELETE)).row()


def executed_long_after_its_deletion() -> Story:
    return Story().ask().ask(DELETE).begin(late=LIFE + 10).end()


def there_again_after_its_replacement() -> Story:
    return done(Story().ask().ask(REPLACE, life="a/1")).row()


def executed_early() -> Story:
    return Story().ask().begin(late=-30).end().recorded().row()


def executed_although_refused() -> Story:
    return done(Story().ask(answer=NO))


def executed_and_never_inserted() -> Story:
    return done(Story().ask(), 1).row().begin(task_id="x").end(task_id="x")


def a_row_that_no_client_inserted() -> Story:
    return done(Story().ask()).row().row(task_id="x")


def failed_for_no_reason() -> Story:
    story = Story().ask().row("failed", error="TypeError")
    story.letters.add(("a", BORN, 1))
    return story


def failed_before_its_attempts_were_used_up() -> Story:
    story = Story().ask().row("failed", attempt=3, error=f"{USED_UP} 3")
    story.letters.add(("a", BORN, 1))
    return story


def failed_without_a_dead_letter() -> Story:
    story = Story().ask(fails=True).begin().end(done=False).recorded().row("failed")
    story.letters.add(("a", "2026-12-31T10:00:00.000Z", 1))  # of one that had the id before
    return story


def completed_although_it_cannot() -> Story:
    return done(Story().ask(fails=True)).row()


def something_for_the_doctor() -> Story:
    story = done(Story().ask()).row()
    story.findings.append("a: stale")
    return story


RED = {
    lost_without_a_row: "lost; there is no row",
    lost_after_it_ran: "lost; there is no row",
    lost_in_a_drained_bucket: "where no tick polls",
    recorded_and_never_executed: "was never executed",
    recorded_for_a_run_that_was_never_executed: "run 2 is recorded as completed, and was never executed",
    killed_in_the_midst_and_recorded_as_done: "was never executed",
    waiting: "still scheduled",
    waiting_although_no_client_knows_that_it_is_in: "still scheduled",
    executed_again_although_recorded: "although attempt 1 is recorded",
    executed_again_although_recorded_and_the_answer_lost: "although attempt 1 is recorded",
    executed_again_for_no_reason: "nothing came between",
    executed_again_and_only_another_process_died: "nothing came between",
    executed_again_and_only_another_tasks_record_was_refused: "nothing came between",
    executed_again_and_the_record_was_refused_before_it_ended: "nothing came between",
    executed_again_while_the_process_lived: "while the process of attempt 1 lived",
    two_at_once: "while attempt 1 was at work",
    the_same_attempt_twice: "attempt 1 was made after attempt 1",
    another_key: "different idempotency keys",
    the_key_of_another_run: "has the idempotency key a#1 of a, run 1",
    the_key_of_the_task_that_it_replaces: "has the idempotency key a#1 of a, run 1",
    executed_after_its_cancellation: "after it had been cancelled",
    cancelled_while_it_ran: "while attempt 1 was at work",
    shown_as_cancelled_and_executed_later: "after it was cancelled",
    there_again_after_its_deletion: "there again, after it had been deleted",
    executed_long_after_its_deletion: "executed long after it had been deleted",
    there_again_after_its_replacement: "there again, after it had been replaced",
    executed_early: "before it was due",
    executed_although_refused: "although its insert was refused",
    executed_and_never_inserted: "no client inserted it",
    a_row_that_no_client_inserted: "a row that no client inserted",
    failed_for_no_reason: "failed, although it can't",
    failed_before_its_attempts_were_used_up: "failed, although it can't",
    failed_without_a_dead_letter: "without a dead letter",
    completed_although_it_cannot: "although it must fail",
    something_for_the_doctor: "the doctor: a: stale",
}


@pytest.mark.parametrize("report", RED, ids=lambda report: report.__name__)
def test_red_for(report: Callable[[], Story]) -> None:
    problems = report().verdict().problems
    assert any(RED[report] in problem for problem in problems), problems


@pytest.mark.parametrize("report", [lost_without_a_row, lost_in_a_drained_bucket, recorded_and_never_executed])
def test_the_lost_are_counted(report: Callable[[], Story]) -> None:
    assert report().verdict().record_results == {"lost": 1}


@pytest.mark.parametrize("report", [waiting, waiting_although_no_client_knows_that_it_is_in])
def test_those_that_wait_are_counted(report: Callable[[], Story]) -> None:
    assert report().verdict().record_results == {"waiting": 1}

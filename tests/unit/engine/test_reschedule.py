"""A handler that polls a job reschedules its task until the job is done: turns, which are no failed attempts."""

from __future__ import annotations

from tests.unit.engine.support import World, passed, world

from dynatick.domain.task import Task
from dynatick.engine.ports import ActionContext
from dynatick.errors import Reschedule


def polls(w: World, task_id: str, *answers: BaseException | str) -> list[tuple[int, int, str]]:
    """The task's handler answers so, one time after the other. Returns its attempts: (turn, attempt, key)."""
    calls: list[tuple[int, int, str]] = []

    def run(task: Task, context: ActionContext) -> str:
        calls.append((context.turn, context.attempt, context.idempotency_key))
        answer = answers[len(calls) - 1]
        if isinstance(answer, BaseException):
            raise answer
        return answer

    w.actions.behaviour[task_id] = run
    return calls


def test_a_job_is_polled_until_it_is_done() -> None:
    """A further turn is late only by what it begins after the tick of its wait."""
    w = world()
    calls = polls(w, "job", Reschedule(after=20), Reschedule(after=200), "done")
    w.insert("job")
    reports = [passed(w.next_tick()) for _ in range(6)]
    assert [(report.rescheduled, report.completed, report.lateness.count) for report in reports] == [
        (1, 0, 1), (1, 0, 1), (0, 0, 0), (0, 0, 0), (0, 0, 0), (0, 1, 1)
    ]  # fmt: skip
    assert reports[5].lateness.max < 1000
    first = calls[0][2]
    assert calls == [(0, 1, first), (1, 1, f"{first}.1"), (2, 1, f"{first}.2")]
    row = w.row("job")
    assert (row["outcome"], row["result"], row["turn"], row["run"], row["attempt"]) == ("completed", "done", 2, 1, 1)
    assert str(row["firstStartedAt"]).startswith("2026-12-31T12:01:0")
    assert "nextAttemptAt" not in row
    assert w.dead_letters.letters == []


def test_each_turn_has_all_the_attempts_of_the_policy() -> None:
    w = world()
    again, fails = Reschedule(after=1), ValueError("no connection")
    calls = polls(w, "job", fails, again, fails, fails, "unreachable")
    w.insert("job", retryPolicy={"maximumRetryAttempts": 1})
    w.ticks(8)
    key = calls[0][2]
    assert calls == [(0, 1, key), (0, 2, key), (1, 1, f"{key}.1"), (1, 2, f"{key}.1")], "one key for all of a turn"
    row = w.row("job")
    assert (row["outcome"], row["error"]) == ("failed", "ValueError: no connection")
    assert [(entry["attempt"], entry["error"]) for entry in row["attempts"]] == [
        (1, "ValueError: no connection"), (2, "ValueError: no connection")
    ]  # fmt: skip

"""Tasks that declare how long they take: none is begun with less time left, and none waits for ever for it."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from decimal import Decimal

import pytest
from tests.builders import NOON
from tests.unit.engine.support import PacedClock, World, bucket_at, ids, passed, reports, rules, takes, world

from dynatick.domain.task import Task
from dynatick.engine import claiming
from dynatick.engine import execution as execution_module
from dynatick.engine.budget import max_timeout_seconds
from dynatick.engine.ports import ActionContext
from dynatick.engine.processor import Invoked
from dynatick.engine.report import PassReport


class Worked:
    """A world with one thread whose tasks take their time by the clock; notes how much was left when each began."""

    def __init__(self, *, life: float = 120, known: bool = True, **settings: object) -> None:
        maximum = max_timeout_seconds(timedelta(seconds=life)) if known else None
        self.clock = PacedClock()
        self.w: World = world(
            clock=self.clock,
            rules=rules(threads=1, max_timeout_seconds=maximum, **settings),
            life=timedelta(seconds=life),
        )
        self.left: list[tuple[str, float]] = []  # in the order in which they began

    def insert(self, *ids: str, seconds: float, at: int = 1, **more: object) -> None:
        self.w.insert(*ids, at=bucket_at(at), **more)
        for task_id in ids:
            self.w.actions.behaviour[task_id] = self.takes(seconds)

    def takes(self, seconds: float) -> Callable[[Task, ActionContext], object]:
        work = takes(self.w, seconds=seconds)

        def run(task: Task, context: ActionContext) -> None:
            self.left.append((task.task_id, (context.deadline - self.clock()).total_seconds()))
            work(task, context)

        return run

    @property
    def begun(self) -> list[str]:
        return [task_id for task_id, _ in self.left]

    def assert_each_ran_once(self, *ids: str) -> None:
        assert Counter(self.w.actions.ran) == {(task_id, 1, 1): 1 for task_id in ids}
        assert {self.w.outcome(task_id) for task_id in ids} == {"completed"}


def recoveries(done: Sequence[Invoked]) -> list[PassReport]:
    return [invoked.recovered for invoked in done if invoked.recovered is not None]


@pytest.fixture(autouse=True)
def _coordinators_are_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution_module, "RECORD_DELAY_SECONDS", 0.002)


# -- what fits ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("life", "longest"), [(900, 892), (120, 112), (60, 52), (30, 25), (1, 0)])
def test_the_longest_timeout_leaves_time_to_begin_and_to_record(life: int, longest: int) -> None:
    assert max_timeout_seconds(timedelta(seconds=life)) == longest


# -- not begun with less time left -----------------------------------------------------------------------------------


@pytest.mark.parametrize("declared_by", ["task", "handler"])
def test_a_task_is_not_begun_with_less_time_left_than_it_takes(declared_by: str) -> None:
    made = Worked()
    made.insert(*ids(7, "a"), seconds=10)
    more = {"timeoutSeconds": Decimal(60)} if declared_by == "task" else {}
    made.insert("long", seconds=60, **more)
    if declared_by == "handler":
        made.w.actions.timeouts["long"] = 60
    first, second = reports(made.w.next_tick())
    assert (first.completed, first.released, first.continued) == (7, 1, True)
    assert (second.completed, second.continuation) == (1, 1)
    assert dict(made.left)["long"] > 110, "it was the first of a new invocation"
    made.assert_each_ran_once(*ids(7, "a"), "long")


def test_many_long_tasks_run_one_after_another_and_nothing_is_claimed_in_vain_for_ever() -> None:
    made = Worked(max_continuations=100)
    made.insert(*ids(40, "long"), seconds=60, timeoutSeconds=Decimal(60))
    done = reports(made.w.next_tick())
    made.assert_each_ran_once(*ids(40, "long"))
    assert len(done) == 40
    assert all(left > 63 for _, left in made.left)
    assert max(report.claimed for report in done) <= 100


def test_a_pass_that_meets_many_long_tasks_leaves_those_behind_unclaimed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claiming, "MAX_CLAIMS", 1)  # so that the first of them all is the first to begin
    made = Worked(max_continuations=0)
    made.insert("first", seconds=60)
    made.insert(*ids(1000, "long"), seconds=60, timeoutSeconds=Decimal(60))
    (report,) = reports(made.w.next_tick())
    assert (report.completed, report.claimed - report.released) == (1, 1)
    assert report.claimed < 300, "not a claim and a release for each of the thousand"


def test_a_long_task_that_does_not_fit_makes_no_chain_of_invocations() -> None:
    """Invocations are shorter than is known: it waits, is tried at each tick, and delays no other."""
    made = Worked(life=60, known=False)
    made.insert("long", seconds=100, at=1, timeoutSeconds=Decimal(100))
    made.insert("a", seconds=1, at=2)
    made.insert("b", seconds=1, at=3)
    done = reports(made.w.next_tick(3))
    assert {made.w.outcome("a"), made.w.outcome("b")} == {"completed"}
    assert all(report.completed for report in done[:-1]), "none went on that had done nothing"
    assert not done[-1].continued
    for _ in range(3):
        assert len(reports(made.w.next_tick())) == 1
    assert made.w.actions.times("long") == 0
    assert made.w.row("long")["attempt"] == 0
    assert made.w.cursor().drained_through < bucket_at(1).minute, "its bucket is not passed"


def test_a_task_whose_process_died_and_that_does_not_fit_makes_no_chain_of_invocations() -> None:
    made = Worked(life=60, known=False)
    made.insert("long", seconds=100, at=1, timeoutSeconds=Decimal(100))
    made.insert("a", seconds=1, at=2)
    made.w.claim("long", until=NOON + timedelta(seconds=30))
    for minutes in (3, 1, 1, 1):
        done = made.w.next_tick(minutes)
        assert [report.recovered for report in recoveries(done)] == [0]
        assert len(done) == 2, "the pass and the recovery, which does not continue"
    assert (made.w.row("long")["attempt"], made.w.actions.times("long")) == (1, 0)
    assert made.w.cursor().drained_through < bucket_at(1).minute


# -- longer than declared --------------------------------------------------------------------------------------------


def test_an_attempt_that_takes_longer_than_its_timeout_is_logged_and_counted_and_not_interrupted(
    logged: list[logging.LogRecord],
) -> None:
    made = Worked()
    made.insert("long", seconds=31, timeoutSeconds=Decimal(30), payload={"secret": "xyzzy"})
    made.insert("quick", seconds=1, timeoutSeconds=Decimal(30))
    report = passed(made.w.next_tick())
    assert (report.completed, report.overran) == (2, 1)
    made.assert_each_ran_once("long", "quick")
    (record,) = logged
    said = vars(record)
    assert (said["action"], said["task_id"], said["attempt"], said["run"]) == ("attempt_overran", "long", 1, 1)
    assert (said["handler"], said["timeout_seconds"]) == ("log", 30)
    assert 31 <= said["seconds"] < 60
    assert "xyzzy" not in str(said)


@pytest.mark.parametrize(
    ("own", "overran"), [({"timeoutSeconds": Decimal(30)}, 1), ({}, 0)], ids=["longer than declared", "undeclared"]
)
def test_an_attempt_that_still_runs_at_the_end_is_logged_once_if_it_takes_longer_than_its_timeout(
    own: dict[str, object], overran: int, logged: list[logging.LogRecord]
) -> None:
    made = Worked()
    go, ended = threading.Event(), threading.Event()

    def hangs(task: Task, context: ActionContext) -> None:
        made.clock.forward(seconds=118)
        assert go.wait(30)
        ended.set()

    made.w.insert("hangs", **own)
    made.w.actions.behaviour["hangs"] = hangs
    report = passed(made.w.next_tick())
    assert (report.unfinished, report.overran) == (1, overran)
    assert [vars(record)["task_id"] for record in logged] == ["hangs"] * overran
    go.set()
    assert ended.wait(10)

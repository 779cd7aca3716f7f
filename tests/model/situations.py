"""Situations that random sequences seldom reach: a sequence that leads into each, and a check that it did."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tests.model.counterexamples import (
    ONCE,
    PLAN,
    SHORT,
    SOON,
    begin,
    by,
    change,
    conditions,
    due,
    faulty,
    insert,
    insert_many,
    known,
    put,
    reconfigure,
    tick,
    wait,
    wake_up,
)
from tests.model.faulty_store import LOSE, REFUSE, Fault, Plan
from tests.model.installation import INDEX_LAG, Installation
from tests.model.rows import RawRow, When
from tests.model.steps import Step
from tests.model.wake_up_queue import QueueMode

from dynatick.engine.counts import PassReport
from dynatick.engine.rules import SHARD_LEASE

PLAIN = by(PLAN, PLAN)  # plans that can be varied


@dataclass(frozen=True)
class Situation:
    """``reached``: whether the sequence led where it should."""

    steps: Sequence[Step]
    reached: Callable[[Installation], bool]


def reports(model: Installation, kind: str) -> Sequence[PassReport]:
    """Returns the reports of the invocations of a kind: passed, recovered, worked or woken."""
    return [report for done in model.invocations if (report := getattr(done, kind)) is not None]


def claimed(model: Installation, kind: str) -> bool:
    return any(report.claimed for report in reports(model, kind))


def ended_between_pages(model: Installation) -> bool:
    """Returns whether an action ended between two pages of a bucket that its own pass read."""
    return any(
        execution.process is actor is other and bucket == same and before < execution.ended_at < after
        for (actor, bucket, before), (other, same, after) in pairwise(model.store.polls)
        for execution in model.oracle.executions.values()
    )


def lasted(report: PassReport) -> bool:
    """Longer than a shard's lease."""
    return report.finished_at is not None and report.finished_at - report.started_at > SHARD_LEASE


def went_back(model: Installation) -> bool:
    """Returns whether a cursor is what it was before."""
    closed = [str(row["closedThrough"]) for _, _, row in model.table.history if row and "closedThrough" in row]
    return closed != sorted(closed)


SITUATIONS: Mapping[str, Situation] = {
    "a process that raised is used again": Situation(
        [
            put(SOON, "slow", "ok"),
            put(SOON, "error", "ok", task_id="b"),
            tick(by(Plan(unlogged=True)), by(faulty(4, REFUSE))),
            put(SOON, "long", task_id="c"),
            tick(*[PLAIN] * 3),
        ],
        lambda model: model.used_after_error > 0,
    ),
    "a process raises while a task runs, and ends": Situation(
        [put(SOON, "hang", "ok"), tick(by(Plan(timeout=20.0, unlogged=True)), *[PLAIN] * 3)],
        lambda model: True in model.ended,
    ),
    "tasks outlive their invocations": Situation(
        [
            put(SOON, "long", "hang", "ok"),
            put(SOON, "hang", "ok", task_id="b"),
            tick(by(SHORT), by(SHORT, SHORT), by(PLAN, SHORT), *[PLAIN] * 3),
        ],
        lambda model: len(model.ended) > 1 and any(report.recovered for report in reports(model, "recovered")),
    ),
    "polling after a pause takes longer than a lease": Situation(
        [
            begin(poll=2.0, grid=(1, 2)),
            put(SOON),
            tick(*[PLAIN] * 2),
            put(known(900.0), "slow", task_id="b"),
            wait(10_000.0),
            put(SOON, "error", "ok", task_id="c"),
            tick(*[PLAIN] * 3),
        ],
        lambda model: any(lasted(report) and report.buckets > 100 for report in reports(model, "passed")),
    ),
    "tasks end while the pages of their bucket are read": Situation(
        [begin(poll=2.0), insert_many(SOON, "error", "ok"), tick(*[PLAIN] * 3)], ended_between_pages
    ),
    "a backlog over several invocations with expired leases in it": Situation(
        [
            insert_many(SOON, "hang", "poison", "ok", backlog=True),
            tick(by(SHORT), *[by(*[SHORT] * 4)] * 3, *[PLAIN] * 2),
        ],
        lambda model: (
            any(r.continuation and r.expired for r in reports(model, "passed"))
            and any(r.continuation and r.claimed for r in reports(model, "passed"))
            and any(r.recovered for r in reports(model, "recovered"))
        ),
    ),
    "the index lags beyond what is allowed for": Situation(
        [
            begin(lag=4 * INDEX_LAG, seed=5),
            put(known(60.0)),
            insert("b", When(seconds=130.0)),
            put(SOON, "error", "ok", task_id="c"),
            tick(*[PLAIN] * 8),
        ],
        lambda model: any(task.unseen for task in model.oracle.tasks),
    ),
    "old cursors and settings are restored": Situation(
        [
            begin(grid=(1, 2)),
            put(When(seconds=300.0)),
            tick(*[PLAIN] * 2),
            put(SOON, "slow", task_id="b"),
            tick(*[PLAIN] * 2),
            reconfigure(1, 3),
            insert("c", When(seconds=60.0)),
            Step("restore", ago=150.0, what="own"),
            tick(*[PLAIN] * 2),
        ],
        went_back,
    ),
    "old tasks are restored beside newer cursors": Situation(
        [
            put(SOON, "slow"),
            put(SOON, "permanent", task_id="b"),
            put(When(seconds=900.0), task_id="c"),
            tick(*[PLAIN] * 6),
            Step("restore", ago=330.0, what="tasks"),
            tick(*[PLAIN] * 2),
        ],
        lambda model: any(task.original is not None for task in model.oracle.tasks),
    ),
    "tasks are woken at their second": Situation(
        [
            begin(precise=True, grid=(1, 2)),
            tick(PLAIN),
            insert("a", due(20.0)),
            put(due(80.5), "slow", task_id="b"),
            put(due(150.0), "error", "ok", task_id="c"),
            put(When(seconds=120.0), task_id="d"),
            tick(*[PLAIN] * 4),
        ],
        # All but d, which is due on a tick.
        lambda model: sum(report.claimed for report in reports(model, "woken")) == 4,
    ),
    "more tasks are due at a second than there are threads": Situation(
        [begin(precise=True), tick(PLAIN), insert_many(due(80.0), "slow", backlog=True), tick(by(SHORT), *[PLAIN] * 3)],
        lambda model: claimed(model, "woken") and claimed(model, "passed"),
    ),
    "wake-ups come early, late, again, or not at all": Situation(
        [
            begin(precise=True, queue_mode=QueueMode(seed=3, lost=0.3, again=0.5, early=90.0, late=200.0)),
            tick(PLAIN),
            *(put(due(10.0 + 30.0 * n), "error", "slow", task_id=task_id) for n, task_id in enumerate("abcd")),
            tick(*[PLAIN] * 2),
            wake_up(0),
            change("cancel"),
            tick(*[PLAIN] * 2),
        ],
        lambda model: claimed(model, "woken") and any(not report.claimed for report in reports(model, "woken")),
    ),
    "the precision is switched while tasks wait": Situation(
        [
            begin(precise=True),
            tick(PLAIN),
            insert("a", due(80.0)),
            insert("b", due(140.0)),
            insert("c", due(200.0)),
            tick(PLAIN),
            Step("precision", precise=False),
            tick(*[PLAIN] * 2),
            Step("precision", precise=True),
            tick(*[PLAIN] * 2),
        ],
        lambda model: claimed(model, "woken"),
    ),
    "workers share a backlog": Situation(
        [begin(workers=3), insert_many(SOON, "error", "ok", backlog=True), tick(*[PLAIN] * 4)],
        lambda model: sum(report.completed > 0 for report in reports(model, "worked")) > 1,
    ),
    "workers start late, die and outlive their orders": Situation(
        [
            begin(workers=2, lag=50.0, seed=3),
            insert_many(SOON, "slow", "hang", "ok", backlog=True),
            tick(*[by(PLAN, SHORT, Plan(skew=2.0), SHORT)] * 4, *[PLAIN] * 2),
        ],
        lambda model: (
            any(report.completed for report in reports(model, "worked"))
            and any(report.handed_to_workers for report in reports(model, "passed"))
        ),
    ),
    "the dead-letter queue refuses": Situation(
        [
            conditions(dead_letters_refused=True),
            put(RawRow(bad_time="noon")),
            put(SOON, "permanent", task_id="b"),
            put(SOON, "error", task_id="c", policy=ONCE),
            put(SOON, "poison", task_id="d", policy=ONCE),
            tick(*[PLAIN] * 6),
            conditions(),
            tick(PLAIN),
        ],
        lambda model: (
            bool(model.oracle.refused)
            and {row["taskId"] for _, _, row in model.table.history if row and row.get("deferrals")} == {*"abcd"}
        ),
    ),
    "a claim without an answer is released by another invocation": Situation(
        [
            insert_many(When(), "hang"),
            reconfigure(60, 3),
            tick(PLAIN, by(PLAN, PLAN, Plan(faults=(Fault(call=3, kind=LOSE, calls=2),))), PLAIN),
        ],
        lambda model: any(done.released for done in model.invocations),
    ),
}

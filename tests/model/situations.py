"""Situations that chance alone would seldom make: sequences that lead into each, and how to tell that they did."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tests.model.installation import INDEX_LAG, Installation, Tick
from tests.model.kept_breaks import change, due, insert, known, put, tick, wait
from tests.model.post import Mail
from tests.model.rows import RawRow, When
from tests.model.seam import REFUSE, Fault, Plan
from tests.model.steps import Step
from tests.model.stream import Mode

from dynatick.engine.report import PassReport
from dynatick.engine.rules import SHARD_LEASE

SHORT = Plan(life=20.0)
SOON = When(seconds=1.0)
PLAIN = Tick(plans=(Plan(), Plan()))
ONCE = {"maximumRetryAttempts": 0}


@dataclass(frozen=True)
class Situation:
    """``reached``: whether the sequence led where it should."""

    steps: Sequence[Step]
    reached: Callable[[Installation], bool]


def begin(*, lag: float = 0.0, seed: int = 0, shards: int = 1, poll: float = 0.0, **more: object) -> Step:
    return Step("begin", mode=Mode(), lag=lag, seed=seed, grid=(1, shards), poll=poll, **more)


def many(*script: str, backlog: bool = False) -> Step:
    return Step("insert_many", when=SOON, script=script, plan=Plan(), backlog=backlog)


def queue_refuses(refuses: bool) -> Step:
    return Step("surroundings", mode=Mode(), lag=0.0, seed=0, letters_refused=refuses)


def passes(model: Installation) -> Sequence[PassReport]:
    return [done.passed for done in model.invocations if done.passed is not None]


def recoveries(model: Installation) -> Sequence[PassReport]:
    return [done.recovered for done in model.invocations if done.recovered is not None]


def worked(model: Installation) -> Sequence[PassReport]:
    return [done.worked for done in model.invocations if done.worked is not None]


def woken(model: Installation) -> Sequence[PassReport]:
    return [done.woken for done in model.invocations if done.woken is not None]


def lasted(report: PassReport) -> bool:
    """Longer than a shard's lease."""
    return report.finished_at is not None and report.finished_at - report.started_at > SHARD_LEASE


def ended_between_pages(model: Installation) -> bool:
    """Whether an action ended between two pages of a bucket that its own pass read."""
    return any(
        ran.process is actor is other and bucket == same and before < ran.ended_at < after
        for (actor, bucket, before), (other, same, after) in pairwise(model.seam.polls)
        for ran in model.book.executions.values()
    )


def went_back(model: Installation) -> bool:
    """Whether a cursor is what it was before."""
    closed = [str(row["closedThrough"]) for _, _, row in model.table.history if row and "closedThrough" in row]
    return closed != sorted(closed)


SITUATIONS: Mapping[str, Situation] = {
    "a process that raised is used again": Situation(
        [
            put(RawRow(when=SOON), "slow", "ok"),
            put(RawRow(when=SOON), "error", "ok", task_id="b"),
            tick(Tick(plans=(Plan(unlogged=True),)), Tick(plans=(Plan(faults=(Fault(call=4, kind=REFUSE),)),))),
            put(RawRow(when=SOON), "long", task_id="c"),
            tick(PLAIN, PLAIN, PLAIN),
        ],
        lambda model: model.used_after_error > 0,
    ),
    "a process raises while a task runs, and ends": Situation(
        [
            put(RawRow(when=SOON), "hang", "ok"),
            tick(Tick(plans=(Plan(life=20.0, unlogged=True),)), PLAIN, PLAIN, PLAIN),
        ],
        lambda model: True in model.ended,
    ),
    "tasks outlive their invocations": Situation(
        [
            put(RawRow(when=SOON), "long", "hang", "ok"),
            put(RawRow(when=SOON), "hang", "ok", task_id="b"),
            tick(Tick(plans=(SHORT,)), Tick(plans=(SHORT, SHORT)), Tick(plans=(Plan(), SHORT)), PLAIN, PLAIN, PLAIN),
        ],
        lambda model: len(model.ended) > 1 and any(report.recovered for report in recoveries(model)),
    ),
    "polling after a pause takes longer than a lease": Situation(
        [
            begin(poll=2.0, shards=2),
            put(RawRow(when=SOON)),
            tick(PLAIN, PLAIN),
            put(known(900.0), "slow", task_id="b"),
            *wait(10_000.0),
            put(RawRow(when=SOON), "error", "ok", task_id="c"),
            tick(PLAIN, PLAIN, PLAIN),
        ],
        lambda model: any(lasted(report) and report.buckets > 100 for report in passes(model)),
    ),
    "tasks end while the pages of their bucket are read": Situation(
        [begin(poll=2.0), many("error", "ok"), tick(PLAIN, PLAIN, PLAIN)],
        ended_between_pages,
    ),
    "a backlog over several invocations with expired leases in it": Situation(
        [
            many("hang", "poison", "ok", backlog=True),
            tick(Tick(plans=(SHORT,)), *[Tick(plans=(SHORT,) * 4)] * 3, PLAIN, PLAIN),
        ],
        lambda model: (
            any(r.continuation and r.expired for r in passes(model))
            and any(r.continuation and r.claimed for r in passes(model))
            and any(r.recovered for r in recoveries(model))
        ),
    ),
    "the index lags beyond what is allowed for": Situation(
        [
            begin(lag=4 * INDEX_LAG, seed=5),
            put(known(60.0)),
            insert("b", When(seconds=130.0)),
            put(RawRow(when=SOON), "error", "ok", task_id="c"),
            tick(*[PLAIN] * 8),
        ],
        lambda model: any(life.unseen for life in model.book.lives),
    ),
    "old cursors and settings are restored": Situation(
        [
            begin(shards=2),
            put(RawRow(when=When(seconds=300.0))),
            tick(PLAIN, PLAIN),
            put(RawRow(when=SOON), "slow", task_id="b"),
            tick(PLAIN, PLAIN),
            Step("reconfigure", grid=(1, 3)),
            insert("c", When(seconds=60.0)),
            Step("restore", ago=150.0, what="own"),
            tick(PLAIN, PLAIN),
        ],
        went_back,
    ),
    "old tasks are restored beside newer cursors": Situation(
        [
            put(RawRow(when=SOON), "slow"),
            put(RawRow(when=SOON), "permanent", task_id="b"),
            put(RawRow(when=When(seconds=900.0)), task_id="c"),
            tick(PLAIN, PLAIN, PLAIN),
            Step("restore", ago=150.0, what="tasks"),
            tick(PLAIN, PLAIN),
        ],
        lambda model: any(life.original is not None for life in model.book.lives),
    ),
    "tasks are woken at their second": Situation(
        [
            begin(precise=True, shards=2),
            tick(PLAIN),
            insert("a", due(20.0)),
            put(RawRow(when=due(80.5)), "slow", task_id="b"),
            put(RawRow(when=due(150.0)), "error", "ok", task_id="c"),
            put(RawRow(when=When(seconds=120.0)), task_id="d"),
            tick(PLAIN, PLAIN, PLAIN, PLAIN),
        ],
        lambda model: sum(report.claimed for report in woken(model)) == 4,  # all but d, which is due on a tick
    ),
    "more tasks are due at a second than there are threads": Situation(
        [
            begin(precise=True),
            tick(PLAIN),
            Step("insert_many", when=due(80.0), script=("slow",), plan=Plan(), backlog=True),
            tick(Tick(plans=(SHORT,)), PLAIN, PLAIN, PLAIN),
        ],
        lambda model: (
            any(report.claimed for report in woken(model)) and any(report.claimed for report in passes(model))
        ),
    ),
    "wake-ups come early, late, again, or not at all": Situation(
        [
            begin(precise=True, mail=Mail(seed=3, lost=0.3, again=0.5, early=90.0, late=200.0)),
            tick(PLAIN),
            *(
                put(RawRow(when=due(10.0 + 30.0 * n)), "error", "slow", task_id=task_id)
                for n, task_id in enumerate("abcd")
            ),
            tick(PLAIN, PLAIN),
            Step("wake_up", nth=0),
            change("cancel"),
            tick(PLAIN, PLAIN),
        ],
        lambda model: (
            any(report.claimed for report in woken(model)) and any(not report.claimed for report in woken(model))
        ),
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
            tick(PLAIN, PLAIN),
            Step("precision", precise=True),
            tick(PLAIN, PLAIN),
        ],
        lambda model: any(report.claimed for report in woken(model)),
    ),
    "workers share a backlog": Situation(
        [
            begin(workers=3),
            many("error", "ok", backlog=True),
            tick(PLAIN, PLAIN, PLAIN, PLAIN),
        ],
        lambda model: sum(report.completed > 0 for report in worked(model)) > 1,
    ),
    "workers start late, die and outlive their orders": Situation(
        [
            begin(workers=2, lag=50.0, seed=3),
            many("slow", "hang", "ok", backlog=True),
            tick(*[Tick(plans=(Plan(), SHORT, Plan(skew=2.0), SHORT))] * 4, PLAIN, PLAIN),
        ],
        lambda model: (
            any(report.completed for report in worked(model))
            and any(report.handed_to_workers for report in passes(model))
        ),
    ),
    "the dead-letter queue refuses": Situation(
        [
            queue_refuses(True),
            put(RawRow(bad_time="noon")),
            put(RawRow(when=SOON), "permanent", task_id="b"),
            Step("put", task_id="c", row=RawRow(when=SOON), script=("error",), policy=ONCE),
            Step("put", task_id="d", row=RawRow(when=SOON), script=("poison",), policy=ONCE),
            tick(*[PLAIN] * 6),
            queue_refuses(False),
            tick(PLAIN),
        ],
        lambda model: (
            len(model.book.refused) == 4 and any(row and row.get("deferrals") for _, _, row in model.table.history)
        ),
    ),
}

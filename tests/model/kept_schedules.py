"""Sequences with schedules that are kept: what did harm once, and what shows that a part of the protocol is missing.

As ``python -m tests.model.search --schedules`` printed them, and ``python -m tests.model.search 0``; some made by hand.
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.model.installation import Tick
from tests.model.schedule_machine import ScheduleRow
from tests.model.seam import FREEZE_BEFORE, LOSE, REFUSE, REPEAT, Fault, Plan
from tests.model.steps import Found, Step
from tests.model.stream import Mode
from tests.mutations import OF_SCHEDULES

ONCE = {"maximumRetryAttempts": 0}
LATER = {"minBackoffSeconds": 400, "maxBackoffSeconds": 400}


def put(row: ScheduleRow = ScheduleRow(), *script: str, policy: object = None) -> Step:  # noqa: B008
    return Step("put", schedule_id="s", row=row, script=script or ("ok",), policy=policy)


def backfill(minutes: int = 40) -> Step:
    return Step("backfill", schedule_id="s", minutes=minutes, plan=Plan())


def change(wish: str) -> Step:
    return Step("change", schedule_id="s", wish=wish, plan=Plan())


def tick(*ticks: Tick) -> Step:
    return Step("tick", ticks=list(ticks) or [Tick()])


def wait(seconds: float) -> Step:
    return Step("time_passes", seconds=seconds)


NONE = Tick(events=0)

KEPT_FAULTS: Mapping[str, Found] = {
    "an edit while several runs are due": Found(
        "540.365: s: the run of 120 is lost: processor has moved it on to 600.0",
        [put(), wait(400.0), Step("update", schedule_id="s", expression="cron(0/5 * * * ? *)", plan=Plan())],
    ),
    "a pause and a resumption while several runs are due": Found(
        "540.365: s: the run of 120 is lost: processor has moved it on to 420.0",
        [put(), wait(400.0), change("pause"), wait(2.0), change("resume")],
    ),
    "a pause between the times of two late ticks": Found(
        "250.177: s: the run of 180 is lost: processor has moved it on to None",
        [Step("begin", mode=Mode(), seed=0, lag=0.0, grid=(2, 3)), put(), tick(Tick(late=130.0), Tick(late=130.0)),
         Step("edit", schedule_id="s", edit="pause")],
    ),
    "a client makes up what a tick is about to decide on": Found(
        "543.065: s: 2 runs from 360 to 420 said to be missed (outage), and 1 of 2 were made",
        [tick(), put(), tick(NONE), tick(NONE), tick(NONE), tick(NONE), Step("backfill", schedule_id="s", minutes=3,
                                                                           plan=Plan()), wait(0.2)],
    ),
    "an insert without an answer, and no other attempt": Found(
        "s#1#2026-12-31T23:50:30Z: failed and never executed: its process died, or did not finish in time",
        [
            Step("begin", mode=Mode(), seed=0, lag=100.0, grid=(5, 1)),
            put(policy=ONCE),
            tick(Tick(), Tick(events=2, plans=(
                Plan(faults=(Fault(call=10, kind=LOSE),)),
                Plan(faults=(Fault(call=14, kind=FREEZE_BEFORE, seconds=100.0),), life=20.0),
            ))),
        ],
    ),
    "a claim that is under way when the time is up": Found(
        "s#1#2026-12-31T23:25:00Z: failed and never executed: its process died, or did not finish in time",
        [
            Step("backfill", minutes=40, plan=Plan(), schedule_id="t"),
            Step("put", policy=ONCE, row=ScheduleRow(expression="cron(* * * * ? *)", enabled=False), schedule_id="t",
                 script=("ok",)),
            Step("reconfigure", grid=(1, 3)),
            Step("rest"),
            Step("reconcile", plan=Plan()),
            Step("reconfigure", grid=(5, 1)),
            Step("update", expression="rate(7 minutes)", plan=Plan(), schedule_id="t"),
            Step("plan", plans=[Plan(), Plan(seed=5870, life=20.0, faults=(
                Fault(call=15, kind=REPEAT, calls=6), Fault(call=10, kind=REPEAT, calls=6)))]),
            tick(),
        ],
    ),
    "a schedule that is still being served when the pass ends": Found(
        "t: no tick will look at it, recurring in 2026-12-31#23:42",
        [
            Step("put", policy=None, row=ScheduleRow(), schedule_id="t", script=("ok",)),
            tick(
                Tick(late=40.0, plans=(Plan(seed=357, life=6.0, faults=(Fault(call=4, kind=REPEAT, calls=6),)),)),
                Tick(late=130.0, plans=(Plan(), Plan(), Plan())),
            ),
            Step("plan", plans=[Plan(seed=1062, life=6.0)]),
            tick(Tick(events=2), Tick(), NONE),
        ],
    ),
    "a paused schedule and reconcile": Found(
        "reconcile found and could not repair (1, 0) at the end", [put(ScheduleRow(enabled=False))],
    ),
}  # fmt: skip

ALL = ScheduleRow(catch_up="all", overlap="allow")
BY_THE_CLOCK = ScheduleRow(expression="cron(* * * * ? *)")
EVERY_FIVE = Step("update", schedule_id="s", expression="cron(0/5 * * * ? *)", plan=Plan())


def disturbed(fault: Fault) -> Step:
    """A tick whose process is."""
    return tick(Tick(plans=(Plan(faults=(fault,)),)))


KEPT_BREAKS: Mapping[tuple[int, str], Found] = {
    (OF_SCHEDULES, what): found
    for what, found in {
        "a schedule moves on before its occurrence is written": Found("s: the run of 480 is lost", [put()]),
        "it moves on although its occurrence may not be there": Found(
            "s: the run of 60 is lost", [put(), disturbed(Fault(call=9, kind=REFUSE))]
        ),
        "it moves on from wherever it is by then": Found(
            "s: a run of 120 is made, and none is due",
            [put(), disturbed(Fault(call=9, kind=FREEZE_BEFORE, seconds=3.0)), wait(2.0), EVERY_FIVE],
        ),
        "ids of occurrences go without the revision": Found(
            "s#1#2026-12-31T23:41:00Z: said to be there, and the schedule never made it",
            [put(BY_THE_CLOCK), tick(), tick(), put(BY_THE_CLOCK), Step("rest"), backfill(3), Step("rest")],
        ),
        "a second process runs an occurrence too": Found(
            "s#1#2026-12-31T23:41:00Z: executed without a claim", [put(), tick(), backfill(3)]
        ),
        "a tick does not ask which occurrences exist": Found(
            "s: 3 runs from 120 to 240 said to be missed (outage), and 3 of 3 were made",
            [put(), tick(NONE), tick(NONE), tick(NONE), tick(NONE), tick(NONE), backfill(10), wait(0.2)],
        ),
        "S does not wait for what is still being claimed": KEPT_FAULTS[
            "a schedule that is still being served when the pass ends"
        ],
        "catchUp none makes the latest all the same": Found(
            "s: the run of 1740 is made 300 s late, and none are to be made up",
            [put(ScheduleRow("rate(7 minutes)", catch_up="none")), wait(2000.0)],
        ),
        "catchUp latest makes all": Found(
            "s: the run of 60 is made late, and 1980 is due as well",
            [put(ScheduleRow(overlap="allow")), wait(2000.0)],
        ),
        "occurrences overlap whatever overlap says": Found(
            "s: the run of 120 is made, and that of 60 has not ended",
            [put(ScheduleRow(), "long"), tick(), tick(), tick()],
        ),
        "the buffered occurrence is forgotten": Found(
            "s: the run of 120 is lost",
            [put(ScheduleRow(overlap="bufferOne"), "long"), tick(), tick(), tick(), tick()],
        ),
        "missed occurrences are not recorded": Found("s: the run of 60 is lost", [put(), wait(400.0)]),
        "a pause drops what is due": Found(
            "s: the run of 60 is lost", [put(ALL), tick(NONE), wait(15.0), change("pause")]
        ),
        "the first late tick drops what was due before a pause": KEPT_FAULTS[
            "a pause between the times of two late ticks"
        ],
        "a paused schedule goes on": Found(
            "s: a run of 120 is made, and none is due", [put(ALL), tick(NONE), wait(2.0), change("pause")]
        ),
        "an edit keeps only the first due occurrence": Found(
            "s: the run of 120 is lost", [put(ALL), tick(NONE), tick(NONE), tick(NONE), wait(2.0), EVERY_FIVE]
        ),
        "what is overdue is forgotten unreported": Found(
            "s: the runs from 120 to 120 are missed (overlap), and nobody reported them",
            [put(ScheduleRow(expected=90), "error", "ok", policy=LATER), tick(), tick(), tick(), tick()],
        ),
        "a schedule waits for its next run, whatever is awaited": Found(
            "s: the runs of 60 are awaited beyond their time",
            [
                put(ScheduleRow(expected=90)),
                Step("update", schedule_id="s", expression="rate(7 minutes)", plan=Plan()),
            ],
        ),
        "a pause forgets what is awaited": Found(
            "s: the runs of 60 are awaited beyond their time",
            [
                put(ScheduleRow(expected=400), "error", "ok", policy=LATER),
                tick(),
                change("pause"),
                tick(),
                tick(),
            ],
        ),
        "an edit puts a schedule behind a deadline": Found(
            "s: the runs of 60, 120 are awaited beyond their time",
            [
                put(ScheduleRow(expected=90), "permanent"),
                tick(),
                tick(),
                wait(15.0),
                Step("update", schedule_id="s", expression="cron(30 5 * * ? *)", plan=Plan()),
            ],
        ),
    }.items()
}

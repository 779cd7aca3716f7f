"""For each rule of the protocol, and each part of one, a sequence that shows that it is missing.

Some were found at random and cut down (``python -m tests.model.search RULE``). Those that want a certain second, or a
certain lag of the index, were made by hand: chance would take too long.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.model.installation import INDEX_LAG, Tick
from tests.model.rows import DUE, IN_SHARD, RawRow, When
from tests.model.seam import FREEZE_BEFORE, Fault, Plan
from tests.model.steps import Found, Step
from tests.model.stream import Mode


def begin(
    *,
    lag: float = 0.0,
    seed: int = 0,
    grid: tuple[int, int] = (1, 1),
    mode: Mode = Mode(),  # noqa: B008
    **more: object,
) -> Step:
    return Step("begin", mode=mode, lag=lag, seed=seed, grid=grid, **more)


def put(row: RawRow = RawRow(), *script: str, task_id: str = "a", policy: object = None) -> Step:  # noqa: B008
    return Step("put", task_id=task_id, row=row, script=script or ("ok",), policy=policy)


def due(seconds: float) -> When:
    return When(DUE, seconds)


def known(seconds: float, *shard: int) -> RawRow:
    """A row in which the scheduler finds nothing to fill in."""
    when = When(IN_SHARD, seconds, *shard) if shard else When(seconds=seconds)
    return RawRow(when=when, status="scheduled", attempt=0)


def insert(task_id: str, when: When, policy: object = None, plan: Plan = Plan(), client: int = 0) -> Step:  # noqa: B008
    return Step("insert", task_id=task_id, when=when, script=("ok",), policy=policy, plan=plan, client=client)


def change(wish: str, plan: Plan = Plan()) -> Step:  # noqa: B008
    return Step("change", task_id="a", wish=wish, plan=plan)


def tick(*ticks: Tick) -> Step:
    return Step("tick", ticks=list(ticks) or [Tick()])


def wait(*seconds: float) -> Sequence[Step]:
    return [Step("time_passes", seconds=one) for one in seconds]


def frozen(call: int, seconds: float) -> Plan:
    return Plan(faults=(Fault(call=call, kind=FREEZE_BEFORE, seconds=seconds),))


ONCE = {"maximumRetryAttempts": 0}
PATIENT = {"maximumRetryAttempts": 2, "minBackoffSeconds": 60, "maxBackoffSeconds": 120}

KEPT: Mapping[tuple[int, str], Found] = {
    (1, "a pass closes nothing"): Found("a: waits for ever", [put()]),
    (2, "only minutes of the present grid are polled"): Found(
        "a: waits for ever",
        [put(), Step("rest"), Step("reconfigure", grid=(60, 1))],
    ),
    (3, "any poll is final, however late the index"): Found(
        "a: no tick will look at it",
        [
            begin(lag=INDEX_LAG, seed=12),
            *wait(50.0),
            put(RawRow(when=When(seconds=1.0))),
            tick(Tick(events=2)),  # the second one looks where the first has just closed
            *wait(2.0),
        ],
    ),
    (3, "a contended row does not hold its bucket back"): Found(
        "m03: waits for ever",
        [
            Step("insert_many", plan=Plan(), script=("hang",), when=When()),
            tick(Tick(), Tick()),
        ],
    ),
    (4, "checkpointAt is read before the closing write"): Found(
        "a: waits for ever",
        [
            begin(lag=INDEX_LAG, seed=2),
            tick(Tick(), Tick(plans=(frozen(3, 50.0),))),  # before it closes
            *wait(15.0, 15.0, 15.0),
            put(known(-61.0)),  # just in time
        ],
    ),
    (4, "every pass sets a new mark"): Found("drained through 2026-12-31#23:39 only", [tick()]),
    (5, "a newcomer to a closed bucket is left there"): Found(
        "m03: waits for ever",
        [
            begin(mode=Mode(seed=2275, delay=200.0), lag=1.0, grid=(2, 2)),
            Step("insert_many", plan=Plan(), script=("ok",), when=When()),
            Step("rest"),
        ],
    ),
    (5, "a bucket is compared with S"): Found(
        "a: no tick will look at it",
        [
            begin(lag=INDEX_LAG, seed=1),
            tick(Tick(), Tick()),
            *wait(50.0),
            put(known(-120.0)),  # closed, and drained at the next tick
            tick(),
            *wait(2.0),
        ],
    ),
    (5, "a move has no conditions"): Found(
        "b: scheduler changed it after its end",
        [
            begin(lag=1.0, seed=387, grid=(5, 2)),
            tick(Tick(), Tick(plans=(Plan(), Plan(), Plan(seed=2054))), Tick(plans=(Plan(),))),
            insert("b", When(seconds=0.0), ONCE, Plan(seed=240, skew=-2.0)),
            Step("surroundings", lag=1.0, letters_refused=False, mode=Mode(seed=107, mixed=True), seed=0),
            insert("d", When(notation="no time"), ONCE, client=1),
            Step("rest"),
        ],
    ),
    (6, "running rows are not moved"): Found(
        "b: waits for ever",
        [put(RawRow(status="running", bad_time="noon"), task_id="b")],
    ),
    (7, "a move is not checked again"): Found(
        "a: no tick will look at it",
        [
            begin(lag=INDEX_LAG, seed=3),
            tick(Tick(), Tick()),
            *wait(50.0, 2.0, 2.0, 2.0, 2.0),
            Step("plan", plans=[frozen(7, 50.0)]),  # the scheduler, before it moves the row
            put(RawRow(when=When(seconds=-120.0), status="running", attempt=0)),  # of which the stream is silent then
            tick(Tick(), Tick(), Tick()),
            *wait(2.0),
        ],
    ),
    (8, "the stream is silent about waiting rows that change"): Found(
        "b: waits for ever",
        [
            insert("b", When()),
            *wait(10_000.0),
            Step("doctor", repair=False, plan=Plan()),
            Step("corrupt_time", task_id="b", time="2026-12-31#24:00"),
        ],
    ),
    (9, "a claim does not ask for the bucket"): Found(
        "a: claimed in 2026-12-31#23:56, before its bucket",
        [
            begin(lag=INDEX_LAG, seed=2),
            put(known(60.0)),
            *wait(50.0),
            Step("reschedule", task_id="a", when=When(seconds=900.0), plan=Plan(), client=0),
            tick(),
            *wait(2.0),
        ],
    ),
    (10, "a task with an expired lease is tried for ever"): Found(
        "a: execution 5 of run 1, at most 4",
        [put(RawRow(), "poison"), tick(*[Tick()] * 16)],
    ),
    (10, "a first attempt is left to its lease when it has ended"): Found(
        "a: taken over for no reason, the one before did not record its ok", [put(), tick(*[Tick()] * 5)]
    ),
    (11, "a lease ends before its process does"): Found(
        "a: taken over while it runs",
        [
            put(RawRow(), "hang"),
            tick(),
            *wait(50.0, 50.0, 15.0),
            Step("tick_again", tick=Tick(), ago=0),
        ],
    ),
    (12, "a record does not ask for the claim's token"): Found(
        "a: completed, but its action never ended",
        [
            begin(grid=(1, 2)),
            put(RawRow(), "long"),
            tick(),
            *wait(15.0),
            put(known(20.0, 1), "long"),  # another task, in another shard
            tick(),
            *wait(15.0),
        ],
    ),
    (13, "a cancellation does not ask for the status"): Found(
        "a: client made it cancelled from running",
        [put(RawRow(), "slow"), tick(), change("cancel", frozen(3, 10.0)), *wait(15.0)],
    ),
    (13, "a redriven task keeps its run"): Found(
        "a: run 1 again",
        [put(), tick(), *wait(2.0), change("run_now"), *wait(2.0)],
    ),
    (14, "shards that were in use once are forgotten"): Found(
        "_dynatick#settings: shardsEver went back from 3 to 1",
        [begin(grid=(1, 3)), tick(), put(known(130.0, 2)), *wait(2.0), Step("reconfigure", grid=(1, 1))],
    ),
    (15, "reconcile passes by what was drained without"): Found(
        "a: not even reconcile has found it",
        [
            tick(Tick(), Tick(), Tick(), Tick()),
            *wait(50.0),
            Step("surroundings", mode=Mode(held=True), lag=0.0, seed=0, letters_refused=False),
            put(known(-1800.0)),
            Step("lose_record", task_id="a"),
        ],
    ),
    (16, "a cursor is written whatever it is by then"): Found(
        "_dynatick#cursor#0: closedThrough went back",
        [tick(Tick(), Tick(plans=(frozen(3, 100.0),)), Tick()), *wait(50.0)],
    ),
    (17, "a wake-up claims a task that runs"): Found(
        "a: woken, and it is running",
        [
            begin(precise=True),
            tick(),
            put(RawRow(when=due(20.0)), "slow"),
            *wait(15.0, 15.0),
            Step("wake_up", nth=0),
            *wait(2.0),
        ],
    ),
    (18, "a wake-up claims a task whose instant is another by now"): Found(
        "a: woken before 2026-12-31 23:41:52+00:00, when it is due",
        [
            begin(precise=True),
            tick(),
            insert("a", due(20.0)),
            *wait(2.0),
            Step("reschedule", task_id="a", when=due(50.0), plan=Plan(), client=0),
            *wait(2.0, 20.0),
        ],
    ),
    (18, "the due time counts while a retry waits"): Found(
        "a: woken before 2026-12-31 23:41:41.675000+00:00, when it is due",
        [
            begin(precise=True),
            tick(),
            put(RawRow(when=due(5.0)), "error", "ok", policy=PATIENT),
            *wait(15.0),
            Step("wake_up", nth=1),
            *wait(2.0),
        ],
    ),
    (18, "a retry keeps the instant that it had"): Found(
        "a: a retry at 2026-12-31 23:40:05+00:00 or in 2026-12-31#23:42, too early",
        [put(RawRow(when=due(5.0)), "error", "ok"), tick(), *wait(2.0)],
    ),
    (18, "a wake-up waits for its first task only"): Found(
        "b: woken before 2026-12-31 23:42:12.900000+00:00, when it is due",
        [
            begin(precise=True),
            *wait(50.0),
            insert("a", due(82.1)),
            insert("b", due(82.9)),  # planned with the other
            tick(),
            *wait(15.0, 15.0, 15.0, 15.0, 15.0),
        ],
    ),
    (18, "a tick on time doesn't wait for its minute"): Found(
        "a: claimed in 2026-12-31#23:42, before its bucket",
        [
            begin(precise=True),
            put(RawRow(when=When(seconds=115.0))),
            tick(),
            *wait(54.5),
            Step("plan", plans=[Plan(skew=2.0), Plan(skew=2.0)]),
            Step("wake_up", nth=0),
            *wait(2.0),
        ],
    ),
    (19, "each pass plans what others have planned"): Found(
        "2026-12-31#23:43: planned twice",
        [begin(precise=True), put(RawRow(when=due(170.0))), tick(Tick(), Tick())],
    ),
}

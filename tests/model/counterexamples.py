"""Sequences that violate the oracle: without a rule of the protocol, or as they did before a fault was repaired.

Some were found at random and shrunk (``python -m tests.model.search``). Those that need a certain second, or a certain
lag of the index, were made by hand: a random search would take too long.
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.model.faulty_store import (
    FREEZE_BEFORE,
    KILL_AFTER,
    KILL_BEFORE,
    KILL_MEANWHILE,
    LOSE,
    QUIET,
    REFUSE,
    REPEAT,
    Fault,
    Plan,
)
from tests.model.installation import INDEX_LAG, Tick
from tests.model.rows import DELAY, DUE, DUE_EPOCH, IN_SHARD, RawRow, When
from tests.model.schedule_machine import ScheduleRow
from tests.model.steps import Counterexample, Step
from tests.model.stream import StreamMode

ONCE = {"maximumRetryAttempts": 0}
AT_ONCE = {"maximumRetryAttempts": 2, "minBackoffSeconds": 0, "maxBackoffSeconds": 0}
MINUTES_LATER = {"maximumRetryAttempts": 2, "minBackoffSeconds": 60, "maxBackoffSeconds": 120}
HOURS_LATER = {"minBackoffSeconds": 400, "maxBackoffSeconds": 400}
MODE, PLAN, MISSED = StreamMode(), Plan(), Tick(events=0)
SHORT = Plan(timeout=20.0)
SOON = When(seconds=1.0)
ALL = ScheduleRow(catch_up="all", overlap="allow")
BY_THE_CLOCK = ScheduleRow(expression="cron(* * * * ? *)")
EVERY_FIVE, EVERY_SEVEN, DAILY = "cron(0/5 * * * ? *)", "rate(7 minutes)", "cron(30 5 * * ? *)"


def begin(
    *, lag: float = 0.0, seed: int = 0, grid: tuple[int, int] = (1, 1), mode: StreamMode = MODE, **more: object
) -> Step:
    return Step("begin", mode=mode, lag=lag, seed=seed, grid=grid, **more)


def conditions(*, lag: float = 0.0, seed: int = 0, mode: StreamMode = MODE, dead_letters_refused: bool = False) -> Step:
    return Step("conditions", mode=mode, lag=lag, seed=seed, dead_letters_refused=dead_letters_refused)


def put(row: RawRow | When | ScheduleRow = When(), *script: str, task_id: str = "", policy: object = None) -> Step:  # noqa: B008
    row = RawRow(row) if isinstance(row, When) else row
    task_id = task_id or ("s" if isinstance(row, ScheduleRow) else "a")
    return Step("put", task_id=task_id, row=row, script=script or ("ok",), policy=policy)


def put_schedule(*script: str, policy: object = None, **fields: object) -> Step:
    return put(ScheduleRow(**fields), *script, policy=policy)  # type: ignore[arg-type]


def put_rated(*script: str, action: str = "seldom") -> Step:
    """Many tasks of an action with a rate limit."""
    return Step("put_many", when=SOON, script=script or ("ok",), key=None, action=action, many=True)


def put_keyed(row: RawRow, *script: str, key: str = "one:a", task_id: str = "k00", policy: object = None) -> Step:
    return Step("put", task_id=task_id, row=row, script=script or ("ok",), policy=policy, key=key)


def due(seconds: float) -> When:
    return When(DUE, seconds)


def known(seconds: float, *shard: int) -> RawRow:
    """A row in which the scheduler finds nothing to fill in."""
    return RawRow(When(IN_SHARD, seconds, *shard) if shard else When(seconds=seconds), status="scheduled", attempt=0)


def insert(task_id: str, when: When, policy: object = None, plan: Plan = PLAN, client: int = 0) -> Step:
    return Step("insert", task_id=task_id, when=when, script=("ok",), policy=policy, plan=plan, client=client)


def insert_many(when: When, *script: str, backlog: bool = False) -> Step:
    return Step("insert_many", when=when, script=script, plan=PLAN, backlog=backlog)


def change(operation: str, plan: Plan = PLAN, task_id: str = "a") -> Step:
    return Step("change", task_id=task_id, operation=operation, plan=plan)


def change_schedule(operation: str) -> Step:
    return change(operation, task_id="s")


def replace_by(task_id: str, when: When, *script: str, client: int = 0) -> Step:
    return Step("replace", task_id=task_id, when=when, script=script or ("ok",), policy=None, plan=PLAN, client=client)


def postpone(task_id: str, when: When, until: float | None = None, client: int = 0) -> Step:
    return Step("postpone", task_id=task_id, when=when, until=until, plan=PLAN, client=client)


def reschedule(when: When, task_id: str = "a") -> Step:
    return Step("reschedule", task_id=task_id, when=when, plan=PLAN, client=0)


def settle(operation: str, task_id: str = "a", *, latest: bool = True, client: int = 0) -> Step:
    return Step("settle", task_id=task_id, operation=operation, latest=latest, plan=PLAN, client=client)


def update(expression: str, task_id: str = "s") -> Step:
    return Step("update", task_id=task_id, expression=expression, plan=PLAN)


def backfill(minutes: int, task_id: str = "s") -> Step:
    return Step("backfill", task_id=task_id, minutes=minutes, plan=PLAN)


def reconfigure(tick_minutes: int, shards: int) -> Step:
    return Step("reconfigure", grid=(tick_minutes, shards))


def tick(*ticks: Tick) -> Step:
    return Step("tick", ticks=list(ticks) or [Tick()])


def by(*plans: Plan, **more: float) -> Tick:
    """A tick whose processes have these plans."""
    return Tick(plans=plans, **more)  # type: ignore[arg-type]


def wait(seconds: float) -> Step:
    return Step("time_passes", seconds=seconds)


def wake_up(nth: int) -> Step:
    return Step("wake_up", nth=nth)


def faulty(call: int, kind: str, seconds: float = 10.0, calls: int = 1, **more: float) -> Plan:
    return Plan(faults=(Fault(call, kind, seconds, calls),), **more)  # type: ignore[arg-type]


def frozen(call: int, seconds: float, **more: float) -> Plan:
    return faulty(call, FREEZE_BEFORE, seconds, **more)


UNTIL_IDLE = Step("wait_until_idle")

REGRESSIONS: Mapping[str, Counterexample] = {
    "a row with an attempt by hand is rescheduled before the scheduler saw it": Counterexample(
        "b: failed at attempt 1, and its action None: action: None is not accepted",
        [put(RawRow(attempt=0, action=False), task_id="b"), reschedule(When(), "b")],
    ),
    "a late record strips the row that was put in its place": Counterexample(
        "a: completed with outcome None, expiresAt None",
        [put(RawRow(status="running", stray=True)), put(RawRow(status="completed", stray=True))],
    ),
    "idle shards whose polls take longer than their invocation, after an outage": Counterexample(
        "_dynatick#cursor#1: drained through 2026-12-31#23:39 only",
        [begin(grid=(2, 3), poll=2.0), tick(), wait(10_000.0)],
    ),
    # The oracle took it for wrong: its own time is what was written by hand, which is earlier.
    "a task is postponed whose bucket was written by hand": Counterexample(
        "b: postponed to an earlier time, from 300.0 to 120.0",
        [
            postpone("b", When(seconds=300.0), until=1200.0),
            UNTIL_IDLE,
            postpone("b", When(), until=1200.0),
            Step("corrupt", nonsense=("taskDateTime", "2026-12-31T12:00:00"), task_id="b"),
        ],
    ),
}
"""With tasks: each shows a fault of the product, which has been repaired since."""

KEY_REGRESSIONS: Mapping[str, Counterexample] = {
    "a task is placed in the shard of its key as its pass ends": Counterexample(
        "a process ends 120 s before its time, with 1 in flight",
        [
            begin(lag=400.0, seed=9998, grid=(5, 2), precise=True, workers=3),
            put_keyed(RawRow(), "hang", key="two:a", policy=MINUTES_LATER),
            tick(),
            reconfigure(1, 1),
        ],
    ),
    # The oracle took it for wrong: the index shows rows that have no key, and others with the same ids have one.
    "a claimed row turns out to have a limit key, and its pass no turn for it": Counterexample(
        "k02: released with 120 s left, for no reason",
        [
            begin(lag=100.0, seed=2725, grid=(60, 3), mode=StreamMode(seed=8457, delay=200.0, batch=3, held=True)),
            tick(),
            tick(),
            Step("doctor", plan=PLAN, repair=True),
            Step("put_many", key=None, many=False, script=("permanent",), when=When(DUE_EPOCH)),
            tick(),
            Step("doctor", plan=PLAN, repair=True),
            Step("put_many", key="two:a", many=True, script=("error",), when=When(seconds=-5.0)),
        ],
    ),
    # The replayer did: the pass acquires the limits lease after such a claim, before it begins the task.
    "a claimed row turns out to have a limit key, and its pass acquires the limits lease": Counterexample(
        "the replay of its trace: rule 23: k02: claimed with two:a, without the limits lease of its shard",
        [
            begin(lag=100.0, seed=2725, grid=(60, 3), mode=StreamMode(seed=8457, held=True)),
            tick(),
            tick(by(PLAN, PLAN, Plan(faults=(Fault(4, KILL_BEFORE, 10.0, 6),), skew=-2.0))),
            Step("doctor", plan=PLAN, repair=True),
            Step(
                "put_many", key=None, many=False, script=("permanent", "poison", "commit"),
                when=When(DUE_EPOCH, 300.0),
            ),
            tick(by(PLAN, PLAN, Plan(unlogged=True), events=2)),
            Step(
                "put_many", key="two:a", many=True, script=("error", "long", "hang", "permanent"),
                when=When(seconds=-5.0, shard=2),
            ),
            Step("edit_time", task_id="a", when=When(DELAY, 130.0, shard=5)),
            Step("change_many", dry=True, operation="redrive", plan=PLAN),
            settle("complete", "d", client=1),
            Step("change_many", dry=True, operation="redrive", plan=PLAN),
        ],
    ),
}  # fmt: skip
"""With limit keys, likewise."""

BATCH_REGRESSIONS: Mapping[str, Counterexample] = {
    # The oracle took it for wrong.
    "a pass cancels what has not begun of a batch whose canceller was killed": Counterexample(
        "420.372: a/000000000: excluded by processor while its pack is running",
        [
            Step(
                "load", batch_id="a", client=0, over=20, plan=PLAN, policy=ONCE, scripts=(("ok",),), seconds=400.0
            ),
            Step("cancel_batch", batch_id="a", plan=Plan(seed=411, faults=(Fault(call=6, kind=KILL_MEANWHILE),))),
        ],
    ),
    "a batch is cancelled whose loader was killed before its pack": Counterexample(
        "a/000000000-000000000 is not there",
        [
            Step(
                "load", batch_id="a", client=1, over=0, plan=Plan(faults=(Fault(call=3, kind=KILL_AFTER),)),
                policy=ONCE, scripts=(("ok",),), seconds=0.0,
            ),
            Step("cancel_batch", batch_id="a", plan=QUIET),
        ],
    ),
    # The oracle took it for wrong, too.
    "a member is cancelled whose process died before it recorded it": Counterexample(
        "a/000000000: cancelled, and executed",
        [
            Step(
                "load", batch_id="a", client=0, over=20, plan=PLAN, policy=ONCE, scripts=(("ok",), ("poison",)),
                seconds=0.0, key="one:a",
            ),
            tick(Tick(), Tick()),
            Step("cancel_batch", batch_id="a", plan=QUIET),
        ],
    ),
    # The oracle took it for wrong: it had ended before, and what follows was inserted then.
    "a batch is redriven, and cancelled": Counterexample(
        "b/c: cancelled, followed 1 times",
        [
            begin(grid=(60, 1), precise=True),
            Step(
                "load", batch_id="b/c", client=0, over=200, plan=PLAN, policy=None, scripts=(("permanent",),),
                seconds=0.0,
            ),
            reconfigure(5, 1),
            wait(400.0),
            Step("redrive_batch", batch_id="b/c", plan=PLAN),
            Step("cancel_batch", batch_id="b/c", plan=Plan(seed=9510)),
        ],
    ),
}  # fmt: skip

SCHEDULE_REGRESSIONS: Mapping[str, Counterexample] = {
    # The replayer took it for wrong: of its own occurrences a pass knows without the index that they have ended.
    "S passes a bucket right after an occurrence of the same pass in it": Counterexample(
        "rule 3: S passes 2026-12-31#23:42#1, of which no whole poll began L after it was closed",
        [
            begin(seed=26, grid=(2, 3), workers=3, precise=True, lag=1.0),
            Step("reconcile", plan=PLAN),
            reconfigure(2, 2),
            put_schedule(policy=ONCE, catch_up="all"),
            conditions(lag=400.0, seed=991),
            tick(),
        ],
    ),
    "an edit while several runs are due": Counterexample(
        "s: the occurrence of 120 is lost: processor has moved it on to 600.0",
        [put_schedule(), wait(400.0), update(EVERY_FIVE)],
    ),
    "a pause and a resumption while several runs are due": Counterexample(
        "s: the occurrence of 120 is lost: processor has moved it on to 420.0",
        [put_schedule(), wait(400.0), change_schedule("pause"), wait(2.0), change_schedule("resume")],
    ),
    "a pause between the times of two late ticks": Counterexample(
        "s: the occurrence of 180 is lost: processor has moved it on to None",
        [
            begin(grid=(2, 3)),
            put_schedule(),
            tick(Tick(late=130.0), Tick(late=130.0)),
            Step("edit", task_id="s", edit="pause"),
        ],
    ),
    "a client makes up what a tick is about to decide on": Counterexample(
        "s: 2 occurrences from 360 to 420 recorded as missed (outage), and 1 of 2 were made",
        [tick(), put_schedule(), tick(*[MISSED] * 4), backfill(3), wait(0.2)],
    ),
    "the stream moves a schedule of which a pass makes more": Counterexample(
        "s: the occurrences of 16260, 16320, 16380, 16440, 16500 were never made",
        [
            begin(poll=2.0, grid=(60, 1), lag=100.0),
            put(ScheduleRow(), "poison", task_id="t", policy={"maximumRetryAttempts": 1, "minBackoffSeconds": 0}),
            put(ScheduleRow(overlap="allow"), "long", policy=MINUTES_LATER),
        ],
    ),
    "an insert without an answer, and no other attempt": Counterexample(
        "s#1#2026-12-31T23:50:30Z: failed and never executed: its process died, or did not finish in time",
        [
            begin(lag=100.0, grid=(5, 1)),
            put_schedule(policy=ONCE),
            tick(Tick(), by(faulty(10, LOSE), frozen(14, 100.0, timeout=20.0), events=2)),
        ],
    ),
    "a claim that is under way when the time is up": Counterexample(
        "s#1#2026-12-31T23:25:00Z: failed and never executed: its process died, or did not finish in time",
        [
            backfill(40, "t"),
            put(ScheduleRow("cron(* * * * ? *)", enabled=False), task_id="t", policy=ONCE),
            reconfigure(1, 3),
            UNTIL_IDLE,
            Step("reconcile", plan=PLAN),
            reconfigure(5, 1),
            update(EVERY_SEVEN, "t"),
            Step(
                "plan", plans=[PLAN, Plan(5870, (Fault(15, REPEAT, calls=6), Fault(10, REPEAT, calls=6)), timeout=20.0)]
            ),
            tick(),
        ],
    ),
    "a schedule that is still being served when the pass ends": Counterexample(
        "t: no tick will poll it, recurring in 2026-12-31#23:42",
        [
            put(ScheduleRow(), task_id="t"),
            tick(by(faulty(4, REPEAT, calls=6, seed=357, timeout=6.0), late=40.0), by(PLAN, PLAN, PLAN, late=130.0)),
            Step("plan", plans=[Plan(1062, timeout=6.0)]),
            tick(Tick(events=2), Tick(), MISSED),
        ],
    ),
    "a paused schedule and reconcile": Counterexample(
        "reconcile found and could not repair (1, 0) at the end", [put_schedule(enabled=False)]
    ),
}

HANDED_OVER = [
    begin(),
    tick(),
    wait(2.0),
    Step("insert", task_id="a", when=SOON, script=("later",), policy=AT_ONCE, plan=PLAN, client=0),
    tick(),
    wait(10.0),
]

TOO_OFTEN = "seldom:any: k18 began 4.015 s before its rate allows it"
SELDOM = [begin(grid=(1, 2)), tick(), put_rated(), tick(), tick()]

BY_MUTATION: Mapping[str, Counterexample] = {
    "a forged token is taken": Counterexample(
        "a: completed by a token that is not its own",
        [*HANDED_OVER, *[tick()] * 5, wait(10.0), settle("complete", latest=False), wait(1.0)],
    ),
    "what has failed by its token is completed": Counterexample(
        "a: completed by its token after it has failed",
        [*HANDED_OVER, settle("fail"), wait(1.0), settle("complete"), wait(1.0)],
    ),
    "a pass closes nothing": Counterexample("a: waits for ever", [put()]),
    "only minutes of the present grid are polled": Counterexample(
        "a: waits for ever", [put(), UNTIL_IDLE, reconfigure(60, 1)]
    ),
    "any poll is final, however late the index": Counterexample(
        "a: no tick will poll it",
        # The second of the tick's events looks where the first has just closed.
        [begin(lag=INDEX_LAG, seed=12), wait(50.0), put(SOON), tick(Tick(events=2)), wait(2.0)],
    ),
    "a contended row does not hold its bucket back": Counterexample(
        "m03: waits for ever", [insert_many(When(), "hang"), tick(Tick(), Tick())]
    ),
    "checkpointAt is read before the closing write": Counterexample(
        "a: waits for ever",
        # It stands still before it closes; the row is put just in time.
        [begin(lag=INDEX_LAG, seed=2), tick(Tick(), by(frozen(3, 50.0))), wait(45.0), put(known(-61.0))],
    ),
    "every pass sets a new checkpoint": Counterexample("drained through 2026-12-31#23:39 only", [tick()]),
    "a newcomer to a closed bucket is left there": Counterexample(
        "m03: waits for ever",
        [begin(mode=StreamMode(seed=2275, delay=200.0), lag=1.0, grid=(2, 2)), insert_many(When(), "ok"), UNTIL_IDLE],
    ),
    "a bucket is compared with the drained watermark": Counterexample(
        "a: no tick will poll it",
        # Put into a closed bucket, which is drained at the next tick.
        [begin(lag=INDEX_LAG, seed=1), tick(Tick(), Tick()), wait(50.0), put(known(-120.0)), tick(), wait(2.0)],
    ),
    "a move has no conditions": Counterexample(
        "b: scheduler changed it after its end",
        [
            begin(lag=1.0, seed=387, grid=(5, 2)),
            tick(Tick(), by(PLAN, PLAN, Plan(2054)), by(PLAN)),
            insert("b", When(seconds=0.0), ONCE, Plan(240, skew=-2.0)),
            conditions(lag=1.0, mode=StreamMode(seed=107, mixed=True)),
            insert("d", When("no time"), ONCE, client=1),
            UNTIL_IDLE,
        ],
    ),
    "running rows are not moved": Counterexample(
        "b: waits for ever", [put(RawRow(status="running", bad_time="noon"), task_id="b")]
    ),
    "a move is not checked again": Counterexample(
        "a: no tick will poll it",
        [
            begin(lag=INDEX_LAG, seed=3),
            tick(Tick(), Tick()),
            wait(58.0),
            Step("plan", plans=[frozen(7, 50.0)]),  # the scheduler, before it moves the row
            put(RawRow(When(seconds=-120.0), status="running", attempt=0)),  # of which the stream is silent then
            tick(Tick(), Tick(), Tick()),
            wait(2.0),
        ],
    ),
    "a pass does not check what it has moved": Counterexample(
        "a: no tick will poll it",
        # It has released the shard lease when it writes the retry, after the tick of the retry's bucket. The index
        # shows that after the final poll, and the stream shows nothing.
        [
            begin(mode=StreamMode(held=True)),
            tick(),
            put(known(1.0), "error", "ok", policy=AT_ONCE),
            conditions(lag=INDEX_LAG, seed=2, mode=StreamMode(held=True)),
            tick(by(frozen(7, 100.0)), *[Tick()] * 4),
            wait(2.0),
        ],
    ),
    "the stream is silent about waiting rows that change": Counterexample(
        "b: waits for ever",
        [
            insert("b", When()),
            wait(10_000.0),
            Step("doctor", repair=False, plan=PLAN),
            Step("corrupt", task_id="b", nonsense=("taskDateTime", "2026-12-31#24:00")),
        ],
    ),
    "a claim does not ask for the bucket": Counterexample(
        "a: claimed in 2026-12-31#23:56, before its bucket",
        [
            begin(lag=INDEX_LAG, seed=2),
            put(known(60.0)),
            wait(50.0),
            reschedule(When(seconds=900.0)),
            tick(),
            wait(2.0),
        ],
    ),
    "a task with an expired lease is tried for ever": Counterexample(
        "a: execution 5 of run 1, at most 4", [put(When(), "poison"), tick(*[Tick()] * 16)]
    ),
    "a first attempt is left to its lease when it has ended": Counterexample(
        "a: reclaimed for no reason, the one before did not record its ok", [put(), tick(*[Tick()] * 5)]
    ),
    "a lease ends before its process does": Counterexample(
        "a: reclaimed while it runs",
        [put(When(), "hang"), tick(), wait(115.0), Step("tick_again", tick=Tick(), ago=0)],
    ),
    "a process with a task in flight is kept": Counterexample(
        "a: continues after it was reclaimed",
        [put(due(30.0), "hang", "hang", "ok"), tick(by(SHORT), by(SHORT, SHORT), Tick(), Tick())],
    ),
    "a record does not ask for the claim's token": Counterexample(
        "a: completed, but its action never ended",
        # Another task, in another shard, keeps the process.
        [begin(grid=(1, 2)), put(When(), "long"), tick(), wait(15.0), put(known(20.0, 1), "long"), tick(), wait(15.0)],
    ),
    "a cancellation does not ask for the status": Counterexample(
        "a: client made it cancelled from running",
        [put(When(), "slow"), tick(), change("cancel", frozen(3, 10.0)), wait(15.0)],
    ),
    "a redriven task keeps its run": Counterexample(
        "a: run 1 again", [put(), tick(), wait(2.0), change("run_now"), wait(2.0)]
    ),
    "a new shard has no cursor until a tick needs it": Counterexample(
        "c: no tick will poll it",
        # The first process dies once it has published the shards, and the next tick comes after the task's.
        [
            begin(lag=1.0, seed=898, mode=StreamMode(held=True)),
            tick(by(faulty(3, KILL_MEANWHILE)), MISSED),
            insert("c", When()),
            wait(400.0),
            tick(),
            wait(400.0),
        ],
    ),
    "shards that were in use once are forgotten": Counterexample(
        "_dynatick#settings: shardsEver went back from 3 to 1",
        [begin(grid=(1, 3)), tick(), put(known(130.0, 2)), wait(2.0), reconfigure(1, 1)],
    ),
    "reconcile passes by what was drained without": Counterexample(
        "a: not even reconcile has found it",
        [
            tick(*[Tick()] * 4),
            wait(50.0),
            conditions(mode=StreamMode(held=True)),
            put(known(-1800.0)),
            Step("lose_record", task_id="a"),
        ],
    ),
    "a cursor is written whatever it is by then": Counterexample(
        "_dynatick#cursor#0: closedThrough went back", [tick(Tick(), by(frozen(3, 100.0)), Tick()), wait(50.0)]
    ),
    "a wake-up claims a task that runs": Counterexample(
        "a: woken, and it is running",
        [begin(precise=True), tick(), put(due(20.0), "slow"), wait(30.0), wake_up(0), wait(2.0)],
    ),
    "a wake-up claims a task whose instant is another by now": Counterexample(
        "a: woken before 2026-12-31 23:41:52+00:00, when it is due",
        [begin(precise=True), tick(), insert("a", due(20.0)), wait(2.0), reschedule(due(50.0)), wait(22.0)],
    ),
    "the due time counts while a retry waits": Counterexample(
        "a: woken before 2026-12-31 23:41:41.675000+00:00, when it is due",
        [
            begin(precise=True),
            tick(),
            put(due(5.0), "error", "ok", policy=MINUTES_LATER),
            wait(15.0),
            wake_up(1),
            wait(2.0),
        ],
    ),
    "a retry keeps the instant that it had": Counterexample(
        "a: a retry at 2026-12-31 23:40:05+00:00 or in 2026-12-31#23:42, too early",
        [put(due(5.0), "error", "ok"), tick(), wait(2.0)],
    ),
    "a wake-up waits for its first task only": Counterexample(
        "b: woken before 2026-12-31 23:42:12.900000+00:00, when it is due",
        # Both are planned together.
        [begin(precise=True), wait(50.0), insert("a", due(82.1)), insert("b", due(82.9)), tick(), wait(75.0)],
    ),
    "a tick on time doesn't wait for its minute": Counterexample(
        "a: claimed in 2026-12-31#23:42, before its bucket",
        [
            begin(precise=True),
            put(When(seconds=115.0)),
            tick(),
            wait(54.5),
            Step("plan", plans=[Plan(skew=2.0), Plan(skew=2.0)]),
            wake_up(0),
            wait(2.0),
        ],
    ),
    "each pass plans what others have planned": Counterexample(
        "2026-12-31#23:43: planned twice", [begin(precise=True), put(due(170.0)), tick(Tick(), Tick())]
    ),
    # -- with schedules -----------------------------------------------------------------------------------------------
    "a schedule moves on before its occurrence is written": Counterexample(
        "s: the occurrence of 480 is lost", [put_schedule()]
    ),
    "it moves on although its occurrence may not be there": Counterexample(
        "s: the occurrence of 60 is lost", [put_schedule(), tick(by(faulty(9, REFUSE)))]
    ),
    "it moves on from wherever it is by then": Counterexample(
        "s: an occurrence of 120 is made, and none is due",
        [put_schedule(), tick(by(frozen(9, 3.0))), wait(2.0), update(EVERY_FIVE)],
    ),
    "ids of occurrences go without the revision": Counterexample(
        "s#1#2026-12-31T23:41:00Z: reported to exist, and the schedule never made it",
        [put(BY_THE_CLOCK), tick(), tick(), put(BY_THE_CLOCK), UNTIL_IDLE, backfill(3), UNTIL_IDLE],
    ),
    "a second process runs an occurrence too": Counterexample(
        "s#1#2026-12-31T23:41:00Z: executed without a claim", [put_schedule(), tick(), backfill(3)]
    ),
    "a tick does not ask which occurrences exist": Counterexample(
        "s: 3 occurrences from 120 to 240 recorded as missed (outage), and 3 of 3 were made",
        [put_schedule(), tick(*[MISSED] * 5), backfill(10), wait(0.2)],
    ),
    "catchUp none makes the latest all the same": Counterexample(
        "s: the occurrence of 1740 is made 300 s late, and none are to be made up",
        [put_schedule(expression=EVERY_SEVEN, catch_up="none"), wait(2000.0)],
    ),
    "catchUp latest makes all": Counterexample(
        "s: the occurrence of 60 is made late, and 1980 is due as well", [put_schedule(overlap="allow"), wait(2000.0)]
    ),
    "occurrences overlap whatever overlap says": Counterexample(
        "s: the occurrence of 120 is made, and that of 60 has not ended", [put_schedule("long"), tick(*[Tick()] * 3)]
    ),
    "the buffered occurrence is forgotten": Counterexample(
        "s: the occurrence of 120 is lost", [put_schedule("long", overlap="bufferOne"), tick(*[Tick()] * 4)]
    ),
    "missed occurrences are not recorded": Counterexample(
        "s: the occurrence of 60 is lost", [put_schedule(), wait(400.0)]
    ),
    "a pause drops what is due": Counterexample(
        "s: the occurrence of 60 is lost", [put(ALL), tick(MISSED), wait(15.0), change_schedule("pause")]
    ),
    "the first late tick drops what was due before a pause": SCHEDULE_REGRESSIONS[
        "a pause between the times of two late ticks"
    ],
    "a paused schedule goes on": Counterexample(
        "s: an occurrence of 120 is made, and none is due",
        [put(ALL), tick(MISSED), wait(2.0), change_schedule("pause")],
    ),
    "an edit keeps only the first due occurrence": Counterexample(
        "s: the occurrence of 120 is lost", [put(ALL), tick(*[MISSED] * 3), wait(2.0), update(EVERY_FIVE)]
    ),
    "what is overdue is forgotten unreported": Counterexample(
        "s: the occurrences from 120 to 120 are missed (overlap), and were not reported",
        [put_schedule("error", "ok", policy=HOURS_LATER, expected_within=90), tick(*[Tick()] * 4)],
    ),
    "a schedule waits for its next occurrence, whatever is awaited": Counterexample(
        "s: the occurrences of 60 are awaited beyond their time",
        [put_schedule(expected_within=90), update(EVERY_SEVEN)],
    ),
    "a pause forgets what is awaited": Counterexample(
        "s: the occurrences of 60 are awaited beyond their time",
        [
            put_schedule("error", "ok", policy=HOURS_LATER, expected_within=400),
            tick(),
            change_schedule("pause"),
            tick(Tick(), Tick()),
        ],
    ),
    "a process reserves starts that another has": Counterexample(TOO_OFTEN, SELDOM),
    "a process reserves starts as if it were alone": Counterexample(TOO_OFTEN, SELDOM),
    "a task does not wait for its start": Counterexample(TOO_OFTEN, SELDOM),
    "what tasks still wait for is given back": Counterexample(TOO_OFTEN, SELDOM),
    "what other processes have reserved meanwhile is given back": Counterexample(TOO_OFTEN, SELDOM),
    "a task begins by a start that has passed long ago": Counterexample(
        "the replay of its trace: line 155: rate: k07: begun at no start that its process has reserved",
        [*SELDOM[:2], put_rated("slow", action="often"), *SELDOM[3:]],
    ),
    "of two processes that reserve at once, both have the same starts": Counterexample(
        "the replay of its trace: line 124: rate: _dynatick#rate#seldom: written without the condition", SELDOM
    ),
    "an edit puts a schedule behind a deadline": Counterexample(
        "s: the occurrences of 60, 120 are awaited beyond their time",
        [put_schedule("permanent", expected_within=90), tick(Tick(), Tick()), wait(15.0), update(DAILY)],
    ),
}
"""For each mutation of ``tests/mutations.py``, by what happens instead, a sequence that shows it."""

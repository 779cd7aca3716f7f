"""Limits by key (`make bench OF=keys`): what the flood of one key does to others, and what limits cost that hold back
nothing.

The ratios are of runs taken in turns in one process, on the counting endpoint. Exit code 1: one of them is missed.
"""

from __future__ import annotations

import gc
import itertools
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import FrameType

from dynatick.domain.task import Task
from dynatick.engine.ports import ActionContext
from dynatick_stack.bench.installation import Clock, Installation
from dynatick_stack.counting.counts import Engine, counting

FLOOD = 100_000  # tasks of one key
OTHERS, OTHER_KEYS = 1_000, 100
FLOOD_SECONDS = 0.02  # of each of its tasks, which run one after another
TICK_SECONDS = 60.0
AHEAD = 30  # minutes: by then the insert is over

TASKS, ROUNDS = 4_000, 15
CROWD, CROWD_ROUNDS = 16_000, 15
LIMITS = ("customer=4", "tenant=1", "other=5")

MAX_CALLS_WITHOUT_KEYS = 1.01
MIN_RATE_WITH_KEYS = 0.9
UNITS_OF_TASK = 5.0
MAX_UNITS_OF_PASS = 2.0


@dataclass
class Watched:
    """An action that notes when the tasks of others begin, and takes a while for the flood's."""

    clock: Clock

    def __post_init__(self) -> None:
        self.begun: list[datetime] = []
        self.of_flood = 0

    def run(self, task: Task, context: ActionContext) -> object:
        if task.limit_key == "tenant:flood":
            self.of_flood += 1
            time.sleep(FLOOD_SECONDS)
        else:
            self.begun.append(self.clock())
        return None


@dataclass(frozen=True, slots=True)
class Beside:
    """The first tick of a flood and of what is due beside it."""

    begun: int  # of the others
    last_start_seconds: float  # of them, after the tick
    of_flood: int  # that have run


def beside_a_flood(engine: Engine, flood: int = FLOOD) -> Beside:
    watched = Watched(Clock())
    installation = Installation.fresh(engine.url, key_limits=LIMITS, action=watched, clock=watched.clock)
    bucket = installation.bucket(ahead=AHEAD)
    installation.fill(flood, bucket, prefix="a-", limit_key=lambda n: "tenant:flood")
    installation.fill(OTHERS, bucket, prefix="b-", limit_key=lambda n: f"other:{n % OTHER_KEYS}")
    installation.clock.to(bucket.instant + timedelta(milliseconds=100))
    installation.first_passes(seconds=TICK_SECONDS)
    last = max((at for at in watched.begun), default=bucket.instant)
    installation.delete()
    return Beside(len(watched.begun), (last - bucket.instant).total_seconds(), watched.of_flood)


@dataclass(frozen=True, slots=True)
class Run:
    """One tick of some tasks, which do nothing. Times in seconds."""

    cpu: float
    wall: float
    calls: int  # of functions, if they are counted: then it is slow
    task_units: float  # write units for a task, from its insert to its outcome
    pass_units: float  # write units of the pass beside those


@contextmanager
def counting_calls() -> Iterator[Iterator[int]]:
    """Counts the calls of functions in this thread, and in those that begin meanwhile. They are nearly the same in each
    run, as times are not. The number is the iterator's next."""
    calls = itertools.count()

    def note(frame: FrameType, event: str, of: object) -> None:
        if event in ("call", "c_call"):
            next(calls)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def run(
    engine: Engine,
    tasks: int = TASKS,
    *,
    limits: tuple[str, ...] = (),
    tasks_of_key: int = 0,
    counts_calls: bool = False,
) -> Run:
    """``tasks_of_key``: how many have the same key; 0: none has one. Raises RuntimeError if a task did not complete."""
    installation = Installation.fresh(engine.url, key_limits=limits)
    bucket, empty = installation.bucket(ahead=AHEAD), engine.counts()
    limit_key = (lambda n: f"customer:{n // tasks_of_key}") if tasks_of_key else None
    installation.fill(tasks, bucket, limit_key=limit_key)
    installation.clock.to(bucket.instant + timedelta(milliseconds=100))
    gc.collect()
    inserted = engine.counts()
    with counting_calls() if counts_calls else nullcontext(itertools.count()) as calls:
        cpu, wall = time.process_time(), time.perf_counter()
        done = sum(report.completed for report in installation.tick())
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    spent = (engine.counts() - inserted).by_operation
    of_tasks = spent["BatchExecuteStatement"].write_units
    of_pass = sum(count.write_units for count in spent.values()) - of_tasks
    # Of one more, by which ``fill`` learns what a row has.
    of_insert = (inserted - empty).by_operation["BatchExecuteStatement"].write_units
    installation.delete()
    if done != tasks:
        raise RuntimeError(f"{done} of {tasks} tasks completed")
    return Run(cpu, wall, next(calls), of_insert / (tasks + 1) + of_tasks / tasks, of_pass)


@dataclass(frozen=True, slots=True)
class Compared:
    """Ratios to a load without limits and keys; of times, of the fastest run of each: what else the machine does only
    adds to one."""

    limits_calls: float  # of functions, with limits, but no keys
    limits_cpu: float
    keys_cpu: float
    keys_rate: float  # tasks a second
    crowd_rate: float  # tasks a second, with more keys than wait in memory at once
    task_units: float  # with keys
    pass_units: float  # with keys, beyond those without


def compare(engine: Engine) -> Compared:
    plain, limited, keyed = in_turns(
        ROUNDS,
        lambda: run(engine),
        lambda: run(engine, limits=LIMITS),
        lambda: run(engine, limits=LIMITS, tasks_of_key=4),
    )
    crowd, keyed_crowd = in_turns(
        CROWD_ROUNDS,
        lambda: run(engine, CROWD),
        lambda: run(engine, CROWD, limits=LIMITS, tasks_of_key=4),
    )
    return Compared(
        limits_calls=run(engine, limits=LIMITS, counts_calls=True).calls / run(engine, counts_calls=True).calls,
        limits_cpu=cpu(limited) / cpu(plain),
        keys_cpu=cpu(keyed) / cpu(plain),
        keys_rate=wall(plain) / wall(keyed),
        crowd_rate=wall(crowd) / wall(keyed_crowd),
        task_units=max(one.task_units for one in keyed),
        pass_units=max(one.pass_units for one in keyed) - min(one.pass_units for one in plain),
    )


def in_turns(rounds: int, *kinds: Callable[[], Run]) -> list[list[Run]]:
    """The runs of each kind, by as many rounds, of which every second is in reverse."""
    for one in kinds:  # with what is done once in a process
        one()
    runs: list[list[Run]] = [[] for _ in kinds]
    for n in range(rounds):
        for kind in range(len(kinds))[:: 1 if n % 2 else -1]:
            runs[kind].append(kinds[kind]())
    return runs


def cpu(runs: list[Run]) -> float:
    return min(one.cpu for one in runs)


def wall(runs: list[Run]) -> float:
    return min(one.wall for one in runs)


def keys() -> int:
    with counting() as engine:
        flood = beside_a_flood(engine)
        print(
            f"{FLOOD:,} tasks of one key with limit 1, beside {OTHERS:,} of {OTHER_KEYS} keys: the last of these began "
            f"{flood.last_start_seconds:.1f} s after the tick; {flood.of_flood:,} of the flood ran in its pass",
            flush=True,
        )
        ratios = compare(engine)
    calls, cpu = ratios.limits_calls - 1, ratios.limits_cpu - 1
    print(f"with KeyLimits, without keys: {calls:+.2%} function calls, CPU {cpu:+.1%}")
    print(f"a key for every four tasks: CPU {ratios.keys_cpu - 1:+.1%}, {ratios.keys_rate:.0%} of the tasks a second")
    print(f"the same of {CROWD:,} tasks at once: {ratios.crowd_rate:.0%} of the tasks a second")
    print(f"write units: {ratios.task_units:g} for a task with a key, {ratios.pass_units:+g} for its pass")
    problems = list(problems_of(flood, ratios))
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


def problems_of(flood: Beside, ratios: Compared) -> Iterator[str]:
    """What is not as it should be."""
    if flood.begun != OTHERS or flood.last_start_seconds > TICK_SECONDS:
        yield f"{flood.begun} of {OTHERS} beside the flood began within {flood.last_start_seconds:.1f} s"
    if ratios.limits_calls > MAX_CALLS_WITHOUT_KEYS:
        yield f"limits that nothing has a key for cost {ratios.limits_calls - 1:.1%} of calls, expected at most 1 %"
    for tasks, rate in ((TASKS, ratios.keys_rate), (CROWD, ratios.crowd_rate)):
        if rate < MIN_RATE_WITH_KEYS:
            yield f"{tasks:,} with keys: {rate:.0%} of the tasks a second, expected at least {MIN_RATE_WITH_KEYS:.0%}"
    if ratios.task_units > UNITS_OF_TASK or ratios.pass_units > MAX_UNITS_OF_PASS:
        yield f"{ratios.task_units:g} write units for a task, {ratios.pass_units:+g} for a pass, expected 5 and +2"

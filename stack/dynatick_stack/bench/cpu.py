"""CPU time a task, ours and the baselines', taken in turns in one process. The endpoint's own time is not in it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from dynatick.domain.buckets import Bucket
from dynatick_stack.bench.baselines import THREADS, Form, raw, single_writes
from dynatick_stack.bench.installation import Installation
from dynatick_stack.counting.process import Engine


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one run, a task."""

    cpu_us: float
    wall_us: float


@dataclass(frozen=True, slots=True)
class Round:
    """One measurement of each, one right after the other."""

    ours: Cost
    single: dict[int, Cost]  # by threads
    raw: Cost

    @property
    def best_single(self) -> float:
        return min(cost.cpu_us for cost in self.single.values())


@dataclass(frozen=True, slots=True)
class Ratios:
    """Medians over the rounds; a ratio is taken within its round."""

    rounds: list[Round]

    @property
    def threads(self) -> tuple[int, ...]:
        """Of the single writes."""
        return tuple(self.rounds[0].single)

    @property
    def cpu_us_per_task(self) -> float:
        return median(one.ours.cpu_us for one in self.rounds)

    @property
    def to_single_writes(self) -> float:
        return median(one.ours.cpu_us / one.best_single for one in self.rounds)

    @property
    def to_raw(self) -> float:
        return median(one.ours.cpu_us / one.raw.cpu_us for one in self.rounds)

    def single_us(self, threads: int) -> float:
        return median(one.single[threads].cpu_us for one in self.rounds)

    def single_per_s(self, threads: int) -> float:
        return median(1e6 / one.single[threads].wall_us for one in self.rounds)

    @property
    def raw_us(self) -> float:
        return median(one.raw.cpu_us for one in self.rounds)

    @property
    def tasks_per_s(self) -> float:
        return median(1e6 / one.ours.wall_us for one in self.rounds)


def compare(engine: Engine, endpoint: str, *, tasks: int, single_tasks: int, rounds: int) -> Ratios:
    """Measures in turns. ``engine`` counts, and is asked for our statements; ``endpoint`` is measured on."""
    claim, record = statements(engine)
    return Ratios([_round(endpoint, tasks, single_tasks, claim, record) for _ in range(rounds)])


def statements(engine: Engine) -> tuple[Form, Form]:
    """How Dynatick claims and records a task, as it is seen on the wire."""
    installation = Installation.fresh(engine.url)
    bucket = installation.bucket()
    installation.insert(1, bucket, prefix="example-")
    (report,) = installation.next_tick()
    assert report.completed == 1
    seen = [
        Form(example, installation.table, "example-0", str(bucket), installation.process)
        for example in engine.examples()
        if example["Statement"].startswith(f'UPDATE "{installation.table}"')
    ]
    installation.delete()
    claim, record = seen  # in the order in which they came
    return claim, record


def _round(endpoint: str, tasks: int, single_tasks: int, claim: Form, record: Form) -> Round:
    def ours() -> Cost:
        installation = Installation.fresh(endpoint)
        installation.insert(tasks, installation.bucket())
        installation.forward()
        cost = _measure(tasks, lambda: sum(report.completed for report in installation.tick()))
        installation.delete()
        return cost

    def other(number: int, run: Callable[[str, Bucket], int]) -> Cost:
        installation = Installation.fresh(endpoint)
        bucket = installation.bucket()
        installation.insert(number, bucket)
        cost = _measure(number, lambda: run(installation.table, bucket))
        installation.delete()
        return cost

    def single(threads: int) -> Cost:
        return other(single_tasks, lambda table, bucket: single_writes(endpoint, table, bucket, threads=threads))

    return Round(
        ours=ours(),
        single={threads: single(threads) for threads in THREADS},
        raw=other(tasks, lambda table, bucket: raw(endpoint, table, bucket, claim=claim, record=record)),
    )


def _measure(tasks: int, run: Callable[[], int]) -> Cost:
    cpu, wall = time.process_time(), time.perf_counter()
    done = run()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    assert done == tasks, f"{done} tasks of {tasks} were done"
    return Cost(cpu / tasks * 1e6, wall / tasks * 1e6)

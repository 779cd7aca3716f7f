"""The assumptions about AWS: published limits, and where nothing is published, an assumption that says so."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dynatick_stack.plan import figures

PARTITION_READ_UNITS = 3000.0
"""A second, of one partition (DynamoDB, best practices for partition keys). The other limits are those of the plan."""

SPLIT_AFTER = 300.0
"""Assumed: a partition that has had no capacity left for this long splits in two. AWS says only that it splits
under sustained load."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Assumptions:
    """Times in seconds. ``…_cpu``: of a whole CPU."""

    concurrency: int = figures.CONCURRENT_EXECUTIONS
    ramp: float = figures.STARTS / figures.STARTS_SECONDS  # further environments a second of one function
    ramp_burst: int = figures.STARTS  # environments that start at once
    statement_cpu: float = figures.CPU_SECONDS / 2  # a claim and a record, with all that a task takes besides
    insert_cpu: float = 1 / 10_797  # docs/benchmark.json has these inserts a second, of one client
    member_cpu: float = 43e-6  # of a member of a batch: measured, on a machine on which a task took 216
    member_insert_cpu: float = 20e-6  # of the client, to check and compress its payload: the same
    request_cpu: float = 1e-3  # of a single request, by boto3
    tick_delay: float = 1.0  # from the minute to the invocation of its tick; AWS promises no more than its minute
    event_delay: tuple[float, float] = (0.02, 0.08)  # from an asynchronous invocation to its start, if there is room
    cold_start: tuple[float, float] = (0.6, 1.2)
    invoke_latency: tuple[float, float] = (0.01, 0.03)  # of the request that starts one
    latency: float = 0.003  # of a request to DynamoDB, at least: AWS says "single-digit milliseconds"
    latency_spread: float = 0.002  # mean of what comes on top, exponentially distributed
    mapping_burst: int = figures.MAPPING_STARTS  # invocations of a queue that are busy at once
    mapping_ramp: float = figures.MAPPING_STARTS_A_SECOND  # more while messages wait
    wake_up_concurrency: int = figures.WAKE_UP_CONCURRENCY  # at most
    queue_latency: float = 0.01  # of a request that sends ten wake-ups
    statement_latency: float = 0.0002  # of each further statement of a batch
    read_unit_latency: float = 0.0005  # of each read unit of a page

    def cpu_share(self, memory_mb: int) -> float:
        """The part of a CPU that a function of this memory has; one process uses no more than one."""
        return min(1.0, memory_mb / figures.MB_PER_CPU)

    def statements_cpu(self, statements: Sequence[Mapping[str, Any]]) -> float:
        """Returns the CPU of a whole batch, whose statements are alike."""
        inserts = bool(statements) and statements[0]["Statement"].startswith("INSERT")
        return len(statements) * (self.insert_cpu if inserts else self.statement_cpu)

    def request_latency(self, dice: random.Random, *, statements: int = 1) -> float:
        return self.latency + dice.expovariate(1 / self.latency_spread) + (statements - 1) * self.statement_latency

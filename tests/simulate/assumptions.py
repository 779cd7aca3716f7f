"""What the simulation assumes of AWS: published limits, and where nothing is published, an assumption that says so."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

PARTITION_WRITES = 1000.0
PARTITION_READS = 3000.0
"""Units a second of one partition (DynamoDB, best practices for partition keys)."""

TABLE_WRITES = 40_000.0
"""Write units a second of a table, and of each of its indexes: the default quota on demand."""

NEW_TABLE_WRITES = 4000.0
"""What a new on-demand table and each of its indexes are warm for."""

READS_FOR_WRITES = PARTITION_READS / PARTITION_WRITES

SPLIT_AFTER = 300.0
"""Assumed: a partition that has had no capacity left for so many seconds splits in two. AWS says only that it splits
under sustained load."""

WARM_CPU_MB = 1769
"""Memory of a function with one CPU."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Assumptions:
    """Times in seconds. ``…_cpu``: of a whole CPU."""

    concurrency: int = 1000  # executions at once: the account's default quota
    ramp: float = 100.0  # further environments a second of one function: 1,000 in ten seconds
    ramp_burst: int = 1000  # environments that start at once
    statement_cpu: float = 57e-6  # two a task: docs/benchmark.json has 114 microseconds a task, all included
    insert_cpu: float = 1 / 10_797  # docs/benchmark.json has so many inserts a second, of one client
    request_cpu: float = 1e-3  # of a single request, by boto3
    tick_delay: float = 1.0  # from the minute to the invocation of its tick; AWS promises no more than its minute
    event_delay: tuple[float, float] = (0.02, 0.08)  # from an asynchronous invocation to its start, if there is room
    cold_start: tuple[float, float] = (0.6, 1.2)
    invoke_latency: tuple[float, float] = (0.01, 0.03)  # of the request that starts one
    latency: float = 0.003  # of a request to DynamoDB, at least: AWS says "single-digit milliseconds"
    latency_spread: float = 0.002  # mean of what comes on top, exponentially distributed
    statement_latency: float = 0.0002  # of each further statement of a batch
    read_unit_latency: float = 0.0005  # of each read unit of a page

    def cpu_share(self, memory_mb: int) -> float:
        """The part of a CPU that a function of this memory has; one process uses no more than one."""
        return min(1.0, memory_mb / WARM_CPU_MB)

    def statements_cpu(self, statements: Sequence[Mapping[str, Any]]) -> float:
        """Of a whole batch, whose statements are alike."""
        inserts = bool(statements) and statements[0]["Statement"].startswith("INSERT")
        return len(statements) * (self.insert_cpu if inserts else self.statement_cpu)

    def request_latency(self, dice: random.Random, *, statements: int = 1) -> float:
        return self.latency + dice.expovariate(1 / self.latency_spread) + (statements - 1) * self.statement_latency

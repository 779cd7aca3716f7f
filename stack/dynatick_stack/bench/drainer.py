"""One invocation of the processor in a process of its own, as Lambda would have it: its memory, its time, its CPU.

    python -m dynatick_stack.bench.drainer ENDPOINT TABLE INSTANT [--shard K --shards N]

Says "ready", waits for a line, drains what is due at that instant, and prints what it was like as JSON.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import IO

from dynatick.domain.buckets import Bucket, minute_of
from dynatick.domain.instants import format_instant, parse_instant
from dynatick_stack.bench.figures import percentile
from dynatick_stack.bench.installation import Clock, Installation, Nothing

LONGEST = 900  # seconds that Lambda lets an invocation take: on a busy machine all takes its time


@dataclass(frozen=True, kw_only=True, slots=True)
class Drained:
    """What an invocation was like. Milliseconds are from its beginning."""

    tasks: int
    seconds: float
    cpu_seconds: float
    peak_rss_bytes: int
    began: float  # by a clock that all processes of this machine share
    first_ms: float = 0  # until the first task began
    p50_ms: float = 0
    p99_ms: float = 0
    last_ms: float = 0


def drain_in_processes(endpoint: str, table: str, at: datetime, *, shards: int = 1) -> Sequence[Drained]:
    """A process for each shard, all begun together."""
    command = [sys.executable, "-m", "dynatick_stack.bench.drainer", endpoint, table, format_instant(at)]
    processes = [
        subprocess.Popen(
            [*command, "--shard", str(shard), "--shards", str(shards)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for shard in range(shards)
    ]
    try:
        pipes = [_pipes(process) for process in processes]
        for _, told in pipes:
            if told.readline() != "ready\n":
                raise RuntimeError("a process that was to drain a shard did not start; see above")
        for line, _ in pipes:
            line.write("go\n")
            line.flush()
        return [Drained(**json.loads(told.readline())) for _, told in pipes]
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def _pipes(process: subprocess.Popen[str]) -> tuple[IO[str], IO[str]]:
    assert process.stdin is not None
    assert process.stdout is not None
    return process.stdin, process.stdout


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("endpoint")
    parser.add_argument("table")
    parser.add_argument("instant")
    parser.add_argument("--shard", type=int, default=0)
    parser.add_argument("--shards", type=int, default=1)
    options = parser.parse_args()
    at = parse_instant(options.instant, "instant")
    nothing = Nothing(note=True)
    installation = Installation(
        options.endpoint, options.table, shard_count=options.shards, nothing=nothing, clock=Clock(at)
    )
    installation.client.settings()  # so that connecting is not measured
    print("ready", flush=True)
    sys.stdin.readline()
    installation.clock.to(at)
    cpu_began, began = time.process_time(), time.monotonic()
    event = {"dynatick": {"tick": str(Bucket(minute_of(at))), "shard": options.shard}}
    report = installation.handle(event, seconds=LONGEST)
    tasks = report.completed
    while installation.asked:  # what did not fit into one invocation goes on in the next
        tasks += installation.handle(installation.asked.pop(0), seconds=LONGEST).completed
    cpu, seconds, rss = time.process_time() - cpu_began, time.monotonic() - began, peak_rss()
    starts = sorted((start - began) * 1000 for start in nothing.began) or [0.0]
    drained = Drained(
        tasks=tasks,
        seconds=seconds,
        cpu_seconds=cpu,
        peak_rss_bytes=rss,
        began=began,
        first_ms=starts[0],
        p50_ms=percentile(starts, 50),
        p99_ms=percentile(starts, 99),
        last_ms=starts[-1],
    )
    print(json.dumps(asdict(drained)), flush=True)


def peak_rss() -> int:
    """The most memory that this process has had. (Linux's ru_maxrss begins with that of the process before it.)"""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # in bytes on macOS


if __name__ == "__main__":
    main()

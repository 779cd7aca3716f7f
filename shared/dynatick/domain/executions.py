"""How many executions of its functions an installation can have at the same time, beside what the account allows.

Wake-ups, workers and recoveries take executions from the same account as ticks, and must leave each shard one.
"""

from __future__ import annotations

from dataclasses import dataclass

RECOVERIES = 20  # of one pass; the engine's bound
STREAM_SHARDS = 4  # of a new table's stream
PARTITION_WRITE_UNITS = 1_000  # a second, of one partition of a table or index


@dataclass(frozen=True, kw_only=True, slots=True)
class Executions:
    """The most executions at once, by kind."""

    ticks: int  # one for each shard
    workers: int  # of all shards together
    wake_ups: int = 0
    recoveries: int = RECOVERIES
    stream: int = STREAM_SHARDS  # of the scheduler function: for each shard of the table's stream
    api: int = 0  # of requests over HTTP, when each waits as long as it may
    imports: int = 0  # of one file; each file that is dropped at the same time takes another

    @property
    def total(self) -> int:
        return self.ticks + self.workers + self.wake_ups + self.recoveries + self.stream + self.api + self.imports

    def max_workers(self, allowed: int) -> int:
        """The largest MaxWorkers that leaves room for everything else; 0 if there is none."""
        return max(0, (allowed - (self.total - self.workers)) // max(1, self.ticks))

    def in_words(self) -> str:
        """Such as "4 for ticks, 40 for workers"."""
        kinds = {
            "ticks": self.ticks,
            "workers": self.workers,
            "wake-ups": self.wake_ups,
            "recoveries": self.recoveries,
            "the stream": self.stream,
            "the HTTP API": self.api,
            "an import": self.imports,
        }
        return ", ".join(f"{number:,} for {kind}" for kind, number in kinds.items() if number)

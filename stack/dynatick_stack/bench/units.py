"""What a task costs in capacity units and calls, all things counted: insert, scheduler, ticks, later polls.

Exact figures: they depend on nothing but the code, and are asserted by tests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dynatick.domain.buckets import Bucket
from dynatick.engine.ports import WakeUps
from dynatick_stack.bench.installation import Installation, dynamodb
from dynatick_stack.counting.counts import Count, Counts, Engine

IDLE_TICKS = 12  # by then what a bucket leaves behind is over
MAX_TICKS = 30


@dataclass(frozen=True, kw_only=True, slots=True)
class Life:
    """What tasks have cost, from their insert until their bucket has left the window."""

    tasks: int
    insert: Counts
    scheduler: Counts  # with what the stream tells it of the other parts
    processor: Counts
    scheduler_batches: int
    ticks: int

    @property
    def total(self) -> Count:
        return self.insert.total + self.scheduler.total + self.processor.total

    def per_task(self, name: str) -> float:
        """A figure of Count by task, with its share of what the ticks cost."""
        return float(getattr(self.total, name)) / self.tasks

    def marginal(self, fewer: Life, name: str) -> float:
        """What one task more adds to a figure of Count, from the same with fewer tasks.

        Without what ticks do on their own rows: how many it takes until the bucket has left the window is a matter of
        time, and one more or less is no task's doing.
        """
        more = getattr(self._of_tasks, name) - getattr(fewer._of_tasks, name)
        return float(more) / (self.tasks - fewer.tasks)

    @property
    def _of_tasks(self) -> Count:
        return self.insert.total + self.scheduler.total + self.processor.by_operation["BatchExecuteStatement"]


@dataclass(frozen=True, slots=True)
class Idle:
    """What ticks cost that have nothing to do."""

    ticks: int
    reads: int  # calls, of the dearest of them
    writes: int
    total: Count  # of all of them
    polls: int  # of its calls, the queries of the index
    invocations: int


def timed(engine: Engine, tasks: int, **more: Any) -> Life:
    """Tasks inserted by the client, with their time given and ``more`` attributes."""
    return _life(engine, tasks, lambda installation, bucket: installation.insert(tasks, bucket, **more))


def members(engine: Engine, number: int) -> Life:
    """The members of one batch; its own task is in the figures, too."""
    return _life(engine, number, lambda installation, bucket: installation.insert_batch(number, bucket), others=1)


def untimed(engine: Engine, tasks: int) -> Life:
    """Tasks put as raw rows of nothing but an id."""

    def put(installation: Installation, _: Bucket) -> None:
        client = dynamodb(installation.endpoint)
        for n in range(tasks):
            client.put_item(TableName=installation.table, Item={"taskId": {"S": f"t{n}"}})

    return _life(engine, tasks, put)


def _life(engine: Engine, tasks: int, insert: Callable[[Installation, Bucket], None], *, others: int = 0) -> Life:
    """``others``: tasks that complete besides."""
    installation = Installation.fresh(engine.url, stream=True)
    meter = Meter(engine)
    bucket = installation.bucket()
    insert(installation, bucket)
    inserted = meter.read()
    batches = installation.schedule()
    scheduled = meter.read()
    processed, ticks, completed = Counts({}), 0, 0
    while ticks < MAX_TICKS:
        (report,) = installation.next_tick()
        ticks += 1
        completed += report.completed
        processed += meter.read()
        batches += installation.schedule()
        scheduled += meter.read()
        if report.drained_through is not None and report.drained_through >= bucket.minute:
            break
    assert completed == tasks + others, f"{completed} tasks of {tasks + others} were completed"
    installation.delete()
    return Life(
        tasks=tasks,
        insert=inserted,
        scheduler=scheduled,
        processor=processed,
        scheduler_batches=batches,
        ticks=ticks,
    )


def idle(engine: Engine, shards: int = 1, wake_ups: WakeUps | None = None) -> Idle:
    """Ticks of an installation that has nothing to do, a tick a minute."""
    installation = Installation.fresh(engine.url, shard_count=shards, wake_ups=wake_ups)
    for _ in range(IDLE_TICKS):
        installation.next_tick()
    installation.invocations = 0
    meter = Meter(engine)
    counts = []
    for _ in range(IDLE_TICKS):
        installation.next_tick()
        counts.append(meter.read())
    installation.delete()
    of_all = sum(counts, Counts({}))
    return Idle(
        ticks=len(counts),
        reads=max(count.total.reads for count in counts),
        writes=max(count.total.writes for count in counts),
        total=of_all.total,
        polls=of_all.by_operation["Query"].calls,
        invocations=installation.invocations,
    )


class Meter:
    """What was counted since it was last read."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._last = engine.counts()

    def read(self) -> Counts:
        now = self._engine.counts()
        since, self._last = now - self._last, now
        return since

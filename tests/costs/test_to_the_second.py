"""What Precision second costs beyond tick, counted: units of tasks, messages, invocations, waiting, idle months.

Capacity units are those that the counting endpoint counts, with either precision, for the same tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import pytest

from dynatick.domain.instants import format_instant
from dynatick.domain.task import Task
from dynatick.engine.ports import ActionContext
from dynatick.engine.rules import Precision
from dynatick.errors import RetryableError
from dynatick_stack.bench.installation import ACTION, Installation, dynamodb
from dynatick_stack.bench.to_the_second import Counted, Insert, count, timed
from dynatick_stack.bench.wake_up_price import MONTH, Tasks, idle_polls, spread, woken
from dynatick_stack.counting.counts import Engine
from dynatick_stack.template import ROOT

MORE_READ_UNITS = 0.03  # a task: the poll of its bucket by which it is planned
PAUSE_READ_UNITS = 0.5 * 60 / 5  # a minute in which a process gets wake-ups
RETRY_READ_UNITS = 1  # of an attempt that fails in a wake-up: its cursor, which a pass has at hand
READ_UNIT, WRITE_UNIT, GB_SECOND, REQUEST = 0.125 / 1e6, 0.625 / 1e6, 0.0000133334, 0.20 / 1e6
CALL_SECONDS, TICK_GB = 0.005, 1.0  # of a tick that finds nothing, as docs/cost.md assumes
MAX_IDLE_MONTH = 0.50  # dollars
PAGE = " ".join((ROOT / "docs" / "cost.md").read_text(encoding="utf-8").split())
MAX_MILLION = {1: 5.00, 10: 0.50}  # dollars, at 256 MB and one shard, by tasks a second


def both(engine: Engine, tasks: Tasks, *, insert: Insert = timed, ahead: int = 4, shards: int = 1) -> Sequence[Counted]:
    """The same load with Precision second and with tick."""
    return [
        count(engine, precision, tasks, insert=insert, ahead=ahead, shards=shards)
        for precision in (Precision.SECOND, Precision.TICK)
    ]


def write_units(counted: Counted) -> float:
    """The write units of tasks and of the cursors of idle shards, which are written in batches too."""
    return counted.counts.by_operation["BatchExecuteStatement"].write_units


def assert_units(
    second: Counted, tick: Counted, *, shards: int = 1, more: float = MORE_READ_UNITS, records: int = 0
) -> None:
    """Tasks write the same units, and read at most ``more``, beside what shows whether all is paused. The poll by which
    a tick plans nothing is left out, and so are the cursors of shards after the first, written at each tick to plan
    their buckets, and otherwise less often. ``records``: the most that is written of buckets that tasks have left, with
    a read for each."""
    cursors = (shards - 1) * second.ticks
    assert 0 <= write_units(second) - write_units(tick) <= records + cursors
    assert second.counts.total.write_units <= tick.counts.total.write_units + records + cursors
    assert second.counts.total.refused == 0
    assert second.ticks == tick.ticks
    of_ticks = 0.5 * shards * second.ticks
    found = second.counts.total.read_units - tick.counts.total.read_units - of_ticks
    assert found <= more * second.woken.tasks + records + PAUSE_READ_UNITS


@pytest.mark.parametrize(("rate", "shards"), [(1, 1), (10, 1), (1, 8)])
def test_planned_tasks(engine: Engine, rate: int, shards: int) -> None:
    tasks = spread(rate, minutes=1)
    second, tick = both(engine, tasks, shards=shards)
    assert write_units(second) == 5 * len(tasks) + (shards - 1) * second.ticks
    assert_units(second, tick, shards=shards)
    assert second.woken == woken(tasks, shards=shards), "as docs/cost.md computes it"
    assert second.woken.sends <= second.woken.messages <= len(tasks)
    assert tick.woken.messages == tick.woken.sends == 0


def test_tasks_that_are_inserted_into_a_planned_bucket(engine: Engine) -> None:
    tasks = spread(1, minutes=1)
    second, tick = both(engine, tasks, ahead=1)
    assert_units(second, tick)
    assert 0 < second.woken.messages <= len(tasks)
    assert second.woken.waited < timedelta(seconds=1.1) * len(tasks)


def untimed(installation: Installation, tasks: Sequence[tuple[str, datetime]]) -> None:
    client = dynamodb(installation.endpoint)
    for task_id, _ in tasks:
        item = {"taskId": {"S": task_id}, "action": {"S": ACTION}}
        client.put_item(TableName=installation.table, Item=item)


def test_tasks_without_a_time(engine: Engine) -> None:
    second, tick = both(engine, spread(1, minutes=1), insert=untimed, ahead=1)
    assert_units(second, tick)
    assert second.woken.messages == 1, "all came in one batch of the stream"
    assert second.woken.waited == timedelta()


class FailsOnce:
    def run(self, task: Task, context: ActionContext) -> None:
        if task.attempt == 1:
            raise RetryableError("as planned")


def retried(installation: Installation, tasks: Sequence[tuple[str, datetime]]) -> None:
    """Tasks with a time whose first attempt fails. The next one is in another bucket, with either precision."""
    installation.actions.add("fails-once", FailsOnce())
    installation.tick()  # publishes its name
    policy = {"minBackoffSeconds": 200, "maxBackoffSeconds": 200}
    rows = [
        {"taskId": task_id, "dueAt": format_instant(at), "action": "fails-once", "retryPolicy": policy}
        for task_id, at in tasks
    ]
    assert installation.client.insert_many(rows).inserted == len(rows)


def test_a_retry(engine: Engine) -> None:
    tasks = spread(1, minutes=1)
    second, tick = both(engine, tasks, insert=retried)
    assert second.woken.messages > woken(tasks).messages, "retries have wake-ups of their own"
    # Their jitter puts them into more buckets or fewer.
    # Each wake-up counts for itself what has left its bucket.
    assert_units(second, tick, more=0.1 + 2 * MORE_READ_UNITS + RETRY_READ_UNITS, records=second.woken.messages)


def test_a_month_in_which_nothing_is_due(engine: Engine) -> None:
    second, tick = both(engine, [])
    found = second.counts.total
    assert second.woken.sends == second.woken.messages == 0
    assert found.write_units == tick.counts.total.write_units == 2 * second.ticks
    assert found.read_units <= tick.counts.total.read_units + 0.5 * second.ticks
    units = found.write_units * WRITE_UNIT + found.read_units * READ_UNIT
    of_a_tick = (units + found.calls * CALL_SECONDS * TICK_GB * GB_SECOND) / second.ticks + REQUEST
    month = of_a_tick * (MONTH / timedelta(minutes=1)) + idle_polls()
    assert month <= MAX_IDLE_MONTH
    assert f"nothing is due: ${month:.2f} with" in PAGE
    assert f"${idle_polls():.2f} of it is for Lambda" in PAGE


@pytest.mark.parametrize("rate", MAX_MILLION)
def test_the_price_of_a_million(rate: int) -> None:
    assert woken(spread(rate, minutes=20)).a_million(256) <= MAX_MILLION[rate]


def test_the_price_is_that_of_a_shard() -> None:
    each, one = woken(spread(80, minutes=2), shards=8).a_million(256), woken(spread(10, minutes=16)).a_million(256)
    assert each == pytest.approx(one, rel=0.05)
    assert f"80 a second in 8 shards cost ${each:.2f} at 256 MB" in PAGE
    row = f"| 10 | 8 | 0.310 | 478 ms | ${woken(spread(10, minutes=6), shards=8).a_million(256):.2f} |"
    assert row in PAGE


def test_what_the_page_says_beside_its_table() -> None:
    found = woken(spread(10, minutes=20), threads=32)
    assert f"With 32 threads or more it would be 31, and ${found.a_million(256):.2f}" in PAGE
    alone = woken([(str(n), timedelta(seconds=7.77 * n)) for n in range(500)])
    assert alone.messages == 500
    assert [round(alone.a_million(memory)) for memory in (256, 1024)] == [3, 9]
    assert "about $3 a million at 256 MB and $9 at 1,024" in PAGE

"""Thousands of rows with an expression, put as anybody may put them: each runs each minute, once, until deleted."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.support import DeployedStack, Row, bucket, deployed, eventually, instant, now

from dynatick.client.operations import TickView
from dynatick.domain.buckets import Bucket, minute_of
from dynatick_stack.demo.observe import served_through

pytestmark = pytest.mark.long

NUMBER = 2_000
TICKS = 1  # whole ones, after the one under which they were put


def _in_batches(world: DeployedStack, requests: Sequence[Any]) -> None:
    """Does what `batch-write-item` does, until everything is taken."""
    for start in range(0, len(requests), 25):
        left: Any = {world.stack.table: list(requests[start : start + 25])}
        while left:
            left = world.dynamodb.batch_write_item(RequestItems=left).get("UnprocessedItems")


def _passes(world: DeployedStack, since: str) -> list[TickView]:
    ticks = world.client.operations.ticks(start=since, end=bucket(1))
    return [tick for tick in ticks if isinstance(tick, TickView) and tick.occurrences]


@pytest.mark.timeout(480)
def test_each_of_two_thousand_runs_each_minute_once(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    with deployed(tmp_path / "local", TickMinutes=1) as world:
        since = bucket(0)
        ids = [f"lead-{n:04}" for n in range(NUMBER)]
        expression = {"cronExpression": {"S": "rate(1 minute)"}}
        items = [{"taskId": {"S": one}, "leadSourceId": {"N": str(n)}, **expression} for n, one in enumerate(ids)]
        _in_batches(world, [{"PutRequest": {"Item": item}} for item in items])

        def recurring() -> dict[str, Row]:
            return {row["taskId"]: row for row in world.rows() if row.get("status") == "recurring"}

        eventually(lambda: len(recurring()) == NUMBER, within=180, what=lambda: len(recurring()))
        begun = minute_of(now())

        def made_since() -> int:
            return sum(one.occurrences for one in _passes(world, since) if Bucket.parse(one.tick).minute > begun)

        eventually(
            lambda: made_since() >= TICKS * NUMBER,
            within=60 * (TICKS + 3),
            what=lambda: [one.to_row() for one in _passes(world, since)],
        )
        schedules = recurring()
        assert sorted(schedules) == ids
        _in_batches(world, [{"DeleteRequest": {"Key": {"taskId": {"S": one}}}} for one in ids])
        ended = now()
        # A tick that read a schedule before it was deleted may still make its run; the next finds none.
        eventually(lambda: served_through(world.client, since) >= str(Bucket(minute_of(ended) + 1)), within=120)
        eventually(lambda: all("outcome" in row for row in world.rows()), within=180)

        made: dict[str, list[datetime]] = defaultdict(list)
        for row in world.rows():
            schedule_id, revision, nominal = str(row["taskId"]).split("#")
            assert (row["scheduleId"], revision, row["dueAt"]) == (schedule_id, "1", nominal)
            assert (row["status"], row["attempt"], row["leadSourceId"]) == ("completed", 1, int(schedule_id[-4:]))
            made[schedule_id].append(instant(nominal))
        assert sorted(made) == ids
        for schedule_id, runs in made.items():
            first = instant(schedules[schedule_id]["startDate"])
            assert sorted(runs) == [first + timedelta(minutes=n) for n in range(len(runs))], schedule_id
            assert len(runs) >= TICKS
            assert max(runs) <= ended
        logged = Counter(
            line.record["task_id"]
            for line in world.stack.logs(function="processor")
            if line.record is not None and line.record.get("action") == "task_logged"
        )
        assert len(logged) == sum(map(len, made.values()))
        assert set(logged.values()) == {1}

        full = [
            one for one in _passes(world, since) if one.occurrences == NUMBER and one.finished_at and one.started_at
        ]
        took = [(one.finished_at - one.started_at).total_seconds() for one in full]
        record_property("figure", f"ticks of {NUMBER:,} schedules took {', '.join(f'{one:.1f}' for one in took)} s")

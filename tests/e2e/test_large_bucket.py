"""A bucket of ten thousand tasks is drained, each of them exactly once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.e2e.support import bucket, deployed, eventually, instant, now

from dynatick.client import Inserted, TickView
from dynatick.domain.buckets import Bucket, minute_of

pytestmark = pytest.mark.long

NUMBER = 10_000


def test_each_of_ten_thousand_runs_exactly_once(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    with deployed(tmp_path / "local", TickMinutes=1) as world:
        due = bucket(2)  # The insert takes some seconds, on a busy machine many.
        began = now()
        ids = [f"task-{n:05}" for n in range(NUMBER)]
        results = list(world.client.insert_lazily({"taskId": one, "taskDateTime": due} for one in ids))
        assert all(isinstance(result, Inserted) for result in results)
        inserted = now()
        assert minute_of(inserted) < Bucket.parse(due).minute, "the insert took longer than expected; nothing is shown"

        def passes() -> list[TickView]:
            ticks = world.client.ticks(start=due, end=Bucket(minute_of(now()) + 1))
            return [tick for tick in ticks if isinstance(tick, TickView)]

        # The tick records only: to look at the bucket all the time would cost the drain its time. And the rule's ticks
        # only: of two passes of the same tick, one leaves a record.
        eventually(
            lambda: minute_of(now()) >= Bucket.parse(due).minute and sum(one.completed for one in passes()) >= NUMBER,
            within=240,
            what=passes,
        )

        rows = list(world.rows())
        assert Counter(row["status"] for row in rows) == {"completed": NUMBER}
        assert {row["attempt"] for row in rows} == {1}
        assert {row["taskDateTime"] for row in rows} == {due}
        assert sorted(row["taskId"] for row in rows) == ids
        # As the functions themselves tell of it: each claimed once, each logged once.
        assert sum(one.claimed for one in passes()) == NUMBER
        logged = Counter(
            line.record["task_id"]
            for line in world.stack.logs(since=began.timestamp(), function="processor")
            if line.record is not None and line.record.get("action") == "task_logged"
        )
        assert len(logged) == NUMBER
        assert set(logged.values()) == {1}

        first = min(instant(row["startedAt"]) for row in rows)
        last = max(instant(row["finishedAt"]) for row in rows)
        seconds = (last - first).total_seconds()
        record_property(
            "figure",
            f"{NUMBER:,} tasks drained in {seconds:.1f} s from the first start to the last end, "
            f"inserted in {(inserted - began).total_seconds():.1f} s",
        )

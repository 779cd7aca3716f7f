"""TickMinutes is changed by redeploying, 1 to 5 to 1, while tasks wait: none is orphaned."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from tests.builders import key_of
from tests.e2e.support import TICK_SECONDS, DeployedStack, bucket, deployed, eventually, instant, iso, now, room

from dynatick.domain.buckets import Bucket, Grid, instant_of, minute_of

pytestmark = pytest.mark.long


def minute_in(world: DeployedStack, task_id: str) -> int:
    return Bucket.parse(world.settled(task_id)["taskDateTime"]).minute


def put(world: DeployedStack, phase: str, **times: str) -> list[str]:
    """A webhook for each of these times, and one without."""
    for name, value in times.items():
        world.put_webhook(f"{phase}-{name}", **{"dueAt" if "T" in value else "taskDateTime": value})
    world.put_webhook(f"{phase}-bare")
    return [f"{phase}-{name}" for name in (*times, "bare")]


# A task that came in under five minutes runs at such a tick, and that is as far away as it is.
@pytest.mark.timeout(420)
def test_no_task_is_orphaned(tmp_path: Path) -> None:
    with deployed(tmp_path / "local", TickMinutes=1) as world:
        room(20)
        near, next_one = bucket(1), bucket(2)
        ids = put(world, "one", near=near, next=next_one, off=iso(70), past=bucket(-3), old="2021-12-31#12:00")
        payload = {"url": f"{world.receiver.url}/"}
        world.client.insert("one-client", task_date_time=next_one, action="webhook", payload=payload)
        for task_id in ids:
            world.settled(task_id)
        assert minute_in(world, "one-near") == Bucket.parse(near).minute

        world.stack.redeploy(TickMinutes=5)
        five = put(
            world, "five", off=iso(10), past=bucket(-3), grid=str(Bucket(Grid(tick_minutes=5).tick_at_or_after(now())))
        )
        # A client that has not heard of it yet writes complete rows on the old grid.
        world.client.insert("five-client", task_date_time=next_one, action="webhook", payload=payload)
        assert minute_in(world, "five-client") == Bucket.parse(next_one).minute
        for task_id in five:
            assert minute_in(world, task_id) % 5 == 0, task_id
        # A bucket of the old grid comes due, and no tick of the new one names it.
        due = instant_of(Bucket.parse(near).minute)
        eventually(lambda: now() > due + timedelta(seconds=1), within=70, what="the next minute")

        world.stack.redeploy(TickMinutes=1)
        back = put(world, "back", off=iso(5), past=bucket(-3), next=bucket(1))
        everything = [*ids, "one-client", *five, "five-client", *back]
        last = max(minute_in(world, task_id) for task_id in everything)
        assert last <= minute_of(now()) + 6
        left = (instant_of(last) - now()).total_seconds()
        ended = world.run_to_end(everything, within=max(left, 0) + TICK_SECONDS)

        assert {row["status"] for row in ended.values()} == {"completed"}
        assert {task_id: world.runs(task_id) for task_id in everything} == {
            task_id: [("/", key_of(ended[task_id]))] for task_id in everything
        }
        assert {row["attempt"] for row in ended.values()} == {1}
        assert [row for row in ended.values() if instant(row["startedAt"]) < instant(row["dueAt"])] == []
        assert sorted(row["taskId"] for row in world.rows()) == sorted(everything)

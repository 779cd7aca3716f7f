"""TickMinutes and ShardCount are changed by redeploying while tasks wait: none is orphaned."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.builders import key_of
from tests.e2e.support import STREAM_SECONDS, TICK_SECONDS, DeployedStack, bucket, deployed, eventually, iso, now, room

from dynatick.client import TaskClient
from dynatick.domain.buckets import Bucket, instant_of

pytestmark = pytest.mark.long


def put(world: DeployedStack, phase: str, due: str) -> list[Bucket]:
    """Webhooks with a time and without, enough that each of four shards has some; the buckets that they come into."""
    ids = [f"{phase}-{n}" for n in range(16)]
    for n, task_id in enumerate(ids):
        world.put_webhook(task_id, **({"dueAt": due} if n % 2 else {}))
    return [Bucket.parse(world.settled(task_id)["taskDateTime"]) for task_id in ids]


def test_no_task_is_orphaned(tmp_path: Path) -> None:
    with deployed(tmp_path / "local", TickMinutes=1, ShardCount=1) as world:
        room(25)
        due = iso(90)  # with time enough to redeploy twice
        assert {one.shard for one in put(world, "one", due)} == {0}
        unaware = TaskClient(world.client.store, settings_ttl_seconds=1e9)
        webhook = {"action": "webhook", "payload": {"url": f"{world.receiver.url}/"}}
        unaware.insert("client-one", task_date_time=bucket(2), **webhook)

        world.stack.redeploy(TickMinutes=3, ShardCount=4)
        four = put(world, "four", due)
        assert {one.shard for one in four} == {0, 1, 2, 3}
        assert {one.minute % 3 for one in four} == {0}
        # A client that has not heard of it yet writes a complete row on the old grid.
        of_old_grid = next(name for name in (bucket(2), bucket(3)) if Bucket.parse(name).minute % 3)
        assert unaware.insert("client-four", task_date_time=of_old_grid, **webhook).bucket == of_old_grid

        world.stack.redeploy(TickMinutes=1, ShardCount=2)
        assert {one.shard for one in put(world, "two", due)} == {0, 1}
        # A shard that is current no more, and one that never was: nobody looks into that, so its task is moved.
        world.put_webhook("late-2", taskDateTime=bucket(2, shard=2))
        world.put_webhook("late-200", taskDateTime=bucket(2, shard=200))
        assert Bucket.parse(world.settled("late-2")["taskDateTime"]).shard == 2
        eventually(lambda: Bucket.parse(world.the("late-200")["taskDateTime"]).shard < 4, within=STREAM_SECONDS)

        everything = [row["taskId"] for row in world.rows()]
        assert len(everything) == 3 * 16 + 4
        last = max(Bucket.parse(row["taskDateTime"]).minute for row in world.rows())
        left = (instant_of(last) - now()).total_seconds()
        ended = world.run_to_end(everything, within=max(left, 0) + 2 * TICK_SECONDS)
        assert {(row["status"], row["attempt"]) for row in ended.values()} == {("completed", 1)}
        assert {task_id: world.runs(task_id) for task_id in everything} == {
            task_id: [("/", key_of(ended[task_id]))] for task_id in everything
        }

"""ShardCount is changed by redeploying, 1 to 4 to 2, while tasks wait: none is orphaned."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.builders import key_of
from tests.e2e.support import STREAM_SECONDS, TICK_SECONDS, DeployedStack, bucket, deployed, eventually, room

from dynatick.domain.buckets import Bucket

pytestmark = pytest.mark.long


def shard_of(world: DeployedStack, task_id: str) -> int:
    return Bucket.parse(world.settled(task_id)["taskDateTime"]).shard


def put(world: DeployedStack, phase: str, due: str) -> list[str]:
    """Webhooks with a time and without, enough that each of four shards has some."""
    ids = [f"{phase}-{n}" for n in range(16)]
    for n, task_id in enumerate(ids):
        world.put_webhook(task_id, **({"dueAt": due} if n % 2 else {}))
    return ids


def test_no_task_is_orphaned(tmp_path: Path) -> None:
    with deployed(tmp_path / "local", TickMinutes=1, ShardCount=1) as world:
        room(25)
        # The same tick for all, with time enough to redeploy twice.
        due = f"{bucket(2).replace('#', 'T')}:00Z"
        one = put(world, "one", due)
        assert {shard_of(world, task_id) for task_id in one} == {0}

        world.stack.redeploy(ShardCount=4)
        four = put(world, "four", due)
        assert {shard_of(world, task_id) for task_id in four} == {0, 1, 2, 3}
        # As rows name their bucket: without a shard, in each that there is, in one that there never was.
        named = {"named-0": bucket(2), "named-3": bucket(2, shard=3), "named-9": bucket(2, shard=9)}
        for task_id, name in named.items():
            world.put_webhook(task_id, taskDateTime=name)

        world.stack.redeploy(ShardCount=2)
        two = put(world, "two", due)
        assert {shard_of(world, task_id) for task_id in two} == {0, 1}
        # A shard that is current no more, and unknown ones, by the scheduler and by a writer whom it doesn't hear of.
        late = {"late-2": bucket(2, shard=2), "late-200": bucket(2, shard=200)}
        for task_id, name in late.items():
            world.put_webhook(task_id, taskDateTime=name)
        assert shard_of(world, "named-0") == 0
        assert shard_of(world, "named-3") == 3
        assert shard_of(world, "late-2") == 2
        # Nobody looks into these: their tasks are moved.
        for task_id in ("named-9", "late-200"):
            eventually(lambda: shard_of(world, task_id) in range(4), within=STREAM_SECONDS, what=task_id)  # noqa: B023

        everything = [*one, *four, *named, *two, *late]
        ended = world.run_to_end(everything, within=2 * TICK_SECONDS)
        assert {row["status"] for row in ended.values()} == {"completed"}
        assert {task_id: world.runs(task_id) for task_id in everything} == {
            task_id: [("/", key_of(ended[task_id]))] for task_id in everything
        }
        assert {row["attempt"] for row in ended.values()} == {1}
        assert sorted(row["taskId"] for row in world.rows()) == sorted(everything)
        # The plain name of a bucket means all its shards.
        names = {Bucket.parse(row["taskDateTime"]).minute for row in ended.values()}
        found = [
            entry.task_id for minute in names for entry in world.client.history(Bucket(minute), limit=1000).entries
        ]
        assert sorted(found) == sorted(everything)

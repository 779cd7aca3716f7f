"""Two writers at the same time, over every store: two processors drain one shard, and each attempt is made once
(failure mode 15); of a cancel and a claim of a task one wins."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from tests.builders import NOON, FakeClock, InProcess, scheduled_row

from dynatick import TaskClient, TransitionRefused
from dynatick.domain.buckets import Bucket, minute_of
from dynatick.domain.conditional_update import Written
from dynatick.domain.lifecycle import claim
from dynatick.engine.cursor import Cursor
from dynatick.engine.ports import Store
from dynatick.engine.processor import Invoked

TASKS = 300


@pytest.mark.atomic_writes
@pytest.mark.parametrize("with_shard_lease", [True, False])
def test_each_attempt_is_made_once(store: Store, with_shard_lease: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the shard lease both drain; with it, one of them only closes its tick (rule 16)."""
    if not with_shard_lease:
        monkeypatch.setattr(Cursor, "is_leased", lambda self, now: False)
    system = InProcess(store=store)
    system.tick()
    bucket = Bucket(minute_of(NOON) + 1)
    store.create_many([scheduled_row(f"t{n:03d}", bucket) for n in range(TASKS)])
    system.clock.forward(minutes=1)

    begin = threading.Barrier(2)

    def drain(_: int) -> list[Invoked]:
        begin.wait()
        return system.tick()

    with ThreadPoolExecutor(2) as pool:
        done = [invoked for ticked in pool.map(drain, range(2)) for invoked in ticked]

    assert Counter(system.actions.ran) == {(f"t{n:03d}", 1, 1): 1 for n in range(TASKS)}
    passes = [invoked.passed for invoked in done if invoked.passed is not None]
    assert sum(report.completed for report in passes) == TASKS
    assert any(report.leased_elsewhere for report in passes) <= with_shard_lease
    rows = store.get_many([f"t{n:03d}" for n in range(TASKS)])
    assert {row["outcome"] for row in rows.values()} == {"completed"}
    assert {row["attempt"] for row in rows.values()} == {1}

    system.ticks(8)  # and the cursor passes the bucket, having seen all of it ended
    assert len(system.actions.ran) == TASKS
    assert str(system.row("_dynatick#cursor#0")["drainedThrough"]) >= str(bucket)


@pytest.mark.atomic_writes
@pytest.mark.parametrize("number", range(5))
def test_of_a_cancel_and_a_claim_exactly_one_wins(store: Store, number: int) -> None:
    client, bucket = TaskClient(store, clock=FakeClock(NOON)), Bucket(minute_of(NOON) + 30)
    assert store.create(scheduled_row("x", bucket))

    def claimed() -> bool:
        lease_until = NOON + timedelta(minutes=2)
        return isinstance(store.write(claim("x", bucket, token="t", lease_until=lease_until, now=NOON)), Written)

    def cancelled() -> bool:
        try:
            return client.cancel("x").status == "cancelled"
        except TransitionRefused as refused:
            assert refused.status == "running"
            return False

    with ThreadPoolExecutor(2) as pool:
        wishes = [claimed, cancelled] if number % 2 else [cancelled, claimed]
        won = [future.result() for future in [pool.submit(wish) for wish in wishes]]
    assert sorted(won) == [False, True]
    assert client.get("x").status == ("running" if won[wishes.index(claimed)] else "cancelled")

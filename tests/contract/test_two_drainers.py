"""Two processors drain one shard at the same time, over every store: each attempt is made once (failure mode 15)."""

from __future__ import annotations

import threading
from collections import Counter

import pytest
from tests.builders import NOON, InProcess, scheduled_row

from dynatick.domain.buckets import Bucket, minute_of
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

    done: list[Invoked] = []
    begin = threading.Barrier(2)

    def drain() -> None:
        begin.wait()
        done.extend(system.tick())

    threads = [threading.Thread(target=drain) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert Counter(system.actions.ran) == {(f"t{n:03d}", 1, 1): 1 for n in range(TASKS)}
    passes = [invoked.passed for invoked in done if invoked.passed is not None]
    assert sum(report.completed for report in passes) == TASKS
    assert any(report.leased_elsewhere for report in passes) <= with_shard_lease
    rows = store.get_many([f"t{n:03d}" for n in range(TASKS)])
    assert {row["outcome"] for row in rows.values()} == {"completed"}
    assert {row["attempt"] for row in rows.values()} == {1}

    for _ in range(8):  # and the cursor passes the bucket, having seen all of it ended
        system.next_tick()
    assert len(system.actions.ran) == TASKS
    cursor = store.get("_dynatick#cursor#0")
    assert cursor is not None
    assert str(cursor["drainedThrough"]) >= str(bucket)

"""Each kind of `make delays` delays something: else it would find nothing, whatever waits for luck."""

from __future__ import annotations

import pytest
from tests.delays import CALLS, KINDS, SECONDS, delay
from tests.unit.engine.support import bucket_at, ids, raises, world

from dynatick.domain.buckets import Grid
from dynatick.domain.task import Task
from dynatick.engine.invocation import PAUSE_CHECK
from dynatick.engine.ports import ActionContext
from dynatick.engine.rules import Rules
from dynatick.errors import PermanentError


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_delays_the_first_calls(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    w = world(rules=Rules(grid=Grid(shard_count=2)))

    def lasts(task: Task, context: ActionContext) -> None:
        w.clock.forward(seconds=PAUSE_CHECK.total_seconds() + 0.1)

    w.behave(lasts, *ids(2))
    w.behave(raises(PermanentError("no")), "fails")
    w.insert(*ids(2), "fails", at=bucket_at(1))
    delays: list[float] = []
    delay(kind, monkeypatch, delays.append)
    w.next_tick()
    assert 0 < len(delays) <= 10 * CALLS
    assert set(delays) == {SECONDS}
    assert w.outcome("fails") == "failed"

"""Batches over every store: they are loaded again, and their members are cancelled, by the same conditional writes."""

from __future__ import annotations

import pytest
from tests.builders import FakeClock

from dynatick import BatchDiffers, TaskClient, TransitionRefused
from dynatick.domain.packs import Pack, Span
from dynatick.engine.ports import Store


def test_a_batch_is_loaded_again_and_its_members_are_cancelled(store: Store) -> None:
    client = TaskClient(store, clock=FakeClock())
    payloads = [{"n": n, "rate": 0.1, "name": "é"} for n in range(503)]

    def load(**more: object) -> int:
        return client.batches.insert(
            iter(payloads), batch_id="a/b", action="log", due_at="2026-12-31T13:00:00Z", retry_policy={},
            attributes={"weight": 0.1, "tags": {"x", "y"}}, then={"action": "log", "payload": {"rate": 0.1}}, **more,
        ).packs_written  # type: ignore[arg-type]  # fmt: skip

    assert [load(), load()] == [2, 0]
    with pytest.raises(BatchDiffers):
        load(subject="another")
    assert [view.payload for view in client.batches.members("a/b")] == payloads
    for number in (7, 8, 502):
        assert client.cancel(f"a/b/{number:09}").status == "cancelled"
        with pytest.raises(TransitionRefused):
            client.cancel(f"a/b/{number:09}")
    row = store.get(Span(0, 500).pack_id("a/b"))
    assert row is not None
    pack = Pack.of(row)
    assert pack is not None and pack.excluded == 0b110000000
    assert client.batches.get("a/b").counts == {"open": 500, "cancelled": 3}
    assert client.batches.cancel("a/b").cancelled == 500
    assert client.batches.get("a/b").counts == {"cancelled": 503}

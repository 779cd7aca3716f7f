"""Redriving the tasks of a bucket in batches, with every store; tests/unit/client/test_bulk_change.py has the rest."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest
from tests.builders import NOON, FakeClock, scheduled_row

from dynatick import TaskClient
from dynatick.client import Changed
from dynatick.domain.buckets import Bucket, Grid
from dynatick.domain.conditional_update import ConditionalUpdate, Result
from dynatick.domain.normalise import Defaults
from dynatick.domain.task import is_own_row
from dynatick.engine.installation_settings import publish_settings
from dynatick.engine.ports import Store
from dynatick.store.dynamodb import DynamoStore

pytestmark = pytest.mark.long

BUCKET = "2026-12-31#13:00"
TASKS = 230


def failed_row(task_id: str) -> dict[str, object]:
    """With the attributes that a redrive removes."""
    return {
        **scheduled_row(task_id, Bucket.parse(BUCKET), status="failed", outcome="failed"),
        "finishedAt": "2026-12-31T12:50:00Z", "expiresAt": 1798725000, "error": "it broke", "result": {"n": 1},
        "lease": "k1", "leaseUntil": "2026-12-31T12:55:00Z", "delaySeconds": 60, "deferrals": 2, "attempt": 3,
        "run": 4, "attempts": [{"run": 4, "attempt": 3, "error": "it broke"}], 'tenant\'s "own"': "kept",
    }  # fmt: skip


def test_redrives_are_sent_25_in_a_call_and_equal_a_single_one(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    publish_settings(store, Grid(), now=NOON, actions=("log",), defaults=Defaults())
    client = TaskClient(store, clock=FakeClock(NOON + timedelta(hours=1)))
    store.create_many([failed_row(f"t{n:03d}") for n in range(TASKS)])
    store.create({**failed_row("by-hand"), "action": None})
    client.redrive("t000")
    write_many = store.write_many
    together: list[int] = []

    def note_many(changes: Sequence[ConditionalUpdate]) -> Sequence[Result]:
        together.append(sum(not is_own_row(change.task_id) for change in changes))  # not what their bucket has seen
        return write_many(changes)

    if isinstance(store, DynamoStore) and store._batched:
        monkeypatch.setattr(store, "write", None)  # none is sent alone
    monkeypatch.setattr(store, "write_many", note_many)
    results = list(client.redrive_many(BUCKET))
    assert (sum(together), max(together), len(results)) == (TASKS, 25, TASKS)
    for result in results:
        assert isinstance(result, Changed) and result.task == client.get(result.task_id)
    assert "attempt" not in (store.get("by-hand") or {})
    rows = [dict(store.get(task_id) or {}) for task_id in ("t000", "t001", "t002", f"t{TASKS - 1}")]
    for row in rows:
        assert row.pop("dueAt") and row.pop("taskDateTime")
        assert (row["run"], row["attempt"], row['tenant\'s "own"']) == (5, 0, "kept")
        assert not row.keys() & {"outcome", "finishedAt", "expiresAt", "error", "result", "lease", "leaseUntil"}
        assert row.pop("taskId")
    assert rows == [rows[0]] * 4

"""The seeded installations are the same on each day, and have one of everything."""

from __future__ import annotations

from collections import Counter

from tests.ui import seed

from dynatick.domain.task import Row


def _id(row: Row) -> str:
    return str(row["taskId"])  # the client inserts in several threads


def test_a_seed_is_the_same_each_time() -> None:
    one, other = (sorted(made.rows, key=_id) for made in (seed.small(), seed.small.__wrapped__()))
    assert one == other


def test_the_small_installation_has_one_of_everything() -> None:
    rows = seed.small().rows
    found = Counter(str(row.get("status")) for row in rows)
    assert {"completed", "failed", "cancelled", "scheduled", "running", "recurring", "tick"} <= found.keys()
    errors = Counter(row["error"] for row in rows if row.get("status") == "failed")
    assert errors["ValueError: no such mailbox"] == seed.NO_MAILBOX
    assert errors["the bank answered 503"] == seed.BANK_DOWN
    assert len(errors) >= 5
    assert any(row.get("missedOccurrences") for row in rows)
    assert {seed.HUGE_ID, seed.HOSTILE_ID, seed.LONG_ID} <= {str(row["taskId"]) for row in rows}

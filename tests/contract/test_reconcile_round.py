"""Every store saves the reconcile's progress, and only one process acquires its lease."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from tests.builders import NOON

from dynatick.engine.ports import Store
from dynatick.engine.reconcile import LEASE, SEGMENTS, Segment, acquire, read_round, save


def test_a_round_is_saved_and_its_lease_free_only_after_its_release(store: Store) -> None:
    first = acquire(store, token="one", now=NOON)
    assert first is not None
    assert first.segments == (Segment(),) * SEGMENTS
    places = (Segment("ä#'\"☃"), Segment(is_done=True), *first.segments[2:])
    kept = save(store, replace(first, segments=places, scanned=7, found=1, lease_until=NOON + LEASE))
    assert kept is not None
    assert read_round(store) == kept
    assert acquire(store, token="two", now=NOON) is None
    assert save(store, replace(kept, lease="two")) is None, "only the holder of the lease may write"
    assert save(store, replace(kept, lease_until=None)) is not None
    second = acquire(store, token="two", now=NOON, continuing=first.began_at)
    assert second is not None
    assert (second.began_at, second.segments, second.scanned) == (NOON, places, 7)
    assert save(store, replace(kept, segments=first.segments)) is None, "one that was frozen sets nothing back"
    third = acquire(store, token="three", now=NOON + LEASE + timedelta(seconds=5))
    assert third is not None, "the lease of one that has died"
    assert third.segments == places

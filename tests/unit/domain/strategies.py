"""Strategies of hypothesis for several modules."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import strategies as st

from dynatick.domain.buckets import TICK_MINUTES, Grid, minute_of

LAST = datetime(9998, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)

instants = st.datetimes(
    min_value=datetime(1970, 1, 1),  # noqa: DTZ001 (hypothesis wants its bounds naive)
    max_value=LAST.replace(tzinfo=None),
    timezones=st.just(UTC),
)
near_instants = st.datetimes(
    min_value=datetime(2026, 1, 1),  # noqa: DTZ001
    max_value=datetime(2027, 12, 31),  # noqa: DTZ001
    timezones=st.just(UTC),
)
intervals = st.sampled_from(TICK_MINUTES)
grids = st.builds(lambda n, shards: Grid(tick_minutes=n, shard_count=shards), intervals, st.integers(1, 256))
minutes = st.integers(0, minute_of(LAST))
task_ids = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40).filter(
    lambda text: not text.startswith("_dynatick#")
)

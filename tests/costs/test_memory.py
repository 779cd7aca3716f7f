"""Large rows fit into a process of 512 MB, which to Lambda is all of it: interpreter, libraries and what is in flight.

The peak of a process of its own is measured, not guessed. Without bounds, 25 such rows in one claim take a gigabyte.
"""

from __future__ import annotations

import pytest
from tests.costs.memory import drained, shown

from dynatick_stack.counting.counts import Engine

MAX_BYTES = 400_000_000  # of 512: handlers, and what they import, need some too
HEALTHY, LARGE = 200, 25

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]  # much to decode, and other tests run beside it


def test_a_bucket_with_large_rows_drains_in_a_small_process(engine: Engine) -> None:
    tasks, peak_rss_bytes = drained(engine.url, tasks=HEALTHY, large=LARGE)
    assert tasks == HEALTHY + LARGE
    assert peak_rss_bytes < MAX_BYTES


def test_pages_of_the_api_with_large_rows_are_made_in_a_small_process(engine: Engine) -> None:
    listed, peak_rss_bytes = shown(engine.url, large=12)
    assert listed == 12 + 12  # tasks, and schedules
    assert peak_rss_bytes < MAX_BYTES

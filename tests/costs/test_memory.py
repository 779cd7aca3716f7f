"""Large rows fit into a process of 512 MB, which to Lambda is all of it: interpreter, libraries and what is in hand.

The peak of a process of its own is measured, not guessed. Without bounds, 25 such rows in one claim take a gigabyte.
"""

from __future__ import annotations

import pytest

from dynatick_stack.bench.memory import drained, shown
from dynatick_stack.counting.process import Engine

MOST_BYTES = 400_000_000  # of 512: handlers, and what they import, need some too
HEALTHY, LARGE = 200, 25

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]  # much to decode, and other tests run beside it


def test_a_bucket_with_large_rows_drains_in_a_small_process(engine: Engine) -> None:
    found = drained(engine.url, tasks=HEALTHY, large=LARGE, kind="numbers")
    assert found.tasks == HEALTHY + LARGE
    assert found.peak_rss_bytes < MOST_BYTES


def test_pages_of_the_api_with_large_rows_are_made_in_a_small_process(engine: Engine) -> None:
    found = shown(engine.url, large=12, kind="numbers")
    assert found.listed == 12 + 12  # tasks, and schedules
    assert found.peak_rss_bytes < MOST_BYTES

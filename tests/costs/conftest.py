"""The counting endpoint, one for all tests of this layer: it counts exactly, and nothing else asks it meanwhile."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dynatick_stack.counting.counts import Engine, counting


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    with counting() as running:
        yield running

"""Fixtures of several actions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.unit.actions.support import Clock, Server, a_server


@pytest.fixture
def server() -> Iterator[Server]:
    with a_server() as running:
        yield running


@pytest.fixture
def clock() -> Clock:
    return Clock()

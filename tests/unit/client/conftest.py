"""A client of a table in memory, over which scheduler and processor run too."""

from __future__ import annotations

import pytest
from tests.builders import InProcess

from dynatick import TaskClient


@pytest.fixture
def world() -> InProcess:
    """After its first tick."""
    world = InProcess()
    world.tick()
    return world


@pytest.fixture
def client(world: InProcess) -> TaskClient:
    return TaskClient(world.store, clock=world.clock)

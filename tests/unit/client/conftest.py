"""A client of a table in memory, over which scheduler and processor run too."""

from __future__ import annotations

import pytest
from tests.unit.client.support import client_of, world_of
from tests.unit.engine.support import World

from dynatick import TaskClient


@pytest.fixture
def world() -> World:
    """An installation after its first tick."""
    return world_of()


@pytest.fixture
def client(world: World) -> TaskClient:
    return client_of(world)

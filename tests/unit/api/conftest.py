"""An API of each test's own."""

from __future__ import annotations

import pytest
from tests.unit.api.support import Caller


@pytest.fixture
def caller() -> Caller:
    made = Caller()
    made.publish_settings()
    return made

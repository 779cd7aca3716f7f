"""Pages over an installation in memory, at a fixed time."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from tests.unit.ui.support import Browser

from dynatick.testing.virtual_installation import VirtualInstallation

NOON = datetime(2026, 12, 31, 12, 0, tzinfo=UTC)


@pytest.fixture
def installation() -> VirtualInstallation:
    return VirtualInstallation(None, start=NOON)


@pytest.fixture
def browser(installation: VirtualInstallation) -> Browser:
    return Browser(installation)

"""The two functions on moto."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from moto import mock_aws
from tests.integration.deployed import Deployed, deploy


@pytest.fixture
def deployed(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Deployed]:
    with mock_aws():
        yield deploy(monkeypatch, request.node.name, batched=False)  # moto has no conditional PartiQL

"""What holds for every unit test."""

import random
import secrets
import uuid

import pytest


@pytest.fixture(autouse=True)
def same_ids(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets each test meet the same ids of its own in every run: lists are ordered by them, and shards drawn."""
    draws = random.Random(request.node.nodeid)
    monkeypatch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=draws.getrandbits(128), version=4))
    monkeypatch.setattr(secrets, "token_hex", lambda number: draws.randbytes(number).hex())

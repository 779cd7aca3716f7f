"""Pages over an installation in memory, at a fixed time."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from tests.builders import NOON
from tests.unit.ui.support import Browser

from dynatick import PermanentError
from dynatick.testing.virtual_installation import VirtualInstallation


@pytest.fixture
def installation() -> VirtualInstallation:
    return VirtualInstallation(None, start=NOON)


@pytest.fixture
def browser(installation: VirtualInstallation) -> Browser:
    return Browser(installation)


@pytest.fixture
def busy(installation: VirtualInstallation) -> VirtualInstallation:
    """An installation at 13:00: ended tasks of each kind, one to come at 14:00, and a schedule each five minutes."""

    def work(payload: Any) -> object:
        if "data" in payload:
            raise PermanentError(f"no such mailbox: {payload['data']}")
        return {"sent": True}

    client = installation.client
    installation.answer("webhook", work)
    hook = {"url": "https://example.com/hook"}
    for n in range(4):
        client.insert(f"mail-{n}", due_at=NOON + timedelta(minutes=10), action="webhook", payload=hook)
    for n in range(3):
        client.insert(
            f"bad-{n}", due_at=NOON + timedelta(minutes=20 + n), action="webhook",
            payload={**hook, "data": f"user-{n}@example.com"},
        )  # fmt: skip
    client.insert("other", due_at=NOON + timedelta(minutes=30), action="log", payload={"message": "hello"})
    installation.fail("log", with_=PermanentError("the disk is full"))
    client.insert("called-off", due_at=NOON + timedelta(minutes=40))
    client.cancel("called-off")
    client.schedules.insert(
        "often", "rate(5 minutes)", action="webhook", payload=hook, start_date=NOON + timedelta(minutes=35)
    )
    client.schedules.insert("daily", "cron(30 2 * * ? *)", timezone="Europe/Berlin", action="log")
    installation.advance(hours=1)
    client.insert("to-come", due_at=NOON + timedelta(hours=2), action="log", payload={"message": "later"})
    return installation

"""The pages over an installation in memory, asked as a browser asks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx2
from starlette.testclient import TestClient

from dynatick.testing.virtual_installation import VirtualInstallation
from dynatick.ui.application import application
from dynatick.ui.site import Site

HOST = "127.0.0.1:4580"


@dataclass
class Browser:
    """Pages of an installation. ``read_only``: as with ``--read-only``."""

    installation: VirtualInstallation
    read_only: bool = False
    site: Site = field(init=False)
    http: TestClient = field(init=False)

    def __post_init__(self) -> None:
        self.site = Site(
            client=self.installation.client,
            clock=lambda: self.installation.now,
            name="reminders",
            read_only=self.read_only,
        )
        self.http = TestClient(application(self.site), base_url=f"http://{HOST}", follow_redirects=False)

    def get(self, url: str, *, headers: Mapping[str, str] | None = None) -> httpx2.Response:
        return self.http.get(url, headers=headers)

    def post(self, url: str, *, headers: Mapping[str, str] | None = None, **form: Any) -> httpx2.Response:
        """With the token, unless ``token`` is another."""
        return self.http.post(url, data={"token": self.site.token, **form}, headers=headers)

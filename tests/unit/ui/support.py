"""The pages over an installation in memory, asked as a browser asks."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

import httpx2
from starlette.testclient import TestClient

from dynatick.testing.virtual_installation import VirtualInstallation
from dynatick.ui.application import application
from dynatick.ui.site import Site

HOST = "127.0.0.1:4580"


@dataclass
class Browser:
    """Pages of an installation. ``read_only``: as with ``--read-only``. ``kept_seconds``: as of a site."""

    installation: VirtualInstallation
    read_only: bool = False
    kept_seconds: float = 0
    site: Site = field(init=False)
    http: TestClient = field(init=False)

    def __post_init__(self) -> None:
        self.site = Site(
            client=self.installation.client, clock=lambda: self.installation.now, name="reminders",
            read_only=self.read_only, kept_seconds=self.kept_seconds,
        )  # fmt: skip
        self.http = TestClient(application(self.site), base_url=f"http://{HOST}", follow_redirects=False)

    def get(self, url: str, *, headers: Mapping[str, str] | None = None) -> httpx2.Response:
        return self.http.get(url, headers=headers)

    def post(self, url: str, *, headers: Mapping[str, str] | None = None, **form: Any) -> httpx2.Response:
        """Posts with the site's token, unless ``token`` is given."""
        return self.http.post(url, data={"token": self.site.token, **form}, headers=headers)

    def follow(self, answer: httpx2.Response) -> httpx2.Response:
        """The page that a change leads to, once its job, if it has one, is over."""
        assert answer.status_code == 303, answer.text
        while 'data-testid="job" data-state="running"' in (page := self.get(answer.headers["location"])).text:
            time.sleep(0.05)  # wait: between two looks at the condition
        return page


@dataclass
class Element:
    """An element with a testid."""

    testid: str
    attributes: Mapping[str, str | None]
    text: str = ""


class _Elements(HTMLParser):
    _VOID = frozenset({"meta", "link", "input", "img", "br"})

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[Element] = []
        self.tags: list[str] = []
        self._open: list[Element | None] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.handle_data(" ")
        attributes = dict(attrs)
        element = None
        if (testid := attributes.get("data-testid")) is not None:
            element = Element(testid, attributes)
            self.found.append(element)
        if tag not in self._VOID:
            self._open.append(element)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self._VOID:
            self._open.pop()
            self.handle_data(" ")

    def handle_data(self, data: str) -> None:
        for element in self._open:
            if element is not None:
                element.text += data


def elements(page: httpx2.Response, testid: str) -> list[Element]:
    """The elements of a page with a testid, in order. Fails for a page whose tags don't close."""
    parser = _Elements()
    parser.feed(page.text)
    assert not parser._open, f"not closed: {parser._open}"
    for element in parser.found:
        element.text = " ".join(element.text.split())
    return [element for element in parser.found if element.testid == testid]


def text_of(page: httpx2.Response, testid: str) -> str:
    """The text of the one element with a testid."""
    found = elements(page, testid)
    assert len(found) == 1, f"{len(found)} elements {testid}: {page.text[:2000]}"
    return found[0].text


def tags(page: httpx2.Response) -> list[str]:
    """The tags that a browser would make of a page."""
    parser = _Elements()
    parser.feed(page.text)
    return parser.tags

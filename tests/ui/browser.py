"""Debian's Chromium, driven by Playwright, with a log of what each page did."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Playwright, expect

# Without its window it needs three quarters of the time.
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
INSTALL = (
    "There is no Chromium here, so the pages can't be tested: install it (Debian: chromium-headless-shell), "
    "or name the program in DYNATICK_CHROMIUM."
)
# It is started as root in containers, and shall send nothing of its own.
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--force-color-profile=srgb", "--font-render-hinting=none",
)  # fmt: skip
DESKTOP = (1280, 800)
PHONE = (360, 740)

# Playwright's own five seconds are less than a page may take on a busy machine.
expect.set_options(timeout=60_000)

# Parts of a page that it loads by itself and that are not there yet.
TO_COME = '[hx-trigger^="load"] .wait, [hx-trigger^="load"][hx-swap="outerHTML"]'

_COUNT_CLICKS = """
addEventListener('pointerdown', event => { if (event.isTrusted) noteClick() }, true);
addEventListener('securitypolicyviolation', event => noteViolation(`${event.violatedDirective}: ${event.blockedURI}`));
"""


class NoBrowser(Exception):
    """No browser was found; the message says what to install."""


def program() -> str:
    """The browser's program. Raises NoBrowser."""
    named = os.environ.get("DYNATICK_CHROMIUM")
    found = shutil.which(named) if named else next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        raise NoBrowser(INSTALL)
    return found


@contextmanager
def browser(playwright: Playwright, *flags: str) -> Iterator[Browser]:
    """A browser with an empty profile. Raises NoBrowser."""
    running = playwright.chromium.launch(executable_path=program(), headless=True, args=[*FLAGS, *flags])
    try:
        yield running
    finally:
        running.close()


@dataclass(slots=True)
class Log:
    """The requests, errors and messages of a context's pages since it was cleared."""

    requests: list[str] = field(default_factory=list)
    loaded_bytes: int = 0  # as they came over the wire, headers included; without polls for the next tick
    errors: list[str] = field(default_factory=list)  # of the console, and exceptions
    violations: list[str] = field(default_factory=list)  # of the Content-Security-Policy
    clicks: int = 0

    def clear(self) -> None:
        self.requests.clear()
        self.loaded_bytes = self.clicks = 0


class Person:
    """A tab, and the log of it."""

    def __init__(self, url: str, context: BrowserContext) -> None:
        self.url, self.context, self.log = url, context, Log()
        self._polls: set[str] = set()  # ids of the polls for the next tick of a page that takes long to load
        context.expose_binding("noteClick", lambda source: self._note_click())
        context.expose_binding("noteViolation", lambda source, what: self.log.violations.append(what))
        context.add_init_script(_COUNT_CLICKS)
        self.page: Page = context.new_page()
        self.page.on("request", lambda request: self.log.requests.append(request.url))
        self.page.on("console", self._note_console)
        self.page.on("pageerror", lambda error: self.log.errors.append(str(error)))
        network = context.new_cdp_session(self.page)
        network.on("Network.requestWillBeSent", self._note_sent)
        network.on("Network.loadingFinished", self._note_loaded)
        network.send("Network.enable")

    def _note_click(self) -> None:
        self.log.clicks += 1

    def _note_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.log.errors.append(f"{message.type}: {message.text} ({message.location.get('url')})")

    def _note_sent(self, event: dict[str, Any]) -> None:
        if "/live?tick=" in event["request"]["url"]:
            self._polls.add(event["requestId"])

    def _note_loaded(self, event: dict[str, Any]) -> None:
        if event["requestId"] not in self._polls:
            self.log.loaded_bytes += int(event["encodedDataLength"])

    def open(self, path: str = "/") -> Page:
        """Opens a page as from a bookmark, and waits until it has all that it loads by itself."""
        self.page.goto(self.url + path)
        self.settle()
        return self.page

    def settle(self) -> None:
        """Waits until the page is at rest. A busy machine may be idle for half a second before a part is asked for."""
        expect(self.page.locator(TO_COME)).to_have_count(0)
        self.page.wait_for_load_state("networkidle")

    def by(self, test_id: str) -> Any:
        return self.page.get_by_test_id(test_id)

    def problems(self) -> list[str]:
        """Returns what no page may do."""
        own = urlsplit(self.url).netloc
        requests = [(url, urlsplit(url)) for url in self.log.requests]
        return [
            *self.log.errors,
            *(f"violates its policy: {what}" for what in self.log.violations),
            *(f"loads from elsewhere: {url}" for url, to in requests if to.scheme != "data" and to.netloc != own),
        ]


def open_tab(
    running: Browser, url: str, *, size: tuple[int, int] = DESKTOP, scheme: str = "light", **options: Any
) -> Person:
    """A new tab with an empty profile. ``scheme``: light or dark. ``options``: of Playwright's context."""
    context = running.new_context(
        viewport={"width": size[0], "height": size[1]},
        color_scheme="dark" if scheme == "dark" else "light",
        locale="en-GB",
        timezone_id="America/New_York",  # pages show UTC, wherever the browser is
        reduced_motion="reduce",
        **options,
    )
    return Person(url, context)

"""Other sites can neither read the pages nor change anything through them, whatever a browser lets them try.

What the server refuses from any sender is tested without a browser: tests/unit/ui.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Playwright, expect
from tests.ui import browser
from tests.ui.addresses import task
from tests.ui.conftest import OpenTab
from tests.ui.serving import Served, run

TASK = "table-1"
CANCEL = f"/tasks/{TASK}/cancel"


def test_a_name_that_leads_to_this_machine_does_not_open_the_pages(playwright: Playwright, small: Served) -> None:
    port = urlsplit(small.url).port
    with browser.browser(playwright, "--host-resolver-rules=MAP rebound.example 127.0.0.1") as running:
        page = running.new_page()
        answer = page.goto(f"http://rebound.example:{port}/")
        assert answer is not None
        assert answer.status == 421
        assert "reminders" not in page.content()


@pytest.fixture
def evil(own: Served) -> Iterator[str]:
    """Another site, whose page tries what it can."""
    page = f"""<!doctype html><title>Kittens</title>
        <form method=post action="{own.url}{CANCEL}"><button id=post>Kittens</button></form>
        <iframe src="{own.url}/"></iframe><script src="{own.url}{task(TASK)}/row"></script>
        <script>
          window.read = 'nothing';
          fetch('{own.url}/').then(answer => answer.text()).then(text => window.read = text).catch(() => 0);
          fetch('{own.url}{CANCEL}', {{method: 'POST', mode: 'no-cors', body: 'token='}}).catch(() => 0);
        </script>"""

    async def application(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/html")]})
            await send({"type": "http.response.body", "body": page.encode()})

    with run(application) as url:
        yield url.replace("127.0.0.1", "localhost")


def test_another_site_can_neither_read_nor_frame_nor_change(own: Served, evil: str, chromium: Browser) -> None:
    context = chromium.new_context()
    page = context.new_page()
    page.goto(evil)
    page.wait_for_load_state("networkidle")
    assert page.evaluate("window.read") == "nothing"
    assert all("reminders" not in frame.content() for frame in page.frames)
    page.click("#post")
    expect(page.locator("body")).to_contain_text("other origins")
    assert own.client.get(TASK).status == "scheduled"
    context.close()


def test_a_link_from_another_site_may_open_a_page(own: Served, evil: str, open_tab: OpenTab) -> None:
    person = open_tab(own)
    person.page.goto(evil.replace("localhost", "127.0.0.1"))
    person.log.violations.clear()
    person.log.errors.clear()
    person.page.evaluate(f"location.href = '{own.url}{task(TASK)}'")
    expect(person.by("task")).to_contain_text(TASK)
    person.log.requests.clear()
    person.log.errors.clear()

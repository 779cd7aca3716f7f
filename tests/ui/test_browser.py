"""The instruments of these tests notice what they are there for."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser
from tests.ui import browser
from tests.ui.accessibility import violations
from tests.ui.browser import Person
from tests.ui.serving import run

from dynatick_stack.template import ROOT

BAD = """<!doctype html><html lang="en"><title>Bad</title><link rel="stylesheet" href="/grey.css">
<link rel="stylesheet" href="http://127.0.0.1:9/elsewhere.css"><main><h1>Bad</h1><p>Hardly to be read</p>
<button type="button">Press</button></main><script src="/raise.js"></script>
<script>window.hacked = true</script></html>"""
FILES = {
    "/": ("text/html", BAD),
    "/grey.css": ("text/css", "p { color: #ccc }" + "/* padding */" * 1000),
    "/raise.js": ("text/javascript", "throw new Error('as planned')"),
}


@pytest.fixture
def bad(chromium: Browser) -> Iterator[Person]:
    """A tab with a page that does all that ours may not."""

    async def application(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            kind, text = FILES.get(scope["path"], ("text/plain", ""))
            headers = [(b"content-type", kind.encode()), (b"content-security-policy", b"script-src 'self'")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": text.encode()})

    with run(application) as url:
        person = browser.open_tab(chromium, url)
        person.open()
        yield person
        person.context.close()


def test_the_log_has_what_a_page_may_not_do(bad: Person) -> None:
    problems = "\n".join(bad.problems())
    assert "loads from elsewhere: http://127.0.0.1:9/elsewhere.css" in problems
    assert "violates its policy: script-src-elem: inline" in problems
    assert "as planned" in problems
    assert bad.page.evaluate("window.hacked") is None


def test_the_log_counts_bytes_and_clicks(bad: Person) -> None:
    assert len(BAD) + 13_000 < bad.log.loaded_bytes < len(BAD) + 15_000
    assert bad.log.clicks == 0
    bad.page.get_by_role("button").click()
    bad.page.get_by_role("button").focus()
    bad.page.keyboard.press("Enter")
    assert bad.log.clicks == 1  # of the mouse


def test_axe_finds_what_can_hardly_be_read(bad: Person) -> None:
    assert [found.partition(":")[0] for found in violations(bad.page)] == ["color-contrast"]


def test_without_a_browser_the_tests_fail_and_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DYNATICK_CHROMIUM", "/nowhere/chromium")
    with pytest.raises(browser.NoBrowser, match="apt-get install chromium"):
        browser.program()
    command = [sys.executable, "-m", "pytest", "-q", f"{__file__}::test_axe_finds_what_can_hardly_be_read"]
    done = subprocess.run(command, cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert browser.INSTALL in done.stdout
    assert "1 error" in done.stdout
    assert "skipped" not in done.stdout

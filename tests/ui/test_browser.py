"""The log of a tab and axe notice what they are for."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Browser
from tests.ui import browser
from tests.ui.accessibility import violations
from tests.ui.serving import run

BAD = """<!doctype html><html lang="en"><title>Bad</title><link rel="stylesheet" href="/grey.css">
<link rel="stylesheet" href="http://127.0.0.1:9/elsewhere.css"><main><h1>Bad</h1><p>Hardly to be read</p>
<button type="button">Press</button></main><script src="/raise.js"></script>
<script>window.hacked = true</script></html>"""
FILES = {
    "/": ("text/html", BAD),
    "/grey.css": ("text/css", "p { color: #ccc }" + "/* padding */" * 1000),
    "/raise.js": ("text/javascript", "throw new Error('as planned')"),
}


async def bad(scope: Any, receive: Any, send: Any) -> None:
    """Serves a page that does all that ours may not."""
    if scope["type"] == "http":
        kind, text = FILES.get(scope["path"], ("text/plain", ""))
        headers = [(b"content-type", kind.encode()), (b"content-security-policy", b"script-src 'self'")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": text.encode()})


def test_what_a_page_may_not_do_is_noticed(chromium: Browser) -> None:
    with run(bad) as url:
        person = browser.open_tab(chromium, url)
        page = person.open()
        problems = "\n".join(person.problems())
        assert "loads from elsewhere: http://127.0.0.1:9/elsewhere.css" in problems
        assert "violates its policy: script-src-elem: inline" in problems
        assert "as planned" in problems
        assert page.evaluate("window.hacked") is None
        assert len(BAD) + 13_000 < person.log.loaded_bytes < len(BAD) + 15_000
        assert [found.partition(":")[0] for found in violations(page)] == ["color-contrast"]
        page.get_by_role("button").click()
        page.get_by_role("button").focus()
        page.keyboard.press("Enter")
        assert person.log.clicks == 1  # of the mouse
        person.context.close()

"""`make screenshots` writes the same pictures each time."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Browser
from tests.ui.screenshots import SHOWN, steps_between, write
from tests.ui.serving import Served

MAX_BYTES = 150_000


def test_a_second_run_leaves_the_pictures_as_they_are(tmp_path: Path, small: Served, chromium: Browser) -> None:
    first = {path: path.read_bytes() for path in write(tmp_path, small, chromium)}
    assert len(first) == 2 * len(SHOWN)
    assert {path: path.read_bytes() for path in write(tmp_path, small, chromium)} == first
    for path, picture in first.items():
        assert len(picture) <= MAX_BYTES, path.name
    for name in SHOWN:
        light, dark = (first[tmp_path / f"dashboard-{name}-{scheme}.png"] for scheme in ("light", "dark"))
        assert light != dark


def test_a_difference_that_a_person_sees_is_found(chromium: Browser) -> None:
    page = chromium.new_page()
    page.set_content("<p>One</p>")
    one = page.screenshot()
    page.set_content("<p>Two</p>")
    assert steps_between(page, one, page.screenshot()) > 100
    assert steps_between(page, one, one) == 0
    page.close()

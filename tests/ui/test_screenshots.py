"""`make screenshots` writes the same pictures each time, of a seed that is the same each time."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Browser
from tests.ui import seed
from tests.ui.screenshots import MAX_PIXELS, SHOWN, pixels_between, write
from tests.ui.serving import Served

MAX_BYTES = 150_000


def test_a_seed_is_the_same_each_time_and_has_a_task_in_each_state() -> None:
    made = (seed.small(), seed.small.__wrapped__())  # by a client that inserts in several threads
    one, other = (sorted(one.rows, key=lambda row: str(row["taskId"])) for one in made)
    assert one == other
    statuses = {str(row.get("status")) for row in one}
    assert {"completed", "failed", "cancelled", "scheduled", "running", "recurring", "tick"} <= statuses


def test_a_second_run_leaves_the_pictures_as_they_are(tmp_path: Path, small: Served, chromium: Browser) -> None:
    first = {path: path.read_bytes() for path in write(tmp_path, small, chromium)}
    assert len(first) == 2 * len(SHOWN)
    assert {path: path.read_bytes() for path in write(tmp_path, small, chromium)} == first
    page = chromium.new_page()
    for name in SHOWN:
        light, dark = (first[tmp_path / f"dashboard-{name}-{scheme}.png"] for scheme in ("light", "dark"))
        assert max(len(light), len(dark)) <= MAX_BYTES, name
        assert pixels_between(page, light, dark) > 100_000
        assert pixels_between(page, light, light) == 0
    page.close()


def test_a_dot_of_another_colour_is_a_change_and_a_smoothed_edge_is_none(chromium: Browser) -> None:
    """Two pixels of a dot by 18 steps are the most that a busy machine has shown; its dots are six pixels wide."""

    def picture(inner: str, edge: str) -> bytes:
        page.set_content(
            f"<body style='margin: 0; background: white'>"
            f"<div style='width: 6px; height: 6px; background: {inner}'></div>"
            f"<div style='width: 1px; height: 2px; background: {edge}'></div>"
        )
        return page.screenshot()

    page = chromium.new_page(viewport={"width": 100, "height": 100})
    before = picture("rgb(0, 0, 255)", "rgb(211, 70, 70)")
    assert pixels_between(page, before, picture("rgb(0, 0, 255)", "rgb(207, 52, 52)")) == 2 <= MAX_PIXELS
    assert pixels_between(page, before, picture("rgb(0, 0, 250)", "rgb(211, 70, 70)")) == 36 > MAX_PIXELS
    page.close()

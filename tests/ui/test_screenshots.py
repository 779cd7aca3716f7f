"""`make screenshots` writes the same pictures each time, of a seed that is the same each time."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Browser
from tests.ui import seed
from tests.ui.screenshots import SHOWN, steps_between, write
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
        assert steps_between(page, light, dark) > 100
        assert steps_between(page, light, light) == 0
    page.close()

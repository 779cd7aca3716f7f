"""Writes the pictures of the pages that docs/ shows, light and dark: `make screenshots`.

They show the small installation of the tests on its fixed day, so a second run writes the same pictures.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright
from tests.conftest import FAKE_AWS
from tests.ui import browser, seed
from tests.ui.addresses import ADDRESSES
from tests.ui.serving import served

from dynatick_stack.counting.counts import counting
from dynatick_stack.template import ROOT

FOLDER = ROOT / "docs" / "images"
SHOWN = {
    "now": "now",
    "timeline": "timeline",
    "failures": "failures",
    "redrive": "redrive",
    "task": "task-waiting",
    "schedule": "schedule-with-clock-change",
    "ticks": "ticks",
}
SIZE = (1120, 720)


def write(folder: Path) -> list[Path]:
    """Writes the pictures into a folder, and returns their paths. Raises AssertionError if a page has problems."""
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    with (
        counting() as engine,
        served(engine.url, seed.small()) as pages,
        sync_playwright() as playwright,
        browser.browser(playwright) as running,
    ):
        for scheme in ("light", "dark"):
            person = browser.open_tab(running, pages.url, size=SIZE, scheme=scheme)
            for name, page in SHOWN.items():
                person.open(ADDRESSES[page])
                path = folder / f"dashboard-{name}-{scheme}.png"
                person.page.screenshot(path=path, animations="disabled", caret="hide", full_page=False)
                written.append(path)
            assert person.problems() == []
            person.context.close()
    return written


def main() -> int:
    os.environ.update(FAKE_AWS)
    try:
        written = write(FOLDER)
    except browser.NoBrowser as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.writelines(f"{path.relative_to(ROOT)}  {path.stat().st_size / 1000:.0f} kB\n" for path in written)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Writes the pictures of the pages that docs/ shows, light and dark: `make screenshots`.

They show an installation like the small one of the tests, on its fixed day. Chromium smooths an edge now and then
otherwise: many pixels by one of 255 steps, and on a busy machine two of a small dot by 18. A picture in which no more
than a few pixels differ by more than two steps is left as it is.
"""

from __future__ import annotations

import os
import sys
from base64 import b64encode
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright
from tests.conftest import FAKE_AWS
from tests.ui import browser, seed
from tests.ui.addresses import ADDRESSES
from tests.ui.serving import Served, served

from dynatick_stack.counting.counts import counting
from dynatick_stack.template import ROOT

FOLDER = ROOT / "docs" / "images"
SHOWN = {name: name for name in ("now", "timeline", "failures", "redrive", "ticks")}
SHOWN |= {"task": "task-waiting", "schedule": "schedule-with-clock-change"}
SIZE = (1120, 720)
MAX_STEPS = 2  # of a pixel's colour, of 255
MAX_PIXELS = 12  # a dot of the timeline has more, a letter too

_DIFFERENCE = """async ([steps, ...pictures]) => {
    const [one, other] = await Promise.all(pictures.map(async picture => {
        const image = new Image();
        image.src = 'data:image/png;base64,' + picture;
        await image.decode();
        const canvas = new OffscreenCanvas(image.width, image.height), drawn = canvas.getContext('2d');
        drawn.drawImage(image, 0, 0);
        return drawn.getImageData(0, 0, image.width, image.height).data;
    }));
    const pixels = new Set();
    if (one.length !== other.length) return Math.max(one.length, other.length) / 4;
    one.forEach((value, place) => { if (Math.abs(value - other[place]) > steps) pixels.add(place >> 2); });
    return pixels.size;
}"""


def pixels_between(page: Page, one: bytes, other: bytes) -> int:
    """How many pixels differ by more than ``MAX_STEPS`` in two PNGs; all, if their sizes differ. ``page``: any."""
    return int(page.evaluate(_DIFFERENCE, [MAX_STEPS, b64encode(one).decode(), b64encode(other).decode()]))


def write(folder: Path, pages: Served, running: Browser) -> list[Path]:
    """Writes the pictures that have changed into a folder, and returns the paths of all.

    Raises AssertionError if a page has problems.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    blank = running.new_page()
    for scheme in ("light", "dark"):
        person = browser.open_tab(running, pages.url, size=SIZE, scheme=scheme)
        for name, page in SHOWN.items():
            person.open(ADDRESSES[page])
            person.page.evaluate("document.getElementById('updated').style.visibility = 'hidden'")  # it counts seconds
            path = folder / f"dashboard-{name}-{scheme}.png"
            taken = person.page.screenshot(animations="disabled", caret="hide")
            if not path.exists() or pixels_between(blank, path.read_bytes(), taken) > MAX_PIXELS:
                path.write_bytes(taken)
            written.append(path)
        assert person.problems() == []
        person.context.close()
    blank.close()
    return written


def main() -> int:
    os.environ.update(FAKE_AWS)
    try:
        with (
            counting() as engine,
            served(engine.url, seed.pictured()) as pages,
            sync_playwright() as playwright,
            browser.browser(playwright) as running,
        ):
            written = write(FOLDER, pages, running)
    except browser.NoBrowser as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.writelines(f"{path.relative_to(ROOT)}  {path.stat().st_size / 1000:.0f} kB\n" for path in written)
    return 0


if __name__ == "__main__":
    sys.exit(main())

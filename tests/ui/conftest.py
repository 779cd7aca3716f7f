"""The browser, and the installations that its pages show. `make test-ui` runs these tests; `make test` does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, Playwright, sync_playwright
from tests.ui import browser, seed
from tests.ui.browser import Person
from tests.ui.seed import Seed
from tests.ui.serving import Served, served

from dynatick_stack.counting.counts import Engine, counting

OpenTab = Callable[..., Person]


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    with counting() as running:
        yield running


@pytest.fixture(scope="session")
def playwright() -> Iterator[Playwright]:
    """Fails where there is no browser: these tests never pass by being skipped."""
    try:
        browser.program()
    except browser.NoBrowser as error:
        pytest.fail(str(error), pytrace=False)
    with sync_playwright() as running:
        yield running


@pytest.fixture(scope="session")
def chromium(playwright: Playwright) -> Iterator[Browser]:
    with browser.browser(playwright) as running:
        yield running


def _pages(make: Callable[[], Seed], scope: Literal["session", "function"] = "session") -> Any:
    """A fixture: the pages of a seed."""

    @pytest.fixture(scope=scope)
    def pages(engine: Engine) -> Iterator[Served]:
        with served(engine.url, make()) as found:
            yield found

    return pages


small = _pages(seed.small)  # one of everything, for tests that change nothing
own = _pages(seed.small, "function")  # the same, for one test that changes something
empty = _pages(seed.empty)
undeployed = _pages(lambda: Seed([]))  # a table in which nothing has ever been written: no tick has come yet
large = _pages(lambda: seed.large(20_000))


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Gives the tests with many tasks to one process: making the tasks takes a while."""
    for item in items:
        if "large" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("large"))


@pytest.fixture
def open_tab(chromium: Browser) -> Iterator[OpenTab]:
    """Opens tabs, each with an empty profile. After the test: none has had an error in its console, violated its
    policy, or loaded anything from elsewhere."""
    tabs: list[Person] = []

    def make(pages: Served, path: str | None = None, **options: Any) -> Person:
        tabs.append(browser.open_tab(chromium, pages.url, **options))
        if path is not None:
            tabs[-1].open(path)
        return tabs[-1]

    yield make
    found = [problem for tab in tabs for problem in tab.problems()]
    for tab in tabs:
        tab.context.close()
    assert found == []

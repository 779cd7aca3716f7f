"""The browser, and the installations that its pages show. `make test-ui` runs these tests; `make test` does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Playwright, sync_playwright
from tests.ui import browser, seed
from tests.ui.browser import Person
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


@pytest.fixture(scope="session")
def small(engine: Engine) -> Iterator[Served]:
    """One of everything. For tests that change nothing."""
    with served(engine.url, seed.small()) as pages:
        yield pages


@pytest.fixture
def own(engine: Engine) -> Iterator[Served]:
    """The same, for one test that changes something."""
    with served(engine.url, seed.small()) as pages:
        yield pages


@pytest.fixture(scope="session")
def empty(engine: Engine) -> Iterator[Served]:
    with served(engine.url, seed.empty()) as pages:
        yield pages


@pytest.fixture(scope="session")
def undeployed(engine: Engine) -> Iterator[Served]:
    with served(engine.url, seed.undeployed()) as pages:
        yield pages


@pytest.fixture(scope="session")
def large(engine: Engine) -> Iterator[Served]:
    with served(engine.url, seed.large(20_000)) as pages:
        yield pages


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of several processes one has the many tasks: making them takes a while."""
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

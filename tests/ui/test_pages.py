"""What holds for each page, whatever it shows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import pytest
from playwright.sync_api import Browser, expect
from tests.ui import browser, seed
from tests.ui.accessibility import violations
from tests.ui.addresses import ADDRESSES, EMPTY, MISSING, task
from tests.ui.browser import DESKTOP, PHONE, Person
from tests.ui.conftest import OpenTab
from tests.ui.serving import Served

MAX_BYTES = 100_000
Scheme = Literal["light", "dark"]
SCHEMES: tuple[Scheme, ...] = ("light", "dark")
each_scheme = pytest.mark.parametrize("scheme", SCHEMES)

_OVERFLOW = """() => {
    const width = document.documentElement.clientWidth;
    const scrolls = node => {
        for (; node && node !== document.body; node = node.parentElement)
            if (/auto|scroll|hidden|clip/.test(getComputedStyle(node).overflowX)) return true;
        return false;
    };
    return document.documentElement.scrollWidth <= width ? [] : [...document.querySelectorAll('body *')]
        .filter(node => node.getBoundingClientRect().right > width + 1 && !scrolls(node.parentElement))
        .map(node => node.outerHTML.slice(0, 120));
}"""


@dataclass(frozen=True, slots=True)
class Visit:
    """A page that has been opened once, for all the tests that look at it."""

    person: Person
    loaded_bytes: int


@pytest.fixture(scope="module", params=ADDRESSES.values(), ids=ADDRESSES)
def visit(request: pytest.FixtureRequest, small: Served, chromium: Browser) -> Iterator[Visit]:
    person = browser.open_tab(chromium, small.url)
    person.open(request.param)
    yield Visit(person, person.log.loaded_bytes)
    person.context.close()


def test_nothing_comes_from_elsewhere_and_at_most_100_kb(visit: Visit) -> None:
    assert visit.person.problems() == []
    assert 0 < visit.loaded_bytes <= MAX_BYTES, visit.person.log.requests


@each_scheme
def test_axe_finds_no_violation(visit: Visit, scheme: Scheme) -> None:
    visit.person.page.emulate_media(color_scheme=scheme)
    assert violations(visit.person.page) == []


def test_nothing_is_wider_than_a_phone(visit: Visit) -> None:
    page = visit.person.page
    page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
    try:
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE[0], page.evaluate(_OVERFLOW)
    finally:
        page.set_viewport_size({"width": DESKTOP[0], "height": DESKTOP[1]})


def test_a_page_has_a_title_one_main_heading_and_a_language(visit: Visit) -> None:
    page = visit.person.page
    assert "reminders" in page.title()
    expect(page.locator("h1")).to_have_count(1)
    expect(page.locator("main")).to_have_count(1)
    expect(page.locator("html")).to_have_attribute("lang", "en")


def test_an_address_shows_the_same_again(visit: Visit) -> None:
    person = visit.person
    before = person.page.locator("main").inner_text()
    assert before.strip()
    person.page.reload()
    person.settle()
    assert person.page.locator("main").inner_text() == before


@pytest.mark.parametrize("address", EMPTY.values(), ids=EMPTY)
def test_a_page_without_tasks_is_as_good(empty: Served, open_tab: OpenTab, address: str) -> None:
    person = open_tab(empty, address)
    assert person.page.locator("main").inner_text().strip()
    for scheme in SCHEMES:
        person.page.emulate_media(color_scheme=scheme)
        assert violations(person.page) == [], scheme


@pytest.mark.parametrize("address", EMPTY.values(), ids=EMPTY)
def test_every_page_opens_before_the_first_tick(undeployed: Served, open_tab: OpenTab, address: str) -> None:
    person = open_tab(undeployed, address)
    expect(person.by("state")).to_have_attribute("data-state", "none")
    assert violations(person.page) == []


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_page_follows_the_scheme_of_the_system_until_another_is_chosen(
    small: Served, open_tab: OpenTab, scheme: str
) -> None:
    person = open_tab(small, "/", scheme=scheme)

    def is_dark() -> bool:
        colour = str(person.page.evaluate("getComputedStyle(document.body).backgroundColor"))
        numbers = [float(number) for number in re.findall(r"[\d.]+", colour)][:3]
        return sum(numbers) / 3 < (128 if max(numbers) > 1 else 0.5)

    assert is_dark() is (scheme == "dark")
    person.by("theme").click()
    chosen = is_dark()
    assert chosen is (scheme != "dark")
    person.open("/ticks")
    assert is_dark() is chosen


@pytest.mark.parametrize("address", MISSING.values(), ids=MISSING)
def test_what_is_not_there_is_said_in_a_page(small: Served, open_tab: OpenTab, address: str) -> None:
    person = open_tab(small)
    answer = person.page.goto(small.url + address)
    assert answer is not None
    assert answer.status == 404
    expect(person.page.locator("main")).to_contain_text(re.compile("no such|there is no|not found", re.IGNORECASE))
    assert violations(person.page) == []
    person.log.errors.clear()  # the browser's own line on the status


def test_html_in_ids_payloads_and_errors_is_shown_as_text(small: Served, open_tab: OpenTab) -> None:
    person = open_tab(small, task(seed.HOSTILE_ID))
    expect(person.by("task")).to_contain_text(seed.HOSTILE_ID)
    expect(person.by("error").first).to_contain_text(seed.SCRIPT)
    expect(person.by("payload")).to_contain_text(f"</pre>{seed.SCRIPT}")
    for address in (*ADDRESSES.values(), task("<script>window.hacked = true</script>")):
        person.open(address)
        assert person.page.evaluate("window.hacked") is None, address
        assert person.page.locator("main script, main img[onerror], main b:text-is('bold')").count() == 0, address
    person.log.errors.clear()  # of the task that is not there

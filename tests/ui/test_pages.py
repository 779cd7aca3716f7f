"""Requirements that each page meets, whatever it shows."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect
from tests.ui import seed
from tests.ui.accessibility import tab_through, violations
from tests.ui.addresses import ADDRESSES, EMPTY, MISSING, task
from tests.ui.browser import PHONE
from tests.ui.conftest import OpenTab
from tests.ui.serving import Served

MAX_BYTES = 100_000
SCHEMES = ("light", "dark")
COLOURS = "color-contrast"  # what a scheme can change


@pytest.mark.parametrize("address", ADDRESSES.values(), ids=ADDRESSES)
def test_a_page_is_small_safe_accessible_and_the_same_again(small: Served, open_tab: OpenTab, address: str) -> None:
    person = open_tab(small, address)
    page = person.page
    assert 0 < person.log.loaded_bytes <= MAX_BYTES, person.log.requests
    assert "reminders" in page.title()
    expect(page.locator("h1")).to_have_count(1)
    expect(page.locator("main")).to_have_count(1)
    expect(page.locator("html")).to_have_attribute("lang", "en")
    assert page.evaluate("window.hacked") is None
    assert page.locator("main script, main img[onerror], main b:text-is('bold')").count() == 0
    assert violations(page) == []
    page.emulate_media(color_scheme="dark")
    assert violations(page, COLOURS) == [], "dark"
    tab_through(page)
    before = page.locator("main").inner_text()
    assert before.strip()
    page.reload()
    person.settle()
    assert page.locator("main").inner_text() == before
    page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
    assert violations(page) == [], "on a phone"


@pytest.mark.parametrize(("installation", "state"), [("empty", "running"), ("undeployed", "none")])
@pytest.mark.parametrize("address", EMPTY.values(), ids=EMPTY)
def test_a_page_without_tasks_or_before_the_first_tick_is_as_good(
    request: pytest.FixtureRequest, open_tab: OpenTab, address: str, installation: str, state: str
) -> None:
    person = open_tab(request.getfixturevalue(installation), address)
    expect(person.by("state")).to_have_attribute("data-state", state)
    assert person.page.locator("main").inner_text().strip()
    assert violations(person.page) == []
    person.page.emulate_media(color_scheme="dark")
    assert violations(person.page, COLOURS) == [], "dark"


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
    person.open(task("<script>window.hacked = true</script>"))
    assert person.page.evaluate("window.hacked") is None
    assert person.page.locator("main script").count() == 0
    person.log.errors.clear()  # of the task that is not there

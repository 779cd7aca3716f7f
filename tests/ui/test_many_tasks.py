"""Pages of an installation with many tasks: they stay small, and come quickly."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect
from tests.ui import seed
from tests.ui.accessibility import violations
from tests.ui.addresses import EMPTY, NOON, bucket
from tests.ui.browser import PHONE, TO_COME
from tests.ui.conftest import OpenTab
from tests.ui.serving import Served, served
from tests.ui.test_pages import MAX_BYTES

from dynatick_stack.counting.counts import counting

TASKS = 100_000
READ_MILLISECONDS = 50
FIRST_SECONDS, SECONDS_A_DAY = 1.0, 3.0
PAGES = {**EMPTY, "bucket": bucket(NOON), "bucket-failed": bucket("2027-03-24#02:00", status="failed")}
A_DAY = {"day": "/timeline?span=day&from=2027-03-23T10:00Z"}
DAYS = {"now": 2, "timeline": 2}  # that a page shows, of those that show more than one


@pytest.mark.parametrize("address", PAGES.values(), ids=PAGES)
def test_a_page_of_many_tasks_loads_at_most_100_kb_and_fits_a_phone(
    large: Served, open_tab: OpenTab, address: str
) -> None:
    person = open_tab(large, address)
    assert person.log.loaded_bytes <= MAX_BYTES, person.log.loaded_bytes
    assert violations(person.page) == []
    person.page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
    assert person.page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
    assert violations(person.page) == [], "on a phone"


def test_the_tasks_of_a_full_bucket_come_page_by_page(large: Served, open_tab: OpenTab) -> None:
    person = open_tab(large, bucket(NOON))
    seen: set[str] = set()
    for _ in range(3):
        page = {str(row.get_attribute("data-id")) for row in person.by("task-row").all()}
        assert page
        assert not page & seen
        seen |= page
        person.by("next-page").click()
        person.settle()


def test_failures_that_differ_in_a_number_only_are_one_group(large: Served, open_tab: OpenTab) -> None:
    person = open_tab(large, "/failures?last=24h")
    expect(person.by("failure-group").first).to_be_visible()
    assert person.by("failure-group").count() <= 100


# -- far away ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def far_away() -> Iterator[Served]:
    """Pages over a table that takes 50 ms for each read."""
    with counting(read_milliseconds=READ_MILLISECONDS) as engine, served(engine.url, seed.large(TASKS)) as pages:
        yield pages


@pytest.mark.long
def test_the_first_answer_comes_within_a_second_and_a_day_within_three(
    far_away: Served, open_tab: OpenTab, capsys: pytest.CaptureFixture[str]
) -> None:
    figures: dict[str, tuple[float, float]] = {}
    open_tab(far_away, "/ticks")  # the first page of a process imports the SDK
    for name, address in {**PAGES, **A_DAY}.items():
        person = open_tab(far_away)
        began = time.perf_counter()
        person.page.goto(far_away.url + address, wait_until="commit")
        expect(person.page.locator("h1")).to_be_attached()
        first = time.perf_counter() - began
        expect(person.page.locator(TO_COME)).to_have_count(0)
        figures[name] = first, time.perf_counter() - began
        person.page.close()  # an open page goes on reading
    with capsys.disabled():
        print(f"\n{TASKS:,} tasks, {READ_MILLISECONDS} ms a read; seconds to the first answer and to the whole:")  # noqa: T201
        for name, (first, whole) in figures.items():
            print(f"  {name:<18} {first:8.2f} {whole:8.2f}")  # noqa: T201
    for name, (first, whole) in figures.items():
        assert first <= FIRST_SECONDS, name
        assert whole <= SECONDS_A_DAY * DAYS.get(name, 1), name

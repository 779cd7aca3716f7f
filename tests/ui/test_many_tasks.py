"""Pages of an installation with many tasks: they stay small, and come quickly."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect
from tests.ui import seed
from tests.ui.accessibility import violations
from tests.ui.addresses import EMPTY, NOON, bucket
from tests.ui.browser import PHONE
from tests.ui.conftest import OpenTab
from tests.ui.serving import Served, served
from tests.ui.test_pages import MAX_BYTES

from dynatick_stack import emulator

TASKS = 100_000
FIRST_SECONDS, WHOLE_SECONDS = 1.0, 10.0
PAGES = {**EMPTY, "bucket": bucket(NOON), "bucket-failed": bucket("2027-03-24#02:00", status="failed")}


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


# -- on the local stack's database -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def on_the_emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    state: Path = tmp_path_factory.mktemp("emulator")
    running = emulator.start(0, state_dir=state, say=lambda text: None)
    try:
        with served(running.endpoint, seed.large(TASKS)) as pages:
            yield pages
    finally:
        emulator.stop(state_dir=state)


@pytest.mark.long
def test_now_and_the_first_hour_come_within_a_second_and_the_rest_within_ten(
    on_the_emulator: Served, open_tab: OpenTab, capsys: pytest.CaptureFixture[str]
) -> None:
    figures: dict[str, float] = {}
    open_tab(on_the_emulator, "/ticks")  # the first page of a process imports the SDK
    for name, first in {**dict.fromkeys(EMPTY), "now": "lateness", "timeline": "hour"}.items():
        person = open_tab(on_the_emulator)
        began = time.perf_counter()
        person.page.goto(on_the_emulator.url + EMPTY[name], wait_until="commit")
        if first is not None:
            expect(person.by(first).first).to_be_visible()
            if name == "timeline":
                person.page.locator("[data-testid=hour][data-loaded]").first.wait_for(state="attached", timeout=60_000)
            figures[f"{name}, first"] = time.perf_counter() - began
            loading = person.page.locator("[data-testid=hour]:not([data-loaded]), [hx-trigger~=load]:empty")
            expect(loading).to_have_count(0)
        person.settle()
        figures[f"{name}, whole"] = time.perf_counter() - began
    with capsys.disabled():
        print(f"\n{TASKS:,} tasks on the local stack, seconds:")  # noqa: T201
        for name, figure in figures.items():
            print(f"  {name:<18} {figure:8.2f}")  # noqa: T201
    for name, figure in figures.items():
        assert figure <= (FIRST_SECONDS if name.endswith("first") else WHOLE_SECONDS), name

"""Each view and each filter has an address: a colleague who gets it sees the same, and the way back leads back."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from playwright.sync_api import expect
from tests.ui import seed
from tests.ui.addresses import NOON, bucket
from tests.ui.browser import Person
from tests.ui.clock import NOW
from tests.ui.conftest import OpenTab
from tests.ui.serving import Served


def ids(person: Person) -> list[str]:
    return [str(row.get_attribute("data-id")) for row in person.by("task-row").all()]


def test_filters_of_a_bucket_are_in_its_address(small: Served, open_tab: OpenTab) -> None:
    person = open_tab(small, bucket(NOON))
    everything = ids(person)
    assert "table-0" in everything
    person.by("prefix-filter").fill("table-")
    person.by("apply").click()
    expect(person.by("task-row")).to_have_count(3)
    assert "prefix=table-" in person.page.url
    expect(open_tab(small, person.page.url.removeprefix(small.url)).by("task-row")).to_have_count(3)
    person.page.go_back()
    person.settle()
    assert ids(person) == everything
    person.page.go_forward()
    expect(person.by("task-row")).to_have_count(3)


def test_the_timeline_goes_to_an_hour_a_day_and_a_week_and_on(small: Served, open_tab: OpenTab) -> None:
    person = open_tab(small, "/timeline")
    seen = {person.page.url}
    for step in ("span-hour", "later", "earlier", "earlier", "span-day", "span-week"):
        person.by(step).click()
        person.settle()
        seen.add(person.page.url)
        again = open_tab(small, person.page.url.removeprefix(small.url))
        assert again.page.locator("main").inner_text() == person.page.locator("main").inner_text(), step
    assert len(seen) >= 5


def test_a_group_of_failures_opens_to_show_one_of_them(small: Served, open_tab: OpenTab) -> None:
    group = open_tab(small, "/failures?last=24h").by("failure-group").filter(has_text="no such mailbox")
    expect(group).to_have_attribute("data-count", str(seed.NO_MAILBOX))
    expect(group).to_contain_text(re.compile("send-reminder.*02:00.*02:55", re.DOTALL))
    group.locator("summary").click()
    expect(group.get_by_test_id("failure-sample")).to_contain_text("nowhere.invalid")
    expect(group.get_by_test_id("failure-sample")).to_contain_text("in send_reminder")


@pytest.mark.parametrize("path", ["/", "/timeline"])
def test_a_page_that_stays_open_shows_what_has_changed(own: Served, open_tab: OpenTab, path: str) -> None:
    person = open_tab(own, path)
    expect(person.by("last-tick")).to_be_attached()
    before = person.by("last-tick").inner_text()
    own.installation.tick(NOW.replace(second=0) + timedelta(minutes=1))
    expect(person.by("last-tick")).not_to_have_text(before)


def test_a_wide_screen_is_used(small: Served, open_tab: OpenTab) -> None:
    person = open_tab(small, "/", size=(2200, 1200))
    wide = person.by("minutes").bounding_box()
    assert wide and wide["width"] > 2100
    person.page.set_viewport_size({"width": 1500, "height": 900})
    narrow = person.by("minutes").bounding_box()
    assert narrow and narrow["width"] <= 1240

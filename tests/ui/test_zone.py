"""A person chooses the zone of all times in the header, and a colleague who gets the address sees the same."""

from __future__ import annotations

from playwright.sync_api import expect
from tests.ui.accessibility import violations
from tests.ui.addresses import NOON, bucket, task
from tests.ui.conftest import OpenTab
from tests.ui.serving import Served

HERE = "America/New_York"  # the browser's, four hours behind UTC on the day of the pages
BERLIN = "tz=Europe/Berlin"


def test_the_browsers_zone_is_chosen_in_the_header_and_kept_until_utc_is(small: Served, open_tab: OpenTab) -> None:
    person = open_tab(small, "/")
    axis = person.by("minutes").locator(".axis span")
    expect(axis.first).to_have_text("08:12")
    expect(person.by("zone-local")).to_have_text(HERE)
    person.by("zone-local").click()
    expect(person.by("zone-chosen")).to_have_text(HERE)
    expect(person.by("zone-local")).to_be_hidden()
    expect(axis.first).to_have_text("04:12")
    bar = person.by("minutes").locator("a[href^='/buckets/2027-03-24T09:1']").first
    expect(bar).to_have_attribute("aria-label", "05:10: 1 failed attempt")
    bar.focus()
    expect(person.by("tip")).to_contain_text("05:10: 1 failed attempt")
    assert violations(person.page) == []
    for section in ("timeline", "failures", "tasks", "ticks", "schedules"):
        person.by(f"nav-{section}").click()
        person.settle()
        expect(person.by("zone-chosen")).to_have_text(HERE)
    expect(person.page.locator("footer")).to_contain_text(f"Times are those of {HERE}.")

    again = open_tab(small, person.page.url.removeprefix(small.url))  # as a colleague gets it
    assert again.page.locator("main").inner_text() == person.page.locator("main").inner_text()
    person.by("search-input").fill("table-0")
    person.page.keyboard.press("Enter")
    expect(person.by("zone-chosen")).to_have_text(HERE)
    person.by("zone-utc").click()
    expect(person.by("zone-chosen")).to_have_count(0)
    person.by("nav-now").click()
    expect(axis.first).to_have_text("08:12")


def test_a_page_that_stays_open_keeps_its_zone(own: Served, open_tab: OpenTab) -> None:
    person = open_tab(own, f"/timeline?{BERLIN}")
    rows = person.page.locator("[data-testid=hour][data-loaded] .at")
    first = rows.first.inner_text()
    assert first == "10:00", "the present hour in Berlin"
    person.page.evaluate("htmx.trigger(document.body, 'tick')")
    person.settle()
    assert rows.first.inner_text() == first


def test_a_task_is_moved_to_a_local_time_and_never_to_one_that_comes_twice(own: Served, open_tab: OpenTab) -> None:
    person = open_tab(own, f"{task('table-2')}?{BERLIN}")
    person.by("reschedule").click()
    expect(person.page.locator("details[open] label")).to_contain_text("New time, Europe/Berlin")
    expect(person.by("due-at")).to_have_value("2027-03-24T13:00")
    person.by("due-at").fill("2027-10-31T02:30")
    person.by("confirm-reschedule").click()
    expect(person.by("problem")).to_contain_text("enter 00:30 or 01:30 in UTC")
    assert own.client.get("table-2").bucket == NOON
    person.by("reschedule").click()
    person.by("due-at").fill("2027-03-24T16:30")
    person.by("confirm-reschedule").click()
    expect(person.by("notice")).to_have_text("Rescheduled: it is due at 16:30.")
    assert own.client.get("table-2").bucket == "2027-03-24#15:30"


def test_filters_are_entered_in_the_zone(small: Served, open_tab: OpenTab) -> None:
    person = open_tab(small, f"/tasks?prefix=table-&{BERLIN}")
    for name, value in (("from", "2027-03-24T12:59"), ("to", "2027-03-24T13:01")):
        person.page.locator(f"input[name={name}]").fill(value)
    person.by("apply").click()
    expect(person.by("task-row")).to_have_count(3)
    expect(person.by("zone-chosen")).to_have_text("Europe/Berlin")
    person.open(f"{bucket(NOON)}?{BERLIN}")
    expect(person.page.locator("h1")).to_contain_text("13:00")

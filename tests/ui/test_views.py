"""Each view and each filter is an address: a colleague who gets it sees the same, and the way back leads back."""

from __future__ import annotations

from datetime import timedelta

import pytest
from playwright.sync_api import expect
from tests.ui import seed
from tests.ui.addresses import NIGHT, NOON, bucket, schedule
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


def test_a_filter_by_status_lists_those_alone(small: Served, open_tab: OpenTab) -> None:
    person = open_tab(small, bucket(NIGHT))
    person.by("status-filter").select_option("failed")
    person.by("apply").click()
    person.settle()
    assert ids(person) == ["invoice-mail-01"]
    assert "status=failed" in person.page.url


def test_a_filter_that_nothing_matches_says_so(small: Served, open_tab: OpenTab) -> None:
    person = open_tab(small, bucket(NOON, prefix="no-such-"))
    expect(person.by("none")).to_be_visible()
    expect(person.by("task-row")).to_have_count(0)


def test_the_timeline_shows_how_the_tasks_of_a_minute_ended(small: Served, open_tab: OpenTab) -> None:
    person = open_tab(small, "/timeline")
    bar = person.page.locator("[data-testid=bar][href='/buckets/2027-03-24T02:05Z']")
    expect(bar).to_be_attached(timeout=10_000)
    expect(bar).to_contain_text("02:05")
    expect(bar).to_contain_text("failed")
    person.open("/timeline?span=hour&from=2027-03-24T02:00Z")
    expect(person.by("counts")).to_contain_text("Failed")
    expect(person.by("counts")).to_contain_text("02:05")
    assert person.page.locator("[data-testid=bar][href='/buckets/2027-03-24T03:40Z']").count() == 0  # no tick, no task


def test_the_timeline_goes_to_an_hour_a_day_and_a_week_and_on(small: Served, open_tab: OpenTab) -> None:
    person = open_tab(small, "/timeline")
    seen = {person.page.url}
    for step in ("span-hour", "later", "earlier", "earlier", "span-day", "span-week"):
        person.by(step).click()
        person.settle()
        seen.add(person.page.url)
        main = person.page.locator("main").inner_text()
        again = open_tab(small, person.page.url.removeprefix(small.url))
        assert again.page.locator("main").inner_text() == main, step
    assert len(seen) >= 5


def test_the_failures_are_grouped_with_their_first_and_last_time(small: Served, open_tab: OpenTab) -> None:
    person = open_tab(small, "/failures?last=24h")
    group = person.by("failure-group").filter(has_text="no such mailbox")
    expect(group).to_have_count(1)
    expect(group).to_have_attribute("data-count", str(seed.NO_MAILBOX))
    expect(group).to_contain_text("send-reminder")
    expect(group).to_contain_text("02:00")
    expect(group).to_contain_text("02:55")
    group.locator("summary").click()
    expect(group.get_by_test_id("failure-sample")).to_contain_text("nowhere.invalid")
    expect(group.get_by_test_id("failure-sample")).to_contain_text("in send_reminder")


def test_a_week_of_failures_is_another_address(small: Served, open_tab: OpenTab) -> None:
    person = open_tab(small, "/failures?last=1h")
    expect(person.by("failure-group")).to_have_count(0)
    expect(person.by("none")).to_be_visible()


def test_a_task_shows_its_life(small: Served, open_tab: OpenTab) -> None:
    person = open_tab(small, "/tasks/charge-order-4001")
    expect(person.by("attempt")).to_have_count(2)
    expect(person.by("attempts")).to_contain_text("the bank answered 503")
    expect(person.by("payload")).to_contain_text('"4001"')
    assert person.by("event").count() >= 3


def test_a_schedule_shows_its_runs_those_it_missed_and_the_next(small: Served, open_tab: OpenTab) -> None:
    person = open_tab(small, schedule("probe"))
    assert person.by("occurrence").count() >= 10
    expect(person.by("missed")).to_contain_text("outage")
    expect(person.by("preview")).to_contain_text("09:13")


def test_the_preview_says_what_the_clocks_change_does(small: Served, open_tab: OpenTab) -> None:
    person = open_tab(small, schedule("backup"))
    expect(person.by("clock-change").first).to_be_visible()
    expect(person.by("preview")).to_contain_text("28")


def test_schedules_are_listed_and_open(small: Served, open_tab: OpenTab) -> None:
    person = open_tab(small, "/schedules")
    names = {"standup", seed.LUNCH, "hourly-report", "probe", "backup", "digest"}
    assert {str(row.get_attribute("data-id")) for row in person.by("schedule-row").all()} == names
    digest = person.page.locator("[data-testid=schedule-row][data-id=digest]")
    expect(digest).to_contain_text("paused")
    digest.get_by_test_id("schedule-link").click()
    expect(person.by("schedule")).to_contain_text("until the new design is there")


def test_ticks_show_the_gap_and_the_late_ones(small: Served, open_tab: OpenTab) -> None:
    person = open_tab(small, "/ticks?last=12h")
    gap = person.by("gap")
    expect(gap).to_have_count(1)
    expect(gap).to_contain_text("03:35")
    expect(gap).to_contain_text("03:46")
    expect(person.by("lateness-chart")).to_be_visible()
    expect(person.by("duration-chart")).to_be_visible()


def test_now_shows_the_state_of_the_installation(small: Served, open_tab: OpenTab) -> None:
    person = open_tab(small, "/")
    expect(person.by("state")).to_have_attribute("data-state", "running")
    expect(person.by("due-now")).to_contain_text("1")
    failed = seed.NO_MAILBOX + seed.BANK_DOWN + 3
    expect(person.by("failed-24h")).to_contain_text(str(failed))
    expect(person.by("failures")).to_contain_text("no such mailbox")
    expect(person.by("next")).to_contain_text("probe")


def test_missing_ticks_are_the_first_thing_that_is_said(own: Served, open_tab: OpenTab) -> None:
    own.installation.clock.to(NOW + timedelta(minutes=10))
    person = open_tab(own, "/")
    expect(person.by("state")).to_have_attribute("data-state", "late")


@pytest.mark.parametrize("path", ["/", "/timeline"])
def test_a_page_that_stays_open_shows_what_has_changed(own: Served, open_tab: OpenTab, path: str) -> None:
    person = open_tab(own, path)
    expect(person.by("last-tick")).to_be_attached()
    before = person.by("last-tick").inner_text()
    own.installation.tick(NOW.replace(second=0) + timedelta(minutes=1))
    expect(person.by("last-tick")).not_to_have_text(before, timeout=40_000)

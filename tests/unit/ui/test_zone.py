"""Times in the zone that the URL names: shown, entered, and kept by all that a page leads to."""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.builders import NOON
from tests.unit.ui.support import Browser, elements, text_of
from tests.unit.ui.test_pages import PAGES

from dynatick.errors import InvalidInput
from dynatick.testing.virtual_installation import VirtualInstallation
from dynatick.ui.chart import Bar
from dynatick.ui.display import clock, field, instant, precise
from dynatick.ui.query import instant as asked_instant
from dynatick.ui.zone import days_later, hour_of, in_zone, midnight_of, of_local, parameters, zone

BERLIN = "Europe/Berlin"
FIRST, SECOND = (datetime(2027, 10, 31, hour, 30, tzinfo=UTC) for hour in (0, 1))  # both are 02:30 in Berlin


def test_without_a_choice_times_are_utc_and_links_have_nothing_more() -> None:
    for name in (None, "", "utc", "UTC"):
        with zone(name):
            assert (clock(NOON, NOON), instant(NOON), parameters()) == ("12:00", "2026-12-31 12:00:00", {})


def test_a_time_is_shown_in_the_zone_with_its_day_there() -> None:
    late = datetime(2026, 12, 31, 23, 30, tzinfo=UTC)
    with zone(BERLIN):
        assert (clock(NOON, NOON), instant(NOON)) == ("13:00", "2026-12-31 13:00:00")
        assert (clock(late, NOON), precise(late, NOON)) == ("01 Jan 00:30", "01 Jan 00:30:00.000")
        assert Bar(start=NOON, minutes=1, counts={"failed": 1}).name == "13:00: 1 failed"
        assert Bar(start=NOON, minutes=1, counts={}).url == "/buckets/2026-12-31T12:00Z", "URLs are in UTC"
        assert in_zone("It is due at 2026-12-31T12:00:00Z.") == "It is due at 2026-12-31 13:00:00 Europe/Berlin."
        assert in_zone("the id a#2026-12-31T12:00Z stays") == "the id a#2026-12-31T12:00Z stays"


def test_a_time_that_comes_twice_says_its_offset() -> None:
    with zone(BERLIN):
        assert [clock(one, FIRST) for one in (FIRST, SECOND)] == ["02:30 +02:00", "02:30 +01:00"]
        assert instant(SECOND) == "2027-10-31 02:30:00 +01:00"
        assert in_zone("at 2027-10-31T01:30:00Z") == "at 2027-10-31 02:30:00 +01:00"
        assert clock(FIRST - timedelta(hours=1), FIRST) == "01:30", "others do not"


def test_a_time_that_is_entered_is_of_the_zone() -> None:
    with zone(BERLIN):
        assert of_local("2026-12-31T13:00", "due_at") == NOON
        assert of_local("2027-07-01T13:00:05", "due_at") == datetime(2027, 7, 1, 11, 0, 5, tzinfo=UTC)
        assert asked_instant({"from": "2026-12-31T13:00"}, "from") == NOON
        assert asked_instant({"from": "2026-12-31T13:00Z"}, "from") == NOON + timedelta(hours=1), "as it says"
    assert of_local("2026-12-31T13:00", "due_at") == NOON + timedelta(hours=1), "UTC"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("2027-03-28T02:30", "clocks go forward and skip it, between 01:30 and 03:30"),
        ("2027-10-31T02:30", "with the offsets +02:00 and +01:00; enter 00:30 or 01:30 in UTC"),
        ("2027-02-30T02:30", "due_at"),
    ],
)
def test_a_time_that_does_not_exist_or_comes_twice_is_refused_with_the_reason(text: str, says: str) -> None:
    with zone(BERLIN), pytest.raises(InvalidInput, match=re.escape(says)):
        of_local(text, "due_at")


@pytest.mark.parametrize("shown", [FIRST, SECOND])
def test_a_time_that_comes_twice_stays_as_it_was_if_nobody_changed_it(shown: datetime) -> None:
    form = {"due_at_shown": f"{shown:%Y-%m-%dT%H:%M:%SZ}"}
    with zone(BERLIN):
        assert asked_instant({"due_at": field(shown), **form}, "due_at") == shown
        assert asked_instant({"due_at": field(shown)[:-3], **form}, "due_at") == shown, "as a browser may write it"
        assert asked_instant({"due_at": "2027-10-31T04:00", **form}, "due_at") == datetime(2027, 10, 31, 3, tzinfo=UTC)
        with pytest.raises(InvalidInput):
            asked_instant({"due_at": "2027-10-31T02:31", **form}, "due_at")
        with pytest.raises(InvalidInput):  # 02:30:45 was changed to 02:30:00, which a browser writes so
            asked_instant({"due_at": "2027-10-31T02:30", "due_at_shown": f"{shown:%Y-%m-%dT%H:%M:45Z}"}, "due_at")


def test_days_and_hours_are_those_of_the_zone() -> None:
    with zone(BERLIN):
        long, short = (midnight_of(datetime(2027, *day, 12, tzinfo=UTC)) for day in ((10, 31), (3, 28)))
        assert [days_later(day, 1) - day for day in (long, short)] == [timedelta(hours=25), timedelta(hours=23)]
        assert days_later(NOON, 1) - NOON == timedelta(days=1)
    with zone("Asia/Kolkata"):
        assert hour_of(datetime(2026, 12, 31, 12, 10, 5, 7, tzinfo=UTC)) == datetime(2026, 12, 31, 11, 30, tzinfo=UTC)


@pytest.mark.parametrize(("day", "hours"), [("2027-10-31", 25), ("2027-03-28", 23), ("2027-06-01", 24)])
def test_a_day_has_each_of_its_hours_once(browser: Browser, day: str, hours: int) -> None:
    page = browser.get(f"/timeline?span=day&from={day}T00:00&tz={BERLIN}")
    with zone(BERLIN):
        start = of_local(f"{day}T00:00", "from")
    shown = [one.attributes["data-hour"] for one in elements(page, "hour")]
    assert shown == [f"{start + timedelta(hours=n):%Y-%m-%dT%H:%MZ}" for n in range(hours)]
    later = parse_qs(urlsplit(str(elements(page, "later")[0].attributes["href"])).query)
    assert later["from"] == [f"{start + timedelta(hours=hours):%Y-%m-%dT%H:%MZ}"]
    names = [one.text.split()[0] for one in elements(page, "hour")]
    assert names.count("02:00") == {25: 2, 23: 0, 24: 1}[hours]
    if hours == 25:
        assert "02:00 +02:00" in page.text and "02:00 +01:00" in page.text


@pytest.mark.parametrize("url", [*PAGES, "/tasks/bad-0", "/tasks/to-come", "/schedules/often", "/tasks/none"])
def test_all_that_a_page_leads_to_and_loads_is_in_its_zone(
    busy: VirtualInstallation, browser: Browser, url: str
) -> None:
    page = browser.get(f"{url}{'&' if '?' in url else '?'}tz={BERLIN}")
    assert page.status_code == (404 if url.endswith("none") else 200)
    urls = [html.unescape(one) for one in re.findall(r'\s(?:href|hx-get|action)="(/[^"]*)"', page.text)]
    assert urls or url.startswith("/actions/rows")
    for one in urls:
        zones = parse_qs(urlsplit(one).query).get("tz")
        assert zones == (["utc"] if one.endswith("tz=utc") else None if one.startswith("/static/") else [BERLIN]), one
    for form in re.findall(r"<form (?![^>]*method=)[^>]*>.*?</form>", page.text, re.DOTALL):
        assert f'<input type="hidden" name="tz" value="{BERLIN}">' in form, "its own address loses what it had"


def test_a_page_is_in_the_zone_of_its_address(busy: VirtualInstallation, browser: Browser) -> None:
    def get(url: str) -> str:
        page = browser.get(url)
        assert page.status_code == 200
        return " ".join(re.sub(r"<[^>]+>", " ", page.text).split())

    assert "Thursday, 31 December 2026, 13:10 2026-12-31#12:10" in get(f"/buckets/2026-12-31T12:10Z?tz={BERLIN}")
    form = browser.get(f"/tasks/to-come?tz={BERLIN}").text
    task = get(f"/tasks/to-come?tz={BERLIN}")
    assert "2026-12-31 15:00:00 Europe/Berlin" in task and "New time, Europe/Berlin" in task
    assert "Times are those of Europe/Berlin." in task
    assert 'name="due_at" required value="2026-12-31T15:00:00"' in form
    assert "New time, UTC" in get("/tasks/to-come") and "Times are UTC." in get("/tasks/to-come")
    hour = browser.get(f"/timeline/hour?from=2026-12-31T12:00Z&tz={BERLIN}")
    assert elements(hour, "bar")[0].text == "13:10: 4 completed"
    week = browser.get(f"/timeline?span=week&tz={BERLIN}")
    assert [one.attributes["data-hour"] for one in elements(week, "day")][3] == "2026-12-30T23:00Z"
    failures = browser.get(f"/failures/groups?tz={BERLIN}")
    assert "13:20" in elements(failures, "failure-group")[0].text


def test_a_task_is_moved_to_the_local_time_that_was_entered(busy: VirtualInstallation, browser: Browser) -> None:
    url = f"/tasks/to-come/reschedule?tz={BERLIN}"
    answer = browser.post(url, due_at="2026-12-31T15:30")
    assert f"tz={BERLIN.replace('/', '%2F')}" in answer.headers["location"]
    assert text_of(browser.follow(answer), "notice") == "Rescheduled: it is due at 15:30."
    assert busy.client.get("to-come").due_at == NOON + timedelta(hours=2, minutes=30)
    refused = browser.follow(browser.post(url, due_at="2027-03-28T02:30"))
    assert "Nothing was changed" in text_of(refused, "problem") and "skip it" in text_of(refused, "problem")
    assert busy.client.get("to-come").due_at == NOON + timedelta(hours=2, minutes=30)


@pytest.mark.parametrize("url", ["/", "/live", "/tasks", "/none"])
def test_an_unknown_zone_is_refused_with_a_sentence(browser: Browser, url: str) -> None:
    page = browser.get(f"{url}?tz=Europe/Berlim")
    assert page.status_code == 400
    assert "tz" in text_of(page, "problem") and "Europe/Berlin" in text_of(page, "problem")
    assert browser.post("/pause?tz=Mars", reason="x").status_code == 400
    assert browser.site.client.operations.health().pause is None

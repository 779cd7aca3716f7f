"""A page that follows each tick reads no more than can have changed: the farther an hour is away, the less often."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.builders import NOON
from tests.unit.ui.support import Browser, elements

from dynatick.client.operations import ListedPage, Operations
from dynatick.testing.virtual_installation import VirtualInstallation
from dynatick.ui.kept import KeptHours, kept_for
from dynatick.ui.site import Site

HOUR = timedelta(hours=1)
BY_TICK = {"HX-Request": "true", "Dynatick-Follows": "tick"}


@pytest.mark.parametrize(
    ("hours_away", "is_open", "minutes"),
    [
        (0, False, 0), (0, True, 0),  # the present hour: each tick
        (1, True, 1), (5, False, 5), (24, True, 24), (72, False, 30),  # to come: tasks may be inserted at any time
        (-1, True, 1), (-5, True, 5),  # over, and something of it is due still
        (-1, False, 30), (-24, False, 30), (-300, True, 30),
    ],
)  # fmt: skip
def test_an_hour_is_shown_the_longer_the_farther_it_is_away(hours_away: int, is_open: bool, minutes: int) -> None:
    for into_the_hour in (0, 59):
        now = NOON + timedelta(minutes=into_the_hour)
        assert kept_for(NOON + hours_away * HOUR, now, is_open=is_open) == timedelta(minutes=minutes)


def test_an_hour_that_was_read_is_kept_until_its_time_is_over_or_something_was_changed() -> None:
    kept = KeptHours[int](is_open=lambda value: False)
    reads: list[int] = []

    def get(minutes: int, *, anew: bool = False) -> int:
        def read() -> int:
            reads.append(minutes)
            return minutes

        return kept.get(NOON - 2 * HOUR, NOON + timedelta(minutes=minutes), read, anew=anew)

    assert [get(0), get(29), get(30), get(31)] == [0, 0, 30, 30]
    assert [get(32, anew=True), get(33)] == [32, 32], "a person who loads the page sees what is there"
    kept.clear()
    assert get(34) == 34


class Recorder:
    """Notes which ranges of buckets are read."""

    def __init__(self, site: Site, patch: pytest.MonkeyPatch) -> None:
        self.hours: list[datetime] = []
        self._pages = site.client.operations.listed_pages
        patch.setattr(Operations, "listed_pages", lambda _, **given: self._listed_pages(**given))

    def _listed_pages(self, *, start: datetime, end: datetime, **more: Any) -> Iterator[ListedPage]:
        assert end - start == HOUR
        self.hours.append(start)
        return self._pages(start=start, end=end)

    def away(self, now: datetime) -> list[int]:
        """The hours that were read since, by how far they are from the present one."""
        found, self.hours = sorted((hour - now.replace(minute=0)) // HOUR for hour in self.hours), []
        return found


@pytest.fixture
def followed(busy: VirtualInstallation) -> Browser:
    """Pages that keep what they read, as those of a person do."""
    return Browser(busy, kept_seconds=10)


@pytest.mark.parametrize(
    ("part", "hours"),
    [
        ("/failures/groups?last=24h", range(-24, 1)),
        ("/timeline/day?from=2026-12-31T00:00Z", range(-13, 11)),
        ("/timeline/strip?from=2026-12-31T12:00Z&to=2026-12-31T18:00Z", range(-1, 5)),
    ],
)
def test_a_tick_reads_the_hours_that_it_may_have_changed(
    busy: VirtualInstallation, followed: Browser, monkeypatch: pytest.MonkeyPatch, part: str, hours: range
) -> None:
    reads = Recorder(followed.site, monkeypatch)

    def tick(minutes: int) -> list[int]:
        busy.advance(minutes=minutes)
        followed.site.readings.forget_recent()
        assert followed.get(part, headers=BY_TICK).status_code == 200
        return reads.away(busy.now)

    assert followed.get(part).status_code == 200
    assert reads.away(busy.now) == list(hours)
    assert tick(1) == [hour for hour in hours if hour in (0, 1)]
    assert tick(1) == [hour for hour in hours if hour in (0, 1, 2)]
    assert tick(27) == [hour for hour in hours if hour >= 0]
    assert tick(1) == [hour for hour in hours if hour < 2], "what is over and has ended: after half an hour"


def test_what_is_still_due_in_an_hour_that_is_over_is_read_again(
    installation: VirtualInstallation, monkeypatch: pytest.MonkeyPatch
) -> None:
    installation.client.operations.pause()
    installation.client.insert("late", due_at=NOON + timedelta(minutes=10), action="log", payload={"message": "x"})
    installation.advance(minutes=125)
    browser = Browser(installation, kept_seconds=10)
    reads = Recorder(browser.site, monkeypatch)
    part = "/timeline/hour?from=2026-12-31T12:00Z&and=2026-12-31T13:00Z"
    for minutes, read_again in ((0, [-2, -1]), (1, []), (1, [-2]), (2, [-2])):
        installation.advance(minutes=minutes)
        browser.site.readings.forget_recent()
        assert browser.get(part, headers=BY_TICK).status_code == 200
        assert reads.away(installation.now) == read_again, minutes


def test_a_person_who_loads_a_page_and_whoever_changed_something_sees_what_is_there(
    busy: VirtualInstallation, followed: Browser
) -> None:
    part = "/failures/groups?last=24h"
    counts = ["3", "1"]
    assert [one.attributes["data-count"] for one in elements(followed.get(part), "failure-group")] == counts
    busy.advance(hours=2)
    followed.site.readings.forget_recent()
    assert elements(followed.get(part, headers=BY_TICK), "failure-group")
    busy.client.redrive("other")  # in a terminal
    followed.site.readings.forget_recent()
    assert len(elements(followed.get(part, headers=BY_TICK), "failure-group")) == 2, "its hour is over"
    assert [one.attributes["data-count"] for one in elements(followed.get(part), "failure-group")] == ["3"]
    followed.post("/tasks/bad-0/redrive")
    page = followed.get(part, headers=BY_TICK)
    assert [one.attributes["data-count"] for one in elements(page, "failure-group")] == ["2"], "changed by these pages"


@pytest.mark.parametrize(
    ("page", "part"),
    [
        ("/failures", "/failures?"),
        ("/failures/groups?last=24h", "/failures/groups?last=24h"),
        ("/failures/0123456789/details?last=24h", "/failures/0123456789/details?last=24h"),
        ("/timeline/day?from=2026-12-31T00:00Z", "/timeline/day?from=2026-12-31T00%3A00Z"),
        ("/timeline/hour?from=2026-12-31T20:00Z", "/timeline/hour?from=2026-12-31T20%3A00Z"),
        ("/changes", "/changes/rows"),
    ],
)
def test_a_part_asks_again_after_each_tick(busy: VirtualInstallation, browser: Browser, page: str, part: str) -> None:
    asked = re.findall(r'hx-get="([^"]+)" hx-trigger="[^"]*tick from:body', browser.get(page).text)
    assert part.removesuffix("?") in asked
    shown = browser.get(part.removesuffix("?"), headers=BY_TICK)
    assert part.removesuffix("?") in shown.text, "and so does what it gets"


def test_what_is_older_than_a_day_follows_no_tick(busy: VirtualInstallation, browser: Browser) -> None:
    for part in ("/timeline/day?from=2026-12-29T00:00Z", "/timeline/hour?from=2026-12-30T11:00Z"):
        assert "tick from:body" not in browser.get(part).text

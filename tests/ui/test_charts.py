"""Charts: linear, with failures in a row of their own, told by pattern, reached by keyboard, mouse and finger."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from functools import cache

import pytest
from playwright.sync_api import Locator, expect
from tests.ui import seed
from tests.ui.accessibility import violations
from tests.ui.browser import PHONE
from tests.ui.clock import NOW
from tests.ui.conftest import OpenTab
from tests.ui.installation import Installation
from tests.ui.seed import MINUTE, Seed
from tests.ui.serving import Served, served
from tests.ui.test_keyboard import tab_to

from dynatick import NewTask
from dynatick.ui.chart import Pace
from dynatick.ui.readings import Readings
from dynatick_stack.counting.counts import Engine

NINE = NOW.replace(minute=0, second=0)
TASKS = 400
FAILED = {NINE + MINUTE: 1, NINE + 2 * MINUTE: 40}  # of as many tasks each
RETRIED = NINE + 5 * MINUTE  # an attempt that fails, and succeeds once it is made again at 09:08
AGAIN = NINE + 18 * MINUTE  # when another is to be made again


def _burst(installation: Installation) -> None:
    tasks: list[NewTask] = []
    for at, failed in FAILED.items():
        for n in range(TASKS):
            tasks.append(
                seed._mail(f"mail-{at.minute}-{n:03}", at, "a@nowhere.invalid" if n < failed else "a@example.com")
            )
    again = {"maximumRetryAttempts": 3, "minBackoffSeconds": 120, "maxBackoffSeconds": 120}
    tasks.append(seed._charge(9001, RETRIED, 100, "09:06", **again))
    later = {"maximumRetryAttempts": 3, "minBackoffSeconds": 600, "maxBackoffSeconds": 600}
    tasks.append(seed._charge(9002, NINE + 10 * MINUTE, 100, "10:00", **later))
    assert installation.client.insert_many(tasks).inserted == len(tasks)


@cache
def burst() -> Seed:
    return seed._seed(timedelta(minutes=30), _burst)


@pytest.fixture(scope="module")
def two_bursts(engine: Engine) -> Iterator[Served]:
    with served(engine.url, burst()) as pages:
        yield pages


def heights(chart: Locator, of: str) -> list[float]:
    """The heights of what is drawn, in pixels: thick lines."""
    path = chart.locator(f"path{of}").first.get_attribute("d") or ""
    return [round(float(y) - float(top), 1) for y, top in re.findall(r"M\S+ ([\d.]+)V([\d.]+)", path)]


def test_one_failure_and_forty_among_four_hundred_differ_and_the_largest_numbers_are_printed(
    two_bursts: Served, open_tab: OpenTab
) -> None:
    person = open_tab(two_bursts, "/timeline?span=hour")
    chart = person.page.locator(".bars")
    assert heights(chart, ".failures") == [3, 24, 3, 3], "1, 40, and two attempts that are made again"
    assert heights(chart, ".failed") == [0.3, 12], "of 400 tasks, linearly"
    assert heights(chart, ".completed") == [119.7, 108, 2.5], "a single task is seen"
    assert person.by("scale").locator("text").all_text_contents() == ["400", "200", "0", "40"]
    table = person.by("counts").locator("tr")
    expect(table.first).to_contain_text("Failed attempts")
    expect(table.filter(has_text="09:02")).to_contain_text(re.compile(r"360\s*40\s*40"))


def test_an_attempt_that_failed_is_shown_though_its_task_completed_since(two_bursts: Served, open_tab: OpenTab) -> None:
    assert two_bursts.client.get("charge-order-9001").status == "completed"
    person = open_tab(two_bursts, "/timeline?span=hour")
    bars = {name[:5]: name for name in person.by("bar").evaluate_all("all => all.map(one => one.ariaLabel)")}
    assert bars["09:05"] == "09:05: 1 failed attempt"
    assert bars["09:02"] == "09:02: 360 completed, 40 failed"
    assert [name for name in bars.values() if "retrying" in name] == [f"{AGAIN:%H:%M}: 1 retrying"]


def test_charts_that_are_loaded_apart_have_one_scale(two_bursts: Served, open_tab: OpenTab) -> None:
    person = open_tab(two_bursts, "/timeline")
    scales = person.by("scale").evaluate_all("all => [...new Set(all.map(one => one.textContent))]")
    assert scales == ["400200040"], "in each of the 48 rows"
    nine = person.page.locator("[data-testid=hour][data-hour='2027-03-24T09:00Z']")
    assert heights(nine, ".failures") == [3, 10, 3, 3]
    assert heights(nine, ".retrying") == [2.5], "a single task is seen"
    eight = person.page.locator("[data-testid=hour][data-hour='2027-03-24T08:00Z']")
    assert heights(eight, ".failures") == []


@pytest.mark.parametrize(("path", "height"), [("/timeline?span=hour", 120), ("/timeline", 28)])
def test_a_line_shows_how_many_tasks_ticks_can_run(
    two_bursts: Served, open_tab: OpenTab, monkeypatch: pytest.MonkeyPatch, path: str, height: int
) -> None:
    monkeypatch.setattr(Readings, "pace", lambda *_: Pace(5.0, 1))
    line = open_tab(two_bursts, path).page.locator(".bars path.capacity")
    places = line.evaluate_all("all => [...new Set(all.map(one => one.getAttribute('d')))]")
    assert places == [f"M0 {height / 4:.1f}H600"], "300 of 400, and in hours without a task, too"
    monkeypatch.setattr(Readings, "pace", lambda *_: Pace(50.0, 1))
    line = open_tab(two_bursts, path).page.locator(".bars path.capacity")
    assert line.count() > 0
    assert line.evaluate_all("all => all.filter(one => one.hasAttribute('d'))") == [], "above all bars"


@pytest.mark.parametrize(("path", "start", "minutes"), [("/", -72.0, 120), ("/timeline?span=hour", -12.5, 60)])
def test_the_line_of_now_stands_at_now(
    two_bursts: Served, open_tab: OpenTab, path: str, start: float, minutes: int
) -> None:
    person = open_tab(two_bursts, path)
    chart = person.page.locator(".plot.tall .bars").bounding_box()
    line = person.page.locator(".plot.tall [data-testid=now-line]").bounding_box()
    assert chart and line
    begins = -60.5 if minutes == 120 else start  # 09:12:30 is half a minute into its bar
    assert (line["x"] + line["width"] / 2 - chart["x"]) / chart["width"] == pytest.approx(-begins / minutes, abs=0.002)


def test_each_kind_has_a_pattern_of_its_own(small: Served, open_tab: OpenTab) -> None:
    person = open_tab(small, "/timeline")
    patterns = person.page.locator(".legend path").evaluate_all(
        """all => all.map(path => {
            const style = getComputedStyle(path);
            return [path.getAttribute('class'), style.strokeDasharray + ' by ' + style.strokeWidth];
        })"""
    )
    by_kind = dict(patterns)
    assert len(by_kind) == 11
    row_of_its_own = by_kind.pop("failures")
    assert row_of_its_own == by_kind["completed"], "a solid line, below the others"
    assert len(set(by_kind.values())) == len(by_kind), by_kind
    drawn = person.page.locator(".bars path.failed").first
    assert drawn.evaluate("path => getComputedStyle(path).strokeDasharray") != "none"
    assert violations(person.page) == []


def test_a_chart_is_one_stop_whose_bars_are_reached_by_arrows_and_opened_by_enter(
    two_bursts: Served, open_tab: OpenTab
) -> None:
    person = open_tab(two_bursts, "/")
    page = person.page
    stops = page.locator("[data-chart]").evaluate_all(
        "all => all.map(chart => [...chart.querySelectorAll('.bars a')].filter(bar => bar.tabIndex === 0).length)"
    )
    assert stops == [1, 1]
    tab_to(person, "bar")
    expect(person.by("tip")).to_have_text("09:01: 399 completed, 1 failed")
    page.keyboard.press("ArrowRight")
    expect(person.by("tip")).to_have_text("09:02: 360 completed, 40 failed")
    for key, begins in (("End", "09:18"), ("Home", "09:01"), ("ArrowLeft", "09:01"), ("ArrowRight", "09:02")):
        page.keyboard.press(key)
        assert str(page.evaluate("document.activeElement.ariaLabel")).startswith(begins), key
    page.keyboard.press("Escape")
    expect(person.by("tip")).to_be_hidden()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('[data-testid=minutes]')") is None, "one stop"
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    page.wait_for_url("**/buckets/2027-03-24T09:02Z")
    assert person.log.clicks == 0


def test_arrows_go_from_row_to_row(small: Served, open_tab: OpenTab) -> None:
    person = open_tab(small, "/timeline")
    person.page.locator("[data-hour='2027-03-24T09:00Z'] .bars a").first.focus()
    focused = "document.activeElement.closest('[data-hour]').dataset.hour"
    before = person.page.evaluate(focused)
    for key, hour in (("ArrowDown", "08"), ("ArrowDown", "07"), ("ArrowUp", "08")):
        person.page.keyboard.press(key)
        assert person.page.evaluate(focused) == f"2027-03-24T{hour}:00Z", f"{key} from {before}"


def test_a_bar_says_its_words_when_it_is_pointed_at(two_bursts: Served, open_tab: OpenTab) -> None:
    person = open_tab(two_bursts, "/timeline?span=hour")
    person.page.locator(".bars a[href='/buckets/2027-03-24T09:02Z']").hover()
    expect(person.by("tip")).to_have_text("09:02: 360 completed, 40 failed")
    person.page.mouse.move(5, 5)
    expect(person.by("tip")).to_be_hidden()


def test_a_tap_says_the_words_and_another_one_opens_the_bar(two_bursts: Served, open_tab: OpenTab) -> None:
    person = open_tab(two_bursts, "/timeline?span=hour", size=PHONE, has_touch=True)
    bar = person.page.locator(".bars a[href='/buckets/2027-03-24T09:02Z']")
    bar.tap()
    expect(person.by("tip")).to_contain_text("360 completed, 40 failed")
    box = person.by("tip").bounding_box()
    assert box and box["x"] >= 0 and box["x"] + box["width"] <= PHONE[0]
    assert "/timeline" in person.page.url
    bar.tap()
    person.page.wait_for_url("**/buckets/2027-03-24T09:02Z")


def test_ticks_that_did_not_come_do_not_hide_the_worst_lateness(small: Served, open_tab: OpenTab) -> None:
    person = open_tab(small, "/ticks?last=24h")
    chart = person.by("lateness-chart")
    in_gap = chart.locator("a:has(.gap):has(.completed, .late)")
    names = in_gap.evaluate_all("all => all.map(one => one.ariaLabel)")
    assert names and all("ticks did not come" in name for name in names)
    tallest = chart.locator("rect:not(.hit)").evaluate_all(
        "all => Math.max(...all.map(one => one.height.baseVal.value))"
    )
    drawn = in_gap.locator("rect:not(.hit)").evaluate_all(
        "all => Math.max(...all.map(one => one.height.baseVal.value))"
    )
    assert tallest == drawn == 80, "the worst of the day is that of the outage"
    scale = chart.locator("xpath=ancestor::*[@data-chart]").get_by_test_id("scale").locator("text")
    assert scale.count() == 3
    assert str(scale.first.text_content()) in str(chart.get_attribute("aria-label"))
    in_gap.first.focus()
    expect(person.by("tip")).to_contain_text("ticks did not come")

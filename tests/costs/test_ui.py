"""What a view of the pages costs, with the parts that it loads: queries, read units, bytes.

On a table with tasks in each minute of the past and the next 24 hours. A view is a page, what it loads by itself, and
the files that it names. Each must stay within $0.001 and 100 KB with 100,000 tasks.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

import pytest
from starlette.testclient import TestClient

from dynatick.ui.application import application
from dynatick.ui.site import Site
from dynatick_stack.bench.installation import Installation
from dynatick_stack.bench.units import Meter
from dynatick_stack.counting.counts import Counts, counting

MINUTES = 2 * 1440
TASKS = 2 * MINUTES
ENTRY_BYTES = 170  # of a task in the index
DOLLARS_A_UNIT = 0.125 / 1_000_000
MAX_DOLLARS = 0.001
MAX_BYTES = 100_000
STATE = 3  # reads of the head of each page: settings, cursors, settings

_LOADED = re.compile(r'hx-get="([^"]+)" hx-trigger="(?:load|revealed)')
_FILES = re.compile(r'(?:src|href)="(/static/[^"]+)"')


@dataclass
class View:
    """What a view asked the table for, and what the browser got."""

    counts: Counts
    bytes: int

    def calls(self, operation: str) -> int:
        found = self.counts.by_operation.get(operation)
        return 0 if found is None else found.calls


@dataclass
class Pages:
    """A site over the counted table."""

    installation: Installation
    meter: Meter

    def site(self) -> Site:
        """Keeps what it has read for longer than this machine can take for a view."""
        return Site(client=self.installation.client, clock=self.installation.clock, name="tasks", kept_seconds=600)

    def first_answer(self, url: str) -> View:
        """Without what the page loads by itself."""
        http = TestClient(application(self.site()), base_url="http://127.0.0.1:4580")
        self.meter.read()
        page = http.get(url)
        assert page.status_code == 200, page.text
        return View(self.meter.read(), page.num_bytes_downloaded)

    def view(self, url: str) -> View:
        http = TestClient(application(self.site()), base_url="http://127.0.0.1:4580")
        self.meter.read()
        page = http.get(url)
        assert page.status_code == 200, page.text
        parts = [html.unescape(part) for part in dict.fromkeys(_LOADED.findall(page.text))]
        answers = [
            page,
            *(http.get(part) for part in parts),
            *(http.get(file) for file in set(_FILES.findall(page.text))),
        ]
        assert {answer.status_code for answer in answers} == {200}
        return View(self.meter.read(), sum(answer.num_bytes_downloaded for answer in answers))


@pytest.fixture(scope="module")
def pages() -> Iterator[Pages]:
    with counting() as engine:
        installation = Installation.fresh(engine.url)
        installation.next_tick()
        now = installation.clock()
        client = installation.client
        ids = iter(range(10**9))
        client.insert_many(
            {"taskId": f"task-{next(ids):06}", "dueAt": now + timedelta(minutes=n + 1), "action": "nothing"}
            for n in range(MINUTES)
            for _ in range(TASKS // MINUTES)
        )
        for n in range(5):
            client.schedules.insert(f"schedule-{n}", "rate(10 minutes)", action="nothing")
        installation.clock.to(now + timedelta(days=1))
        for _ in range(3):
            installation.next_tick()
        yield Pages(installation, Meter(engine))


def max_units(buckets: int) -> float:
    """Read units of the index for some buckets, each of one page."""
    per_bucket = TASKS / MINUTES * ENTRY_BYTES
    return buckets * max(0.5, -(-per_bucket // 4096) * 0.5)


def test_now(pages: Pages) -> None:
    view = pages.view("/")
    # The strip reads 48 hours; the minutes and the failures are among them. The next tasks are read once more.
    assert view.calls("Query") <= 49 * 60 + 121 + 10 + 5
    assert view.counts.total.read_units <= max_units(view.calls("Query")) + 1500
    check(view)


def test_the_first_answer_reads_no_more_than_it_shows(pages: Pages) -> None:
    """The state, the settings (how many shards there are), and the buckets of the last hour."""
    view = pages.first_answer("/")
    assert view.calls("Query") <= 61
    assert view.counts.total.reads <= 61 + STATE + 1
    assert view.counts.total.read_units <= 80


def test_the_minutes_around_now_read_their_buckets_and_the_ticks_of_the_past_ones(pages: Pages) -> None:
    view = pages.view("/now/minutes")
    assert view.calls("Query") <= 2 * 60 + 2
    assert view.counts.total.reads <= 2 * 60 + 40
    assert view.counts.total.read_units <= 400


def test_a_page_that_stays_open_costs_little(pages: Pages) -> None:
    site = pages.site()
    http = TestClient(application(site), base_url="http://127.0.0.1:4580")
    http.get("/now/minutes")
    site.readings.clear()  # as after a few seconds
    pages.meter.read()
    http.get("/now/minutes")
    minute = pages.meter.read().total.read_units
    http.get("/live")
    quarter = pages.meter.read().total.read_units
    assert minute <= 250
    assert (minute + 4 * quarter) * 1440 * DOLLARS_A_UNIT <= 0.05


def test_an_hour(pages: Pages) -> None:
    view = pages.view("/timeline?span=hour")
    assert view.calls("Query") <= 60 + 2
    check(view)


def test_a_day(pages: Pages) -> None:
    view = pages.view("/timeline")
    assert view.calls("Query") <= 48 * 60 + 2
    assert view.counts.total.read_units <= max_units(48 * 60) + 1500
    check(view)


def test_a_week(pages: Pages) -> None:
    view = pages.view("/timeline?span=week")
    assert view.calls("Query") <= 7 * 1440 + 14
    assert view.counts.total.read_units <= max_units(7 * 1440) + 1000  # the tick records of one day, not of seven
    check(view)


@pytest.mark.parametrize("days", [1, 7])
def test_failures(pages: Pages, days: int) -> None:
    view = pages.view(f"/failures?last={days}d")
    assert view.calls("Query") <= (days * 24 + 1) * 60
    check(view)


def test_a_week_of_ticks(pages: Pages) -> None:
    check(pages.view("/ticks?last=7d"))


def test_a_list_of_tasks_reads_a_page(pages: Pages) -> None:
    view = pages.view("/tasks")
    assert view.calls("Query") <= 60
    assert view.counts.total.read_units <= 200
    check(view)


@pytest.mark.parametrize(
    ("url", "calls", "units"),
    [
        ("/tasks/task-000000", STATE + 4, 10),
        ("/schedules", 30, 100),
        ("/schedules/schedule-0", 12, 60),
        ("/ticks", 25, 400),
    ],
)
def test_small_views(pages: Pages, url: str, calls: int, units: float) -> None:
    view = pages.view(url)
    assert view.counts.total.reads <= calls
    assert view.counts.total.read_units <= units
    check(view)


def test_no_view_writes(pages: Pages) -> None:
    for url in ("/", "/timeline", "/failures", "/tasks", "/schedules", "/ticks"):
        assert pages.view(url).counts.total.writes == 0


def check(view: View) -> None:
    """The view's cost with 100,000 tasks in the same buckets, of which it read all."""
    queries = view.counts.by_operation.get("Query")
    more = 0.0 if queries is None else (100_000 - TASKS) * ENTRY_BYTES / 4096 * 0.5 * min(1, queries.calls / MINUTES)
    assert (view.counts.total.read_units + more) * DOLLARS_A_UNIT <= MAX_DOLLARS
    assert view.bytes <= MAX_BYTES

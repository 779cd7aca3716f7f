"""What a view of the pages costs, with the parts that it loads: queries, read units, bytes.

On a table with tasks in each minute of the past and the next 24 hours. A view is a page, what it loads by itself, and
the files that it names. Each must stay within $0.001, or a week within $0.0012, and 100 KB with 100,000 tasks.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

import pytest
from starlette.testclient import TestClient

from dynatick.client import Changed, ManyResult, TaskClient
from dynatick.client.change_records import new_record
from dynatick.ui import links
from dynatick.ui.application import application
from dynatick.ui.jobs import REDRIVEN
from dynatick.ui.site import Site
from dynatick_stack.bench.installation import Clock, Installation
from dynatick_stack.bench.units import Meter
from dynatick_stack.counting.counts import Counts, counting

pytestmark = pytest.mark.xdist_group("costs of pages")  # one process makes the tasks

MINUTES = 2 * 1440
TASKS = MINUTES
ENTRY_BYTES = 170  # of a task in the index
DOLLARS_A_UNIT = 0.125 / 1_000_000
MAX_DOLLARS = 0.001
MAX_DOLLARS_OF_A_WEEK = 0.0012
MAX_DOLLARS_A_DAY = 0.15
MAX_BYTES = 100_000
FOLLOWED = 4  # minutes: in them an hour that is two hours away is read again twice
STATE = 3  # reads of the head of each page: settings, cursors, settings

_LOADED = re.compile(r'hx-get="([^"]+)" hx-trigger="(?:load|revealed)')
_FOLLOWING = re.compile(r'hx-get="([^"]+)" hx-trigger="[^"]*tick from:body')
_FILES = re.compile(r'(?:src|href)="(/static/[^"]+)"')


@dataclass
class View:
    """The queries that a view sent to the table, and the bytes that the browser received."""

    counts: Counts
    bytes: int

    def calls(self, operation: str) -> int:
        found = self.counts.by_operation.get(operation)
        return 0 if found is None else found.calls


@dataclass
class Pages:
    """Sites over the counted table. Their clock stands still, for what is kept is read again after a while."""

    installation: Installation
    meter: Meter

    def site(self) -> Site:
        clock = Clock(self.installation.clock(), still=True)
        client = TaskClient(self.installation.store, clock=clock)
        return Site(client=client, clock=clock, name="tasks", kept_seconds=600)

    def view(self, url: str, *, is_whole: bool = True) -> View:
        """``is_whole``: with what the page loads by itself."""
        http = TestClient(application(self.site()), base_url="http://127.0.0.1:4580")
        self.meter.read()
        page = http.get(url)
        parts = [html.unescape(part) for part in dict.fromkeys(_LOADED.findall(page.text))]
        more = [*parts, *set(_FILES.findall(page.text))] if is_whole else []
        answers = [page, *map(http.get, more)]
        assert {answer.status_code for answer in answers} == {200}, page.text
        return View(self.meter.read(), sum(answer.num_bytes_downloaded for answer in answers))


@pytest.fixture(scope="module")
def pages() -> Iterator[Pages]:
    with counting() as engine:
        # It stands still as well: how long tests and ticks take must not decide what is read.
        installation = Installation.fresh(engine.url, clock=Clock(still=True))
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


def max_units(queries: int) -> float:
    """Read units of the index for a given number of polls of buckets, each of one page."""
    per_bucket = TASKS / MINUTES * ENTRY_BYTES
    return queries * max(0.5, -(-per_bucket // 4096) * 0.5)


HOUR, DAY = 60, 1440  # buckets


@pytest.mark.parametrize(
    ("url", "queries", "units"),
    [
        # The strip reads 48 hours; the minutes and the failures are among them. The next tasks are read once more. The
        # records of ticks and buckets of 24 hours, each read once, say which ticks came, which attempts failed, and how
        # quickly ticks run tasks; they are kept for ten minutes.
        pytest.param("/", 49 * HOUR + 136, max_units(49 * HOUR + 136) + 1600, marks=pytest.mark.long),
        ("/now/minutes", 2 * HOUR + 2, 2300),
        ("/timeline?span=hour", HOUR + 2, max_units(HOUR) + 2300),
        pytest.param("/timeline", 2 * DAY + 2, max_units(2 * DAY) + 2300, marks=pytest.mark.long),
        # The records of ticks and buckets of one day, not of seven.
        pytest.param("/timeline?span=week", 7 * DAY + 14, max_units(7 * DAY) + 2300, marks=pytest.mark.night),
        pytest.param("/failures?last=1d", DAY + HOUR, max_units(DAY + HOUR) + 1500, marks=pytest.mark.long),
        pytest.param("/failures?last=7d", 7 * DAY + HOUR, max_units(7 * DAY + HOUR) + 1500, marks=pytest.mark.night),
        ("/failures/0123456789?last=1h", 2 * HOUR, max_units(2 * HOUR) + 5),
        # The records of up to 50 changes of many tasks, and the index that lists them.
        ("/changes", 1, 10),
        # A page of rows, each read for its dry run.
        (f"/tasks/selected?do=run-now&{'&'.join(f'id=task-{n:06}' for n in range(50))}", 0, STATE + 50),
        ("/ticks", 25, 400),
        ("/ticks?last=7d", 7 * 25, 6000),  # the records of a week: one each minute
        ("/tasks", HOUR, 200),
        ("/tasks/task-000000", STATE + 4, 10),
        # The first part of a search; the others come until a day each way is looked through.
        ("/search?q=none", 4 * HOUR + 3, max_units(4 * HOUR) + 15),
        ("/schedules", 30, 100),
        ("/schedules/schedule-0", 12, 60),
    ],
)
def test_a_view_reads_what_it_shows_and_writes_nothing(pages: Pages, url: str, queries: int, units: float) -> None:
    view = pages.view(url)
    total, polls = view.counts.total, view.calls("Query")
    assert polls <= queries
    assert total.read_units <= units
    assert total.writes == 0
    # With 100,000 tasks in the same buckets, of which it read all.
    more = (100_000 - TASKS) * ENTRY_BYTES / 4096 * 0.5 * min(1, polls / MINUTES)
    maximum = MAX_DOLLARS_OF_A_WEEK if polls > 2 * MINUTES else MAX_DOLLARS
    assert (total.read_units + more) * DOLLARS_A_UNIT <= maximum
    assert view.bytes <= MAX_BYTES


def test_the_first_answer_reads_no_more_than_it_shows(pages: Pages) -> None:
    """The state, the settings (how many shards there are), and the buckets of the last hour."""
    view = pages.view("/", is_whole=False)
    assert view.calls("Query") <= HOUR + 5
    assert view.counts.total.reads <= HOUR + 5 + STATE + 1
    assert view.counts.total.read_units <= 80


@pytest.mark.parametrize(
    "url",
    [
        "/timeline?span=hour", "/failures?last=1h", "/failures/0123456789?last=1h", "/tasks", "/ticks", "/actions",
        "/changes", "/schedules/schedule-0",
        *(
            pytest.param(url, marks=pytest.mark.long)
            for url in ("/", "/timeline", "/failures?last=24h", "/failures/0123456789?last=24h")
        ),
        *(pytest.param(url, marks=pytest.mark.night) for url in ("/timeline?span=week", "/failures?last=7d")),
    ],
)  # fmt: skip
def test_a_page_that_stays_open_costs_little(pages: Pages, url: str) -> None:
    """What it reads again after each tick, and each half hour, if it is seen all day."""
    site = pages.site()
    clock = site.clock
    assert isinstance(clock, Clock)
    http = TestClient(application(site), base_url="http://127.0.0.1:4580")
    pages.meter.read()
    texts = [http.get(url).text]
    texts += [http.get(html.unescape(part)).text for part in dict.fromkeys(_LOADED.findall(texts[0]))]
    whole = pages.meter.read().total.read_units
    half_hour = whole if any("every 1800s" in text for text in texts) else 0
    parts = {html.unescape(part) for text in texts for part in _FOLLOWING.findall(text)}
    assert parts
    for _ in range(FOLLOWED):
        clock.to(clock() + timedelta(minutes=1))
        site.readings.forget_recent()
        for part in parts:
            assert http.get(part, headers={"Dynatick-Follows": "tick"}).status_code == 200
    minute = pages.meter.read().total.read_units / FOLLOWED
    http.get("/live")
    quarter = pages.meter.read().total.read_units
    dollars = ((minute + 4 * quarter) * 1440 + half_hour * 48) * DOLLARS_A_UNIT
    assert dollars <= MAX_DOLLARS_A_DAY, (minute, quarter, half_hour)


def test_a_job_that_is_followed_reads_its_record_and_the_runs_that_have_not_ended(pages: Pages) -> None:
    runs = 100
    site, changes = pages.site(), pages.installation.client.operations.changes
    ended = partial(_changed, pages.installation.client, runs)
    own = site.jobs.start(REDRIVEN, ended, None, back="/", again="/")
    own.ended.wait(30)
    with new_record(pages.installation.client, "redrive", {}, by="ada") as record:
        record.begin()
        record.add(ended())
    (recorded,) = [one for one in changes.list() if one.by == "ada"]
    http = TestClient(application(site), base_url="http://127.0.0.1:4580")
    for job, reads in ((own.id, runs), (own.id, 0), (recorded.change_id, runs + 1)):
        pages.meter.read()
        assert http.get(links.job(job)).status_code == 200
        total = pages.meter.read().total
        assert reads <= total.read_units <= reads + STATE + 1, "what has ended is not read again"
        assert total.writes == 0


def test_the_record_of_a_change_costs_a_fiftieth_of_the_change(pages: Pages) -> None:
    """Two writes and the index that lists it: six units, and one for each KB of the ids of a redrive."""
    runs = 1000
    results = list(_changed(pages.installation.client, runs))
    pages.meter.read()
    with new_record(pages.installation.client, "redrive", {"last": "24h"}, by="ada") as record:
        record.begin()
        record.add(results)
    total = pages.meter.read().total
    assert 4 <= total.write_units <= 6 + 10
    assert total.write_units <= runs / 50, "each of its tasks takes at least two"


def _changed(client: TaskClient, number: int, **_: object) -> Iterator[ManyResult]:
    """What a change of tasks that have ended has done."""
    for n in range(number):
        task = client.get(f"task-{n:06}")
        yield Changed(task.task_id, task)

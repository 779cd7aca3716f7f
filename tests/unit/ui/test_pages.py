"""Each page says what the installation holds, empty or busy."""

from __future__ import annotations

import html
import re
from collections import Counter
from datetime import UTC, datetime, timedelta

import httpx2
import pytest
from tests.builders import NOON, scheduled_row
from tests.unit.ui.support import Browser, elements, text_of

from dynatick import CompleteLater, PermanentError, RetryableError
from dynatick.client.action_counts import NOT_COUNTED
from dynatick.domain.buckets import Bucket, Grid, minute_of
from dynatick.domain.limit_keys import parse_limits
from dynatick.domain.normalise import Defaults
from dynatick.engine.settings import publish_settings
from dynatick.testing.virtual_installation import VirtualInstallation
from dynatick.ui.ticks import Column, Line

PAGES = [
    "/", "/live", "/now/minutes", "/now/figures", "/now/day", "/now/next", "/timeline", "/timeline?span=hour",
    "/timeline?span=week",
    "/timeline?from=2026-12-30T00:00Z&to=2026-12-31T00:00Z", "/timeline/hour?from=2026-12-31T12:00Z",
    "/timeline/strip?from=2026-12-31T12:00Z&to=2026-12-31T18:00Z", "/timeline/day?from=2026-12-31T00:00Z",
    "/buckets/2026-12-31T12:10Z", "/buckets/2026-12-31%2312:10", "/failures", "/failures?last=7d", "/failures/first",
    "/failures/groups", "/failures/0123456789", "/failures/0123456789/details",
    "/failures/redrive?last=24h", "/tasks", "/tasks?last=24h&next=24h&status=failed&action=log&prefix=o",
    "/tasks?from=2026-12-31T12:00&to=2026-12-31T13:00", "/tasks/change?do=cancel&status=scheduled&next=2h",
    "/batches", "/batches?last=7d", "/schedules", "/schedules?state=ENABLED", "/ticks", "/ticks?last=24h",
    "/actions", "/actions?last=1h", "/actions/rows?last=24h", "/actions/log",
    "/tasks/selected?id=bad-0&id=none&do=redrive", "/changes", "/changes/rows", "/search?q=mail", "/search/part?q=mail",
    "/search/part?q=mail&since=2026-12-31T11:00Z&until=2026-12-31T15:00Z&found=3&days=2&earlier=3",
]  # fmt: skip


@pytest.mark.parametrize("kind", ["installation", "busy"])
@pytest.mark.parametrize("url", PAGES)
def test_every_page_of_an_empty_and_of_a_busy_installation(
    request: pytest.FixtureRequest, browser: Browser, kind: str, url: str
) -> None:
    request.getfixturevalue(kind)
    page = browser.get(url)
    assert page.status_code == 200, page.text
    elements(page, "nav")  # every tag closes
    for wrong in ("style=", "onclick=", "<script>", "http://", "https://cdn", "None", "datetime.datetime", "Traceback"):
        assert wrong not in page.text.replace("http://www.w3.org/2000/svg", "")


def test_now_has_its_figures(busy: VirtualInstallation, browser: Browser) -> None:
    page = browser.get("/")
    assert elements(page, "state")[0].attributes["data-state"] == "running"
    day = browser.get("/now/day")
    assert text_of(day, "failed-24h") == "Failed 4 in 24 hours"
    assert text_of(day, "completed-24h") == "Completed 10 in 24 hours, 1 cancelled"
    assert text_of(page, "due-now") == "Due now 0 nothing waits"
    assert text_of(page, "lateness") == "Lateness 0 ms p99 of the last hour, at most 0 ms"
    assert "last tick" in text_of(page, "last-tick")
    assert elements(page, "bar") == [], "they come by a request of their own"
    minutes = browser.get("/now/minutes")
    bars = {one.attributes["href"].removeprefix("/buckets/"): one.text for one in elements(minutes, "bar")}
    assert bars["2026-12-31T12:10Z"] == "12:10: 4 completed"
    assert bars["2026-12-31T12:20Z"] == "12:20: 1 failed"
    assert bars["2026-12-31T13:05Z"] == "13:05: 1 recurring"
    (following, *_) = elements(browser.get("/now/next"), "next-row")
    assert following.text.startswith("13:05 often schedule webhook in 5 min")


def test_a_retry_that_comes_next_is_named_with_its_next_attempt(busy: VirtualInstallation, browser: Browser) -> None:
    busy.fail("log", with_=RetryableError("no answer"))
    policy = {"minBackoffSeconds": 240, "maxBackoffSeconds": 240}
    busy.client.insert("again", delay_seconds=30, action="log", payload={"message": "x"}, retry_policy=policy)
    busy.advance(minutes=1)
    (row,) = [one.text for one in elements(browser.get("/now/next"), "next-row") if " again " in one.text]
    assert row.startswith(busy.client.get("again").bucket[-5:])
    assert " in " in row and " ago" not in row


def test_an_hour_has_a_bar_for_each_minute_past_and_to_come(busy: VirtualInstallation, browser: Browser) -> None:
    page = browser.get("/timeline?span=hour&from=2026-12-31T12:00Z")
    counts = text_of(page, "counts")
    assert "12:40 1" in counts
    assert {one.attributes["href"] for one in elements(page, "bar")} >= {"/buckets/2026-12-31T12:10Z"}
    assert elements(page, "hour")[0].attributes["data-hour"] == "2026-12-31T12:00Z"
    assert elements(page, "later")[0].attributes["href"] == "/timeline?span=hour&from=2026-12-31T13%3A00Z"
    for hour in ("2026-12-31T22:00Z", "2027-01-04T22:00Z"):  # beyond the next occurrence of the schedule
        bars = elements(browser.get(f"/timeline/hour?from={hour}"), "bar")
        assert [one.text.partition(": ")[2] for one in bars] == ["1 recurring"] * 12
    (coming,) = elements(browser.get("/buckets/2026-12-31T22:05Z"), "coming")
    assert coming.text.split()[-2] == "often"
    assert not elements(browser.get("/buckets/2026-12-31T11:05Z"), "coming"), "it is over"


def test_the_day_around_now_begins_with_the_nearest_hours(browser: Browser) -> None:
    page = browser.get("/timeline")
    hours = elements(page, "hour")
    assert len(hours) == 48
    starts = [one.attributes["data-hour"] for one in hours]
    assert starts[:2] == ["2026-12-31T12:00Z", "2026-12-31T11:00Z"]
    assert starts[24] == "2026-12-31T13:00Z"
    loaded = re.findall(r'hx-get="(/timeline/hour[^"]+)" hx-trigger="load delay:(\d+)ms, again from:body"', page.text)
    assert len(loaded) == 24, "two hours by each request"
    first = html.unescape(min(loaded, key=lambda one: int(one[1]))[0])
    assert first == "/timeline/hour?from=2026-12-31T13%3A00Z&and=2026-12-31T14%3A00Z"


def test_ticks_are_listed_and_those_that_did_not_come_are_marked(
    installation: VirtualInstallation, browser: Browser
) -> None:
    client = installation.client
    client.insert("before", delay_seconds=60)
    installation.advance(minutes=5)
    installation._now += timedelta(minutes=10)  # without a tick
    installation._last_tick += 10
    assert elements(browser.get("/"), "state")[0].attributes["data-state"] == "late"
    client.insert("after", delay_seconds=60)
    installation.advance(minutes=5)
    page = browser.get("/ticks?last=1h")
    assert "did not come" in text_of(page, "gap")
    assert {"pass", "idle"} <= {one.attributes["data-kind"] for one in elements(page, "tick-row")}
    assert elements(page, "lateness-chart") and elements(page, "duration-chart")
    assert any("ticks did not come" in one.text for one in elements(browser.get("/timeline?span=hour"), "bar"))


def ids(page: httpx2.Response) -> list[str | None]:
    return [one.attributes["data-id"] for one in elements(page, "task-row")]


def test_a_bucket_lists_its_tasks_by_either_name_and_what_left(busy: VirtualInstallation, browser: Browser) -> None:
    for name in ("2026-12-31T12:10Z", "2026-12-31%2312%3A10", "2026-12-31%2312:10"):
        page = browser.get(f"/buckets/{name}")
        assert ids(page) == [f"mail-{n}" for n in range(4)]
        assert text_of(page, "counts").startswith("4 completed")
    assert ids(browser.get("/buckets/2026-12-31T12:10Z?prefix=mail-3")) == ["mail-3"]
    assert browser.get("/buckets/yesterday").status_code == 400
    busy.client.redrive("other")
    gone = "Went elsewhere since: 1 redriven after they had failed."
    page = browser.get("/buckets/2026-12-31T12:30Z")
    assert text_of(page, "left") == f"{gone} In all 1 task ran here, and 1 failed."


def test_tasks_are_filtered_and_paged_and_a_wrong_filter_is_named(busy: VirtualInstallation, browser: Browser) -> None:
    assert ids(browser.get("/tasks?last=24h&status=failed")) == ["bad-0", "bad-1", "bad-2", "other"]
    assert ids(browser.get("/tasks?last=24h&status=failed&action=log")) == ["other"]
    assert len(ids(browser.get("/tasks?last=24h&schedule=often"))) == 6
    busy.client.insert_many({"taskId": f"n-{n:03}", "dueAt": NOON + timedelta(hours=3)} for n in range(70))
    first = browser.get("/tasks?from=2026-12-31T14:59Z&to=2026-12-31T15:01Z&prefix=n-")
    second = browser.get(str(elements(first, "next-page")[0].attributes["href"]))
    assert [len(ids(page)) for page in (first, second)] == [50, 20]
    assert ids(second)[0] == "n-050"
    assert not elements(second, "next-page")
    for query in ("status=none", "from=tomorrow", "last=3x", "last=400d", "prefix=" + "x" * 2000):
        wrong = browser.get(f"/tasks?{query}")
        assert wrong.status_code == 400 and "expected" in text_of(wrong, "problem"), query


def test_search_leads_to_a_task_a_schedule_or_a_subject(busy: VirtualInstallation, browser: Browser) -> None:
    for task_id, hours in (("of-ada-1", 1), ("of-ada-2", 2000)):
        busy.client.insert(task_id, due_at=NOON + timedelta(hours=hours), subject="customer:ada")
    assert browser.get("/search?q=customer:ada").headers["location"] == "/tasks?subject=customer%3Aada"
    found = browser.follow(browser.get("/search?q=customer:ada"))
    assert ids(found) == ["of-ada-1", "of-ada-2"], "wherever they are"
    assert [one.attributes["value"] for one in elements(found, "subject-filter")] == ["customer:ada"]
    assert "Any time" in found.text and "Around now" not in found.text
    (subject,) = elements(browser.get("/tasks/of-ada-1"), "subject")
    assert (subject.text, subject.attributes["href"]) == ("customer:ada", "/tasks?subject=customer%3Aada")
    assert ids(browser.get("/tasks?subject=customer:ada&next=24h")) == ["of-ada-1"]
    assert ids(browser.get("/tasks?subject=customer:ada&status=scheduled&prefix=of-ada-2")) == ["of-ada-2"]
    for wanted, leads_to in (("to-come", "/tasks/to-come"), ("often", "/schedules/often")):
        assert browser.get(f"/search?q={wanted}").headers["location"] == leads_to
    assert browser.get("/search?q=%23none").status_code == 200


def test_a_task_leads_to_its_follow_ups_and_they_to_it(busy: VirtualInstallation, browser: Browser) -> None:
    client, follow_up = busy.client, "of-ada#1-1:receipt"
    for task_id, more in (("of-ada", {"followUps": [follow_up]}), (follow_up, {"followUpOf": "of-ada"})):
        row = client.insert("new", due_at=NOON + timedelta(hours=1), action="log").row
        client.delete("new")
        client.store.create({**row, "taskId": task_id, **more})
    (link,) = elements(browser.get("/tasks/of-ada"), "follow-up")
    assert link.text == follow_up
    (back,) = elements(browser.get(str(link.attributes["href"])), "follow-up-of")
    assert (back.text, back.attributes["href"]) == ("of-ada", "/tasks/of-ada")


def test_a_task_shows_its_life(busy: VirtualInstallation, browser: Browser) -> None:
    page = browser.get("/tasks/bad-1")
    assert text_of(page, "status") == "failed"
    assert text_of(page, "explanation").startswith("It failed")
    assert "no such mailbox: user-1@example.com" in text_of(page, "error")
    assert "user-1@example.com" in text_of(page, "payload")
    assert elements(page, "event")
    assert [one.testid for one in elements(page, "redrive")] == ["redrive"]
    assert not elements(page, "cancel")
    waiting = browser.get("/tasks/to-come")
    assert text_of(waiting, "explanation").startswith("It is due at")
    assert all(elements(waiting, change) for change in ("run-now", "reschedule", "cancel"))
    assert browser.get("/tasks/often").headers["location"] == "/schedules/often"
    missing = browser.get("/tasks/none")
    assert missing.status_code == 404
    assert "it was never inserted, was deleted, or has expired" in text_of(missing, "problem")


def test_a_schedule_shows_its_occurrences_and_why_it_missed_some(busy: VirtualInstallation, browser: Browser) -> None:
    rows = elements(browser.get("/schedules"), "schedule-row")
    assert [one.attributes["data-id"] for one in rows] == ["daily", "often"]
    page = browser.get("/schedules/often")
    statuses = [one.attributes["data-status"] for one in elements(page, "occurrence")]
    assert statuses == ["completed"] * 6 + ["coming"] * 10
    strip = browser.get("/schedules/often/strip")
    assert len(elements(strip, "occurrence")) == 10
    assert browser.get("/schedules/none").status_code == 404
    busy.client.schedules.pause("often", "the move")
    busy.advance(minutes=12)
    page = browser.get("/schedules/often")
    assert [one.text.split()[-1] for one in elements(page, "missed-occurrence")] == ["paused", "paused"]
    assert "the move" in page.text
    declared = {"taskId": "declared", "scheduleExpression": "rate(1 day)", "action": "log"}
    busy.client.schedules.sync([declared], owner="reminders-prod")
    (owner,) = elements(browser.get("/schedules/declared"), "owner")
    assert owner.text == "reminders-prod" and not elements(page, "owner")


def test_a_bucket_of_more_than_a_page_is_counted_by_a_part_of_its_own(
    busy: VirtualInstallation, browser: Browser
) -> None:
    for n in range(51):
        busy.client.insert(f"table-{n:02}", due_at=NOON + timedelta(hours=2), action="log", payload={"message": "x"})
    url = "/buckets/2026-12-31T14:00Z"
    page = browser.get(url)
    assert len(ids(page)) == 50
    assert elements(page, "counts") == []
    (part,) = re.findall(r'hx-get="([^"]+/counts)"', page.text)
    assert text_of(browser.get(part), "counts").startswith("52 scheduled")
    assert elements(browser.get(f"{url}?status=scheduled"), "counts") == [], "so is one that is filtered"
    assert browser.get("/buckets/yesterday/counts").status_code == 400


def test_a_schedule_lists_what_it_missed_and_what_a_clock_change_does() -> None:
    installation = VirtualInstallation(None, start=datetime(2027, 3, 26, 12, tzinfo=UTC))
    # In Berlin the clocks go forward at 02:00 on the 28th.
    installation.client.schedules.insert("daily", "cron(30 2 * * ? *)", timezone="Europe/Berlin", action="log")
    installation.advance(minutes=6)
    row = dict(installation.client.schedules.get("daily").row)
    missed = {"from": "2027-03-26T11:00:00Z", "until": "2027-03-26T11:10:00Z", "occurrences": 3, "reason": "outage"}
    installation.client.store.put({**row, "missed": [missed, "malformed"]})
    page = Browser(installation).get("/schedules/daily")
    (shown,) = elements(page, "missed")
    assert "3 occurrences, 11:00" in shown.text
    assert shown.text.endswith("outage")
    assert len(elements(page, "clock-change")) == 1


def test_a_task_that_waits_for_a_completion_is_counted_as_such_until_its_deadline_and_is_not_among_what_runs_next(
    busy: VirtualInstallation, browser: Browser
) -> None:
    hook = {"url": "https://example.com/hook", "completeWithinSeconds": 3600}
    later = CompleteLater(timedelta(hours=1))
    busy.answer("webhook", lambda payload: later if "completeWithinSeconds" in payload else None)
    busy.client.insert("handed-over", due_at=NOON + timedelta(minutes=61), action="webhook", payload=hook)
    busy.advance(minutes=2)
    (task,) = [one for one in busy.client.iter_history(start="now", end="+2h") if one.status == "waiting"]
    at = task.bucket[-5:]

    def bar() -> str:
        bars = {one.text[:5]: one.text for one in elements(browser.get("/timeline/hour?from=2026-12-31T14:00Z"), "bar")}
        return bars[at]

    assert bar() == f"{at}: 1 waiting for a completion"
    assert "1 waiting" in text_of(browser.get(f"/buckets/{task.bucket.replace('#', '%23')}"), "counts")
    assert "handed-over" not in browser.get("/now/next").text
    page = browser.get("/tasks/handed-over")
    assert text_of(page, "explanation").startswith(f"It waits for a completion until 2026-12-31T14:0{int(at[-1]) - 1}:")
    busy.answer("webhook", lambda payload: None)
    busy.advance(minutes=int(at[-2:]) + 60)
    assert bar().startswith(f"{at}: ") and "waiting" not in bar()


def test_a_task_and_a_schedule_show_their_limit_key() -> None:
    installation = VirtualInstallation(None, start=NOON, key_limits="customer=1")
    installation.client.insert("sync", delay_seconds=3600, limit_key="customer:4711")
    installation.client.insert("free", delay_seconds=3600)
    installation.client.schedules.insert("daily", "rate(1 day)", limit_key="customer:4712")
    browser = Browser(installation)
    shown = [[one.text for one in elements(browser.get(path), "limit-key")] for path in (
        "/tasks/sync", "/tasks/free", "/schedules/daily")]  # fmt: skip
    assert shown == [["customer:4711"], [], ["customer:4712"]]


def test_now_shows_the_busiest_limit_keys_and_a_task_what_it_waits_for(browser: Browser) -> None:
    assert not elements(browser.get("/now/minutes"), "keys")
    store = browser.site.client.operations.store
    publish_settings(store, Grid(), now=NOON, defaults=Defaults(key_limits=parse_limits(["customer=1"])))
    bucket = Bucket(minute_of(NOON))
    leased = {"status": "running", "lease": "x", "leaseUntil": "2026-12-31T12:14:00.000Z", "attempt": 1}
    store.create(scheduled_row("a", bucket, limitKey="customer:1", startedAt="2026-12-31T12:00:01.000Z", **leased))
    for name, key in (("b", "customer:1"), ("c", "customer:1"), ("d", "host:x"), ("e", None)):
        store.create(scheduled_row(name, bucket, **({"limitKey": key} if key else {})))
    rows = [one.text for one in elements(browser.get("/now/minutes"), "key-row")]
    assert rows == ["customer:1 2 waiting 1 running limit 1", "host:x 1 waiting 0 running no limit"]
    explained = text_of(browser.get("/tasks/c"), "explanation")
    assert explained.endswith("customer:1 has 1 of 1 running (a, since 2026-12-31T12:00:01Z); 1 waits before it.")


def test_actions_have_what_waits_and_what_ran(busy: VirtualInstallation, browser: Browser) -> None:
    rows = {str(one.attributes["data-action"]): one.text for one in elements(browser.get("/actions"), "action-row")}
    assert list(rows) == ["webhook", "log"], "three failed of the one, one of the other"
    assert rows["webhook"].split()[:4] == ["webhook", "…", "…", "…"], "what waits is read by a request of its own"
    whole = elements(browser.get("/actions/rows"), "action-row")
    rows = {str(one.attributes["data-action"]): one.text for one in whole}
    assert rows["webhook"].split()[:10] == ["webhook", "0", "0", "0", "13", "0", "3,", "23.1", "%", "0"]
    assert rows["log"].split()[:8] == ["log", "0", "0", "0", "1", "0", "1,", "100"]
    assert elements(browser.get("/actions"), "not-counted") == []


def refuse(payload: object) -> None:
    raise PermanentError("no")


def test_no_share_is_given_where_wake_ups_run_tasks() -> None:
    installation = VirtualInstallation(None, start=NOON, precision="second")
    installation.answer("log", refuse)
    installation.client.insert("bad", delay_seconds=90, action="log")
    installation.advance(minutes=4)
    page = Browser(installation).get("/actions/rows")
    (row,) = elements(page, "action-row")
    assert row.text.split()[:10] == ["log", "0", "0", "0", "not", "known", "not", "known", "1", "0"]
    assert text_of(Browser(installation).get("/actions"), "not-counted") == f"{NOT_COUNTED}."


def test_status_timeline_bucket_and_actions_have_the_same_sums(busy: VirtualInstallation, browser: Browser) -> None:
    status = busy.client.operations.status(hours=24)
    counted = busy.client.count_tasks(start=status.since, end=status.until)
    start = status.since.replace(minute=0)
    bars = browser.site.readings.bars(start, start + timedelta(hours=48), 60, busy.now)
    drawn: Counter[str] = sum((Counter(bar.counts) for bar in bars), Counter())
    assert (status.completed, status.failed, status.cancelled) == (10, 4, 1)
    for name, number in (("completed", 10), ("failed", 4), ("cancelled", 1), ("scheduled", status.waiting)):
        assert counted.counts[name] == drawn[name] == number, name
    actions = busy.client.operations.actions().actions
    assert (
        sum(one.now.failures for one in actions) == status.day.failures == sum(bar.attempts or 0 for bar in bars) == 4
    )
    assert sum(one.now.completed or 0 for one in actions) == status.day.completed == 10


def test_attempts_that_failed_count_though_their_tasks_were_redriven_since(
    busy: VirtualInstallation, browser: Browser
) -> None:
    assert text_of(browser.get("/failures"), "failed-attempts") == "4 failed attempts in 24h"
    busy.answer("log", lambda payload: None)
    busy.client.redrive("other")
    busy.advance(minutes=2)
    page = browser.get("/failures")
    assert text_of(page, "failed-attempts") == "4 failed attempts in 24h"
    assert len(elements(page, "failure-bar")) == 2, "those from 12:20, and from 12:30 on"
    assert "disk is full" not in browser.get("/failures/groups").text


def test_a_gap_does_not_hide_how_late_the_tick_in_it_was(browser: Browser, busy: VirtualInstallation) -> None:
    line = Line(kind="missed", since=NOON, until=NOON + timedelta(minutes=30), shard=0, ticks=30, view=None)
    column = Column(start=NOON, lateness_ms=90_000, took_ms=None, is_gap=True)
    page = browser.site.fragment(
        "ticks.html", NOON, last="6h", start=NOON, lines=[line], hidden=0, columns=[column] * 240, gaps=[line],
        max_lateness=90_000, max_took=None, section="ticks", state=None, notice=None,
        trouble=None, follows=None, here="", to=None,
    )  # fmt: skip
    chart = bytes(page.body).decode().partition('data-testid="lateness-chart"')[2].partition("</svg>")[0]
    assert (chart.count('class="hit gap"'), chart.count('class="completed"')) == (240, 240)


def test_right_after_a_resume_nothing_needs_attention_until_ticks_do_not_come(
    busy: VirtualInstallation, browser: Browser
) -> None:
    def state() -> str | None:
        return elements(browser.get("/"), "state")[0].attributes["data-state"]

    busy.client.operations.pause()
    busy._now += timedelta(minutes=90)  # without a tick
    assert state() == "paused"
    assert "next" not in text_of(browser.get("/live"), "last-tick")
    busy.client.operations.resume()
    assert (state(), busy.client.operations.health().missing_ticks) == ("running", 0)
    busy._now += timedelta(minutes=5)
    assert state() == "running"
    busy._now += timedelta(minutes=1)
    assert state() == "late"
    assert busy.client.operations.health().missing_ticks > 0
    assert "next" not in text_of(browser.get("/live"), "last-tick")


def test_another_tick_makes_the_parts_of_a_page_ask_again(busy: VirtualInstallation, browser: Browser) -> None:
    (live,) = elements(browser.get("/"), "last-tick")
    url = str(live.attributes["hx-get"])
    assert "hx-trigger" not in browser.get(url).headers
    busy.advance(minutes=1)
    assert browser.get(url).headers["hx-trigger"] == "tick"
    (live,) = elements(browser.get(url), "last-tick")
    assert "hx-trigger" not in browser.get(str(live.attributes["hx-get"])).headers


@pytest.mark.parametrize("batch_id", [7, {"a": 1}, ["x"]])
def test_a_row_that_was_put_with_another_batch_id_than_a_text_has_a_page(browser: Browser, batch_id: object) -> None:
    client = browser.installation.client
    client.insert("odd", due_at=NOON + timedelta(hours=1))
    client.store.put({**client.get("odd").row, "batchId": batch_id})
    assert text_of(browser.get("/tasks/odd"), "status") == "scheduled"

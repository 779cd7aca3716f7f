"""The pages of batches, and packs where tasks are listed."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from tests.builders import NOON
from tests.unit.ui.support import Browser, elements, text_of

from dynatick import PermanentError
from dynatick.testing.virtual_installation import VirtualInstallation

HOOK = {"url": "https://example.com/hook"}


@pytest.fixture
def loaded(installation: VirtualInstallation) -> VirtualInstallation:
    """An installation at 13:00 with a batch that runs, in which one has failed, one that has ended, and two to come."""

    def work(payload: Any) -> object:
        if payload.get("data") == 7:
            raise PermanentError("MailboxFull")
        return None

    batches = installation.client.batches
    installation.answer("webhook", work)
    batches.insert(
        [{**HOOK, "data": n} for n in range(1000)], batch_id="news/a", action="webhook", over="2h", due_at=NOON,
        then={"action": "log"},
    )  # fmt: skip
    batches.insert([HOOK] * 3, batch_id="old", action="webhook", due_at=NOON, then={"action": "log"})
    installation.advance(minutes=30)
    batches.insert([HOOK] * 600, batch_id="to-come", action="webhook", due_at=NOON + timedelta(hours=5))
    batches.insert(None, batch_id="begun", action="webhook", total=9, due_at=NOON + timedelta(hours=6))
    return installation


def test_batches_are_listed_with_what_has_ended_and_failed(loaded: VirtualInstallation, browser: Browser) -> None:
    page = browser.get("/batches")
    assert page.status_code == 200, page.text
    rows = {str(one.attributes["data-id"]): one.text for one in elements(page, "batch-row")}
    assert [one.text for one in elements(browser.get("/batches?next=7d"), "batch-link")] == [
        "begun", "to-come", "news/a"
    ]  # fmt: skip
    assert list(rows) == ["begun", "to-come", "news/a", "old"]
    assert "scheduled" in rows["begun"] and "not all are in yet" in rows["begun"]
    assert "600 members" in rows["to-come"]
    assert "running" in rows["news/a"] and "500 of 1,000 ended 1" in rows["news/a"]
    assert "completed" in rows["old"] and "3 of 3 ended" in rows["old"]
    assert [one.attributes["href"] for one in elements(page, "batch-failed")] == [
        "/batches/news%2Fa/members?status=failed"
    ]
    assert text_of(browser.get("/batches?last=1m"), "none").startswith("There are no batches in this time")
    for url, message in (
        ("/batches?last=x", "last: "), ("/batches?last=40d", "last: "), ("/batches?from=x", "from: "),
        ("/batches?page=x", "pageToken: "), ("/batches/none", "no batch"), ("/batches/none/members", "no batch"),
        ("/batches/old/members?status=open", "status: "), ("/batches/old/members?page=x", "pageToken: "),
    ):  # fmt: skip
        refused = browser.get(url)
        assert refused.status_code in (400, 404) and message in refused.text, url


def test_the_page_of_a_batch_says_how_it_stands_and_leads_to_its_failures(
    loaded: VirtualInstallation, browser: Browser
) -> None:
    page = browser.get("/batches/news%2Fa")
    assert text_of(page, "status") == "running"
    assert text_of(page, "ended").startswith("500 of 1,000 ended; 17 a minute, done about 14:00")
    assert text_of(page, "counts") == "499 completed 1 failed 500 open"
    assert 'class="completed" x="0" y="0" width="49.9"' in page.text
    failed = browser.get("/batches/news%2Fa/members?status=failed")
    (row,) = elements(failed, "task-row")
    assert row.attributes["data-id"] == "news/a/000000007" and "MailboxFull" in row.text
    (link,) = elements(failed, "task-link")
    task = browser.get(str(link.attributes["href"]))
    assert "MailboxFull" in text_of(task, "error")
    assert elements(task, "batch-of")[0].attributes["href"] == "/batches/news%2Fa"
    ended = browser.get("/batches/old")
    assert elements(ended, "then")[0].attributes["href"] == "/tasks/old%2Fthen"
    assert elements(ended, "cancel") == []


def test_the_page_of_a_batch_has_its_limit_key() -> None:
    installation = VirtualInstallation(None, start=NOON, key_limits="customer=1")
    for batch_id, key in (("free", None), ("keyed", "customer:4711")):
        installation.client.batches.insert([HOOK], batch_id=batch_id, action="webhook", limit_key=key)
    browser = Browser(installation)
    assert elements(browser.get("/batches/free"), "limit-key") == []
    assert text_of(browser.get("/batches/keyed"), "limit-key") == "customer:4711"


def test_members_are_shown_page_by_page(loaded: VirtualInstallation, browser: Browser) -> None:
    found: list[str] = []
    url = "/batches/to-come/members"
    while url:
        page = browser.get(url)
        found += [str(one.attributes["data-id"]) for one in elements(page, "task-row")]
        url = str(elements(page, "next-page")[0].attributes["href"]) if elements(page, "next-page") else ""
    assert found == [f"to-come/{n:09}" for n in range(600)]
    assert text_of(browser.get("/batches/to-come/members?status=failed"), "none") == "No member is failed."


def test_a_pack_is_shown_as_members_of_its_batch(loaded: VirtualInstallation, browser: Browser) -> None:
    page = browser.get("/buckets/2026-12-31T12:01Z")
    rows = {one.text.partition(" webhook")[0] for one in elements(page, "task-row")}
    assert {"500 members of news/a 499 completed", "3 members of old 3 completed"} <= rows
    assert "/batches/news%2Fa/members?page=0" in [one.attributes["href"] for one in elements(page, "pack-link")]
    assert "502 completed" in text_of(page, "counts") and "1 failed" in text_of(page, "counts")
    pack = browser.get("/tasks/news%2Fa%2F000000500-000000999")
    assert (pack.status_code, pack.headers["location"]) == (303, "/batches/news%2Fa/members?page=500")
    own = browser.get("/tasks/to-come")
    assert (own.status_code, own.headers["location"]) == (303, "/batches/to-come")
    assert browser.get("/search?q=old").headers["location"] == "/tasks/old"


def test_charts_and_figures_count_members(loaded: VirtualInstallation, browser: Browser) -> None:
    bars = {
        one.attributes["href"]: one.text
        for one in elements(browser.get("/timeline/hour?from=2026-12-31T12:00Z"), "bar")
    }
    assert bars["/buckets/2026-12-31T12:01Z"] == "12:01: 502 completed, 1 failed"
    later = {
        one.attributes["href"]: one.text
        for one in elements(browser.get("/timeline/hour?from=2026-12-31T17:00Z"), "bar")
    }
    assert later["/buckets/2026-12-31T17:00Z"] == "17:00: 601 scheduled", "and the task of the batch itself"
    assert any(
        one.text.startswith("13:00 500 members of news/a webhook")
        for one in elements(browser.get("/now/next"), "next-row")
    )
    status = loaded.client.operations.status(hours=24)
    assert (status.completed, status.failed, status.due_now) == (504, 1, 0)
    assert status.waiting == 500 + 600 + 3, "and the tasks of three batches"


def test_a_batch_is_rescheduled_by_its_page(loaded: VirtualInstallation, browser: Browser) -> None:
    page = browser.get("/batches/to-come")
    assert "600 members wait or run." in page.text and elements(page, "redrive") == []
    moved = browser.follow(browser.post("/batches/to-come/reschedule", due_at="2026-12-31T15:00:00"))
    assert text_of(moved, "notice") == "600 members rescheduled to 15:00; 0 run already."
    assert loaded.client.batches.get("to-come").due_at == NOON + timedelta(hours=3)
    for batch_id, due_at, message in (
        ("to-come", "x", "due_at: "), ("old", "2026-12-31T15:00:00", "cannot reschedule batch 'old': it is completed"),
        ("begun", "2026-12-31T15:00:00", "it is not loaded; load all of its members before, or cancel it"),
    ):  # fmt: skip
        refused = browser.follow(browser.post(f"/batches/{batch_id}/reschedule", due_at=due_at))
        assert text_of(refused, "problem").startswith("Nothing was changed: ") and message in text_of(
            refused, "problem"
        )
    assert elements(browser.get("/batches/begun"), "reschedule") == [], "not all are in yet"
    assert elements(browser.get("/batches/old"), "reschedule") == []


def test_the_failed_members_of_a_batch_are_redriven_by_its_page(loaded: VirtualInstallation, browser: Browser) -> None:
    page = browser.get("/batches/news%2Fa")
    assert "1 member that failed: each begins a new run at the next tick" in page.text
    assert elements(browser.get("/batches/old"), "redrive") == [], "none has failed"
    done = browser.follow(browser.post("/batches/news%2Fa/redrive"))
    assert text_of(done, "notice") == "1 member redriven: they run at the next tick."
    assert loaded.client.get("news/a/000000007").status == "scheduled"
    assert not any(one.can_abort for one in loaded.client.operations.changes.list()), "it goes to its end"
    (row,) = [one for one in elements(browser.get("/changes"), "change-row") if "redrive" in one.text]
    assert row.text.endswith("batch news/a 1 member redriven: they run at the next tick.")
    (shown,) = elements(browser.get("/changes"), "job-link")
    record = browser.get(str(shown.attributes["href"]))
    assert text_of(record, "job-runs") == "Of their runs 0 completed, 1 waiting."
    again = browser.follow(browser.post("/batches/news%2Fa/redrive"))
    assert text_of(again, "notice") == "0 members redriven: they run at the next tick."
    loaded.advance(minutes=2)
    record = browser.get(str(shown.attributes["href"]))
    assert text_of(record, "job-runs") == "Of their runs 0 completed, 1 failed again."
    assert browser.post("/batches/none/redrive").status_code == 404
    assert browser.post("/batches/old/paint").status_code == 404
    for change in ("redrive", "reschedule"):
        assert browser.post(f"/batches/to-come/{change}", token="other").status_code == 403
        assert elements(Browser(loaded, read_only=True).get("/batches/news%2Fa"), change) == []


def test_a_batch_is_cancelled_by_its_page(loaded: VirtualInstallation, browser: Browser) -> None:
    page = browser.follow(browser.post("/batches/to-come/cancel"))
    assert text_of(page, "notice") == "600 members cancelled; 0 that run end by themselves."
    assert text_of(page, "status") == "cancelled"
    (made,) = [one for one in elements(browser.get("/changes"), "change-row") if "cancel" in one.text]
    assert "cancel batch to-come" in made.text and "600 members cancelled" in made.text
    (record,) = loaded.client.operations.changes.list()
    assert (record.changed, record.by, record.interface) == (600, browser.site.trail.who, "page")
    refused = browser.follow(browser.post("/batches/old/cancel"))
    assert text_of(refused, "problem").startswith("Nothing was changed: cannot cancel batch 'old'")
    assert browser.post("/batches/news%2Fa/cancel", token="other").status_code == 403
    assert elements(Browser(loaded, read_only=True).get("/batches/news%2Fa"), "cancel") == []

"""The pages show what users write into rows as text, however hostile or large."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from tests.builders import NOON
from tests.unit.ui.support import Browser, elements, tags, text_of

from dynatick import PermanentError
from dynatick.testing.virtual_installation import VirtualInstallation

EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"
IDS = [EVIL, "a/b", "a?b#c", "100%41", "ä ö", "..", ".", "~", "~x", "x/row", "change", "a\\b", "a+b&c=d", "{{ 7*7 }}"]


@pytest.mark.parametrize("task_id", IDS)
def test_any_id_has_a_page_that_its_links_lead_to(
    installation: VirtualInstallation, browser: Browser, task_id: str
) -> None:
    installation.client.insert(task_id, due_at=NOON + timedelta(minutes=5), action="log")
    page = browser.get("/buckets/2026-12-31T12:05Z")
    assert elements(page, "task-row")[0].attributes["data-id"] == task_id
    link = str(elements(page, "task-link")[0].attributes["href"])
    shown = browser.get(link)
    assert shown.status_code == 200
    row = browser.get(f"{link}/row")
    assert row.json()["taskId"] == task_id
    assert row.headers["content-type"].startswith("application/json")
    assert tags(shown).count("script") == 4
    changed = browser.follow(browser.post(f"{link}/cancel"))
    assert text_of(changed, "status") == "cancelled"


def test_html_in_values_and_in_queries_is_text(installation: VirtualInstallation, browser: Browser) -> None:
    client = installation.client
    installation.fail("log", with_=PermanentError(EVIL))
    client.insert(
        EVIL, due_at=NOON + timedelta(minutes=5), action="log", payload={"message": EVIL}, attributes={EVIL: EVIL}
    )
    client.schedules.insert(f"s{EVIL}", "rate(1 hour)", action="log", payload={"message": EVIL})
    client.schedules.pause(f"s{EVIL}", EVIL)
    installation.advance(minutes=10)
    schedule = str(elements(browser.get("/schedules"), "schedule-link")[0].attributes["href"])
    task = str(elements(browser.get("/tasks"), "task-link")[0].attributes["href"])
    for url in (
        "/",
        "/failures",
        "/failures/groups",
        "/failures/first",
        "/tasks",
        "/schedules",
        schedule,
        f"{schedule}/strip",
        task,
    ):
        page = browser.get(url)
        assert page.status_code == 200
        found = tags(page)
        assert found.count("script") == (4 if "<html" in page.text else 0), url
        assert found.count("img") == (1 if "<html" in page.text else 0), url
        assert "onerror" not in [name for one in elements(page, "task-row") for name in one.attributes]
    dry_run = browser.get(str(elements(browser.get("/failures/groups"), "redrive-all")[0].attributes["href"]))
    assert text_of(dry_run, "dry-run-count") == "1"
    for query in (f"/tasks?prefix={EVIL}", f"/tasks?status={EVIL}", f"/timeline?span={EVIL}", f"/failures?last={EVIL}"):
        assert tags(browser.get(query)).count("script") == 4


def test_a_huge_payload_is_cut_and_can_be_had_whole(installation: VirtualInstallation, browser: Browser) -> None:
    text = "x" * 380_000
    installation.client.insert("huge", due_at=NOON + timedelta(minutes=5), action="log", payload={"message": text})
    page = browser.get("/tasks/huge")
    assert len(page.content) < 60_000
    assert "380," in page.text
    assert browser.get("/tasks/huge/row").json()["payload"]["message"] == text
    assert len(browser.get("/failures/sample/huge").content) < 60_000


def test_a_row_that_was_written_by_hand_has_a_page(installation: VirtualInstallation, browser: Browser) -> None:
    installation.client.store.create(
        {"taskId": "odd", "attempts": "none", "payload": "text", "status": ["x"], "action": {"a": 1}, "error": 7}
    )
    assert browser.get("/tasks/odd").status_code == 200
    assert json.loads(browser.get("/tasks/odd/row").text)["attempts"] == "none"

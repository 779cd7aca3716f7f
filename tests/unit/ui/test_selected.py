"""Rows that are selected are changed together, after a dry run, and no other task is."""

from __future__ import annotations

import html
import json
import re

import pytest
from tests.unit.ui.support import Browser, elements, text_of

from dynatick.testing.virtual_installation import VirtualInstallation
from dynatick.ui import tasks
from dynatick.ui.links import pairs
from dynatick.ui.links import task as link

IDS = re.compile(r'name="ids" value="([^"]*)"')


def test_selected_rows_are_redriven_after_a_dry_run_and_others_are_not(
    busy: VirtualInstallation, browser: Browser
) -> None:
    page = browser.get("/tasks?last=24h&status=failed")
    assert [one.attributes["value"] for one in elements(page, "select")] == ["bad-0", "bad-1", "bad-2", "other"]
    assert [one.testid for one in elements(page, "selected-redrive")] and not elements(page, "selected-cancel")
    dry_run = browser.get("/tasks/selected?id=bad-0&id=bad-2&id=mail-0&id=none&id=bad-0&do=redrive")
    assert text_of(dry_run, "dry-run-count") == "2"
    assert [one.text for one in elements(dry_run, "left-out")] == [
        "mail-0 it is completed",
        "none there is no such task",
    ]
    assert busy.client.get("bad-0").status == "failed"
    ids = html.unescape(IDS.findall(dry_run.text)[0])
    assert json.loads(ids) == ["bad-0", "bad-2"]
    busy.client.redrive("bad-2")  # by another, meanwhile
    job = browser.follow(browser.post("/tasks/selected", do="redrive", ids=ids))
    assert (text_of(job, "job-changed"), text_of(job, "job-skipped")) == ("1", "1")
    assert text_of(job, "job-runs") == "Of their runs 0 completed, 1 waiting."
    assert [busy.client.get(one).run for one in ("bad-0", "bad-1", "bad-2", "other")] == [2, 1, 2, 1]
    row, _deployment = elements(browser.get("/changes"), "change-row")
    assert "redrive selected tasks" in row.text


@pytest.mark.parametrize(
    ("do", "task_id", "status"),
    [("cancel", "to-come", "cancelled"), ("restore", "called-off", "scheduled"), ("run-now", "to-come", "scheduled")],
)
def test_each_change_of_selected_rows(
    busy: VirtualInstallation, browser: Browser, do: str, task_id: str, status: str
) -> None:
    dry_run = browser.get(f"/tasks/selected?id={task_id}&do={do}")
    assert text_of(dry_run, "dry-run-count") == "1"
    browser.follow(browser.post("/tasks/selected", do=do, ids=json.dumps([task_id])))
    assert busy.client.get(task_id).status == status
    if do == "run-now":
        assert busy.client.get(task_id).bucket == "2026-12-31#13:01"


def test_what_was_released_can_be_cancelled_rescheduled_and_run(busy: VirtualInstallation, browser: Browser) -> None:
    """It is running by its status, and waits: here for the end of the pause of its action."""
    busy.client.operations.pause_action("webhook")
    busy.advance(minutes=6)
    (task_id,) = (task.task_id for task in busy.waiting if task.task_id.startswith("often#"))
    assert busy.client.get(task_id).status == "running"
    page = browser.get(link(task_id))
    assert all(elements(page, testid) for testid in ("run-now", "reschedule", "cancel"))
    dry_run = browser.get(f"/tasks/selected?{pairs([('id', task_id), ('do', 'cancel')])}")
    assert text_of(dry_run, "dry-run-count") == "1"
    browser.follow(browser.post("/tasks/selected", do="cancel", ids=json.dumps([task_id])))
    assert busy.client.get(task_id).status == "cancelled"


def test_nothing_selected_too_many_or_a_wrong_form(busy: VirtualInstallation, browser: Browser) -> None:
    assert text_of(browser.get("/tasks/selected?do=cancel"), "none") == "No row is selected."
    nothing = browser.get("/tasks/selected?do=cancel&id=mail-0")
    assert text_of(nothing, "none") == "This is possible for no task that is selected." and not elements(
        nothing, "confirm"
    )
    many = "&".join(f"id=t-{n}" for n in range(51))
    assert browser.get(f"/tasks/selected?{many}&do=cancel").status_code == 400
    assert browser.get("/tasks/selected?id=bad-0&do=reschedule").status_code == 400
    for ids in ("{", "[1]", '{"a": 1}'):
        assert browser.post("/tasks/selected", do="cancel", ids=ids).status_code == 400
    assert browser.post("/tasks/selected", do="cancel", ids='["to-come"]', token="x").status_code == 403
    assert busy.client.get("to-come").status == "scheduled"


def test_read_only_pages_have_nothing_to_select(busy: VirtualInstallation) -> None:
    browser = Browser(busy, read_only=True)
    page = browser.get("/tasks?last=24h&status=failed")
    assert elements(page, "task-row") and not elements(page, "select") and not elements(page, "selecting")
    assert browser.post("/tasks/selected", do="cancel", ids='["to-come"]').status_code == 403


def test_a_task_whose_id_is_that_of_a_page_has_a_page_of_its_own(busy: VirtualInstallation, browser: Browser) -> None:
    busy.client.insert("selected", delay_seconds=3600)
    assert text_of(browser.get(link("selected")), "status") == "scheduled"


def test_no_more_are_changed_than_a_dry_run_has_counted(
    busy: VirtualInstallation, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if it has not counted all of them."""
    monkeypatch.setattr(tasks, "_MAX_COUNTED", 3)
    asked = "do=redrive&status=failed&last=24h"
    dry_run = browser.get(f"/tasks/change?{asked}")
    assert "Redrives the first 3 tasks" in text_of(dry_run, "dry-run")
    assert text_of(dry_run, "confirm") == "Redrive the first 3 tasks"
    assert 'name="confirmed" value="3"' in dry_run.text
    form = dict(part.split("=") for part in asked.split("&"))
    job = browser.follow(browser.post("/tasks/change", **form, confirmed="3"))
    assert text_of(job, "job-changed") == "3" and elements(job, "job-more")

"""Changes: confirmed by a form with the token, answered with what happened, and refused to all others."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import timedelta
from urllib.parse import urlencode

import httpx2
import pytest
from tests.builders import NOON
from tests.unit.ui.support import Browser, elements, tags, text_of

from dynatick.client.failures import fingerprint_of
from dynatick.testing.virtual_installation import VirtualInstallation

CHANGES: Mapping[str, Mapping[str, str]] = {
    "/tasks/to-come/cancel": {},
    "/tasks/to-come/run-now": {},
    "/tasks/to-come/reschedule": {"due_at": "2026-12-31T15:00"},
    "/tasks/bad-0/redrive": {},
    "/tasks/called-off/restore": {},
    "/tasks/change": {"do": "cancel", "status": "scheduled", "from": "2026-12-31T13:00Z", "to": "2026-12-31T15:00Z"},
    "/tasks/selected": {"do": "cancel", "ids": '["to-come"]'},
    "/failures/redrive": {"last": "24h"},
    "/schedules/often/pause": {},
    "/schedules/often/resume": {},
    "/schedules/often/run-now": {},
    "/actions/log/pause": {},
    "/actions/log/resume": {},
    "/pause": {},
    "/resume": {},
}


def rows(installation: VirtualInstallation) -> object:
    return sorted((row["taskId"], str(row)) for row in installation._table.open_rows()), [
        installation.client.get(f"bad-{n}").row for n in range(3)
    ]


@pytest.mark.parametrize("url", CHANGES)
def test_without_the_token_nothing_is_changed(busy: VirtualInstallation, browser: Browser, url: str) -> None:
    before = rows(busy)
    for token in ("", "x", browser.site.token[:-1], "ä"):
        answer = browser.post(url, **CHANGES[url], token=token)
        assert answer.status_code == 403
        assert "form is not of this dynatick ui" in text_of(answer, "problem")
    browser.get(url)  # changes nothing either
    assert rows(busy) == before


def test_read_only_pages_offer_and_make_no_change(busy: VirtualInstallation) -> None:
    browser = Browser(busy, read_only=True)
    before = rows(busy)
    for url, form in CHANGES.items():
        answer = browser.post(url, **form)
        assert answer.status_code == 403
        assert "read-only" in text_of(answer, "problem")
    assert rows(busy) == before
    for url in (
        "/",
        "/failures",
        "/failures/first",
        "/tasks?status=failed",
        "/tasks/to-come",
        "/schedules/often",
        "/actions",
        "/actions/log",
    ):
        page = browser.get(url)
        assert 'method="post"' not in page.text, url
        assert "redrive-all" not in page.text
    assert elements(browser.get("/"), "read-only")


def test_a_form_of_another_content_type_or_a_large_one_is_refused(busy: VirtualInstallation, browser: Browser) -> None:
    for kind in ("application/json", "text/plain", "multipart/form-data; boundary=x", ""):
        answer = browser.http.post("/pause", content=f"token={browser.site.token}", headers={"Content-Type": kind})
        assert answer.status_code == 415, kind
    assert browser.post("/pause", reason="x" * 1_300_000).status_code == 413
    assert busy.client.operations.health().pause is None


def test_a_task_is_redriven_with_the_largest_payload_whatever_its_letters(
    busy: VirtualInstallation, browser: Browser
) -> None:
    payload = {"message": "Привет, мир! " * 17_000}
    page = browser.follow(browser.post("/tasks/other/redrive", payload=json.dumps(payload, ensure_ascii=False)))
    assert text_of(page, "notice") == "Redriven: run 2 begins at 13:01."
    assert busy.client.get("other").payload == payload


def test_a_task_is_rescheduled_and_cancelled_until_it_is_too_late(busy: VirtualInstallation, browser: Browser) -> None:
    page = browser.follow(browser.post("/tasks/to-come/reschedule", due_at="2026-12-31T15:30"))
    assert text_of(page, "notice") == "Rescheduled: it is due at 15:30."
    assert busy.client.get("to-come").bucket == "2026-12-31#15:30"
    for form, wrong in (({"due_at": "soon"}, "expected an instant"), ({}, "due_at")):
        assert wrong in text_of(browser.follow(browser.post("/tasks/to-come/reschedule", **form)), "problem")
    page = browser.follow(browser.post("/tasks/to-come/cancel"))
    assert text_of(page, "notice").startswith("Cancelled at ")
    assert text_of(page, "status") == busy.client.get("to-come").status == "cancelled"
    for change in ("cancel", "reschedule"):
        page = browser.follow(browser.post(f"/tasks/to-come/{change}", due_at="2026-12-31T15:00"))
        wrong = f"Nothing was changed: cannot {change} task 'to-come': it is cancelled"
        assert text_of(page, "problem").startswith(wrong)


def test_each_change_says_what_it_did(busy: VirtualInstallation, browser: Browser) -> None:
    def change(url: str, notice: str, **form: str) -> httpx2.Response:
        page = browser.follow(browser.post(url, **form))
        assert text_of(page, "notice").startswith(notice), url
        return page

    bucket = busy.client.get("to-come").bucket
    change("/tasks/to-come/cancel", "Cancelled at ")
    change("/tasks/to-come/restore", "Restored: it runs at 14:00.")
    assert busy.client.get("to-come").bucket == bucket
    change("/tasks/to-come/run-now", "It runs at the next tick, 13:01.")
    for wrong, said in (
        ("{", "payload: '{' is not accepted; expected JSON"),
        ("[]", "payload: [] is not accepted; ex"),
    ):
        page = browser.follow(browser.post("/tasks/other/redrive", payload=wrong))
        assert text_of(page, "problem").startswith(f"Nothing was changed: {said}")
    change("/tasks/other/redrive", "Redriven: run 2 begins at 13:01.", payload='{"message": "again"}')
    assert busy.client.get("other").payload == {"message": "again"}
    busy.advance(minutes=1)
    assert busy.client.get("to-come").status == busy.client.get("other").status == "completed"
    change("/schedules/often/pause", "Paused", reason="the move")
    assert busy.client.schedules.get("often").state == "DISABLED"
    change("/schedules/often/resume", "Resumed: its next occurrence is at 13:05.")
    change("/schedules/often/run-now", "An extra occurrence runs at the next tick.")
    assert "exists already" in text_of(browser.follow(browser.post("/schedules/often/run-now")), "problem")
    for page in (change("/pause", "Paused", reason="<b>the move</b>"), browser.get("/tasks"), browser.get("/ticks")):
        assert elements(page, "state")[0].attributes["data-state"] == "paused"
        assert "<b>the move</b>" in text_of(page, "paused") and "b" not in tags(page)
    assert 'hx-swap-oob="true"' in browser.get("/live?state=running").text
    assert "hx-swap-oob" not in browser.get("/live?state=paused").text
    assert "<b>the move</b>" in str(busy.client.operations.health().pause)
    change("/resume", "Resumed: the next tick runs what is due.")
    assert busy.client.operations.health().pause is None
    change("/resume", "It was not paused.")
    assert not elements(browser.get("/?notice=You+are+hacked"), "notice"), "no notice is taken from the URL"


def test_an_action_is_paused_and_resumed_and_every_page_says_so(busy: VirtualInstallation, browser: Browser) -> None:
    assert text_of(browser.get("/actions/log"), "action").startswith("log")
    page = browser.follow(browser.post("/actions/log/pause", reason="<b>the move</b>"))
    assert text_of(page, "notice").startswith("log is paused")
    assert elements(page, "action-resume") and not elements(page, "action-pause")
    (known,) = busy.client.operations.health().paused_actions
    assert (known.action, known.reason, known.by is not None) == ("log", "<b>the move</b>", True)
    for page in (browser.get("/tasks"), browser.get("/live?state=running&tick=another")):
        assert "log is paused since 13:00" in text_of(page, "action-paused")
        assert "<b>the move</b>" in text_of(page, "action-paused") and "b" not in tags(page)
    assert elements(browser.get("/"), "state")[0].attributes["data-state"] == "running"
    assert "hx-swap-oob" not in browser.get("/live?state=running").text
    row = next(one for one in elements(browser.get("/actions/rows"), "action-row") if "log" in one.text)
    assert "paused since 13:00 by" in row.text
    assert len(elements(browser.get("/actions/rows?action=log"), "action-row")) == 1
    assert "its action is paused since" in text_of(browser.get("/tasks/to-come"), "explanation")
    page = browser.follow(browser.post("/actions/log/resume"))
    assert text_of(page, "notice") == "log is resumed: tasks that wait begin by 13:02."
    assert elements(page, "action-pause") and not elements(page, "action-paused")
    assert text_of(browser.follow(browser.post("/actions/log/resume")), "notice") == "log was not paused."


def test_an_action_that_no_user_has_is_not_paused(busy: VirtualInstallation, browser: Browser) -> None:
    assert not elements(browser.get("/actions/dynatick.batch"), "action-pause")
    for url, said in {"/actions/lgo/pause": "expected one of", "/actions/dynatick.batch/pause": "reserved"}.items():
        answer = browser.post(url)
        assert (answer.status_code, said in text_of(answer, "problem")) == (400, True)
    assert browser.post("/actions/log/explode").status_code == 404
    assert busy.client.operations.health().paused_actions == ()


@pytest.mark.parametrize("url", ["/tasks/to-come/explode", "/schedules/often/explode", "/tasks/none/cancel"])
def test_an_unknown_change_is_no_page(busy: VirtualInstallation, browser: Browser, url: str) -> None:
    assert browser.post(url).status_code == 404


def test_failures_are_grouped_and_redriven_together(busy: VirtualInstallation, browser: Browser) -> None:
    page = browser.get("/failures/groups")
    groups = elements(page, "failure-group")
    assert [one.attributes["data-count"] for one in groups] == ["3", "1"], "by impact"
    dry_run = browser.get(str(elements(page, "redrive-all")[0].attributes["href"]))
    assert "Redrives 3 tasks at the next tick, 13:01." in text_of(dry_run, "dry-run")
    assert busy.client.get("bad-0").status == "failed"
    assert "user-2@example.com" in text_of(browser.get("/failures/sample/bad-2"), "payload")
    form = {"fingerprint": fingerprint_of("no such mailbox: a@b"), "last": "24h"}
    assert text_of(browser.follow(browser.post("/failures/redrive", **form)), "job-changed") == "3"
    assert [busy.client.get(task_id).status for task_id in ("bad-2", "other")] == ["scheduled", "failed"]


def test_no_more_are_redriven_than_the_page_has_shown(busy: VirtualInstallation, browser: Browser) -> None:
    """Others fail while the person reads the page."""
    form = {"fingerprint": fingerprint_of("no such mailbox: a@b"), "last": "24h"}
    job = browser.follow(browser.post("/failures/redrive", **form, confirmed=2))
    assert text_of(job, "job-changed") == "2"
    assert "More tasks match by now, and were left as they are." in text_of(job, "job-more")
    rest = browser.get(f"/failures/redrive?{urlencode(form)}")
    assert text_of(rest, "dry-run-count") == "1"
    assert 'name="confirmed" value="1"' in rest.text
    job = browser.follow(browser.post("/failures/redrive", **form, confirmed=1))
    assert (text_of(job, "job-changed"), elements(job, "job-more")) == ("1", [])
    for wrong in ("0", "two", "-1"):
        assert browser.post("/failures/redrive", **form, confirmed=wrong).status_code == 400


def test_a_dry_run_names_the_subject_and_a_range_only_if_there_is_one(
    busy: VirtualInstallation, browser: Browser
) -> None:
    busy.client.insert("of-ada", due_at=NOON + timedelta(days=40), subject="customer:ada")
    asked = {"status": "scheduled", "do": "cancel", "subject": "customer:ada"}
    wherever = text_of(browser.get(f"/tasks/change?{urlencode(asked)}"), "dry-run")
    assert wherever.startswith("All scheduled tasks, subject customer:ada. Cancels 1 task"), wherever
    ranged = text_of(browser.get(f"/tasks/change?{urlencode({**asked, 'next': '24h'})}"), "dry-run")
    assert ranged.startswith("All scheduled tasks from 2026-12-31 13:00:00 to 2027-01-01 13:00:00, subject"), ranged


def test_all_that_a_dry_run_names_are_changed_though_others_are_skipped(browser: Browser) -> None:
    """The rows of batches, which only their own command cancels, come first."""
    client = browser.installation.client
    due_at = NOON + timedelta(hours=3)
    for name in ("a", "b"):
        client.batches.insert([{}], batch_id=name, action="log", due_at=due_at)
    client.insert("t", due_at=due_at)
    asked = {"do": "cancel", "status": "scheduled", "from": "2026-12-31T14:30Z", "to": "2026-12-31T15:30Z"}
    dry_run = browser.get(f"/tasks/change?{urlencode(asked)}")
    number = text_of(dry_run, "dry-run-count")
    browser.follow(browser.post("/tasks/change", **asked, confirmed=number))
    assert client.get("t").status == "cancelled"
    assert elements(browser.get(f"/tasks/change?{urlencode(asked)}"), "none")


def test_a_dry_run_and_its_change_count_the_members_of_batches(browser: Browser) -> None:
    client = browser.installation.client
    due_at = NOON + timedelta(hours=3)
    client.batches.insert([{}] * 1200, batch_id="a", action="log", due_at=due_at)
    client.insert("t", due_at=due_at)
    asked = {"do": "cancel", "status": "scheduled", "from": "2026-12-31T14:30Z", "to": "2026-12-31T15:30Z"}
    dry_run = browser.get(f"/tasks/change?{urlencode(asked)}")
    assert (text_of(dry_run, "dry-run-count"), text_of(dry_run, "confirm")) == ("1,201", "Cancel 1,201 tasks")
    assert 'name="confirmed" value="4"' in dry_run.text, "rows, of which no more are changed"
    assert text_of(browser.follow(browser.post("/tasks/change", **asked, confirmed=4)), "job-changed") == "1,201"
    (record,) = client.operations.changes.list()
    assert record.changed == 1201
    selected = browser.get("/tasks/selected?do=restore&id=t&id=a/000000500-000000999")
    assert text_of(selected, "confirm") == "Restore 501 tasks"
    ids = '["t", "a/000000500-000000999"]'
    assert text_of(browser.follow(browser.post("/tasks/selected", do="restore", ids=ids)), "job-changed") == "501"


@pytest.mark.parametrize("subject", ["acme ", " acme", " "])
def test_the_tasks_of_another_name_that_differs_in_a_space_are_left_alone(browser: Browser, subject: str) -> None:
    client = browser.installation.client
    client.insert("of-acme", due_at=NOON + timedelta(hours=2), subject="acme")
    client.insert("own ", due_at=NOON + timedelta(hours=2), subject=subject)
    link = next(one for one in re.findall(r'href="([^"]+)"', browser.get("/tasks/own%20").text) if "subject=" in one)
    assert [one.attributes["data-id"] for one in elements(browser.get(link), "task-row")] == ["own "]
    form = {"do": "cancel", "status": "scheduled", "subject": subject, "prefix": "own "}
    dry_run = browser.get(f"/tasks/change?{urlencode(form)}")
    assert text_of(dry_run, "dry-run-count") == "1"
    for name in ("subject", "prefix"):
        assert f'name="{name}" value="{form[name]}"' in dry_run.text
    assert text_of(browser.follow(browser.post("/tasks/change", **form)), "job-changed") == "1"
    assert {one: client.get(one).status for one in ("own ", "of-acme")} == {"own ": "cancelled", "of-acme": "scheduled"}


def test_a_task_without_a_time_is_restored_for_the_next_tick(browser: Browser) -> None:
    client = browser.installation.client
    client.insert("soon")
    client.cancel("soon")
    answer = browser.follow(browser.post("/tasks/soon/restore"))
    assert text_of(answer, "notice").startswith("Restored: it runs at the next tick.")


def test_all_tasks_of_a_filter_are_changed_after_a_dry_run(busy: VirtualInstallation, browser: Browser) -> None:
    filters = {"status": "scheduled", "from": "2026-12-31T13:30Z", "to": "2026-12-31T18:30Z"}
    later = {"do": "reschedule", **filters}
    assert elements(browser.get(f"/tasks/change?{urlencode(later)}"), "due-at")
    dry_run = browser.get(f"/tasks/change?{urlencode(later)}&due_at=2026-12-31T18:00")
    assert text_of(dry_run, "dry-run-count") == "1"
    browser.follow(browser.post("/tasks/change", **later, due_at="2026-12-31T18:00:00Z"))
    assert busy.client.get("to-come").bucket == "2026-12-31#18:00"
    found = browser.get(f"/tasks?{urlencode(filters)}")
    dry_run = browser.get(str(elements(found, "change-cancel")[0].attributes["href"]))
    assert (text_of(dry_run, "dry-run-count"), busy.client.get("to-come").status) == ("1", "scheduled")
    form = {"do": "cancel", **filters}
    job = browser.follow(browser.post("/tasks/change", **form))
    assert (text_of(job, "job-changed"), busy.client.get("to-come").status) == ("1", "cancelled")
    assert elements(browser.get(f"/tasks/change?{urlencode(form)}"), "none")
    found = browser.get(f"/tasks?{urlencode({**filters, 'status': 'cancelled'})}")
    for do, then in (("restore", "2026-12-31#18:00"), ("run-now", "2026-12-31#13:01")):
        asked = {"do": do, **filters, "status": "cancelled" if do == "restore" else "scheduled"}
        assert text_of(browser.get(f"/tasks/change?{urlencode(asked)}"), "dry-run-count") == "1"
        job = browser.follow(browser.post("/tasks/change", **asked))
        assert (text_of(job, "job-changed"), busy.client.get("to-come").bucket) == ("1", then)
    assert [one.testid for do in ("restore", "run-now") for one in elements(found, f"change-{do}")] == [
        "change-restore", "change-run-now"
    ]  # fmt: skip
    needs = {"cancel": "scheduled or unscheduled", "redrive": "failed"}
    for do, status in (("cancel", "failed"), ("redrive", "scheduled"), ("redrive", "completed")):
        refused = browser.get(f"/tasks/change?do={do}&status={status}")
        assert refused.status_code == 400 and f"expected {needs[do]} to {do}" in text_of(refused, "problem")
        assert browser.post("/tasks/change", do=do, status=status).status_code == 400

"""The errands of a person, done with mouse and keyboard from the first page."""

from __future__ import annotations

from datetime import timedelta

import pytest
from playwright.sync_api import expect
from tests.ui import seed
from tests.ui.accessibility import violations
from tests.ui.browser import PHONE
from tests.ui.clock import NOW
from tests.ui.conftest import OpenTab
from tests.ui.serving import Served

NEXT_TICK = NOW.replace(second=0) + timedelta(minutes=1)


def test_what_failed_last_night_is_found_and_redriven_in_four_clicks(own: Served, open_tab: OpenTab) -> None:
    failed = [f"charge-order-{4001 + number}" for number in range(seed.BANK_DOWN)]
    person = open_tab(own, "/")
    person.by("nav-failures").click()
    group = person.by("failure-group").filter(has_text="the bank answered 503")
    expect(group).to_have_attribute("data-count", str(seed.BANK_DOWN))
    group.get_by_test_id("redrive-all").click()
    expect(person.by("dry-run")).to_be_visible()
    expect(person.by("dry-run-count")).to_have_text(str(seed.BANK_DOWN))
    assert {own.client.get(task_id).status for task_id in failed} == {"failed"}  # a dry run changes nothing

    person.by("confirm").click()
    expect(person.by("job")).to_have_attribute("data-state", "done")
    expect(person.by("job-changed")).to_have_text(str(seed.BANK_DOWN))
    assert person.log.clicks <= 4
    assert {own.client.get(task_id).status for task_id in failed} == {"scheduled"}

    own.installation.tick(NEXT_TICK)
    assert {(task.status, task.run) for task in map(own.client.get, failed)} == {("completed", 2)}
    others = [f"invoice-mail-{number:02}" for number in range(seed.NO_MAILBOX)]
    assert {own.client.get(task_id).status for task_id in others} == {"failed"}


def test_an_incident_is_understood_by_its_page_and_redriven_in_five_clicks(own: Served, open_tab: OpenTab) -> None:
    person = open_tab(own, "/")
    person.by("nav-failures").click()
    expect(person.by("failure-group").first).to_be_visible()
    counts = [int(str(group.get_attribute("data-count"))) for group in person.by("failure-group").all()]
    assert counts == sorted(counts, reverse=True), "the one with the most tasks first"
    negative = person.by("failure-error").filter(has_text="cents is negative")
    expect(negative).to_have_text("order …: … cents is negative")
    negative.click()
    incident = person.by("failure")
    expect(incident).to_have_attribute("data-count", str(seed.NEGATIVE))
    expect(incident.get_by_test_id("failure-variant")).to_have_text(
        ["1order 5001: -5 cents is negative", "1order 5002: -6 cents is negative"]
    )
    expect(incident.get_by_test_id("failure-action")).to_contain_text("charge-card")
    expect(incident.get_by_test_id("trace")).to_contain_text("in charge_card: raise PermanentError(")
    expect(incident.get_by_test_id("failure-bar")).to_have_count(1)
    expect(incident.get_by_test_id("task-row")).to_have_count(seed.NEGATIVE)
    again = open_tab(own, person.page.url.removeprefix(own.url))  # as a colleague gets it
    expect(again.by("failure")).to_have_attribute("data-count", str(seed.NEGATIVE))

    incident.get_by_test_id("redrive-all").click()
    expect(person.by("dry-run-count")).to_have_text(str(seed.NEGATIVE))
    person.by("confirm").click()
    expect(person.by("job-changed")).to_have_text(str(seed.NEGATIVE))
    assert person.log.clicks <= 5
    assert {own.client.get(f"charge-order-{5001 + number}").run for number in range(seed.NEGATIVE)} == {2}
    assert {own.client.get(f"charge-order-{4001 + number}").run for number in range(seed.BANK_DOWN)} == {1}


def test_what_has_come_of_a_redrive_is_seen_on_its_page_and_in_the_changes(own: Served, open_tab: OpenTab) -> None:
    person = open_tab(own, f"/failures/{seed.BANK_DOWN_FINGERPRINT}")
    person.by("redrive-all").click()
    person.by("confirm").click()
    expect(person.by("job-runs")).to_have_text("Of their runs 0 completed, 4 waiting.")
    own.installation.tick(NEXT_TICK)
    expect(person.by("job-runs")).to_have_text("Of their runs 4 completed.")  # by itself
    assert person.log.clicks <= 2
    person.by("nav-changes").click()
    row = person.by("change-row").filter(has_text="redrive")  # beside the deployment
    expect(row).to_have_count(1)
    expect(row).to_contain_text(f"redrivefailures {seed.BANK_DOWN_FINGERPRINT}")
    expect(row.get_by_test_id("job-link")).to_have_text("Done: 4 redriven")
    expect(row.get_by_test_id("job-runs")).to_have_text("Of their runs 4 completed.")
    assert violations(person.page) == []
    row.get_by_test_id("job-link").click()
    expect(person.by("job")).to_have_attribute("data-state", "done")
    assert violations(person.page) == []


def test_what_will_run_at_noon_is_seen_in_two_clicks(small: Served, open_tab: OpenTab) -> None:
    person = open_tab(small, "/")
    person.by("nav-timeline").click()
    noon = person.page.locator("[data-testid=bar][href='/buckets/2027-03-24T12:00Z']")
    noon.scroll_into_view_if_needed()
    noon.click()
    for number in range(3):
        expect(person.page.locator(f"[data-testid=task-row][data-id='table-{number}']")).to_be_visible()
    expect(person.page.locator("main")).to_contain_text(seed.LUNCH)  # a schedule, whose task does not exist yet
    assert person.log.clicks <= 2


def test_why_a_task_waits_is_found_by_a_prefix_or_its_id_without_a_click(small: Served, open_tab: OpenTab) -> None:
    person = open_tab(small, "/")
    person.page.keyboard.press("/")
    expect(person.by("search-input")).to_be_focused()
    person.page.keyboard.type("/")
    expect(person.by("search-input")).to_have_value("/")
    person.by("search-input").fill("charge-order-")
    person.page.keyboard.press("Enter")
    expect(person.page.locator(f"[data-testid=task-row][data-id='{seed.WAITS_FOR_RETRY}']")).to_be_visible()

    person.open("/")
    person.page.keyboard.press("/")
    person.page.keyboard.type(seed.WAITS_FOR_RETRY)
    person.page.keyboard.press("Enter")
    explanation = person.by("explanation")
    expect(explanation).to_contain_text("waits for its 2nd attempt")
    expect(explanation).to_contain_text("09:17:30")
    expect(explanation).to_contain_text("the bank answered 503")
    expect(person.by("status")).to_contain_text("scheduled")
    assert person.log.clicks == 0


def test_a_search_looks_both_ways_and_goes_on_until_it_has_found(own: Served, open_tab: OpenTab) -> None:
    own.client.insert("rare-1", due_at=NOW + timedelta(hours=40), action="log", payload={"message": "x"})
    own.client.insert("rare-2", due_at=NOW + timedelta(hours=20), action="log", payload={"message": "x"})
    person = open_tab(own, "/")
    person.by("search-input").fill("rare-")
    person.page.keyboard.press("Enter")
    expect(person.by("looked")).to_contain_text("so far, looking on")  # what it says while it looks
    expect(person.by("task-row")).to_have_count(1)
    expect(person.by("looked")).to_have_text("Looked from 23 Mar 07:12 to 25 Mar 11:12: 1 task so far.")
    person.by("go-on").click()
    expect(person.by("task-row")).to_have_count(2)
    expect(person.by("looked")).to_contain_text("2 tasks so far")
    expect(person.by("go-on")).to_be_visible()
    assert violations(person.page) == []
    assert person.log.clicks == 1


def test_a_run_that_was_missed_is_explained_by_its_id_without_a_click(small: Served, open_tab: OpenTab) -> None:
    person = open_tab(small, "/")
    person.page.keyboard.press("/")
    person.page.keyboard.type(seed.MISSED_OCCURRENCE)
    person.page.keyboard.press("Enter")
    expect(person.by("explanation")).to_contain_text("was not made: its tick came too late, and catchUp skips it")
    expect(person.by("schedule-link")).to_have_text("probe")
    assert person.log.clicks == 0


def test_rows_are_selected_and_redriven_and_no_other_is(own: Served, open_tab: OpenTab) -> None:
    person = open_tab(own, "/tasks?from=2027-03-24T00:00Z&to=2027-03-24T06:00Z&status=failed&prefix=invoice")
    for number in (1, 3):
        person.page.get_by_label(f"Select invoice-mail-{number:02}").check()
    person.by("selected-redrive").click()
    expect(person.by("dry-run-count")).to_have_text("2")
    assert violations(person.page) == []
    person.by("confirm").click()
    expect(person.by("job-changed")).to_have_text("2")
    assert person.log.clicks <= 4
    runs = {number: own.client.get(f"invoice-mail-{number:02}").run for number in range(seed.NO_MAILBOX)}
    assert [number for number, run in runs.items() if run == 2] == [1, 3]

    person.open("/tasks?from=2027-03-24T00:00Z&to=2027-03-24T06:00Z&status=failed&prefix=charge")
    person.by("select-all").check()
    person.by("selected-redrive").click()
    expect(person.by("dry-run-count")).to_have_text(str(seed.BANK_DOWN + seed.NEGATIVE))


def test_a_batch_is_found_by_its_members_and_cancelled_in_four_clicks(own: Served, open_tab: OpenTab) -> None:
    person = open_tab(own, "/buckets/2027-03-24T19:13Z")
    pack = person.by("pack-link").first
    expect(pack).to_have_text(f"500 members of {seed.BATCH}")
    pack.click()
    expect(person.page.locator(f"[data-testid=task-row][data-id='{seed.BATCH}/000000000']")).to_be_visible()
    person.by("batch-link").click()
    expect(person.by("ended")).to_have_text("0 of 600 ended.")
    person.by("cancel").click()
    person.by("confirm-cancel").click()
    expect(person.by("notice")).to_have_text("600 members cancelled; 0 that run end by themselves.")
    assert person.log.clicks <= 4
    assert own.client.batches.get(seed.BATCH).counts == {"cancelled": 600}


def test_a_batch_is_moved_in_three_clicks(own: Served, open_tab: OpenTab) -> None:
    person = open_tab(own, "/batches")
    person.page.locator(f"[data-testid=batch-row][data-id='{seed.BATCH}'] [data-testid=batch-link]").click()
    person.by("reschedule").click()
    expect(person.page.locator("details[open] .question")).to_contain_text("600 members wait or run.")
    person.by("due-at").fill("2027-03-24T21:00:00")
    person.by("confirm-reschedule").click()
    expect(person.by("notice")).to_contain_text("600 members rescheduled to 21:00; 0 run already.")
    assert person.log.clicks <= 3


def test_everything_is_stopped_in_two_clicks_and_resumed_in_two(own: Served, open_tab: OpenTab) -> None:
    own.client.insert("due-now", due_at=NEXT_TICK, action="log", payload={"message": "now"})
    person = open_tab(own, "/")
    expect(person.by("state")).to_have_attribute("data-state", "running")
    person.by("pause").click()
    expect(person.by("pause-reason")).to_be_focused()
    person.page.keyboard.type("the bank is down")
    person.by("confirm-pause").click()
    expect(person.by("state")).to_have_attribute("data-state", "paused")
    expect(person.page.locator("body")).to_contain_text("the bank is down")
    assert person.log.clicks <= 2
    own.installation.tick(NEXT_TICK)
    assert own.client.get("due-now").status == "scheduled"

    person.log.clear()
    person.by("resume").click()
    person.by("confirm-resume").click()
    expect(person.by("state")).to_have_attribute("data-state", "running")
    assert person.log.clicks <= 2
    own.installation.tick(NEXT_TICK + timedelta(minutes=1))
    assert own.client.get("due-now").status == "completed"


def test_one_action_is_stopped_from_its_page_and_resumed_while_all_others_run(own: Served, open_tab: OpenTab) -> None:
    for task_id, action in (("due-mail", "send-reminder"), ("due-log", "log")):
        payload = {"to": "team@example.com"} if action == "send-reminder" else {"message": "now"}
        own.client.insert(task_id, due_at=NEXT_TICK, action=action, payload=payload)
    person = open_tab(own, "/actions")
    person.page.locator("[data-action=send-reminder] [data-testid=action-link]").click()
    person.by("action-pause").click()
    expect(person.by("action-pause-reason")).to_be_focused()
    person.page.keyboard.type("the mail server is down")
    person.by("confirm-action-pause").click()
    expect(person.by("notice")).to_contain_text("send-reminder is paused")
    expect(person.by("action-paused")).to_contain_text("the mail server is down")
    expect(person.by("state")).to_have_attribute("data-state", "running")
    assert person.log.clicks <= 3
    own.installation.tick(NEXT_TICK)
    assert [own.client.get(task_id).status for task_id in ("due-mail", "due-log")] == ["scheduled", "completed"]
    person.open("/tasks/due-mail")
    expect(person.by("explanation")).to_contain_text("its action is paused")

    person.by("action-paused").get_by_role("link").click()
    person.by("action-resume").click()
    person.by("confirm-action-resume").click()
    expect(person.by("notice")).to_contain_text("send-reminder is resumed")
    expect(person.by("action-paused")).to_have_count(0)
    own.installation.tick(NEXT_TICK + timedelta(minutes=1))
    assert own.client.get("due-mail").status == "completed"


@pytest.mark.parametrize("width", [PHONE[0], 400, 760])
@pytest.mark.parametrize("action", ["log", "an-action-with-a-name-that-takes-more-than-one-line-on-a-phone"])
def test_the_question_of_a_pause_is_whole_on_a_narrow_page(
    small: Served, open_tab: OpenTab, action: str, width: int
) -> None:
    person = open_tab(small, f"/actions/{action}", size=(width, PHONE[1]))
    person.by("action-pause").click()
    question = person.page.locator("details[open] .question")
    expect(person.by("confirm-action-pause")).to_be_in_viewport(ratio=1)
    box = question.bounding_box()
    assert box and box["x"] >= 0 and box["x"] + box["width"] <= width
    assert person.page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_task_is_rescheduled_by_its_page(own: Served, open_tab: OpenTab) -> None:
    person = open_tab(own, "/tasks/table-2")
    person.by("reschedule").click()
    person.by("due-at").fill("2027-03-24T15:30")
    person.by("confirm-reschedule").click()
    expect(person.by("notice")).to_contain_text("15:30")
    assert own.client.get("table-2").bucket == "2027-03-24#15:30"


def test_a_schedule_is_paused_with_a_reason_resumed_and_run(own: Served, open_tab: OpenTab) -> None:
    person = open_tab(own, f"/schedules/{seed.LUNCH}")
    person.by("schedule-pause").click()
    expect(person.page.locator("details[open] input:not([type=hidden])")).to_be_focused()
    person.page.keyboard.type("the kitchen is closed")
    person.by("confirm-schedule-pause").click()
    expect(person.by("schedule")).to_contain_text("the kitchen is closed")
    assert own.client.schedules.get(seed.LUNCH).state == "DISABLED"
    for change, then in (("resume", "schedule-pause"), ("run-now", "notice")):
        person.by(f"schedule-{change}").click()
        person.by(f"confirm-schedule-{change}").click()
        expect(person.by(then)).to_be_visible()
    assert own.client.schedules.get(seed.LUNCH).state == "ENABLED"
    expect(person.by("notice")).to_contain_text("at the next tick")

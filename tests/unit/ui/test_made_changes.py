"""Changes: who asked for what, and what has come of it; those of many tasks can be aborted, and are followed."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from datetime import timedelta
from threading import Event

import pytest
from tests.builders import NOON
from tests.unit.ui.support import Browser, elements, text_of

from dynatick.client import Changed, ManyResult, Skipped, TaskClient
from dynatick.client.change_records import ChangeRecord, ChangeRecords, counted_in, new_record
from dynatick.client.failures import fingerprint_of
from dynatick.errors import StoreError
from dynatick.testing.virtual_installation import VirtualInstallation
from dynatick.ui import jobs, links
from dynatick.ui.jobs import Jobs
from dynatick.ui.trail import LOG, log_changes

MAILBOX = fingerprint_of("no such mailbox: x@example.com")
ARN = "arn:aws:iam::123456789012:user/ada"


def rows(browser: Browser) -> list[str]:
    """Without the last deployment."""
    found = [one.text for one in elements(browser.get("/changes"), "change-row")]
    assert "a deployment settings everything The last one that changed the settings" in found[-1]
    return found[:-1]


def test_each_change_is_a_row_with_who_made_it_and_what_came_of_it(busy: VirtualInstallation, browser: Browser) -> None:
    browser.site.trail._caller = lambda: ARN
    assert rows(browser) == []
    browser.follow(browser.post("/tasks/to-come/reschedule", due_at="2026-12-31T15:30"))
    browser.follow(browser.post("/tasks/to-come/redrive"))
    browser.post("/schedules/none/pause", reason="the move")
    browser.follow(browser.post("/tasks/other/redrive", payload='{"message": "a secret"}'))
    redriven, missing, refused, moved = rows(browser)
    assert moved == (
        f"13:00:00.000 {ARN} reschedule task to-come due at 2026-12-31T15:30 Rescheduled: it is due at 15:30."
    )
    assert "Nothing was changed: cannot redrive task 'to-come'" in refused
    assert "pause schedule none reason the move" in missing and "none" in missing
    assert "payload another one Redriven: run 2 begins at 13:01." in redriven and "secret" not in redriven
    states = [one.attributes["data-state"] for one in elements(browser.get("/changes"), "change-row")]
    assert states == ["done", "failed", "failed", "done", "done"]
    browser.post("/pause", token="wrong")
    assert len(rows(browser)) == 4, "what has no token is no change"


def test_a_redrive_says_what_came_of_its_runs(busy: VirtualInstallation, browser: Browser) -> None:
    answer = browser.post("/failures/redrive", fingerprint=MAILBOX, last="24h", confirmed="3")
    job = browser.follow(answer)
    assert text_of(job, "job").startswith("Done: 3 redriven.")
    assert text_of(job, "job-runs") == "Of their runs 0 completed, 3 waiting."
    assert 'hx-trigger="every 10s"' in job.text
    busy.answer("webhook", lambda payload: None if "user-0" not in str(payload) else 1 / 0)
    busy.advance(minutes=2)
    job = browser.get(answer.headers["location"])
    assert text_of(job, "job-runs") == "Of their runs 2 completed, 1 waiting."
    busy.advance(hours=2)
    (row,) = rows(browser)
    assert row.endswith("Done: 3 redriven Of their runs 2 completed, 1 failed again.")
    assert f"redrive failures {MAILBOX}" in row
    assert "every 10s" not in browser.get("/changes/rows").text, "it is over"
    assert elements(browser.get(answer.headers["location"]), "job-runs")


def test_a_change_of_many_tasks_is_aborted_and_counts_all_that_it_has_changed(
    busy: VirtualInstallation, browser: Browser
) -> None:
    client, began, goes_on = busy.client, Event(), Event()
    busy.client.insert_many({"taskId": f"n-{n:03}", "dueAt": NOON + timedelta(hours=3)} for n in range(450))
    change = client.cancel_many

    def slowly(*given: object, **options: object) -> Iterator[ManyResult]:
        for n, result in enumerate(change(*given, **options)):  # type: ignore[arg-type]
            if n == 1 and not options["dry_run"]:
                began.set()
                assert goes_on.wait(30)
            yield result

    client.cancel_many = slowly  # type: ignore[method-assign]
    filters = {"status": "scheduled", "from": "2026-12-31T14:30Z", "to": "2026-12-31T15:30Z"}
    answer = browser.post("/tasks/change", do="cancel", **filters)
    assert began.wait(30)
    page = browser.get(answer.headers["location"])
    assert elements(page, "job")[0].attributes["data-state"] == "running"
    assert elements(page, "abort") and elements(browser.get("/changes"), "abort")
    abort = browser.post(f"{answer.headers['location']}/abort")
    goes_on.set()
    assert "It ends after the tasks that are being changed now." in browser.follow(abort).text
    page = browser.follow(answer)
    assert text_of(page, "job") == "Aborted: 200 cancelled."
    assert sum(client.get(f"n-{n:03}").status == "cancelled" for n in range(450)) == 200
    assert rows(browser)[1].endswith("Aborted: 200 cancelled")
    assert "It has ended already." in browser.follow(browser.post(f"{answer.headers['location']}/abort")).text
    assert browser.post("/jobs/none/abort").status_code == 404


def test_a_change_that_another_dashboard_makes_is_aborted(
    busy: VirtualInstallation, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks at its record between two requests."""
    monkeypatch.setattr(jobs, "_LOOKS_EACH_SECONDS", 0)
    busy.client.insert_many({"taskId": f"n-{n:03}", "dueAt": NOON + timedelta(hours=3)} for n in range(450))
    there, began, goes_on = Browser(busy), Event(), Event()
    change = busy.client.cancel_many

    def slowly(*given: object, **options: object) -> Iterator[ManyResult]:
        for n, result in enumerate(counting(*given, **options)):
            if n == 1 and not options["dry_run"]:
                began.set()
                assert goes_on.wait(30)
            yield result

    def counted(client: TaskClient, record: ChangeRecord) -> TaskClient:
        nonlocal counting
        found = counted_in(client, record)
        counting, found.cancel_many = found.cancel_many, slowly  # type: ignore[method-assign]
        return found

    counting: Callable[..., Iterator[ManyResult]] = change
    monkeypatch.setattr("dynatick.ui.tasks.counted_in", counted)
    filters = {"status": "scheduled", "from": "2026-12-31T14:30Z", "to": "2026-12-31T15:30Z"}
    answer = there.post("/tasks/change", do="cancel", **filters)
    assert began.wait(30)
    address = answer.headers["location"]
    page = browser.get(address)
    assert text_of(page, "change-record").startswith("Begun; its end is not known.") and elements(page, "abort")
    assert not elements(Browser(busy, read_only=True).get(address), "abort")
    (abort,) = elements(browser.get("/changes"), "abort")
    assert abort.attributes["data-job"] == address.rpartition("/")[2]
    said = browser.follow(browser.post(f"{address}/abort"))
    assert "Its process is asked to end it after the tasks that are being changed now." in said.text
    assert f"{browser.site.trail.who} has asked to abort it." in text_of(said, "change-record")
    assert not elements(said, "abort")
    goes_on.set()
    assert text_of(there.follow(answer), "job") == "Aborted: 200 cancelled."
    assert text_of(browser.get(address), "change-record").startswith("Aborted: 200 changed.")
    assert sum(busy.client.get(f"n-{n:03}").status == "cancelled" for n in range(450)) == 200


@pytest.mark.parametrize("interface", ["command line", "page"])
def test_a_change_that_does_not_look_whether_it_is_to_end_is_not_aborted(
    busy: VirtualInstallation, browser: Browser, interface: str
) -> None:
    """Such as a command's, or that of a batch by a page."""
    with new_record(busy.client, "cancel", {"bucket": "b"}, interface=interface) as record:
        record.begin()
        assert not elements(browser.get(f"/jobs/{record.change_id}"), "abort")
        said = browser.follow(browser.post(f"/jobs/{record.change_id}/abort"))
    assert "it is not one that looks whether it is to end; end it where it was begun" in text_of(said, "problem")


def test_each_change_is_a_line_of_the_log_with_the_caller(
    busy: VirtualInstallation, browser: Browser, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LOG, "handlers", [])
    monkeypatch.setattr(LOG, "level", logging.NOTSET)
    monkeypatch.setattr(LOG, "propagate", True)
    browser.site.trail._caller = lambda: ARN
    log_changes()
    browser.follow(browser.post("/tasks/to-come/cancel"))
    browser.follow(browser.post("/failures/redrive", last="24h", confirmed="4"))
    browser.post("/tasks/none/cancel")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(one["action"], one["change"], one["about"]) for one in lines] == [
        ("change_made", "cancel", "task to-come"),
        ("change_begun", "redrive", "all failures"),
        ("change_ended", "redrive", "all failures"),
        ("change_refused", "cancel", "task none"),
    ]
    assert {one["caller"] for one in lines} == {ARN}
    assert lines[0]["timestamp"] == "2026-12-31T13:00:00Z"
    ended = lines[2]
    assert (ended["state"], ended["changed"], ended["skipped"], ended["unknown"]) == ("done", 4, 0, 0)
    assert ended["given"] == {"last": "24h"}


def test_who_is_the_user_where_there_is_no_arn(busy: VirtualInstallation, browser: Browser) -> None:
    browser.follow(browser.post("/pause", reason="the move"))
    (row,) = rows(browser)
    assert row.startswith(f"13:00:00.000 {browser.site.trail.who} pause everything reason the move Paused")
    browser.follow(browser.post("/actions/log/pause", reason="the move"))
    assert f"{browser.site.trail.who} pause action log reason the move log is paused" in rows(browser)[0]
    assert browser.site.trail.who


def test_a_job_that_is_not_known_is_said(browser: Browser) -> None:
    assert browser.get("/jobs/none").status_code == 404
    assert Jobs(lambda: None).of("/jobs/none") is None


def test_a_job_that_ends_in_an_error_says_so_in_its_row(busy: VirtualInstallation, browser: Browser) -> None:
    def broken(*given: object, **options: object) -> Iterator[ManyResult]:
        yield Changed("bad-0", busy.client.get("bad-0"))
        raise StoreError("no route")

    job = browser.site.jobs.start("redriven", broken, None, back="/", again="/")
    job.ended.wait(30)
    assert (job.state, job.words, job.problem) == ("failed", "1 redriven", "no route")


def test_changes_of_commands_and_of_other_dashboards_are_listed_with_what_came_of_them(
    busy: VirtualInstallation, browser: Browser
) -> None:
    answer = Browser(busy).post("/failures/redrive", last="24h", confirmed="1")
    busy.advance(seconds=30)
    given = {"last": "24h", "payload": "another one"}
    with new_record(busy.client, "redrive", given, by="bob") as record:
        list(counted_in(busy.client, record).redrive_many(last="24h"))
    busy.client.operations.pause(by="bob", reason="the move")
    busy.advance(minutes=2)
    busy.client.operations.resume()
    with pytest.raises(KeyboardInterrupt), new_record(busy.client, "cancel", {"bucket": "b"}, by="carl") as record:
        record.begin()
        record.add([Skipped("a", "it was deleted")] * 2)
        raise KeyboardInterrupt
    with new_record(busy.client, "delete", {"bucket": "b"}, by="carl"):
        pass
    busy.advance(hours=2)
    who = browser.site.trail.who
    assert rows(browser) == [
        "13:02:30.000 carl cancel many tasks bucket b Aborted: 0 changed, 2 skipped",
        "13:00:30.000 bob redrive many tasks last 24h; payload another one Done: 3 changed",
        "13:00:30.000 bob pause everything reason the move Until 2026-12-31T13:02:30Z",
        f"13:00:00.000 {who} redrive all failures last 24h Done: 1 changed",
    ]
    here, there = elements(browser.get("/changes"), "job-link")[1:]
    assert there.attributes["href"] == answer.headers["location"]
    page = browser.get(str(here.attributes["href"]))
    assert text_of(page, "change-record").startswith("Done: 3 changed. 13:00:30.000 , by bob (Python) ; last 24h")
    assert text_of(page, "job-runs") == "Of their runs 1 completed, 2 failed again."
    refused = browser.follow(browser.post(f"{here.attributes['href']}/abort"))
    assert "it is done; possible only while it is running" in text_of(refused, "problem")


def test_a_change_is_made_though_its_record_can_not_be_written_and_the_log_says_so(
    busy: VirtualInstallation, browser: Browser, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise StoreError("denied")

    monkeypatch.setattr(ChangeRecords, "end", refuse)
    with caplog.at_level(logging.INFO, LOG.name):
        browser.follow(browser.post("/failures/redrive", last="24h", confirmed="4"))
    lines = [json.loads(record.getMessage()) for record in caplog.records if record.name == LOG.name]
    actions = {one["action"]: one for one in lines}
    assert actions.keys() == {"change_begun", "change_ended", "change_not_recorded"}
    assert actions["change_not_recorded"]["problem"] == "denied"


def test_a_change_that_goes_on_elsewhere_or_whose_process_died_is_said(
    busy: VirtualInstallation, browser: Browser
) -> None:
    changes = busy.client.operations.changes
    changes.begin(changes.new("cancel", by=None, interface=None, given={}, change_id="0a"))
    (row,) = rows(browser)
    assert row.endswith("unknown cancel many tasks Begun; its end is not known")
    assert "every 10s" not in browser.get("/changes/rows").text


def test_a_job_is_found_while_another_one_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(**_: object) -> Iterator[ManyResult]:
        return iter(())

    known = Jobs(lambda: None)
    first, second = (known.start("cancelled", nothing, 1, back="/", again="/") for _ in range(2))

    def path_of(job_id: str) -> str:
        if job_id == first.id:
            known.start("cancelled", nothing, 1, back="/", again="/")
        return f"/jobs/{job_id}"

    monkeypatch.setattr(links, "job", path_of)
    assert known.of(f"/jobs/{second.id}") is second

"""The page of each group of failures: what it is, since when, and what it leads to."""

from __future__ import annotations

from datetime import timedelta
from types import ModuleType

import pytest
from tests.builders import NOON
from tests.unit.ui.support import Browser, elements, text_of

from dynatick import PermanentError, task
from dynatick.client.failures import fingerprint_of
from dynatick.domain.buckets import Grid
from dynatick.engine.settings import publish_settings
from dynatick.testing.virtual_installation import VirtualInstallation

MAILBOX = fingerprint_of("no such mailbox: x@example.com")


def test_a_group_leads_to_its_page_with_what_it_has(busy: VirtualInstallation, browser: Browser) -> None:
    (first, _) = elements(browser.get("/failures/groups"), "failure-error")
    assert first.text == "no such mailbox: …"
    assert first.attributes["href"] == f"/failures/{MAILBOX}?last=24h"
    page = browser.get(str(first.attributes["href"]))
    assert page.status_code == 200 and f"/failures/{MAILBOX}/details?last=24h" in page.text
    details = browser.get(f"/failures/{MAILBOX}/details?last=24h")
    assert elements(details, "failure")[0].attributes["data-count"] == "3"
    assert text_of(details, "failure-error") == "no such mailbox: …"
    assert [one.text for one in elements(details, "failure-action")] == ["3 webhook"]
    assert sorted(one.text for one in elements(details, "failure-variant")) == [
        f"1 no such mailbox: user-{n}@example.com" for n in range(3)
    ]
    assert [one.attributes["data-id"] for one in elements(details, "task-row")] == ["bad-2", "bad-1", "bad-0"]
    assert [one.text for one in elements(details, "failure-bar")] == ["31 Dec 12:15: 3 failed attempts"], (
        "in a quarter of an hour"
    )
    dry_run = browser.get(str(elements(details, "redrive-all")[0].attributes["href"]))
    assert text_of(dry_run, "dry-run-count") == "3"
    assert elements(dry_run, "keep")[0].attributes["href"] == f"/failures/{MAILBOX}?last=24h"
    browser.follow(browser.post("/failures/redrive", fingerprint=MAILBOX, last="24h", confirmed="3"))
    assert "No task of 24h is failed with this error now." in browser.get(f"/failures/{MAILBOX}/details").text
    assert busy.client.get("other").status == "failed"


def test_an_error_of_one_text_has_no_variants_and_of_a_built_in_action_no_trace(
    busy: VirtualInstallation, browser: Browser
) -> None:
    details = browser.get(f"/failures/{fingerprint_of('the disk is full')}/details")
    assert elements(details, "failure-variant") == elements(details, "trace") == []
    assert "built-in actions have none" in details.text


def test_the_traces_of_the_latest_tasks_are_shown_with_how_many_have_each() -> None:
    @task("of-failures")
    def broken(payload: dict[str, object]) -> None:
        if payload["n"] == 1:
            raise PermanentError("no order 1")
        raise PermanentError("no order 2")

    handlers = ModuleType("handlers")
    handlers.broken = broken  # type: ignore[attr-defined]
    installation = VirtualInstallation(handlers, start=NOON)
    for n in range(4):
        installation.client.insert(f"t-{n}", due_at=NOON + timedelta(minutes=1), action="of-failures", payload={"n": n})
    installation.advance(minutes=5)
    details = Browser(installation).get(f"/failures/{fingerprint_of('no order 3')}/details")
    frequent, rare = elements(details, "trace")
    assert frequent.text.endswith('raise PermanentError("no order 2")') and rare.text.endswith('("no order 1")')
    assert "3 of the latest 4" in details.text


def test_a_group_is_new_since_the_deployment_that_changed_the_settings(
    busy: VirtualInstallation, browser: Browser
) -> None:
    def deploy(minutes: int, count: int) -> None:
        at = NOON + timedelta(minutes=minutes)
        publish_settings(busy.client.store, Grid(shard_count=count), now=at)

    def new() -> list[str]:
        page = browser.get("/failures/groups?last=24h")
        groups = zip(elements(page, "failure-error"), elements(page, "failure-group"), strict=True)
        return [error.text for error, group in groups if "new since the deployment" in group.text]

    deploy(25, 2)
    assert new() == ["the disk is full"]
    of_disk = browser.get(f"/failures/{fingerprint_of('the disk is full')}/details")
    assert text_of(of_disk, "failure-since") == "new none failed before 12:25"
    assert text_of(browser.get(f"/failures/{MAILBOX}/details"), "failure-since") == "tasks failed before it, 12:25"
    deploy(35, 3)
    assert new() == []
    deploy(-3000, 4)
    assert new() == [], "nothing is known of before"
    assert text_of(browser.get(f"/failures/{MAILBOX}/details"), "failure-since").startswith("it was before this range")


@pytest.mark.parametrize("url", ["/failures/nothing", "/failures/0123456789?last=40d", "/failures/0123456789?last=x"])
def test_a_wrong_address_is_named(busy: VirtualInstallation, browser: Browser, url: str) -> None:
    wrong = browser.get(url)
    assert wrong.status_code == 400 and "expected" in text_of(wrong, "problem")


def test_read_only_pages_offer_no_redrive(busy: VirtualInstallation) -> None:
    details = Browser(busy, read_only=True).get(f"/failures/{MAILBOX}/details")
    assert elements(details, "failure") and not elements(details, "redrive-all")

"""A page that stays open follows each tick, says how old it is, and never looks well when it could not be read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError
from playwright.sync_api import expect
from tests.ui import seed
from tests.ui.accessibility import violations
from tests.ui.addresses import task
from tests.ui.browser import Person
from tests.ui.clock import NOW, clock_at
from tests.ui.conftest import OpenTab
from tests.ui.installation import Installation
from tests.ui.serving import Served, fill, run, served

from dynatick import TaskClient
from dynatick.client.failures import fingerprint_of
from dynatick.errors import StoreError
from dynatick.store.dynamodb import DynamoStore
from dynatick.ui.application import application
from dynatick.ui.site import Site
from dynatick.ui.trouble import Access, sign_in_of
from dynatick_stack.counting.counts import Engine

NEXT_TICK = NOW.replace(second=0) + timedelta(minutes=1)
MAILBOX = fingerprint_of("ValueError: no such mailbox")
WHO = "arn:aws:sts::111122223333:assumed-role/ops/ada"


def refusal(code: str, message: str = "refused") -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": message}}, "Query")


SIGN_IN = sign_in_of({"ops": {"sso_session": "corp"}}, "ops", {})
EXPIRED = refusal("ExpiredTokenException", "The security token included in the request is expired")
DENIED = refusal("AccessDeniedException", f"User: {WHO} is not authorized to perform: dynamodb:GetItem on resource: t")


class Refusing:
    """A store that refuses each request while it has a ``fault``."""

    def __init__(self, store: DynamoStore) -> None:
        self._store = store
        self.fault: ClientError | None = None

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if not callable(found) or self.fault is None:
            return found
        raise StoreError(f"cannot read: {self.fault}") from self.fault


@pytest.fixture
def broken(engine: Engine) -> Iterator[tuple[Served, Any]]:
    clock, table = clock_at(NOW), fill(engine.url, seed.empty())
    store: Any = Refusing(DynamoStore(table, endpoint_url=engine.url))
    site = Site(
        client=TaskClient(store, clock=clock), clock=clock, name="reminders", kept_seconds=0,
        access=Access(profile="ops", region="eu-central-1", table=table, sign_in=SIGN_IN),
    )  # fmt: skip
    installation = Installation(DynamoStore(table, endpoint_url=engine.url), clock)
    with run(application(site)) as url:
        yield Served(url, table, installation), store


@pytest.fixture
def fresh(engine: Engine) -> Iterator[Served]:
    """An hour of ticks without a task, whose pages keep nothing."""
    with served(engine.url, seed.empty(), kept_seconds=0) as pages:
        yield pages


def poll(person: Person) -> None:
    """As a quarter of a minute later, or when the tab is shown again."""
    person.page.evaluate("htmx.trigger('#live', 'seen')")


def icon(person: Person) -> str:
    return str(person.page.locator("link[rel=icon]").get_attribute("href"))


def test_expired_credentials_are_one_banner_with_a_command_and_what_is_old_is_greyed(
    broken: tuple[Served, Any], open_tab: OpenTab
) -> None:
    pages, store = broken
    person = open_tab(pages, "/")
    good = icon(person)
    expect(person.by("state")).to_have_attribute("data-state", "running")
    store.fault = EXPIRED
    poll(person)
    banner = person.by("trouble")
    expect(banner).to_contain_text("The credentials have expired")
    expect(banner).to_contain_text("aws sso login --profile ops")
    expect(person.by("state")).to_have_attribute("data-state", "unread")
    expect(person.by("state")).to_have_text("not read")
    assert person.page.title().startswith("⚠ not read · Now")
    assert icon(person) != good and "icon-bad" in icon(person)
    person.page.evaluate("htmx.trigger(document.body, 'tick')")  # each part asks, and is refused
    person.page.wait_for_load_state("networkidle")
    expect(banner).to_have_count(1)
    expect(person.by("due-now")).to_contain_text("Due now")
    assert person.page.locator("main").evaluate("node => getComputedStyle(node).filter") != "none"
    assert violations(person.page) == []

    store.fault = None
    poll(person)
    expect(banner).to_have_count(0)
    expect(person.by("state")).to_have_attribute("data-state", "running")
    expect(person.page).to_have_title("Now · reminders · Dynatick")
    assert icon(person) == good
    assert person.page.locator("main").evaluate("node => getComputedStyle(node).filter") == "none"
    assert any("502" in error for error in person.log.errors)
    person.log.errors.clear()  # the browser's own lines


def test_a_page_that_cannot_be_read_names_what_was_refused_and_comes_once_it_can(
    broken: tuple[Served, Any], open_tab: OpenTab
) -> None:
    pages, store = broken
    store.fault = DENIED
    person = open_tab(pages)
    for path in ("/", "/ticks", "/tasks"):
        answer = person.page.goto(pages.url + path)
        assert answer is not None and answer.status == 502
        expect(person.by("trouble")).to_have_count(1)
        expect(person.by("trouble")).to_contain_text("dynamodb:GetItem on t")
        expect(person.by("trouble")).to_contain_text(WHO)
        expect(person.by("trouble")).to_contain_text("policy Read")
        expect(person.by("state")).to_have_attribute("data-state", "unread")
        assert person.page.locator(".running").count() == 0, "nothing is green"
        assert "icon-bad" in icon(person)
    assert violations(person.page) == []
    store.fault = None
    poll(person)
    expect(person.by("tasks").or_(person.by("none")).first).to_be_visible()
    expect(person.by("state")).to_have_attribute("data-state", "running")
    person.log.errors.clear()  # the browser's own lines


def test_a_server_that_ended_is_said_by_the_page(own: Served, open_tab: OpenTab) -> None:
    person = open_tab(own, "/ticks")
    person.page.route("**/live*", lambda route: route.abort())
    poll(person)
    expect(person.by("trouble")).to_contain_text("dynatick ui")
    expect(person.by("state")).to_have_attribute("data-state", "unread")
    person.page.unroute("**/live*")
    poll(person)
    expect(person.by("trouble")).to_have_count(0)
    person.log.errors.clear()  # the browser's own lines


@pytest.mark.parametrize(
    ("path", "test_id", "says"),
    [
        ("/", "minutes", None),
        ("/timeline", "hour", None),
        ("/timeline?span=hour", "counts", "09:13"),
        ("/buckets/2027-03-24T09:13Z", "task-row", "completed"),
        ("/tasks", "task-row", "completed"),
        (task("due-now"), "status", "completed"),
        ("/ticks", "ticks", "09:13"),
        ("/actions", "actions", "log"),
    ],
)
def test_what_is_seen_follows_each_tick(
    fresh: Served, open_tab: OpenTab, path: str, test_id: str, says: str | None
) -> None:
    fresh.client.insert("due-now", due_at=NEXT_TICK, action="log", payload={"message": "now"})
    person = open_tab(fresh, path)
    page = person.page
    if says is None:
        bar = page.locator("[data-testid=bar][href='/buckets/2027-03-24T09:13Z']").first
        expect(bar).to_have_attribute("aria-label", "09:13: 1 scheduled")
    fresh.installation.tick(NEXT_TICK)
    poll(person)
    if says is None:
        expect(bar).to_have_attribute("aria-label", "09:13: 1 completed")
    else:
        expect(person.by(test_id).first).to_contain_text(says)
    assert page.url == fresh.url + path
    expect(page.locator("main")).to_have_count(1)
    expect(person.by("state")).to_have_count(1)


@pytest.mark.parametrize(
    ("path", "test_id", "before", "after"),
    [
        ("/failures", "failed-attempts", "0 failed attempts", "1 failed attempt in 24h"),
        ("/failures", "failures", None, "no such mailbox"),
        ("/failures?last=7d", "failures", None, "no such mailbox"),
        ("/failures/" + MAILBOX, "failure-count", None, "1 task"),
        ("/", "failures", "Nothing failed", "no such mailbox"),
        ("/", "failed-24h", "0", "1"),
        ("/timeline?span=week", "day", None, "1 failed"),
        ("/timeline?from=2027-03-24T00:00Z&span=day", "hour", None, "1 failed"),
        ("/timeline?span=hour", "counts", "1", "Failed"),
    ],
)
def test_what_failed_at_a_tick_is_seen_by_itself(
    open_tab: OpenTab, engine: Engine, path: str, test_id: str, before: str | None, after: str
) -> None:
    with served(engine.url, seed.empty()) as pages:  # which keep what they read
        pages.client.insert("bad", due_at=NEXT_TICK, action="send-reminder", payload={"to": "ada@nowhere.invalid"})
        person = open_tab(pages, path)
        if before is None:
            expect(person.page.locator("main")).not_to_contain_text(after)
        else:
            expect(person.by(test_id)).to_contain_text(before)
        pages.installation.tick(NEXT_TICK)
        assert pages.client.get("bad").status == "failed"
        poll(person)
        expect(person.by(test_id).filter(has_text=after)).to_have_count(1)
        assert person.page.url == pages.url + path


def test_what_another_tab_changed_is_seen_in_the_changes_after_a_tick(own: Served, open_tab: OpenTab) -> None:
    person = open_tab(own, "/changes")
    row = person.by("change-row").filter(has_text="table-1")
    expect(row).to_have_count(0)
    other = open_tab(own, task("table-1"))
    other.by("cancel").click()
    other.by("confirm-cancel").click()
    expect(other.by("notice")).to_be_visible()
    own.installation.tick(NEXT_TICK)
    poll(person)
    expect(row).to_have_count(1)


def test_a_tick_takes_no_question_away_and_no_focus(fresh: Served, open_tab: OpenTab) -> None:
    fresh.client.insert("later", due_at=NOW + timedelta(hours=1), action="log", payload={"message": "now"})
    person = open_tab(fresh, task("later"))
    person.by("reschedule").click()
    person.by("due-at").fill("2027-03-24T15:30")
    fresh.installation.tick(NEXT_TICK)
    poll(person)
    expect(person.by("last-tick")).to_contain_text("last tick now")
    person.page.wait_for_load_state("networkidle")
    expect(person.by("due-at")).to_have_value("2027-03-24T15:30")

    person.open("/tasks")
    box = person.page.locator("[data-testid=task-row] input[type=checkbox]").first
    box.check()
    person.page.locator("h1").click()
    fresh.installation.tick(NEXT_TICK + timedelta(minutes=1))
    poll(person)
    expect(person.by("last-tick")).to_contain_text("last tick now")
    person.page.wait_for_load_state("networkidle")
    expect(box).to_be_checked()

    person.open("/")
    person.page.locator(".bars a").first.focus()
    focused = person.page.evaluate("document.activeElement.getAttribute('href')")
    fresh.installation.tick(NEXT_TICK + timedelta(minutes=2))
    poll(person)
    person.page.wait_for_load_state("networkidle")
    assert person.page.evaluate("document.activeElement.getAttribute('href')") == focused


def test_a_page_says_how_old_it_is(own: Served, open_tab: OpenTab) -> None:
    person = open_tab(own, "/")
    expect(person.by("updated")).to_have_text(re.compile(r"^updated [2-9] s ago$"))
    poll(person)
    expect(person.by("updated")).to_have_text(re.compile(r"^updated [01] s ago$"))


def test_while_paused_nothing_is_next_and_after_a_resume_nothing_is_red(fresh: Served, open_tab: OpenTab) -> None:
    fresh.client.schedules.insert("often", "rate(5 minutes)", action="log", payload={"message": "x"})
    fresh.client.operations.pause(reason="the bank is down", by="ada")
    fresh.installation.clock.to(NOW + timedelta(minutes=30))
    person = open_tab(fresh)
    for path in ("/", "/schedules/often", "/schedules", "/ticks"):
        person.open(path)
        expect(person.by("state")).to_have_attribute("data-state", "paused")
        assert not re.search(r"\bnext in\b|\bin \d+ (s|min|h)\b", person.page.locator("body").inner_text()), path
        assert person.page.title().startswith("⏸ paused")
        assert "icon-paused" in icon(person)
    expect(person.by("paused")).to_contain_text("ada: the bank is down")
    rows = person.page.locator("[data-testid=tick-row][data-kind=paused]")
    expect(rows).to_contain_text("28 paused ticks")  # but for those that may still come
    expect(person.by("gap")).to_have_count(0)

    person.by("resume").click()
    person.by("confirm-resume").click()
    expect(person.by("state")).to_have_attribute("data-state", "running")
    expect(person.by("attention")).to_have_count(0)
    fresh.installation.clock.to(NOW + timedelta(minutes=40))  # and no tick has come since
    poll(person)
    expect(person.by("state")).to_have_attribute("data-state", "late")
    assert person.page.title().startswith("⚠ needs attention")

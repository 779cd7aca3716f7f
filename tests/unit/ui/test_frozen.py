"""Links that lead to the same tomorrow, and only to the installation that they are of."""

from __future__ import annotations

from datetime import timedelta
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import httpx2
import pytest
from tests.unit.ui.support import Browser, elements, text_of
from tests.unit.ui.test_pages import PAGES
from tests.unit.ui.test_search import ids, parts

from dynatick.client.change_records import new_record
from dynatick.testing.virtual_installation import VirtualInstallation

TODAY = "2026-12-31T"


def link(browser: Browser, of: str) -> str:
    """The address that the link of a page leads to."""
    answer = browser.get(f"/link?of={quote(of, safe='')}")
    assert answer.status_code == 303, answer.text
    return answer.headers["location"]


def asked(address: str) -> tuple[str, dict[str, str]]:
    parts = urlsplit(address)
    return parts.path, dict(parse_qsl(parts.query))


@pytest.mark.parametrize(
    ("page", "path", "query"),
    [
        ("/", "/timeline", {"span": "day", "from": "2026-12-30T14:00Z", "to": "2027-01-01T14:00Z"}),
        ("/timeline", "/timeline", {"span": "day", "from": "2026-12-30T14:00Z", "to": "2027-01-01T14:00Z"}),
        ("/timeline?span=hour", "/timeline", {"span": "hour", "from": f"{TODAY}13:00Z"}),
        ("/timeline?span=week", "/timeline", {"span": "week", "from": "2026-12-28T00:00Z"}),
        ("/timeline?span=hour&from=2026-12-30T10:00Z", None, {"span": "hour", "from": "2026-12-30T10:00Z"}),
        ("/failures", None, {"last": "24h", "to": f"{TODAY}14:00Z"}),
        ("/failures/0123456789?last=7d", None, {"last": "7d", "to": f"{TODAY}14:00Z"}),
        ("/failures?last=1h&to=2026-12-31T10:00Z", None, {"last": "1h", "to": "2026-12-31T10:00Z"}),
        ("/failures/redrive?fingerprint=0123456789&last=1h", None,
         {"fingerprint": "0123456789", "last": "1h", "to": f"{TODAY}14:00Z"}),
        ("/actions", None, {"last": "24h", "to": f"{TODAY}13:01Z"}),
        ("/ticks", None, {"last": "6h", "to": f"{TODAY}13:01Z"}),
        ("/tasks", None, {"from": f"{TODAY}12:00Z", "to": f"{TODAY}14:00Z"}),
        ("/tasks?last=24h&status=failed", None,
         {"status": "failed", "from": "2026-12-30T13:00Z", "to": f"{TODAY}13:01Z"}),
        ("/tasks?subject=ada", None, {"subject": "ada"}),
        ("/batches?last=7d", None, {"from": "2026-12-24T13:00Z", "to": f"{TODAY}13:01Z"}),
        ("/batches", None, {}),
        ("/tasks/bad-0", None, {}),
        ("/buckets/2026-12-31T12:10Z?status=failed", None, {"status": "failed"}),
        ("/schedules?state=ENABLED", None, {"state": "ENABLED"}),
        ("/search?q=mail", None, {"q": "mail", "at": f"{TODAY}13:00Z"}),
        ("/search?q=mail&at=2026-12-30T10:00Z", None, {"q": "mail", "at": "2026-12-30T10:00Z"}),
        ("/changes", None, {"to": f"{TODAY}13:01Z"}),
    ],
)  # fmt: skip
def test_the_link_of_a_page_has_its_range_as_instants_and_the_name(
    busy: VirtualInstallation, browser: Browser, page: str, path: str | None, query: dict[str, str]
) -> None:
    address = link(browser, page)
    assert asked(address) == (path or urlsplit(page).path, {**query, "stack": "reminders"})
    in_zone = browser.get(f"/link?of={quote(page, safe='')}&tz=Asia/Tokyo")
    assert asked(in_zone.headers["location"])[1]["tz"] == "Asia/Tokyo"
    assert browser.get(f"/link?of={quote(page, safe='')}", headers={"Accept": "text/plain"}).text == address
    assert browser.get(address).status_code == 200
    assert asked(link(browser, address)) == asked(address), "it leads to itself"


def test_the_link_of_selected_rows_has_them_all(browser: Browser) -> None:
    address = link(browser, "/tasks/selected?id=a&id=b&do=cancel")
    assert parse_qsl(urlsplit(address).query) == [("id", "a"), ("id", "b"), ("do", "cancel"), ("stack", "reminders")]


@pytest.mark.parametrize("of", ["", "//evil.example", "/\\evil.example", "https://evil.example/", "/a\r\nb: c"])
def test_the_link_leads_to_no_other_place(browser: Browser, of: str) -> None:
    assert browser.get(f"/link?of={quote(of, safe='')}").status_code == 404


def test_what_a_link_shows_stays_the_same(busy: VirtualInstallation, browser: Browser) -> None:
    def figures(address: str) -> tuple[str, list[str], list[str], list[str], list[str]]:
        within = urlsplit(address).query
        groups = browser.get(f"/failures/groups?{within}")
        return (
            text_of(browser.get(address), "failed-attempts"),
            [str(one.attributes["data-count"]) for one in elements(groups, "failure-group")],
            [one.text for one in elements(browser.get(links["actions"]), "action-row")],
            [one.text.replace("31 Dec ", "") for one in elements(browser.get(links["ticks"]), "tick-row")],
            [one.text for one in elements(browser.get(links["tasks"]), "task-link")],
        )

    links = {name: link(browser, f"/{name}") for name in ("failures", "actions", "ticks")}
    links["tasks"] = link(browser, "/tasks?last=1h")
    before = figures(links["failures"])
    assert before[0] == "4 failed attempts in 24h until 14:00"
    assert before[1] == ["3", "1"] and all(before)
    busy.client.insert(
        "bad-9",
        due_at=busy.now + timedelta(hours=3),
        action="webhook",
        payload={"url": "https://example.com", "data": "x"},
    )
    busy.advance(hours=20)
    after = figures(links["failures"])
    assert after[1:] == before[1:]
    assert after[0] == "4 failed attempts in 24h until 31 Dec 14:00"
    assert text_of(browser.get("/failures"), "failed-attempts").startswith("5 failed attempts")
    part = browser.get(f"/failures/groups?{urlsplit(links['failures']).query}")
    assert "tick from:body" not in part.text, "it follows nothing"


def test_a_link_of_a_search_looks_around_the_same_time(busy: VirtualInstallation, browser: Browser) -> None:
    address = link(browser, "/search?q=mail")
    before = parts(browser, address)
    assert [one for part in before for one in ids(part)] == ["mail-0", "mail-1", "mail-2", "mail-3"]
    busy.client.insert("mail", due_at=busy.now + timedelta(days=3))  # which the search field leads to
    busy.advance(hours=20)
    assert browser.get("/search?q=mail").headers["location"] == "/tasks/mail"
    after = parts(browser, address)
    assert [ids(part) for part in after] == [ids(part) for part in before]
    assert text_of(after[-1], "looked") == "Looked from 30 Dec 11:00 to 15:00: 4 tasks so far."


def test_a_link_of_the_changes_has_none_that_came_later(busy: VirtualInstallation, browser: Browser) -> None:
    def shown(address: str) -> list[str]:
        found = browser.get(address)
        (part,) = elements(found, "changes")
        assert shown_in(browser.get(str(part.attributes["hx-get"]))) == shown_in(found), "and not when it is read again"
        return shown_in(found)

    list(busy.client.redrive_many(last="24h", limit=1))
    busy.client.operations.pause(by="bob")
    busy.client.operations.resume()
    browser.follow(browser.post("/tasks/to-come/cancel"))
    address = link(browser, "/changes")
    before = shown(address)
    assert len(before) == 4, "with the deployment"
    busy.advance(minutes=10)
    browser.follow(browser.post("/tasks/to-come/restore"))
    for n in range(60):
        with new_record(busy.client, "cancel", {"bucket": str(n)}) as record:
            record.begin()
    assert shown(address) == before
    assert len(shown("/changes")) > len(before)


def shown_in(page: httpx2.Response) -> list[str]:
    return [one.text for one in elements(page, "change-row")]


def test_a_link_to_attempts_that_are_no_longer_counted_says_so(busy: VirtualInstallation, browser: Browser) -> None:
    address = link(browser, "/failures")
    assert not elements(browser.get(address), "deleted")
    busy.client.schedules.delete("often")  # of whose thousands of runs nothing is asked
    busy.advance(days=8)
    assert "seven days" in text_of(browser.get(address), "deleted")


def test_a_redrive_of_a_link_is_of_its_range(busy: VirtualInstallation, browser: Browser) -> None:
    dry_run = browser.get(link(browser, "/failures/redrive?last=1h&to=2026-12-31T12:00Z"))
    assert elements(dry_run, "none"), "they failed after it"
    browser.follow(browser.post("/failures/redrive", last="1h", to="2026-12-31T12:00Z", confirmed="9"))
    assert busy.client.get("bad-0").status == "failed"
    browser.follow(browser.post("/failures/redrive", last="1h", to="2026-12-31T13:00Z", confirmed="9"))
    assert busy.client.get("bad-0").status == "scheduled"


@pytest.mark.parametrize("url", [*PAGES, "/tasks/bad-0", "/tasks/bad-0/row"])
def test_an_address_of_another_installation_shows_nothing_of_this_one(
    busy: VirtualInstallation, browser: Browser, url: str
) -> None:
    address = f"{url}{'&' if '?' in url else '?'}stack="
    page = browser.get(f"{address}orders%20and%20more")
    assert page.status_code == 404
    said = text_of(page, "problem")
    assert "These pages show reminders, and nothing of orders and more." in said
    assert "dynatick ui --stack 'orders and more'" in said
    assert not elements(page, "task-row") and not elements(page, "state") and "to-come" not in page.text
    instead = browser.get(str(elements(page, "instead")[0].attributes["href"]))
    assert instead.status_code == 200
    assert browser.get(f"{address}reminders").status_code == 200


def test_an_installation_is_known_by_its_region_and_account_too(busy: VirtualInstallation, browser: Browser) -> None:
    known = {"stack": "reminders", "region": "eu-central-1", "account": "123456789012"}
    browser.site.region, browser.site.trail._caller = known["region"], lambda: f"arn:aws:iam::{known['account']}:user/a"
    assert asked(link(browser, "/tasks/bad-0"))[1] == known
    for parameters in (known, {"stack": "reminders"}, {"region": "eu-central-1"}):
        assert browser.get(f"/tasks/bad-0?{urlencode(parameters)}").status_code == 200, "an older link has a name only"
    elsewhere = browser.get(f"/tasks/bad-0?{urlencode(known | {'region': 'us-east-1'})}")
    assert elsewhere.status_code == 404
    assert text_of(elsewhere, "problem") == (
        "These pages show reminders in eu-central-1, account 123456789012, and nothing of reminders in us-east-1, "
        "account 123456789012. Start them for it: dynatick ui --stack reminders --region us-east-1"
    )
    other = browser.get(f"/tasks/bad-0?{urlencode(known | {'account': '210987654321'})}")
    assert other.status_code == 404
    assert "With credentials of account 210987654321, start them for it: dynatick ui" in text_of(other, "problem")
    assert browser.get(str(elements(other, "instead")[0].attributes["href"])).status_code == 200


def test_of_an_installation_whose_region_and_account_are_not_known_the_name_decides(browser: Browser) -> None:
    assert browser.get("/ticks?stack=reminders&region=us-east-1&account=123456789012").status_code == 200


def test_nothing_is_changed_by_a_form_of_another_installation(busy: VirtualInstallation, browser: Browser) -> None:
    assert browser.post("/tasks/to-come/cancel?stack=orders").status_code == 404
    assert busy.client.get("to-come").status == "scheduled"

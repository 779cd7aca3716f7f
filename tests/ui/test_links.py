"""A link that is copied leads a colleague to the same range, and to no other installation."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlsplit

from playwright.sync_api import expect
from tests.ui import seed
from tests.ui.accessibility import violations
from tests.ui.conftest import OpenTab
from tests.ui.serving import Served


def test_copy_link_has_the_range_the_zone_and_the_name(small: Served, open_tab: OpenTab) -> None:
    person = open_tab(small, "/failures?last=24h&tz=Europe/Berlin", permissions=["clipboard-read", "clipboard-write"])
    person.by("copy-link").click()
    expect(person.by("copy-link")).to_have_text("Copied")
    copied = str(person.page.evaluate("navigator.clipboard.readText()"))
    assert dict(parse_qsl(urlsplit(copied).query)) == {
        "last": "24h", "to": "2027-03-24T10:00Z", "stack": "reminders", "tz": "Europe/Berlin",
    }  # fmt: skip
    assert copied.startswith(f"{small.url}/failures?")
    assert person.log.clicks == 1
    again = open_tab(small, copied.removeprefix(small.url))
    expect(again.by("failed-attempts")).to_contain_text("in 24h until 11:00")
    group = again.by("failure-group").filter(has_text="no such mailbox")
    expect(group).to_have_attribute("data-count", str(seed.NO_MAILBOX))
    assert violations(again.page) == []


def test_without_a_clipboard_the_link_leads_to_the_address_itself(small: Served, open_tab: OpenTab) -> None:
    person = open_tab(small)
    person.page.add_init_script("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    person.open("/timeline?span=hour")
    person.by("copy-link").click()
    person.page.wait_for_url("**/timeline?*from=*")
    assert dict(parse_qsl(urlsplit(person.page.url).query)) == {
        "span": "hour", "from": "2027-03-24T09:00Z", "stack": "reminders",
    }  # fmt: skip
    expect(person.by("counts")).to_contain_text("09:12")


def test_an_address_of_another_installation_says_so(small: Served, open_tab: OpenTab) -> None:
    person = open_tab(small)
    answer = person.page.goto(f"{small.url}/failures?last=24h&stack=orders")
    assert answer is not None and answer.status == 404
    expect(person.by("problem")).to_contain_text("These pages show reminders, and nothing of orders.")
    expect(person.by("failure-group")).to_have_count(0)
    assert violations(person.page) == []
    person.by("instead").click()
    expect(person.by("failure-group").first).to_be_visible()
    person.log.errors.clear()  # the browser's own line of the 404

"""Other sites can neither read the pages nor change anything through them."""

from __future__ import annotations

import http.client
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest
from playwright.sync_api import Browser, Playwright, expect
from tests.ui import browser, seed
from tests.ui.addresses import ADDRESSES, task
from tests.ui.conftest import OpenTab
from tests.ui.serving import Served, run, serving

from dynatick_stack.counting.counts import Engine

TASK = "table-1"
CANCEL = f"/tasks/{TASK}/cancel"


def ask(pages: Served, method: str, path: str, body: str = "", **headers: str) -> tuple[int, Mapping[str, str], str]:
    """Sends one request. Header names with _ for -."""
    connection = http.client.HTTPConnection(urlsplit(pages.url).netloc, timeout=10)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    if method == "POST":
        named = {"Content-Type": "application/x-www-form-urlencoded"} | named
    connection.request(method, path, body, named)
    answer = connection.getresponse()
    text = answer.read().decode("utf-8", "replace")
    connection.close()
    return answer.status, {name.lower(): value for name, value in answer.getheaders()}, text


def token_of(pages: Served) -> str:
    _, _, page = ask(pages, "GET", task(TASK))
    found = re.search(r'name="token" value="([^"]+)"', page)
    assert found is not None
    return found[1]


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:80", "evil.example:4580", "[::1]", ""])
def test_a_request_for_another_host_is_refused(small: Served, host: str) -> None:
    for path in ("/", task(TASK), "/static/0/dynatick.css", "/favicon.ico"):
        status, _, text = ask(small, "GET", path, Host=host)
        assert status == 421
        assert "reminders" not in text


def test_a_name_that_leads_to_this_machine_does_not_open_the_pages(playwright: Playwright, small: Served) -> None:
    port = urlsplit(small.url).port
    with browser.browser(playwright, "--host-resolver-rules=MAP rebound.example 127.0.0.1") as running:
        page = running.new_page()
        answer = page.goto(f"http://rebound.example:{port}/")
        assert answer is not None
        assert answer.status == 421
        assert "reminders" not in page.content()


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ],
)
def test_a_change_from_another_origin_is_refused_even_with_the_token(own: Served, headers: dict[str, str]) -> None:
    status, _, _ = ask(own, "POST", CANCEL, urlencode({"token": token_of(own)}), **headers)
    assert status == 403
    assert own.client.get(TASK).status == "scheduled"


@pytest.mark.parametrize("form", ["", "token=", "token=guessed", "token=%00", "x=1"])
def test_a_change_without_the_token_is_refused(own: Served, form: str) -> None:
    paths = (
        CANCEL,
        "/pause",
        "/schedules/probe/pause",
        "/failures/redrive?action=charge-card",
        "/tasks/change?do=cancel",
    )
    for path in paths:
        status, _, _ = ask(own, "POST", path, form)
        assert status == 403, path
    assert own.client.get(TASK).status == "scheduled"
    assert own.client.schedules.get("probe").state == "ENABLED"


def test_the_token_and_no_origin_is_enough_so_that_the_refusals_above_are_for_their_reason(own: Served) -> None:
    status, _, _ = ask(own, "POST", CANCEL, urlencode({"token": token_of(own)}))
    assert status == 303
    assert own.client.get(TASK).status == "cancelled"


@pytest.mark.parametrize("kind", ["text/plain", "application/json", "multipart/form-data; boundary=x", ""])
def test_a_change_in_another_form_is_refused(own: Served, kind: str) -> None:
    status, _, _ = ask(own, "POST", CANCEL, urlencode({"token": token_of(own)}), Content_Type=kind)
    assert status in (403, 415)
    assert own.client.get(TASK).status == "scheduled"


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_other_methods_do_nothing(small: Served, method: str) -> None:
    status, headers, _ = ask(small, method, CANCEL, Origin="http://evil.example")
    assert status in (403, 405)
    assert not [name for name in headers if name.startswith("access-control")]


def test_a_get_changes_nothing(own: Served) -> None:
    for path in (CANCEL, "/pause", "/resume", "/schedules/probe/pause"):
        status, _, _ = ask(own, "GET", path)
        assert status in (404, 405)
    assert own.client.get(TASK).status == "scheduled"
    assert own.client.schedules.get("probe").state == "ENABLED"


@pytest.mark.parametrize("address", ADDRESSES.values(), ids=ADDRESSES)
def test_each_page_has_the_headers_that_guard_it(small: Served, address: str) -> None:
    status, headers, _ = ask(small, "GET", address)
    assert status == 200
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    assert not [name for name in headers if name.startswith("access-control")]


def test_the_whole_row_is_never_html(small: Served) -> None:
    _, headers, text = ask(small, "GET", f"{task(seed.HOSTILE_ID)}/row")
    assert headers["content-type"].split(";")[0] in ("text/plain", "application/json")
    assert headers["x-content-type-options"] == "nosniff"
    assert seed.SCRIPT in text


# -- another site, in the browser --------------------------------------------------------------------------------------


@pytest.fixture
def evil(own: Served) -> Iterator[str]:
    """Another site, whose page tries what it can."""
    page = f"""<!doctype html><title>Kittens</title>
        <form method=post action="{own.url}{CANCEL}"><button id=post>Kittens</button></form>
        <iframe src="{own.url}/"></iframe><script src="{own.url}{task(TASK)}/row"></script>
        <script>
          window.read = 'nothing';
          fetch('{own.url}/').then(answer => answer.text()).then(text => window.read = text).catch(() => 0);
          fetch('{own.url}{CANCEL}', {{method: 'POST', mode: 'no-cors', body: 'token='}}).catch(() => 0);
        </script>"""

    async def application(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/html")]})
            await send({"type": "http.response.body", "body": page.encode()})

    with run(application) as url:
        yield url.replace("127.0.0.1", "localhost")


def test_another_site_can_neither_read_nor_frame_nor_change(own: Served, evil: str, chromium: Browser) -> None:
    context = chromium.new_context()
    page = context.new_page()
    page.goto(evil)
    page.wait_for_load_state("networkidle")
    assert page.evaluate("window.read") == "nothing"
    assert all("reminders" not in frame.content() for frame in page.frames)
    page.click("#post")
    expect(page.locator("body")).to_contain_text("other origins")
    assert own.client.get(TASK).status == "scheduled"
    context.close()


def test_a_link_from_another_site_may_open_a_page(own: Served, evil: str, open_tab: OpenTab) -> None:
    person = open_tab(own)
    person.page.goto(evil.replace("localhost", "127.0.0.1"))
    person.log.violations.clear()
    person.log.errors.clear()
    person.page.evaluate(f"location.href = '{own.url}{task(TASK)}'")
    expect(person.by("task")).to_contain_text(TASK)
    person.log.requests.clear()
    person.log.errors.clear()


# -- read-only ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def read_only(own: Served, engine: Engine) -> Iterator[Served]:
    with serving(engine.url, own.table, read_only=True) as pages:
        yield pages


def test_read_only_pages_offer_no_change(read_only: Served, open_tab: OpenTab) -> None:
    person = open_tab(read_only)
    for name, address in ADDRESSES.items():
        if name == "redrive":
            continue
        page = person.open(address)
        expect(person.by("read-only")).to_be_visible()
        assert page.locator("form[method=post], [hx-post], dialog form[method=post]").count() == 0, address


def test_read_only_pages_refuse_changes(read_only: Served, own: Served) -> None:
    forms = ("", urlencode({"token": token_of(own)}))
    for path in (
        CANCEL,
        "/pause",
        "/resume",
        "/schedules/probe/pause",
        "/failures/redrive?action=charge-card&last=24h",
    ):
        for form in forms:
            assert ask(read_only, "POST", path, form)[0] == 403, path
    assert own.client.get(TASK).status == "scheduled"
    assert own.client.schedules.get("probe").state == "ENABLED"

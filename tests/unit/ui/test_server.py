"""The server of the pages: where it listens, what it refuses, and the headers of what it answers."""

from __future__ import annotations

import socket
import threading
from urllib.parse import urlencode

import pytest
import urllib3
import uvicorn
from tests.builders import NOON
from tests.ports import reserved_port
from tests.unit.ui.support import Browser

from dynatick import MemoryStore, TaskClient
from dynatick.testing.virtual_installation import VirtualInstallation
from dynatick.ui import server
from dynatick.ui.loopback import HOST
from dynatick.ui.site import Site


def site(name: str) -> Site:
    return Site(client=TaskClient(MemoryStore(), clock=lambda: NOON), clock=lambda: NOON, name=name)


def page(url: str) -> str:
    """Once the thread has begun to answer: until then a request waits in the listener's queue."""
    return urllib3.request("GET", url, timeout=30).data.decode()


def test_it_listens_on_loopback_and_opens_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    opened, lines, up = list[str](), list[str](), threading.Event()
    servers: list[uvicorn.Server] = []

    class Noted(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            servers.append(self)
            up.set()

    monkeypatch.setattr(server.uvicorn, "Server", Noted)
    monkeypatch.setattr(server.webbrowser, "open", opened.append)
    options = {"opens": True, "say": lines.append}
    thread = threading.Thread(target=server.serve, args=(site("first"), 0), kwargs=options)
    thread.start()
    assert up.wait(60)
    (url,) = opened
    assert url.startswith(f"http://{HOST}:") and url in lines[0]
    shown, listening = page(url), {one.getsockname()[0] for one in servers[0].servers[0].sockets}
    servers[0].should_exit = True
    thread.join(60)
    assert not thread.is_alive()
    assert ">first<" in shown and 'data-state="none"' in shown, "no tick has come yet"
    assert listening == {HOST}


def test_the_longest_address_is_answered_which_names_the_tasks_of_a_page() -> None:
    names = urlencode([("id", f"{n:02}{'я' * 511}") for n in range(50)])
    url = server.serve_beside(site("long"), 0)
    assert "there is no such task" in page(f"{url}/tasks/selected?do=cancel&{names}")


def test_beside_another_program_it_returns_at_once_and_takes_the_port_or_a_free_one() -> None:
    with reserved_port() as port:
        url = server.serve_beside(site("second"), port)
    assert url == f"http://{HOST}:{port}"
    other = server.serve_beside(site("third"), port)
    assert other != url
    assert ">second<" in page(f"{url}/") and ">third<" in page(f"{other}/")


@pytest.mark.parametrize("path", ["/", "/tasks/none", "/static/0/dynatick.css", "/favicon.ico"])
def test_only_requests_by_the_names_of_this_machine_are_answered(browser: Browser, path: str) -> None:
    for host in ("evil.example", "evil.example:4580", "127.0.0.1.evil.example:80", "", "[::1]"):
        answer = browser.get(path, headers={"Host": host})
        assert answer.status_code == 421, host
        assert browser.site.token not in answer.text and "reminders" not in answer.text
    for host in ("127.0.0.1", "localhost", "localhost:4580"):
        assert browser.get(path, headers={"Host": host}).status_code == (200 if path in ("/", "/favicon.ico") else 404)


FOREIGN = [
    {"Origin": "https://evil.example"}, {"Origin": "null"}, {"Origin": "http://127.0.0.1:1"},
    {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"},
]  # fmt: skip


@pytest.mark.parametrize("path", ["/", "/tasks/to-come/row", "/timeline?span=week", "/none"])
def test_a_page_of_another_origin_gets_nothing_and_a_link_may_lead_here(
    busy: VirtualInstallation, browser: Browser, path: str
) -> None:
    for headers in FOREIGN:
        answer = browser.get(path, headers=headers)
        assert (answer.status_code, answer.text) == (403, "This server does nothing for pages of other origins.\n")
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    framed = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}
    assert browser.get(path, headers=framed).status_code == 403
    followed = framed | {"Sec-Fetch-Dest": "document"}
    assert browser.get(path, headers=followed).status_code == browser.get(path).status_code
    assert browser.post("/tasks/to-come/cancel", headers=followed).status_code == 403


def test_a_page_of_another_origin_and_other_methods_change_nothing(busy: VirtualInstallation, browser: Browser) -> None:
    for headers in FOREIGN:  # even with the token
        assert browser.post("/tasks/to-come/cancel", headers=headers).status_code == 403, headers
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
        answer = browser.http.request(method, "/tasks/to-come/cancel")
        assert answer.status_code == 405
        assert not [name for name in answer.headers if name.startswith("access-control")]
    assert busy.client.get("to-come").status == "scheduled"


@pytest.mark.parametrize("path", ["/", "/none", "/tasks/to-come", "/tasks/to-come/row", "/timeline", "/failures"])
def test_every_answer_is_guarded(busy: VirtualInstallation, browser: Browser, path: str) -> None:
    headers = browser.get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy and "http" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert headers["referrer-policy"] == "same-origin"
    assert headers["cache-control"] == "no-store"
    assert "access-control-allow-origin" not in headers


def test_assets_are_kept_and_no_other_file_is_served(browser: Browser) -> None:
    url = browser.site.assets["htmx.min.js"].url
    answer = browser.get(url)
    assert answer.status_code == 200
    assert "immutable" in answer.headers["cache-control"]
    assert browser.get(url.replace("/static/", "/static/0")).status_code == 404
    for path in ("/static/x/htmx.LICENSE.txt", "/static/x/..%2Fsite.py", "/static/../site.py"):
        assert browser.get(path).status_code == 404

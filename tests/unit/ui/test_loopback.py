"""What the server of the pages refuses, and the headers of what it answers."""

from __future__ import annotations

import pytest
from tests.unit.ui.support import Browser

from dynatick.testing.virtual_installation import VirtualInstallation


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

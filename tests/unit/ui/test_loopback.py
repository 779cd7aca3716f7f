"""What the server of the pages refuses, and the headers of what it answers."""

from __future__ import annotations

import pytest
from tests.unit.ui.support import Browser

from dynatick.testing.virtual_installation import VirtualInstallation


@pytest.mark.parametrize("host", ["evil.example", "evil.example:4580", "127.0.0.1.evil.example:80", "", "[::1]"])
@pytest.mark.parametrize("path", ["/", "/tasks/none", "/static/0/dynatick.css", "/favicon.ico"])
def test_a_request_by_another_name_is_refused(browser: Browser, host: str, path: str) -> None:
    answer = browser.get(path, headers={"Host": host})
    assert answer.status_code == 421
    assert browser.site.token not in answer.text and "reminders" not in answer.text


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "localhost:4580"])
def test_this_machine_is_answered(browser: Browser, host: str) -> None:
    assert browser.get("/", headers={"Host": host}).status_code == 200


FOREIGN = [
    {"Origin": "https://evil.example"}, {"Origin": "null"}, {"Origin": "http://127.0.0.1:1"},
    {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"},
]  # fmt: skip


@pytest.mark.parametrize("headers", FOREIGN)
def test_a_change_by_a_page_of_another_origin_is_refused_even_with_the_token(
    busy: VirtualInstallation, browser: Browser, headers: dict[str, str]
) -> None:
    assert browser.post("/tasks/to-come/cancel", headers=headers).status_code == 403
    assert busy.client.get("to-come").status == "scheduled"


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_other_methods_do_nothing(busy: VirtualInstallation, browser: Browser, method: str) -> None:
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

"""A page of another origin, in a real browser, gets nothing of what listens on a developer's machine, and does nothing
there: the emulator, the local API, and the servers of tests."""

from __future__ import annotations

import base64
import io
import json
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

import boto3
import pytest
from playwright.sync_api import Browser, Playwright
from tests.ui import browser
from tests.ui.serving import run

from dynatick import MemoryStore, TaskClient, TaskNotFound
from dynatick_stack import emulator
from dynatick_stack.api import Application
from dynatick_stack.counting.counts import Engine
from dynatick_stack.demo.receiver import Receiver

FOREIGN = "This server does nothing for pages of other origins."
EXPECTED = {"fetch": "refused", "no-cors": "sent", "image": "refused", "socket": "refused", "preflight": "refused"}
"""What the page learns. Without CORS it can't tell an answer from a refusal: "sent"."""


def page(url: str, path: str, body: str) -> bytes:
    """A page that sends what browsers let any page send: simple requests, a preflight, an image, a socket, a form."""
    return f"""<!doctype html><title>Kittens</title><iframe name=hidden></iframe>
      <form id=form method=post enctype=text/plain action="{url}{path}" target=hidden></form>
      <script>
        const url = {json.dumps(url)}, path = {json.dumps(path)}, body = {json.dumps(body)};
        const learned = {{}};
        const loads = (element, name) => new Promise(done => {{
          element.onload = () => done('answered'); element.onerror = () => done('refused'); element.src = url + path;
        }});
        const attempt = (options) => fetch(url + path, options).then(
          answer => answer.type === 'opaque' ? 'sent' : answer.text(), () => 'refused');
        window.tried = (async () => {{
          learned.fetch = await attempt({{}});
          learned['no-cors'] = await attempt({{method: 'POST', mode: 'no-cors', body: body}});
          learned.preflight = await attempt(
            {{method: 'POST', body: body, headers: {{'content-type': 'application/json', 'x-amz-target': 'a'}}}});
          learned.image = await loads(new Image());
          learned.socket = await new Promise(done => {{
            const socket = new WebSocket(url.replace('http', 'ws') + path);
            socket.onopen = () => done('answered'); socket.onerror = () => done('refused');
          }});
          const field = document.createElement('input');  // as text/plain it is sent as name=value
          [field.name, field.value] = [body.slice(0, body.indexOf('=')), body.slice(body.indexOf('=') + 1)];
          form.append(field);
          const frame = document.querySelector('iframe');
          const answered = new Promise(done => {{ frame.onload = done; setTimeout(done, 30000) }});  // 204: no page
          form.submit();
          await answered;
          return learned;
        }})();
      </script>""".encode()


@dataclass(frozen=True)
class Evil:
    """Another site."""

    url: str
    tried: dict[str, str]
    form: str
    """What the form's frame shows; a person sees it, the page doesn't."""


def try_it(chromium: Browser, url: str, path: str, body: str) -> Evil:
    """Opens a page of another origin that tries a URL, and waits until it has tried all."""
    content = page(url, path, body)

    async def site(scope: object, receive: object, send: object) -> None:
        if scope["type"] == "http":  # type: ignore[index]
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/html")]})  # type: ignore[operator]
            await send({"type": "http.response.body", "body": content})  # type: ignore[operator]

    context = chromium.new_context()
    try:
        with run(site) as evil:
            tab = context.new_page()
            tab.goto(evil.replace("127.0.0.1", "localhost"))
            tried = tab.evaluate("tried")
            frame = tab.frame("hidden")
            assert frame is not None
            return Evil(evil, tried, frame.locator("body").inner_text())
    finally:
        context.close()


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    state = tmp_path_factory.mktemp("emulator")
    running = emulator.start(0, state_dir=state, say=lambda text: None)
    try:
        yield running.endpoint
    finally:
        emulator.stop(state_dir=state)


def function() -> str:
    """A request that makes a function."""
    code = io.BytesIO()
    with zipfile.ZipFile(code, "w") as archive:
        archive.writestr("x.py", "def handler(event, context): pass")
    wanted = {
        "FunctionName": "evil", "Runtime": "python3.11", "Handler": "x.handler", "Role": "arn:aws:iam::1:role/x",
        "Description": "=", "Code": {"ZipFile": base64.b64encode(code.getvalue()).decode()},
    }  # fmt: skip
    return json.dumps(wanted)


def test_a_page_makes_no_function_on_the_emulator(emulated: str, chromium: Browser) -> None:
    functions = boto3.client("lambda", endpoint_url=emulated)
    found = try_it(chromium, emulated, "/2015-03-31/functions", function())
    assert found.tried == EXPECTED
    assert FOREIGN in found.form
    assert functions.list_functions()["Functions"] == []


def test_a_name_that_leads_to_this_machine_does_not_open_the_emulator(emulated: str, playwright: Playwright) -> None:
    """The page is then of the emulator's origin, as the browser sees it."""
    port = urlsplit(emulated).port
    with browser.browser(playwright, "--host-resolver-rules=MAP rebound.example 127.0.0.1") as running:
        tab = running.new_page()
        answer = tab.goto(f"http://rebound.example:{port}/2015-03-31/functions")
        assert answer is not None
        assert answer.status == 421
        sent = "body => fetch('/2015-03-31/functions', {method: 'POST', body}).then(answer => answer.status)"
        assert tab.evaluate(sent, function()) == 421
    assert boto3.client("lambda", endpoint_url=emulated).list_functions()["Functions"] == []


def test_a_page_makes_no_task_by_the_local_api(chromium: Browser) -> None:
    client = TaskClient(MemoryStore())
    with run(Application(client)) as url:
        found = try_it(chromium, url, "/v1/tasks", '{"taskId": "a=b"}')
        assert found.tried == EXPECTED
        assert FOREIGN in found.form
    with pytest.raises(TaskNotFound):
        client.get("a=b")


def test_a_page_forges_no_call_of_the_demo(chromium: Browser) -> None:
    with Receiver() as receiver:
        found = try_it(chromium, receiver.url, "/ok", "a=b")
        assert found.tried == EXPECTED
        assert FOREIGN in found.form
        assert receiver.calls == []


def test_a_page_learns_nothing_of_the_counting_endpoint(engine: Engine, chromium: Browser) -> None:
    assert try_it(chromium, engine.url, "/counts", "a=b").tried == EXPECTED

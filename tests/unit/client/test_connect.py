"""The client finds its table by its arguments, else by the environment, else as the SDK does."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from dynatick import TaskClient
from dynatick.client.connect import ClientSettings
from dynatick.domain.buckets import Bucket
from dynatick.engine.conditional_write import create
from dynatick.errors import ConfigurationError, StoreError


def test_settings() -> None:
    assert ClientSettings.from_env({"DYNATICK_TABLE": "t"}) == ClientSettings(table="t")
    # The SDK reads the endpoint, with the more specific variable before the general one.
    environ = {"DYNATICK_TABLE": "t", "AWS_REGION": "eu-west-1", "AWS_ENDPOINT_URL": "http://localhost:1"}
    assert ClientSettings.from_env(environ) == ClientSettings(table="t", region="eu-west-1")
    given = {"table": "mine", "region": "us-east-1", "endpoint_url": "http://localhost:2", "profile": "p"}
    assert ClientSettings.from_env(environ, **given) == ClientSettings(**given)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="DYNATICK_TABLE: it is not set, and no table was named"):
        ClientSettings.from_env({})


def test_connecting_sends_nothing_and_the_environment_names_the_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DYNATICK_TABLE", "t")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    client = TaskClient.connect()
    with pytest.raises(StoreError, match=r"http://127\.0\.0\.1:9/"):
        client.get("x")


@pytest.mark.parametrize("given", ["127.0.0.1:4566", "http://"])
def test_an_endpoint_that_is_no_url_is_refused_wherever_it_comes_from(
    monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    message = f"endpoint_url: '{given}' is not accepted; expected a URL such as http://127.0.0.1:4566"
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        TaskClient.connect(table="t", region="eu-west-1", endpoint_url=given).get("x")
    monkeypatch.setenv("AWS_ENDPOINT_URL", given)
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        TaskClient.connect(table="t", region="eu-west-1").get("x")


def test_a_profile_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = tmp_path / "config"
    keys = "aws_access_key_id = a\naws_secret_access_key = s"
    config.write_text(f"[profile other]\nregion = eu-central-1\n{keys}\n[profile bare]\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.delenv("AWS_REGION", raising=False)
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    store = TaskClient.connect("t", profile="other").store
    sdk = store._connection.connection.client  # type: ignore[attr-defined]
    assert sdk.meta.region_name == "eu-central-1"
    with pytest.raises(ConfigurationError, match="nobody"):
        TaskClient.connect("t", profile="nobody")
    with pytest.raises(ConfigurationError, match="there are no credentials for 'bare'"):
        TaskClient.connect("t", profile="bare")


class Silent:
    """A table that takes every request, and answers none."""

    def __init__(self) -> None:
        self._operations: list[str] = []
        self._came = threading.Condition()
        self._over = threading.Event()
        test = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                with test._came:
                    test._operations.append(self.headers["X-Amz-Target"].rpartition(".")[2])
                    test._came.notify()
                test._over.wait()

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def take(self, number: int) -> list[str]:
        """The operations of the next requests, in order of name: on a busy machine, one is read here long after its
        client has ceased to wait for the answer."""
        with self._came:
            self._came.wait_for(lambda: len(self._operations) >= number, timeout=60)
            taken, self._operations = self._operations, []
        return sorted(taken)

    def end(self) -> None:
        self._over.set()
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def silent() -> Iterator[Silent]:
    table = Silent()
    yield table
    table.end()


def test_a_client_does_not_wait_long_for_a_silent_table(silent: Silent) -> None:
    client = TaskClient.connect("t", region="eu-west-1", endpoint_url=silent.url, timeout_seconds=0.2)
    for call, operations in (
        (lambda: client.get("x"), ["GetItem"] * 2),
        (lambda: client.store.create({"taskId": "x"}), ["PutItem"] * 2),
        (lambda: client.store.query_bucket(Bucket.parse("2026-12-31#12:00")), ["Query"] * 2),
        (lambda: client.insert("x"), ["GetItem"] * 2),  # the settings: without them it is not written
        (lambda: create(client.store, {"taskId": "x"}), ["PutItem"] * 2 + ["GetItem"] * 2),  # reads whether it is there
    ):
        with pytest.raises(StoreError):
            call()
        assert silent.take(len(operations)) == sorted(operations), "each was sent twice, however it is sent"


def test_how_long_a_client_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    def timeout(**given: float) -> float | None:
        return ClientSettings.from_env(os.environ, table="t", is_library=True, **given).timeout_seconds  # type: ignore[arg-type]

    assert (timeout(), timeout(timeout_seconds=9)) == (3, 9)
    monkeypatch.setenv("DYNATICK_TIMEOUT_SECONDS", "30")
    assert (timeout(), timeout(timeout_seconds=9)) == (30, 9)
    assert ClientSettings.from_env(os.environ, table="t").timeout_seconds is None, "the command line is patient"
    with pytest.raises(ConfigurationError, match="timeout_seconds: 0 is not accepted; expected a number of seconds"):
        TaskClient.connect("t", timeout_seconds=0)
    monkeypatch.setenv("DYNATICK_TIMEOUT_SECONDS", "soon")
    with pytest.raises(ConfigurationError, match="DYNATICK_TIMEOUT_SECONDS: 'soon' is not accepted; expected a number"):
        TaskClient.connect("t")


@pytest.mark.parametrize(
    ("program", "others"),
    [
        ("import dynatick; dynatick.TaskClient", {"typer", "rich", "pynamodb", "aws_lambda_powertools"}),
        ("from dynatick import task\n@task('x')\ndef f(payload: dict[str, object]) -> None: ...",
         {"boto3", "pydantic", "dynatick.client", "dynatick.bulk", "asyncio"}),
        ("import dynatick.testing.pytest_plugin",
         {"boto3", "pydantic", "dynatick.client", "dynatick.errors", "dynatick.testing.virtual_installation"}),
    ],
    ids=["the client", "a task function", "the pytest plugin"],
)  # fmt: skip
def test_an_import_loads_nothing_that_only_others_need(program: str, others: set[str]) -> None:
    program += f"\nimport sys; print(*{others} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == []

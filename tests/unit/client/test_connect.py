"""The client finds its table by its arguments, else by the environment, else as the SDK does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dynatick import TaskClient
from dynatick.client.connect import ClientSettings
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

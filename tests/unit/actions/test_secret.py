"""Secrets by reference, on moto: permissions, caching, and that no message contains a secret."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from freezegun import freeze_time
from moto import mock_aws
from pydantic import TypeAdapter

from dynatick.actions.aws_client import ClientCache
from dynatick.actions.payload_field import ManagedSecret, SsmSecret
from dynatick.actions.secret import MAX_AGE_SECONDS, Secrets
from dynatick.errors import ConfigurationError, PermanentError, RetryableError

ALLOWED = (
    "arn:aws:ssm:us-east-1:123456789012:parameter/dynatick/*",
    "arn:aws:secretsmanager:us-east-1:123456789012:secret:dynatick/*",
)
SECRET = "hunter2"
TOKEN = SsmSecret(ssm="/dynatick/token")


def managed(name: str, key: str | None = None) -> ManagedSecret:
    return TypeAdapter(ManagedSecret).validate_python({"secretsManager": name, "key": key})


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with mock_aws():
        ssm, manager = boto3.client("ssm"), boto3.client("secretsmanager")
        for name in ("/dynatick/token", "/other/token"):
            ssm.put_parameter(Name=name, Value=SECRET, Type="SecureString")
        manager.create_secret(Name="dynatick/shop", SecretString=json.dumps({"token": SECRET, "n": 1}))
        manager.create_secret(Name="dynatick/text", SecretString=SECRET)
        manager.create_secret(Name="dynatick/binary", SecretBinary=b"hunter2")
        yield


class Clients:
    """Clients that count the calls of SSM, and fail them with ``code`` if it is set."""

    def __init__(self) -> None:
        self.calls = 0
        self.code: str | None = None

    def __call__(self, service: str) -> Any:
        client = boto3.client(service)  # type: ignore[call-overload]
        client.meta.events.register("before-call.ssm", self.noted)
        return client

    def noted(self, **_: object) -> None:
        self.calls += 1
        if self.code is not None:
            raise ClientError({"Error": {"Code": self.code, "Message": SECRET}}, "GetParameter")


@pytest.fixture
def clients(aws: None) -> Clients:
    return Clients()


@pytest.fixture
def secrets(clients: Clients) -> Secrets:
    return Secrets(ALLOWED, clients=clients)


def test_a_secret_is_read_by_name_or_arn(secrets: Secrets) -> None:
    arn = boto3.client("secretsmanager").describe_secret(SecretId="dynatick/text")["ARN"]
    for ref in (
        TOKEN,
        SsmSecret(ssm="arn:aws:ssm:us-east-1:123456789012:parameter/dynatick/token"),
        managed("dynatick/text"),
        managed("dynatick/shop", "token"),
        managed(arn),
    ):
        assert secrets.value(ref, "payload.url") == SECRET
    exact = Secrets([arn], clients=ClientCache())
    assert exact.value(managed("dynatick/text"), "payload.url") == SECRET
    with pytest.raises(PermanentError, match="AllowedSecrets"):
        exact.value(managed("dynatick/tex"), "payload.url")


def test_a_secret_that_cannot_be_read_is_permanent(secrets: Secrets) -> None:
    refs: dict[Any, str] = {
        SsmSecret(ssm="/other/token"): "'/other/token' is not among AllowedSecrets",
        SsmSecret(ssm="/dynatickx"): "'/dynatickx' is not among AllowedSecrets",
        SsmSecret(ssm="/dynatick/no"): r"'/dynatick/no' can't be read \(ParameterNotFound\)",
        managed("other/x"): "not among AllowedSecrets",
        managed("dynatick/no"): "ResourceNotFound",
        managed("dynatick/binary"): "is binary",
        managed("dynatick/text", "a"): "no text",
        managed("dynatick/shop", "n"): "no text",
        managed("dynatick/shop", "x"): "no text",
    }
    for ref, message in refs.items():
        with pytest.raises(PermanentError, match=rf"^payload\.url: the secret .*{message}") as caught:
            secrets.value(ref, "payload.url")
        assert SECRET not in str(caught.value)
        assert caught.value.__cause__ is None


def test_nothing_is_allowed_unless_it_is_named_by_an_arn(clients: Clients) -> None:
    with pytest.raises(PermanentError, match="not among AllowedSecrets"):
        Secrets(clients=clients).value(TOKEN, "payload.url")
    with pytest.raises(ConfigurationError, match="AllowedSecrets: '/dynatick/' is not an ARN"):
        Secrets(["/dynatick/"], clients=clients)
    assert clients.calls == 0


def test_a_secret_is_cached_for_five_minutes(clients: Clients) -> None:
    with freeze_time("2026-12-31T12:00:00Z") as time:
        secrets = Secrets(ALLOWED, clients=clients)
        for _ in range(100):
            secrets.value(TOKEN, "payload.url")
        assert clients.calls == 1
        boto3.client("ssm").put_parameter(Name=TOKEN.ssm, Value="new", Type="SecureString", Overwrite=True)
        time.tick(MAX_AGE_SECONDS - 1)
        assert secrets.value(TOKEN, "payload.url") == SECRET
        time.tick(2)
        assert secrets.value(TOKEN, "payload.url") == "new"
    assert clients.calls == 2


@pytest.mark.parametrize("code", ["AccessDeniedException", "ThrottlingException", "InternalServerError"])
def test_other_errors_are_retryable_and_not_cached(secrets: Secrets, clients: Clients, code: str) -> None:
    clients.code = code
    with pytest.raises(RetryableError, match=rf"can't be read \({code}\)$"):
        secrets.value(TOKEN, "payload.url")
    clients.code = None
    assert secrets.value(TOKEN, "payload.url") == SECRET


def test_no_log_contains_a_secret_at_any_level(secrets: Secrets, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("botocore", "urllib3"):
        caplog.set_level(logging.getLogger(name).level, name)  # as it is now, to be restored
    caplog.set_level(logging.DEBUG)
    secrets.value(TOKEN, "payload.url")
    secrets.value(managed("dynatick/text"), "payload.url")
    assert SECRET not in str([vars(record) for record in caplog.records])

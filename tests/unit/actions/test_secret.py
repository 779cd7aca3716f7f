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
from tests.builders import NOON, FakeClock

from dynatick import secret
from dynatick.actions.aws_client import ClientCache
from dynatick.actions.handler_secrets import RETRY_DELAY, HandlerSecrets, use_secrets
from dynatick.actions.payload_field import ManagedSecret, SsmSecret
from dynatick.actions.secret import MAX_AGE_SECONDS, SecretReference, Secrets
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


# --- Of handlers --------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("ssm:/reminders/smtp", SecretReference(service="ssm", name="/reminders/smtp")),
        ("ssm:token", SecretReference(service="ssm", name="token")),
        ("secretsmanager:shop/a+b=c", SecretReference(service="secretsmanager", name="shop/a+b=c")),
        ("secretsmanager:shop#a b", SecretReference(service="secretsmanager", name="shop", key="a b")),
        *((text, None) for text in ("hunter2", "ssm:", "ssm:/", "ssm:a#b", "ssm:a:1", "SSM:a", "secretsmanager:a#", 7)),
    ],
)
def test_a_reference_in_the_settings_names_its_service(text: object, reference: SecretReference | None) -> None:
    if reference is not None:
        assert SecretReference.parse(text) == reference
        return
    with pytest.raises(ValueError, match=r"^expected ssm:NAME or secretsmanager:NAME") as caught:
        SecretReference.parse(text)
    assert "hunter2" not in str(caught.value)


NAMES = {"SMTP": "ssm:/dynatick/token", "SHOP": "secretsmanager:dynatick/shop#token", "GONE": "ssm:/gone"}


@pytest.fixture
def of_handlers(clients: Clients) -> Iterator[FakeClock]:
    """The secrets that handlers get now; the clock of the process."""
    clock = FakeClock(NOON)
    references = {name: SecretReference.parse(text) for name, text in NAMES.items()}
    with freeze_time(NOON):
        use_secrets(HandlerSecrets(references, secrets=Secrets(None, clients=clients), clock=clock))
        yield clock
    use_secrets(None)


def test_a_handler_gets_its_secrets_by_name_whatever_tasks_may_name(of_handlers: FakeClock) -> None:
    assert (secret("SMTP"), secret("SHOP")) == (SECRET, SECRET)
    with pytest.raises(ConfigurationError, match=r"no 'SENDER' in \[handlers\] secrets, which has GONE, SHOP, SMTP$"):
        secret("SENDER")


def test_a_new_value_is_there_after_five_minutes_or_when_it_is_asked_for(clients: Clients) -> None:
    with freeze_time(NOON) as time:
        reference = {"SMTP": SecretReference.parse(NAMES["SMTP"])}
        mine = HandlerSecrets(reference, secrets=Secrets(None, clients=clients), clock=FakeClock(NOON))
        assert mine.value("SMTP") == SECRET
        boto3.client("ssm").put_parameter(Name="/dynatick/token", Value="new", Type="SecureString", Overwrite=True)
        assert (mine.value("SMTP"), clients.calls) == (SECRET, 1)
        assert (mine.value("SMTP", fresh=True), mine.value("SMTP"), clients.calls) == ("new", "new", 2)
        boto3.client("ssm").put_parameter(Name="/dynatick/token", Value="newer", Type="SecureString", Overwrite=True)
        time.tick(MAX_AGE_SECONDS + 1)
        assert (mine.value("SMTP"), clients.calls) == ("newer", 3)


def test_the_latest_value_serves_while_its_service_fails_which_is_asked_again_after_a_minute(
    clients: Clients, caplog: pytest.LogCaptureFixture
) -> None:
    clock = FakeClock(NOON)
    reference = {"SMTP": SecretReference.parse(NAMES["SMTP"])}
    with freeze_time(NOON) as time:
        mine = HandlerSecrets(reference, secrets=Secrets(None, clients=clients), clock=clock)
        mine.value("SMTP")
        clients.code = "InternalServerError"
        time.tick(MAX_AGE_SECONDS + 1)
        assert [mine.value("SMTP") for _ in range(3)] == [SECRET] * 3
        assert clients.calls == 2
        with pytest.raises(RetryableError, match=r"^secret SMTP: .* can't be read \(InternalServerError\)$"):
            mine.value("SMTP", fresh=True)
        clock.forward(seconds=RETRY_DELAY.total_seconds())
        assert (mine.value("SMTP"), clients.calls) == (SECRET, 4)
        clients.code = None
        clock.forward(seconds=RETRY_DELAY.total_seconds())
        assert (mine.value("SMTP"), clients.calls) == (SECRET, 5)
    noted = [vars(record) for record in caplog.records if vars(record).get("action") == "secret_not_renewed"]
    assert len(noted) == 2
    assert SECRET not in str(noted)


@pytest.mark.parametrize("code", [None, "AccessDeniedException"])
def test_what_can_not_be_read_is_tried_again_since_the_settings_may_be_repaired(
    of_handlers: FakeClock, clients: Clients, code: str | None
) -> None:
    clients.code = code
    with pytest.raises(RetryableError, match=f"^secret GONE: .*'/gone' .*{code or 'ParameterNotFound'}") as caught:
        secret("GONE")
    assert caught.value.__cause__ is None


def test_outside_of_the_processor_a_secret_is_an_environment_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SMTP", "mine")
    assert (secret("SMTP"), secret("SMTP", fresh=True)) == ("mine", "mine")
    monkeypatch.setenv("SMTP", "")
    for name in ("SMTP", "NO_SUCH_VARIABLE"):
        with pytest.raises(ConfigurationError, match=f"^{name}: this environment variable is not set; outside AWS"):
            secret(name)

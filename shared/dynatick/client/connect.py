"""Connects to the table and the dead-letter queue.

The only part of the client that reads the environment or imports the SDK.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dynatick.errors import ConfigurationError, shown

if TYPE_CHECKING:
    from botocore.session import Session
    from mypy_boto3_sqs import SQSClient

    from dynatick.actions.dead_letter_queue import DeadLetterQueue
    from dynatick.store.dynamodb import DynamoStore


TIMEOUT_SECONDS = 3.0
"""The default of a client in Python: short enough for a request of a web application."""

MAX_TIMEOUT_SECONDS = 600
_TIMEOUT = "DYNATICK_TIMEOUT_SECONDS"


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientSettings:
    """The addresses of the table and its dead-letter queue. For None, the AWS SDK uses its own configuration."""

    table: str
    dead_letter_queue_url: str | None = None  # None: not known
    region: str | None = None
    endpoint_url: str | None = None
    profile: str | None = None
    timeout_seconds: float | None = None  # that a call waits for a silent table; None: a minute and more
    credentials: tuple[str, str] | None = None  # key and secret, instead of the environment's

    @classmethod
    def from_env(
        cls,
        environ: Mapping[str, str],
        *,
        table: str | None = None,
        dead_letter_queue_url: str | None = None,
        region: str | None = None,
        endpoint_url: str | None = None,
        profile: str | None = None,
        timeout_seconds: float | None = None,
        is_library: bool = False,
    ) -> ClientSettings:
        """The arguments, else the environment's values. ``is_library``: a client in a program that doesn't wait long.
        Raises ConfigurationError if there is no table, or for a timeout that is not a number of seconds."""
        table = table or environ.get("DYNATICK_TABLE")
        if not table:
            raise ConfigurationError("DYNATICK_TABLE", "it is not set, and no table was named")
        return cls(
            table=table,
            dead_letter_queue_url=dead_letter_queue_url or environ.get("DYNATICK_DEAD_LETTER_QUEUE_URL") or None,
            # The SDK for Python reads AWS_DEFAULT_REGION only; other SDKs and Lambda use AWS_REGION.
            region=region or environ.get("AWS_REGION") or None,
            # AWS_ENDPOINT_URL and AWS_ENDPOINT_URL_DYNAMODB are the SDK's to read.
            endpoint_url=endpoint_url or None,
            profile=profile or None,
            timeout_seconds=_timeout(timeout_seconds, environ) if is_library else None,
        )


def open_store(settings: ClientSettings, *, batched: bool = True) -> DynamoStore:
    """The store on a table. Nothing is sent yet. Raises ConfigurationError for a profile that cannot be used."""
    from dynatick.store.dynamodb import DynamoStore  # the SDK takes a third of a second to import

    return DynamoStore(
        settings.table,
        region=settings.region,
        endpoint_url=settings.endpoint_url,
        batched=batched,
        session=_session(settings),
        timeout_seconds=settings.timeout_seconds,
    )


def open_queue(settings: ClientSettings) -> DeadLetterQueue | None:
    """The dead-letter queue, if it is known. Its SDK client is made with the first request."""
    if settings.dead_letter_queue_url is None:
        return None
    from dynatick.actions.dead_letter import SqsDeadLetterQueue

    def client() -> SQSClient:
        import boto3
        from botocore.config import Config

        session = boto3.Session(botocore_session=_session(settings), region_name=settings.region)
        # It waits a second for messages.
        config = Config(connect_timeout=3, read_timeout=10)
        return session.client("sqs", endpoint_url=settings.endpoint_url, config=config)

    return SqsDeadLetterQueue(client, settings.dead_letter_queue_url)


def _timeout(given: object, environ: Mapping[str, str]) -> float:
    name, value = "timeout_seconds", given
    if value is None and (text := environ.get(_TIMEOUT)):
        name = _TIMEOUT
        try:
            value = float(text)
        except ValueError:
            value = text
    if value is None:
        return TIMEOUT_SECONDS
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MAX_TIMEOUT_SECONDS:
        expected = f"expected a number of seconds above 0, up to {MAX_TIMEOUT_SECONDS}"
        raise ConfigurationError(name, f"{shown(value)} is not accepted; {expected}")
    return float(value)


def _session(settings: ClientSettings) -> Session | None:
    if settings.profile is None and settings.credentials is None:
        return None
    from botocore.exceptions import BotoCoreError
    from botocore.session import Session

    session = Session(profile=settings.profile)
    if settings.credentials is not None:
        session.set_credentials(*settings.credentials)
        return session
    try:
        found = session.get_credentials()
    except BotoCoreError as error:
        raise ConfigurationError("profile", str(error)) from error
    if found is None:
        raise ConfigurationError("profile", f"there are no credentials for {settings.profile!r}")
    return session

"""Connects to the table and the dead-letter queue.

The only part of the client that reads the environment or imports the SDK.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dynatick.errors import ConfigurationError

if TYPE_CHECKING:
    from botocore.session import Session
    from mypy_boto3_sqs import SQSClient

    from dynatick.actions.dead_letter_queue import DeadLetterQueue
    from dynatick.store.dynamodb import DynamoStore


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientSettings:
    """The addresses of the table and its dead-letter queue. For None, the AWS SDK uses its own configuration."""

    table: str
    dead_letter_queue_url: str | None = None  # None: not known
    region: str | None = None
    endpoint_url: str | None = None
    profile: str | None = None
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
    ) -> ClientSettings:
        """The arguments, else the environment's values. Raises ConfigurationError if there is no table."""
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
    )


def open_queue(settings: ClientSettings) -> DeadLetterQueue | None:
    """The dead-letter queue, if it is known. Its SDK client is made with the first request."""
    if settings.dead_letter_queue_url is None:
        return None
    from dynatick.actions.dead_letter_reader import SqsDeadLetterQueue

    def client() -> SQSClient:
        import boto3
        from botocore.config import Config

        session = boto3.Session(botocore_session=_session(settings), region_name=settings.region)
        # It waits a second for messages.
        config = Config(connect_timeout=3, read_timeout=10)
        return session.client("sqs", endpoint_url=settings.endpoint_url, config=config)

    return SqsDeadLetterQueue(client, settings.dead_letter_queue_url)


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

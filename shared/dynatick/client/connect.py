"""Connects to the table: the only part of the client that reads the environment or imports the SDK."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dynatick.errors import ConfigurationError

if TYPE_CHECKING:
    from botocore.session import Session

    from dynatick.store.dynamodb import DynamoStore


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientSettings:
    """The address of the table. For None, the AWS SDK uses its own configuration."""

    table: str
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

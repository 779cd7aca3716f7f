"""What payload types are made of. Imported together with one of them, and pydantic with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import ConfigDict, Discriminator, Field, Strict, Tag
from pydantic.alias_generators import to_camel
from pydantic.dataclasses import dataclass
from pydantic_core import PydanticCustomError

from dynatick.actions.secrets import MANAGED_NAME, SSM_NAME

CONFIG = ConfigDict(extra="forbid", alias_generator=to_camel)
"""Of each payload type: names as the table has them, and no others."""

Text = Annotated[str, Strict()]


def wrong(problem: str, *, field: str | None = None) -> PydanticCustomError:
    """To be raised by a validator. ``field``: a part of the value that is checked."""
    told: dict[str, Any] = {"problem": problem} | ({} if field is None else {"field": field})
    return PydanticCustomError("dynatick", "{problem}", told)


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class SsmSecret:
    """A parameter of Systems Manager; a SecureString is decrypted."""

    ssm: Annotated[Text, Field(pattern=SSM_NAME, description="Name or ARN of the parameter.")]

    service = "ssm"
    key = None

    @property
    def name(self) -> str:
        return self.ssm


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class ManagedSecret:
    """A secret of Secrets Manager."""

    secrets_manager: Annotated[Text, Field(pattern=MANAGED_NAME, description="Name or ARN of the secret.")]
    key: Annotated[Text | None, Field(description="Which value of a secret that is JSON.")] = None

    service = "secretsmanager"

    @property
    def name(self) -> str:
        return self.secrets_manager


def _service(value: object) -> str:
    return "<managed>" if isinstance(value, Mapping) and "secretsManager" in value else "<ssm>"


Secret = Annotated[
    Annotated[SsmSecret, Tag("<ssm>")] | Annotated[ManagedSecret, Tag("<managed>")], Discriminator(_service)
]


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class SecretText:
    """A text that a secret is part of."""

    secret: Secret
    prefix: Annotated[Text, Field(description='What stands before it, such as "Bearer ".')] = ""


def form_of(value: object) -> str:
    return "<secret>" if isinstance(value, Mapping) else "<text>"

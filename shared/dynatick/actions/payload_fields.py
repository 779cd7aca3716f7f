"""What payload types are made of. Imported together with one of them, and pydantic with it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Discriminator, Field, Strict, Tag
from pydantic.alias_generators import to_camel
from pydantic.dataclasses import dataclass
from pydantic_core import PydanticCustomError

from dynatick.actions.plain_values import MAX_BYTES, to_json
from dynatick.actions.secrets import MANAGED_NAME, SSM_NAME
from dynatick.errors import shown

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

    secret: Annotated[Secret, Field(description="Which one.")]
    prefix: Annotated[Text, Field(description='What stands before it, such as "Bearer ".')] = ""


def form_of(value: object) -> str:
    return "<secret>" if isinstance(value, Mapping) else "<text>"


def arn(service: str, resource: str) -> Any:
    """What the ARN of a target looks like, as a pattern."""
    return Field(pattern=rf"^arn:aws[a-z-]*:{service}:[a-z0-9-]+:[0-9]{{12}}:{resource}$")


MAX_ATTRIBUTES = 5
"""Of the user's own; with ours that makes the ten that SQS takes."""

_ATTRIBUTE_NAME = re.compile(r"(?!(?i:aws\.|amazon\.|dynatick|\.))(?!.*\.\.)[A-Za-z0-9_.-]{1,256}(?<!\.)", re.ASCII)


def _checked_attributes(value: object) -> object:
    if not isinstance(value, Mapping) or len(value) > MAX_ATTRIBUTES:
        raise wrong(f"expected a map of at most {MAX_ATTRIBUTES} attributes")
    for name, one in value.items():
        if not isinstance(name, str) or _ATTRIBUTE_NAME.fullmatch(name) is None:
            raise wrong(f"{shown(name)} is not the name of an attribute; names of ours begin with dynatick")
        if isinstance(one, bool) or not isinstance(one, (str, int, float)) or one == "":
            raise wrong(f"the value of {shown(name)} is not accepted; expected text that is not empty, or a number")
    return value


Attributes = Annotated[
    dict[Text, str | int | float],
    BeforeValidator(_checked_attributes),
    Field(max_length=MAX_ATTRIBUTES, description="Message attributes beside ours, to filter by."),
]


def fitting(value: object) -> object:
    """Refuses a message, or a target's input, that alone is more than the services take. Raises what ``wrong`` makes.

    What is sent is larger by what we add; whether that still fits is seen when it is put together.
    """
    try:
        size = len((value if isinstance(value, str) else to_json(value)).encode())
    except UnicodeEncodeError:
        raise wrong("expected text that UTF-8 can hold") from None
    except ValueError as error:
        raise wrong(str(error)) from None
    if size > MAX_BYTES:
        raise wrong(f"it is {size} bytes; expected at most {MAX_BYTES}")
    return value


def _checked_message(value: object) -> object:
    if value == "":
        raise wrong("a message can't be empty")
    return fitting(value)


Message = Annotated[
    Any, AfterValidator(_checked_message), Field(description="A text is sent as it is, anything else as JSON.")
]
GroupId = Annotated[
    Text | None,
    Field(
        pattern=r"^[!-~]{1,128}$",
        description="Message group; of a FIFO target each task is a group of its own if it is left out.",
    ),
]

"""Field types for the payloads of the built-in actions. Imports pydantic, so only payload types import it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Discriminator, Field, Strict, Tag
from pydantic.alias_generators import to_camel
from pydantic.dataclasses import dataclass
from pydantic_core import PydanticCustomError

from dynatick.actions.plain_value import MAX_BYTES, to_json
from dynatick.actions.secret import MANAGED_NAME, SSM_NAME
from dynatick.domain import attributes as attr
from dynatick.domain.completion import LONGEST, CompleteLater
from dynatick.errors import InvalidInput, PermanentError, shown

CONFIG = ConfigDict(extra="forbid", alias_generator=to_camel)
"""The configuration of each payload type: names in camelCase as in the table; unknown names are refused."""

Text = Annotated[str, Strict()]

_SECONDS = {"ge": 1, "le": int(LONGEST.total_seconds())}
CompleteWithin = Annotated[
    Annotated[int, Strict()] | None,
    Field(**_SECONDS, description="Seconds to wait for a completion, by the token that the target gets."),
]
HeartbeatSeconds = Annotated[
    Annotated[int, Strict()] | None,
    Field(**_SECONDS, description="Seconds to wait for each heartbeat."),
]


def handed_over(within: int | None, heartbeat: int | None) -> CompleteLater | None:
    """What an action returns that its target is to complete; None: nothing is waited for. Raises PermanentError."""
    if within is None and heartbeat is None:
        return None
    if within is None or (heartbeat is not None and heartbeat > within):
        expected = "expected at most completeWithinSeconds, which must be there"
        raise PermanentError(str(InvalidInput("payload.heartbeatSeconds", heartbeat, expected)))
    return CompleteLater(timedelta(seconds=within), None if heartbeat is None else timedelta(seconds=heartbeat))


def timeout_of(payload: Mapping[str, object], default: float, longest: float) -> int:
    """The whole seconds of a payload's ``timeoutSeconds``. Accepts any payload: an invalid one is refused at once, and
    has 0."""
    try:
        seconds = math.ceil(payload.get(attr.TIMEOUT_SECONDS, default))  # type: ignore[call-overload]
    except (TypeError, ValueError, ArithmeticError):
        return 0
    return int(min(max(seconds, 0), longest))


def invalid(problem: str, *, field: str | None = None) -> PydanticCustomError:
    """The error for a validator to raise. ``field``: the part of the value that is wrong."""
    context: dict[str, Any] = {"problem": problem} | ({} if field is None else {"field": field})
    return PydanticCustomError("dynatick", "{problem}", context)


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
    key: Annotated[Text | None, Field(description="Which value to take from a secret that is JSON.")] = None

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
    """A text that ends with a secret."""

    secret: Annotated[Secret, Field(description="The secret.")]
    prefix: Annotated[Text, Field(description='The text before it, such as "Bearer ".')] = ""


def form_of(value: object) -> str:
    return "<secret>" if isinstance(value, Mapping) else "<text>"


def arn(service: str, resource: str) -> Any:
    """A field with the pattern of a target's ARN."""
    return Field(pattern=rf"^arn:aws[a-z-]*:{service}:[a-z0-9-]+:[0-9]{{12}}:{resource}$")


MAX_ATTRIBUTES = 5
"""The user's own message attributes. With the task's five, SQS's limit of ten is reached."""

_ATTRIBUTE_NAME = re.compile(r"(?!(?i:aws\.|amazon\.|dynatick|\.))(?!.*\.\.)[A-Za-z0-9_.-]{1,256}(?<!\.)", re.ASCII)


def _checked_attributes(value: object) -> object:
    if not isinstance(value, Mapping) or len(value) > MAX_ATTRIBUTES:
        raise invalid(f"expected a map of at most {MAX_ATTRIBUTES} attributes")
    for name, one in value.items():
        if not isinstance(name, str) or _ATTRIBUTE_NAME.fullmatch(name) is None:
            raise invalid(f"{shown(name)} is not the name of an attribute; names that begin with dynatick are reserved")
        if isinstance(one, bool) or not isinstance(one, (str, int, float)) or one == "":
            raise invalid(f"the value of {shown(name)} is not accepted; expected text that is not empty, or a number")
    return value


Attributes = Annotated[
    dict[Text, str | int | float],
    BeforeValidator(_checked_attributes),
    Field(max_length=MAX_ATTRIBUTES, description="Message attributes for filters, beside those that Dynatick adds."),
]


def fits_message(value: object) -> object:
    """Refuses a message, or a target's input, that is larger than the services accept. Raises the error of ``invalid``.

    The size with the attributes that Dynatick adds is checked when the message is sent.
    """
    try:
        size = len((value if isinstance(value, str) else to_json(value)).encode())
    except UnicodeEncodeError:
        raise invalid("expected text that UTF-8 can hold") from None
    except ValueError as error:
        raise invalid(str(error)) from None
    if size > MAX_BYTES:
        raise invalid(f"it is {size} bytes; expected at most {MAX_BYTES}")
    return value


def _checked_message(value: object) -> object:
    if value == "":
        raise invalid("a message can't be empty")
    return fits_message(value)


Message = Annotated[
    Any, AfterValidator(_checked_message), Field(description="A text is sent as it is, anything else as JSON.")
]
GroupId = Annotated[
    Text | None,
    Field(
        pattern=r"^[!-~]{1,128}$",
        description="Message group. Without it, each task has its own group at a FIFO target.",
    ),
]

"""The payload of the action ``webhook``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, model_validator
from pydantic.dataclasses import dataclass

from dynatick.actions.payload_field import (
    CONFIG,
    CompleteWithin,
    HeartbeatSeconds,
    Secret,
    SecretText,
    Text,
    form_of,
    invalid,
    timeout_of,
)
from dynatick.actions.webhook_url import check_url
from dynatick.errors import PermanentError, shown

DEFAULT_TIMEOUT_SECONDS = 10.0
MAX_TIMEOUT_SECONDS = 60.0
MAX_HEADERS = 32
MAX_HEADER_CHARACTERS = 8192
"""The limit for the names and values of ``payload.headers`` together."""

NOT_GIVEN: Any = object()
BODILESS = ("GET",)
EXPECTED_VALUE = "expected text in printable ASCII without spaces at its ends"
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+", re.ASCII)
_VALUE = re.compile(r"(?:[!-~](?:[ \t!-~]*[!-~])?)?", re.ASCII)
# These control the transport of the request. A second value would allow request smuggling.
_TRANSPORT_HEADERS = frozenset(
    {
        "connection", "content-encoding", "content-length", "expect", "host", "keep-alive", "te",
        "trailer", "transfer-encoding", "upgrade",
    }
)  # fmt: skip


def fits_header(text: str) -> bool:
    """Whether the text can be a header's value."""
    return _VALUE.fullmatch(text) is not None


def too_many(headers: Mapping[str, str]) -> bool:
    """Whether names and values together exceed ``MAX_HEADER_CHARACTERS``."""
    return sum(len(name) + len(text) for name, text in headers.items()) > MAX_HEADER_CHARACTERS


def _checked_url(url: str) -> str:
    try:
        check_url(url)
    except PermanentError as error:
        raise invalid(str(error).removeprefix("payload.url: ")) from None
    return url


def _checked_names(headers: object) -> object:
    if not isinstance(headers, Mapping) or len(headers) > MAX_HEADERS:
        raise invalid(f"expected a map of at most {MAX_HEADERS} headers")
    seen: set[str] = set()
    for name in headers:
        lower = str(name).lower()
        if not isinstance(name, str) or _TOKEN.fullmatch(name) is None:
            raise invalid(f"{shown(name)} is not the name of a header")
        if lower in _TRANSPORT_HEADERS or lower.startswith("proxy-"):
            raise invalid(f"{shown(name)} can't be set")
        if lower in seen:
            raise invalid(f"{shown(name)} is there twice")
        seen.add(lower)
    return headers


def _checked_value(value: object) -> object:
    if not isinstance(value, str) or not fits_header(value):
        raise invalid(EXPECTED_VALUE)
    return value


def _checked_prefix(value: SecretText) -> SecretText:
    if not fits_header(f"{value.prefix}x"):  # it may end with a space, and the secret follows
        raise invalid(f"expected a prefix that can begin a header; {EXPECTED_VALUE}")
    return value


def _checked_size(headers: dict[str, str | SecretText]) -> dict[str, str | SecretText]:
    if too_many({name: text if isinstance(text, str) else text.prefix for name, text in headers.items()}):
        raise invalid(f"expected at most {MAX_HEADER_CHARACTERS} characters in all")
    return headers


def reserved_seconds(payload: Mapping[str, object]) -> int:
    """The longest that a call takes: its timeout and one second. Accepts any payload, also an invalid one."""
    return timeout_of(payload, DEFAULT_TIMEOUT_SECONDS, MAX_TIMEOUT_SECONDS) + 1


def _checked_seconds(value: object) -> object:
    number = isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)
    if not number or not 0 < value <= MAX_TIMEOUT_SECONDS:  # type: ignore[operator]
        raise invalid(f"expected a number of seconds, more than 0 and at most {MAX_TIMEOUT_SECONDS:.0f}")
    return value


def _checked_status(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int) or not 200 <= value <= 599:
        raise invalid("expected a status from 200 to 599")
    return value


Url = Annotated[
    Annotated[Text, AfterValidator(_checked_url), Tag("<text>")] | Annotated[SecretText, Tag("<secret>")],
    Discriminator(form_of),
]
HeaderValue = Annotated[
    Annotated[Text, BeforeValidator(_checked_value), Tag("<text>")]
    | Annotated[SecretText, AfterValidator(_checked_prefix), Tag("<secret>")],
    Discriminator(form_of),
]


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class WebhookPayload:
    """The request to send."""

    url: Annotated[Url, Field(description="https, public host. A secret, if the URL is one.")]
    method: Annotated[Literal["POST", "PUT", "PATCH", "DELETE", "GET"], Field(description="A GET has no body.")] = (
        "POST"
    )
    headers: Annotated[
        dict[Text, HeaderValue],
        BeforeValidator(_checked_names),
        AfterValidator(_checked_size),
        Field(max_length=MAX_HEADERS, description="Headers beside those that Dynatick adds; a value may be a secret."),
    ] = Field(default_factory=dict)
    data: Annotated[Any, Field(description="Sent as JSON; `{}` by default. A GET sends none.")] = Field(
        default_factory=lambda: NOT_GIVEN
    )
    body: Annotated[
        Text | None, Field(description="Sent as UTF-8 text instead of `data`. Set its Content-Type in `headers`.")
    ] = None
    timeout_seconds: Annotated[
        float,
        BeforeValidator(_checked_seconds),
        Field(gt=0, le=MAX_TIMEOUT_SECONDS, description="For the whole request."),
    ] = DEFAULT_TIMEOUT_SECONDS
    expected_statuses: Annotated[
        list[Annotated[int, BeforeValidator(_checked_status), Field(ge=200, le=599)]] | None,
        Field(min_length=1, max_length=20, description="Statuses that mean success; every 2xx by default."),
    ] = None
    signing_secret: Annotated[
        Secret | None, Field(description="Signs the request by Standard Webhooks: `whsec_` and base64.")
    ] = None
    complete_within_seconds: CompleteWithin = None
    heartbeat_seconds: HeartbeatSeconds = None

    @model_validator(mode="after")
    def _one_body(self) -> WebhookPayload:
        if self.body is not None and self.data is not NOT_GIVEN:
            raise invalid("expected data or body, not both", field="body")
        for name, value in (("data", self.data), ("body", self.body)):
            if self.method in BODILESS and value is not NOT_GIVEN and value is not None:
                raise invalid(f"a {self.method} sends no body; leave it out", field=name)
        return self

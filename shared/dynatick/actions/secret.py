"""Secrets by reference: a task names a parameter of SSM or a secret of Secrets Manager, and never contains one.

    {"ssm": "/dynatick/token"}
    {"secretsManager": "dynatick/shop", "key": "token"}

Each is a name or an ARN; ``key`` selects one value of a secret that is JSON. The value is fetched when the task runs,
cached for five minutes, and used only in the request. A reference is a map and never part of a text, so that a text
from elsewhere can't refer to a secret. In the settings, which are the operator's, it is a text (``SecretReference``).
"""

from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from dynatick.actions.allow_list import AllowedArns
from dynatick.errors import PermanentError, RetryableError, shown

MAX_AGE_SECONDS = 300

SSM_NAME = r"^(arn:[a-z0-9-]+:ssm:[a-z0-9-]+:[0-9]{12}:parameter/)?[A-Za-z0-9_.\-/]{1,1011}$"
MANAGED_NAME = r"^(arn:[a-z0-9-]+:secretsmanager:[a-z0-9-]+:[0-9]{12}:secret:)?[A-Za-z0-9/_+=.@\-]{1,512}$"

_SUFFIX = "-" + "A1b2C3"  # of an ARN in Secrets Manager: six random characters
_PERMANENT = frozenset({"ParameterNotFound", "ParameterVersionNotFound", "ResourceNotFoundException",
                        "ValidationException", "InvalidParameterException", "InvalidRequestException"})  # fmt: skip


_IN_SETTINGS = re.compile(
    r"(?P<ssm>ssm):(?P<parameter>/?[A-Za-z0-9_.-][A-Za-z0-9_./-]{0,1009})"
    r"|(?P<managed>secretsmanager):(?P<secret>[A-Za-z0-9/_+=.@-]{1,512})(?:#(?P<key>.+))?",
    re.ASCII,
)
EXPECTED_REFERENCE = (
    "ssm:NAME or secretsmanager:NAME, such as ssm:/reminders/smtp, "
    "or secretsmanager:NAME#KEY for one value of a secret that is JSON"
)


class SecretRef(Protocol):
    """A reference to a secret (see ``payload_field``, ``SecretReference``)."""

    @property
    def service(self) -> str:
        """ssm or secretsmanager."""

    @property
    def name(self) -> str:
        """Name or ARN."""

    @property
    def key(self) -> str | None:
        """The key of the value in a secret that is JSON; None: the secret is a text."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SecretReference:
    """A reference in the settings, to a parameter or secret of the installation's own account and region."""

    service: str  # ssm or secretsmanager
    name: str
    key: str | None = None

    @classmethod
    def parse(cls, text: object) -> SecretReference:
        """Reads a text such as ssm:/reminders/smtp. Raises ValueError, which says what is expected, without the text:
        it may be the secret itself."""
        found = _IN_SETTINGS.fullmatch(text) if isinstance(text, str) else None
        if found is None:
            raise ValueError(f"expected {EXPECTED_REFERENCE}")
        parameter = found["parameter"]
        return cls(service=found["ssm"] or found["managed"], name=parameter or found["secret"], key=found["key"])

    def arn(self, *, partition: str, region: str, account: str) -> str:
        """The ARN for IAM, with wildcards for the characters that Secrets Manager adds to a name."""
        resource = f"secret:{self.name}-??????"
        if self.service == "ssm":
            resource = f"parameter/{self.name.removeprefix('/')}"
        return f"arn:{partition}:{self.service}:{region}:{account}:{resource}"


class Provider(Protocol):
    """The part of Powertools' parameter providers that is used here."""

    def get(self, name: str, max_age: int | None = None, *, force_fetch: bool = False, **options: Any) -> Any:
        """The value, from the cache if that is at most ``max_age`` seconds old."""


class Secrets:
    """Fetches secrets and caches them. Safe for use by many threads at once."""

    def __init__(
        self,
        allowed: Iterable[str] | None = (),
        *,
        clients: Callable[[str], Any],
        max_age_seconds: int = MAX_AGE_SECONDS,
    ) -> None:
        """``allowed``: the parameter ``AllowedSecrets``, ARNs with wildcards; None: all, for references that are no
        task's. ``clients`` returns the boto3 client of a service. Raises ConfigurationError for a text that is not an
        ARN.
        """
        self._allowed = None if allowed is None else AllowedArns("AllowedSecrets", allowed)
        self._clients = clients
        self._max_age = max_age_seconds
        self._providers: dict[str, Provider] = {}
        self._lock = threading.Lock()

    def value(self, ref: SecretRef, field: str, *, fresh: bool = False) -> str:
        """The secret's text. ``field`` names the reference in error messages, which never contain the value. ``fresh``:
        not from the cache.

        Raises PermanentError if the secret is not allowed, does not exist or is not text, RetryableError if it can't be
        fetched now.
        """
        if self._allowed is not None and not _may_be_read(ref, self._allowed):
            raise PermanentError(f"{field}: the secret {shown(ref.name)} is not among AllowedSecrets")
        options: dict[str, Any] = {"decrypt": True} if ref.service == "ssm" else {}
        from aws_lambda_powertools.utilities.parameters.exceptions import GetParameterError

        try:
            found = self._provider(ref.service).get(ref.name, self._max_age, force_fetch=fresh, **options)
        except GetParameterError as error:
            raise _read_error(ref, field, error.__context__) from None
        return _text(found, ref, field)

    def _provider(self, service: str) -> Provider:
        with self._lock:
            if service not in self._providers:
                self._providers[service] = _provider_of(service, self._clients(service))
            return self._providers[service]


class UsedSecrets:
    """The secrets of one request. What it was made with is what a target refuses, whatever the cache has by then."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets
        self._used: list[tuple[SecretRef, str, str]] = []  # with the field and the value

    def value(self, ref: SecretRef, field: str) -> str:
        """See ``Secrets.value``."""
        value = self._secrets.value(ref, field)
        self._used.append((ref, field, value))
        return value

    def renew(self) -> bool:
        """Fetches them all again. Returns whether one is another by now. Raises as ``value``."""
        fresh = [self._secrets.value(ref, field, fresh=True) for ref, field, _ in self._used]
        return fresh != [value for _, _, value in self._used]


def _may_be_read(ref: SecretRef, allowed: AllowedArns) -> bool:
    if ref.name.startswith("arn:"):
        names = (ref.name,) if ref.service == "ssm" else (ref.name, ref.name + _SUFFIX)
        return any(name in allowed for name in names)
    if ref.service == "ssm":
        return allowed.has_resource("ssm", f"parameter/{ref.name.removeprefix('/')}")
    resource = f"secret:{ref.name}"
    exact = re.compile(re.escape(resource) + "-[A-Za-z0-9]{6}")
    return allowed.has_resource("secretsmanager", resource + _SUFFIX) or any(
        exact.fullmatch(arn.split(":", 5)[5]) for arn in allowed.arns
    )


def _provider_of(service: str, client: Any) -> Provider:
    # Imported with the first secret. At level DEBUG, the SDK and the HTTP client would log the secret.
    from aws_lambda_powertools.utilities.parameters import SecretsProvider, SSMProvider

    for library in ("botocore", "urllib3"):
        logging.getLogger(library).setLevel(max(logging.INFO, logging.getLogger(library).level))
    return SSMProvider(boto3_client=client) if service == "ssm" else SecretsProvider(boto3_client=client)


def _read_error(ref: SecretRef, field: str, cause: object) -> PermanentError | RetryableError:
    """The error for a secret that can't be read: the service's error code, without its message."""
    answered = getattr(cause, "response", None)
    code = answered["Error"]["Code"] if isinstance(answered, dict) else type(cause).__name__
    message = f"{field}: the secret {shown(ref.name)} can't be read ({code})"
    return PermanentError(message) if code in _PERMANENT else RetryableError(message)


def _text(found: object, ref: SecretRef, field: str) -> str:
    if ref.key is None:
        if isinstance(found, str):
            return found
        raise PermanentError(f"{field}: the secret {shown(ref.name)} is binary; expected text")
    try:
        held = json.loads(found) if isinstance(found, str) else None
    except ValueError:
        held = None  # not raised: its message would show a part of the secret
    value = held.get(ref.key) if isinstance(held, dict) else None
    if not isinstance(value, str):
        raise PermanentError(f"{field}: the secret {shown(ref.name)} has no text under {shown(ref.key)}")
    return value

"""Secrets by reference: a task names a parameter of SSM or a secret of Secrets Manager, and never holds one.

    {"ssm": "/dynatick/token"}
    {"secretsManager": "dynatick/shop", "key": "token"}

A name or an ARN; ``key`` takes one value out of a secret that is JSON. The value is fetched when the task runs, kept
for five minutes, and goes nowhere but into the request. A reference is a map and never part of a text, so that text
which comes from elsewhere can't ask for a secret.
"""

from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from dynatick.actions.targets import Allowed
from dynatick.errors import PermanentError, RetryableError, shown

MAX_AGE_SECONDS = 300

SSM_NAME = r"^(arn:[a-z0-9-]+:ssm:[a-z0-9-]+:[0-9]{12}:parameter/)?[A-Za-z0-9_.\-/]{1,1011}$"
MANAGED_NAME = r"^(arn:[a-z0-9-]+:secretsmanager:[a-z0-9-]+:[0-9]{12}:secret:)?[A-Za-z0-9/_+=.@\-]{1,512}$"

_SUFFIX = "-" + "A1b2C3"  # of an ARN in Secrets Manager: six characters that nobody chooses
_GONE = frozenset({"ParameterNotFound", "ParameterVersionNotFound", "ResourceNotFoundException", "ValidationException",
                   "InvalidParameterException", "InvalidRequestException"})  # fmt: skip


class SecretRef(Protocol):
    """Names a secret (see ``payload_fields``)."""

    @property
    def service(self) -> str:
        """ssm or secretsmanager."""

    @property
    def name(self) -> str:
        """Name or ARN."""

    @property
    def key(self) -> str | None:
        """Of a secret that is JSON: which of its values."""


class Provider(Protocol):
    """What is used of Powertools' parameter providers."""

    def get(self, name: str, max_age: int | None = None, *, force_fetch: bool = False, **options: Any) -> Any:
        """The value, from the cache while it is not older than ``max_age`` seconds."""


class Secrets:
    """Fetches what tasks refer to. May be used by many threads at once; a cached value costs no call."""

    def __init__(
        self,
        allowed: Iterable[str] = (),
        *,
        clients: Callable[[str], Any],
        max_age_seconds: int = MAX_AGE_SECONDS,
    ) -> None:
        """``allowed``: ARNs, with wildcards, of the parameter ``AllowedSecrets``. ``clients``: a boto3 client of a
        service by its name. Raises ConfigurationError for what is no ARN.
        """
        self._allowed = Allowed("AllowedSecrets", allowed)
        self._clients = clients
        self._max_age = max_age_seconds
        self._providers: dict[str, Provider] = {}
        self._lock = threading.Lock()

    def value(self, ref: SecretRef, field: str) -> str:
        """The secret. ``field`` names the place of the reference in messages, which never hold the value.

        PermanentError: it is not allowed, not there, or not text. RetryableError: it can't be had now.
        """
        return self._read(ref, field, fresh=False)

    def renew(self, refs: Iterable[tuple[SecretRef, str]]) -> bool:
        """Fetches anew what a target did not accept; whether one of them has changed meanwhile. Raises as ``value``."""
        changed = False
        for ref, field in refs:
            known = self._read(ref, field, fresh=False)
            changed |= known != self._read(ref, field, fresh=True)
        return changed

    def _read(self, ref: SecretRef, field: str, *, fresh: bool) -> str:
        if not self._may_be_read(ref):
            raise PermanentError(f"{field}: the secret {shown(ref.name)} is not among AllowedSecrets")
        options: dict[str, Any] = {"decrypt": True} if ref.service == "ssm" else {}
        from aws_lambda_powertools.utilities.parameters.exceptions import GetParameterError

        try:
            found = self._provider(ref.service).get(ref.name, self._max_age, force_fetch=fresh, **options)
        except GetParameterError as error:
            raise _refused(ref, field, error.__context__) from None
        return _text(found, ref, field)

    def _may_be_read(self, ref: SecretRef) -> bool:
        if ref.name.startswith("arn:"):
            names = (ref.name,) if ref.service == "ssm" else (ref.name, ref.name + _SUFFIX)
            return any(name in self._allowed for name in names)
        if ref.service == "ssm":
            return self._allowed.has_resource("ssm", f"parameter/{ref.name.removeprefix('/')}")
        resource = f"secret:{ref.name}"
        exact = re.compile(re.escape(resource) + "-[A-Za-z0-9]{6}")
        return self._allowed.has_resource("secretsmanager", resource + _SUFFIX) or any(
            exact.fullmatch(arn.split(":", 5)[5]) for arn in self._allowed.arns
        )

    def _provider(self, service: str) -> Provider:
        with self._lock:
            if service not in self._providers:
                self._providers[service] = _made(service, self._clients(service))
            return self._providers[service]


def _made(service: str, client: Any) -> Provider:
    # Imported with the first secret. At DEBUG, the SDK and the HTTP client log answers and URLs as they are.
    from aws_lambda_powertools.utilities.parameters import SecretsProvider, SSMProvider

    for library in ("botocore", "urllib3"):
        logging.getLogger(library).setLevel(max(logging.INFO, logging.getLogger(library).level))
    return SSMProvider(boto3_client=client) if service == "ssm" else SecretsProvider(boto3_client=client)


def _refused(ref: SecretRef, field: str, cause: object) -> PermanentError | RetryableError:
    """Without the service's own words: the code tells enough."""
    answered = getattr(cause, "response", None)
    code = answered["Error"]["Code"] if isinstance(answered, dict) else type(cause).__name__
    said = f"{field}: the secret {shown(ref.name)} can't be read ({code})"
    return PermanentError(said) if code in _GONE else RetryableError(said)


def _text(found: object, ref: SecretRef, field: str) -> str:
    if ref.key is None:
        if isinstance(found, str):
            return found
        raise PermanentError(f"{field}: the secret {shown(ref.name)} is binary; expected text")
    try:
        held = json.loads(found) if isinstance(found, str) else None
    except ValueError:
        held = None  # whose message would show a part of it
    value = held.get(ref.key) if isinstance(held, dict) else None
    if not isinstance(value, str):
        raise PermanentError(f"{field}: the secret {shown(ref.name)} has no text under {shown(ref.key)}")
    return value

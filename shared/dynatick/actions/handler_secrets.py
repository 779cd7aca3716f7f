"""Secrets for handlers: ``secret("SMTP_PASSWORD")`` returns what ``[handlers] secrets`` in dynatick.toml refers to.

Its service is called when a handler asks, in the task's own thread: a service that does not answer holds up nothing
else, and a process that needs no secret reads none.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from datetime import datetime, timedelta

from dynatick.actions.secret import SecretReference, Secrets
from dynatick.engine.ports import Clock
from dynatick.errors import ConfigurationError, PermanentError, RetryableError, shown

RETRY_DELAY = timedelta(minutes=1)
"""How long the latest value is used, after its service did not give it anew, before it is asked again."""

_logger = logging.getLogger("dynatick.actions")


class HandlerSecrets:
    """The secrets that handlers may ask for, by name. Safe for use by many threads at once."""

    def __init__(self, references: Mapping[str, SecretReference], *, secrets: Secrets, clock: Clock) -> None:
        self._references = references
        self._secrets = secrets
        self._clock = clock
        self._latest: dict[str, str] = {}
        self._ask_again_at: dict[str, datetime] = {}

    def value(self, name: str, *, fresh: bool = False) -> str:
        """See ``secret``."""
        reference = self._references.get(name)
        if reference is None:
            known = ", ".join(sorted(self._references)) or "none"
            raise ConfigurationError("secret", f"there is no {shown(name)} in [handlers] secrets, which has {known}")
        latest, now = self._latest.get(name), self._clock()
        if latest is not None and not fresh and now < self._ask_again_at.get(name, now):
            return latest
        try:
            value = self._secrets.value(reference, f"secret {name}", fresh=fresh)
        except PermanentError as error:  # of the configuration, which may be right when the task is retried
            raise RetryableError(str(error)) from None
        except RetryableError as error:
            if latest is None or fresh:
                raise
            self._ask_again_at[name] = now + RETRY_DELAY
            _logger.warning(
                "a secret can't be read anew; its latest value is used",
                extra={"action": "secret_not_renewed", "problem": str(error)},
            )
            return latest
        self._latest[name] = value
        return value


class _Current:
    """The secrets of this process; None outside of the processor."""

    secrets: HandlerSecrets | None = None


def use_secrets(secrets: HandlerSecrets | None) -> None:
    """Lets ``secret`` read these from now on; None: environment variables."""
    _Current.secrets = secrets


def secret(name: str, *, fresh: bool = False) -> str:
    """Returns the secret that ``[handlers] secrets`` in dynatick.toml has under this name.

    In the processor it is read when it is needed first, and again after five minutes, so call this in the handler, each
    time. A call takes 8 seconds at most; if the service does not answer, the latest value is returned if there is one.
    ``fresh``: reads it now, for a value that was refused because another has replaced it. Elsewhere (``dynatick dev``,
    tests) the secret is the environment variable of this name.

    Raises RetryableError if it can't be read, and ConfigurationError if there is none of this name.
    """
    if _Current.secrets is not None:
        return _Current.secrets.value(name, fresh=fresh)
    value = os.environ.get(name)
    if not value:
        raise ConfigurationError(name, "this environment variable is not set; outside AWS a secret is read from there")
    return value

"""Work that goes on elsewhere after its handler has returned, and the token by which it is completed from there."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from dynatick.domain import attributes as attr
from dynatick.domain.task import MAX_TASK_ID_BYTES, Row
from dynatick.errors import InvalidInput

LONGEST: Final = timedelta(days=365)
_SHORTEST: Final = timedelta(seconds=1)
_DIGEST_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class CompleteLater:
    """A handler returns this when its work goes on elsewhere, from where ``context.completion_token`` completes it.

    ``within``: a second to a year from now. If no completion has come by then, the attempt has failed, and is retried
    by the task's policy. ``heartbeat``: the same if none comes for so long, from now on or since the last. Both are
    noticed at the first tick after. Raises InvalidInput.
    """

    within: timedelta
    heartbeat: timedelta | None = None

    def __post_init__(self) -> None:
        _check_duration("within", self.within, LONGEST, "a year")
        if self.heartbeat is not None:
            _check_duration("heartbeat", self.heartbeat, self.within, f"within, which is {self.within}")


def _check_duration(name: str, value: object, longest: timedelta, named: str) -> None:
    if not isinstance(value, timedelta) or not _SHORTEST <= value <= longest:
        raise InvalidInput(name, str(value), f"expected a timedelta from a second to {named}")


@dataclass(frozen=True, slots=True)
class CompletionToken:
    """What a token says: the task, and a digest of the claim's token, which is never shown."""

    task_id: str
    digest: bytes

    @classmethod
    def parse(cls, text: object) -> CompletionToken:
        """Raises InvalidInput, without the text."""
        if isinstance(text, str) and len(text) <= 2 * (MAX_TASK_ID_BYTES + _DIGEST_BYTES):
            try:
                content = base64.b64decode(text.encode() + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
                if len(content) > _DIGEST_BYTES:
                    return cls(content[_DIGEST_BYTES:].decode(), content[:_DIGEST_BYTES])
            except (binascii.Error, UnicodeError):
                pass
        raise InvalidInput("token", "a text that is none", "expected what context.completion_token has said")

    def is_of(self, row: Row) -> bool:
        """Whether it was made for the claim that a row has, or had last. Takes the same time for any digest."""
        return hmac.compare_digest(self.digest, _digest(row.get(attr.LEASE), self.task_id))


def completion_token(lease: str | None, task_id: str) -> str:
    """The token of a claim: URL-safe text of up to 1,400 characters; for an id of 40, 75."""
    return base64.urlsafe_b64encode(_digest(lease, task_id) + task_id.encode()).rstrip(b"=").decode()


def _digest(lease: object, task_id: str) -> bytes:
    # The claim's token is the key: it can't be guessed, and what is made of it for one task says nothing of another's.
    return hmac.digest(str(lease).encode(), task_id.encode(), hashlib.sha256)[:_DIGEST_BYTES]

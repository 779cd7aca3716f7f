"""What a handler can do beside returning a result: hand its work over, to be completed by a token from elsewhere; have
its effects in DynamoDB written together with its outcome; insert follow-ups."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from dynatick.domain import attributes as attr
from dynatick.domain.task import MAX_TASK_ID_BYTES, Row
from dynatick.errors import InvalidInput

# -- completion --------------------------------------------------------------------------------------------------------

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
        lease = row.get(attr.LEASE)  # without one there is no claim, and a digest that anyone can make
        return isinstance(lease, str) and hmac.compare_digest(self.digest, _digest(lease, self.task_id))


def completion_token(lease: str | None, task_id: str) -> str:
    """The token of a claim: URL-safe text of up to 1,400 characters; for an id of 40, 75."""
    return base64.urlsafe_b64encode(_digest(lease, task_id) + task_id.encode()).rstrip(b"=").decode()


def _digest(lease: object, task_id: str) -> bytes:
    # The claim's token is the key: it can't be guessed, and what is made of it for one task says nothing of another's.
    return hmac.digest(str(lease).encode(), task_id.encode(), hashlib.sha256)[:_DIGEST_BYTES]


# -- commit ------------------------------------------------------------------------------------------------------------

MAX_ITEMS: Final = 99
"""A transaction has 100 parts, and one is the task's own row."""

KINDS: Final = {"Put": "Item", "Update": "Key", "Delete": "Key", "ConditionCheck": "Key"}
"""Each kind of part, and the name of what says which item it is about."""

_EXPECTED: Final = (
    'expected an entry of TransactWriteItems, such as {"Put": {"TableName": "orders", "Item": {"id": "1"}}}'
)


@dataclass(frozen=True, slots=True)
class Commit:
    """A handler returns this to write to DynamoDB in the transaction that completes its task: both or neither.

    ``items``: up to 99 entries of ``TransactWriteItems``, with plain values as for ``table.meta.client`` of a boto3
    resource. ``result``: what is recorded. If a condition of an entry does not hold, the attempt has failed with that
    reason, and is retried as after any error. Raises InvalidInput for what is no such entry.
    """

    items: Sequence[Mapping[str, object]]
    result: object = None

    def __post_init__(self) -> None:
        given: object = self.items
        if isinstance(given, str) or not isinstance(given, Sequence):
            raise InvalidInput("items", f"a {type(self.items).__name__}", "expected a list of entries")
        if len(self.items) > MAX_ITEMS:
            raise InvalidInput("items", f"{len(self.items)} entries", f"expected at most {MAX_ITEMS}")
        items: Sequence[object] = self.items
        for n, item in enumerate(items):
            if not isinstance(item, Mapping) or len(item) != 1 or (kind := next(iter(item))) not in KINDS:
                raise InvalidInput(f"items[{n}]", item, _EXPECTED)
            part = item[kind]
            if not isinstance(part, Mapping) or not isinstance(part.get("TableName"), str):
                raise InvalidInput(f"items[{n}].{kind}.TableName", part, _EXPECTED)
            if not isinstance(part.get(KINDS[kind]), Mapping):
                raise InvalidInput(f"items[{n}].{kind}.{KINDS[kind]}", part.get(KINDS[kind]), _EXPECTED)


# -- follow-ups --------------------------------------------------------------------------------------------------------

# Tasks that a handler inserts while it runs, once for all attempts, under ids made of its key.

MAX_FOLLOW_UPS: Final = 100
"""The limit for one attempt."""

MAX_RECORDED: Final = 20
"""How many of its follow-ups the row of a task names."""

_MAX_KEY_BYTES: Final = 200  # in an id; of a longer key, as in long chains of follow-ups, its hash
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}", re.ASCII)


def follow_up_id(idempotency_key: str, name: object) -> str:
    """The id of the follow-up of this name, of the run and turn that has the key. Raises InvalidInput."""
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise InvalidInput("name", name, "expected 1 to 100 letters, digits and . _ -, such as receipt")
    if len(idempotency_key.encode()) > _MAX_KEY_BYTES:
        idempotency_key = hashlib.sha256(idempotency_key.encode()).hexdigest()[:32]
    return f"{idempotency_key}:{name}"

"""Follow-ups: tasks that a handler inserts while it runs, once for all attempts, under ids made of its key."""

from __future__ import annotations

import hashlib
import re
from typing import Final

from dynatick.errors import InvalidInput

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

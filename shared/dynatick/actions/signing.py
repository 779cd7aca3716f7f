"""Signatures by Standard Webhooks: HMAC-SHA256 of id, time and body."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from datetime import datetime

from dynatick.actions.task_metadata import percent_encoded
from dynatick.errors import PermanentError

_KEY_BYTES = range(24, 65)
_WRONG_KEY = "payload.signingSecret: expected the secret to be whsec_ and the base64 of 24 to 64 bytes"


def signature(secrets: str, key: str, now: datetime, body: bytes) -> dict[str, str]:
    """The headers of Standard Webhooks. The id is the idempotency key, the same for each attempt.

    ``secrets``: one secret, or two with a space between them while a secret is being replaced. Raises PermanentError
    for a malformed secret.
    """
    # Dots separate the signed parts: an id with a dot could be read as a shorter id and another time.
    message_id, timestamp = percent_encoded(key).replace(".", "%2E"), str(int(now.timestamp()))
    signed = f"{message_id}.{timestamp}.".encode() + body
    signatures = [
        base64.b64encode(hmac.digest(_key_of(secret), signed, hashlib.sha256)).decode() for secret in secrets.split()
    ]
    if not signatures:
        raise PermanentError(_WRONG_KEY)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": timestamp,
        "webhook-signature": " ".join(f"v1,{one}" for one in signatures),
    }


def _key_of(secret: str) -> bytes:
    try:
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) not in _KEY_BYTES:
        raise PermanentError(_WRONG_KEY)
    return key

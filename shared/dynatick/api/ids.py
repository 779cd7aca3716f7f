"""Ids in a path: as they are, percent-encoded, or as ``~`` and the id in base64url, which any id can be.

API Gateway decodes a path twice before it hands it on, so an encoded ``/`` would be a separator again, what follows an
encoded ``?`` is cut off, and ``%`` would begin another character. Ids with one of these, those that begin with ``~`` or
are ``.`` or ``..``, and the reserved ones, are written in the second form.
"""

from __future__ import annotations

import base64
import binascii
import re
from urllib.parse import quote, unquote_to_bytes

from dynatick.domain import attributes as attr
from dynatick.errors import InvalidInput

_PREFIX = "~"
RESERVED = frozenset({"bulk", "cancel", "delete", "redrive", "restore", "run"})
"""Names after /v1/tasks/ that are not ids."""

_UNFIT = re.compile(r"[/?%\\\x00-\x1f\x7f]|^~|^\.{1,2}$")


def normal_path(raw: str) -> str:
    """A decoded path in the form that routes match. Raises InvalidInput for a path that the gateway has not fully
    decoded, since it would name another id than its sender meant."""
    if "%" in raw:
        raise InvalidInput("path", raw, "expected an id with % as ~ and the id in base64url, and the path in UTF-8")
    try:
        return quote(raw, safe="/")
    except UnicodeError:
        raise InvalidInput("path", raw, "expected UTF-8, percent-encoded") from None


def to_path(task_id: str) -> str:
    """An id in the form of a path."""
    if _UNFIT.search(task_id) is None and task_id not in RESERVED:
        return quote(task_id, safe="")
    return _PREFIX + base64.urlsafe_b64encode(task_id.encode()).decode().rstrip("=")


def from_path(segment: str, field: str = attr.TASK_ID) -> str:
    """The id of a segment of a normal path. Raises InvalidInput."""
    text = unquote_to_bytes(segment).decode("utf-8")
    if not text.startswith(_PREFIX):
        return text
    coded = text[len(_PREFIX) :]
    try:
        return base64.b64decode(coded + "=" * (-len(coded) % 4), altchars=b"-_", validate=True).decode("utf-8")
    except (binascii.Error, ValueError):
        raise InvalidInput(field, text, "expected ~ to be followed by the id in base64url") from None

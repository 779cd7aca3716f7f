"""Ids in a path. Any id can stand there: as it is, percent-encoded, or as ``~`` with its base64url form.

API Gateway decodes a path twice before it hands it on, so an encoded ``/`` would be a separator again, what follows an
encoded ``?`` is cut off, and ``%`` would begin another character. Ids with one of these, those that begin with ``~`` or
are ``.`` or ``..``, and those that stand for something else there, are given in the second form.
"""

from __future__ import annotations

import base64
import binascii
import re
from urllib.parse import quote, unquote_to_bytes

from dynatick.errors import InvalidInput

_MARK = "~"
RESERVED = frozenset({"bulk", "cancel", "retry"})
"""What follows /v1/tasks/ and is no id."""

_UNFIT = re.compile(r"[/?%\\\x00-\x1f\x7f]|^~|^\.{1,2}$")


def normal_path(raw: str) -> str:
    """A decoded path as routes match it. Raises InvalidInput for one that a gateway can't have decoded to its end, for
    who sent it means another id than would be read in it."""
    if "%" in raw:
        raise InvalidInput("path", raw, "expected an id with % as ~ and the id in base64url, and the path in UTF-8")
    try:
        return quote(raw, safe="/")
    except UnicodeError:
        raise InvalidInput("path", raw, "expected UTF-8, percent-encoded") from None


def to_path(task_id: str) -> str:
    """An id as it stands in a path."""
    if _UNFIT.search(task_id) is None and task_id not in RESERVED:
        return quote(task_id, safe="")
    return _MARK + base64.urlsafe_b64encode(task_id.encode()).decode().rstrip("=")


def from_path(segment: str, field: str = "taskId") -> str:
    """The id that a segment of a normal path stands for. Raises InvalidInput."""
    text = unquote_to_bytes(segment).decode("utf-8")
    if not text.startswith(_MARK):
        return text
    coded = text[len(_MARK) :]
    try:
        return base64.b64decode(coded + "=" * (-len(coded) % 4), altchars=b"-_", validate=True).decode("utf-8")
    except (binascii.Error, ValueError):
        raise InvalidInput(field, text, "expected ~ to be followed by the id in base64url") from None

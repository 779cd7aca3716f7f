"""Ids for tasks without one, derived from their attributes, so that importing a file again inserts no second task."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from dynatick.domain import attributes as attr
from dynatick.errors import InvalidInput
from dynatick.json_reader import dumps

PREFIX = "import-"


def with_id(row: Mapping[str, object], prefix: str = PREFIX) -> Mapping[str, object]:
    """The row with a ``taskId``: its own, or one derived from its attributes, independent of their order.

    Equal rows get the same id and so are one task. Raises InvalidInput for an empty row, and for a row in which
    ``taskId`` seems misspelt.
    """
    if attr.TASK_ID in row:
        return row
    for name in row:
        if name.lower().replace("_", "").replace("-", "").replace(" ", "") == "taskid":
            raise InvalidInput(name, row[name], "expected the name taskId")
    if not row:
        raise InvalidInput("line", dict(row), "expected a task: at least one attribute")
    return {attr.TASK_ID: prefix + hashlib.sha256(dumps(_sorted(row)).encode()).hexdigest()[:32], **row}


def _sorted(value: object) -> object:
    """The value, with the names in its maps sorted."""
    if isinstance(value, Mapping):
        return {name: _sorted(value[name]) for name in sorted(value)}
    return [_sorted(part) for part in value] if isinstance(value, list) else value

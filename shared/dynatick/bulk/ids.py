"""Ids for tasks that bring none: made of what the task says, so that a file that comes again makes no second task."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from dynatick.errors import InvalidInput
from dynatick.json_reader import dumps

PREFIX = "import-"


def with_id(row: Mapping[str, object], prefix: str = PREFIX) -> Mapping[str, object]:
    """The row with a ``taskId``: its own, else one derived from its attributes, whatever their order and the format.

    Rows that say the same get the same id: they are one task. Raises InvalidInput where an id seems misspelt.
    """
    if "taskId" in row:
        return row
    for name in row:
        if name.lower().replace("_", "").replace("-", "").replace(" ", "") == "taskid":
            raise InvalidInput(name, row[name], "expected the name taskId")
    if not row:
        raise InvalidInput("line", dict(row), "expected a task: at least one attribute")
    return {"taskId": prefix + hashlib.sha256(dumps(_sorted(row)).encode()).hexdigest()[:32], **row}


def _sorted(value: object) -> object:
    """The same, with the names of its maps in order."""
    if isinstance(value, Mapping):
        return {name: _sorted(value[name]) for name in sorted(value)}
    return [_sorted(part) for part in value] if isinstance(value, list) else value

"""Helpers of several modules of tests."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dynatick.domain.conditional_update import ConditionalUpdate, Written
from dynatick.domain.task import Row
from dynatick.errors import InvalidInput
from dynatick.store.memory import MemoryStore


def refusal(check: Callable[..., object], *values: object) -> tuple[str, str]:
    """The field that is refused, and what is expected of it."""
    with pytest.raises(InvalidInput) as caught:
        check(*values)
    return caught.value.field, caught.value.expected


def written(change: ConditionalUpdate | None, row: Row) -> Row:
    """A row after a change that takes effect on it."""
    assert change is not None
    store = MemoryStore()
    store.put(row)
    assert isinstance(store.write(change), Written)
    found = store.get(str(row["taskId"]))
    assert found is not None
    return found

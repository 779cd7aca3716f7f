"""The table in memory refuses what no table takes, so that no test passes by it."""

from __future__ import annotations

import pytest
from tests.builders import NOON

from dynatick.domain.conditional_update import ConditionalUpdate, Unknown
from dynatick.domain.task import Row
from dynatick.engine.ports import StoreFailure
from dynatick.errors import StoreError
from dynatick.store.memory import MemoryStore


@pytest.mark.parametrize("name", ["taskDateTime", "scheduleState"])
@pytest.mark.parametrize("value", [int(NOON.timestamp()), None, True, ["2026-12-31#12:00"], ""])
def test_the_key_of_an_index_is_text_that_is_not_empty(name: str, value: object) -> None:
    """DynamoDB: Type mismatch for Index Key taskDateTime Expected: S Actual: N. Emulators take such a row."""
    store = MemoryStore()
    row: Row = {"taskId": "a", name: value}
    for write in (store.put, store.create):
        with pytest.raises(StoreError, match=f"^{name} is the key of an index, which holds only text"):
            write(row)
    (answer,) = store.create_many([row])
    assert isinstance(answer, StoreFailure) and not answer.too_large
    store.put({"taskId": "a", "dueAt": int(NOON.timestamp())})
    result = store.write(ConditionalUpdate(task_id="a", set={name: value}))
    assert isinstance(result, Unknown) and name in result.error
    assert store.get("a") == {"taskId": "a", "dueAt": int(NOON.timestamp())}

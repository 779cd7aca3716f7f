"""The scheduler function: batches of the table's stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.unit.engine.support import World, bucket_at, raises_for, world

from dynatick.actions.testing import MemoryDeadLetters
from dynatick.domain.task import Row
from dynatick.engine.assign import Assigned
from dynatick.engine.installation_settings import SETTINGS_ID
from dynatick.engine.scheduler import Scheduler
from dynatick.store.codec import decode, encode


def scheduler(w: World) -> Scheduler:
    return Scheduler(store=w.store, dead_letters=w.dead_letters, rules=w.rules, clock=w.clock, decode=decode)


def put(w: World, *rows: Row) -> Mapping[str, Any]:
    """Puts rows into the table. Returns the stream's event for them."""
    for row in rows:
        assert w.store.create(row)
    return {"Records": [{"dynamodb": {"SequenceNumber": str(n), "NewImage": encode(r)}} for n, r in enumerate(rows)]}


def test_a_batch_gives_every_row_its_place_and_a_deleted_row_needs_none() -> None:
    w = world()
    rows = [{"taskId": f"t{n}", "taskDateTime": str(bucket_at(5))} for n in range(3)]
    assigned = scheduler(w).handle(put(w, *rows))
    assert (assigned.seen, assigned.normalised, assigned.failed) == (3, 3, [])
    assert all(w.row(f"t{n}")["status"] == "scheduled" for n in range(3))
    gone = {"Records": [{"eventID": "e", "dynamodb": {"OldImage": encode({"taskId": "gone"})}}]}
    assert scheduler(w).handle(gone) == Assigned(
        seen=0, normalised=0, moved=0, rejected=0, undelivered=0, wake_ups=[], failed=[]
    )


def test_a_record_that_fails_is_named_by_its_sequence_number() -> None:
    w = world()
    records = put(w, *({"taskId": task_id, "taskDateTime": str(bucket_at(5))} for task_id in ("ok", "bad")))
    w.rigged.before_read = raises_for("bad")
    w.rigged.throttled = lambda change: change.task_id == "bad"
    assert [key for key, _ in scheduler(w).handle(records).failed] == ["1"]


def test_a_dead_letter_queue_that_refuses_is_asked_once_a_batch() -> None:
    w = world()
    asked: list[object] = []

    def refuse(letter: Any) -> bool:
        asked.append(letter.row["taskId"])
        return True

    w.dead_letters = MemoryDeadLetters(refuse=refuse)
    malformed = [{"taskId": f"m{n}", "taskDateTime": str(bucket_at(5)), "action": 7} for n in range(5)]
    made = scheduler(w)
    records = put(w, *malformed)
    assigned = made.handle(records)
    assert (len(asked), assigned.undelivered, assigned.rejected, assigned.failed) == (1, 5, 0, [])
    assert {w.row(f"m{n}")["taskDateTime"] for n in range(5)} == {str(bucket_at(1))}, "the next tick tries again"
    made.handle(records)
    assert len(asked) == 2, "each batch tries once"


def test_the_settings_are_read_once_a_minute() -> None:
    w = world()
    made = scheduler(w)
    reads = []
    for n, seconds in enumerate((0, 50, 5, 6)):
        w.clock.forward(seconds=seconds)
        w.rigged.forget()
        made.handle(put(w, {"taskId": f"t{n}", "taskDateTime": str(bucket_at(30))}))
        reads.append(w.rigged.reads.count(SETTINGS_ID))
    assert reads == [1, 0, 0, 1]

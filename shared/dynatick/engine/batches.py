"""The built-in action of batches: it looks how the members stand, and at the end inserts the task that follows.

It counts rows, not events: whatever died meanwhile, the rows say the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import islice
from typing import Final

from dynatick.domain import attributes as attr
from dynatick.domain.batches import (
    BATCH_ACTION,
    OPEN,
    Batch,
    extracted_ids,
    standing,
    standing_of_row,
    then_id,
)
from dynatick.domain.instants import optional_instant
from dynatick.domain.packs import OF_BATCH, Pack, Span, spans_of
from dynatick.domain.task import Row, Task
from dynatick.engine.conditional_write import create
from dynatick.engine.ports import ActionContext, Actions, Store
from dynatick.engine.rules import SKEW_MARGIN
from dynatick.errors import InvalidInput, PermanentError, Reschedule

_FIRST_WAIT: Final = timedelta(seconds=1)  # until the next tick, or wake-up
_LONGEST_WAIT: Final = timedelta(minutes=10)
_AT_A_TIME: Final = 100  # spans whose rows are read together


class WithBatches:
    """The actions of an installation, and that of batches."""

    def __init__(self, actions: Actions, store: Store) -> None:
        self._actions, self._store = actions, store

    def run(self, task: Task, context: ActionContext) -> object:
        if task.action != BATCH_ACTION:
            return self._actions.run(task, context)
        try:
            return self._poll(task, context)
        except InvalidInput as error:
            raise PermanentError(str(error)) from error

    def names(self) -> Sequence[str]:
        return self._actions.names()

    def payload_schemas(self) -> Mapping[str, str]:
        return self._actions.payload_schemas()

    def timeout_seconds(self, task: Task) -> int | None:
        return None if task.action == BATCH_ACTION else self._actions.timeout_seconds(task)

    def _poll(self, task: Task, context: ActionContext) -> Mapping[str, object]:
        batch = Batch.of_payload(task.payload)
        found = Counter[str]() if batch.members is None else standings(self._store, task.task_id, batch.members)
        if batch.members is None or found[OPEN]:
            raise Reschedule(after=min(timedelta(minutes=task.turn // 5), _LONGEST_WAIT) or _FIRST_WAIT)
        if batch.then is not None and not self._has_inserted_then(task):
            self._insert_then(task, batch.then)
            context.follow_ups.append(then_id(task.task_id))
        return {attr.MEMBERS: batch.members, **found}

    def _has_inserted_then(self, task: Task) -> bool:
        """Whether an earlier run has, whose task may have expired since."""
        row = self._store.get(task.task_id)
        return row is not None and attr.FOLLOW_UPS in row

    def _insert_then(self, task: Task, then: Row) -> None:
        """Inserts what follows, unless an earlier poll has. Raises PermanentError if another task has its id."""
        parent = {} if task.traceparent is None else {attr.TRACEPARENT: task.traceparent}
        row = {**parent, **then, attr.TASK_ID: then_id(task.task_id), attr.FOLLOW_UP_OF: task.task_id}
        if create(self._store, row):
            return
        present = self._store.get(then_id(task.task_id))
        if present is not None and not _is_then(present, task, then):
            raise PermanentError(
                f"what follows was not inserted: another task has the id {then_id(task.task_id)}; delete that one, "
                "and redrive this one"
            )


def _is_then(row: Row, task: Task, then: Row) -> bool:
    """Whether the row is what follows this batch: not a task of the user's, nor what followed an earlier batch of this
    id. Clocks of hosts may differ."""
    created_at = optional_instant(row.get(attr.CREATED_AT), attr.CREATED_AT)
    if created_at is not None and task.created_at is not None and created_at < task.created_at - SKEW_MARGIN:
        return False
    if attr.FOLLOW_UP_OF in row:
        return row[attr.FOLLOW_UP_OF] == task.task_id
    # Earlier versions did not write whose it is.
    return all(row.get(name) == value for name, value in then.items() if name != attr.DELAY_SECONDS)


def standings(store: Store, batch_id: str, members: int) -> Counter[str]:
    """How many members of a batch stand how, by status; ``open``: they have not ended."""
    found = Counter[str]()
    for row, pack in packs_of(store, batch_id, members):
        found += standing(row, pack)
        if pack.extracted:
            ids = list(extracted_ids(pack))
            rows = store.get_many(ids, only=(attr.STATUS, attr.OUTCOME, *OF_BATCH))
            found.update(standing_of_row(rows.get(one), row, pack) for one in ids)
    if missing := members - sum(found.values()):
        found["deleted"] += missing
    return found


def packs_of(store: Store, batch_id: str, members: int, since: int = 0) -> Iterator[tuple[Row, Pack]]:
    """The packs of a batch with this number of members in order, with their rows, read consistently. ``since``: from
    that which has this member on."""
    spans = spans_of(members, since)
    while some := list(islice(spans, _AT_A_TIME)):
        yield from sorted(_packs(store, batch_id, some), key=lambda found: found[1].span.first)


def _packs(store: Store, batch_id: str, spans: Iterable[Span]) -> Iterator[tuple[Row, Pack]]:
    """The packs of these spans, or of their halves, where one was too large."""
    wanted = list(spans)
    while wanted:
        rows = store.get_many([span.pack_id(batch_id) for span in wanted])
        halves: list[Span] = []
        for span in wanted:
            row = rows.get(span.pack_id(batch_id))
            pack = None if row is None else Pack.of(row)
            if row is not None and pack is not None:
                yield row, pack
            elif span.members > 1:
                halves += span.halves()
        wanted = halves

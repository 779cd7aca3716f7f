"""Batches that have ended, and of which members are started anew: they look at their members again."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime

from dynatick.client.task_decisions import TaskDecisions, next_run
from dynatick.client.task_update import carry_out
from dynatick.domain import attributes as attr
from dynatick.domain.batches import BATCH_ACTION
from dynatick.domain.buckets import Bucket
from dynatick.domain.conditional_update import ConditionalUpdate
from dynatick.domain.lifecycle import redrive, state_of
from dynatick.domain.packs import Pack, check_batch_id
from dynatick.domain.row import RowView, is_terminal
from dynatick.domain.task import Row, Status
from dynatick.engine.ports import Store
from dynatick.errors import InvalidInput, TaskNotFound, TransitionRefused

ENDED = (Status.COMPLETED, Status.FAILED)
"""The states of a batch that is to look again. One that was cancelled stays so."""


def reopen_batches(store: Store, decisions: TaskDecisions, changes: Iterable[tuple[Row, ConditionalUpdate]]) -> None:
    """Starts the batches of those ``changes`` that start an ended row anew. Called before these are written: a batch
    without open members just ends again, one with some would else never count them. Raises StoreError."""
    rows = [row for row, change in changes if is_terminal(row) and attr.OUTCOME in change.remove]
    members = [(row, batch_id) for row in rows if (batch_id := _batch_id(row)) is not None]
    if not members:
        return
    batches = store.get_many({batch_id for _, batch_id in members})
    for batch_id in {one for row, one in members if _is_of(row, batches.get(one))}:
        with suppress(TransitionRefused, TaskNotFound):  # another request was first
            carry_out(store, batch_id, decisions.next_tick(again), row=batches[batch_id])


def again(row: Row, bucket: Bucket, now: datetime) -> ConditionalUpdate:
    """Starts an ended batch anew. Raises TransitionRefused for one that has not ended."""
    if not is_terminal(row) or state_of(row) not in ENDED:
        raise TransitionRefused(RowView(row).task_id, "redrive", state_of(row), ENDED, what="batch")
    return redrive(row, bucket=bucket, due_at=now, run=next_run(row))


def _batch_id(row: Row) -> str | None:
    """The batch that a pack is of, or a member with a row of its own."""
    try:
        pack = Pack.of(row)
        return check_batch_id(row.get(attr.BATCH_ID) if pack is None else pack.batch_id)
    except InvalidInput:
        return None


def _is_of(row: Row, batch: Row | None) -> bool:
    """Whether it is of this batch, and not of an earlier one with its id."""
    if batch is None or batch.get(attr.ACTION) != BATCH_ACTION:
        return False
    return row.get(attr.CREATED_AT) == batch.get(attr.CREATED_AT)

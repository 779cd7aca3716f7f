"""Makes occurrences that a tick would not make: by run-now, and by a backfill. The history finds both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from dynatick.client import task_update
from dynatick.client.insertion import InsertResult, result_of
from dynatick.domain import attributes as attr
from dynatick.domain.buckets import Bucket, Grid, minute_of
from dynatick.domain.conditional_update import ConditionalUpdate, as_read
from dynatick.domain.instants import format_instant
from dynatick.domain.occurrences import occurrence_row
from dynatick.domain.row import RowView
from dynatick.domain.schedule import Schedule
from dynatick.domain.task import Row
from dynatick.engine.conditional_write import create_many
from dynatick.engine.ports import Store, StoreFailure

RUN_NOW = "#now"
"""Ends the id of an occurrence that run-now makes."""

_MAX_NOTES = 10  # run-nows, and backfills, that a history finds


def row_at_next_tick(
    row: Row, schedule: Schedule, nominal: datetime, *, now: datetime, grid: Grid, default_action: str, extra: str = ""
) -> Row:
    """The row of an occurrence that runs at the next tick."""
    task_id = schedule.occurrence_id(nominal, extra=extra)
    bucket = Bucket(grid.tick_after(minute_of(now)), grid.shard_of(task_id))
    with_action = row if row.get(attr.ACTION) is not None else {**row, attr.ACTION: default_action}
    return occurrence_row(with_action, schedule, nominal, bucket, now=now, extra=extra)


def insert_occurrences(store: Store, rows: Iterable[Row], dry_run: bool) -> Iterator[InsertResult]:
    """Inserts the rows, with one result each. ``dry_run``: only checks which of them exist."""
    rows = list(rows)
    ids = [RowView(row).task_id for row in rows]
    answers: Iterable[bool | StoreFailure]
    if dry_run:
        existing = store.get_many(ids, only=(attr.STATUS,))
        answers = [task_id not in existing for task_id in ids]
    else:
        answers = create_many(store, rows)
    for position, (task_id, answer) in enumerate(zip(ids, answers, strict=True)):
        yield result_of(position, task_id, answer)


def note_run_now(store: Store, schedule_id: str, nominal: datetime, version: str | None) -> None:
    """Notes on the schedule that run-now makes this occurrence. Raises TaskChanged if it isn't in the ``version``."""
    _note(store, schedule_id, attr.RAN_NOW, format_instant(nominal), version)


def note_backfill(store: Store, schedule: Schedule, first: datetime, last: datetime) -> None:
    """Notes a backfill on the schedule, with its timing: the range may begin before the schedule was created, or the
    definition may have changed since."""
    entry = schedule.timing() | {attr.FROM: format_instant(first), attr.UNTIL: format_instant(last)}
    _note(store, schedule.schedule_id, attr.BACKFILLED, entry)


def _note(store: Store, schedule_id: str, name: str, entry: object, version: str | None = None) -> None:
    """Adds an entry to a list on the schedule's row: the latest _MAX_NOTES stay."""

    def decide(row: Row) -> ConditionalUpdate:
        earlier = row.get(name)
        kept = [one for one in earlier if one != entry] if isinstance(earlier, (list, tuple)) else []
        notes = {name: [*kept, entry][-_MAX_NOTES:]}
        return ConditionalUpdate(task_id=schedule_id, set=notes, conditions=as_read(row, name), returning=True)

    task_update.carry_out(store, schedule_id, task_update.only_in(version, decide))

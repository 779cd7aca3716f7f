"""The scheduler function's work: every row that came in, or was changed by hand, gets its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dynatick.domain.change import Change, Lost, Result, Written
from dynatick.domain.normalise import as_met, is_count, rederive
from dynatick.domain.schedule import RECURRING
from dynatick.domain.task import Row, Status, is_own_row
from dynatick.engine.settle import Settler
from dynatick.errors import DynatickError


@dataclass(frozen=True, slots=True)
class Arrival:
    """One record of the stream: the row as it is now, and as it was before (None: it was not there)."""

    key: str  # names the record to the stream
    new: Row | None  # None: it was deleted
    old: Row | None


@dataclass(frozen=True, slots=True)
class Assigned:
    """What became of a batch. ``failed``: the records to be sent again, with the reason."""

    seen: int
    normalised: int
    moved: int
    rejected: int
    failed: Sequence[tuple[str, str]]


def assign(arrivals: Sequence[Arrival], settler: Settler) -> Assigned:
    """Settles every row of a batch. Idempotent; no row can hold up another.

    What must be written is decided first and written in batches; then each row is settled, which reads the cursor
    after the write and so checks the move again (protocol 7). Only faults of the infrastructure are reported as failed.
    """
    latest: dict[str, _Latest] = {}
    for arrival in arrivals:
        if arrival.new is not None and not is_own_row(arrival.new.get("taskId")):
            task_id = str(arrival.new.get("taskId"))
            latest[task_id] = _after(latest.get(task_id), arrival, arrival.new, settler)
    images, failed = _write_at_once(latest, settler)
    closed: dict[int, int] = {}  # read after every image was taken, which is all that rule 5 asks
    for task_id, image in images.items():
        if latest[task_id].is_in_hand:
            continue
        try:
            if image is None or settler.make_ready(image) is not None or not settler.is_ahead(image, closed):
                settler.settle(task_id, image, run_of=latest[task_id].run_of)
        except DynatickError as error:
            failed.append((latest[task_id].key, str(error)))
    return Assigned(
        seen=len(latest),
        normalised=settler.normalised,
        moved=settler.moved,
        rejected=settler.failed,
        failed=failed,
    )


@dataclass(frozen=True, slots=True)
class _Latest:
    """What the records of one task say together."""

    key: str  # of the last record
    new: Row  # as the last record shows it
    run: int | None  # with which a new task begins; None if the records don't tell what it has replaced
    edit: Change | None  # what a change by hand asks for
    is_in_hand: bool  # an occurrence that a tick has written into a bucket of its own, which it keeps from closing

    def run_of(self, row: Row) -> int | None:
        """Of a row that has been read since: it may be another one, of which a record is still to come."""
        return self.run if row == self.new else None


def _after(before: _Latest | None, arrival: Arrival, new: Row, settler: Settler) -> _Latest:
    """With one more record. What an earlier one showed is kept: a change of the time by hand, as long as it stands, and
    the run that a plain put has replaced."""
    edit = None
    if arrival.old is not None:
        now, grid, defaults = settler.clock(), settler.in_force.grid, settler.rules.defaults
        edit = rederive(arrival.old, new, now=now, grid=grid, defaults=defaults)
    in_hand = arrival.old is None and new.get("status") == str(Status.RUNNING) and new.get("scheduleId") is not None
    if edit is None and before is not None and before.edit is not None and before.edit.when == as_met(new):
        edit = before.edit
    known = (_next_run(arrival.old), None if before is None else before.run)
    runs = [run for run in known if run is not None]
    return _Latest(arrival.key, new, max(runs, default=None), edit, in_hand)


def _write_at_once(
    latest: Mapping[str, _Latest], settler: Settler
) -> tuple[dict[str, Row | None], list[tuple[str, str]]]:
    """Carries out what the images alone decide. Returns the rows as they are then (None: to be read), and failures."""
    images: dict[str, Row | None] = {}
    failed: list[tuple[str, str]] = []
    due: list[Change] = []
    for task_id, record in latest.items():
        images[task_id] = record.new
        change = record.edit or settler.make_ready(record.new, run=record.run)
        if change is None:
            continue
        if not settler.is_rejection(change):
            due.append(change)
            continue
        try:
            settler.carry_out(record.new, change)
            images[task_id] = None
        except DynatickError as error:
            del images[task_id]
            failed.append((record.key, str(error)))
    results: Sequence[Result] = settler.store.write_many(due) if due else ()
    for change, result in zip(due, results, strict=True):
        settler.count(change, result)
        images[change.task_id] = (
            result.row if isinstance(result, Written) else result.present if isinstance(result, Lost) else None
        )
    return images, failed


def _next_run(old: Row | None) -> int | None:
    """A plain put over an existing id is a new task: its idempotency key must not be the old one's. Nor may a new
    schedule's occurrences bear the ids of the old one's. A row that nobody had looked at yet does not tell whose place
    it took; the record before this one does, if it came in the same batch."""
    if old is None:
        return 1
    number = old.get("revision" if old.get("status") == RECURRING else "run")
    return int(number) + 1 if is_count(number, 1) else None

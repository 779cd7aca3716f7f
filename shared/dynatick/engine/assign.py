"""The scheduler function's work: every row that came in, or was changed by hand, gets its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from dynatick.domain.buckets import minute_of
from dynatick.domain.conditional_update import ConditionalUpdate, Lost, Result, Written
from dynatick.domain.normalise import is_count, rederive, unchanged_inputs
from dynatick.domain.schedule import is_or_was_schedule
from dynatick.domain.task import Row, Status, is_own_row
from dynatick.engine.placement import Placer, Undelivered
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
    undelivered: int  # malformed rows that stay open, for the dead-letter queue did not take their messages
    failed: Sequence[tuple[str, str]]


def assign(arrivals: Sequence[Arrival], placer: Placer) -> Assigned:
    """Settles every row of a batch. Idempotent; no row can hold up another.

    What must be written is decided first and written in batches; then each row is settled, which reads the cursor
    after the write and so checks the move again (protocol 7). Only faults of the infrastructure are reported as failed;
    a dead-letter queue that refuses is none, or it would hold up the stream: what it refuses, a tick tries again.
    """
    latest: dict[str, _Latest] = {}
    for arrival in arrivals:
        if arrival.new is not None and not is_own_row(arrival.new.get("taskId")):
            task_id = str(arrival.new.get("taskId"))
            latest[task_id] = _after(latest.get(task_id), arrival, arrival.new, placer)
    images, rejections = _write_at_once(latest, placer)
    failed: list[tuple[str, str]] = []
    undelivered = 0
    closed: dict[int, int] = {}  # read after every image was taken, which is all that rule 5 asks
    for task_id, image in images.items():
        record, rejection = latest[task_id], rejections.get(task_id)
        if record.is_in_flight:
            continue
        try:
            ready = image is not None and rejection is None and placer.make_ready(image) is None
            if image is None or not ready or not placer.is_ahead(image, closed):
                placer.settle(task_id, image, first=rejection, revision_of=record.revision_of)
        except Undelivered:
            undelivered += 1
        except DynatickError as error:
            failed.append((record.key, str(error)))
    return Assigned(
        seen=len(latest),
        normalised=placer.normalised,
        moved=placer.moved,
        rejected=placer.failed,
        undelivered=undelivered,
        failed=failed,
    )


@dataclass(frozen=True, slots=True)
class _Latest:
    """What the records of one task say together."""

    key: str  # of the last record
    new: Row  # as the last record shows it
    revision: int  # with which a new schedule begins
    edit: ConditionalUpdate | None  # what a change by hand asks for
    is_in_flight: bool  # an occurrence that a tick has written into a bucket of its own, which it keeps from closing

    def revision_of(self, row: Row) -> int:
        """Of a row that has been read since: it may be another one, of which a record is still to come."""
        return self.revision if row == self.new else 1


def _after(before: _Latest | None, arrival: Arrival, new: Row, placer: Placer) -> _Latest:
    """With one more record. What an earlier one showed is kept: a change of the time by hand, as long as it stands, and
    the revision of a schedule that a plain put has replaced."""
    edit, now = None, placer.clock()
    if arrival.old is not None:
        grid, defaults = placer.settings.grid, placer.rules.defaults
        edit = rederive(arrival.old, new, now=now, grid=grid, defaults=defaults)
    in_flight = arrival.old is None and new.get("status") == str(Status.RUNNING) and new.get("scheduleId") is not None
    if (
        edit is None
        and before is not None
        and before.edit is not None
        and before.edit.conditions == unchanged_inputs(new)
    ):
        edit = before.edit
    revision = max(_next_revision(arrival.old, now), 1 if before is None else before.revision)
    return _Latest(arrival.key, new, revision, edit, in_flight)


def _write_at_once(
    latest: Mapping[str, _Latest], placer: Placer
) -> tuple[dict[str, Row | None], Mapping[str, ConditionalUpdate]]:
    """Carries out what the images alone decide. Returns the rows as they are then (None: to be read), and rejections,
    which are left: they need a dead letter first."""
    images: dict[str, Row | None] = {}
    rejections: dict[str, ConditionalUpdate] = {}
    due: list[ConditionalUpdate] = []
    for task_id, record in latest.items():
        images[task_id] = record.new
        change = record.edit or placer.make_ready(record.new, revision=record.revision)
        if change is None:
            continue
        if placer.is_rejection(change):
            rejections[task_id] = change
        else:
            due.append(change)
    results: Sequence[Result] = placer.store.write_many(due) if due else ()
    for change, result in zip(due, results, strict=True):
        placer.count(change, result)
        images[change.task_id] = (
            result.row if isinstance(result, Written) else result.present if isinstance(result, Lost) else None
        )
    return images, rejections


def _next_revision(old: Row | None, now: datetime) -> int:
    """With which a schedule begins that took the place of ``old``: its occurrences must not bear the ids of an earlier
    one's. A task does not tell whose place it had: then it is the minute, which is ahead of what was counted."""
    if old is None or old.get("status") is None:
        return 1
    if not is_or_was_schedule(old):
        return minute_of(now)
    revision = old.get("revision")
    return int(revision) + 1 if is_count(revision, 1) else 1

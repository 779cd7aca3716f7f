"""Gives every row of a stream batch, inserted or changed by hand, its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from dynatick.domain import attributes as attr
from dynatick.domain.buckets import minute_of
from dynatick.domain.conditional_update import ConditionalUpdate, Lost, Result, Written
from dynatick.domain.normalise import rederive, unchanged_inputs
from dynatick.domain.numbers import is_count
from dynatick.domain.row import RowView
from dynatick.domain.schedule import is_or_was_schedule
from dynatick.domain.task import Row, is_own_row
from dynatick.engine.placement import Placer, Undelivered
from dynatick.engine.readiness import is_rejection
from dynatick.errors import DynatickError


@dataclass(frozen=True, slots=True)
class Arrival:
    """One record of the stream: the row after and before a change (None: there was none)."""

    key: str  # the record's sequence number
    new: Row | None  # None: it was deleted
    old: Row | None


@dataclass(frozen=True, slots=True)
class Assigned:
    """Counts of a batch. ``failed``: the records that must be sent again, with the reasons."""

    seen: int
    normalised: int
    moved: int
    rejected: int
    undelivered: int  # malformed rows that stay open, because the dead-letter queue refused their messages
    failed: Sequence[tuple[str, str]]


def assign(arrivals: Sequence[Arrival], placer: Placer) -> Assigned:
    """Places every row of a batch. Idempotent; a row that fails doesn't keep another from its place.

    First the changes that the images ask for are written in batches. Then each row is placed, which reads the cursor
    after the write and so checks the move again (protocol 7). A record fails only if the table does: a tick repeats
    what the dead-letter queue refuses, which must not stop the stream.
    """
    latest: dict[str, _Latest] = {}
    for arrival in arrivals:
        if arrival.new is not None and not is_own_row(task_id := RowView(arrival.new).task_id):
            latest[task_id] = _after(latest.get(task_id), arrival, arrival.new, placer)
    images, rejections = _write_at_once(latest, placer)
    failed: list[tuple[str, str]] = []
    undelivered = 0
    closed: dict[int, int] = {}  # read after every image was taken, as rule 5 wants
    for task_id, image in images.items():
        record, rejection = latest[task_id], rejections.get(task_id)
        if record.is_in_flight:
            continue
        try:
            ready = image is not None and rejection is None and placer.make_ready(image) is None
            if image is None or not ready or not placer.is_ahead(image, closed):
                placer.place(task_id, image, first=rejection, revision_of=record.revision_of)
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
    """The records of one task, taken together."""

    key: str  # of the last record
    new: Row  # as the last record shows it
    revision: int  # with which a new schedule begins
    edit: ConditionalUpdate | None  # for a time that was changed by hand
    is_in_flight: bool  # an occurrence that a pass has just made, and holds its bucket back for

    def revision_of(self, row: Row) -> int:
        """With which revision a row begins that was read later: it may be another one, with a record still to come."""
        return self.revision if row == self.new else 1


def _after(before: _Latest | None, arrival: Arrival, new: Row, placer: Placer) -> _Latest:
    """With one more record. Kept of earlier ones: a time changed by hand, unless it was changed again, and the revision
    of a schedule that a put has replaced."""
    edit, now = None, placer.clock()
    if arrival.old is not None:
        grid, defaults = placer.settings.grid, placer.rules.defaults
        edit = rederive(arrival.old, new, now=now, grid=grid, defaults=defaults)
    in_flight = arrival.old is None and RowView(new).is_running and RowView(new).schedule_id is not None
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
    """Writes the changes that the images ask for. Returns the rows after that (None: not known), and the rejections,
    which are not written yet: each needs its dead letter first."""
    images: dict[str, Row | None] = {}
    rejections: dict[str, ConditionalUpdate] = {}
    due: list[ConditionalUpdate] = []
    for task_id, record in latest.items():
        images[task_id] = record.new
        change = record.edit or placer.make_ready(record.new, revision=record.revision)
        if change is None:
            continue
        if is_rejection(change):
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
    """The revision of a schedule that replaces ``old``: its occurrences must not get ids that earlier ones had. If it
    replaces a task, an earlier schedule is not known: then the minute is higher than any count."""
    if old is None or RowView(old).is_unscheduled:
        return 1
    if not is_or_was_schedule(old):
        return minute_of(now)
    revision = old.get(attr.REVISION)
    return int(revision) + 1 if is_count(revision, 1) else 1

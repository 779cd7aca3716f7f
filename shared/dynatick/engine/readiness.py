"""What a row needs before it is a task in a bucket: to be normalised, repaired or marked failed. Pure."""

from __future__ import annotations

from datetime import datetime

from dynatick.domain import attributes as attr
from dynatick.domain.conditional_update import ConditionalUpdate, as_read
from dynatick.domain.lifecycle import ended_by_hand
from dynatick.domain.normalise import (
    needs_normalising,
    normalise,
    place,
    premature_attributes,
    reject,
    rejection_reason,
)
from dynatick.domain.recurrence import ready, refused
from dynatick.domain.row import RowView, is_terminal
from dynatick.domain.schedule import is_schedule
from dynatick.domain.task import Row, Status, is_own_row
from dynatick.engine.installation_settings import InstallationSettings
from dynatick.engine.rules import Rules


def make_ready(
    row: Row, rules: Rules, settings: InstallationSettings, *, now: datetime, revision: int = 1
) -> ConditionalUpdate | None:
    """The change that the row needs first; None: it needs none. ``revision``: with which a new schedule begins."""
    view = RowView(row)
    if is_terminal(row) or is_own_row(view.task_id):
        return None
    grid, defaults = settings.grid, rules.defaults
    if (reason := rejection_reason(row)) is not None:
        fail = refused if is_schedule(row) else reject
        return fail(row, reason, now=now, grid=grid, retention_days=rules.retention_days)
    if is_schedule(row):
        return ready(row, now=now, grid=grid, defaults=defaults, revision=revision)
    if needs_normalising(row):
        return normalise(row, now=now, grid=grid, defaults=defaults)
    repaired = ended_by_hand(row, now=now, retention_days=rules.retention_days)
    if repaired is not None:
        return repaired
    if not view.is_live:
        return normalise(row, now=now, grid=grid, defaults=defaults)
    if view.is_scheduled and view.bucket is None:
        return place(row, now=now, grid=grid, defaults=defaults)
    if stray := premature_attributes(row):
        return ConditionalUpdate(
            task_id=view.task_id, remove=stray, conditions=as_read(row, attr.OUTCOME, attr.STATUS), returning=True
        )
    return None


def is_rejection(change: ConditionalUpdate) -> bool:
    """Whether a change marks a row as failed."""
    return change.set.get(attr.OUTCOME) == str(Status.FAILED)

"""What a deployment declares, compared with the schedules that are there: pure decisions, and what they need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

from dynatick.client.schedule_views import ScheduleView, schedule_rows
from dynatick.domain import attributes as attr
from dynatick.domain.row import is_terminal
from dynatick.domain.schedule import ScheduleState, is_or_was_schedule
from dynatick.domain.task import Row
from dynatick.domain.view import Json, View
from dynatick.engine.ports import Store
from dynatick.errors import differences_text, shown


class SyncResult(StrEnum):
    """What is done with one schedule."""

    CREATE = "create"
    CHANGE = "change"
    REMOVE = "remove"
    KEEP = "keep"  # no longer declared, and not to be removed
    UNCHANGED = "unchanged"
    OVER = "over"  # declared, with no occurrence from now on: what is there stays as it is, and nothing is created
    CONFLICT = "conflict"  # the id is not the owner's: the row stays as it is
    NONE = "none"  # neither declared nor there, or no longer the owner's


DRIFT = frozenset({SyncResult.CREATE, SyncResult.CHANGE, SyncResult.REMOVE, SyncResult.KEEP, SyncResult.CONFLICT})
"""What differs from the declarations."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleChange(View):
    """What is done to one schedule, so that it is as its owner declares it."""

    schedule_id: Annotated[str, Json(name=attr.TASK_ID)]
    result: SyncResult
    reason: Annotated[str, Json(optional=True), "In which way it differs, or whose it is."] = ""
    differences: Annotated[Mapping[str, tuple[object, object]], Json(hidden=True)] = field(
        default_factory=dict, repr=False
    )


def compare(
    schedule_id: str,
    declared: Row | None,
    given: Row,
    present: Row | None,
    *,
    owner: str,
    prune: bool,
    over: str | None = None,
) -> ScheduleChange:
    """What is to be done about one id. ``declared``: the row that was composed of what was ``given``; None: the owner
    does not declare it. ``present``: what is there. ``over``: why what is declared has no occurrence from now on."""

    def change(result: SyncResult, reason: str = "", **more: Mapping[str, tuple[object, object]]) -> ScheduleChange:
        return ScheduleChange(schedule_id=schedule_id, result=result, reason=reason, **more)

    view = None if present is None else ScheduleView.from_row(present)
    is_own = present is not None and view is not None and is_or_was_schedule(present) and view.owner == owner
    if declared is None:
        if not is_own:
            return change(SyncResult.NONE)
        return change(SyncResult.REMOVE if prune else SyncResult.KEEP, "it is no longer declared")
    if present is None or view is None:
        return change(SyncResult.CREATE) if over is None else change(SyncResult.OVER, over)
    if not is_own:
        return change(SyncResult.CONFLICT, _whose(present, view.owner))
    differences = view.differences(declared, given)
    if "subject" in differences:
        said = differences_text({"subject": differences["subject"]})
        return change(SyncResult.CONFLICT, f"{said}, which can't be changed: choose another id, or delete it")
    if not differences and view.state != ScheduleState.FAILED:
        return change(SyncResult.UNCHANGED)
    if over is not None and is_terminal(present):
        return change(SyncResult.OVER, over)
    return change(SyncResult.CHANGE, differences_text(differences) or str(view.error), differences=differences)


def _whose(present: Row, owner: str | None) -> str:
    if not is_or_was_schedule(present):
        return "a task has this id; choose another"
    if owner is None:
        return "it was inserted by hand, and no deployment declares it; choose another id, or delete it"
    return f"it belongs to {shown(owner)}; choose another id, or let that deployment remove it"


def own_rows(store: Store, owner: str) -> Iterator[Row]:
    """The schedules that an owner has declared, in whatever state. Reads the rows of all schedules."""
    rows = schedule_rows(store, map(str, ScheduleState))
    return (row for row in rows if row.get(attr.SCHEDULE_OWNER) == owner)

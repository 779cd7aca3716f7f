"""Occurrences that were missed, or that did not complete in time: which they are, and why."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from dynatick.domain.awaited_occurrence import MAX_AWAITED, AwaitedOccurrence
from dynatick.domain.buckets import Grid
from dynatick.domain.occurrence_plan import Plan, pause_over
from dynatick.domain.pause import Pause
from dynatick.domain.schedule import Missed, MissedFor, Schedule
from dynatick.domain.task import Row

_MISSED = {
    MissedFor.OUTAGE: "missed: no tick ran",
    MissedFor.TOO_OLD: "missed: too old to be made up",
    MissedFor.ALL_PAUSED: "missed: all was paused",  # the pause follows
    MissedFor.OVERLAP: "missed: the occurrence before it had not ended",
    MissedFor.PAUSED: "missed: its schedule was paused",
    MissedFor.ID_TAKEN: "missed: another task has its id",
    MissedFor.TOO_LARGE: "missed: its row would be too large",
}
_BUFFERED = "waits for the occurrence before it to end"
_MADE_LATE = "begins only now: no tick ran in time"
_MADE_AFTER_PAUSE = "begins only now: all was paused"  # the pause follows
_TOO_MANY = f"not awaited: {MAX_AWAITED} occurrences before it have not completed"


@dataclass(frozen=True, kw_only=True, slots=True)
class Overdue:
    """Consecutive occurrences of a schedule that were missed, or one that did not complete in time."""

    schedule_id: str
    first: datetime  # nominal instants
    last: datetime
    occurrences: int  # how many
    reason: str


def settle(
    schedule: Schedule,
    plan: Plan,
    tasks: Mapping[datetime, Row],
    *,
    made: Collection[datetime],
    now: datetime,
    grid: Grid,
    pauses: Sequence[Pause] = (),
) -> tuple[Sequence[AwaitedOccurrence], Sequence[Overdue]]:
    """The occurrences that are awaited once ``plan`` is carried out, and those that are overdue.

    ``tasks``: the rows of the occurrences that existed before, by nominal instant. ``made``: those that this tick has
    made. What ``overlap`` leaves out is overdue only where occurrences are expected to complete: else it was asked for.
    ``pauses``: the latest of everything.
    """

    def naming(pause: Pause | None, reason: str) -> str:
        return reason if pause is None else f"{reason} {pause}"

    awaited: list[AwaitedOccurrence] = []
    overdue = [
        _missed(schedule, missed, naming(_pause_of(schedule, missed, pauses, grid), _MISSED[missed.reason]))
        for missed in plan.missed
        if missed.reason is not MissedFor.OVERLAP or schedule.expected_within_seconds is not None
    ]
    for one in [*schedule.awaited, *_newly_awaited(schedule, plan)]:
        is_buffered = one.nominal in (plan.buffered, schedule.buffered_occurrence_at)
        otherwise = None
        if is_buffered:
            otherwise = _BUFFERED
        elif one.nominal in made:
            pause = pause_over(schedule, one.nominal, pauses, grid)
            otherwise = _MADE_LATE if pause is None else naming(pause, _MADE_AFTER_PAUSE)
        found = one.judge(tasks.get(one.nominal), now, otherwise=otherwise)
        if isinstance(found, AwaitedOccurrence) and len(awaited) < MAX_AWAITED:
            awaited.append(found)
        elif found is not None:
            reason = found if isinstance(found, str) else _TOO_MANY
            overdue.append(_overdue(schedule, one.nominal, reason))
    return awaited, overdue


def _newly_awaited(schedule: Schedule, plan: Plan) -> list[AwaitedOccurrence]:
    """Those on which the plan decides first. A buffered one has been awaited since it was buffered."""
    decided = plan.make if plan.buffered is None else [*plan.make, plan.buffered]
    return [
        AwaitedOccurrence(nominal=nominal, expected_by=expected_by)
        for nominal in decided
        if nominal != schedule.buffered_occurrence_at and (expected_by := schedule.expected_by(nominal)) is not None
    ]


def _pause_of(schedule: Schedule, missed: Missed, pauses: Sequence[Pause], grid: Grid) -> Pause | None:
    return pause_over(schedule, missed.first, pauses, grid) if missed.reason is MissedFor.ALL_PAUSED else None


def _missed(schedule: Schedule, missed: Missed, reason: str) -> Overdue:
    return Overdue(
        schedule_id=schedule.schedule_id,
        first=missed.first,
        last=missed.last,
        occurrences=missed.occurrences,
        reason=reason,
    )


def _overdue(schedule: Schedule, nominal: datetime, reason: str) -> Overdue:
    return Overdue(schedule_id=schedule.schedule_id, first=nominal, last=nominal, occurrences=1, reason=reason)

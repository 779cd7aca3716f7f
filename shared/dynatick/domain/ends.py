"""Ends of tasks, as a record of the table's stream shows them: the row before and after a change.

Only the change that ends a task is an end: later writes to its row are not, nor is its deletion.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from dynatick.domain import attributes as attr
from dynatick.domain.numbers import is_count
from dynatick.domain.packs import Pack
from dynatick.domain.row import RowView
from dynatick.domain.task import TERMINAL, Row, Status, is_own_row
from dynatick.errors import InvalidInput

MAX_TEXT_CHARACTERS: Final = 2_000
"""The limit for a text in an event, which must always fit: a row may hold anything."""

_SHOWN: Final = (
    attr.TASK_ID, attr.ACTION, attr.OUTCOME, attr.ERROR, attr.ATTEMPT, attr.RUN, attr.TASK_DATE_TIME, attr.DUE_AT,
    attr.CREATED_AT, attr.STARTED_AT, attr.FINISHED_AT, attr.SUBJECT, attr.SCHEDULE_ID, attr.BATCH_ID,
)  # fmt: skip
"""What an event shows of a row; never payload, result or lease."""


class OutcomeEvents(StrEnum):
    """Which ends become events."""

    OFF = "off"
    FAILED = "failed"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class End:
    """The end of a task. ``detail``: texts and whole numbers, by attribute."""

    outcome: Status
    detail: Mapping[str, object]


def ends_in(old: Row | None, new: Row | None, wanted: OutcomeEvents) -> Iterator[End]:
    """The ends that a change makes: at most one of the row, and those of a pack's members without rows. Raises
    nothing, whatever the rows hold."""
    if wanted is OutcomeEvents.OFF or new is None or is_own_row(RowView(new).task_id):
        return
    outcome = _outcome(new)
    is_end = outcome is not None and (
        old is None or _outcome(old) is None or any(old.get(n) != new.get(n) for n in (attr.FINISHED_AT, attr.RUN))
    )
    # A pack is no task of the user's, but where it has failed none of its members says so. Nor is a schedule one that
    # has no more occurrences: what comes of the last is not known yet.
    is_done = outcome is Status.COMPLETED and attr.SCHEDULE_STATE in new
    shows_row = outcome is Status.FAILED or not (RowView(new).is_pack or is_done)
    if is_end and outcome is not None and shows_row and _is_wanted(outcome, wanted):
        yield End(outcome, _shown(new))
    if RowView(new).is_pack and wanted is OutcomeEvents.ALL:
        yield from _ends_of_members(old, new, Status.CANCELLED if is_end and outcome is Status.CANCELLED else None)


def _is_wanted(outcome: Status, wanted: OutcomeEvents) -> bool:
    return wanted is OutcomeEvents.ALL or outcome is Status.FAILED


def _outcome(row: Row) -> Status | None:
    """None: it has not ended, or says something else."""
    value = row.get(attr.OUTCOME)
    return Status(value) if isinstance(value, str) and value in TERMINAL else None


def _shown(row: Mapping[str, object]) -> dict[str, object]:
    shown: dict[str, object] = {}
    for name in _SHOWN:
        value = row.get(name)
        if isinstance(value, str):
            shown[name] = value[:MAX_TEXT_CHARACTERS]
        elif is_count(value, 0):
            shown[name] = int(value)
    return shown


def _ends_of_members(old: Row | None, new: Row, rest: Status | None) -> Iterator[End]:
    """``rest``: how those ended that were still open."""
    try:
        before, after = None if old is None else Pack.of(old), Pack.of(new)
    except InvalidInput:
        return
    if after is None:
        return
    done, excluded = (after.done, after.excluded) if before is None else (
        after.done & ~before.done, after.excluded & ~before.excluded
    )  # fmt: skip
    open_members = set(after.open()) if rest is not None else set()
    common = {name: value for name, value in new.items() if name not in (attr.ERROR, attr.ATTEMPT)}
    for n in range(after.span.members):
        if done >> n & 1:
            outcome, attempt = Status.COMPLETED, {attr.ATTEMPT: 1}
        elif excluded >> n & 1 or n in open_members:
            outcome, attempt = Status.CANCELLED, {attr.ATTEMPT: 0}
        else:
            continue
        own = {attr.TASK_ID: after.member_id(n), attr.OUTCOME: str(outcome), attr.BATCH_ID: after.batch_id, **attempt}
        yield End(outcome, _shown({**common, **own}))

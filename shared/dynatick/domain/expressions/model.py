"""Parsed expressions: a closed union of frozen values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dynatick.domain.expressions.cron import DayRule


FIRST_YEAR = 1970
LAST_YEAR = 2199


@dataclass(frozen=True, slots=True)
class Rate:
    """``rate(5 minutes)``: repeats every ``period``, counted from the schedule's start."""

    text: str
    period: timedelta


@dataclass(frozen=True, slots=True)
class At:
    """``at(2026-12-31T12:00:00)``: once, at this wall time."""

    text: str
    local: datetime  # naive, because the schedule has the zone, not the expression


@dataclass(frozen=True, slots=True)
class Cron:
    """``cron(…)``: at each wall time that matches all fields. The numbers are sorted."""

    text: str
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: DayRule
    months: tuple[int, ...]
    years: tuple[int, ...]


Expression = Rate | At | Cron


class InvalidExpression(Exception):
    """The text is not an expression. ``index``: of the character that is wrong, if it is one."""

    def __init__(self, reason: str, index: int | None = None) -> None:
        super().__init__(reason if index is None else f"at character {index + 1}: {reason}")

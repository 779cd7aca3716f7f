"""Schedules of another scheduler, each converted to a row of ours or refused with the reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from dynatick.errors import InvalidInput

DESCRIPTION = "description"
"""The attribute in which a converted schedule keeps what was said about it; for us it is one of the user's own."""


class Origin(StrEnum):
    """Which scheduler the file is from."""

    EVENTBRIDGE_SCHEDULER = "eventbridge-scheduler"
    CRONTAB = "crontab"


@dataclass(frozen=True, kw_only=True, slots=True)
class Conversion:
    """Has ``row`` or ``error``, or only ``notes``, which say what is other than before, or left out."""

    line: int  # of the file, from 1; that on which it begins
    name: str  # of the schedule, for messages
    text: str  # the line, or the expression
    row: Mapping[str, object] | None = None
    error: InvalidInput | None = None
    notes: tuple[str, ...] = ()

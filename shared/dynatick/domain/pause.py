"""A pause of everything: while it lasts, no tick runs anything."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from dynatick.domain.instants import format_instant
from dynatick.domain.view import View


@dataclass(frozen=True, kw_only=True, slots=True)
class Pause(View):
    """A pause: no tick runs anything. Since when, by whom, and why."""

    since: datetime | None  # None: it was written by hand, without an instant
    by: str | None = None
    reason: str | None = None
    until: Annotated[datetime | None, "None: it is in force."] = None

    def covers(self, instant: datetime) -> bool:
        """Whether it was in force then."""
        return (self.since is None or self.since <= instant) and (self.until is None or instant <= self.until)

    def __str__(self) -> str:
        """``since 2026-12-31T12:00:00Z until 2026-12-31T12:10:00Z by ada: a bad deployment``."""
        since = "since an unknown time" if self.since is None else f"since {format_instant(self.since)}"
        until = "" if self.until is None else f" until {format_instant(self.until)}"
        by = "" if self.by is None else f" by {self.by}"
        return f"{since}{until}{by}" + ("" if self.reason is None else f": {self.reason}")

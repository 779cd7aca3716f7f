"""Rows as inserters put them: times in all notations, statuses set by hand, values that cannot be understood."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from tests.model.expected_task import END, FAIL, MARGIN, RUN
from tests.model.steps import ShortRepr

from dynatick.domain.buckets import Bucket, Grid, minute_of
from dynatick.domain.instants import format_instant

BUCKET, IN_SHARD, ZULU, OFFSET, DUE, DUE_EPOCH, DELAY, NO_TIME = (
    "bucket", "in a shard", "zulu", "with offset", "dueAt", "dueAt in epoch seconds", "delaySeconds", "no time",
)  # fmt: skip
NOTATIONS = (BUCKET, IN_SHARD, ZULU, OFFSET, DUE, DUE_EPOCH, DELAY, NO_TIME)
BAD_TIMES = ("noon", "2026-02-31#12:00", "2026-12-31T12:00:00", "2026-12-31#24:00")
EVERY_MINUTE = Grid()
BULK = "x" * (399 * 1024)
ARGUMENTS = {"taskDateTime": "task_date_time", "dueAt": "due_at", "delaySeconds": "delay_seconds"}
INDIA = timezone(timedelta(hours=5, minutes=30))


@dataclass(frozen=True, repr=False)
class When(ShortRepr):
    """A time as it is written, in seconds from now."""

    notation: str = BUCKET
    seconds: float = 60.0
    shard: int = 1

    def instant(self, now: datetime) -> datetime:
        """Returns the instant that the notation names; some have whole seconds only, a bucket whole minutes."""
        at = now + timedelta(seconds=self.seconds)
        match self.notation:
            case "bucket" | "in a shard":
                return Bucket(EVERY_MINUTE.tick_at_or_after(at)).instant
            case "dueAt in epoch seconds":
                return at.replace(microsecond=0)
            case "delaySeconds":
                return now + timedelta(seconds=max(0, int(self.seconds)))
            case _:
                return at.replace(microsecond=at.microsecond // 1000 * 1000)

    def attributes(self, now: datetime) -> Mapping[str, object]:
        at = self.instant(now)
        return {
            BUCKET: {"taskDateTime": str(Bucket(minute_of(at)))},
            IN_SHARD: {"taskDateTime": str(Bucket(minute_of(at), self.shard))},
            ZULU: {"taskDateTime": format_instant(at)},
            OFFSET: {"taskDateTime": at.astimezone(INDIA).isoformat()},
            DUE: {"dueAt": format_instant(at)},
            DUE_EPOCH: {"dueAt": int(at.timestamp())},
            DELAY: {"delaySeconds": max(0, int(self.seconds))},
            NO_TIME: {},
        }[self.notation]

    def arguments(self, now: datetime) -> Mapping[str, Any]:
        """Returns the client's arguments."""
        return {ARGUMENTS[name]: value for name, value in self.attributes(now).items()}

    def earliest(self, now: datetime, start: datetime) -> float:
        """When a task of this time may be executed, as seconds since ``start``; the past is no bound."""
        if self.notation == NO_TIME or self.seconds <= 0:
            return -math.inf
        skew = MARGIN if self.notation == DELAY else 0  # it counts by its reader's clock
        return (self.instant(now) - start).total_seconds() - skew

    def latest(self, now: datetime, start: datetime) -> float:
        """When it should be executed at the latest, but for the ticks; a delay counts from when it is read."""
        return math.inf if self.notation == DELAY else self.earliest(now, start)


@dataclass(frozen=True, repr=False)
class RawRow(ShortRepr):
    """A row as put-item takes it. ``status`` and ``attempt`` by hand; ``bad_time`` instead of a time.

    A row that claims to be scheduled and counted, and names no action, may fail for it: it was left no gap to fill.
    """

    when: When = When()
    status: str | None = None
    attempt: object = None
    action: bool = True
    bad_time: str | None = None
    stray: bool = False  # with attributes that only an ended task has
    bulky: bool = False  # so large that it leaves no room for what must be written into it

    @property
    def must(self) -> str:
        counted = self.status == "scheduled" and self.attempt == 0
        if self.status not in (None, "scheduled") or (counted and not self.action):
            return END
        if self.bulky:
            return END
        return RUN if self.bad_time is None else FAIL

    def earliest(self, now: datetime, start: datetime) -> float:
        """When it may be executed; a row with a status of its own making is promised nothing."""
        return self.when.earliest(now, start) if self.must == RUN else -math.inf

    def attributes(self, now: datetime) -> dict[str, object]:
        times = self.when.attributes(now) if self.bad_time is None else {"taskDateTime": self.bad_time}
        row = {**times, "status": self.status, "attempt": self.attempt, "action": "log" if self.action else None}
        if self.stray:
            row |= {"expiresAt": int(now.timestamp()) + 60, "finishedAt": format_instant(now), "lease": "of nobody"}
        if self.bulky:
            row["payload"] = {"text": BULK}
        return {name: value for name, value in row.items() if value is not None}

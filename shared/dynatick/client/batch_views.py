"""What is said of batches: when one is inserted, listed, changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from dynatick.client.views import NextPageToken, TaskView
from dynatick.domain.batches import OPEN, Batch
from dynatick.domain.instants import format_instant
from dynatick.domain.task import Status
from dynatick.domain.view import View


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchInserted(View):
    """A batch that was inserted."""

    batch_id: str
    action: str
    due_at: datetime
    last_due_at: Annotated[datetime, "When its last members are due."]
    members: Annotated[int | None, "How many it has. None: it is loaded in parts, and not sealed yet."]
    packs_written: Annotated[int, "Rows that were written for them now; the others were there already."]

    def __str__(self) -> str:
        until = "" if self.last_due_at == self.due_at else f" to {format_instant(self.last_due_at)}"
        members = "no members yet" if self.members is None else f"{self.members:,} members"
        return f"{self.batch_id}: {members}, due {format_instant(self.due_at)}{until}"


@dataclass(frozen=True, kw_only=True, slots=True)
class PackLoaded(View):
    """A part of a batch that is in."""

    batch_id: str
    number: Annotated[int, "Of the part, from 0: its first member is number 500 times that."]
    members: int
    packs_written: Annotated[int, "Rows that were written for them now; the others were there already."]


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchView(View):
    """A batch as it was when it was read."""

    batch_id: str
    status: Annotated[Status | str, "scheduled until it is due, running until all members have ended."]
    action: str
    due_at: datetime
    last_due_at: Annotated[datetime, "When its last members are due."]
    limit_key: Annotated[str | None, "What limits its members, such as customer:4711."] = None
    members: Annotated[int | None, "How many it has. None: not all are in yet."]
    counts: Annotated[
        Mapping[str, int],
        "Its members by status; open: those that have not ended. Empty: not all are in, or in a list: it is not due.",
    ]
    then: Annotated[str | None, "The id of the task that is inserted when all have ended."]
    ends_at: Annotated[datetime | None, "When it will end at its present rate; while its members run."]
    created_at: datetime | None
    finished_at: datetime | None

    @property
    def ended(self) -> Annotated[int | None, "How many of its members have ended. None: they are not counted."]:
        """How many of its members have ended; None if they are not counted."""
        is_counted = self.counts or self.members == 0
        return sum(self.counts.values()) - self.counts.get(OPEN, 0) if is_counted else None

    @property
    def failed(self) -> Annotated[int | None, "How many of them have failed."]:
        """How many of them have failed; None if they are not counted."""
        return None if self.ended is None else self.counts.get(Status.FAILED, 0)


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchPage(View):
    """A page of the list of batches, the latest first. It may be empty without being the last one."""

    batches: tuple[BatchView, ...]
    next_page_token: NextPageToken = None


@dataclass(frozen=True, kw_only=True, slots=True)
class MemberPage(View):
    """A page of the members of a batch, in order of number. It may be empty without being the last one."""

    members: tuple[TaskView, ...]
    next_page_token: NextPageToken = None


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchCancelled(View):
    """What the cancellation of a batch has found."""

    batch_id: str
    cancelled: Annotated[int, "Members that waited."]
    running: Annotated[
        int, "Members of packs that run. Those that have begun end by themselves; after some seconds, no more begin."
    ]


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchRescheduled(View):
    """What a batch with another time has found."""

    batch_id: str
    due_at: datetime
    last_due_at: Annotated[datetime, "When its last members are due."]
    rescheduled: Annotated[int, "Members that waited, and have another time now."]
    running: Annotated[int, "Members of packs that run: these go on."]


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchRedriven(View):
    """How many members of a batch were started anew."""

    batch_id: str
    redriven: Annotated[int, "Members that had failed."]


def ends_at(batch: Batch, counts: Mapping[str, int], now: datetime) -> datetime | None:
    """When a batch will end, if its members go on ending as they did since it was due."""
    waiting, members = counts.get(OPEN, 0), sum(counts.values())
    if not waiting or waiting == members or now <= batch.due_at:
        return None
    rest = (now - batch.due_at) * (waiting / (members - waiting))
    return max(now + rest, batch.last_due_at)

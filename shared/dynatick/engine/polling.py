"""Polls the buckets of a pass, oldest first, and claims what is due in them in batches (protocol 2, 3)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from dynatick.domain.buckets import Bucket
from dynatick.domain.schedule import is_listed_as_schedule
from dynatick.domain.task import is_own_row
from dynatick.engine.claiming import Claiming
from dynatick.engine.claims import Entries
from dynatick.engine.division import Outline
from dynatick.engine.execution import BATCH
from dynatick.engine.hand_out import HandOut
from dynatick.engine.page_reader import PageReader
from dynatick.engine.poll_window import Segment
from dynatick.engine.ports import Page
from dynatick.engine.report import Resume

CLAIM_DELAY = timedelta(seconds=1)  # an entry waits this long for others to share its claim


@dataclass(frozen=True, slots=True)
class _Found:
    """The open entries of a page. ``limited``: tasks whose rate limit only the shard's holder keeps."""

    schedules: list[tuple[Bucket, str]] = field(default_factory=list)
    limited: list[tuple[Bucket, str]] = field(default_factory=list)
    tasks: list[tuple[Bucket, str]] = field(default_factory=list)

    @property
    def all(self) -> list[tuple[Bucket, str]]:
        return [*self.schedules, *self.limited, *self.tasks]


class Polling:
    """Rounds of polls, in the coordinator's thread.

    ``hand_out`` None: a worker polls, which leaves schedules, and tasks with a rate limit, to the shard's holder.
    """

    def __init__(self, claiming: Claiming, hand_out: HandOut | None) -> None:
        self.claiming, self.execution, self.hand_out = claiming, claiming.execution, hand_out
        self.window, self.report, self.clock = claiming.window, claiming.report, claiming.clock
        self.reader = PageReader(claiming.execution, claiming.report.shard)
        self.limited = frozenset[str]()
        if hand_out is None or hand_out.is_possible:
            self.limited = claiming.execution.services.rules.limited_actions
        self.divided: set[int] = set()  # minutes of the buckets that this round has read ahead

    def close(self) -> None:
        self.reader.close()

    def poll_and_claim(self, segments: Iterable[Segment]) -> Resume | None:
        """One round: polls these parts of buckets in order, all pages, and claims what is due.

        If time is up first, ``report.resume`` says from where on nothing was claimed. If the order of a worker is over
        first, it returns the same.
        """
        self.claiming.minutes_with_work = set()
        self.divided = set()
        batch: list[tuple[Bucket, str]] = []
        batch_began = self.clock()
        position: Resume | None = None

        def claim_what_waits() -> None:
            """A page that is long in coming does not hold up what earlier pages had."""
            nonlocal batch
            is_old = bool(batch) and self.clock() - batch_began >= CLAIM_DELAY
            if is_old and position is not None and self.claiming.claim(batch, position):
                batch = []

        pages = self.reader.pages(segments, self._poll_began, claim_what_waits)
        for segment, page in pages:
            minute = segment.minute
            position = position or Resume(minute, segment.after)
            if page is None:
                self._cut_short(position, batch)
                return None
            found = self._open_entries(Bucket(minute, self.report.shard), page)
            if page.after is None and segment.is_whole and minute not in self.divided:
                self.window.complete_poll(minute)
            if not self.claiming.may_claim() or not self._claim_first(found, position):
                self._cut_short(position, [*batch, *found.all])
                return None
            rest = found.tasks
            while rest:
                if not batch and self._should_divide(len(rest), more=page.after is not None):
                    rest = self._divide(segment, rest, page.after, position, pages)
                batch_began = batch_began if batch else self.clock()
                taken = BATCH - len(batch)
                batch, rest = [*batch, *rest[:taken]], rest[taken:]
                if len(batch) == BATCH:
                    if not self.claiming.claim(batch, position):
                        self._cut_short(position, [*batch, *rest])
                        return None
                    position, batch = Resume(minute, batch[-1][1]), []
            if batch and self.clock() - batch_began >= CLAIM_DELAY:
                if not self.claiming.claim(batch, position):
                    self._cut_short(position, batch)
                    return None
                batch = []
            if not batch:
                last = page.after or segment.through
                position = Resume(minute, last) if last is not None else Resume(minute + 1)
            if self.hand_out is not None and self.hand_out.is_over:
                if batch and not self.claiming.claim(batch, position):
                    self._cut_short(position, batch)
                    return None
                self.execution.wait(until=lambda: not self.execution.claiming)
                return position
        if batch and position is not None and not self.claiming.claim(batch, position):
            self._cut_short(position, batch)
            return None
        self.execution.wait(until=lambda: not self.execution.claiming)
        return None

    def claim_left_behind(self, entries: Entries) -> None:
        """Claims what earlier invocations of this pass left behind: another process had claimed it, or its lease had
        just expired."""
        for start in range(0, len(entries), BATCH):
            batch = entries[start : start + BATCH]
            for bucket, _ in batch:
                self.window.add_in_flight(bucket.minute)
            position = Resume(min(bucket.minute for bucket, _ in batch))
            if not self.claiming.claim(batch, position):
                return self._cut_short(position, batch)
        return self.execution.wait(until=lambda: not self.execution.claiming)

    def _poll_began(self, minute: int, now: datetime) -> None:
        self.report.buckets += minute not in self.window.polls
        self.report.first_minute = minute if self.report.first_minute is None else self.report.first_minute
        self.window.begin_poll(minute, now)

    def _open_entries(self, bucket: Bucket, page: Page) -> _Found:
        """What is open on a page, and for this process to claim. It holds its bucket back until its claim is
        answered."""
        found = _Found()
        for entry in page.entries:
            task_id = entry.task_id
            if entry.schedule_id is not None and is_listed_as_schedule(task_id, entry.schedule_id):
                if self.hand_out is not None:
                    found.schedules.append((bucket, task_id))
            # A task can't have the id of our own rows; and one that is in flight holds its bucket back already.
            elif is_own_row(task_id) or (task_id, bucket.minute) in self.execution.ids:
                continue
            elif entry.action not in self.limited:
                found.tasks.append((bucket, task_id))
            elif self.hand_out is not None:
                found.limited.append((bucket, task_id))
        self.window.add_in_flight(bucket.minute, len(found.all))
        return found

    def _claim_first(self, found: _Found, position: Resume) -> bool:
        """Claims what no worker does. False: time is up; what is left in ``found`` was not claimed."""
        for entries, claim in (
            (found.schedules, self.claiming.make_occurrences),
            (found.limited, self.claiming.claim),
        ):
            while entries:
                if not claim(entries[:BATCH], position):
                    return False
                del entries[:BATCH]
        return True

    # -- workers ---------------------------------------------------------------------------------------------------

    def _should_divide(self, waiting: int, *, more: bool) -> bool:
        """Whether there is more than this pass can run soon, as soon as it knows or can claim something."""
        hand_out = self.hand_out
        if hand_out is None or not hand_out.is_possible:
            return False
        self.claiming.wait_for_room(until=lambda: hand_out.is_worth_reading_ahead(waiting, more=more))
        return hand_out.is_worth_reading_ahead(waiting, more=more)

    def _divide(
        self,
        segment: Segment,
        rest: list[tuple[Bucket, str]],
        after: str | None,
        position: Resume,
        pages: Iterator[tuple[Segment, Page | None]],
    ) -> list[tuple[Bucket, str]]:
        """Reads the segment ahead and hands out parts of it. What this pass keeps beyond the present page is read
        again: its ids are not held in memory.

        ``rest``: what is left to claim of the present page. Returns what of it the pass keeps. ``after``: where the
        next page begins; None: there is none.
        """
        assert self.hand_out is not None
        self.divided.add(segment.minute)  # not all of it is claimed when its last page has come
        bucket = Bucket(segment.minute, self.report.shard)
        outline = Outline()
        for _, task_id in rest:
            outline.add(task_id)
        next_page = after
        while next_page is not None and outline.count < self.hand_out.max_outlined:
            page = next(pages, (segment, None))[1]
            found = _Found() if page is None else self._open_entries(bucket, page)
            for _, task_id in found.tasks:
                outline.add(task_id)
            self.claiming.end_unclaimed(found.tasks)
            if page is None or not self._claim_first(found, position):
                self.claiming.end_unclaimed([*found.schedules, *found.limited])
                self.report.leave(position)
                break
            next_page = page.after
        parts = self.hand_out.hand_out(bucket, outline)
        kept_through = parts[0].after if parts else outline.last
        kept = [entry for entry in rest if entry[1] <= kept_through]
        self.claiming.end_unclaimed(rest[len(kept) :])
        if parts and parts[-1].through < outline.last:
            self.reader.read_next(Segment(segment.minute, parts[-1].through, outline.last))
        if after is not None and after < kept_through:
            self.reader.read_next(Segment(segment.minute, after, kept_through))
        return kept

    def _cut_short(self, position: Resume, unclaimed: Entries) -> None:
        """Ends the round for want of time."""
        self.claiming.end_unclaimed(unclaimed)
        self.report.leave(position)
        self.execution.wait(until=lambda: not self.execution.claiming)

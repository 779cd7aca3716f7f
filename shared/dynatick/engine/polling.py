"""Polls the buckets of a pass, oldest first, and claims what is due in them in batches (protocol 2, 3)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from dynatick.domain.buckets import Bucket
from dynatick.domain.schedule import is_listed_as_schedule
from dynatick.domain.task import is_own_row
from dynatick.engine.claiming import Claiming
from dynatick.engine.claims import Entries
from dynatick.engine.execution import BATCH
from dynatick.engine.page_reader import PageReader
from dynatick.engine.ports import Page
from dynatick.engine.report import Resume

CLAIM_DELAY = timedelta(seconds=1)  # an entry waits this long for others to share its claim


class Polling:
    """Rounds of polls, in the coordinator's thread."""

    def __init__(self, claiming: Claiming) -> None:
        self.claiming, self.execution = claiming, claiming.execution
        self.window, self.report, self.clock = claiming.window, claiming.report, claiming.clock
        self.reader = PageReader(claiming.execution, claiming.report.shard)

    def close(self) -> None:
        self.reader.close()

    def poll_and_claim(self, minutes: Iterable[int], resume: Resume | None) -> None:
        """One round: polls these buckets in order, all pages, and claims what is due.

        If time is up first, ``report.resume`` says from where on nothing was claimed.
        """
        self.claiming.minutes_with_work = set()
        batch: list[tuple[Bucket, str]] = []
        batch_began = self.clock()
        position = resume
        for minute, page in self.reader.pages(minutes, resume, self._poll_began):
            position = position or Resume(minute)
            if page is None:
                return self._cut_short(position, batch)
            schedules, tasks = self._open_entries(Bucket(minute, self.report.shard), page)
            is_partial = resume is not None and minute == resume.minute and resume.after is not None
            if page.after is None and not is_partial:
                self.window.complete_poll(minute)
            if not self.claiming.may_claim():
                return self._cut_short(position, [*batch, *schedules, *tasks])
            while schedules:
                if not self.claiming.make_occurrences(schedules[:BATCH], position):
                    return self._cut_short(position, [*batch, *schedules, *tasks])
                del schedules[:BATCH]
            for n, entry in enumerate(tasks):
                batch_began = batch_began if batch else self.clock()
                batch.append(entry)
                if len(batch) == BATCH:
                    if not self.claiming.claim(batch, position):
                        return self._cut_short(position, [*batch, *tasks[n + 1 :]])
                    position, batch = Resume(minute, entry[1]), []
            if batch and self.clock() - batch_began >= CLAIM_DELAY:
                if not self.claiming.claim(batch, position):
                    return self._cut_short(position, batch)
                batch = []
            if not batch:
                position = Resume(minute, page.after) if page.after is not None else Resume(minute + 1)
        if batch and position is not None and not self.claiming.claim(batch, position):
            return self._cut_short(position, batch)
        return self.execution.wait(until=lambda: not self.execution.claiming)

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

    def _open_entries(self, bucket: Bucket, page: Page) -> tuple[list[tuple[Bucket, str]], list[tuple[Bucket, str]]]:
        """The schedules and the tasks of a page. They hold their bucket back until their claim is answered."""
        schedules: list[tuple[Bucket, str]] = []
        tasks: list[tuple[Bucket, str]] = []
        for entry in page.entries:
            task_id = entry.task_id
            if entry.schedule_id is not None and is_listed_as_schedule(task_id, entry.schedule_id):
                schedules.append((bucket, task_id))
            # A task can't have the id of our own rows; and one that is in flight holds its bucket back already.
            elif not is_own_row(task_id) and (task_id, bucket.minute) not in self.execution.ids:
                tasks.append((bucket, task_id))
        self.window.add_in_flight(bucket.minute, len(schedules) + len(tasks))
        return schedules, tasks

    def _cut_short(self, position: Resume, unclaimed: Entries) -> None:
        """Ends the round for want of time."""
        self.claiming.end_unclaimed(unclaimed)
        self.report.leave(position)
        self.execution.wait(until=lambda: not self.execution.claiming)

"""Polls the buckets of a shard, oldest first, and claims what is due in batches (protocol 2, 3, 9).

The packs of a bucket come after its tasks: a batch of a million doesn't delay the tasks beside it. So a part of a
bucket that has packs is read twice.

A pass that is still behind after ten seconds reads ahead of its claims for expired leases (10), which else it would
find only after all tasks before them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial

from dynatick.domain import attributes as attr
from dynatick.domain.buckets import Bucket
from dynatick.domain.packs import may_be_pack, tasks_of
from dynatick.domain.schedule import is_listed_as_schedule
from dynatick.domain.task import is_own_row
from dynatick.engine.claiming import Claiming
from dynatick.engine.claims import Entries, LeaseExpired, judge
from dynatick.engine.invocation import BATCH, Execution
from dynatick.engine.orders import Resume
from dynatick.engine.pools import begin, executor
from dynatick.engine.ports import Page
from dynatick.engine.recovery import ExpiredLeases
from dynatick.engine.window import Segment, Window

# -- pages -------------------------------------------------------------------------------------------------------------

PAGE = 500  # entries: DynamoDB's 1 MB holds thousands, which would take too much memory as objects
LOOKAHEAD = 6  # segments whose first page is read ahead, all at once; the pages wait in memory
Pages = Iterator[tuple[Segment, Page | None]]
"""The pages of segments, in order. None: time is up, and none follows."""


@dataclass(slots=True)
class _Read:
    """One page, requested or read."""

    segment: Segment
    is_first: bool  # of its segment
    began: datetime | None = None
    page: Page | None = None
    error: Exception | None = None

    def finish(self, began: datetime, page: Page | None, error: Exception | None) -> None:
        self.began, self.page, self.error = began, page, error


class PageReader:
    """The pages of one shard's buckets. While the coordinator waits for one, it handles events."""

    def __init__(self, execution: Execution, shard: int) -> None:
        self._execution, self._shard = execution, shard
        self._ahead: deque[_Read] = deque()
        in_one_thread = execution.services.rules.in_one_thread
        self._pool = executor(LOOKAHEAD, "dynatick-poll", in_one_thread=in_one_thread)
        execution.pools.append(self)

    def pages(
        self, segments: Iterable[Segment], began: Callable[[int, datetime], None], waits: Callable[[], None]
    ) -> Pages:
        """All pages of each segment.

        ``began`` is called with the time at which the poll of a segment began, before its first page; ``waits``
        again and again while a page has not come. If one can't be read, it ends; the execution keeps the error.
        """
        coming = iter(segments)
        ahead = self._ahead
        ahead.clear()
        while True:
            while len(ahead) < LOOKAHEAD and (segment := next(coming, None)) is not None:
                ahead.append(self._ask(_Read(segment, True), segment.after))
            if not ahead:
                return
            read = ahead.popleft()
            while read.began is None:
                if not self._execution.may_begin():
                    yield read.segment, None
                    return
                self._execution.handle_events()
                waits()
            if read.is_first:
                began(read.segment.minute, read.began)
            if read.error is not None:
                self._execution.keep_fault(read.error)
            if read.page is None:
                return
            if read.page.after is not None:
                ahead.appendleft(self._ask(_Read(read.segment, False), read.page.after))
            yield read.segment, read.page

    def read_next(self, segment: Segment) -> None:
        """Lets ``pages`` read this segment next. Its poll has begun before."""
        self._ahead.appendleft(self._ask(_Read(segment, False), segment.after))

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _ask(self, read: _Read, after: str | None) -> _Read:
        self._pool.submit(self._poll, read, after)
        return read

    def _poll(self, read: _Read, after: str | None) -> None:
        """Reads a page of the index, in a thread of the pool."""
        services = self._execution.services
        began, page, error = services.clock(), None, None
        try:
            bucket = Bucket(read.segment.minute, self._shard)
            page = cut(services.store.query_bucket(bucket, after=after, limit=PAGE), read.segment.through)
        except Exception as raised:  # the coordinator raises it once everything in flight is recorded
            error = raised
        self._execution.events.put(partial(read.finish, began, page, error))


def cut(page: Page, through: str | None) -> Page:
    """The page without what comes after an id."""
    if through is None:
        return page
    is_last = page.after is None or page.after >= through
    return Page([entry for entry in page.entries if entry.task_id <= through], None if is_last else page.after)


# -- polling -----------------------------------------------------------------------------------------------------------

CLAIM_DELAY = timedelta(seconds=1)  # an entry waits this long for others to share its claim


@dataclass(frozen=True, slots=True)
class Found:
    """The open entries of a page. ``limited``: tasks whose rate limit only the shard's holder keeps. ``packs``: those
    that are left to the second reading."""

    schedules: list[tuple[Bucket, str]] = field(default_factory=list)
    limited: list[tuple[Bucket, str]] = field(default_factory=list)
    tasks: list[tuple[Bucket, str]] = field(default_factory=list)
    packs: list[str] = field(default_factory=list)

    @property
    def all(self) -> list[tuple[Bucket, str]]:
        return [*self.schedules, *self.limited, *self.tasks]


@dataclass(slots=True)
class _Batch:
    """Entries that wait for others to share their claim. ``position``: from where on nothing is claimed yet.
    ``packs_from``: where the first pack lies that is left to the second reading of its segment."""

    claiming: Claiming
    position: Resume
    packs_from: Resume | None = None
    entries: list[tuple[Bucket, str]] = field(default_factory=list)
    _tasks: int = 0
    _began: datetime = field(init=False)

    def add(self, entries: list[tuple[Bucket, str]]) -> list[tuple[Bucket, str]]:
        """Takes as many as a claim can have, and returns the others."""
        if not self.entries:
            self._began = self.claiming.clock()
        number = 0
        while number < len(entries) and not self.is_full:
            self.entries.append(entries[number])
            self._tasks += tasks_of(entries[number][1])
            number += 1
        return entries[number:]

    @property
    def is_full(self) -> bool:
        return self.claiming.is_full(len(self.entries), self._tasks)

    def advance(self, position: Resume) -> None:
        """All before this position is claimed, but for packs that are left to a second reading."""
        self.position = position if self.packs_from is None else min(position, self.packs_from)

    @property
    def has_waited(self) -> bool:
        return bool(self.entries) and self.claiming.clock() - self._began >= CLAIM_DELAY

    def claim(self) -> bool:
        """Claims them. False: time is up, and they are still here."""
        if self.entries and not self.claiming.claim(self.entries, self.position):
            return False
        self.entries, self._tasks = [], 0
        return True


class Polling:
    """Rounds of polls, in the coordinator's thread."""

    def __init__(self, claiming: Claiming) -> None:
        self.claiming, self.execution = claiming, claiming.execution
        self.window, self.report = claiming.window, claiming.report
        self.reader = PageReader(claiming.execution, claiming.report.shard)
        rules = claiming.execution.services.rules
        has_workers = rules.max_workers > 0 or not claiming.permit.is_of_holder
        self.limited = rules.limited_actions if has_workers else frozenset[str]()
        self.divided: set[int] = set()  # minutes of the buckets that this round has read ahead

    @property
    def is_interrupted(self) -> bool:
        """Whether something is to be polled before what is left of this round."""
        return False

    def keep(
        self,
        segment: Segment,
        waiting: list[tuple[Bucket, str]],
        after: str | None,
        position: Resume,
        pages: Pages,
    ) -> tuple[list[tuple[Bucket, str]], str | None]:
        """What this process claims itself of the entries that wait on a page of a segment. ``after``: where the next
        page begins; None: there is none. Returns it again; None: what follows was read ahead, and is read anew."""
        return waiting, after

    def poll_and_claim(self, segments: Iterable[Segment]) -> Resume | None:
        """One round: polls these parts of buckets in order, all pages, and claims what is due.

        If time is up first, ``report.resume`` says from where on nothing was claimed. If it is interrupted, it returns
        the same.
        """
        self.claiming.begin_round()
        self.divided = set()
        batch: _Batch | None = None
        is_interrupted = False

        def claim_what_waits() -> None:
            """A page that is long in coming does not hold up what earlier pages had."""
            if batch is not None and batch.has_waited:
                batch.claim()

        pages = self.reader.pages(segments, self._poll_began, claim_what_waits)
        for segment, page in pages:
            batch = batch or _Batch(self.claiming, Resume(segment.minute, segment.after))
            if page is None or not self._claim_page(segment, page, batch, pages):
                self._cut_short(batch.position, batch.entries)
                return None
            is_interrupted = self.is_interrupted
            if is_interrupted:
                break
        if batch is not None and not batch.claim():
            self._cut_short(batch.position, batch.entries)
            return None
        self.execution.wait(until=lambda: not self.execution.claiming)
        return batch.position if batch is not None and is_interrupted else None

    def _claim_page(self, segment: Segment, page: Page, batch: _Batch, pages: Pages) -> bool:
        """Claims what is due on a page; a few entries wait in ``batch`` for others to share their claim. False: time is
        up, and nothing that is in ``batch`` then was claimed."""
        minute = segment.minute
        self._wait_for_turns(len(page.entries), batch)
        found = self.open_entries(Bucket(minute, self.report.shard), page, of_packs=segment.of_packs)
        self._leave_packs(segment, page, found, batch)
        if page.after is None and segment.is_whole and minute not in self.divided:
            self.window.complete_poll(minute)
        if not self.claiming.may_claim() or not self.claim_first(found, batch.position):
            batch.entries += found.all
            return False
        rest, after = found.tasks, page.after
        while rest:
            if not batch.entries:
                rest, after = self.keep(segment, rest, after, batch.position, pages)
            rest = batch.add(rest)
            if batch.is_full:
                last = Resume(minute, batch.entries[-1][1])
                if not batch.claim():
                    batch.entries += rest
                    return False
                batch.advance(last)
        if batch.has_waited and not batch.claim():
            return False
        if not batch.entries:
            last_id = page.after or segment.through
            batch.advance(Resume(minute, last_id) if last_id is not None else Resume(minute + 1))
        return True

    def _wait_for_turns(self, entries: int, batch: _Batch) -> None:
        """Waits while tasks that have turns leave no room: what is passed over would be listed once more."""
        while self.claiming.is_crowded(entries) and self.claiming.may_claim() and not self.is_interrupted:
            self.execution.handle_events()
            if batch.has_waited:
                batch.claim()

    def _leave_packs(self, segment: Segment, page: Page, found: Found, batch: _Batch) -> None:
        """Leaves packs to a second reading of their segment, which follows at its end."""
        if segment.of_packs:
            batch.packs_from = None
        elif batch.packs_from is None and found.packs:
            before = found.packs[0][:-1]  # an id that comes right before it
            batch.packs_from = Resume(segment.minute, before)
            batch.advance(batch.position)
        if page.after is None and batch.packs_from is not None:
            self.divided.add(segment.minute)
            for part in reversed(self.second_reading(replace(segment, after=batch.packs_from.after, of_packs=True))):
                self.reader.read_next(part)

    def second_reading(self, segment: Segment) -> Sequence[Segment]:
        """What this process reads again of a segment."""
        return [segment]

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

    def open_entries(self, bucket: Bucket, page: Page, *, of_packs: bool) -> Found:
        """What is open on a page, and for this process to claim. It holds its bucket back until its claim is
        answered. ``of_packs``: packs are among that."""
        found = Found()
        for entry in page.entries:
            task_id = entry.task_id
            if entry.schedule_id is not None and is_listed_as_schedule(task_id, entry.schedule_id):
                if self.claiming.permit.is_of_holder:
                    found.schedules.append((bucket, task_id))
            # A task can't have the id of our own rows; and one that is in flight holds its bucket back already.
            elif is_own_row(task_id) or (task_id, bucket.minute) in self.execution.ids:
                continue
            # An entry without dueAt is still to be normalised: its claim does that.
            elif paused := self.claiming.paused_action(task_id, entry.action if entry.due_at is not None else None):
                self.claiming.withhold(bucket, task_id, paused)
            elif self.execution.services.rules.is_limited(entry.limit_key):
                self.claiming.offer(bucket, task_id, str(entry.limit_key))
            elif not of_packs and may_be_pack(task_id):
                found.packs.append(task_id)
            elif entry.action not in self.limited:
                found.tasks.append((bucket, task_id))
            elif self.claiming.permit.is_of_holder:
                found.limited.append((bucket, task_id))
        self.window.add_in_flight(bucket.minute, len(found.all))
        return found

    def claim_first(self, found: Found, position: Resume) -> bool:
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

    def _cut_short(self, position: Resume, unclaimed: Entries) -> None:
        """Ends the round for want of time."""
        self.claiming.end_unclaimed(unclaimed)
        self.report.leave(position)
        self.execution.wait(until=lambda: not self.execution.claiming)


# -- lease sweep -------------------------------------------------------------------------------------------------------

SWEEP_INTERVAL = timedelta(seconds=10)
MAX_SWEPT = 1000
"""The most rows that are read each time. Each costs half a read unit for 4 KB."""

_MIN_OF_A_PAGE = 50  # that a page counts for: it costs too if nothing in it is open
_READ = (attr.STATUS, attr.OUTCOME, attr.TASK_DATE_TIME, attr.LEASE_UNTIL, attr.ATTEMPT, attr.ACTION,
         attr.RETRY_POLICY, attr.LIMIT_KEY)  # fmt: skip


@dataclass(slots=True)
class LeaseSweep:
    """The sweep of one pass. The coordinator calls ``read_on`` again and again while it has something to claim.

    ``position``: where it goes on, in a continuation too; None: from the oldest bucket on.
    """

    execution: Execution
    window: Window
    expired: ExpiredLeases
    position: Resume | None
    _next_at: datetime = field(init=False)
    _is_reading: bool = False
    _is_complete: bool = False

    def __post_init__(self) -> None:
        self._next_at = self.execution.services.clock() + SWEEP_INTERVAL

    def read_on(self) -> None:
        """Reads on, if it is time to."""
        services = self.execution.services
        now = services.clock()
        if self._is_complete or self._is_reading or now < self._next_at:
            return
        self._next_at, self._is_reading = now + SWEEP_INTERVAL, True
        segments = list(self.window.segments(self.window.open_minutes(), self.position))
        begin(partial(self._read, segments), name="dynatick-sweep", in_one_thread=services.rules.in_one_thread)

    def _read(self, segments: Sequence[Segment]) -> None:
        """Reads as far as it may, in a thread of its own."""
        found: list[tuple[Bucket, LeaseExpired]] = []
        position, fault = self.position, None
        try:
            position = self._find(segments, found)
        except Exception as error:  # the coordinator raises it once everything in flight is recorded
            fault = error
        self.execution.events.put(partial(self._was_read, found, position, fault))

    def _find(self, segments: Sequence[Segment], found: list[tuple[Bucket, LeaseExpired]]) -> Resume | None:
        """Adds expired leases. Returns the position from which on nothing was read; None: all was."""
        swept = 0
        for segment in segments:
            after, is_last = segment.after, False
            while not is_last:
                if swept >= MAX_SWEPT:
                    return Resume(segment.minute, after)
                number, after = self._find_in_page(segment, after, found)
                swept += max(number, _MIN_OF_A_PAGE)
                is_last = after is None
        return None

    def _find_in_page(
        self, segment: Segment, after: str | None, found: list[tuple[Bucket, LeaseExpired]]
    ) -> tuple[int, str | None]:
        """Returns how many rows it has read, and where the next page begins."""
        execution, store = self.execution, self.execution.services.store
        bucket = Bucket(segment.minute, self.window.cursor.shard)
        page = cut(store.query_bucket(bucket, after=after, limit=PAGE), segment.through)
        ids = [
            entry.task_id
            for entry in page.entries
            if not is_own_row(entry.task_id) and (entry.task_id, segment.minute) not in execution.ids
        ]
        rows = store.get_many(ids, consistent=False, only=_READ)
        now = execution.services.clock()
        verdicts = (judge(row, bucket, now=now) for row in rows.values())
        found += [(bucket, verdict) for verdict in verdicts if isinstance(verdict, LeaseExpired)]
        return len(ids), page.after

    def _was_read(
        self, found: Sequence[tuple[Bucket, LeaseExpired]], position: Resume | None, fault: Exception | None
    ) -> None:
        self._is_reading, self.position, self._is_complete = False, position, position is None
        if fault is not None:
            self.execution.keep_fault(fault)
        for bucket, task in found:
            self.expired.add(bucket, task)
        if found:
            self.expired.start_recoveries()

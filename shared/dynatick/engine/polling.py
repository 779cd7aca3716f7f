"""Polls the buckets of a shard, oldest first, and claims what is due in batches (protocol 2, 3, 9).

The packs of a bucket come after its tasks: a batch of a million doesn't delay the tasks beside it. So a part of a
bucket that has packs is read twice.

A pass that is still behind after ten seconds reads ahead of its claims for expired leases (10), which else it would
find only after all tasks before them.

Tasks hold their bucket back, which the pass's window counts: an entry from its poll until its claim is answered, and a
claimed task until its attempt is recorded.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Protocol

from dynatick.domain import attributes as attr
from dynatick.domain.buckets import Bucket
from dynatick.domain.packs import may_be_pack, tasks_of
from dynatick.domain.row import Due, RowView
from dynatick.domain.schedule import is_listed_as_schedule
from dynatick.domain.task import Row, Task, is_own_row
from dynatick.engine.claims import (
    Claimed,
    Contended,
    Entries,
    Ineligible,
    LeaseExpired,
    Malformed,
    Rejected,
    Verdict,
    judge,
)
from dynatick.engine.counts import PassReport, RecordResult
from dynatick.engine.cursor import Segment, Window
from dynatick.engine.invocation import BATCH, MAX_FAILING, Budget, Execution, Place, Services
from dynatick.engine.limits import KeyTurns, LimitsLease
from dynatick.engine.orders import Order, Resume, wake_ups_of
from dynatick.engine.pools import begin, executor
from dynatick.engine.ports import Page
from dynatick.engine.record import Failure, is_woken_late
from dynatick.engine.recovery import ExpiredLeases
from dynatick.engine.schedules import Made, Recurring
from dynatick.errors import DynatickError

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
    ``packs_from``: where the first pack lies that is left to the second reading of its segment. ``left_from``: the same
    of a bucket that had none, since workers have the end of its segment: another round polls it."""

    claiming: Claiming
    position: Resume
    packs_from: Resume | None = None
    left_from: Resume | None = None
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
        self.position = min(one for one in (position, self.packs_from, self.left_from) if one is not None)

    def begin(self, minute: int) -> None:
        """What follows is of this bucket."""
        if self.packs_from is not None and self.packs_from.minute != minute:
            self.left_from, self.packs_from = self.left_from or self.packs_from, None

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
        if page.after is None and segment.is_whole and batch.packs_from is None:
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
        batch.begin(segment.minute)
        if segment.of_packs:
            batch.packs_from = None
        elif batch.packs_from is None and found.packs:
            before = found.packs[0][:-1]  # an id that comes right before it
            batch.packs_from = Resume(segment.minute, before)
            batch.advance(batch.position)
        if page.after is None and batch.packs_from is not None:
            again = replace(segment, after=batch.packs_from.after, of_packs=True, is_rest=segment.is_whole)
            for part in reversed(self.second_reading(again)):
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


# -- claiming ----------------------------------------------------------------------------------------------------------

MAX_CLAIMS = 2  # at once
MAX_RATE_LIMITED = 500  # tasks that wait for a rate limit, beside those that are in flight otherwise: they take memory


_Occurrences = tuple[Sequence[Made], Iterable[Bucket], Exception | None]
"""Those of some schedules, the buckets of the schedules' next occurrences, and why these may be closed."""


class Permit(Protocol):
    """What a process may claim by: the shard lease of a pass, or the order of a worker."""

    @property
    def is_of_holder(self) -> bool:
        """Whether it holds the shard. The holder alone takes schedules, and tasks with a rate limit."""

    @property
    def is_held(self) -> bool:
        """Whether something may be claimed."""

    def keep_open(self, until: datetime) -> bool:
        """Whether occurrences may be written into closed buckets until then."""


class Claiming:
    """Claims entries and starts their tasks. The coordinator's thread calls everything but ``_…_now``."""

    def __init__(
        self,
        services: Services,
        window: Window,
        report: PassReport,
        budget: Budget,
        permit: Permit,
        *,
        recoveries_until: datetime,
        lease: LimitsLease | None = None,
        start: Callable[[Order], bool] = lambda order: False,
        after_events: Callable[[], None] = lambda: None,
    ) -> None:
        """``recoveries_until``: when others may be started for actions with a rate limit. ``lease``: with which it may
        run tasks with limit keys; None: it leaves them."""
        self.window, self.report, self.budget, self.permit = window, report, budget, permit
        self.clock = services.clock
        self.turns = (
            None
            if lease is None
            else KeyTurns(services.rules.key_limits, lease, services.clock, in_one_thread=services.rules.in_one_thread)
        )
        self.execution = Execution(
            services,
            report,
            budget,
            start=start,
            turns=self.turns,
            started=lambda place: window.add_in_flight(place.minute),
            recorded=self._recorded,
            released=self._released,
            put_back=self._put_back,
            withheld=self._withheld,
            after_events=after_events,
        )
        self.recurring = Recurring(
            services.store,
            services.placer,
            self.execution.claimer,
            services.clock,
            services.new_token,
            services.report_overdue,
        )
        self.expired = ExpiredLeases(
            report,
            self.execution.start_others,
            recoveries_until,
            services.rules.limited_actions,
            is_limited=services.rules.is_limited,
        )
        self.minutes_with_work: set[int] = set()  # of the buckets in which the latest round has claimed something
        self.unmade: set[int] = set()  # of those where it has left occurrences of a schedule to a further round
        self.waits_for_resume = defaultdict[str, set[int]](set)  # minutes of buckets, by actions that are paused
        self.withheld: dict[str, str] = {}  # actions of tasks that were released since those are paused, by id
        self.left_behind: dict[tuple[Bucket, str], None] = {}  # entries for a continuation, in order
        self.due: dict[tuple[Bucket, str], Due] = {}  # of entries that wait for turns before their tick
        self.on_time: set[Bucket] = set()  # for whose ticks this pass has sent a wake-up

    def end_unclaimed(self, entries: Iterable[tuple[Bucket, str]]) -> None:
        for bucket, _ in entries:
            self.window.end_in_flight(bucket.minute, is_open=True)

    def claim(self, batch: Entries, position: Resume) -> bool:
        """Starts a claim once there is room for it. False: there will be none, and nothing was started."""
        if not self._wait_for_room(_tasks_of(batch)):
            return False
        entries = self._without_repetitions(batch)
        self._claim(entries, position, _tasks_of(entries))
        return True

    def _claim(self, entries: Entries, position: Resume, tasks: int) -> None:
        """``tasks``: what room they need."""
        self.report.due += len(entries)
        self.execution.claim(
            tasks,
            partial(
                self.execution.claimer.claim, entries, lease_until=self.budget.hard_end, due=self._take_due(entries)
            ),
            partial(self._claim_answered, entries, position),
            partial(self._claim_failed, entries),
        )

    def _take_due(self, entries: Entries) -> Mapping[str, Due]:
        """Those of them whose buckets no tick has closed yet, by id."""
        due = {entry: self.due.pop(entry) for entry in entries if entry in self.due}
        return {task_id: one for (bucket, task_id), one in due.items() if self._is_open(bucket)}

    def _is_open(self, bucket: Bucket) -> bool:
        return bucket.minute > self.window.cursor.closed_through

    def make_occurrences(self, batch: Entries, position: Resume) -> bool:
        """Like ``claim``, for schedules."""
        if not self._wait_for_room(len(batch)):
            return False
        try:
            if not self.permit.keep_open(self.budget.hard_end):
                return False
        except DynatickError as error:
            self.execution.keep_fault(error)
            return False
        entries = self._without_repetitions(batch)
        self.window.begin_to_write()
        closed_through = self.window.cursor.closed_through
        self.execution.claim(
            len(entries),
            partial(self._make_occurrences_now, entries, closed_through),
            partial(self._occurrences_made, entries, position, closed_through),
            partial(self._claim_failed, entries, of_schedules=True),
        )
        return True

    def is_full(self, entries: int, tasks: int) -> bool:
        """Whether a claim of this many can have no further entry: of packs, it has no more than begin soon."""
        return entries >= BATCH or tasks > max(BATCH, self.execution.max_waiting_members // 2)

    def paused_action(self, task_id: str, action: str | None = None) -> str | None:
        """The action of an entry, if that is paused. ``action``: as the index says; it may say nothing or be behind,
        so a task that was claimed for that reason once is known. None: it is not paused."""
        paused = self.execution.services.pause.actions
        return next((one for one in (action, self.withheld.get(task_id)) if one is not None and one in paused), None)

    def withhold(self, bucket: Bucket, task_id: str, action: str) -> None:
        """Leaves an entry whose action is paused. The holder moves it to a later tick at the end of its pass."""
        self.window.add_contended(bucket.minute, in_turn=task_id if self.permit.is_of_holder else None)
        self.waits_for_resume[action].add(bucket.minute)

    def take_resumed(self) -> set[int]:
        """The minutes of the buckets in which entries were left whose actions are not paused any more."""
        resumed = [action for action in self.waits_for_resume if not self.execution.is_action_paused(action)]
        return {minute for action in resumed for minute in self.waits_for_resume.pop(action)}

    def begin_round(self) -> None:
        self.minutes_with_work.clear()
        self.unmade.clear()

    def wait_for_room(self, until: Callable[[], bool]) -> None:
        """Waits until a batch can be claimed, or ``until`` holds, or nothing may be claimed any more."""
        while not self._has_room(BATCH) and self.may_claim() and not until():
            self.execution.handle_events()

    def _wait_for_room(self, more: int) -> bool:
        """False: time is up, or nothing may be claimed any more."""
        while not self._has_room(more):
            if not self.may_claim():
                return False
            self.execution.handle_events()
        return self.may_claim()

    def _without_repetitions(self, batch: Entries) -> Entries:
        entries = list({task_id: (bucket, task_id) for bucket, task_id in batch}.values())
        self.end_unclaimed(set(batch).difference(entries))  # a lagging index lists a task in two buckets
        return entries

    def _room(self) -> int:
        """How many entries a claim can have that there is room for; there is some for one."""
        return next((number for number in (BATCH, BATCH // 2, 5) if self._has_room(number)), 1)

    def _has_room(self, more: int) -> bool:
        # What waits for its rate limit has no thread: a slow target must not keep others from being claimed.
        execution = self.execution
        waiting = min(execution.task_pool.rate_limited + execution.packs.rate_limited, MAX_RATE_LIMITED)
        in_flight = len(execution.in_flight) + execution.packs.waiting
        maximum = execution.max_in_flight if more <= BATCH else execution.max_waiting_members
        # A pack may have more members than that; the next one is claimed when half as many wait.
        fits = execution.claiming + in_flight - waiting + min(more, maximum // 2) <= maximum
        claims = 1 if execution.large else MAX_CLAIMS  # the next rows may be as large
        fits = fits and execution.failing < MAX_FAILING
        return execution.claiming < claims * BATCH and fits and execution.has_room_for_large()

    def may_claim(self) -> bool:
        # A few tasks that take longer than is left are passed over; more of them should go to a new invocation.
        passed_over = len(self.execution.too_late) >= BATCH
        return self.permit.is_held and self.execution.fault is None and not passed_over and self.execution.may_begin()

    def _make_occurrences_now(self, entries: Entries, closed_through: int) -> _Occurrences:
        """Makes occurrences of schedules, in an I/O thread."""
        made = self.recurring.make_occurrences(entries, closed_through=closed_through, lease_until=self.budget.hard_end)
        moves = {task_id: one.next for (_, task_id), one in zip(entries, made, strict=True) if one.next is not None}
        fault: Exception | None = None
        try:
            moves |= self.execution.services.placer.check_moves(moves)[0]
        except Exception as error:  # the coordinator raises it once everything in flight is recorded
            fault = error
        return made, moves.values(), fault

    def _wake_next(self, buckets: Iterable[Bucket], closed_through: int) -> None:
        """Lets passes begin on time for the next runs of schedules, in buckets that were planned without them (19)."""
        services = self.execution.services
        if services.wake_ups is None:
            return
        new = {
            bucket
            for bucket in buckets
            if bucket.minute > closed_through and services.rules.is_planned(bucket.minute, closed_through)
        } - self.on_time
        if new:
            self.on_time |= new
            wake_ups = wake_ups_of(((bucket, bucket.instant) for bucket in new), threads=services.rules.threads)
            self.execution.send_wake_ups(list(wake_ups))

    # -- tasks with limit keys -------------------------------------------------------------------------------------

    def offer(self, bucket: Bucket, task_id: str, key: str, *, again: bool = False) -> None:
        """Lets an entry wait for the turn of its key; one that does not lie in the shard of its key is placed (24). A
        worker leaves both to the holder. ``again``: it was offered before, and holds its bucket back since then."""
        if self.turns is None or self.turns.knows(bucket, task_id) or not self.turns.is_limited(key):
            return
        if again and ((task_id, bucket.minute) in self.execution.ids or self.paused_action(task_id) is not None):
            return
        if self.execution.services.settings.grid.shard_of(key) != bucket.shard:
            self.window.add_in_flight(bucket.minute)
            self.execution.claim(
                1,
                partial(self.execution.services.placer.place, task_id),
                partial(self._placed, bucket),
                partial(self._claim_failed, [(bucket, task_id)]),
            )
        elif self.turns.offer(bucket, task_id, key):
            self.window.add_in_flight(bucket.minute)
        elif not again:
            self.window.add_contended(bucket.minute, in_turn=task_id if self.turns.is_held else None)

    def offer_due(self, bucket: Bucket, due: Due, key: str) -> bool:
        """Like ``offer``, for a task of a bucket that no tick has closed yet. False: too many of its key wait."""
        turns, task_id = self.turns, due.task_id
        if turns is None or turns.knows(bucket, task_id) or turns.has_place(task_id):
            return True
        if (task_id, bucket.minute) in self.execution.ids:
            return True  # a pack that is open
        if self.paused_action(task_id) is not None:
            return True
        if turns.offer(bucket, task_id, key, is_closed=False):
            self.due[bucket, task_id] = due
            self.window.add_in_flight(bucket.minute)
            return True
        return not turns.is_held or turns.has_place(task_id)

    def is_crowded(self, entries: int) -> bool:
        """Whether a poll that finds this many should wait for tasks that have turns before them."""
        return self.turns is not None and self.turns.is_crowded(entries)

    def _placed(self, bucket: Bucket, row: Row | None) -> None:
        is_here = row is not None and RowView(row).is_open_in(bucket)
        self.window.end_in_flight(bucket.minute, is_open=is_here)

    def claim_in_turn(self) -> None:
        """Claims what has its turn, as far as there is room, and begins members of packs in theirs."""
        turns, packs = self.turns, self.execution.packs
        if turns is None:
            return
        if turns.fault is not None:
            self.execution.keep_fault(turns.fault)
        while True:
            may_claim = turns.has_turn and self._has_room(1) and self.may_claim()
            began = packs.begin_in_turn(tasks_may=may_claim)
            entries = turns.take(self._room()) if may_claim else []
            if entries:  # of a pack, no member waits for room
                self._claim(entries, Resume(min(bucket.minute for bucket, _ in entries)), len(entries))
            if not began and not entries:
                break
        packs.release_idle()

    def leave_turns(self) -> None:
        """Leaves what waits for its turn to the next tick; if time was up, to a continuation."""
        if self.turns is None:
            return
        is_cut_short = not self.execution.may_begin()
        left, skipped = self.turns.leave()
        self.due.clear()
        for bucket, task_id in left:
            self.window.end_in_flight(bucket.minute, is_open=False)
            self.window.add_contended(bucket.minute, in_turn=None if is_cut_short else task_id)
            if is_cut_short:
                self.report.leave(Resume(bucket.minute))
        if is_cut_short and skipped is not None:
            self.report.leave(skipped)

    # -- after the claim -------------------------------------------------------------------------------------------

    def _claim_answered(self, entries: Entries, position: Resume, verdicts: Sequence[Verdict]) -> None:
        may_begin = self.execution.may_begin()
        for (bucket, task_id), verdict in zip(entries, verdicts, strict=True):
            if self.turns is not None and not isinstance(verdict, Claimed):
                self.turns.not_claimed(bucket, task_id, is_overdue=isinstance(verdict, LeaseExpired))
            self._follow(bucket, task_id, verdict, position, may_begin)
            if isinstance(verdict, Contended | LeaseExpired):
                self._leave_behind(bucket, task_id)
        self.expired.start_full_recovery()

    def _occurrences_made(self, entries: Entries, position: Resume, closed_through: int, answer: _Occurrences) -> None:
        made, moved_to, fault = answer
        if fault is not None:
            self.execution.keep_fault(fault)
        self.window.end_write()
        may_begin = self.execution.may_begin()
        for (bucket, schedule_id), of_schedule in zip(entries, made, strict=True):
            self._follow(bucket, schedule_id, of_schedule.verdict, position, may_begin)
            self._start_occurrences(bucket, of_schedule)
        self._wake_next(moved_to, closed_through)

    def _claim_failed(self, entries: Entries, *, of_schedules: bool = False) -> None:
        if of_schedules:
            self.window.end_write()
        if self.turns is not None:
            for bucket, task_id in entries:
                self.turns.not_claimed(bucket, task_id)
        self.end_unclaimed(entries)

    def _follow(self, bucket: Bucket, task_id: str, verdict: Verdict, position: Resume, may_begin: bool) -> None:
        """Does what the verdict on one entry asks for."""
        is_open, stuck_id = False, None
        match verdict:
            case Claimed():
                self.report.claimed += 1
                # Else it may be the backlog of an earlier invocation.
                is_first = bucket.minute == self.report.tick and not self.report.continuation
                self.report.woken_late += is_first and is_woken_late(
                    verdict.task, self.report.started_at, self.execution.services.rules
                )
                # The turns of its key are taken without another poll.
                if not self.execution.services.rules.is_limited(verdict.task.limit_key):
                    self.minutes_with_work.add(bucket.minute)
                self.execution.start(verdict, Place(bucket.minute, position), may_begin=may_begin)
            case LeaseExpired():
                is_open = True
                self.expired.add(bucket, verdict)
            case Contended(stuck):
                is_open, stuck_id = True, task_id if stuck else None
            case Malformed(row, reason):
                failure = self.execution.recorder.failure_of(row, reason)
                return self.execution.fail(failure, bucket.minute, partial(self._failed, bucket, task_id))
            case Rejected(row, change):
                failure = Failure.of_rejection(row, change)
                return self.execution.fail(failure, bucket.minute, partial(self._rejected, bucket, task_id))
            case Ineligible():
                pass
        return self.window.end_in_flight(bucket.minute, is_open=is_open, stuck_id=stuck_id)

    def _failed(self, bucket: Bucket, task_id: str, result: RecordResult) -> None:
        self.report.count(result)
        self._end_unexecuted(bucket, task_id, is_open=result is RecordResult.UNRECORDED)

    def _rejected(self, bucket: Bucket, task_id: str, result: RecordResult) -> None:
        """After a rejection, which the placer counts. Without it, the row may have to be deferred."""
        self._end_unexecuted(bucket, task_id, is_open=result is not RecordResult.FAILED, is_stuck=True)

    def _end_unexecuted(self, bucket: Bucket, task_id: str, *, is_open: bool, is_stuck: bool = False) -> None:
        if is_open:
            self._leave_behind(bucket, task_id)
        stuck_id = task_id if is_open and is_stuck else None
        self.window.end_in_flight(bucket.minute, is_open=is_open, stuck_id=stuck_id)

    def _start_occurrences(self, bucket: Bucket, made: Made) -> None:
        """Starts the occurrences that this pass made and claimed; those that other processes run hold their buckets
        back."""
        now = self.clock()
        for minute in made.written:
            self.window.wrote_occurrence(minute, now)
        for minute in made.elsewhere:
            self.window.add_contended(minute)
        if made.more:
            self.minutes_with_work.add(bucket.minute)
            self.unmade.add(bucket.minute)
        self.report.missed += made.missed
        for in_bucket, task_id, key in made.waiting:
            self.report.occurrences += 1
            self.offer(in_bucket, task_id, key)
        for claimed in made.claimed:
            self.report.due += 1
            self.report.claimed += 1
            self.report.occurrences += 1
            self.minutes_with_work.add(bucket.minute)
            place = Place(claimed.task.bucket.minute, Resume(bucket.minute))
            self.execution.start(claimed, place, may_begin=self.execution.may_begin())

    def _recorded(self, place: Place, task: Task, result: RecordResult) -> None:
        # A superseded task may have been replaced by one with its id, which no poll has listed while it was in flight.
        is_open = result in (RecordResult.UNRECORDED, RecordResult.SUPERSEDED)
        if is_open:
            self._leave_behind(Bucket(place.minute, self.report.shard), task.task_id)
        self.window.end_in_flight(place.minute, is_open=is_open)

    def _leave_behind(self, bucket: Bucket, task_id: str) -> None:
        """Leaves an entry to a continuation; one that may not be due yet, to its tick."""
        if not self._is_open(bucket):
            self.left_behind[bucket, task_id] = None

    def _released(self, place: Place) -> None:
        self.window.end_in_flight(place.minute, is_open=True)
        self.report.leave(place.position)

    def _withheld(self, place: Place, task: Task) -> None:
        self.window.end_in_flight(place.minute, is_open=True)
        self.withheld[task.task_id] = task.action
        if not self._is_open(Bucket(place.minute, self.report.shard)):
            self.waits_for_resume[task.action].add(place.minute)

    def _put_back(self, place: Place, pack: Task) -> None:
        """Lets a pack wait for its turn again; one of a bucket that is not closed yet, for its tick."""
        bucket = Bucket(place.minute, self.report.shard)
        self.window.end_in_flight(place.minute, is_open=False)
        if not self._is_open(bucket):
            self.offer(bucket, pack.task_id, str(pack.limit_key))


def _tasks_of(entries: Entries) -> int:
    """How many tasks they stand for: a pack for its members."""
    return sum(tasks_of(task_id) for _, task_id in entries)


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

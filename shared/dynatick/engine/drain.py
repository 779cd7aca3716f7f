"""A pass: one invocation drains one shard through its tick (protocol 1 to 4 and 9 to 12).

One thread, the coordinator, decides everything. Claims and records are written by a few I/O threads, tasks run in the
workbench; both report to the coordinator by one queue of events. What is in hand is bounded, so memory does not grow
with the bucket.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from queue import Empty, SimpleQueue

from dynatick.domain.buckets import Bucket, instant_of
from dynatick.domain.change import AtLeast, Change, Plus, Result, Unknown, Written
from dynatick.domain.lifecycle import release
from dynatick.domain.schedule import is_listed_as_schedule
from dynatick.domain.task import is_own_row
from dynatick.engine.budget import Budget
from dynatick.engine.claims import (
    Busy,
    Claimer,
    Gone,
    Spoilt,
    Suspect,
    Verdict,
    Won,
    understand,
)
from dynatick.engine.cursor import Cursor, take
from dynatick.engine.held import HeldShard
from dynatick.engine.inforce import InForce
from dynatick.engine.lanes import Lanes
from dynatick.engine.ports import Actions, Clock, DeadLetters, Page, Store
from dynatick.engine.reading import read_ahead
from dynatick.engine.record import Attempted, Fate, Overrun, Postponed, Recorder
from dynatick.engine.recurring import Recurring, Served
from dynatick.engine.report import PassReport, Resume, tick_record_id
from dynatick.engine.rules import Rules
from dynatick.engine.settle import Settler
from dynatick.engine.suspects import Exhausted, plan_recovery
from dynatick.engine.window import Window
from dynatick.engine.workbench import Workbench
from dynatick.errors import DynatickError

BATCH = 25
LOOKS_AT_ONCE = 6
LEAST_LANES, MOST_LANES = 2, 6  # claims and records at once
LANE_PATIENCE = 0.02  # s that one of them waits before there is another lane: longer than most take
CLAIMS_UNDER_WAY = 2
MOST_HELD = 500  # tasks that wait for their turn beside those that are in hand otherwise: memory has its bound
RECORD_DELAY = 0.05  # s that an outcome waits for others to share its batch
LAST_RECORDS = timedelta(seconds=0.5)  # before the hard end: until then records that are under way are waited for
ROUND_PATIENCE = timedelta(seconds=1)  # for what is in hand, before a bucket is looked at again
TICK_RECORD_DAYS = 7
_FATES = tuple(Fate)
_logger = logging.getLogger("dynatick.engine")
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class _Claimed:
    entries: Sequence[tuple[Bucket, str]]
    position: Resume  # before the first of them
    verdicts: Sequence[Verdict]
    spoilt_fates: Sequence[Fate]
    found: set[int]  # the minutes that had something, of the round that asked


@dataclass(frozen=True, slots=True)
class _Served:
    entries: Sequence[tuple[Bucket, str]]
    position: Resume
    served: Sequence[Served]
    found: set[int]


@dataclass(frozen=True, slots=True)
class _Ended:
    attempted: Attempted


@dataclass(frozen=True, slots=True)
class _Unbegun:
    won: Won  # there is too little time left for it


@dataclass(frozen=True, slots=True)
class _Recorded:
    attempts: Sequence[Attempted]
    fates: Sequence[Fate]


@dataclass(frozen=True, slots=True)
class _Fault:
    error: Exception
    entries: Sequence[tuple[Bucket, str]]
    of_schedules: bool = False


@dataclass(frozen=True, slots=True)
class _InHand:
    """A task that this pass has claimed and not seen recorded."""

    minute: int
    position: Resume  # from here on it would be found again


_Event = _Claimed | _Served | _Ended | _Unbegun | _Recorded | _Fault


@dataclass(frozen=True, kw_only=True, slots=True)
class World:
    """What a pass works with."""

    store: Store
    actions: Actions
    dead_letters: DeadLetters
    rules: Rules
    in_force: InForce
    clock: Clock
    new_token: Callable[[], str]
    settler: Settler


def drain(
    world: World,
    *,
    tick: int,
    shard: int,
    hard_end: datetime,
    generation: int = 0,
    resume: Resume | None = None,
    go_on: Callable[[Resume], None] | None = None,
) -> PassReport:
    """Closes the shard's buckets through ``tick`` and runs what is due in them.

    ``hard_end``: when the process will be killed. ``resume``: where an earlier generation of this pass stopped.
    ``go_on`` is called once if this pass leaves something for want of time and had made progress: as soon as the shard
    is free again if it was cut short, later if it finds out later.
    Raises StoreError if the table cannot be reached; whatever was claimed then comes back by its lease.
    """
    started = world.clock()
    report = PassReport(tick=tick, shard=shard, generation=generation, started_at=started)
    token = world.new_token()
    cursor = take(world.store, shard, tick, token=token, now=started)
    if cursor is None:
        report.held_elsewhere = True
        report.finished_at = world.clock()
        return report
    window = Window(cursor, world.rules, closed_at=world.clock())
    running = _Pass(world, window, report, token, Budget.until(hard_end, started))
    try:
        running.work(resume, go_on)
    finally:
        running.close()
    report.finished_at = world.clock()
    if not report.is_idle:
        _keep(world, report)
    return report


def _keep(world: World, report: PassReport) -> None:
    expires = int((world.clock() + timedelta(days=TICK_RECORD_DAYS)).timestamp())
    record = tick_record_id(report.tick, report.shard, report.generation)
    if not world.store.create({"taskId": record, **report.to_row(), "expiresAt": expires}):
        # The tick fired twice, and both times there was something to do.
        counts = {name: Plus(value) for name, value in report.counts().items() if value}
        there = tuple(AtLeast(name, 0) for name in counts)
        world.store.write(Change(task_id=record, set={**counts, **report.ending()}, when=there))


class _Pass:
    def __init__(self, world: World, window: Window, report: PassReport, token: str, budget: Budget) -> None:
        self.world, self.window, self.report, self.budget = world, window, report, budget
        self.store, self.clock = world.store, world.clock
        self.shard = HeldShard(world.store, world.clock, window, token)
        self.claimer = Claimer(world.store, world.settler, world.clock, world.new_token)
        self.recurring = Recurring(world.store, world.settler, self.claimer, world.clock, world.new_token)
        self.recorder = Recorder(
            world.store,
            world.dead_letters,
            world.rules,
            world.in_force,
            world.clock,
            closed_through=lambda: self.window.cursor.closed_through,
        )
        self.events: SimpleQueue[_Event] = SimpleQueue()
        self.looking = ThreadPoolExecutor(LOOKS_AT_ONCE, thread_name_prefix="dynatick-look")
        self.lanes = Lanes(least=LEAST_LANES, most=MOST_LANES, patience=LANE_PATIENCE, name="dynatick-io")
        self.bench = Workbench(
            world.actions,
            threads=world.rules.threads,
            deadline=budget.hard_end,
            recorded_from=budget.stop_waiting,
            clock=world.clock,
            ended=lambda attempted: self.events.put(_Ended(attempted)),
            unbegun=lambda won: self.events.put(_Unbegun(won)),
            max_timeout_seconds=world.rules.max_timeout_seconds,
        )
        self.most_in_hand = max(4 * BATCH, 4 * world.rules.threads)
        self.in_hand: dict[str, _InHand] = {}
        self.too_late: list[Won] = []  # in hand, and not to be begun any more
        self.ended: list[Attempted] = []  # to be recorded
        self.claiming = 0  # entries in claims under way
        self.recording = 0  # attempts in records under way
        self.suspects: list[tuple[Bucket, str]] = []
        self.fault: Exception | None = None

    # -- the order of a pass ---------------------------------------------------------------------------------------

    def work(self, resume: Resume | None, go_on: Callable[[Resume], None] | None) -> None:
        covered = self.window.cursor.closed_through
        minutes = [m for m in self.window.due(self.clock()) if resume is None or m >= resume.minute]
        while True:
            found = self._look_and_claim(minutes, resume)
            resume = None
            if self._must_stop():
                break
            if found:  # and round again in what had something, until nothing new is due
                patience = min(self.clock() + ROUND_PATIENCE, self.budget.stop_waiting)
                self._wait(until=self._nothing_runs, end=patience)
            if self.clock() >= self.budget.stop_claiming:
                break
            closed = self.window.cursor.closed_through
            minutes = [*sorted(found), *range(covered + 1, closed + 1)]  # another tick may have come meanwhile
            covered = closed
            if not minutes and self._end():
                break
        if self.report.resume or self.too_late:
            self._give_back()
        while self.shard.holding and not self._end():
            pass
        if self.window.cursor.closed_through > covered:  # that tick has left its buckets to this pass
            self._leave(Resume(covered + 1))
        self._go_on(go_on)
        # What takes longer than is left goes on in a new invocation at once, and all that is not begun with it.
        self._wait(until=lambda: not self.in_hand or bool(self.too_late), end=self.budget.stop_claiming)
        self._give_back()  # what no thread has begun by now might be cut off in the middle
        self._go_on(go_on)
        self._wait(until=self._nothing_runs)
        self._take_suspects()
        self._settle_up()
        self._go_on(go_on)
        for overrun in self.bench.overrunning():
            self._note_overrun(overrun)
        self.report.unfinished = len(self.in_hand) + self.claiming
        self.report.moved, self.report.rejected = self.world.settler.moved, self.world.settler.failed
        if self.fault is not None:
            raise self.fault

    def _go_on(self, go_on: Callable[[Resume], None] | None) -> None:
        """Has what is left taken up at once, if this pass was cut short and another one would get further."""
        worth_it = self.report.made_progress and not self.shard.lost and self.fault is None
        if self.report.resume and worth_it and go_on is not None and not self.report.continued:
            go_on(self.report.resume)
            self.report.continued = True

    def _leave(self, position: Resume) -> None:
        """Notes that something is left from a position on."""
        self.report.resume = position if self.report.resume is None else min(position, self.report.resume)

    def close(self) -> None:
        self.bench.close()
        self.lanes.close()
        self.looking.shutdown(wait=False, cancel_futures=True)

    def _nothing_runs(self) -> bool:
        """Whether all that is in hand is what is not to be begun any more."""
        return len(self.in_hand) == len(self.too_late)

    def _must_stop(self) -> bool:
        return self.report.resume is not None or not self.shard.holding or self.fault is not None

    # -- looking and claiming --------------------------------------------------------------------------------------

    def _look_and_claim(self, minutes: Iterable[int], resume: Resume | None) -> set[int]:
        """Looks at buckets, oldest first, all pages, and claims what is due. Returns the minutes that had something.

        If there is no more time, ``report.resume`` says from where on nothing was claimed.
        """
        found: set[int] = set()
        batch: list[tuple[Bucket, str]] = []
        position = resume
        for minute, page in self._pages(minutes, resume):
            bucket = Bucket(minute, self.report.shard)
            position = position or Resume(minute)
            if self.clock() >= self.budget.stop_claiming:
                return self._cut(position, batch, found)
            schedules = [
                (bucket, entry.task_id)
                for entry in page.entries
                if entry.schedule_id is not None and is_listed_as_schedule(entry.task_id, entry.schedule_id)
            ]
            while schedules:
                if not self._serve(schedules[:BATCH], position, found):
                    return self._cut(position, [*batch, *schedules], found)
                del schedules[:BATCH]
            for entry in page.entries:
                task_id = entry.task_id
                if task_id in self.in_hand or is_own_row(task_id):
                    continue  # under such an id nobody can put a task
                if entry.schedule_id is not None and is_listed_as_schedule(task_id, entry.schedule_id):
                    continue
                batch.append((bucket, task_id))
                if len(batch) == BATCH:
                    if not self._claim(batch, position, found):
                        return self._cut(position, batch, found)
                    position, batch = Resume(minute, task_id), []
            if page.after is None:
                partly = resume is not None and minute == resume.minute and resume.after is not None
                self.window.looks[minute].complete = not partly
            if not batch:
                position = Resume(minute, page.after) if page.after is not None else Resume(minute + 1)
        if batch and position is not None and not self._claim(batch, position, found):
            return self._cut(position, batch, found)
        self._wait(until=lambda: not self.claiming)
        return found

    def _cut(self, position: Resume, unclaimed: Sequence[tuple[Bucket, str]], found: set[int]) -> set[int]:
        for bucket, _ in unclaimed:
            self.window.looks[bucket.minute].busy += 1
        self._leave(position)
        self._wait(until=lambda: not self.claiming)
        return found

    def _pages(self, minutes: Iterable[int], resume: Resume | None) -> Iterator[tuple[int, Page]]:
        """The pages of the buckets, in order; they end early at a fault, which is kept."""

        def began(minute: int, now: datetime) -> None:
            self.report.buckets += minute not in self.window.looks
            self.report.first_minute = minute if self.report.first_minute is None else self.report.first_minute
            self.window.begin(minute, now)

        try:
            yield from read_ahead(self.store, self.clock, self.looking, self.report.shard, minutes, resume, began)
        except Exception as error:
            self.fault = self.fault or error

    def _claim(self, batch: Sequence[tuple[Bucket, str]], position: Resume, found: set[int]) -> bool:
        """Starts a claim once there is room for it. False, and nothing is started, if there will be none."""
        if not self._wait_for_room(len(batch)):
            return False
        entries = self._each_once(batch)
        self._under_way(entries, 1)
        self.report.due += len(entries)
        self.lanes.submit(lambda: self._claim_now(entries, position, found))
        return True

    def _serve(self, batch: Sequence[tuple[Bucket, str]], position: Resume, found: set[int]) -> bool:
        """As ``_claim``, for schedules."""
        if not self._wait_for_room(len(batch)):
            return False
        try:
            if not self.shard.open(self.budget.hard_end):
                return False
        except DynatickError as error:
            self.fault = self.fault or error
            return False
        entries = self._each_once(batch)
        self._under_way(entries, 1)
        self.window.writing += 1
        closed_through = self.window.cursor.closed_through
        self.lanes.submit(lambda: self._serve_now(entries, position, closed_through, found))
        return True

    def _under_way(self, entries: Sequence[tuple[Bucket, str]], change: int) -> None:
        """Counts those that are being claimed: until it is known what became of them, their buckets are not drained."""
        self.claiming += change * len(entries)
        for bucket, _ in entries:
            self.window.looks[bucket.minute].in_hand += change

    def _wait_for_room(self, more: int) -> bool:
        """False if there is no more time, or nothing must be claimed any more."""
        while not self._has_room(more):
            if not self._may_claim():
                return False
            self._handle_events()
        return self._may_claim()

    def _each_once(self, batch: Sequence[tuple[Bucket, str]]) -> Sequence[tuple[Bucket, str]]:
        entries = list({task_id: (bucket, task_id) for bucket, task_id in batch}.values())
        for bucket, _ in set(batch).difference(entries):  # shown in two buckets, as a lagging index does
            self.window.looks[bucket.minute].busy += 1
        return entries

    def _has_room(self, more: int) -> bool:
        # Those that wait for their turn hold no thread, so that a slow target does not keep others from being claimed.
        under_way = self.claiming + len(self.in_hand) - min(self.bench.held, MOST_HELD)
        return self.claiming < CLAIMS_UNDER_WAY * BATCH and under_way + more <= self.most_in_hand

    def _may_claim(self) -> bool:
        # Of tasks that take longer than is left a few are stepped over; more of them are better off elsewhere.
        left_out = len(self.too_late) >= BATCH
        return self.shard.holding and self.fault is None and not left_out and self.clock() < self.budget.stop_claiming

    def _claim_now(self, entries: Sequence[tuple[Bucket, str]], position: Resume, found: set[int]) -> None:
        """In an I/O thread."""
        try:
            verdicts = list(self.claimer.claim(entries, lease_until=self.budget.hard_end))
            spoilt_fates: list[Fate] = []
            for n, verdict in enumerate(verdicts):
                if isinstance(verdict, Spoilt):
                    fate = self.recorder.fail_spoilt(verdict)
                    spoilt_fates.append(fate)
                    verdicts[n] = Busy() if fate is Fate.UNRECORDED else Gone()
            self.events.put(_Claimed(entries, position, verdicts, spoilt_fates, found))
        except Exception as error:  # to be raised by the coordinator, once what is in hand is recorded
            self.events.put(_Fault(error, entries))

    def _serve_now(
        self, entries: Sequence[tuple[Bucket, str]], position: Resume, closed_through: int, found: set[int]
    ) -> None:
        """In an I/O thread."""
        try:
            served = self.recurring.serve(entries, closed_through=closed_through, lease_until=self.budget.hard_end)
            self.events.put(_Served(entries, position, served, found))
        except Exception as error:
            self.events.put(_Fault(error, entries, of_schedules=True))

    # -- events ----------------------------------------------------------------------------------------------------

    def _wait(self, *, until: Callable[[], bool], end: datetime | None = None) -> None:
        """Handles events until a condition holds or until ``end`` (the budget's, if none is given)."""
        end = self.budget.stop_waiting if end is None else end
        self._flush(everything=True)
        while not until() and self.clock() < end:
            self._handle_events()
        self._flush(everything=True)

    def _handle_events(self) -> None:
        """Waits a moment for the next event, and handles what has come."""
        came = 0
        try:
            self._handle(self.events.get(timeout=RECORD_DELAY))
            came = 1
            while True:
                self._handle(self.events.get_nowait())
        except Empty:
            pass
        nothing_else_runs = len(self.ended) + self.recording == len(self.in_hand) and not self.claiming
        self._flush(everything=not came or nothing_else_runs)
        self.lanes.widen()
        self._keep_the_shard()

    def _handle(self, event: _Event) -> None:
        match event:
            case _Claimed(entries, position, verdicts, spoilt_fates, found):
                self._under_way(entries, -1)
                self._count(*spoilt_fates)
                may_begin = self._may_begin()
                for (bucket, task_id), verdict in zip(entries, verdicts, strict=True):
                    self._place(bucket, task_id, verdict, position, found, may_begin)
            case _Served(entries, position, served, found):
                self._under_way(entries, -1)
                self.window.writing -= 1
                may_begin = self._may_begin()
                for (bucket, task_id), one in zip(entries, served, strict=True):
                    self._place(bucket, task_id, one.verdict, position, found, may_begin)
                    self._take_occurrences(bucket, one, found)
            case _Ended(attempted):
                self._note_start(attempted)
                if attempted.overrun is not None:
                    self._note_overrun(attempted.overrun)
                self.ended.append(attempted)
                if len(self.ended) >= BATCH:
                    self._flush(everything=False)
            case _Unbegun(won):
                self.too_late.append(won)
            case _Recorded(attempts, fates):
                self.recording -= len(attempts)
                for attempted, fate in zip(attempts, fates, strict=True):
                    look = self.window.looks[self.in_hand.pop(attempted.task.task_id).minute]
                    look.in_hand -= 1
                    look.busy += fate is Fate.UNRECORDED
                self._count(*fates)
            case _Fault(error, entries, of_schedules):
                self._under_way(entries, -1)
                self.window.writing -= of_schedules
                for bucket, _ in entries:
                    self.window.looks[bucket.minute].busy += 1
                self.fault = self.fault or error

    def _place(
        self, bucket: Bucket, task_id: str, verdict: Verdict, position: Resume, found: set[int], may_begin: bool
    ) -> None:
        look = self.window.looks[bucket.minute]
        match verdict:
            case Won():
                self.report.claimed += 1
                found.add(bucket.minute)
                self._start(bucket.minute, verdict, position, may_begin)
            case Suspect():
                look.busy += 1
                self.suspects.append((bucket, task_id))
            case Busy() | Spoilt():
                look.busy += 1
            case Gone():
                pass

    def _take_occurrences(self, bucket: Bucket, served: Served, found: set[int]) -> None:
        """What a schedule's tasks are to this pass: some it runs, others are in other hands."""
        now = self.clock()
        for minute in served.written:
            self.window.wrote(minute, now)
        for minute in served.elsewhere:
            self.window.hold(minute).busy += 1
        if served.more:
            found.add(bucket.minute)
        self.report.missed += served.missed
        for won in served.won:
            self.report.due += 1
            self.report.claimed += 1
            self.report.occurrences += 1
            found.add(bucket.minute)
            self._start(won.task.bucket.minute, won, Resume(bucket.minute), self._may_begin())

    def _may_begin(self) -> bool:
        """Whether there is still time for a task to begin. Asked once for those that come together."""
        return self.clock() < self.budget.stop_claiming

    def _start(self, minute: int, won: Won, position: Resume, may_begin: bool) -> None:
        self.in_hand[won.task.task_id] = _InHand(minute, position)
        self.window.hold(minute).in_hand += 1
        if may_begin:
            self.bench.submit(won)
        else:
            self.too_late.append(won)

    def _note_start(self, attempted: Attempted) -> None:
        if isinstance(attempted.outcome, Postponed):
            return  # it was not begun
        task = attempted.task
        if self.report.first_start_ms is None:
            self.report.first_start_ms = _milliseconds(attempted.started_at - self.report.started_at)
        if task.attempt == 1:  # a task that came in after it was due can't be blamed on the ticks
            due = max(task.due_at, task.created_at or task.due_at)
            if task.schedule_id is not None:  # its own time it has from its bucket: a flexible window may spread it
                due = task.bucket.instant
            tick = instant_of(self.world.in_force.grid.tick_at_or_after(due))
            self.report.late(max(0, _milliseconds(attempted.started_at - tick)))

    def _note_overrun(self, overrun: Overrun) -> None:
        self.report.overran += 1
        _logger.warning(
            "an attempt takes longer than its timeoutSeconds",
            extra={
                "action": "attempt_overran",
                "task_id": overrun.task.task_id,
                "attempt": overrun.task.attempt,
                "run": overrun.task.run,
                "handler": overrun.task.action,
                "timeout_seconds": overrun.timeout_seconds,
                "seconds": round(overrun.seconds, 3),
            },
        )

    def _count(self, *fates: Fate) -> None:
        for fate in _FATES:
            if number := fates.count(fate):
                name = fate.value
                setattr(self.report, name, getattr(self.report, name) + number)

    def _flush(self, *, everything: bool) -> None:
        """Hands ended attempts to the recorder in full batches; ``everything``: the last, smaller one too."""
        while len(self.ended) >= BATCH or (everything and self.ended):
            attempts, self.ended = self.ended[:BATCH], self.ended[BATCH:]
            self.recording += len(attempts)
            self.lanes.submit(partial(self._record_now, attempts))

    def _record_now(self, attempts: Sequence[Attempted]) -> None:
        """In an I/O thread."""
        try:
            fates = self.recorder.record(attempts)
        except Exception as error:
            fates = [Fate.UNRECORDED] * len(attempts)
            self.events.put(_Fault(error, ()))
        self.events.put(_Recorded(attempts, fates))

    # -- the shard -------------------------------------------------------------------------------------------------

    def _keep_the_shard(self) -> None:
        try:
            self.shard.keep()
        except DynatickError as error:  # what is in hand is still brought to its end
            self.fault = self.fault or error

    def _end(self) -> bool:
        """The end write. False if another tick has closed buckets meanwhile, so that there is more to do."""
        try:
            ended = self.shard.end(self._noted)
        except DynatickError as error:
            self.fault = self.fault or error
            return True
        if ended and not self.shard.lost:
            self.report.closed_through = self.window.cursor.closed_through
            self.report.drained_through = self.window.cursor.drained_through
        return ended

    def _noted(self, cursor: Cursor) -> Cursor:
        """With the count of idle ticks, which spares each of them a record of its own."""
        tick = str(Bucket(self.report.tick))
        if self.report.is_idle and not self.suspects:
            new_tick = cursor.last_tick != tick
            return replace(
                cursor,
                idle_since=cursor.idle_since or tick,
                idle_ticks=cursor.idle_ticks + new_tick,
                last_tick=tick,
            )
        if cursor.idle_ticks:
            self.report.idle_before = {
                "since": cursor.idle_since,
                "until": cursor.last_tick,
                "ticks": cursor.idle_ticks,
            }
        return replace(cursor, idle_since=None, idle_ticks=0, last_tick=tick)

    # -- the end of a pass -----------------------------------------------------------------------------------------

    def _give_back(self) -> None:
        """Releases what was claimed and not begun (12); whoever goes on begins there."""
        unbegun = [*self.bench.take_back(), *self.too_late]
        self.too_late = []
        results: Sequence[Result] = [Unknown("not written")] * len(unbegun)
        try:
            results = self.store.write_many([release(won.task) for won in unbegun]) if unbegun else ()
        except Exception as error:  # what is running is still brought to its end
            self.fault = self.fault or error
        for won, result in zip(unbegun, results, strict=True):
            held = self.in_hand.pop(won.task.task_id)
            look = self.window.looks[held.minute]
            look.in_hand -= 1
            look.busy += 1
            self.report.released += isinstance(result, Written)
            self._leave(held.position)

    def _settle_up(self) -> None:
        """The last of the time: what has ended is recorded, what came too late is given back."""
        spare = min(LAST_RECORDS, (self.budget.hard_end - self.budget.stop_waiting) / 4)
        self._wait(
            until=lambda: self.events.empty() and not (self.claiming or self.recording or self.ended),
            end=self.budget.hard_end - spare,
        )
        self._give_back()

    def _take_suspects(self) -> None:
        """Tasks whose lease ran out: one at a time, with nothing else in hand, so that one that kills its process takes
        no other with it (10). What there is no time for, a slow task being in hand, is left to an invocation that has
        nothing in hand."""
        for bucket, task_id in self.suspects:
            if self.in_hand or self.recording or self.fault or self.clock() >= self.budget.stop_claiming:
                self._leave(Resume(bucket.minute))
                return
            try:
                self._take_suspect(bucket, task_id)
            except Exception as error:
                self.fault = self.fault or error
            self._wait(until=self._nothing_runs)

    def _take_suspect(self, bucket: Bucket, task_id: str) -> None:
        row = self.store.get(task_id)
        plan = plan_recovery(
            row, bucket, token=self.world.new_token(), lease_until=self.budget.hard_end, now=self.clock()
        )
        if row is None or plan is None:
            return
        if isinstance(plan, Exhausted):
            self._count(self.recorder.fail_unexecuted(row, plan.error, attempt=plan.attempt))
            return
        if isinstance(known := understand(row), Won) and not self.bench.has_time_for(known.task):
            if (
                self.report.claimed or self.report.recovered
            ):  # otherwise a new invocation had no more time for it either
                self._leave(Resume(bucket.minute))
            return
        result = self.store.write(plan)
        if isinstance(result, Unknown) and result.too_large:
            self._count(self.recorder.fail_spoilt(Spoilt(row, f"the row is too large to be claimed ({result.error})")))
        if not isinstance(result, Written) or result.row is None:
            return
        self.report.recovered += 1
        won = understand(result.row)
        if isinstance(won, Spoilt):
            self._count(self.recorder.fail_spoilt(won))
        else:
            self._start(bucket.minute, won, Resume(bucket.minute), self._may_begin())


def _milliseconds(delta: timedelta) -> int:
    return delta // _MILLISECOND

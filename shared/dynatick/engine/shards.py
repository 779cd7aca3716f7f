"""The shards of a tick, most of them idle (protocol 1 to 4, 14, 16).

A tick begins in one invocation, the root of a tree. A node of it serves one *group* of shards, and starts other nodes
for the rest of its range.

A shard in whose buckets something is open gets a pass of its own, at once. Of an idle one, this reads the cursor and
polls; nothing depends on when its buckets are closed, as long as those that are not closed are polled at every tick. So
its cursor is written only every few minutes, without a shard lease: that closes what was polled, and advances the
drained watermark by buckets that an earlier write had closed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from itertools import pairwise

from dynatick.domain.buckets import Bucket
from dynatick.domain.conditional_update import Unknown, Written
from dynatick.domain.task import Row, is_own_row
from dynatick.engine.conditional_write import write_many
from dynatick.engine.counts import PassReport
from dynatick.engine.cursor import (
    GROUP,
    Cursor,
    IdleRecord,
    Window,
    close,
    cursor_id,
    group_of,
    idle_record_id,
    save_tick,
    update,
    with_idle_ticks,
)
from dynatick.engine.invocation import Services
from dynatick.engine.polling import PAGE
from dynatick.engine.pools import START_TIMEOUT, Jobs
from dynatick.engine.rules import TICKS_PLANNED, Rules
from dynatick.engine.wake_ups import send_planned
from dynatick.errors import DynatickError, InvalidInput, StoreError

# -- which invocation serves which shards ------------------------------------------------------------------------------

MAX_CHILDREN = 8  # of a node: it starts them all at once


def groups(shards: range) -> list[range]:
    """Consecutive shards, group by group."""
    edges = [shards.start, *range((group_of(shards.start) + 1) * GROUP, shards.stop, GROUP), shards.stop]
    return [range(start, stop) for start, stop in pairwise(edges)] if shards else []


def split(shards: range) -> tuple[range, list[range]]:
    """The group that a node serves itself, and the ranges for which it starts children."""
    own, *rest = groups(shards) or [shards]
    return own, portions(rest)


def portions(of_groups: Sequence[range]) -> list[range]:
    """Consecutive groups in as many ranges as a node may start, as even as possible."""
    number = min(MAX_CHILDREN, len(of_groups))
    edges = [n * len(of_groups) // number for n in range(number + 1)] if number else []
    return [range(of_groups[start].start, of_groups[stop - 1].stop) for start, stop in pairwise(edges)]


# -- idle shards -------------------------------------------------------------------------------------------------------

CLOSE_EVERY = 4  # minutes: an idle shard's cursor is written when its closed watermark is so far behind the tick
MAX_POLLS = 240  # of one idle shard; if it takes more, as after an outage, it gets a pass of its own
THREADS = 8  # that poll, or start passes


@dataclass(kw_only=True, slots=True)
class GroupReport:
    """One tick of a group of shards."""

    tick: int
    shards: range
    started_at: datetime
    idle: int = 0  # shards in whose buckets nothing was open
    busy: list[int] = field(default_factory=list)  # those that get a pass of their own
    waiting: list[int] = field(default_factory=list)  # those of them whose pass could not be started
    written: int = 0  # cursors
    planned: int = 0  # tasks for which wake-ups were planned
    unsent: int = 0  # wake-ups that their queue refused
    planning_failed: str | None = None  # why a bucket was not planned to its end
    drained_through: int | None = None  # the lowest of the idle shards
    fault: Exception | None = None  # the first


@dataclass(slots=True)
class _Shard:
    """A shard that may be idle."""

    window: Window
    is_closing: bool  # its cursor is to be written
    is_idle: bool = False


def serve_group(
    services: Services,
    *,
    tick: int,
    shards: range,
    end: datetime,
    start_pass: Callable[[int], bool],
) -> GroupReport:
    """Polls shards of one group for a tick. ``start_pass`` starts a pass for a busy one, and returns whether it could;
    several threads call it. After ``end``, nothing more is polled: what is left gets a pass, which keeps its progress.

    Raises nothing for a single shard: the report has the first error, and the next tick polls again.
    """
    return _Group(services, tick, shards, end, start_pass).serve()


def minutes_to_poll(cursor: Cursor, tick: int, rules: Rules, *, is_final: bool) -> list[int]:
    """The buckets of an idle shard that a tick polls, the newest first.

    Those that are not closed, for a task may still be placed there; those of the newest closed tick once more, at the
    tick after it: a task may have been placed there while they were closed; those that an earlier poll did not find
    empty. ``is_final``: and all that can be drained.
    """
    step = rules.grid.tick_minutes
    through = min(cursor.polled_through, cursor.closed_through)
    if tick <= cursor.closed_through + step:
        through = min(through, cursor.closed_through - step)
    first = max(through, cursor.drained_through) + 1
    minutes = list(range(tick, first - 1, -1))
    if is_final:
        minutes += range(min(cursor.checkpoint, first - 1), cursor.drained_through, -1)
    return minutes


def idle_cursor(window: Window, record: IdleRecord, tick: int, plan_ahead: int) -> tuple[Cursor, range]:
    """The cursor as an idle shard's write sets it, after the polls of ``minutes_to_poll``, and the minutes to plan."""
    # What was read is closed, so a new checkpoint is that, at the time after the read (4).
    closed, to_plan = close(window.progress(), tick, plan_ahead)
    before, name = with_idle_ticks(window.cursor, record), str(Bucket(tick))
    return replace(
        closed,
        polled_through=max(closed.polled_through, tick),
        idle_since=before.idle_since or name,
        idle_ticks=before.idle_ticks + (before.last_tick != name),
        last_tick=name,
    ), to_plan


class _Group:
    """The order of the steps, in the coordinator's thread."""

    def __init__(
        self, services: Services, tick: int, shards: range, end: datetime, start_pass: Callable[[int], bool]
    ) -> None:
        self.services, self.tick, self.end, self.start_pass = services, tick, end, start_pass
        self.report = GroupReport(tick=tick, shards=shards, started_at=services.clock())
        in_one_thread = services.rules.in_one_thread
        self.starts: Jobs[bool] = Jobs(max_threads=THREADS, name="dynatick-start", in_one_thread=in_one_thread)
        self.starting: dict[int, int] = {}  # shards whose passes are being started, by the numbers of the jobs
        is_to_plan = services.wake_ups is not None
        self.plan_ahead = TICKS_PLANNED * services.rules.grid.tick_minutes if is_to_plan else 0

    def serve(self) -> GroupReport:
        report = self.report
        group = group_of(report.shards.start)
        ids = [*map(cursor_id, report.shards), idle_record_id(group)]
        # A late answer costs polls, and its cursor can't be written: that is conditional on the version.
        rows = self.services.store.get_many(ids, consistent=False)
        read_at = self.services.clock()
        record = IdleRecord.from_row(group, rows.get(idle_record_id(group)))
        found = {shard: self._idle_so_far(shard, rows.get(cursor_id(shard)), read_at) for shard in report.shards}
        self._each([partial(self._start, shard) for shard, one in found.items() if one is None])
        shards = [one for one in found.values() if one is not None]
        # First the bucket in which something is most likely to be due, so that a busy shard waits for no idle one.
        self._each([partial(self._poll, one, newest=True) for one in shards])
        shards = [one for one in shards if one.is_idle]
        self._each([partial(self._poll, one, newest=False) for one in shards])
        idle = [one for one in shards if one.is_idle]
        report.idle = len(idle)
        written = self._write([one for one in idle if one.is_closing], record)
        unwritten = {one.window.cursor.shard for one in idle} - {cursor.shard for cursor, _ in written}
        self._save_tick(record, unwritten)
        drained = [one.window.cursor.drained_through for one in idle] + [new.drained_through for new, _ in written]
        report.drained_through = min(drained, default=None)
        self._plan(written)
        self._end_starts()
        report.busy.sort()
        return report

    def _idle_so_far(self, shard: int, row: Row | None, read_at: datetime) -> _Shard | None:
        """The shard, if its last tick was idle and it can be polled here; None: it gets a pass of its own."""
        try:
            cursor = None if row is None else Cursor.from_row(shard, row)
        except InvalidInput:  # its pass raises that
            return None
        if cursor is None or cursor.idle_since is None or cursor.is_leased(read_at):
            return None
        if cursor.handed_out or (cursor.open_until is not None and cursor.open_until > read_at):
            return None  # workers, or a pass that was perhaps killed, have left something in its buckets
        behind = self.tick - cursor.closed_through
        # Wake-ups are planned at every tick, by its write.
        is_closing = behind >= CLOSE_EVERY or (behind > 0 and self.plan_ahead > 0)
        one = _Shard(Window(cursor, self.services.rules, closed_at=read_at), is_closing)
        return one if len(self._minutes(one)) <= MAX_POLLS else None

    def _minutes(self, one: _Shard) -> list[int]:
        is_final = one.is_closing and one.window.closed_at >= one.window.final_from
        return minutes_to_poll(one.window.cursor, self.tick, self.services.rules, is_final=is_final)

    def _poll(self, one: _Shard, newest: bool) -> None:
        """Polls a shard, in a thread."""
        services, window, shard = self.services, one.window, one.window.cursor.shard
        one.is_idle = False
        minutes = self._minutes(one)
        for minute in minutes[:1] if newest else minutes[1:]:
            began = services.clock()
            if began >= self.end:  # a poll that is broken off is lost, and at the next tick it would take longer
                self._start(shard)
                return
            page = services.store.query_bucket(Bucket(minute, shard), limit=PAGE)
            window.begin_poll(minute, began)
            if page.after is not None or any(not is_own_row(entry.task_id) for entry in page.entries):
                self._start(shard)
                return
            window.complete_poll(minute)
        one.is_idle = True

    def _start(self, shard: int) -> None:
        """Lets a thread of its own start the pass of a shard: those that poll wait for no answer."""
        self.report.busy.append(shard)
        self.starting[self.starts.submit(partial(self.start_pass, shard))] = shard

    def _end_starts(self) -> None:
        """Waits for the answers. What has none by then counts as not started."""
        end = self.services.clock() + START_TIMEOUT
        for number, is_started in enumerate(self.starts.results(is_over=lambda: self.services.clock() >= end)):
            if isinstance(is_started, Exception):
                self._keep_fault(is_started)
            if is_started is not True:
                self.report.waiting.append(self.starting[number])

    def _write(self, shards: Sequence[_Shard], record: IdleRecord) -> list[tuple[Cursor, range]]:
        """Writes their cursors. Another process that has changed one meanwhile serves its shard."""
        wanted = [(one.window.cursor, *idle_cursor(one.window, record, self.tick, self.plan_ahead)) for one in shards]
        if not wanted:
            return []
        writer = self.services.new_token()
        updates = [(*update(old, new, writer=writer), to_plan) for old, new, to_plan in wanted]
        results = write_many(self.services.store, [change for _, change, _ in updates])
        written: list[tuple[Cursor, range]] = []
        for (new, _, to_plan), result in zip(updates, results, strict=True):
            if isinstance(result, Written):
                written.append((new, to_plan))
            elif isinstance(result, Unknown):
                self._keep_fault(StoreError(f"cannot write the cursor of shard {new.shard}: {result.error}"))
        self.report.written = len(written)
        return written

    def _save_tick(self, record: IdleRecord, idle: set[int]) -> None:
        """Notes the tick for idle shards whose cursors were not written."""
        if idle:
            try:
                save_tick(self.services.store, record, self.tick, set(self.report.shards) - idle)
            except DynatickError as error:
                self._keep_fault(error)

    def _plan(self, written: Iterable[tuple[Cursor, range]]) -> None:
        plans = [(cursor.shard, to_plan) for cursor, to_plan in written if to_plan]
        reports: Mapping[int, PassReport] = {
            shard: PassReport(tick=self.tick, shard=shard, continuation=0, started_at=self.report.started_at)
            for shard, _ in plans
        }
        self._each([partial(send_planned, self.services, reports[shard], minutes) for shard, minutes in plans])
        self.report.planned = sum(one.planned for one in reports.values())
        self.report.unsent = sum(one.unsent for one in reports.values())
        failed = [one.planning_failed for one in reports.values() if one.planning_failed is not None]
        self.report.planning_failed = failed[0] if failed else None

    def _each(self, jobs: Sequence[Callable[[], object]]) -> None:
        """Runs jobs in threads, one for each shard. What is wrong with one holds up no other."""
        in_one_thread = self.services.rules.in_one_thread
        running: Jobs[object] = Jobs(max_threads=THREADS, name="dynatick-idle", in_one_thread=in_one_thread)
        for job in jobs:
            running.submit(job)
        for result in running.results():
            if isinstance(result, Exception):
                self._keep_fault(result)

    def _keep_fault(self, error: Exception) -> None:
        self.report.fault = self.report.fault or error

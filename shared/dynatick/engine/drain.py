"""A pass: one invocation drains one shard through its tick (protocol 1 to 4 and 9 to 12).

One thread, the coordinator, decides everything. Rows that no tick can work on are deferred.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from itertools import chain

from dynatick.domain import attributes as attr
from dynatick.domain.action_counts import CountsByAction
from dynatick.domain.buckets import Bucket, instant_of, minute_of
from dynatick.domain.conditional_update import AtLeast, ConditionalUpdate, Is, Plus, Written, as_read
from dynatick.domain.instants import EPOCH
from dynatick.domain.lifecycle import move
from dynatick.domain.packs import tasks_of
from dynatick.domain.retry import deferral
from dynatick.domain.row import Due, RowView
from dynatick.domain.task import Row
from dynatick.engine.claims import is_stuck, lease_is_over
from dynatick.engine.conditional_write import create, write, write_many
from dynatick.engine.counts import PassReport, Recorded, tick_record_id
from dynatick.engine.cursor import Cursor, Segment, ShardLease, Window, acquire_shard, count_idle_ticks
from dynatick.engine.invocation import Budget, Services
from dynatick.engine.limits import KeyTurns, LimitsLease
from dynatick.engine.orders import MAX_ORDER_BYTES, Order, PassOrder, Resume
from dynatick.engine.polling import Claiming, LeaseSweep
from dynatick.engine.ports import size_in_event
from dynatick.engine.rules import SKEW_MARGIN, TICKS_PLANNED
from dynatick.engine.sharing import HandOut, SharedPolling
from dynatick.engine.wake_ups import due_by_key, send_planned
from dynatick.errors import DynatickError

# -- stuck rows --------------------------------------------------------------------------------------------------------

MAX_DEFERRED = 200  # rows in one pass


def defer_stuck(services: Services, window: Window, report: PassReport, *, hard_end: datetime) -> None:
    """Moves stuck rows out of buckets that had their final poll."""
    left = MAX_DEFERRED
    for minute, poll in list(window.stuck_polls()):
        deferred, poll.stuck = poll.stuck[:left], []
        for task_id in deferred:
            _defer(services, Bucket(minute, report.shard), task_id, report, hard_end)
        left -= len(deferred)


def _defer(services: Services, bucket: Bucket, task_id: str, report: PassReport, hard_end: datetime) -> None:
    """Moves a row to a tick after the end of this process, each time later than the last. The next tick finds that it
    no longer holds its bucket back."""
    placer, now = services.placer, services.clock()
    row = services.store.get(task_id)
    if row is None or not is_stuck(row, bucket, placer, now):
        return
    at = max(now + deferral(RowView(row).deferrals), hard_end + SKEW_MARGIN)
    report.deferred += placer.defer(row, at)


MAX_WAIT_FOR_TURN = timedelta(hours=1)
TO_DEFER = timedelta(seconds=5)  # no longer in one pass
_ROWS = 100  # that are read at once


def defer_waiting(services: Services, window: Window, report: PassReport, turns: KeyTurns) -> None:
    """Moves what waits for the turn of its limit key, or for the end of its action's pause, out of buckets that had
    their final poll: else every tick would poll those buckets again. Each goes to the tick at which its turn is
    expected, or the pause is to be looked at again."""
    end = services.clock() + TO_DEFER
    before = Counter[str]()
    for minute, ids in list(window.take_in_turn()):
        for start in range(0, len(ids), _ROWS):
            if services.clock() >= end:
                return
            rows = services.store.get_many(ids[start : start + _ROWS])
            _defer_waiting(services, [*rows.values()], Bucket(minute, report.shard), report, turns, before)


def _defer_waiting(
    services: Services,
    rows: Sequence[Row],
    bucket: Bucket,
    report: PassReport,
    turns: KeyTurns,
    before: Counter[str],
) -> None:
    now, grid = services.clock(), services.settings.grid
    moves: list[ConditionalUpdate] = []
    placed: dict[str, Bucket] = {}
    for row in rows:
        view = RowView(row)
        key, pause = view.limit_key, services.pause.actions.get(str(row.get(attr.ACTION)))
        if not view.is_open_in(bucket):
            continue
        waits = view.is_scheduled or view.is_released
        if pause is not None and (waits or (view.is_running and lease_is_over(row, now))):
            wait = pause.wait(now, grid)
        elif key is not None and waits and turns.is_limited(key):
            wait = min(turns.expected(key, before[key]), MAX_WAIT_FOR_TURN)
            before[key] += tasks_of(view.task_id)
        else:
            continue
        later = grid.bucket_of(view.shard_key, now + wait)
        later = later._replace(minute=max(later.minute, grid.tick_after(minute_of(now))))
        moves.append(move(row, later))
        placed[view.task_id] = later
    report.put_off += sum(isinstance(result, Written) for result in write_many(services.store, moves))
    services.placer.check_moves(placed)


# -- drain -------------------------------------------------------------------------------------------------------------

MAX_LEFT_BEHIND = 100  # entries that a continuation gets; if there are more, it polls from the oldest bucket on
ROUND_TIMEOUT = timedelta(seconds=1)  # for what is in flight, before a bucket is polled again
LEASE_CHECK = timedelta(seconds=2)  # while a pass waits: another tick may have closed more buckets
POLL_OPEN_AGAIN = timedelta(seconds=1)  # a pass reads so often whether it was woken meanwhile
_READ_ON, _ENTRIES = 8, 250  # pages and the entries of each, to find more of one limit key
_FOUND = 80  # entries of it, with which that is enough
TICK_RECORD_DAYS = 7

_ReadOn = tuple[list[tuple[Bucket, str, str]], Resume | None]
"""Entries with their limit keys, and from where on there may be more."""


def drain(
    services: Services, order: PassOrder, *, hard_end: datetime, start: Callable[[Order], bool] = lambda order: False
) -> PassReport:
    """Closes the buckets of the order's shard through its tick and runs what is due in them.

    ``hard_end``: when Lambda will kill the process. ``start`` starts another invocation and returns whether it could:
    recoveries, workers, and at most one continuation, if this pass leaves something for want of time, and has made
    progress.
    Raises StoreError if the table can't be reached; what was claimed is reclaimed when its lease has expired.
    """
    started = services.clock()
    bucket, by_tick = Bucket(order.tick, order.shard or 0), Recorded.BY_TICK
    report = PassReport.of(bucket, started, continuation=order.continuation, recorded=by_tick)
    token = services.new_token()
    is_to_plan = services.wake_ups is not None
    ahead = TICKS_PLANNED * services.rules.grid.tick_minutes if is_to_plan else 0
    acquired = acquire_shard(
        services.store,
        report.shard,
        order.tick,
        token=token,
        now=started,
        plan_ahead=ahead,
        woken_at=order.woken_at,
    )
    plan = partial(send_planned, services, report, acquired.to_plan)
    if acquired.cursor is None:
        plan()
        report.end(services.clock(), leased_elsewhere=True)
        return report
    window = Window(acquired.cursor, services.rules, closed_at=services.clock())
    shard = ShardLease(services.store, services.clock, window, token)
    running = _Pass(services, order, report, Budget.until(hard_end, started), shard, start)
    with running.execution:
        if is_to_plan:
            running.execution.wake_ups.submit(plan)  # in a thread, for which ``finish`` waits
        running.work()
    if not report.is_idle:
        _save_report(services, report, token)
    return report


def _save_report(services: Services, report: PassReport, token: str) -> None:
    """Writes the tick record."""
    expires = int((services.clock() + timedelta(days=TICK_RECORD_DAYS)).timestamp())
    record = tick_record_id(report.tick, report.shard, report.continuation)
    row = {attr.TASK_ID: record, **report.to_row(), attr.WRITTEN_BY: token, attr.EXPIRES_AT: expires}
    if create(services.store, row) or (earlier := services.store.get(record)) is None:
        return
    # EventBridge has sent the tick twice, and both passes had something to do. Sent again, this adds nothing.
    counts = {name: Plus(value) for name, value in report.counts().items() if value}
    exists = tuple(AtLeast(name, 0) for name in counts)
    of_both = CountsByAction.sum([CountsByAction.from_value(earlier.get(attr.BY_ACTION)), report.by_action])
    by_action = {attr.BY_ACTION: of_both.to_value()} if of_both else {}
    write(
        services.store,
        ConditionalUpdate(
            task_id=record,
            set={**counts, **by_action, **report.ending(), attr.WRITTEN_BY: token},
            conditions=(*exists, *as_read(earlier, attr.WRITTEN_BY)),
            mark=(Is(attr.WRITTEN_BY, token),),
        ),
    )


class _Pass:
    """The coordinator: the order of the steps."""

    def __init__(
        self,
        services: Services,
        order: PassOrder,
        report: PassReport,
        budget: Budget,
        shard: ShardLease,
        start: Callable[[Order], bool],
    ) -> None:
        self.services, self.order, self.report, self.budget = services, order, report, budget
        self.clock, self.shard, self.window = services.clock, shard, shard.window
        next_tick = instant_of(services.rules.grid.tick_after(minute_of(services.clock())))
        self.claiming = Claiming(
            services,
            self.window,
            report,
            budget,
            shard,
            recoveries_until=min(next_tick, budget.stop_claiming),
            lease=LimitsLease(
                services.store,
                services.clock,
                services.settings,
                report.shard,
                token=shard.token,
                until=budget.hard_end,
            ),
            start=start,
            after_events=self._after_events,
        )
        self.execution, self.expired = self.claiming.execution, self.claiming.expired
        self.sweep = LeaseSweep(self.execution, self.window, self.expired, order.swept)
        self.is_polling = self.is_reading_on = self.is_polling_open = False
        self.begins_early = services.wake_ups is not None and bool(services.rules.key_limits)
        self.woken_through = EPOCH  # for which instants open buckets were searched
        self.polls_open_again = False  # not everything there had room
        self.poll_open_at = services.clock() + POLL_OPEN_AGAIN
        self.hand_out = HandOut(self.execution, self.window, shard)
        self.polling = SharedPolling(self.claiming, self.hand_out)

    def work(self) -> None:
        execution = self.execution
        self._poll_open()
        self.polling.claim_left_behind(self.order.left)
        if not execution.in_flight and not execution.recording:
            self.expired.reclaim_rest(execution)
        polled_through = self._poll_until_nothing_is_due(self.order.resume)
        for minute in self.claiming.unmade:  # time was up before another round
            self.report.leave(Resume(minute))
        if self.report.resume or execution.too_late:
            execution.release_unbegun()
        while self.shard.is_held and not self._end():
            pass
        if self.window.cursor.closed_through > polled_through:  # another tick has closed them, and left them to this
            self.report.leave(Resume(polled_through + 1))
        self._continue()
        # A task that takes longer than is left goes to a new invocation at once, and with it all that has not begun.
        execution.wait(until=lambda: not execution.in_flight or bool(execution.too_late), end=self.budget.stop_claiming)
        execution.release_unbegun()  # a task that begins later might be cut off
        self._continue()
        execution.wait(until=execution.nothing_runs)
        execution.wait(until=lambda: not execution.starts.under_way)  # it runs what can't be started elsewhere
        self.expired.reclaim_rest(execution)
        execution.finish()
        self._release_limits()
        self._continue()
        execution.await_starts()
        execution.conclude()

    def _poll_until_nothing_is_due(self, resume: Resume | None) -> int:
        """Polls and claims in rounds: all buckets of the window; then again those in which something was due. What a
        worker may have left is polled as soon as its order is over. Returns through which minute all closed buckets
        were polled."""
        execution, window = self.execution, self.window
        polled_through = window.cursor.closed_through
        again: list[int] | None = None  # None: the first round, which polls the whole window
        worked: set[int] = set()
        left = self.hand_out.take_back()
        while True:
            minutes = window.minutes_to_poll(self.clock()) if again is None else again
            ranges = map(Segment.of, left)
            self.is_polling = True
            resume = self.polling.poll_and_claim(chain(ranges, window.segments(minutes, resume)))
            self.is_polling = False
            self.expired.start_recoveries()
            if self.report.resume is not None or not self.shard.is_held or execution.fault is not None:
                return polled_through
            worked |= self.claiming.minutes_with_work | self.claiming.take_resumed()
            if resume is None:
                worked |= self._await_more(bool(worked), polled_through)
            if not execution.may_begin():
                return polled_through
            left = self.hand_out.take_back()
            if resume is None:
                closed = window.cursor.closed_through
                again = [*sorted(worked), *range(polled_through + 1, closed + 1)]  # another tick may have closed more
                left = [order for order in left if order.bucket.minute not in worked]
                worked, polled_through = set(), closed
                stays = self._is_to_poll_open or self._waits_for_workers or self._stays_for_turns
                if not again and not left and not stays and self._end():
                    return polled_through

    def _await_more(self, has_worked: bool, polled_through: int) -> set[int]:
        """Waits after a round for what this pass stays for. Returns the minutes of buckets to be polled again."""
        execution = self.execution
        if has_worked:
            round_end = min(self.clock() + ROUND_TIMEOUT, self.budget.stop_waiting)
            execution.wait(until=execution.nothing_runs, end=round_end)
        elif self._is_to_poll_open:
            execution.wait(until=lambda: not self._is_to_poll_open, end=self.budget.stop_claiming)
        elif self._waits_for_workers:
            self._wait_for_workers(polled_through)
        elif self._stays_for_turns:
            return self._take_turns(polled_through)
        return set()

    @property
    def _waits_for_workers(self) -> bool:
        """Whether this pass stays for what workers may leave. In one thread, no time passes while it waits."""
        return bool(self.window.handed_out) and not self.services.rules.in_one_thread

    def _wait_for_workers(self, polled_through: int) -> None:
        """Waits until an order may be over, or another tick has closed more buckets."""
        self.shard.renew_by(self.clock() + LEASE_CHECK)
        self.execution.wait(
            until=lambda: (
                self.window.cursor.closed_through > polled_through
                or self.execution.fault is not None
                or not self.shard.is_held
                or not self.execution.may_begin()
            ),
            end=min(self.hand_out.next_change(), self.clock() + LEASE_CHECK, self.budget.stop_claiming),
        )

    @property
    def _stays_for_turns(self) -> bool:
        """Whether this pass stays for tasks with limit keys, which no other can begin while some of them run here."""
        turns = self.claiming.turns
        next_tick = instant_of(self.services.rules.grid.tick_after(minute_of(self.clock())))
        return turns is not None and self.claiming.may_claim() and turns.goes_on_until(next_tick)

    def _take_turns(self, polled_through: int) -> set[int]:
        """Waits while tasks with limit keys take turns, until another tick may have closed more buckets. Returns the
        minutes of the buckets to be polled again: another process had the limits lease before."""
        turns = self.claiming.turns
        assert turns is not None
        end = min(self.clock() + LEASE_CHECK, self.budget.stop_claiming)
        self.execution.wait(
            until=lambda: not self._stays_for_turns or self.window.cursor.closed_through > polled_through,
            end=end,
        )
        try:
            if not self.begins_early:  # then it reads that each second
                self.shard.read_closed()
            turns.look_at_held()
        except DynatickError as error:
            self.execution.keep_fault(error)
        if not turns.begins_anew():
            return set()
        again, turns.passed_over = turns.passed_over, set()
        self.woken_through = EPOCH
        return {minute for minute in again if minute <= self.window.cursor.closed_through}

    # -- before their tick -----------------------------------------------------------------------------------------

    @property
    def _wanted(self) -> datetime:
        """The latest instant for which this pass was woken, by its order or since."""
        return max(self.order.woken_at or EPOCH, self.window.cursor.woken_at or EPOCH)

    @property
    def _is_to_poll_open(self) -> bool:
        """Whether this pass stays to begin tasks with limit keys before their tick. In one thread, no time passes while
        it waits."""
        if not self.begins_early or not self.claiming.may_claim():
            return False
        has_come = self._wanted <= self.clock() or not self.services.rules.in_one_thread
        return self.is_polling_open or (self._wanted > self.woken_through and has_come)

    def _poll_open(self) -> None:
        """Searches the buckets that are not closed yet for tasks with limit keys that are due, if a wake-up has come
        for them. C and S know nothing of that: their ticks poll these buckets as all others."""
        if not self.begins_early or self.is_polling_open or not self.claiming.may_claim():
            return
        now, grid = self.clock(), self.services.rules.grid
        again = False
        if now >= self.poll_open_at:
            self.poll_open_at, again = now + POLL_OPEN_AGAIN, self.polls_open_again
            try:
                self.shard.read_closed()
            except DynatickError as error:
                self.execution.keep_fault(error)
                return
        if not (again or self._wanted > self.woken_through) or self._wanted > now:
            return
        self.is_polling_open, self.woken_through = True, self._wanted
        first = grid.tick_after(self.window.cursor.closed_through)
        minutes = range(first, max(first, grid.tick_at_or_after(now)) + 1, grid.tick_minutes)
        self.execution.claim(
            1,
            partial(due_by_key, self.services, self.report.shard, minutes, now),
            self._open_polled,
            self._could_not_poll_open,
        )

    def _open_polled(self, found: Sequence[tuple[Bucket, Due, str]]) -> None:
        self.is_polling_open = False
        if self.claiming.may_claim():
            refused = [one for one in found if not self.claiming.offer_due(*one)]
            self.polls_open_again = bool(refused)

    def _could_not_poll_open(self) -> None:
        self.is_polling_open = False

    # -- turns -----------------------------------------------------------------------------------------------------

    def _read_on(self) -> None:
        """Reads on in the index for a limit key of which few entries wait here."""
        turns = self.claiming.turns
        if turns is None or self.is_reading_on or not self.claiming.may_claim():
            return
        if (found := turns.to_read_on()) is not None:
            self.is_reading_on = True
            key, position = found
            through = self.window.cursor.closed_through
            self.execution.claim(
                1,
                partial(self._entries_of, key, position, through),
                partial(self._has_read_on, position),
                self._could_not_read_on,
            )

    def _entries_of(self, key: str, position: Resume, through: int) -> _ReadOn:
        """Entries with limit keys from a position on, until enough of one key are among them, and from where on there
        may be more. In an I/O thread."""
        found: list[tuple[Bucket, str, str]] = []
        minute, after, of_key = position.minute, position.after, 0
        for _ in range(_READ_ON):
            bucket = Bucket(minute, self.report.shard)
            page = self.services.store.query_bucket(bucket, after=after, limit=_ENTRIES)
            paused = self.services.pause.actions
            entries = [entry for entry in page.entries if entry.action not in paused]
            found += [(bucket, entry.task_id, entry.limit_key) for entry in entries if entry.limit_key is not None]
            of_key += sum(entry.limit_key == key for entry in entries)
            minute, after = (minute, page.after) if page.after is not None else (minute + 1, None)
            if minute > through:
                return found, None
            if of_key >= _FOUND:
                break
        return found, Resume(minute, after)

    def _has_read_on(self, since: Resume, answer: _ReadOn) -> None:
        self.is_reading_on = False
        turns, (entries, through) = self.claiming.turns, answer
        if turns is None or not self.claiming.may_claim():
            return  # they hold their buckets back, since they were passed over there
        lines = turns.begin_to_offer(since, through)
        for bucket, task_id, key in entries:
            self.claiming.offer(bucket, task_id, key, again=True)
        turns.read_through(lines, through)

    def _could_not_read_on(self) -> None:
        self.is_reading_on = False

    def _release_limits(self) -> None:
        """Releases the limits lease, unless a task still runs that it is for."""
        if self.claiming.turns is not None:
            try:
                self.claiming.turns.end()
            except DynatickError as error:
                self.execution.keep_fault(error)

    def _after_events(self) -> None:
        self._poll_open()
        self.claiming.claim_in_turn()
        self._read_on()
        if self.shard.must_renew:
            self.expired.start_recoveries()
        if self.is_polling:
            self.sweep.read_on()
        try:
            self.shard.renew()
        except DynatickError as error:  # what is in flight is still recorded
            self.execution.keep_fault(error)

    def _continue(self) -> None:
        """Starts a continuation, if this pass was cut short and a new invocation can get further."""
        report, order = self.report, self.order
        is_stopped = self.shard.is_lost or self.execution.fault is not None or report.paused
        if not report.resume or not report.made_progress or is_stopped or report.continued:
            return
        left = tuple(self.claiming.left_behind)
        is_too_much = len(left) > MAX_LEFT_BEHIND or sum(size_in_event(id_) for _, id_ in left) > MAX_ORDER_BYTES
        following = PassOrder(
            tick=order.tick,
            shard=report.shard,
            continuation=order.continuation + 1,
            resume=None if is_too_much else report.resume,
            left=() if is_too_much else left,
            woken_at=self._wanted if self._wanted > EPOCH else None,
            swept=self.sweep.position,
        )
        if order.continuation < self.services.rules.max_continuations:
            self.execution.start_others([following])
        report.continued = True

    def _end(self) -> bool:
        """The end write. False: another tick has closed more buckets, so there is more to do."""
        self.claiming.leave_turns()
        if self.report.resume is None:  # a row of which the queue doesn't take the letter may have to be deferred
            self.execution.wait(until=lambda: not self.execution.failing)
        try:
            if self.claiming.turns is not None:
                defer_waiting(self.services, self.window, self.report, self.claiming.turns)
            defer_stuck(self.services, self.window, self.report, hard_end=self.budget.hard_end)
            ended = self.shard.release(self._with_idle_ticks)
        except DynatickError as error:
            self.execution.keep_fault(error)
            return True
        if ended and not self.shard.is_lost:
            self.report.closed_through = self.window.cursor.closed_through
            self.report.drained_through = self.window.cursor.drained_through
        return ended

    def _with_idle_ticks(self, cursor: Cursor) -> Cursor:
        """The cursor with its count of idle ticks: an idle tick has no record of its own."""
        tick = str(Bucket(self.report.tick))
        cursor = count_idle_ticks(self.services.store, cursor, self.report.tick, self.services.rules.grid)
        if self.report.is_idle:
            new_tick = cursor.last_tick != tick
            return replace(
                cursor, idle_since=cursor.idle_since or tick, idle_ticks=cursor.idle_ticks + new_tick, last_tick=tick
            )
        if cursor.idle_ticks:
            self.report.idle_before = {
                attr.SINCE: cursor.idle_since,
                attr.UNTIL: cursor.last_tick,
                attr.TICKS: cursor.idle_ticks,
            }
        return replace(cursor, idle_since=None, idle_ticks=0, last_tick=tick)

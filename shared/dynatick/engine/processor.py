"""The processor function's work: one invocation of any kind (``orders`` has the kinds)."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial

from dynatick.domain.buckets import minute_of
from dynatick.engine.batches import WithBatches
from dynatick.engine.counts import PassReport
from dynatick.engine.drain import drain
from dynatick.engine.invocation import PAUSE_CHECK, Budget, Execution, PauseWatch, Services
from dynatick.engine.orders import (
    Order,
    PassOnTime,
    PassOrder,
    ReconcileOrder,
    RecoveryOrder,
    ReleaseOrder,
    ShardsOrder,
    WakeUp,
    WorkOrder,
    is_message,
    parse_event,
    send_wake_ups,
)
from dynatick.engine.placement import Placer, leave_to_pass, rejections_to
from dynatick.engine.pools import START_TIMEOUT, Jobs, LettersUntilRefused, WakeUpsUntilRefused
from dynatick.engine.ports import Actions, Clock, DeadLetters, Invoker, ReportOverdue, Store, WakeUps
from dynatick.engine.reconcile import Reconciled, read_on
from dynatick.engine.recovery import recover, release_orders, write_releases
from dynatick.engine.rules import Rules
from dynatick.engine.settings import InstallationSettings, publish_settings, read_pauses
from dynatick.engine.shards import MAX_CHILDREN, GroupReport, groups, portions, serve_group, split
from dynatick.engine.sharing import work
from dynatick.engine.wake_ups import MAX_EARLY, MAX_LATE, wake
from dynatick.errors import ConfigurationError, DynatickError, InvalidInput, NoAnswer, StoreError

_SETTINGS_FRESH_FOR = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class NotStarted:
    """An invocation that could not be started. ``shards``: those that it would have served."""

    problem: str
    shards: range = range(0)


@dataclass(kw_only=True, slots=True)
class Invoked:
    """The result of an invocation."""

    passed: PassReport | None = None
    groups: list[GroupReport] = field(default_factory=list)  # idle shards were polled here, group by group
    passed_too: list[PassReport] = field(default_factory=list)  # of shards whose own invocation could not be started
    left: list[int] = field(default_factory=list)  # such shards, for which there was no time: the next tick serves them
    recovered: PassReport | None = None
    woken: PassReport | None = None
    worked: PassReport | None = None
    released: int | None = None  # tasks that another invocation had claimed and could not release
    stale_wake_up: bool = False  # it came so late that ticks have polled its bucket: it was dropped
    malformed_wake_up: str | None = None  # why a message of the queue is no wake-up; it was dropped
    reconciled: Reconciled | None = None
    paused_tick: int | None = None  # a tick that ran nothing, because the installation is paused
    paused: bool = False  # so is this invocation
    shards: int = 1  # that it is to serve, together with the invocations that it starts
    not_started: list[NotStarted] = field(default_factory=list)
    starts_unanswered: bool = False  # a call that starts an invocation had no answer
    fault: Exception | None = None  # to be raised once this is logged, so that Lambda repeats the event
    schemas_not_published: str | None = None  # why the payload schemas are not in the settings row


@dataclass(frozen=True, slots=True)
class _Known:
    """The settings that a process keeps for its next invocations."""

    settings: InstallationSettings
    read_at: datetime
    pause_read_at: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class Processor:
    """Everything that an invocation needs but its event and its end."""

    store: Store
    actions: Actions
    dead_letters: DeadLetters
    invoker: Invoker
    rules: Rules
    clock: Clock
    new_token: Callable[[], str]
    pause: Callable[[float], None] = time.sleep
    wake_ups: WakeUps | None = None  # with Precision.SECOND
    report_overdue: ReportOverdue = lambda overdue: None
    jitter: Callable[[], float] = random.random  # of retries, in [0, 1)
    executions: list[Execution] = field(default_factory=list, init=False, compare=False)  # of the latest invocation
    _known: list[_Known] = field(default_factory=list, init=False, compare=False)  # one, once it was read

    @property
    def running(self) -> int:
        """The number of threads that still work on a task, a claim or a record after ``handle``.

        Lambda would freeze them with this process, and they would go on in a later invocation, after their lease: a
        process with such threads must end (protocol 11).
        """
        return sum(execution.running for execution in self.executions)

    def handle(self, event: object, *, hard_end: datetime) -> Invoked:
        """Carries out the event's order. ``hard_end``: when Lambda will kill this process."""
        self.executions.clear()
        try:
            order = parse_event(event, self.clock())
        except InvalidInput as error:
            if not is_message(event):
                raise
            return Invoked(malformed_wake_up=str(error))  # if this raised, the queue would deliver it again and again
        try:
            done = self._carry_out(order, hard_end)
        except Exception:
            self._start_releases(Invoked())
            raise
        self._start_releases(done)
        return done

    def _carry_out(self, order: Order, hard_end: datetime) -> Invoked:
        match order:
            case PassOrder():
                return self._pass(order, hard_end)
            case ShardsOrder():
                return self._serve_shards(order, hard_end)
            case RecoveryOrder():
                return self._recover(order, hard_end)
            case WorkOrder():
                return self._work(order, hard_end)
            case WakeUp():
                return self._wake(order, hard_end)
            case PassOnTime():
                return self._pass_on_time(order)
            case ReleaseOrder():
                end = Budget.until(hard_end, self.clock()).stop_waiting
                return Invoked(released=write_releases(self.store, order, clock=self.clock, end=end, pause=self.pause))
            case ReconcileOrder():
                return self._reconcile(order, hard_end)

    def _pass(self, order: PassOrder, hard_end: datetime) -> Invoked:
        settings = self._publish_settings()
        shards = 1 if order.shard is not None else settings.shards_ever
        if settings.pause is not None:  # as if the tick were missing: once they come again, ticks do what is due
            return Invoked(shards=shards, paused=True, paused_tick=order.tick)
        done, end = Invoked(shards=shards), Budget.until(hard_end, self.clock()).stop_claiming
        if order.woken_at is not None:  # the clock of the process that started this one may be ahead
            self._wait_until(order.woken_at)
        services = self._services(settings)
        others: Sequence[range] = ()
        if order.shard is None:  # a tick: every shard that was ever in use is served (14)
            others = portions(groups(range(1, settings.shards_ever)))
            order = replace(order, shard=0)
        starting = self._start_ranges(order.tick, others, done)
        done.passed = self._drain(services, order, done, hard_end)
        if order.shard == 0 and not self.running:
            self._publish_payload_schemas(settings, done)
        self._serve_here(services, order.tick, self._not_started(starting, others), done, hard_end, end)
        return done

    def _serve_shards(self, order: ShardsOrder, hard_end: datetime) -> Invoked:
        settings = self._publish_settings()
        shards = range(order.shards.start, min(order.shards.stop, settings.shards_ever))
        if settings.pause is not None:
            return Invoked(shards=len(shards), paused=True, paused_tick=order.tick)
        done, end = Invoked(shards=len(shards)), Budget.until(hard_end, self.clock()).stop_claiming
        own, others = split(shards)
        services = self._services(settings)
        starting = self._start_ranges(order.tick, others, done)
        self._serve_here(services, order.tick, [own], done, hard_end, end)
        self._serve_here(services, order.tick, self._not_started(starting, others), done, hard_end, end)
        return done

    def _start_ranges(self, tick: int, ranges: Sequence[range], done: Invoked) -> Jobs[bool]:
        """Starts invocations for these shards, in threads: the own shards don't wait for the answers."""
        starting: Jobs[bool] = Jobs(
            max_threads=MAX_CHILDREN, name="dynatick-start", in_one_thread=self.rules.in_one_thread
        )
        for one in ranges:
            order = PassOrder(tick=tick, shard=one.start) if len(one) == 1 else ShardsOrder(tick, one)
            starting.submit(partial(self._start, order, done, one))
        return starting

    def _not_started(self, starting: Jobs[bool], ranges: Sequence[range]) -> list[range]:
        """The ranges whose invocations could not be started, or have no answer yet."""
        end = self.clock() + START_TIMEOUT
        is_started = starting.results(is_over=lambda: self.clock() >= end)
        return [one for one, started in zip(ranges, is_started, strict=True) if started is not True]

    def _serve_here(
        self, services: Services, tick: int, ranges: Sequence[range], done: Invoked, hard_end: datetime, end: datetime
    ) -> None:
        """Serves shards in this invocation until ``end``: the idle ones first, then, one after another, the busy ones
        whose pass could not be started. The next tick serves the rest."""
        busy: list[int] = []
        for shards in (group for one in ranges for group in groups(one)):
            if self.running or self.clock() >= end:
                done.left += shards
                continue
            report = serve_group(
                services,
                tick=tick,
                shards=shards,
                end=end,
                start_pass=lambda shard: self._start(PassOrder(tick=tick, shard=shard), done, range(shard, shard + 1)),
            )
            done.groups.append(report)
            busy += report.waiting
        for shard in busy:
            if self.running or self.clock() >= end:  # a process in which a task still runs must end (11)
                done.left.append(shard)
            else:
                done.passed_too.append(self._drain(services, PassOrder(tick=tick, shard=shard), done, hard_end))
        done.fault = next((group.fault for group in done.groups if group.fault is not None), None)

    def _drain(self, services: Services, order: PassOrder, done: Invoked, hard_end: datetime) -> PassReport:
        shard = order.shard or 0
        start = partial(self._start, done=done, shards=range(shard, shard + 1))
        return drain(services, order, hard_end=hard_end, start=start)

    def _recover(self, order: RecoveryOrder, hard_end: datetime) -> Invoked:
        settings = self._publish_settings()
        if settings.pause is not None:
            return Invoked(paused=True)
        done = Invoked()
        start = partial(self._start, done=done)
        done.recovered = recover(self._services(settings), order, hard_end=hard_end, start=start)
        return done

    def _work(self, order: WorkOrder, hard_end: datetime) -> Invoked:
        settings = self._recent_settings()
        if settings.pause is not None:
            return Invoked(paused=True)
        return Invoked(worked=work(self._services(settings), order, hard_end=hard_end))

    def _wake(self, order: WakeUp, hard_end: datetime) -> Invoked:
        if order.bucket.instant < self.clock() - MAX_LATE:
            return Invoked(stale_wake_up=True)
        settings = self._recent_settings()
        if settings.pause is not None:
            return Invoked(paused=True)
        return Invoked(woken=wake(self._services(settings), order, hard_end=hard_end))

    def _pass_on_time(self, order: PassOnTime) -> Invoked:
        """Starts the pass when its instant has come. No pass lives inside a delivery of the queue, which would be
        repeated if it took long."""
        if order.at < self.clock() - MAX_LATE:
            return Invoked(stale_wake_up=True)
        done = Invoked()
        if order.at > self.clock() + MAX_EARLY:
            if self.wake_ups is not None:
                send_wake_ups(self.wake_ups, [order])
            return done
        self._wait_until(order.at)
        tick, grid = order.tick, self.rules.grid
        if order.before is not None:
            tick = grid.tick_after(minute_of(order.before)) - grid.tick_minutes
        following = PassOrder(tick=tick, shard=order.shard, woken_at=order.before)
        self._start(following, done, range(order.shard, order.shard + 1))
        return done

    def _wait_until(self, instant: datetime) -> None:
        while (wait := (instant - self.clock()).total_seconds()) > 0:
            self.pause(wait)

    def _services(self, settings: InstallationSettings) -> Services:
        return Services(
            store=self.store,
            actions=WithBatches(self.actions, self.store),
            dead_letters=LettersUntilRefused(self.dead_letters),
            rules=self.rules,
            settings=settings,
            clock=self.clock,
            new_token=self.new_token,
            placer=Placer(self.store, self.rules, settings, self.clock, leave_to_pass),
            pause=PauseWatch(
                self.store,
                self.clock,
                known_at=self._known[0].pause_read_at,
                actions=settings.paused_actions,
                in_one_thread=self.rules.in_one_thread,
            ),
            wake_ups=None if self.wake_ups is None else WakeUpsUntilRefused(self.wake_ups),
            report_overdue=self.report_overdue,
            jitter=self.jitter,
            executions=self.executions,
        )

    def _reconcile(self, order: ReconcileOrder, hard_end: datetime) -> Invoked:
        settings = self._publish_settings()
        send_letter = rejections_to(LettersUntilRefused(self.dead_letters), self.clock)
        placer = Placer(self.store, self.rules, settings, self.clock, send_letter)
        report = read_on(
            placer,
            order,
            hard_end=hard_end,
            clock=self.clock,
            pause=self.pause,
            new_token=self.new_token,
            start=lambda following: self.invoker.invoke(following.to_event()),
        )
        return Invoked(reconciled=report, fault=report.fault)

    def _recent_settings(self) -> InstallationSettings:
        """Returns settings read within the last minute, with a pause read within the last few seconds: a wake-up reads
        little else."""
        now = self.clock()
        if not self._known or now - self._known[0].read_at > _SETTINGS_FRESH_FOR:
            return self._publish_settings()
        if now - self._known[0].pause_read_at > PAUSE_CHECK:
            everything, actions = read_pauses(self.store)
            settings = replace(self._known[0].settings, pause=everything, paused_actions=actions)
            self._known[:] = [_Known(settings, self._known[0].read_at, pause_read_at=now)]
        return self._known[0].settings

    def _publish_settings(self) -> InstallationSettings:
        now = self.clock()
        published = publish_settings(
            self.store,
            self.rules.grid,
            now=now,
            actions=sorted(self.actions.names()),
            defaults=self.rules.defaults,
            max_timeout_seconds=self.rules.max_timeout_seconds,
            precision=self.rules.precision,
            processor_problem="",
        )
        self._known[:] = [_Known(published, now, pause_read_at=now)]
        return published

    def _publish_payload_schemas(self, settings: InstallationSettings, done: Invoked) -> None:
        """Called after the tasks: making schemas takes time, once in a process. If it fails, the next pass tries again;
        until then payloads are checked only when tasks run."""
        try:
            schemas = self.actions.payload_schemas()
            if schemas != settings.payload_schemas:
                publish_settings(self.store, self.rules.grid, now=self.clock(), payload_schemas=schemas)
        except (ConfigurationError, StoreError) as error:
            done.schemas_not_published = str(error)

    def _start(self, order: Order, done: Invoked, shards: range = range(0)) -> bool:
        """Starts another invocation, which is to serve these shards. If that fails, it is reported, and this one or the
        next tick does the work. After a call without an answer, no other is tried."""
        if done.starts_unanswered:
            done.not_started.append(NotStarted("an earlier call had no answer", shards))
            return False
        try:
            self.invoker.invoke(order.to_event())
        except DynatickError as error:
            if isinstance(error, NoAnswer):
                done.starts_unanswered = True
            done.not_started.append(NotStarted(str(error), shards))
            return False
        return True

    def _start_releases(self, done: Invoked) -> None:
        """Leaves to another invocation what this one has claimed and could neither begin nor release. This is tried
        even after a call without an answer: else each of these tasks would lose an attempt that was never made."""
        tried = Invoked()
        for execution in self.executions:
            for order in release_orders(execution.unreleased.values()):
                self._start(order, tried)
        done.not_started += tried.not_started

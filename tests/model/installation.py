"""The whole installation in the simulation: clients, stream and scheduler, rule, processors, their actions.

What Lambda and EventBridge do is done here: a process is killed when its time is up, an invocation that raised is made
again, a tick starts the other shards. A process that did not end is used again, with whatever it has left over.
"""

from __future__ import annotations

import math
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from itertools import count

from tests.model.environment import Environment
from tests.model.expected_task import MARGIN, Execution, ExpectedTask
from tests.model.faulty_store import QUIET, Actor, FaultyStore, Plan, Request
from tests.model.oracle import Oracle
from tests.model.simulation import Simulation
from tests.model.steps import ShortRepr
from tests.model.stream import Stream
from tests.model.table import Effect, Table
from tests.model.tracing import Trace
from tests.model.wake_up_queue import WakeUpQueue
from tests.trace import plain

from dynatick.actions.rate_limit import RateLimitedAction, RateLimits
from dynatick.client import TaskClient
from dynatick.client.doctor import Diagnosis, examine
from dynatick.domain.buckets import Bucket, Grid, instant_of, minute_of
from dynatick.domain.completion import Commit, CompleteLater, completion_token
from dynatick.domain.instants import parse_instant
from dynatick.domain.lifecycle import is_terminal
from dynatick.domain.limit_keys import parse_limits
from dynatick.domain.normalise import Defaults
from dynatick.domain.task import Row, Task, is_own_row
from dynatick.engine.ports import ActionContext, DeadLetter, Store
from dynatick.engine.processor import Invoked, Processor
from dynatick.engine.rates import RateRecords
from dynatick.engine.rules import Precision, Rules
from dynatick.engine.scheduler import Arrival, Scheduler
from dynatick.errors import DynatickError, PermanentError, RetryableError
from dynatick.testing.functions import rule_event

INDEX_LAG = 100.0  # longer than from tick to tick
THREADS = 3
SCHEDULER_TIMEOUT = 60.0
LONGEST_PRECISE = 5  # TickMinutes with Precision: second, as the template asserts
RETRY_DELAYS = (60.0, 120.0)  # Lambda's, after an asynchronous invocation that raised
CLIENTS = 2
ACTION = "log"  # of tasks that name none
LATER = CompleteLater(timedelta(seconds=240), timedelta(seconds=130))


class NotLogged(Exception):
    """An error of Powertools, or of Lambda's own logging, after the pass."""


@dataclass(frozen=True, repr=False)
class Tick(ShortRepr):
    """The course of one tick of the rule: its events, how late the first is, and ``plans`` of the processes it
    starts."""

    events: int = 1
    late: float = 0.3
    plans: tuple[Plan, ...] = ()


class Installation:
    """``put_row`` does what put-item does to ``store``."""

    def __init__(
        self,
        store: Store,
        put_row: Callable[[Row], None],
        oracle: type[Oracle] = Oracle,
        *,
        key_limits: Sequence[str] = (),
        rate_limits: Sequence[str] = (),
    ) -> None:
        self.defaults = Defaults(key_limits=parse_limits(key_limits))
        self.rate_limits = rate_limits
        self.simulation = Simulation()
        self.trace = Trace(self.simulation, INDEX_LAG, key_limits, rate_limits)
        self.simulation.on_death = self.trace.died
        self.table = Table(store, put_row, self.simulation, self.trace)
        self.oracle = oracle(self.simulation, read_row=self.table.get)
        self.oracle.limited_actions = self._limited()
        self.stream = Stream(self.simulation, self._schedule, self._note_record)
        self.table.observers += [self.oracle.observe, self.stream.observe, self._observe_entry]
        self._entered: dict[str, tuple[Actor, bool]] = {}  # by task: who gave it its bucket, and whether that was open
        self.table.allowed_lag = INDEX_LAG
        self.store = FaultyStore(self.table, self.simulation)
        self.wake_up_queue = WakeUpQueue(self.store, self._wake, self.oracle.report)
        self.precise = False  # Precision: second
        self.workers = 0  # MaxWorkers
        self.threads = THREADS
        self.rules = self._rules(Grid())
        self.clients = self._clients()
        self.hand = Actor(self.simulation, "by hand", kind="hand")
        self.expiry = Actor(self.simulation, "time to live", kind="expiry")
        self.restorer = Actor(self.simulation, "restore", kind="restore")
        self.dead_letters_refused = False  # by the dead-letter queue
        self.is_faultless = False  # no more faults: every action succeeds, in its time
        self.actors: list[Actor] = []
        self.reconciled: list[tuple[int, int]] = []  # found, failed
        self.invocations: list[Invoked] = []  # of processors, those that were logged
        self.ended: list[bool] = []  # of each process that its own entry point ended: whether the invocation had raised
        self.used_after_error = 0  # invocations in a process of which the one before had raised
        self._plans: deque[Plan] = deque()  # of the processes that start next
        self._idle: list[Environment] = []  # the one that was used last at the end
        self._retired = 0  # deployments whose environments are used no more
        self._tokens = count()
        self._environments = count()
        self._scheduler = self._new_scheduler()

    def _note_record(self, effect: Effect) -> None:
        if not is_own_row(effect.task_id):
            self.trace.record(effect)

    def _rules(self, grid: Grid) -> Rules:
        precise = self.precise and grid.tick_minutes <= LONGEST_PRECISE
        return Rules(
            grid=grid,
            defaults=self.defaults,
            precision=Precision.SECOND if precise else Precision.TICK,
            index_lag=timedelta(seconds=INDEX_LAG),
            threads=self.threads,
            max_workers=self.workers,
            limited_actions=frozenset(self._limited()),
        )

    def _limited(self) -> Sequence[str]:
        """The names of the actions with a rate limit."""
        return [limit.partition("=")[0] for limit in self.rate_limits]

    def _wake_ups(self) -> WakeUpQueue | None:
        return self.wake_up_queue if self.rules.precision is Precision.SECOND else None

    def _clients(self) -> list[TaskClient]:
        return [
            TaskClient(self.store, clock=self._clock, check_actions=False, settings_ttl_seconds=120.0)
            for _ in range(CLIENTS)
        ]

    def _clock(self) -> datetime:
        return self.simulation.my_process().clock()

    # -- what is done from outside -------------------------------------------------------------------------------------

    def reconfigure(self, *, precise: bool | None = None, workers: int | None = None, **changes: int) -> None:
        """A redeployment with another grid, precision, or number of workers."""
        grid, self.precise = self.rules.grid, self.precise if precise is None else precise
        self.workers = self.workers if workers is None else workers
        self.rules = self._rules(Grid(**{"tick_minutes": grid.tick_minutes, "shard_count": grid.shard_count} | changes))
        minutes = self.rules.grid.tick_minutes
        self.oracle.longest_interval = max(self.oracle.longest_interval, minutes)
        self.oracle.shortest_interval = min(self.oracle.shortest_interval, minutes)
        self._scheduler = self._new_scheduler()
        self._retire()

    def put(self, task: ExpectedTask, attributes: Mapping[str, object]) -> None:
        """put-item, by hand."""
        row = {"taskId": task.task_id, "expected": task.number, **attributes}
        old = self.table.get(task.task_id)
        self.table.put(self.hand, row)
        task.unseen |= old is not None and row.get("status") not in (None, "scheduled")

    def send_request(
        self, request: Request, do: Callable[[TaskClient], object], *, plan: Plan = QUIET, client: int = 0
    ) -> Request:
        """A client does something, with its own process."""
        kind = "doctor" if request.operation == "doctor" else "client"
        actor = Actor(self.simulation, f"client, {request.operation}", kind=kind, plan=plan, request=request)

        def work() -> None:
            try:
                request.answer = do(self.clients[client])
            except DynatickError as error:
                request.answer = error.with_traceback(
                    None
                )  # nothing of what has ended waits in the simulation any more
            actor.finished = True

        self._spawn(actor, work)
        return request

    def ticks(self, ticks: Sequence[Tick]) -> None:
        """Time goes on, tick by tick of the grid in force."""
        for tick in ticks:
            minute = self.rules.grid.tick_after(minute_of(self.simulation.instant))
            self.simulation.run_until(self.oracle.seconds(instant_of(minute)))
            self.fire(minute, tick)

    def fire(self, minute: int, tick: Tick) -> None:
        """The rule's events for a tick."""
        event = rule_event(instant_of(minute))
        self._plans.extend(tick.plans)
        for n in range(tick.events):
            self._process(event, delay=tick.late * (n + 1))

    def reconcile(self, plan: Plan = QUIET) -> None:
        self._plans.append(plan)
        self._process({"dynatick": {"reconcile": True}})

    def examine(self, client: TaskClient, *, repair: bool) -> Diagnosis:
        """The doctor, as its own command calls it; to be asked of a client."""
        return examine(client.store, client.settings(), clock=self._clock, repair=repair, pause=self.simulation.sleep)

    def expire(self) -> None:
        """Time to live: whatever carries an expiry is deleted some day."""
        for row in self.table.everything():
            if "expiresAt" in row and not is_own_row(row["taskId"]):
                self.table.delete(self.expiry, str(row["taskId"]))

    def restore(self, ago: float, *, own: bool, tasks: bool) -> None:
        """Everything stops; then cursors and settings, tasks, or both are what they were, and all starts anew."""
        then = self.table.as_of(self.simulation.now - ago)
        for actor in self.actors:
            actor.kill()
        self._retire()
        self.trace.add("restore", self.restorer)
        self.pass_time(2.0)  # requests that are on their way arrive
        for row in self.table.everything():
            task_id = str(row["taskId"])
            if (own if is_own_row(task_id) else tasks) and task_id not in then:
                self.table.delete(self.restorer, task_id)
        for task_id, row in then.items():
            now = self.table.get(task_id)
            if own and is_own_row(task_id):
                self.table.put(self.restorer, row)
            elif tasks and not is_own_row(task_id):
                self.table.put(self.restorer, {**row, "expected": self.oracle.restored(row, now).number})
        for row in self.open_rows():  # some may lie where no tick polls any more, and their records are lost
            self.oracle.task_of(row).unseen = True
        self.stream.start_anew()
        self.wake_up_queue.forget()
        self.table.index_anew()
        self.clients, self._scheduler = self._clients(), self._new_scheduler()

    def plan(self, plans: Sequence[Plan]) -> None:
        """The course of the processes that start next, schedulers included."""
        self._plans.extend(plans)

    def pass_time(self, seconds: float) -> None:
        self.simulation.run_until(self.simulation.now + seconds)

    # -- processes -----------------------------------------------------------------------------------------------------

    def _spawn(self, actor: Actor, work: Callable[[], None], *, delay: float = 0.0) -> None:
        self.actors = [a for a in self.actors if a.threads and not a.dead]
        self.actors.append(actor)
        actor.began = self.simulation.now + delay
        self.simulation.spawn(actor, work, delay=delay)

    def _next_plan(self) -> Plan:
        return QUIET if self.is_faultless or not self._plans else self._plans.popleft()

    def _process(self, event: Mapping[str, object], *, delay: float = 0.0, tries: int = 0) -> None:
        plan = self._next_plan()
        actor = Actor(self.simulation, f"processor {event}", kind="processor", plan=plan, woken="Records" in event)

        def work() -> None:
            environment = self._idle.pop() if self._idle and not plan.cold else self._environment()
            continuation = self._retired
            end = actor.ends = self.simulation.now + plan.timeout
            actor.order_ends = self._end_of_order(event)
            self.trace.begin(actor, event, environment.number)
            self.simulation.at(end, lambda: None if actor.finished else actor.kill())
            for execution in self.oracle.executions.values():
                if execution.process in environment.actors:
                    self.oracle.check_thawed(execution)
            self.used_after_error += environment.raised
            try:
                environment.invoke(actor, event, lambda: end - self.simulation.now)
            except (DynatickError, NotLogged):
                actor.raised = True
                if tries < len(RETRY_DELAYS):
                    self._process(event, delay=RETRY_DELAYS[tries], tries=tries + 1)
            actor.finished = True
            ended = {"raised": actor.raised, "left": len(actor.threads) - 1}
            self.trace.add("ended", actor, **ended, unrepaired=actor.unrepaired)
            if continuation == self._retired:
                self._idle.append(environment)
            else:
                environment.end()

        self._spawn(actor, work, delay=delay)

    def _end_of_order(self, event: Mapping[str, object]) -> float:
        """Until when a recovery of tasks with a rate limit goes on."""
        order = event.get("dynatick")
        recover = order.get("recover", {}) if isinstance(order, Mapping) else {}
        return self.oracle.seconds(parse_instant(recover["until"], "until")) if "until" in recover else math.inf

    def _environment(self) -> Environment:
        processor = Processor(
            store=self.store,
            actions=_Actions(self),
            dead_letters=self,
            invoker=self,
            rules=self.rules,
            clock=self._clock,
            new_token=self._new_token,
            pause=self.simulation.sleep,
            wake_ups=self._wake_ups(),
            report_overdue=self.oracle.observe_overdue,
        )
        end = partial(self._end_process, processor)
        return Environment(processor, self._clock, self._log, end, next(self._environments))

    def _new_token(self) -> str:
        return f"token-{next(self._tokens)}"

    def new_rate_limits(self) -> RateLimits:
        """Those of an environment, as it has them for all of its invocations."""
        return RateLimits(
            self.rate_limits,
            clock=self._clock,
            horizon=60.0 * self.rules.grid.tick_minutes,
            records=RateRecords(self.store, self._new_token),
        )

    def _retire(self) -> None:
        """Lambda uses no environment of an earlier deployment."""
        self._retired += 1
        while self._idle:
            self._idle.pop().end()

    def _log(self, invoked: Invoked) -> None:
        self.invocations.append(invoked)
        if invoked.reconciled is not None:
            self.reconciled.append((invoked.reconciled.found, invoked.reconciled.failed))
            self.store.actor.unrepaired = invoked.reconciled.failed
        if self.store.actor.plan.unlogged:
            raise NotLogged

    def _end_process(self, processor: Processor) -> None:
        actor = self.store.actor
        self.ended.append(sys.exc_info()[1] is not None)
        left = actor.ends - self.simulation.now
        if left > actor.plan.timeout / 20 + MARGIN:
            self.oracle.report(f"a process ends {left:.0f} s before its time, with {processor.running} in flight")
        actor.die()

    def _schedule(self, batch: Sequence[Arrival], answered: Callable[[frozenset[str] | None], None]) -> None:
        plan = self._next_plan() if self._plans else Plan(seed=0 if self.is_faultless else self.stream.random_seed())
        actor = Actor(self.simulation, "scheduler", kind="scheduler", plan=plan)
        answers: list[frozenset[str] | None] = []

        def answer(failed: frozenset[str] | None) -> None:
            if not answers:
                answers.append(failed)
                answered(failed)

        def work() -> None:
            try:
                names = ("taskId", "taskDateTime")
                shown = [[plain(name, arrival.new.get(name)) for name in names] for arrival in batch]
                self.trace.begin(actor, {"stream": shown})
                failed = self._scheduler.handle({"Records": [_record(arrival) for arrival in batch]}).failed
            except DynatickError:
                answer(None)
                return
            actor.finished = True
            self.trace.add("ended", actor, raised=bool(failed), left=0)
            answer(frozenset(key for key, _ in failed))

        def end() -> None:
            actor.kill()
            answer(None)

        self._spawn(actor, work)
        # A scheduler that was killed on the way doesn't answer until its time is up.
        self.simulation.at(self.simulation.now + min(actor.plan.timeout, SCHEDULER_TIMEOUT), end)

    def _new_scheduler(self) -> Scheduler:
        return Scheduler(
            store=self.store,
            dead_letters=self,
            rules=self.rules,
            clock=self._clock,
            decode=lambda row: row,
            wake_ups=self._wake_ups(),
        )

    def _wake(self, message: str) -> None:
        """The queue of wake-ups delivers a message; also after a switch of the precision."""
        self._process({"Records": [{"body": message}]})

    # -- what a processor asks for: invoker, actions, dead letters -----------------------------------------------------

    def invoke(self, event: Mapping[str, object]) -> None:
        self.store.call(lambda by: self._process(event, delay=0.1), self._not_invoked, lambda _: self._not_invoked())

    @staticmethod
    def _not_invoked() -> None:
        raise DynatickError("the invocation could not be started")

    def send(self, letters: Sequence[DeadLetter]) -> Sequence[bool]:
        def take(by: Actor) -> Sequence[bool]:
            if not self.dead_letters_refused:
                self.trace.letters(by, letters)
            self.oracle.take_dead_letters(letters, refused=self.dead_letters_refused)
            return [not self.dead_letters_refused] * len(letters)

        nothing = [False] * len(letters)
        return self.store.call(take, lambda: nothing, lambda _: nothing)

    def names(self) -> Sequence[str]:
        return [ACTION, *self._limited()]

    def payload_schemas(self) -> Mapping[str, str]:
        return {}

    def timeout_seconds(self, task: Task) -> int | None:
        return task.timeout_seconds

    def run(self, task: Task, context: ActionContext) -> object:
        """An action does what its task's script says."""
        actor = self.store.actor
        execution = self.oracle.begin(task, context, actor, self.table.get(task.task_id))
        token = str(task.lease)
        self.trace.add("begin", actor, id=task.task_id, token=token, attempt=context.attempt, run=context.run)
        script = execution.task.script
        does = script[min(context.attempt, len(script)) - 1]
        if self.is_faultless and does != "slow":
            does = "ok"
        match does:
            case "slow":
                self.simulation.sleep(15.0)
            case "long":  # beyond the next tick
                self.simulation.sleep(70.0)
            case "hang":
                self.simulation.sleep(1e6)
            case "poison":
                actor.die()
            case "later":
                self.oracle.tokens.setdefault(task.task_id, []).append(completion_token(task.lease, task.task_id))
                self.simulation.sleep(5.0)  # it may be used before its handler returns
                self._end(execution, execution.result or "later")
                return LATER
            case "commit":
                self._end(execution, "ok")
                execution.commits = True
                return Commit([{"Put": {"TableName": "effects", "Item": {"id": context.idempotency_key}}}])
            case "error":
                self._end(execution, "error")
                raise RetryableError("not this time")
            case "permanent":
                self._end(execution, "permanent")
                raise PermanentError("never")
        self.simulation.sleep(0.01)
        self._end(execution, "ok")
        return {"attempt": context.attempt}

    def _end(self, execution: Execution, result: str) -> None:
        self.oracle.end(execution, result)
        self.trace.add("end", self.store.actor, id=execution.task.task_id, token=execution.token, result=result)

    # -- at rest -------------------------------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Returns whether nothing runs and nothing is on its way, but for what the stream keeps back."""
        works = any(actor.threads and not actor.frozen for actor in self.actors)
        return not works and not self.store.under_way and self.stream.is_idle

    def wait_until_idle(self, maximum: float = 400.0) -> None:
        """Waits until nothing runs."""
        end = self.simulation.now + maximum
        while not self.is_idle and self.simulation.now < end:
            event = self.simulation.next_event()
            self.simulation.run_until(end if event is None else min(event, end))

    def open_rows(self) -> list[Row]:
        """Tasks that have not ended, and schedules that are to run."""
        return [row for row in self.table.everything(open_only=False) if _is_open(row)]

    def overlooked(self) -> list[Row]:
        """Open tasks that no tick will poll: lost, but for the scheduler and reconcile."""
        return [row for row in self.open_rows() if not self._is_ahead(row, "drainedThrough")]

    def waits_for_stream(self, row: Row) -> bool:
        """Returns whether the stream keeps back the record of a row that only the scheduler is to find (5, 7, 8).

        That is one without a bucket, or one that was written into a closed bucket by a client or by hand, or by a
        process that died, or could not read C, before it had checked that. Once the stream has sent all that it has,
        no row is excused; a scheduler's never is, for the records of one that fails are sent again until one succeeds.
        """
        task_id = str(row["taskId"])
        if not self.stream.keeps_back(task_id):
            return False
        if "taskDateTime" not in row:
            return True
        by, was_open = self._entered[task_id]
        if was_open or by.kind == "scheduler":
            return False
        checks = by.kind == "processor" or (by.kind == "doctor" and not by.plan.faults)
        return not checks or by.raised or not by.finished or bool(by.threads)

    def _is_ahead(self, row: Row, watermark: str) -> bool:
        """Returns whether the row's bucket is one of the ticks', after a watermark."""
        settings, bucket = self.table.get("_dynatick#settings"), Bucket.canonical(row.get("taskDateTime"))
        if bucket is None or bucket.shard >= (int(str(settings["shardsEver"])) if settings else 1):
            return False
        cursor = self.table.get(f"_dynatick#cursor#{bucket.shard}")
        return cursor is None or str(Bucket(bucket.minute)) > str(cursor[watermark])

    def _observe_entry(self, by: object, effect: Effect) -> None:
        assert isinstance(by, Actor)
        old, new = effect.old, effect.new
        if new is not None and (old is None or _place_in_index(old) != _place_in_index(new)):
            is_installed = self.table.get("_dynatick#settings") is not None  # clients insert nothing before that
            self._entered[effect.task_id] = by, is_installed and self._is_ahead(new, "closedThrough")


class _Actions:
    """The actions of one environment: those of the installation, with the rate limits as its processes keep them."""

    def __init__(self, of: Installation) -> None:
        self._of = of
        self._limits = of.new_rate_limits()
        self.names, self.payload_schemas, self.timeout_seconds = of.names, of.payload_schemas, of.timeout_seconds

    def run(self, task: Task, context: ActionContext) -> object:
        return RateLimitedAction(task.action, self._of, self._limits).run(task, context)


def _record(arrival: Arrival) -> Mapping[str, object]:
    return {"dynamodb": {"SequenceNumber": arrival.key, "NewImage": arrival.new, "OldImage": arrival.old}}


def _place_in_index(row: Row) -> tuple[object, object]:
    return row.get("taskDateTime"), row.get("outcome")


def _is_open(row: Row) -> bool:
    is_paused = (
        row.get("status") == "recurring" and row.get("scheduleState") == "DISABLED" and "taskDateTime" not in row
    )
    return not is_own_row(row["taskId"]) and not is_terminal(row) and not is_paused

"""Days of an installation, with all that happens in them: tasks, schedules, batches, limit keys; deployments, outages,
pauses, processes that are killed.

The installation, its faults and its oracle are those of the model (tests/model); here it lives for days instead of
minutes. Three judges see it: the oracle, the replay of its trace by the rules, and the windows in which runs must
begin.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from random import Random
from typing import Any

from proof.replay import refusal_of
from proof.windows import Report, Ticks, judge
from tests.model.batch_oracle import BatchOracle
from tests.model.completion import complete_all, complete_schedules
from tests.model.expected_task import MARGIN, Execution, ExpectedTask
from tests.model.faulty_store import FAULTS, QUIET, REFUSE, Actor, Fault, Plan, Request
from tests.model.installation import Installation, Tick
from tests.model.oracle import Oracle
from tests.model.schedule_oracle import ScheduleOracle
from tests.model.simulation import Process
from tests.model.standins import inside
from tests.model.table import Effect
from tests.model.tables import in_memory
from tests.sandbox.limits import broken

from dynatick.client import TaskClient
from dynatick.domain import attributes as attr
from dynatick.domain.batches import then_id
from dynatick.domain.buckets import instant_of, minute_of
from dynatick.domain.instants import format_instant
from dynatick.domain.limit_keys import parse_limits
from dynatick.domain.normalise import Defaults
from dynatick.domain.task import Row, Status, Task, is_own_row
from dynatick.engine.ports import ActionContext
from dynatick.errors import DynatickError, StoreError, TaskExists

DAY = 1440  # minutes
LATE = 60.0  # seconds after its tick within which a task must begin
RESTING = 130.0  # seconds until the leases of a process that was cut off have expired
CACHED = 150.0  # seconds for which a client goes by the settings before a deployment, at most
REPLACED = 15 * 60.0  # seconds after which a schedule is in a bucket of the ticks since a deployment
PRUNED = 360  # minutes, after which the oracle does not compare with what has ended before
ENDED = 2 * 3600.0  # seconds
LAST_RUN = 12  # minutes before the end
STRICT, LOOSE = ("tenant=1", "host=2:30/m"), ("tenant=2", "host=4:60/m")
KEYS = ("tenant:a", "tenant:a", "tenant:b", "host:x")
SCRIPTS = (
    *(("ok",),) * 40,
    *(("error", "ok"),) * 4,
    ("commit",),
    ("permanent",),
    ("slow",),
    ("poison", "ok"),
    ("hang", "ok"),
)
OF_MEMBERS = [script for script in SCRIPTS if "commit" not in script]
POLICIES = (None, {"maximumRetryAttempts": 5, "minBackoffSeconds": 1})
SCHEDULES: Mapping[str, Mapping[str, Any]] = {
    "cron(0/5 * * * ? *)": {"catch_up": "all", "overlap": "allow"},
    "cron(30 5 * * ? *)": {"catch_up": "all", "overlap": "allow", "timezone": "Asia/Kolkata"},
    "rate(7 minutes)": {"catch_up": "latest", "overlap": "skip"},
}
TABLE_DOWN, NO_TICKS, PAUSED = "table down", "no ticks", "paused"
OUTAGES = {TABLE_DOWN: (1, 40), NO_TICKS: (3, 300), PAUSED: (5, 120)}  # minutes


@dataclass
class DaysOracle(BatchOracle):
    """Tasks and schedules are those with a number; the others are batches, their packs, members and followers.

    ``numbered``: their numbers; ``holders``: processes that have claimed a pack or an occurrence.
    """

    numbered: set[int] = field(default_factory=set)
    holders: set[object] = field(default_factory=set)

    def task_of(self, row: Row) -> ExpectedTask:
        return Oracle.task_of(self, row) if "expected" in row else super().task_of(row)

    def observe(self, by: object, effect: Effect) -> None:
        row = effect.new or effect.old or {}
        if row.get(attr.STATUS) == Status.RUNNING and row.keys() & {attr.PACK, attr.SCHEDULE_ID}:
            self.holders.add(by)
        numbered = "expected" in row or (is_own_row(effect.task_id) and "#pack#" not in effect.task_id)
        (Oracle if numbered else BatchOracle).observe(self, by, effect)

    def begin(self, claimed: Task, context: ActionContext, process: Actor, row: Row | None) -> Execution:
        kind = Oracle if "expected" in claimed.attributes else BatchOracle
        execution = kind.begin(self, claimed, context, process, row)
        execution.began_at = self.simulation.now
        return execution

    def check_thawed(self, execution: Execution) -> None:
        if execution.task.number in self.numbered:
            Oracle.check_thawed(self, execution)

    def single_tasks(self) -> Sequence[ExpectedTask]:
        return [task for task in self.tasks if task.number in self.numbered or "#1#" in task.task_id]


@dataclass(kw_only=True)
class Due:
    """A run that is due. ``answered``: when its insert was; ``since``: when its tick may come first, if known."""

    of: str
    at: float
    answered: float = math.inf
    since: float | None = None
    may: bool = False


@dataclass(frozen=True, kw_only=True)
class DaysRun:
    """How some days went. ``inserted``: what, and how many; ``outages``: of each kind, their number and minutes;
    ``events``: that the replay accepted, None if not all."""

    days: float
    inserted: Counter[str]
    executions: int
    ticks: int
    deployments: int
    killed: int
    outages: Mapping[str, Sequence[int]]
    windows: Report
    events: int | None
    problems: Sequence[str]
    cpu_seconds: float


def simulate_days(days: float, seed: int = 0) -> DaysRun:
    """Raises nothing that goes wrong with the product: it is among the problems."""
    return _Days(days, seed).run()


class _Days:
    def __init__(self, days: float, seed: int) -> None:
        store, put, _ = in_memory()
        self.minutes = round(days * DAY)
        self.dice = Random(f"days {seed}")
        self.model = Installation(store, put, DaysOracle, key_limits=LOOSE)
        oracle = self.model.oracle
        assert isinstance(oracle, DaysOracle)
        self.oracle, self.simulation = oracle, self.model.simulation
        self.simulation.on_death = self._died
        self.inserted: Counter[str] = Counter()
        self.due: list[Due] = []
        self.ticks: list[float] = []
        self.cut_off: list[tuple[float, float]] = []  # times in which a tick need not have begun what was due
        self.holders_cut_off: list[tuple[float, float]] = []  # of those that held a pack or an occurrence
        self.table_down: list[tuple[float, float]] = []
        self.intervals: list[tuple[float, int]] = []  # since when which TickMinutes are in force
        self.outages = {kind: list[int]() for kind in OUTAGES}
        self.loosened_at = math.inf
        self.killed = self.deployments = 0
        self.ended: list[Execution] = []
        self.batches: list[str] = []

    def run(self) -> DaysRun:
        began = time.process_time()
        with inside(self.simulation):
            self._live()
            read = self.simulation.now
            self._complete()
            events = self.model.trace.events
            refused = None if self.oracle.violations else refusal_of(events)
        windows = judge(self._account(read))
        problems = [*self.oracle.violations, *windows.problems]
        problems += [] if refused is None else [f"the replay of its trace: {refused}"]
        return DaysRun(
            days=self.minutes / DAY,
            inserted=self.inserted,
            executions=len(self.oracle.executions),
            ticks=len(self.ticks),
            deployments=self.deployments,
            killed=self.killed,
            outages=self.outages,
            windows=windows,
            events=None if refused or self.oracle.violations else len(events),
            problems=problems,
            cpu_seconds=time.process_time() - began,
        )

    # -- what happens --------------------------------------------------------------------------------------------------

    def _live(self) -> None:
        first = minute_of(self.simulation.start) + 1
        self._deploy(tick_minutes=1, shard_count=2, key_limits=STRICT)
        down = dict.fromkeys(OUTAGES, 0)  # until which minute
        for minute in range(first, first + self.minutes):
            self.simulation.run_until(self.oracle.seconds(instant_of(minute)))
            self._change(minute, first, down)
            if minute == first + 2:
                self._insert_schedules(first + self.minutes)
            if minute % self.model.rules.grid.tick_minutes == 0 and minute >= down[NO_TICKS]:
                self._tick(minute)
            if minute > first + 2:
                self._insert_some()
            if minute % PRUNED == 0:
                self._prune()

    def _change(self, minute: int, first: int, down: dict[str, int]) -> None:
        """Deployments, and the beginnings and ends of outages."""
        for kind, (shortest, longest) in OUTAGES.items():
            if minute == down[kind]:
                self._end_outage(kind)
            if minute > first + 10 and minute > down[kind] and self.dice.random() < 1 / 1200:
                length = self.dice.randint(shortest, longest)
                down[kind] = minute + length
                self.outages[kind].append(length)
                self._begin_outage(kind, length)
        if minute > first + 10 and self.dice.random() < 1 / 700:
            self._deploy(
                tick_minutes=self.dice.choice((1, 1, 2, 5)),
                shard_count=self.dice.choice((1, 2, 3)),
                precise=self.dice.random() < 0.5,
                workers=self.dice.choice((0, 0, 1)),
                key_limits=STRICT if minute < first + self.minutes // 2 else LOOSE,
            )
            self.deployments += 1

    def _deploy(self, *, key_limits: Sequence[str], **settings: Any) -> None:
        now, before = self.simulation.now, self.model.rules.grid.tick_minutes
        self.model.defaults = Defaults(key_limits=parse_limits(key_limits))
        self.model.reconfigure(**settings)
        self.intervals.append((now, settings["tick_minutes"]))
        if key_limits == LOOSE:
            self.loosened_at = min(self.loosened_at, now)
        if settings["tick_minutes"] != before:  # schedules lie in buckets of the former ticks
            self.cut_off.append((now, now + REPLACED))

    def _begin_outage(self, kind: str, minutes: int) -> None:
        now, end = self.simulation.now, self.simulation.now + 60.0 * minutes
        if kind == TABLE_DOWN:
            self.model.store.always = REFUSE
            self.table_down.append((now, end))
            self.cut_off.append((now, end + RESTING))
        elif kind == PAUSED:
            self.cut_off.append((now, math.inf))
            self.oracle.pauses.append((now - MARGIN, math.inf))
            self._repeat("pause", lambda c: c.operations.pause(reason="as planned"), lambda: None)

    def _end_outage(self, kind: str) -> None:
        if kind == TABLE_DOWN:
            self.model.store.always = None
        elif kind == PAUSED:
            self._repeat("resume", lambda c: c.operations.resume(), self._resumed)

    def _resumed(self) -> None:
        n = next(n for n, (_, end) in enumerate(self.cut_off) if end == math.inf)
        self.cut_off[n] = self.cut_off[n][0], self.simulation.now + 10.0
        self.oracle.pauses[-1] = self.oracle.pauses[-1][0], self.simulation.now + MARGIN

    def _tick(self, minute: int) -> None:
        chance, plan, late = self.dice.random(), QUIET, 0.3
        if chance < 0.02:
            faults = [
                Fault(self.dice.randint(1, 40), self.dice.choice(FAULTS), self.dice.choice((3.0, 50.0)))
                for _ in range(self.dice.randint(1, 2))
            ]
            plan = Plan(seed=self.dice.randint(1, 9999), faults=tuple(faults), skew=self.dice.choice((0.0, 2.0, -2.0)))
            self.cut_off.append((self.simulation.now, self.simulation.now + 120 + RESTING))
        elif chance < 0.1:
            late = self.dice.uniform(1, 50)
        events = 2 if chance > 0.98 else 1
        self.ticks.append(self.simulation.now + late)
        self.model.fire(minute, Tick(events=events, late=late, plans=(plan,)))

    def _died(self, process: Process) -> None:
        assert isinstance(process, Actor)
        self.model.trace.died(process)
        if process.kind == "processor" and not process.finished:
            self.killed += 1
            end = process.ends if process.ends < math.inf else self.simulation.now
            self.cut_off.append((process.began, end + 10.0))
            if process in self.oracle.holders:
                self.holders_cut_off.append((process.began, end + 10.0))

    # -- what is inserted ----------------------------------------------------------------------------------------------

    def _insert_schedules(self, last: int) -> None:
        start, end = minute_of(self.simulation.instant) + 5, last - LAST_RUN
        times = {"start_date": format_instant(instant_of(start)), "end_date": format_instant(instant_of(end))}
        for number, (expression, options) in enumerate(SCHEDULES.items()):
            named = [minute for minute in range(start, end + 1) if _names(expression, minute, start)]
            if not named:
                continue  # it is refused
            name, must_run = f"schedule-{number}", options["overlap"] == "allow"
            task = self._expect(name, ("ok",), None)
            task.schedule = ScheduleOracle(task, self.oracle)
            given = {**options, **times, "attributes": {"expected": task.number}}
            insert = partial(_insert_schedule, name=name, expression=expression, given=given)
            self._repeat("insert", insert, lambda: None, tasks={name: task})
            self.inserted["occurrences"] += len(named) if must_run else 0
            for at in (self.oracle.seconds(instant_of(minute)) for minute in named):
                self.due.append(Due(of=name, at=at, since=at, may=not must_run))

    def _insert_some(self) -> None:
        chance = self.dice.random()
        if chance < 0.06:
            for _ in range(self.dice.choice((1, 1, 1, 8))):
                self._later(self._insert_task)
        elif chance < 0.09:
            for _ in range(self.dice.choice((1, 5, 12))):
                self._later(self._put_keyed)
        elif chance < 0.095:
            self._later(self._load_batch)

    def _later(self, what: Any) -> None:
        """At some second of this minute."""
        self.simulation.at(self.simulation.now + self.dice.uniform(0.5, 59.0), what)

    def _time(self) -> datetime:
        minutes = self.dice.choice((0, 1, 2, 5, 30, 240, 1000))
        at = self.simulation.instant + timedelta(minutes=minutes, seconds=self.dice.uniform(0, 60))
        return at.replace(microsecond=0)

    def _insert_task(self) -> None:
        task_id, at = self._new_id("tasks"), self._time()
        policy, script = self.dice.choice(POLICIES), self.dice.choice(SCRIPTS)
        seconds = self.oracle.seconds(at)
        task = self._expect(task_id, script, policy, not_before=seconds, due=seconds)
        due = Due(of=task_id, at=seconds)
        self.due.append(due)
        self._repeat(
            "insert",
            lambda c: c.insert(task_id, due_at=at, retry_policy=policy, attributes={"expected": task.number}),
            lambda: self._answered(due),
            tasks={task_id: task},
            plan=self._client_plan(),
        )

    def _put_keyed(self) -> None:
        """A raw row with a limit key, which has to wait for its turn."""
        task_id, at = self._new_id("tasks with keys"), self._time()
        task = self._expect(task_id, self.dice.choice(SCRIPTS[:44]), None)
        task.not_before = task.due = self.oracle.seconds(at)
        self.due.append(Due(of=task_id, at=task.due, may=True))
        self.model.put(task, {"dueAt": format_instant(at), "limitKey": self.dice.choice(KEYS), "action": "log"})

    def _load_batch(self) -> None:
        batch_id, at, members = self._new_id("batches"), self._time(), self.dice.choice((3, 20, 60))
        seconds = self.oracle.seconds(at)
        self.oracle.begin_batch(batch_id, members, maximum=4, not_before=seconds)
        self.batches.append(batch_id)
        self.inserted["members"] += members
        due = [Due(of=task.task_id, at=seconds) for task in self.oracle.members[batch_id]]
        for task in self.oracle.members[batch_id]:
            task.script = self.dice.choice(OF_MEMBERS)
        self.due += due
        self._repeat(
            "load",
            lambda c: c.batches.insert(
                ({"n": n} for n in range(members)), batch_id=batch_id, action="log", due_at=at, then={"action": "log"}
            ),
            lambda: [self._answered(one) for one in due],
            plan=self._client_plan(),
        )
        self.due.append(Due(of=then_id(batch_id), at=seconds, may=True))

    def _new_id(self, kind: str) -> str:
        self.inserted[kind] += 1
        return f"{kind.replace(' ', '-')}-{self.inserted[kind]}"

    def _expect(self, task_id: str, script: Sequence[str], policy: Any, **known: Any) -> ExpectedTask:
        maximum, backoff = (policy or {}).get("maximumRetryAttempts", 3) + 1, (policy or {}).get("minBackoffSeconds", 5)
        task = self.oracle.expect(task_id, script=script, maximum=maximum, backoff=backoff, **known)
        self.oracle.numbered.add(task.number)
        return task

    def _client_plan(self) -> Plan:
        if self.dice.random() > 0.05:
            return QUIET
        return Plan(seed=self.dice.randint(1, 9999), faults=(Fault(self.dice.randint(1, 4), self.dice.choice(FAULTS)),))

    def _repeat(
        self, operation: str, do: Any, done: Any, *, tasks: Mapping[str, ExpectedTask] | None = None, plan: Plan = QUIET
    ) -> None:
        """A client asks for something, and again until it has an answer."""
        request = self.model.send_request(Request(operation, tasks=dict(tasks or {})), do, plan=plan)

        def check() -> None:
            answer = request.answer
            if answer is None or isinstance(answer, StoreError):
                self._repeat(operation, do, done, tasks=tasks)
            elif isinstance(answer, DynatickError) and not isinstance(answer, TaskExists):
                self.oracle.report(f"{operation}: {answer!r}")
            else:
                done()

        self.simulation.at(self.simulation.now + (5.0 if plan == QUIET else 70.0), check)

    def _answered(self, due: Due) -> None:
        due.answered = self.simulation.now

    # -- the end -------------------------------------------------------------------------------------------------------

    def _prune(self) -> None:
        """The oracle compares each execution with all others: here, not with those of tasks that ended long ago."""
        limit, oracle = self.simulation.now - ENDED, self.oracle
        old = {token for token, one in oracle.executions.items() if one.task.ended_at < limit and one.began_at < limit}
        self.ended += [oracle.executions.pop(token) for token in old]
        for token in [token for token, claim in oracle.claims.items() if claim.task.ended_at < limit]:
            del oracle.claims[token]
        self.model.table.forget_shown()

    def _complete(self) -> None:
        """Faults stop, and all that was inserted must end as it has to."""
        self.model.store.always = None
        if any(end == math.inf for _, end in self.cut_off):
            self._end_outage(PAUSED)
        self.model.pass_time(200.0)
        complete_schedules(self.model)
        self.oracle.executions = {one.token: one for one in self.ended} | self.oracle.executions
        complete_all(self.model)
        for batch_id in self.batches:
            self.oracle.check_members(batch_id)
        stays = [one.stay for one in self.oracle.executions.values() if one.limit_key is not None]
        before = [stay for stay in stays if stay.end < self.loosened_at]
        for text in broken(before, parse_limits(STRICT), skew=MARGIN):
            self.oracle.report(text)

    def _account(self, read: float) -> Iterator[dict[str, Any]]:
        yield {"e": "windows", "skew": MARGIN, "late": LATE, "read": read}
        yield from ({"e": "tick", "at": at} for at in self.ticks)
        yield from ({"e": "outage", "at": begin, "until": end} for begin, end in self.cut_off)
        whole = Ticks(self.ticks, self.cut_off, LATE)
        # A tick gives the members of a pack rows of their own, and the next one runs them. Of the occurrences of an
        # outage, which are in a bucket each, a pass starts the recoveries of twenty.
        for begin, end in self.holders_cut_off:
            yield {"e": "outage", "at": begin, "until": min(whole.of(end), read) + 1.0}
        known = [whole.of(since) + CACHED for since, _ in self.intervals]
        for due in self.due:
            since = self._since(due, known) if due.since is None else due.since
            yield {"e": "due", "of": due.of, "at": due.at, "since": since, "may": due.may or since == math.inf}
        schedules = {id(task): number for (number, _), task in self.oracle.occurrences.items()}
        for one in self.oracle.executions.values():
            number = schedules.get(id(one.task))
            of = one.task.task_id if number is None else self.oracle.tasks[number].task_id
            cut = self._cut_off(one) if one.result == "ok" else None
            yield {
                "e": "execution",
                "of": of,
                "key": one.key,
                "at": one.began_at,
                "done": one.result == "ok",
                "cut": cut,
            }

    def _since(self, due: Due, known: Sequence[float]) -> float:
        """When its tick may come first. It is one of those that were in force when it got its bucket: the slowest that
        its inserter may have gone by. ``known``: when each client knows of an interval, which a tick writes down."""
        if due.answered == math.inf:
            return math.inf
        last = max((n for n, at in enumerate(known) if at <= due.answered), default=0)
        minutes = max(minutes for since, minutes in self.intervals[last:] if since <= due.answered)
        start = self.simulation.start.timestamp()
        return math.ceil((start + max(due.at, due.answered + 5.0)) / (60 * minutes)) * 60 * minutes - start

    def _cut_off(self, one: Execution) -> str | None:
        """What may have kept its outcome from being recorded."""
        if one.process.dead:
            return "its process was killed"
        if one.process.failed:
            return "its process met faults"
        is_down = any(begin < one.ended_at + RESTING and one.began_at < end for begin, end in self.table_down)
        return "the table was down" if is_down else None


def _insert_schedule(client: TaskClient, *, name: str, expression: str, given: Mapping[str, Any]) -> object:
    return client.schedules.insert(name, expression, **given)


def _names(expression: str, minute: int, start: int) -> bool:
    """Whether an expression names a minute."""
    match expression:
        case "cron(0/5 * * * ? *)":
            return minute % 5 == 0
        case "cron(30 5 * * ? *)":  # in India, half past five hours ahead
            return minute % DAY == 0
        case _:
            return (minute - start) % 7 == 0

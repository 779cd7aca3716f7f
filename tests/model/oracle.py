"""The oracle: what must hold of every change of a row and of every execution, kept beside the table.

It observes each effect, in the order in which they took place, and knows of each task only what its inserter meant. It
does not raise, for the engine would take that for a fault of the table: it reports ``violations``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime

from tests.model.expected_task import END, FAIL, MARGIN, RUN, Claim, Execution, ExpectedTask, number
from tests.model.faulty_store import QUIET, Actor, Request
from tests.model.schedule_oracle import ScheduleOracle
from tests.model.simulation import Simulation
from tests.model.table import Effect
from tests.sandbox.limits import Stay, broken

from dynatick.actions.rate_limit import EARLY, LATE
from dynatick.domain.buckets import Bucket
from dynatick.domain.completion import completion_token
from dynatick.domain.instants import parse_instant
from dynatick.domain.lifecycle import RELEASED, TRANSITIONS, is_terminal, may_follow, state_of
from dynatick.domain.limit_keys import KeyLimits, parse_limits
from dynatick.domain.occurrences import Overdue
from dynatick.domain.pause import KNOWN_AFTER
from dynatick.domain.row import RowView, due_of
from dynatick.domain.task import TERMINAL, Row, Task, is_own_row
from dynatick.engine.ports import ActionContext, DeadLetter
from dynatick.engine.settings import SETTINGS_ID
from dynatick.errors import InvalidInput

PAUSE_KNOWN = KNOWN_AFTER.total_seconds()
LATE_OR_EARLY = (LATE + EARLY).total_seconds() + 0.001  # than its start; instants in rows have milliseconds


@dataclass
class Oracle:
    """Keeps all tasks, claims and executions so far, and the violations of the protocol."""

    simulation: Simulation
    tasks: list[ExpectedTask] = field(default_factory=list)
    claims: dict[str, Claim] = field(default_factory=dict)  # by token
    executions: dict[str, Execution] = field(default_factory=dict)  # by token
    dead_letters: set[int] = field(default_factory=set)  # tasks of which the dead-letter queue took a message
    refused: set[int] = field(default_factory=set)  # those of which it refused one
    violations: list[str] = field(default_factory=list)
    limited_actions: Collection[str] = ()  # those with a rate limit
    longest_interval: int = 1
    shortest_interval: int = 1
    read_row: Callable[[str], Row | None] = lambda task_id: None  # a row as it is now
    pauses: list[tuple[float, float]] = field(default_factory=list)  # of everything: from when until when, perhaps
    paused: dict[str, float] = field(default_factory=dict)  # actions, each since when
    paused_ever: set[str] = field(default_factory=set)
    tokens: dict[str, list[str]] = field(default_factory=dict)  # of completions, by task, the latest last
    occurrences: dict[tuple[int, str], ExpectedTask] = field(default_factory=dict)  # by schedule's number, and id

    def task_of(self, row: Row) -> ExpectedTask:
        return self._task(row["expected"], str(row["taskId"]), row.get("scheduleId"))

    def _task(self, number: object, task_id: str, schedule_id: object) -> ExpectedTask:
        """Occurrences carry the number of their schedule, as all that is the user's own."""
        task = self.tasks[int(str(number))]
        return task if schedule_id in (None, task_id) else self.occurrences.get((task.number, task_id), task)

    def expect(self, task_id: str, **known: object) -> ExpectedTask:
        """A task that is about to begin."""
        task = ExpectedTask(len(self.tasks), task_id, **known)  # type: ignore[arg-type]
        self.tasks.append(task)
        return task

    def single_tasks(self) -> Sequence[ExpectedTask]:
        """Those that have rows of their own from the beginning."""
        return self.tasks

    def seconds(self, instant: datetime) -> float:
        return (instant - self.simulation.start).total_seconds()

    def report(self, violation: str) -> None:
        self.violations.append(f"{self.simulation.now:.3f}: {violation}")

    # -- effects -------------------------------------------------------------------------------------------------------

    def observe(self, by: object, effect: Effect) -> None:
        """An effect on a row."""
        assert isinstance(by, Actor)
        kind, request = by.kind, by.request
        old, new = effect.old, effect.new
        if kind == "restore":
            self._observe_restored(old, new)
        elif is_own_row(effect.task_id):
            self._observe_own(by, effect)
        elif kind == "expiry":
            self._observe_expiry(old)
        elif kind == "hand":
            self._observe_hand(old, new)
        elif new is None and request.operation == "delete":
            self._observe_hand(old, new)
            request.effects += 1
        elif new is None:
            self.report(f"{effect.task_id}: {kind} deleted it")
        elif (schedule := self._schedule_of(new)) is not None:
            request.effects += 1
            if old is None:
                self._observe_insert(kind, request, new)
                schedule.add_policies(new)
            if schedule.task is not self.task_of(old or new):
                self.report(f"{effect.task_id}: one task became another")
            if new.get("outcome") == "failed":
                self._check_dead_letter(schedule.task)
            schedule.observe(by, self.simulation.now, old, new)
        elif old is None and new.get("scheduleId") is not None:
            request.effects += 1
            self._observe_occurrence(by, new)
        elif old is None:
            request.effects += 1
            self._observe_insert(kind, request, new)
        else:
            request.effects += 1
            self._check_shape(kind, old, new)
            if kind == "doctor" and not request.may_write:
                self.report(f"{effect.task_id}: {state_of(new)} by a doctor that may only report")
            if kind == "client":
                self._observe_client(request, old, new)
            else:
                self._observe_engine(by, old, new)
            self._check_time(old, new)
        self._observe_state(old, new)
        self._observe_waits(old, new)
        if effect.shown_late and new is not None and not is_own_row(effect.task_id):
            self.task_of(new).unseen = True

    def restored(self, then: Row, now: Row | None) -> ExpectedTask:
        """Returns what to expect of a task that is restored to an earlier state: it may do again what it did since."""
        task = self.task_of(then)
        if now == then:
            task.unseen = True
            return task
        untouched = state_of(then) in ("unscheduled", "scheduled") and not number(then.get("attempt"))
        return self.expect(
            task.task_id, must=task.must if untouched else END, script=task.script, maximum=task.maximum,
            backoff=task.backoff, stray=task.stray, due=math.inf, unseen=True, began=True,
            original=task.first if "createdAt" in then else None,
        )  # fmt: skip

    def _observe_restored(self, old: Row | None, new: Row | None) -> None:
        if new is not None and new["taskId"] == SETTINGS_ID:
            self._observe_pauses(new)
        if old is not None and "expected" in old and (new is None or new["expected"] != old["expected"]):
            self.task_of(old).gone = True

    def observe_overdue(self, overdue: Sequence[Overdue]) -> None:
        """A processor reports occurrences. Its schedule may have been replaced meanwhile."""
        for one in overdue:
            for task in self.tasks:
                if task.schedule is not None and task.task_id == one.schedule_id:
                    task.schedule.observe_overdue(one, self.simulation.now)

    def _observe_state(self, old: Row | None, new: Row | None) -> None:
        """Notes when a task's present run began, and ended."""
        if new is None or is_own_row(new["taskId"]):
            return
        task, ended = self.task_of(new), is_terminal(new)
        if ended and task.ended_at == math.inf:
            task.ended_at = self.simulation.now
        elif not ended and task.ended_at < math.inf:
            task.ended_at, task.open_since = math.inf, self.simulation.now

    def _observe_waits(self, old: Row | None, new: Row | None) -> None:
        """Notes how long a task that was handed over waits: until it is overdue, it keeps its place."""
        execution = self.executions.get(str((old or {}).get("lease")))
        if execution is None or execution.limit_key is None or execution.waits_until < math.inf:
            return
        state = None if new is None or new.get("lease") != execution.token else state_of(new)
        if state == "waiting":
            execution.waited = True
            execution.overdue_at = self.seconds(parse_instant((new or {}).get("leaseUntil"), "leaseUntil"))
        elif state != "running":
            execution.waits_until = self.simulation.now

    def check_limits(self, limits: KeyLimits) -> None:
        """No limit by key was exceeded."""
        stays = [execution.stay for execution in self.executions.values() if execution.limit_key is not None]
        for text in broken(stays, limits, skew=MARGIN):
            self.report(text)

    def check_rates(self, rates: Sequence[str]) -> None:
        """No action began more often than its rate, over the whole installation: by the clocks of the processes, so
        that what their clocks differ by excuses nothing."""
        stays = []
        for one in self.executions.values():
            at = one.began_at + one.process.skew
            stays.append(Stay(task_id=one.task.task_id, key=f"{one.action}:any", begin=at, end=at))
        for text in broken(stays, parse_limits(rates), skew=LATE_OR_EARLY):
            self.report(text)

    def _schedule_of(self, row: Row) -> ScheduleOracle | None:
        """The oracle of the schedule whose row this is."""
        task = self.tasks[int(str(row["expected"]))]
        return task.schedule if row["taskId"] == task.task_id else None

    def _observe_hand(self, old: Row | None, new: Row | None) -> None:
        now = self.simulation.now
        if new is not None:
            self.task_of(new).began = True
            if (schedule := self._schedule_of(new)) is not None:
                if old is not None and old["expected"] == new["expected"]:
                    schedule.edit(now, old, new)
                else:
                    schedule.add_policies(new)
        if old is not None and (new is None or new.get("expected") != old.get("expected")):
            task = self.task_of(old)
            task.gone = True
            if task.schedule is not None:
                task.schedule.gone_at = now

    def _observe_occurrence(self, by: Actor, new: Row) -> None:
        """An occurrence of a schedule is made, as a task of its own."""
        schedule, now = self.tasks[int(str(new["expected"]))], self.simulation.now
        assert schedule.schedule is not None, f"{new['taskId']} is the occurrence of a task"
        due = self.seconds(parse_instant(new["dueAt"], "dueAt"))
        by_client = by.kind == "client"
        task = self.expect(
            str(new["taskId"]), script=schedule.script, maximum=schedule.maximum, backoff=schedule.backoff, began=True,
            not_before=due, created_at=now, open_since=now,
        )  # fmt: skip
        deleted = self.occurrences.get((schedule.number, task.task_id))
        task.original = None if deleted is None else deleted.first
        self.occurrences[schedule.number, task.task_id] = task
        if not task.task_id.endswith("#now"):
            schedule.schedule.observe_occurrence(by, now, due, task, self.read_row(schedule.task_id))
        elif not by_client or by.request.operation != "run":
            self.report(f"{task.task_id}: {by.kind} makes it")
        if not by_client:  # it begins as claimed
            self._observe_claim(by, {**new, "status": "scheduled"}, new)

    def _observe_own(self, by: Actor, effect: Effect) -> None:
        old, new = effect.old or {}, effect.new
        if new is not None and "closedThrough" in new and new.get("version") != old.get("version"):
            by.closed_at[effect.task_id] = self.seconds(Bucket.parse(new["closedThrough"]).instant)
        if new is None:
            self.report(f"{effect.task_id} vanished")
            return
        for name in ("closedThrough", "drainedThrough", "polledThrough", "shardsEver", "version"):
            if name in old and (name not in new or str(new[name]).rjust(20) < str(old[name]).rjust(20)):
                self.report(f"{effect.task_id}: {name} went back from {old[name]} to {new.get(name)}")
        if effect.task_id == SETTINGS_ID:
            self._observe_pauses(new)
        if "drainedThrough" in new and str(new["drainedThrough"]) > str(new["closedThrough"]):
            self.report(f"{effect.task_id}: drained through {new['drainedThrough']}, which is not closed")

    def _observe_pauses(self, settings: Row) -> None:
        paused = settings.get("pausedActions", {})
        assert isinstance(paused, Mapping)
        self.paused = {action: self.paused.get(action, self.simulation.now) for action in paused}
        self.paused_ever |= paused.keys()

    def _observe_insert(self, kind: str, request: Request, new: Row) -> None:
        """A row that was not there. Only inserts make such."""
        task = request.tasks.get(str(new["taskId"]))
        if task is None or task.number != new.get("expected"):
            self.report(f"{new['taskId']}: {kind} brought it back")
        else:
            task.began = True

    def _observe_expiry(self, old: Row | None) -> None:
        if old is None:
            return
        task = self.task_of(old)
        task.gone = True
        if not is_terminal(old) and not task.stray:
            self.report(f"{task.task_id}: expired, and it is {state_of(old)}")

    def _check_shape(self, kind: str, old: Row, new: Row) -> None:
        """Checks what holds of every write of ours, by any writer."""
        name, before, after = old["taskId"], state_of(old), state_of(new)
        if old.get("expected") != new.get("expected") and "replacedAt" not in new:
            self.report(f"{name}: one task became another")
        ended, strays = after in TERMINAL, "expiresAt" in old and not is_terminal(old)
        if (new.get("outcome") is not None) != ended or (("expiresAt" in new) != ended and not strays):
            self.report(f"{name}: {after} with outcome {new.get('outcome')}, expiresAt {new.get('expiresAt')}")
        known = before in TRANSITIONS and (before not in TERMINAL or is_terminal(old))
        if known and not may_follow(before, after) and not (before == after and "expiresAt" in old):
            self.report(f"{name}: {kind} made it {after} from {before}")
        # A request takes a running task only if that was released; and only a request cancels it then.
        taken = after == "cancelled" or (kind, after) == ("client", "scheduled")
        if before == "running" and taken and not (kind == "client" and RowView(old).is_released):
            self.report(f"{name}: {kind} made it {after} from {before}")
        if is_terminal(old) and kind != "client":
            self.report(f"{name}: {kind} changed it after its end")

    def _observe_client(self, request: Request, old: Row, new: Row) -> None:
        task, operation = self.task_of(old), request.operation
        if operation == "completion":
            self._observe_completion(request, task, old, new)
            return
        if operation in ("replace", "postpone") and old["expected"] != new["expected"]:
            self._observe_replacement(request, task, new)
            return
        task.edited_to = None
        if task.must == FAIL:  # it has another time now, which can be understood
            task.must = END
        if operation == "reschedule":
            task.not_before = task.due = request.not_before
        elif operation == "postpone":
            self._observe_postponement(request, task, old, new)
        elif operation in ("redrive", "run_now"):
            task.not_before = -math.inf
            if is_terminal(old) and number(new["run"]) <= number(old.get("run")):
                self.report(f"{task.task_id}: run {new['run']} again")
            if is_terminal(old) and new.get("attempt", 0) != 0:
                self.report(f"{task.task_id}: a new run begins at attempt {new['attempt']}")
        elif operation == "cancel" and state_of(new) != "cancelled":
            self.report(f"{task.task_id}: {state_of(new)} by a cancel")
        elif operation == "dry run":
            self.report(f"{task.task_id}: {state_of(new)} by a dry run")

    def _observe_replacement(self, request: Request, old: ExpectedTask, row: Row) -> None:
        """The row of a waiting task is another's from now on. It has the idempotency keys of the same row."""
        task = request.tasks[old.task_id]
        if task.number != row["expected"]:
            self.report(f"{old.task_id}: replaced by what nobody has inserted")
        old.gone = task.began = True
        task.original, task.stray, task.unseen = old.first, old.stray, old.unseen
        task.must = RUN if old.must == RUN else END

    def _observe_postponement(self, request: Request, task: ExpectedTask, old: Row, new: Row) -> None:
        first, before, after = (
            None if at is None else self.seconds(parse_instant(at, "dueAt"))
            for at in (old.get("firstDueAt", old.get("dueAt")), old.get("dueAt"), new["dueAt"])
        )
        assert after is not None
        task.not_before = task.due = after
        if Bucket.canonical(old.get("taskDateTime")) is None or first is None or before is None:
            return
        if after < before:
            self.report(f"{task.task_id}: postponed to an earlier time, from {before} to {after}")
        if request.until is not None and after > first + request.until:
            self.report(f"{task.task_id}: postponed by {after - first} s, and {request.until} s were allowed")

    def _observe_completion(self, request: Request, task: ExpectedTask, old: Row, new: Row) -> None:
        """A task that was handed over is completed, failed or prolonged by a token."""
        before, after, execution = state_of(old), state_of(new), self.executions.get(str(old.get("lease")))
        if execution is None or request.token != completion_token(execution.token, task.task_id):
            self.report(f"{task.task_id}: {after} by a token that is not its own")
            return
        if before != "waiting" and (before, after) != ("running", "completed"):
            self.report(f"{task.task_id}: {after} by its token, and it is {before}")
        if before == "waiting" and old.get("error") is not None:
            self.report(f"{task.task_id}: {after} by its token after it has failed")
        if after == "completed":
            self.end(execution, "ok")
        elif after == "scheduled":
            self.end(execution, "error")
            if execution.attempt >= task.maximum:
                self.report(f"{task.task_id}: a retry after attempt {execution.attempt}, by its token")
        elif new.get("error") is not None:
            self.end(execution, "permanent")
        elif str(new["leaseUntil"]) < str(old["leaseUntil"]):
            self.report(f"{task.task_id}: a heartbeat leaves it less time")

    def _observe_waiting(self, by: Actor, old: Row, new: Row) -> None:
        """The engine changes a task that waits for a completion, and does not attempt it again."""
        task, execution, after = self.task_of(old), self.executions.get(str(old.get("lease"))), state_of(new)
        if after == "failed":
            failed = execution is not None and execution.result == "permanent"
            if not failed and task.must == RUN:
                if number(old.get("attempt")) < task.maximum:
                    self.report(f"{task.task_id}: failed at attempt {old.get('attempt')}: {new.get('error')}")
                self._check_lease_over(task, old)
            self._check_dead_letter(task)
        elif after == "waiting" and "deferrals" not in new and new.get("leaseUntil") != old.get("leaseUntil"):
            self.report(f"{task.task_id}: {by.kind} changes its deadline")

    def _check_lease_over(self, task: ExpectedTask, old: Row) -> None:
        try:
            until = self.seconds(parse_instant(old.get("leaseUntil"), "leaseUntil"))
        except InvalidInput:
            until = -math.inf
        if self.simulation.now + MARGIN < until:
            self.report(f"{task.task_id}: reclaimed before its lease ended")

    def _observe_engine(self, by: Actor, old: Row, new: Row) -> None:
        before, after = state_of(old), state_of(new)
        if after == "running" and new.get("lease") != old.get("lease"):
            self._observe_claim(by, old, new)
        elif before == "running":
            self._observe_record(by, old, new)
        elif before == "waiting":
            self._observe_waiting(by, old, new)
        elif after == "failed" and before != after:
            task = self.task_of(old)
            if task.must == RUN:
                self.report(f"{task.task_id}: marked failed, and it can be understood: {new.get('error')}")
            self._check_dead_letter(task)

    def _observe_claim(self, by: Actor, old: Row, new: Row) -> None:
        task, now = self.task_of(old), self.simulation.now
        bucket, earlier = Bucket.canonical(old.get("taskDateTime")), self.executions.get(str(old.get("lease")))
        is_early = bucket is not None and self.seconds(bucket.instant) > now + MARGIN
        if by.woken or (is_early and old.get("limitKey") is not None):  # a pass that was woken for the key
            due = _due(old)
            if due is None or due > by.clock():
                self.report(f"{task.task_id}: woken before {due}, when it is due")
            if state_of(old) != "scheduled":
                self.report(f"{task.task_id}: woken, and it is {state_of(old)}")
        elif bucket is None or is_early:
            self.report(f"{task.task_id}: claimed in {bucket}, before its bucket")
        if task.not_before > now + MARGIN:
            self.report(f"{task.task_id}: claimed {task.not_before - now:.1f} s before its time")
        if state_of(old) == "running" and earlier is not None and earlier.is_running:
            self.report(f"{task.task_id}: reclaimed while it runs")
        if state_of(old) == "running" and old.get("leaseUntil") != RELEASED and RowView(old).is_last_attempt:
            others = [e.task.task_id for e in self.executions.values() if e.process is by and e.is_running]
            if others:
                self.report(f"{task.task_id}: reclaimed at its last attempt beside {', '.join(others)}")
            self._check_lease_over(task, old)
        if state_of(old) == "waiting":
            self._check_lease_over(task, old)
            if old.get("error") is not None:
                self.report(f"{task.task_id}: attempted again, although it has failed by its token")
        claim = self.claims.get(str(old.get("lease"))) if state_of(old) == "running" else None
        excused = claim is None or claim.task is not task or claim.released or claim.process.failed
        if not excused and not (earlier and earlier.is_running):
            did = "never began it" if earlier is None else f"did not record its {earlier.result}"
            self.report(f"{task.task_id}: reclaimed for no reason, the one before {did}")
        attempt = number(new["attempt"])
        run = number(new.get("run"), 1)
        made = sum(c.task is task and c.run == run and not c.released for c in self.claims.values())
        if attempt != made + 1 and task.must == RUN:
            self.report(f"{task.task_id}: attempt {attempt} of run {run}, and {made} were made before")
        if str(new["lease"]) in self.claims:
            self.report(f"{task.task_id}: the token {new['lease']} was used before")
        task.edited_to = None
        self.claims[str(new["lease"])] = Claim(task, run, attempt, by)

    def _observe_record(self, by: Actor, old: Row, new: Row) -> None:
        task, after = self.task_of(old), state_of(new)
        execution = self.executions.get(str(old.get("lease")))
        result = None if execution is None else execution.result
        attempt = number(old.get("attempt"))
        if after == "completed" and result != "ok":
            self.report(f"{task.task_id}: completed, but its action {result or 'never ended'}")
        elif after == "waiting":
            if result != "later":
                self.report(f"{task.task_id}: handed over, and its action {result}")
            bucket, until = Bucket.canonical(new.get("taskDateTime")), parse_instant(new["leaseUntil"], "leaseUntil")
            if bucket is None or bucket.instant < until:
                self.report(f"{task.task_id}: waits until {until} in {bucket}")
        elif after == "scheduled" and number(new.get("attempt")) == attempt - 1:
            self._observe_deferral(task, execution, new)
            if (claim := self.claims.get(str(old.get("lease")))) is not None:
                claim.released = True
        elif after == "scheduled":
            if result != "error" or attempt >= task.maximum:
                self.report(f"{task.task_id}: a retry after attempt {attempt}, whose result is {result}")
            bucket, due = Bucket.canonical(new.get("taskDateTime")), _due(new)
            at = -math.inf if bucket is None or due is None else self.seconds(min(due, bucket.instant))
            if execution is None or at < execution.ended_at + task.backoff / 2 - MARGIN:
                self.report(f"{task.task_id}: a retry at {due} or in {bucket}, too early")
        elif after == "failed":
            # A success that its process did not live to record counts as an attempt, as any other.
            unrecorded = execution is None or result != "ok" or not execution.process.threads
            used_up = attempt >= task.maximum and unrecorded and not (execution is not None and execution.is_running)
            if result != "permanent" and not used_up and task.must == RUN:
                self.report(f"{task.task_id}: failed at attempt {attempt}, and its action {result}: {new.get('error')}")
            self._check_dead_letter(task)
        elif after == "running" and new.get("leaseUntil") == RELEASED and old.get("leaseUntil") != RELEASED:
            if execution is not None:
                self.report(f"{task.task_id}: released although it was begun")
            claim = self.claims.get(str(old.get("lease")))
            claimer = by if claim is None else claim.process  # another that had no answer may have asked
            left = min(by.ends, by.order_ends) - self.simulation.now
            is_paused = str(old.get("action")) in self.paused_ever
            # The index may show the row that was there before, which had another limit key, or none.
            replaces = "limitKey" in old and any(one.task_id == task.task_id and one is not task for one in self.tasks)
            if claimer.plan == QUIET and left > by.plan.timeout / 2 and not is_paused and not replaces:
                self.report(f"{task.task_id}: released with {left:.0f} s left, for no reason")
            if (claim := self.claims.get(str(old.get("lease")))) is not None:
                claim.released = True

    def _observe_deferral(self, task: ExpectedTask, execution: Execution | None, new: Row) -> None:
        """A task is put off by its rate limit, and the attempt does not count."""
        if execution is not None:
            self.report(f"{task.task_id}: put off although it was begun")
        if new.get("action") not in self.limited_actions:
            self.report(f"{task.task_id}: put off, and its action {new.get('action')} has no limit")

    def _check_dead_letter(self, task: ExpectedTask) -> None:
        if task.number not in self.dead_letters:
            self.report(f"{task.task_id}: failed, and no dead letter reports it")

    def _check_time(self, old: Row, new: Row) -> None:
        """A bucket that we choose is not before the time that was asked for, nor more than an interval after it."""
        task, bucket = self.task_of(new), Bucket.canonical(new.get("taskDateTime"))
        if bucket is None or new.get("taskDateTime") == old.get("taskDateTime") or is_terminal(new):
            return
        if "malformedReason" in new:  # it goes to where a tick marks it failed once the queue takes its message
            return
        at, earliest = self.seconds(bucket.instant), task.not_before
        if at < earliest - 0.001:
            self.report(f"{task.task_id}: put into {bucket}, {earliest - at:.1f} s before its time")
        due = max(task.due, self.simulation.now)
        if task.must != FAIL and state_of(old) == "unscheduled" and at > due + 60 * self.longest_interval + 60:
            self.report(f"{task.task_id}: put into {bucket}, {at - due:.0f} s late")

    def check_edits(self, open_rows: Sequence[Row], pending: Set[str]) -> None:
        """A time that was set by hand has been understood once the stream has shown it."""
        for row in open_rows:
            task, bucket = self.task_of(row), Bucket.canonical(row.get("taskDateTime"))
            if task.edited_to is None or task.unseen or task.task_id in pending or state_of(row) != "scheduled":
                continue
            if bucket is None or self.seconds(bucket.instant) < task.edited_to:
                self.report(f"{task.task_id}: in {bucket}, and {task.edited_to} was asked for by hand")

    # -- executions ----------------------------------------------------------------------------------------------------

    def begin(self, claimed: Task, context: ActionContext, process: Actor, row: Row | None) -> Execution:
        """An action begins. ``row``: the task's, as it is in the table now."""
        task = self._task(claimed.attributes["expected"], claimed.task_id, claimed.schedule_id)
        token, name = str(claimed.lease), claimed.task_id
        execution = Execution(
            task, context.run, context.attempt, token, context.idempotency_key, process,
            limit_key=claimed.limit_key, action=claimed.action, began_at=self.simulation.now,
        )  # fmt: skip
        claim = self.claims.get(token)
        if claim is None or claim.task is not task or claim.process is not process or claim.released:
            self.report(f"{name}: executed without a claim")
        if token in self.executions:
            self.report(f"{name}: executed twice with one claim")
        of_run = [e for e in self.executions.values() if e.task is task and e.run == execution.run]
        if any(e.attempt == execution.attempt for e in of_run):
            self.report(f"{name}: attempt {execution.attempt} of run {execution.run} was made before")
        of_key = [e for e in self.executions.values() if e.task.first is task.first and e.run == execution.run]
        if any(e.key != execution.key for e in of_key):
            self.report(f"{name}: another idempotency key, {execution.key}")
        if any(e.key == execution.key for e in self.executions.values() if e not in of_key):
            self.report(f"{name}: the idempotency key of another run or task, {execution.key}")
        if len(of_run) >= task.maximum:
            self.report(f"{name}: execution {len(of_run) + 1} of run {execution.run}, at most {task.maximum}")
        if any(e.is_running for e in of_run):
            self.report(f"{name}: executed while it is executed")
        self._check_pause(claimed, process)
        if not task.gone and (row is None or state_of(row) != "running" or row.get("lease") != token):
            self.report(f"{name}: executed while it is {'gone' if row is None else state_of(row)}")
        if task.must == FAIL:
            self.report(f"{name}: executed, and it cannot be understood")
        self.executions[token] = execution
        return execution

    def _check_pause(self, claimed: Task, process: Actor) -> None:
        paused_for = self.simulation.now - self.paused.get(claimed.action, math.inf)
        if paused_for > PAUSE_KNOWN and not process.plan.faults:  # if the table does not answer, it cannot know
            self.report(f"{claimed.task_id}: begins {paused_for:.1f} s after its action was paused")

    def check_thawed(self, execution: Execution) -> None:
        """The process of an execution thaws, with the thread that it runs in."""
        claims = [claim for claim in self.claims.values() if claim.task is execution.task]
        if execution.result is None and (claims[-1].run, claims[-1].attempt) > (execution.run, execution.attempt):
            self.report(f"{execution.task.task_id}: continues after it was reclaimed")

    def end(self, execution: Execution, result: str) -> None:
        execution.result, execution.ended_at = result, self.simulation.now

    def take_dead_letters(self, letters: Sequence[DeadLetter], *, refused: bool) -> None:
        (self.refused if refused else self.dead_letters).update(self.task_of(letter.row).number for letter in letters)

    def executions_of(self, task: ExpectedTask, run: int) -> Mapping[int, Execution]:
        return {e.attempt: e for e in self.executions.values() if e.task is task and e.run == run}


def _due(row: Row) -> datetime | None:
    """The instant that counts."""
    due = due_of(str(row["taskId"]), row.get("dueAt"), row.get("nextAttemptAt"))
    return None if due is None else due.at

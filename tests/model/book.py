"""The book: what must hold of every change of a row and of every execution, kept beside the table.

It hears of each effect in the order in which they took place, and knows of each task only what its inserter meant. It
does not raise, for the engine would take that for a fault of the table: what is wrong is written down in ``wrong``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime

from tests.model.diary import Diary
from tests.model.lives import END, FAIL, MARGIN, RUN, Claim, Execution, Life, number
from tests.model.seam import QUIET, Actor, Order
from tests.model.simulation import Simulation
from tests.model.table import Effect

from dynatick.domain.buckets import Bucket
from dynatick.domain.due import due_of
from dynatick.domain.instants import parse_instant
from dynatick.domain.lifecycle import RELEASED, TRANSITIONS, is_terminal, may_follow, state_of
from dynatick.domain.overdue import Overdue
from dynatick.domain.row import RowView
from dynatick.domain.task import TERMINAL, Row, Task, is_own_row
from dynatick.engine.ports import ActionContext, DeadLetter
from dynatick.errors import InvalidInput


@dataclass
class Book:
    """All lives, claims and executions."""

    simulation: Simulation
    lives: list[Life] = field(default_factory=list)
    claims: dict[str, Claim] = field(default_factory=dict)  # by token
    executions: dict[str, Execution] = field(default_factory=dict)  # by token
    letters: set[int] = field(default_factory=set)  # lives of which the dead-letter queue took a message
    refused: set[int] = field(default_factory=set)  # those of which it refused one
    wrong: list[str] = field(default_factory=list)
    longest_interval: int = 1
    shortest_interval: int = 1
    look_up: Callable[[str], Row | None] = lambda task_id: None  # a row as it is now
    occurrences: dict[tuple[int, str], Life] = field(default_factory=dict)  # by schedule's number, and id

    def life_of(self, row: Row) -> Life:
        return self._life(row["life"], str(row["taskId"]), row.get("scheduleId"))

    def _life(self, noted: object, task_id: str, schedule_id: object) -> Life:
        """Occurrences carry the number of their schedule's life, as all that is the user's own."""
        life = self.lives[int(str(noted))]
        return life if schedule_id in (None, task_id) else self.occurrences.get((life.number, task_id), life)

    def enter(self, task_id: str, **known: object) -> Life:
        """A life that is about to begin."""
        life = Life(len(self.lives), task_id, **known)  # type: ignore[arg-type]
        self.lives.append(life)
        return life

    def seconds(self, instant: datetime) -> float:
        return (instant - self.simulation.start).total_seconds()

    def say(self, problem: str) -> None:
        self.wrong.append(f"{self.simulation.now:.3f}: {problem}")

    # -- effects -------------------------------------------------------------------------------------------------------

    def hear(self, by: object, effect: Effect) -> None:
        """An effect on a row."""
        assert isinstance(by, Actor)
        kind, order = by.kind, by.order
        old, new = effect.old, effect.new
        if kind == "restore":
            self._hear_restored(old, new)
        elif is_own_row(effect.task_id):
            self._hear_own(by, effect)
        elif kind == "expiry":
            self._hear_expiry(old)
        elif kind == "hand":
            self._hear_hand(old, new)
        elif new is None and order.operation == "delete":
            self._hear_hand(old, new)
            order.effects += 1
        elif new is None:
            self.say(f"{effect.task_id}: {kind} deleted it")
        elif (diary := self._schedule_of(new)) is not None:
            order.effects += 1
            if old is None:
                self._hear_birth(kind, order, new)
                diary.policies(new)
            if diary.life is not self.life_of(old or new):
                self.say(f"{effect.task_id}: one life became another")
            if new.get("outcome") == "failed":
                self._check_letter(diary.life)
            diary.hear(by, self.simulation.now, old, new)
        elif old is None and new.get("scheduleId") is not None:
            order.effects += 1
            self._hear_occurrence(by, new)
        elif old is None:
            order.effects += 1
            self._hear_birth(kind, order, new)
        else:
            order.effects += 1
            self._check_shape(kind, old, new)
            if kind == "doctor" and not order.may_write:
                self.say(f"{effect.task_id}: {state_of(new)} by a doctor who was to look only")
            if kind == "client":
                self._hear_client(order, old, new)
            else:
                self._hear_engine(by, old, new)
            self._check_time(old, new)
        self._hear_state(old, new)
        if effect.shown_late and new is not None and not is_own_row(effect.task_id):
            self.life_of(new).unseen = True

    def restored(self, then: Row, now: Row | None) -> Life:
        """The life of a task of which an earlier state is put back. What has been done since may be done again."""
        life = self.life_of(then)
        if now == then:
            life.unseen = True
            return life
        untouched = state_of(then) in ("unscheduled", "scheduled") and not number(then.get("attempt"))
        return self.enter(
            life.task_id, meant=life.meant if untouched else END, script=life.script, maximum=life.maximum,
            backoff=life.backoff, stray=life.stray, due=math.inf, unseen=True, began=True,
            original=life.first if "createdAt" in then else None,
        )  # fmt: skip

    def _hear_restored(self, old: Row | None, new: Row | None) -> None:
        if old is not None and "life" in old and (new is None or new["life"] != old["life"]):
            self.life_of(old).gone = True

    def hear_overdue(self, overdue: Sequence[Overdue]) -> None:
        """A processor reports occurrences. Its schedule may have been replaced meanwhile."""
        for one in overdue:
            for life in self.lives:
                if life.schedule is not None and life.task_id == one.schedule_id:
                    life.schedule.hear_overdue(one, self.simulation.now)

    def _hear_state(self, old: Row | None, new: Row | None) -> None:
        """When a task's present run began, and ended."""
        if new is None or is_own_row(new["taskId"]):
            return
        life, ended = self.life_of(new), is_terminal(new)
        if ended and life.ended_at == math.inf:
            life.ended_at = self.simulation.now
        elif not ended and life.ended_at < math.inf:
            life.ended_at, life.open_since = math.inf, self.simulation.now

    def _schedule_of(self, row: Row) -> Diary | None:
        """The diary of the schedule whose row this is."""
        life = self.lives[int(str(row["life"]))]
        return life.schedule if row["taskId"] == life.task_id else None

    def _hear_hand(self, old: Row | None, new: Row | None) -> None:
        now = self.simulation.now
        if new is not None:
            self.life_of(new).began = True
            if (diary := self._schedule_of(new)) is not None:
                if old is not None and old["life"] == new["life"]:
                    diary.edit(now, old, new)
                else:
                    diary.policies(new)
        if old is not None and (new is None or new.get("life") != old.get("life")):
            life = self.life_of(old)
            life.gone = True
            if life.schedule is not None:
                life.schedule.gone_at = now

    def _hear_occurrence(self, by: Actor, new: Row) -> None:
        """A schedule's run is made, as a task of its own."""
        schedule, now = self.lives[int(str(new["life"]))], self.simulation.now
        assert schedule.schedule is not None, f"{new['taskId']} is the occurrence of a task"
        due = self.seconds(parse_instant(new["dueAt"], "dueAt"))
        by_wish = by.kind == "client"
        life = self.enter(
            str(new["taskId"]), script=schedule.script, maximum=schedule.maximum, backoff=schedule.backoff, began=True,
            not_before=due, born_at=now, open_since=now,
        )  # fmt: skip
        deleted = self.occurrences.get((schedule.number, life.task_id))
        life.original = None if deleted is None else deleted.first
        self.occurrences[schedule.number, life.task_id] = life
        if not life.task_id.endswith("#now"):
            schedule.schedule.hear_occurrence(by, now, due, life, self.look_up(schedule.task_id))
        elif not by_wish or by.order.operation != "run":
            self.say(f"{life.task_id}: {by.kind} makes it")
        if not by_wish:  # it begins as claimed
            self._hear_claim(by, {**new, "status": "scheduled"}, new)

    def _hear_own(self, by: Actor, effect: Effect) -> None:
        old, new = effect.old or {}, effect.new
        if new is not None and "closedThrough" in new and new.get("version") != old.get("version"):
            by.closed_at[effect.task_id] = self.seconds(Bucket.parse(new["closedThrough"]).instant)
        if new is None:
            self.say(f"{effect.task_id} vanished")
            return
        for name in ("closedThrough", "drainedThrough", "polledThrough", "shardsEver", "version"):
            if name in old and (name not in new or str(new[name]).rjust(20) < str(old[name]).rjust(20)):
                self.say(f"{effect.task_id}: {name} went back from {old[name]} to {new.get(name)}")
        if "drainedThrough" in new and str(new["drainedThrough"]) > str(new["closedThrough"]):
            self.say(f"{effect.task_id}: drained through {new['drainedThrough']}, which is not closed")

    def _hear_birth(self, kind: str, order: Order, new: Row) -> None:
        """A row that was not there. Only inserts make such; of a schedule, its occurrences would be heard of here."""
        life = order.lives.get(str(new["taskId"]))
        if life is None or life.number != new.get("life"):
            self.say(f"{new['taskId']}: {kind} brought it back")
        else:
            life.began = True

    def _hear_expiry(self, old: Row | None) -> None:
        if old is None:
            return
        life = self.life_of(old)
        life.gone = True
        if not is_terminal(old) and not life.stray:
            self.say(f"{life.task_id}: expired, and it is {state_of(old)}")

    def _check_shape(self, kind: str, old: Row, new: Row) -> None:
        """What holds of every write of ours, by any writer."""
        name, before, after = old["taskId"], state_of(old), state_of(new)
        if old.get("life") != new.get("life"):
            self.say(f"{name}: one life became another")
        ended, strays = after in TERMINAL, "expiresAt" in old and not is_terminal(old)
        if (new.get("outcome") is not None) != ended or (("expiresAt" in new) != ended and not strays):
            self.say(f"{name}: {after} with outcome {new.get('outcome')}, expiresAt {new.get('expiresAt')}")
        known = before in TRANSITIONS and (before not in TERMINAL or is_terminal(old))
        if known and not may_follow(before, after) and not (before == after and "expiresAt" in old):
            self.say(f"{name}: {kind} made it {after} from {before}")
        if is_terminal(old) and kind != "client":
            self.say(f"{name}: {kind} changed it after its end")

    def _hear_client(self, order: Order, old: Row, new: Row) -> None:
        life, operation = self.life_of(old), order.operation
        life.asked = None
        if life.meant == FAIL:  # it has another time now, which can be understood
            life.meant = END
        if operation == "reschedule":
            life.not_before = life.due = order.not_before
        elif operation in ("redrive", "run_now"):
            life.not_before = -math.inf
            if is_terminal(old) and number(new["run"]) <= number(old.get("run")):
                self.say(f"{life.task_id}: run {new['run']} again")
            if is_terminal(old) and new.get("attempt", 0) != 0:
                self.say(f"{life.task_id}: a new run begins at attempt {new['attempt']}")
        elif operation == "cancel" and state_of(new) != "cancelled":
            self.say(f"{life.task_id}: {state_of(new)} by a cancel")
        elif operation == "dry run":
            self.say(f"{life.task_id}: {state_of(new)} by a dry run")

    def _hear_engine(self, by: Actor, old: Row, new: Row) -> None:
        before, after = state_of(old), state_of(new)
        if after == "running" and new.get("lease") != old.get("lease"):
            self._hear_claim(by, old, new)
        elif before == "running":
            self._hear_record(by, old, new)
        elif after == "failed" and before != after:
            life = self.life_of(old)
            if life.meant == RUN:
                self.say(f"{life.task_id}: marked failed, and it can be understood: {new.get('error')}")
            self._check_letter(life)

    def _hear_claim(self, by: Actor, old: Row, new: Row) -> None:
        life, now = self.life_of(old), self.simulation.now
        bucket, earlier = Bucket.canonical(old.get("taskDateTime")), self.executions.get(str(old.get("lease")))
        if by.woken:
            due = _due(old)
            if due is None or due > by.clock():
                self.say(f"{life.task_id}: woken before {due}, when it is due")
            if state_of(old) != "scheduled":
                self.say(f"{life.task_id}: woken, and it is {state_of(old)}")
        elif bucket is None or self.seconds(bucket.instant) > now + MARGIN:
            self.say(f"{life.task_id}: claimed in {bucket}, before its bucket")
        if life.not_before > now + MARGIN:
            self.say(f"{life.task_id}: claimed {life.not_before - now:.1f} s before its time")
        if state_of(old) == "running" and earlier is not None and earlier.runs:
            self.say(f"{life.task_id}: taken over while it runs")
        if state_of(old) == "running" and old.get("leaseUntil") != RELEASED and RowView(old).is_last_attempt:
            others = [e.life.task_id for e in self.executions.values() if e.process is by and e.runs]
            if others:
                self.say(f"{life.task_id}: reclaimed at its last attempt beside {', '.join(others)}")
            try:
                until = self.seconds(parse_instant(old.get("leaseUntil"), "leaseUntil"))
            except InvalidInput:
                until = -math.inf
            if now + MARGIN < until:
                self.say(f"{life.task_id}: taken over before its lease ended")
        claim = self.claims.get(str(old.get("lease"))) if state_of(old) == "running" else None
        excused = claim is None or claim.life is not life or claim.released or claim.process.failed
        if not excused and not (earlier and earlier.runs):
            did = "never began it" if earlier is None else f"did not record its {earlier.result}"
            self.say(f"{life.task_id}: taken over for no reason, the one before {did}")
        attempt = number(new["attempt"])
        run = number(new.get("run"), 1)
        made = sum(c.life is life and c.run == run and not c.released for c in self.claims.values())
        if attempt != made + 1 and life.meant == RUN:
            self.say(f"{life.task_id}: attempt {attempt} of run {run}, and {made} were made before")
        if str(new["lease"]) in self.claims:
            self.say(f"{life.task_id}: the token {new['lease']} was used before")
        life.asked = None
        self.claims[str(new["lease"])] = Claim(life, run, attempt, by)

    def _hear_record(self, by: Actor, old: Row, new: Row) -> None:
        life, after = self.life_of(old), state_of(new)
        ran = self.executions.get(str(old.get("lease")))
        result = None if ran is None else ran.result
        attempt = number(old.get("attempt"))
        if after == "completed" and result != "ok":
            self.say(f"{life.task_id}: completed, but its action {result or 'never ended'}")
        elif after == "scheduled":
            if result != "error" or attempt >= life.maximum:
                self.say(f"{life.task_id}: a retry after attempt {attempt}, whose result is {result}")
            bucket, due = Bucket.canonical(new.get("taskDateTime")), _due(new)
            at = -math.inf if bucket is None or due is None else self.seconds(min(due, bucket.instant))
            if ran is None or at < ran.ended_at + life.backoff / 2 - MARGIN:
                self.say(f"{life.task_id}: a retry at {due} or in {bucket}, too early")
        elif after == "failed":
            # A success that its process did not live to record counts as an attempt, as any other.
            unheard = ran is None or result != "ok" or not ran.process.strands
            used_up = attempt >= life.maximum and unheard and not (ran is not None and ran.runs)
            if result != "permanent" and not used_up and life.meant == RUN:
                self.say(f"{life.task_id}: failed at attempt {attempt}, and its action {result}: {new.get('error')}")
            self._check_letter(life)
        elif after == "running" and new.get("leaseUntil") == RELEASED and old.get("leaseUntil") != RELEASED:
            if ran is not None:
                self.say(f"{life.task_id}: given back although it was begun")
            left = by.ends - self.simulation.now
            if by.plan == QUIET and left > by.plan.life / 2:
                self.say(f"{life.task_id}: given back with {left:.0f} s left, for no reason")
            if (claim := self.claims.get(str(old.get("lease")))) is not None:
                claim.released = True

    def _check_letter(self, life: Life) -> None:
        if life.number not in self.letters:
            self.say(f"{life.task_id}: failed, and no dead letter tells of it")

    def _check_time(self, old: Row, new: Row) -> None:
        """A bucket that we choose is not before the time that was asked for, nor more than an interval after it."""
        life, bucket = self.life_of(new), Bucket.canonical(new.get("taskDateTime"))
        if bucket is None or new.get("taskDateTime") == old.get("taskDateTime") or is_terminal(new):
            return
        if "malformedReason" in new:  # it goes to where a tick marks it failed once the queue takes its letter
            return
        at, earliest = self.seconds(bucket.instant), life.not_before
        if at < earliest - 0.001:
            self.say(f"{life.task_id}: put into {bucket}, {earliest - at:.1f} s before its time")
        due = max(life.due, self.simulation.now)
        if life.meant != FAIL and state_of(old) == "unscheduled" and at > due + 60 * self.longest_interval + 60:
            self.say(f"{life.task_id}: put into {bucket}, {at - due:.0f} s late")

    def check_edits(self, open_rows: Sequence[Row], pending: Set[str]) -> None:
        """A time that was set by hand has been understood once the stream has shown it."""
        for row in open_rows:
            life, bucket = self.life_of(row), Bucket.canonical(row.get("taskDateTime"))
            if life.asked is None or life.unseen or life.task_id in pending or state_of(row) != "scheduled":
                continue
            if bucket is None or self.seconds(bucket.instant) < life.asked:
                self.say(f"{life.task_id}: in {bucket}, and {life.asked} was asked for by hand")

    # -- executions ----------------------------------------------------------------------------------------------------

    def begin(self, task: Task, context: ActionContext, process: Actor, row: Row | None) -> Execution:
        """An action begins. ``row``: the task's, as it is in the table now."""
        life = self._life(task.attributes["life"], task.task_id, task.schedule_id)
        token, name = str(task.lease), task.task_id
        ran = Execution(life, context.run, context.attempt, token, context.idempotency_key, process)
        claim = self.claims.get(token)
        if claim is None or claim.life is not life or claim.process is not process or claim.released:
            self.say(f"{name}: executed without a claim")
        if token in self.executions:
            self.say(f"{name}: executed twice with one claim")
        of_run = [e for e in self.executions.values() if e.life is life and e.run == ran.run]
        if any(e.attempt == ran.attempt for e in of_run):
            self.say(f"{name}: attempt {ran.attempt} of run {ran.run} was made before")
        of_key = [e for e in self.executions.values() if e.life.first is life.first and e.run == ran.run]
        if any(e.key != ran.key for e in of_key):
            self.say(f"{name}: another idempotency key, {ran.key}")
        if any(e.key == ran.key for e in self.executions.values() if e not in of_key):
            self.say(f"{name}: the idempotency key of another run or task, {ran.key}")
        if len(of_run) >= life.maximum:
            self.say(f"{name}: execution {len(of_run) + 1} of run {ran.run}, at most {life.maximum}")
        if any(e.runs for e in of_run):
            self.say(f"{name}: executed while it is executed")
        if not life.gone and (row is None or state_of(row) != "running" or row.get("lease") != token):
            self.say(f"{name}: executed while it is {'gone' if row is None else state_of(row)}")
        if life.meant == FAIL:
            self.say(f"{name}: executed, and it cannot be understood")
        self.executions[token] = ran
        return ran

    def check_thawed(self, ran: Execution) -> None:
        """The process of an execution goes on, with the thread that it runs in."""
        claims = [claim for claim in self.claims.values() if claim.life is ran.life]
        if ran.result is None and (claims[-1].run, claims[-1].attempt) > (ran.run, ran.attempt):
            self.say(f"{ran.life.task_id}: goes on after it was taken over")

    def end(self, ran: Execution, result: str) -> None:
        ran.result, ran.ended_at = result, self.simulation.now

    def take_letters(self, letters: Sequence[DeadLetter], *, refused: bool) -> None:
        (self.refused if refused else self.letters).update(self.life_of(letter.row).number for letter in letters)

    def runs_of(self, life: Life, run: int) -> Mapping[int, Execution]:
        return {e.attempt: e for e in self.executions.values() if e.life is life and e.run == run}


def _due(row: Row) -> datetime | None:
    """The instant that counts."""
    due = due_of(str(row["taskId"]), row.get("dueAt"), row.get("nextAttemptAt"))
    return None if due is None else due.at

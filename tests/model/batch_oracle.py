"""What must hold of batches: each member ends once, as its rows say; none that was cancelled begins; what follows is
inserted once, when all have ended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.model.expected_task import Execution, ExpectedTask
from tests.model.faulty_store import Actor
from tests.model.oracle import Oracle
from tests.model.table import Effect

from dynatick.domain.batches import status_of_member
from dynatick.domain.lifecycle import is_terminal, state_of
from dynatick.domain.packs import Pack, Span, member_id, parse_member_id
from dynatick.domain.row import RowView
from dynatick.domain.task import Row, Status, Task, is_own_row
from dynatick.engine.ports import ActionContext


@dataclass
class BatchOracle(Oracle):
    """``members``: of each batch, its members as they were inserted."""

    members: dict[str, list[ExpectedTask]] = field(default_factory=dict)
    followed: dict[str, int] = field(default_factory=dict)  # how often what follows a batch was inserted
    cancelled: set[str] = field(default_factory=set)  # batches that were cancelled at some time
    completed: dict[str, int] = field(default_factory=dict)  # batches that ended otherwise: what had followed by then
    known: dict[str, ExpectedTask] = field(default_factory=dict)  # packs, batches, and what follows them, by id

    def begin_batch(self, batch_id: str, number: int, **known: object) -> None:
        """A batch that is about to be loaded."""
        self.members[batch_id] = [self.expect(member_id(batch_id, n), **known) for n in range(number)]

    def task_of(self, row: Row) -> ExpectedTask:
        task_id = str(row["taskId"])
        named = parse_member_id(task_id)
        if named is not None:
            return self.members[named[0]][named[1]]
        if task_id not in self.known:
            self.known[task_id] = self.expect(task_id)
        return self.known[task_id]

    # -- effects -------------------------------------------------------------------------------------------------------

    def observe(self, by: object, effect: Effect) -> None:
        assert isinstance(by, Actor)
        old, new = effect.old, effect.new
        if is_own_row(effect.task_id):
            if "#pack#" not in effect.task_id:
                self._observe_own(by, effect)
            elif old is not None:
                self.report(f"{effect.task_id}: the body of a pack changed")
            return
        by.request.effects += by.request.operation == "cancel"  # the others are many writes, and go on where they were
        if new is None:
            self.report(f"{effect.task_id}: {by.kind} deleted it")
            return
        if old is not None:
            self._check_shape(by.kind, old, new)
        if (pack := Pack.of(new)) is not None:
            self._observe_pack(by, old, new, pack)
        elif old is None and parse_member_id(effect.task_id) is not None:
            self._observe_extracted(by, new)
        elif old is None and effect.task_id.endswith("/then"):
            self._observe_following(by, effect.task_id.removesuffix("/then"))
        if new.get("outcome") == "failed":
            self._check_dead_letter(self.task_of(new))
        if new.get("outcome") == "cancelled":
            self.cancelled.add(effect.task_id)
        elif effect.task_id in self.members and is_terminal(new):
            self.completed[effect.task_id] = self.followed.get(effect.task_id, 0)
        self.task_of(new).began = True
        if effect.shown_late:
            self.task_of(new).unseen = True

    def _observe_pack(self, by: Actor, old: Row | None, new: Row, pack: Pack) -> None:
        name, before = new["taskId"], None if old is None else Pack.of(old)
        if before is None or old is None:
            if by.kind != "client" or any(True for n in range(pack.span.members) if not self._is_open(pack, n)):
                self.report(f"{name}: {by.kind} made it")
            return
        for kind in ("done", "excluded", "extracted"):
            if getattr(before, kind) & ~getattr(pack, kind):
                self.report(f"{name}: members are {kind} no more")
        for n in range(pack.span.members):
            task = self._member(pack, n)
            if (pack.done & ~before.done) >> n & 1 and not any(one.result == "ok" for one in self._executions(task)):
                self.report(f"{task.task_id}: done, and it has not completed")
            if (pack.extracted & ~before.extracted) >> n & 1 and self.read_row(task.task_id) is None:
                self.report(f"{task.task_id}: extracted, and it has no row")
            is_cancelled = by.kind == "processor" and pack.batch_id in self.cancelled
            by_client = by.kind == "client" and (RowView(old).is_scheduled or RowView(old).is_released)
            if (pack.excluded & ~before.excluded) >> n & 1 and not (is_cancelled or by_client):
                self.report(f"{task.task_id}: excluded by {by.kind} while its pack is {state_of(old)}")
        if state_of(new) == "completed" and any(pack.open()):
            self.report(f"{name}: completed, with open members")

    def _observe_extracted(self, by: Actor, new: Row) -> None:
        task = self.task_of(new)
        row, pack, n = self._pack_of(task)
        if by.kind != "processor" or state_of(row) != "running" or not self._is_open(pack, n):
            self.report(f"{task.task_id}: {by.kind} makes its row while its pack is {state_of(row)}")
        if task.began:
            self.report(f"{task.task_id}: its row was there before")

    def _observe_following(self, by: Actor, batch_id: str) -> None:
        self.followed[batch_id] = self.followed.get(batch_id, 0) + 1
        if by.kind != "processor":
            self.report(f"{batch_id}/then: {by.kind} inserted it")
        for task in self.members[batch_id]:
            if self.status_of(task) not in (Status.COMPLETED, Status.FAILED, Status.CANCELLED):
                self.report(f"{batch_id}/then: inserted while {task.task_id} is {self.status_of(task)}")

    # -- executions ----------------------------------------------------------------------------------------------------

    def begin(self, claimed: Task, context: ActionContext, process: Actor, row: Row | None) -> Execution:
        task, token = self.task_of({"taskId": claimed.task_id}), str(claimed.lease)
        execution = Execution(
            task, context.run, context.attempt, token, context.idempotency_key, process,
            limit_key=claimed.limit_key, began_at=self.simulation.now,
        )  # fmt: skip
        before = [one for one in self._executions(task) if one.run == execution.run]
        if row is None:
            pack_row, pack, n = self._pack_of(task)
            if not self._is_open(pack, n):
                self.report(f"{task.task_id}: executed, and it is {status_of_member(pack_row, pack, n)}")
            row, token = pack_row, token.rpartition("/")[0]
        if state_of(row) != "running" or row.get("lease") != token:
            self.report(f"{task.task_id}: executed while it is {state_of(row)}")
        if any(one.is_running for one in self._executions(task)):
            self.report(f"{task.task_id}: executed while it is executed")
        if any(one.key != execution.key for one in before):
            self.report(f"{task.task_id}: another idempotency key, {execution.key}")
        if any(one.attempt == execution.attempt for one in before):
            self.report(f"{task.task_id}: attempt {execution.attempt} was made before")
        if len(before) >= task.maximum:
            self.report(f"{task.task_id}: execution {len(before) + 1}, at most {task.maximum}")
        if task.not_before > self.simulation.now + 4:
            self.report(f"{task.task_id}: executed {task.not_before - self.simulation.now:.1f} s before its time")
        self._check_pause(claimed, process)
        self.executions[execution.token] = execution
        return execution

    def check_thawed(self, execution: Execution) -> None:
        pass  # that it runs beside another is seen when that begins

    def check_members(self, batch_id: str) -> None:
        """At the end, of a batch that is all in, or was cancelled before its pack was."""
        row = self.read_row(batch_id)
        is_loaded = self.read_row(self._pack_id(batch_id)) is not None
        if not is_loaded and (row is None or row.get("outcome") != "cancelled"):
            self.report(f"{batch_id}: {row and state_of(row)}, and its pack is not there")
        for task in self.members[batch_id] if is_loaded else ():
            status, done = self.status_of(task), [one for one in self._executions(task) if one.result == "ok"]
            # A process that died between its end and the record of it has left an open member.
            is_recorded = any(not one.process.failed for one in done)
            if status == Status.COMPLETED and not done:
                self.report(f"{task.task_id}: completed, and never executed")
            elif status == Status.CANCELLED and is_recorded and self.read_row(task.task_id) is None:
                self.report(f"{task.task_id}: cancelled, and executed")
            elif status not in (Status.COMPLETED, Status.FAILED, Status.CANCELLED):
                self.report(f"{task.task_id}: {status} at the end")
        # One that was cancelled after a redrive had ended before.
        follows = self.completed.get(batch_id, 0) if row is None or row.get("outcome") == "cancelled" else 1
        if row is None or not is_terminal(row) or self.followed.get(batch_id, 0) != follows:
            self.report(f"{batch_id}: {row and state_of(row)}, followed {self.followed.get(batch_id, 0)} times")

    # -- what the rows say ---------------------------------------------------------------------------------------------

    def status_of(self, task: ExpectedTask) -> str:
        if (row := self.read_row(task.task_id)) is not None:
            return state_of(row)
        row, pack, n = self._pack_of(task)
        return status_of_member(row, pack, n)

    def _pack_of(self, task: ExpectedTask) -> tuple[Row, Pack, int]:
        named = parse_member_id(task.task_id)
        assert named is not None
        batch_id, number = named
        pack_id = self._pack_id(batch_id)
        row = self.read_row(pack_id)
        pack = None if row is None else Pack.of(row)
        assert row is not None and pack is not None, f"{pack_id} is not there"
        return row, pack, number

    def _pack_id(self, batch_id: str) -> str:
        return Span(0, len(self.members[batch_id])).pack_id(batch_id)  # they all fit into one

    def _member(self, pack: Pack, n: int) -> ExpectedTask:
        return self.members[pack.batch_id][pack.span.first + n]

    @staticmethod
    def _is_open(pack: Pack, n: int) -> bool:
        return not (pack.done | pack.excluded | pack.extracted) >> n & 1

    def _executions(self, task: ExpectedTask) -> Iterator[Execution]:
        return (one for one in self.executions.values() if one.task is task)

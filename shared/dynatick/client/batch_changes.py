"""Changes of whole batches: of their rows, of the packs that wait, and of members with rows of their own.

Each is many conditional writes, several at a time. Whatever dies meanwhile, the same call goes on where it was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from threading import Lock
from typing import TYPE_CHECKING, Final

from dynatick.client import task_update
from dynatick.client.batch_loading import BODY_KEPT, THREADS, batch_of, body_expires_at
from dynatick.client.ended_batches import again
from dynatick.client.settings_cache import SettingsCache
from dynatick.client.task_decisions import Rescheduling, TaskDecisions
from dynatick.client.thread_pool import thread_pool
from dynatick.client.views import TaskView
from dynatick.domain import attributes as attr
from dynatick.domain.batches import OPEN, Batch, extracted_ids, is_of_pack
from dynatick.domain.conditional_update import ConditionalUpdate, Is, Unknown, merge_updates
from dynatick.domain.instants import format_instant
from dynatick.domain.lifecycle import cancel, reschedule, revise, state_of
from dynatick.domain.packs import MAX_BATCH, MAX_MEMBERS, OF_BATCH, Pack, body_id, spans_with
from dynatick.domain.row import RowView, is_terminal
from dynatick.domain.task import Row, Status
from dynatick.engine.batches import packs_of, standings
from dynatick.engine.conditional_write import write
from dynatick.engine.ports import Clock, Store
from dynatick.errors import BatchNotFound, StoreError, TaskNotFound, TransitionRefused

if TYPE_CHECKING:
    from dynatick.client.change_records import ChangeRecord

_PROBED: Final = 20  # spans whose packs are looked for together
_AT_A_TIME: Final = 4 * THREADS  # packs
_MUCH_LATER: Final = BODY_KEPT / 2
_MOMENT: Final = "it looks at its members; try it again in a moment"


def packs_in(store: Store, batch_id: str, batch: Batch, since: int = 0) -> Iterator[tuple[Row, Pack]]:
    """The packs of a batch in order, also of one that is not sealed, from that which has the member ``since`` on."""
    if batch.members is not None:
        return packs_of(store, batch_id, batch.members, since)
    return _loaded(store, batch_id, batch.total, since)


def _loaded(store: Store, batch_id: str, total: int | None, since: int) -> Iterator[tuple[Row, Pack]]:
    """The packs of a batch that is not sealed. Without a ``total`` it is loaded in order; else in any."""
    end = MAX_BATCH if total is None else total
    firsts = iter(range(since - since % MAX_MEMBERS, end, MAX_MEMBERS))
    while some := list(islice(firsts, _PROBED)):
        spans = {span.pack_id(batch_id): span for first in some for span in spans_with(first, end)}
        rows = store.get_many(spans, only=(attr.STATUS,))
        if rows:
            last = max(spans[one].first for one in rows)
            yield from packs_of(store, batch_id, min(last + MAX_MEMBERS, end), max(some[0], since))
        elif total is None:
            break


@dataclass(frozen=True, slots=True)
class BatchChanges:
    """Changes the batches of a table; ``record`` counts the members. Methods raise BatchNotFound, TransitionRefused,
    StoreError."""

    store: Store
    settings_cache: SettingsCache
    clock: Clock

    def cancel(self, batch_id: str, record: ChangeRecord) -> Counter[str]:
        """Cancels what waits. Returns how many members were cancelled, and how many run, by status."""
        is_cancelled = self._cancel_row(batch_id)
        decide = record.before(TaskDecisions(self.settings_cache, self.clock).cancelled())
        found = self._each_pack(
            batch_id,
            lambda row, pack: self._cancel_pack(row, pack, decide),
            record,
            lambda one: one[Status.CANCELLED],
        )
        if not is_cancelled and not self._cancel_row(batch_id):
            raise TransitionRefused(batch_id, "cancel", str(Status.RUNNING), task_update.UNBEGUN, what="batch",
                                    instead=_MOMENT)  # fmt: skip
        return found

    def reschedule(self, batch_id: str, due_at: datetime, record: ChangeRecord) -> tuple[Batch, Counter[str]]:
        """Moves the members that wait with their packs. Returns the batch as it is then, and how many members were
        moved, and how many run, by status."""
        _, before = batch_of(self.store, batch_id)
        batch = self._reschedule_row(batch_id, due_at)
        began, grid = self.clock(), self.settings_cache.grid()

        def move(row: Row, pack: Pack) -> Counter[str]:
            to = batch.due_of(pack.span, batch.total or 0)
            if is_terminal(row) or row.get(attr.DUE_AT) == format_instant(to):
                return Counter()
            if to - before.due_of(pack.span, before.total or 0) > _MUCH_LATER:
                self._keep_body(row, to)
            decide = Rescheduling(to=to, began=began, clock=self.clock, grid=grid).decide
            became = self._change(RowView(row).task_id, record.before(decide))
            return Counter({became: sum(1 for _ in pack.open())})

        return batch, self._each_pack(batch_id, move, record, lambda one: one[Status.SCHEDULED])

    def redrive(self, batch_id: str, record: ChangeRecord) -> int:
        """Starts the members that have failed anew, at the next tick, and the batch itself, if it has ended: it ends
        again when they have. Returns how many members. ``record`` follows the runs of those with rows of their own, as
        all have that failed by themselves; of a pack that failed as a whole it has the number."""
        decisions = TaskDecisions(self.settings_cache, self.clock)
        departures = task_update.Departures(self.store, self.settings_cache, self.clock)
        decide = record.before(departures.noting(decisions.redriven()))
        runs, lock = record.tally.runs, Lock()

        def start(row: Row, pack: Pack) -> Counter[str]:
            failed = {i: 1 for i, own in self._extracted(row, pack) if state_of(own) == Status.FAILED}
            if is_terminal(row) and state_of(row) == Status.FAILED:
                failed[RowView(row).task_id] = sum(1 for _ in pack.open())
            begun = Counter[str]()
            for task_id, members in failed.items():
                try:
                    started = task_update.carry_out(self.store, task_id, decide)
                except (TransitionRefused, TaskNotFound):
                    continue
                begun[task_id] = members
                if runs is not None:
                    with lock:
                        if task_id == RowView(row).task_id:
                            runs.not_followed += members
                        else:
                            runs.add(TaskView.from_row(started))
            return begun

        started = self._each_pack(batch_id, start, record, Counter.total)
        for task_id in started:
            departures.count(task_id)
        departures.write()
        self._reopen(batch_id, decisions)
        return started.total()

    # -- the row of the batch --------------------------------------------------------------------------------------

    def _cancel_row(self, batch_id: str) -> bool:
        """False: it runs at this moment."""
        days = self.settings_cache.defaults().retention_days

        def decide(row: Row) -> ConditionalUpdate:
            _require_waiting(row, "cancel")
            return cancel(row, now=self.clock(), retention_days=days)

        batch_of(self.store, batch_id)
        try:
            task_update.carry_out(self.store, batch_id, decide)
        except TransitionRefused as refused:
            if refused.status not in (Status.CANCELLED, Status.RUNNING):
                raise
            return refused.status == Status.CANCELLED
        return True

    def _reschedule_row(self, batch_id: str, due_at: datetime) -> Batch:
        """The definition first: the times of the packs follow from it, however often this is called."""
        batch_of(self.store, batch_id)
        grid = self.settings_cache.grid()
        found: list[Batch] = []

        def decide(row: Row) -> ConditionalUpdate:
            own = Batch.of(row)
            if own is None:
                raise BatchNotFound(batch_id)
            _require_waiting(row, "reschedule")
            if own.members is None:
                raise TransitionRefused(batch_id, "reschedule", "not loaded", (), what="batch",
                                        instead="load all of its members before, or cancel it")  # fmt: skip
            batch = replace(own, due_at=due_at)
            found[:] = [batch]
            moved = Rescheduling(to=batch.last_due_at, began=self.clock(), clock=self.clock, grid=grid)
            bucket, at = moved.target(row)
            moved_row = reschedule(row, bucket=bucket, due_at=at)
            return merge_updates(replace(moved_row, set={**moved_row.set, **batch.listed()}),
                                 revise(row, payload=batch.to_payload()))  # fmt: skip

        task_update.carry_out(self.store, batch_id, decide)
        (batch,) = found
        return batch

    def _reopen(self, batch_id: str, decisions: TaskDecisions) -> None:
        """Has the task of a batch that has ended look at its members again, if some are open."""
        row, batch = batch_of(self.store, batch_id)
        if batch.members is None or not is_terminal(row):
            return
        if standings(self.store, batch_id, batch.members)[OPEN]:
            self._change(batch_id, decisions.next_tick(again))

    # -- packs and members -----------------------------------------------------------------------------------------

    def _each_pack(
        self,
        batch_id: str,
        do: Callable[[Row, Pack], Counter[str]],
        record: ChangeRecord,
        changed: Callable[[Counter[str]], int],
    ) -> Counter[str]:
        """The sum of what ``do`` returns for each pack, several at a time. ``changed``: how many members that are, for
        the record."""
        found = Counter[str]()
        _, batch = batch_of(self.store, batch_id)
        packs = packs_in(self.store, batch_id, batch)
        with thread_pool(THREADS, "dynatick-batch") as pool:
            while some := list(islice(packs, _AT_A_TIME)):
                for one in pool.map(lambda found: do(*found), some):
                    found += one
                    record.tally.changed += changed(one)
        return found

    def _extracted(self, row: Row, pack: Pack) -> Iterator[tuple[str, Row]]:
        """The members of a pack that have rows of their own, with what says how they stand."""
        if not pack.extracted:
            return
        rows = self.store.get_many(extracted_ids(pack), only=(attr.STATUS, attr.OUTCOME, *OF_BATCH))
        yield from ((task_id, own) for task_id, own in rows.items() if is_of_pack(own, row, pack))

    def _cancel_pack(self, row: Row, pack: Pack, decide: task_update.Decide) -> Counter[str]:
        """Cancels the members of a pack that wait, those with rows of their own too."""
        found = Counter(self._change(task_id, decide) for task_id, _ in self._extracted(row, pack))
        if (number := sum(1 for _ in pack.open())) and not is_terminal(row):
            found[self._change(RowView(row).task_id, decide)] += number
        return found

    def _keep_body(self, row: Row, due_at: datetime) -> None:
        """Has the payloads of a pack that is to move to ``due_at`` expire later: before it moves, so that none waits
        for payloads that are gone."""
        change = ConditionalUpdate(
            task_id=body_id(RowView(row).task_id),
            set={attr.EXPIRES_AT: body_expires_at(due_at)},
            conditions=(Is(attr.STATUS, "body"),),
        )
        if isinstance(result := write(self.store, change), Unknown):
            raise StoreError(f"cannot reschedule {RowView(row).task_id!r}: {result.error}")

    def _change(self, task_id: str, decide: task_update.Decide) -> str:
        """Changes a task. Returns what it is then: ``… already`` if it was that before, or ``deleted``."""
        try:
            return state_of(task_update.carry_out(self.store, task_id, decide))
        except TransitionRefused as refused:
            return str(refused.status) if refused.status == Status.RUNNING else f"{refused.status} already"
        except TaskNotFound:
            return "deleted"


def _require_waiting(row: Row, operation: str) -> None:
    """Raises TransitionRefused for the row of a batch that does not wait."""
    if (state := state_of(row)) not in task_update.UNBEGUN and not RowView(row).is_released:
        instead = _MOMENT if state == Status.RUNNING else ""
        raise TransitionRefused(
            RowView(row).task_id, operation, state, task_update.UNBEGUN, what="batch", instead=instead
        )

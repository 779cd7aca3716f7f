"""The table as it truly is, who changed it, and what its index shows by now.

Everything that happens to a row passes through here, in one order. The store underneath is a real one; the index's lag
is laid over what it finds.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from tests.model.simulation import Simulation
from tests.model.tracing import Trace

from dynatick.domain.buckets import Bucket
from dynatick.domain.conditional_update import Condition, ConditionalUpdate, Result
from dynatick.domain.task import Row
from dynatick.engine.ports import Entry, Page, Store, StoreFailure
from dynatick.store.codec import encode, entry_of

if TYPE_CHECKING:
    from tests.model.faulty_store import Actor

REPLICAS = 2

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Effect:
    """A row before and after a write."""

    task_id: str
    old: Row | None
    new: Row | None
    shown_late: bool = False  # by the index, later than it may


@dataclass(slots=True)
class _Version:
    """A row's place in the index, and when each replica shows it."""

    shown_at: tuple[float, ...]
    entry: Entry | None


@dataclass
class Table:
    """``put_row`` does what put-item does. ``observers`` observe of every effect."""

    inner: Store
    put_row: Callable[[Row], None]
    simulation: Simulation
    trace: Trace
    observers: list[Callable[[object, Effect], None]] = field(default_factory=list)
    lag: float = 0.0  # the index's, at most; at random
    allowed_lag: float = math.inf
    history: list[tuple[float, str, Row | None]] = field(default_factory=list)
    rng: random.Random = field(default_factory=lambda: random.Random(0))
    _index: dict[str, list[_Version]] = field(default_factory=dict)
    _behind: set[str] = field(default_factory=set)  # the rows that some replica may not show as they are

    # -- writes --------------------------------------------------------------------------------------------------------

    def put(self, by: Actor, row: Row) -> None:
        def put() -> None:
            self.put_row(row)
            self.trace.put(by, row)

        self._apply(by, [str(row["taskId"])], put)

    def delete(self, by: Actor, task_id: str, conditions: Sequence[Condition] = ()) -> bool:
        def delete() -> bool:
            ok = self.inner.delete(task_id, conditions)
            self.trace.delete(by, task_id, conditions, ok)
            return ok

        return self._apply(by, [task_id], delete)

    def create(self, by: Actor, row: Row) -> bool:
        def create() -> bool:
            ok = self.inner.create(row)
            self.trace.create(by, row, ok)
            return ok

        return self._apply(by, [str(row["taskId"])], create)

    def create_many(self, by: Actor, rows: Sequence[Row]) -> list[bool | StoreFailure]:
        def create() -> list[bool | StoreFailure]:
            answers = list(self.inner.create_many(rows))
            for row, ok in zip(rows, answers, strict=True):
                self.trace.create(by, row, ok is True)
            return answers

        return self._apply(by, [str(row["taskId"]) for row in rows], create)

    def write(self, by: Actor, change: ConditionalUpdate) -> Result:
        return self._write(by, [change], lambda: [self.inner.write(change)])[0]

    def write_many(self, by: Actor, changes: Sequence[ConditionalUpdate]) -> list[Result]:
        return self._write(by, changes, lambda: list(self.inner.write_many(changes)))

    def _write(self, by: Actor, changes: Sequence[ConditionalUpdate], do: Callable[[], list[Result]]) -> list[Result]:
        def write() -> list[Result]:
            results = do()
            for change, result in zip(changes, results, strict=True):
                self.trace.write(by, change, result)
            return results

        return self._apply(by, [change.task_id for change in changes], write)

    def _apply(self, by: Actor, ids: Sequence[str], do: Callable[[], T]) -> T:
        before = self.inner.get_many(ids)
        answer = do()
        after = self.inner.get_many(ids)
        for task_id in ids:
            old, new = before.get(task_id), after.get(task_id)
            if old != new:
                self.history.append((self.simulation.now, task_id, new))
                effect = Effect(task_id, old, new, self._show(task_id, new))
                if effect.shown_late:
                    self.trace.shown_late(effect)
                for observe in self.observers:
                    try:
                        observe(by, effect)
                    except Exception as error:  # the engine would take it for a fault of the table
                        self.simulation.errors.append(error)
        return answer

    # -- reads ---------------------------------------------------------------------------------------------------------

    def get(self, task_id: str) -> Row | None:
        return self.inner.get(task_id)

    def everything(self, *, open_only: bool = False) -> list[Row]:
        page = self.inner.scan(open_only=open_only)
        rows = list(page.rows)
        while page.after is not None:
            page = self.inner.scan(after=page.after, open_only=open_only)
            rows += page.rows
        return rows

    def query_bucket(
        self, bucket: Bucket, *, after: str | None, open_only: bool, outcome: str | None, limit: int | None
    ) -> Page:
        """A page of a bucket, as one of the index's replicas shows it now."""
        page = self.inner.query_bucket(bucket, after=after, open_only=open_only, outcome=outcome, limit=limit)
        replica, now = self.rng.randrange(REPLICAS), self.simulation.now
        found = {entry.task_id: entry for entry in page.entries}
        self._behind = {task_id for task_id in self._behind if max(self._index[task_id][-1].shown_at) > now}
        for task_id in self._behind:
            versions = self._index[task_id]
            if versions[-1].shown_at[replica] <= now:
                continue
            found.pop(task_id, None)
            shown = next((v.entry for v in reversed(versions) if v.shown_at[replica] <= now), None)
            if (
                shown is not None
                and shown.bucket == str(bucket)
                and (after is None or task_id > after)
                and (page.after is None or task_id <= page.after)
                and (shown.outcome == outcome if outcome is not None else not open_only or shown.outcome is None)
            ):
                found[task_id] = shown
        return Page([found[task_id] for task_id in sorted(found)], page.after)

    def as_of(self, moment: float) -> dict[str, Row]:
        """Returns all rows as they were at an instant."""
        rows = {task_id: row for at, task_id, row in self.history if at <= moment}
        return {task_id: row for task_id, row in rows.items() if row is not None}

    def index_anew(self) -> None:
        """The index shows what the table has."""
        self._index.clear()
        self._behind.clear()

    def forget_shown(self) -> None:
        """Keeps no former version of what the index shows everywhere by now."""
        now = self.simulation.now
        self._index = {name: kept for name, kept in self._index.items() if max(kept[-1].shown_at) > now}
        self._behind &= self._index.keys()

    @property
    def all_shown_at(self) -> float:
        """Returns the instant from which the index shows all that was written so far."""
        return max((max(versions[-1].shown_at) for versions in self._index.values()), default=0.0)

    def _show(self, task_id: str, new: Row | None) -> bool:
        versions = self._index.setdefault(task_id, [])
        shown_at = []
        for replica in range(REPLICAS):
            lag = self.rng.choice((0.0, 0.0, self.rng.uniform(0, self.lag), self.lag)) if self.lag else 0.0
            earliest = versions[-1].shown_at[replica] if versions else 0.0
            shown_at.append(max(self.simulation.now + lag, earliest))
        versions.append(_Version(tuple(shown_at), _entry(new)))
        self._behind.add(task_id)
        return max(shown_at) > self.simulation.now + self.allowed_lag


def _entry(row: Row | None) -> Entry | None:
    if row is None or not isinstance(row.get("taskDateTime"), str):
        return None
    return entry_of(encode(row))

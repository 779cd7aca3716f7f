"""The trace of a run of the model: each effect and each decision, as the world around the processes sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tests.trace import change_of, conditions_of, row_of

from dynatick.domain.buckets import Bucket
from dynatick.domain.conditional_update import Condition, ConditionalUpdate, Result, Written
from dynatick.domain.task import Row
from dynatick.engine.ports import DeadLetter, Page, ScanPage

if TYPE_CHECKING:
    from tests.model.faulty_store import Actor
    from tests.model.simulation import Simulation
    from tests.model.table import Effect

MARGIN = 4.0  # s that the clocks of two hosts may differ by


class Trace:
    """``lag``: the seconds by which the index may lag; ``limits``: of keys, as KeyLimits has them; ``rates``: as
    ActionRateLimits has them."""

    def __init__(
        self, simulation: Simulation, lag: float, limits: Sequence[str] = (), rates: Sequence[str] = ()
    ) -> None:
        self._simulation = simulation
        self._numbers: dict[Actor, int] = {}
        self.events: list[Mapping[str, Any]] = [
            {"e": "trace", "lag": lag, "skew": MARGIN, "attempts": 4, "executions": True}
            | {"limits": list(limits), "rates": list(rates), "stream": True}
        ]

    def add(self, event_kind: str, by: Actor | None, /, **more: Any) -> None:
        event: dict[str, Any] = {"e": event_kind, "at": self._now}
        if by is not None:
            event["by"] = self.begin(by)
        self.events.append(event | more)

    @property
    def _now(self) -> float:
        return round(self._simulation.start.timestamp() + self._simulation.now, 6)

    # -- processes -----------------------------------------------------------------------------------------------------

    def begin(self, by: Actor, order: object = None, environment: int | None = None) -> int:
        """The number of a process, which begins at its first event. ``order``: the event of its invocation.
        ``environment``: the number of that in which it runs; it keeps what it knows for the next invocation there."""
        if by not in self._numbers:
            self._numbers[by] = len(self._numbers)
            self.add("process", by, kind=by.kind, skew=by.skew, order=order)
            if environment is not None:
                self.events[-1] |= {"in": environment}  # type: ignore[operator]
            if by.ends < float("inf"):
                self.events[-1] |= {"until": round(self._simulation.start.timestamp() + by.ends, 6)}  # type: ignore[operator]
        return self._numbers[by]

    def died(self, by: Actor) -> None:
        if by in self._numbers:
            self.add("died", by)

    # -- the table -----------------------------------------------------------------------------------------------------

    def create(self, by: Actor, row: Row, ok: bool) -> None:
        self.add("create", by, id=str(row["taskId"]), row=row_of(row), ok=ok)

    def put(self, by: Actor, row: Row) -> None:
        self.add("put", by, id=str(row["taskId"]), row=row_of(row))

    def delete(self, by: Actor, task_id: str, conditions: Sequence[Condition], ok: bool) -> None:
        self.add("delete", by, id=task_id, **{"if": conditions_of(conditions)}, ok=ok)

    def write(self, by: Actor, change: ConditionalUpdate, result: Result) -> None:
        self.add("write", by, **change_of(change), ok=isinstance(result, Written))

    def shown_late(self, effect: Effect) -> None:
        """The index breaks its promise for a row: it shows this change later than it may."""
        self.add("shown late", None, id=effect.task_id)

    def poll(self, by: Actor, bucket: Bucket, after: str | None, page: Page, is_of_open: bool) -> None:
        entries = [[entry.task_id, entry.outcome] for entry in page.entries]
        of = "open" if is_of_open else "all"
        self.add("poll", by, bucket=str(bucket), after=after, through=page.after, of=of, entries=entries)

    def scan(self, by: Actor, after: str | None, page: ScanPage) -> None:
        ids = [str(row["taskId"]) for row in page.rows]
        self.add("scan", by, after=after, through=page.after, ids=ids)

    # -- the rest of the world -----------------------------------------------------------------------------------------

    def record(self, effect: Effect) -> None:
        """The stream has a record of a change, and its filter lets it through."""
        self.add("record", None, id=effect.task_id)

    def letters(self, by: Actor, letters: Sequence[DeadLetter]) -> None:
        self.add("letters", by, ids=[str(letter.row["taskId"]) for letter in letters])

"""A worker: claims a range of a bucket for the shard's holder, and touches no cursor (protocol 17)."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from dynatick.engine.claiming import Claiming, ExpiredLeases
from dynatick.engine.counts import PassReport
from dynatick.engine.cursor import read_cursor
from dynatick.engine.drain import Polling
from dynatick.engine.invocation import Budget, Execution, Services
from dynatick.engine.orders import WorkOrder
from dynatick.engine.ports import Clock
from dynatick.engine.window import Segment, Window


def work(services: Services, order: WorkOrder, *, hard_end: datetime) -> PassReport:
    """Claims what is due in the order's range, until its instant, and runs it.

    What it doesn't claim, the shard's holder does: schedules, tasks with a rate limit, those whose lease expired, and
    all that is left at the order's instant. ``hard_end``: when Lambda will kill the process.

    The report names the tick and the shard of the order's bucket. Raises StoreError if the table can't be reached.
    """
    started = services.clock()
    report = PassReport(tick=order.bucket.minute, shard=order.bucket.shard, continuation=0, started_at=started)
    working = _Working(services, order, report, Budget.until(hard_end, started))
    try:
        working.work()
    finally:
        working.close()
    return report


@dataclass(slots=True)
class _Order:
    """The permit of a worker, until the order's instant."""

    clock: Clock
    until: datetime
    is_of_holder: bool = False

    @property
    def is_held(self) -> bool:
        return self.clock() < self.until

    def keep_open(self, until: datetime) -> bool:
        """Only the shard's holder writes occurrences."""
        return False


@dataclass(slots=True)
class _Working:
    services: Services
    order: WorkOrder
    report: PassReport
    budget: Budget
    execution: Execution = field(init=False)
    polling: Polling = field(init=False)

    def __post_init__(self) -> None:
        services, shard = self.services, self.order.bucket.shard
        cursor = read_cursor(services.store, shard, services.clock())
        window = Window(cursor, services.rules, closed_at=services.clock())  # of this process alone: it saves nothing
        claiming = Claiming(
            services,
            window,
            self.report,
            self.budget,
            _Order(services.clock, self.order.until),
            ExpiredLeases(self.report, lambda orders, then: then(0), self.order.until),
        )
        self.execution = claiming.execution
        self.polling = Polling(claiming, None)

    def work(self) -> None:
        execution = self.execution
        self.polling.poll_and_claim([Segment.of(self.order)])
        execution.wait(until=lambda: not execution.in_flight or bool(execution.too_late), end=self.budget.stop_claiming)
        execution.release_unbegun()  # a task that begins later might be cut off
        execution.finish()
        execution.conclude()

    def close(self) -> None:
        self.execution.close()
        self.polling.close()

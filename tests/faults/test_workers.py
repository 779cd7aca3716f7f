"""Workers never start, start late or twice, or die; the shard's holder dies. The tick runs what they leave, and nothing
waits longer than a lease and a tick.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from threading import Thread
from typing import Any

import pytest
from tests.faults.conftest import NewWorld
from tests.sandbox.journal import Began, Died, Tail
from tests.sandbox.process import Sandbox
from tests.sandbox.seam import Fault
from tests.sandbox.world import AFTER_LEASE, TIMEOUT, World

from dynatick.domain.instants import parse_instant
from dynatick.engine.cursor import cursor_id

TASKS, WORKERS, THREADS = 320, 3, 3  # a pass claims 100 at once, and gives workers of the others
SECONDS, SPEED = 0.1, 3.0  # of a task, and of the shared clock
ALONE = timedelta(seconds=TASKS * SECONDS * SPEED / THREADS)  # that one process takes for all, by that clock
SLOWEST_MACHINE = 3  # times as long
TICK = timedelta(minutes=1)

Order = Mapping[str, Any]  # the event of a worker


def until(order: Order) -> datetime:
    return parse_instant(order["dynatick"]["work"]["until"], "until")


def is_in(order: Order, task_id: str) -> bool:
    work = order["dynatick"]["work"]
    return (work["after"] or "") < task_id <= work["through"]


class Burst:
    """A bucket that is too much for one process, whose tick has come, and the processes that run it."""

    def __init__(self, new_world: NewWorld, **settings: str) -> None:
        limits = {"DYNATICK_MAX_WORKERS": str(WORKERS), "DYNATICK_TASK_THREADS": str(THREADS)}
        self.world: World = new_world(speed=SPEED, **limits, **settings)
        self._idle = self.world.ready_sandboxes(WORKERS + 2)
        self._running: list[Sandbox] = []
        self._asked_for = Tail(self.world.folder.invocations)
        self.orders: list[Order] = []
        self.world.insert_for_next_tick((f"t{n:03d}" for n in range(TASKS)), payload={"seconds": SECONDS})
        self.world.deliver_stream()
        self.tick = self.world.bucket(1).instant
        self.world.to_next_minute()

    def begin(self, event: Mapping[str, Any] | None = None, *, faults: Sequence[Fault] = ()) -> Sandbox:
        """Begins an invocation: the tick's pass, or what an event says."""
        sandbox = self._idle.pop() if self._idle else self.world.sandbox()
        sandbox.begin(event or self.world.event(self.tick), timeout=TIMEOUT, faults=faults)
        self._running.append(sandbox)
        return sandbox

    def end(self, sandbox: Sandbox) -> str:
        """Waits for the end of an invocation, or until it is frozen; what came of it."""
        outcome = self.world.end(sandbox)
        if outcome.what != "frozen":
            self._running.remove(sandbox)
        if outcome.what == "returned":
            self._idle.append(sandbox)
        return outcome.what

    def kill(self, sandbox: Sandbox) -> None:
        self._running.remove(sandbox)
        self.world.kill(sandbox)

    def started(self) -> list[Order]:
        """The workers that were started since the last call. Other invocations begin at once."""
        events = self._asked_for.new()
        orders = [event for event in events if "work" in event["dynatick"]]
        for event in events:
            if event not in orders:
                self.begin(event)
        self.orders += orders
        return orders

    def run(self, holder: Sandbox, treat: Callable[[Order], object]) -> None:
        """Waits for the end of a pass, and treats each worker that it starts meanwhile."""
        waiting = Thread(target=self.end, args=(holder,))
        waiting.start()
        while waiting.is_alive():
            for order in self.started():
                treat(order)
            waiting.join(0.02)  # wait: between two looks at what was started

    def frozen_holder(self, at: str) -> Sandbox:
        """A pass that has handed out ranges, and is frozen once its workers were ``started``, which it waits for beside
        its other work, or ``listed`` on the cursor as well."""
        call = {"started": "invoke", "listed": "acquire shard"}[at]
        holder = self.begin(faults=[Fault(at=call, do="freeze after", times=None)])
        while True:
            assert self.end(holder) == "frozen"
            self.started()
            if len(self.orders) == WORKERS and (at == "started" or self.listed()):
                return holder
            holder.thaw()

    def listed(self) -> list[Any]:
        """The ranges on the cursor row."""
        listed: list[Any] = self.world.row(cursor_id(0)).get("handedOut") or []
        return listed

    def finish(self, *, within: timedelta) -> None:
        """Waits for the invocations that run, then ticks until all tasks have ended; none may have begun later than
        ``within``, from the tick on."""
        while self._running:
            last = self._running[-1]
            if self.end(last) == "frozen":
                last.thaw()
            self.started()
        self.world.started()
        self._asked_for = Tail(self.world.folder.invocations)
        self.world.finish()
        latest = max(self.world.journal.of(Began), key=lambda one: one.at)
        late = latest.instant - self.tick
        assert late <= within + SLOWEST_MACHINE * ALONE, f"{latest.task_id} began {late} after its tick"


SOON = 2 * TICK  # what no process has claimed that died
AFTER_A_LEASE = timedelta(seconds=AFTER_LEASE) + TICK

TREATMENTS: dict[str, tuple[timedelta, Callable[[Burst, Order], object]]] = {
    "die once they have claimed": (
        AFTER_A_LEASE,
        lambda burst, order: burst.begin(order, faults=[Fault(at="claim", do="kill after")]),
    ),
    "die before they claim": (
        SOON,
        lambda burst, order: burst.begin(order, faults=[Fault(at="poll", do="kill before")]),
    ),
    "die while they work": (
        AFTER_A_LEASE,
        lambda burst, order: burst.begin(order, faults=[Fault(at="record", do="kill before", skip=2)]),
    ),
    "work": (SOON, lambda burst, order: burst.begin(order)),
    "never start": (SOON, lambda burst, order: None),
    "start twice": (SOON, lambda burst, order: (burst.begin(order), burst.begin(order))),
}


@pytest.mark.parametrize("how", TREATMENTS)
def test_fault_30_workers_do_not_work_as_they_should(new_world: NewWorld, how: str) -> None:
    burst = Burst(new_world)
    within, treat = TREATMENTS[how]
    burst.run(burst.begin(), lambda order: treat(burst, order))
    assert len(burst.orders) >= WORKERS
    burst.finish(within=within)
    dies = how.startswith("die")
    assert bool(burst.world.journal.of(Died)) == dies
    burst.world.assert_survived(executed=TASKS, repeated=None if dies else 0)


def test_fault_30_workers_start_late(new_world: NewWorld) -> None:
    """Workers that start after their instant leave all to the holder, even what it has not claimed yet."""
    burst = Burst(new_world)
    holder = burst.frozen_holder("listed")
    burst.world.clock.to(max(map(until, burst.orders)))
    for order in burst.orders:
        assert burst.end(burst.begin(order)) == "returned"
    begun = burst.world.journal.of(Began)
    assert not [one for one in begun if any(is_in(order, one.task_id) for order in burst.orders)]
    burst.kill(holder)
    burst.finish(within=AFTER_A_LEASE)
    burst.world.assert_survived(executed=TASKS)


@pytest.mark.parametrize("workers", ["work", "never start"])
@pytest.mark.parametrize("at", ["started", "listed"])
def test_fault_30_the_holder_dies_with_ranges_handed_out(new_world: NewWorld, at: str, workers: str) -> None:
    """The holder dies as soon as it has started its workers, or once it has written their ranges down."""
    burst = Burst(new_world)
    burst.kill(burst.frozen_holder(at))
    if workers == "work":
        for order in burst.orders:
            burst.begin(order)
    burst.finish(within=AFTER_A_LEASE)
    burst.world.assert_survived(executed=TASKS)

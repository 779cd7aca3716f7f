"""Ticks stop for 60 days, then come back: what is due runs, and what was polled once is not polled again and again.

Every minute of the gap has to be polled. Sixty days of them take the time of a tick or more; here there are three days,
and each poll takes twenty times as long (with ``--fault-scale 20`` sixty, each as long as on Lambda).
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta

import pytest
from tests.faults.conftest import NewWorld, Report
from tests.faults.test_fault_21_lagging_index import seen_late
from tests.faults.worker import LAG, POLL_SECONDS
from tests.faults.world import World
from tests.sandbox.process import Outcome

from dynatick.domain.buckets import instant_of, minute_of

DAYS = 60
POLL = 1.26e-3  # seconds, six at once, at 1,024 MB; 33 days take a minute
FEWER = 20
DAY = 1440  # minutes


class Rule:
    """Fires at each minute of the clock, whether or not earlier invocations still run; and runs what those start."""

    def __init__(self, world: World, pool: ThreadPoolExecutor, life: float) -> None:
        self.world, self._pool, self._life = world, pool, life
        self._idle = [world.sandbox()]
        self._running: list[Future[Outcome]] = []
        self.outcomes: list[Outcome] = []

    def _begin(self, events: Sequence[object]) -> None:
        for event in events:
            self._running.append(self._pool.submit(self._run, event))

    def _run(self, event: dict[str, object]) -> Outcome:
        sandbox = self._idle.pop() if self._idle else self.world.sandbox()
        sandbox.begin(event, life=self._life)
        outcome = self.world.end(sandbox)
        if sandbox.alive:
            self._idle.append(sandbox)
        return outcome

    def tick(self) -> None:
        """One tick, and all that happens until it is time for the next."""
        minute = minute_of(self.world.clock()) + 1
        self.world.clock.to(instant_of(minute) + timedelta(milliseconds=200))
        self._begin([self.world.event()])
        while minute_of(self.world.clock()) == minute:
            ended = [future for future in self._running if future.done()]
            self._running = [future for future in self._running if future not in ended]
            self.outcomes += [future.result() for future in ended]
            started = self.world.started()
            self._begin(started)
            if not self._running and not started:
                return  # nothing would move the clock
            self.world.wait_a_moment(0.01)


def executed(world: World) -> set[str]:
    return {execution.task_id for execution in world.ledger.done()}


def not_drained(world: World) -> bool:
    """Whether more of the gap is left than an index that lags needs."""
    return any(cursor.drained_through < cursor.closed_through - 10 for cursor in world.cursors())


@pytest.mark.parametrize(
    ("slower", "life"),
    [(1.0, 120.0), (4.0, 30.0)],
    ids=["at 1,024 MB", "at 256 MB with 30 s"],
)
def test_fault_24_sixty_days_without_a_tick(
    new_world: NewWorld, scale: int, slower: float, life: float, report: Report
) -> None:
    minutes = DAYS * DAY * scale // FEWER
    seconds = POLL * slower * FEWER / scale
    world = new_world(speed=0.02, **{LAG: "0 0", POLL_SECONDS: str(seconds)})
    with seen_late(world):
        now = world.clock()
        world.insert_many([{"taskId": "at first", "dueAt": now + timedelta(minutes=10)}])
        world.insert_many([{"taskId": "half-way", "dueAt": now + timedelta(minutes=minutes // 2)}])
        world.clock.forward(minutes=minutes)
        world.insert_many([{"taskId": "now", "delaySeconds": 5}])
    # Polled once, the gap takes so many ticks; and as many again, for what an invocation begins and can't end.
    once = minutes * seconds / 60
    maximum = 3 if once < 2 else int(2 * once) + 3
    world.polls()
    with ThreadPoolExecutor(16) as pool:
        rule = Rule(world, pool, life)
        ticks = 0
        while "now" not in executed(world) and ticks < maximum:
            rule.tick()
            ticks += 1
        polls = world.polls()
        said = f"after {ticks} ticks and {polls:,} polls of {minutes:,} buckets: {world.cursors()}"
        assert executed(world) == world.inserted, said
        # Twice at the most: final polls may begin before the first ones have come to the end of the gap.
        assert polls < 2.2 * minutes, said
        while not_drained(world) and ticks < 4 * maximum:
            rule.tick()
            ticks += 1
        assert not not_drained(world), f"after {ticks} ticks: {world.cursors()}"
        assert {outcome.what for outcome in rule.outcomes} == {"returned"}
        world.polls()
        for _ in range(3):
            rule.tick()
        assert world.polls() < 100, "the gap is behind us"
    assert report(world).executed == 3

"""Buckets are polled while tasks come in, page by page, from an index that lags, after months, at a bounded cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from tests.faults.conftest import NewWorld
from tests.sandbox.index import LaggingIndex
from tests.sandbox.journal import Began
from tests.sandbox.process import Outcome
from tests.sandbox.seam import Fault, Seam
from tests.sandbox.worker import LAG, POLL_SECONDS
from tests.sandbox.world import AFTER_LEASE, TIMEOUT, World

from dynatick.domain.buckets import minute_of

BEFORE, DURING, AT_THE_END = 100, 200, 25


def test_fault_01_inserted_while_its_bucket_is_polled(world: World) -> None:
    """All run, at the latest one tick later. Half of them are complete rows that an old client writes into the closed
    bucket; half are raw rows."""
    bucket = world.bucket(1)
    world.insert_for_next_tick(f"before-{n:03d}" for n in range(BEFORE))
    complete = {"dueAt": "2026-12-31T12:01:00Z", "action": "journal", "attempt": 0, "run": 1, "status": "scheduled",
                "createdAt": "2026-12-31T12:00:59Z"}  # fmt: skip
    world.to_next_minute()

    # A pass that takes its time: small pages, each after a while, so that it polls while rows come in.
    sandbox = world.sandbox()
    slow = [
        Fault(at="poll", do="small pages", amount=25, times=None),
        Fault(at="poll", do="wait", amount=0.02, times=None),
        Fault(at="release shard", do="freeze before"),
    ]
    sandbox.begin(world.event(), timeout=TIMEOUT, faults=slow)

    def put(number: int) -> None:
        task_id = f"{'abcdefgh'[number % 8]}-{number:03d}"  # before and behind those that are being polled
        world.put(taskId=task_id, taskDateTime=str(bucket), **(complete if number % 2 else {}))

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(put, range(DURING)))
    assert len(world.journal.of(Began)) < BEFORE + DURING, "the pass was over before the rows were in"

    # Its last poll is over, its end is not written yet: these are too late for this pass.
    assert world.end(sandbox).what == "frozen"
    in_this_pass = len(world.journal.done())
    assert in_this_pass > BEFORE
    for number in range(DURING, DURING + AT_THE_END):
        put(number)
    world.deliver_stream()  # at once, as the stream is
    world.thaw(sandbox)
    assert len(world.journal.done()) == in_this_pass

    assert world.next_tick().what == "returned"
    executed = {execution.task_id for execution in world.journal.done()}
    assert len(executed) == BEFORE + DURING + AT_THE_END, "one tick later, all have run"
    world.assert_survived()


def test_fault_04_pages_of_seven(world: World) -> None:
    """Page ends fall everywhere in claims of 25, and rows that have ended leave pages empty at the next poll."""
    world.insert_for_next_tick(200)
    outcome = world.next_tick(faults=[Fault(at="poll", do="small pages", amount=7, times=None)])
    assert outcome.hit > 2 * 200 / 7  # all pages, and all again
    assert len(world.journal.done()) == 200
    world.assert_survived()


def test_fault_04_more_than_a_page_of_1_mb(world: World) -> None:
    bucket = world.bucket(1)
    ids = world.insert_for_next_tick(f"{n:04d}" + "-" * 996 for n in range(2500))  # more than two pages
    first = world.store.query_bucket(bucket)
    assert first.after is not None
    assert len(first.entries) < len(ids) / 2
    assert world.next_tick().what == "returned"
    assert len(world.journal.done()) == len(ids)
    world.assert_survived()


@pytest.mark.parametrize(("huge", "others"), [(25, 0), (60, 200)], ids=["one claim", "a bucket among others"])
def test_fault_32_rows_as_large_as_they_may_be(new_world: NewWorld, huge: int, others: int) -> None:
    """Rows of 390 KB. Also those that fail once, so that they are written again, and those that fail for good, with a
    dead letter."""
    world = new_world(DYNATICK_TASK_THREADS="4")
    plans: list[dict[str, object]] = [{}, {}, {"failures": 1}, {}, {"permanent": True}]
    for number in range(huge):
        payload = plans[number % len(plans)] | {"filler": "x" * 390_000}
        world.put(taskId=f"t{number:03d}-huge", taskDateTime=str(world.bucket(1)), payload=payload,
                  retryPolicy={"minBackoffSeconds": 0})  # fmt: skip
    world.insert_for_next_tick(f"t{n % huge:03d}-small-{n}" for n in range(others))
    world.deliver_stream()
    assert world.next_tick().what == "returned"
    world.assert_survived(failed=huge // len(plans))
    assert len(world.dead_letters()) == huge // len(plans)


# -- the index lags behind the table -----------------------------------------------------------------------------------


@contextmanager
def seen_late(world: World) -> Iterator[None]:
    """This process's writes reach the index late, too."""
    seam = Seam()
    seam.interceptor = LaggingIndex(seam, world.table, world.folder, world.dynamodb)
    with seam.installed():
        yield


def test_fault_21_the_index_lags_as_long_as_allowed_for(new_world: NewWorld) -> None:
    """Up to 110 of the 120 s that the index may lag, for each change another time, so that they show out of order. A
    later poll of the bucket finds the task, in whatever way it came just before its tick."""
    world, each = new_world(**{LAG: "5 110"}), 40
    with seen_late(world):
        for minute in range(4):
            world.clock.forward(seconds=55 - world.clock().second)
            world.insert_soon((f"{minute}-{n:02d}" for n in range(each)), delaySeconds=2)
            for number in range(4):
                world.put(taskId=f"{minute}-raw-{number}", delaySeconds=2)
            world.insert_soon((f"{minute}-again-{n}" for n in range(4)), delaySeconds=2, payload={"failures": 1},
                              retryPolicy={"minBackoffSeconds": 0})  # fmt: skip
            world.deliver_stream()
            before = len(world.journal.done())
            world.next_tick()
            at_once = sum(one.task_id.startswith(f"{minute}-") for one in world.journal.done()[before:])
            assert at_once < each, "the index did not lag"
        world.assert_survived()


# -- fault 24: ticks stop for 60 days, then come back. What is due runs, and what was polled once is not polled again
# and again. Every minute of the gap has to be polled. Sixty days of them take the time of a tick or more; here there
# are three days, and each poll takes twenty times as long (with ``--fault-scale 20`` sixty, each as long as on Lambda).

DAYS, FEWER = 60, 20
POLL = 1.26e-3  # seconds, six at once, at 1,024 MB; 33 days take a minute
DAY = 1440  # minutes


class Rule:
    """Fires at each minute of the clock, whether or not earlier invocations still run; and runs what those start."""

    def __init__(self, world: World, pool: ThreadPoolExecutor, timeout: float) -> None:
        self.world, self._pool, self._timeout = world, pool, timeout
        self._idle = [world.sandbox()]
        self._running: list[Future[Outcome]] = []
        self.outcomes: list[Outcome] = []

    def _begin(self, events: Sequence[Mapping[str, Any]]) -> None:
        self._running += [self._pool.submit(self._run, event) for event in events]

    def _run(self, event: Mapping[str, Any]) -> Outcome:
        sandbox = self._idle.pop() if self._idle else self.world.sandbox()
        sandbox.begin(event, timeout=self._timeout)
        outcome = self.world.end(sandbox)
        if sandbox.alive:
            self._idle.append(sandbox)
        return outcome

    def tick(self) -> None:
        """Runs one tick and all that happens before the next."""
        self.world.to_next_minute()
        minute = minute_of(self.world.clock())
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


def is_drained(world: World) -> bool:
    """Returns whether the rest of the gap is no more than an index that lags needs."""
    return all(cursor.drained_through >= cursor.closed_through - 10 for cursor in world.cursors())


@pytest.mark.parametrize(("slower", "timeout"), [(1.0, 120.0), (4.0, 30.0)], ids=["at 1,024 MB", "at 256 MB with 30 s"])
def test_fault_24_sixty_days_without_a_tick(new_world: NewWorld, scale: int, slower: float, timeout: float) -> None:
    minutes, seconds = DAYS * DAY * scale // FEWER, POLL * slower * FEWER / scale
    world = new_world(speed=0.02, **{LAG: "0 0", POLL_SECONDS: str(seconds)})
    with seen_late(world):
        now = world.clock()
        world.insert_soon(["at first"], dueAt=now + timedelta(minutes=10))
        world.insert_soon(["half-way"], dueAt=now + timedelta(minutes=minutes // 2))
        world.clock.forward(minutes=minutes)
        world.insert_soon(["now"], delaySeconds=5)
    # Polled once, the gap takes that number of ticks; and as many again, for what an invocation begins and can't end.
    once = minutes * seconds / 60
    maximum = 3 if once < 2 else int(2 * once) + 3
    world.polls()
    with ThreadPoolExecutor(16) as pool:
        rule = Rule(world, pool, timeout)
        ticks = 0
        while "now" not in world.executed() and ticks < maximum:
            rule.tick()
            ticks += 1
        polls = world.polls()
        state = f"after {ticks} ticks and {polls:,} polls of {minutes:,} buckets: {world.cursors()}"
        assert world.executed() == world.inserted, state
        # Twice at the most: final polls may begin before the first ones have come to the end of the gap.
        assert polls < 2.2 * minutes, state
        while not is_drained(world) and ticks < 4 * maximum:
            rule.tick()
            ticks += 1
        assert is_drained(world), f"after {ticks} ticks: {world.cursors()}"
        assert {outcome.what for outcome in rule.outcomes} == {"returned"}
        world.polls()
        for _ in range(3):
            rule.tick()
        assert world.polls() < 100, "the gap is behind us"
    world.assert_survived()


# -- fault 25: the dead-letter queue refuses for days, so that tasks which have failed can't be recorded as failed.
# Ticks continue, cost what they cost before, and run the others; once the queue takes messages, each ends as failed.

REFUSES = Fault(at="dead letters", do="refuse", times=None)
FAILS = {"payload": {"permanent": True}, "retryPolicy": {"maximumRetryAttempts": 0}}
FAILURES = 500  # 10,000: make faults ARGS="-k fault_25 --fault-scale 20 --timeout 7200"


def polls_of_ticks(world: World, ticks: int) -> list[int]:
    found: list[int] = []
    for _ in range(ticks):
        world.polls()
        assert world.next_tick().what == "returned"
        found.append(world.polls())
    return found


def tick_until_ended(world: World, ids: Sequence[str]) -> None:
    """Ticks until all have ended; each is tried again within the hour."""
    for _ in range(80):
        if world.open().isdisjoint(ids):
            break
        world.next_tick()


def test_fault_25_a_tick_costs_what_it_did_before(new_world: NewWorld, scale: int) -> None:
    world = new_world(**{LAG: "0 0"})  # an index that lags by nothing, and is quickly asked
    with seen_late(world):
        before = max(polls_of_ticks(world, 12)[6:])
        world.insert_for_next_tick(["failed"], **FAILS)
        world.always = [REFUSES]
        polls_of_ticks(world, 10)
        for number in range(2):
            world.next_tick(180 * scale)  # days of ticks would take long; the buckets are as many
            world.insert_for_next_tick([f"other-{number}"])
            polls_of_ticks(world, 6)
        after = polls_of_ticks(world, 6)
        assert world.row("failed")["status"] == "running"
        # Now and then its own bucket, once it is moved, is one more.
        assert sum(after) <= 6 * before + 6, f"polls of a tick: {before} before, then {after}"

        world.always = []
        tick_until_ended(world, ["failed"])
        assert world.row("failed")["outcome"] == "failed"
        assert [letter["taskId"] for letter in world.dead_letters()] == ["failed"]
        assert [execution.task_id for execution in world.journal.of(Began)].count("failed") == 1
        world.assert_survived(executed=2, failed=1)


def test_fault_25_many_failures_and_a_queue_that_refuses(new_world: NewWorld, scale: int) -> None:
    world = new_world(DYNATICK_TASK_THREADS="16")
    failures = world.insert_for_next_tick((f"failure-{n:05d}" for n in range(FAILURES * scale)), **FAILS)
    world.always = [REFUSES]
    world.next_tick()
    for number in range(4):
        newcomers = world.insert_for_next_tick(f"later-{number}-{n}" for n in range(20))
        world.next_tick()
        assert world.executed().issuperset(newcomers), number
        world.clock.forward(seconds=AFTER_LEASE)
    assert world.open().issuperset(failures)
    assert not world.dead_letters()

    world.always = []
    tick_until_ended(world, failures)
    world.assert_survived(failed=len(failures))
    tried = [execution.task_id for execution in world.journal.of(Began) if execution.task_id in set(failures)]
    assert sorted(tried) == failures, "one attempt each is all that they have"
    assert world.dead_letter_ids() == set(failures)

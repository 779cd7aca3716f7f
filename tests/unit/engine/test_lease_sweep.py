"""Expired leases are found within a tick, however deep they lie in a backlog (protocol 10)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest
from tests.builders import NOON, FakeClock, scheduled_row
from tests.unit.engine.support import (
    NOON_MINUTE,
    PacedClock,
    RiggedStore,
    World,
    bucket_at,
    cannot,
    cursor_at,
    ids,
    passed,
    rules,
    takes,
    world,
)

from dynatick.domain.task import Row
from dynatick.engine.counts import PassReport
from dynatick.engine.cursor import Window, save
from dynatick.engine.orders import PassOrder, RecoveryOrder, Resume, WorkOrder, parse_event
from dynatick.engine.polling import MAX_SWEPT, LeaseSweep
from dynatick.engine.recovery import ExpiredLeases
from dynatick.errors import StoreError

BACKLOG = ids(300)
LAST = "z-dead"


def behind(seconds: float = 3, **settings: object) -> World:
    """A world with more tasks in a bucket than a pass can run, and one after them whose process died."""
    w = world(clock=PacedClock(), rules=rules(threads=1, **settings))
    w.insert(*BACKLOG, LAST, at=bucket_at(1))
    w.claim(LAST, until=NOON + timedelta(seconds=10))
    w.behave(takes(w, seconds=seconds), *BACKLOG)
    return w


def recovered(w: World) -> list[str]:
    """The tasks that recoveries were started for."""
    orders = [parse_event(event, w.clock()) for event in w.started]
    return [task_id for order in orders if isinstance(order, RecoveryOrder) for task_id in order.task_ids]


@pytest.mark.parametrize("in_one_thread", [False, True])
def test_a_pass_that_is_behind_finds_an_expired_lease_at_the_end_of_its_bucket(in_one_thread: bool) -> None:
    w = behind(in_one_thread=in_one_thread)
    if in_one_thread:
        w.behave(lambda task, context: str(w.clock.forward(seconds=1)), *BACKLOG)
    report = w.first_pass()
    assert report.resume is not None and report.completed < 200
    assert recovered(w) == [LAST]


def test_a_task_that_runs_elsewhere_is_left_alone() -> None:
    w = behind()
    w.insert("z-alive", at=bucket_at(1))
    w.claim("z-alive", until=NOON + timedelta(minutes=14))
    w.first_pass()
    assert recovered(w) == [LAST]


def test_a_continuation_finds_one_that_lies_before_its_position() -> None:
    """The invocation before has died after it started the continuation."""
    w = behind()
    w.insert("a-dead", at=bucket_at(1))
    w.claim("a-dead", until=NOON + timedelta(seconds=10))
    w.clock.to(NOON + timedelta(minutes=2))
    order = PassOrder(tick=NOON_MINUTE + 1, shard=0, continuation=1, resume=Resume(NOON_MINUTE + 1, BACKLOG[100]))
    w.handle(order.to_event())
    assert sorted(recovered(w)) == ["a-dead", LAST]


def test_what_is_not_reached_in_one_invocation_the_next_goes_on_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dynatick.engine.polling.MAX_SWEPT", 20)
    monkeypatch.setattr("dynatick.engine.polling.PAGE", 20)
    monkeypatch.setattr("dynatick.engine.polling._MIN_OF_A_PAGE", 1)
    w = behind(seconds=12)
    w.first_pass()
    (event,) = w.started
    order = parse_event(event, w.clock())
    assert isinstance(order, PassOrder) and order.swept is not None
    assert order.swept.after is not None and order.swept.after < BACKLOG[-1], "20 rows each time"
    w.started.clear()
    w.handle(replace(order, swept=Resume(NOON_MINUTE + 1, BACKLOG[290])).to_event())
    assert LAST in recovered(w)


def test_rows_are_read_only_by_a_pass_that_is_behind_for_ten_seconds_and_each_once() -> None:
    assert len(BACKLOG) < MAX_SWEPT
    w = behind(seconds=0.02)
    w.rigged.forget()
    quick = w.first_pass()
    assert quick.completed == len(BACKLOG)
    assert set(w.rigged.reads) & set(BACKLOG) == set()
    w = behind()
    w.rigged.forget()
    w.first_pass()
    read = [task_id for task_id in w.rigged.reads if task_id in BACKLOG]
    assert 100 < len(read) == len(set(read)) <= 300 - 4, "what this pass has in flight is not read"


def test_ranges_of_workers_are_left_to_them() -> None:
    w = behind(max_workers=1)
    before = w.cursor()
    handed_out = WorkOrder(bucket=bucket_at(1), after=BACKLOG[200], through="zz", until=NOON + timedelta(minutes=14))
    assert save(w.store, before, replace(before, handed_out=(handed_out,)), writer="dead") is not None
    w.rigged.forget()
    w.first_pass()
    assert recovered(w) == []
    assert not set(w.rigged.reads) & set(BACKLOG[201:])


def test_a_row_that_cannot_be_read_is_raised_once_what_runs_is_recorded() -> None:
    w = behind()

    def fails(task_id: str) -> None:
        if task_id == LAST:
            raise cannot("read")

    w.rigged.before_read = fails
    w.clock.to(NOON + timedelta(minutes=1))
    with pytest.raises(StoreError, match="cannot read"):
        w.handle({"time": "2026-12-31T12:01:00Z"})
    assert {w.outcome(task_id) for task_id in w.ran} == {"completed"}
    w.rigged.before_read = None
    w.clock.to(NOON + timedelta(minutes=3))
    assert passed([w.handle({"time": "2026-12-31T12:03:00Z"})]).expired == 1


def test_a_row_with_the_id_of_our_own_rows_is_no_task() -> None:
    w = behind()
    w.rigged.put(w.row(LAST) | {"taskId": "_dynatick#task"})
    w.first_pass()
    assert recovered(w) == [LAST]


# -- one sweep, step by step -----------------------------------------------------------------------------------------


@dataclass
class Sweep:
    """A sweep over the buckets of an hour of which none was polled, in one thread."""

    store: RiggedStore = field(default_factory=RiggedStore)
    clock: FakeClock = field(default_factory=FakeClock)
    events: SimpleQueue[Callable[[], None]] = field(default_factory=SimpleQueue)

    def __post_init__(self) -> None:
        services = SimpleNamespace(store=self.store, clock=self.clock, rules=rules(in_one_thread=True))
        execution: Any = SimpleNamespace(services=services, events=self.events, ids=set())
        report = PassReport(tick=NOON_MINUTE + 60, shard=0, continuation=0, started_at=NOON)
        expired = ExpiredLeases(report, lambda orders, then: then(len(orders)), NOON)
        window = Window(cursor_at(60, 0, polled=0), rules(), closed_at=NOON)
        self.sweep = LeaseSweep(execution, window, expired, None)

    def read_on(self) -> int:
        """How many pages it has read, without an answer yet."""
        before = len(self.store.pages)
        self.sweep.read_on()
        return len(self.store.pages) - before

    def answer(self) -> None:
        self.events.get_nowait()()


def test_a_sweep_reads_on_every_ten_seconds_and_a_bounded_number_of_pages() -> None:
    """A page costs even if nothing in it is open."""
    s = Sweep()
    read = []
    for _ in range(9):
        read.append(s.read_on())
        if read[-1]:
            s.answer()
        s.clock.forward(seconds=5)
    assert read == [0, 0, 20, 0, 20, 0, 20, 0, 0], "60 buckets, then it is at the end"


def test_a_sweep_that_waits_for_an_answer_does_not_read_the_same_again() -> None:
    s = Sweep()
    s.clock.forward(seconds=10)
    assert s.read_on() == 20
    s.clock.forward(seconds=10)
    assert s.read_on() == 0
    s.answer()
    assert s.read_on() == 20


def test_a_sweep_reads_of_its_rows_only_what_it_judges_and_at_half_the_price(monkeypatch: pytest.MonkeyPatch) -> None:
    s = Sweep()
    for task_id in ids(30):
        s.store.put(scheduled_row(task_id, bucket_at(1), payload={"text": "x" * 1000}))
    reads: list[tuple[bool, Mapping[str, Row]]] = []
    get_many = s.store.get_many

    def noted(task_ids: Iterable[str], *, consistent: bool = True, only: Collection[str] = ()) -> Mapping[str, Row]:
        rows = get_many(task_ids, consistent=consistent, only=only)
        reads.append((consistent, rows))
        return rows

    monkeypatch.setattr(s.store, "get_many", noted)
    s.clock.forward(seconds=10)
    s.read_on()
    assert {consistent for consistent, _ in reads} == {False}
    rows = [row for _, found in reads for row in found.values()]
    assert len(rows) == 30
    assert not [row for row in rows if "payload" in row]

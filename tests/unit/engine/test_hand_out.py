"""How a pass shares a bucket with workers, in one thread: its workers are started, and work only later."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise

import pytest
from tests.builders import NOON
from tests.unit.engine.support import World, bucket_at, ids, is_cursor, rules, world

from dynatick.engine import polling
from dynatick.engine.cursor import save
from dynatick.engine.orders import WorkOrder, parse_event
from dynatick.engine.sharing import SOON


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polling, "PAGE", 25)


def behind(
    number: int,
    *,
    task_seconds: float = 0.1,
    life: timedelta = timedelta(seconds=120),
    max_workers: int = 1,
    refused: Callable[[Mapping[str, object]], bool] = lambda order: False,
) -> World:
    """A world with tasks at 12:01 that take their time one after another, and with workers to help."""
    w = world(
        rules=rules(threads=1, in_one_thread=True, max_workers=max_workers),
        life=life,
        refused=refused,
    )
    w.insert(*ids(number))
    w.behave(lambda task, context: w.clock.forward(seconds=task_seconds) and None, *ids(number))
    w.rigged.forget()
    return w


def is_of_worker(order: Mapping[str, object]) -> bool:
    return "work" in order


def orders(w: World) -> list[WorkOrder]:
    """Of the workers that were started."""
    parsed = [parse_event(event, w.clock()) for event in w.started]
    return [order for order in parsed if isinstance(order, WorkOrder)]


def leave_to_a_worker(w: World, *, until: datetime) -> WorkOrder:
    """An earlier pass has left t0010 to t0039 to a worker, of which nothing is heard."""
    order = WorkOrder(bucket=bucket_at(1), after="t0009", through="t0039", until=until)
    before = w.cursor()
    assert save(w.store, before, replace(before, handed_out=(order,)), writer="earlier") is not None
    return order


def test_a_pass_runs_in_order_what_it_keeps_before_and_after_the_range_of_its_worker() -> None:
    """It has read ahead to divide the bucket: nothing of that is left for another round."""
    w = behind(4000, task_seconds=0.01, life=timedelta(seconds=30))
    w.first_pass()
    (order,) = orders(w)
    assert order.after is not None and order.through is not None
    kept = [task_id for task_id in ids(4000) if not order.after < task_id <= order.through]
    assert len(w.ran) > 2000, "it comes to what lies behind the range"
    assert w.ran == kept[: len(w.ran)]


def test_an_order_is_over_when_its_pass_stops_claiming_however_slow_its_tasks_are(small_pages: None) -> None:
    w = behind(400, task_seconds=1, max_workers=3)
    w.first_pass()
    stops_at = NOON + timedelta(minutes=1, seconds=120 - 20)
    assert [order.until <= stops_at for order in orders(w)] == [True] * 3


def test_the_cursor_lists_a_range_as_soon_as_its_worker_is_started(small_pages: None) -> None:
    """So that a pass after one that dies leaves it alone, and counts it against ``MaxWorkers``."""
    w = behind(400)
    listed_at: list[datetime] = []
    w.rigged.before_write = lambda change: (
        listed_at.append(w.clock()) if is_cursor(change) and change.set.get("handedOut") else None
    )
    started_at: list[datetime] = []
    w.refused = lambda order: is_of_worker(order) and bool(started_at.append(w.clock()))
    w.first_pass()
    assert listed_at[0] - started_at[0] < timedelta(seconds=0.1 * 50), "not only when the lease is renewed"


def test_what_a_worker_that_cannot_be_started_leaves_is_run_in_the_same_tick_before_what_lies_behind_it() -> None:
    """Though the pass runs out of time, and a continuation goes on from its position."""
    ranges: list[WorkOrder] = []
    w = behind(4000, task_seconds=0.01, life=timedelta(seconds=30))

    def refuse(order: Mapping[str, object]) -> bool:
        if is_of_worker(order):
            parsed = parse_event({"dynatick": order}, w.clock())
            assert isinstance(parsed, WorkOrder)
            ranges.append(parsed)
        return is_of_worker(order)

    w.refused = refuse
    w.next_tick()
    w.assert_each_ran_once(*ids(4000))
    order = ranges[0]
    behind_it = next(n for n, task_id in enumerate(w.ran) if task_id > order.through)
    assert order.after is not None
    assert not [task_id for task_id in w.ran[behind_it:] if order.after < task_id <= order.through]


def test_entries_that_were_to_be_handed_out_do_not_hold_their_bucket_back() -> None:
    w = behind(400, refused=is_of_worker)
    w.next_tick()
    w.assert_each_ran_once(*ids(400))
    assert w.cursor().polled_through == bucket_at(1).minute


def test_a_pass_whose_worker_cannot_be_started_tries_again_only_after_a_while(small_pages: None) -> None:
    tried_at: list[datetime] = []
    w = behind(800, refused=lambda order: is_of_worker(order) and not tried_at.append(w.clock()))
    w.first_pass()
    assert len(tried_at) > 2
    assert all(later - earlier >= SOON for earlier, later in pairwise(tried_at))


def test_a_bucket_that_is_not_worth_dividing_is_not_read_ahead_again_and_again(small_pages: None) -> None:
    """The pass knows how fast it is after two seconds, and can run what is left soon."""
    w = behind(1100, task_seconds=0.01)
    w.first_pass()
    w.assert_each_ran_once(*ids(1100))
    assert orders(w) == []
    pages = Counter(w.rigged.pages)
    assert len(pages) > 40
    assert max(pages.values()) <= 4, "read ahead, claimed, polled again at the end, and swept for expired leases"


def test_what_a_dead_worker_has_left_is_run_when_its_order_is_over_before_the_rest(small_pages: None) -> None:
    w = behind(140)
    order = leave_to_a_worker(w, until=NOON + timedelta(minutes=1, seconds=5))
    began_at: dict[str, datetime] = {}

    def takes(task_id: str) -> None:
        began_at[task_id] = w.clock()
        w.clock.forward(seconds=0.1)

    w.behave(lambda task, context: takes(task.task_id), *ids(140))
    w.first_pass()
    w.assert_each_ran_once(*ids(140))
    assert order.until < began_at["t0010"] < order.until + timedelta(seconds=0.1 * 60)
    assert began_at["t0039"] < began_at["t0139"]


def test_a_range_until_a_far_instant_is_taken_back_at_once() -> None:
    """No pass hands out a range for so long: it was written by hand."""
    w = behind(50)
    leave_to_a_worker(w, until=NOON + timedelta(days=1))
    w.next_tick()
    w.assert_each_ran_once(*ids(50))
    w.until_drained()

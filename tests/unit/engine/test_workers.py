"""Workers: ranges of a large bucket that a pass hands out (protocol 17)."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from tests.builders import NOON, FakeClock, scheduled_row
from tests.silent import Silent, beside, silence
from tests.unit.engine.support import (
    PacedClock,
    Recorded,
    RiggedStore,
    World,
    bucket_at,
    cannot,
    cursor_at,
    ids,
    is_claim,
    is_cursor,
    passed,
    raises_for,
    rules,
)
from tests.unit.engine.test_packs import put_pack

from dynatick.domain.packs import Span
from dynatick.domain.task import Task
from dynatick.engine import invocation, sharing
from dynatick.engine.counts import PassReport
from dynatick.engine.cursor import Window, acquire_shard, save
from dynatick.engine.orders import WorkOrder
from dynatick.engine.pools import START_TIMEOUT
from dynatick.engine.ports import ActionContext
from dynatick.engine.processor import Invoked
from dynatick.engine.sharing import HandOut
from dynatick.errors import StoreError
from dynatick.store import memory


def test_a_range_is_not_forgotten_because_a_page_of_its_tasks_has_ended() -> None:
    """An earlier pass, or wake-ups, may have run those at its end that are read first."""
    store, clock, names = RiggedStore(), FakeClock(), ids(200)
    for n, task_id in enumerate(names):
        ended = {"status": "completed", "outcome": "completed"} if 20 <= n < 120 else {}
        store.put(scheduled_row(task_id, bucket_at(1), **ended))
    order = WorkOrder(bucket=bucket_at(1), after=names[10], through=names[150], until=NOON + timedelta(minutes=1))
    execution: Any = SimpleNamespace(services=SimpleNamespace(store=store, clock=clock, rules=rules(max_workers=1)))
    cursor = replace(cursor_at(0, 0), handed_out=(order,))
    window = Window(cursor, rules(), closed_at=NOON)
    handed_out = HandOut(execution, window, Any)
    handed_out._started = [sharing._Started(order, tasks=140, probe=names[19], probe_at=NOON)]
    for _ in range(5):
        handed_out.take_back()
        assert window.handed_out == [order]
        clock.forward(seconds=3)
    for task_id in names[120:151]:
        store.put(scheduled_row(task_id, bucket_at(1), status="completed", outcome="completed"))
    handed_out.take_back()
    assert window.handed_out == []


# -- a pass that hands out -------------------------------------------------------------------------------------------


QUICK = timedelta(seconds=0.1)


pytestmark = pytest.mark.usefixtures("time_passes")  # a pass waits for its workers


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shortens what takes seconds in a pass."""
    for name in ("SOON", "MIN_WORK", "_FIRST_PROBE", "_PROBE_INTERVAL"):
        monkeypatch.setattr(sharing, name, QUICK)
    monkeypatch.setattr(sharing, "START", timedelta(seconds=1))
    monkeypatch.setattr(invocation, "_MIN_MEASURED", QUICK)


class WorkersClock(PacedClock):
    """A clock that shows how long the pass works. What workers do when it waits for them, they have done beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.work: Callable[[], None] = lambda: None

    def wait_until(self, instant: datetime) -> None:
        self.work()
        super().wait_until(instant)


@dataclass
class WorldWithWorkers(World):
    """A world whose workers work once the pass that started them waits, each in a process of its own.

    If they ended sooner, which depends on the machine, their places would be free, and the pass would start others.
    """

    clock: FakeClock = field(default_factory=WorkersClock)
    workers: list[Mapping[str, object]] = field(default_factory=list)  # that were started
    waiting: list[Mapping[str, object]] = field(default_factory=list)  # those of them that have not begun
    worked: list[PassReport] = field(default_factory=list)
    are_working: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        assert isinstance(self.clock, WorkersClock)
        self.clock.work = self._work

    def invoke(self, event: Mapping[str, object]) -> None:
        super().invoke(event)
        if "work" in event["dynatick"]:  # type: ignore[operator]
            self.started.remove(event)
            self.workers.append(event)
            self.waiting.append(event)

    def _work(self) -> None:
        threads = [threading.Thread(target=self._work_on, args=(event,)) for event in self.waiting]
        self.waiting.clear()
        self.are_working = True
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        self.are_working = False

    def _work_on(self, event: Mapping[str, object]) -> None:
        report = self.handle(event).worked
        assert report is not None
        self.worked.append(report)

    def takes_long(self, task: Task, context: ActionContext) -> None:
        """The work of a task, so that workers are worth starting."""
        assert isinstance(self.clock, PacedClock)
        if not self.are_working:
            self.clock.takes(seconds=0.004)


def world_with(number: int = 500, **more: object) -> WorldWithWorkers:
    """A world at noon, with tasks in the next bucket that take a while."""
    made = WorldWithWorkers(rules=rules(**{"threads": 1, "max_workers": 3, **more}))
    made.tick()
    made.insert(*ids(number))
    made.behave(made.takes_long, *ids(number))
    made.rigged.forget()
    return made


@pytest.fixture
def w(quick: None) -> WorldWithWorkers:
    return world_with()


def an_order(after: str | None = None, through: str = "t9", *, minutes: float = 5) -> WorkOrder:
    """Returns an order for the tasks behind ``after``, until a given number of minutes after noon."""
    return WorkOrder(bucket=bucket_at(1), after=after, through=through, until=NOON + timedelta(minutes=minutes))


def hand_to(w: WorldWithWorkers, *orders: WorkOrder) -> None:
    """Hands a range to a worker as a pass that died has left it on the cursor row."""
    before = w.cursor()
    assert save(w.store, before, replace(before, handed_out=orders), writer="w") is not None


def test_a_pass_that_finds_more_than_it_can_run_soon_shares_it_with_workers(w: WorldWithWorkers) -> None:
    report = passed(w.next_tick())
    assert len(w.workers) == report.workers == 3
    assert sum(worked.completed for worked in w.worked) == report.handed_to_workers > 200
    assert report.completed + report.handed_to_workers == 500
    w.assert_each_ran_once(*ids(500))
    claimed = Counter(change.task_id for change in w.rigged.writes if is_claim(change))
    assert set(claimed.values()) == {1}, "what is handed out is claimed by its worker alone"
    assert w.cursor().handed_out == ()
    w.until_drained()


@pytest.mark.parametrize(
    ("number", "max_workers"), [(100, 0), (20, 3)], ids=["there are no workers", "it can run all of it soon"]
)
def test_a_pass_runs_everything_itself_if(number: int, max_workers: int) -> None:
    w = world_with(number, max_workers=max_workers)
    report = passed(w.next_tick())
    assert (report.workers, w.workers) == (0, [])
    w.assert_each_ran_once(*ids(number))


@pytest.mark.parametrize("batch_id", ["aa", "zz"])
def test_that_workers_have_the_end_of_a_bucket_leaves_no_pack_of_the_next_one_to_a_later_tick(
    batch_id: str, quick: None
) -> None:
    """Whether its id is smaller or larger than that of a pack in the first bucket."""
    w = world_with(1500)
    first = put_pack(w, [{}] * 3, batch_id="m", taskDateTime=str(bucket_at(1)))
    following = put_pack(w, [{}] * 3, batch_id=batch_id, taskDateTime=str(bucket_at(2)))
    w.next_tick(2)
    assert len(w.workers) == 3
    assert (w.outcome(first), w.outcome(following)) == ("completed", "completed")
    w.until_drained()


def test_what_workers_that_cannot_be_started_leave_undone_the_pass_runs_at_once(w: WorldWithWorkers) -> None:
    w.refused = lambda order: "work" in order
    first, *_ = w.next_tick()
    w.assert_each_ran_once(*ids(500))
    assert {one.problem for one in first.not_started} == {str(cannot("invoke"))}
    assert (passed([first]).completed, passed([first]).handed_to_workers) == (500, 0)
    w.until_drained()


def test_a_start_of_workers_that_has_no_answer_holds_up_only_their_ranges(w: WorldWithWorkers) -> None:
    calls, recorded, done = Silent(), Recorded(w), list[Invoked]()
    assert isinstance(w.clock, PacedClock)
    w.clock.is_answered = False
    w.refused = lambda order: "work" in order and calls.block()
    with silence(calls):
        with beside(lambda: done.extend(w.next_tick())):
            assert calls.was_called()
            assert recorded.reaches(50), "what the pass has kept for itself"
            w.clock.forward(seconds=START_TIMEOUT.total_seconds())
            assert recorded.reaches(450)
        assert (calls.calls, calls.answered) == (1, 0)
    assert (passed(done).completed, passed(done).workers, passed(done).handed_to_workers) == (500, 0, 0)
    w.assert_each_ran_once(*ids(500))


def test_a_pass_that_dies_leaves_its_ranges_to_their_workers_until_the_orders_are_over() -> None:
    w = world_with(50)
    hand_to(w, an_order("t0009", "t0039", minutes=1 + 1.5 / 60))
    w.next_tick()
    polled_early = {change.task_id for change in w.rigged.writes[:40] if is_claim(change)}
    assert polled_early & set(ids(50)[10:40]) == set(), "the first claims leave the range alone"
    w.assert_each_ran_once(*ids(50))  # when the order is over, the pass runs what is left


def test_a_bucket_with_a_range_that_is_handed_out_is_not_drained() -> None:
    w = world_with(50, in_one_thread=True)  # such a pass doesn't wait for workers
    order = an_order("t0009", "t0039", minutes=14)
    hand_to(w, order)
    w.ticks(8)
    assert {*w.ran} == {*ids(50)[:10], *ids(50)[40:]}
    assert w.cursor().drained_through == bucket_at(0).minute
    assert w.cursor().handed_out == (order,)
    w.next_tick(8)
    w.assert_each_ran_once(*ids(50))
    w.until_drained()


def test_a_range_that_is_handed_out_holds_its_bucket_back_though_its_packs_were_read() -> None:
    """The first poll that shows one is final. Then the pass can't read on."""
    w = world_with(50, in_one_thread=True)
    pack_id = Span(0, 500).pack_id("z")  # enough for a claim of its own
    w.insert(pack_id)
    hand_to(w, an_order("t0009", "t0039", minutes=14))
    w.rigged.hidden = lambda entry: entry.task_id == pack_id
    w.ticks(5)
    w.rigged.clear_faults()
    w.rigged.before_poll = raises_for(bucket_at(2))
    with pytest.raises(StoreError):
        w.next_tick()
    assert pack_id in w.ran
    assert w.cursor().drained_through < bucket_at(1).minute


def test_what_is_handed_out_holds_its_bucket_back_though_all_its_pages_were_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The index was behind, and the first poll that shows its tasks is final. Then the pass can't read on."""
    w = world_with(in_one_thread=True)
    monkeypatch.setattr(memory, "PAGE", 50)
    monkeypatch.setattr(sharing, "MAX_OUTLINED", 200)  # of 500: behind that, it reads on to the end
    w.rigged.hidden = lambda entry: True
    w.ticks(5)
    w.rigged.clear_faults()
    w.rigged.before_poll = raises_for(bucket_at(2))
    with pytest.raises(StoreError):
        w.next_tick()
    assert w.workers
    assert {*w.ran} >= {*ids(500)[250:]}
    assert w.cursor().drained_through < bucket_at(1).minute
    w.rigged.clear_faults()
    w.ticks(2)
    w.assert_each_ran_once(*ids(500))


def test_ranges_of_earlier_ticks_count_against_max_workers(w: WorldWithWorkers) -> None:
    hand_to(w, *(replace(an_order("a", f"b{n}", minutes=1.5), bucket=bucket_at(0)) for n in range(2)))
    w.first_pass()
    w.run_started()
    listed = [
        len(change.set["handedOut"])  # type: ignore[arg-type]
        for change in w.rigged.writes
        if is_cursor(change) and isinstance(change.set.get("handedOut"), list)
    ]
    assert max(listed) == 3
    w.assert_each_ran_once(*ids(500))


# -- a worker --------------------------------------------------------------------------------------------------------


def work(w: WorldWithWorkers, order: WorkOrder, *, late: timedelta = timedelta()) -> PassReport:
    """The invocation of a worker at the tick: another process has closed the bucket and leased the shard."""
    acquire_shard(w.store, 0, bucket_at(1).minute, token="other", now=NOON + timedelta(seconds=1))
    w.clock.to(NOON + timedelta(minutes=1) + late)
    report = w.handle(order.to_event()).worked
    assert report is not None
    return report


def test_a_worker_claims_nothing_once_its_order_is_over() -> None:
    w = world_with(400)
    order = an_order(minutes=1 + 20 / 60)
    assert work(w, replace(order, until=NOON), late=timedelta(seconds=1)).claimed == 0
    w.behave(lambda task, context: w.clock.forward(seconds=20) and None, "t0003")
    worked = work(w, order)
    assert 0 < worked.completed == worked.claimed < 400
    assert {w.row(task_id)["status"] for task_id in ids(400)} == {"completed", "scheduled"}


def test_a_worker_moves_a_retry_into_a_bucket_that_is_still_open() -> None:
    w = world_with(1)
    w.assert_a_retry_goes_to_an_open_bucket("t0000", lambda: work(w, an_order()))


def test_a_worker_leaves_schedules_and_limited_tasks_to_the_holder() -> None:
    w = world_with(30, limited_actions=frozenset({"slow"}))
    w.insert("t0010a", action="slow")
    w.put(taskId="t0011a", scheduleExpression="rate(1 minute)", action="log")
    work(w, an_order())
    w.assert_each_ran_once(*ids(30))
    w.next_tick(2)
    assert "t0010a" in w.ran

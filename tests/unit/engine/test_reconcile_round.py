"""The daily reconcile keeps its place: what an invocation leaves, the next one continues, and no two work at once."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, NoReturn

import pytest
from tests.unit.engine.support import NOON_MINUTE, THROTTLED, RiggedStore, World

from dynatick.domain.buckets import Bucket
from dynatick.domain.conditional_update import ConditionalUpdate, Is, Result, Written
from dynatick.domain.task import Row
from dynatick.engine import reconcile_round
from dynatick.engine.ports import ScanPage
from dynatick.engine.processor import Invoked
from dynatick.engine.reconcile import Reconciled
from dynatick.engine.reconcile_round import RECONCILE_ID, SEGMENTS, Round, acquire, read_round, save
from dynatick.errors import StoreError
from dynatick.store import memory
from dynatick.store.memory import MemoryStore

RECONCILE: Mapping[str, object] = {"dynatick": {"reconcile": True}}
LOST = Bucket(NOON_MINUTE - 600)  # drained long ago: no tick sees what lies there


class Killed(BaseException):
    """The process is gone: no handler of errors catches it."""


class ScannedStore(RiggedStore):
    """Notes which pages are read. ``before_scan`` is called with (segment, after), ``before_get_many`` with ids, and
    either may raise."""

    def __init__(self) -> None:
        super().__init__()
        self.scans: list[tuple[int, int, str | None]] = []  # (segment, segments, after)
        self.before_scan: Callable[[int, str | None], object] = lambda segment, after: None
        self.before_get_many: Callable[[Sequence[str]], object] = lambda ids: None
        self.dead = False

    def scan(
        self, *, after: str | None = None, open_only: bool = True, segment: int = 0, segments: int = 1
    ) -> ScanPage:
        self._check_alive()
        self.scans.append((segment, segments, after))
        self.before_scan(segment, after)
        return super().scan(after=after, open_only=open_only, segment=segment, segments=segments)

    def get(self, task_id: str) -> Row | None:
        self._check_alive()
        return super().get(task_id)

    def get_many(self, task_ids: Iterable[str], **options: Any) -> Mapping[str, Row]:
        ids = list(task_ids)
        self.before_get_many(ids)
        return super().get_many(ids, **options)

    def write(self, change: ConditionalUpdate) -> Result:
        self._check_alive()
        return super().write(change)

    def die(self) -> NoReturn:
        """From now on, nothing that the process does has an effect."""
        self.dead = True
        raise Killed

    def _check_alive(self) -> None:
        if self.dead:
            raise Killed


class ReconcileWorld(World):
    """A world whose table is read in pages of three rows."""

    @property
    def scanned(self) -> ScannedStore:
        assert isinstance(self.store, ScannedStore)
        return self.store

    def lose(self, number: int) -> None:
        """Rows that only a reconcile finds."""
        for n in range(number):
            self.rigged.put(
                {"taskId": f"t{n:03d}", "taskDateTime": str(LOST), "status": "scheduled", "attempt": 0, "run": 1,
                 "action": "log", "dueAt": "2026-12-31T02:00:00Z"}
            )  # fmt: skip

    def lost(self) -> list[str]:
        return [task_id for task_id, row in self.open_rows().items() if row.get("taskDateTime") == str(LOST)]

    def reconcile(self, event: Mapping[str, object] = RECONCILE) -> Reconciled:
        """One invocation."""
        return reconciled(self.handle(event))

    def one_page_a_segment(self, event: Mapping[str, object] = RECONCILE) -> Reconciled:
        """One invocation whose time is over as it begins."""
        return reconciled(self.processor.handle(event, hard_end=self.clock()))

    def chain(self, event: Mapping[str, object] = RECONCILE) -> list[Reconciled]:
        """Invocations of one page a segment each, until there is nothing to continue."""
        done = [self.one_page_a_segment(event)]
        while self.started:
            done.append(self.one_page_a_segment(self.continuation()))
        return done

    def continuation(self) -> Mapping[str, object]:
        """The one invocation that was asked for, which is forgotten now."""
        (event,) = self.started
        self.started.clear()
        return event

    def killed(self) -> None:
        """An invocation that does not come back."""
        with pytest.raises(Killed):
            self.handle(RECONCILE)
        self.scanned.dead = False
        self.no_trouble()

    def no_trouble(self) -> None:
        self.scanned.before_scan, self.scanned.before_get_many = lambda segment, after: None, lambda ids: None

    def takes_a_page(self, seconds: float) -> None:
        """So much time, of an hour that an invocation has."""
        self.life = timedelta(hours=1)
        self.scanned.before_scan = lambda segment, after: self.clock.forward(seconds=seconds)

    @property
    def kept(self) -> Round:
        """The round as it is kept in the table."""
        found = read_round(self.store)
        assert found is not None
        return found

    def next_day(self) -> None:
        self.clock.forward(hours=24)


def reconciled(done: Invoked) -> Reconciled:
    assert done.reconciled is not None
    return done.reconciled


@pytest.fixture
def w(monkeypatch: pytest.MonkeyPatch) -> Iterator[ReconcileWorld]:
    monkeypatch.setattr(memory, "PAGE", 3)
    world = ReconcileWorld(store=ScannedStore())
    world.tick()
    world.rigged.forget()
    yield world
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("dynatick-scan")]
    assert threads == [], "Lambda would freeze them, and let them go on in another invocation"


@pytest.fixture
def one_segment(w: ReconcileWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """For what is said page by page: nothing happens beside, and there is time for all of them."""
    monkeypatch.setattr(reconcile_round, "SEGMENTS", 1)
    w.life = timedelta(hours=1)


# -- segments --------------------------------------------------------------------------------------------------------


def test_a_round_reads_each_page_of_each_segment_once_and_segments_side_by_side(w: ReconcileWorld) -> None:
    w.lose(30)
    together = threading.Barrier(SEGMENTS)
    # raises if the others don't come
    w.scanned.before_scan = lambda segment, after: together.wait(timeout=60) if after is None else None
    found = w.reconcile()
    assert not together.broken
    assert (found.found, found.repaired, found.scanned, found.failed) == (30, 30, 30, 0)
    assert (found.complete, found.continued, found.leased_elsewhere, w.started) == (True, False, False, [])
    assert w.lost() == []
    assert {(segment, of) for segment, of, _ in w.scanned.scans} == {(n, SEGMENTS) for n in range(SEGMENTS)}
    assert max(Counter(w.scanned.scans).values()) == 1
    assert len(w.scanned.scans) == found.pages


def test_the_row_says_how_many_segments_its_round_has(w: ReconcileWorld) -> None:
    """A later version may have another number; the places that one has reached mean nothing among another."""
    w.lose(30)
    w.one_page_a_segment()
    w.started.clear()
    w.rigged.put({**w.row(RECONCILE_ID), "segments": [{"after": None, "done": False}] * 2})
    w.scanned.scans.clear()
    w.chain()
    assert {of for _, of, _ in w.scanned.scans} == {2}
    assert w.lost() == []
    w.scanned.scans.clear()
    w.reconcile()
    assert {of for _, of, _ in w.scanned.scans} == {SEGMENTS}


# -- the place that is kept ------------------------------------------------------------------------------------------


def test_a_table_larger_than_one_invocation_is_continued_where_the_last_one_stopped(w: ReconcileWorld) -> None:
    w.lose(40)
    chain = w.chain()
    assert len(chain) >= 3
    assert [(one.complete, one.continued) for one in chain] == [(False, True)] * (len(chain) - 1) + [(True, False)]
    assert w.lost() == []
    assert max(Counter(w.scanned.scans).values()) == 1, "no page is paid for twice"
    assert sum(one.found for one in chain) == 40


def test_a_round_of_a_few_pages_a_day_reads_the_whole_table_and_is_overdue_after_three_days(w: ReconcileWorld) -> None:
    """The table takes longer than a day, and each day's chain dies."""
    w.lose(60)
    complete = w.one_page_a_segment().complete
    began_at, overdue = w.kept.began_at, []
    while not complete:
        assert len(overdue) < 40
        overdue.append(w.kept.is_overdue(w.clock()))
        w.started.clear()
        w.next_day()
        complete = w.one_page_a_segment().complete
    assert overdue[:5] == [False, False, False, True, True]
    assert not w.kept.is_overdue(w.clock()), "it is complete"
    assert w.lost() == []
    assert max(Counter(w.scanned.scans).values()) == 1, "no page is read twice"
    assert (w.kept.repaired, w.kept.scanned, w.kept.began_at) == (60, 60, began_at)


@pytest.mark.usefixtures("one_segment")
def test_a_killed_invocation_loses_little(w: ReconcileWorld) -> None:
    """Killed in the middle of a long one: its place of some seconds ago was saved."""
    w.lose(120)
    read: list[str | None] = []

    def four_seconds_a_page(segment: int, after: str | None) -> None:
        w.clock.forward(seconds=4)
        if len(read) == 20:
            w.scanned.die()
        read.append(after)

    w.scanned.before_scan = four_seconds_a_page
    w.killed()
    w.scanned.scans.clear()
    w.next_day()
    assert w.reconcile().complete
    again = {after for _, _, after in w.scanned.scans} & set(read)
    assert len(again) <= 4, "the pages of 10 s, and one whose rows were not judged"
    assert w.lost() == []


def test_a_row_that_was_read_and_not_yet_judged_is_not_passed_by(w: ReconcileWorld) -> None:
    """Rows that look wrong wait a moment before they are judged; the position saved meanwhile lies before them."""
    w.lose(60)

    def killed_before_judging(ids: Sequence[str]) -> None:
        if any(not task_id.startswith("_") for task_id in ids):
            w.scanned.die()

    w.takes_a_page(11)
    w.scanned.before_get_many = killed_before_judging
    w.killed()
    w.next_day()
    assert w.reconcile().repaired == 60
    assert w.lost() == []


def test_a_page_that_is_half_judged_as_time_ends_is_continued_in_the_middle(
    w: ReconcileWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a page with more to repair than an invocation has time for would never be passed."""
    monkeypatch.setattr(memory, "PAGE", 1000)
    w.lose(600)
    w.rigged.before_write = lambda change: w.clock.forward(seconds=1) and None
    judged = []
    while not judged or not judged[-1].complete:
        judged.append(w.reconcile())
        w.started.clear()
        assert len(judged) < 60
    assert len(judged) > 3
    assert sum(one.repaired for one in judged) == 600, "none is judged twice"
    assert w.lost() == []


def test_a_row_that_cannot_be_understood_begins_a_new_round(w: ReconcileWorld) -> None:
    w.reconcile()
    w.lose(12)
    for name, value in (("segments", ""), ("segments", []), ("beganAt", None), ("version", "x"), ("leaseUntil", "?")):
        w.rigged.put({**w.row(RECONCILE_ID), name: value})
        assert w.reconcile().complete
    assert w.lost() == []


# -- one chain at a time ---------------------------------------------------------------------------------------------


def test_of_two_events_at_once_one_works(w: ReconcileWorld) -> None:
    w.lose(30)
    others: list[Reconciled] = []

    def another(segment: int, after: str | None) -> None:
        if segment == 0 and after is None:
            others.append(w.reconcile())

    w.scanned.before_scan = another
    first = w.reconcile()
    assert (first.found, first.leased_elsewhere, first.complete) == (30, False, True)
    (other,) = others
    assert (other.leased_elsewhere, other.found, other.pages, other.complete) == (True, 0, 0, False)
    assert w.started == []
    assert max(Counter(w.scanned.scans).values()) == 1


def test_of_two_that_acquire_in_the_same_moment_one_does(w: ReconcileWorld) -> None:
    w.reconcile()
    got = []
    w.rigged.meanwhile(lambda change: True, lambda: got.append(acquire(w.store, token="other", now=w.clock())))
    got.append(acquire(w.store, token="one", now=w.clock()))
    assert [one is not None for one in got] == [True, False]


def test_the_first_of_all_is_acquired_by_one(w: ReconcileWorld) -> None:
    assert w.store.get(RECONCILE_ID) is None
    create, got = w.rigged.create, []

    def other_first(row: Row) -> bool:
        w.rigged.create = create  # type: ignore[method-assign]
        got.append(acquire(w.store, token="other", now=w.clock()))
        return create(row)

    w.rigged.create = other_first  # type: ignore[method-assign]
    got.append(acquire(w.store, token="one", now=w.clock()))
    assert [one is not None for one in got] == [True, False]


@pytest.mark.usefixtures("one_segment")
def test_an_invocation_that_lost_its_lease_stops_and_saves_nothing(w: ReconcileWorld) -> None:
    w.lose(120)
    taken: list[Row] = []

    def frozen(segment: int, after: str | None) -> None:
        if len(w.scanned.scans) == 6:
            w.clock.forward(minutes=5)
            assert acquire(w.store, token="other", now=w.clock()) is not None
            taken.append(w.row(RECONCILE_ID))

    w.scanned.before_scan = frozen
    found = w.reconcile()
    assert (found.complete, found.continued, w.started) == (False, False, [])
    assert w.row(RECONCILE_ID) == taken[0]
    assert len(w.scanned.scans) == 7, "it reads no further than the page after the present one"


def test_a_continuation_that_comes_twice_begins_no_round(w: ReconcileWorld) -> None:
    w.lose(30)
    w.one_page_a_segment()
    event = w.continuation()
    assert w.reconcile(event).complete
    before = w.row(RECONCILE_ID)
    again = w.reconcile(event)
    assert (again.leased_elsewhere, again.pages) == (True, 0)
    w.next_day()
    w.reconcile()
    assert w.row(RECONCILE_ID)["beganAt"] != before["beganAt"]
    assert w.reconcile(event).leased_elsewhere, "the round that it belongs to is over"


# -- what can go wrong -----------------------------------------------------------------------------------------------


def test_a_page_that_cannot_be_read_stops_no_other_segment(w: ReconcileWorld) -> None:
    w.lose(40)

    def unreadable(segment: int, after: str | None) -> None:
        if segment == 2:
            raise StoreError("cannot scan the table: throttled")

    w.scanned.before_scan = unreadable
    found = w.reconcile()
    assert (found.complete, found.continued, found.problem) == (False, True, "cannot scan the table: throttled")
    assert [segment.is_done for segment in w.kept.segments] == [True, True, False, True]
    left = w.lost()
    assert len(left) == 40 - found.repaired
    event = w.continuation()
    with pytest.raises(StoreError, match="throttled"):  # so that Lambda tries again, later
        w.reconcile(event)
    assert w.started == [], "nor is it tried again at once, for ever"
    w.no_trouble()
    w.scanned.scans.clear()
    assert w.reconcile(event).repaired == len(left)
    assert {segment for segment, _, _ in w.scanned.scans} == {2}


def test_a_last_save_that_fails_raises_and_the_next_event_goes_on(w: ReconcileWorld) -> None:
    w.lose(12)
    w.rigged.throttled = lambda change: change.task_id == RECONCILE_ID
    with pytest.raises(StoreError, match=THROTTLED.error):
        w.reconcile()
    w.rigged.throttled = lambda change: False
    w.clock.forward(minutes=1)  # Lambda tries again
    assert w.reconcile().complete


def test_a_save_whose_answer_was_lost_counts(w: ReconcileWorld) -> None:
    w.lose(30)
    w.rigged.unanswered = lambda change: Is("lease", change.set.get("lease")) in change.conditions
    chain = w.chain()
    assert len(chain) > 1
    assert chain[-1].complete
    assert w.lost() == []


def test_a_save_that_takes_effect_late_is_overwritten_by_the_next(w: ReconcileWorld) -> None:
    first = acquire(w.store, token="one", now=w.clock())
    assert first is not None
    under_way: list[ConditionalUpdate] = []
    w.rigged.before_write, w.rigged.throttled = under_way.append, lambda change: True
    with pytest.raises(StoreError):
        save(w.store, replace(first, found=1))
    w.rigged.throttled = lambda change: False
    assert isinstance(MemoryStore.write(w.rigged, under_way[0]), Written)
    assert save(w.store, replace(first, found=2)) is not None
    assert w.kept.found == 2

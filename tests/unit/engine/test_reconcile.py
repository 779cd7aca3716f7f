"""Reconcile: each kind of wrong row and wrong cursor, what repairs it, what is only on its way; and the daily round,
which keeps its place: what an invocation leaves, the next one continues, and no two work at once."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from tests.builders import NOON, defaults, scheduled_row
from tests.unit.engine.support import THROTTLED, Dies, World, bucket_at, cannot, cursor_at, raises_for, rules, world

from dynatick.domain.buckets import Bucket, Grid
from dynatick.domain.conditional_update import ConditionalUpdate, Is, Written
from dynatick.domain.lifecycle import RELEASED
from dynatick.domain.recurrence import ready
from dynatick.domain.task import Row, is_own_row
from dynatick.engine.cursor import cursor_id
from dynatick.engine.diagnosis import REMEDIES, Finding, Kind, judge_cursors
from dynatick.engine.reconcile import RECONCILE_ID, SEGMENTS, Reconciled, Round, acquire, read_round, reconcile, save
from dynatick.errors import StoreError
from dynatick.store import memory
from dynatick.store.memory import MemoryStore

AHEAD, BEHIND, LONG_AGO = bucket_at(600), bucket_at(-600), "2026-12-31T09:00:00Z"


def running(task_id: str, bucket: Bucket, **more: object) -> dict[str, object]:
    lease = {"status": "running", "attempt": 1, "lease": "x", "leaseUntil": LONG_AGO, "startedAt": LONG_AGO}
    return scheduled_row(task_id, bucket, **{**lease, **more})


def _ready(raw: Row) -> Row:
    """A schedule's row, after the scheduler function has seen it."""
    change = ready({"taskId": "x", **raw}, now=NOON, grid=Grid(shard_count=3), defaults=defaults())
    assert change is not None
    return {"taskId": "x", **raw, **change.set}


WRONG: dict[str, tuple[Row, Kind]] = {
    "unscheduled": ({"delaySeconds": 30, "payload": {"a": "hunter2"}}, Kind.NEVER_NORMALISED),
    "it cannot be understood": ({"action": 7}, Kind.NOT_UNDERSTOOD),
    "its status is none of ours": (scheduled_row("", AHEAD, status="sleeping"), Kind.NOT_UNDERSTOOD),
    "no claim could take it": (scheduled_row("", AHEAD, attempt="one"), Kind.NEVER_NORMALISED),
    "its outcome is null": (scheduled_row("", AHEAD, outcome=None), Kind.NULL_OUTCOME),
    "no bucket": (scheduled_row("", AHEAD, taskDateTime="2026-12-31T12:00:00Z"), Kind.NO_BUCKET),
    "a running one without a bucket": (running("", AHEAD, taskDateTime="soon"), Kind.NO_BUCKET),
    "a shard that was never in use": (scheduled_row("", AHEAD._replace(shard=9)), Kind.UNSERVED_SHARD),
    "behind the cursor": (scheduled_row("", BEHIND), Kind.BEHIND_CURSOR),
    "running behind the cursor": (running("", BEHIND), Kind.BEHIND_CURSOR),
    "ended by hand": (scheduled_row("", AHEAD, status="completed"), Kind.NO_OUTCOME),
    "it might vanish": (scheduled_row("", AHEAD, expiresAt=1), Kind.MAY_EXPIRE),
    "its lease is over": (running("", AHEAD), Kind.STALE_LEASE),
    "released, and not reclaimed": (running("", AHEAD, leaseUntil=RELEASED), Kind.STALE_LEASE),
    "a lease that no process can hold": (
        running("", bucket_at(0), leaseUntil="9998-01-01T00:00:00Z"),
        Kind.ENDLESS_LEASE,
    ),
    "a lease that cannot be read": (running("", AHEAD, leaseUntil="?"), Kind.STALE_LEASE),
}

RIGHT: dict[str, Row] = {
    "waiting": scheduled_row("", AHEAD),
    "waiting in another shard": scheduled_row("", AHEAD._replace(shard=2)),
    "due, and not drained yet": scheduled_row("", bucket_at(0)),
    "running": running("", AHEAD, leaseUntil="2026-12-31T12:02:00Z"),
    "running as long as may be": running("", AHEAD, leaseUntil="2026-12-31T12:59:00Z"),
    "its lease has only just ended": running("", AHEAD, leaseUntil="2026-12-31T11:50:00Z"),
    "released just now": running("", AHEAD, leaseUntil=RELEASED, startedAt="2026-12-31T11:59:59Z"),
    "a schedule": _ready({"scheduleExpression": "cron(0 22 * * ? *)"}),
    "a paused schedule, which waits for nothing": _ready(
        {"scheduleExpression": "cron(0 22 * * ? *)", "scheduleState": "DISABLED"}
    ),
    "ended": {"status": "completed", "outcome": "completed", "taskDateTime": "2026-12-31#09:00", "expiresAt": 1},
    "of a tick that is only just there": running("", bucket_at(0)),
}


@pytest.fixture
def three_shards() -> World:
    """A world after a tick at noon, with three shards, the first of them drained through 11:59."""
    return world(rules=rules(grid=Grid(shard_count=3)))


def put(w: World, row: Row, task_id: str = "x") -> None:
    """Puts a row whose record the stream has lost."""
    w.rigged.put({**row, "taskId": task_id})


def scan(w: World, **options: Any) -> tuple[Reconciled, list[Finding]]:
    reported: list[Finding] = []
    return reconcile(w.placer(), clock=w.clock, report_finding=reported.append, **options), reported


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_found_without_a_write_and_repaired_for_good(three_shards: World, name: str) -> None:
    w, (row, kind) = three_shards, WRONG[name]
    put(w, row)
    w.placer()  # writes the settings
    before = dict(w.rigged._items)
    report, (finding,) = scan(w, repair=False)
    assert (finding.kind, finding.task_id, finding.repaired, finding.left) == (kind, "x", False, None)
    assert finding.remedy == REMEDIES[kind] and set(REMEDIES) == set(Kind)
    assert "hunter2" not in finding.why, "nothing of the payload"
    assert (report.scanned, report.found, report.repaired, report.failed) == (1, 1, 0, 0)
    assert (report.kinds, report.examples) == ({str(kind): 1}, [("x", finding.why)])
    assert w.rigged._items == before

    report, (finding,) = scan(w)
    assert (finding.repaired, finding.left, report.repaired, report.failed) == (True, None, 1, 0)
    assert scan(w)[0].found == 0
    w.next_tick(601)
    ended = "failed" if kind is Kind.NOT_UNDERSTOOD else "completed"
    assert w.outcome("x") == ended
    assert len(w.dead_letters.letters) == (ended == "failed")


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_is_left_alone(three_shards: World, name: str) -> None:
    put(three_shards, RIGHT[name])
    before = three_shards.row("x")
    report, reported = scan(three_shards)
    assert (reported, report.found, three_shards.row("x")) == ([], 0, before)


def test_a_stale_task_that_the_next_tick_reclaims_is_left_to_it(three_shards: World) -> None:
    """Ticks poll its bucket: to move it would change nothing."""
    put(three_shards, running("x", bucket_at(0)))
    three_shards.clock.forward(hours=2)
    before = three_shards.row("x")
    report, (*outage, finding) = scan(three_shards)
    assert {one.kind for one in outage} == {Kind.CURSOR_BEHIND}
    assert (finding.kind, finding.repaired, finding.left) == (
        Kind.STALE_LEASE, False, "the next tick reclaims it, if it comes"
    )  # fmt: skip
    assert (report.repaired, report.failed, three_shards.row("x")) == (0, 4, before)
    three_shards.next_tick()
    assert three_shards.outcome("x") == "completed"


@pytest.mark.parametrize(
    "meanwhile",
    [lambda w: w.stream(w.row("x")), lambda w: w.store.delete("x")],
    ids=["its record comes", "it is deleted"],
)
def test_a_row_that_is_on_its_way_is_not_found(three_shards: World, meanwhile: Callable[[World], object]) -> None:
    """The scan meets rows that came in just now: the scheduler is about to see them."""
    put(three_shards, {"delaySeconds": 30})
    waited: list[float] = []
    report, reported = scan(three_shards, pause=lambda seconds: waited.append(seconds) or meanwhile(three_shards))
    assert (reported, report.found, report.scanned) == ([], 0, 1)
    assert waited == [3]


def test_it_waits_once_and_only_where_something_looks_wrong(three_shards: World) -> None:
    waited: list[float] = []
    put(three_shards, RIGHT["waiting"])
    assert scan(three_shards, pause=waited.append)[0].found == 0
    assert waited == []
    for n in range(1200):
        put(three_shards, {}, f"lost-{n}")
    report, _ = scan(three_shards, pause=waited.append)
    assert (report.found, report.repaired, report.pages) == (1200, 1200, 2)
    assert len(waited) == 1, "once something is certain, the rest need not wait"


# -- cursors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("minutes", "tick_minutes", "changes", "kind"),
    [(0, 1, {}, None), (4, 1, {}, None), (5, 1, {}, Kind.CURSOR_BEHIND), (16, 5, {}, None),
     (17, 5, {}, Kind.CURSOR_BEHIND), (3 * 1440, 1440, {}, None),
     (0, 1, {"checkpoint_at": NOON - timedelta(minutes=62)}, None),
     (0, 1, {"checkpoint_at": NOON - timedelta(minutes=63)}, Kind.CURSOR_STUCK),
     (0, 1, {"checkpoint_at": NOON - timedelta(hours=9), "lease": "x", "lease_until": NOON}, None),
     (0, 1440, {"checkpoint_at": NOON - timedelta(days=3)}, None),
     (-4, 1, {}, None), (-6, 1, {}, Kind.CURSOR_AHEAD)],
)  # fmt: skip
def test_cursors(minutes: int, tick_minutes: int, changes: dict[str, object], kind: Kind | None) -> None:
    now = NOON + timedelta(minutes=minutes, seconds=1)
    cursor = replace(cursor_at(0, -3), **changes)  # type: ignore[arg-type]
    found = list(judge_cursors({0: cursor}, Grid(tick_minutes=tick_minutes), now))
    assert [finding.kind for finding in found] == ([] if kind is None else [kind])
    assert all(is_own_row(finding.task_id) and finding.why.startswith("shard 0: ") for finding in found)


def test_a_cursor_wants_a_person_and_the_other_shards_are_repaired(three_shards: World) -> None:
    w = three_shards
    w.store.write(ConditionalUpdate(task_id=cursor_id(0), set={"closedThrough": "yesterday"}))
    elsewhere = next(name for name in "abcdefgh" if w.rules.grid.shard_of(name) == 1)
    put(w, scheduled_row("", BEHIND._replace(shard=1)), elsewhere)
    put(w, scheduled_row("", BEHIND), "not to be judged")
    report, reported = scan(w)
    assert [(finding.kind, finding.repaired) for finding in reported] == [
        (Kind.CURSOR_UNREADABLE, False),
        (Kind.BEHIND_CURSOR, True),
    ]
    assert (reported[0].left, report.failed) == ("it needs a person", 1)
    w.store.delete(cursor_id(0))  # as the remedy says
    assert [finding.task_id for finding in scan(w)[1]] == ["not to be judged"]
    w.next_tick()
    assert w.outcome("not to be judged") == "completed"


# -- the daily round -------------------------------------------------------------------------------------------------


RECONCILE: Mapping[str, object] = {"dynatick": {"reconcile": True}}


class ReconcileWorld(World):
    """A world whose table is read in pages of three rows."""

    def lose(self, number: int) -> None:
        """Rows that only a reconcile finds: drained long ago, no tick polls them."""
        for n in range(number):
            self.rigged.put(scheduled_row(f"t{n:03d}", BEHIND))

    def lost(self) -> list[str]:
        return [task_id for task_id, row in self.open_rows().items() if row.get("taskDateTime") == str(BEHIND)]

    def reconcile(self, event: Mapping[str, object] = RECONCILE, *, has_time: bool = True) -> Reconciled:
        """Runs one invocation. ``has_time`` False: it reads one page of each segment."""
        done = self.processor.handle(event, hard_end=self.clock() + (self.life if has_time else timedelta()))
        assert done.reconciled is not None
        return done.reconciled

    def chain(self) -> list[Reconciled]:
        """Invocations of one page a segment each, until there is nothing to continue."""
        done = [self.reconcile(has_time=False)]
        while self.started:
            done.append(self.reconcile(self.continuation(), has_time=False))
        return done

    def continuation(self) -> Mapping[str, object]:
        """The one invocation that was asked for, which is forgotten now."""
        (event,) = self.started
        self.started.clear()
        return event

    def dies_and_goes_on_the_next_day(self) -> Reconciled:
        with pytest.raises(Dies):
            self.reconcile()
        self.rigged.forget()
        self.rigged.clear_faults()
        self.clock.forward(hours=24)
        return self.reconcile()

    def assert_each_page_was_read_once(self) -> None:
        assert max(Counter(self.rigged.scans).values()) == 1

    @property
    def kept(self) -> Round:
        """The round as it is kept in the table."""
        found = read_round(self.store)
        assert found is not None
        return found


@pytest.fixture
def w(monkeypatch: pytest.MonkeyPatch) -> Iterator[ReconcileWorld]:
    monkeypatch.setattr(memory, "PAGE", 3)
    world = ReconcileWorld()
    world.tick()
    world.rigged.forget()
    yield world
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("dynatick-scan")]
    assert threads == [], "Lambda would freeze them, and let them go on in another invocation"


@pytest.fixture
def one_segment(w: ReconcileWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scans in one segment, for tests that go page by page, with time for all pages."""
    monkeypatch.setattr("dynatick.engine.reconcile.SEGMENTS", 1)
    w.life = timedelta(hours=1)


def test_a_round_reads_each_page_of_each_segment_once_and_segments_side_by_side(w: ReconcileWorld) -> None:
    w.lose(30)
    together = threading.Barrier(SEGMENTS)
    # raises if the others don't come
    w.rigged.before_scan = lambda segment, after: together.wait(timeout=60) if after is None else None
    found = w.reconcile()
    assert not together.broken
    assert (found.found, found.repaired, found.scanned, found.failed) == (30, 30, 30, 0)
    assert (found.complete, found.continued, found.leased_elsewhere, w.started) == (True, False, False, [])
    assert {(segment, of) for segment, of, _ in w.rigged.scans} == {(n, SEGMENTS) for n in range(SEGMENTS)}
    assert len(w.rigged.scans) == found.pages
    w.assert_each_page_was_read_once()
    assert w.lost() == []


def test_the_row_says_how_many_segments_its_round_has(w: ReconcileWorld) -> None:
    """A later version may have another number; the places that one has reached mean nothing among another."""
    w.lose(30)
    w.reconcile(has_time=False)
    w.started.clear()
    w.rigged.put({**w.row(RECONCILE_ID), "segments": [{"after": None, "done": False}] * 2})
    w.rigged.forget()
    w.chain()
    assert {of for _, of, _ in w.rigged.scans} == {2}
    assert w.lost() == []
    w.rigged.forget()
    w.reconcile()
    assert {of for _, of, _ in w.rigged.scans} == {SEGMENTS}


@pytest.mark.parametrize("answers_are_lost", [False, True])
def test_a_table_larger_than_one_invocation_is_continued_where_the_last_one_stopped(
    w: ReconcileWorld, answers_are_lost: bool
) -> None:
    w.lose(40)
    if answers_are_lost:
        w.rigged.unanswered = lambda change: Is("lease", change.set.get("lease")) in change.conditions
    chain = w.chain()
    assert len(chain) >= 3
    assert [(one.complete, one.continued) for one in chain] == [(False, True)] * (len(chain) - 1) + [(True, False)]
    assert (sum(one.found for one in chain), w.lost()) == (40, [])
    w.assert_each_page_was_read_once()


def test_a_round_of_a_few_pages_a_day_reads_the_whole_table_and_is_overdue_after_three_days(w: ReconcileWorld) -> None:
    """The table takes longer than a day, and each day's chain dies."""
    w.lose(60)
    complete = w.reconcile(has_time=False).complete
    began_at, overdue = w.kept.began_at, []
    while not complete:
        assert len(overdue) < 40
        overdue.append(w.kept.is_overdue(w.clock()))
        w.started.clear()
        w.clock.forward(hours=24, seconds=1)
        complete = w.reconcile(has_time=False).complete
    assert overdue[:5] == [False, False, False, True, True]
    assert not w.kept.is_overdue(w.clock()), "it is complete"
    w.assert_each_page_was_read_once()
    assert (w.kept.repaired, w.kept.scanned, w.kept.began_at, w.lost()) == (60, 60, began_at, [])


@pytest.mark.usefixtures("one_segment")
def test_a_killed_invocation_loses_little(w: ReconcileWorld) -> None:
    """Killed in the middle of a long one: its place of some seconds ago was saved."""
    w.lose(120)
    read: list[str | None] = []

    def four_seconds_a_page(segment: int, after: str | None) -> None:
        w.clock.forward(seconds=4)
        if len(read) == 20:
            w.rigged.die()
        read.append(after)

    w.rigged.before_scan = four_seconds_a_page
    assert w.dies_and_goes_on_the_next_day().complete
    again = {after for _, _, after in w.rigged.scans} & set(read)
    assert len(again) <= 4, "the pages of 10 s, and one whose rows were not judged"
    assert w.lost() == []


def test_a_row_that_was_read_and_not_yet_judged_is_not_passed_by(w: ReconcileWorld) -> None:
    """Rows that look wrong wait a moment before they are judged; the position saved meanwhile lies before them."""
    w.lose(60)
    w.life = timedelta(hours=1)
    w.rigged.before_scan = lambda segment, after: w.clock.forward(seconds=11)
    w.rigged.before_read = lambda task_id: None if task_id.startswith("_") else w.rigged.die()
    assert w.dies_and_goes_on_the_next_day().repaired == 60
    assert w.lost() == []


def test_a_page_that_is_half_judged_as_time_ends_is_continued_in_the_middle(
    w: ReconcileWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page with more to repair than an invocation has time for would never be passed otherwise."""
    monkeypatch.setattr(memory, "PAGE", 1000)
    w.lose(600)
    w.rigged.before_write = lambda change: w.clock.forward(seconds=1)
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
    w.rigged.before_scan = lambda segment, after: segment or after or others.append(w.reconcile())
    first = w.reconcile()
    assert (first.found, first.leased_elsewhere, first.complete, w.started) == (30, False, True, [])
    assert [(one.leased_elsewhere, one.found, one.pages, one.complete) for one in others] == [(True, 0, 0, False)]
    w.assert_each_page_was_read_once()


@pytest.mark.parametrize("is_first", [True, False])
def test_of_two_that_acquire_in_the_same_moment_one_does(w: ReconcileWorld, is_first: bool) -> None:
    if not is_first:
        w.reconcile()
    with w.rigged.meanwhile(lambda change: True, partial(acquire, w.store, token="other", now=w.clock())):
        assert acquire(w.store, token="one", now=w.clock()) is None
    assert w.kept.lease == "other"


@pytest.mark.usefixtures("one_segment")
def test_an_invocation_that_lost_its_lease_stops_and_saves_nothing(w: ReconcileWorld) -> None:
    w.lose(120)
    taken: list[Row] = []

    def frozen(segment: int, after: str | None) -> None:
        if len(w.rigged.scans) == 6:
            w.clock.forward(minutes=5)
            assert acquire(w.store, token="other", now=w.clock()) is not None
            taken.append(w.row(RECONCILE_ID))

    w.rigged.before_scan = frozen
    found = w.reconcile()
    assert (found.complete, found.continued, w.started) == (False, False, [])
    assert w.row(RECONCILE_ID) == taken[0]
    assert len(w.rigged.scans) == 7, "it reads no further than the page after the present one"


def test_a_continuation_that_comes_twice_begins_no_round(w: ReconcileWorld) -> None:
    w.lose(30)
    w.reconcile(has_time=False)
    event = w.continuation()
    assert w.reconcile(event).complete
    began_at = w.kept.began_at
    again = w.reconcile(event)
    assert (again.leased_elsewhere, again.pages) == (True, 0)
    w.clock.forward(hours=24)
    w.reconcile()
    assert w.kept.began_at != began_at
    assert w.reconcile(event).leased_elsewhere, "the round that it belongs to is over"


# -- what can go wrong -----------------------------------------------------------------------------------------------


def test_a_page_that_cannot_be_read_stops_no_other_segment(w: ReconcileWorld) -> None:
    w.lose(40)
    w.rigged.before_scan = lambda segment, after: raises_for(2, error=cannot("scan"))(segment)
    found = w.reconcile()
    assert (found.complete, found.continued, found.problem) == (False, True, str(cannot("scan")))
    assert [segment.is_done for segment in w.kept.segments] == [True, True, False, True]
    left = w.lost()
    assert len(left) == 40 - found.repaired
    event = w.continuation()
    with pytest.raises(StoreError, match="cannot scan"):  # so that Lambda tries again, later
        w.reconcile(event)
    assert w.started == [], "nor is it tried again at once, for ever"
    w.rigged.clear_faults()
    w.rigged.forget()
    assert w.reconcile(event).repaired == len(left)
    assert {segment for segment, _, _ in w.rigged.scans} == {2}


def test_a_last_save_that_fails_raises_and_the_next_event_goes_on(w: ReconcileWorld) -> None:
    w.lose(12)
    w.rigged.throttled = lambda change: change.task_id == RECONCILE_ID
    with pytest.raises(StoreError, match=THROTTLED.error):
        w.reconcile()
    w.rigged.clear_faults()
    w.clock.forward(minutes=1)  # Lambda tries again
    assert w.reconcile().complete


def test_a_save_that_takes_effect_late_is_overwritten_by_the_next(w: ReconcileWorld) -> None:
    first = acquire(w.store, token="one", now=w.clock())
    assert first is not None
    under_way: list[ConditionalUpdate] = []
    w.rigged.before_write, w.rigged.throttled = under_way.append, lambda change: True
    with pytest.raises(StoreError):
        save(w.store, replace(first, found=1))
    w.rigged.clear_faults()
    assert isinstance(MemoryStore.write(w.rigged, under_way[0]), Written)
    assert save(w.store, replace(first, found=2)) is not None
    assert w.kept.found == 2

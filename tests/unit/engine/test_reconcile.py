"""Reconcile: each kind of wrong row and wrong cursor, what repairs it, what is only on its way; and the daily chain of
invocations, each of which goes on where the last one stopped, whatever dies or comes twice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.builders import NOON, defaults, scheduled_row
from tests.unit.engine.support import THROTTLED, Dies, World, bucket_at, cannot, cursor_at, raises_for, rules, world

from dynatick.domain.buckets import Bucket, Grid
from dynatick.domain.conditional_update import ConditionalUpdate
from dynatick.domain.lifecycle import RELEASED
from dynatick.domain.recurrence import ready
from dynatick.domain.task import Row, is_own_row
from dynatick.engine.cursor import cursor_id
from dynatick.engine.reconcile import REMEDIES, Finding, Kind, Reconciled, judge_cursors, reconcile
from dynatick.engine.settings import pause, resume
from dynatick.errors import DynatickError, StoreError
from dynatick.store import memory

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


def test_what_was_released_for_a_pause_is_not_stale_before_ticks_had_time_to_come(three_shards: World) -> None:
    w = three_shards
    put(w, running("x", bucket_at(0), leaseUntil=RELEASED, startedAt="2026-12-31T11:59:59Z"))
    pause(w.store, now=w.clock(), by="ada", reason="a bad deployment")
    w.clock.forward(hours=5)
    assert scan(w)[0].found == 0
    assert resume(w.store, now=w.clock()) is not None
    assert scan(w)[0].found == 0
    w.clock.forward(hours=2)
    assert Kind.STALE_LEASE in {one.kind for one in scan(w)[1]}


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


# -- the daily chain -------------------------------------------------------------------------------------------------

TODAY: Mapping[str, object] = {"dynatick": {"reconcile": True, "beganAt": "2026-12-31T11:59:00Z"}}
TOMORROW: Mapping[str, object] = {"dynatick": {"reconcile": True, "beganAt": "2027-01-01T11:59:00Z"}}
ROW = "_dynatick#reconcile#2026-12-31T11:59:00Z"


class ReconcileWorld(World):
    """A world whose table is read in pages of three rows."""

    def lose(self, number: int) -> None:
        """Rows that only a reconcile finds: drained long ago, no tick polls them."""
        for n in range(number):
            self.rigged.put(scheduled_row(f"t{n:03d}", BEHIND))

    def lost(self) -> list[str]:
        return [task_id for task_id, row in self.open_rows().items() if row.get("taskDateTime") == str(BEHIND)]

    def reconcile(self, event: Mapping[str, object] = TODAY, *, has_time: bool = False) -> Reconciled:
        """Runs one invocation as the function does. ``has_time`` False: it reads one page."""
        done = self.processor.handle(event, hard_end=self.clock() + (self.life if has_time else timedelta()))
        if done.fault is not None:
            raise done.fault
        assert done.reconciled is not None
        return done.reconciled

    def first_or_second_event(self, is_first: bool) -> Mapping[str, object]:
        if is_first:
            return TODAY
        self.reconcile()
        return self.continuation()

    def continuation(self) -> Mapping[str, object]:
        """The one invocation that was asked for, which is forgotten now."""
        (event,) = self.started
        self.started.clear()
        return event

    def until_complete(self, event: Mapping[str, object] = TODAY) -> list[Reconciled]:
        """The invocation of an event, and what continues it."""
        done = [self.reconcile(event)]
        while done[-1].continued:
            done.append(self.reconcile(self.continuation()))
        assert (done[-1].complete, self.started) == (True, [])
        return done

    def assert_each_page_was_read_once(self) -> None:
        assert len(set(self.rigged.scans)) == len(self.rigged.scans)

    def assert_goes_on_to_its_end(self, event: Mapping[str, object]) -> None:
        """Nothing is lost, and from here on no page is read twice."""
        self.rigged.forget()
        self.until_complete(event)
        self.assert_each_page_was_read_once()
        assert self.lost() == []


@pytest.fixture
def w(monkeypatch: pytest.MonkeyPatch) -> ReconcileWorld:
    monkeypatch.setattr(memory, "PAGE", 3)
    world = ReconcileWorld()
    world.tick()
    world.rigged.forget()
    return world


def of_chain(change: ConditionalUpdate) -> bool:
    return change.task_id == ROW


def test_a_table_that_one_invocation_can_read_leaves_no_row(w: ReconcileWorld) -> None:
    w.lose(30)
    found = w.reconcile(has_time=True)
    assert (found.found, found.repaired, found.scanned, found.failed, found.pages) == (30, 30, 30, 0, 11)
    assert (found.complete, found.continued, found.problem, w.started) == (True, False, None, [])
    w.assert_each_page_was_read_once()
    assert (w.lost(), w.rigged.peek(ROW)) == ([], None)


@pytest.mark.parametrize("answers_are_lost", [False, True])
def test_a_larger_one_is_continued_where_the_last_invocation_stopped(w: ReconcileWorld, answers_are_lost: bool) -> None:
    w.lose(40)
    w.rigged.unanswered = lambda change: answers_are_lost and of_chain(change)
    chain = w.until_complete()
    assert len(chain) == 14
    assert (sum(report.found for report in chain), w.lost()) == (40, [])
    w.assert_each_page_was_read_once()
    row = w.row(ROW)
    assert (row["status"], row["outcome"], row["readThrough"]) == ("reconcile", "none", w.rigged.scans[-1])
    assert row["expiresAt"] == (w.clock() + timedelta(days=7)).timestamp()


def test_an_invocation_reads_on_for_two_minutes_so_that_lambda_can_repeat_it(w: ReconcileWorld) -> None:
    w.lose(60)
    w.life = timedelta(minutes=15)
    w.rigged.before_scan = lambda after: w.clock.forward(seconds=10)
    found = w.reconcile(has_time=True)
    assert (found.pages, found.continued) == (11, True)


def test_a_row_that_was_read_and_not_yet_judged_is_not_passed_by(w: ReconcileWorld) -> None:
    """Rows that look wrong wait a moment before they are judged."""
    w.lose(12)

    def three_seconds_a_page(after: str | None) -> None:
        w.clock.forward(seconds=3)
        if len(w.rigged.scans) == 4:
            raise cannot("scan")

    w.rigged.before_scan = three_seconds_a_page
    found = w.reconcile(has_time=True)
    assert (found.scanned, found.found, found.problem, found.continued) == (7, 4, str(cannot("scan")), True)
    w.rigged.clear_faults()
    assert w.reconcile(w.continuation(), has_time=True).found == 8
    assert w.lost() == []


def test_a_page_that_is_half_judged_as_time_ends_is_continued_in_the_middle(
    w: ReconcileWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page with more to repair than an invocation has time for would never be passed otherwise."""
    monkeypatch.setattr(memory, "PAGE", 1000)
    w.lose(600)
    w.rigged.before_write = lambda change: w.clock.forward(seconds=1)
    chain = [w.reconcile(has_time=True)]
    while chain[-1].continued:
        chain.append(w.reconcile(w.continuation(), has_time=True))
    assert len(chain) > 3
    assert sum(report.repaired for report in chain) == 600, "none is judged twice"
    assert w.lost() == []


# -- what dies -------------------------------------------------------------------------------------------------------


def test_lambda_repeats_the_event_of_an_invocation_that_died(w: ReconcileWorld) -> None:
    w.lose(12)
    w.reconcile()
    event = w.continuation()
    w.rigged.before_read = lambda task_id: w.rigged.die() if task_id.startswith("t") else None
    with pytest.raises(Dies):
        w.reconcile(event)
    w.rigged.clear_faults()
    w.assert_goes_on_to_its_end(event)
    assert None not in w.rigged.scans, "it does not begin at the start"


def test_a_table_that_does_not_answer_raises_and_starts_nothing(w: ReconcileWorld) -> None:
    w.lose(12)
    w.rigged.before_scan = raises_for(None, error=cannot("scan"))
    with pytest.raises(StoreError, match="cannot scan"):
        w.reconcile(has_time=True)
    assert (w.started, w.rigged.peek(ROW)) == ([], None)


@pytest.mark.parametrize("is_first", [True, False])
def test_an_invocation_that_does_not_know_whether_it_moved_the_chain_is_repeated(
    w: ReconcileWorld, is_first: bool
) -> None:
    w.lose(12)
    event = w.first_or_second_event(is_first)
    w.rigged.throttled = of_chain
    with pytest.raises(StoreError, match=THROTTLED.error):
        w.reconcile(event)
    assert w.started == []
    w.rigged.clear_faults()
    w.until_complete(event)
    assert w.lost() == []


@pytest.mark.parametrize("is_first", [True, False])
def test_a_continuation_that_could_not_be_started_is_started_by_the_repetition(
    w: ReconcileWorld, is_first: bool
) -> None:
    w.lose(12)
    event = w.first_or_second_event(is_first)
    w.refused = lambda order: True
    with pytest.raises(DynatickError, match="cannot invoke"):
        w.reconcile(event)
    w.refused = lambda order: False
    again = w.reconcile(event)
    assert (again.pages, again.complete, again.continued) == (0, False, True)
    w.assert_goes_on_to_its_end(w.continuation())


def test_a_chain_that_is_dead_is_left_and_the_next_day_begins_at_the_start(w: ReconcileWorld) -> None:
    w.lose(12)
    w.reconcile()
    w.started.clear()
    w.clock.forward(hours=24)
    w.rigged.forget()
    w.until_complete(TOMORROW)
    assert w.rigged.scans[0] is None
    assert w.lost() == []


def test_a_row_that_was_changed_by_hand_or_deleted_is_written_anew(w: ReconcileWorld) -> None:
    w.lose(12)
    for after in (None, 7, "deleted"):
        w.reconcile()
        event = w.continuation()
        if after == "deleted":
            w.store.delete(ROW)
        else:
            w.rigged.put({**w.row(ROW), "readThrough": after})
        w.until_complete(event)
        w.store.delete(ROW)
    assert w.lost() == []


# -- what comes twice ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_first", [True, False])
def test_of_two_deliveries_at_once_one_continues(w: ReconcileWorld, is_first: bool) -> None:
    w.lose(12)
    event = w.first_or_second_event(is_first)
    others: list[Reconciled] = []
    with w.rigged.meanwhile(of_chain, lambda: others.append(w.reconcile(event))):
        report = w.reconcile(event)
    assert [(one.pages, one.complete, one.continued) for one in (report, *others)] == [
        (1, False, False),
        (1, False, True),
    ]
    w.rigged.clear_faults()
    w.assert_goes_on_to_its_end(w.continuation())


def test_a_delivery_that_comes_later_reads_no_page_and_begins_no_second_chain(w: ReconcileWorld) -> None:
    """It starts the continuation once more, for the first may not have been. Of those two, only one starts the next."""
    w.lose(12)
    w.reconcile()
    event = w.continuation()
    assert (w.reconcile().pages, w.continuation()) == (0, event)
    with w.rigged.meanwhile(of_chain, lambda: w.reconcile(event)):
        w.reconcile(event)
    w.rigged.clear_faults()
    w.assert_goes_on_to_its_end(w.continuation())


def test_a_chain_that_takes_longer_than_a_day_goes_on_beside_the_next(w: ReconcileWorld) -> None:
    w.lose(24)
    today, tomorrow = w.reconcile(), w.reconcile(TOMORROW)
    chains = [[today], [tomorrow]]
    while w.started:
        report = w.reconcile(w.started.pop(0))
        chains[report.began_at != today.began_at].append(report)
    for chain in chains:
        assert [report.complete for report in chain] == [False] * 8 + [True]
        assert sum(report.scanned for report in chain) == 24
    assert sum(report.repaired for chain in chains for report in chain) == 24
    assert w.lost() == []

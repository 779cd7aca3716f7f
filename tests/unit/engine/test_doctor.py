"""What a reconcile finds: each kind of wrong row and wrong cursor, what repairs it, and what is only on its way."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from tests.builders import NOON, InProcess, defaults, scheduled_row

from dynatick.domain.buckets import Bucket, Grid, minute_of
from dynatick.domain.conditional_update import ConditionalUpdate
from dynatick.domain.lifecycle import RELEASED
from dynatick.domain.recurrence import ready
from dynatick.domain.task import Row, is_own_row
from dynatick.engine.cursor import Cursor, cursor_id
from dynatick.engine.diagnosis import REMEDIES, Finding, Kind, judge_cursors
from dynatick.engine.reconcile import Reconciled, reconcile
from dynatick.engine.rules import Rules
from dynatick.errors import InvalidInput
from dynatick.store.memory import MemoryStore

NOON_MINUTE = minute_of(NOON)
AHEAD = Bucket(NOON_MINUTE + 600)
LONG_AGO = "2026-12-31T09:00:00Z"


def running(task_id: str, bucket: Bucket, **more: object) -> dict[str, object]:
    return scheduled_row(
        task_id, bucket, status="running", attempt=1, lease="x", leaseUntil=LONG_AGO, startedAt=LONG_AGO, **more
    )


def _ready(raw: Row) -> Row:
    """A schedule's row, after the scheduler function has seen it."""
    change = ready({"taskId": "x", **raw}, now=NOON, grid=Grid(shard_count=3), defaults=defaults())
    assert change is not None
    return {"taskId": "x", **raw, **change.set}


WRONG: dict[str, tuple[Row, Kind]] = {
    "unscheduled": ({"delaySeconds": 30}, Kind.NEVER_NORMALISED),
    "it cannot be understood": ({"action": 7}, Kind.NOT_UNDERSTOOD),
    "its status is none of ours": (scheduled_row("", AHEAD, status="sleeping"), Kind.NOT_UNDERSTOOD),
    "no claim could take it": (scheduled_row("", AHEAD, attempt="one"), Kind.NEVER_NORMALISED),
    "its outcome is null": (scheduled_row("", AHEAD, outcome=None), Kind.NULL_OUTCOME),
    "no bucket": (scheduled_row("", AHEAD, taskDateTime="2026-12-31T12:00:00Z"), Kind.NO_BUCKET),
    "a running one without a bucket": (running("", AHEAD, taskDateTime="soon"), Kind.NO_BUCKET),
    "a shard that was never in use": (scheduled_row("", AHEAD._replace(shard=9)), Kind.UNSERVED_SHARD),
    "behind the cursor": (scheduled_row("", Bucket(NOON_MINUTE - 600)), Kind.BEHIND_CURSOR),
    "running behind the cursor": (running("", Bucket(NOON_MINUTE - 600)), Kind.BEHIND_CURSOR),
    "ended by hand": (scheduled_row("", AHEAD, status="completed"), Kind.NO_OUTCOME),
    "it might vanish": (scheduled_row("", AHEAD, expiresAt=1), Kind.MAY_EXPIRE),
    "its lease is over": (running("", AHEAD), Kind.STALE_LEASE),
    "released, and not reclaimed": (running("", AHEAD) | {"leaseUntil": RELEASED}, Kind.STALE_LEASE),
    "a lease that no process can hold": (
        running("", Bucket(NOON_MINUTE)) | {"leaseUntil": "9998-01-01T00:00:00Z"},
        Kind.ENDLESS_LEASE,
    ),
    "a lease that cannot be read": (running("", AHEAD) | {"leaseUntil": "?"}, Kind.STALE_LEASE),
}

RIGHT: dict[str, Row] = {
    "waiting": scheduled_row("", AHEAD),
    "waiting in another shard": scheduled_row("", AHEAD._replace(shard=2)),
    "due, and not drained yet": scheduled_row("", Bucket(NOON_MINUTE)),
    "running": running("", AHEAD) | {"leaseUntil": "2026-12-31T12:02:00Z"},
    "running as long as may be": running("", AHEAD) | {"leaseUntil": "2026-12-31T12:59:00Z"},
    "its lease has only just ended": running("", AHEAD) | {"leaseUntil": "2026-12-31T11:50:00Z"},
    "released just now": running("", AHEAD) | {"leaseUntil": RELEASED, "startedAt": "2026-12-31T11:59:59Z"},
    "a schedule": _ready({"scheduleExpression": "cron(0 22 * * ? *)"}),
    "a paused schedule, which waits for nothing": _ready(
        {"scheduleExpression": "cron(0 22 * * ? *)", "scheduleState": "DISABLED"}
    ),
    "ended": {"status": "completed", "outcome": "completed", "taskDateTime": "2026-12-31#09:00", "expiresAt": 1},
}


@pytest.fixture
def world() -> InProcess:
    """After a tick at noon, with three shards, the first of them drained through 11:59."""
    world = InProcess(rules=Rules(grid=Grid(shard_count=3)))
    world.tick()
    return world


def put(world: InProcess, row: Row, task_id: str = "x") -> None:
    """As if the stream had lost the record."""
    assert isinstance(world.store, MemoryStore)
    world.store.put({**row, "taskId": task_id})


def scan(world: InProcess, **options: object) -> tuple[Reconciled, list[Finding]]:
    reported: list[Finding] = []
    report = reconcile(world.placer(), clock=world.clock, report_finding=reported.append, **options)  # type: ignore[arg-type]
    return report, reported


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_found_without_a_write_and_repaired_for_good(world: InProcess, name: str) -> None:
    row, kind = WRONG[name]
    put(world, row)
    world.placer()  # writes the settings
    assert isinstance(world.store, MemoryStore)
    before = dict(world.store._items)
    report, (finding,) = scan(world, repair=False)
    assert (finding.kind, finding.task_id, finding.repaired, finding.left) == (kind, "x", False, None)
    assert finding.remedy == REMEDIES[kind]
    assert (report.scanned, report.found, report.repaired, report.failed) == (1, 1, 0, 0)
    assert report.kinds == {str(kind): 1}
    assert report.examples == [("x", finding.why)]
    assert world.store._items == before

    report, (finding,) = scan(world)
    assert (finding.repaired, finding.left, report.repaired, report.failed) == (True, None, 1, 0)
    assert scan(world)[0].found == 0
    world.next_tick(601)
    ended = "failed" if name in ("it cannot be understood", "its status is none of ours") else "completed"
    assert world.outcome("x") == ended
    assert len(world.dead_letters.letters) == (ended == "failed")


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_is_left_alone(world: InProcess, name: str) -> None:
    put(world, RIGHT[name])
    before = world.row("x")
    report, reported = scan(world)
    assert (reported, report.found, world.row("x")) == ([], 0, before)


def test_a_stale_task_that_the_next_tick_reclaims_is_left_to_it(world: InProcess) -> None:
    """Ticks poll its bucket: to move it would change nothing."""
    put(world, running("x", Bucket(NOON_MINUTE)))
    assert scan(world)[0].found == 0, "its tick is only just there"
    world.clock.forward(hours=2)
    before = world.row("x")
    report, (*outage, finding) = scan(world)
    assert {one.kind for one in outage} == {Kind.CURSOR_BEHIND}
    assert (finding.kind, finding.repaired, finding.left) == (
        Kind.STALE_LEASE, False, "the next tick reclaims it, if it comes"
    )  # fmt: skip
    assert (report.repaired, report.failed, world.row("x")) == (0, 4, before)
    world.next_tick()
    assert world.outcome("x") == "completed"


def test_a_row_that_is_on_its_way_is_not_found(world: InProcess) -> None:
    """The scan meets rows that came in just now: the scheduler is about to see them."""
    put(world, {"delaySeconds": 30})
    waited: list[float] = []

    def pause(seconds: float) -> None:
        waited.append(seconds)
        world.stream(world.row("x"))  # meanwhile its record comes

    report, reported = scan(world, pause=pause)
    assert (reported, report.found, report.scanned) == ([], 0, 1)
    assert waited == [pytest.approx(3, abs=0.5)]


def test_it_waits_once_and_only_where_something_looks_wrong(world: InProcess) -> None:
    waited: list[float] = []
    put(world, RIGHT["waiting"])
    assert scan(world, pause=waited.append)[0].found == 0
    assert waited == []
    for n in range(1200):
        put(world, {}, f"lost-{n}")
    report, _ = scan(world, pause=waited.append)
    assert (report.found, report.repaired, report.pages) == (1200, 1200, 2)
    assert len(waited) == 1, "once something is certain, the rest need not wait"


def test_what_is_deleted_meanwhile_is_not_found(world: InProcess) -> None:
    put(world, {})
    assert scan(world, pause=lambda seconds: world.store.delete("x"))[0].found == 0


# -- cursors ---------------------------------------------------------------------------------------------------------


def cursor(**changes: object) -> Cursor:
    fresh = Cursor(
        shard=0, closed_through=NOON_MINUTE, drained_through=NOON_MINUTE - 3, polled_through=NOON_MINUTE,
        checkpoint=NOON_MINUTE, checkpoint_at=NOON,
    )  # fmt: skip
    return replace(fresh, **changes)  # type: ignore[arg-type]


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
    found = list(judge_cursors({0: cursor(**changes)}, Grid(tick_minutes=tick_minutes), now))
    assert [finding.kind for finding in found] == ([] if kind is None else [kind])
    assert all(is_own_row(finding.task_id) and finding.why.startswith("shard 0: ") for finding in found)


def test_a_cursor_that_is_not_there_or_cannot_be_read() -> None:
    found = list(judge_cursors({0: None, 1: InvalidInput("checkpoint", "?", "a bucket")}, Grid(), NOON))
    assert [(finding.kind, finding.task_id) for finding in found] == [
        (Kind.NO_TICK, "_dynatick#cursor#0"),
        (Kind.CURSOR_UNREADABLE, "_dynatick#cursor#1"),
    ]


def test_a_cursor_wants_a_person_and_the_other_shards_are_repaired(world: InProcess) -> None:
    world.store.write(ConditionalUpdate(task_id=cursor_id(0), set={"closedThrough": "yesterday"}))
    elsewhere = next(name for name in "abcdefgh" if world.rules.grid.shard_of(name) == 1)
    put(world, scheduled_row("", Bucket(NOON_MINUTE - 600, 1)), elsewhere)
    put(world, scheduled_row("", Bucket(NOON_MINUTE - 600)), "not to be judged")
    report, reported = scan(world)
    assert [(finding.kind, finding.repaired) for finding in reported] == [
        (Kind.CURSOR_UNREADABLE, False),
        (Kind.BEHIND_CURSOR, True),
    ]
    assert (reported[0].left, report.failed) == ("it needs a person", 1)
    world.store.delete(cursor_id(0))  # as the remedy says
    assert [finding.task_id for finding in scan(world)[1]] == ["not to be judged"]
    world.next_tick()
    assert world.outcome("not to be judged") == "completed"


def test_every_kind_has_its_remedy() -> None:
    assert set(REMEDIES) == set(Kind)


@pytest.mark.parametrize("name", WRONG)
def test_findings_hold_nothing_of_the_payload(world: InProcess, name: str) -> None:
    put(world, {**WRONG[name][0], "payload": "hunter2"})
    _, (finding,) = scan(world, repair=False)
    assert "hunter2" not in finding.why

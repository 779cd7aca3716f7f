"""Schedules in a pass: what is written and in which order, what it holds back, and what it costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.builders import NOON
from tests.unit.engine.support import RiggedStore, World, bucket_at, of, passed, world

from dynatick import TaskClient
from dynatick.domain.buckets import Bucket, minute_of
from dynatick.domain.conditional_update import ConditionalUpdate
from dynatick.domain.schedule import Schedule
from dynatick.domain.task import Row
from dynatick.engine import recurring as recurring_module
from dynatick.engine.claims import Claimer, Contended, Ineligible
from dynatick.engine.cursor import acquire_shard
from dynatick.engine.poll_window import Window
from dynatick.engine.ports import StoreFailure
from dynatick.engine.recurring import Recurring
from dynatick.engine.shard_lease import ShardLease


def is_advance(change: ConditionalUpdate) -> bool:
    return "nextOccurrenceAt" in change.set and "definition" not in change.set


def put(w: World, schedule_id: str = "s", **row: Any) -> None:
    w.put(**{"taskId": schedule_id, "scheduleExpression": "rate(1 minute)", "overlap": "allow", **row})


def with_a_schedule(**row: Any) -> World:
    w = world()
    put(w, **row)
    return w


def runs(w: World) -> list[str]:
    return [task_id for task_id, _, _ in w.actions.ran]


def recurring(w: World, token: Callable[[], str] = str) -> Recurring:
    placer = w.placer()
    return Recurring(w.store, placer, Claimer(w.store, placer, w.clock, token), w.clock, token)


FIRST, SECOND = "s#1#2026-12-31T12:01:00Z", "s#1#2026-12-31T12:02:00Z"


def test_an_occurrence_is_written_claimed_before_its_schedule_moves_on() -> None:
    """The stream leaves it where its tick wrote it: it is running, in a bucket that is closed."""
    w = with_a_schedule()
    seen: list[Row] = []

    def noted() -> None:
        seen.append(of(w.rigged.peek(FIRST)))
        w.stream(seen[0])

    w.rigged.meanwhile(is_advance, noted)
    report = passed(w.next_tick())
    assert [(row["status"], row["taskDateTime"]) for row in seen] == [("running", "2026-12-31#12:01")]
    assert (report.due, report.claimed, report.completed, report.occurrences) == (1, 1, 1, 1)
    row = w.row(FIRST)
    assert (row["outcome"], row["attempt"], row["dueAt"]) == ("completed", 1, "2026-12-31T12:01:00Z")
    assert (row["taskDateTime"], w.row("s")["taskDateTime"]) == ("2026-12-31#12:01", "2026-12-31#12:02")
    assert w.cursor().open_until is None, "the pass has closed it for good"


def test_a_backlog_is_made_in_order_and_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recurring_module, "MAX_AT_ONCE", 10)
    w = with_a_schedule(catchUp="all")
    w.next_tick(95)
    made = runs(w)
    assert len(made) == 95
    assert sorted(made) == sorted(f"s#1#2026-12-31T{12 + n // 60}:{n % 60:02d}:00Z" for n in range(1, 96))
    assert w.row("s#1#2026-12-31T12:40:00Z")["taskDateTime"] == "2026-12-31#12:40"  # listed under its own time
    w.until_drained()


@pytest.mark.parametrize("malformed", [{"payload": "text"}, {"scheduleExpression": "rate(5 parsecs)"}, {"action": 5}])
def test_a_malformed_schedule_is_marked_failed(malformed: dict[str, Any]) -> None:
    w = world()
    put(w)
    put(w, "other")
    w.store.write(ConditionalUpdate(task_id="s", set=malformed))
    w.next_tick()
    row = w.row("s")
    assert (row["outcome"], row["scheduleState"]) == ("failed", "FAILED")
    assert next(iter(malformed)) in str(row["error"])
    assert [letter.row["taskId"] for letter in w.dead_letters.letters] == ["s"]
    assert runs(w) == ["other#1#2026-12-31T12:01:00Z"]


def test_a_task_in_the_place_of_an_occurrence_is_left_alone() -> None:
    w = with_a_schedule()
    w.insert(FIRST, at=bucket_at(60))
    w.next_tick()
    assert not w.actions.ran
    assert w.row(FIRST)["status"] == "scheduled"
    assert [entry["reason"] for entry in w.row("s")["missed"]] == ["id-taken"]  # type: ignore[attr-defined]


def test_a_malformed_task_that_names_itself_as_its_schedule_is_not_passed() -> None:
    """It is claimed, and can't be understood: until it has ended as failed it holds its bucket."""
    w = world()
    w.insert("t", scheduleId="t", payload="no map")
    w.rigged.hidden = lambda entry: entry.task_id == "t"
    w.ticks(5)
    w.rigged.hidden = lambda entry: False
    w.next_tick()
    assert w.outcome("t") is None
    assert w.cursor().drained_through < bucket_at(1).minute
    w.ticks(6)
    assert w.outcome("t") == "failed"


def die_holding_an_occurrence(w: World, tick: int, *, moved_on: bool = True) -> None:
    """A pass that has written an occurrence and moved its schedule on, and is not heard of again."""
    now = w.clock()
    cursor = acquire_shard(w.store, 0, tick, token="dead", now=now).cursor
    assert cursor is not None
    window = Window(cursor, w.rules, closed_at=w.clock())
    assert ShardLease(w.store, w.clock, window, "dead").keep_open(now + w.life)
    bucket = Bucket.parse(w.row("s")["taskDateTime"])
    (made,) = recurring(w, lambda: "dead").make_occurrences(
        [(bucket, "s")], closed_through=tick, lease_until=now + w.life
    )
    assert (made.verdict, len(made.claimed)) == (Ineligible() if moved_on else Contended(), 1)


def test_no_poll_is_final_before_a_dead_tick_can_have_written_into_its_bucket_and_the_index_shows_it() -> None:
    """The occurrence is written long after its bucket was closed; then the process dies, and the index shows the
    occurrence late."""
    w = world()
    until = w.clock() + timedelta(minutes=5)
    dead = replace(w.cursor(), open_until=until)
    assert Window(dead, w.rules, closed_at=w.clock()).final_from == until + w.rules.index_settled_after


@pytest.mark.parametrize(("catch_up", "ticks_later"), [("latest", 5), ("none", 5), ("latest", 2)])
def test_what_a_dead_tick_has_made_is_not_noted_as_missed(catch_up: str, ticks_later: int) -> None:
    """It died before it could move the schedule on. By now the run is late, or another one is due as well."""
    w = with_a_schedule(catchUp=catch_up, overlap="skip", retryPolicy={"minBackoffSeconds": 0})
    w.clock.to(NOON + timedelta(minutes=1))
    w.rigged.throttled = is_advance
    die_holding_an_occurrence(w, minute_of(w.clock()), moved_on=False)
    w.rigged.throttled = lambda change: False
    w.next_tick(ticks_later)
    row, first = w.row("s"), "s#1#2026-12-31T12:01:00Z"
    reasons = {note["reason"] for note in row["missed"]}  # type: ignore[attr-defined]
    assert reasons == ({"outage", "overlap"} if ticks_later > 2 else {"overlap"})
    assert row["missedOccurrences"] == ticks_later
    assert row["lastTaskId"] == first  # the others were skipped, for it had not ended
    w.ticks(4)
    assert w.outcome(first) == "completed"
    assert len(runs(w)) == len({*runs(w)})


@pytest.mark.parametrize(
    ("edit", "then"),
    [(lambda schedules: schedules.pause("s"), []),
     (lambda schedules: schedules.update("s", expression="cron(0/5 * * * ? *)"), ["s#1#2026-12-31T12:05:00Z"])],
    ids=["paused", "updated"],
)  # fmt: skip
def test_an_edit_between_a_run_and_the_move_stands(edit: Callable[[Any], object], then: list[str]) -> None:
    """Anyone who moves a schedule on has read it some time before."""
    w = with_a_schedule()
    schedules = TaskClient(w.store, clock=w.clock).schedules
    first = w.rigged.meanwhile(is_advance, lambda: edit(schedules))
    w.ticks(6)
    assert first.done
    assert runs(w) == [FIRST, *then]
    assert ("taskDateTime" in w.row("s")) == bool(then)


class Deaf(RiggedStore):
    """The answers to the next batch of inserts get lost; ``taken``: how many of it took effect."""

    taken: int | None = None

    def create_many(self, rows: Sequence[Row]) -> Sequence[bool | StoreFailure]:
        if self.taken is None:
            return super().create_many(rows)
        super().create_many(rows[: self.taken])
        self.taken = None
        return [StoreFailure("no answer")] * len(rows)


@pytest.mark.parametrize("taken", [0, 1, 2])
def test_an_occurrence_whose_write_got_no_answer_runs_at_once(taken: int) -> None:
    """It has one attempt only, which must not be used up by waiting for a lease of our own."""
    store = Deaf()
    w = world(store=store)
    put(w, "a", retryPolicy={"maximumRetryAttempts": 0})
    put(w, "b", retryPolicy={"maximumRetryAttempts": 0})
    store.taken = taken
    w.next_tick()
    first = [f"{schedule_id}#1#2026-12-31T12:01:00Z" for schedule_id in ("a", "b")]
    assert set(runs(w)) >= set(first[:taken])
    w.next_tick()
    assert set(runs(w)) >= set(first)
    assert len(runs(w)) == len({*runs(w)})
    assert {w.outcome(task_id) for task_id in first} == {"completed"}


def test_a_schedule_that_could_not_be_normalised_holds_its_bucket_back() -> None:
    w = world()
    w.rigged.put({"taskId": "s", "scheduleId": "s", "scheduleExpression": "rate(1 minute)", "taskDateTime": "x"})
    here = bucket_at(1)
    w.rigged.put({**w.row("s"), "taskDateTime": str(here)})
    w.rigged.throttled = lambda change: change.task_id == "s"
    (made,) = recurring(w).make_occurrences([(here, "s")], closed_through=here.minute, lease_until=w.clock())
    assert made.verdict == Contended()


def test_a_pass_that_loses_its_shard_before_it_writes_occurrences_writes_none() -> None:
    """The one who has it by now would not know that they come, and could pass their bucket."""
    w = with_a_schedule(catchUp="all")

    def is_taken() -> None:
        w.clock.forward(seconds=40)  # longer than a shard's lease
        assert acquire_shard(w.store, 0, minute_of(w.clock()), token="another's", now=w.clock()).cursor is not None

    first = w.rigged.meanwhile(lambda change: change.set.get("openUntil") is not None, is_taken)
    w.next_tick()
    assert first.done
    assert runs(w) == []
    assert not [row for row in w.open_rows().values() if row["taskId"] != "s"]
    w.clock.forward(seconds=40)
    w.next_tick()
    assert runs(w).count(FIRST) == 1


def test_its_own_bucket_only() -> None:
    """An index that lags shows a schedule where it was."""
    w = with_a_schedule()
    stale = Bucket.parse(w.row("s")["taskDateTime"])
    w.next_tick()
    (made,) = recurring(w).make_occurrences([(stale, "s")], closed_through=stale.minute, lease_until=w.clock() + w.life)
    assert made.verdict == Ineligible()
    assert runs(w) == [FIRST]
    assert Schedule.from_row(w.row("s")).next_occurrence_at == NOON + timedelta(minutes=2)

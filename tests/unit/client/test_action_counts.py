"""What ran by action is read from the records of ticks and buckets; what waits, from the index."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta

import pytest
from tests.builders import NOON
from tests.unit.client.support import client_of, fail, fail_for_now
from tests.unit.engine.support import NOON_MINUTE, World, bucket_at, world
from tests.unit.engine.test_wake_ups import with_planned
from tests.unit.engine.test_wake_ups import world as world_to_the_second

from dynatick import InvalidInput
from dynatick.client.action_counts import NOT_COUNTED
from dynatick.client.operations import ActionFigures, MinuteCounts, Waiting, action_list
from dynatick.domain.action_counts import ActionCounts, CountsByAction, TimeCounts
from dynatick.domain.buckets import Grid
from dynatick.domain.task import Row
from dynatick.engine.counts import tick_record_id
from dynatick.engine.rules import Precision
from dynatick.engine.settings import InstallationSettings


@pytest.fixture
def w() -> World:
    """At 12:02: in the minute before, of mail one completed, one failed and one is to be tried again."""
    w = world()
    w.tick()
    w.insert("done", "again", "bad", at=bucket_at(1), action="mail")
    w.insert("other", at=bucket_at(2), action="log")
    w.actions.behaviour |= {"again": fail_for_now, "bad": fail}
    w.ticks(2)
    return w


def test_each_minute_in_which_something_ran_has_its_counts(w: World) -> None:
    found = client_of(w).operations.minute_counts(start=NOON)
    assert set(found) == {NOON_MINUTE + 1, NOON_MINUTE + 2}
    first = found[NOON_MINUTE + 1]
    assert (first.completed, first.failures, first.has_wake_ups) == (1, 2, False)
    mail = first.by_action.by_action["mail"]
    assert (mail.attempts, mail.completed, mail.failed, mail.retried) == (3, 1, 1, 1)
    assert list(found[NOON_MINUTE + 2].by_action.by_action) == ["log"]


def test_failed_attempts_count_though_their_tasks_were_redriven_or_have_completed_since(w: World) -> None:
    client = client_of(w)
    w.actions.behaviour.clear()
    client.redrive("bad")
    w.clock.forward(hours=1)
    w.next_tick()
    assert [w.outcome(name) for name in ("bad", "again")] == ["completed", "completed"]
    assert sum(one.failures for one in client.operations.minute_counts(start=NOON).values()) == 2


def test_parts_of_a_pass_recoveries_and_records_of_earlier_versions_count_too(w: World) -> None:
    w.insert("crashed", at=bucket_at(3), action="mail")
    w.claim("crashed", until=NOON + timedelta(minutes=2, seconds=30))
    w.next_tick()
    of_an_earlier_version = {"completed": 5, "failed": 1, "retried": 2, "continued": True}
    for continuation, row in enumerate((of_an_earlier_version, {"byAction": {"mail": {"failed": 3}}, "failed": 3})):
        w.store.create({"taskId": tick_record_id(NOON_MINUTE + 4, 0, continuation), "status": "tick", **row})
    w.clock.forward(minutes=2)
    found = client_of(w).operations.minute_counts(start=NOON)
    assert (found[NOON_MINUTE + 3].completed, found[NOON_MINUTE + 3].failures) == (1, 0)
    assert (found[NOON_MINUTE + 4].completed, found[NOON_MINUTE + 4].failures) == (5, 6)
    assert found[NOON_MINUTE + 4].by_action.by_action == {"mail": ActionCounts(failed=3)}


def test_ticks_and_what_they_ran_are_read_together(w: World, monkeypatch: pytest.MonkeyPatch) -> None:
    w.store.create({
        "taskId": tick_record_id(NOON_MINUTE + 1, 0, 1), "status": "tick", "tick": str(bucket_at(1)), "continuation": 1,
        "byAction": {"mail": {"failed": 3}}, "failed": 3,
    })  # fmt: skip
    operations = client_of(w).operations
    start, end = NOON - timedelta(hours=2), NOON + timedelta(hours=1)
    expected = operations.ticks(start=start, end=end), operations.minute_counts(start=start, end=end)
    asked: list[str] = []
    read = w.store.get_many

    def counted(ids: Sequence[str], **more: object) -> Mapping[str, Row]:
        ids = list(ids)
        asked.extend(ids)
        return read(ids, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(w.store, "get_many", counted)
    assert operations.ticks_and_counts(start=start, end=end) == expected
    assert max(Counter(one for one in asked if "#tick#" in one).values()) == 1


def test_what_waits_by_action(w: World) -> None:
    w.clock.forward(minutes=3)
    w.insert("due", "runs", at=bucket_at(4), action="mail")
    w.insert("later", at=bucket_at(50), action="mail")
    w.claim("runs", until=w.clock() + timedelta(minutes=2))
    assert client_of(w).operations.waiting_by_action() == {"mail": Waiting(due=2, running=1, retrying=1)}


def test_a_retry_that_is_to_come_is_retrying(w: World) -> None:
    assert client_of(w).operations.waiting_by_action()["mail"].retrying == 1


def test_the_actions_beside_the_time_before(w: World) -> None:
    found = client_of(w).operations.actions(timedelta(minutes=1)).actions
    assert [(one.action, one.now.attempts, one.before.attempts) for one in found] == [("log", 1, 0), ("mail", 0, 3)]
    assert (found[1].retrying, found[1].now.failed_percent, found[1].before.failed_percent) == (1, None, 66.7)
    (mail, log) = client_of(w).operations.actions().actions
    assert (mail.action, mail.now.failed, mail.now.retried, mail.now.failed_percent) == ("mail", 1, 1, 66.7)
    assert (mail.now.lateness_p99_ms, mail.now.duration_p99_ms) == (256, 0)
    assert log.now.failed_percent == 0


def test_a_day_and_the_day_before_are_few_requests(w: World, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    read = w.store.get_many

    def counted(ids: Sequence[str], **more: object) -> Mapping[str, Row]:
        asked.append(len(list(ids)))
        return read(ids, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(w.store, "get_many", counted)
    client_of(w).operations.minute_counts(start=NOON - timedelta(days=2))
    assert sum(asked) == pytest.approx(2 * 2 * 1440, abs=100)
    assert len(asked) <= 59
    assert max(asked) <= 100


@pytest.mark.parametrize("last", [timedelta(), timedelta(days=4)])
def test_a_range_whose_comparison_is_gone_is_refused(w: World, last: timedelta) -> None:
    with pytest.raises(InvalidInput, match="expected a duration above 0, at most 3 days"):
        client_of(w).operations.actions(last)


def test_the_action_of_which_the_most_failed_comes_first() -> None:
    took = TimeCounts()
    took.add(100)
    now = CountsByAction({"a": ActionCounts(completed=9, took=took), "b": ActionCounts(retried=1, took=took)})
    counts = {1: MinuteCounts(by_action=CountsByAction({"c": ActionCounts()})), 2: MinuteCounts(by_action=now)}
    found = action_list(counts, 2, None, None).actions
    assert [one.action for one in found] == ["b", "a", "c"]
    assert found[0].to_row() == {
        "action": "b",
        "past": {"attempts": 1, "completed": 0, "failed": 0, "retried": 1, "failedPercent": 100.0,
                 "durationP50Ms": 128, "durationP99Ms": 128},
        "before": {"attempts": 0, "completed": 0, "failed": 0, "retried": 0},
    }  # fmt: skip


def test_a_share_is_not_given_of_attempts_that_were_not_counted() -> None:
    assert ActionFigures.of(ActionCounts(failed=2)).failed_percent is None


def test_no_share_is_given_where_wake_ups_ran_tasks() -> None:
    w = with_planned(150, 155, 160, 180, action="mail")
    w.actions.behaviour |= {"t1": fail}
    w.deliver()
    w.next_tick()
    counted = client_of(w).operations.minute_counts(start=NOON)
    assert sum(one.completed for one in counted.values()) < 3, "what wake-ups complete is not counted"
    found = client_of(w).operations.actions()
    (mail,) = found.actions
    assert (mail.now.failed, mail.now.failed_percent) == (1, None)
    assert (mail.now.attempts, mail.now.completed) == (None, None)
    assert found.not_counted == NOT_COUNTED


def test_no_share_is_given_if_no_pass_planned_the_wake_ups() -> None:
    """A task with a short delay gets its wake-up from the scheduler, and its tick finds nothing to do."""
    w = world_to_the_second()
    w.actions.behaviour |= {"soon": fail}
    w.insert_due("soon", 40, action="mail")
    w.inserted("soon")
    w.deliver()
    w.next_tick()
    counted = client_of(w).operations.minute_counts(start=NOON)
    assert not any(one.has_wake_ups for one in counted.values())
    found = client_of(w).operations.actions()
    (mail,) = found.actions
    assert (mail.now.failed, mail.now.attempts, mail.now.failed_percent) == (1, None, None)
    assert found.not_counted == NOT_COUNTED


def test_the_time_before_an_installation_ran_to_the_second_has_its_shares() -> None:
    """Only one with Precision tick now is known to have counted all, but for minutes in which wake-ups were planned."""
    took = TimeCounts()
    took.add(100)
    mail = CountsByAction({"mail": ActionCounts(completed=1, took=took)})
    counts = {1: MinuteCounts(by_action=mail), 2: MinuteCounts(by_action=mail, has_wake_ups=True)}
    found = action_list(counts, 2, None, InstallationSettings(grid=Grid(), shards_ever=1, precision=Precision.TICK))
    assert (found.actions[0].now.attempts, found.actions[0].before.attempts) == (None, 1)
    assert (found.actions[0].before.failed_percent, found.not_counted) == (0, NOT_COUNTED)

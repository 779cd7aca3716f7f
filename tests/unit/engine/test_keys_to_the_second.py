"""With ``Precision: second``, passes begin tasks with limit keys at their second, in buckets that no tick has closed
(protocol 18, 23)."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.builders import NOON, scheduled_row
from tests.unit.engine.support import bucket_at, fails, is_cursor, passed, rules
from tests.unit.engine.test_wake_ups import CHANGES, Second, after_noon, wake_up, world

from dynatick import TaskClient
from dynatick.domain.buckets import Bucket
from dynatick.domain.conditional_update import ConditionalUpdate, Result
from dynatick.domain.instants import format_instant, parse_instant, up_to_second
from dynatick.domain.limit_keys import parse_limits
from dynatick.domain.normalise import Defaults
from dynatick.domain.task import Task
from dynatick.engine.cursor import acquire_shard
from dynatick.engine.invocation import Execution
from dynatick.engine.limits import MAX_WAITING_OF_KEY, KeyTurns
from dynatick.engine.orders import PassOnTime, PassOrder, parse_event
from dynatick.engine.ports import ActionContext, Page
from dynatick.engine.processor import Invoked
from dynatick.engine.record import Attempted
from dynatick.errors import InvalidInput

pytestmark = pytest.mark.usefixtures("time_passes")


def keyed(*limits: str, **settings: object) -> Second:
    limits = limits or ("customer=1",)
    return world(rules=rules(defaults=Defaults(key_limits=parse_limits(limits)), **settings))


def planned_keys(w: Second, **due: tuple[str, float]) -> None:
    """Tasks with keys, each due that many seconds after noon. At 12:01 a tick plans them."""
    for task_id, (key, seconds) in due.items():
        w.insert_due(task_id, seconds, limitKey=key)
    w.next_tick()


def wake_passes(w: Second) -> list[list[Invoked]]:
    """Delivers the wake-ups of the queue. Returns what each has started."""
    done = []
    for message in w.queue.take():
        w.deliver(message)
        done.append(w.run_started())
    return done


def test_tasks_with_limit_keys_begin_at_their_seconds_by_passes_of_their_own() -> None:
    w = keyed()
    planned_keys(
        w, a=("customer:1", 130), b=("customer:2", 140), c=("customer:2", 140), d=("customer:3", 180),
        e=("unknown:1", 150),
    )  # fmt: skip
    assert [parse_event(event, NOON) for event, _ in w.queue.sent] == [
        wake_up(("e", 150), bucket=3),  # its class has no limit any more
        PassOnTime(tick=bucket_at(3).minute, shard=0, before=after_noon(130)),
        PassOnTime(tick=bucket_at(3).minute, shard=0, before=after_noon(140)),
        PassOnTime(tick=bucket_at(3).minute, shard=0),
    ]  # fmt: skip
    w.clock.to(after_noon(120.2))
    w.tick()
    closed = w.cursor().closed_through
    (of_a,), (of_b,), *_ = wake_passes(w)
    assert w.began == [
        ("a", after_noon(130)), ("b", after_noon(140)), ("c", after_noon(140)), ("e", after_noon(150)),
        ("d", after_noon(180)),
    ]  # fmt: skip
    assert passed([of_b]).claimed == 2
    assert passed([of_a]).closed_through == closed == bucket_at(2).minute, "a pass before the tick closes nothing"
    w.assert_each_ran_once("a", "b", "c", "d", "e")
    w.until_drained()


def test_in_one_second_one_pass_begins_them() -> None:
    w = keyed()
    planned_keys(w, **{f"t{n}": (f"customer:{n}", 130 + n / 10) for n in range(12)})
    assert w.sent_for() == [after_noon(130), after_noon(131), after_noon(132)]


def test_what_is_not_yet_due_waits_in_the_open_bucket() -> None:
    w = keyed()
    planned_keys(w, a=("customer:1", 130), b=("customer:2", 150))
    w.queue.sent.pop()  # that of b is lost
    wake_passes(w)
    assert [task_id for task_id, _ in w.began] == ["a"]
    w.clock.to(after_noon(180.2))
    w.tick()
    assert [task_id for task_id, _ in w.began] == ["a", "b"]


@pytest.mark.parametrize("change", CHANGES)
def test_a_task_with_a_limit_key_that_was_changed_and_is_listed_as_before_does_not_begin(change: str) -> None:
    """The index lags: what it lists is not what the row says."""
    w = keyed()
    planned_keys(w, t0=("customer:1", 150))
    query = w.rigged.query_bucket
    page = query(bucket_at(3), after=None, limit=100)
    CHANGES[change](w)
    if change != "unscheduled":
        w.rigged.put({**w.row("t0"), "limitKey": "customer:1"})
    before = w.row("t0")
    w.rigged.query_bucket = (  # type: ignore[method-assign]
        lambda bucket, *, after, limit: page if bucket == bucket_at(3) else query(bucket, after=after, limit=limit)
    )
    ((done,),) = wake_passes(w)
    assert (w.began, passed([done]).claimed, w.row("t0")) == ([], 0, before)


def test_a_pass_that_stays_for_a_long_task_begins_those_of_other_keys_at_their_seconds() -> None:
    w = keyed("customer=1", "host=1")
    planned_keys(w, a=("customer:1", 130), b=("host:1", 140), c=("customer:1", 141), d=("host:2", 150))
    first, *others = w.queue.take()
    woken = threading.Event()

    def runs_long(*_: object) -> None:
        """While it runs, the wake-ups of the others come, and find the shard held."""
        for message in others:
            w.deliver(message)
            (elsewhere,) = w.run_started()
            assert passed([elsewhere]).leased_elsewhere
            assert w.cursor().woken_at == message[1]
            woken.clear()
            w.clock.forward(seconds=1)  # after which the pass reads that
            if message is not others[1]:
                assert woken.wait(60)

    w.behave(runs_long, "a")
    w.behave(lambda *_: woken.set(), "b", "d")
    w.deliver(first)
    w.run_started()
    assert [(task_id, (at - NOON).total_seconds()) for task_id, at in w.began] == [
        ("a", 130), ("b", 141), ("d", 151), ("c", 151)
    ]  # fmt: skip
    assert w.cursor().woken_at is None
    w.until_drained()


def test_a_pass_that_is_woken_while_it_ends_looks_once_more() -> None:
    w = keyed()
    planned_keys(w, a=("customer:1", 130), b=("customer:2", 131))
    first, second = w.queue.take()

    def comes(change: ConditionalUpdate) -> None:
        if is_cursor(change) and change.set.get("lease") is None:
            w.rigged.before_write = None
            w.deliver(second)
            assert passed(w.run_started()).leased_elsewhere

    w.deliver(first)
    w.rigged.before_write = comes
    w.run_started()
    assert w.began == [("a", after_noon(130)), ("b", after_noon(131))]


def test_a_wake_up_that_a_dead_process_was_to_see_is_seen_by_the_next() -> None:
    w = keyed()
    planned_keys(w, a=("customer:1", 125))
    w.clock.to(after_noon(120.2))
    dead = acquire_shard(w.store, 0, bucket_at(2).minute, token="dead", now=w.clock())
    assert dead.cursor is not None
    ((done,),) = wake_passes(w)
    assert passed([done]).leased_elsewhere
    w.clock.to(after_noon(160))
    w.tick()  # by hand
    assert w.began == [("a", after_noon(160))]


def test_a_retry_of_a_task_with_a_limit_key_begins_at_its_second() -> None:
    w = keyed()
    w.behave(lambda task, context: fails(task, context) if task.attempt == 1 else None, "a")
    w.insert_due("a", 60, limitKey="customer:1", retryPolicy={"minBackoffSeconds": 20, "maximumRetryAttempts": 2})
    w.next_tick()
    at = parse_instant(w.row("a")["nextAttemptAt"], "at")
    second = up_to_second(at)
    assert [one for _, one in w.queue.sent] == [second]
    wake_passes(w)
    assert w.began[1:] == [("a", second)]


def test_an_insert_after_the_plan_begins_at_its_second() -> None:
    w = keyed()
    w.insert_due("a", 20, limitKey="customer:1")
    w.inserted("a")
    wake_passes(w)
    assert w.began == [("a", after_noon(20))]


def test_what_waits_for_its_turn_at_a_later_tick_wakes_no_pass_before_it() -> None:
    w = keyed()
    bucket = bucket_at(3)
    w.rigged.put(scheduled_row("a", bucket, dueAt=format_instant(NOON), limitKey="customer:1", movedTo=str(bucket)))
    w.next_tick()
    assert [parse_event(event, NOON) for event, _ in w.queue.take()] == [PassOnTime(tick=bucket.minute, shard=0)]


def test_more_of_a_key_than_fit_into_memory_begin_one_after_another_before_their_tick() -> None:
    w = keyed(in_one_thread=True)
    for n in range(MAX_WAITING_OF_KEY + 5):
        w.insert_due(f"t{n:03}", 130, limitKey="customer:1")
    w.next_tick()
    takes(w, 0.1)
    wake_passes(w)
    assert len(w.began) == MAX_WAITING_OF_KEY + 5


def test_a_process_whose_clock_is_behind_waits_for_the_instant() -> None:
    w = keyed()
    planned_keys(w, a=("customer:1", 130))
    (message,) = w.queue.take()
    w.deliver(message)
    w.clock.to(after_noon(128))
    w.run_started()
    assert w.began == [("a", after_noon(130))]
    with pytest.raises(InvalidInput, match="not in the future"):
        w.handle(PassOrder(tick=bucket_at(2).minute, shard=0, woken_at=after_noon(200)).to_event())


def test_a_pass_before_the_tick_leaves_what_it_had_no_time_for_to_a_continuation_or_the_tick() -> None:
    w = keyed(in_one_thread=True)
    w.life = timedelta(seconds=8)
    planned_keys(w, **{f"t{n}": ("customer:1", 130) for n in range(5)})
    takes(w, 3)
    wake_passes(w)
    assert w.began and all(at >= after_noon(130) for _, at in w.began)
    w.assert_each_ran_once(*(f"t{n}" for n in range(5)))
    w.until_drained()


def test_while_all_is_paused_no_pass_begins_before_the_tick() -> None:
    w = keyed()
    planned_keys(w, a=("customer:1", 130))
    TaskClient(w.store, clock=w.clock).operations.pause()
    ((done,),) = wake_passes(w)
    assert (done.paused, w.began) == (True, [])


def takes(w: Second, seconds: float) -> None:
    """Each task takes so long by the clock."""
    run = w.actions.run
    w.actions.run = lambda task, context: (w.clock.forward(seconds=seconds), run(task, context))[1]  # type: ignore[method-assign]


def test_a_continuation_begins_nothing_of_an_open_bucket_that_is_not_due() -> None:
    """What the pass before could not claim, since the index lagged, is left to its tick."""
    w = keyed(in_one_thread=True)
    w.life = timedelta(seconds=8)
    planned_keys(w, **{f"t{n}": ("customer:1", 130) for n in range(5)}, x=("customer:2", 130))
    w.rigged.put({**w.row("x"), "dueAt": format_instant(after_noon(175))})
    query = w.rigged.query_bucket

    def lags(bucket: Bucket, *, after: str | None, limit: int) -> Page:
        page = query(bucket, after=after, limit=limit)
        return replace(
            page,
            entries=[
                replace(one, due_at=format_instant(after_noon(130))) if one.task_id == "x" else one
                for one in page.entries
            ],
        )

    w.rigged.query_bucket = lags  # type: ignore[method-assign]
    takes(w, 3)
    ((first, *more),) = wake_passes(w)
    assert passed([first]).continued and more
    assert "x" not in dict(w.began)
    w.clock.to(after_noon(180.2))
    w.tick()
    assert "x" in dict(w.began)


def test_a_pass_that_is_woken_as_it_renews_its_lease_renews_it_all_the_same() -> None:
    w = keyed()
    planned_keys(w, a=("customer:1", 130))
    renewed, written = threading.Event(), list[ConditionalUpdate]()

    def comes(change: ConditionalUpdate) -> None:
        if is_cursor(change):
            written.append(change)
            if len(written) == 1:
                woken = acquire_shard(
                    w.store, 0, bucket_at(2).minute, token="another", now=w.clock(), woken_at=w.clock()
                )
                assert woken.cursor is None
            elif len(written) == 3:
                renewed.set()

    def runs_long(*_: object) -> None:
        w.rigged.before_write = comes
        w.clock.forward(seconds=11)
        assert renewed.wait(60)

    w.behave(runs_long, "a")
    wake_passes(w)
    assert [one.set["leaseUntil"] for one in written[::2]][:2] == [format_instant(after_noon(171))] * 2
    assert w.outcome("a") == "completed"


def test_a_retry_that_begins_before_the_record_of_the_last_attempt_is_answered_keeps_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The answer to the record was lost, and the SDK sends it again: meanwhile the index shows the retry as due."""
    w = keyed()
    w.insert_due("a", 115, limitKey="customer:1", retryPolicy={"minBackoffSeconds": 0})
    planned_keys(w, b=("customer:1", 130), c=("customer:2", 115))
    w.queue.sent = [message for message in w.queue.sent if message[1] == after_noon(130)]
    retried, recorded = threading.Event(), threading.Event()
    has_place: list[bool] = []

    def attempts(task: Task, context: ActionContext) -> None:
        if task.attempt == 1:
            fails(task, context)
        retried.set()
        assert recorded.wait(60)

    def is_sent_again(change: ConditionalUpdate) -> Result:
        result = write(change)
        if change.task_id == "a" and change.set.get("status") == "scheduled":
            w.deliver()
            assert passed(w.run_started()).leased_elsewhere
            w.clock.forward(seconds=1)  # after which the pass reads that it was woken
            assert retried.wait(60)
        return result

    def is_answered(execution: Execution, attempts: Sequence[Attempted], results: Sequence[Any]) -> None:
        handle(execution, attempts, results)
        if attempts[0].task.attempt == 1 and attempts[0].task.task_id == "a":
            assert isinstance(execution.turns, KeyTurns)
            has_place.append(execution.turns.has_place("a"))
            recorded.set()

    write, handle = w.rigged.write, Execution._attempts_recorded
    w.behave(attempts, "a")
    w.behave(lambda *_: recorded.wait(60), "c")  # its pass stays
    monkeypatch.setattr(w.rigged, "write", is_sent_again)
    monkeypatch.setattr(Execution, "_attempts_recorded", is_answered)
    w.clock.to(after_noon(120.2))
    w.tick()
    assert [task_id for task_id, _ in w.began if task_id != "c"] == ["a", "a", "b"]
    assert has_place == [True], "its second attempt runs"


@pytest.mark.parametrize("beside", [(), ("a",)])
def test_a_pack_with_a_limit_key_begins_at_its_second(beside: Sequence[str]) -> None:
    """Alone, and with a task of its key that is due with it."""
    w = keyed()
    due = after_noon(130)
    client = TaskClient(w.store, clock=w.clock, check_actions=False)
    client.batches.insert([{}] * 3, batch_id="b", action="log", due_at=due, limit_key="customer:1")
    planned_keys(w, **dict.fromkeys(beside, ("customer:1", 130)))
    wake_passes(w)
    members = [f"b/{n:09}" for n in range(3)]
    began = [(task_id, at) for task_id, at in w.began if task_id != "b"]
    assert sorted(began) == [(task_id, due) for task_id in sorted([*beside, *members])]
    w.until_drained()

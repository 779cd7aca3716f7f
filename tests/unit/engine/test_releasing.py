"""What was claimed and not begun is released in another invocation, if the table does not take it in this one."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

import pytest
from tests.builders import NOON, FakeClock, scheduled_row
from tests.unit.engine.support import RiggedStore, bucket_at, ids, is_claim, raises_for, rules, world

from dynatick.domain.buckets import Grid
from dynatick.domain.conditional_update import ConditionalUpdate
from dynatick.domain.lifecycle import RELEASED
from dynatick.domain.packs import Pack, Span
from dynatick.domain.task import Task
from dynatick.engine import recovery
from dynatick.engine.orders import ReleaseOrder
from dynatick.engine.ports import ActionContext
from dynatick.engine.recovery import MAX_RELEASED, PAUSES, release_orders, write_releases
from dynatick.errors import InvalidInput, NoAnswer, StoreError
from dynatick.json_reader import parse

ONCE = {"maximumRetryAttempts": 0}


def running(store: RiggedStore, task_id: str, token: str, **more: object) -> None:
    row = {"status": "running", "lease": token, "leaseUntil": "2026-12-31T12:02:00Z", "attempt": 2}
    store.put(scheduled_row(task_id, bucket_at(0), **(row | more)))


def releases(store: RiggedStore, *claims: tuple[str, ...], pauses: list[float] | None = None) -> int:
    clock = FakeClock()
    wait = [] if pauses is None else pauses
    return write_releases(store, ReleaseOrder(claims), clock=clock, end=NOON + timedelta(hours=1), pause=wait.append)


def test_only_what_has_the_token_and_runs_is_released() -> None:
    store = RiggedStore()
    running(store, "a", "mine")
    running(store, "b", "another's")
    running(store, "c", "mine", status="completed", outcome="completed")
    running(store, "d", "mine", leaseUntil=RELEASED, attempt=0)
    untouched = {task_id: store.peek(task_id) for task_id in "bcd"}
    assert releases(store, *((task_id, "mine") for task_id in "abcde")) == 1
    row = store.peek("a") or {}
    assert (row["attempt"], row["leaseUntil"], row["status"]) == (1, RELEASED, "running")
    assert {task_id: store.peek(task_id) for task_id in "bcd"} == untouched
    assert releases(store, ("a", "mine")) == 0, "a repetition gives no further attempt back"


def test_a_table_that_refuses_is_asked_again_and_at_last_the_order_fails_for_lambda_to_repeat() -> None:
    store = RiggedStore()
    running(store, "a", "mine")
    running(store, "b", "mine")
    store.throttled = lambda change: change.task_id == "b"
    pauses: list[float] = []
    with pytest.raises(StoreError, match="1 tasks that were claimed and not begun can't be released: ThrottlingError"):
        releases(store, ("a", "mine"), ("b", "mine"), pauses=pauses)
    assert pauses == [*PAUSES]
    assert (store.peek("a") or {})["leaseUntil"] == RELEASED
    store.clear_faults()
    store.before_read = raises_for("b")
    with pytest.raises(StoreError, match="cannot read"):
        releases(store, ("b", "mine"))
    store.clear_faults()
    assert releases(store, ("a", "mine"), ("b", "mine")) == 1


def test_it_stops_at_its_end() -> None:
    """It does not begin a pause that goes beyond it."""
    store, clock, end = RiggedStore(), FakeClock(), NOON + timedelta(seconds=20)
    running(store, "a", "mine")
    store.throttled = lambda change: True
    order = ReleaseOrder((("a", "mine"),))
    with pytest.raises(StoreError):
        write_releases(store, order, clock=clock, end=NOON, pause=pytest.fail)
    with pytest.raises(StoreError):
        write_releases(
            store, order, clock=clock, end=end, pause=lambda seconds: clock.forward(seconds=seconds) and None
        )
    assert NOON + timedelta(seconds=sum(PAUSES[:5])) <= clock() < end


def test_what_another_process_changes_meanwhile_is_not_counted() -> None:
    store = RiggedStore()
    running(store, "a", "mine")
    with store.meanwhile(lambda change: True, lambda: running(store, "a", "another's")):
        assert releases(store, ("a", "mine")) == 0
    assert (store.peek("a") or {})["attempt"] == 2


def test_the_release_of_a_pack_says_which_members_have_ended() -> None:
    """It takes effect in this order alone: those must not run again."""
    store, pack_id = RiggedStore(), "news/000000000-000000006"
    pack = Pack(batch_id="news", span=Span(0, 7), done=0b1)
    running(store, pack_id, "mine", pack=pack.to_attribute())
    running(store, "a", "mine")
    running(store, "news/000000007-000000008", "mine", pack="changed by hand")
    ended = replace(pack, done=0b111111, extracted=0b1000000).ended
    claims = [(one, "mine", ended) for one in (pack_id, "a", "news/000000007-000000008")]
    assert releases(store, *claims) == 3
    row = store.peek(pack_id) or {}
    assert (row["attempt"], row["leaseUntil"], Pack.of(row)) == (1, RELEASED, pack.with_ended("3f/0/40"))
    assert "pack" not in (store.peek("a") or {})
    running(store, pack_id, "another's", pack=pack.to_attribute())
    assert releases(store, *claims) == 0
    assert Pack.of(store.peek(pack_id) or {}) == pack


def test_orders_are_bounded_in_number_and_bytes_and_survive_json() -> None:
    many = [(f"t{n}", f"token-{n}") for n in range(MAX_RELEASED + 1)]
    assert [len(order.claims) for order in release_orders(many)] == [MAX_RELEASED, 1]
    long = [("🦆" * 256, f"token-{n}") for n in range(100)]
    orders = list(release_orders(long))
    assert sum(len(order.claims) for order in orders) == 100
    assert max(len(ascii(order.to_event())) for order in orders) < 200_000
    assert list(release_orders([])) == []
    (order,) = release_orders([("a", "mine"), ("b/000000000-000000006", "mine", "3f/0/40")])
    event = parse('{"dynatick": {"release": [["a", "mine"], ["b/000000000-000000006", "mine", "3f/0/40"]]}}')
    assert order.to_event() == event
    assert ReleaseOrder.from_event(event["dynatick"]["release"]) == order  # type: ignore[index]


@pytest.mark.parametrize(
    "value",
    [None, "a", [["a"]], [["a", 1]], [["a", "b", "c"]], [["a", "b", "0/0"]], [["a", "b", "0/0/0", "0/0/0"]], ["ab"]],
)
def test_an_order_that_is_malformed_is_refused(value: object) -> None:
    with pytest.raises(InvalidInput, match=r"event\.dynatick\.release"):
        ReleaseOrder.from_event(value)


# -- in the processor ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["a pass", "a wake-up", "a recovery"])
def test_a_claim_of_which_nothing_is_known_is_released(kind: str) -> None:
    """It took effect, and the table answers neither it nor the read after it."""
    w = world(rules=rules(precision="second") if kind == "a wake-up" else rules())
    w.insert("t", retryPolicy=ONCE if kind != "a recovery" else {"maximumRetryAttempts": 1})
    w.clock.to(NOON + timedelta(minutes=1, milliseconds=200))
    event: dict[str, object] = {"time": "2026-12-31T12:01:00Z"}
    if kind == "a wake-up":
        due = str(w.row("t")["dueAt"])
        event = {"dynatick": {"wakeUp": {"bucket": str(bucket_at(1)), "tasks": [["t", due, "due"]]}}}
    elif kind == "a recovery":
        w.claim("t", until=NOON)
        event = {"dynatick": {"recover": {"bucket": str(bucket_at(1)), "taskIds": ["t"]}}}

    def goes_silent(change: ConditionalUpdate) -> bool:
        found = change.task_id == "t" and (is_claim(change) or "lease" in change.set)
        if found:
            w.rigged.before_read = raises_for("t")
        return found

    w.rigged.unanswered = goes_silent
    with suppress(StoreError):
        w.handle(event)
    w.rigged.clear_faults()
    assert w.row("t")["status"] == "running"
    (done,) = w.run_started()
    assert done.released == 1
    w.ticks(3)
    assert w.ran == ["t"]
    assert w.outcome("t") == "completed"


@pytest.mark.parametrize("answers", [True, False])
def test_releases_are_tried_though_an_earlier_start_had_no_answer(
    answers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once more: if Lambda is still silent, the first of them is the last call."""
    monkeypatch.setattr(recovery, "MAX_RELEASED", 5)
    w = world(rules=rules(threads=1, grid=Grid(shard_count=2)))
    asked: list[str] = []
    refused = threading.Event()

    def has_no_answer(order: Mapping[str, object]) -> bool:
        (kind,) = order.keys() & {"release", "shard"}
        asked.append(kind)
        if kind == "release" and answers:
            return False
        raise NoAnswer("no answer")

    def is_release(changes: Sequence[ConditionalUpdate]) -> bool:
        found = any(change.set.get("leaseUntil") == RELEASED for change in changes)
        if found:
            refused.set()
        return found

    def takes_all_the_time(task: Task, context: ActionContext) -> None:
        w.clock.to(NOON + timedelta(minutes=1, seconds=101))
        assert refused.wait(30)

    w.refused = has_no_answer
    w.insert(*ids(12), retryPolicy=ONCE)
    w.behave(takes_all_the_time, *ids(12))
    w.rigged.batch_fails = is_release
    w.clock.to(NOON + timedelta(minutes=1))
    done = w.handle({"time": "2026-12-31T12:01:00Z"})
    w.rigged.clear_faults()
    assert len(w.ran) == 1
    if answers:
        assert asked == ["shard", *["release"] * 3]
        assert sum(later.released or 0 for later in w.run_started()) == 11
        w.refused = lambda order: False
        w.ticks(2)
        w.assert_each_ran_once(*ids(12))
    else:
        assert asked == ["shard", "release"]
        assert [one.problem for one in done.not_started][-3:] == ["no answer", *["an earlier call had no answer"] * 2]

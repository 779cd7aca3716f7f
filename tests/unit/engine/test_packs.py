"""Packs in an invocation: members run as tasks do, and get rows of their own unless they complete (20, 21)."""

from __future__ import annotations

import threading
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from tests.builders import NOON, InProcess, rule_event, scheduled_row
from tests.silent import LONG
from tests.unit.engine.support import (
    PacedClock,
    World,
    bucket_at,
    cannot,
    passed,
    raises,
    raises_for,
    takes,
    world,
)
from tests.unit.engine.test_pause_watch import wait_until

from dynatick.actions.testing import MemoryDeadLetters
from dynatick.domain.buckets import Bucket, minute_of
from dynatick.domain.conditional_update import ConditionalUpdate
from dynatick.domain.packs import Pack, Span, body_id, packed, payload_text
from dynatick.domain.row import RELEASED
from dynatick.domain.task import Row, Task
from dynatick.engine import settings
from dynatick.engine.batches import standings
from dynatick.engine.cursor import cursor_id
from dynatick.engine.packs import MAX_READY
from dynatick.engine.ports import ActionContext, StoreFailure
from dynatick.engine.rules import Rules
from dynatick.errors import PermanentError, RateLimited, RetryableError, StoreError
from dynatick.store.memory import MemoryStore


def put_pack(world: InProcess, payloads: Sequence[object], *, batch_id: str = "news", **more: object) -> str:
    """A pack that is due at once."""
    texts = [payload_text(payload, n) for n, payload in enumerate(payloads)]
    ((span, body),) = packed(Span(0, len(texts)), texts)
    pack_id = span.pack_id(batch_id)
    world.store.put({"taskId": body_id(pack_id), "body": body, "status": "body", "outcome": "none"})
    row = scheduled_row(
        pack_id, Bucket(minute_of(NOON)), pack=Pack(batch_id=batch_id, span=span).to_attribute(), **more
    )
    world.store.put(row)
    return pack_id


def lose(world: InProcess, pack_id: str, **more: object) -> None:
    """A process that has claimed the pack has died."""
    lost = {"status": "running", "attempt": 1, "lease": "dead", "leaseUntil": "2026-12-31T11:58:00Z"}
    world.store.put({**world.row(pack_id), **lost, **more})


def pack_of(world: InProcess, pack_id: str) -> Pack:
    pack = Pack.of(world.row(pack_id))
    assert pack is not None
    return pack


def test_members_run_as_tasks_and_have_no_rows() -> None:
    world = InProcess()
    pack_id = put_pack(world, [{"n": n} for n in range(7)])
    world.tick()
    assert world.outcome(pack_id) == "completed"
    assert [world.actions.times(f"news/00000000{n}") for n in range(7)] == [1] * 7
    assert pack_of(world, pack_id).done == 0b1111111
    assert world.store.get("news/000000003") is None


def test_the_tasks_of_a_bucket_begin_before_its_packs() -> None:
    """Whatever their ids are: a batch of a million delays nothing."""
    world = InProcess(rules=Rules(threads=1, in_one_thread=True))
    begun: list[str] = []
    ids = ["a", "newspaper", "z", *(f"news/00000000{n}" for n in range(3))]
    for task_id in ids:
        world.actions.behaviour[task_id] = lambda task, _: begun.append(task.task_id)
    put_pack(world, [{}, {}, {}])
    for task_id in ids[:3]:
        world.store.put(scheduled_row(task_id, Bucket(minute_of(NOON))))
    world.tick()
    assert (sorted(begun[:3]), sorted(begun[3:])) == (sorted(ids[:3]), ids[3:])


@pytest.mark.parametrize("fault", ["can't be read", "time is up"])
def test_a_bucket_is_not_drained_before_its_packs_were_read_again(fault: str) -> None:
    """Its only poll that shows them is final: the index was behind. They would be lost to every tick."""
    w = World()
    pack_id = put_pack(w, [{}] * 3)
    w.rigged.hidden = lambda entry: True
    w.tick()
    w.ticks(2)
    w.rigged.clear_faults()
    polls: list[Bucket] = []

    def second_time(bucket: Bucket) -> None:
        polls.append(bucket)
        if polls.count(Bucket(minute_of(NOON))) == 2:
            if fault == "can't be read":
                raise cannot("read")
            w.clock.forward(minutes=2)

    w.rigged.before_poll = second_time
    with suppress(StoreError):
        w.first_pass(3)
    assert w.outcome(pack_id) is None
    w.rigged.clear_faults()
    assert w.cursor().drained_through < minute_of(NOON)
    w.run_started()
    w.ticks(2)
    assert w.outcome(pack_id) == "completed"


def test_a_process_claims_no_more_packs_than_begin_soon() -> None:
    """If it dies, each member that it has claimed gets a row."""
    world = InProcess(rules=Rules(threads=4))
    packs = [put_pack(world, [{}] * 200, batch_id=f"news-{n}") for n in range(4)]
    claimed_at_first: list[int] = []
    world.actions.behaviour["news-0/000000000"] = lambda *_: claimed_at_first.append(
        sum(world.row(pack_id)["status"] == "running" for pack_id in packs)
    )
    world.tick()
    assert claimed_at_first == [1]
    assert [world.outcome(pack_id) for pack_id in packs] == ["completed"] * 4


def test_who_does_not_complete_gets_a_row_and_the_others_do_not_run_again() -> None:
    world = InProcess()
    world.actions.behaviour["news/000000001"] = raises(RetryableError("busy"))
    world.actions.behaviour["news/000000002"] = raises(PermanentError("no such mailbox"))
    pack_id = put_pack(world, [{"n": n} for n in range(4)], tenant="t1")
    (invoked, *_) = world.tick()
    pack = pack_of(world, pack_id)
    assert (world.outcome(pack_id), pack.done, pack.extracted) == ("completed", 0b1001, 0b0110)
    busy, failed = world.row("news/000000001"), world.row("news/000000002")
    assert (busy["status"], busy["attempt"], busy["payload"], busy["tenant"]) == ("scheduled", 1, {"n": 1}, "t1")
    assert (busy["batchId"], "pack" in busy) == ("news", False)
    assert (failed["outcome"], failed["error"]) == ("failed", "no such mailbox")
    assert [letter.row["taskId"] for letter in world.dead_letters.letters] == ["news/000000002"]
    assert invoked.passed is not None
    assert (invoked.passed.completed, invoked.passed.retried, invoked.passed.failed) == (2, 1, 1)

    del world.actions.behaviour["news/000000001"]
    world.ticks(5)
    assert (world.outcome("news/000000001"), world.row("news/000000001")["attempt"]) == ("completed", 2)
    assert [world.actions.times(f"news/00000000{n}") for n in range(4)] == [1, 2, 1, 1]
    keys = {key for key in world.actions.keys if key.startswith("news/000000001#")}
    assert len(keys) == 1, "an extracted member is the same task"


def test_a_letter_that_is_refused_does_not_lose_its_member() -> None:
    refuses = True
    world = InProcess(dead_letters=MemoryDeadLetters(lambda letter: refuses))
    world.actions.behaviour["news/000000001"] = raises(PermanentError("no such mailbox"))
    pack_id = put_pack(world, [{}, {}])
    world.tick()
    assert (world.outcome(pack_id), world.outcome("news/000000001")) == ("completed", None)
    refuses = False
    world.ticks(30)
    assert world.outcome("news/000000001") == "failed"
    assert world.actions.times("news/000000001") == 1
    assert len(world.dead_letters.letters) == 1


def test_no_member_of_a_pack_that_a_dead_process_had_is_run_with_it_again() -> None:
    world = InProcess()
    pack_id = put_pack(world, [{}] * 5)
    bucket = Bucket(minute_of(NOON))
    pack = Pack(batch_id="news", span=Span(0, 5), done=0b00001, excluded=0b00010)
    retries = {"maximumRetryAttempts": 2}
    lose(world, pack_id, startedAt="2026-12-31T11:57:00Z", pack=pack.to_attribute(), retryPolicy=retries)
    world.tick()
    assert str(bucket) == world.row(pack_id)["taskDateTime"]
    assert (world.outcome(pack_id), pack_of(world, pack_id).extracted) == ("completed", 0b11100)
    assert world.actions.ran == []
    for n in (2, 3, 4):
        row = world.row(f"news/00000000{n}")
        assert (row["status"], row["attempt"], str(row["taskDateTime"])) == ("running", 1, str(bucket_at(1)))
    world.ticks(5)
    assert [world.actions.times(f"news/00000000{n}") for n in range(5)] == [0, 0, 1, 1, 1]
    assert {world.outcome(f"news/00000000{n}") for n in (2, 3, 4)} == {"completed"}
    assert "its process died" in str(world.row("news/000000002")["attempts"])


@pytest.mark.parametrize(("retries", "at_once"), [(1, 1), (2, 4)])
def test_the_members_of_a_lost_pack_are_tried_again_apart_from_others_and_the_last_time_alone(
    retries: int, at_once: int
) -> None:
    """Any of them may have killed the process, and may do so again."""
    world = InProcess()
    pack_id = put_pack(world, [{}] * 4)
    lose(world, pack_id, retryPolicy={"maximumRetryAttempts": retries})
    world.tick()
    in_flight: list[int] = []
    ids = [f"news/00000000{n}" for n in range(4)]
    for task_id in ids:
        world.actions.behaviour[task_id] = lambda *_: in_flight.append(
            sum("2026-12-31T12:01" in str(world.row(other)["startedAt"]) for other in ids if not world.outcome(other))
        )
    world.store.put(scheduled_row("innocent", bucket_at(1)))
    _, recovery, *_ = world.next_tick()
    assert recovery.recovered is not None and recovery.recovered.recovered == 4
    assert max(in_flight) == at_once and len(in_flight) == 4


def test_without_retries_the_members_of_a_lost_pack_fail_each_with_a_letter() -> None:
    """Whether they ran is not known, as of any task."""
    world = InProcess()
    pack_id = put_pack(world, [{}] * 3)
    lose(world, pack_id, retryPolicy={"maximumRetryAttempts": 0})
    world.tick()
    assert (world.outcome(pack_id), world.actions.ran) == ("completed", [])
    assert {world.outcome(f"news/00000000{n}") for n in range(3)} == {"failed"}
    assert len(world.dead_letters.letters) == 3


def test_a_member_that_was_extracted_before_stays_as_it_is() -> None:
    world = InProcess()
    pack_id = put_pack(world, [{}] * 2)
    lose(world, pack_id)
    world.store.put(
        scheduled_row(
            "news/000000001", Bucket(minute_of(NOON) + 600), status="completed", outcome="completed", batchId="news",
            createdAt=world.row(pack_id)["createdAt"],
        )
    )  # fmt: skip
    world.tick()
    assert world.row("news/000000001")["outcome"] == "completed"
    assert pack_of(world, pack_id).extracted == 0b11
    assert world.dead_letters.letters == []


OTHERS = [{}, {"batchId": "news", "createdAt": "2025-01-01T00:00:00Z"}]
"""Rows that have the id of a member: a user's task, and what is left of an earlier batch with the same id."""


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("error", [RetryableError("busy"), PermanentError("no such mailbox")])
def test_a_member_whose_id_another_task_has_fails_with_a_letter(error: Exception, other: dict[str, object]) -> None:
    """There is no row in which it could wait for its next attempt; and the letter is all that can be kept of it."""
    world = InProcess()
    world.actions.behaviour["news/000000001"] = raises(error)
    pack_id = put_pack(world, [{"n": n} for n in range(3)])
    theirs = scheduled_row("news/000000001", Bucket(minute_of(NOON) + 600), **other)
    world.store.put(theirs)
    (invoked, *_) = world.tick()
    assert world.row("news/000000001") == theirs
    (letter,) = world.dead_letters.letters
    assert (letter.row["taskId"], letter.row["payload"], letter.attempt) == ("news/000000001", {"n": 1}, 1)
    assert str(error) in letter.error
    assert invoked.passed is not None and (invoked.passed.completed, invoked.passed.failed) == (2, 1)
    pack = pack_of(world, pack_id)
    assert (world.outcome(pack_id), pack.done, pack.extracted) == ("completed", 0b101, 0b010)
    assert standings(world.store, "news", 3) == {"completed": 2, "failed": 1}


def test_a_member_without_a_row_waits_in_its_pack_until_its_letter_is_taken() -> None:
    refuses = True
    world = InProcess(dead_letters=MemoryDeadLetters(lambda letter: refuses))
    world.actions.behaviour["news/000000001"] = raises(RetryableError("busy"))
    pack_id = put_pack(world, [{}, {}])
    world.store.put(scheduled_row("news/000000001", Bucket(minute_of(NOON) + 600)))
    world.tick()
    assert (world.outcome(pack_id), world.dead_letters.letters) == (None, [])
    refuses = False
    world.ticks(10)
    assert (world.outcome(pack_id), len(world.dead_letters.letters)) == ("completed", 1)
    assert world.actions.times("news/000000000") == 1


def test_a_member_that_is_too_large_for_a_row_fails_with_a_letter_and_ends_its_pack() -> None:
    """Only rows that were changed by hand can be: a batch with as many attributes of one's own is refused."""
    world = InProcess()
    world.actions.behaviour["news/000000001"] = raises(RetryableError("busy"))
    pack_id = put_pack(world, [{"text": "x" * 90_000}] * 2, note="x" * 350_000)
    world.tick()
    (letter,) = world.dead_letters.letters
    assert "too large" in letter.error and letter.row["payload"] == {"text": "x" * 90_000}
    assert (world.outcome(pack_id), world.outcome("news/000000001")) == ("completed", "failed")
    assert "payload" not in world.row("news/000000001")


def test_what_there_is_no_time_for_runs_in_the_next_invocation() -> None:
    """It is so short that nothing was kept before the release."""
    world = InProcess(rules=Rules(threads=1, in_one_thread=True), life=timedelta(seconds=4))
    pack_id = put_pack(world, [{}] * 5)

    def last_of_its_time(*_: Any) -> None:
        world.clock.forward(seconds=3.2)

    world.actions.behaviour["news/000000002"] = last_of_its_time
    first, *others = world.tick()
    assert first.passed is not None and first.passed.continued and others
    assert world.outcome(pack_id) == "completed"
    assert [world.actions.times(f"news/00000000{n}") for n in range(5)] == [1] * 5
    assert world.row(pack_id)["attempt"] == 1, "what was released is no attempt"


def test_a_pack_whose_release_gets_no_answer_runs_none_of_its_members_again() -> None:
    w = World(rules=Rules(threads=1, in_one_thread=True), life=timedelta(seconds=4))
    pack_id = put_pack(w, [{}] * 5, retryPolicy={"maximumRetryAttempts": 0})
    w.actions.behaviour["news/000000002"] = lambda *_: w.clock.forward(seconds=3.2) and None
    refused: list[str] = []

    def refuses_the_first(change: ConditionalUpdate) -> bool:
        is_release = change.task_id == pack_id and change.set.get("leaseUntil") == RELEASED and not refused
        refused.extend([pack_id] * is_release)
        return is_release

    w.rigged.throttled = refuses_the_first
    w.tick()
    assert refused
    w.ticks(3)
    assert w.outcome(pack_id) == "completed"
    w.actions.ran.sort()
    assert w.actions.ran == [(f"news/{n:09}", 1, 1) for n in range(5)]


@pytest.mark.parametrize("retries", [0, 1])
def test_who_still_runs_as_its_process_ends_takes_no_other_with_it(retries: int) -> None:
    """It alone has used an attempt up: the others begin in the next invocation, and none of them is lost."""
    w = World(rules=Rules(threads=1), life=timedelta(seconds=110))
    pack_id = put_pack(w, [{}] * 20, retryPolicy={"maximumRetryAttempts": retries})
    hangs, is_over = "news/000000001", threading.Event()
    seen: list[Row | None] = []

    def never_ends(*_: Any) -> None:
        w.clock.forward(seconds=109.6)
        is_over.wait(LONG)

    def peeks(*_: Any) -> None:
        seen.append(w.rigged.peek(hangs))

    w.behave(never_ends, hangs)
    w.behave(peeks, "news/000000019")
    processor = w.processor
    invoked = processor.handle(rule_event(w.clock()), hard_end=w.clock() + w.life)
    assert processor.running, "its thread is still there"
    assert (w.row(pack_id)["attempt"], w.row(pack_id)["leaseUntil"]) == (0, RELEASED)
    assert invoked.passed is not None and invoked.passed.continued
    del w.actions.behaviour[hangs]
    w.run_started()
    assert w.outcome(pack_id) == "completed" and w.store.get("news/000000002") is None
    assert seen and seen[0] is not None
    assert (seen[0]["status"], seen[0]["leaseUntil"], seen[0]["attempt"]) == ("running", "2026-12-31T12:01:50Z", 1)
    w.ticks(4)
    is_over.set()
    assert Counter(w.ran) == {f"news/{n:09}": 1 for n in range(20)} | {hangs: 1 + retries}
    assert w.outcome(hangs) == ("completed" if retries else "failed")
    assert len(w.dead_letters.letters) == 1 - retries


def test_who_ends_after_it_has_got_its_row_is_left_to_its_recovery() -> None:
    w = World(rules=Rules(threads=1), life=timedelta(seconds=110))
    pack_id = put_pack(w, [{}] * 5)
    late, is_over = "news/000000001", threading.Event()

    def ends_late(*_: Any) -> None:
        w.clock.forward(seconds=109.6)
        assert is_over.wait(LONG)

    def ends_first(change: ConditionalUpdate) -> bool:
        if change.task_id == late and not is_over.is_set():
            is_over.set()
            wait_until(lambda: not processor.executions[0].task_pool.running)
        return False

    w.behave(ends_late, late)
    w.rigged.throttled = ends_first
    processor = w.processor
    invoked = processor.handle(rule_event(w.clock()), hard_end=w.clock() + w.life)
    assert is_over.is_set() and invoked.passed is not None
    assert (invoked.passed.completed, invoked.passed.retried, invoked.passed.released) == (1, 1, 3)
    assert (w.row(late)["status"], pack_of(w, pack_id).extracted) == ("running", 0b10)
    del w.actions.behaviour[late]
    w.run_started()
    w.ticks(4)
    assert Counter(w.ran) == {f"news/{n:09}": 1 for n in range(5)} | {late: 2}
    assert (w.outcome(pack_id), w.outcome(late)) == ("completed", "completed")


def test_nothing_begins_in_a_pause() -> None:
    world = InProcess(rules=Rules(in_one_thread=True))
    pack_id = put_pack(world, [{}] * 3)

    def pause(*_: Any) -> None:
        settings.pause(world.store, now=world.clock(), by=None, reason=None)
        world.clock.forward(seconds=6)  # so that it is read again

    world.actions.behaviour["news/000000000"] = pause
    world.tick()
    row = world.row(pack_id)
    assert (row["status"], row["leaseUntil"], row["attempt"]) == ("running", RELEASED, 0)
    ran = len(world.actions.ran)
    assert pack_of(world, pack_id).done == (1 << ran) - 1
    world.ticks(1)
    assert len(world.actions.ran) == ran < 3
    settings.resume(world.store, now=world.clock())
    world.ticks(1)
    assert (world.outcome(pack_id), len(world.actions.ran)) == ("completed", 3)


@pytest.mark.parametrize("body", [None, b"", b"nonsense", zlib.compress(b"[{}]"), zlib.compress(b"[1, 2]"),
                                  zlib.compress(b"[" + b" " * 5_000_000 + b"{}, {}]")])  # fmt: skip
def test_a_pack_without_its_payloads_fails_alone_and_says_why(body: bytes | None) -> None:
    world = InProcess()
    pack_id, other = put_pack(world, [{}, {}]), put_pack(world, [{}], batch_id="other")
    world.store.delete(body_id(pack_id))
    if body is not None:
        world.store.put({"taskId": body_id(pack_id), "body": body, "status": "body", "outcome": "none"})
    world.tick()
    assert (world.outcome(pack_id), world.outcome(other)) == ("failed", "completed")
    assert str(world.row(pack_id)["error"]).startswith("pack: ")
    assert [letter.row["taskId"] for letter in world.dead_letters.letters] == [pack_id]
    assert world.actions.times("news/000000000") == 0


@pytest.mark.parametrize(
    "pack",
    [
        "x",
        {"batchId": "news", "first": 0, "members": 501},
        {"batchId": "else", "first": 0, "members": 2},
        {"batchId": "news", "first": 0, "members": 2, "done": "x"},
    ],
)
def test_a_row_is_no_pack_because_it_says_so(pack: object) -> None:
    world = InProcess()
    pack_id = put_pack(world, [{}, {}])
    world.store.put({**world.row(pack_id), "pack": pack})
    world.tick()
    assert world.outcome(pack_id) == "failed" and str(world.row(pack_id)["error"]).startswith("pack: ")
    assert world.actions.ran == []


def test_members_that_take_longer_than_there_is_time_run_in_the_next_invocation() -> None:
    world = InProcess(rules=Rules(threads=1, in_one_thread=True))
    pack_id = put_pack(world, [{}] * 6, timeoutSeconds=100)
    world.actions.behaviour["news/000000001"] = lambda *_: world.clock.forward(seconds=30) and None
    first, *others = world.tick()
    assert first.passed is not None and first.passed.continued and others
    assert (world.outcome(pack_id), len(world.actions.ran)) == ("completed", 6)


@pytest.mark.parametrize("in_one_thread", [False, True])
def test_members_that_a_rate_limit_defers_stay_in_their_pack_which_goes_to_a_later_tick(in_one_thread: bool) -> None:
    """As a task does: to the tick before it may begin. No row is written for a member, and no invocation started."""
    world = InProcess(rules=Rules(threads=4, in_one_thread=in_one_thread))
    names = [f"news/{n:09}" for n in range(50)]
    pack_id = put_pack(world, [{}] * 50)
    world.actions.behaviour |= {name: raises(RateLimited(150 + n, defer=True)) for n, name in enumerate(names[3:])}
    (invoked,) = world.tick()
    row, report = world.row(pack_id), invoked.passed
    assert (row["status"], row["attempt"], row["taskDateTime"]) == ("scheduled", 0, "2026-12-31#12:02")
    assert row["nextAttemptAt"] == "2026-12-31T12:02:30Z"
    assert (pack_of(world, pack_id).done, world.store.get(names[3])) == (0b111, None)
    assert report is not None and (report.completed, report.released, report.continued) == (3, 47, False)
    world.actions.behaviour.clear()
    world.actions.ran.clear()
    world.ticks(1)
    assert world.actions.ran == []
    world.ticks(1)
    assert sorted(world.actions.ran) == [(name, 1, 1) for name in names[3:]]
    assert world.outcome(pack_id) == "completed"


def test_a_pack_with_deferred_members_goes_on_if_another_one_takes_so_long() -> None:
    """It can not go to a later tick as long as one of its members runs."""
    clock = PacedClock()
    w = World(clock=clock, rules=Rules(threads=2), life=timedelta(minutes=14))
    pack_id = put_pack(w, [{}] * 10)
    others = [f"news/{n:09}" for n in range(2, 10)]
    was_reported, went_on = threading.Event(), threading.Event()

    def limited(*_: Any) -> None:
        if clock() < NOON + timedelta(seconds=90):
            raise RateLimited(90, defer=True)

    def follows(*_: Any) -> None:
        """Runs in the thread of the one before, which has reported that it is deferred."""
        (was_reported if clock() < NOON + timedelta(seconds=90) else went_on).set()

    def takes_long(*_: Any) -> None:
        assert was_reported.wait(LONG)
        clock.takes(seconds=1)
        clock.takes(minutes=5)
        assert went_on.wait(LONG)

    w.behave(takes_long, "news/000000000")
    w.behave(limited, "news/000000001")
    w.behave(follows, *others)
    report = passed(w.tick())
    assert w.actions.ran.count(("news/000000001", 1, 1)) == 2
    assert (report.completed, report.retried, w.outcome(pack_id)) == (10, 0, "completed")


def test_a_pack_that_waits_for_its_rate_limit_holds_up_nothing_else() -> None:
    """Neither a task nor a pack of another action: its members wait without a thread."""
    clock = PacedClock()
    w = world(clock=clock, rules=Rules(threads=4, limited_actions=frozenset({"mail"})))
    w.life, clock.step = (
        timedelta(minutes=1),
        timedelta(milliseconds=20),
    )  # else a pass that finds no room would wait for ever
    at = str(bucket_at(1))
    packs = [put_pack(w, [{}] * 250, batch_id=name, action="mail", taskDateTime=at) for name in "ab"]
    other = put_pack(w, [{}] * 30, batch_id="other", taskDateTime=at)
    w.insert("task", at=bucket_at(2))
    w.behave(raises(RateLimited(3600)), *(f"{name}/{n:09}" for name in "ab" for n in range(250)))
    w.first_pass(2)
    assert (w.outcome("task"), w.outcome(other)) == ("completed", "completed")
    assert {w.outcome(pack_id) for pack_id in packs} == {None}


def test_few_payloads_are_in_memory_before_their_members_begin() -> None:
    store = CountsBodies()
    world = InProcess(store=store, rules=Rules(threads=1, in_one_thread=True))
    packs = [put_pack(world, [{}] * 4, batch_id=f"b{n}") for n in range(10)]
    seen: list[int] = []
    world.actions.behaviour["b0/000000000"] = lambda *_: seen.append(store.bodies)
    world.tick()
    assert seen == [MAX_READY]
    assert {world.outcome(one) for one in packs} == {"completed"} and store.bodies == 10


class CountsBodies(MemoryStore):
    """A table that counts the bodies that are read."""

    bodies = 0

    def get_many(self, task_ids: Iterable[str], **options: Any) -> Mapping[str, Row]:
        wanted = list(task_ids)
        self.bodies += sum(task_id.startswith("_dynatick#pack#") for task_id in wanted)
        return super().get_many(wanted, **options)


def test_what_has_completed_is_kept_every_few_seconds() -> None:
    world = InProcess(rules=Rules(threads=1, in_one_thread=True))
    pack_id = put_pack(world, [{}] * 8)
    seen: list[int] = []
    world.actions.behaviour["news/000000003"] = lambda *_: world.clock.forward(seconds=6) and None
    world.actions.behaviour["news/000000007"] = lambda *_: seen.append(pack_of(world, pack_id).done)
    world.tick()
    assert seen and seen[0] & 0b1111 == 0b1111
    assert pack_of(world, pack_id).done == 0xFF


@pytest.mark.parametrize("fails", ["no answer", "a bug"])
def test_what_could_not_be_kept_is_kept_five_seconds_later_though_no_other_member_has_ended(fails: str) -> None:
    world = World(rules=Rules(threads=2), clock=PacedClock())
    pack_id = put_pack(world, [{}] * 2)
    was_refused, is_kept = threading.Event(), threading.Event()

    def refused_once(change: ConditionalUpdate) -> bool:
        if change.task_id != pack_id or "pack" not in change.set or "outcome" in change.set:
            return False
        if was_refused.is_set():
            is_kept.set()
            return False
        was_refused.set()
        if fails == "a bug":
            raise KeyError("a bug")
        return True

    def runs_long(task: Task, context: ActionContext) -> None:
        assert was_refused.wait(LONG)
        takes(world, seconds=6)(task, context)
        assert is_kept.wait(LONG / 6)  # before it ends

    world.rigged.throttled = refused_once
    world.behave(takes(world, seconds=6), "news/000000000")
    world.behave(runs_long, "news/000000001")
    with suppress(KeyError):
        world.tick()
    assert is_kept.is_set()
    assert pack_of(world, pack_id).done == 0b11


def cancel_batch(world: InProcess) -> None:
    world.store.put({"taskId": "news", "action": "dynatick.batch", "status": "cancelled", "outcome": "cancelled"})


def test_of_a_cancelled_batch_no_more_members_begin_after_the_next_checkpoint() -> None:
    world = InProcess(rules=Rules(threads=1, in_one_thread=True))
    pack_id = put_pack(world, [{}] * 20)

    def cancelled(*_: Any) -> None:
        cancel_batch(world)
        world.clock.forward(seconds=6)

    world.actions.behaviour["news/000000003"] = cancelled
    world.tick()
    ran, pack = len(world.actions.ran), pack_of(world, pack_id)
    assert 4 <= ran <= 6
    assert (pack.done, pack.extracted) == ((1 << ran) - 1, 0)
    assert (world.outcome(pack_id), standings(world.store, "news", 20)) == (
        "completed", {"completed": ran, "cancelled": 20 - ran}
    )  # fmt: skip


@pytest.mark.parametrize("by_a_dead_process", [False, True])
def test_a_pack_of_a_cancelled_batch_runs_nothing(by_a_dead_process: bool) -> None:
    """It was released or lost while the batch was cancelled, which leaves packs that run alone."""
    world = InProcess()
    pack_id = put_pack(world, [{}] * 4)
    if by_a_dead_process:
        lose(world, pack_id)
    cancel_batch(world)
    world.tick()
    assert (world.outcome(pack_id), world.actions.ran) == ("completed", [])
    assert standings(world.store, "news", 4) == {"cancelled": 4}


def test_that_a_batch_can_not_be_read_at_a_checkpoint_is_no_failure() -> None:
    world = World(rules=Rules(threads=1, in_one_thread=True))
    pack_id = put_pack(world, [{}] * 8)
    asked: list[str] = []

    def refuse(task_id: str) -> None:
        if task_id == "news":
            asked.append(task_id)
            raise StoreError("no answer")

    def late(*_: Any) -> None:
        world.rigged.before_read = refuse  # its payloads are there
        world.clock.forward(seconds=6)

    world.actions.behaviour["news/000000003"] = late
    world.tick()
    assert asked
    assert (world.outcome(pack_id), len(world.actions.ran)) == ("completed", 8)


def test_a_pack_that_another_process_has_is_left_to_it() -> None:
    world = InProcess(rules=Rules(threads=1, in_one_thread=True))
    pack_id = put_pack(world, [{}] * 20)

    def loses(*_: Any) -> None:
        world.store.put({**world.row(pack_id), "lease": "another's"})
        world.clock.forward(seconds=6)

    world.actions.behaviour["news/000000003"] = loses
    world.tick()
    row = world.row(pack_id)
    assert (row["status"], row["lease"], pack_of(world, pack_id).done) == ("running", "another's", 0)
    assert len(world.actions.ran) < 20


@pytest.mark.parametrize("takes_effect", [True, False])
def test_a_member_whose_row_gets_no_answer_keeps_no_other_from_running(takes_effect: bool) -> None:
    """Its row says that it runs, until a recovery finds the lease over; or what it was to say at first, if it did."""
    w = World(rules=Rules(threads=1, in_one_thread=True))
    pack_id = put_pack(w, [{}] * 30, retryPolicy={"maximumRetryAttempts": 1})
    w.behave(raises(PermanentError("no such mailbox")), "news/000000001")
    asked: list[ConditionalUpdate] = []

    def has_no_answer(change: ConditionalUpdate) -> bool:
        is_first = change.task_id == "news/000000001" and len(asked) < 2  # the recorder asks twice
        asked.extend([change] * is_first)
        return is_first

    if takes_effect:
        w.rigged.unanswered = has_no_answer
    else:
        w.rigged.throttled = has_no_answer
    (invoked,) = w.tick()
    assert len(asked) == 2
    row, report = w.row("news/000000001"), invoked.passed
    assert (w.outcome(pack_id), pack_of(w, pack_id).extracted) == ("completed", 0b10)
    assert report is not None and report.claimed == report.completed + report.retried + report.failed == 30
    assert row["status"] == ("failed" if takes_effect else "running")
    del w.actions.behaviour["news/000000001"]
    w.ticks(4)
    assert Counter(w.ran) == {f"news/{n:09}": 1 for n in range(30)} | {"news/000000001": 1 if takes_effect else 2}
    assert w.outcome("news/000000001") == ("failed" if takes_effect else "completed")


def test_a_member_whose_row_can_not_be_written_keeps_its_pack_open() -> None:
    world = InProcess(store=Refusing())
    world.actions.behaviour["news/000000001"] = raises(RetryableError("busy"))
    pack_id = put_pack(world, [{}] * 3)
    world.tick()
    assert (world.row(pack_id)["status"], world.store.get("news/000000001")) == ("running", None)
    world.clock.forward(minutes=5)
    world.store.refuses = False  # type: ignore[attr-defined]
    del world.actions.behaviour["news/000000001"]
    world.ticks(8)
    assert (world.outcome(pack_id), world.outcome("news/000000001")) == ("completed", "completed")
    assert world.actions.times("news/000000001") == 2


def test_a_member_whose_move_can_not_be_checked_does_not_lose_its_pack() -> None:
    world = World(rules=Rules(in_one_thread=True))
    world.tick()
    world.actions.behaviour["news/000000001"] = raises(RetryableError("busy"))
    pack_id = put_pack(world, [{}] * 100)
    created = world.rigged.create_many

    def then_fails(rows: Sequence[Row]) -> Sequence[bool | StoreFailure]:
        world.rigged.before_read = raises_for(cursor_id(0))
        return created(rows)

    world.rigged.create_many = then_fails  # type: ignore[method-assign]
    with pytest.raises(StoreError):
        world.tick()
    assert world.outcome(pack_id) == "completed"
    world.rigged.clear_faults()
    assert world.row("news/000000001")["status"] == "scheduled"
    assert world.store.get("news/000000099") is None


class Refusing(MemoryStore):
    """A table that takes no rows of members."""

    refuses = True

    def create_many(self, rows: Sequence[Row]) -> Sequence[bool | StoreFailure]:
        if self.refuses and any("batchId" in row for row in rows):
            raise StoreError("no answer")
        return super().create_many(rows)

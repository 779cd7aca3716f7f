"""Services that accept each call and never answer: the dead-letter queue, the queue of wake-ups, Lambda's own API.

Refusing is quick; silence is what holds up others. Everything here is in memory: a call to a silent service blocks
until its test ends, and what is asserted in between has happened while it did.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import TypeVar

import pytest
from tests.builders import NOON, scheduled_row
from tests.unit.engine.support import World, bucket_at, ids, is_record, raises, rules, world

from dynatick.actions.testing import MemoryDeadLetters
from dynatick.domain.buckets import Grid
from dynatick.domain.conditional_update import ConditionalUpdate
from dynatick.domain.instants import format_instant
from dynatick.domain.task import Task
from dynatick.engine.ports import ActionContext, DeadLetter
from dynatick.engine.rules import Precision
from dynatick.errors import PermanentError, RetryableError

LONG = 60.0  # seconds: to wait for what must come

Report = Callable[[str, object], None]


SilentT = TypeVar("SilentT", bound="Silent")


class Silent:
    """A service that answers nothing until the end of its test."""

    def __init__(self) -> None:
        self.calls = self.answered = 0
        self._called, self._end = threading.Semaphore(0), threading.Event()

    def block(self) -> bool:
        """Returns whether the test has ended."""
        self.calls += 1
        self._called.release()
        has_ended = self._end.wait(LONG)
        self.answered += 1
        return has_ended

    def was_called(self) -> bool:
        """Waits for a call."""
        return self._called.acquire(timeout=LONG)

    def end(self) -> None:
        self._end.set()


class DeadLetterQueue(Silent):
    def send(self, letters: Sequence[DeadLetter]) -> Sequence[bool]:
        self.block()
        return [False] * len(letters)


class WakeUpQueue(Silent):
    def send(self, wake_ups: Sequence[tuple[Mapping[str, object], datetime]]) -> int:
        self.block()
        return len(wake_ups)


@contextmanager
def silence(service: SilentT) -> Iterator[SilentT]:
    try:
        yield service
    finally:
        service.end()


@pytest.fixture
def silent() -> Iterator[DeadLetterQueue]:
    with silence(DeadLetterQueue()) as queue:
        yield queue


@pytest.fixture
def wake_up_queue() -> Iterator[WakeUpQueue]:
    with silence(WakeUpQueue()) as queue:
        yield queue


@contextmanager
def beside(run: Callable[[], object]) -> Iterator[None]:
    """Runs something in a thread, which must end with the block. What it raises is raised there."""
    raised: list[BaseException] = []

    def target() -> None:
        try:
            run()
        except BaseException as error:  # raised again below
            raised.append(error)

    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    yield
    thread.join(LONG)
    if raised:
        raise raised[0]
    assert not thread.is_alive()


class Recorded:
    """Counts the tasks of a world whose success is recorded."""

    def __init__(self, w: World) -> None:
        self._recorded = threading.Semaphore(0)
        w.rigged.before_write = self._note

    def _note(self, change: ConditionalUpdate) -> None:
        if is_record(change) and change.set["status"] == "completed":
            self._recorded.release()

    def reaches(self, number: int) -> bool:
        """Waits until this number more are recorded."""
        return all(self._recorded.acquire(timeout=LONG) for _ in range(number))


def survived(w: World, task_ids: Sequence[str], report: Report) -> None:
    """Asserts that each has ended, and reports the figures to the table."""
    outcomes = Counter(w.outcome(task_id) for task_id in task_ids)
    assert outcomes.keys() <= {"completed", "failed"}, outcomes
    report("fault", {"inserted": len(task_ids), "executed": outcomes["completed"], "repeated": 0, "lost": 0,
                     "waiting": 0, "failed": outcomes["failed"]})  # fmt: skip


def fails_once(task: Task, context: ActionContext) -> None:
    if context.attempt == 1:
        raise RetryableError("not yet")


def the_rest_ends(w: World) -> None:
    """The queue takes letters again, and deferred failures are tried for as long as they wait."""
    w.dead_letters = MemoryDeadLetters()
    for minutes in (1, 5, 10, 30, 60):
        w.next_tick(minutes)
    w.ticks(3)


def test_fault_25_the_dead_letter_queue_is_silent(silent: DeadLetterQueue, record_property: Report) -> None:
    """The failing tasks come first, and malformed rows before them all."""
    w = world(dead_letters=silent)
    malformed, failing, good = ids(30, "a"), ids(60, "b"), ids(300, "c")
    for task_id in malformed:
        w.rigged.put({"taskId": task_id, "taskDateTime": str(bucket_at(1)), "action": 7})
    w.insert(*failing, *good)
    w.behave(raises(PermanentError("no")), *failing)
    recorded = Recorded(w)
    with beside(w.next_tick):
        assert recorded.reaches(len(good))
        assert silent.was_called()
        assert silent.answered == 0
        w.clock.forward(seconds=11)  # then what has no answer counts as refused: the pass ends
    assert silent.answered == 0
    assert [w.row(task_id).get("deferrals") for task_id in failing] == [1] * len(failing)
    assert silent.calls <= 4, "the others were not even tried"
    assert {w.outcome(task_id) for task_id in malformed + failing} == {None}
    the_rest_ends(w)
    assert {str(letter.row["taskId"]) for letter in w.dead_letters.letters} == {*malformed, *failing}
    assert max(Counter(w.ran).values()) == 1
    survived(w, malformed + failing + good, record_property)


def test_fault_25_later_buckets_do_not_wait_for_it_either(silent: DeadLetterQueue, record_property: Report) -> None:
    w = world(dead_letters=silent)
    malformed = ids(60, "a")
    for task_id in malformed:
        w.rigged.put({"taskId": task_id, "taskDateTime": str(bucket_at(1)), "action": 7})
    good = ids(15, "b")
    for n, task_id in enumerate(good):
        w.insert(task_id, at=bucket_at(1 + n % 3))
    recorded = Recorded(w)
    for _ in range(3):
        with beside(w.next_tick):
            assert recorded.reaches(5)
            w.clock.forward(seconds=11)
    assert silent.answered == 0
    the_rest_ends(w)
    survived(w, malformed + good, record_property)


def test_fault_28_the_queue_of_wake_ups_is_silent(wake_up_queue: WakeUpQueue, record_property: Report) -> None:
    """What is due is claimed, executed and recorded while the wake-ups of the next ticks and of retries wait."""
    w = world(rules=rules(precision=Precision.SECOND), wake_ups=wake_up_queue)
    due, failing, later = ids(60, "a"), ids(10, "b"), ids(500, "c")
    w.insert(*due)
    w.insert(*failing, retryPolicy={"minBackoffSeconds": 1})
    for n, task_id in enumerate(later):
        at = bucket_at(1).instant + timedelta(milliseconds=200 * (n + 1))
        w.rigged.put(scheduled_row(task_id, bucket_at(2 + n // 300), dueAt=format_instant(at)))
    w.behave(fails_once, *failing)
    recorded = Recorded(w)
    with beside(w.next_tick):
        assert recorded.reaches(len(due))
        assert wake_up_queue.was_called()
        assert wake_up_queue.answered == 0
        w.clock.forward(seconds=13)  # nothing waits longer for it
    assert wake_up_queue.answered == 0
    assert wake_up_queue.calls <= 2, "one for each thread"
    wake_up_queue.end()
    w.ticks(4)  # they run what no wake-up runs
    assert {w.outcome(task_id) for task_id in due + later + failing} == {"completed"}
    survived(w, due + later + failing, record_property)


def test_fault_30_lambda_answers_no_call_that_starts_an_invocation(record_property: Report) -> None:
    """Neither for other shards nor for recoveries: the own shard's work goes on, and then that of the others."""
    grid, calls = Grid(shard_count=3), Silent()
    w = world(rules=rules(grid=grid))
    w.refused = lambda order: calls.block()
    of_shards: list[list[str]] = [[], [], []]
    for task_id in ids(90):
        of_shards[grid.shard_of(task_id)].append(task_id)
    for shard, task_ids in enumerate(of_shards):
        w.insert(*task_ids, at=bucket_at(1, shard))
    expired = of_shards[0][:5]
    w.claim(*expired, until=NOON)
    w.clock.to(NOON + timedelta(minutes=1))
    recorded = Recorded(w)
    with silence(calls), beside(w.tick):
        assert recorded.reaches(len(of_shards[0]) - len(expired))
        assert calls.was_called()
        assert calls.answered == 0
        assert calls.calls <= 2, "one for the other shards, and one for the recovery"
        calls.end()  # with an error
    assert max(Counter(w.ran).values()) == 1
    survived(w, [task_id for task_ids in of_shards for task_id in task_ids], record_property)

"""Threads that run actions: whatever an action does is the outcome of its attempt. And those for requests: two, and
another one once a request has waited too long."""

from __future__ import annotations

import asyncio
import multiprocessing
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from queue import SimpleQueue
from typing import Any

import pytest
from tests.builders import NOON, FakeActions, FakeClock, ForkedChild, scheduled_row
from tests.unit.engine.support import bucket_at, raises

from dynatick.domain.task import LargeRow, Task
from dynatick.engine import pools as module
from dynatick.engine.claims import Claimed
from dynatick.engine.pools import MAX_LARGE_BYTES, IoPool, Jobs, RemoteCalls, TaskPool
from dynatick.engine.ports import ActionContext
from dynatick.engine.record import Attempted, Done, Error, Rescheduled
from dynatick.errors import ActionError, PermanentError, RateLimited, Reschedule, RetryableError, StoreError

# -- the task pool ---------------------------------------------------------------------------------------------------


def claimed(task_id: str, **more: object) -> Claimed:
    row = scheduled_row(task_id, bucket_at(0), status="running", attempt=2, run=3, lease="x", **more)
    return Claimed(Task.from_row(row), row)


def large(task_id: str, size: int, decode: Callable[[bytes], Any] = lambda raw: {"read": True}) -> Claimed:
    """A task whose payload waits as this many bytes."""
    row = LargeRow(claimed(task_id).row, {"payload": b" " * size}, decode)
    return Claimed(Task.from_row(row.without_action_values()), row)


class Pool:
    def __init__(self, threads: int = 4, *, in_one_thread: bool = False) -> None:
        self.actions = FakeActions()
        self.clock = FakeClock()
        self.ended: SimpleQueue[Attempted] = SimpleQueue()
        self.unbegun: SimpleQueue[Claimed] = SimpleQueue()
        self.pool = TaskPool(
            self.actions,
            threads=threads,
            deadline=NOON + timedelta(minutes=2),
            stop_waiting=NOON + timedelta(seconds=117),
            clock=self.clock,
            ended=self.ended.put,
            unbegun=self.unbegun.put,
            max_timeout_seconds=112,
            in_one_thread=in_one_thread,
        )

    def submit(self, task_id: str, does: Callable[[Task, ActionContext], object], **more: object) -> None:
        self.actions.behaviour[task_id] = does
        self.pool.submit(claimed(task_id, **more))

    def outcome(self, does: Callable[[Task, ActionContext], object]) -> object:
        self.submit("t", does)
        return self.next_ended().outcome

    def next_ended(self) -> Attempted:
        return self.ended.get(timeout=60)

    def next_ids(self, number: int) -> list[str]:
        """Returns the ids of the tasks that end next."""
        return [self.next_ended().task.task_id for _ in range(number)]


def test_a_task_that_a_thread_takes_while_the_pool_closes_is_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process is not known to run anything any more, and may be kept."""
    made = Pool()
    closed, ended = threading.Event(), threading.Event()
    get = made.pool._queue.get

    class Queue:
        """A queue for the pool that closes it after a task was taken and before it begins."""

        put, get_nowait = made.pool._queue.put, made.pool._queue.get_nowait

        def get(self) -> Claimed | None:
            taken = get()
            if taken is None:
                ended.set()
            elif not closed.is_set():
                closed.set()
                made.pool.close()
            return taken

    monkeypatch.setattr(made.pool, "_queue", Queue())
    made.pool.submit(claimed("t"))
    assert ended.wait(60)
    assert closed.is_set()
    assert made.actions.ran == []
    assert made.pool.running == 0


class OwnError(RetryableError):
    """A user's error, which sets by itself what RetryableError would check."""

    def __init__(self, wait: Any) -> None:
        super().__init__("its own")
        self.retry_after = wait


class BareError(RetryableError):
    def __init__(self) -> None:
        pass


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (PermanentError("no such address"), Error("no such address", permanent=True)),
        (RetryableError("come back later"), Error("come back later")),
        (RetryableError("come back later", retry_after=60), Error("come back later", retry_after=60)),
        (ActionError("it did not work"), Error("it did not work")),
        (ValueError("bad"), Error("ValueError: bad")),
        (SystemExit(3), Error("SystemExit: 3")),
        (KeyboardInterrupt(), Error("KeyboardInterrupt: ")),
        (asyncio.CancelledError(), Error("CancelledError: ")),
        (RetryableError("x", retry_after=float("inf")), Error("x", retry_after=float("inf"))),
        (OwnError("soon"), Error("its own")),
        (OwnError(timedelta(seconds=30)), Error("its own")),
        (BareError(), Error("")),
    ],
)
def test_whatever_an_action_raises_is_the_outcome_of_its_attempt(error: BaseException, outcome: Error) -> None:
    found = Pool().outcome(raises(error))
    assert isinstance(found, Error)
    assert replace(found, trace=None) == outcome
    assert str(found.trace).endswith("raise error"), "where it was raised"


@pytest.mark.parametrize(
    ("end", "status"),
    [
        (lambda: None, 0),
        (raises(SystemExit()), 0),
        (raises(SystemExit(3)), 3),
        (raises(SystemExit("no")), 1),
        (raises(ValueError("no")), 1),
        (raises(RateLimited(1.0)), 1),
    ],
)
@pytest.mark.parametrize("in_one_thread", [False, True])
def test_a_child_that_a_task_forks_ends_and_begins_no_other(
    end: Callable[[], object], status: int, in_one_thread: bool
) -> None:
    made, child = Pool(threads=1, in_one_thread=in_one_thread), ForkedChild()

    def forks(task: Task, context: ActionContext) -> object:
        made.submit("waiting", lambda task, context: child.note())
        return end() if child.fork() else "forked"

    def beside(task: Task, context: ActionContext) -> object:
        return child.note()

    made.submit("forks", forks)
    made.submit("after", beside)
    assert set(made.next_ids(3)) == {"forks", "waiting", "after"}
    assert child.ended() == (status, "")


def test_an_action_starts_processes_by_multiprocessing() -> None:
    def starts(task: Task, context: ActionContext) -> object:
        started = multiprocessing.get_context("fork").Process(target=sys.exit, args=(5,))
        started.start()
        started.join()
        return started.exitcode

    assert Pool().outcome(starts) == Done(5)


def test_an_action_gets_its_context_and_what_it_returns_or_asks_for_is_its_outcome() -> None:
    context = ActionContext(
        attempt=2, run=3, due_at=NOON, idempotency_key="t#1798714800000-3", deadline=NOON + timedelta(minutes=2)
    )
    assert Pool().outcome(lambda task, given: given == context) == Done(True)
    assert Pool().outcome(raises(Reschedule(after=20))) == Rescheduled(20.0)


@pytest.mark.parametrize("seconds", [100, 57, 1])
def test_a_task_begins_if_it_can_end_before_outcomes_are_recorded_no_more(seconds: int) -> None:
    made, given = Pool(), claimed("t", timeoutSeconds=seconds)
    made.clock.to(NOON + timedelta(seconds=117 - seconds + 0.1))
    assert not made.pool.has_time_for(given.task)
    made.pool.submit(given)
    assert made.unbegun.get(timeout=60) is given
    assert made.actions.times("t") == 0
    made = Pool()
    made.clock.to(NOON + timedelta(seconds=max(117 - seconds - 10, 0)))
    assert made.pool.has_time_for(given.task)
    made.pool.submit(given)
    assert made.next_ended().outcome == Done(None)
    assert made.unbegun.empty()


@pytest.mark.parametrize(
    ("given", "error"),
    [(claimed("t", timeoutSeconds=113), "timeoutSeconds: 113 is not accepted; expected at most 112"),
     (large("t", 9, decode=list), "payload")],
)  # fmt: skip
def test_a_task_that_can_never_end_in_time_or_has_no_payload_fails_for_good_and_is_not_begun(
    given: Claimed, error: str
) -> None:
    made = Pool()
    assert made.pool.has_time_for(given.task), "that it fails takes no time"
    made.pool.submit(given)
    outcome = made.next_ended().outcome
    assert isinstance(outcome, Error)
    assert outcome.permanent
    assert error in outcome.text
    assert made.actions.times("t") == 0


@pytest.mark.parametrize("are_large", [False, True], ids=["for a thread", "for memory"])
def test_tasks_that_wait_can_be_removed(are_large: bool) -> None:
    made = Pool(threads=4 if are_large else 1)
    given = partial(large, size=MAX_LARGE_BYTES) if are_large else claimed
    begun, go = threading.Event(), threading.Event()

    def blocks(task: Task, context: ActionContext) -> None:
        begun.set()
        assert go.wait(60)

    made.actions.behaviour["slow"] = blocks
    made.pool.submit(given("slow"))
    assert begun.wait(60)
    for n in range(5):
        made.pool.submit(given(f"t{n}"))
    assert [w.task.task_id for w in made.pool.take_unbegun()] == [f"t{n}" for n in range(5)]
    assert made.pool.take_unbegun() == []
    go.set()
    assert made.next_ids(1) == ["slow"]
    made.pool.submit(given("next"))
    assert made.next_ids(1) == ["next"]


def test_large_tasks_run_together_as_far_as_memory_goes() -> None:
    """However many threads there are: and what is small is not held up by them."""
    made = Pool(threads=8)
    go, lock, sizes, maximum = threading.Event(), threading.Lock(), [0], []

    def waits(task: Task, context: ActionContext) -> None:
        assert task.payload == {"read": True}
        with lock:
            sizes[0] += size[task.task_id]
            maximum.append(sizes[0])
        assert go.wait(60)
        with lock:
            sizes[0] -= size[task.task_id]

    size = dict.fromkeys(["t0", "t1", "t2", "t3", "t4", "t5"], MAX_LARGE_BYTES // 3)
    size |= {"huge": MAX_LARGE_BYTES * 2, "last": MAX_LARGE_BYTES // 2}
    for task_id, number in size.items():
        made.actions.behaviour[task_id] = waits
        made.pool.submit(large(task_id, number))
    made.pool.submit(claimed("small"))
    assert made.next_ids(1) == ["small"]
    go.set()
    ended = [made.next_ended() for _ in size]
    assert sorted(one.task.task_id for one in ended) == sorted(size)
    assert {one.task.payload == {} for one in ended} == {True}  # records need it no more
    assert all(number <= MAX_LARGE_BYTES or number == MAX_LARGE_BYTES * 2 for number in maximum)
    assert MAX_LARGE_BYTES * 2 in maximum


# -- the I/O pool ----------------------------------------------------------------------------------------------------


LONG = 60.0  # seconds: nothing here takes so long


class Job:
    """Says that it has begun, and ends when it may."""

    def __init__(self) -> None:
        self.begun, self.may_end, self.ended = threading.Event(), threading.Event(), threading.Event()

    def __call__(self) -> Callable[[], None]:
        self.begun.set()
        assert self.may_end.wait(LONG)
        return self.ended.set


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(module, "time", made)
    return made


@pytest.fixture
def pool(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Iterator[IoPool]:
    monkeypatch.setattr(module, "MAX_WAIT_SECONDS", 1)
    made = IoPool(min_threads=2, max_threads=3, name="test", report=lambda ended: ended())
    yield made
    made.close()


@pytest.fixture
def jobs(pool: IoPool, clock: Clock) -> Iterator[list[Job]]:
    """Five, of which two have begun: those before, which met a free thread, have added none."""
    for _ in range(10):
        done = threading.Event()
        pool.submit(lambda done=done: done.set)
        assert done.wait(LONG)
        clock.now += 5
        pool.grow()
    clock.now = 0
    made = [Job() for _ in range(5)]
    for job in made:
        pool.submit(job)
    assert made[0].begun.wait(LONG) and made[1].begun.wait(LONG)
    yield made
    for job in made:
        job.may_end.set()


def begun(jobs: list[Job]) -> list[bool]:
    return [job.begun.is_set() for job in jobs]


def test_a_job_that_waits_too_long_gets_another_thread(pool: IoPool, clock: Clock, jobs: list[Job]) -> None:
    clock.now = 0.9
    pool.grow()
    assert not jobs[2].begun.wait(0.05)  # wait: it would begin at once; fails only if it begins
    clock.now = 1.0
    pool.grow()
    assert jobs[2].begun.wait(LONG)
    pool.grow()  # three are the most
    assert not jobs[3].begun.wait(0.05)  # wait: it would begin at once; fails only if it begins
    jobs[2].may_end.set()  # and the third one stays
    assert jobs[3].begun.wait(LONG)


def test_once_closed_running_jobs_end_and_waiting_ones_do_not_begin(pool: IoPool, jobs: list[Job]) -> None:
    pool.close()
    jobs[0].may_end.set()
    jobs[1].may_end.set()
    assert jobs[0].ended.wait(LONG) and jobs[1].ended.wait(LONG)
    assert not jobs[2].begun.wait(0.05)  # wait: it would begin at once; fails only if it begins


# -- calls to other services -----------------------------------------------------------------------------------------


class Calls:
    """Calls whose answers a test gives. ``pending``: what the threads report, for the test to handle."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.reported: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.faults: list[Exception] = []
        self.results: list[object] = []
        self.remote = RemoteCalls(
            "test",
            max_threads=2,
            timeout=timedelta(minutes=5),
            clock=self.clock,
            report=self.reported.put,
            keep_fault=self.faults.append,
            in_one_thread=False,
        )

    def submit(self, call: Callable[[], object]) -> None:
        self.remote.submit(call, self.results.append, partial(self.results.append, "unanswered"))

    def handle_next(self) -> None:
        self.reported.get(timeout=60)()


def test_calls_count_as_unanswered_after_a_silence_and_those_that_follow_at_once() -> None:
    calls, end, never = Calls(), threading.Event(), NOON + timedelta(days=1)
    for number in range(3):
        calls.submit(lambda number=number: (end.wait(60), number)[1])  # type: ignore[misc]
    calls.remote.check(never)
    assert (calls.results, calls.remote.under_way) == ([], True)
    calls.clock.forward(minutes=5)
    calls.remote.check(never)
    assert (calls.results, calls.remote.under_way) == (["unanswered"] * 3, False)
    calls.submit(lambda: "not called")
    assert calls.results == ["unanswered"] * 4
    end.set()
    calls.handle_next()  # too late
    assert calls.results == ["unanswered"] * 4


def test_a_call_that_waits_for_a_thread_is_not_made_after_a_silence() -> None:
    calls, end, first, last = Calls(), threading.Event(), threading.Event(), threading.Event()
    calls.submit(lambda: (first.set(), end.wait(60)))
    assert first.wait(60)
    calls.submit(partial(end.wait, 60))
    calls.submit(last.set)
    calls.clock.forward(minutes=5)
    calls.remote.check(NOON + timedelta(days=1))
    assert calls.results == ["unanswered"] * 3
    end.set()
    calls.handle_next()
    assert not last.wait(0.05)  # wait: it would begin at once; fails only if it begins


def test_an_answer_ends_the_silence() -> None:
    calls, never = Calls(), NOON + timedelta(days=1)
    first, second = threading.Event(), threading.Event()
    for event in (first, second):
        calls.submit(partial(event.wait, 60))
    calls.clock.forward(minutes=4)
    first.set()
    calls.handle_next()
    calls.clock.forward(minutes=4)
    calls.remote.check(never)
    assert (calls.results, calls.remote.under_way) == ([True], True)
    calls.clock.forward(minutes=1)
    calls.remote.check(never)
    assert (calls.results, calls.remote.under_way) == ([True, "unanswered"], False)
    second.set()


def test_nothing_is_waited_for_beyond_the_end_and_what_a_call_raises_is_kept() -> None:
    calls, event = Calls(), threading.Event()
    calls.submit(raises(StoreError("no")))
    calls.handle_next()
    assert (calls.results, [str(error) for error in calls.faults]) == (["unanswered"], ["no"])
    calls.submit(partial(event.wait, 60))
    calls.remote.check(calls.clock())
    assert calls.results == ["unanswered"] * 2
    event.set()


def test_jobs_that_have_not_ended_have_no_result() -> None:
    first, last = threading.Event(), threading.Event()
    jobs: Jobs[object] = Jobs(max_threads=2, name="test", in_one_thread=False)
    numbers = [jobs.submit(job) for job in (partial(first.wait, 60), lambda: "answer", last.set)]
    assert numbers == [0, 1, 2]
    assert jobs.results(is_over=last.is_set)[:2] == [None, "answer"]
    first.set()

"""Two threads for requests, and another one once a request has waited too long."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from dynatick.engine import io_pool as module
from dynatick.engine.io_pool import IoPool

LONG = 10.0  # seconds: nothing here takes so long


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
def pool(clock: Clock) -> Iterator[IoPool]:
    made = IoPool(min_threads=2, max_threads=3, max_wait_seconds=1, name="test", report=lambda ended: ended())
    yield made
    made.close()


@pytest.fixture
def jobs(pool: IoPool) -> Iterator[list[Job]]:
    """Five, of which two have begun."""
    made = [Job() for _ in range(5)]
    for job in made:
        pool.submit(job)
    assert made[0].begun.wait(LONG) and made[1].begun.wait(LONG)
    yield made
    for job in made:
        job.may_end.set()


def begun(jobs: list[Job]) -> list[bool]:
    return [job.begun.is_set() for job in jobs]


def test_two_jobs_run_at_once_and_the_others_in_their_order(jobs: list[Job]) -> None:
    assert begun(jobs) == [True, True, False, False, False]
    jobs[1].may_end.set()
    assert jobs[2].begun.wait(LONG)
    assert begun(jobs) == [True, True, True, False, False]
    jobs[0].may_end.set()
    assert jobs[3].begun.wait(LONG)
    assert begun(jobs) == [True, True, True, True, False]


def test_a_job_that_waits_too_long_gets_another_thread(pool: IoPool, clock: Clock, jobs: list[Job]) -> None:
    clock.now = 0.9
    pool.grow()
    assert not jobs[2].begun.wait(0.05)
    clock.now = 1.0
    pool.grow()
    assert jobs[2].begun.wait(LONG)
    pool.grow()  # three are the most
    assert not jobs[3].begun.wait(0.05)
    jobs[2].may_end.set()  # and the third one stays
    assert jobs[3].begun.wait(LONG)


def test_no_thread_is_added_while_one_is_free(pool: IoPool, clock: Clock) -> None:
    for _ in range(10):
        done = threading.Event()
        pool.submit(lambda done=done: done.set)
        assert done.wait(LONG)
        clock.now += 5
        pool.grow()
    blocking = [Job() for _ in range(3)]
    for job in blocking:
        pool.submit(job)
    assert blocking[0].begun.wait(LONG) and blocking[1].begun.wait(LONG)
    assert not blocking[2].begun.wait(0.05)
    for job in blocking:
        job.may_end.set()
        assert job.ended.wait(LONG)


def test_once_closed_running_jobs_end_and_waiting_ones_do_not_begin(pool: IoPool, jobs: list[Job]) -> None:
    pool.close()
    jobs[0].may_end.set()
    jobs[1].may_end.set()
    assert jobs[0].ended.wait(LONG) and jobs[1].ended.wait(LONG)
    assert not jobs[2].begun.wait(0.05)

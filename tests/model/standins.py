"""The standard library's queues, pools and threads, with which the engine waits, made to wait in the simulation."""

from __future__ import annotations

import queue
import random
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any, Self

from tests.model.simulation import GreenThread, Killed, Simulation


def _simulation() -> Simulation:
    assert Simulation.present is not None
    return Simulation.present


class SimQueue:
    """``queue.SimpleQueue``, as far as it is used."""

    def __init__(self) -> None:
        self._items: deque[Any] = deque()
        self._waiting: deque[tuple[GreenThread, int]] = deque()

    def put(self, item: object) -> None:
        self._items.append(item)
        _simulation().wake_first(self._waiting)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        simulation = _simulation()
        end = None if timeout is None else simulation.now + timeout
        while not self._items:
            if not block or (end is not None and simulation.now >= end):
                raise queue.Empty
            simulation.wait(self._waiting, None if end is None else end - simulation.now)
        return self._items.popleft()

    def get_nowait(self) -> Any:
        return self.get(block=False)


class SimFuture:
    """The result of what a pool was asked to do."""

    def __init__(self, work: Callable[[], object]) -> None:
        self.work = work
        self._done = False
        self._waiting: deque[tuple[GreenThread, int]] = deque()
        self._value: object = None
        self._error: Exception | None = None

    def run(self) -> None:
        try:
            self._value = self.work()
        except Exception as error:
            self._error = error
        self._done = True
        while self._waiting:
            _simulation().wake_first(self._waiting)

    def cancel(self) -> bool:
        """Does nothing: it is not waited for any more."""
        return False

    def wait(self) -> None:
        while not self._done:
            _simulation().wait(self._waiting, None)

    def result(self) -> Any:
        self.wait()
        if self._error is not None:
            raise self._error
        return self._value


class SimPool:
    """``concurrent.futures.ThreadPoolExecutor``, as far as it is used."""

    def __init__(self, max_workers: int, thread_name_prefix: str = "") -> None:
        self._free = max_workers
        self._queue: deque[SimFuture] = deque()
        self._begun: list[SimFuture] = []

    def submit(self, do: Callable[..., object], *arguments: object) -> SimFuture:
        future = SimFuture(lambda: do(*arguments))
        self._queue.append(future)
        self._begin()
        return future

    def map(self, do: Callable[..., Any], items: Iterable[object]) -> Iterator[Any]:
        futures = [self.submit(do, item) for item in items]
        return (future.result() for future in futures)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        if cancel_futures:
            self._queue.clear()
        if wait:
            with suppress(Killed):  # a killed thread finds that out at its next call; here a generator may be ending
                for future in [*self._begun, *self._queue]:
                    future.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.shutdown(wait=not isinstance(error, Killed))

    def _begin(self) -> None:
        simulation = _simulation()
        while self._free and self._queue:
            self._free -= 1
            future = self._queue.popleft()
            self._begun.append(future)
            simulation.spawn(simulation.my_process(), lambda future=future: self._work(future))

    def _work(self, future: SimFuture) -> None:
        future.run()
        self._free += 1
        self._begin()


class SimThread:
    """``threading.Thread``, as far as it is used."""

    def __init__(self, *, target: Callable[[], object], name: str, daemon: bool) -> None:
        self._target = target

    def start(self) -> None:
        simulation = _simulation()
        simulation.spawn(simulation.my_process(), self._target)


class SimCondition:
    """``threading.Condition``, as far as it is used: no thread is interrupted while it holds one."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[GreenThread, int]] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        pass

    def wait(self, timeout: float | None = None) -> None:
        _simulation().wait(self._waiting, timeout)

    def notify(self) -> None:
        _simulation().wake_first(self._waiting)


class SimLock:
    """``threading.Lock``, as far as it is used."""

    def __init__(self) -> None:
        self._is_held = False
        self._waiting: deque[tuple[GreenThread, int]] = deque()

    def acquire(self, blocking: bool = True) -> bool:
        while self._is_held:
            if not blocking:
                return False
            _simulation().wait(self._waiting, None)
        self._is_held = True
        return True

    def release(self) -> None:
        self._is_held = False
        _simulation().wake_first(self._waiting)

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.release()


_REPLACED: dict[object, object] = {
    queue.SimpleQueue: SimQueue,
    ThreadPoolExecutor: SimPool,
    threading: SimpleNamespace(Thread=SimThread, Lock=SimLock, Condition=SimCondition),
    time: SimpleNamespace(monotonic=lambda: _simulation().now, sleep=lambda seconds: _simulation().sleep(seconds)),
}
_WHERE = ("dynatick.engine.", "dynatick.client.", "dynatick.actions.rate_limit")


@contextmanager
def inside(simulation: Simulation) -> Iterator[None]:
    """The engine, rate limits and the client wait in the simulation, until this ends, and throw the same rng each
    time."""
    put_back: list[tuple[object, str, object]] = []
    rng = random.getstate()
    random.seed(0)
    for module in [module for name, module in sys.modules.items() if name.startswith(_WHERE)]:
        for name, value in list(vars(module).items()):
            replacement = next((new for old, new in _REPLACED.items() if value is old), None)
            if replacement is not None:
                put_back.append((module, name, value))
                setattr(module, name, replacement)
    assert {id(old) for _, _, old in put_back} == {id(old) for old in _REPLACED}, "the engine waits in other ways now"
    Simulation.present = simulation
    try:
        yield
    finally:
        simulation.close()
        Simulation.present = None
        random.setstate(rng)
        for module, name, value in put_back:
            setattr(module, name, value)

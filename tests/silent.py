"""Services that accept each call and never answer, and what goes on beside them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

LONG = 60.0  # seconds: to wait for what must come

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


@contextmanager
def silence(service: SilentT) -> Iterator[SilentT]:
    try:
        yield service
    finally:
        service.end()


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

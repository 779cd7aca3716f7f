"""The event loop of all async handlers of a process, so that what belongs to a loop can be kept between tasks.

No handler ends it: what one raises, ``SystemExit`` too, is the outcome of its own task, and what would stop or close
the loop for the others is refused.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import cache
from threading import Lock, Thread, get_ident
from typing import TYPE_CHECKING, NoReturn

from dynatick.forked_child import EndChildren, end_child, process_id

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

_REFUSED = ("stop", "close", "shutdown_default_executor", "shutdown_asyncgens")
_starting = Lock()


def result_of(awaitable: Awaitable[object]) -> object:
    """Waits until the awaitable has ended in the loop, and returns its result. Raises what it raises."""
    import asyncio

    async def run() -> tuple[object, BaseException | None]:
        try:
            with EndChildren():
                return await awaitable, None
        except BaseException as error:  # the loop itself would end with a SystemExit or a KeyboardInterrupt
            return None, error

    with _starting:
        loop = _loop(process_id())
    result, error = asyncio.run_coroutine_threadsafe(run(), loop).result()
    if error is not None:
        raise error
    return result


@cache
def _loop(process: int) -> AbstractEventLoop:
    """The loop of this process; a process that was forked from it has another."""
    import asyncio

    loop = asyncio.new_event_loop()
    for name in _REFUSED:
        setattr(loop, name, _refusal(name))
    thread = Thread(target=_run, args=(loop,), name="dynatick-async", daemon=True)
    _end_in_children(loop, thread, process)
    thread.start()
    return loop


def _run(loop: AbstractEventLoop) -> NoReturn:
    while True:
        # They come from a task that a handler has started in the loop: it keeps the error for what awaits it.
        with suppress(SystemExit, KeyboardInterrupt):
            loop.run_forever()


def _refusal(name: str) -> Callable[[], NoReturn]:
    def refuse() -> NoReturn:
        raise RuntimeError(f"{name}() is refused: all async handlers of this process share the event loop")

    return refuse


def _end_in_children(loop: AbstractEventLoop, thread: Thread, process: int) -> None:
    """A child that an async handler has forked has a copy of the loop with the tasks of all handlers: it ends as soon
    as it comes back to it."""
    call_soon = loop.call_soon

    def run(callback: Callable[..., object], *arguments: object) -> None:
        if process_id() != process:
            end_child()
        callback(*arguments)

    def guarded(callback: Callable[..., object], *arguments: object, context: object = None) -> object:
        return call_soon(run, callback, *arguments, context=context)  # type: ignore[arg-type]

    def after_fork() -> None:
        if get_ident() == thread.ident:
            call_soon(end_child)  # else a loop with nothing to run would wait for what is the parent's

    setattr(loop, "call_soon", guarded)  # noqa: B010 - a method, replaced
    os.register_at_fork(after_in_child=after_fork)

"""The event loop that all async handlers share: none of them ends it, and no child that one forks goes on with it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.builders import ForkedChild
from tests.unit.actions.support import a_context, a_task

from dynatick.actions.handlers import Handler

Async = Callable[[object], Coroutine[object, object, object]]
SECONDS = 30


def run(function: Async) -> object:
    one = a_task()
    return Handler("x", function).run(one, a_context(one))


async def exits(payload: object = None) -> object:
    sys.exit(3)


async def is_interrupted(payload: object) -> object:
    raise KeyboardInterrupt


async def is_cancelled(payload: object) -> object:
    raise asyncio.CancelledError


async def cancels_itself(payload: object) -> object:
    current = asyncio.current_task()
    assert current is not None
    current.cancel()
    await asyncio.sleep(SECONDS)  # wait: it is cancelled at once
    return None


async def awaits_a_task_that_exits(payload: object) -> object:
    return await asyncio.create_task(exits())


async def stops_the_loop(payload: object) -> object:
    asyncio.get_running_loop().stop()
    return None


async def closes_the_loop(payload: object) -> object:
    asyncio.get_running_loop().close()
    return None


async def shuts_down_the_executor(payload: object) -> object:
    return await asyncio.get_running_loop().shutdown_default_executor()


async def shuts_down_generators(payload: object) -> object:
    return await asyncio.get_running_loop().shutdown_asyncgens()


@pytest.mark.parametrize(
    ("handler", "error"),
    [
        (exits, SystemExit),
        (is_interrupted, KeyboardInterrupt),
        (is_cancelled, asyncio.CancelledError),
        (cancels_itself, asyncio.CancelledError),
        (awaits_a_task_that_exits, SystemExit),
        (stops_the_loop, RuntimeError),
        (closes_the_loop, RuntimeError),
        (shuts_down_the_executor, RuntimeError),
        (shuts_down_generators, RuntimeError),
    ],
)
def test_a_handler_that_would_end_the_loop_fails_alone(handler: Async, error: type[BaseException]) -> None:
    began = threading.Event()
    go: list[asyncio.Event] = []

    async def innocent(payload: object) -> object:
        go.append(asyncio.Event())
        began.set()
        await go[0].wait()
        return await asyncio.get_running_loop().run_in_executor(None, lambda: "completed")

    async def lets_it_end(payload: object) -> None:
        go[0].set()

    with ThreadPoolExecutor(2) as threads:
        beside = threads.submit(run, innocent)
        assert began.wait(SECONDS)
        with pytest.raises(error):
            threads.submit(run, handler).result(SECONDS)
        threads.submit(run, lets_it_end).result(SECONDS)
        assert beside.result(SECONDS) == "completed"


def test_a_task_or_a_callback_that_nothing_awaits_does_not_end_the_loop() -> None:
    async def leaves_them(payload: object) -> str:
        loop = asyncio.get_running_loop()
        left = asyncio.create_task(exits())
        loop.call_soon(sys.exit)
        await asyncio.wait([left])
        return "completed"

    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(run, leaves_them).result(SECONDS) == "completed"


@pytest.mark.parametrize("end", ["returns", "exits", "awaits", "in a task of its own"])
def test_a_child_that_a_handler_forks_ends_and_runs_no_handler(end: str) -> None:
    child = ForkedChild()
    began = threading.Event()
    go: list[asyncio.Event] = []

    async def beside(payload: object) -> str:
        go.append(asyncio.Event())
        began.set()
        await go[0].wait()
        child.note()  # ready to run when the child comes back to the loop
        return "completed"

    async def forks(payload: object) -> object:
        never = asyncio.get_running_loop().create_future()
        go[0].set()
        if child.fork():
            if end == "exits":
                sys.exit(7)
            if end == "awaits":
                await never
        return None

    async def forks_in_a_task(payload: object) -> object:
        return await asyncio.create_task(forks(payload))

    with ThreadPoolExecutor(2) as threads:
        other = threads.submit(run, beside)
        assert began.wait(SECONDS)
        threads.submit(run, forks_in_a_task if end == "in a task of its own" else forks).result(SECONDS)
        assert other.result(SECONDS) == "completed"
    assert child.ended() == (7 if end == "exits" else 0, "")


def test_a_child_of_a_handler_that_has_nothing_else_in_the_loop_ends() -> None:
    child = ForkedChild()

    async def forks(payload: object) -> object:
        never = asyncio.get_running_loop().create_future()
        if child.fork():
            await never
        return None

    with ThreadPoolExecutor(1) as threads:
        threads.submit(run, forks).result(SECONDS)
    assert child.ended() == (0, "")


def test_a_handler_starts_processes_by_subprocess() -> None:
    async def starts(payload: object) -> object:
        started = await asyncio.create_subprocess_exec(sys.executable, "-c", "print(5)", stdout=subprocess.PIPE)
        return (await started.communicate())[0]

    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(run, starts).result(SECONDS) == b"5\n"


def test_a_process_that_was_forked_has_a_loop_of_its_own() -> None:
    """As one of ``multiprocessing``'s, which a handler may start."""
    child = ForkedChild()

    async def answers(payload: object) -> int:
        return os.getpid()

    run(answers)
    if child.fork():
        try:
            child.note("its own" if run(answers) == os.getpid() else "another's")
        finally:
            os._exit(0)
    assert child.ended() == (0, "its own")

"""The client for asyncio: each method of ``TaskClient``, awaited.

The SDK is not asynchronous. So each call runs in one of a few threads, and the event loop goes on meanwhile. The
methods are made from those of ``TaskClient``, with their arguments and their types.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from dynatick.client.batches import Batches, BatchView
from dynatick.client.dead_letters import DeadLetters, HandledLetter, HandledLetters
from dynatick.client.schedules import Schedules
from dynatick.client.tasks import TaskClient, waits
from dynatick.client.views import BucketCounts, TaskView
from dynatick.domain.buckets import Bucket
from dynatick.domain.task import TERMINAL
from dynatick.errors import WaitTimedOut, shown

if TYPE_CHECKING:
    from dynatick.client.async_operations import AsyncOperations

MAX_THREADS = 16

P = ParamSpec("P")
R = TypeVar("R")


class Threads:
    """The threads in which the calls of a client run. They start when they are needed."""

    def __init__(self, max_threads: int) -> None:
        self.pool = ThreadPoolExecutor(max_threads, thread_name_prefix="dynatick-client")

    async def run(self, call: Callable[[], R]) -> R:
        """Calls in a thread, with the context variables of the caller."""
        context = contextvars.copy_context()
        return await asyncio.get_running_loop().run_in_executor(self.pool, context.run, call)


class Threaded:
    """The calls of ``client``, in threads."""

    def __init__(self, client: Any, threads: Threads) -> None:
        self._of, self._threads = client, threads


class AsyncResults(AsyncIterator[R]):
    """The results of a call, one by one. The next is fetched when it is asked for."""

    def __init__(self, threads: Threads, begin: Callable[[], Iterator[R]]) -> None:
        self._begun = list[Iterator[R]]()
        self._each = _each(threads, begin, self._begun)

    async def __anext__(self) -> R:
        return await anext(self._each)

    async def aclose(self) -> None:
        """Ends the call before its last result."""
        await self._each.aclose()


async def _each(
    threads: Threads, begin: Callable[[], Iterator[R]], begun: list[Iterator[R]]
) -> AsyncGenerator[R, None]:
    """The results of the call that ``begin`` begins. ``begun`` gets that call."""

    def following() -> tuple[R, ...]:
        """Returns the next result; empty at the end, for a coroutine can't raise StopIteration. Runs in a thread."""
        if not begun:
            begun.append(begin())
        for result in begun[0]:
            return (result,)
        return ()

    try:
        while found := await threads.run(following):
            yield found[0]
    finally:  # also after a break: the event loop ends the generators that are left
        for results in begun:
            await asyncio.to_thread(_close, results)  # it may write; the threads may have ended


def _close(results: Iterator[object]) -> None:
    if isinstance(results, Generator | HandledLetters):
        with suppress(ValueError):  # it was cancelled, and its thread still runs, and ends it
            results.close()


async def _pause(further: Iterator[float], *, of: str) -> None:
    """Waits until the next poll. Raises WaitTimedOut."""
    if (wait := next(further, None)) is None:
        raise WaitTimedOut(f"{of} has not ended in time")
    await asyncio.sleep(wait)


class AsyncHandledLetters(AsyncResults[HandledLetter]):
    """``HandledLetters``, one by one."""

    @property
    def complete(self) -> bool:
        """Whether the whole queue was read, as ``HandledLetters`` has it."""
        return any(isinstance(results, HandledLetters) and results.complete for results in self._begun)


def awaited(method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    @functools.wraps(method)
    async def call(self: Threaded, /, *arguments: P.args, **named: P.kwargs) -> R:
        return await self._threads.run(functools.partial(method, self._of, *arguments, **named))

    return call


def iterated(method: Callable[Concatenate[Any, P], Iterator[R]]) -> Callable[Concatenate[Any, P], AsyncResults[R]]:
    @functools.wraps(method)
    def call(self: Threaded, /, *arguments: P.args, **named: P.kwargs) -> AsyncResults[R]:
        return AsyncResults(self._threads, functools.partial(method, self._of, *arguments, **named))

    return call


def handled(
    method: Callable[Concatenate[Any, P], HandledLetters],
) -> Callable[Concatenate[Any, P], AsyncHandledLetters]:
    @functools.wraps(method)
    def call(self: Threaded, /, *arguments: P.args, **named: P.kwargs) -> AsyncHandledLetters:
        return AsyncHandledLetters(self._threads, functools.partial(method, self._of, *arguments, **named))

    return call


class AsyncSchedules(Threaded):
    """``Schedules``, awaited."""

    backfill = iterated(Schedules.backfill)
    compose = awaited(Schedules.compose)
    delete = awaited(Schedules.delete)
    export = iterated(Schedules.export)
    forecast = awaited(Schedules.forecast)
    get = awaited(Schedules.get)
    history = awaited(Schedules.history)
    insert = awaited(Schedules.insert)
    list = awaited(Schedules.list)
    pause = awaited(Schedules.pause)
    preview = awaited(Schedules.preview)
    resume = awaited(Schedules.resume)
    run_now = awaited(Schedules.run_now)
    sync = awaited(Schedules.sync)
    update = awaited(Schedules.update)


class AsyncDeadLetters(Threaded):
    """``DeadLetters``, awaited."""

    count = awaited(DeadLetters.count)
    list = awaited(DeadLetters.list)
    purge = handled(DeadLetters.purge)
    redrive = handled(DeadLetters.redrive)


class AsyncBatches(Threaded):
    """``Batches``, awaited."""

    async def wait(self, batch_id: str, *, timeout: timedelta | None = None) -> BatchView:
        """Waits like ``Batches.wait``. It needs no thread between two reads."""
        further = waits(timeout=timeout, seconds=self._of._seconds)
        while not await self.has_ended(batch_id):
            await _pause(further, of=f"batch {shown(batch_id)}")
        return await self.get(batch_id)

    cancel = awaited(Batches.cancel)
    get = awaited(Batches.get)
    has_ended = awaited(Batches.has_ended)
    insert = awaited(Batches.insert)
    list = awaited(Batches.list)
    load_pack = awaited(Batches.load_pack)
    members = iterated(Batches.members)
    members_page = awaited(Batches.members_page)
    redrive = awaited(Batches.redrive)
    reschedule = awaited(Batches.reschedule)
    seal = awaited(Batches.seal)


class AsyncTaskClient(Threaded):
    """A ``TaskClient`` for asyncio: the same methods with the same arguments, awaited; what iterates, by ``async for``.

    Each call runs in one of ``max_threads`` threads; further ones wait for their turn. A call that is cancelled while
    it runs goes on in its thread, and may still take effect. ``async with`` ends the threads, ``aclose`` too.
    """

    def __init__(self, client: TaskClient, *, max_threads: int = MAX_THREADS) -> None:
        super().__init__(client, Threads(max_threads))
        self.client = client

    @classmethod
    def connect(
        cls,
        table: str | None = None,
        *,
        dead_letter_queue_url: str | None = None,
        region: str | None = None,
        endpoint_url: str | None = None,
        profile: str | None = None,
        batched: bool = True,
        timeout_seconds: float | None = None,
    ) -> AsyncTaskClient:
        """Connects like ``TaskClient.connect``. It sends nothing, so it isn't awaited."""
        return cls(
            TaskClient.connect(
                table,
                dead_letter_queue_url=dead_letter_queue_url,
                region=region,
                endpoint_url=endpoint_url,
                profile=profile,
                timeout_seconds=timeout_seconds,
                batched=batched,
            )
        )

    async def __aenter__(self) -> AsyncTaskClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Waits for the calls that run, and ends the threads."""
        await asyncio.to_thread(self._threads.pool.shutdown, wait=True, cancel_futures=True)

    @property
    def schedules(self) -> AsyncSchedules:
        """Recurring schedules."""
        return AsyncSchedules(self.client.schedules, self._threads)

    @property
    def batches(self) -> AsyncBatches:
        """Any number of tasks of one action, inserted as one, and one task when all have ended."""
        return AsyncBatches(self.client.batches, self._threads)

    @property
    def operations(self) -> AsyncOperations:
        """The installation: its state, ticks and faults, and the pause of everything."""
        from dynatick.client.async_operations import AsyncOperations

        return AsyncOperations(self.client.operations, self._threads)

    @property
    def dead_letters(self) -> AsyncDeadLetters:
        """The messages of tasks that failed for good. Raises ConfigurationError if the client knows no queue."""
        return AsyncDeadLetters(self.client.dead_letters, self._threads)

    async def wait(self, task_id: str, *, timeout: timedelta | None = None) -> TaskView:
        """Waits like ``TaskClient.wait``. It needs no thread between two reads."""
        further = waits(timeout=timeout, seconds=self.client._seconds)
        while (task := await self.get(task_id)).status not in TERMINAL:
            await _pause(further, of=f"task {shown(task_id)}")
        return task

    async def wait_for_bucket(self, bucket: str | Bucket, *, timeout: timedelta | None = None) -> BucketCounts:
        """Waits like ``TaskClient.wait_for_bucket``. It needs no thread between two polls."""
        further = waits(timeout=timeout, seconds=self.client._seconds)
        none = BucketCounts(bucket=str(bucket), counts={})
        while True:
            counts = await self._threads.run(lambda: next(self.client.bucket_counts(bucket), none))
            if counts.all_ended:
                return counts
            await _pause(further, of=f"bucket {bucket}")

    bucket_counts = iterated(TaskClient.bucket_counts)
    bucket_departures = awaited(TaskClient.bucket_departures)
    count_tasks = awaited(TaskClient.count_tasks)
    cancel = awaited(TaskClient.cancel)
    cancel_many = iterated(TaskClient.cancel_many)
    compose = awaited(TaskClient.compose)
    delete = awaited(TaskClient.delete)
    delete_many = iterated(TaskClient.delete_many)
    export = iterated(TaskClient.export)
    get = awaited(TaskClient.get)
    history = awaited(TaskClient.history)
    insert = awaited(TaskClient.insert)
    insert_lazily = iterated(TaskClient.insert_lazily)
    insert_many = awaited(TaskClient.insert_many)
    insert_rows = iterated(TaskClient.insert_rows)
    insert_task = awaited(TaskClient.insert_task)
    iter_history = iterated(TaskClient.iter_history)
    iter_listed = iterated(TaskClient.iter_listed)
    redrive = awaited(TaskClient.redrive)
    redrive_many = iterated(TaskClient.redrive_many)
    reschedule = awaited(TaskClient.reschedule)
    reschedule_many = iterated(TaskClient.reschedule_many)
    restore = awaited(TaskClient.restore)
    restore_many = iterated(TaskClient.restore_many)
    run_now = awaited(TaskClient.run_now)
    complete = awaited(TaskClient.complete)
    fail = awaited(TaskClient.fail)
    heartbeat = awaited(TaskClient.heartbeat)
    run_now_many = iterated(TaskClient.run_now_many)
    select = awaited(TaskClient.select)
    settings = awaited(TaskClient.settings)
    transact_put = awaited(TaskClient.transact_put)
    update = awaited(TaskClient.update)

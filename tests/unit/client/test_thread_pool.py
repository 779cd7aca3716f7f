"""A generator that nobody takes to its end is closed by the garbage collector, in any thread, so it must not wait.

A thread that is only starting can run the collector, with a lock held without which no thread can be waited for.
"""

from __future__ import annotations

import ast
import itertools
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from tests.builders import NOON

import dynatick
from dynatick import TaskClient
from dynatick.client.buckets import BucketReader, leave
from dynatick.client.thread_pool import many_rows, thread_pool
from dynatick.engine.ports import Page
from dynatick.store.memory import MemoryStore


def test_only_a_generator_that_is_closed_leaves_its_work_alone() -> None:
    may_end, ended = threading.Event(), threading.Event()

    def work() -> None:
        assert may_end.wait(60), "it was waited for"
        ended.set()

    def generator() -> Iterator[int]:
        with thread_pool(2, "test") as pool:
            pool.submit(work)
            yield 1
            may_end.set()

    closed = generator()
    next(closed)
    closed.close()  # type: ignore[attr-defined]
    assert not ended.is_set()
    may_end.set()
    assert ended.wait(60), "what has begun ends by itself"
    may_end.clear()
    ended.clear()
    assert list(generator()) == [1] and ended.is_set()


def test_no_other_pool_waits_at_the_end_of_a_block() -> None:
    """The async client's is ended by its caller, the engine's by its coordinator; that of the pages lasts as long as
    they are served."""
    where = {
        str(file.relative_to(Path(dynatick.__file__).parent))
        for file in Path(dynatick.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "ThreadPoolExecutor"
    }
    assert where == {"client/thread_pool.py", "client/async_tasks.py", "engine/pools.py", "ui/readings.py"}


class Held(MemoryStore):
    """A table that holds up the third read."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.may_end, self.ended = threading.Event(), threading.Event(), threading.Event()
        self.reads = itertools.count(1)

    def query_bucket(self, *arguments: Any, **options: Any) -> Any:
        if next(self.reads) == 3:
            self.begun.set()
            assert self.may_end.wait(60)
            self.ended.set()
        return super().query_bucket(*arguments, **options)


def test_to_leave_pages_is_to_wait_for_their_reads(client: TaskClient) -> None:
    store = Held()
    selection = client.select(start="2026-12-31T12:00:00Z", end="2026-12-31T12:30:00Z")
    pages = BucketReader(store=store, selection=selection).pages()
    next(pages)
    next(pages)
    assert store.begun.wait(60)
    leaving = threading.Thread(target=leave, args=(pages,))
    leaving.start()
    leaving.join(0.05)  # wait: it would end at once; fails only if it ends
    assert leaving.is_alive()
    store.may_end.set()
    leaving.join(60)
    assert store.ended.is_set() and not leaving.is_alive()


class Meeting(MemoryStore):
    """A table that answers once five requests for rows are there."""

    def __init__(self) -> None:
        super().__init__()
        self.barrier = threading.Barrier(5)
        self.sizes: list[int] = []

    def get_many(self, task_ids: Any, **options: Any) -> Any:
        self.sizes.append(len(task_ids))
        self.barrier.wait(60)
        return super().get_many(task_ids, **options)


def test_many_rows_are_read_by_several_requests_at_a_time() -> None:
    store = Meeting()
    ids = [f"t{n:03}" for n in range(412)]
    for task_id in ids[:-1]:
        store.create({"taskId": task_id, "action": "log"})
    rows = many_rows(store, ids, only=("action",))
    assert sorted(rows) == ids[:-1] and rows["t007"]["action"] == "log"
    assert sorted(store.sizes) == [12, 100, 100, 100, 100]
    assert len(many_rows(store, ids[:101])) == 101, "whole rows: 25 by one"
    assert sorted(store.sizes[5:]) == [1, 25, 25, 25, 25]
    assert many_rows(store, []) == {}


def test_buckets_are_read_by_the_threads_of_a_caller_that_has_some() -> None:
    """To start eight or sixteen for each hour of a page takes long."""
    names: set[str] = set()

    class Named(MemoryStore):
        def query_bucket(self, *given: object, **options: object) -> Page:
            names.add(threading.current_thread().name)
            return super().query_bucket(*given, **options)  # type: ignore[arg-type]

    client = TaskClient(Named(), clock=lambda: NOON)
    with thread_pool(2, "the-caller") as threads:
        assert list(client.operations.listed_pages(start=NOON, end=NOON + timedelta(hours=1), threads=threads))
        assert len(names) <= 2 and all(name.startswith("the-caller") for name in names)
        names.clear()
        assert threads.submit(lambda: 1).result() == 1, "they are left to the caller"
    list(client.operations.listed_pages(start=NOON, end=NOON + timedelta(hours=1)))
    assert all(name.startswith("dynatick-read") for name in names)

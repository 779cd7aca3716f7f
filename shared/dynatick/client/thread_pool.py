"""A pool of threads for the time of a block."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager


@contextmanager
def thread_pool(max_threads: int, name: str) -> Iterator[ThreadPoolExecutor]:
    """Up to ``max_threads`` threads. Their work has ended when the block ends, also with an error.

    The block may lie in a generator that its caller leaves before its end. Python then closes that one while it
    collects garbage: in any thread, and with any lock held, even those of a thread that is only starting. To wait for
    other threads there can be for ever, so a closed generator does not wait: what has begun ends by itself.
    """
    pool = ThreadPoolExecutor(max_threads, thread_name_prefix=name)
    is_closed = False
    try:
        yield pool
    except GeneratorExit:
        is_closed = True
        raise
    finally:
        pool.shutdown(wait=not is_closed)

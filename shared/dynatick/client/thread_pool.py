"""A pool of threads for the time of a block, and many rows read by one."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from dynatick.domain.task import Row
from dynatick.engine.ports import Store

_REQUEST, _REQUEST_WHOLE = 100, 25  # rows: as many as the store reads by one
_AT_A_TIME = 16  # requests


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


def many_rows(
    store: Store, ids: Sequence[str], *, consistent: bool = True, only: Collection[str] = ()
) -> Mapping[str, Row]:
    """Rows by id, or some attributes of them, as ``Store.get_many`` reads them, with several requests at a time. Raises
    StoreError."""
    size = _REQUEST if only else _REQUEST_WHOLE
    requests = [ids[n : n + size] for n in range(0, len(ids), size)]
    if len(requests) <= 1:
        return store.get_many(ids, consistent=consistent, only=only) if ids else {}
    found: dict[str, Row] = {}
    with thread_pool(_AT_A_TIME, "dynatick-rows") as pool:
        for rows in pool.map(lambda some: store.get_many(some, consistent=consistent, only=only), requests):
            found.update(rows)
    return found

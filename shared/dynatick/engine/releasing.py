"""Releases that the table did not take, written by an invocation of their own.

A claim counts an attempt. If its task was not begun and its release is not written, the task's lease expires, and a
recovery takes its process for dead: a last attempt would fail without having been made. So what could not be released
goes to another invocation, which tries for a minute, and then again when Lambda repeats it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from dynatick.domain import attributes as attr
from dynatick.domain.conditional_update import Unknown, Written
from dynatick.domain.lifecycle import release_claim
from dynatick.engine.conditional_write import write_many
from dynatick.engine.orders import ReleaseOrder, parts
from dynatick.engine.ports import Clock, Store, size_in_event
from dynatick.errors import StoreError

MAX_TASKS = 200  # of one order
PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
"""Seconds between two tries."""

_DECISIVE = (attr.STATUS, attr.LEASE, attr.LEASE_UNTIL, attr.ATTEMPT)


def release_orders(claims: Mapping[str, str]) -> Iterator[ReleaseOrder]:
    """The orders that release these claims, given as tokens and the ids of their tasks."""
    pairs = [(task_id, token) for token, task_id in claims.items()]
    for part in parts(pairs, lambda pair: sum(map(size_in_event, pair)), max_items=MAX_TASKS):
        yield ReleaseOrder(part)


def write_releases(
    store: Store, order: ReleaseOrder, *, clock: Clock, end: datetime, pause: Callable[[float], None]
) -> int:
    """Releases what still has the order's tokens, and returns how many tasks that were. ``pause`` waits, in seconds.

    Raises StoreError if the table takes some of them neither until ``end`` nor in all its tries.
    """
    left: Sequence[tuple[str, str]] = order.claims
    released = 0
    problem = ""
    for seconds in (*PAUSES, None):
        try:
            rows = store.get_many([task_id for task_id, _ in left], only=_DECISIVE)
        except StoreError as error:
            problem = str(error)
        else:
            held = [(task_id, token, rows[task_id]) for task_id, token in left if task_id in rows]
            changes = {
                (task_id, token): change
                for task_id, token, row in held
                if (change := release_claim(row, token)) is not None
            }
            results = dict(zip(changes, write_many(store, list(changes.values())), strict=True))
            left = [claim for claim, result in results.items() if isinstance(result, Unknown)]
            released += sum(1 for result in results.values() if isinstance(result, Written))
            problem = next((result.error for result in results.values() if isinstance(result, Unknown)), "")
        if not left:
            return released
        if seconds is None or clock() + timedelta(seconds=seconds) >= end:
            break
        pause(seconds)
    raise StoreError(f"{len(left)} tasks that were claimed and not begun can't be released: {problem}")

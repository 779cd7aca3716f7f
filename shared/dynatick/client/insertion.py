"""Inserting many tasks: in batches, several at a time, answered one by one in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from dynatick.client.new_task import Composed
from dynatick.engine.ports import Store, StoreFailure
from dynatick.errors import DynatickError, InvalidInput, ItemTooLarge, StoreError

BATCH = 25  # what one call to the table takes
THREADS = 8


@dataclass(frozen=True, slots=True)
class Inserted:
    """The task is in the table. ``position`` counts what was given, from 0, here and below."""

    position: int
    task_id: str


@dataclass(frozen=True, slots=True)
class Exists:
    """A task of this id was there already; nothing was written."""

    position: int
    task_id: str


@dataclass(frozen=True, slots=True)
class Refused:
    """It is not a task; nothing was written. ``task_id``: None where there is none to tell."""

    position: int
    task_id: str | None
    error: InvalidInput


@dataclass(frozen=True, slots=True)
class Failed:
    """The table could not take it, or gave no answer: whether it was written is not known."""

    position: int
    task_id: str
    error: StoreError


InsertResult = Inserted | Exists | Refused | Failed

MAX_PROBLEMS = 1000


@dataclass(kw_only=True, slots=True)
class InsertCounts:
    """What came of many tasks: how many had which fate."""

    inserted: int = 0
    exists: int = 0  # a task of this id was there already
    refused: int = 0
    failed: int = 0
    problems: list[Refused | Failed] = field(default_factory=list)
    """Why each that was refused, or failed, did: the first 1,000 of them."""

    @property
    def all_in(self) -> bool:
        """Whether each of the tasks is in the table, now or before."""
        return not (self.refused or self.failed)

    def __str__(self) -> str:
        record_results = {
            "inserted": self.inserted,
            "exist": self.exists,
            "refused": self.refused,
            "failed": self.failed,
        }
        return (
            ", ".join(f"{number:,} {recorded_as}" for recorded_as, number in record_results.items() if number)
            or "nothing to insert"
        )


class NoneInserted(DynatickError):
    """None of many tasks is in the table: each was refused, or the table took none. ``counts``: why."""

    def __init__(self, counts: InsertCounts) -> None:
        first = counts.problems[0]
        super().__init__(f"no task is in: {counts}; position {first.position}: {first.error}")
        self.counts = counts


def count(results: Iterable[InsertResult]) -> InsertCounts:
    """Consumes the results. Raises NoneInserted if there are some, and none of the tasks is in."""
    counts = InsertCounts()
    for result in results:
        match result:
            case Inserted():
                counts.inserted += 1
            case Exists():
                counts.exists += 1
            case Refused():
                counts.refused += 1
            case Failed():
                counts.failed += 1
        if isinstance(result, Refused | Failed) and len(counts.problems) < MAX_PROBLEMS:
            counts.problems.append(result)
    if counts.problems and not (counts.inserted or counts.exists):
        raise NoneInserted(counts)
    return counts


@dataclass(frozen=True, slots=True)
class _Ready:
    position: int
    composed: Composed

    @property
    def task_id(self) -> str:
        return str(self.composed.row["taskId"])


@dataclass(slots=True)
class _Chunk:
    """What goes to the table together, with the results that are known before."""

    ready: list[_Ready] = field(default_factory=list)
    known: list[InsertResult] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)

    def __len__(self) -> int:
        return len(self.ready) + len(self.known)


def insert_lazily(
    store: Store,
    tasks: Iterable[object],
    compose: Callable[[object], Composed],
    *,
    threads: int = THREADS,
) -> Iterator[InsertResult]:
    """One result a task, in order; memory does not grow with their number.

    An id that comes again waits for the answer to the one before, so the first of two wins.
    """
    under_way: deque[tuple[_Chunk, Future[Sequence[InsertResult]]]] = deque()
    in_flight: set[str] = set()
    with ThreadPoolExecutor(threads, thread_name_prefix="dynatick-insert") as pool:

        def send(chunk: _Chunk) -> None:
            if not chunk:
                return
            in_flight.update(chunk.ids)
            under_way.append((chunk, pool.submit(_write, store, chunk)))

        def answers(most: int) -> Iterator[InsertResult]:
            while len(under_way) > most:
                chunk, future = under_way.popleft()
                yield from future.result()
                in_flight.difference_update(chunk.ids)

        chunk = _Chunk()
        for position, task in enumerate(tasks):
            ready = _compose(position, task, compose)
            if isinstance(ready, Refused):
                chunk.known.append(ready)
            else:
                if ready.task_id in chunk.ids or ready.task_id in in_flight:
                    send(chunk)
                    yield from answers(0)
                    chunk = _Chunk()
                chunk.ready.append(ready)
                chunk.ids.add(ready.task_id)
            if len(chunk) == BATCH:
                send(chunk)
                yield from answers(2 * threads)
                chunk = _Chunk()
        send(chunk)
        yield from answers(0)


def _compose(position: int, task: object, compose: Callable[[object], Composed]) -> _Ready | Refused:
    task_id = task.get("taskId") if isinstance(task, Mapping) else getattr(task, "task_id", None)
    try:
        return _Ready(position, compose(task))
    except InvalidInput as error:
        return Refused(position, task_id if isinstance(task_id, str) else None, error)


def _write(store: Store, chunk: _Chunk) -> Sequence[InsertResult]:
    """In a thread of the pool."""
    results: list[InsertResult] = list(chunk.known)
    complete = [ready for ready in chunk.ready if ready.composed.complete]
    answers = _create_many(store, complete)
    results += [_result(ready, answer) for ready, answer in zip(complete, answers, strict=True)]
    # One by one: the local emulator's stream shows no batched inserts, and these the scheduler must see.
    results += [_result(ready, _create(store, ready)) for ready in chunk.ready if not ready.composed.complete]
    return sorted(results, key=lambda result: result.position)


def _create_many(store: Store, many: Sequence[_Ready]) -> Sequence[bool | StoreFailure]:
    if not many:
        return ()
    try:
        return store.create_many([ready.composed.row for ready in many])
    except StoreError as error:
        return [StoreFailure(str(error))] * len(many)


def _create(store: Store, ready: _Ready) -> bool | StoreFailure:
    try:
        return store.create(ready.composed.row)
    except StoreError as error:
        return StoreFailure(str(error), too_large=isinstance(error, ItemTooLarge))


def _result(ready: _Ready, answer: bool | StoreFailure) -> InsertResult:
    if isinstance(answer, StoreFailure):
        kind = ItemTooLarge if answer.too_large else StoreError
        return Failed(ready.position, ready.task_id, kind(answer.error))
    return Inserted(ready.position, ready.task_id) if answer else Exists(ready.position, ready.task_id)

"""Inserts many tasks: in batches, several batches at a time, with one result per task, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from dynatick.client.new_task import Composed
from dynatick.client.thread_pool import thread_pool
from dynatick.domain import attributes as attr
from dynatick.domain.row import RowView
from dynatick.engine.conditional_write import create, create_many
from dynatick.engine.ports import Store, StoreFailure
from dynatick.errors import DynatickError, InvalidInput, ItemTooLarge, StoreError

BATCH = 25  # what one call to the table takes
THREADS = 8


@dataclass(frozen=True, slots=True)
class Inserted:
    """The task was written. ``position``: its place among the tasks of the call, from 0, here and below."""

    position: int
    task_id: str


@dataclass(frozen=True, slots=True)
class Exists:
    """A task with this id exists already; nothing was written."""

    position: int
    task_id: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The input is not a valid task; nothing was written. ``task_id``: None if the input has none."""

    position: int
    task_id: str | None
    error: InvalidInput


@dataclass(frozen=True, slots=True)
class InsertUnknown:
    """The write failed or got no answer, so whether the task was written is not known. Insert it again to find out."""

    position: int
    task_id: str
    error: StoreError


InsertResult = Inserted | Exists | Refused | InsertUnknown

MAX_PROBLEMS = 1000


@dataclass(kw_only=True, slots=True)
class InsertCounts:
    """How many tasks of an insert had which result."""

    inserted: int = 0
    exists: int = 0  # a task with this id existed already
    refused: int = 0  # the input was not a valid task
    unknown: int = 0  # the write failed or got no answer
    problems: list[Refused | InsertUnknown] = field(default_factory=list)
    """The refused and unknown ones with their errors: the first 1,000."""

    @property
    def all_in(self) -> bool:
        """Whether every task is in the table, from this insert or before it."""
        return not (self.refused or self.unknown)

    @property
    def total(self) -> int:
        return self.inserted + self.exists + self.refused + self.unknown

    @classmethod
    def from_row(cls, row: Mapping[str, int]) -> InsertCounts:
        return cls(inserted=row["inserted"], exists=row["exists"], refused=row["refused"], unknown=row["unknown"])

    def to_row(self) -> dict[str, int]:
        return {"inserted": self.inserted, "exists": self.exists, "refused": self.refused, "unknown": self.unknown}

    def __str__(self) -> str:
        return ", ".join(f"{number:,} {result}" for result, number in self.to_row().items() if number) or "no tasks"


class NoneInserted(DynatickError):
    """No task of an insert is in the table: each was refused, or its write failed. ``counts``: the reasons."""

    def __init__(self, counts: InsertCounts) -> None:
        first = counts.problems[0]
        super().__init__(f"no task was inserted: {counts}; position {first.position}: {first.error}")
        self.counts = counts


def count(results: Iterable[InsertResult]) -> InsertCounts:
    """Counts the results. Raises NoneInserted if there are tasks and none of them is in the table."""
    counts = InsertCounts()
    for result in results:
        match result:
            case Inserted():
                counts.inserted += 1
            case Exists():
                counts.exists += 1
            case Refused():
                counts.refused += 1
            case InsertUnknown():
                counts.unknown += 1
        if isinstance(result, Refused | InsertUnknown) and len(counts.problems) < MAX_PROBLEMS:
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
        return RowView(self.composed.row).task_id


@dataclass(slots=True)
class _Chunk:
    """The tasks of one batch, with the results of those that were refused."""

    ready: list[_Ready] = field(default_factory=list)
    refused: list[InsertResult] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)

    def __len__(self) -> int:
        return len(self.ready) + len(self.refused)


def insert_lazily(
    store: Store,
    tasks: Iterable[object],
    compose: Callable[[object], Composed],
    *,
    threads: int = THREADS,
) -> Iterator[InsertResult]:
    """Yields one result per task, in order. Memory does not grow with their number.

    A task whose id is being inserted waits for that result, so the first of two with the same id wins.
    """
    under_way: deque[tuple[_Chunk, Future[Sequence[InsertResult]]]] = deque()
    in_flight: set[str] = set()
    with thread_pool(threads, "dynatick-insert") as pool:

        def send(chunk: _Chunk) -> None:
            if not chunk:
                return
            in_flight.update(chunk.ids)
            under_way.append((chunk, pool.submit(_write, store, chunk)))

        def results(max_under_way: int) -> Iterator[InsertResult]:
            while len(under_way) > max_under_way:
                chunk, future = under_way.popleft()
                yield from future.result()
                in_flight.difference_update(chunk.ids)

        chunk = _Chunk()
        for position, task in enumerate(tasks):
            ready = _compose(position, task, compose)
            if isinstance(ready, Refused):
                chunk.refused.append(ready)
            else:
                if ready.task_id in chunk.ids or ready.task_id in in_flight:
                    send(chunk)
                    yield from results(0)
                    chunk = _Chunk()
                chunk.ready.append(ready)
                chunk.ids.add(ready.task_id)
            if len(chunk) == BATCH:
                send(chunk)
                yield from results(2 * threads)
                chunk = _Chunk()
        send(chunk)
        yield from results(0)


def _compose(position: int, task: object, compose: Callable[[object], Composed]) -> _Ready | Refused:
    task_id = task.get(attr.TASK_ID) if isinstance(task, Mapping) else getattr(task, "task_id", None)
    try:
        return _Ready(position, compose(task))
    except InvalidInput as error:
        return Refused(position, task_id if isinstance(task_id, str) else None, error)


def _write(store: Store, chunk: _Chunk) -> Sequence[InsertResult]:
    """Writes a batch, in a thread of the pool."""
    complete = [ready for ready in chunk.ready if ready.composed.complete]
    answers = create_many(store, [ready.composed.row for ready in complete])
    written = [result_of(one.position, one.task_id, answer) for one, answer in zip(complete, answers, strict=True)]
    # One by one: the local emulator's stream shows no batched inserts, and these the scheduler must see.
    others = [_create(store, ready) for ready in chunk.ready if not ready.composed.complete]
    return sorted([*chunk.refused, *written, *others], key=lambda result: result.position)


def _create(store: Store, ready: _Ready) -> InsertResult:
    try:
        return result_of(ready.position, ready.task_id, create(store, ready.composed.row))
    except StoreError as error:
        return InsertUnknown(ready.position, ready.task_id, error)


def result_of(position: int, task_id: str, answer: bool | StoreFailure) -> InsertResult:
    """The result of one insert, from the store's answer."""
    if isinstance(answer, StoreFailure):
        kind = ItemTooLarge if answer.too_large else StoreError
        return InsertUnknown(position, task_id, kind(answer.error))
    return Inserted(position, task_id) if answer else Exists(position, task_id)

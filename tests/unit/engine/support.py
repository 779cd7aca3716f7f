"""Stores that go wrong on purpose, and shorthands for worlds over them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import wraps
from typing import Any, NoReturn

from tests.builders import NOON, FakeClock, InProcess, scheduled_row
from tests.silent import LONG

from dynatick.domain.buckets import Bucket, minute_of
from dynatick.domain.conditional_update import ConditionalUpdate, Result, Unknown
from dynatick.domain.lifecycle import claim
from dynatick.domain.task import Row, Task, is_own_row
from dynatick.engine.counts import PassReport
from dynatick.engine.cursor import Cursor, acquire_shard, cursor_id
from dynatick.engine.invocation import Execution
from dynatick.engine.ports import ActionContext, Cancelled, Entry, Page, ScanPage, StoreFailure
from dynatick.engine.processor import Invoked
from dynatick.engine.rules import Rules
from dynatick.errors import StoreError
from dynatick.store.memory import MemoryStore

NOON_MINUTE = minute_of(NOON)
THROTTLED = Unknown("ThrottlingError: slow down")
NO_ANSWER = Unknown("ReadTimeoutError: no answer")


def bucket_at(minutes: int, shard: int = 0) -> Bucket:
    """The bucket this many minutes after noon."""
    return Bucket(NOON_MINUTE + minutes, shard)


# -- kinds of changes ------------------------------------------------------------------------------------------------


def is_cursor(change: ConditionalUpdate) -> bool:
    return change.task_id.startswith("_dynatick#cursor")


def is_claim(change: ConditionalUpdate) -> bool:
    return change.set.get("status") == "running"


def is_record(change: ConditionalUpdate) -> bool:
    """Returns whether a write records an outcome or a retry."""
    return not is_own_row(change.task_id) and change.set.get("status") in ("completed", "failed", "scheduled")


def is_move(change: ConditionalUpdate) -> bool:
    return "movedTo" in change.set


# -- stores ----------------------------------------------------------------------------------------------------------


class Dies(BaseException):
    """The end of a process, which no handler of errors catches."""


class RiggedStore(MemoryStore):
    """A table in memory whose calls are noted and can be made to go wrong.

    ``before_write`` is called with each change before it is carried out (to put something between). ``throttled``
    changes are not carried out; ``unanswered`` ones are, and get no answer. A new row counts as a change that sets all
    of it. ``batch_fails`` says which batches raise; ``before_poll``, ``before_read`` and ``before_scan`` may raise.
    ``hidden``: entries that the index doesn't show.
    """

    def __init__(self) -> None:
        super().__init__()
        self.forget()
        self.clear_faults()

    def forget(self) -> None:
        """Begins the notes anew."""
        self.pages: list[tuple[Bucket, str | None]] = []  # (bucket, after)
        self.reads: list[str] = []
        self.scans: list[str | None] = []  # after
        self.writes: list[ConditionalUpdate] = []

    @property
    def polls(self) -> list[Bucket]:
        return [bucket for bucket, _ in self.pages]

    def clear_faults(self) -> None:
        """Lets everything work from now on."""
        self.before_write: Callable[[ConditionalUpdate], object] | None = None
        self.throttled: Callable[[ConditionalUpdate], bool] = lambda change: False
        self.unanswered: Callable[[ConditionalUpdate], bool] = lambda change: False
        self.batch_fails: Callable[[Sequence[ConditionalUpdate]], object] = lambda changes: False
        self.before_poll: Callable[[Bucket], None] | None = None
        self.before_read: Callable[[str], None] | None = None
        self.before_scan: Callable[[str | None], object] = lambda after: None
        self.hidden: Callable[[Entry], bool] = lambda entry: False

    def get(self, task_id: str) -> Row | None:
        self.reads.append(task_id)
        if self.before_read is not None:
            self.before_read(task_id)
        return super().get(task_id)

    def create(self, row: Row) -> bool:
        change = ConditionalUpdate(task_id=str(row["taskId"]), set=row)
        if self.before_write is not None:
            self.before_write(change)
        if self.throttled(change):
            raise StoreError(THROTTLED.error)
        is_created = super().create(row)
        if self.unanswered(change):
            raise StoreError(NO_ANSWER.error)
        return is_created

    def create_many(self, rows: Sequence[Row]) -> Sequence[bool | StoreFailure]:
        answers = list[bool | StoreFailure]()
        for row in rows:
            change = ConditionalUpdate(task_id=str(row["taskId"]), set=row)
            (answer,) = [StoreFailure(THROTTLED.error)] if self.throttled(change) else super().create_many([row])
            answers.append(StoreFailure(NO_ANSWER.error) if self.unanswered(change) else answer)
        return answers

    def write(self, change: ConditionalUpdate) -> Result:
        self.writes.append(change)
        if self.before_write is not None:
            self.before_write(change)
        if self.throttled(change):
            return THROTTLED
        result = super().write(change)
        return NO_ANSWER if self.unanswered(change) else result

    def write_many(self, changes: Sequence[ConditionalUpdate]) -> Sequence[Result]:
        if self.batch_fails(changes):
            raise cannot("write")
        return super().write_many(changes)

    def transact(
        self,
        change: ConditionalUpdate | None = None,
        row: Row | None = None,
        items: Sequence[Mapping[str, object]] = (),
        *,
        token: str | None = None,
    ) -> Result | Cancelled:
        noted = change or ConditionalUpdate(task_id=str((row or {})["taskId"]), set=row or {})
        self.writes.append(noted)
        if self.before_write is not None:
            self.before_write(noted)
        if self.throttled(noted):
            return THROTTLED
        result = super().transact(change, row, items, token=token)
        return NO_ANSWER if self.unanswered(noted) else result

    def query_bucket(self, bucket: Bucket, **options: Any) -> Page:  # type: ignore[override]
        self.pages.append((bucket, options.get("after")))
        if self.before_poll is not None:
            self.before_poll(bucket)
        page = super().query_bucket(bucket, **options)
        return replace(page, entries=[entry for entry in page.entries if not self.hidden(entry)])

    def scan(self, *, after: str | None = None, **options: Any) -> ScanPage:
        self.scans.append(after)
        self.before_scan(after)
        return super().scan(after=after, **options)

    def die(self) -> NoReturn:
        """Ends the process: nothing that it still does has an effect."""

        def dies(*_: object) -> NoReturn:
            raise Dies

        self.before_scan = self.before_read = self.before_write = dies
        raise Dies

    def peek(self, task_id: str) -> Row | None:
        """The row, without a note of the call."""
        return MemoryStore.get(self, task_id)

    @contextmanager
    def meanwhile(self, when: Callable[[ConditionalUpdate], bool], does: Callable[[], object]) -> Iterator[None]:
        """Something happens just before the first write of a kind, which must come."""
        first = Once(when)
        self.before_write = lambda change: first(change) and does()
        yield
        assert first.done


class Once:
    """True the first time that ``when`` holds, and never again."""

    def __init__(self, when: Callable[[ConditionalUpdate], bool]) -> None:
        self._when = when
        self.done = False

    def __call__(self, change: ConditionalUpdate) -> bool:
        if self.done or not self._when(change):
            return False
        self.done = True
        return True


# -- worlds ----------------------------------------------------------------------------------------------------------


@dataclass
class World(InProcess):
    """Scheduler and processor over a rigged store. ``refused`` says which invocations can't be started, by their
    orders."""

    refused: Callable[[Mapping[str, object]], bool] = lambda order: False

    def __post_init__(self) -> None:
        super().__post_init__()
        if type(self.store) is MemoryStore:
            self.store = RiggedStore()

    @property
    def rigged(self) -> RiggedStore:
        assert isinstance(self.store, RiggedStore)
        return self.store

    @property
    def ran(self) -> list[str]:
        """The ids of the tasks that were executed, in that order."""
        return [task_id for task_id, _, _ in self.actions.ran]

    def assert_each_ran_once(self, *task_ids: str) -> None:
        """Asserts that these ran once, at their first attempt, and nothing else did."""
        assert Counter(self.actions.ran) == {(task_id, 1, 1): 1 for task_id in task_ids}
        assert {self.outcome(task_id) for task_id in task_ids} == {"completed"}

    def invoke(self, event: Mapping[str, object]) -> None:
        if self.refused(event["dynatick"]):  # type: ignore[arg-type]
            raise cannot("invoke")
        super().invoke(event)

    def behave(self, does: Callable[[Task, ActionContext], object], *task_ids: str) -> None:
        """Sets what the action does with these tasks."""
        self.actions.behaviour |= dict.fromkeys(task_ids, does)

    def cursor(self, shard: int = 0) -> Cursor:
        row = MemoryStore.get(self.store, cursor_id(shard))
        assert row is not None
        return Cursor.from_row(shard, row)

    def insert(self, *ids: str, at: Bucket | None = None, **more: object) -> None:
        """Rows as a client of ours writes them; the stream sees them too."""
        for task_id in ids:
            row = scheduled_row(task_id, at or bucket_at(1), **more)
            assert self.store.create(row)
            self.stream(self.row(task_id))

    def claim(
        self, *ids: str, until: datetime | None = None, at: Bucket | None = None, token: str = "another's"
    ) -> None:
        """Another process claims tasks, and is not heard of again."""
        for task_id in ids:
            bucket = at or Bucket.parse(self.row(task_id)["taskDateTime"])
            lease = until or self.clock() + self.life
            change = claim(task_id, bucket, token=f"{token}/{task_id}", lease_until=lease, now=self.clock())
            result = MemoryStore.write(self.store, change)
            assert type(result).__name__ == "Written", result

    def is_frozen(self, **delta: float) -> None:
        """This process stands still for so long; then another acquires the shard, and has closed its buckets."""
        self.clock.forward(**delta)
        now = self.clock()
        assert acquire_shard(self.store, 0, minute_of(now), token="another's", now=now).cursor is not None

    def first_pass(self, minutes: float = 1) -> PassReport:
        """Runs the first pass of the tick ``minutes`` after noon; what it starts is left in ``started``."""
        self.clock.to(NOON + timedelta(minutes=minutes))
        report = self.handle({"time": self.clock().strftime("%Y-%m-%dT%H:%M:00Z")}).passed
        assert report is not None
        return report

    def until_drained(self, minutes: int = 12) -> None:
        """Ticks until every bucket up to now has been drained; there must be nothing that holds them back."""
        now = minute_of(self.clock())
        for _ in range(minutes):
            self.next_tick()
            if self.cursor().drained_through >= now:
                return
        raise AssertionError(f"after {minutes} ticks {self.cursor()} has not passed {Bucket(now)}")

    def assert_a_retry_goes_to_an_open_bucket(self, task_id: str, run: Callable[[], object]) -> None:
        """The process of the task holds no cursor: a tick closes the bucket of its retry just before the write."""
        self.life = timedelta(minutes=14)
        self.behave(fails, task_id)
        with self.rigged.meanwhile(
            lambda change: is_record(change) and change.set["status"] == "scheduled", lambda: self.first_pass(7)
        ):
            run()
        assert str(self.row(task_id)["taskDateTime"]) > str(bucket_at(7))

    def open_rows(self) -> dict[str, Row]:
        page = ScanPage((), "")
        found: dict[str, Row] = {}
        while page.after is not None:
            page = MemoryStore.scan(self.store, after=page.after)
            found |= {str(row["taskId"]): row for row in page.rows}
        return found


def world(**settings: object) -> World:
    """A world at noon whose first tick has been."""
    made = World(**settings)
    made.tick()
    made.rigged.forget()
    return made


def reports(done: Sequence[Invoked]) -> list[PassReport]:
    """Returns the reports of all passes."""
    return [invoked.passed for invoked in done if invoked.passed is not None]


def passed(done: Sequence[Invoked]) -> PassReport:
    """The report of the first pass."""
    return reports(done[:1])[0]


def cursor_at(closed: int, drained: int, *, polled: int | None = None, checkpoint: int | None = None) -> Cursor:
    """A cursor whose checkpoint was closed at noon; given in minutes after that."""
    return Cursor(
        shard=0,
        closed_through=NOON_MINUTE + closed,
        drained_through=NOON_MINUTE + drained,
        polled_through=NOON_MINUTE + (closed if polled is None else polled),
        checkpoint=NOON_MINUTE + (closed if checkpoint is None else checkpoint),
        checkpoint_at=NOON,
    )


def ids(number: int, prefix: str = "t") -> list[str]:
    return [f"{prefix}{n:04d}" for n in range(number)]


def fails(task: Task, context: ActionContext) -> None:
    """An action that does not succeed."""
    raise ValueError("no")


def raises(error: BaseException) -> Callable[..., NoReturn]:
    """An action that raises this."""

    def run(*_: object) -> NoReturn:
        raise error

    return run


class PacedClock(FakeClock):
    """A clock that goes no faster than the coordinator (the thread that is none of the product's) goes round.

    ``step``: by how much each of its reads puts it forward. Where an invocation waits for time to pass while a task
    runs, nothing else would end the wait. ``is_answered``: other services answer what they are asked.
    """

    def __init__(self) -> None:
        super().__init__()
        self._rounds = 0
        self._went_round = threading.Condition()
        self.step = timedelta()
        self.is_answered = True

    def __call__(self) -> datetime:
        if self._is_asked_by_coordinator():
            self.forward(seconds=self.step.total_seconds())
        return super().__call__()

    def takes(self, **delta: float) -> None:
        """Puts it forward. Any other thread waits until the coordinator has seen that, has handled what came before,
        and waits for no answer of another service."""
        self.forward(**delta)
        if self._is_asked_by_coordinator():
            return
        with self._went_round:
            enough = self._rounds + 2  # the round that is under way may have begun before
            assert self._went_round.wait_for(lambda: self._rounds >= enough, timeout=LONG)

    def has_gone_round(self) -> None:
        with self._went_round:
            self._rounds += 1
            self._went_round.notify_all()

    @staticmethod
    def _is_asked_by_coordinator() -> bool:
        return not threading.current_thread().name.startswith("dynatick-")


_handle_events = Execution.handle_events


@wraps(_handle_events)
def _tell_clock(execution: Execution, *arguments: Any, **settings: Any) -> None:
    _handle_events(execution, *arguments, **settings)
    clock, calls = execution.services.clock, (execution.letters, execution.wake_ups, execution.starts)
    if isinstance(clock, PacedClock) and not (clock.is_answered and any(one.under_way for one in calls)):
        clock.has_gone_round()


Execution.handle_events = _tell_clock  # type: ignore[method-assign]


def takes(w: World, **delta: float) -> Callable[[Task, ActionContext], None]:
    """Work that takes so long by the clock of the world, a PacedClock, while the coordinator keeps up with it."""
    clock = w.clock
    assert isinstance(clock, PacedClock)
    return lambda task, context: clock.takes(**delta)


def cannot(what: str) -> StoreError:
    return StoreError(f"cannot {what}: the table is not there")


def raises_for(*wanted: object, error: Exception | None = None) -> Callable[[object], None]:
    """Returns a function for ``before_poll`` and ``before_read`` that raises where one of these is asked for."""

    def before(asked: object) -> None:
        if asked in wanted:
            raise error or cannot("read")

    return before


def rules(**settings: object) -> Rules:
    return Rules(**settings)


def of(row: Row | None) -> Mapping[str, object]:
    assert row is not None
    return row


class Recorded:
    """Counts the tasks of a world whose success is recorded."""

    def __init__(self, w: World) -> None:
        self._recorded = threading.Semaphore(0)
        w.rigged.before_write = self._note

    def _note(self, change: ConditionalUpdate) -> None:
        if is_record(change) and change.set["status"] == "completed":
            self._recorded.release()

    def reaches(self, number: int) -> bool:
        """Waits until this number more are recorded."""
        return all(self._recorded.acquire(timeout=LONG) for _ in range(number))

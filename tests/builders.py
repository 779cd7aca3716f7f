"""Stand-ins and builders that several layers of tests share."""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from dynatick.actions.testing import MemoryDeadLetters
from dynatick.domain.buckets import Bucket, instant_of, minute_of
from dynatick.domain.normalise import Defaults
from dynatick.domain.task import Row, Task
from dynatick.engine.placement import Placer, rejections_to
from dynatick.engine.ports import ActionContext, Store
from dynatick.engine.processor import Invoked, Processor
from dynatick.engine.rules import Rules
from dynatick.engine.scheduler import Arrival, Assigned, assign
from dynatick.engine.settings import publish_settings
from dynatick.store.memory import MemoryStore
from dynatick.testing.functions import Functions, rule_event

NOON = datetime(2026, 12, 31, 12, 0, tzinfo=UTC)


class FakeClock:
    """A clock that stands still where it was set until a test puts it forward, however long the machine takes."""

    def __init__(self, now: datetime = NOON) -> None:
        self._now = now
        self._lock = threading.Lock()  # an action may put it forward while other threads read it

    def __call__(self) -> datetime:
        return self._now

    def forward(self, **delta: float) -> datetime:
        with self._lock:
            self._now += timedelta(**delta)
            return self._now

    def to(self, instant: datetime) -> None:
        """Puts it forward to an instant; an earlier one changes nothing."""
        with self._lock:
            self._now = max(self._now, instant)

    def pause(self, seconds: float) -> None:
        """Waits, as the product does by ``time.sleep``."""
        self.forward(seconds=seconds)

    def wait_until(self, instant: datetime) -> None:
        """An invocation waits until then, and has nothing else to do."""
        self.to(instant)


class FakeActions:
    """Actions that note what they ran. ``behaviour``: by task id, called with (task, context)."""

    def __init__(self) -> None:
        self.ran: list[tuple[str, int, int]] = []  # (task id, run, attempt)
        self.keys: list[str] = []
        self.behaviour: dict[str, Callable[[Task, ActionContext], object]] = {}
        self.timeouts: dict[str, int] = {}  # by task id, as if their handlers had declared them
        self._lock = threading.Lock()

    def run(self, task: Task, context: ActionContext) -> object:
        with self._lock:
            self.ran.append((task.task_id, context.run, context.attempt))
            self.keys.append(context.idempotency_key)
        does = self.behaviour.get(task.task_id)
        return None if does is None else does(task, context)

    def names(self) -> Sequence[str]:
        return ["log"]

    def payload_schemas(self) -> Mapping[str, str]:
        return {}

    def timeout_seconds(self, task: Task) -> int | None:
        return self.timeouts.get(task.task_id) if task.timeout_seconds is None else task.timeout_seconds

    def times(self, task_id: str) -> int:
        return sum(1 for ran, _, _ in self.ran if ran == task_id)


@dataclass(kw_only=True)
class InProcess(Functions):
    """Scheduler and processor as the template joins them, in one process over any store.

    ``put`` is what put-item does, and then what the stream does; ``tick`` is the rule's event. Shards and
    continuations run one after another.
    """

    store: Store = field(default_factory=MemoryStore)
    clock: FakeClock = field(default_factory=FakeClock)
    rules: Rules = field(default_factory=Rules)
    actions: FakeActions = field(default_factory=FakeActions)
    dead_letters: MemoryDeadLetters = field(default_factory=MemoryDeadLetters)

    def __post_init__(self) -> None:
        self.pause = self.clock.pause

    @property
    def processor(self) -> Processor:
        """Each invocation has a process of its own."""
        return self.new_processor()

    def reconfigure(self, **changes: object) -> None:
        """A redeployment with another grid."""
        self.rules = replace(self.rules, grid=replace(self.rules.grid, **changes))

    def tick(self, at: datetime | None = None) -> list[Invoked]:
        """The rule's event for the present minute (or another), with all that it starts."""
        return list(self.run(rule_event(at or self.clock())))

    def run_started(self) -> list[Invoked]:
        return list(self.each_started())

    def next_tick(self, minutes: int = 1) -> list[Invoked]:
        """Time goes on to the next minute (or several later), and the rule fires there once."""
        self.clock.to(instant_of(minute_of(self.clock()) + minutes) + timedelta(milliseconds=200))
        return self.tick()

    def ticks(self, number: int) -> None:
        for _ in range(number):
            self.next_tick()

    def placer(self) -> Placer:
        settings = publish_settings(self.store, self.rules.grid, now=self.clock())
        return Placer(
            self.store,
            self.rules,
            settings,
            self.clock,
            rejections_to(self.dead_letters, self.clock),
        )

    def stream(self, new: Row | None, old: Row | None = None) -> Assigned:
        """Hands one record of the stream to the scheduler."""
        return assign([Arrival("1", new, old)], self.placer())

    def put(self, **row: object) -> Row:
        """put-item, and its record of the stream. Returns the row as it is then."""
        assert isinstance(self.store, MemoryStore)
        task_id = str(row["taskId"])
        old = self.store.get(task_id)
        self.store.put(row)
        self.stream(self.store.get(task_id), old)
        return self.row(task_id)

    def row(self, task_id: str) -> Row:
        row = self.store.get(task_id)
        assert row is not None, f"there is no row {task_id}"
        return row

    def outcome(self, task_id: str) -> object:
        return self.row(task_id).get("outcome")


def scheduled_row(task_id: str, bucket: Bucket, **more: object) -> dict[str, object]:
    """A row as the client writes it when it knows the time."""
    return {
        "taskId": task_id,
        "taskDateTime": str(bucket),
        "dueAt": bucket.instant.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "action": "log",
        "status": "scheduled",
        "attempt": 0,
        "run": 1,
        "createdAt": "2026-12-31T11:00:00Z",
    } | more


def key_of(row: Row, run: int = 1) -> str:
    """The idempotency key of a task in one of its runs."""
    if "createdAt" not in row:
        return f"{row['taskId']}#{run}"
    created = datetime.fromisoformat(str(row["createdAt"]))
    return f"{row['taskId']}#{round(created.timestamp() * 1000)}-{run}"


def defaults() -> Defaults:
    return Defaults()


def no_such_time(*fields: int) -> str:
    """Returns how this Python's datetime reports a time that does not exist; the wording differs by release."""
    try:
        datetime(*fields, tzinfo=UTC)  # type: ignore[misc, arg-type]
    except ValueError as error:
        return str(error)
    raise AssertionError(f"{fields} is a time")


class ForkedChild:
    """A child process that a task forks. It is killed if it doesn't end."""

    def __init__(self) -> None:
        self._parent = os.getpid()
        self._read, self._write = os.pipe()
        self._pid = 0

    def fork(self) -> bool:
        """Forks. True in the child."""
        self._pid = os.fork()
        if self._pid:
            os.close(self._write)  # so that the end of the child is the end of what can be read
        return not self._pid

    def note(self, text: str = "work ") -> None:
        """Notes something, if the child calls it."""
        if os.getpid() != self._parent:
            os.write(self._write, text.encode())

    def ended(self) -> tuple[int, str]:
        """Waits for the end of the child. Returns its status and what it has noted."""
        noted = b""
        while is_readable := select.select([self._read], [], [], 30)[0]:
            part = os.read(self._read, 1000)
            noted += part
            if not part:
                break
        if not is_readable:
            os.kill(self._pid, signal.SIGKILL)
        os.close(self._read)
        status = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        assert is_readable, "the child goes on"
        return status, noted.decode()

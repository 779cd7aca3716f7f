"""Orders to an invocation, as values: a worker's range of ids, and wake-ups (protocol 17, 18).

A wake-up names tasks of one bucket, and for each the instant that it was sent for. One that is lost, late, doubled or
stale harms nothing: the tick runs what no wake-up ran.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from dynatick.domain import attributes as attr
from dynatick.domain.buckets import Bucket
from dynatick.domain.instants import format_instant, parse_instant, up_to_millisecond
from dynatick.domain.row import Due
from dynatick.domain.task import check_count
from dynatick.engine.ports import ENVELOPE, WakeUps, size_in_event
from dynatick.errors import InvalidInput

# -- work order --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkOrder:
    """A worker as data: claim the ids of a bucket in (after, through], until an instant.

    ``after`` None: from the first id on. Until then the shard's holder leaves the range alone; the cursor row lists it.
    """

    bucket: Bucket
    after: str | None
    through: str
    until: datetime

    def to_map(self) -> dict[str, object]:
        return {
            "bucket": str(self.bucket),
            "after": self.after,
            "through": self.through,
            "until": format_instant(self.until),
        }

    def to_event(self) -> dict[str, object]:
        return {ENVELOPE: {"work": self.to_map()}}

    @classmethod
    def from_map(cls, inner: object, field: str) -> WorkOrder:
        """Raises InvalidInput, which names ``field``."""
        if not isinstance(inner, Mapping):
            raise InvalidInput(field, inner, "expected a map of bucket, after, through and until")
        after, through = inner.get("after"), inner.get("through")
        if after is not None and not isinstance(after, str):
            raise InvalidInput(f"{field}.after", after, "expected an id, or null")
        if not isinstance(through, str) or not through:
            raise InvalidInput(f"{field}.through", through, "expected an id")
        return cls(
            bucket=Bucket.parse(inner.get("bucket"), f"{field}.bucket"),
            after=after,
            through=through,
            until=parse_instant(inner.get("until"), f"{field}.until"),
        )


# -- reconcile order ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class ReconcileOrder:
    """A piece of the daily reconcile as data: read the table after an id; None: from its beginning.

    ``began_at``: which chain of invocations it belongs to.
    """

    began_at: datetime
    after: str | None = None

    def to_event(self) -> dict[str, object]:
        return {ENVELOPE: {"reconcile": True, "beganAt": format_instant(self.began_at), "after": self.after}}

    @classmethod
    def from_event(cls, inner: Mapping[str, object], now: datetime) -> ReconcileOrder:
        """Raises InvalidInput. ``inner``: the value of ``dynatick``. Without ``beganAt``, a chain begins ``now``."""
        began_at, after = inner.get("beganAt"), inner.get("after")
        if after is not None and (not isinstance(after, str) or not after):
            raise InvalidInput("event.dynatick.after", after, "expected an id, or null")
        return cls(began_at=now if began_at is None else parse_instant(began_at, "event.dynatick.beganAt"), after=after)


# -- wake up -----------------------------------------------------------------------------------------------------------

MAX_TASKS = 100
"""The limit for one wake-up: about what one process can claim and begin within a second."""

MAX_GAP = timedelta(seconds=1)
"""Between the instants of a wake-up: to wait longer would cost more than another wake-up, with its own wait."""

MAX_SPAN = timedelta(seconds=3)
"""The longest time from its first instant to its last: with the wait for the first, an invocation's time to begin
(engine/invocation.py)."""

MAX_BYTES = 48_000
"""The limit for the ids in one wake-up: SQS counts each 64 KB as a request."""

_KINDS = {attr.DUE_AT: "due", attr.NEXT_ATTEMPT_AT: "next"}
_ATTRIBUTES = {kind: name for name, kind in _KINDS.items()}


@dataclass(frozen=True, kw_only=True, slots=True)
class WakeUp:
    """A wake-up as data, for tasks of one bucket."""

    bucket: Bucket
    due: tuple[Due, ...]

    @property
    def at(self) -> datetime:
        """The first of its instants."""
        return min(due.at for due in self.due)

    def to_event(self) -> dict[str, object]:
        tasks = [[due.task_id, format_instant(due.at), _KINDS[due.by]] for due in self.due]
        return {ENVELOPE: {"wakeUp": {"bucket": str(self.bucket), "tasks": tasks}}}

    @classmethod
    def from_event(cls, inner: object) -> WakeUp:
        """Raises InvalidInput. ``inner``: the value of ``wakeUp``."""
        field = "event.dynatick.wakeUp"
        if not isinstance(inner, Mapping):
            raise InvalidInput(field, inner, "expected a map of bucket and tasks")
        bucket = Bucket.parse(inner.get("bucket"), f"{field}.bucket")
        tasks = inner.get("tasks")
        expected = "expected a list of [taskId, instant, due or next] that is not empty"
        if not isinstance(tasks, list) or not tasks:
            raise InvalidInput(f"{field}.tasks", tasks, expected)
        due: dict[str, Due] = {}
        for task in tasks:
            if (
                not isinstance(task, list)
                or len(task) != 3
                or not isinstance(task[0], str)
                or task[2] not in _ATTRIBUTES
            ):
                raise InvalidInput(f"{field}.tasks", task, expected)
            at = up_to_millisecond(parse_instant(task[1], f"{field}.tasks"))
            due[task[0]] = Due(at, task[0], _ATTRIBUTES[task[2]])
        return cls(bucket=bucket, due=tuple(sorted(due.values())))


@dataclass(frozen=True, kw_only=True, slots=True)
class TickOnTime:
    """A wake-up of a shard's pass, for what is due on the tick itself."""

    tick: int
    shard: int

    @property
    def at(self) -> datetime:
        return Bucket(self.tick).instant

    def to_event(self) -> dict[str, object]:
        return {ENVELOPE: {"wakeUp": {"tick": str(Bucket(self.tick)), "shard": self.shard}}}

    @classmethod
    def from_event(cls, inner: Mapping[str, object]) -> TickOnTime:
        """Raises InvalidInput. ``inner``: the value of ``wakeUp``."""
        tick = Bucket.parse(inner.get("tick"), "event.dynatick.wakeUp.tick").minute
        return cls(tick=tick, shard=check_count(inner.get("shard", 0), "event.dynatick.wakeUp.shard"))


AnyWakeUp = WakeUp | TickOnTime


def parse_wake_up(inner: object) -> AnyWakeUp:
    """The wake-up of an event. Raises InvalidInput."""
    return TickOnTime.from_event(inner) if isinstance(inner, Mapping) and "tick" in inner else WakeUp.from_event(inner)


def wake_ups_of(tasks: Iterable[tuple[Bucket, Due | None]], *, threads: int) -> Iterator[AnyWakeUp]:
    """Wake-ups of tasks: those of one bucket that follow closely together, in the order of their instants. None instead
    of an instant: what a pass of the bucket's tick is to run on time, such as a schedule.

    A process that waits costs as much for several tasks as for one. ``threads``: of a process; with one for each task,
    those of later seconds need not wait until earlier ones have ended.
    """
    group: list[Due] = []
    bucket: Bucket | None = None
    size = 0
    timed: list[tuple[Bucket, Due]] = []
    on_time: set[Bucket] = set()
    for of, one in tasks:
        if one is None:
            on_time.add(of)
        else:
            timed.append((of, one))
    for of, due in sorted(timed):
        length = size_in_event(due.task_id)
        if (
            group
            and bucket is not None
            and (of != bucket or not _joins(due, group, threads) or size + length > MAX_BYTES)
        ):
            yield WakeUp(bucket=bucket, due=tuple(group))
            group, size = [], 0
        group.append(due)
        bucket, size = of, size + length
    if group and bucket is not None:
        yield WakeUp(bucket=bucket, due=tuple(group))
    for of in sorted(on_time):
        yield TickOnTime(tick=of.minute, shard=of.shard)


def _joins(due: Due, group: Sequence[Due], threads: int) -> bool:
    """Whether a task may be in the wake-up of those before it."""
    span = due.at - group[0].at
    limit = MAX_TASKS if span < timedelta(seconds=1) else min(threads, MAX_TASKS)
    return len(group) < limit and span <= MAX_SPAN and due.at - group[-1].at <= MAX_GAP


def send_wake_ups(queue: WakeUps, wake_ups: Iterable[AnyWakeUp]) -> int:
    """Sends wake-ups. Returns how many the queue refused."""
    events = [(one.to_event(), one.at) for one in wake_ups]
    return queue.send(events) if events else 0

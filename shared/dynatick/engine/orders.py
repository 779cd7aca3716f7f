"""What an invocation is to do, as values, and the events that ask for it.

- A tick, as EventBridge sends it (``time``) or by hand: ``{"dynatick": {"tick": "2026-12-31#12:00"}}``.
- The shards after the first, both included, which a tick starts as a tree:
  ``{"dynatick": {"tick": …, "shards": [64, 255]}}``.
- One shard's pass, also as its own continuation:
  ``{"dynatick": {"tick": …, "shard": 3, "continuation": 1, "resume": {…}, "left": […]}}``.
- A recovery, which a pass starts for tasks whose lease expired:
  ``{"dynatick": {"recover": {"bucket": …, "taskIds": […]}}}``.
- A worker, for a range of ids: ``{"dynatick": {"work": {"bucket": …, "after": …, "through": …, "until": …}}}``.
- Releases that a table did not take: ``{"dynatick": {"release": [["order-7", "its token"]]}}``. That of a pack also
  says who has ended: ``["news/000000000-000000007", "its token", "3f/0/40"]``.
- A wake-up, in the body of the one message that its queue delivers: ``{"dynatick": {"wakeUp": …}}``.
- The daily reconcile, also as its own continuation:
  ``{"dynatick": {"reconcile": true, "beganAt": …, "after": "order-7"}}``.
  With neither, a new one begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TypeVar

from dynatick.domain import attributes as attr
from dynatick.domain.buckets import Bucket, minute_of
from dynatick.domain.instants import format_instant, optional_instant, parse_instant, up_to_millisecond, up_to_second
from dynatick.domain.packs import ENDED
from dynatick.domain.row import Due
from dynatick.domain.task import check_count
from dynatick.engine.ports import ENVELOPE, WakeUps, size_in_event
from dynatick.engine.rules import SKEW_MARGIN
from dynatick.errors import InvalidInput
from dynatick.json_reader import parse

MAX_ORDER_BYTES = 100_000
"""The limit for ids and tokens in an order, as JSON: an asynchronous invocation takes 256 KB."""

_EXPECTED = 'expected a scheduled event with its "time", or {"dynatick": {"tick": "2026-12-31#12:00"}}'
_Item = TypeVar("_Item")


def parts(items: Iterable[_Item], size_of: Callable[[_Item], int], *, max_items: int) -> Iterator[tuple[_Item, ...]]:
    """Items, in order, in parts that each fit into an order. ``size_of`` an item: its bytes there."""
    part: list[_Item] = []
    size = 0
    for item in items:
        more = size_of(item)
        if part and (len(part) == max_items or size + more > MAX_ORDER_BYTES):
            yield tuple(part)
            part, size = [], 0
        part.append(item)
        size += more
    if part:
        yield tuple(part)


def _map(value: object, field: str, names: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise InvalidInput(field, value, f"expected a map of {names}")
    return value


# -- passes ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Resume:
    """Where a continuation goes on: in this bucket, after this id (None: from its beginning)."""

    minute: int
    after: str | None = None

    def __lt__(self, other: Resume) -> bool:
        return (self.minute, self.after or "") < (other.minute, other.after or "")

    def to_map(self) -> dict[str, object]:
        return {"bucket": str(Bucket(self.minute)), "after": self.after}

    @classmethod
    def from_map(cls, value: object, field: str) -> Resume | None:
        """None: there is none. Raises InvalidInput, which names ``field``."""
        if value is None:
            return None
        values = _map(value, field, "bucket and after")
        after = values.get("after")
        return cls(Bucket.parse(values.get("bucket"), f"{field}.bucket").minute, None if after is None else str(after))


@dataclass(frozen=True, kw_only=True, slots=True)
class PassOrder:
    """Drain a shard. ``shard`` None: begin a tick, for all shards."""

    tick: int
    shard: int | None = None
    continuation: int = 0
    resume: Resume | None = None
    left: tuple[tuple[Bucket, str], ...] = ()  # entries before ``resume`` that could not be ended
    woken_at: datetime | None = None  # it begins tasks with limit keys that are due by then, before their tick
    swept: Resume | None = None  # through where the waiting tasks were searched for expired leases

    def to_event(self) -> dict[str, object]:
        inner: dict[str, object] = {
            "tick": str(Bucket(self.tick)),
            "shard": self.shard,
            "continuation": self.continuation,
        }
        for name, position in (("resume", self.resume), ("swept", self.swept)):
            if position is not None:
                inner[name] = position.to_map()
        if self.woken_at is not None:
            inner[attr.WOKEN_AT] = format_instant(self.woken_at)
        if self.left:
            inner["left"] = [[str(bucket), task_id] for bucket, task_id in self.left]
        return {ENVELOPE: inner}

    @classmethod
    def from_event(cls, inner: Mapping[str, object], tick: int, continuation: int, now: datetime) -> PassOrder:
        """Raises InvalidInput. ``inner``: the value of ``dynatick``."""
        shard, left, woken_at = inner.get("shard"), inner.get("left"), inner.get(attr.WOKEN_AT)
        left = [] if left is None else left
        if not isinstance(left, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in left):
            raise InvalidInput("event.dynatick.left", left, "expected a list of [bucket, taskId]")
        return cls(
            tick=tick,
            shard=None if shard is None else check_count(shard, "event.dynatick.shard"),
            continuation=continuation,
            resume=Resume.from_map(inner.get("resume"), "event.dynatick.resume"),
            left=tuple((Bucket.parse(bucket, "event.dynatick.left"), str(task_id)) for bucket, task_id in left),
            woken_at=None if woken_at is None else _come(woken_at, f"event.dynatick.{attr.WOKEN_AT}", now),
            swept=Resume.from_map(inner.get("swept"), "event.dynatick.swept"),
        )


@dataclass(frozen=True, slots=True)
class ShardsOrder:
    """Serve these shards of a tick, here or in further invocations."""

    tick: int
    shards: range

    def to_event(self) -> dict[str, object]:
        return {ENVELOPE: {"tick": str(Bucket(self.tick)), "shards": [self.shards[0], self.shards[-1]]}}

    @classmethod
    def from_event(cls, value: object, tick: int) -> ShardsOrder:
        """Raises InvalidInput. ``value``: of ``shards``."""
        field = "event.dynatick.shards"
        if not isinstance(value, list) or len(value) != 2:
            raise InvalidInput(field, value, "expected the first and the last shard, such as [64, 127]")
        first, last = (check_count(shard, field) for shard in value)
        if not 0 < first <= last:
            raise InvalidInput(field, value, "expected two whole numbers from 1 on, the lower one first")
        return cls(tick, range(first, last + 1))


# -- workers -----------------------------------------------------------------------------------------------------------


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
        values = _map(inner, field, "bucket, after, through and until")
        after, through = values.get("after"), values.get("through")
        if after is not None and not isinstance(after, str):
            raise InvalidInput(f"{field}.after", after, "expected an id, or null")
        if not isinstance(through, str) or not through:
            raise InvalidInput(f"{field}.through", through, "expected an id")
        return cls(
            bucket=Bucket.parse(values.get("bucket"), f"{field}.bucket"),
            after=after,
            through=through,
            until=parse_instant(values.get("until"), f"{field}.until"),
        )


# -- recoveries --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class RecoveryOrder:
    """A recovery as data: reclaim these tasks of one bucket.

    Those of an action with a rate limit run one after another: each starts the next of ``then``, and claims nothing
    after ``until``, when another may be started.
    """

    bucket: Bucket
    task_ids: tuple[str, ...]
    continuation: int = 0
    until: datetime | None = None
    then: tuple[RecoveryOrder, ...] = ()

    def to_event(self) -> dict[str, object]:
        recover: dict[str, object] = {"bucket": str(self.bucket), "taskIds": list(self.task_ids)}
        if self.until is not None:
            recover["until"] = format_instant(self.until)
        if self.then:
            recover["then"] = [{"bucket": str(order.bucket), "taskIds": list(order.task_ids)} for order in self.then]
        return {ENVELOPE: {"recover": recover, "continuation": self.continuation}}

    @classmethod
    def from_event(cls, inner: object, continuation: int) -> RecoveryOrder:
        """Raises InvalidInput. ``inner``: the value of ``recover``."""
        field = "event.dynatick.recover"
        bucket, task_ids = _tasks_in(inner, field)
        until, then = (inner.get("until"), inner.get("then", [])) if isinstance(inner, Mapping) else (None, [])
        if not isinstance(then, list):
            raise InvalidInput(f"{field}.then", then, "expected a list of maps of bucket and taskIds")
        return cls(
            bucket=bucket,
            task_ids=task_ids,
            continuation=continuation,
            until=optional_instant(until, f"{field}.until"),
            then=tuple(
                cls(bucket=bucket, task_ids=ids) for bucket, ids in (_tasks_in(one, f"{field}.then") for one in then)
            ),
        )

    def next(self, left: Sequence[str]) -> RecoveryOrder | None:
        """What is to follow if these are left; None: nothing."""
        if left:
            return replace(self, task_ids=tuple(left), continuation=self.continuation + 1)
        if not self.then:
            return None
        following, *rest = self.then
        return replace(following, continuation=self.continuation + 1, until=self.until, then=tuple(rest))


def _tasks_in(value: object, field: str) -> tuple[Bucket, tuple[str, ...]]:
    values = _map(value, field, "bucket and taskIds")
    ids = values.get("taskIds")
    if not isinstance(ids, list) or not all(isinstance(task_id, str) and task_id for task_id in ids):
        raise InvalidInput(f"{field}.taskIds", ids, "expected a list of ids")
    return Bucket.parse(values.get("bucket"), f"{field}.bucket"), tuple(dict.fromkeys(ids))


# -- releases ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReleaseOrder:
    """Release these tasks, unless they were claimed anew: each with the token of the claim that was not begun, and a
    pack with its members that have ended since (``Pack.ended``)."""

    claims: tuple[tuple[str, ...], ...]

    def to_event(self) -> dict[str, object]:
        return {ENVELOPE: {"release": [list(claim) for claim in self.claims]}}

    @classmethod
    def from_event(cls, value: object) -> ReleaseOrder:
        """Raises InvalidInput. ``value``: of ``release``."""
        expected = "expected a list of [taskId, token], of a pack [taskId, token, ended]"
        if not isinstance(value, list):
            raise InvalidInput("event.dynatick.release", value, expected)
        for claim in value:
            is_claim = isinstance(claim, list) and len(claim) in (2, 3) and {*map(type, claim)} == {str}
            if not is_claim or not all(map(ENDED.fullmatch, claim[2:])):
                raise InvalidInput("event.dynatick.release", claim, expected)
        return cls(tuple(map(tuple, value)))


# -- the reconcile -----------------------------------------------------------------------------------------------------


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


# -- wake-ups ----------------------------------------------------------------------------------------------------------

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
    """Run tasks of one bucket, each at the instant that it is named with (18).

    One that is lost, late, doubled or stale harms nothing: the tick runs what no wake-up ran.
    """

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
        values = _map(inner, field, "bucket and tasks")
        bucket = Bucket.parse(values.get("bucket"), f"{field}.bucket")
        tasks = values.get("tasks")
        expected = "expected a list of [taskId, instant, due or next] that is not empty"
        if not isinstance(tasks, list) or not tasks:
            raise InvalidInput(f"{field}.tasks", tasks, expected)
        due: dict[str, Due] = {}
        for task in tasks:
            is_task = isinstance(task, list) and len(task) == 3 and isinstance(task[0], str)
            if not is_task or task[2] not in _ATTRIBUTES:
                raise InvalidInput(f"{field}.tasks", task, expected)
            at = up_to_millisecond(parse_instant(task[1], f"{field}.tasks"))
            due[task[0]] = Due(at, task[0], _ATTRIBUTES[task[2]])
        return cls(bucket=bucket, due=tuple(sorted(due.values())))


@dataclass(frozen=True, kw_only=True, slots=True)
class PassOnTime:
    """A wake-up of a shard's pass, for what only a pass may run: what is due on the tick itself, and before it, tasks
    with limit keys."""

    tick: int
    shard: int
    before: datetime | None = None  # the tick, when such tasks are due

    @property
    def at(self) -> datetime:
        return self.before or Bucket(self.tick).instant

    def to_event(self) -> dict[str, object]:
        before = {} if self.before is None else {"before": format_instant(self.before)}
        return {ENVELOPE: {"wakeUp": {"tick": str(Bucket(self.tick)), "shard": self.shard} | before}}

    @classmethod
    def from_event(cls, inner: Mapping[str, object]) -> PassOnTime:
        """Raises InvalidInput. ``inner``: the value of ``wakeUp``."""
        field, before = "event.dynatick.wakeUp", inner.get("before")
        return cls(
            tick=Bucket.parse(inner.get("tick"), f"{field}.tick").minute,
            shard=check_count(inner.get("shard", 0), f"{field}.shard"),
            before=optional_instant(before, f"{field}.before"),
        )


AnyWakeUp = WakeUp | PassOnTime


def parse_wake_up(inner: object) -> AnyWakeUp:
    """The wake-up of an event. Raises InvalidInput."""
    return PassOnTime.from_event(inner) if isinstance(inner, Mapping) and "tick" in inner else WakeUp.from_event(inner)


def wake_ups_of(tasks: Iterable[tuple[Bucket, Due | datetime]], *, threads: int) -> Iterator[AnyWakeUp]:
    """Wake-ups of tasks: those of one bucket that follow closely together, in the order of their instants. A datetime:
    when a pass is to run something, such as a schedule at the bucket's tick; one pass for each second.

    A process that waits costs as much for several tasks as for one. ``threads``: of a process; with one for each task,
    those of later seconds need not wait until earlier ones have ended.
    """
    group: list[Due] = []
    bucket: Bucket | None = None
    size = 0
    timed: list[tuple[Bucket, Due]] = []
    passes: set[tuple[Bucket, datetime]] = set()
    for of, one in tasks:
        if isinstance(one, Due):
            timed.append((of, one))
        else:
            passes.add((of, min(up_to_second(one), of.instant)))
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
    for of, at in sorted(passes):
        yield PassOnTime(tick=of.minute, shard=of.shard, before=None if at == of.instant else at)


def _joins(due: Due, group: Sequence[Due], threads: int) -> bool:
    """Whether a task may be in the wake-up of those before it."""
    span = due.at - group[0].at
    limit = MAX_TASKS if span < timedelta(seconds=1) else min(threads, MAX_TASKS)
    return len(group) < limit and span <= MAX_SPAN and due.at - group[-1].at <= MAX_GAP


def send_wake_ups(queue: WakeUps, wake_ups: Iterable[AnyWakeUp]) -> int:
    """Sends wake-ups. Returns how many the queue refused."""
    events = [(one.to_event(), one.at) for one in wake_ups]
    return queue.send(events) if events else 0


# -- events ------------------------------------------------------------------------------------------------------------

Order = PassOrder | ShardsOrder | RecoveryOrder | WorkOrder | ReleaseOrder | ReconcileOrder | AnyWakeUp


def parse_event(event: object, now: datetime) -> Order:
    """The order that an event holds. Raises InvalidInput, also for a tick in the future: its tasks would run early."""
    if is_message(event):
        return _wake_up_in(event)
    if not isinstance(event, Mapping):
        raise InvalidInput("event", event, _EXPECTED)
    inner = event.get(ENVELOPE)
    if inner is None:
        if event.get("time") is None:
            raise InvalidInput("event.time", None, _EXPECTED)
        return PassOrder(tick=_not_ahead(minute_of(parse_instant(event["time"], "event.time")), event["time"], now))
    if not isinstance(inner, Mapping):
        raise InvalidInput("event.dynatick", inner, _EXPECTED)
    if inner.get("reconcile"):
        return ReconcileOrder.from_event(inner, now)
    continuation = check_count(inner.get("continuation", 0), "event.dynatick.continuation")
    if "wakeUp" in inner:
        return parse_wake_up(inner["wakeUp"])
    if "release" in inner:
        return ReleaseOrder.from_event(inner["release"])
    if "recover" in inner:
        return RecoveryOrder.from_event(inner["recover"], continuation)
    if "work" in inner:
        order = WorkOrder.from_map(inner["work"], "event.dynatick.work")
        _not_ahead(order.bucket.minute, str(order.bucket), now)
        return order
    tick = _not_ahead(Bucket.parse(inner.get("tick"), "event.dynatick.tick").minute, inner.get("tick"), now)
    if "shards" in inner:
        return ShardsOrder.from_event(inner["shards"], tick)
    return PassOrder.from_event(inner, tick, continuation, now)


def is_message(event: object) -> bool:
    """Whether an event is a delivery of a queue."""
    return isinstance(event, Mapping) and isinstance(event.get("Records"), list)


def _wake_up_in(delivery: object) -> AnyWakeUp:
    """The wake-up in the one message of a delivery. Raises InvalidInput for anything else: it comes from a queue."""
    records: Sequence[object] = delivery["Records"] if isinstance(delivery, Mapping) else []
    (record,) = records if len(records) == 1 else (None,)
    body = record.get("body") if isinstance(record, Mapping) else None
    expected = 'expected {"dynatick": {"wakeUp": …}} as JSON'
    try:
        event = parse(body) if isinstance(body, str) else None
    except ValueError:
        raise InvalidInput("event.Records.body", body, expected) from None
    inner = event.get(ENVELOPE) if isinstance(event, Mapping) else None
    if not isinstance(inner, Mapping) or "wakeUp" not in inner:
        raise InvalidInput("event.Records.body", body, expected)
    return parse_wake_up(inner["wakeUp"])


def _come(value: object, field: str, now: datetime) -> datetime:
    at = parse_instant(value, field)
    if at > now + SKEW_MARGIN:
        raise InvalidInput(field, value, "expected an instant that is not in the future: tasks would run early")
    return at


def _not_ahead(tick: int, value: object, now: datetime) -> int:
    if tick > minute_of(now + SKEW_MARGIN):
        raise InvalidInput("event.time", value, "expected a tick that is not in the future: its tasks would run early")
    return tick

"""Limits by key: only the process that has the limits lease runs the shard's tasks with one (protocol 23, 24).

So that process alone counts them, in memory. The lease lasts to the hard end of the process, where Lambda ends it, and
is released when none of these tasks runs any more: two writes for a pass, whatever it runs. If the process is killed,
the next holder waits for that end.

It is in a row of its own, the *limits record*, with what the next holder must know: the tasks that wait for a
completion, which keep their places, and from when on the next task of a key may begin by its rate.

A task begins if its key has a *place* for it; else it waits its turn in the index, and a few of each key in memory, by
their ids alone. Keys take turns: one that is saturated delays no other.

A pack waits for its turn as a task does, and has a place only until it is claimed: then it is *open*, and its members
take places, each under its own id. A key alternates between its tasks and its open pack.
"""

from __future__ import annotations

import heapq
import threading
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import count, islice

from dynatick.domain import attributes as attr
from dynatick.domain.buckets import Bucket
from dynatick.domain.conditional_update import ConditionalUpdate, Is, Unknown, Written, as_read
from dynatick.domain.instants import EPOCH, format_instant, optional_instant, optional_text, parse_instant
from dynatick.domain.limit_keys import KeyLimit, KeyLimits, class_of
from dynatick.domain.packs import may_be_pack
from dynatick.domain.row import RowView
from dynatick.domain.task import SYSTEM_PREFIX, Row, Status, Task, check_count, own_row
from dynatick.engine.claims import LONGEST_LEASE
from dynatick.engine.conditional_write import change_row, write
from dynatick.engine.orders import Resume
from dynatick.engine.ports import Clock, Store
from dynatick.engine.rules import SKEW_MARGIN
from dynatick.engine.settings import InstallationSettings, read_settings
from dynatick.errors import DynatickError, InvalidInput, StoreError

# -- the lease ---------------------------------------------------------------------------------------------------------

MAX_HELD_BYTES = 200_000
"""Of the tasks of a shard that wait for a completion and keep their places: about 1,400."""

MAX_STARTS, MAX_STARTS_BYTES = 1000, 150_000
"""Keys of which the record says from when on their next task may begin; if there are more, all wait an interval. With
what is held, they fit into a row."""

_NEVER = timedelta(hours=1)  # from now: this process does not get it
_HELD = (attr.STATUS, attr.OUTCOME, attr.LEASE)


def limits_id(shard: int) -> str:
    return f"{SYSTEM_PREFIX}limits#{shard}"


def size_of_held(task_id: str, key: str) -> int:
    return len(task_id.encode()) + len(key.encode()) + 100


@dataclass(frozen=True, slots=True)
class Held:
    """A task that waits for a completion, and keeps the place of its key."""

    task_id: str
    key: str
    lease: str | None  # the token of its claim

    def to_map(self) -> dict[str, object]:
        return {attr.TASK_ID: self.task_id, attr.LIMIT_KEY: self.key, attr.LEASE: self.lease}

    def is_held(self, row: Row | None) -> bool:
        """Whether it still waits, as its row says, or is about to: the record of that may be under way."""
        return (
            row is not None
            and row.get(attr.OUTCOME) is None
            and row.get(attr.STATUS) in (Status.WAITING, Status.RUNNING)
            and row.get(attr.LEASE) == self.lease
        )

    @property
    def size(self) -> int:
        return size_of_held(self.task_id, self.key)


@dataclass(frozen=True, kw_only=True, slots=True)
class LimitsRecord:
    """A limits record, understood."""

    shard: int
    version: int = 0
    lease: str | None = None
    lease_until: datetime | None = None
    shard_count: int = 0  # by which its holder knows the shards of keys
    held: tuple[Held, ...] = ()
    starts: Mapping[str, datetime] = field(default_factory=dict)  # from when on the next task may begin, by key
    began_until: datetime = EPOCH  # since then no task has begun whose key is not in ``starts``

    def is_leased(self, now: datetime) -> bool:
        """Whether a process has the lease, and may still run."""
        return self.lease is not None and self.lease_until is not None and now <= self.lease_until + SKEW_MARGIN

    def to_row(self) -> dict[str, object]:
        return {
            **own_row("limits"),
            attr.VERSION: self.version,
            attr.LEASE: self.lease,
            attr.LEASE_UNTIL: optional_text(self.lease_until),
            attr.SHARD_COUNT: self.shard_count,
            attr.HELD: [one.to_map() for one in self.held],
            attr.STARTS: {key: format_instant(at) for key, at in self.starts.items()},
            attr.BEGAN_UNTIL: format_instant(self.began_until),
        }

    @classmethod
    def from_row(cls, shard: int, row: Row | None) -> LimitsRecord:
        """Raises InvalidInput for a row that no process has written."""
        if row is None:
            return cls(shard=shard)
        lease, until, held, starts = (row.get(n) for n in (attr.LEASE, attr.LEASE_UNTIL, attr.HELD, attr.STARTS))
        return cls(
            shard=shard,
            version=check_count(row.get(attr.VERSION), attr.VERSION),
            lease=None if lease is None else str(lease),
            lease_until=optional_instant(until, attr.LEASE_UNTIL),
            shard_count=check_count(row.get(attr.SHARD_COUNT), attr.SHARD_COUNT),
            held=tuple(_held(one) for one in held) if isinstance(held, list) else (),
            starts={str(key): parse_instant(at, attr.STARTS) for key, at in starts.items()}
            if isinstance(starts, Mapping)
            else {},
            began_until=parse_instant(row.get(attr.BEGAN_UNTIL), attr.BEGAN_UNTIL),
        )


def _held(value: object) -> Held:
    if not isinstance(value, Mapping):
        raise InvalidInput(attr.HELD, value, "expected a list of maps")
    lease = value.get(attr.LEASE)
    return Held(str(value.get(attr.TASK_ID)), str(value.get(attr.LIMIT_KEY)), None if lease is None else str(lease))


@dataclass(frozen=True, slots=True)
class HeldElsewhere:
    """Another process has the lease, or one that would not know it. ``until``: its end at the latest."""

    until: datetime


class LimitsLease:
    """The lease of one shard, as one process has it. Any thread may call ``hold``; the coordinator calls the rest.

    Every method raises StoreError if the table doesn't answer; the lease then ends by itself.
    """

    def __init__(
        self, store: Store, clock: Clock, settings: InstallationSettings, shard: int, *, token: str, until: datetime
    ) -> None:
        """``until``: the hard end of this process."""
        self._store, self._clock, self._settings = store, clock, settings
        self._shard, self._token, self._until = shard, token, until
        self._lock, self._writes = threading.Lock(), count()
        self._record: LimitsRecord | None = None
        self.starts: Mapping[str, datetime] = {}  # what the last holder left
        self.began_until = EPOCH  # likewise
        self.held: dict[str, Held] = {}  # tasks of this shard's keys that wait for a completion, by id

    @property
    def is_held(self) -> bool:
        return self._record is not None

    def acquire(self) -> HeldElsewhere | None:
        """Acquires it, by one write. None: it is held.

        A process with other settings may see a key's tasks in another shard (24). Each of two such processes writes its
        lease, and then reads the number of shards, or all leases: at least one of them sees the other, and gives up.
        """
        now = self._clock()

        def decide(row: Row | None) -> tuple[LimitsRecord | HeldElsewhere, ConditionalUpdate | None]:
            try:
                record = LimitsRecord.from_row(self._shard, row)
            except InvalidInput:  # changed by hand: only tasks with keys wait, and the doctor says so
                return HeldElsewhere(now + _NEVER), None
            if record.lease == self._token:
                return record, None  # only the answer was lost
            if record.is_leased(now):
                assert record.lease_until is not None
                return HeldElsewhere(record.lease_until), None
            return self._update(
                record,
                replace(
                    record,
                    lease=self._token,
                    lease_until=self._until,
                    shard_count=self._settings.grid.shard_count,
                    # Its last holder died, and may have begun tasks of any key until its end.
                    began_until=record.began_until if record.lease_until is None else record.lease_until,
                    starts=record.starts if record.lease is None else {},
                ),
            )

        found = change_row(self._store, limits_id(self._shard), f"acquire the limits of shard {self._shard}", decide)
        if isinstance(found, HeldElsewhere):
            return found
        self._record, self.held = found, {one.task_id: one for one in found.held}
        others = self._others()
        if isinstance(others, HeldElsewhere):
            self.release({})
            return others
        starts = dict(found.starts)
        for record in others:
            self.held |= {one.task_id: one for one in record.held}
            starts |= {key: max(at, starts.get(key, at)) for key, at in record.starts.items()}
        self.starts, self.began_until = starts, max(record.began_until for record in (found, *others))
        self.look_at_held()
        return None

    def _others(self) -> Sequence[LimitsRecord] | HeldElsewhere:
        """The other shards' records, with what they know of this shard's keys: after the number of shards has
        changed."""
        present = read_settings(self._store)
        if present is None or present.grid.shard_count != self._settings.grid.shard_count:
            return HeldElsewhere(self._clock() + _NEVER)
        if present.shard_count_since is None:
            return ()
        ids = {limits_id(shard): shard for shard in range(present.shards_ever) if shard != self._shard}
        rows = self._store.get_many(ids)
        try:
            records = [LimitsRecord.from_row(ids[task_id], row) for task_id, row in rows.items()]
        except InvalidInput:
            return HeldElsewhere(self._clock() + _NEVER)
        now, count = self._clock(), self._settings.grid.shard_count
        until = [one.lease_until for one in records if one.is_leased(now) and one.shard_count != count]
        if until:
            return HeldElsewhere(max(at for at in until if at is not None))
        return [self._of_my_keys(record, present.shard_count_since) for record in records]

    def _of_my_keys(self, record: LimitsRecord, since: datetime) -> LimitsRecord:
        """``since``: when the number of shards changed. A process that knew another one has ended soon after."""
        grid = self._settings.grid
        is_other = record.lease is not None and record.shard_count != grid.shard_count
        until = (record.lease_until if is_other else None) or record.began_until
        return replace(
            record,
            held=tuple(one for one in record.held if grid.shard_of(one.key) == self._shard),
            starts={key: at for key, at in record.starts.items() if grid.shard_of(key) == self._shard},
            began_until=until if until <= since + LONGEST_LEASE else EPOCH,
        )

    def look_at_held(self, handed_over: Collection[str] | None = None) -> Collection[str]:
        """Reads the tasks that wait for a completion; of this process's own, those that are ``handed_over``: before, a
        member of a pack has no row. Returns the ids of those that don't wait any more, which are forgotten."""
        looked_at = {i: one for i, one in self.held.items() if handed_over is None or i in handed_over}
        rows = self._store.get_many(looked_at, only=_HELD)
        ended = [task_id for task_id, one in looked_at.items() if not one.is_held(rows.get(task_id))]
        for task_id in ended:
            del self.held[task_id]
        return ended

    def hold(self, tasks: Sequence[Task]) -> bool:
        """Writes that these keep their places when this process has ended, before they are handed over. False: the
        record would be too large."""
        with self._lock:
            record = self._record
            if record is None:
                raise StoreError(f"the limits of shard {self._shard} are not held")
            new = {task.task_id: Held(task.task_id, str(task.limit_key), task.lease) for task in tasks}
            held = {**self.held, **new}
            if sum(one.size for one in held.values()) > MAX_HELD_BYTES:
                return False
            self._record = self._save(record, replace(record, held=tuple(held.values())))
            self.held = held
            return True

    def release(self, starts: Mapping[str, datetime]) -> None:
        """Releases it: none of its tasks runs any more. ``starts``: by key, from when on the next task may begin."""
        with self._lock:
            record, self._record = self._record, None
        if record is None:
            return
        now = self._clock()
        left = {key: at for key, at in {**record.starts, **starts}.items() if at > now}
        is_too_much = len(left) > MAX_STARTS or sum(len(key.encode()) + 30 for key in left) > MAX_STARTS_BYTES
        self._save(
            record,
            replace(
                record,
                lease=None,
                lease_until=None,
                held=tuple(self.held.values()),
                starts={} if is_too_much else left,
                began_until=now if is_too_much else record.began_until,
            ),
        )

    def _save(self, record: LimitsRecord, new: LimitsRecord) -> LimitsRecord:
        new, change = self._update(record, new)
        result = write(self._store, change)
        if not isinstance(result, Written):
            problem = result.error if isinstance(result, Unknown) else "another process has"
            raise StoreError(f"cannot write the limits of shard {self._shard}: {problem}")
        return new

    def _update(self, record: LimitsRecord, new: LimitsRecord) -> tuple[LimitsRecord, ConditionalUpdate]:
        new = replace(new, version=record.version + 1)
        # Of this write alone: an earlier one of this version may have taken effect, though no answer came.
        writer = f"{self._token}/{next(self._writes)}"
        there = {attr.VERSION: record.version} if record.version else {}
        return new, ConditionalUpdate(
            task_id=limits_id(self._shard),
            set={**new.to_row(), attr.WRITTEN_BY: writer},
            conditions=as_read(there, attr.VERSION),
            mark=(Is(attr.VERSION, new.version), Is(attr.WRITTEN_BY, writer)),
        )


# -- turns -------------------------------------------------------------------------------------------------------------

MAX_WAITING_OF_KEY = 100
MAX_WAITING = 10_000
FEW = 20
"""A key of which fewer wait in memory is read on, if the index has more."""

MANY_KEYS = 1000
"""If this many may have a turn, a poll waits until there is room: it would find nothing that could begin earlier."""

MAX_WAITING_PACKS, FEW_PACKS = 20, 5
"""The same two, for the packs of a key."""

MAX_OPEN_PACKS = 20
"""Packs with limit keys that are open at once: the payloads of each are in memory, a megabyte of JSON at most."""

MEASURED = 10  # tasks, after which it is known how long those of a key take

AHEAD = timedelta(seconds=2)
"""What may begin within this time by its rate is claimed: it waits without a thread."""

MAX_HANDOVER = timedelta(seconds=30)
"""How long a pass waits for the lease of a process that is about to end."""

_TRY_AGAIN = timedelta(seconds=1)
_NONE = timedelta()


@dataclass(slots=True, eq=False)
class Turns:
    """Who may begin, for an invocation that runs tasks. This is for one that doesn't hold a shard: it runs nothing that
    has a limit."""

    limits: KeyLimits

    def admits(self, task: Task) -> bool:
        """Whether a claimed task may begin. It then has a place of its key until it is ``freed``."""
        return not self.is_limited(task.limit_key)

    def may_admit(self, row: Row) -> bool:
        """Whether that can be, before it is claimed."""
        return not self.is_limited(RowView(row).limit_key)

    def seconds_to_wait(self, task: Task) -> float:
        """Called when it is about to begin, by any thread: 0, or how long its rate lets it wait."""
        return 0.0

    def keep_start(self, task: Task, seconds: float) -> None:
        """Called when its rate let it begin and that of its action lets it wait, by any thread: it comes again after
        so long, and begins then."""

    def is_limited(self, key: str | None) -> bool:
        """Whether tasks with this limit key have a limit."""
        return key is not None and class_of(key) in self.limits

    def opens(self, pack: Task) -> bool:
        """Whether members of a claimed pack may take turns here. Then its key has no other open pack until it is
        ``freed``."""
        return self.admits(pack)

    def begins_member(self, pack: Task, member_id: str, *, tasks_may: bool) -> bool:
        """Whether a member of an open pack may begin. It then has a place until it is ``freed``. ``tasks_may``: tasks
        of its key could begin, too."""
        return False

    def may_go_on(self, pack: Task, member_id: str) -> bool:
        """Whether a task of the key of an open pack runs, or this member of it can begin: then it waits not in vain."""
        return False

    def freed(self, task: Task) -> None:
        """It has ended, or won't begin."""

    def is_handed_over(self, task: Task) -> None:
        """It waits for a completion, and keeps its place."""

    def hold(self, tasks: Sequence[Task]) -> bool:
        """These are about to be handed over, and keep their places. False: there is no room to note that."""
        return True


@dataclass(slots=True, eq=False)
class Line:
    """Entries of a key that wait: its tasks, or its packs."""

    key: str
    maximum: int = MAX_WAITING_OF_KEY
    few: int = FEW  # if fewer wait, it is read on
    waiting: list[tuple[Bucket, str]] = field(default_factory=list)


@dataclass(slots=True)
class _Key:
    """What is known of one key."""

    name: str
    limit: KeyLimit
    free_at: datetime  # from when on its next task may begin, by its rate
    tasks: Line
    start_of: str | None = None  # the id of the task from whose start ``free_at`` is counted
    is_kept: bool = False  # that task waits for the rate of its action
    packs: Line | None = None  # as soon as it has some
    pack: str | None = None  # the id of the one that is open, or is being claimed
    is_turn_of_pack: bool = False  # a task has begun since its pack had a turn
    taken: int = 0  # places
    unbegun: int = 0  # of them, for tasks that have not begun; of a key with a rate
    since: datetime | None = None  # when the first task got a place here
    ended: int = 0  # tasks, since then
    is_ready: bool = False  # it is in the list of those that may have a turn

    @property
    def lines(self) -> Sequence[Line]:
        return (self.tasks,) if self.packs is None else (self.tasks, self.packs)

    def line_of(self, task_id: str) -> Line:
        """That in which an entry waits."""
        if not may_be_pack(task_id):
            return self.tasks
        if self.packs is None:
            self.packs = Line(self.name, MAX_WAITING_PACKS, FEW_PACKS)
        return self.packs

    @property
    def has_rate(self) -> bool:
        return bool(self.limit.interval)

    def has_waiting(self) -> bool:
        """Whether an entry waits that may have a turn."""
        return bool(self.tasks.waiting) or (self.packs is not None and self.pack is None and bool(self.packs.waiting))

    def has_place(self) -> bool:
        return self.limit.at_once is None or self.taken < self.limit.at_once

    def next_at(self, now: datetime) -> datetime:
        """When a further task may begin."""
        if not self.has_rate:
            return now
        return max(self.free_at, now) + self.unbegun * self.limit.interval


class KeyTurns(Turns):
    """The turns of a shard, for the pass that holds it. The coordinator calls everything but ``seconds_to_wait``,
    ``keep_start`` and ``hold``."""

    def __init__(self, limits: KeyLimits, lease: LimitsLease, clock: Clock, *, in_one_thread: bool = False) -> None:
        super().__init__(limits)
        self._lease, self._clock = lease, clock
        self._ahead = _NONE if in_one_thread else AHEAD
        self._in_one_thread = in_one_thread
        self._keys: dict[str, _Key] = {}
        self._skipped: dict[Line, Resume] = {}  # from where on its entries were passed over for want of room
        self._ready: deque[_Key] = deque()
        self._timed: list[tuple[datetime, int, _Key]] = []  # a heap: keys whose rate lets them wait
        self._order = count()
        self._places: dict[str, _Key] = {}  # by the ids of the tasks that have one
        self._begun: set[str] = set()  # ids of those that have begun, of keys with a rate
        self._waiting: set[tuple[Bucket, str]] = set()
        self._taken: dict[str, Bucket] = {}  # entries whose turn it was, until their claims are answered, by id
        self._own: dict[str, Bucket] = {}  # entries of tasks that have places, since they wait for completions
        self._held: set[str] = set()  # ids of those that wait for a completion
        self._packs: dict[str, _Key] = {}  # by the ids of the packs that are open, or are being claimed
        self._without_room: dict[str, _Key] = {}  # keys whose packs wait until another key's pack is freed, in order
        self._bytes = 0  # of the limits record, if all that have places were handed over
        self._handing_over: set[str] = set()  # classes of keys whose tasks are handed over
        self._kept_out: dict[str, _Key] = {}  # keys whose tasks wait until there is room in the record, in order
        self._is_over = False
        self._rates = threading.Lock()
        self._try_at = EPOCH  # not before, for the lease
        self._elsewhere: HeldElsewhere | None = None
        self.fault: DynatickError | None = None
        self.passed_over: set[int] = set()  # minutes of the buckets with entries that another process may begin

    # -- what waits ------------------------------------------------------------------------------------------------

    @property
    def is_held(self) -> bool:
        """Whether this process has the limits lease."""
        return self._lease.is_held

    def is_limited(self, key: str | None) -> bool:
        return (key is not None and key in self._keys) or super().is_limited(key)

    def knows(self, bucket: Bucket, task_id: str) -> bool:
        """Whether an entry waits here, or is being claimed."""
        return (
            (bucket, task_id) in self._waiting or self._taken.get(task_id) == bucket or self._own.get(task_id) == bucket
        )

    def has_place(self, task_id: str) -> bool:
        return task_id in self._places

    def offer(self, bucket: Bucket, task_id: str, key: str, *, is_closed: bool = True) -> bool:
        """Lets an entry wait for its turn here. False: it stays in the index, for a later poll. ``is_closed``: so is
        its bucket; else it is not read on for the key, since what it lists may not be due yet."""
        if not self._has_lease():
            self.passed_over.add(bucket.minute)
            return False
        known = self._key(key)
        if task_id in self._places:
            if not is_closed or task_id not in self._held or task_id in self._own or task_id in self._taken:
                return False  # a lagging index lists it in two buckets: the task itself may lie in this one
            self._own[task_id] = bucket  # is it overdue? A claim shows it
            return True
        if task_id in self._packs:
            return False  # likewise
        line = known.line_of(task_id)
        if len(line.waiting) >= line.maximum or len(self._waiting) >= MAX_WAITING:
            if is_closed:
                self._skip(line, Resume(bucket.minute, task_id[:-1] or None))
            return False
        entry = (bucket, task_id)
        line.waiting.append(entry)
        self._waiting.add(entry)
        self._may_have_turn(known)
        return True

    def take(self, number: int) -> list[tuple[Bucket, str]]:
        """Up to this many entries whose turn it is. Each has a place from now on, until it is freed; a pack, until it
        is open. Of a key with an open pack, one: its next turn is the pack's."""
        now = self._clock()
        taken = [(bucket, task_id) for task_id, bucket in islice(self._own.items(), number)]
        for _, task_id in taken:
            del self._own[task_id]
        while self._timed and self._timed[0][0] <= now + self._ahead:
            self._ready.append(heapq.heappop(self._timed)[2])
        alternating: list[_Key] = []
        while self._ready and len(taken) < number:
            key = self._ready.popleft()
            key.is_ready = False
            line, entry = self._next_of(key)
            if entry is None or not key.has_place():
                continue
            if not self._has_room(key, entry[1]):
                self._kept_out[key.name] = key
                continue
            if (at := key.next_at(now)) > now + self._ahead:
                key.is_ready = True
                heapq.heappush(self._timed, (at, next(self._order), key))
                continue
            line.waiting.remove(entry)
            self._waiting.discard(entry)
            self._give_place(key, entry[1])
            taken.append(entry)
            key.is_turn_of_pack = line is key.tasks
            if line is key.packs:
                key.pack, self._packs[entry[1]] = entry[1], key
            if key.pack is None:
                self._may_have_turn(key)
            else:
                alternating.append(key)
        for key in alternating:
            self._may_have_turn(key)
        self._taken |= {task_id: bucket for bucket, task_id in taken}
        return taken

    def _next_of(self, key: _Key) -> tuple[Line, tuple[Bucket, str] | None]:
        """The entry whose turn it is, and its line; None: there is none."""
        task = self._next_task(key)
        if key.packs is None or not key.packs.waiting or key.pack is not None:
            return key.tasks, task
        if len(self._packs) >= MAX_OPEN_PACKS:
            self._without_room[key.name] = key
            return key.tasks, task
        return (key.tasks, task) if task is not None and not key.is_turn_of_pack else (key.packs, key.packs.waiting[0])

    def _next_task(self, key: _Key) -> tuple[Bucket, str] | None:
        for one in key.tasks.waiting:
            if one[1] not in self._places:
                return one
        return None

    @property
    def has_turn(self) -> bool:
        """Whether ``take`` may return something."""
        return bool(self._own or self._ready) or bool(self._timed and self._timed[0][0] <= self._clock() + self._ahead)

    def is_crowded(self, entries: int) -> bool:
        """Whether many keys may have a turn, and there is no room for this many entries."""
        return len(self._waiting) + entries > MAX_WAITING and len(self._ready) >= MANY_KEYS

    def leave(self) -> tuple[list[tuple[Bucket, str]], Resume | None]:
        """Lets nothing wait any more. Returns the entries that did, and from where on others were passed over."""
        own = [(bucket, task_id) for task_id, bucket in self._own.items()]
        left = [*own, *(entry for line in self._lines() for entry in line.waiting)]
        skipped = min(self._skipped.values(), default=None)
        self._skipped.clear()
        for line in self._lines():
            line.waiting.clear()
        self._own.clear()
        self._waiting.clear()
        return left, skipped

    def goes_on_until(self, latest: datetime) -> bool:
        """Whether its pass should stay: a task runs, or can begin by then, or a pack is open."""
        if self._elsewhere is not None and not self._lease.is_held:
            return not self._in_one_thread and self._elsewhere.until - self._clock() < MAX_HANDOVER
        runs = len(self._places) > len(self._held) or bool(self._own or self._packs)
        if self._in_one_thread:
            return runs or self.has_turn
        return runs or bool(self._ready) or any(at <= latest for at, _, _ in self._timed)

    def begins_anew(self) -> bool:
        """Whether the lease that another process had is held now. Tries it again, if that is due."""
        if self._elsewhere is None or self._lease.is_held:
            return False
        return self._has_lease()

    # -- reading on ------------------------------------------------------------------------------------------------

    def to_read_on(self) -> tuple[str, Resume] | None:
        """A key of which few wait here, and from where on the index may have more of it; None: there is none, or too
        little room. Each reading fills the room with what it finds of any key. So a key of which none waits is read on
        once as many have begun as have a turn before it: in the index it waits no longer than it would here."""
        room, half = MAX_WAITING - len(self._waiting), MAX_WAITING // 2
        if room < max(MAX_WAITING_OF_KEY, min(len(self._ready), half)):
            return None
        short = [one for one in self._skipped if (len(one.waiting) < one.few if room >= half else not one.waiting)]
        line = min(short, key=lambda one: len(one.waiting), default=None)
        if line is None:
            return None
        return line.key, self._skipped[line]

    def begin_to_offer(self, since: Resume, through: Resume | None) -> Sequence[Line]:
        """Entries of all keys between two positions (None: the end) are about to be offered. Returns the lines of which
        that is what was passed over; once it is done, ``read_through`` is to be called with them."""
        passed = [
            line
            for line, position in self._skipped.items()
            if not position < since and (through is None or position < through)
        ]
        for line in passed:
            del self._skipped[line]
        return passed

    def read_through(self, lines: Iterable[Line], position: Resume | None) -> None:
        """The index was read for these up to a position; None: to its end."""
        if position is not None:
            for line in lines:
                self._skip(line, position)

    def _skip(self, line: Line, position: Resume) -> None:
        self._skipped[line] = min(position, self._skipped.get(line, position))

    def _lines(self) -> Iterator[Line]:
        return (line for key in self._keys.values() for line in key.lines)

    # -- places ----------------------------------------------------------------------------------------------------

    def admits(self, task: Task) -> bool:
        if not self.is_limited(task.limit_key):
            return True
        self._taken.pop(task.task_id, None)
        self._close(task.task_id)  # only its id is that of a pack
        known = self._places.get(task.task_id)
        if known is not None and known.name == task.limit_key:
            self._held.discard(task.task_id)
            return True
        if known is not None:
            self.unclaimed(task.task_id)
        if not self._has_lease():
            return False
        key = self._key(str(task.limit_key))
        if not self._may_begin(key, task.task_id):
            return False
        self._give_place(key, task.task_id)
        return True

    def may_admit(self, row: Row) -> bool:
        view = RowView(row)
        if not self.is_limited(view.limit_key) or view.task_id in self._places:
            return True
        if not self._has_lease():
            return False
        return view.is_pack or self._may_begin(self._key(str(view.limit_key)), view.task_id)

    def opens(self, pack: Task) -> bool:
        if not self.is_limited(pack.limit_key):
            return True
        self._taken.pop(pack.task_id, None)
        self._take_place_back(pack.task_id)  # it was for its claim
        if not self._has_lease():
            self._close(pack.task_id)
            return False
        key = self._key(str(pack.limit_key))
        if self._packs.get(pack.task_id, key) is not key:
            self._close(pack.task_id)  # the index listed it with another
        if pack.attempt == 1 and key.pack in (None, pack.task_id):
            self._packs[pack.task_id], key.pack = key, pack.task_id
        else:
            self._close(pack.task_id)
        self._may_have_turn(key)
        # Of one whose process has died, no member begins: each gets a row of its own (21).
        return pack.attempt > 1 or key.pack == pack.task_id

    def begins_member(self, pack: Task, member_id: str, *, tasks_may: bool) -> bool:
        key = self._packs.get(pack.task_id)
        if key is None or member_id in self._places or not self._has_lease():
            return False
        if not self._may_begin(key, member_id):
            return False
        if tasks_may and not key.is_turn_of_pack and self._next_task(key) is not None:
            return False
        key.is_turn_of_pack = False
        self._give_place(key, member_id)
        return True

    def may_go_on(self, pack: Task, member_id: str) -> bool:
        key = self._packs.get(pack.task_id)
        if key is None:
            return False
        held = sum(self._places[task_id] is key for task_id in self._held)
        return key.taken > held or (member_id not in self._places and self._may_begin(key, member_id))

    def _may_begin(self, key: _Key, task_id: str) -> bool:
        now = self._clock()
        return key.has_place() and key.next_at(now) <= now + self._ahead and self._has_room(key, task_id)

    def _has_room(self, key: _Key, task_id: str) -> bool:
        """Whether it could be noted in the record that a task keeps its place. Those of a class of which none was
        handed over need no room."""
        return class_of(key.name) not in self._handing_over or (
            self._bytes + size_of_held(task_id, key.name) <= MAX_HELD_BYTES
        )

    def seconds_to_wait(self, task: Task) -> float:
        key = self._places.get(task.task_id)
        if key is None or not key.has_rate:
            return 0.0
        with self._rates:
            now = self._clock()
            is_own = key.is_kept and key.start_of == task.task_id
            if now < key.free_at and not is_own:
                return (key.free_at - now).total_seconds()
            if task.task_id not in self._begun:
                self._begun.add(task.task_id)
                key.unbegun -= 1
            key.free_at, key.start_of, key.is_kept = now + key.limit.interval, task.task_id, False
            return 0.0

    def keep_start(self, task: Task, seconds: float) -> None:
        key = self._places.get(task.task_id)
        if key is None:
            return
        with self._rates:
            if key.start_of == task.task_id:  # else another has begun meanwhile, and it waits its turn again
                key.is_kept = True
                key.free_at = self._clock() + timedelta(seconds=seconds) + key.limit.interval

    def freed(self, task: Task) -> None:
        self._taken.pop(task.task_id, None)
        self._close(task.task_id)
        if task.task_id not in self._held:
            self.unclaimed(task.task_id)

    def not_claimed(self, bucket: Bucket, task_id: str, *, is_overdue: bool = False) -> None:
        """An entry was not claimed. A task that waits for a completion keeps its place until it is overdue."""
        if self._taken.get(task_id) == bucket:
            del self._taken[task_id]
            self._close(task_id)
            if is_overdue or task_id not in self._held:
                self.unclaimed(task_id)

    def unclaimed(self, task_id: str) -> None:
        """Takes a place back."""
        key = self._take_place_back(task_id)
        if key is not None:
            key.ended += 1
            self._may_have_turn(key)
            if self._kept_out:
                self._may_have_turn(self._kept_out.pop(next(iter(self._kept_out))))

    def _take_place_back(self, task_id: str) -> _Key | None:
        """Returns its key; None: it had no place."""
        key = self._places.pop(task_id, None)
        if key is None:
            return None
        self._held.discard(task_id)
        self._bytes -= size_of_held(task_id, key.name)
        if key.has_rate:
            with self._rates:
                if task_id in self._begun:
                    self._begun.discard(task_id)
                else:
                    key.unbegun -= 1
        key.taken -= 1
        return key

    def _close(self, pack_id: str) -> None:
        """A pack is not open any more. What has waited for room comes before the next one of its key."""
        key = self._packs.pop(pack_id, None)
        if key is None:
            return
        key.pack = None
        if self._without_room:
            self._may_have_turn(self._without_room.pop(next(iter(self._without_room))))
        self._may_have_turn(key)

    def hold(self, tasks: Sequence[Task]) -> bool:
        mine = [task for task in tasks if task.task_id in self._places]
        self._handing_over.update(class_of(str(task.limit_key)) for task in mine)
        return not mine or self._lease.hold(mine)

    def is_handed_over(self, task: Task) -> None:
        if task.task_id in self._places and task.task_id in self._lease.held:  # else the lease is not released
            self._held.add(task.task_id)

    def look_at_held(self) -> None:
        """Takes back the places of tasks that no longer wait for a completion."""
        if self._held and self._lease.is_held:
            for task_id in self._lease.look_at_held(self._held):
                self.unclaimed(task_id)

    def end(self) -> None:
        """Releases the lease, unless a task still runs that it is for. Nothing begins any more."""
        self._is_over = True
        if self._lease.is_held and len(self._places) == len(self._held):
            self._lease.release({key.name: key.free_at for key in self._keys.values() if key.limit.interval})

    def expected(self, key: str, before: int) -> timedelta:
        """After what time an entry may begin, if this many of its key come before it and end as fast as they did here;
        a second for each that runs, if only a few have ended."""
        known, limit = self._keys.get(key), self.limits[class_of(key)]
        each = timedelta(seconds=1) / (limit.at_once or 1)
        if known is not None and known.ended >= MEASURED and known.since is not None:
            each = (self._clock() - known.since) / known.ended
        return before * max(each, limit.interval)

    def _give_place(self, key: _Key, task_id: str) -> None:
        key.taken += 1
        key.since = key.since or self._clock()
        if key.has_rate:
            with self._rates:
                key.unbegun += 1
        self._places[task_id] = key
        self._bytes += size_of_held(task_id, key.name)

    def _may_have_turn(self, key: _Key) -> None:
        if not key.is_ready and key.has_waiting() and key.has_place():
            key.is_ready = True
            self._ready.append(key)

    def _key(self, name: str) -> _Key:
        """Called while the limits lease is held: only that says from when on the key's next task may begin."""
        known = self._keys.get(name)
        if known is None:
            limit = self.limits[class_of(name)]
            left, lease = self._lease.starts.get(name), self._lease
            if left is None:
                left = lease.began_until + limit.interval if lease.began_until > EPOCH else EPOCH
            known = self._keys[name] = _Key(name, limit, left, Line(name))
        return known

    def _has_lease(self) -> bool:
        """Whether the limits lease is held. It is acquired when it is needed first."""
        if self.fault is not None or self._is_over:
            return False
        if self._lease.is_held:
            return True
        if (now := self._clock()) < self._try_at:
            return False
        self._try_at = now + _TRY_AGAIN
        try:
            self._elsewhere = self._lease.acquire()
        except DynatickError as error:  # the coordinator raises it once everything in flight is recorded
            self.fault = error
            return False
        for held in self._lease.held.values():
            self._handing_over.add(class_of(held.key))
            if self.is_limited(held.key) and held.task_id not in self._places:
                key = self._key(held.key)
                self._give_place(key, held.task_id)
                if key.has_rate:
                    self._begun.add(held.task_id)
                    key.unbegun -= 1
                self._held.add(held.task_id)
        return self._elsewhere is None

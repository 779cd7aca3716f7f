"""The limits lease: only the process that has it runs the shard's tasks with a limit key (protocol 23, 24).

So that process alone counts them, in memory. The lease lasts to the hard end of the process, where Lambda ends it, and
is released when none of these tasks runs any more: two writes for a pass, whatever it runs. If the process is killed,
the next holder waits for that end.

It is in a row of its own, the *limits record*, with what the next holder must know: the tasks that wait for a
completion, which keep their places, and from when on the next task of a key may begin by its rate.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from dynatick.domain import attributes as attr
from dynatick.domain.conditional_update import ConditionalUpdate, Is, Written, as_read
from dynatick.domain.instants import EPOCH, format_instant, parse_instant
from dynatick.domain.task import SYSTEM_PREFIX, Row, Status, Task, check_count
from dynatick.engine.claims import LONGEST_LEASE
from dynatick.engine.conditional_write import change_row, write
from dynatick.engine.ports import Clock, Store
from dynatick.engine.rules import SKEW_MARGIN
from dynatick.engine.settings import InstallationSettings, read_settings
from dynatick.errors import InvalidInput, StoreError

MAX_HELD_BYTES = 200_000
"""Of the tasks of a shard that wait for a completion and keep their places: about a thousand."""

MAX_STARTS = 1000
"""Keys of which the record says from when on their next task may begin; if there are more, all wait an interval."""

_NEVER = timedelta(hours=1)  # from now: this process does not get it
_HELD = (attr.STATUS, attr.OUTCOME, attr.LEASE)


def limits_id(shard: int) -> str:
    return f"{SYSTEM_PREFIX}limits#{shard}"


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
        return len(self.task_id.encode()) + len(self.key.encode()) + 100


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
            attr.STATUS: "limits",
            attr.OUTCOME: "none",  # so that scans for open tasks pass it over
            attr.VERSION: self.version,
            attr.LEASE: self.lease,
            attr.LEASE_UNTIL: None if self.lease_until is None else format_instant(self.lease_until),
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
            lease_until=None if until is None else parse_instant(until, attr.LEASE_UNTIL),
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
        self._lock = threading.Lock()
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
        is_too_much = len(left) > MAX_STARTS
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
        if not isinstance(write(self._store, change), Written):
            raise StoreError(f"cannot write the limits of shard {self._shard}: another process has, or no answer came")
        return new

    def _update(self, record: LimitsRecord, new: LimitsRecord) -> tuple[LimitsRecord, ConditionalUpdate]:
        new = replace(new, version=record.version + 1)
        there = {attr.VERSION: record.version} if record.version else {}
        return new, ConditionalUpdate(
            task_id=limits_id(self._shard),
            set={**new.to_row(), attr.WRITTEN_BY: self._token},
            conditions=as_read(there, attr.VERSION),
            mark=(Is(attr.VERSION, new.version), Is(attr.WRITTEN_BY, self._token)),
        )

"""Rate limits of actions and of webhooks' hosts: ``webhook:api.example.com=10/s,sns=100/s,webhook=300/m``.

A limit holds over the whole installation: processes reserve the starts of their tasks in its rate record, an interval
apart. A task that comes too fast learns when it may start; until then it occupies no thread.
"""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NoReturn

from dynatick.actions.webhook_url import canonical_host
from dynatick.domain.instants import EPOCH
from dynatick.domain.packs import pack_token
from dynatick.domain.task import Task
from dynatick.engine.ports import ActionContext, Clock
from dynatick.engine.rates import RateRecords, Unused, first_free, reserved_until
from dynatick.errors import ConfigurationError, RateLimited, StoreError, shown

if TYPE_CHECKING:
    from dynatick.actions.registry import Action

_PARAMETER = "ActionRateLimits"
_LIMIT = re.compile(
    r"(?P<action>[A-Za-z0-9][A-Za-z0-9._/-]*)(?::(?P<host>[A-Za-z0-9._-]+))?=(?P<number>[1-9][0-9]{0,5})/(?P<unit>[smh])"
)
_UNITS = {"s": timedelta(seconds=1), "m": timedelta(minutes=1), "h": timedelta(hours=1)}
_MAX_WAITING = 10_000
_TRIES = 3

LATE = timedelta(seconds=1)
"""A start that a task has not used by then is lost: it may have waited for a thread."""

EARLY = timedelta(milliseconds=20)
"""A task begins so much before its start rather than to wait for it."""

AHEAD = timedelta(seconds=5)
"""Starts are reserved so far ahead: those of a process that ends are lost."""

_MAX_RESERVED = timedelta(seconds=1)  # by one write
_YIELD = timedelta(milliseconds=60)  # the process that has reserved last comes so much later than others would
_TRY_AGAIN = timedelta(milliseconds=50)  # while another thread reserves starts
_TABLE_IS_AWAY = timedelta(seconds=1)


@dataclass(slots=True)
class OwnRateRecords:
    """The rate records of a process that shares its limits with no other."""

    _until: dict[str, datetime] = field(default_factory=dict)

    def reserve(
        self,
        name: str,
        interval: timedelta,
        number: int,
        *,
        earliest: datetime,
        latest: datetime,
        unused: Unused,
        rate: str,
    ) -> datetime:
        """As ``RateRecords``."""
        first = first_free(self._until.get(name, EPOCH), earliest, unused)
        if first < latest:
            self._until[name] = reserved_until(first, interval, number)
        return first


@dataclass(slots=True)
class _Limit:
    """A limit, as far as this process knows."""

    name: str
    rate: str  # as it was given, such as 10/s
    interval: timedelta  # from one start to the next
    starts: deque[datetime] = field(default_factory=deque)  # that are reserved, in order
    promised: int = 0  # of them, the first: tasks wait for them
    unused_since: datetime = EPOCH  # after the last start that a task or another process has taken
    reserved_until: datetime = EPOCH  # by the last reservation that is known here
    number: int = 1  # of starts that were reserved last
    is_last: bool = False  # this process was the last one to reserve some, as far as it knows
    is_reserving: bool = False  # a thread is at it
    queue_end: datetime = EPOCH  # when a further task of this process may start, if no other has any
    deferred_until: datetime = EPOCH  # when the task that was deferred last may start
    last_pack: str | None = None  # of the member that waits last, if one does

    @property
    def unused(self) -> Unused:
        """What is given back with the next reservation: starts that were lost."""
        return Unused(self.reserved_until if self.starts else self.unused_since, self.reserved_until)

    @property
    def ahead(self) -> timedelta:
        """How far ahead its next starts may be reserved. Processes that all have enough tasks take turns."""
        return AHEAD - _YIELD if self.is_last else AHEAD

    def take(self, now: datetime, *, is_promised: bool) -> bool:
        """Whether a task may begin, by a start that has come. One that was promised a start takes the first of all,
        since its own may be lost: whatever a process has reserved is for all of its tasks."""
        while self.starts and now - self.starts[0] > LATE:
            self.starts.popleft()
            self.promised = max(self.promised - 1, 0)
        index = 0 if is_promised else self.promised
        if index >= len(self.starts) or self.starts[index] - now > EARLY:
            return False
        self.unused_since = max(self.unused_since, self.starts[index] + self.interval)
        del self.starts[index]
        if is_promised:
            self.promised = max(self.promised - 1, 0)
        return True

    def promise(self) -> datetime | None:
        """The start that a task is to wait for; None: all are promised."""
        if self.promised >= len(self.starts):
            return None
        self.promised += 1
        return self.starts[self.promised - 1]

    def defer(self, start: datetime) -> datetime:
        """When a further deferred task may start: after ``start``, and after all that were deferred before."""
        self.deferred_until = max(self.deferred_until, start) + self.interval
        return self.deferred_until


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A task that waits in this process."""

    passed: int = 0  # limits of which it has had its starts
    promised: datetime | None = None  # the start of the next one that it waits for


_Key = tuple[str | None, str]
"""The lease and the id of a task."""


class RateLimits:
    """The rate limits of actions, as one process keeps them. Safe for use by many threads at once."""

    def __init__(
        self,
        limits: Iterable[str] = (),
        *,
        clock: Clock,
        horizon: float = 60.0,
        records: RateRecords | None = None,
    ) -> None:
        """``horizon``: a task that would have to wait this many seconds or longer is deferred to a later tick.
        ``records``: the installation's; None: this process is the only one.

        Raises ConfigurationError for a text that is not a limit.
        """
        self._clock = clock
        self._horizon = timedelta(seconds=horizon)
        self._records: RateRecords | OwnRateRecords = records or OwnRateRecords()
        self._limits: dict[str, _Limit] = {}
        self._waiting: dict[_Key, _Waiting] = {}
        self._lock = threading.Lock()
        for limit in limits:
            found = _LIMIT.fullmatch(limit)
            if found is None:
                expected = "expected one such as webhook:api.example.com=10/s, sns=100/s or webhook=300/m"
                raise ConfigurationError(_PARAMETER, f"{shown(limit)} is not a limit; {expected}")
            name = found["action"] if found["host"] is None else f"{found['action']}:{canonical_host(found['host'])}"
            if found["host"] is not None and found["action"] != "webhook":
                problem = "names a host, which only webhooks have; no action with a colon in its name can be limited"
                raise ConfigurationError(_PARAMETER, f"{shown(limit)} {problem}")
            if name in self._limits:
                raise ConfigurationError(_PARAMETER, f"{shown(name)} is there twice")
            rate = f"{found['number']}/{found['unit']}"
            self._limits[name] = _Limit(name, rate, -(-_UNITS[found["unit"]] // int(found["number"])))

    def __bool__(self) -> bool:
        return bool(self._limits)

    def actions(self) -> set[str]:
        """The names of the limited actions, with or without a host."""
        return {name.partition(":")[0] for name in self._limits}

    def acquire(self, task: Task, *names: str) -> None:
        """Takes a start for the task from each limit among ``names``, one after the other: it begins at the last. A
        name without a limit is ignored.

        Raises RateLimited, before the task has done anything, if the task may start only later. A task that waits in
        this process keeps its place; a task that is deferred to a later tick has none.
        """
        limits = [self._limits[name] for name in names if name in self._limits]
        if not limits:
            return
        key = task.lease, task.task_id
        with self._lock:
            waiting = self._waiting.pop(key, None)
        if waiting is None:
            self._queue(key, limits)
        waiting = waiting or _Waiting()
        for passed in range(waiting.passed, len(limits)):
            self._take(key, limits[passed], replace(waiting, passed=passed))
            waiting = _Waiting()

    def _wait(self, key: _Key, waiting: _Waiting, wait: timedelta) -> NoReturn:
        """Lets the task wait in this process. Raises RateLimited."""
        with self._lock:
            while len(self._waiting) >= _MAX_WAITING:  # the oldest are of tasks that were released meanwhile
                del self._waiting[next(iter(self._waiting))]
            self._waiting[key] = waiting
        raise RateLimited(max(wait, timedelta()).total_seconds())

    def _queue(self, key: _Key, limits: Sequence[_Limit]) -> None:
        """Lets the task wait for its turn among those of this process, until its start may be reserved."""
        now, pack = self._clock(), pack_token(key[0])
        with self._lock:
            turn = max(max(limit.queue_end, limit.unused.since, now) for limit in limits)
            if turn - now >= self._horizon:
                # A pack of which members wait goes on behind these, and not behind what was deferred meanwhile.
                goes_on = pack is not None and all(limit.last_pack == pack for limit in limits)
                at = turn if goes_on else max(limit.defer(turn) for limit in limits)
                raise RateLimited((at - now).total_seconds(), defer=True)
            for limit in limits:
                limit.queue_end, limit.last_pack = max(limit.queue_end, now) + limit.interval, pack
        if turn - now > AHEAD:
            self._wait(key, _Waiting(), turn - now - AHEAD + EARLY)

    def _take(self, key: _Key, limit: _Limit, waiting: _Waiting) -> None:
        """Takes a start of a limit. Raises RateLimited if none has come."""
        for _ in range(_TRIES):
            now = self._clock()
            if waiting.promised is not None and waiting.promised - now > EARLY:
                self._wait(key, waiting, waiting.promised - now)
            with self._lock:
                if limit.take(now, is_promised=waiting.promised is not None):
                    return
                start = limit.promise()
                if start is None:
                    free_at, is_busy = limit.unused.since, limit.is_reserving
                    if free_at - now >= self._horizon:
                        raise RateLimited((limit.defer(free_at) - now).total_seconds(), defer=True)
                    ahead = limit.ahead
                    is_soon = free_at - now <= ahead
                    limit.is_reserving = is_busy or is_soon
            if start is not None:
                self._wait(key, replace(waiting, promised=start), start - now)
            if not is_soon:
                self._wait(key, waiting, free_at - now - ahead + EARLY)
            if is_busy:
                self._wait(key, waiting, _TRY_AGAIN)
            if not self._reserve(limit, now):
                break
        self._wait(key, waiting, _TABLE_IS_AWAY)

    def _reserve(self, limit: _Limit, now: datetime) -> bool:
        """Reserves starts, if one is free soon. False: the table doesn't answer."""
        latest = now + min(self._horizon, AHEAD + EARLY)
        maximum = max(1, min(self._horizon, _MAX_RESERVED) // limit.interval)
        # As long as all are used, twice as many each time.
        number = min(2 * limit.number, maximum) if now - limit.reserved_until <= LATE else 1
        try:
            first = self._records.reserve(
                limit.name,
                limit.interval,
                number,
                earliest=now,
                latest=latest,
                unused=limit.unused,
                rate=limit.rate,
            )
        except StoreError:
            return False
        else:
            with self._lock:
                if not limit.starts or first != limit.reserved_until:  # another one has reserved some since
                    limit.unused_since = first
                limit.reserved_until, limit.is_last = first, first < latest
                if first < latest:
                    limit.number = number
                    limit.starts.extend(first + n * limit.interval for n in range(number))
                    limit.reserved_until = reserved_until(first, limit.interval, number)
            return True
        finally:
            with self._lock:
                limit.is_reserving = False


class RateLimitedAction:
    """An action with a rate limit under its own name."""

    def __init__(self, name: str, action: Action, limits: RateLimits) -> None:
        self._name = name
        self._action = action
        self._limits = limits

    def run(self, task: Task, context: ActionContext) -> object:
        """Runs the action. Raises RateLimited if the task may start only later."""
        self._limits.acquire(task, self._name)
        return self._action.run(task, context)

"""Rate limits of actions and of webhooks' hosts: ``webhook:api.example.com=10/s,sns=100/s,webhook=300/m``.

A limit holds within one process. One process at a time serves a shard, but for one recovery of each limited action
beside it: an installation's limit is that of a process times its shards. A task that comes too fast learns when it may
start; until then it occupies no thread.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dynatick.domain.task import Task
from dynatick.engine.ports import ActionContext, Clock
from dynatick.errors import ConfigurationError, RateLimited, shown

if TYPE_CHECKING:
    from dynatick.actions.registry import Action

_PARAMETER = "ActionRateLimits"
_LIMIT = re.compile(
    r"(?P<action>[A-Za-z0-9][A-Za-z0-9._/-]*)(?::(?P<host>[A-Za-z0-9._-]+))?=(?P<number>[1-9][0-9]{0,5})/(?P<unit>[smh])"
)
_SECONDS = {"s": 1, "m": 60, "h": 3600}
_MAX_RESERVATIONS = 10_000


@dataclass(slots=True)
class _TokenBucket:
    """A token bucket, kept as the time at which it is full again. It holds the tokens of one second, at least one."""

    interval: float  # seconds from one token to the next
    full_at: float = 0.0  # seconds since the epoch, as ``deferred_until``
    deferred_until: float = 0.0  # when the task that was deferred last may start

    @property
    def burst(self) -> float:
        """Seconds by which a task may start before the bucket is full."""
        return max(1.0 - self.interval, 0.0)

    def defer(self, start: float) -> float:
        """When a further deferred task may start: after ``start``, and after all that were deferred before."""
        self.deferred_until = max(self.deferred_until, start) + self.interval
        return self.deferred_until


class RateLimits:
    """The rate limits of a process. Safe for use by many threads at once."""

    def __init__(self, limits: Iterable[str] = (), *, clock: Clock, horizon: float = 60.0) -> None:
        """``horizon``: a task that would have to wait this many seconds or longer is deferred to a later tick.

        Raises ConfigurationError for a text that is not a limit.
        """
        self._clock = clock
        self._horizon = horizon
        self._buckets: dict[str, _TokenBucket] = {}
        self._reserved: dict[str, float] = {}  # by lease: when a waiting task may start
        self._lock = threading.Lock()
        for limit in limits:
            found = _LIMIT.fullmatch(limit)
            if found is None:
                expected = "expected one such as webhook:api.example.com=10/s, sns=100/s or webhook=300/m"
                raise ConfigurationError(_PARAMETER, f"{shown(limit)} is not a limit; {expected}")
            name = found["action"] if found["host"] is None else f"{found['action']}:{found['host'].lower()}"
            if found["host"] is not None and found["action"] != "webhook":
                raise ConfigurationError(_PARAMETER, f"{shown(limit)} names a host, which only webhooks have")
            if name in self._buckets:
                raise ConfigurationError(_PARAMETER, f"{shown(name)} is there twice")
            self._buckets[name] = _TokenBucket(_SECONDS[found["unit"]] / int(found["number"]))

    def __bool__(self) -> bool:
        return bool(self._buckets)

    def actions(self) -> set[str]:
        """The names of the limited actions, with or without a host."""
        return {name.partition(":")[0] for name in self._buckets}

    def acquire(self, task: Task, *names: str) -> None:
        """Takes a token for the task from each limit among ``names``; a name without a limit is ignored.

        Raises RateLimited, before the task has done anything, if the task may start only later. A task that waits in
        this process keeps its token; a task that is deferred to a later tick gets none.
        """
        buckets = [self._buckets[name] for name in names if name in self._buckets]
        if not buckets:
            return
        now, key = self._clock().timestamp(), task.lease or task.task_id
        with self._lock:
            start = self._reserved.pop(key, None)
            if start is None:
                start = max(max(bucket.full_at, now) - bucket.burst for bucket in buckets)
                if start - now >= self._horizon:
                    raise RateLimited(max(bucket.defer(start) for bucket in buckets) - now, defer=True)
                for bucket in buckets:
                    bucket.full_at = max(bucket.full_at, now) + bucket.interval
            if start <= now:
                return
            while len(self._reserved) >= _MAX_RESERVATIONS:  # the oldest are of tasks that were released meanwhile
                del self._reserved[next(iter(self._reserved))]
            self._reserved[key] = start
        raise RateLimited(start - now)


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

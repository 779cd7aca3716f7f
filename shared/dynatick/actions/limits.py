"""How fast an action, or a webhook's host, may be used: ``webhook:api.example.com=10/s,sns=100/s,webhook=300/m``.

A limit holds within one process, and a shard is served by one at a time: the limit of an installation is that of a
process times its shards. A task that comes too fast is told when its turn is; until then it holds no thread.
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
_MAX_WAITING = 10_000


@dataclass(slots=True)
class _Pace:
    """A token bucket, kept as the time at which it is full again. It holds the tokens of a second, at least one."""

    interval: float  # seconds from one token to the next
    full_at: float = 0.0
    far: float = 0.0  # the turn of the last task that was sent away until later

    @property
    def burst(self) -> float:
        return max(1.0 - self.interval, 0.0)


class Limits:
    """The limits of a process. May be used by many threads at once."""

    def __init__(self, limits: Iterable[str] = (), *, clock: Clock, horizon: float = 60.0) -> None:
        """``horizon``: seconds that a task waits for its turn at the most before it is sent away until a later tick.

        Raises ConfigurationError for what is no limit.
        """
        self._clock = clock
        self._horizon = horizon
        self._paces: dict[str, _Pace] = {}
        self._waiting_turns: dict[str, float] = {}  # of the tasks that wait, by their lease
        self._lock = threading.Lock()
        for limit in limits:
            found = _LIMIT.fullmatch(limit)
            if found is None:
                expected = "expected one such as webhook:api.example.com=10/s, sns=100/s or webhook=300/m"
                raise ConfigurationError(_PARAMETER, f"{shown(limit)} is not a limit; {expected}")
            name = found["action"] if found["host"] is None else f"{found['action']}:{found['host'].lower()}"
            if found["host"] is not None and found["action"] != "webhook":
                raise ConfigurationError(_PARAMETER, f"{shown(limit)} names a host, which only webhooks have")
            if name in self._paces:
                raise ConfigurationError(_PARAMETER, f"{shown(name)} is there twice")
            self._paces[name] = _Pace(_SECONDS[found["unit"]] / int(found["number"]))

    def __bool__(self) -> bool:
        return bool(self._paces)

    def actions(self) -> set[str]:
        """The actions that are named, with or without a host."""
        return {name.partition(":")[0] for name in self._paces}

    def take(self, task: Task, *names: str) -> None:
        """Takes the task's turn in all of the limits of these names that there are. Raises NotYet, before anything was
        done, if that is still to come; the task keeps its turn while it waits."""
        paces = [self._paces[name] for name in names if name in self._paces]
        if not paces:
            return
        now, key = self._clock().timestamp(), task.lease or task.task_id
        with self._lock:
            turn = self._waiting_turns.pop(key, None)
            if turn is None:
                turn = max(max(pace.full_at, now) - pace.burst for pace in paces)
                if turn - now >= self._horizon:
                    raise RateLimited(max(_later(pace, turn) for pace in paces) - now, until_later=True)
                for pace in paces:
                    pace.full_at = max(pace.full_at, now) + pace.interval
            if turn <= now:
                return
            while len(self._waiting_turns) >= _MAX_WAITING:  # of tasks that were given back and never came again
                del self._waiting_turns[next(iter(self._waiting_turns))]
            self._waiting_turns[key] = turn
        raise RateLimited(turn - now)


class Limited:
    """An action that keeps to the limit of its name."""

    def __init__(self, name: str, action: Action, limits: Limits) -> None:
        self._name = name
        self._action = action
        self._limits = limits

    def run(self, task: Task, context: ActionContext) -> object:
        """Runs the action. Raises NotYet if it is too early for it."""
        self._limits.take(task, self._name)
        return self._action.run(task, context)


def _later(pace: _Pace, turn: float) -> float:
    """A turn after those of all that were sent away before."""
    pace.far = max(pace.far, turn) + pace.interval
    return pace.far

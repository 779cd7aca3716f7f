"""The wake-ups that are still to be delivered."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import count

from dynatick.engine.orders import WakeUp, parse_wake_up


class WakeUps:
    """The queue of wake-ups. It delivers each at its instant, one for each instant in it: nothing waits in a process,
    whose clock would stand still. Those of passes at ticks are dropped: here the rule is on time."""

    def __init__(self) -> None:
        self._messages: list[tuple[datetime, int, Mapping[str, object]]] = []  # a heap
        self._order = count()

    @property
    def first_at(self) -> datetime | None:
        return self._messages[0][0] if self._messages else None

    def take_first(self) -> Mapping[str, object]:
        return heapq.heappop(self._messages)[2]

    def send(self, wake_ups: Sequence[tuple[Mapping[str, object], datetime]]) -> int:
        for event, _ in wake_ups:
            inner = event["dynatick"]
            order = parse_wake_up(inner["wakeUp"]) if isinstance(inner, Mapping) else None
            if isinstance(order, WakeUp):
                for at in sorted({due.at for due in order.due}):
                    one = replace(order, due=tuple(due for due in order.due if due.at == at))
                    heapq.heappush(self._messages, (at, next(self._order), one.to_event()))
            elif order is not None and order.before is not None:
                heapq.heappush(self._messages, (order.at, next(self._order), event))
        return 0

"""The queue of wake-ups and its mapping, in the simulation: SQS and Lambda's poller, with their published limits."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from tests.model.simulation import Simulation
from tests.simulate.assumptions import Assumptions
from tests.simulate.aws_lambda import Function

from dynatick.actions.wake_up_queue import MAX_DELAY_SECONDS
from dynatick.wiring import WAKE_UP_LEAD

_SOON = 0.1  # seconds until the mapping polls again whether it may have one invocation more


class WakeUpQueue:
    """The port ``WakeUps``. Each message is delivered once, to an invocation of its own."""

    def __init__(self, simulation: Simulation, assumptions: Assumptions, function: Function) -> None:
        self._simulation, self._assumptions, self._function = simulation, assumptions, function
        self._waiting = deque[str]()
        self._running = 0
        self._busy_since = 0.0
        self.sent = 0

    def send(self, wake_ups: Sequence[tuple[Mapping[str, object], datetime]]) -> int:
        self._simulation.sleep(self._assumptions.queue_latency * -(-len(wake_ups) // 10))  # ten in a request
        now = self._simulation.my_process().clock()
        for event, at in wake_ups:
            delay = max(0, min((at - WAKE_UP_LEAD - now) // timedelta(seconds=1), MAX_DELAY_SECONDS))
            body = json.dumps(event)
            self._simulation.at(self._simulation.now + delay, lambda body=body: self._deliver(body))
        self.sent += len(wake_ups)
        return 0

    def _deliver(self, body: str) -> None:
        if not self._waiting and not self._running:
            self._busy_since = self._simulation.now
        self._waiting.append(body)
        if len(self._waiting) == 1:
            self._poll()

    def _poll(self) -> None:
        self._start()
        if self._waiting:
            self._simulation.at(self._simulation.now + _SOON, self._poll)

    def _start(self) -> None:
        while self._waiting and self._running < self._allowed():
            self._running += 1
            event = {"Records": [{"eventSource": "aws:sqs", "body": self._waiting.popleft()}]}
            self._function.invoke(event, ended=self._ended)

    def _ended(self) -> None:
        self._running -= 1
        self._start()

    def _allowed(self) -> float:
        """As AWS says, a mapping begins with five invocations, and adds 300 a minute while messages wait."""
        assumed = self._assumptions
        ramp = assumed.mapping_burst + assumed.mapping_ramp * (self._simulation.now - self._busy_since)
        return min(assumed.wake_up_concurrency, ramp)

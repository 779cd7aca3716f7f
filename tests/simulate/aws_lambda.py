"""Lambda with its limits, in the simulation: one function, invoked asynchronously.

An invocation waits in Lambda's queue, finds an environment that is idle or starts one, and is tried again later if it
finds neither. A process that has not ended when its time is up is killed; an invocation that raised is made again.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tests.model.environment import Environment
from tests.model.faulty_store import Actor, Plan
from tests.model.installation import RETRY_DELAYS
from tests.model.simulation import Killed, Simulation
from tests.simulate.assumptions import Assumptions
from tests.simulate.capacity import Allowance

from dynatick.errors import DynatickError

MAX_WAIT = 300.0  # between tries of an event that was throttled


@dataclass
class Function:
    """``make``: a new environment. Counts what is billed."""

    simulation: Simulation
    assumptions: Assumptions
    make: Callable[[], Environment]
    timeout: float
    ended: Callable[[Actor], None]
    invocations: int = 0
    cold_starts: int = 0
    throttles: int = 0
    errors: int = 0
    killed: int = 0
    seconds: float = 0.0  # that were billed, to the millisecond, cold starts included
    running: int = 0
    max_running: int = 0

    def __post_init__(self) -> None:
        self._dice = random.Random(11)
        self._idle: list[Environment] = []
        self._ramp = Allowance(self.assumptions.ramp, self.simulation.now, burst=self.assumptions.ramp_burst)

    def invoke(self, event: Mapping[str, object], *, ended: Callable[[], None] | None = None) -> None:
        """Asynchronously, by the event's sender or by the function itself. ``ended``: called at its end."""
        delay = self._dice.uniform(*self.assumptions.event_delay)
        self.simulation.at(self.simulation.now + delay, lambda: self._arrive(event, ended or (lambda: None)))

    def _arrive(
        self, event: Mapping[str, object], ended: Callable[[], None], *, throttled: int = 0, tries: int = 0
    ) -> None:
        now = self.simulation.now
        is_full = self.running >= self.assumptions.concurrency
        if is_full or not (self._idle or self._ramp.has_room(now)):
            self.throttles += 1
            wait = min(MAX_WAIT, 2.0**throttled) * self._dice.uniform(0.5, 1.0)
            self.simulation.at(now + wait, lambda: self._arrive(event, ended, throttled=throttled + 1, tries=tries))
            return
        self.running += 1
        self.max_running = max(self.max_running, self.running)
        self.invocations += 1
        cold = 0.0
        if self._idle:
            environment = self._idle.pop()
        else:
            self._ramp.take(1)
            self.cold_starts += 1
            environment, cold = self.make(), self._dice.uniform(*self.assumptions.cold_start)
        self._begin(environment, event, ended, cold, tries)

    def _begin(
        self,
        environment: Environment,
        event: Mapping[str, object],
        ended: Callable[[], None],
        cold: float,
        tries: int,
    ) -> None:
        simulation = self.simulation
        actor = Actor(simulation, f"invocation {self.invocations}", kind="processor", plan=Plan(timeout=self.timeout))
        began = simulation.now
        end = actor.ends = began + cold + self.timeout

        def work() -> None:
            raised = False
            try:
                environment.invoke(actor, event, lambda: end - simulation.now)
            except DynatickError:
                raised = True
            except Killed:  # its time was up, or it has ended itself
                self.killed += 1
                self._finish(actor, began)
                ended()
                raise
            actor.finished = True
            self._finish(actor, began)
            self._idle.append(environment)
            ended()
            if raised:
                self.errors += 1
                if tries < len(RETRY_DELAYS):
                    simulation.at(
                        simulation.now + RETRY_DELAYS[tries], lambda: self._arrive(event, ended, tries=tries + 1)
                    )

        simulation.spawn(actor, work, delay=cold)
        simulation.at(end, lambda: None if actor.finished else actor.kill())

    def _finish(self, actor: Actor, began: float) -> None:
        self.running -= 1
        self.seconds += round(self.simulation.now - began + 0.0005, 3)
        self.ended(actor)

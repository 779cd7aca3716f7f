"""The processor and the scheduler function in this process, over any store: what a virtual installation has of them.

Dynatick's own tests and benchmarks have the same.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from itertools import count
from typing import Any

from dynatick.actions.testing import MemoryDeadLetters
from dynatick.domain.occurrences import Overdue
from dynatick.engine.ports import Actions, Clock, DeadLetters, Invoker, Store, WakeUps
from dynatick.engine.processor import Invoked, Processor
from dynatick.engine.rules import Rules
from dynatick.engine.scheduler import Scheduler
from dynatick.errors import DynatickError
from dynatick.store.codec import decode


def rule_event(at: datetime) -> dict[str, object]:
    """The rule's event for the minute of an instant."""
    return {"source": "aws.events", "time": at.strftime("%Y-%m-%dT%H:%M:00Z")}


def _tokens() -> Iterator[str]:
    return map("token-{}".format, count())  # no generator: several threads may ask for one at once


@dataclass(kw_only=True)
class Functions:
    """Invocations that the processor asks for run one after another, when they are carried out."""

    store: Store
    clock: Clock
    actions: Actions
    rules: Rules
    dead_letters: DeadLetters = field(default_factory=MemoryDeadLetters)
    wake_ups: WakeUps | None = None
    tokens: Iterator[str] = field(default_factory=_tokens)
    pause: Callable[[float], None] = time.sleep
    jitter: Callable[[], float] = random.random
    invoker: Invoker | None = None  # given: it starts what the processor asks for
    life: timedelta = timedelta(seconds=120)  # of an invocation
    started: list[Mapping[str, object]] = field(default_factory=list)  # invocations that were asked for
    overdue: list[Overdue] = field(default_factory=list)  # as reported

    def new_processor(self) -> Processor:
        """That of another process."""
        return Processor(
            store=self.store,
            actions=self.actions,
            dead_letters=self.dead_letters,
            invoker=self.invoker or self,
            rules=self.rules,
            clock=self.clock,
            new_token=lambda: next(self.tokens),
            pause=self.pause,
            wake_ups=self.wake_ups,
            jitter=self.jitter,
            report_overdue=self.overdue.extend,
        )

    @cached_property
    def processor(self) -> Processor:
        return self.new_processor()

    @cached_property
    def scheduler(self) -> Scheduler:
        return Scheduler(
            store=self.store,
            dead_letters=self.dead_letters,
            rules=self.rules,
            clock=self.clock,
            decode=decode,
            wake_ups=self.wake_ups,
        )

    def invoke(self, event: Mapping[str, object]) -> None:
        """Notes an asynchronous invocation, which ``run`` or ``each_started`` carries out."""
        self.started.append(event)

    def handle(self, event: object) -> Invoked:
        """One invocation of the processor."""
        return self.processor.handle(event, hard_end=self.clock() + self.life)

    def run(self, event: object) -> Iterator[Invoked]:
        """One invocation after another: the event's, and those that it starts."""
        yield self.handle(event)
        yield from self.each_started()

    def each_started(self) -> Iterator[Invoked]:
        while self.started:
            yield self.handle(self.started.pop(0))

    def deliver(self, records: Sequence[Mapping[str, Any]]) -> None:
        """The scheduler gets records of the stream. Raises DynatickError for one that is to be sent again."""
        assigned = self.scheduler.handle({"Records": records})
        if assigned.failed:
            raise DynatickError(f"the stream failed: {assigned.failed[0][1]}")

"""How late tasks begin with Precision second, by the lead of wake-ups: a simulation.

What wake-ups are sent, for which tasks and with which delay is the engine's own; what AWS takes is assumed, below.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from dynatick.engine.wake_up import WakeUp
from dynatick_stack.bench.installation import START
from dynatick_stack.bench.wake_up_price import MEMORY_MB, SEED, Message, planned, spread, woken_from
from dynatick_stack.markdown import Table

LEADS = tuple(timedelta(milliseconds=lead) for lead in (100, 250, 1000))
MINUTES = {1: 30, 10: 6}  # by tasks a second
FULL_CPU_MB = 1769


@dataclass(frozen=True, kw_only=True, slots=True)
class Aws:
    """Assumptions, in seconds."""

    queue: tuple[float, float] = (0.05, 0.3)  # from the end of a delay to the invocation: median and 99th percentile
    cold_start: tuple[float, float] = (0.6, 1.2)  # evenly distributed
    cold_share: float = 0.0  # of invocations that find a free process and get a new one all the same
    kept: float = 300.0  # an idle process
    tick: float = 0.2  # a tick's pass, once a minute in the same processes
    end: float = 0.05  # after its last task began, an invocation
    claim: float = 0.01  # the call
    claim_cpu: float = 0.005  # on a whole CPU


USUAL, OFTEN_COLD = Aws(), Aws(cold_share=0.2)


def lateness(messages: Sequence[Message], aws: Aws, memory_mb: int) -> list[float]:
    """Of each task, from its instant to its start, ascending."""
    dice = random.Random(SEED)
    free_from: list[float] = []  # of each process
    found: list[float] = []
    to_claim = aws.claim + aws.claim_cpu * FULL_CPU_MB / min(memory_mb, FULL_CPU_MB)
    for came, due in sorted(_invocations(messages, aws, dice)):
        free_from = [free for free in free_from if free > came - aws.kept]
        free = [one for one in free_from if one <= came]
        start = came
        if free and dice.random() >= aws.cold_share:
            free_from.remove(max(free))
        else:
            start += dice.uniform(*aws.cold_start)
        found += [max(start, one) + to_claim - one for one in due]
        free_from.append(max(start, due[-1]) + aws.end if due else start + aws.tick)
    return sorted(found)


def _invocations(
    messages: Sequence[Message], aws: Aws, dice: random.Random
) -> Iterator[tuple[float, tuple[float, ...]]]:
    """When each begins, and the instants of its tasks; none: a tick."""
    median, longest = aws.queue
    spread_of_queue = math.log(longest / median) / 2.326  # a lognormal distribution
    last = 0.0
    for message in messages:
        if isinstance(order := message.order, WakeUp):
            last = max(last, _seconds(order.due[-1].at))
            took = median * math.exp(spread_of_queue * dice.gauss(0, 1))
            yield _seconds(message.at) + took, tuple(_seconds(due.at) for due in order.due)
    yield from ((60.0 * minute, ()) for minute in range(-2, int(last // 60) + 1))


def _seconds(at: datetime) -> float:
    return (at - START).total_seconds()


def table() -> Table:
    """The table of docs/performance.md: by lead and memory, lateness and the price of a million."""
    rows = []
    for rate, minutes in MINUTES.items():
        tasks = spread(rate, minutes)
        for lead in LEADS:
            sqs = planned(tasks, lead=lead)
            found = woken_from(sqs, len(tasks))
            for memory in MEMORY_MB:
                cells = [_cell(lateness(sqs.messages, aws, memory)) for aws in (USUAL, OFTEN_COLD)]
                price = f"${found.a_million(memory):.2f}"
                rows.append((str(rate), f"{lead.total_seconds():g} s", f"{memory:,} MB", *cells, price))
    columns = ("Tasks a second", "lead", "memory", "p50 / p99 / longest, ms", "a fifth cold: the same", "a million")
    return columns, rows


def _cell(late: Sequence[float]) -> str:
    return " / ".join(f"{1000 * late[min(len(late) - 1, int(len(late) * part))]:,.0f}" for part in (0.5, 0.99, 1))

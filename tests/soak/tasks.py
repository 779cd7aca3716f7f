"""The tasks of a soak, drawn by dice: what they do, when they are due, and how patient they are. Pure."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from tests.sandbox.handlers import MANY, must_fail
from tests.sandbox.journal import Asked
from tests.soak.plan import LIFE, SPEED

from dynatick.domain.buckets import Bucket, minute_of
from dynatick.domain.instants import format_instant

LENIENT = {"maximumRetryAttempts": 180, "minBackoffSeconds": 1, "maxBackoffSeconds": 30}
"""Being killed uses attempts up: a task that shall not fail has more of them than a soak has kills for one."""
SHORT = {"maximumRetryAttempts": 1, "minBackoffSeconds": 1, "maxBackoffSeconds": 30}
FURTHEST = 200  # seconds ahead


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """One task. ``row`` under the table's names, without a time; ``times``: the attribute that has it, if any."""

    task_id: str
    life: str
    row: Mapping[str, object]
    times: Mapping[str, object] = field(default_factory=dict)

    @property
    def timed(self) -> Mapping[str, object]:
        return {**self.row, **self.times}

    def asked(self, number: str, what: str, interface: str, at: float) -> Asked:
        """The journal's line of a call for it."""
        fails = must_fail(self.row.get("payload"))
        return Asked(
            number=number, what=what, interface=interface, task_id=self.task_id, life=self.life, at=at, fails=fails
        )


def draw(dice: random.Random, task_id: str, life: str, now: datetime) -> Drawn:
    plan = _plan(dice)
    return Drawn(
        task_id=task_id,
        life=life,
        row={
            "taskId": task_id,
            "payload": {"life": life, **plan},
            "retryPolicy": SHORT if must_fail(plan) else LENIENT,
        },
        times=draw_time(dice, now),
    )


def draw_time(dice: random.Random, now: datetime) -> Mapping[str, object]:
    """In each of the three notations; some of them have passed."""
    ahead = timedelta(seconds=round(dice.uniform(-30, FURTHEST)))
    match dice.randrange(3):
        case 0:
            return {"delaySeconds": max(int(ahead.total_seconds()), 0)}
        case 1:
            return {"dueAt": format_instant(now + ahead)}
        case _:
            return {"taskDateTime": str(Bucket(minute_of(now + ahead)))}


def _plan(dice: random.Random) -> Mapping[str, object]:
    """What it does."""
    chance = dice.random()
    if chance < 0.80:
        return {"seconds": round(dice.uniform(0, 0.05), 3)}
    if chance < 0.92:
        return {"seconds": round(dice.uniform(0.1, 0.6), 3)}
    if chance < 0.925:
        return {"seconds": 1.5 * LIFE / SPEED, "slowAttempts": 1}  # outlasts its invocation once
    if chance < 0.96:
        return {"failures": dice.randint(1, 2)}
    if chance < 0.975:
        return {"permanent": True}
    if chance < 0.996:
        return {"failures": MANY}
    return {"kill": True}

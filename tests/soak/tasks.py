"""The tasks of a soak, drawn by dice: what they do, when they are due, and how patient they are. Pure."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

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
    fails: bool
    row: Mapping[str, object]
    times: Mapping[str, object] = field(default_factory=dict)

    @property
    def timed(self) -> Mapping[str, object]:
        return {**self.row, **self.times}

    def asked(self, number: str, what: str, interface: str, at: float) -> Asked:
        """The journal's line of a call for it."""
        more = {"task_id": self.task_id, "life": self.life, "fails": self.fails}
        return Asked(number=number, what=what, interface=interface, at=at, **more)  # type: ignore[arg-type]


def draw(dice: random.Random, task_id: str, life: str, now: datetime) -> Drawn:
    plan, fails = _plan(dice)
    return Drawn(
        task_id=task_id,
        life=life,
        fails=fails,
        row={"taskId": task_id, "payload": {"life": life, **plan}, "retryPolicy": SHORT if fails else LENIENT},
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


def _plan(dice: random.Random) -> tuple[Mapping[str, object], bool]:
    """What it does, and whether it can't but fail."""
    chance = dice.random()
    if chance < 0.80:
        return {"seconds": round(dice.uniform(0, 0.05), 3)}, False
    if chance < 0.92:
        return {"seconds": round(dice.uniform(0.1, 0.6), 3)}, False
    if chance < 0.925:
        return {"seconds": 1.5 * LIFE / SPEED, "slowAttempts": 1}, False  # outlasts its invocation once
    if chance < 0.96:
        return {"failures": dice.randint(1, 2)}, False
    if chance < 0.975:
        return {"permanent": True}, True
    if chance < 0.996:
        return {"failures": 99}, True
    return {"kill": True}, True

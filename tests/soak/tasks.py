"""The tasks and schedules of a soak, at random: what they do, when they are due, and how often they are tried again."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from tests.sandbox.handlers import MANY, must_fail
from tests.sandbox.journal import INSERT, SCHEDULE, Requested
from tests.sandbox.world import World
from tests.soak.plan import SPEED, TIMEOUT, Plan

from dynatick.domain.buckets import Bucket, instant_of, minute_of
from dynatick.domain.instants import format_instant, parse_instant
from dynatick.store.codec import encode

LENIENT = {"maximumRetryAttempts": 180, "minBackoffSeconds": 1, "maxBackoffSeconds": 30}
"""Being killed uses attempts up: a task that shall not fail has more of them than a soak has kills for one."""
SHORT = {"maximumRetryAttempts": 1, "minBackoffSeconds": 1, "maxBackoffSeconds": 30}
FURTHEST = 200  # seconds ahead
KEY_LIMITS = "one=1,pair=2,rate=6/m"
_KEYS = {"one:a": 4, "one:b": 4, "pair:a": 4, "pair:b": 4, "rate:a": 1, "rate:b": 1}  # how often each is drawn
KEYED = 0.25  # of the tasks


@dataclass(frozen=True, kw_only=True)
class RandomTask:
    """A task. ``row`` under the table's names, without a time; ``times``: the attribute that has it, if any."""

    task_id: str
    incarnation: str
    row: Mapping[str, object]
    times: Mapping[str, object] = field(default_factory=dict)

    @property
    def timed(self) -> Mapping[str, object]:
        return {**self.row, **self.times}

    def requested(self, request_id: str, operation: str, interface: str, at: float) -> Requested:
        """The journal's line of a request for it."""
        return Requested(request_id=request_id, operation=operation, interface=interface, task_id=self.task_id,
                         incarnation=self.incarnation, at=at, fails=must_fail(self.row.get("payload")),
                         due_at=self.due_at(at), delayed="delaySeconds" in self.times,
                         limited="limitKey" in self.row)  # fmt: skip

    def due_at(self, at: float) -> float:
        """The earliest instant at which it may begin, of one that is inserted at an instant."""
        times = self.times
        if "delaySeconds" in times:
            return at + float(str(times["delaySeconds"]))
        if "dueAt" in times:
            return parse_instant(times["dueAt"], "dueAt").timestamp()
        return Bucket.parse(times["taskDateTime"]).instant.timestamp() if times else at


def draw(dice: random.Random, task_id: str, incarnation: str, now: datetime) -> RandomTask:
    plan = _plan(dice)
    return RandomTask(
        task_id=task_id,
        incarnation=incarnation,
        row={
            "taskId": task_id,
            "payload": {"incarnation": incarnation, **plan},
            "retryPolicy": SHORT if must_fail(plan) else LENIENT,
            **draw_key(dice),
        },
        times=draw_time(dice, now),
    )


def draw_key(dice: random.Random) -> Mapping[str, object]:
    """Draws the limit key of a task, which few have."""
    return {"limitKey": dice.choices([*_KEYS], [*_KEYS.values()])[0]} if dice.random() < KEYED else {}


def draw_time(dice: random.Random, now: datetime) -> Mapping[str, object]:
    """Draws a time in one of the three notations; some have passed."""
    ahead = timedelta(seconds=round(dice.uniform(-30, FURTHEST)))
    match dice.randrange(3):
        case 0:
            return {"delaySeconds": max(int(ahead.total_seconds()), 0)}
        case 1:
            return {"dueAt": format_instant(now + ahead)}
        case _:
            return {"taskDateTime": str(Bucket(minute_of(now + ahead)))}


def _plan(dice: random.Random) -> Mapping[str, object]:
    """Draws what the task does."""
    chance = dice.random()
    if chance < 0.80:
        return {"seconds": round(dice.uniform(0, 0.05), 3)}
    if chance < 0.92:
        return {"seconds": round(dice.uniform(0.1, 0.6), 3)}
    if chance < 0.925:
        return {"seconds": 1.5 * TIMEOUT / SPEED, "slowAttempts": 1}  # outlasts its invocation once
    if chance < 0.96:
        return {"failures": dice.randint(1, 2)}
    if chance < 0.975:
        return {"permanent": True}
    if chance < 0.996:
        return {"failures": MANY}
    return {"kill": True}


def insert_schedules(world: World, plan: Plan) -> None:
    """Raw items; their last run is due when the faults are over. Each of their runs is known beforehand, and is judged
    as a task that was inserted."""
    now = world.clock()
    first = instant_of(minute_of(now) + 2)
    last = max(first, instant_of(minute_of(now + timedelta(minutes=plan.minutes * plan.speed))))
    for number in range(plan.schedules):
        every = number % 2 + 1
        row = {
            "taskId": f"schedule-{number}",
            "scheduleExpression": f"rate({every} minute{'s' if every > 1 else ''})",
            "startDate": format_instant(first),
            "endDate": format_instant(last),
            "catchUp": "all",
            "overlap": "allow",
            "retryPolicy": LENIENT,
            **({"limitKey": "one:a"} if number % 2 else {}),
        }
        for at in _occurrences(first, last, every):
            occurrence = f"{row['taskId']}#1#{format_instant(at)}"
            world.note(INSERT, occurrence, interface=SCHEDULE, due_at=at, limited="limitKey" in row)
        world.dynamodb.put_item(TableName=world.table, Item=encode(row))


def _occurrences(first: datetime, last: datetime, every: int) -> Iterator[datetime]:
    at = first
    while at <= last:
        yield at
        at += timedelta(minutes=every)

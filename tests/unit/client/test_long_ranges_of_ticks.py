"""The ticks of a week take seven times the steps of a day's: no step is made for each pair of ticks."""

from __future__ import annotations

import sys
from datetime import timedelta
from types import FrameType
from typing import Any

import pytest
from tests.unit.client.support import client_of
from tests.unit.engine.support import World, world

from dynatick.client import ticks
from dynatick.client.operations import MissedTicks, TickView
from dynatick.domain import attributes as attr
from dynatick.domain.buckets import Bucket, Grid, minute_of
from dynatick.domain.instants import format_instant
from dynatick.engine.counts import tick_record_id
from dynatick.engine.rules import Rules

SHARDS = 2


@pytest.fixture
def w() -> World:
    """Of each two ticks of the past twelve hours one had a record, and the other is missing."""
    w = world(rules=Rules(grid=Grid(shard_count=SHARDS)))
    first = minute_of(w.clock())
    for minute in range(first + 1, first + 721, 2):
        for shard in range(SHARDS):
            assert w.store.create(
                {
                    attr.TASK_ID: tick_record_id(minute, shard, 0), attr.STATUS: "tick", attr.OUTCOME: "none",
                    attr.TICK: str(Bucket(minute)), attr.SHARD: shard, attr.CONTINUATION: 0,
                    attr.STARTED_AT: format_instant(Bucket(minute).instant),
                    attr.FINISHED_AT: format_instant(Bucket(minute).instant + timedelta(seconds=1)),
                }
            )  # fmt: skip
    w.clock.forward(hours=12)
    return w


def steps(w: World, hours: int) -> tuple[int, int, int]:
    """The steps that the module makes for these hours, how many ticks had records, and how many are missing."""
    made = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal made
        if frame.f_code.co_filename != ticks.__file__:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        made += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        found = client_of(w).operations.ticks(timedelta(hours=hours))
    finally:
        sys.settrace(before)
    passes = sum(isinstance(one, TickView) for one in found)
    return made, passes, sum(one.ticks for one in found if isinstance(one, MissedTicks))


def test_twice_as_many_ticks_take_twice_the_steps(w: World) -> None:
    few, *of_few = steps(w, 3)
    many, *of_many = steps(w, 12)
    assert of_few == [90 * SHARDS, 89 * SHARDS]
    assert of_many == [360 * SHARDS, 359 * SHARDS]
    assert few > 1000
    assert many < 4.4 * few

"""What idle shards cost: capacity units and calls are counted, and priced as docs/cost.md prices them.

Duration is counted in calls, each of 5 ms. Polls that a process makes side by side are waited for together: a pass
makes six at a time, an invocation that polls idle shards eight. Both sides are counted so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import pytest

from dynatick.engine.polling import LOOKAHEAD
from dynatick.engine.shards import CLOSE_EVERY, THREADS
from dynatick_stack.bench.units import Idle, idle
from dynatick_stack.bench.wake_up_price import MONTH
from dynatick_stack.counting.counts import Engine
from dynatick_stack.plan.figures import (
    FURTHER_READS,
    FURTHER_WRITES,
    GB_SECOND,
    IDLE_READS,
    IDLE_WRITES,
    LAMBDA_REQUEST,
    READ_UNIT,
    WRITE_UNIT,
)
from dynatick_stack.template import ROOT

CALL_SECONDS, GB = 0.005, 1.0
MAX_SHARE = 0.25  # of what a pass for each shard costs
PAGE = (ROOT / "docs" / "cost.md").read_text(encoding="utf-8")


def month(found: Idle, polls_at_once: int) -> tuple[float, float, float, float]:
    """Dollars for writes, reads, Lambda, and together."""
    ticks = MONTH / timedelta(minutes=1) / found.ticks
    seconds = (found.total.calls - found.polls + found.polls / polls_at_once) * CALL_SECONDS
    parts = (
        found.total.write_units * WRITE_UNIT,
        found.total.read_units * READ_UNIT,
        found.invocations * LAMBDA_REQUEST + seconds * GB * GB_SECOND,
    )
    writes, reads, processes = (part * ticks for part in parts)
    return writes, reads, processes, writes + reads + processes


@pytest.fixture(scope="module")
def one(engine: Engine) -> Idle:
    """An installation of one shard."""
    return idle(engine)


@pytest.mark.long  # the formula is held below, with fewer
@pytest.mark.parametrize(("shards", "groups"), [(64, 1), (256, 4)])
def test_idle_shards_cost_a_quarter_of_a_pass_each(engine: Engine, one: Idle, shards: int, groups: int) -> None:
    many = idle(engine, shards)
    assert many.invocations == many.ticks * (1 + groups)
    writes, reads, processes, together = month(many, THREADS)
    each_by_itself = shards * month(one, LOOKAHEAD)[3]
    assert together <= MAX_SHARE * each_by_itself
    row = f"| {shards} | {1 + groups} | ${writes:.2f} | ${reads:.2f} | ${processes:.2f} | ${together:.2f} |"
    assert f"{row} ${each_by_itself:.2f} |" in PAGE


def test_what_an_idle_shard_writes_and_polls(engine: Engine, one: Idle) -> None:
    """It costs what `dynatick plan` reckons."""
    shards = 20
    many = idle(engine, shards)
    others, ticks = shards - 1, many.ticks
    closings = ticks / CLOSE_EVERY
    # A cursor at a closing, and one row for the whole group at the other ticks.
    assert many.total.write_units == one.total.write_units + others * closings + (ticks - closings)
    # Each minute until it is closed, the newest closed one again, and each finally.
    polls = others * (CLOSE_EVERY * (CLOSE_EVERY + 1) / 2 + 1 + CLOSE_EVERY) * closings
    assert many.polls == one.polls + polls
    # Half a unit for each poll, each cursor and the record; the settings are read consistently.
    assert many.total.read_units == one.total.read_units + polls / 2 + ticks * (others / 2 + 0.5 + 1)

    assert one.reads <= 8
    assert one.total.writes == one.total.write_units == IDLE_WRITES * one.ticks
    assert one.total.read_units / one.ticks == pytest.approx(IDLE_READS, rel=0.1)
    assert closings / ticks == pytest.approx(FURTHER_WRITES, rel=0.1)
    assert (many.total.read_units - one.total.read_units) / (others * ticks) == pytest.approx(FURTHER_READS, rel=0.1)


class Nowhere:
    """A queue of wake-ups that takes all."""

    def send(self, wake_ups: Sequence[tuple[Mapping[str, object], datetime]]) -> int:
        return 0


def test_with_wake_ups_an_idle_shard_is_closed_at_each_tick(engine: Engine) -> None:
    """That write plans the shard's buckets (protocol 19)."""
    shards = 20
    one, many = idle(engine, wake_ups=Nowhere()), idle(engine, shards, wake_ups=Nowhere())
    assert many.total.write_units == one.total.write_units + (shards - 1) * many.ticks
    share = month(many, THREADS)[3] / (shards * month(one, LOOKAHEAD)[3])
    assert 0.4 <= share <= 0.55
    assert "about half" in PAGE

"""The cost of ``expectedWithinSeconds``: one move of the schedule if its deadline comes before its next occurrence."""

from __future__ import annotations

from datetime import timedelta

from dynatick.domain.buckets import instant_of, minute_of
from dynatick_stack.bench import units
from dynatick_stack.bench.installation import Installation
from dynatick_stack.counting.counts import Count, Engine

SCHEDULES = 50
TICKS = 4


def ticks_with(
    engine: Engine, expression: str, expected_within_seconds: int | None = None, *, schedules: int = SCHEDULES
) -> Count:
    """Returns the cost of the ticks after the first, which makes the occurrences of all schedules."""
    installation = Installation.fresh(engine.url)
    at = instant_of(minute_of(installation.clock()) + 1)
    for n in range(schedules):
        installation.client.schedules.insert(
            f"s{n}",
            expression.format(at=at, soon=at + timedelta(minutes=1)),
            action="log",
            overlap="allow",
            expected_within_seconds=expected_within_seconds,
        )
    installation.next_tick()
    meter = units.Meter(engine)
    for _ in range(TICKS):
        installation.next_tick()
    return meter.read().total


def test_a_deadline_before_the_next_run_costs_one_move_and_two_reads(engine: Engine) -> None:
    daily = "cron({at.minute} {at.hour} * * ? *)"
    without, with_deadline = ticks_with(engine, daily), ticks_with(engine, daily, 90)
    more = with_deadline.write_units - without.write_units
    assert 3 * SCHEDULES <= more <= 3 * SCHEDULES + 4  # and the cursor's, for all of them together
    reads = with_deadline.read_units - without.read_units
    assert 2 * SCHEDULES <= reads <= 2.2 * SCHEDULES  # the schedule and its occurrence


def test_a_deadline_after_the_next_run_costs_a_read(engine: Engine) -> None:
    each_minute = "rate(1 minute)"
    without, with_deadline = ticks_with(engine, each_minute), ticks_with(engine, each_minute, 90)
    assert with_deadline.write_units - without.write_units <= 4
    assert with_deadline.read_units - without.read_units <= 1.1 * SCHEDULES * TICKS

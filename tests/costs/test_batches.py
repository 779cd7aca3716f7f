"""What the members of a batch cost, from their insert to their outcome."""

from __future__ import annotations

from dynatick_stack.bench import units
from dynatick_stack.counting.counts import Engine

MEMBERS = 2_000
MAX_WRITE_UNITS = 0.06
MAX_READ_UNITS = 0.1


def test_a_member_costs_a_small_part_of_a_task(engine: Engine) -> None:
    """All that is written and read until the bucket is drained, the ticks' own rows and the batch's included."""
    life = units.members(engine, MEMBERS)
    assert life.per_task("write_units") <= MAX_WRITE_UNITS
    assert life.per_task("read_units") <= MAX_READ_UNITS
    # 500 share a row, whose body is written before it, and the row is claimed and recorded once.
    assert life.insert.total.calls <= 10

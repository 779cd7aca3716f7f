"""What the members of a batch cost, from their insert to their outcome."""

from __future__ import annotations

from dynatick_stack.bench import units
from dynatick_stack.bench.installation import Installation
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


def test_a_changed_member_costs_its_row_and_the_mark_in_its_pack(engine: Engine) -> None:
    """In one transaction, so twice each; and the entry of the row in the index."""
    installation = Installation.fresh(engine.url)
    installation.insert_batch(MEMBERS, installation.bucket())
    meter = units.Meter(engine)
    installation.client.run_now("batch/000000007")
    counts = meter.read()
    assert counts.total.write_units == 2 + 2 + 1
    # The batch, and the packs that may have it, by their keys; and a body of 500 payloads.
    assert counts.total.read_units <= 20

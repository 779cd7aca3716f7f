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


def test_a_list_of_batches_is_one_query_and_their_rows(engine: Engine) -> None:
    """Whatever the range is, and however many minutes are in it."""
    installation = Installation.fresh(engine.url)
    batches = installation.client.batches
    for n in range(30):
        batches.insert([{}], batch_id=f"b{n:02}", action="log", due_at=f"2099-12-{n + 1:02}T12:00:00Z")
    meter = units.Meter(engine)
    assert [one.batch_id for one in batches.list().batches] == [f"b{n:02}" for n in reversed(range(30))]
    counts = meter.read()
    assert {name: one.calls for name, one in counts.by_operation.items()} == {"Query": 1, "BatchGetItem": 2}
    assert (counts.by_operation["Query"].read_units, counts.total.read_units) == (0.5, 0.5 + 30)

    page = batches.list(start="2099-12-01T00:00:00Z", end="2099-12-31T00:00:00Z", limit=5)
    assert [one.batch_id for one in page.batches] == ["b29", "b28", "b27", "b26", "b25"]
    counts = meter.read()
    # And the settings, for the grid.
    calls = {name: one.calls for name, one in counts.by_operation.items()}
    assert calls == {"Query": 1, "BatchGetItem": 1, "GetItem": 1}
    assert counts.total.read_units == 0.5 + 5 + 1


def test_a_batch_in_the_list_costs_a_write_unit_at_its_insert(engine: Engine) -> None:
    installation = Installation.fresh(engine.url)
    meter = units.Meter(engine)
    installation.client.batches.insert(None, batch_id="b", total=9, action="log", due_at="2099-12-31T12:00:00Z")
    assert meter.read().total.write_units == 2 + 1
    installation.client.batches.insert(None, batch_id="b", total=9, action="log", due_at="2099-12-31T12:00:00Z")
    assert meter.read().total.write_units == 1, "the insert that is refused"


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

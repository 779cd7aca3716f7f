"""The units that `dynatick plan` reckons for a task and an occurrence are those that the engine uses."""

from __future__ import annotations

import pytest
from tests.costs.test_deadlines import SCHEDULES, TICKS, ticks_with

from dynatick.domain.buckets import instant_of, minute_of
from dynatick_stack.bench import units
from dynatick_stack.bench.installation import ACTION, Installation, dynamodb
from dynatick_stack.counting.counts import Engine
from dynatick_stack.counting.rules import item_bytes
from dynatick_stack.plan.capacity import PlanOptions, units_of
from dynatick_stack.plan.figures import READ_UNITS_OF_OCCURRENCE, ROW_GROWTH
from dynatick_stack.plan.loads import plan_burst, plan_schedules


def test_a_task_that_grows_over_a_kilobyte_while_it_runs(engine: Engine) -> None:
    installation = Installation.fresh(engine.url)
    due = instant_of(minute_of(installation.clock()) + 1)
    meter = units.Meter(engine)
    installation.client.insert("a", due_at=due, action=ACTION, payload={"text": "x" * 800})

    def size() -> int:
        answer = dynamodb(engine.url).get_item(TableName=installation.table, Key={"taskId": {"S": "a"}})
        return item_bytes(answer["Item"])

    inserted = size()
    installation.next_tick()
    assert 0 < size() - inserted <= ROW_GROWTH
    load = plan_burst(1, 60, PlanOptions(row_bytes=inserted)).load
    assert (units_of(inserted), load.table_units) == (1, 4), "such a row is what this test is for"
    own = 3  # the cursor twice, and the tick's record
    # The claim adds less than the whole growth, so that one of the two writes may take a unit less than planned.
    planned = load.insert_units + 1 + load.table_units + load.index_units
    assert planned - 1 <= meter.read().total.write_units - own <= planned


def test_an_occurrence(engine: Engine) -> None:
    few, many = (ticks_with(engine, "rate(1 minute)", schedules=number) for number in (SCHEDULES, 2 * SCHEDULES))
    occurrences = SCHEDULES * TICKS
    load = plan_schedules(SCHEDULES, 60).load
    # The entry of the schedule in its next bucket lies on another partition, so it is no part of ``index_units``.
    assert many.write_units - few.write_units == occurrences * (load.table_units + load.index_units + 1)
    assert (many.read_units - few.read_units) / occurrences == pytest.approx(READ_UNITS_OF_OCCURRENCE, rel=0.1)

"""A batch in the simulation of AWS's limits: its members share processes, and the tasks beside it don't wait for it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.simulate.assumptions import Assumptions
from tests.simulate.batch import simulate_batch
from tests.simulate.burst import simulate_burst
from tests.simulate.world import Scenario

from dynatick.engine.rules import Precision

SMALL = Scenario(tasks=150, members=4000, shards=1, workers=4, threads=32)
BEGIN = 1.0 + 2.0 + 3.0  # the tick; until the pass knows its rate; until workers begin, cold


@pytest.mark.parametrize(("precision", "tick_delay"), [(Precision.TICK, 1.0), (Precision.SECOND, 8.0)])
def test_workers_share_a_batch_and_the_tasks_beside_it_do_not_wait(precision: Precision, tick_delay: float) -> None:
    """With wake-ups the tick may be late."""
    scenario = replace(SMALL, precision=precision, assumptions=Assumptions(tick_delay=tick_delay))
    run, alone = simulate_batch(scenario), simulate_burst(replace(scenario, members=0))

    assert run.problems == alone.problems == []
    assert run.max_running >= 1 + SMALL.workers
    # Five processes take 160 members a second each, and none gets more than a pack beyond its share.
    assert run.last_start < BEGIN + (SMALL.members / (1 + SMALL.workers) + 500) / 160
    assert run.tasks_last_start < alone.last_start + 1
    # Eight packs and their bodies of at most 16 KB; then each pack is claimed, recorded, and a little more.
    assert run.inserting.write_units <= 8 * (2 + 16) + 10
    assert run.used.write_units - 3 * SMALL.tasks < 100

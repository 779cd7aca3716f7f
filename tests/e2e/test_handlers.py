"""Handlers on the deployed stack: one that polls a job comes back until the job is done; one sees its environment."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest
from tests.e2e.handlers import HANDLERS
from tests.e2e.support import TICK_SECONDS, deployed, instant

from dynatick_stack.checkout import MODULE, with_handlers

pytestmark = pytest.mark.long

EVERY = 3
ENVIRONMENT = json.dumps({"SENDER": 'Ada "the first" {'})


@pytest.mark.parametrize(("precision", "within"), [("tick", 4 * TICK_SECONDS), ("second", TICK_SECONDS)])
def test_a_handler_that_polls_comes_back(tmp_path: Path, precision: str, within: float) -> None:
    root = with_handlers(tmp_path / "checkout", HANDLERS)
    given = {"TickMinutes": 1, "Precision": precision, "HandlersModule": MODULE, "HandlersEnvironment": ENVIRONMENT}
    with deployed(tmp_path / "local", root=root, **given) as world:
        world.tick_and_wait()
        world.put("job", action="poll", payload={"seconds": EVERY})
        world.put("told", action="tell", payload={"variable": "SENDER"})
        ended = world.run_to_end(["job", "told"], within=within)
        assert ended["told"]["result"] == 'Ada "the first" {'
        job = ended["job"]
        assert (job["status"], job["attempt"], job["run"], job["turn"]) == ("completed", 1, 1, 2)
        assert job["result"] == {"asked": 3}
        # The run began with its first turn, and no turn came before its time.
        assert instant(job["startedAt"]) - instant(job["firstStartedAt"]) >= timedelta(seconds=2 * EVERY)

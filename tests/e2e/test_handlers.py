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


def test_a_handler_that_polls_comes_back(tmp_path: Path) -> None:
    root = with_handlers(tmp_path / "checkout", HANDLERS)
    given = {"TickMinutes": 1, "Precision": "second", "HandlersModule": MODULE, "HandlersEnvironment": ENVIRONMENT}
    with deployed(tmp_path / "local", root=root, **given) as world:
        world.stack.tick()
        world.put("job", action="poll", payload={"seconds": EVERY})
        world.put("told", action="tell", payload={"variable": "SENDER"})
        ended = world.run_to_end(["job", "told"], within=TICK_SECONDS)
        assert ended["told"]["result"] == 'Ada "the first" {'
        job = ended["job"]
        assert (job["status"], job["attempt"], job["run"], job["turn"]) == ("completed", 1, 1, 2)
        assert job["result"] == {"asked": 3}
        # The run began with its first turn, and no turn came before its time.
        assert instant(job["startedAt"]) - instant(job["firstStartedAt"]) >= timedelta(seconds=2 * EVERY)

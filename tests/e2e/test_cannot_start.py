"""A handlers module that can't be imported, once it is deployed: seen within a tick by table, status and doctor,
and repaired by the next deployment."""

from __future__ import annotations

import json
import subprocess
from functools import partial
from pathlib import Path

import pytest
from tests.e2e.handlers import HANDLERS
from tests.e2e.support import TICK_SECONDS, DeployedStack, deployed, eventually
from tests.e2e.test_cli import run

from dynatick.cli.exit_code import ExitCode
from dynatick.domain import attributes as attr
from dynatick.engine.installation_settings import SETTINGS_ID
from dynatick_stack.checkout import MODULE, with_handlers
from dynatick_stack.errors import DeployError

pytestmark = pytest.mark.long

BROKEN = "handlers_broken"


def test_it_is_seen_within_a_tick_and_repaired_by_the_next_deployment(tmp_path: Path) -> None:
    root = with_handlers(tmp_path / "checkout", HANDLERS)
    (root / "functions" / "processor" / f"{BROKEN}.py").write_text("import no_such_library\n" + HANDLERS)
    with deployed(tmp_path / "local", root=root, TickMinutes=1, HandlersModule=MODULE) as world:
        world.stack.tick()
        assert status(world) == (ExitCode.OK, "running")
        assert doctor(world) == (ExitCode.OK, [])

        with pytest.raises(DeployError, match="no_such_library"):
            world.stack.redeploy(HandlersModule=BROKEN)
        forget_problem(world)
        world.put("waits", action="tell", payload={"variable": "PATH"})
        # The rule's own tick: nothing is invoked by hand here.
        eventually(lambda: problem(world), within=TICK_SECONDS, what="the problem in the settings row")
        assert BROKEN in problem(world) and "no_such_library" in problem(world)

        assert status(world)[1] == "failing"
        said = run(world, "status", "--local").stdout
        assert "can't start" in said and "no_such_library" in said
        found, kinds = doctor(world)
        assert (found, "processor-fails" in kinds) == (ExitCode.FOUND, True)
        explained = partial(world.client.explain, "waits")
        eventually(lambda: "the processor can't start" in explained().sentence, within=TICK_SECONDS, what=explained)
        assert world.status("waits") == "scheduled"

        world.stack.redeploy(HandlersModule=MODULE)
        assert world.run_to_end(["waits"])["waits"]["status"] == "completed"
        assert status(world) == (ExitCode.OK, "running")
        assert doctor(world) == (ExitCode.OK, [])


def problem(world: DeployedStack) -> str:
    """Why the processor can't start, as the table says; empty: it can."""
    settings = world.client.settings()
    return (settings.processor_problem if settings is not None else None) or ""


def forget_problem(world: DeployedStack) -> None:
    """Removes what the tick of the deployment has noted, so that the next tick is seen to note it."""
    world.dynamodb.update_item(
        TableName=world.stack.table,
        Key={"taskId": {"S": SETTINGS_ID}},
        UpdateExpression=f"REMOVE {attr.PROCESSOR_PROBLEM}",
    )
    assert problem(world) == ""


def status(world: DeployedStack) -> tuple[int, str]:
    done = run(world, "status", "--local", "--output", "json")
    return done.returncode, json.loads(done.stdout)["state"]


def doctor(world: DeployedStack) -> tuple[int, list[str]]:
    """Exit code, and the kinds of the findings."""
    done: subprocess.CompletedProcess[str] = run(world, "doctor", "--local", "--output", "json")
    return done.returncode, [finding["kind"] for finding in json.loads(done.stdout)["findings"]]

"""Handlers on the deployed stack: one that polls a job comes back until the job is done; one sees its environment; and
a module that can't be imported is seen within a tick by table, status and doctor, and repaired by the next deployment.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from functools import partial

import pytest
from tests.e2e.handlers import HANDLERS
from tests.e2e.support import TICK_SECONDS, DeployedStack, deployed, eventually, instant
from tests.e2e.test_cli import run

from dynatick.cli.exit_code import ExitCode
from dynatick.domain import attributes as attr
from dynatick.engine.settings import SETTINGS_ID
from dynatick_stack.checkout import MODULE, with_handlers
from dynatick_stack.errors import DeployError

pytestmark = pytest.mark.long

BROKEN = "handlers_broken"
EVERY = 3
SENDER = 'Ada "the first" {'


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeployedStack]:
    folder = tmp_path_factory.mktemp("handlers")
    root = with_handlers(folder / "checkout", HANDLERS)
    (root / "functions" / "processor" / f"{BROKEN}.py").write_text("import no_such_library\n" + HANDLERS)
    given = {"Precision": "second", "HandlersModule": MODULE, "HandlersEnvironment": json.dumps({"SENDER": SENDER})}
    with deployed(folder / "local", root=root, TickMinutes=1, **given) as world:
        world.stack.tick()
        yield world


def test_a_handler_that_polls_comes_back_and_one_sees_its_environment(own: DeployedStack) -> None:
    own.put("job", action="poll", payload={"seconds": EVERY})
    own.put("told", action="tell", payload={"variable": "SENDER"})
    ended = own.run_to_end(["job", "told"], within=TICK_SECONDS)
    assert ended["told"]["result"] == SENDER
    job = ended["job"]
    assert (job["status"], job["attempt"], job["run"], job["turn"]) == ("completed", 1, 1, 2)
    assert job["result"] == {"asked": 3}
    # The run began with its first turn, and no turn came before its time.
    assert instant(job["startedAt"]) - instant(job["firstStartedAt"]) >= timedelta(seconds=2 * EVERY)


def test_a_broken_module_is_seen_within_a_tick_and_repaired_by_the_next_deployment(own: DeployedStack) -> None:
    assert status(own) == (ExitCode.OK, "running")
    assert doctor(own) == (ExitCode.OK, [])

    with pytest.raises(DeployError, match="no_such_library"):
        own.stack.redeploy(HandlersModule=BROKEN)
    forget_problem(own)
    # The rule's own tick: nothing is invoked by hand here.
    eventually(lambda: problem(own), within=TICK_SECONDS, what="the problem in the settings row")
    assert BROKEN in problem(own) and "no_such_library" in problem(own)
    own.put("waits", action="tell", payload={"variable": "PATH"})

    assert status(own)[1] == "failing"
    said = run(own, "status", "--local").stdout
    assert "can't start" in said and "no_such_library" in said
    found, kinds = doctor(own)
    assert (found, "processor-fails" in kinds) == (ExitCode.FOUND, True)
    explained = partial(own.client.operations.explain, "waits")
    eventually(lambda: "the processor can't start" in explained().sentence, within=TICK_SECONDS, what=explained)
    assert own.status("waits") == "scheduled"

    own.stack.redeploy(HandlersModule=MODULE)
    assert own.run_to_end(["waits"])["waits"]["status"] == "completed"
    assert status(own) == (ExitCode.OK, "running")
    assert doctor(own) == (ExitCode.OK, [])


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

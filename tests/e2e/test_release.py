"""`dynatick deploy`, `diff` and `destroy` against the emulator's CloudFormation."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.e2e import programs
from tests.e2e.support import eventually

from dynatick_stack.deploy import client
from dynatick_stack.emulator import Emulator
from dynatick_stack.init import write_project

pytestmark = pytest.mark.long

OWN = '[stack]\nname = "mine"\nregion = "us-east-1"\n[handlers]\nmodule = "handlers"\n'
STAGE = '[stages.prod.parameters]\nShardCount = 2\nDeletionProtection = "true"\n'


def test_deploy_diff_and_destroy(tmp_path: Path, aws: Emulator) -> None:
    mine = tmp_path / "mine"
    write(mine)

    def run(*arguments: str, code: int = 0) -> str:
        ran = programs.run(*programs.DYNATICK, *arguments, cwd=mine, AWS_ENDPOINT_URL=aws.endpoint, **programs.KEYS)
        assert ran.returncode == code, f"{ran.stdout}\n{ran.stderr}"
        return ran.stdout + ran.stderr

    stacks, aws_tables = client("cloudformation", aws.endpoint), client("dynamodb", aws.endpoint)

    def statuses() -> dict[str, str]:
        return {one["StackName"]: one["StackStatus"] for one in stacks.describe_stacks()["Stacks"]}

    assert "There is no bucket" in run("deploy", code=2)
    assert "error: AWS doesn't do as asked: " in run("deploy", "--profile", "no-such", code=1)
    assert "There is no stack mine" in run("destroy", code=6)
    said = run("deploy", "--yes")
    assert "add       ProcessorFunction" in said
    assert "Deployed mine: table mine-TasksTable" in said
    again = run("deploy", "--yes")
    assert "mine is up to date\n" in again
    assert "Uploading" not in again
    assert "mine is up to date" in run("diff", "--exit-code")

    parameters = [
        {"ParameterKey": one["ParameterKey"], "UsePreviousValue": True}
        for one in stacks.describe_stacks(StackName="mine")["Stacks"][0]["Parameters"]
        if one["ParameterKey"] != "TickState"
    ]
    stopped = [{"ParameterKey": "TickState", "ParameterValue": "DISABLED"}, *parameters]
    allowed = ["CAPABILITY_IAM", "CAPABILITY_AUTO_EXPAND"]
    stacks.update_stack(StackName="mine", UsePreviousTemplate=True, Parameters=stopped, Capabilities=allowed)
    eventually(lambda: statuses()["mine"] == "UPDATE_COMPLETE", within=60)

    (mine / "handlers.py").write_text((mine / "handlers.py").read_text() + "\nCHANGED = True\n")
    (mine / "dynatick.toml").write_text(OWN + 'environment = { SENDER = "me" }\n' + STAGE)
    said = run("diff", "--exit-code", code=7)
    assert "parameter HandlersEnvironment: empty → {" in said
    assert "modify    ProcessorFunction" in said
    assert "kept      TickState: DISABLED, which dynatick.toml does not name" in said
    assert "add " not in said
    assert "There is nobody to ask; --yes answers yes" in run("deploy", code=2)
    assert "Deployed mine" in run("deploy", "--yes")
    assert "mine-handlers:2" in str(client("lambda", aws.endpoint).list_functions()["Functions"])

    (mine / "handlers.py").write_text("import no_such_module\n")
    assert "No module named 'no_such_module'" in run("deploy", "--yes", code=3)
    for name in ("handlers.py", "dynatick.toml", "test_handlers.py"):
        (mine / name).unlink()
    write(mine)

    said = run("deploy", "--stage", "prod", "--yes")
    assert "Protecting the table against deletion" in said and "Deployed mine-prod" in said
    (table,) = [name for name in aws_tables.list_tables()["TableNames"] if name.startswith("mine-prod-")]
    # The emulator keeps the parameter's text.
    assert str(aws_tables.describe_table(TableName=table)["Table"]["DeletionProtectionEnabled"]).lower() == "true"
    assert "has no [stages.test]; known: prod" in run("deploy", "--stage", "test", code=3)
    assert statuses() == {"mine": "UPDATE_COMPLETE", "mine-prod": "UPDATE_COMPLETE"}

    said = run("destroy", "--yes")
    assert "stays     AWS::DynamoDB::Table" in said
    assert statuses() == {"mine-prod": "UPDATE_COMPLETE"}
    lambdas = client("lambda", aws.endpoint)
    assert [one["LayerName"] for one in lambdas.list_layers()["Layers"] if "handlers" in one["LayerName"]] == [
        "mine-prod-handlers"
    ]
    run("destroy", "--stage", "prod", "--yes")


def write(folder: Path) -> None:
    write_project(folder)
    (folder / "dynatick.toml").write_text(OWN + STAGE)

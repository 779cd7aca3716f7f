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

OWN = """[stack]
name = "mine"
region = "us-east-1"
[handlers]
module = "handlers"
secrets = { KEY = "ssm:/mine/key" }
"""
NIGHTLY = """[schedules.nightly]
scheduleExpression = "cron(0 6 * * ? *)"
action = "send-reminder"
payload = { to = "ada@example.com", text = "Good morning" }
"""
STAGE = """[stages.prod.parameters]
ShardCount = 2
DeletionProtection = "true"
[stages.prod.handlers]
environment = { SENDER = "prod" }
"""


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

    buckets = client("s3", aws.endpoint).list_buckets
    said = run("diff", "--exit-code", code=7)
    assert "  resources not compared: CloudFormation reads the template from the bucket dynatick-000000000000" in said
    assert buckets()["Buckets"] == []
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
    said = run("deploy", "--dry-run")
    assert "  [stack] region                           us-east-1                                [stack]\n" in said
    assert "other parameters have the defaults of the template\nmine is up to date\n" in said

    (mine / "customers.csv").write_text("ada@example.com\n")
    said = run("deploy", "--yes", code=2)
    assert "include:\n  customers.csv\n" in said and "--yes is no answer to that" in said
    assert "dynatick deploy asks whether they go" in run("diff", "--exit-code", code=7)
    (mine / "customers.csv").unlink()

    parameters = [
        {"ParameterKey": one["ParameterKey"], "UsePreviousValue": True}
        for one in stacks.describe_stacks(StackName="mine")["Stacks"][0]["Parameters"]
        if one["ParameterKey"] != "TickState"
    ]
    stopped = [{"ParameterKey": "TickState", "ParameterValue": "DISABLED"}, *parameters]
    allowed = ["CAPABILITY_IAM", "CAPABILITY_AUTO_EXPAND"]
    stacks.update_stack(StackName="mine", UsePreviousTemplate=True, Parameters=stopped, Capabilities=allowed)
    eventually(lambda: statuses()["mine"] == "UPDATE_COMPLETE", within=180)

    (mine / "dynatick.toml").write_text(OWN + NIGHTLY)
    assert "create    nightly " in run("diff", "--exit-code", code=7)
    assert "Change the schedules of mine? There is nobody to ask" in run("deploy", code=2)
    assert "create    nightly " in run("deploy", "--yes")
    on_stack = ("--stack", "mine", "--region", "us-east-1", "--output", "jsonl")
    assert "mine is up to date" in run("deploy", "--yes")
    run("schedule", "add", "by-hand", "rate(1 hour)", *on_stack)
    (mine / "dynatick.toml").write_text(OWN + NIGHTLY.replace("nightly", "by-hand"))
    said = run("deploy", "--yes", code=5)
    assert "remove    nightly " in said and "conflict  by-hand " in said and "Nothing was deployed" in said
    assert '"result":"keep"' in run("schedule", "sync", "--region", "us-east-1", "--output", "jsonl", code=5)
    (mine / "dynatick.toml").write_text(OWN)
    assert "remove    nightly " in run("deploy", "--yes")
    run("schedule", "get", "by-hand", *on_stack)
    run("schedule", "get", "nightly", *on_stack, code=4)

    (mine / "handlers.py").write_text((mine / "handlers.py").read_text() + "\nCHANGED = True\n")
    (mine / "dynatick.toml").write_text(OWN + 'environment = { SENDER = "me" }\n' + STAGE)
    said = run("diff", "--exit-code", code=7)
    assert "parameter HandlersEnvironment: empty → {" in said
    assert "modify    ProcessorFunction" in said
    assert "AWS::Events::Rule                replaced only if ProcessorFunction.Arn changes\n" in said
    assert "Uploading" not in said
    assert run("deploy", "--dry-run").count("TickState") == 1
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

    said = run("deploy", "--stage", "prod", "--dry-run")
    assert (
        "[handlers] environment SENDER            prod                                     [stages.prod.handlers]"
        in said
    )
    assert "[handlers] secrets KEY                   ssm:/mine/key                            [handlers]" in said
    said = run("deploy", "--stage", "prod", "--yes")
    assert "Protecting the table against deletion" in said and "Deployed mine-prod" in said
    (table,) = [name for name in aws_tables.list_tables()["TableNames"] if name.startswith("mine-prod-")]
    role = stacks.describe_stack_resource(StackName="mine-prod", LogicalResourceId="ProcessorRole")
    name = role["StackResourceDetail"]["PhysicalResourceId"]
    allowed = client("iam", aws.endpoint).get_role_policy(RoleName=name, PolicyName="handlers-read-secrets")
    (statement,) = allowed["PolicyDocument"]["Statement"]
    assert statement["Resource"] == ["arn:aws:ssm:us-east-1:000000000000:parameter/mine/key"]
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

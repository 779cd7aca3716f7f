"""The transformed template as a nested stack: what docs/how-to/cdk-and-terraform.md describes, on the emulator."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.support import eventually

from dynatick_stack import deploy, local, project
from dynatick_stack.cloudformation import Operation
from dynatick_stack.emulator import Emulator
from dynatick_stack.init import write_project
from dynatick_stack.packaging import Platform, write_folder
from dynatick_stack.project_files import select

pytestmark = pytest.mark.long

BUCKET = "my-artifacts"
CODE = {"AWS::Lambda::Function": "Code", "AWS::Lambda::LayerVersion": "Content"}


def package(folder: Path, s3: Any) -> dict[str, Any]:
    """Uploads the zips that the template names, and names where they are, as `aws cloudformation package` does."""
    body: dict[str, Any] = json.loads((folder / "template.json").read_text())
    for resource in body["Resources"].values():
        if place := CODE.get(resource["Type"]):
            name = resource["Properties"][place]
            s3.upload_file(str(folder / name), BUCKET, name)
            resource["Properties"][place] = {"S3Bucket": BUCKET, "S3Key": name}
    return body


def test_a_transformed_template_is_nested_and_its_tasks_run(
    aws: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The emulator runs functions by this interpreter, on this machine.
    here = Platform(architecture=local.architecture(), python="{}.{}".format(*sys.version_info))
    monkeypatch.setattr(Platform, "of", lambda architecture: here)
    mine, out = tmp_path / "mine", tmp_path / "build"
    write_project(mine)
    found = project.read(mine)
    write_folder(found, select(found).files, out, is_transformed=True, say=lambda text: None)

    s3 = deploy.client("s3", aws.endpoint)
    s3.create_bucket(Bucket=BUCKET)
    s3.put_object(Bucket=BUCKET, Key="reminders.json", Body=json.dumps(package(out, s3)).encode())
    layer = deploy.client("lambda", aws.endpoint).publish_layer_version(
        LayerName="reminders-handlers", Content={"ZipFile": (out / "handlers.zip").read_bytes()}
    )
    given = {one["ParameterKey"]: one["ParameterValue"] for one in json.loads((out / "parameters.json").read_text())}
    nested = {
        "Type": "AWS::CloudFormation::Stack",
        "Properties": {
            "TemplateURL": f"{aws.endpoint}/{BUCKET}/reminders.json",
            "Parameters": {**given, "HandlersLayerArn": layer["LayerVersionArn"], "Precision": "second"},
        },
    }
    outputs = {name: {"Value": {"Fn::GetAtt": ["Dynatick", f"Outputs.{name}"]}} for name in ("TasksTableName",)}
    parent = deploy.stack_at(aws.endpoint, "parent")
    operation = Operation(parent)
    parent.client.create_stack(
        StackName="parent",
        TemplateBody=json.dumps({"Resources": {"Dynatick": nested}, "Outputs": outputs}),
        Capabilities=["CAPABILITY_IAM", "CAPABILITY_AUTO_EXPAND"],
        ClientRequestToken=operation.token,
    )
    assert operation.wait() == "CREATE_COMPLETE", operation.reasons
    tasks = local.LocalStack(endpoint=aws.endpoint, name="parent", outputs=parent.outputs()).task_client()
    tasks.insert("one", action="send-reminder", payload={"to": "ada@example.com", "text": "It is time"})
    eventually(lambda: tasks.get("one").status == "completed", within=150, what=lambda: tasks.get("one"))

"""The README's steps for AWS: `sam build`, then `sam deploy --guided`, here to the local emulator.

Run by `make sam`, which sets up the SAM CLI in an environment of its own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest

from dynatick_stack import emulator, template

ROOT = Path(__file__).parents[2]
SAM = ROOT / ".venv-sam" / "bin" / "sam"
UNWANTED = shutil.ignore_patterns(".venv*", ".git", ".dynatick", ".*_cache", ".hypothesis", ".aws-sam")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copied = tmp_path_factory.mktemp("sam") / "dynatick"
    shutil.copytree(ROOT, copied, symlinks=True, ignore=UNWANTED)
    return copied


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    state = tmp_path_factory.mktemp("emulator")
    running = emulator.start(0, state_dir=state, say=lambda text: None)
    yield running.endpoint
    emulator.stop(state_dir=state)


def sam(command: str, checkout: Path, endpoint: str, answers: str = "") -> str:
    ran = subprocess.run(
        [SAM, *command.split()[1:]],
        cwd=checkout,
        env=os.environ | {"AWS_ENDPOINT_URL": endpoint, "SAM_CLI_TELEMETRY": "0", "SAM_CLI_POLL_DELAY": "0.5"},
        input=answers,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr}"
    return ran.stdout


def test_the_readmes_commands_build_and_deploy(checkout: Path, endpoint: str) -> None:
    sam("sam build", checkout, endpoint)
    built = checkout / ".aws-sam" / "build"
    layer = built / "DynatickLayer" / "python"
    assert (layer / "dynatick" / "engine" / "drain.py").is_file()
    assert (layer / "pynamodb").is_dir()
    compiled = [path.name for path in (layer / "pydantic_core").glob("*.so")]
    assert compiled, "pydantic's core is not in the layer"
    assert all("aarch64" in name for name in compiled), "the layer is not for the default architecture"
    assert not (layer / "typer").exists(), "the CLI's libraries don't belong into the layer"
    code = template.load(built / "template.yaml")["Resources"]["ProcessorFunction"]["Properties"]["CodeUri"]
    assert (built / code / "handlers.py").is_file()  # a function is its folder, as it stands

    questions = 2 + len(template.load()["Parameters"])  # stack name, region, and every parameter: all as proposed
    answers = "\n" * questions + "n\n" + "\n" * 2 + "n\n"  # no confirmation, roles yes, rollback yes, nothing saved
    sam("sam deploy --guided", checkout, endpoint, answers)
    stacks = boto3.client("cloudformation", endpoint_url=endpoint).describe_stacks(StackName="dynatick")["Stacks"]
    assert stacks[0]["StackStatus"] in ("CREATE_COMPLETE", "UPDATE_COMPLETE")
    outputs = {output["OutputKey"] for output in stacks[0]["Outputs"]}
    assert {"TasksTableName", "ProcessorFunctionName", "SchedulerFunctionName", "DeadLetterQueueUrl"} <= outputs

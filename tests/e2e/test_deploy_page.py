"""docs/how-to/deploy.md: its commands, answered with yes on a terminal, deploy its project to the emulator."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import boto3
import pytest
from tests.e2e.documents import blocks
from tests.e2e.programs import KEYS, environment

from dynatick_stack import project
from dynatick_stack.emulator import Emulator
from dynatick_stack.init import write_project

pytestmark = pytest.mark.long

PAGE = "docs/how-to/deploy.md"
REGION = "eu-central-1"
HOLDS = "[handlers] secrets SMTP_PASSWORD         ssm:/reminders/prod/smtp                 [stages.prod.handlers]\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The page's project, with what the page takes for granted."""
    made = tmp_path / "reminders"
    write_project(made)
    settings, included, excluded = (text for language, text in blocks(PAGE) if language == "toml")
    (made / "requirements.txt").write_text("tabulate==0.9.0\n")
    (made / "dynatick.toml").write_text(settings + "\n")
    given = project.read(made)
    assert given.of("prod").name == "reminders-prod"
    other = tmp_path / "other"
    other.mkdir()
    for name, text in (("include", included), ("exclude", excluded)):
        (other / "dynatick.toml").write_text('[stack]\nname = "other"\n' + text)
        assert list(getattr(project.read(other), name)) == tomllib.loads(text)["handlers"][name]
    return made


def test_the_pages_commands_deploy_upgrade_and_delete_its_project(folder: Path, aws: Emulator) -> None:
    commands = "".join(text for language, text in blocks(PAGE) if language == "sh")
    assert commands.count("dynatick deploy --stage prod\n") == 2
    said = answered_with_yes(commands, folder, aws.endpoint)
    stacks = boto3.client("cloudformation", endpoint_url=aws.endpoint, region_name=REGION).describe_stacks()
    assert re.search(r"\? \[y/N\]: .*\n?Deployed reminders-prod: table reminders-prod-TasksTable", said), said
    assert HOLDS in said
    assert "There is no bucket dynatick-000000000000-eu-central-1 for what is uploaded. Create it?" in said
    assert "Handlers: 1 file\n" in said
    assert said.count("reminders-prod is up to date") == 5
    assert "stays     AWS::DynamoDB::Table" in said
    assert said.endswith("Deleted reminders-prod\n")
    assert stacks["Stacks"] == []
    written = {path.name for path in (folder / "build").iterdir()}
    assert {"template.json", "parameters.json", "handlers.zip", "ProcessorFunction.zip"} <= written


def answered_with_yes(commands: str, folder: Path, endpoint: str) -> str:
    """Runs commands as a person who says yes to every question; what they printed."""
    person, terminal = pty.openpty()
    os.write(person, b"y\n" * 10)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    try:
        ran = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", commands], cwd=folder,
            env=environment(**KEYS, AWS_ENDPOINT_URL=endpoint, PATH=path),
            stdin=terminal, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=1200, check=False,
        )  # fmt: skip
    finally:
        os.close(person)
        os.close(terminal)
    assert ran.returncode == 0, ran.stdout
    return ran.stdout

"""A function loads what it works with, and not what another does: that is what its first request waits for."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from dynatick_stack.template import ROOT, defaults, load

ROUTER = ("pydantic", "aws_lambda_powertools.event_handler", "dynatick.api")
DRAIN = ("dynatick.engine.processor", "dynatick.engine.drain", "dynatick.actions.registry")
CLIENT = ("dynatick.client", "dynatick.bulk")


def functions() -> Mapping[str, tuple[Path, Mapping[str, str]]]:
    """The template's functions by the names of their folders, with the environment that it gives them."""
    template = load()
    common = template["Globals"]["Function"]["Environment"]["Variables"]
    found = {}
    for resource in template["Resources"].values():
        if resource["Type"] == "AWS::Serverless::Function":
            folder = ROOT / resource["Properties"]["CodeUri"]
            own = resource["Properties"].get("Environment", {}).get("Variables", {})
            variables = {name: value_of(value) for name, value in (common | own).items()}
            found[folder.name] = folder, variables | {"AWS_LAMBDA_FUNCTION_NAME": folder.name}
    return found


def value_of(value: object) -> str:
    """A parameter's default; for what only a deployment knows, something of its kind."""
    if isinstance(value, Mapping):
        name = str(value.get("Ref", "dynatick"))
        return defaults().get(name, f"https://sqs.us-east-1.amazonaws.com/000000000000/{name}")
    return str(value)


OTHERS = {
    "processor": (*ROUTER, *CLIENT),
    "scheduler": (*ROUTER, *DRAIN, *CLIENT),
    "api": (*DRAIN, "dynatick.bulk.importer", "dynatick.bulk.importing", "dynatick.bulk.file_reader"),
    "importer": (*ROUTER, *DRAIN),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_function_loads_nothing_of_the_others(name: str) -> None:
    assert functions().keys() == OTHERS.keys()
    folder, variables = functions()[name]
    ran = subprocess.run(
        [sys.executable, "-c", f"import app, sys; print(*sorted({set(OTHERS[name])!r} & set(sys.modules)))"],
        cwd=folder,
        env={**os.environ, **variables, "AWS_DEFAULT_REGION": "us-east-1"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert ran.stdout.split() == []


def test_an_application_that_inserts_tasks_loads_nothing_of_what_examines_the_table() -> None:
    program = """
import sys
import dynatick
from dynatick import AsyncTaskClient, MemoryStore, TaskClient
client = TaskClient(MemoryStore())
client.insert("t", delay_seconds=60, action="log")
client.schedules.insert("s", "rate(1 day)", action="log")
client.cancel("t")
before = set(sys.modules)
client.operations.health()
names = ("reconcile", "placement", "diagnosis", "drain", "claims", "scheduler")
print(*sorted(name for name in names if f"dynatick.engine.{name}" in before))
print("dynatick.client.operations" in set(sys.modules) - before)
"""
    ran = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True)
    assert ran.stdout.splitlines() == ["", "True"]


def test_actions_load_what_is_slow_only_when_it_is_needed() -> None:
    program = """
import sys
from datetime import UTC, datetime
from dynatick.actions import build_actions, handlers
build_actions(handlers_module=None, clock=lambda: datetime.now(UTC))
print(*{"pydantic", "asyncio", "urllib3", "ssl", "boto3", "aws_lambda_powertools"} & set(sys.modules))
"""
    ran = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True)
    assert ran.stdout.split() == []

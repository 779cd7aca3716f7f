"""A function loads what it works with, and not what another does: that is what its first request waits for."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from dynatick_stack.bench.imports import functions

ROUTER = ("pydantic", "aws_lambda_powertools.event_handler", "dynatick.api")
DRAIN = ("dynatick.engine.processor", "dynatick.engine.drain", "dynatick.actions.registry")
CLIENT = ("dynatick.client", "dynatick.bulk")


@pytest.mark.parametrize(
    ("name", "others"),
    [
        ("processor", (*ROUTER, *CLIENT)),
        ("scheduler", (*ROUTER, *DRAIN, *CLIENT)),
        ("api", (*DRAIN, "dynatick.bulk.importer", "dynatick.bulk.importing", "dynatick.bulk.file_reader")),
        ("importer", (*ROUTER, *DRAIN)),
    ],
)
def test_a_function_loads_nothing_of_the_others(name: str, others: tuple[str, ...]) -> None:
    folder, variables = functions()[name]
    ran = subprocess.run(
        [sys.executable, "-c", f"import app, sys; print(*sorted({set(others)!r} & set(sys.modules)))"],
        cwd=folder,
        env={**os.environ, **variables, "AWS_DEFAULT_REGION": "us-east-1"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert ran.stdout.split() == []


def test_every_function_is_looked_at() -> None:
    assert set(functions()) == {"processor", "scheduler", "api", "importer"}

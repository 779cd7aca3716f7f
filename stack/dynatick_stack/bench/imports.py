"""How long the functions take to import, each in a fresh interpreter.

From bytecode, as in Lambda: the layer ships it (``dynatick_stack.build``).
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from dynatick_stack.bench.installation import REGION
from dynatick_stack.template import ROOT, defaults, load

_TIMED = "import time; began = time.perf_counter(); {}; print(time.perf_counter() - began)"
_FLOORS = {"boto3": "import boto3", "boto3_client": "import boto3; boto3.client('dynamodb')"}


def import_ms(rounds: int) -> Mapping[str, float]:
    """Milliseconds over a bare interpreter, medians: of each function; and of boto3, without a client and with one."""
    folders = functions()
    found: dict[str, list[float]] = {name: [] for name in (*folders, *_FLOORS)}
    with TemporaryDirectory() as compiled:
        for round_ in range(rounds + 1):
            for name, times in found.items():
                folder, variables = folders.get(name, (ROOT, {}))
                elapsed = run_seconds(_FLOORS.get(name, "import app"), folder, variables, Path(compiled))
                if round_:  # the first one compiles
                    times.append(elapsed)
    return {name: round(median(times) * 1000, 1) for name, times in found.items()}


def functions() -> Mapping[str, tuple[Path, Mapping[str, str]]]:
    """The template's functions by the names of their folders, with the environment that it gives them."""
    template = load()
    common = template["Globals"]["Function"]["Environment"]["Variables"]
    found = {}
    for resource in template["Resources"].values():
        if resource["Type"] == "AWS::Serverless::Function":
            folder = ROOT / resource["Properties"]["CodeUri"]
            own = resource["Properties"].get("Environment", {}).get("Variables", {})
            variables = {name: _value(value) for name, value in (common | own).items()}
            found[folder.name] = folder, variables | {"AWS_LAMBDA_FUNCTION_NAME": folder.name}
    return found


def _value(value: object) -> str:
    """A parameter's default; for what only a deployment knows, something of its kind."""
    if isinstance(value, Mapping):
        name = str(value.get("Ref", "dynatick"))
        return defaults().get(name, f"https://sqs.{REGION}.amazonaws.com/000000000000/{name}")
    return str(value)


def run_seconds(program: str, folder: Path, variables: Mapping[str, str], compiled: Path) -> float:
    """How long a program runs, without the start of its interpreter. ``compiled``: where bytecode is kept, whatever
    this process was told about it."""
    own = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    ran = subprocess.run(
        [sys.executable, "-c", _TIMED.format(program)],
        cwd=folder,
        env={**own, **variables, "PYTHONPYCACHEPREFIX": str(compiled), "AWS_DEFAULT_REGION": REGION},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return float(ran.stdout)

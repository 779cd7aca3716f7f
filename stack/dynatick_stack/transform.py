"""Carries out the template's SAM transform here, for tools that can't nest or include a template that has one."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dynatick_stack import template
from dynatick_stack.errors import BuildError
from dynatick_stack.venv import Say, emulator_python

_PROGRAM = Path(__file__).with_name("transform_program.py")
_CODE = {"AWS::Lambda::Function": "Code", "AWS::Lambda::LayerVersion": "Content"}
_BUCKET = "local"  # the translator takes code from buckets only


def transformed(body: Mapping[str, Any], code: Mapping[str, str], *, say: Say) -> dict[str, Any]:
    """The template without its transform. ``code``: a path for each resource that has code. Raises BuildError."""
    for name, path in code.items():
        template.set_code(body, name, {"Bucket": _BUCKET, "Key": path})
    ran = subprocess.run(
        [emulator_python(say), "-E", _PROGRAM],
        input=json.dumps(body),
        env={**os.environ, "AWS_DEFAULT_REGION": "us-east-1"},  # it wants one, and uses none
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode != 0:
        raise BuildError(f"The template can't be transformed:\n{ran.stderr.strip()}")
    plain: dict[str, Any] = json.loads(ran.stdout)
    for resource in plain["Resources"].values():
        if place := _CODE.get(resource["Type"]):
            resource["Properties"][place] = resource["Properties"][place]["S3Key"]
    return plain

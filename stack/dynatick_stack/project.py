"""A project's ``dynatick.toml``: which handlers, and with which parameters of the template they run.

A key that is unknown, or that nothing honours yet, is refused: ignored, it would be missed only when it matters.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from dynatick.errors import shown
from dynatick.settings import RESERVED
from dynatick_stack import template
from dynatick_stack.errors import RefusedError
from dynatick_stack.folders import PROJECT_FILE, project_of

STACK_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,63}")
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z]\w*", re.ASCII)
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_REGION = re.compile(r"[a-z]{2}(-[a-z]+)+-\d")
_STAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,31}")
_POLICY = re.compile(r"arn:[^, ]+:iam::[^, ]+:policy/[^, ]+|[A-Za-z0-9+=.@_/-]+")
_PATTERN = re.compile(r"[^/].*[^/]|[^/]")
_KEYS = {
    "stack": ("name", "region", "bucket", "table_write_units"),
    "handlers": ("module", "requirements", "exclude", "environment", "policies"),
    "parameters": (),
    "stages": (),
}
_OF_HANDLERS = {
    "HandlersModule": "[handlers] module names the module",
    "HandlersLayerArn": "the layer is made of the project",
    "HandlersEnvironment": "[handlers] environment has the variables",
    "HandlersPolicyArns": "[handlers] policies names the policies",
}


@dataclass(frozen=True, kw_only=True)
class Project:
    """What a dynatick.toml says."""

    folder: Path
    name: str  # of the stack
    module: str  # with the handlers
    requirements: Path | None = None  # of the handlers, as pip reads them
    exclude: tuple[str, ...] = ()  # patterns of files that the handlers don't need
    environment: Mapping[str, str] = field(default_factory=dict)  # of the handlers
    parameters: Mapping[str, str] = field(default_factory=dict)  # of the template
    # What follows has a meaning on AWS only.
    region: str | None = None
    bucket: str | None = None  # for what is uploaded
    table_write_units: int | None = None  # a second, the account's quota for a table; None: that of a new account
    policies: tuple[str, ...] = ()  # of the handlers: names of AWS's own, or ARNs
    stages: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # the parameters of each

    def parameters_of(self, stage: str | None) -> dict[str, str]:
        """The template's parameters: those of the stage before those of all. Raises RefusedError for no such stage."""
        if stage is None:
            return dict(self.parameters)
        if stage not in self.stages:
            known = ", ".join(sorted(self.stages)) or "none"
            raise RefusedError(f"{PROJECT_FILE} has no [stages.{stage}]; known: {known}")
        return {**self.parameters, **self.stages[stage]}

    def template_parameters(self, stage: str | None) -> dict[str, str]:
        """All parameters of the template that the project decides, but the ARN of the handlers' layer. Raises
        RefusedError. A policy's name stands for AWS's own policy."""
        environment = json.dumps(dict(self.environment)) if self.environment else ""
        return {
            **self.parameters_of(stage),
            "HandlersModule": self.module,
            "HandlersEnvironment": environment,
            "HandlersPolicyArns": ",".join(
                policy if policy.startswith("arn:") else f"arn:aws:iam::aws:policy/{policy}" for policy in self.policies
            ),
        }

    def stack_of(self, stage: str | None) -> str:
        """The name of the stack."""
        return self.name if stage is None else f"{self.name}-{stage}"


def find(folder: Path) -> Project:
    """The project that a folder is in. Raises RefusedError if it is in none, and for a dynatick.toml that is wrong."""
    found = project_of(folder)
    if found is None:
        raise RefusedError(
            f"There is no {PROJECT_FILE} in {folder}, nor in a folder above it. Write one: dynatick init"
        )
    return read(found)


def read(folder: Path) -> Project:
    """The project of this folder. Raises RefusedError, which names the key, the value and what is expected."""
    try:
        document = tomllib.loads((folder / PROJECT_FILE).read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RefusedError(f"{PROJECT_FILE}: {error}") from None
    _check_names("", document, _KEYS)
    for table, keys in _KEYS.items():
        if not isinstance(document.setdefault(table, {}), dict):
            raise RefusedError(f"{PROJECT_FILE}: {table} is a table; write [{table}]")
        if keys:
            _check_names(f"[{table}] ", document[table], keys)
    stack, handlers = document["stack"], document["handlers"]
    return Project(
        folder=folder,
        name=_text("[stack] name", stack.get("name"), STACK_NAME, "letters, digits and hyphens, at most 64"),
        module=_text(
            "[handlers] module", handlers.get("module", "handlers"), _MODULE, "a module's name, such as handlers"
        ),
        requirements=_requirements(folder, handlers.get("requirements")),
        exclude=_texts(
            "[handlers] exclude", handlers.get("exclude", []), _PATTERN, 'names or patterns, such as ["docs", "*.csv"]'
        ),
        environment=_environment(handlers.get("environment", {})),
        parameters=_parameters("[parameters]", document["parameters"]),
        region=_optional("[stack] region", stack.get("region"), _REGION, "an AWS region, such as eu-central-1"),
        bucket=_optional("[stack] bucket", stack.get("bucket"), _BUCKET, "the name of a bucket"),
        table_write_units=_units("[stack] table_write_units", stack.get("table_write_units")),
        policies=_texts(
            "[handlers] policies",
            handlers.get("policies", []),
            _POLICY,
            'names or ARNs of managed policies, such as ["AmazonSESFullAccess"]',
        ),
        stages=_stages(document["stages"]),
    )


def _check_names(where: str, given: Iterable[str], known: Iterable[str]) -> None:
    for name in given:
        if name not in known:
            near = get_close_matches(name.lower(), {one.lower(): one for one in known}, 1)
            right = next((one for one in known if near and one.lower() == near[0]), None)
            hint = f"did you mean {right}?" if right else f"known: {', '.join(sorted(known))}"
            raise RefusedError(f"{PROJECT_FILE}: {where}{name} is not known; {hint}")


def _text(name: str, value: object, pattern: re.Pattern[str], expected: str) -> str:
    if value is None:
        raise RefusedError(f"{PROJECT_FILE}: {name} is missing; expected {expected}")
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise _refused(name, value, expected)
    return value


def _optional(name: str, value: object, pattern: re.Pattern[str], expected: str) -> str | None:
    return None if value is None else _text(name, value, pattern, expected)


def _units(name: str, value: object) -> int | None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise _refused(name, value, "a whole number above 0, such as 80000")
    return value


def _texts(name: str, value: object, pattern: re.Pattern[str], expected: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise _refused(name, value, expected)
    return tuple(_text(name, one, pattern, expected) for one in value)


def _stages(given: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    found = {}
    for name, stage in given.items():
        _text("[stages]", name, _STAGE, "names of letters, digits and hyphens, at most 32")
        if not isinstance(stage, dict):
            raise RefusedError(f"{PROJECT_FILE}: stages.{name} is a table; write [stages.{name}.parameters]")
        _check_names(f"[stages.{name}] ", stage, ("parameters",))
        parameters = stage.get("parameters", {})
        if not isinstance(parameters, dict):
            raise RefusedError(f"{PROJECT_FILE}: [stages.{name}] parameters is a table")
        found[name] = _parameters(f"[stages.{name}.parameters]", parameters)
    return found


def _requirements(folder: Path, value: object) -> Path | None:
    if value is None:
        return None
    if not isinstance(value, str) or not (folder / value).is_file():
        raise _refused("[handlers] requirements", value, "a file of the project, such as requirements.txt")
    return folder / value


def _environment(value: object) -> dict[str, str]:
    name = "[handlers] environment"
    if not isinstance(value, dict):
        raise _refused(name, value, 'variables with their values, such as { SENDER = "me@example.com" }')
    for variable, text in value.items():
        if not _VARIABLE.fullmatch(variable) or variable.startswith(RESERVED):
            raise _refused(name, variable, f"letters, digits and _, and no name that begins with {', '.join(RESERVED)}")
        if not isinstance(text, str):
            raise _refused(f"{name} {variable}", text, "text in quotes")
    return value


def _parameters(where: str, given: Mapping[str, Any]) -> dict[str, str]:
    if not given:
        return {}
    for name, instead in _OF_HANDLERS.items():
        if name in given:
            raise RefusedError(f"{PROJECT_FILE}: {where} {name} is not for projects: {instead}")
    _check_names(f"{where} ", given, template.load()["Parameters"])
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, (str, int)):
            raise _refused(f"{where} {name}", value, "text in quotes, or a whole number")
    return {name: str(value) for name, value in given.items()}


def _refused(name: str, value: object, expected: str) -> RefusedError:
    return RefusedError(f"{PROJECT_FILE}: {name}: {shown(value)} is not accepted; expected {expected}")

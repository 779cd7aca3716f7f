"""A project's ``dynatick.toml``: which handlers, and with which parameters of the template they run.

What a stage says takes the place of what the file says for all; of tables, such as ``environment``, entry by entry.
A key that is unknown, or that nothing honours yet, is refused: ignored, it would be missed only when it matters.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, time
from decimal import Decimal
from difflib import get_close_matches
from functools import reduce
from pathlib import Path
from typing import Any

from dynatick.actions.secret import SecretReference
from dynatick.domain import attributes as attr
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
    "handlers": ("module", "requirements", "include", "exclude", "environment", "secrets", "policies"),
    "parameters": (),
    "schedules": (),
}
OF_HANDLERS = {
    "HandlersModule": "[handlers] module names the module",
    "HandlersLayerArn": "the layer is made of the project",
    "HandlersEnvironment": "[handlers] environment has the variables",
    "HandlersSecrets": "[handlers] secrets names them",
    "HandlersSecretArns": "[handlers] secrets names them",
    "HandlersPolicyArns": "[handlers] policies names the policies",
}
"""Parameters of the template that are not among a project's, and what it says instead."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One that dynatick.toml names."""

    name: str  # such as [handlers] environment SENDER
    value: str
    source: str  # the table that says it, such as [stages.prod.handlers]


@dataclass(frozen=True, kw_only=True)
class Project:
    """What a dynatick.toml says, for one stage or for none."""

    folder: Path
    name: str  # of the stack
    module: str  # with the handlers
    requirements: Path | None = None  # of the handlers, as pip reads them
    include: tuple[str, ...] | None = None  # patterns of files that the handlers need; None: it doesn't say
    exclude: tuple[str, ...] = ()  # patterns of files that the handlers don't need
    environment: Mapping[str, str] = field(default_factory=dict)  # of the handlers
    secrets: Mapping[str, str] = field(default_factory=dict)  # of the handlers: references by name
    parameters: Mapping[str, str] = field(default_factory=dict)  # of the template
    schedules: Mapping[str, Mapping[str, object]] = field(default_factory=dict)  # by id, under the table's names
    # What follows has a meaning on AWS only.
    region: str | None = None
    bucket: str | None = None  # for what is uploaded
    table_write_units: int | None = None  # a second, the account's quota for a table; None: that of a new account
    policies: tuple[str, ...] = ()  # of the handlers: names of AWS's own, or ARNs
    stages: Mapping[str, Project] = field(default_factory=dict)
    settings: tuple[Setting, ...] = field(default=(), compare=False)

    def of(self, stage: str | None) -> Project:
        """This project as it is for a stage. Raises RefusedError for no such stage."""
        if stage is None:
            return self
        if stage not in self.stages:
            known = ", ".join(sorted(self.stages)) or "none"
            raise RefusedError(f"{PROJECT_FILE} has no [stages.{stage}]; known: {known}")
        return self.stages[stage]

    def template_parameters(self, *, partition: str = "aws", region: str = "*", account: str = "*") -> dict[str, str]:
        """All parameters of the template that the project decides, but the ARN of the handlers' layer. A policy's name
        stands for AWS's own policy; the ARNs of secrets are in this region and account."""
        references = [SecretReference.parse(reference) for reference in self.secrets.values()]
        return {
            **self.parameters,
            "HandlersModule": self.module,
            "HandlersEnvironment": json.dumps(dict(self.environment)) if self.environment else "",
            "HandlersSecrets": json.dumps(dict(self.secrets)) if self.secrets else "",
            "HandlersSecretArns": ",".join(
                sorted({one.arn(partition=partition, region=region, account=account) for one in references})
            ),
            "HandlersPolicyArns": ",".join(
                policy if policy.startswith("arn:") else f"arn:{partition}:iam::aws:policy/{policy}"
                for policy in self.policies
            ),
        }


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
        document = tomllib.loads((folder / PROJECT_FILE).read_text(encoding="utf-8"), parse_float=Decimal)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RefusedError(f"{PROJECT_FILE}: {error}") from None
    _check_names("", document, [*_KEYS, "stages"])
    stages = document.pop("stages", {})
    if not isinstance(stages, dict):
        raise RefusedError(f"{PROJECT_FILE}: stages is a table; write [stages.prod.parameters]")
    base = _project(folder, {"[{}]": document})
    found = {}
    for name, stage in stages.items():
        _text("[stages]", name, _STAGE, "names of letters, digits and hyphens, at most 32")
        where = f"stages.{name}"
        if not isinstance(stage, dict):
            raise RefusedError(f"{PROJECT_FILE}: {where} is a table; write [{where}.parameters]")
        _check_names(f"[{where}] ", stage, _KEYS)
        own_name = {"stack": {"name": f"{base.name}-{name}"}}
        layers = {"[{}]": document, "[{}], and the stage": own_name, f"[{where}.{{}}]": stage}
        found[name] = _project(folder, layers, f"{where}.")
    return replace(base, stages=found)


def _project(folder: Path, layers: Mapping[str, Mapping[str, Any]], where: str = "") -> Project:
    """What documents say together, each of which takes precedence over those before it. ``layers``: by what says where
    a table is; ``where``: of the last, which is to blame for what is wrong, since the others are right."""
    document: Mapping[str, Any] = reduce(_merged, layers.values(), {table: {} for table in _KEYS})
    for table, keys in _KEYS.items():
        if not isinstance(document[table], dict):
            raise RefusedError(f"{PROJECT_FILE}: {where}{table} is a table; write [{where}{table}]")
        if keys:
            _check_names(f"[{where}{table}] ", document[table], keys)
    stack, handlers = document["stack"], document["handlers"]
    of_stack, of_handlers = f"[{where}stack]", f"[{where}handlers]"
    environment = _environment(f"{of_handlers} environment", handlers.get("environment", {}))
    return Project(
        folder=folder,
        name=_text(f"{of_stack} name", stack.get("name"), STACK_NAME, "letters, digits and hyphens, at most 64"),
        module=_text(
            f"{of_handlers} module", handlers.get("module", "handlers"), _MODULE, "a module's name, such as handlers"
        ),
        requirements=_requirements(f"{of_handlers} requirements", folder, handlers.get("requirements")),
        include=_patterns(f"{of_handlers} include", handlers["include"]) if "include" in handlers else None,
        exclude=_patterns(f"{of_handlers} exclude", handlers.get("exclude", [])),
        environment=environment,
        secrets=_secrets(f"{of_handlers} secrets", handlers.get("secrets", {}), environment),
        parameters=_parameters(f"[{where}parameters]", document["parameters"]),
        schedules=_schedules(f"{where}schedules", document["schedules"]),
        region=_optional(f"{of_stack} region", stack.get("region"), _REGION, "an AWS region, such as eu-central-1"),
        bucket=_optional(f"{of_stack} bucket", stack.get("bucket"), _BUCKET, "the name of a bucket"),
        table_write_units=_units(f"{of_stack} table_write_units", stack.get("table_write_units")),
        policies=_texts(
            f"{of_handlers} policies",
            handlers.get("policies", []),
            _POLICY,
            'names or ARNs of managed policies, such as ["AmazonSESFullAccess"]',
        ),
        settings=tuple({one.name: one for layer in layers.items() for one in _settings(*layer)}.values()),
    )


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Tables are merged, entry by entry; anything else is replaced."""
    shared = {key for key, value in over.items() if isinstance(value, dict) and isinstance(base.get(key), dict)}
    return {**base, **over, **{key: _merged(base[key], over[key]) for key in shared}}


def _settings(source: str, document: Mapping[str, Any]) -> Iterator[Setting]:
    for table in (name for name in _KEYS if name in document):
        for key, value in document[table].items():
            entries = value.items() if isinstance(value, dict) else [("", value)]
            for name, one in entries:
                text = ", ".join(map(str, one)) if isinstance(one, list) else str(one)
                yield Setting(name=f"[{table}] {key} {name}".rstrip(), value=text, source=source.format(table))


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


def _patterns(name: str, value: object) -> tuple[str, ...]:
    return _texts(name, value, _PATTERN, 'names or patterns, such as ["docs", "*.csv"]')


def _requirements(name: str, folder: Path, value: object) -> Path | None:
    if value is None:
        return None
    if not isinstance(value, str) or not (folder / value).is_file():
        raise _refused(name, value, "a file of the project, such as requirements.txt")
    return folder / value


def _environment(name: str, value: object) -> dict[str, str]:
    variables = _variables(name, value, 'variables with their values, such as { SENDER = "me@example.com" }')
    for variable, text in variables.items():
        if not isinstance(text, str):
            raise _refused(f"{name} {variable}", text, "text in quotes")
    return variables


def _secrets(name: str, value: object, environment: Mapping[str, str]) -> dict[str, str]:
    references = _variables(name, value, 'names with references, such as { SMTP_PASSWORD = "ssm:/reminders/smtp" }')
    for variable, reference in references.items():
        try:
            SecretReference.parse(reference)
        except ValueError as error:
            raise RefusedError(f"{PROJECT_FILE}: {name} {variable} is no reference; {error}") from None
        if variable in environment:
            raise RefusedError(
                f"{PROJECT_FILE}: {name} {variable} is in environment, too; a name stands in one of them"
            )
    return references


def _variables(name: str, value: object, expected: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise RefusedError(f"{PROJECT_FILE}: {name} is a table; expected {expected}")
    for variable in value:
        if not _VARIABLE.fullmatch(variable) or variable.startswith(RESERVED):
            raise _refused(name, variable, f"letters, digits and _, and no name that begins with {', '.join(RESERVED)}")
    return value


def _parameters(where: str, given: Mapping[str, Any]) -> dict[str, str]:
    if not given:
        return {}
    for name, instead in OF_HANDLERS.items():
        if name in given:
            raise RefusedError(f"{PROJECT_FILE}: {where} {name} is not for projects: {instead}")
    _check_names(f"{where} ", given, template.load()["Parameters"])
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, (str, int)):
            raise _refused(f"{where} {name}", value, "text in quotes, or a whole number")
    return {name: str(value) for name, value in given.items()}


def _schedules(where: str, given: Mapping[str, Any]) -> dict[str, Mapping[str, object]]:
    """Their values are checked with those that the handlers declare."""
    for schedule_id, schedule in given.items():
        if not isinstance(schedule, dict):
            raise RefusedError(f"{PROJECT_FILE}: {where}.{schedule_id} is a table; write [{where}.{schedule_id}]")
        _check_names(f"[{where}.{schedule_id}] ", schedule, attr.DECLARED)
        if attr.SCHEDULE_EXPRESSION not in schedule:
            expected = "expected when it runs, such as cron(0 6 * * ? *) or rate(1 hour)"
            raise RefusedError(
                f"{PROJECT_FILE}: [{where}.{schedule_id}] {attr.SCHEDULE_EXPRESSION} is missing; {expected}"
            )
    return {schedule_id: _plain(schedule) for schedule_id, schedule in given.items()}


def _plain(value: Any) -> Any:
    """A value of a TOML file as a row holds it: dates and times are texts."""
    match value:
        case dict():
            return {name: _plain(part) for name, part in value.items()}
        case list():
            return [_plain(part) for part in value]
        case date() | time():
            return value.isoformat()
    return value


def _refused(name: str, value: object, expected: str) -> RefusedError:
    return RefusedError(f"{PROJECT_FILE}: {name}: {shown(value)} is not accepted; expected {expected}")

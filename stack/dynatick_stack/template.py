"""Reads template.yaml, the one description of the system.

Tests and local code take the table's schema and the parameters from here, so that neither is
written down twice.
"""

import copy
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from dynatick.domain import limit_keys
from dynatick.errors import ConfigurationError
from dynatick_stack import folders
from dynatick_stack.errors import RefusedError

ROOT = folders.ROOT
TEMPLATE = ROOT / "template.yaml"
TABLE = "TasksTable"
_STARTING = ("SchedulerFunction", "ProcessorFunction")  # whose settings stop every task if they are wrong
FUNCTION = "AWS::Serverless::Function"
LAYER = "AWS::Serverless::LayerVersion"
_CODE = {FUNCTION: "CodeUri", LAYER: "ContentUri"}
REPLACED = {
    f"Allowed{kind}Arns": "AllowedTargetArns" for kind in ("EventBus", "Function", "Queue", "StateMachine", "Topic")
}
"""Parameters of earlier versions, and those that take their values now."""


class _Loader(yaml.SafeLoader):
    """YAML with CloudFormation's short forms, read as their long ones."""


# YAML 1.1 reads 2012-10-17 as a date, CloudFormation as text.
_Loader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if not tag.endswith(":timestamp")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _short_form(loader: yaml.SafeLoader, suffix: str, node: yaml.Node) -> dict[str, Any]:
    value: Any
    if isinstance(node, yaml.ScalarNode):
        value = loader.construct_scalar(node)
    elif isinstance(node, yaml.SequenceNode):
        value = loader.construct_sequence(node, deep=True)
    else:
        assert isinstance(node, yaml.MappingNode)
        value = loader.construct_mapping(node, deep=True)
    if suffix in ("Ref", "Condition"):
        return {suffix: value}
    if suffix == "GetAtt" and isinstance(value, str):
        value = value.split(".", 1)
    return {f"Fn::{suffix}": value}


_Loader.add_multi_constructor("!", _short_form)


@cache
def _load(path: Path, _modified: int) -> dict[str, Any]:
    template: dict[str, Any] = yaml.load(path.read_text(encoding="utf-8"), _Loader)
    return template


def _part(name: str) -> dict[str, Any]:
    """The template's `Parameters`, `Globals` or `Resources`, not to be changed: a copy of all takes a while."""
    part: dict[str, Any] = _load(TEMPLATE, TEMPLATE.stat().st_mtime_ns)[name]
    return part


def load(path: Path = TEMPLATE) -> dict[str, Any]:
    """The template as a dict, with `Ref` and `Fn::…` for CloudFormation's functions."""
    return copy.deepcopy(_load(path, path.stat().st_mtime_ns))


def defaults() -> dict[str, str]:
    """The default of each parameter, as CloudFormation passes it on: as text."""
    return {name: str(spec["Default"]) for name, spec in _part("Parameters").items()}


def variables(parameters: Mapping[str, str]) -> dict[str, str]:
    """Of the environment variables of processor and scheduler those whose values are parameters."""
    resources = _part("Resources")
    parts = [_part("Globals")["Function"], *(resources[name]["Properties"] for name in _STARTING)]
    return {
        name: parameters[value["Ref"]]
        for part in parts
        for name, value in part["Environment"]["Variables"].items()
        if isinstance(value, dict) and value.get("Ref") in parameters
    }


def table_definition(**parameters: str) -> dict[str, Any]:
    """What boto3's `create_table` wants beside the name: keys, indexes, stream, billing.

    `parameters` are parameters of the template, for those that the table depends on. Without throughput, which no
    engine that tests run on knows.
    """
    values = defaults() | parameters
    properties = copy.deepcopy(_part("Resources")[TABLE]["Properties"])

    def resolve(value: Any) -> Any:
        if isinstance(value, dict) and value.keys() == {"Ref"}:
            return values[value["Ref"]]
        return value

    return {
        "BillingMode": properties["BillingMode"],
        "AttributeDefinitions": properties["AttributeDefinitions"],
        "KeySchema": properties["KeySchema"],
        "GlobalSecondaryIndexes": [
            {name: value for name, value in index.items() if not name.endswith("Throughput")}
            for index in properties["GlobalSecondaryIndexes"]
        ],
        "StreamSpecification": {"StreamEnabled": True, **properties["StreamSpecification"]},
        "DeletionProtectionEnabled": resolve(properties["DeletionProtectionEnabled"]) == "true",
    }


def code_paths(body: Mapping[str, Any], kind: str) -> dict[str, str]:
    """The paths of what the template names by a path, by logical id. ``kind``: FUNCTION or LAYER."""
    found = {name: one["Properties"] for name, one in body["Resources"].items() if one["Type"] == kind}
    return {name: properties[_CODE[kind]] for name, properties in found.items()}


def set_code(body: Mapping[str, Any], name: str, place: str | Mapping[str, str]) -> None:
    """Replace the path of a resource's code: by another one, or by the ``Bucket`` and ``Key`` of its zip."""
    resource = body["Resources"][name]
    resource["Properties"][_CODE[resource["Type"]]] = place


def check_parameters(parameters: Mapping[str, str], body: Mapping[str, Any]) -> None:
    """Refuse what the template would, before anything is started. The emulator doesn't check all of it."""
    known = body["Parameters"]
    for name, value in parameters.items():
        if name in REPLACED:
            raise RefusedError(
                f"{name} is part of {REPLACED[name]} now: write what it lists, {value or 'nothing'}, there"
            )
        if name not in known:
            raise RefusedError(f"There is no parameter {name}. Known: {', '.join(sorted(known))}")
        if problem := _problem(value, known[name]) or _problem_of_limits(name, value):
            raise RefusedError(f"{name} can't be {value}. {problem}")


def check_rules(parameters: Mapping[str, str], body: Mapping[str, Any]) -> None:
    """Refuse what the template's rules would. `parameters`: all of them."""
    for rule in body["Rules"].values():
        if _evaluated(rule["RuleCondition"], parameters):
            for one in rule["Assertions"]:
                if not _evaluated(one["Assert"], parameters):
                    raise RefusedError(one["AssertDescription"])


def _evaluated(value: Any, parameters: Mapping[str, str]) -> Any:
    """The value of an expression, of the functions that the rules have."""
    if not isinstance(value, dict):
        return value
    ((function, given),) = value.items()
    parts = [_evaluated(one, parameters) for one in given] if isinstance(given, list) else [given]
    match function:
        case "Ref":
            return parameters[given]
        case "Fn::Equals":
            return parts[0] == parts[1]
        case "Fn::Contains":
            return parts[1] in parts[0]
        case "Fn::Not":
            return not parts[0]
        case "Fn::Or":
            return any(parts)
    raise NotImplementedError(function)


def _problem_of_limits(name: str, value: str) -> str | None:
    """What no pattern can say of ``KeyLimits``, with which no function would start."""
    if name != limit_keys.PARAMETER:
        return None
    try:
        limit_keys.parse_limits(value.split(",") if value else [])
    except ConfigurationError as error:
        return str(error)
    return None


def _problem(value: str, spec: Mapping[str, Any]) -> str | None:
    allowed = [str(one) for one in spec.get("AllowedValues", [])]
    if allowed and value not in allowed:
        return f"Allowed: {', '.join(allowed)}"
    if "MinValue" in spec and not (value.isdecimal() and spec["MinValue"] <= int(value) <= spec["MaxValue"]):
        return f"Allowed: {spec['MinValue']} to {spec['MaxValue']}"
    if len(value) > spec.get("MaxLength", len(value)):
        return f"It has {len(value):,} characters; allowed are {spec['MaxLength']:,}"
    if "AllowedPattern" in spec and not re.fullmatch(spec["AllowedPattern"], value):
        return str(spec["Description"])
    return None

"""Limits of AWS that a deployment would meet only halfway: checked before anything is uploaded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dynatick_stack import template
from dynatick_stack.errors import RefusedError
from dynatick_stack.plan.figures import TABLE_WRITE_UNITS

MAX_ENVIRONMENT_BYTES = 4096
"""Names and values of a function's environment variables together (Lambda quotas)."""

_RANDOM = "-0123456789ABC"  # what CloudFormation appends to the names that it makes
_QUEUES = "https://sqs.ap-southeast-1.amazonaws.com/123456789012/"
_MAX_NAME = {"AWS::SQS::Queue": 80, template.FUNCTION: 64}  # longer names that CloudFormation makes are cut
_MAX_NAMED = 3


def check_quotas(parameters: Mapping[str, str], table_write_units: int | None) -> None:
    """Raises RefusedError for more write units than a table may have. ``table_write_units``: the account's quota, if it
    was raised."""
    quota = TABLE_WRITE_UNITS if table_write_units is None else table_write_units
    which = "accounts have" if table_write_units is None else "[stack] table_write_units says"
    for name in ("WarmThroughput", "MaxWriteUnits"):
        value = parameters.get(name, "0")
        if int(value) > quota:
            raise RefusedError(
                f"{name} can't be {value}: a table takes at most {quota:,} write units a second, a quota that {which}. "
                f"Lower it to {quota}; or have the quota raised, and write into dynatick.toml, below [stack]: "
                f"table_write_units = {value}"
            )


def check_environment(parameters: Mapping[str, str], body: Mapping[str, Any], stack: str) -> None:
    """Raises RefusedError if the environment variables of a function take more than Lambda allows. ``parameters``: all
    that are in force; ``stack``: the name of the stack, of which names of resources are made."""
    shared = body["Globals"]["Function"]["Environment"]["Variables"]
    for function, resource in body["Resources"].items():
        if resource["Type"] != template.FUNCTION:
            continue
        variables = {**shared, **resource["Properties"].get("Environment", {}).get("Variables", {})}
        sizes: dict[str, int] = {}
        for name, value in variables.items():
            source = value["Ref"] if isinstance(value, dict) and value.get("Ref") in parameters else name
            sizes[source] = sizes.get(source, 0) + len(name) + len(_text(value, parameters, body, stack).encode())
        total = sum(sizes.values())
        if total > MAX_ENVIRONMENT_BYTES:
            largest = sorted(sizes, key=sizes.__getitem__, reverse=True)[:_MAX_NAMED]
            named = ", ".join(f"{name} ({sizes[name]:,})" for name in largest)
            raise RefusedError(
                f"The environment variables of {function} would take {total:,} bytes; Lambda allows "
                f"{MAX_ENVIRONMENT_BYTES:,}. The largest: {named}. Shorten them: in an ARN, * stands for many"
            )


def _text(value: Any, parameters: Mapping[str, str], body: Mapping[str, Any], stack: str) -> str:
    """The value that CloudFormation would give a variable, or one that is as long."""
    if isinstance(value, dict):
        if "Fn::Sub" in value:
            return str(value["Fn::Sub"]).replace("${AWS::StackName}", stack)
        if "Fn::Join" in value:
            separator, parts = value["Fn::Join"]
            return str(separator).join(_text(part, parameters, body, stack) for part in parts)
        if "Fn::If" in value:
            return max((_text(part, parameters, body, stack) for part in value["Fn::If"][1:]), key=len)
        name = value["Fn::GetAtt"][0] if "Fn::GetAtt" in value else value["Ref"]
        if name in parameters:
            return parameters[name]
        kind = body["Resources"][name]["Type"]
        made = f"{stack}-{name}{_RANDOM}"[: _MAX_NAME.get(kind)]
        return _QUEUES + made if "Ref" in value and kind == "AWS::SQS::Queue" else made
    return str(value)

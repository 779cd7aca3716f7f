"""docs/reference/parameters.md: the template's parameters and outputs."""

from typing import Any

from dynatick_stack import template
from dynatick_stack.reference import markdown


def page() -> str:
    """As the template is now."""
    body = template.load()
    groups = body["Metadata"]["AWS::CloudFormation::Interface"]["ParameterGroups"]
    parts: list[str] = []
    for group in groups:
        parts.append(f"## {group['Label']['default']}")
        parts.append(
            markdown.table(
                ["Parameter", "Default", "Allowed", "What it does"],
                [_parameter(name, body["Parameters"][name]) for name in group["Parameters"]],
            )
        )
    outputs = markdown.table(
        ["Output", "What it is"],
        [(f"`{name}`", markdown.one_line(one["Description"])) for name, one in body["Outputs"].items()],
    )
    return markdown.page(
        "The template's parameters",
        "Of [`template.yaml`](../../template.yaml). On AWS: `sam deploy --parameter-overrides TickMinutes=5`;\n"
        "locally: `dynatick local up --parameter TickMinutes=5`, or `dynatick local deploy` while it runs.",
        *parts,
        "## Outputs",
        outputs,
    )


def _parameter(name: str, spec: dict[str, Any]) -> tuple[str, str, str, str]:
    default = str(spec["Default"])
    return f"`{name}`", f"`{default}`" if default else "empty", _allowed(spec), markdown.one_line(spec["Description"])


def _allowed(spec: dict[str, Any]) -> str:
    if "AllowedValues" in spec:
        return ", ".join(f"`{value}`" for value in spec["AllowedValues"])
    if "MinValue" in spec:
        return f"{spec['MinValue']} to {spec['MaxValue']}"
    return f"`{spec['AllowedPattern']}`" if "AllowedPattern" in spec else "text"

"""What the template says of its parameters, outputs and alarms."""

import re
from typing import Any

from dynatick_stack import template
from dynatick_stack.markdown import one_line, table


def parameters() -> str:
    """A section for each group."""
    body = template.load()
    sections = [
        f"## {group['Label']['default']}\n\n"
        + table(
            ["Parameter", "Default", "Allowed", "What it does"],
            [_parameter(name, body["Parameters"][name]) for name in group["Parameters"]],
        )
        for group in body["Metadata"]["AWS::CloudFormation::Interface"]["ParameterGroups"]
    ]
    return "\n\n".join(sections)


def outputs() -> str:
    found = template.load()["Outputs"]
    return table(["Output", "What it is"], [(f"`{name}`", one_line(one["Description"])) for name, one in found.items()])


def alarms() -> str:
    found = [
        (name, one["Properties"])
        for name, one in template.load()["Resources"].items()
        if one["Type"] in ("AWS::CloudWatch::Alarm", "AWS::CloudWatch::CompositeAlarm")
    ]
    return table(["Alarm", "Metric", "Rings", "What it says"], [_alarm(name, one) for name, one in found])


def _parameter(name: str, spec: dict[str, Any]) -> tuple[str, str, str, str]:
    default = str(spec["Default"])
    return f"`{name}`", f"`{default}`" if default else "empty", _allowed(spec), one_line(spec["Description"])


def _allowed(spec: dict[str, Any]) -> str:
    if "AllowedValues" in spec:
        return ", ".join(f"`{value}`" for value in spec["AllowedValues"])
    if "MinValue" in spec:
        return f"{spec['MinValue']} to {spec['MaxValue']}"
    return f"`{spec['AllowedPattern']}`" if "AllowedPattern" in spec else "text"


def _alarm(name: str, one: dict[str, Any]) -> tuple[str, str, str, str]:
    says = one_line(one["AlarmDescription"])
    if "AlarmRule" in one:
        others = re.findall(r"\$\{(\w+)\}", one["AlarmRule"]["Fn::Sub"])
        return f"`{name}`", " and ".join(f"`{other}`" for other in others), "the first rings, the second is OK", says
    sign = {"GreaterThanThreshold": "above", "LessThanThreshold": "below"}[one["ComparisonOperator"]]
    if "Metrics" in one:  # by metric math, of one metric
        (metric,) = (part["MetricStat"] for part in one["Metrics"] if "MetricStat" in part)
        one = {**one, **metric["Metric"], "Statistic": metric["Stat"], "Period": metric["Period"]}
    threshold = "four ticks and an hour" if isinstance(one["Threshold"], dict) else str(one["Threshold"])
    each = "tick" if isinstance(one["Period"], dict) else f"{one['Period']} s"
    times = one["EvaluationPeriods"]
    of = f"{one['DatapointsToAlarm']} of {times}" if "DatapointsToAlarm" in one else str(times)
    rings = f"{one['Statistic'].lower()} {sign} {threshold}, {of} times a {each}"
    return f"`{name}`", f"`{one['Namespace']}` `{one['MetricName']}`", rings, says

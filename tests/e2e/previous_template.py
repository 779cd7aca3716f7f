"""A template of an earlier release: today's without the parameters and resources that came last."""

from __future__ import annotations

from typing import Any

from dynatick_stack import template

NEWEST = {
    "HandlersEnvironment", "HandlersPolicyArns", "HandlersReadSecrets", "HandlersSecretArns", "HandlersSecrets",
    "HandlersSecurityGroupIds", "HandlersSubnetIds",
    "Precision", "WakeUpConcurrency", "WakeUpMapping", "WakeUpQueue", "WakeUpsByTlsOnly", "WakeUpsLateAlarm",
}  # fmt: skip
# Of these, a member may go alone. Of anything else, the whole goes, up to the next list.
_TABLES = {"Conditions", "Parameters", "Properties", "Resources", "Rules", "Variables"}
_GONE = object()


def previous_template() -> dict[str, Any]:
    """Conditions that depend on what is left out are false."""
    body = template.load()
    del body["Metadata"]
    names = set(NEWEST)
    conditions = body["Conditions"]
    while more := {name for name in conditions.keys() - names if _without(conditions[name], names) is _GONE}:
        names |= more  # some depend on others
    return {key: _without(value, names, key) for key, value in body.items()}


def _without(value: Any, names: set[str], key: str = "") -> Any:
    if isinstance(value, list):
        return [one for one in (_without(one, names) for one in value) if one is not _GONE]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((name, of),) = value.items()
        if name in ("Ref", "Condition") or name.startswith("Fn::"):
            return _of_function(name, of, names)
    kept = {name: _without(one, names, name) for name, one in value.items() if name not in names}
    if key in _TABLES:
        return {name: one for name, one in kept.items() if one is not _GONE}
    return _GONE if _GONE in kept.values() else kept


def _of_function(name: str, of: Any, names: set[str]) -> Any:
    """Returns a function of CloudFormation without these names, or _GONE: its arguments can't go alone."""
    if name in ("Ref", "Condition", "Fn::GetAtt"):
        return _GONE if (of if isinstance(of, str) else of[0]) in names else {name: of}
    if name == "Fn::If" and of[0] in names:
        return _without(of[2], names)
    arguments = [_without(one, names) for one in of] if isinstance(of, list) else _without(of, names)
    return _GONE if arguments is _GONE or (isinstance(arguments, list) and _GONE in arguments) else {name: arguments}

"""What a deployment would change: a change set of CloudFormation, made, read, carried out or discarded."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypedDict

from dynatick import __version__
from dynatick.domain.terminal_text import quoted
from dynatick_stack import template
from dynatick_stack.cloudformation import IN_PROGRESS, Operation, Stack
from dynatick_stack.errors import BusyError, DeployError, RefusedError
from dynatick_stack.venv import Say

if TYPE_CHECKING:
    from mypy_boto3_cloudformation.type_defs import ParameterTypeDef, ResourceChangeTypeDef, StackTypeDef, TagTypeDef

_NEVER_DEPLOYED = "REVIEW_IN_PROGRESS"  # a change set of it was made, and never carried out
_FAILED = "_FAILED"
_AGAIN = "remove it with dynatick destroy, then deploy again"
_VERSION = "dynatick:version"  # a tag
_NO_CHANGES = ("didn't contain changes", "No updates are to be performed")


class _Body(TypedDict, total=False):
    TemplateURL: str
    UsePreviousTemplate: bool


@dataclass(frozen=True, kw_only=True)
class Change:
    """A change of one resource of the stack."""

    action: str  # Add, Modify, Remove
    resource: str  # its logical id
    kind: str  # such as AWS::Lambda::Function
    replacement: str = "False"  # whether it is made anew: True, False, Conditional
    # With Conditional, one of these must be so: it refers to what changes, such as ProcessorFunction.Arn; or a property
    # changes that AWS can't always change in place.
    refers_to: tuple[str, ...] = ()
    properties: tuple[str, ...] = ()
    is_kept: bool = False  # the old one is not deleted then, nor what it holds


@dataclass(frozen=True, kw_only=True)
class ChangeSet:
    """A change set; ``arn`` None: none was made."""

    arn: str | None
    changes: Sequence[Change] | None = ()  # none: there is nothing to do; None: not known, for want of a bucket
    parameters: Mapping[str, tuple[str | None, str]] = field(default_factory=dict)  # before, None if new; and after
    kept: Mapping[str, str] = field(default_factory=dict)  # unlike the template's defaults, and not of the project
    payload_schemas: Mapping[str, str] = field(default_factory=dict)  # of the handlers, by action
    protects: bool = False  # what is carried out creates the table without its deletion protection, which comes then


def deployed(stack: Stack) -> StackTypeDef | None:
    """The stack as it is, if it was deployed. Raises RefusedError or BusyError if it can't be changed now."""
    found = stack.describe()
    if found is None or found["StackStatus"] in (_NEVER_DEPLOYED, "DELETE_COMPLETE"):
        return None
    if found["StackStatus"].endswith(IN_PROGRESS):
        raise BusyError(f"{stack.name} is being changed ({found['StackStatus']}); wait until that has ended")
    if (advice := remedy(stack.name, found["StackStatus"])) is not None:
        raise RefusedError(f"{stack.name} is {found['StackStatus']}, and CloudFormation can't update it: {advice}")
    return found


def remedy(name: str, status: str) -> str | None:
    """Returns what a person does about a stack in this status before it can be deployed; None if it can be."""
    by_status = {
        "ROLLBACK_COMPLETE": f"its first deployment failed; {_AGAIN}",
        "CREATE_FAILED": f"its first deployment failed; {_AGAIN}",
        "ROLLBACK_FAILED": "its first deployment failed, and something that it had created could not be deleted; look "
        f"at its events, set that right (end the deletion protection of a table, for instance), {_AGAIN}",
        "UPDATE_FAILED": f"take it back with aws cloudformation rollback-stack --stack-name {quoted(name)}, then "
        "deploy again",
        "UPDATE_ROLLBACK_FAILED": "look at its events, set right what could not be taken back, and go on with "
        f"aws cloudformation continue-update-rollback --stack-name {quoted(name)}, then deploy again",
        "DELETE_FAILED": "look at its events, set right what could not be deleted, and repeat dynatick destroy",
    }
    if status in by_status:
        return by_status[status]
    return "look at its events in CloudFormation" if status.endswith(_FAILED) else None


def make(stack: Stack, template_url: str | None, given: Mapping[str, str], kept: Iterable[str], *, is_new: bool) -> str:
    """Its ARN. ``template_url`` None: the template stays. ``given``: parameters and their values; ``kept``: those that
    keep what they have."""
    body: _Body = {"UsePreviousTemplate": True} if template_url is None else {"TemplateURL": template_url}
    parameters: list[ParameterTypeDef] = [
        {"ParameterKey": name, "ParameterValue": value} for name, value in given.items()
    ]
    parameters += [{"ParameterKey": name, "UsePreviousValue": True} for name in kept]
    made = stack.client.create_change_set(
        StackName=stack.name,
        ChangeSetName=f"dynatick-{time.time_ns()}",
        ChangeSetType="CREATE" if is_new else "UPDATE",
        **body,
        Capabilities=["CAPABILITY_IAM", "CAPABILITY_AUTO_EXPAND"],
        Parameters=parameters,
        Tags=[*_tags_of(stack), {"Key": _VERSION, "Value": __version__}],
    )
    return made["Id"]


def _tags_of(stack: Stack) -> list[TagTypeDef]:
    """The tags that the stack has of others: a change set without them would take them away, from its resources too.
    Those of AWS's own can't be given."""
    found = stack.describe()
    tags = [] if found is None else found.get("Tags", [])
    return [one for one in tags if one["Key"] != _VERSION and not one["Key"].startswith("aws:")]


def changes(stack: Stack, arn: str) -> list[Change] | None:
    """Returns the changes of a change set, once it is made; None if it has none, and deletes it then. Raises
    DeployError."""
    for found in stack.polled(lambda: stack.client.describe_change_set(ChangeSetName=arn)):
        if found["Status"] == "FAILED":
            reason = found.get("StatusReason", "no reason given")
            discard(stack, arn)
            if any(text in reason for text in _NO_CHANGES):
                return None
            raise DeployError(f"The change set was refused: {reason}")
        if found["Status"] == "CREATE_COMPLETE":
            break
    raw = list(found["Changes"])
    while token := found.get("NextToken"):
        found = stack.client.describe_change_set(ChangeSetName=arn, NextToken=token)
        raw += found["Changes"]
    resources = template.load()["Resources"]
    return [
        Change(
            action=one["Action"],
            resource=one["LogicalResourceId"],
            kind=one["ResourceType"],
            replacement=one.get("Replacement", "False"),
            refers_to=_distinct(one, "CausingEntity", "Dynamic"),
            properties=_distinct(one, "Name", "Static"),
            is_kept=resources.get(one["LogicalResourceId"], {}).get("UpdateReplacePolicy") == "Retain",
        )
        for one in (change["ResourceChange"] for change in raw)
    ]


def _distinct(
    change: ResourceChangeTypeDef, member: Literal["CausingEntity", "Name"], evaluation: str
) -> tuple[str, ...]:
    """What the details name that may replace the resource. ``evaluation``: Static if AWS knows the new value already,
    else Dynamic."""
    details = (
        {"CausingEntity": one.get("CausingEntity"), **one["Target"]}
        for one in change.get("Details", ())
        if one.get("Evaluation") == evaluation
    )
    names = (one.get(member) for one in details if one.get("RequiresRecreation", "Never") != "Never")
    return tuple(dict.fromkeys(str(name) for name in names if name))


def discard(stack: Stack, arn: str) -> None:
    """Deletes a change set that is not carried out, and the stack that it would have made."""
    stack.client.delete_change_set(ChangeSetName=arn)
    found = stack.describe()
    if found is not None and found["StackStatus"] == _NEVER_DEPLOYED:
        stack.client.delete_stack(StackName=stack.name)


def carry_out(stack: Stack, arn: str, *, say: Say) -> None:
    """Raises DeployError with the reasons, and with what a person does about a stack that can't be deployed now."""
    operation = Operation(stack)
    stack.client.execute_change_set(ChangeSetName=arn, ClientRequestToken=operation.token)
    status = operation.wait(say=say)
    if status not in ("CREATE_COMPLETE", "UPDATE_COMPLETE"):
        taken_back = "" if status.endswith(_FAILED) else "; what it changed was taken back"
        advice = remedy(stack.name, status)
        raise DeployError(
            "\n".join(
                [
                    f"The deployment failed ({status}){taken_back}:",
                    *operation.reasons,
                    *([] if advice is None else [f"Before you deploy again: {advice}"]),
                ]
            )
        )

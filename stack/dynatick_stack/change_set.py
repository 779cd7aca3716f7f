"""What a deployment would change: a change set of CloudFormation, made, read, carried out or discarded."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dynatick import __version__
from dynatick_stack.cloudformation import IN_PROGRESS, Stack
from dynatick_stack.errors import BusyError, DeployError, RefusedError
from dynatick_stack.venv import Say

if TYPE_CHECKING:
    from mypy_boto3_cloudformation.type_defs import ParameterTypeDef, StackTypeDef

_NEVER_DEPLOYED = "REVIEW_IN_PROGRESS"  # a change set of it was made, and never carried out
_FAILED_AT_FIRST = "ROLLBACK_COMPLETE"
_NO_CHANGES = ("didn't contain changes", "No updates are to be performed")


@dataclass(frozen=True, kw_only=True)
class Change:
    """A change of one resource of the stack."""

    action: str  # Add, Modify, Remove
    resource: str  # its logical id
    kind: str  # such as AWS::Lambda::Function
    replacement: bool  # it is made anew, and the old one is deleted


@dataclass(frozen=True, kw_only=True)
class ChangeSet:
    """A change set; ``arn`` None: there is nothing to do."""

    arn: str | None
    changes: Sequence[Change] = ()
    parameters: Mapping[str, tuple[str | None, str]] = field(default_factory=dict)  # before, None if new; and after
    kept: Mapping[str, str] = field(default_factory=dict)  # unlike the template's defaults, and not of the project


def deployed(stack: Stack) -> StackTypeDef | None:
    """The stack as it is, if it was deployed. Raises RefusedError or BusyError if it can't be changed now."""
    found = stack.describe()
    if found is None or found["StackStatus"] in (_NEVER_DEPLOYED, "DELETE_COMPLETE"):
        return None
    if found["StackStatus"] == _FAILED_AT_FIRST:
        raise RefusedError(
            f"The first deployment of {stack.name} failed, and CloudFormation can't update what is left of it: "
            "remove it with dynatick destroy, then deploy again"
        )
    if found["StackStatus"].endswith(IN_PROGRESS):
        raise BusyError(f"{stack.name} is being changed ({found['StackStatus']}); wait until that has ended")
    return found


def make(stack: Stack, template_url: str, given: Mapping[str, str], kept: Iterable[str], *, is_new: bool) -> str:
    """Its ARN. ``given``: parameters and their values; ``kept``: those that keep what they have."""
    parameters: list[ParameterTypeDef] = [
        {"ParameterKey": name, "ParameterValue": value} for name, value in given.items()
    ]
    parameters += [{"ParameterKey": name, "UsePreviousValue": True} for name in kept]
    made = stack.client.create_change_set(
        StackName=stack.name,
        ChangeSetName=f"dynatick-{time.time_ns()}",
        ChangeSetType="CREATE" if is_new else "UPDATE",
        TemplateURL=template_url,
        Capabilities=["CAPABILITY_IAM", "CAPABILITY_AUTO_EXPAND"],
        Parameters=parameters,
        Tags=[{"Key": "dynatick:version", "Value": __version__}],
    )
    return made["Id"]


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
    return [
        Change(
            action=one["Action"],
            resource=one["LogicalResourceId"],
            kind=one["ResourceType"],
            replacement=one.get("Replacement") in ("True", "Conditional"),
        )
        for one in (change["ResourceChange"] for change in raw)
    ]


def discard(stack: Stack, arn: str) -> None:
    """Deletes a change set that is not carried out, and the stack that it would have made."""
    stack.client.delete_change_set(ChangeSetName=arn)
    found = stack.describe()
    if found is not None and found["StackStatus"] == _NEVER_DEPLOYED:
        stack.client.delete_stack(StackName=stack.name)


def carry_out(stack: Stack, arn: str, *, say: Say) -> None:
    """Raises DeployError with the reasons; CloudFormation has taken all back then."""
    since = time.time()
    stack.client.execute_change_set(ChangeSetName=arn)
    status = stack.wait(since, say=say)
    if status not in ("CREATE_COMPLETE", "UPDATE_COMPLETE"):
        raise DeployError(
            "\n".join([f"The deployment failed ({status}); what it changed was taken back:", *stack.reasons(since)])
        )

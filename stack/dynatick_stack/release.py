"""Deploys a project to AWS: uploads what it needs, makes a change set, and carries it out once that is confirmed.

Plain CloudFormation, with the one template. Parameters that the project does not name keep the values that the stack
has, as everywhere in CloudFormation.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dynatick import __version__
from dynatick_stack import template
from dynatick_stack.deploy import PLACES, check_parameters
from dynatick_stack.errors import BusyError, DeployError, NotRunningError, RefusedError
from dynatick_stack.packaging import Packages
from dynatick_stack.project import Project
from dynatick_stack.venv import Say

if TYPE_CHECKING:
    import boto3

POLL_SECONDS = 2.0
MAX_SECONDS = 3600.0
_IN_PROGRESS = "_IN_PROGRESS"
_NEVER_DEPLOYED = "REVIEW_IN_PROGRESS"  # a change set of it was made, and never carried out
_FAILED_AT_FIRST = "ROLLBACK_COMPLETE"
_NO_CHANGES = ("didn't contain changes", "No updates are to be performed")
_PREFIX = "dynatick"  # of what we put into the bucket


@dataclass(frozen=True, kw_only=True)
class Change:
    """Of one resource of the stack."""

    action: str  # Add, Modify, Remove
    resource: str  # its logical id
    kind: str  # such as AWS::Lambda::Function
    replacement: bool  # it is made anew, and the old one is deleted


@dataclass(frozen=True, kw_only=True)
class ChangeSet:
    """What a deployment would change. Without ``changes`` and ``parameters`` there is nothing to do."""

    arn: str | None
    changes: Sequence[Change] = ()
    parameters: Mapping[str, tuple[str | None, str]] = field(default_factory=dict)  # before, None if new; and after
    kept: Mapping[str, str] = field(default_factory=dict)  # unlike the template's defaults, and not of the project


class Release:
    """The deployments of one stack. Methods raise BotoCoreError and ClientError as the SDK does, and StackError."""

    def __init__(self, session: boto3.Session, stack: str, *, poll_seconds: float = POLL_SECONDS) -> None:
        self.stack = stack
        self._cloudformation: Any = session.client("cloudformation")
        self._s3: Any = session.client("s3")
        self._lambda: Any = session.client("lambda")
        self._sts: Any = session.client("sts")
        self._partition = session.get_partition_for_region(str(session.region_name))
        self._region = str(session.region_name)
        self._poll_seconds = poll_seconds

    # -- the bucket of what is uploaded --------------------------------------------------------------------------------

    @cached_property
    def account(self) -> str:
        """The number of the account."""
        return str(self._sts.get_caller_identity()["Account"])

    def usual_bucket(self) -> str:
        """The bucket that is used if none is given."""
        return f"dynatick-{self.account}-{self._region}"

    def has_bucket(self, name: str) -> bool:
        """Raises RefusedError for one that is another account's."""
        from botocore.exceptions import ClientError

        try:
            self._s3.head_bucket(Bucket=name, ExpectedBucketOwner=self.account)
        except ClientError as error:
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
            if status == 404:
                return False
            if status == 403:
                raise RefusedError(
                    f"The bucket {name} is another account's, or these credentials can't use it"
                ) from None
            raise
        return True

    def create_bucket(self, name: str) -> None:
        """A private bucket; S3 encrypts it by itself."""
        where = {} if self._region == "us-east-1" else {
            "CreateBucketConfiguration": {"LocationConstraint": self._region}
        }  # fmt: skip
        self._s3.create_bucket(Bucket=name, **where)
        closed = ("BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets")
        self._s3.put_public_access_block(
            Bucket=name, PublicAccessBlockConfiguration=dict.fromkeys(closed, True), ExpectedBucketOwner=self.account
        )

    # -- what would change ---------------------------------------------------------------------------------------------

    def prepare(self, project: Project, packages: Packages, bucket: str, *, stage: str | None, say: Say) -> ChangeSet:
        """Uploads what is new, and makes a change set."""
        from botocore.exceptions import ClientError

        existing = self._existing()
        body = template.load()
        given = project.template_parameters(stage)
        if self._partition != "aws":  # of names; in China and GovCloud ARNs begin in another way
            own = f"arn:{self._partition}:iam::aws:policy/"
            given["HandlersPolicyArns"] = given["HandlersPolicyArns"].replace("arn:aws:iam::aws:policy/", own)
        check_parameters(given, body)
        given["HandlersLayerArn"] = self._handlers_layer(packages.handlers, bucket, given, say)
        for name, path in packages.of_template.items():
            place, of_bucket, key = PLACES[body["Resources"][name]["Type"]]
            body["Resources"][name]["Properties"][place] = {of_bucket: bucket, key: self._upload(path, bucket, say)}
        text = json.dumps(body).encode()
        key = f"{_PREFIX}/{self.stack}/template-{__version__}.json"
        self._s3.put_object(Bucket=bucket, Key=key, Body=text, ExpectedBucketOwner=self.account)
        present = {} if existing is None else _parameters_of(existing)
        kept = {name: value for name, value in present.items() if name not in given and name in body["Parameters"]}
        made = self._cloudformation.create_change_set(
            StackName=self.stack,
            ChangeSetName=f"dynatick-{time.time_ns()}",
            ChangeSetType="CREATE" if existing is None else "UPDATE",
            TemplateURL=f"{self._s3.meta.endpoint_url}/{bucket}/{key}",
            Capabilities=["CAPABILITY_IAM", "CAPABILITY_AUTO_EXPAND"],
            Parameters=[
                *({"ParameterKey": name, "ParameterValue": value} for name, value in given.items()),
                *({"ParameterKey": name, "UsePreviousValue": True} for name in kept),
            ],
            Tags=[{"Key": "dynatick:version", "Value": __version__}],
        )
        defaults = template.defaults()
        shown = {
            name: (present.get(name), value)
            for name, value in given.items()
            if value != (present.get(name) if existing is not None else defaults[name])
        }
        try:
            changes = self._changes(made["Id"])
        except ClientError as error:
            raise DeployError(f"The change set can't be read: {error}") from error
        return ChangeSet(
            arn=None if changes is None else made["Id"],
            changes=changes or (),
            parameters={} if changes is None else shown,
            kept={name: value for name, value in kept.items() if value != defaults[name]},
        )

    def discard(self, change_set: ChangeSet) -> None:
        """Deletes a change set that is not carried out, and the stack that it would have made."""
        if change_set.arn is None:
            return
        self._cloudformation.delete_change_set(ChangeSetName=change_set.arn)
        found = self._describe()
        if found is not None and found["StackStatus"] == _NEVER_DEPLOYED:
            self._cloudformation.delete_stack(StackName=self.stack)

    def carry_out(self, change_set: ChangeSet, *, say: Say) -> Mapping[str, str]:
        """Returns the outputs. Raises DeployError with the reasons; CloudFormation has taken all back then."""
        since = time.time()
        self._cloudformation.execute_change_set(ChangeSetName=change_set.arn)
        status = self._wait(since, say)
        if status not in ("CREATE_COMPLETE", "UPDATE_COMPLETE"):
            raise DeployError("\n".join([f"The deployment failed ({status}); what it changed was taken back:",
                                         *self._reasons(since)]))  # fmt: skip
        return self.outputs()

    def outputs(self) -> Mapping[str, str]:
        """Raises NotRunningError if there is no stack."""
        found = self._describe()
        if found is None:
            raise NotRunningError(f"There is no stack {self.stack} in {self._region}")
        return {one["OutputKey"]: one["OutputValue"] for one in found.get("Outputs", [])}

    # -- its end -------------------------------------------------------------------------------------------------------

    def retained(self) -> Sequence[tuple[str, str]]:
        """(kind, name) of what stays when the stack is deleted. Raises NotRunningError if there is no stack."""
        self.outputs()
        stays = {
            name for name, one in template.load()["Resources"].items() if "Retain" in str(one.get("DeletionPolicy"))
        }
        pages = self._cloudformation.get_paginator("list_stack_resources").paginate(StackName=self.stack)
        return [
            (one["ResourceType"], one["PhysicalResourceId"])
            for page in pages
            for one in page["StackResourceSummaries"]
            if one["LogicalResourceId"] in stays and one.get("PhysicalResourceId")
        ]

    def destroy(self, *, say: Say) -> None:
        """Deletes the stack, and the layers of its handlers. Raises DeployError with the reasons."""
        found, since = self._describe(), time.time()
        if found is None:
            raise NotRunningError(f"There is no stack {self.stack} in {self._region}")
        self._cloudformation.delete_stack(StackName=found["StackId"])
        status = self._wait(since, say, stack=found["StackId"])
        if status != "DELETE_COMPLETE":
            raise DeployError("\n".join([f"The stack was not deleted ({status}):", *self._reasons(since)]))
        for version in self._layer_versions():
            self._lambda.delete_layer_version(LayerName=self._layer, VersionNumber=version["Version"])

    # -- parts ---------------------------------------------------------------------------------------------------------

    @property
    def _layer(self) -> str:
        return f"{self.stack}-handlers"

    def _upload(self, path: Path, bucket: str, say: Say) -> str:
        """Its key. A zip is named by its content, so one that is there needs no upload."""
        from botocore.exceptions import ClientError

        key = f"{_PREFIX}/{path.name}"
        try:
            self._s3.head_object(Bucket=bucket, Key=key, ExpectedBucketOwner=self.account)
        except ClientError as error:
            if error.response.get("ResponseMetadata", {}).get("HTTPStatusCode") not in (403, 404):
                raise
            say(f"Uploading {path.name} ({max(1, path.stat().st_size // 1024):,} KB)")
            self._s3.upload_file(str(path), bucket, key, ExtraArgs={"ExpectedBucketOwner": self.account})
        return key

    def _handlers_layer(self, path: Path, bucket: str, given: Mapping[str, str], say: Say) -> str:
        """The ARN of the layer version with the handlers: the newest, or a new one."""
        newest = next(self._layer_versions(), None)
        if newest is not None and newest.get("Description") == path.stem:
            return str(newest["LayerVersionArn"])
        body = template.load()
        architecture = given.get("Architecture", body["Parameters"]["Architecture"]["Default"])
        answer = self._lambda.publish_layer_version(
            LayerName=self._layer,
            Description=path.stem,
            Content={"S3Bucket": bucket, "S3Key": self._upload(path, bucket, say)},
            CompatibleRuntimes=[body["Globals"]["Function"]["Runtime"]],
            CompatibleArchitectures=[architecture],
        )
        return str(answer["LayerVersionArn"])

    def _layer_versions(self) -> Iterator[Mapping[str, Any]]:
        """The newest first."""
        for page in self._lambda.get_paginator("list_layer_versions").paginate(LayerName=self._layer):
            yield from page["LayerVersions"]

    def _describe(self, stack: str | None = None) -> Mapping[str, Any] | None:
        from botocore.exceptions import ClientError

        try:
            found: Mapping[str, Any] = self._cloudformation.describe_stacks(StackName=stack or self.stack)["Stacks"][0]
        except ClientError as error:
            if "does not exist" in str(error):
                return None
            raise
        return found

    def _existing(self) -> Mapping[str, Any] | None:
        """The stack as it is deployed; None if it never was. Raises StackError for one that can't be updated."""
        found = self._describe()
        if found is None or found["StackStatus"] in (_NEVER_DEPLOYED, "DELETE_COMPLETE"):
            return None
        if found["StackStatus"] == _FAILED_AT_FIRST:
            raise RefusedError(
                f"The first deployment of {self.stack} failed, and CloudFormation can't update what is left of it: "
                "remove it with dynatick destroy, then deploy again"
            )
        if found["StackStatus"].endswith(_IN_PROGRESS):
            raise BusyError(f"{self.stack} is being changed ({found['StackStatus']}); wait until that has ended")
        return found

    def _changes(self, arn: str) -> Sequence[Change] | None:
        """Of a change set, once it is made; None if there are none, and it is deleted then. Raises DeployError."""
        for found in self._polled(lambda: self._cloudformation.describe_change_set(ChangeSetName=arn)):
            if found["Status"] == "FAILED":
                reason = str(found.get("StatusReason", "no reason given"))
                self.discard(ChangeSet(arn=arn))
                if any(text in reason for text in _NO_CHANGES):
                    return None
                raise DeployError(f"The change set was refused: {reason}")
            if found["Status"] == "CREATE_COMPLETE":
                break
        changes = list(found["Changes"])
        while token := found.get("NextToken"):
            found = self._cloudformation.describe_change_set(ChangeSetName=arn, NextToken=token)
            changes += found["Changes"]
        return [
            Change(
                action=one["Action"],
                resource=one["LogicalResourceId"],
                kind=one["ResourceType"],
                replacement=one.get("Replacement") in ("True", "Conditional"),
            )
            for one in (change["ResourceChange"] for change in changes)
        ]

    def _wait(self, since: float, say: Say, *, stack: str | None = None) -> str:
        """The status in which the stack comes to rest. Says what fails meanwhile."""
        said: set[str] = set()
        for found in self._polled(lambda: self._describe(stack)):
            if found is None:
                return "DELETE_COMPLETE"
            for text in self._reasons(since):
                if text not in said:
                    said.add(text)
                    say(text)
            if not found["StackStatus"].endswith(_IN_PROGRESS):
                return str(found["StackStatus"])
        raise AssertionError("polling ends by itself")

    def _polled(self, describe: Callable[[], Any]) -> Iterator[Any]:
        end = time.monotonic() + MAX_SECONDS
        while time.monotonic() < end:
            yield describe()
            time.sleep(self._poll_seconds)
        raise DeployError(f"{self.stack} has not come to rest within an hour; look at its events in CloudFormation")

    def _reasons(self, since: float) -> list[str]:
        """Why resources failed since then, the first of them first: the others mostly follow from it."""
        pages = self._cloudformation.get_paginator("describe_stack_events").paginate(StackName=self.stack)
        events = [one for page in pages for one in page["StackEvents"] if one["Timestamp"].timestamp() >= since - 1]
        return [
            f"  {one['LogicalResourceId']}: {one.get('ResourceStatusReason', 'no reason given')}"
            for one in reversed(events)
            if one["ResourceStatus"].endswith("_FAILED")
        ]


def _parameters_of(stack: Mapping[str, Any]) -> dict[str, str]:
    return {one["ParameterKey"]: one["ParameterValue"] for one in stack.get("Parameters", [])}

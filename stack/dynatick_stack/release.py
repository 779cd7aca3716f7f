"""Deploys a project to AWS: uploads what it needs, makes a change set, and carries it out once that is confirmed.

Plain CloudFormation, with the one template. Parameters that the project does not name keep the values that the stack
has, as everywhere in CloudFormation.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dynatick import __version__
from dynatick_stack import change_set, template
from dynatick_stack.artifact_bucket import ArtifactBucket
from dynatick_stack.change_set import ChangeSet
from dynatick_stack.cloudformation import Operation, Stack, parameters_of
from dynatick_stack.errors import DeployError
from dynatick_stack.files import digest
from dynatick_stack.limits import check_environment, check_quotas
from dynatick_stack.packaging import Packages
from dynatick_stack.project import Project
from dynatick_stack.venv import Say

if TYPE_CHECKING:
    import boto3

POLL_SECONDS = 2.0
_HANDLERS, _PROTECTION = "HandlersLayerArn", "DeletionProtection"


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """The parameters of a stack, once a project is deployed to it."""

    given: Mapping[str, str]  # by the project
    kept: Mapping[str, str]  # the others that the stack has
    present: Mapping[str, str]  # all that the stack has; none if it is new
    is_new: bool

    @property
    def values(self) -> dict[str, str]:
        """All that the template has, but for the layer of the handlers, which is made of the project."""
        return {**template.defaults(), **self.kept, **self.given}


class Release:
    """The deployments of one stack. Methods raise BotoCoreError and ClientError as the SDK does, and StackError."""

    def __init__(self, session: boto3.Session, name: str, *, poll_seconds: float = POLL_SECONDS) -> None:
        self.stack = Stack(session.client("cloudformation"), name, poll_seconds=poll_seconds)
        self._lambda: Any = session.client("lambda")
        self._partition = session.get_partition_for_region(str(session.region_name))
        self._layer = f"{name}-handlers"

    def parameters(self, project: Project, account: str) -> Parameters:
        """What a project says, else the stack has. Raises RefusedError for parameters that AWS would refuse halfway,
        and for a stack that can't be changed; BusyError for one that can't be changed now."""
        existing = change_set.deployed(self.stack)
        present = {} if existing is None else parameters_of(existing)
        body = template.load()
        given = project.template_parameters(
            partition=self._partition, region=self._lambda.meta.region_name, account=account
        )
        template.check_parameters(given, body)
        decided = {*given, _HANDLERS}
        kept = {name: value for name, value in present.items() if name not in decided and name in body["Parameters"]}
        # Refused too if only the stack has them: CloudFormation would drop their values without a word.
        replaced = {name: value for name, value in present.items() if value and name in template.REPLACED}
        template.check_parameters(
            {n: value for n, value in replaced.items() if template.REPLACED[n] not in given}, body
        )
        found = Parameters(given=given, kept=kept, present=present, is_new=existing is None)
        template.check_rules(found.values, body)
        check_quotas(given, project.table_write_units)
        check_environment(found.values, body, self.stack.name)
        return found

    def prepare(
        self,
        project: Project,
        packages: Packages,
        bucket: ArtifactBucket,
        *,
        say: Say,
        publishes: bool = True,
    ) -> ChangeSet:
        """Uploads what is new, and makes a change set. ``publishes`` False: only to look at, with the ARN that the
        layer of the handlers would probably get; nothing but the template is uploaded, and without a bucket for it the
        changes are not known. Raises what ``parameters`` raises."""
        found = self.parameters(project, bucket.account)
        body, defaults = template.load(), template.defaults()
        layer = self._handlers_layer(
            packages.handlers, bucket, found.values["Architecture"], publishes=publishes, say=say
        )
        given, kept, present = {**found.given, _HANDLERS: layer}, found.kept, found.present
        before = {**defaults, **present}  # a parameter that the stack's template lacks had the effect of its default
        parameters = {name: (present.get(name), value) for name, value in given.items() if value != before.get(name)}
        unnamed = {name: value for name, value in kept.items() if value != defaults[name]}
        if not publishes and not bucket.exists():
            return ChangeSet(arn=None, changes=None, parameters=parameters, kept=unnamed)
        for name, path in packages.of_template.items():
            template.set_code(body, name, bucket.upload(path, say) if publishes else bucket.place(path))
        content = json.dumps(body).encode()
        # Named by its content: another branch's diff puts one of its own before CloudFormation has read this one.
        url = bucket.put(f"{self.stack.name}/template-{__version__}-{digest(content)}.json", content)
        # A creation that fails deletes its table, which would not be possible with protection.
        protects = found.is_new and given.get(_PROTECTION) == "true"
        unprotected = {**given, _PROTECTION: "false"} if protects else given
        arn = change_set.make(self.stack, url, unprotected, kept, is_new=found.is_new)
        changes = change_set.changes(self.stack, arn)
        if changes is None:
            return ChangeSet(arn=None, kept=unnamed)
        return ChangeSet(
            arn=arn,
            changes=changes,
            parameters=parameters,
            kept=unnamed,
            payload_schemas=packages.payload_schemas,
            protects=protects,
        )

    def carry_out(self, found: ChangeSet, *, say: Say) -> None:
        """Carries out what was prepared. Raises DeployError with the reasons."""
        assert found.arn is not None
        change_set.carry_out(self.stack, found.arn, say=say)
        if found.protects:
            say("Protecting the table against deletion")
            others = self.stack.parameters().keys() - {_PROTECTION}
            arn = change_set.make(self.stack, None, {_PROTECTION: "true"}, others, is_new=False)
            if change_set.changes(self.stack, arn) is not None:
                change_set.carry_out(self.stack, arn, say=say)

    def retained(self) -> Sequence[tuple[str, str]]:
        """(kind, name) of what stays when the stack is deleted. Raises NotRunningError if there is no stack."""
        self.stack.existing()
        stays = {
            name for name, one in template.load()["Resources"].items() if "Retain" in str(one.get("DeletionPolicy"))
        }
        return [
            (one["ResourceType"], one["PhysicalResourceId"])
            for one in self.stack.resources()
            if one["LogicalResourceId"] in stays and one.get("PhysicalResourceId")
        ]

    def destroy(self, *, say: Say) -> None:
        """Deletes the stack, and the layers of its handlers. Raises DeployError with the reasons, and NotRunningError
        if there is no stack."""
        stack_id = self.stack.existing()["StackId"]
        operation = Operation(self.stack, stack_id)
        self.stack.client.delete_stack(StackName=stack_id, ClientRequestToken=operation.token)
        status = operation.wait(say=say)
        if status != "DELETE_COMPLETE":
            raise DeployError("\n".join([f"The stack was not deleted ({status}):", *operation.reasons]))
        for version in self._layer_versions():
            self._lambda.delete_layer_version(LayerName=self._layer, VersionNumber=version["Version"])

    def _handlers_layer(
        self, path: Path, bucket: ArtifactBucket, architecture: str, *, publishes: bool, say: Say
    ) -> str:
        """The ARN of the layer version with the handlers: the newest, or a new one; if that is not to be published, the
        ARN that it would probably have."""
        newest = next(self._layer_versions(), None)
        if newest is not None and newest.get("Description") == path.stem:
            return str(newest["LayerVersionArn"])
        if not publishes:
            version = 1 if newest is None else newest["Version"] + 1
            region = self._lambda.meta.region_name
            return f"arn:{self._partition}:lambda:{region}:{bucket.account}:layer:{self._layer}:{version}"
        zipped = bucket.upload(path, say)
        answer = self._lambda.publish_layer_version(
            LayerName=self._layer,
            Description=path.stem,
            Content={"S3Bucket": zipped["Bucket"], "S3Key": zipped["Key"]},
            CompatibleRuntimes=[template.load()["Globals"]["Function"]["Runtime"]],
            CompatibleArchitectures=[architecture],
        )
        return str(answer["LayerVersionArn"])

    def _layer_versions(self) -> Iterator[Mapping[str, Any]]:
        """The newest first."""
        for page in self._lambda.get_paginator("list_layer_versions").paginate(LayerName=self._layer):
            yield from page["LayerVersions"]

"""Deployments to AWS, without AWS: what is asked of CloudFormation and Lambda, and what is refused before."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws

from dynatick import __version__
from dynatick.cli.exit_code import CommandFailed
from dynatick.errors import StoreError
from dynatick_stack import change_set, declared_schedules, packaging, release_commands, template, waiting_payloads
from dynatick_stack.artifact_bucket import ArtifactBucket
from dynatick_stack.cloudformation import Stack
from dynatick_stack.dev.handlers import Checked
from dynatick_stack.errors import BusyError, DeployError, RefusedError
from dynatick_stack.limits import check_environment, check_quotas
from dynatick_stack.packaging import Packages, Platform
from dynatick_stack.project import Project
from dynatick_stack.release import Release

PACKAGES = Packages(
    of_template={name: Path(f"{name}.zip") for kind in (template.FUNCTION, template.LAYER) for name in
                 template.code_paths(template.load(), kind)},
    handlers=Path("aws-Handlers-new.zip"),
)  # fmt: skip
HANDLERS = Checked(actions={"mail": None}, schedules=[])
CHANGE = {"ResourceChange": {"Action": "Modify", "LogicalResourceId": "TasksTable", "ResourceType": "t"}}


class CloudFormation:
    """A stack whose changes succeed at once, or end in ``fails_as``."""

    meta = SimpleNamespace(endpoint_url="https://cloudformation.example")

    def __init__(self, status: str | None = None, fails_as: str | None = None, **parameters: str) -> None:
        self.status = status
        self.fails_as = fails_as
        self.parameters = parameters
        self.made: list[dict[str, Any]] = []  # change sets
        self.tokens: list[str] = []
        self.events: list[dict[str, str]] = []
        self.change: dict[str, Any] = CHANGE
        self.tags: list[dict[str, str]] = []
        self.discarded: list[str] = []

    def describe_stacks(self, StackName: str) -> Mapping[str, Any]:
        if self.status is None:
            raise ClientError(
                {"Error": {"Code": "ValidationError", "Message": "mine does not exist"}}, "DescribeStacks"
            )
        pairs = [{"ParameterKey": name, "ParameterValue": value} for name, value in self.parameters.items()]
        return {"Stacks": [{"StackStatus": self.status, "StackId": "arn:mine", "Parameters": pairs, "Tags": self.tags}]}

    def create_change_set(self, **request: Any) -> Mapping[str, str]:
        self.made.append(request)
        return {"Id": str(len(self.made) - 1)}

    def delete_change_set(self, ChangeSetName: str) -> None:
        self.discarded.append(ChangeSetName)

    def describe_change_set(self, ChangeSetName: str) -> Mapping[str, Any]:
        return {"Status": "CREATE_COMPLETE", "Changes": [self.change]}

    def execute_change_set(self, ChangeSetName: str, ClientRequestToken: str) -> None:
        request = self.made[int(ChangeSetName)]
        self.tokens.append(ClientRequestToken)
        self.status = self.fails_as or f"{request['ChangeSetType']}_COMPLETE"
        self.parameters |= {
            one["ParameterKey"]: one["ParameterValue"] for one in request["Parameters"] if "ParameterValue" in one
        }
        self.events = [
            {"EventId": "1", "ClientRequestToken": ClientRequestToken, "LogicalResourceId": "TasksTable",
             "ResourceStatus": "CREATE_FAILED", "ResourceStatusReason": "no room"},
        ] if self.fails_as else []  # fmt: skip

    def get_paginator(self, name: str) -> Any:
        assert name == "describe_stack_events"
        return SimpleNamespace(paginate=lambda StackName: [{"StackEvents": self.events}])


class Lambda:
    """One layer version, of handlers that have changed since."""

    meta = SimpleNamespace(region_name="eu-central-1")

    def __init__(self) -> None:
        self.published: list[dict[str, Any]] = []

    def get_paginator(self, name: str) -> Any:
        assert name == "list_layer_versions"
        version = {"Version": 7, "Description": "aws-Handlers-old", "LayerVersionArn": "arn:7"}
        return SimpleNamespace(paginate=lambda LayerName: [{"LayerVersions": [version]}])

    def publish_layer_version(self, **request: Any) -> Mapping[str, str]:
        self.published.append(request)
        return {"LayerVersionArn": "arn:8"}


class Bucket:
    account = "123456789012"

    def __init__(self) -> None:
        self.is_there = True
        self.uploaded: list[str] = []
        self.template: dict[str, Any] = {}

    def exists(self) -> bool:
        return self.is_there

    def place(self, path: Path) -> dict[str, str]:
        return {"Bucket": "b", "Key": path.name}

    def upload(self, path: Path, say: object) -> dict[str, str]:
        self.uploaded.append(path.name)
        return self.place(path)

    def put(self, name: str, content: bytes) -> str:
        self.template = json.loads(content)
        return f"https://b/{name}"


class Deployment:
    """A project's deployment to a stack in this state."""

    def __init__(self, cloudformation: CloudFormation, **parameters: str) -> None:
        self.cloudformation, self.aws_lambda, self.bucket = cloudformation, Lambda(), Bucket()
        clients = {"cloudformation": cloudformation, "lambda": self.aws_lambda}
        session: Any = SimpleNamespace(
            client=clients.__getitem__, region_name="eu-central-1", get_partition_for_region=lambda region: "aws"
        )
        self.project = Project(folder=Path(), name="mine", module="handlers", parameters=parameters)
        self.release = Release(session, "mine", poll_seconds=0)
        self.said: list[str] = []

    def prepare(self, *, publishes: bool = True) -> change_set.ChangeSet:
        bucket: Any = self.bucket
        return self.release.prepare(self.project, PACKAGES, bucket, say=self.said.append, publishes=publishes)

    def asked(self, parameter: str) -> list[str | None]:
        """The values that the change sets give a parameter, each once; None: it keeps what it has."""
        return [
            one.get("ParameterValue")
            for request in self.cloudformation.made
            for one in request["Parameters"]
            if one["ParameterKey"] == parameter
        ]


def test_a_table_is_protected_only_once_the_first_deployment_has_succeeded() -> None:
    """One that fails deletes its table; protected, it would end in ROLLBACK_FAILED."""
    mine = Deployment(CloudFormation(), DeletionProtection="true")
    found = mine.prepare()
    assert found.protects and found.parameters["DeletionProtection"] == (None, "true")
    mine.release.carry_out(found, say=mine.said.append)
    assert mine.asked("DeletionProtection") == ["false", "true"]
    create, protect = mine.cloudformation.made
    assert (create["ChangeSetType"], protect["ChangeSetType"]) == ("CREATE", "UPDATE")
    assert "TemplateURL" in create and protect["UsePreviousTemplate"] and "TemplateURL" not in protect
    assert mine.asked("HandlersModule") == ["handlers", None]
    assert mine.cloudformation.parameters["DeletionProtection"] == "true"
    assert "Protecting the table against deletion" in mine.said
    assert len(set(mine.cloudformation.tokens)) == 2


def test_a_table_stays_protected_in_later_deployments() -> None:
    mine = Deployment(CloudFormation("CREATE_COMPLETE", DeletionProtection="true"), DeletionProtection="true")
    found = mine.prepare()
    assert not found.protects
    mine.release.carry_out(found, say=mine.said.append)
    assert mine.asked("DeletionProtection") == ["true"]


def test_a_failed_first_deployment_is_explained_with_what_to_do() -> None:
    mine = Deployment(CloudFormation(fails_as="ROLLBACK_COMPLETE"), DeletionProtection="true")
    with pytest.raises(DeployError) as raised:
        mine.release.carry_out(mine.prepare(), say=mine.said.append)
    assert str(raised.value).splitlines() == [
        "The deployment failed (ROLLBACK_COMPLETE); what it changed was taken back:",
        "  TasksTable: no room",
        "Before you deploy again: its first deployment failed; remove it with dynatick destroy, then deploy again",
    ]
    assert mine.asked("DeletionProtection") == ["false"]


@pytest.mark.parametrize(
    ("status", "advice"),
    [
        ("ROLLBACK_COMPLETE", "remove it with dynatick destroy"),
        ("CREATE_FAILED", "remove it with dynatick destroy"),
        ("ROLLBACK_FAILED", "end the deletion protection of a table, for instance.*dynatick destroy"),
        ("UPDATE_FAILED", "aws cloudformation rollback-stack --stack-name mine"),
        ("UPDATE_ROLLBACK_FAILED", "aws cloudformation continue-update-rollback --stack-name mine"),
        ("DELETE_FAILED", "repeat dynatick destroy"),
        ("IMPORT_ROLLBACK_FAILED", "look at its events"),
    ],
)
def test_a_stack_that_cannot_be_updated_is_refused_with_what_to_do(status: str, advice: str) -> None:
    with pytest.raises(RefusedError, match=f"^mine is {status}, and CloudFormation can't update it: .*{advice}"):
        Deployment(CloudFormation(status)).prepare()


@pytest.mark.parametrize("status", ["CREATE_COMPLETE", "UPDATE_ROLLBACK_COMPLETE", "IMPORT_COMPLETE"])
def test_other_stacks_are_updated_unless_they_are_being_changed(status: str) -> None:
    assert change_set.deployed(Stack(CloudFormation(status), "mine", poll_seconds=0)) is not None  # type: ignore[arg-type]
    with pytest.raises(BusyError, match="UPDATE_IN_PROGRESS"):
        Deployment(CloudFormation("UPDATE_IN_PROGRESS")).prepare()


def test_a_failure_that_was_not_taken_back_does_not_say_that_it_was() -> None:
    mine = Deployment(CloudFormation("UPDATE_COMPLETE", fails_as="UPDATE_ROLLBACK_FAILED"))
    with pytest.raises(DeployError, match=r"failed \(UPDATE_ROLLBACK_FAILED\):\n(.*\n)*.*continue-update-rollback"):
        mine.release.carry_out(mine.prepare(), say=mine.said.append)


def test_changed_handlers_take_the_place_of_those_that_are_deployed() -> None:
    mine = Deployment(CloudFormation("UPDATE_COMPLETE", HandlersLayerArn="arn:7"))
    found = mine.prepare()
    assert mine.asked("HandlersLayerArn") == ["arn:8"]
    assert (found.parameters["HandlersLayerArn"], found.kept) == (("arn:7", "arn:8"), {})


def test_looking_publishes_no_layer_version_and_shows_the_next() -> None:
    mine = Deployment(CloudFormation("UPDATE_COMPLETE", HandlersLayerArn="arn:7"))
    found = mine.prepare(publishes=False)
    assert mine.aws_lambda.published == []
    assert mine.bucket.uploaded == [], "a change set needs the template only"
    assert mine.bucket.template["Resources"]["ApiFunction"]["Properties"]["CodeUri"]["Key"] == "ApiFunction.zip"
    following = "arn:aws:lambda:eu-central-1:123456789012:layer:mine-handlers:8"
    assert found.parameters["HandlersLayerArn"] == ("arn:7", following)
    mine.prepare()
    assert len(mine.aws_lambda.published) == 1


def test_a_template_has_an_address_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another branch's diff must not put its own there while CloudFormation reads."""
    mine = Deployment(CloudFormation("UPDATE_COMPLETE"))
    mine.prepare(publishes=False)
    mine.prepare(publishes=False)
    body = template.load()
    body["Description"] = "another"
    monkeypatch.setattr(template, "load", lambda: body)
    mine.prepare(publishes=False)
    first, second, other = (request["TemplateURL"] for request in mine.cloudformation.made)
    assert first == second != other


@pytest.mark.parametrize("status", [None, "UPDATE_COMPLETE"])
def test_without_a_bucket_looking_creates_none_and_shows_the_parameters(status: str | None) -> None:
    mine = Deployment(CloudFormation(status, ShardCount="1", TickState="DISABLED"), ShardCount="2")
    mine.bucket.is_there = False
    found = mine.prepare(publishes=False)
    assert (found.arn, found.changes) == (None, None)
    assert found.parameters["ShardCount"][1] == "2"
    assert (mine.bucket.uploaded, mine.bucket.template, mine.cloudformation.made) == ([], {}, [])


def test_a_parameter_that_is_new_in_the_template_is_a_change_only_if_it_is_named() -> None:
    found = Deployment(CloudFormation("UPDATE_COMPLETE"), ShardCount="1", TaskThreads="4").prepare()
    assert found.parameters.keys() == {"HandlersLayerArn", "TaskThreads"}


@pytest.mark.parametrize(
    ("named", "kept", "built"),
    [({}, {}, "arm64"), ({}, {"Architecture": "x86_64"}, "x86_64"), ({"Architecture": "arm64"}, {}, "arm64"),
     ({"Architecture": "arm64"}, {"Architecture": "x86_64"}, "arm64")],
)  # fmt: skip
def test_packages_are_built_for_the_architecture_that_the_stack_will_have(
    named: dict[str, str], kept: dict[str, str], built: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    platforms: list[Platform] = []

    def build(project: Project, files: object, platform: Platform, say: object) -> Packages:
        platforms.append(platform)
        return PACKAGES

    monkeypatch.setattr(packaging, "build_packages", build)
    monkeypatch.setattr(declared_schedules, "examine", lambda *_: HANDLERS)
    mine = command(tmp_path, monkeypatch, CloudFormation("UPDATE_COMPLETE", **kept), **named)
    mine.prepare(yes=True)
    assert [one.architecture for one in platforms] == [built]
    lambdas: Any = mine.release._lambda
    assert [one["CompatibleArchitectures"] for one in lambdas.published] == [[built]]


def test_a_deployment_leaves_the_tags_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packaging, "build_packages", lambda *_, **__: PACKAGES)
    monkeypatch.setattr(declared_schedules, "examine", lambda *_: HANDLERS)
    stack = CloudFormation("UPDATE_COMPLETE")
    version, team = {"Key": "dynatick:version", "Value": __version__}, {"Key": "team", "Value": "billing"}
    stack.tags = [{"Key": "dynatick:version", "Value": "0.1"}, team, {"Key": "aws:of-aws", "Value": "x"}]
    command(tmp_path, monkeypatch, stack).prepare(yes=True)
    command(tmp_path, monkeypatch, new := CloudFormation()).prepare(yes=True)
    assert [made["Tags"] for made in (*stack.made, *new.made)] == [[team, version], [version]]


@pytest.mark.parametrize("refuses", [True, False])
def test_a_change_set_that_is_not_carried_out_is_discarded(
    refuses: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table refuses what is declared, or there is nobody to ask."""

    def planned(*_: object, **__: object) -> Sequence[Any]:
        if refuses:
            raise StoreError("not allowed")
        return []

    monkeypatch.setattr(packaging, "build_packages", lambda *_, **__: PACKAGES)
    monkeypatch.setattr(declared_schedules, "examine", lambda *_: HANDLERS)
    monkeypatch.setattr(declared_schedules, "plan", planned)
    monkeypatch.setattr(waiting_payloads, "check", lambda *_, **__: 0)
    stack = CloudFormation("UPDATE_COMPLETE")
    mine = command(tmp_path, monkeypatch, stack)
    monkeypatch.setattr(release_commands, "_Deployment", lambda *_: mine)
    with pytest.raises((CommandFailed, StoreError), match="not allowed" if refuses else "nobody to ask"):
        release_commands.deploy()
    assert (len(stack.made), stack.discarded, stack.tokens) == (1, ["0"], [])


def test_handlers_are_checked_with_the_parameters_that_the_stack_will_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The project's, else those that the stack has, else the defaults."""
    checked: list[dict[str, str]] = []

    def examine(project: Project, say: object, files: object, parameters: dict[str, str]) -> Checked:
        checked.append(parameters)
        return HANDLERS

    monkeypatch.setattr(packaging, "build_packages", lambda *_, **__: PACKAGES)
    monkeypatch.setattr(declared_schedules, "examine", examine)
    stack = CloudFormation("UPDATE_COMPLETE", AllowedActions="mail", ActionRateLimits="mail=1/s", Unknown="x")
    mine = command(tmp_path, monkeypatch, stack, ActionRateLimits="log=1/s")
    mine.prepare(yes=True)
    (values,) = checked
    assert (values["AllowedActions"], values["ActionRateLimits"], values["TaskThreads"]) == ("mail", "log=1/s", "16")
    assert values.keys() == template.load()["Parameters"].keys()


def command(
    folder: Path, monkeypatch: pytest.MonkeyPatch, cloudformation: CloudFormation, **parameters: str
) -> release_commands._Deployment:
    """The deployment that a command makes of a folder."""
    lines = [f'{name} = "{value}"' for name, value in parameters.items()]
    toml = ["[stack]", 'name = "mine"', 'region = "eu-central-1"', "[parameters]", *lines]
    (folder / "dynatick.toml").write_text("\n".join(toml))
    monkeypatch.chdir(folder)
    found: Any = release_commands._Deployment(None, None, None)
    found.release, found.bucket = Deployment(cloudformation).release, Bucket()
    return found  # type: ignore[no-any-return]


# --- Replacements -------------------------------------------------------------


def detail(name: str, recreation: str, evaluation: str, entity: str | None = None) -> dict[str, Any]:
    target = {"Attribute": "Properties", "Name": name, "RequiresRecreation": recreation}
    return {"Target": target, "Evaluation": evaluation, **({"CausingEntity": entity} if entity else {})}


@pytest.mark.parametrize(
    ("resource", "replacement", "details", "shown"),
    [
        ("TickRule", "False", [detail("Targets", "Never", "Dynamic", "ProcessorFunction.Arn")], ""),
        ("TickRule", None, [], ""),
        ("TickRule", "True", [detail("Name", "Always", "Static")], "replaced"),
        ("TickRule", "Conditional", [], "replaced only if AWS finds no other way"),
        (
            "TickRule",
            "Conditional",
            [
                detail("Targets", "Conditionally", "Dynamic"),
                detail("Targets", "Conditionally", "Dynamic", "ProcessorFunction.Arn"),
                detail("State", "Never", "Static", "TickState"),
                detail("Other", "Always", "Dynamic", "ApiFunction.Arn"),
                detail("Targets", "Always", "Dynamic", "ApiFunction.Arn"),
            ],
            "replaced only if ProcessorFunction.Arn or ApiFunction.Arn changes",
        ),
        (
            "ApiRoute",
            "Conditional",
            [detail("Target", "Conditionally", "Static"), detail("ApiId", "Always", "Dynamic", "HttpApi")],
            "replaced only if HttpApi changes or Target can't be changed in place",
        ),
        (
            "TasksTable",
            "True",
            [detail("KeySchema", "Always", "Static")],
            "replaced; the new one is empty, and the old one stays with what is in it",
        ),
    ],
)
def test_what_aws_says_of_a_replacement_is_shown(
    resource: str, replacement: str | None, details: list[Any], shown: str
) -> None:
    said: dict[str, Any] = {"Action": "Modify", "LogicalResourceId": resource, "ResourceType": "t", "Details": details}
    stack = CloudFormation("UPDATE_COMPLETE")
    stack.change = {"ResourceChange": said | ({"Replacement": replacement} if replacement else {})}
    found = Deployment(stack).prepare()
    assert found.changes is not None
    assert [release_commands._replacement(one) for one in found.changes] == [shown]


# --- Rules of the template -----------------------------------------------------


@pytest.mark.parametrize(
    ("given", "kept", "said"),
    [
        ({"Precision": "second"}, {"TickMinutes": "10"}, "Precision second needs TickMinutes of 5 or less"),
        ({"AllowedSecrets": "arn:aws:ssm:eu-west-1:1:parameter/x"}, {}, "AllowedSecrets needs AllowedWebhookHosts"),
        ({"ApiAuthorization": "JWT"}, {}, "ApiAuthorization JWT needs ApiJwtIssuer"),
        ({"ApiAuthorization": "JWT"}, {"ApiJwtIssuer": "https://a"}, "ApiAuthorization JWT needs ApiJwtAudience"),
        ({"HandlersSubnetIds": "subnet-0a"}, {}, "HandlersSubnetIds needs HandlersSecurityGroupIds"),
        ({"HandlersSecurityGroupIds": "sg-0a"}, {}, "HandlersSecurityGroupIds needs HandlersSubnetIds"),
    ],
)
def test_what_a_rule_refuses_is_refused_before_anything_is_uploaded(
    given: dict[str, str], kept: dict[str, str], said: str
) -> None:
    mine = Deployment(CloudFormation("UPDATE_COMPLETE", **kept), **given)
    with pytest.raises(RefusedError, match=f"^{said}"):
        mine.prepare()
    assert (mine.bucket.uploaded, mine.aws_lambda.published, mine.cloudformation.made) == ([], [], [])


def test_each_assertion_can_be_evaluated() -> None:
    body, defaults = template.load(), template.defaults()
    template.check_rules(defaults, body)
    assertions = [one["Assert"] for rule in body["Rules"].values() for one in rule["Assertions"]]
    assert {type(template._evaluated(one, defaults)) for one in assertions} == {bool}


# --- Limits of AWS ------------------------------------------------------------


@pytest.mark.parametrize("name", ["WarmThroughput", "MaxWriteUnits"])
def test_more_write_units_than_the_quota_are_refused_before_anything_is_uploaded(name: str) -> None:
    mine = Deployment(CloudFormation(), **{name: "40001"})
    with pytest.raises(RefusedError, match=f"^{name} can't be 40001: .* at most 40,000 .*table_write_units = 40001"):
        mine.prepare()
    assert (mine.bucket.uploaded, mine.aws_lambda.published, mine.cloudformation.made) == ([], [], [])
    Deployment(CloudFormation(), **{name: "40000"}).prepare()


def test_a_quota_that_was_raised_counts() -> None:
    check_quotas({"WarmThroughput": "80000", "MaxWriteUnits": "80000"}, 80_000)
    with pytest.raises(RefusedError, match=r"80001: .*80,000 .*a quota that \[stack\] table_write_units says"):
        check_quotas({"WarmThroughput": "80001"}, 80_000)


def test_an_environment_that_lambda_refuses_is_refused_before_anything_is_uploaded() -> None:
    arns = ",".join(f"arn:aws:sqs:eu-central-1:123456789012:queue-{number:03}" for number in range(80))
    mine = Deployment(CloudFormation(), AllowedTargetArns=arns)
    with pytest.raises(RefusedError) as raised:
        mine.prepare()
    assert "ProcessorFunction would take" in str(raised.value) and "Lambda allows 4,096" in str(raised.value)
    assert f"The largest: AllowedTargetArns ({len(arns) + len('DYNATICK_ALLOWED_TARGET_ARNS'):,})" in str(raised.value)
    assert (mine.bucket.uploaded, mine.cloudformation.made) == ([], [])


def test_kept_parameters_count_and_the_size_is_that_of_names_and_values() -> None:
    body, defaults = template.load(), template.defaults()

    def fits(characters: int) -> bool:
        try:
            check_environment({**defaults, "AllowedActions": "a" * characters}, body, "mine")
        except RefusedError:
            return False
        return True

    room = next(size for size in range(4096, 0, -1) if fits(size))
    # What is left of 4,096 is what names, defaults and the names of resources take.
    assert 2_500 < room < 3_200
    kept = CloudFormation("UPDATE_COMPLETE", AllowedActions="a" * (room + 100))
    with pytest.raises(RefusedError, match="Lambda allows"):
        Deployment(kept).prepare()


def test_a_parameter_that_another_has_replaced_is_refused_with_what_to_write() -> None:
    queue = "arn:aws:sqs:eu-central-1:123456789012:orders"
    written = f"^AllowedQueueArns is part of AllowedTargetArns now: write what it lists, {queue}, there$"
    with pytest.raises(RefusedError, match=written):
        Deployment(CloudFormation(), AllowedQueueArns=queue).prepare()
    with_it = CloudFormation("UPDATE_COMPLETE", AllowedQueueArns=queue, AllowedTopicArns="")
    mine = Deployment(with_it)
    with pytest.raises(RefusedError, match=written):
        mine.prepare()
    assert (mine.bucket.uploaded, mine.aws_lambda.published, with_it.made) == ([], [], [])
    Deployment(with_it, AllowedTargetArns=queue).prepare()
    assert "AllowedQueueArns" not in str(with_it.made)


def test_a_parameter_that_is_too_long_is_refused() -> None:
    with pytest.raises(RefusedError, match=r"It has 2,002 characters; allowed are 2,000"):
        template.check_parameters({"HandlersEnvironment": "{" + " " * 2000 + "}"}, template.load())


def test_cloudformation_gets_the_plain_address_of_the_template(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_USE_DUALSTACK_ENDPOINT", "true")
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    bucket = ArtifactBucket(boto3.Session("key", "secret", region_name="eu-central-1"), "uploads")
    bucket.account = "123456789012"
    sent: list[dict[str, Any]] = []
    monkeypatch.setattr(bucket._s3, "put_object", lambda **request: sent.append(request))
    assert "dualstack" in bucket._s3.meta.endpoint_url
    assert bucket.put("t.json", b"{}") == "https://s3.eu-central-1.amazonaws.com/uploads/dynatick/t.json"
    assert sent[0]["Key"] == "dynatick/t.json"


@mock_aws
def test_an_artifact_that_is_there_is_compared_before_it_is_used(tmp_path: Path) -> None:
    """An upload that was cut off, or another's under this name, is replaced."""
    session = boto3.Session("key", "secret", region_name="us-east-1")
    bucket = ArtifactBucket(session)
    bucket.create()
    artifact = tmp_path / "handlers-1.zip"
    artifact.write_bytes(b"the layer")
    said: list[str] = []
    where = bucket.upload(artifact, said.append)
    assert (bucket.upload(artifact, said.append), len(said)) == (where, 1), "it is there, and needs no second upload"
    s3 = session.client("s3")
    s3.put_object(**where, Body=b"another")
    bucket.upload(artifact, said.append)
    assert (s3.get_object(**where)["Body"].read(), len(said)) == (b"the layer", 2)

"""Each role allows the calls that its function makes, and nothing else.

The functions run as Lambda calls them, on the local emulator, with batches, through everything that they do; each call
of theirs is noted by a hook in botocore. The emulator itself allows everything.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import boto3
import pytest
from botocore.client import BaseClient
from tests.integration.deployed import TABLE, Deployed, LambdaContext, deploy

from dynatick import TaskClient, cli, secret
from dynatick.domain.buckets import Bucket, Grid, minute_of
from dynatick.domain.completion import completion_token
from dynatick.domain.normalise import Defaults
from dynatick.domain.recurrence import ready
from dynatick.engine.counts import bucket_record_id
from dynatick.engine.cursor import cursor_id, idle_record_id
from dynatick.engine.limits import limits_id
from dynatick.engine.rates import rate_record_id
from dynatick.engine.settings import SETTINGS_ID
from dynatick.errors import StoreError
from dynatick.store.codec import encode
from dynatick.store.dynamodb import DynamoStore
from dynatick.store.wire import Wire
from dynatick_stack import emulator, local, template
from dynatick_stack.demo.receiver import Receiver

RESOURCES: dict[str, Any] = template.load()["Resources"]

SSM_SECRET, MANAGED_SECRET = "/dynatick/least-privilege", "dynatick/least-privilege"
HANDLERS_SECRETS = {"A": "ssm:/of-handlers", "B": "secretsmanager:of-handlers"}

ACCOUNT = "000000000000"
TARGETS: dict[str, dict[str, Any]] = {
    "sns": {"topicArn": f"arn:aws:sns:us-east-1:{ACCOUNT}:target", "message": "x"},
    "sqs": {"queueArn": f"arn:aws:sqs:us-east-1:{ACCOUNT}:target", "message": "x"},
    "eventbridge": {"eventBusArn": f"arn:aws:events:us-east-1:{ACCOUNT}:event-bus/default"},
    # Nobody is there: that the call is made is enough here.
    "lambda": {"functionArn": f"arn:aws:lambda:us-east-1:{ACCOUNT}:function:target"},
    "stepfunctions": {"stateMachineArn": f"arn:aws:states:us-east-1:{ACCOUNT}:stateMachine:target"},
}

IMPORTS = "imports-of-least-privilege"
OUTCOMES_BUS = f"arn:aws:events:us-east-1:{ACCOUNT}:event-bus/outcomes"
STACK, PROCESSOR = "tasks", "ProcessorFunction"

Right = tuple[str, str]  # an action, and what it is done to: as the template calls it

STREAM = ("DescribeStream", "GetRecords", "GetShardIterator", "ListStreams")
QUEUE = ("DeleteMessage", "GetQueueAttributes", "ReceiveMessage")
FAILURES = ("sqs:SendMessage", "StreamFailureQueue")
BY_LAMBDA: dict[str, set[Right]] = {
    # What the service itself does in the role's name, beside logs: the stream, the queue, what it could not deliver.
    "SchedulerRole": {FAILURES, *((f"dynamodb:{action}", "TasksTable/stream/*") for action in STREAM)},
    "ProcessorRole": {
        FAILURES,
        *((f"sqs:{action}", "WakeUpQueue") for action in QUEUE),
        *((f"kms:{action}", "AllowedKeyArns") for action in ("Decrypt", "GenerateDataKey")),
    },
    "ImporterRole": {FAILURES, ("s3:ListBucket", "ImportsBucket")},  # so that S3 says of an object that it is missing
    "ApiRole": set(),
}


def logs(role: str) -> set[Right]:
    return {
        (f"logs:{action}", f"{role.removesuffix('Role')}LogGroup") for action in ("CreateLogStream", "PutLogEvents")
    }


def allowed(role: str) -> set[Right]:
    policies = RESOURCES[role]["Properties"]["Policies"]
    documents = [policy["PolicyDocument"] for policy in policies if "Fn::If" not in policy]  # that is for a VPC
    documents += [
        one["Properties"]["PolicyDocument"]
        for one in RESOURCES.values()
        if one["Type"] == "AWS::IAM::Policy" and {"Ref": role} in one["Properties"]["Roles"]
    ]
    return {right for document in documents for right in rights_in(document["Statement"], name_in_template)}


def rights_in(statements: list[dict[str, Any]], name: Callable[[Any], str]) -> Iterator[Right]:
    for statement in statements:
        if statement["Effect"] == "Deny":
            continue
        yield from product(as_list(statement["Action"]), map(name, as_list(statement["Resource"])))


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def name_in_template(resource: Any) -> str:
    match resource:
        case {"Fn::GetAtt": [str(name), "Arn"]} | {"Fn::Split": [",", {"Ref": str(name)}]}:
            return name
        case {"Fn::If": [_, {"Ref": str(parameter)}, _]}:
            return parameter
        case {"Fn::Sub": str(text)}:
            return re.sub(r"\$\{(\w+)\.Arn\}", r"\1", text)
    raise AssertionError(f"a resource of an unknown form: {resource}")


# By service: the parameter that names what a call is made to, and its possible values with their names in the template.
NAMED: dict[str, tuple[str, dict[str, str]]] = {
    "cloudformation": ("StackName", {STACK: "stack"}),
    "dynamodb": ("TableName", {TABLE: "TasksTable"}),
    "events": ("EventBusName", {
        TARGETS["eventbridge"]["eventBusArn"]: "AllowedTargetArns", OUTCOMES_BUS: "OutcomeEventsBusArn"}),
    "lambda": ("FunctionName", {
        "processor": PROCESSOR, "importer": "ImporterFunction",
        TARGETS["lambda"]["functionArn"]: "AllowedTargetArns"}),
    "s3": ("Bucket", {IMPORTS: "ImportsBucket"}),
    "secretsmanager": ("SecretId", {MANAGED_SECRET: "AllowedSecrets", "of-handlers": "HandlersSecretArns"}),
    "sns": ("TopicArn", {TARGETS["sns"]["topicArn"]: "AllowedTargetArns"}),
    "sqs": ("QueueUrl", {
        "dead-letters": "DeadLetterQueue", "lost": "StreamFailureQueue", "wake-ups": "WakeUpQueue",
        "target": "AllowedTargetArns"}),
    "ssm": ("Name", {SSM_SECRET: "AllowedSecrets", "/of-handlers": "HandlersSecretArns"}),
    "states": ("stateMachineArn", {TARGETS["stepfunctions"]["stateMachineArn"]: "AllowedTargetArns"}),
}  # fmt: skip


def needed(service: str, operation: str, parameters: Mapping[str, Any]) -> Iterator[Right]:
    """The rights that a call needs, by the service authorisation reference."""
    if operation == "GetAccountSettings":
        yield f"{service}:{operation}", "account"
        return
    if operation == "GetCallerIdentity":  # everybody may
        return
    service = {"stepfunctions": "states"}.get(service, service)
    parameter, known = NAMED[service]
    action = {"Invoke": "InvokeFunction"}.get(operation, operation.removesuffix("Batch"))
    match operation:
        case "BatchExecuteStatement":
            for statement in parameters["Statements"]:
                verb, _, rest = statement["Statement"].partition(" ")
                assert f'"{TABLE}"' in rest
                yield f"dynamodb:PartiQL{verb.capitalize()}", "TasksTable"
            return
        case "TransactWriteItems":
            for part in parameters["TransactItems"]:
                ((kind, request),) = part.items()
                yield from needed(service, f"{kind}Item", request)
            return
        case "BatchGetItem":
            names = list(parameters["RequestItems"])
        case "PutEvents":
            names = [entry[parameter] for entry in parameters["Entries"]]
        case _:
            names = [parameters[parameter]]
    within = ""
    if "IndexName" in parameters:
        within = f"/index/{parameters['IndexName']}"
    elif service == "s3":
        within = f"/{parameters['Key'].partition('/')[0]}/*"
    for name in names:
        yield f"{service}:{action}", known[name.rpartition("/")[2] if service == "sqs" else name] + within


class Calls:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rights: defaultdict[str, set[Right]] = defaultdict(set)
        self.own_rows_written: defaultdict[str, set[str]] = defaultdict(set)
        self._role: str | None = None
        call = BaseClient._make_api_call

        def noted(client: Any, operation: str, parameters: Mapping[str, Any]) -> Any:
            self._note(client.meta.service_model.service_name, operation, parameters)
            if operation == "GetAccountSettings":  # moto doesn't know it
                return {"AccountLimit": {"UnreservedConcurrentExecutions": 1000}}
            return call(client, operation, parameters)

        monkeypatch.setattr(BaseClient, "_make_api_call", noted)
        short = Wire.call

        def noted_too(wire: Wire, operation: str, request: Mapping[str, Any]) -> Any:
            self._note("dynamodb", operation, request)
            return short(wire, operation, request)

        monkeypatch.setattr(Wire, "call", noted_too)

    def _note(self, service: str, operation: str, parameters: Mapping[str, Any]) -> None:
        if self._role is None:
            return
        rights = set(needed(service, operation, parameters))
        self.rights[self._role] |= rights
        if {action for action, _ in rights} & WRITES:
            self.own_rows_written[self._role] |= set(OWN_ROW.findall(json.dumps(parameters, default=str)))

    @contextmanager
    def of(self, role: str) -> Iterator[None]:
        self._role = role
        try:
            yield
        finally:
            self._role = None


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[str]:
    running = emulator.start(0, state_dir=tmp_path, say=lambda text: None)
    yield running.endpoint
    emulator.stop(state_dir=tmp_path)


@pytest.fixture
def deployed(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Deployed:
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("DYNATICK_SHARD_COUNT", "2")
    monkeypatch.setenv("DYNATICK_WEBHOOK_PRIVATE_HOSTS", "127.0.0.1")
    for name, value in RESOURCES["ProcessorFunction"]["Properties"]["Environment"]["Variables"].items():
        if name.startswith("DYNATICK_ALLOWED_") and value["Ref"] in local.LOCAL:
            monkeypatch.setenv(name, local.LOCAL[value["Ref"]])
    boto3.client("sns").create_topic(Name="target")
    boto3.client("sqs").create_queue(QueueName="target")
    monkeypatch.setenv("DYNATICK_PRECISION", "second")
    wake_ups = boto3.client("sqs").create_queue(QueueName="wake-ups")
    monkeypatch.setenv("DYNATICK_WAKE_UP_QUEUE_URL", wake_ups["QueueUrl"])
    lost = boto3.client("sqs").create_queue(QueueName="lost")
    boto3.client("events").create_event_bus(Name="outcomes")
    monkeypatch.setenv("DYNATICK_OUTCOME_EVENTS", "all")
    monkeypatch.setenv("DYNATICK_OUTCOME_EVENTS_BUS", OUTCOMES_BUS)
    monkeypatch.setenv("DYNATICK_LOST_EVENTS_QUEUE_URL", lost["QueueUrl"])
    for ssm_secret, managed_secret in ((SSM_SECRET, MANAGED_SECRET), ("/of-handlers", "of-handlers")):
        boto3.client("ssm").put_parameter(Name=ssm_secret, Value="a", Type="SecureString")
        boto3.client("secretsmanager").create_secret(Name=managed_secret, SecretString="b")
    monkeypatch.setenv("DYNATICK_HANDLERS_SECRETS", json.dumps(HANDLERS_SECRETS))
    made = deploy(monkeypatch, "least-privilege", batched=True)
    for function in (made.scheduler, made.processor):
        function.handler({"Records": []} if function is made.scheduler else {"dynatick": {"reconcile": True}},
                         LambdaContext())  # fmt: skip
    return made


def everything_the_scheduler_does(deployed: Deployed) -> None:
    for own in (SETTINGS_ID, "_dynatick#cursor#0", "_dynatick#cursor#1"):
        deployed.table.delete_item(Key={"taskId": own})  # so that it makes them anew
    past = "2026-01-01#00:00"
    rows: list[dict[str, Any]] = [
        {"taskId": "untimed"},
        {"taskId": "timed", "delaySeconds": 60},
        {"taskId": "bad", "action": 7},
        {"taskId": "closed", "status": "scheduled", "attempt": 0, "run": 1, "action": "log", "taskDateTime": past},
        {"taskId": "stray", "delaySeconds": 5, "outcome": None, "expiresAt": 5, "error": "x"},
    ]
    for row in rows:
        deployed.table.put_item(Item=row)
    ended = {"taskId": "ended", "status": "failed", "outcome": "failed", "attempt": 1, "run": 1}
    records = [
        {"dynamodb": {"SequenceNumber": str(n), "NewImage": encode(row)}} for n, row in enumerate((*rows, ended))
    ]
    with patch.object(DynamoStore, "write_many", side_effect=StoreError("no answer")):  # so the rows decide
        deployed.scheduler.handler({"Records": records}, LambdaContext("scheduler"))
    answer = deployed.scheduler.handler({"Records": records}, LambdaContext("scheduler"))
    assert answer == {"batchItemFailures": []}
    for row in rows:
        assert deployed.row(row["taskId"])["status"] == ("failed" if row["taskId"] == "bad" else "scheduled")


def everything_the_processor_does(deployed: Deployed) -> None:
    with Receiver() as receiver:
        run_everything(deployed, receiver)
    (call,) = receiver.of("secret")
    assert (call.headers["a"], call.headers["b"]) == ("a", "b")


def run_everything(deployed: Deployed, receiver: Receiver) -> None:
    headers = {"A": {"secret": {"ssm": SSM_SECRET}}, "B": {"secret": {"secretsManager": MANAGED_SECRET}}}
    payload_with_secrets = {"url": receiver.url, "headers": headers}
    now = datetime.now(UTC)
    for shard in (0, 1):
        deployed.table.delete_item(Key={"taskId": f"_dynatick#cursor#{shard}"})
    deployed.drained_through(minute_of(now) - 2)
    bucket = str(Bucket(minute_of(now) - 1))
    base = {"taskDateTime": bucket, "status": "scheduled", "attempt": 0, "run": 1, "action": "log"}
    long_ago = {"lease": "x", "leaseUntil": "2026-01-01T00:00:00Z", "startedAt": "2026-01-01T00:00:00Z"}
    rows: list[dict[str, Any]] = [
        *({"taskId": f"t{n}", **base} for n in range(3)),
        {"taskId": "raw", "taskDateTime": bucket},  # normalised on the spot
        {"taskId": "unfit", **base, "action": "nothing"},  # fails, with a dead letter
        {"taskId": "again", **base, "action": "rehearse", "payload": {"failures": 1}},  # is tried again
        {"taskId": "suspect", **base, "status": "running", "attempt": 1, **long_ago},
        {"taskId": "secret", **base, "action": "webhook", "payload": payload_with_secrets},
        *({"taskId": kind, **base, "action": kind, "payload": payload} for kind, payload in TARGETS.items()),
        {"taskId": "lost", **base, "taskDateTime": "2026-01-01#00:00"},  # for the reconcile
    ]
    for row in rows:
        deployed.table.put_item(Item=row)
    raw = {"taskId": "every", "scheduleExpression": "rate(1 minute)"}
    change = ready(raw, now=now - timedelta(minutes=2), grid=Grid(), defaults=Defaults())
    assert change is not None
    deployed.table.put_item(Item={**raw, **change.set})
    deployed.tick(now)
    occurrence = deployed.row(f"every#1#{change.set['nextOccurrenceAt']}")
    assert (occurrence["outcome"], occurrence["taskDateTime"]) == ("completed", bucket)
    context = LambdaContext(ends=now + timedelta(seconds=60))
    deployed.processor.handler({"dynatick": {"reconcile": True}}, context)
    outcomes = {row["taskId"]: deployed.row(row["taskId"]).get("outcome") for row in rows}
    assert outcomes == {
        **{f"t{n}": "completed" for n in range(3)},
        "raw": "completed", "unfit": "failed", "again": None, "suspect": "completed", "lost": None,
        "secret": "completed", "sns": "completed", "sqs": "completed", "eventbridge": "completed",
        "lambda": "failed", "stepfunctions": "failed",
    }  # fmt: skip


def iso(instant: datetime) -> str:
    return instant.strftime("%Y-%m-%dT%H:%M:%SZ")


def everything_the_api_does(deployed: Deployed) -> None:
    done: set[tuple[str, str]] = set()
    due = datetime.now(UTC) + timedelta(days=1)
    bucket = str(Bucket(minute_of(due)))
    in_bucket = bucket.replace("#", "%23")
    ids = {
        "<number>": "0",
        "<batchId>": "asked-batch",
        "<taskId>": "asked",
        "<scheduleId>": "asked-nightly",
        "<bucket>": in_bucket,
        "<action>": "log",
    }

    def ask(method: str, route: str, body: object = None, *, query: str = "", also: int = 200) -> None:
        path = re.sub("<[^>]*>", lambda found: ids[found[0]], route)
        answer = deployed.request(method, path, body, query)
        assert answer["statusCode"] < 300 or answer["statusCode"] == also, answer["body"]
        done.add((method, route))

    task = {"taskId": "asked", "taskDateTime": bucket, "action": "log"}
    ask("POST", "/v1/tasks", task)
    ask("POST", "/v1/tasks", {"taskId": "asked-untimed"})
    many = [{**task, "taskId": f"asked-{n}"} for n in range(3)]
    ask("POST", "/v1/tasks/bulk", {"tasks": [*many, {"taskId": "asked-x"}]})
    ask("GET", "/v1/tasks", query=f"bucket={in_bucket}")
    ask("GET", "/v1/tasks/<taskId>")
    ask("GET", "/v1/tasks/<taskId>/explanation")
    ask("PATCH", "/v1/tasks/<taskId>", {"payload": {"n": 1}})
    ask("PUT", "/v1/tasks/<taskId>", {"taskDateTime": bucket, "action": "log"})
    for verb in ("cancel", "restore", "run"):
        ask("POST", f"/v1/tasks/<taskId>/{verb}")
    ask("POST", "/v1/tasks/<taskId>/redrive", also=409)  # it has not failed
    ask("POST", "/v1/completions", {"token": completion_token("none", "asked")}, also=409)  # it was not handed over
    ask("DELETE", "/v1/tasks/<taskId>")
    ask("POST", "/v1/tasks/cancel", {"bucket": bucket})
    ask("POST", "/v1/tasks/restore", {"bucket": bucket})
    ask("POST", "/v1/tasks/run", {"bucket": bucket})
    ask("POST", "/v1/tasks/redrive", {"bucket": bucket})
    ask("POST", "/v1/tasks/delete", {"subject": "customer:none"})
    span = {"start": iso(due), "end": iso(due + timedelta(minutes=9))}
    ask("GET", "/v1/buckets", query="&".join(f"{name}={value}" for name, value in span.items()))
    ask("GET", "/v1/buckets/<bucket>")
    ask("GET", "/v1/ticks")
    ask("GET", "/v1/dead-letters")
    ask("POST", "/v1/dead-letters/redrive", {})
    ask("POST", "/v1/dead-letters/purge", {})
    ask("GET", "/v1/status")
    ask("GET", "/v1/actions")
    ask("POST", "/v1/pause", {"reason": "a test"})
    ask("POST", "/v1/resume")
    ask("POST", "/v1/actions/<action>/pause", {"reason": "a test"})
    ask("POST", "/v1/actions/<action>/resume")
    ask("GET", "/v1/settings")
    ask("GET", "/v1/health", also=503)  # if its ticks are long ago by now
    ask("POST", "/schedule-task", {"action": "log", "payload": {}, "run_at": span["start"]})
    ask("POST", "/v1/schedules", {"taskId": "asked-nightly", "scheduleExpression": "rate(1 hour)", "action": "log"})
    ask("GET", "/v1/schedules")
    nightly = "/v1/schedules/<scheduleId>"
    ask("GET", nightly)
    ask("PATCH", nightly, {"payload": {"n": 1}})
    for verb in ("pause", "resume", "run"):
        ask("POST", f"{nightly}/{verb}")
    for verb in ("preview", "history"):
        ask("GET", f"{nightly}/{verb}")
    batch = {"batchId": "asked-batch", "action": "log", "dueAt": iso(due)}
    ask("POST", "/v1/batches", {**batch, "total": 2}, also=201)
    ask("PUT", "/v1/batches/<batchId>/packs/<number>", {"payloads": [{}, {}]})
    ask("POST", "/v1/batches/<batchId>/seal")
    ask("POST", "/v1/batches", {**batch, "payloads": [{}, {}]}, also=201)
    ask("GET", "/v1/batches/<batchId>/members")
    ask("GET", "/v1/batches", query="&".join(f"{name}={value}" for name, value in span.items()))
    ask("GET", "/v1/batches/<batchId>")
    ids["<taskId>"] = "~YXNrZWQtYmF0Y2gvMDAwMDAwMDAx"  # asked-batch/000000001
    ask("POST", "/v1/tasks/<taskId>/run")  # two rows are written in one transaction
    ask("POST", "/v1/batches/<batchId>/redrive")
    ask("PATCH", "/v1/batches/<batchId>", {"delaySeconds": 3600})
    ask("POST", "/v1/batches/<batchId>/cancel")
    past = {"start": iso(datetime.now(UTC) - timedelta(hours=3)), "end": iso(datetime.now(UTC))}
    ask("POST", f"{nightly}/backfill", past)
    ask("DELETE", nightly)
    assert done == {(one.method, one.path) for one in deployed.api.api.table.operations}
    ids = [str(row["taskId"]) for row in deployed.table.scan()["Items"]]
    records = [deployed.table.get_item(Key={"taskId": one})["Item"] for one in ids if one.startswith(CHANGES)]
    assert {str(one["change"]) for one in records} >= {"cancel", "restore", "run", "cancel batch"}
    assert {one["interface"] for one in records} == {"HTTP"} and {one["state"] for one in records} == {"done"}


def everything_the_importer_does(deployed: Deployed) -> None:
    s3 = boto3.client("s3")
    s3.create_bucket(Bucket=IMPORTS)

    def drop(name: str, lines: list[str], **context: Any) -> None:
        body = "\n".join(lines).encode()
        put = s3.put_object(Bucket=IMPORTS, Key=f"imports/{name}", Body=body)
        file = {"key": f"imports/{name}", "size": len(body), "etag": put["ETag"].strip('"'), "sequencer": "1"}
        event = {"detail": {"bucket": {"name": IMPORTS}, "object": file}}
        deployed.importer.handler(event, LambdaContext("importer", **context))

    timed = '{"taskId": "dropped-%d", "dueAt": "2030-12-31T12:00:00Z"}'
    others = [
        '{"taskId": "dropped-untimed"}',
        '{"taskId": "recurring", "scheduleExpression": "rate(1 day)"}',
        "no task",
    ]
    drop("some.ndjson", [*(timed % n for n in range(30)), *others])
    report = json.loads(s3.get_object(Bucket=IMPORTS, Key="reports/some.ndjson.json")["Body"].read())
    assert (report["inserted"], report["refused"]) == (32, 1)
    written = s3.list_objects_v2(Bucket=IMPORTS, Prefix=report["errors"])["Contents"]
    assert [one["Key"] for one in written] == ["errors/some.ndjson/1/from-line-0000000001.ndjson"]
    drop("some.ndjson", [timed % 1])  # the same event once more
    batch = ['{"batchId": "dropped", "action": "log", "dueAt": "2030-12-31T12:00:00Z"}', *['{"n": 1}'] * 600]
    drop("batches/some.ndjson", batch)
    drop("batches/again.ndjson", batch)
    report = json.loads(s3.get_object(Bucket=IMPORTS, Key="reports/batches/again.ndjson.json")["Body"].read())
    assert (report["inserted"], report["exists"], report["refused"]) == (0, 600, 0)
    # Too many for the time that is left: another invocation is to go on, and here is none to be had.
    ends = datetime.now(UTC) + timedelta(seconds=1)
    with pytest.raises(StoreError, match="cannot invoke importer"):
        drop("many.ndjson", [timed % n for n in range(20_000)], ends=ends)


def test_each_role_allows_what_its_function_does_and_nothing_else(
    deployed: Deployed, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Calls(monkeypatch)
    with calls.of("ProcessorRole"):
        assert [secret(name) for name in HANDLERS_SECRETS] == ["a", "b"]
    for role, function, do_everything in (
        ("SchedulerRole", deployed.scheduler, everything_the_scheduler_does),
        ("ProcessorRole", deployed.processor, everything_the_processor_does),
        ("ApiRole", deployed.api, everything_the_api_does),
        ("ImporterRole", deployed.importer, everything_the_importer_does),
    ):
        monkeypatch.setattr(function, "handler", calls.of(role)(function.handler))
        do_everything(deployed)
        assert calls.rights[role] | BY_LAMBDA[role] | logs(role) == allowed(role)


# --- The policies that the documentation gives to callers ----------------------


ACCESS = (template.ROOT / "docs" / "how-to" / "access.md").read_text(encoding="utf-8")
POLICIES: dict[str, list[dict[str, Any]]] = {
    section: json.loads(policy)["Statement"]
    for section, policy in re.findall(r"^## ([\w ]+)$.*?^```json$(.*?)^```$", ACCESS, re.MULTILINE | re.DOTALL)
}
ACCOUNT_OF_DOCS = "eu-west-1:123456789012"
DOCUMENTED = {
    f"arn:aws:dynamodb:{ACCOUNT_OF_DOCS}:table/tasks": "TasksTable",
    f"arn:aws:dynamodb:{ACCOUNT_OF_DOCS}:table/tasks/index/taskDateTime-index": "TasksTable/index/taskDateTime-index",
    f"arn:aws:dynamodb:{ACCOUNT_OF_DOCS}:table/tasks/index/schedules-index": "TasksTable/index/schedules-index",
    f"arn:aws:dynamodb:{ACCOUNT_OF_DOCS}:table/tasks/index/subject-index": "TasksTable/index/subject-index",
    f"arn:aws:dynamodb:{ACCOUNT_OF_DOCS}:table/tasks/index/lists-index": "TasksTable/index/lists-index",
    f"arn:aws:lambda:{ACCOUNT_OF_DOCS}:function:{STACK}-{PROCESSOR}-*": PROCESSOR,
    f"arn:aws:sqs:{ACCOUNT_OF_DOCS}:{STACK}-DeadLetterQueue-*": "DeadLetterQueue",
    f"arn:aws:cloudformation:{ACCOUNT_OF_DOCS}:stack/{STACK}/*": "stack",
    "*": "account",
}
CHANGES = "_dynatick#change#"
PACKS = "_dynatick#pack#"
OWN_ROW = re.compile(r"_dynatick#[^\"\\]+")
WRITES = {f"dynamodb:{name}" for name in ("DeleteItem", "PartiQLInsert", "PartiQLUpdate", "PutItem", "UpdateItem")}


def kind_of(own_row: str) -> str:
    """The id of an own row, of a change and of a pack only its beginning."""
    return next((kind for kind in (CHANGES, PACKS) if own_row.startswith(kind)), own_row)


def documented(section: str) -> set[Right]:
    allow = [statement for statement in POLICIES[section] if statement["Effect"] == "Allow"]
    return set(rights_in(allow, DOCUMENTED.__getitem__))


def allows(section: str, action: str, resource: str, key: str = "a-task") -> bool:
    """Returns whether IAM would allow a call on the row ``key``: a statement allows it, and none denies it."""
    is_allowed = False
    for statement in POLICIES[section]:
        resources = {DOCUMENTED[name] for name in as_list(statement["Resource"])}
        if action not in as_list(statement["Action"]) or resource not in resources:
            continue
        if statement["Effect"] == "Allow":
            is_allowed = True
            continue
        (patterns,) = statement["Condition"].values()
        if any(fnmatchcase(key, pattern) for pattern in patterns["dynamodb:LeadingKeys"]):
            return False
    return is_allowed


def shell(commands: str, code: int = 0) -> None:
    """Runs commands, one a line, which all end with ``code``."""
    for command in commands.strip().splitlines():
        assert cli.run(shlex.split(command)) == code, command


def inserts_everything(client: TaskClient, due: datetime, folder: Path) -> None:
    tasks = (f'{{"taskId": "many-{n}", "dueAt": "{iso(due)}"}}\n' for n in range(30))
    (folder / "tasks.ndjson").write_text("".join(tasks), "utf-8")
    (folder / "crontab").write_text("0 9 * * 1-5 report\n", "utf-8")
    shell(f"""
        task add one --at {iso(due)} --action log
        task add untimed --action log
        task import {folder}/tasks.ndjson
        schedule add nightly 'cron(0 * * * ? *)' --action log
        schedule add hourly 'rate(1 hour)' --action log
        schedule import --from crontab --action log {folder}/crontab""")


def inserts_batches(client: TaskClient, due: datetime, folder: Path) -> None:
    due -= timedelta(hours=3)
    for _ in range(2):  # the second call goes on where the first one was
        client.batches.insert([{"n": 1}, {"n": 2}], batch_id="of-documented", action="log", due_at=due)
    for n, if_exists in enumerate(("refuse", "replace", "postpone")):
        client.insert("again", due_at=due + timedelta(minutes=n), action="log", if_exists=if_exists)


def reads_everything(client: TaskClient, due: datetime, folder: Path) -> None:
    bucket = str(Bucket(minute_of(due)))
    assert len(client.history(bucket, attempts=True).entries) == 31
    assert {"hourly", "nightly"} < {one.schedule_id for one in client.schedules.list().schedules}
    assert client.batches.list().batches == ()
    client.operations.health()
    client.operations.status()
    shell(f"""
        settings
        task get one
        task explain one
        task list --bucket {bucket} --attempts
        task list --subject customer:none
        task export {folder}/out.ndjson --bucket {bucket}
        bucket show {bucket}
        bucket list --from -1h --to +1h
        tick list
        schedule list
        schedule get nightly
        schedule preview nightly
        schedule history nightly
        schedule export {folder}/schedules.ndjson""")


def operates(client: TaskClient, due: datetime, folder: Path) -> None:
    bucket, earlier = (str(Bucket(minute_of(due - timedelta(hours=hours)))) for hours in (0, 1))
    queue = os.environ["DYNATICK_DEAD_LETTER_QUEUE_URL"]
    assert len(list(client.reschedule_many(bucket, shift=timedelta(hours=-1), prefix="many-"))) == 30
    shell(f"""
        task reschedule one --at {iso(due + timedelta(hours=1))}
        task update one --payload '{{"n": 1}}'
        task cancel one
        task restore one
        task run one
        task delete untimed
        task cancel --bucket {earlier} --prefix many- --yes
        task run --bucket {earlier} --prefix many- --status cancelled --yes
        schedule update nightly --payload '{{"n": 1}}'
        schedule pause nightly
        schedule resume nightly
        schedule run nightly
        schedule backfill nightly --from -3h --to -1m
        schedule delete nightly
        pause --reason 'a test'
        resume
        pause --action log
        resume --action log
        deadletter list --queue-url {queue}
        deadletter redrive --queue-url {queue}
        deadletter purge --queue-url {queue}""")
    client.operations.doctor()
    assert client.operations.doctor(repair=True).repaired >= 1  # the row that no stream record has shown
    # Of a stack that is not there, it says only that; 7: the last tick is long ago by now.
    assert cli.run(("doctor", "--stack", STACK, "--table", TABLE)) in (0, 7)
    shell(  # the emulator has neither this stack nor a function
        f"""
        deadletter list --stack {STACK} --table {TABLE}
        tick list --stack {STACK}
        tick run --stack {STACK}
        tick run --function processor""",
        code=4,
    )


def test_each_documented_policy_allows_what_its_use_needs_and_nothing_else(
    deployed: Deployed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DYNATICK_TABLE", TABLE)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    calls = Calls(monkeypatch)
    due = (datetime.now(UTC) + timedelta(days=1)).replace(minute=7, second=0, microsecond=0)
    uses = {
        "Insert": inserts_everything,
        "Read": reads_everything,
        "Insert batches": inserts_batches,
        "Operate": operates,
    }
    for section, does in uses.items():
        if section == "Operate":
            deployed.table.put_item(Item={"taskId": "never-shown", "createdAt": "2026-01-01T00:00:00Z"})
            deployed.queue.send_message(MessageBody="to be purged")
            deployed.table.delete_item(Key={"taskId": cursor_id(1)})  # the doctor makes it anew
        with calls.of(section):
            does(TaskClient.connect(TABLE), due, tmp_path)
    written = {section: set(map(kind_of, ids)) for section, ids in calls.own_rows_written.items() if ids}
    # The policies deny all others.
    assert written == {"Insert batches": {PACKS}, "Operate": {SETTINGS_ID, CHANGES, cursor_id(1)}}
    rights = dict(calls.rights)
    assert set(POLICIES) == set(rights) == set(uses)
    rights["Insert batches"] |= rights["Insert"]
    rights["Operate"] = set.union(*rights.values())
    for section, needed_rights in rights.items():
        assert needed_rights == documented(section), section
        for right in set.union(*rights.values()):
            assert allows(section, *right) == (right in needed_rights), (section, right)


def test_no_documented_policy_lets_a_caller_write_dynaticks_own_rows() -> None:
    for section in POLICIES:
        writes = {action for action, _ in documented(section)} & WRITES
        assert bool(writes) == (section != "Read")
        for action in WRITES:
            may_create = (section, action) == ("Operate", "dynamodb:PutItem")
            assert allows(section, action, "TasksTable", cursor_id(0)) == may_create, "one that is missing"
            for own in ("_dynatick#reconcile", "_dynatick#tick#2026-12-31#12:00#0#0"):
                assert not allows(section, action, "TasksTable", own)
            assert allows(section, action, "TasksTable", SETTINGS_ID) == (section == "Operate"), "for pause and resume"
            record = bucket_record_id(Bucket(0))
            assert allows(section, action, "TasksTable", record) == (section == "Operate"), "for what is redriven"
            change = f"{CHANGES}0123456789"
            assert allows(section, action, "TasksTable", change) == (section == "Operate"), "for changes of many tasks"
            for own in (idle_record_id(0), limits_id(0), rate_record_id("log")):
                assert section == "Operate" or not allows(section, action, "TasksTable", own)
            pack = f"{PACKS}a-batch/000000000-000000001"
            is_for_batches = section in ("Insert batches", "Operate")
            assert allows(section, action, "TasksTable", pack) == (is_for_batches and action in writes), "payloads"
            assert allows(section, action, "TasksTable") == (action in writes)
        assert allows(section, "dynamodb:GetItem", "TasksTable", SETTINGS_ID), "every client reads the settings"

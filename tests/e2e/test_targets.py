"""Every kind of target on the deployed system: a schedule's task comes due, the target gets it, the row says so."""

from __future__ import annotations

import base64
import io
import json
import zipfile
from datetime import timedelta
from typing import Any

import pytest
from standardwebhooks import Webhook as Verifier
from tests.builders import key_of
from tests.e2e.support import DeployedStack, eventually, iso, now

from dynatick import InvalidInput
from dynatick_stack.deploy import REGION

pytestmark = pytest.mark.long

ACCOUNT = "000000000000"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/target"
NOW = {"maximumRetryAttempts": 0}
KEY = "whsec_" + base64.b64encode(bytes(32)).decode()
NOWHERE = f"arn:aws:sqs:{REGION}:{ACCOUNT}:nowhere"
FUNCTION = """
import json, time, urllib.request

def handler(event, context):
    if "url" in event:
        urllib.request.urlopen(urllib.request.Request(event["url"], json.dumps(event).encode()))
    time.sleep(event.get("sleep", 0))
    return {"got": event["dynatick"]}
"""


class Targets:
    """The targets. What tasks send to queue, topic and bus comes into one queue."""

    def __init__(self, world: DeployedStack) -> None:
        self.client = world.stack.client
        self.url = self.client("sqs").create_queue(QueueName="target")["QueueUrl"]
        self.queue = f"arn:aws:sqs:{REGION}:{ACCOUNT}:target"
        sns, events, functions = (self.client(name) for name in ("sns", "events", "lambda"))
        self.topic = sns.create_topic(Name="target")["TopicArn"]
        sns.subscribe(TopicArn=self.topic, Protocol="sqs", Endpoint=self.queue)
        self.bus = events.create_event_bus(Name="target")["EventBusArn"]
        events.put_rule(Name="target", EventBusName="target", EventPattern='{"source": ["e2e"]}')
        events.put_targets(Rule="target", EventBusName="target", Targets=[{"Id": "q", "Arn": self.queue}])
        code = io.BytesIO()
        with zipfile.ZipFile(code, "w") as archive:
            archive.writestr("target.py", FUNCTION)
        self.function = functions.create_function(
            FunctionName="target", Runtime="python3.14", Role=ROLE, Handler="target.handler",
            Code={"ZipFile": code.getvalue()}, Timeout=30,
        )["FunctionArn"]  # fmt: skip
        definition = json.dumps({"StartAt": "A", "States": {"A": {"Type": "Pass", "End": True}}})
        made = self.client("stepfunctions").create_state_machine(name="target", definition=definition, roleArn=ROLE)
        self.machine = made["stateMachineArn"]

    def received(self, number: int) -> list[Any]:
        """Returns the expected number of messages; fails if they don't come."""
        found: list[Any] = []

        def all_there() -> bool:
            answer = self.client("sqs").receive_message(
                QueueUrl=self.url, MaxNumberOfMessages=10, MessageAttributeNames=["All"]
            )
            for message in answer.get("Messages", ()):
                found.append(message)
                self.client("sqs").delete_message(QueueUrl=self.url, ReceiptHandle=message["ReceiptHandle"])
            return len(found) >= number

        eventually(all_there, within=180, what=lambda: f"{len(found)} of {number} messages")
        return found


@pytest.fixture(scope="module")
def targets(world: DeployedStack) -> Targets:
    return Targets(world)


Rows = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def rows(world: DeployedStack, targets: Targets) -> Rows:
    """Rows that have ended: by kind, the one occurrence of its schedule; by id, other tasks."""
    ssm, manager = world.stack.client("ssm"), world.stack.client("secretsmanager")
    ssm.put_parameter(Name="/dynatick/signing", Value=KEY, Type="SecureString")
    manager.create_secret(Name="dynatick/shop", SecretString=json.dumps({"token": "hunter2"}))
    token = {"secret": {"secretsManager": "dynatick/shop", "key": "token"}, "prefix": "Bearer "}
    url = f"{world.receiver.url}/signed"
    signed = {"url": url, "headers": {"Authorization": token}, "signingSecret": {"ssm": "/dynatick/signing"}}
    answer = {"functionArn": targets.function, "invocationType": "RequestResponse"}
    event = {"eventBusArn": targets.bus, "source": "e2e", "detailType": "Trial ended", "detail": {"account": 7}}
    of_kinds: dict[str, dict[str, Any]] = {
        "sqs": {"queueArn": targets.queue, "message": {"hello": "é"}},
        "sns": {"topicArn": targets.topic, "subject": "A reminder", "message": "It is time"},
        "eventbridge": event,
        "lambda": answer,
        "stepfunctions": {"stateMachineArn": targets.machine, "input": {"n": 1}},
        "webhook": {**signed, "data": {"n": 1}},
    }
    others: dict[str, tuple[str, dict[str, Any]]] = {
        "queued": ("lambda", {"functionArn": targets.function, "input": {"url": f"{world.receiver.url}/function"}}),
        "slow": ("lambda", {**answer, "input": {"sleep": 6}, "timeoutSeconds": 1}),
        "nowhere": ("sqs", {"queueArn": NOWHERE, "message": "x"}),
        "malformed": ("sqs", {"queueArn": "nowhere", "message": "x"}),
    }
    at = (now() + timedelta(seconds=10)).strftime("%Y-%m-%dT%H:%M:%S")
    for kind, payload in of_kinds.items():
        world.put(f"of-{kind}", scheduleExpression=f"at({at})", action=kind, payload=payload, retryPolicy=NOW)
    for task_id, (kind, payload) in others.items():
        world.put(task_id, action=kind, payload=payload, retryPolicy=NOW, dueAt=iso(1))
    ended = world.run_to_end([*others, *(f"of-{kind}#1#{at}Z" for kind in of_kinds)], within=150)
    return {task_id.split("#")[0].removeprefix("of-"): row for task_id, row in ended.items()}


def test_each_target_gets_its_task_and_the_row_says_so(world: DeployedStack, targets: Targets, rows: Rows) -> None:
    """Each target gets the idempotency key in its own place for it."""
    keys: dict[str, str] = {}
    for message in targets.received(3):
        attributes = message.get("MessageAttributes", {})
        body = json.loads(message["Body"])
        if attributes:
            assert body == {"hello": "é"}
            assert rows["sqs"]["result"] == {"messageId": message["MessageId"]}
            keys["sqs"] = attributes["dynatickIdempotencyKey"]["StringValue"]
        elif "detail" in body:
            assert (body["detail-type"], body["detail"]["account"]) == ("Trial ended", 7)
            keys["eventbridge"] = body["detail"]["dynatick"]["idempotencyKey"]
        else:
            assert (body["Subject"], body["Message"]) == ("A reminder", "It is time")
            assert rows["sns"]["result"] == {"messageId": body["MessageId"]}
            keys["sns"] = body["MessageAttributes"]["dynatickIdempotencyKey"]["Value"]
    keys["lambda"] = rows["lambda"]["result"]["got"]["idempotencyKey"]
    (execution,) = targets.client("stepfunctions").list_executions(stateMachineArn=targets.machine)["executions"]
    assert rows["stepfunctions"]["result"]["executionArn"] == execution["executionArn"]
    described = targets.client("stepfunctions").describe_execution(executionArn=execution["executionArn"])
    assert json.loads(described["input"])["n"] == 1
    keys["stepfunctions"] = json.loads(described["input"])["dynatick"]["idempotencyKey"]
    (call,) = (call for call in world.receiver.calls if call.path == "/signed")
    keys["webhook"] = call.key
    for kind, key in keys.items():
        row = rows[kind]
        assert (row["outcome"], row["scheduleId"], key) == ("completed", f"of-{kind}", key_of(row)), row


def test_a_function_is_only_queued(world: DeployedStack, rows: Rows) -> None:
    assert rows["queued"]["result"]["requestId"]

    def came() -> list[Any]:
        return [json.loads(call.body) for call in world.receiver.calls if call.path == "/function"]

    eventually(came, within=180)
    assert [event["dynatick"]["taskId"] for event in came()] == ["queued"]


def test_a_webhook_with_secrets_is_signed_and_no_secret_is_left_anywhere(world: DeployedStack, rows: Rows) -> None:
    (call,) = (call for call in world.receiver.calls if call.path == "/signed")
    assert call.headers["authorization"] == "Bearer hunter2"
    assert Verifier(KEY).verify(call.body, call.headers) == {"n": 1}
    for place in (world.rows(), world.stack.logs(), world.letters.take()):
        texts = [str(one) for one in place]
        assert texts
        assert not [text for text in texts if "hunter2" in text or KEY in text]


def test_what_goes_wrong_is_said(world: DeployedStack, rows: Rows) -> None:
    wrong = {task_id: rows[task_id] for task_id in ("slow", "nowhere", "malformed")}
    assert {row["outcome"] for row in wrong.values()} == {"failed"}
    assert wrong["slow"]["error"] == "the target could not be reached, or did not answer (ReadTimeoutError)"
    assert str(wrong["nowhere"]["error"]).startswith("the target refused it (")
    assert str(wrong["malformed"]["error"]).startswith("payload.queueArn: String should match pattern")
    with pytest.raises(InvalidInput, match=r"payload\.queueArn"):
        world.client.insert("wrong-3", action="sqs", payload={"queueArn": "nowhere", "message": "x"})

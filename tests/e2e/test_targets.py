"""Every kind of target on the deployed system: the task comes due, the target gets it, the row says so."""

from __future__ import annotations

import base64
import io
import json
import re
import zipfile
from datetime import timedelta
from typing import Any

import pytest
from standardwebhooks import Webhook as Verifier
from tests.builders import key_of
from tests.e2e.support import DeployedStack, eventually, iso, now

from dynatick import InvalidInput
from dynatick.engine.installation_settings import read_settings
from dynatick_stack.deploy import REGION

pytestmark = pytest.mark.long

ACCOUNT = "000000000000"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/target"
NOW = {"maximumRetryAttempts": 0}
FUNCTION = """
import json, time, urllib.request

def handler(event, context):
    if "url" in event:
        urllib.request.urlopen(urllib.request.Request(event["url"], json.dumps(event).encode()))
    time.sleep(event.get("sleep", 0))
    if event.get("fail"):
        raise ValueError("hunter2")
    return {"got": event["dynatick"]}
"""


class Targets:
    """What tasks send to, and what came of it."""

    def __init__(self, world: DeployedStack) -> None:
        self.client = world.stack.client
        sqs, sns, events, functions = (self.client(name) for name in ("sqs", "sns", "events", "lambda"))
        self.urls = {
            name: sqs.create_queue(QueueName=f"target-{name}")["QueueUrl"] for name in ("sqs", "sns", "events")
        }
        arns = {name: f"arn:aws:sqs:{REGION}:{ACCOUNT}:target-{name}" for name in self.urls}
        self.queue = arns["sqs"]
        self.topic = sns.create_topic(Name="target")["TopicArn"]
        sns.subscribe(TopicArn=self.topic, Protocol="sqs", Endpoint=arns["sns"])
        self.bus = events.create_event_bus(Name="target")["EventBusArn"]
        events.put_rule(Name="target", EventBusName="target", EventPattern='{"source": ["e2e"]}')
        events.put_targets(Rule="target", EventBusName="target", Targets=[{"Id": "q", "Arn": arns["events"]}])
        code = io.BytesIO()
        with zipfile.ZipFile(code, "w") as archive:
            archive.writestr("target.py", FUNCTION)
        self.function = functions.create_function(
            FunctionName="target", Runtime="python3.13", Role=ROLE, Handler="target.handler",
            Code={"ZipFile": code.getvalue()}, Timeout=30,
        )["FunctionArn"]  # fmt: skip
        definition = json.dumps({"StartAt": "A", "States": {"A": {"Type": "Pass", "End": True}}})
        self.machine, self.machine_of_schedules = (
            self.client("stepfunctions").create_state_machine(name=name, definition=definition, roleArn=ROLE)[
                "stateMachineArn"
            ]
            for name in ("target", "target-of-schedules")
        )
        # What schedules send comes into one queue.
        self.urls["schedules"] = sqs.create_queue(QueueName="target-schedules")["QueueUrl"]
        self.queue_of_schedules = f"arn:aws:sqs:{REGION}:{ACCOUNT}:target-schedules"
        self.topic_of_schedules = sns.create_topic(Name="target-of-schedules")["TopicArn"]
        sns.subscribe(TopicArn=self.topic_of_schedules, Protocol="sqs", Endpoint=self.queue_of_schedules)
        events.put_rule(Name="schedules", EventBusName="target", EventPattern='{"source": ["e2e.schedules"]}')
        events.put_targets(
            Rule="schedules", EventBusName="target", Targets=[{"Id": "q", "Arn": self.queue_of_schedules}]
        )

    def received(self, name: str, number: int) -> list[Any]:
        """As many messages as are expected; fails if they don't come."""
        found: list[Any] = []

        def all_there() -> bool:
            answer = self.client("sqs").receive_message(
                QueueUrl=self.urls[name], MaxNumberOfMessages=10, MessageAttributeNames=["All"]
            )
            for message in answer.get("Messages", ()):
                found.append(message)
                self.client("sqs").delete_message(QueueUrl=self.urls[name], ReceiptHandle=message["ReceiptHandle"])
            return len(found) >= number

        eventually(all_there, within=30, what=lambda: f"{len(found)} of {number} messages in {name}")
        return found


@pytest.fixture(scope="module")
def targets(world: DeployedStack) -> Targets:
    return Targets(world)


SQS_IDS = [f"sqs-{n}" for n in range(25)]
KEY = "whsec_" + base64.b64encode(bytes(32)).decode()
NOWHERE = f"arn:aws:sqs:{REGION}:{ACCOUNT}:nowhere"


@pytest.fixture(scope="module")
def rows(world: DeployedStack, targets: Targets) -> dict[str, dict[str, Any]]:
    """One task of each kind, and more; they have ended."""
    ssm, manager = world.stack.client("ssm"), world.stack.client("secretsmanager")
    ssm.put_parameter(Name="/dynatick/signing", Value=KEY, Type="SecureString")
    manager.create_secret(Name="dynatick/shop", SecretString=json.dumps({"token": "hunter2"}))
    token = {"secret": {"secretsManager": "dynatick/shop", "key": "token"}, "prefix": "Bearer "}
    answer = {"functionArn": targets.function, "invocationType": "RequestResponse"}
    event = {"eventBusArn": targets.bus, "source": "e2e", "detailType": "Trial ended", "detail": {"account": 7}}
    reminder = {"topicArn": targets.topic, "subject": "A reminder", "message": "It is time"}
    signed = {
        "url": f"{world.receiver.url}/signed",
        "headers": {"Authorization": token},
        "signingSecret": {"ssm": "/dynatick/signing"},
        "data": {"n": 1},
    }
    tasks: list[tuple[str, str, dict[str, Any]]] = [
        *((task_id, "sqs", {"queueArn": targets.queue, "message": {"hello": "é"}}) for task_id in SQS_IDS),
        ("sns-1", "sns", reminder),
        ("sns-2", "sns", reminder),
        ("event-1", "eventbridge", event),
        ("event-2", "eventbridge", event),
        ("lambda-1", "lambda", {**answer, "input": {"day": 1}}),
        ("lambda-2", "lambda", {**answer, "input": {"fail": True}}),
        ("lambda-3", "lambda", {"functionArn": targets.function, "input": {"url": f"{world.receiver.url}/function"}}),
        ("lambda-4", "lambda", {**answer, "input": {"sleep": 6}, "timeoutSeconds": 1}),
        ("lambda-5", "lambda", {**answer, "input": {"sleep": 2}, "timeoutSeconds": 40}),
        ("states-1", "stepfunctions", {"stateMachineArn": targets.machine, "input": {"n": 1}}),
        ("signed-1", "webhook", signed),
        ("wrong-1", "sqs", {"queueArn": NOWHERE, "message": "x"}),
    ]
    for task_id, action, payload in tasks:
        world.client.insert(task_id, action=action, payload=payload, delay_seconds=1, retry_policy=NOW)
    world.put("wrong-2", action="sqs", payload={"queueArn": "nowhere", "message": "x"}, dueAt=iso(1))
    return world.run_to_end([*(task_id for task_id, *_ in tasks), "wrong-2"], within=150)


Rows = dict[str, dict[str, Any]]
FACTS = ("taskId", "dueAt", "attempt", "idempotencyKey", "scheduleId")


@pytest.fixture(scope="module")
def occurrences(world: DeployedStack, targets: Targets, rows: Rows) -> dict[str, dict[str, Any]]:
    """By kind: the one run of a schedule of it; it has ended. (After ``rows``, so that ticks are not made twice.)"""
    event = {"eventBusArn": targets.bus, "source": "e2e.schedules", "detailType": "Trial ended"}
    payloads: dict[str, dict[str, Any]] = {
        "sqs": {"queueArn": targets.queue_of_schedules, "message": "x"},
        "sns": {"topicArn": targets.topic_of_schedules, "message": "x"},
        "eventbridge": event,
        "lambda": {"functionArn": targets.function, "invocationType": "RequestResponse"},
        "stepfunctions": {"stateMachineArn": targets.machine_of_schedules},
        "webhook": {"url": f"{world.receiver.url}/schedules"},
    }
    at = (now() + timedelta(seconds=10)).strftime("%Y-%m-%dT%H:%M:%S")
    for action, payload in payloads.items():
        world.put(f"of-{action}", scheduleExpression=f"at({at})", action=action, payload=payload, retryPolicy=NOW)
    return {
        task_id.split("#")[0].removeprefix("of-"): row
        for task_id, row in world.run_to_end([f"of-{action}#1#{at}Z" for action in payloads], within=150).items()
    }


def test_each_kind_is_in_force(world: DeployedStack, rows: Rows) -> None:
    settings = read_settings(world.client.store)
    assert settings is not None
    assert {"sns", "sqs", "eventbridge", "lambda", "stepfunctions", "webhook", "log"} <= set(settings.actions)


def test_sqs_sends_a_bucket_of_messages(targets: Targets, rows: Rows) -> None:
    by_task = {
        message["MessageAttributes"]["dynatickTaskId"]["StringValue"]: message
        for message in targets.received("sqs", len(SQS_IDS))
    }
    assert set(by_task) == set(SQS_IDS)
    for task_id, message in by_task.items():
        row = rows[task_id]
        assert row["outcome"] == "completed", row
        assert row["result"] == {"messageId": message["MessageId"]}
        assert json.loads(message["Body"]) == {"hello": "é"}
        assert {name: value["StringValue"] for name, value in message["MessageAttributes"].items()} == {
            "dynatickTaskId": task_id,
            "dynatickIdempotencyKey": key_of(row),
            "dynatickAttempt": "1",
            "dynatickDueAt": row["dueAt"],
        }


def test_sns_publishes(targets: Targets, rows: Rows) -> None:
    said = [json.loads(message["Body"]) for message in targets.received("sns", 2)]
    by_task = {one["MessageAttributes"]["dynatickTaskId"]["Value"]: one for one in said}
    assert set(by_task) == {"sns-1", "sns-2"}
    for task_id, one in by_task.items():
        assert rows[task_id]["result"] == {"messageId": one["MessageId"]}
        assert (one["Subject"], one["Message"]) == ("A reminder", "It is time")


def test_eventbridge_puts_events(targets: Targets, rows: Rows) -> None:
    events = [json.loads(message["Body"]) for message in targets.received("events", 2)]
    assert {event["detail"]["dynatick"]["taskId"] for event in events} == {"event-1", "event-2"}
    assert {(event["detail-type"], event["detail"]["account"]) for event in events} == {("Trial ended", 7)}
    assert rows["event-1"]["result"]["eventId"] != rows["event-2"]["result"]["eventId"]


def test_lambda_is_asked_and_answers(rows: Rows) -> None:
    row, failed = rows["lambda-1"], rows["lambda-2"]
    assert row["outcome"] == "completed", row
    assert row["result"]["got"] == {
        "taskId": "lambda-1", "dueAt": row["dueAt"], "attempt": 1, "idempotencyKey": key_of(row)
    }  # fmt: skip
    assert (rows["lambda-4"]["outcome"], rows["lambda-5"]["outcome"]) == ("failed", "completed")
    assert rows["lambda-4"]["error"] == "the target could not be reached, or did not answer (ReadTimeoutError)"
    assert failed["outcome"] == "failed"
    # The emulator has a word of its own for whatever a function raises.
    assert re.fullmatch(r"the function failed \([\w.]+\); its log says why", failed["error"])


def test_lambda_is_only_queued(world: DeployedStack, rows: Rows) -> None:
    assert rows["lambda-3"]["result"]["requestId"]

    def came() -> list[Any]:
        return [json.loads(call.body) for call in world.receiver.calls if call.path == "/function"]

    eventually(came, within=30)
    assert [event["dynatick"]["taskId"] for event in came()] == ["lambda-3"]


def test_the_runs_of_schedules_tell_their_targets_the_same(
    world: DeployedStack, targets: Targets, occurrences: dict[str, dict[str, Any]]
) -> None:
    """Each target, in the place that it has for it: the task, its due time, attempt, key, and the schedule."""
    facts: dict[str, dict[str, Any]] = {}
    for message in targets.received("schedules", 3):
        attributes = message.get("MessageAttributes", {})
        if attributes:
            facts["sqs"] = {name: one["StringValue"] for name, one in attributes.items()}
        elif "MessageAttributes" in (body := json.loads(message["Body"])):
            facts["sns"] = {name: one["Value"] for name, one in body["MessageAttributes"].items()}
        else:
            facts["eventbridge"] = body["detail"]["dynatick"]
    for kind in ("sqs", "sns"):
        assert set(facts[kind]) == {f"dynatick{name[0].upper()}{name[1:]}" for name in FACTS}
        facts[kind] = {name: facts[kind][f"dynatick{name[0].upper()}{name[1:]}"] for name in FACTS}
    facts["lambda"] = occurrences["lambda"]["result"]["got"]
    arn = occurrences["stepfunctions"]["result"]["executionArn"]
    execution = targets.client("stepfunctions").describe_execution(executionArn=arn)
    facts["stepfunctions"] = json.loads(execution["input"])["dynatick"]
    (call,) = (call for call in world.receiver.calls if call.path == "/schedules")
    facts["webhook"] = {
        "taskId": call.headers["x-dynatick-task-id"],
        "dueAt": call.headers["x-dynatick-due-at"],
        "attempt": call.headers["x-dynatick-attempt"],
        "idempotencyKey": call.headers["idempotency-key"],
        "scheduleId": call.headers["x-dynatick-schedule-id"],
    }
    for kind, row in occurrences.items():
        assert row["outcome"] == "completed", row
        assert row["scheduleId"] == f"of-{kind}"
        assert {name: str(facts[kind][name]) for name in FACTS} == {
            "taskId": row["taskId"],
            "dueAt": row["dueAt"],
            "attempt": "1",
            "idempotencyKey": key_of(row),
            "scheduleId": f"of-{kind}",
        }


def test_stepfunctions_starts_an_execution(targets: Targets, rows: Rows) -> None:
    arn = rows["states-1"]["result"]["executionArn"]
    states = targets.client("stepfunctions")
    given = json.loads(states.describe_execution(executionArn=arn)["input"])
    assert (given["n"], given["dynatick"]["taskId"]) == (1, "states-1")
    listed = states.list_executions(stateMachineArn=targets.machine)["executions"]
    assert [one["executionArn"] for one in listed] == [arn]


def test_a_webhook_with_secrets_is_signed(world: DeployedStack, rows: Rows) -> None:
    assert rows["signed-1"]["outcome"] == "completed", rows["signed-1"]["error"]
    (call,) = world.receiver.of("signed-1")
    assert call.headers["authorization"] == "Bearer hunter2"
    assert Verifier(KEY).verify(call.body, call.headers) == {"n": 1}


def test_no_secret_is_left_anywhere(world: DeployedStack, rows: Rows) -> None:
    for place in (world.rows(), world.stack.logs(), world.letters.take()):
        texts = [str(one) for one in place]
        assert texts
        assert not [text for text in texts if "hunter2" in text or KEY in text]


def test_what_goes_wrong_is_said(world: DeployedStack, rows: Rows) -> None:
    assert rows["wrong-1"]["outcome"] == rows["wrong-2"]["outcome"] == "failed"
    assert str(rows["wrong-1"]["error"]).startswith("the target refused it (")
    assert str(rows["wrong-2"]["error"]).startswith("payload.queueArn: String should match pattern")
    with pytest.raises(InvalidInput, match=r"payload\.queueArn"):
        world.client.insert("wrong-3", action="sqs", payload={"queueArn": "nowhere", "message": "x"})

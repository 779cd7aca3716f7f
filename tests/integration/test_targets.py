"""The actions for AWS services, on moto: what the targets get, and the meaning of each error."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from io import BytesIO
from typing import Any

import boto3
import pytest
from botocore.response import StreamingBody
from botocore.stub import ANY, Stubber
from moto import mock_aws
from tests.unit.actions.support import ARN, NOW, PAYLOADS, a_context, a_task, run

from dynatick import CompleteLater
from dynatick.actions import build_actions
from dynatick.actions.allow_list import ActionSettings, AllowedArns
from dynatick.actions.aws import Service
from dynatick.actions.aws_lambda import LambdaFunction
from dynatick.actions.registry import Registry
from dynatick.actions.step_functions import execution_name
from dynatick.domain.completion import completion_token
from dynatick.domain.task import Task
from dynatick.errors import ActionError, PermanentError, RetryableError

REGION = "us-east-1"
REACH = ActionSettings(
    targets=(
        "arn:aws:sns:*:*:*", "arn:aws:sqs:*:*:*", "arn:aws:events:*:*:event-bus/*", "arn:aws:lambda:*:*:function:*",
        "arn:aws:states:*:*:stateMachine:*",
    )
)  # fmt: skip
TRUST = '{"Version": "2012-10-17", "Statement": []}'


@pytest.fixture(autouse=True)
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    with mock_aws(config={"lambda": {"use_docker": False}}):
        yield


@pytest.fixture
def actions() -> Registry:
    return build_actions(handlers_module=None, clock=lambda: NOW, settings=REACH)


def a_queue(name: str = "q", **attributes: str) -> tuple[Any, str]:
    queue = boto3.resource("sqs").create_queue(QueueName=name, Attributes=attributes)
    return queue, queue.attributes["QueueArn"]


def received(queue: Any) -> list[Any]:
    found: list[Any] = []
    while more := queue.receive_messages(
        MaxNumberOfMessages=10, MessageAttributeNames=["All"], AttributeNames=["All"], WaitTimeSeconds=0
    ):
        found += more
        for message in more:
            message.delete()
    return found


REPORTED: dict[str, Any] = {"task_id": "größe 1", "attempt": 2, "run": 3, "schedule_id": "nightly"}
FACTS = {
    "taskId": "größe 1", "dueAt": "2026-12-31T11:59:30Z", "attempt": 2, "idempotencyKey": "größe 1#3",
    "scheduleId": "nightly",
}  # fmt: skip
OURS = {
    "dynatickTaskId": "gr%C3%B6%C3%9Fe%201", "dynatickDueAt": "2026-12-31T11:59:30Z", "dynatickAttempt": "2",
    "dynatickIdempotencyKey": "gr%C3%B6%C3%9Fe%201#3", "dynatickScheduleId": "nightly",
}  # fmt: skip


# --- SQS ----------------------------------------------------------------------


def test_sqs(actions: Registry) -> None:
    queue, arn = a_queue()
    payload = {"queueArn": arn, "message": {"n": 1}, "messageAttributes": {"kind": "é", "weight": 1.5}}
    result = run(actions, "sqs", payload, **REPORTED)
    (message,) = received(queue)
    assert result == {"messageId": message.message_id}
    assert json.loads(message.body) == {"n": 1}
    attributes = {name: value["StringValue"] for name, value in message.message_attributes.items()}
    assert attributes == {**OURS, "kind": "é", "weight": "1.5"}
    assert message.message_attributes["dynatickAttempt"]["DataType"] == "Number"

    run(actions, "sqs", {"queueArn": arn, "message": '"é'})
    assert [message.body for message in received(queue)] == ['"é'], "a text is sent unchanged"


def test_sqs_fifo_drops_a_repeat_but_not_another_task_of_the_same_id(actions: Registry) -> None:
    queue, arn = a_queue("q.fifo", FifoQueue="true")
    for attempt in (1, 2):
        run(actions, "sqs", {"queueArn": arn, "message": {"n": 1}}, attempt=attempt)
    run(actions, "sqs", {"queueArn": arn, "message": {"n": 2}}, run=2)
    run(actions, "sqs", {"queueArn": arn, "message": {"n": 3}}, created_at=NOW)
    run(actions, "sqs", {"queueArn": arn, "message": {"n": 4}, "messageGroupId": "g"}, task_id="other")
    messages = received(queue)
    assert sorted(json.loads(message.body)["n"] for message in messages) == [1, 2, 3, 4]
    assert len({message.attributes["MessageGroupId"] for message in messages}) == 2


# --- SNS ----------------------------------------------------------------------


def test_sns(actions: Registry) -> None:
    queue, queue_arn = a_queue()
    topic = boto3.resource("sns").create_topic(Name="reminders")
    topic.subscribe(Protocol="sqs", Endpoint=queue_arn)
    payload = {"topicArn": topic.arn, "message": "It is time", "subject": "A reminder", "messageAttributes": {"a": "b"}}
    result = run(actions, "sns", payload, **REPORTED)
    (message,) = received(queue)
    body = json.loads(message.body)
    assert (body["MessageId"], body["Subject"], body["Message"]) == (result["messageId"], "A reminder", "It is time")
    assert {name: value["Value"] for name, value in body["MessageAttributes"].items()} == {**OURS, "a": "b"}


# --- EventBridge --------------------------------------------------------------


def test_eventbridge(actions: Registry) -> None:
    queue, queue_arn = a_queue()
    events = boto3.client("events")
    bus = events.create_event_bus(Name="orders")["EventBusArn"]
    events.put_rule(Name="all", EventBusName="orders", EventPattern='{"source": ["shop"]}')
    events.put_targets(Rule="all", EventBusName="orders", Targets=[{"Id": "q", "Arn": queue_arn}])
    payload = {"eventBusArn": bus, "source": "shop", "detailType": "Trial ended", "detail": {"account": 7}}
    result = run(actions, "eventbridge", {**payload, "resources": ["arn:x"]}, **REPORTED)
    assert re.fullmatch(r"[0-9a-f-]{36}", result["eventId"])
    (message,) = received(queue)
    event = json.loads(message.body)
    assert event["detail"] == {"account": 7, "dynatick": FACTS}
    assert (event["source"], event["detail-type"], event["resources"]) == ("shop", "Trial ended", ["arn:x"])


# --- Lambda -------------------------------------------------------------------


FUNCTION = ARN.format("lambda", "function:report")
WAIT = {"invocationType": "RequestResponse"}


class Invoked:
    """Stands in for Lambda's answers, checked by the SDK's own model of them."""

    def __init__(self, kind: str, payload: bytes = b"", *, code: str | None = None, **more: str) -> None:
        self.client = boto3.client("lambda")
        self.asked: list[dict[str, Any]] = []
        self.sent: list[dict[str, Any]] = []
        stub = Stubber(self.client)
        answer: dict[str, Any] = {
            "StatusCode": 200, "Payload": StreamingBody(BytesIO(payload), len(payload)),
            "ResponseMetadata": {"RequestId": "request-1"}, **more,
        }  # fmt: skip
        if code is None:
            stub.add_response("invoke", answer, {"FunctionName": FUNCTION, "InvocationType": kind, "Payload": ANY})
        else:
            stub.add_client_error("invoke", code, "hunter2")
        stub.activate()
        self.client.meta.events.register("provide-client-params.lambda.Invoke", self._note)

    def _note(self, params: dict[str, Any], **_: object) -> None:
        self.sent.append(json.loads(params["Payload"]))

    def __call__(self, service: str, **asked: Any) -> Any:
        self.asked.append({"service": service, **asked})
        return self.client


def invoke(clients: Invoked, payload: dict[str, Any], *, left: float = 100, **values: Any) -> Any:
    allowed = AllowedArns("AllowedTargetArns", [FUNCTION])
    task = a_task({"functionArn": FUNCTION, **payload}, action="lambda", **values)
    function = LambdaFunction(Service(name="lambda", allowed=allowed, clients=clients, clock=lambda: NOW))
    return function.run(task, a_context(task, deadline=NOW + timedelta(seconds=left)))


def test_lambda_queues() -> None:
    clients = Invoked("Event")
    assert invoke(clients, {"input": {"day": 1}}, **REPORTED) == {"requestId": "request-1"}
    assert clients.sent == [{"day": 1, "dynatick": FACTS}]
    assert clients.asked == [{"service": "lambda", "region": "eu-west-1", "seconds": 10, "tries": 1, "exact": True}]
    with pytest.raises(RetryableError, match="no time was left"):
        invoke(clients, {}, left=2)


@pytest.mark.parametrize(("answer", "result"), [(b'{"rows": 7}', {"rows": 7}), (b"null", None), (b"\xff", None)])
def test_lambda_answers(answer: bytes, result: object) -> None:
    assert invoke(Invoked("RequestResponse", answer), WAIT) == result


@pytest.mark.parametrize(
    ("wanted", "left", "asked"),
    [
        (60, 100, {"seconds": 60, "exact": True}),
        (5, 100, {"seconds": 5, "exact": True}),
        (60, 20, {"seconds": 15}),  # and time to record the result
    ],
)
def test_lambda_is_awaited_while_there_is_time(wanted: int, left: int, asked: dict[str, Any]) -> None:
    clients = Invoked("RequestResponse", b"1")
    invoke(clients, {**WAIT, "timeoutSeconds": wanted}, left=left)
    assert clients.asked == [{"service": "lambda", "region": "eu-west-1", "tries": 1, **asked}]


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (b'{"errorMessage": "hunter2", "errorType": "ValueError"}', " (ValueError)"),
        (b'{"errorType": "x hunter2"}', ""),
        (b"[]", ""),
    ],
)
def test_a_failed_function_is_retryable(answer: bytes, kind: str) -> None:
    with pytest.raises(RetryableError) as caught:
        invoke(Invoked("RequestResponse", answer, FunctionError="Unhandled"), WAIT)
    assert str(caught.value) == f"the function failed{kind}; its log says why"


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("ResourceNotFoundException", PermanentError),
        ("RequestTooLargeException", PermanentError),
        ("TooManyRequestsException", RetryableError),
        ("ServiceException", RetryableError),
        ("AccessDeniedException", RetryableError),
    ],
)
def test_errors_of_lambda_are_permanent_or_retryable(code: str, kind: type[ActionError]) -> None:
    with pytest.raises(kind, match=rf"^the target refused it \({code}\)$"):
        invoke(Invoked("Event", code=code), {})


# --- Step Functions -----------------------------------------------------------


def a_machine() -> str:
    role = boto3.client("iam").create_role(RoleName="r", AssumeRolePolicyDocument=TRUST)["Role"]["Arn"]
    definition = '{"StartAt": "A", "States": {"A": {"Type": "Succeed"}}}'
    machine = boto3.client("stepfunctions").create_state_machine(name="m", definition=definition, roleArn=role)
    return str(machine["stateMachineArn"])


def test_stepfunctions_starts_a_repeated_task_once(actions: Registry) -> None:
    machine, states = a_machine(), boto3.client("stepfunctions")
    payload = {"stateMachineArn": machine, "input": {"account": 7}}
    first = run(actions, "stepfunctions", payload, **REPORTED)
    execution = states.describe_execution(executionArn=first["executionArn"])
    assert json.loads(execution["input"]) == {"account": 7, "dynatick": FACTS}
    assert re.fullmatch(r"gr-e-1-[0-9a-f]{32}", execution["name"])
    assert run(actions, "stepfunctions", payload, **REPORTED | {"attempt": 3}) == {**first, "repeated": True}
    assert run(actions, "stepfunctions", payload, **REPORTED | {"run": 4})["executionArn"] != first["executionArn"]
    assert len(states.list_executions(stateMachineArn=machine)["executions"]) == 2


def test_an_execution_that_completes_its_task_has_the_token_of_each_attempt(actions: Registry) -> None:
    machine, states = a_machine(), boto3.client("stepfunctions")
    payload = {"stateMachineArn": machine, "completeWithinSeconds": 3600, "heartbeatSeconds": 60}
    later = CompleteLater(timedelta(hours=1), timedelta(minutes=1))
    for attempt in (1, 1, 2):  # a start that is sent again is answered with "exists already"
        assert (
            run(actions, "stepfunctions", payload, **REPORTED | {"attempt": attempt, "lease": f"l{attempt}"}) == later
        )
    found = [
        json.loads(states.describe_execution(executionArn=one["executionArn"])["input"])["dynatick"]
        for one in states.list_executions(stateMachineArn=machine)["executions"]
    ]
    tokens = {one["attempt"]: one["completionToken"] for one in found}
    assert len(found) == 2
    assert tokens == {n: completion_token(f"l{n}", REPORTED["task_id"]) for n in (1, 2)}


@pytest.mark.parametrize(
    "wrong",
    [{"heartbeatSeconds": 60}, {"completeWithinSeconds": 60, "heartbeatSeconds": 61}, {"completeWithinSeconds": 0}],
)
def test_a_time_to_complete_that_is_none_is_refused(actions: Registry, wrong: dict[str, int]) -> None:
    name = "heartbeatSeconds" if "heartbeatSeconds" in wrong else "completeWithinSeconds"
    with pytest.raises(PermanentError, match=rf"^payload\.{name}: "):
        run(actions, "stepfunctions", {"stateMachineArn": a_machine(), **wrong})


@pytest.mark.parametrize("task_id", ["a", "x" * 1024, "🕛" * 256, "a/b c", "----"])
def test_the_name_of_an_execution_is_valid_and_that_of_an_id_used_again_is_another(task_id: str) -> None:
    def name(**values: Any) -> str:
        task: Task = a_task(task_id=task_id, **values)
        return execution_name(task, a_context(task))

    first, second = (datetime(2026, 12, day, tzinfo=UTC) for day in (1, 8))
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,80}", name())
    assert name(created_at=first) == name(created_at=first, attempt=2) != name(created_at=second)


# --- What is refused ----------------------------------------------------------


AWS = [name for name in PAYLOADS if name != "webhook"]


@pytest.mark.parametrize("action", ["sns", "sqs", "stepfunctions"])
def test_a_missing_target_is_permanent_and_the_sdks_message_is_not_repeated(actions: Registry, action: str) -> None:
    """The SDK's messages contain names of roles and accounts, and parts of requests."""
    message = r"^the target refused it \((NotFound|[\w.]*DoesNotExist|[\w.]*NonExistent\w*|\w*NotF\w*)\)$"
    with pytest.raises(PermanentError, match=message) as caught:
        run(actions, action, PAYLOADS[action])
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("action", AWS)
def test_a_target_that_is_not_allowed_gets_no_call(action: str) -> None:
    (field, arn), *_ = PAYLOADS[action].items()
    reach = ActionSettings(targets=(f"{arn}-of-another",))

    def clients(*_: object, **__: object) -> Any:
        raise AssertionError("no client is needed to refuse")

    actions = build_actions(handlers_module=None, clock=lambda: NOW, settings=reach, clients=clients)
    with pytest.raises(PermanentError, match=rf"^payload\.{field}: '{arn}' is not among AllowedTargetArns$"):
        run(actions, action, PAYLOADS[action])


FIFO = {"queueArn": ARN.format("sqs", "orders.fifo")}


@pytest.mark.parametrize(
    ("action", "payload", "message"),
    [
        ("sns", {"topicArn": "reminders"}, "payload.topicArn: String should match pattern"),
        ("sns", {"message": ...}, "payload.message: it is missing"),
        ("sns", {"subject": "a\nb"}, "payload.subject: String should"),
        ("sns", {"message": "x" * 262_144}, "payload.message: it is 262"),
        ("sns", {"message": "\ud800"}, "payload.message: expected text that UTF-8"),
        ("sqs", {"message": ""}, "payload.message: a message can't be empty"),
        ("sqs", {"queueArn": "http://169.254.169.254/q"}, "payload.queueArn: String should match"),
        ("sqs", {"delaySeconds": 901}, "payload.delaySeconds: Input"),
        ("sqs", {"delaySeconds": True}, "payload.delaySeconds: Input"),
        ("sqs", {**FIFO, "delaySeconds": 1}, "payload.delaySeconds: a"),
        ("sqs", {"messageAttributes": {"dynatickTaskId": "x"}},
         "payload.messageAttributes: 'dynatickTaskId' is not the name of an attribute"),
        ("sqs", {"messageAttributes": {"AWS.x": "x"}}, "payload.messageAttributes: 'AWS.x' is not the name"),
        ("sqs", {"messageAttributes": {"a": ""}}, "payload.messageAttributes: the value of 'a' is not accepted"),
        ("sqs", {"messageAttributes": dict.fromkeys("abcdef", "x")},
         "payload.messageAttributes: expected a map of at most 5"),
        ("eventbridge", {"source": "aws.ec2"}, "payload.source: sources that"),
        ("eventbridge", {"detail": [1]}, "payload.detail: Input should be"),
        ("eventbridge", {"detail": {"a": "x" * 262_130}}, "payload.detail: the"),
        ("eventbridge", {"detail": {"a": "x" * 262_144}}, "payload.detail: it"),
        ("lambda", {"invocationType": "DryRun"}, "payload.invocationType: Input should be"),
        ("lambda", {"input": "x"}, "payload.input: Input should be"),
        ("lambda", {"functionArn": "report"}, "payload.functionArn: String should match"),
        ("stepfunctions", {"stateMachineArn": FUNCTION}, "payload.stateMachineArn: String should match"),
        ("stepfunctions", {"input": {"a": "x" * 262_130}}, "payload.input: it is 262234 bytes with `dynatick`"),
    ],
)  # fmt: skip
def test_a_payload_that_is_refused(actions: Registry, action: str, payload: dict[str, Any], message: str) -> None:
    whole = {name: value for name, value in (PAYLOADS[action] | payload).items() if value is not ...}
    with pytest.raises(PermanentError) as caught:
        run(actions, action, whole)
    assert str(caught.value).startswith(message)

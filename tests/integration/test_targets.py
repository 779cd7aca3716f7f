"""The actions for AWS services, on moto: what the targets get, and the meaning of each error."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from io import BytesIO
from typing import Any

import boto3
import pytest
from botocore.response import StreamingBody
from botocore.stub import ANY, Stubber
from moto import mock_aws
from tests.unit.actions.support import NOW, a_context, a_task

from dynatick.actions import build_actions
from dynatick.actions.allow_list import ActionSettings, AllowedArns
from dynatick.actions.aws import Service
from dynatick.actions.aws_lambda import LambdaFunction
from dynatick.actions.registry import Registry
from dynatick.actions.step_functions import execution_name
from dynatick.domain.task import Task
from dynatick.errors import ActionError, PermanentError, RetryableError

ACCOUNT, REGION = "123456789012", "us-east-1"
REACH = ActionSettings(
    topics=("arn:aws:sns:*:*:*",),
    queues=("arn:aws:sqs:*:*:*",),
    event_buses=("arn:aws:events:*:*:event-bus/*",),
    functions=("arn:aws:lambda:*:*:function:*",),
    state_machines=("arn:aws:states:*:*:stateMachine:*",),
)
TRUST = '{"Version": "2012-10-17", "Statement": []}'


@pytest.fixture(autouse=True)
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    with mock_aws(config={"lambda": {"use_docker": False}}):
        yield


@pytest.fixture
def actions() -> Registry:
    return build_actions(handlers_module=None, clock=lambda: NOW, settings=REACH)


def run(actions: Registry, action: str, payload: dict[str, Any], **values: Any) -> Any:
    task = a_task(payload, action=action, **values)
    return actions.run(task, a_context(task))


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


OURS = {
    "dynatickTaskId": "größe%201".replace("ö", "%C3%B6").replace("ß", "%C3%9F"),
    "dynatickDueAt": "2026-12-31T11:59:30Z",
    "dynatickAttempt": "2",
    "dynatickIdempotencyKey": "gr%C3%B6%C3%9Fe%201#3",
    "dynatickScheduleId": "nightly",
}
FACTS = {
    "taskId": "größe 1",
    "dueAt": "2026-12-31T11:59:30Z",
    "attempt": 2,
    "idempotencyKey": "größe 1#3",
    "scheduleId": "nightly",
}
REPORTED: dict[str, Any] = {"task_id": "größe 1", "attempt": 2, "run": 3, "schedule_id": "nightly"}


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


def test_sqs_sends_text_unchanged(actions: Registry) -> None:
    queue, arn = a_queue()
    run(actions, "sqs", {"queueArn": arn, "message": '"é'})
    assert [message.body for message in received(queue)] == ['"é']


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


def test_many_at_a_time_share_calls_and_lose_none(actions: Registry) -> None:
    queue, arn = a_queue()
    with ThreadPoolExecutor(16) as threads:
        results = list(
            threads.map(
                lambda n: run(actions, "sqs", {"queueArn": arn, "message": {"n": n}}, task_id=f"t{n}"), range(200)
            )
        )
    messages = received(queue)
    assert {message.message_id: json.loads(message.body)["n"] for message in messages} == {
        result["messageId"]: n for n, result in enumerate(results)
    }


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


class Invoked:
    """Stands in for Lambda's answers, checked by the SDK's own model of them."""

    def __init__(self, *, arn: str, kind: str, payload: bytes = b"", error: str | None = None,
                 code: str | None = None) -> None:  # fmt: skip
        self.client = boto3.client("lambda")
        stub = Stubber(self.client)
        answer: dict[str, Any] = {"StatusCode": 200, "Payload": StreamingBody(BytesIO(payload), len(payload))}
        answer["ResponseMetadata"] = {"RequestId": "request-1"}
        if error is not None:
            answer["FunctionError"] = error
        if code is None:
            stub.add_response("invoke", answer, {"FunctionName": arn, "InvocationType": kind, "Payload": ANY})
        else:
            stub.add_client_error("invoke", code, "hunter2")
        stub.activate()
        self.asked: list[dict[str, Any]] = []
        self.sent: list[dict[str, Any]] = []
        self.client.meta.events.register("provide-client-params.lambda.Invoke", self._note)

    def _note(self, params: dict[str, Any], **_: object) -> None:
        self.sent.append(json.loads(params["Payload"]))

    def __call__(self, service: str, **asked: Any) -> Any:
        self.asked.append({"service": service, **asked})
        return self.client


FUNCTION = f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:report"


def invoke(clients: Invoked, payload: dict[str, Any], *, left: float = 100, **values: Any) -> Any:
    service = Service(
        name="lambda", allowed=AllowedArns("AllowedFunctionArns", [FUNCTION]), clients=clients, clock=lambda: NOW
    )
    task = a_task({"functionArn": FUNCTION, **payload}, action="lambda", **values)
    context = a_context(task, deadline=NOW + timedelta(seconds=left))
    return LambdaFunction(service).run(task, context)


def test_lambda_queues(actions: Registry) -> None:
    clients = Invoked(arn=FUNCTION, kind="Event")
    assert invoke(clients, {"input": {"day": 1}}, **REPORTED) == {"requestId": "request-1"}
    assert clients.sent == [{"day": 1, "dynatick": FACTS}]
    assert clients.asked == [{"service": "lambda", "region": REGION, "seconds": 10, "tries": 1, "exact": True}]


@pytest.mark.parametrize(("answer", "result"), [(b'{"rows": 7}', {"rows": 7}), (b"null", None), (b"\xff", None)])
def test_lambda_answers(answer: bytes, result: object) -> None:
    clients = Invoked(arn=FUNCTION, kind="RequestResponse", payload=answer)
    assert invoke(clients, {"invocationType": "RequestResponse"}) == result


def test_lambda_is_awaited_while_there_is_time() -> None:
    for wanted, left, asked in (
        (60, 100, {"seconds": 60, "exact": True}),
        (5, 100, {"seconds": 5, "exact": True}),
        (60, 20, {"seconds": 15}),  # and time to record the result
    ):
        clients = Invoked(arn=FUNCTION, kind="RequestResponse", payload=b"1")
        invoke(clients, {"invocationType": "RequestResponse", "timeoutSeconds": wanted}, left=left)
        assert clients.asked == [{"service": "lambda", "region": REGION, "tries": 1, **asked}]
    with pytest.raises(RetryableError, match="no time was left"):
        invoke(clients, {}, left=2)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (
            b'{"errorMessage": "hunter2", "errorType": "ValueError"}',
            "the function failed (ValueError); its log says why",
        ),
        (b'{"errorType": "x hunter2"}', "the function failed; its log says why"),
        (b"[]", "the function failed; its log says why"),
    ],
)
def test_a_failed_function_is_retryable(answer: bytes, message: str) -> None:
    clients = Invoked(arn=FUNCTION, kind="RequestResponse", payload=answer, error="Unhandled")
    with pytest.raises(RetryableError) as caught:
        invoke(clients, {"invocationType": "RequestResponse"})
    assert str(caught.value) == message


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
    clients = Invoked(arn=FUNCTION, kind="Event", code=code)
    with pytest.raises(kind, match=rf"^the target refused it \({code}\)$"):
        invoke(clients, {})


# --- Step Functions -----------------------------------------------------------


def a_machine() -> str:
    role = boto3.client("iam").create_role(RoleName="r", AssumeRolePolicyDocument=TRUST)["Role"]["Arn"]
    definition = '{"StartAt": "A", "States": {"A": {"Type": "Succeed"}}}'
    machine = boto3.client("stepfunctions").create_state_machine(name="m", definition=definition, roleArn=role)
    return str(machine["stateMachineArn"])


def test_stepfunctions(actions: Registry) -> None:
    machine = a_machine()
    result = run(actions, "stepfunctions", {"stateMachineArn": machine, "input": {"account": 7}}, **REPORTED)
    states = boto3.client("stepfunctions")
    execution = states.describe_execution(executionArn=result["executionArn"])
    assert json.loads(execution["input"]) == {"account": 7, "dynatick": FACTS}
    assert re.fullmatch(r"gr-e-1-[0-9a-f]{32}", execution["name"])


def test_stepfunctions_starts_a_repeated_task_once(actions: Registry) -> None:
    machine = a_machine()
    results = [run(actions, "stepfunctions", {"stateMachineArn": machine}, attempt=attempt) for attempt in (1, 2)]
    assert results[1] == {"executionArn": results[0]["executionArn"], "repeated": True}
    run(actions, "stepfunctions", {"stateMachineArn": machine}, run=2)
    executions = boto3.client("stepfunctions").list_executions(stateMachineArn=machine)["executions"]
    assert len(executions) == 2


@pytest.mark.parametrize("task_id", ["a", "x" * 1024, "🕛" * 256, "a/b c", "----"])
def test_the_name_of_an_execution_is_valid(task_id: str) -> None:
    task = a_task(task_id=task_id)
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,80}", execution_name(task, a_context(task)))


def test_an_id_that_is_used_again_starts_an_execution_of_its_own() -> None:
    def name(**values: Any) -> str:
        task: Task = a_task(task_id="weekly", **values)
        return execution_name(task, a_context(task))

    first, second = (datetime(2026, 12, day, tzinfo=UTC) for day in (1, 8))
    assert name(created_at=first) == name(created_at=first, attempt=2) != name(created_at=second)


# --- What is refused ----------------------------------------------------------


ARNS = {
    "sns": ("topicArn", f"arn:aws:sns:{REGION}:{ACCOUNT}:nowhere", {"message": "x"}),
    "sqs": ("queueArn", f"arn:aws:sqs:{REGION}:{ACCOUNT}:nowhere", {"message": "x"}),
    "eventbridge": ("eventBusArn", f"arn:aws:events:{REGION}:{ACCOUNT}:event-bus/nowhere", {}),
    "lambda": ("functionArn", f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:nowhere", {}),
    "stepfunctions": ("stateMachineArn", f"arn:aws:states:{REGION}:{ACCOUNT}:stateMachine:nowhere", {}),
}


@pytest.mark.parametrize("action", ["sns", "sqs", "stepfunctions"])
def test_a_missing_target_is_permanent(actions: Registry, action: str) -> None:
    field, arn, more = ARNS[action]
    with pytest.raises(
        PermanentError, match=r"^the target refused it \((NotFound|.*DoesNotExist|.*NonExistent.*|.*NotF.*)\)$"
    ):
        run(actions, action, {field: arn, **more})


@pytest.mark.parametrize("action", ARNS)
def test_a_target_that_is_not_allowed_gets_no_call(action: str) -> None:
    field, arn, more = ARNS[action]
    other = arn.replace("nowhere", "other")
    reach = ActionSettings(
        topics=(other,), queues=(other,), event_buses=(other,), functions=(other,), state_machines=(other,)
    )

    def clients(*_: object, **__: object) -> Any:
        raise AssertionError("no client is needed to refuse")

    actions = build_actions(handlers_module=None, clock=lambda: NOW, settings=reach, clients=clients)
    with pytest.raises(PermanentError, match=rf"^payload\.{field}: '{arn}' is not among Allowed\w+Arns$"):
        run(actions, action, {field: arn, **more})


@pytest.mark.parametrize(
    ("action", "payload", "message"),
    [
        ("sns", {"topicArn": "reminders", "message": "x"}, "payload.topicArn: String should match pattern"),
        ("sns", {"topicArn": ARNS["sns"][1]}, "payload.message: Field required"),
        ("sns", {"topicArn": ARNS["sns"][1], "message": "x", "subject": "a\nb"}, "payload.subject: String should"),
        ("sns", {"topicArn": ARNS["sns"][1], "message": "x" * 262_144}, "payload.message: it is 262"),
        ("sns", {"topicArn": ARNS["sns"][1], "message": "\ud800"}, "payload.message: expected text that UTF-8"),
        ("sqs", {"queueArn": ARNS["sqs"][1], "message": ""}, "payload.message: a message can't be empty"),
        ("sqs", {"queueArn": "http://169.254.169.254/q", "message": "x"}, "payload.queueArn: String should match"),
        ("sqs", {"queueArn": ARNS["sqs"][1], "message": "x", "delaySeconds": 901}, "payload.delaySeconds: Input"),
        ("sqs", {"queueArn": ARNS["sqs"][1], "message": "x", "delaySeconds": True}, "payload.delaySeconds: Input"),
        ("sqs", {"queueArn": ARNS["sqs"][1] + ".fifo", "message": "x", "delaySeconds": 1}, "payload.delaySeconds: a"),
        ("sqs", {"queueArn": ARNS["sqs"][1], "message": "x", "messageAttributes": {"dynatickTaskId": "x"}},
         "payload.messageAttributes: 'dynatickTaskId' is not the name of an attribute"),
        ("sqs", {"queueArn": ARNS["sqs"][1], "message": "x", "messageAttributes": {"AWS.x": "x"}},
         "payload.messageAttributes: 'AWS.x' is not the name"),
        ("sqs", {"queueArn": ARNS["sqs"][1], "message": "x", "messageAttributes": {"a": ""}},
         "payload.messageAttributes: the value of 'a' is not accepted"),
        ("sqs", {"queueArn": ARNS["sqs"][1], "message": "x", "messageAttributes": dict.fromkeys("abcdef", "x")},
         "payload.messageAttributes: expected a map of at most 5"),
        ("eventbridge", {"eventBusArn": ARNS["eventbridge"][1], "source": "aws.ec2"}, "payload.source: sources that"),
        ("eventbridge", {"eventBusArn": ARNS["eventbridge"][1], "detail": [1]}, "payload.detail: Input should be"),
        ("eventbridge", {"eventBusArn": ARNS["eventbridge"][1], "detail": {"a": "x" * 262_130}}, "payload.detail: the"),
        ("eventbridge", {"eventBusArn": ARNS["eventbridge"][1], "detail": {"a": "x" * 262_144}}, "payload.detail: it"),
        ("lambda", {"functionArn": FUNCTION, "invocationType": "DryRun"}, "payload.invocationType: Input should be"),
        ("lambda", {"functionArn": FUNCTION, "input": "x"}, "payload.input: Input should be"),
        ("lambda", {"functionArn": "report"}, "payload.functionArn: String should match"),
        ("stepfunctions", {"stateMachineArn": FUNCTION}, "payload.stateMachineArn: String should match"),
        ("stepfunctions", {"stateMachineArn": ARNS["stepfunctions"][1], "input": {"a": "x" * 262_130}},
         "payload.input: it is 262234 bytes with `dynatick`"),
    ],
)  # fmt: skip
def test_payloads_that_are_refused(actions: Registry, action: str, payload: dict[str, Any], message: str) -> None:
    with pytest.raises(PermanentError) as caught:
        run(actions, action, payload)
    assert str(caught.value).startswith(message)


def test_the_sdks_messages_are_not_repeated(actions: Registry) -> None:
    """They contain names of roles and accounts, and parts of requests."""
    _, arn = a_queue()
    boto3.resource("sqs").get_queue_by_name(QueueName="q").delete()
    with pytest.raises(ActionError) as caught:
        run(actions, "sqs", {"queueArn": arn, "message": "hunter2"})
    assert re.fullmatch(r"the target refused it \([\w.]+\)", str(caught.value))
    assert caught.value.__cause__ is None

"""A stack that allows little: which kinds of action, which targets, which secrets, how fast; and what webhooks say."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.e2e.support import DeployedStack, bucket, deployed, eventually, instant, room
from tests.e2e.test_targets import ACCOUNT, NOW

from dynatick import InvalidInput
from dynatick.domain.buckets import Bucket, instant_of
from dynatick.engine.installation_settings import read_settings
from dynatick_stack.demo.receiver import Answer, Call
from dynatick_stack.deploy import REGION

pytestmark = pytest.mark.long

QUEUE = f"arn:aws:sqs:{REGION}:{ACCOUNT}:orders"
OTHER = f"arn:aws:sqs:{REGION}:{ACCOUNT}:salaries"
SECRETS = f"arn:aws:ssm:{REGION}:{ACCOUNT}:parameter/shop/*"
PARAMETERS = {
    "AllowedActions": "log,sqs,webhook",
    "AllowedTopicArns": "",
    "AllowedQueueArns": QUEUE,
    "AllowedEventBusArns": "",
    "AllowedFunctionArns": "",
    "AllowedStateMachineArns": f"arn:aws:states:{REGION}:{ACCOUNT}:stateMachine:onboarding",
    "AllowedSecrets": SECRETS,
    "AllowedWebhookHosts": "127.0.0.1,*.example.com",
    "ActionRateLimits": "webhook:127.0.0.1=4/s,sqs=1/m",
}
RETRY_AFTER = 130


def answers(call: Call, earlier: int) -> Answer:
    match call.path.split("/")[1]:
        case "missing":
            return 404
        case "late":
            time.sleep(3)
            return 204
        case "busy":
            return 503, {"Retry-After": str(RETRY_AFTER)}
        case _:
            return 204


@pytest.fixture(scope="module")
def little(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeployedStack]:
    with deployed(tmp_path_factory.mktemp("little") / "local", answers=answers, **PARAMETERS) as world:
        for name in ("orders", "salaries"):
            world.stack.client("sqs").create_queue(QueueName=name)
        for name in ("/shop/token", "/bank/token"):
            world.stack.client("ssm").put_parameter(Name=name, Value="hunter2", Type="SecureString")
        yield world


FAST = [f"fast-{n:02d}" for n in range(20)]
SLOW = [f"slow-{n}" for n in range(4)]


@pytest.fixture(scope="module")
def rows(little: DeployedStack) -> dict[str, dict[str, Any]]:
    """Tasks of all sorts, by ``put-item``, for what a client of ours refuses comes that way; they have ended, or had
    their first attempt."""
    url = little.receiver.url

    def webhook(**payload: Any) -> dict[str, Any]:
        return {"action": "webhook", "payload": {"url": f"{url}/", **payload}}

    def token(name: str) -> dict[str, Any]:
        return {"Authorization": {"secret": {"ssm": name}, "prefix": "Bearer "}}

    queue = {"action": "sqs", "payload": {"queueArn": QUEUE, "message": "x"}}
    tasks: dict[str, dict[str, Any]] = {
        "kind-there-is-not": {"action": "sns", "payload": {"topicArn": f"arn:aws:sns:{REGION}:{ACCOUNT}:t"}},
        "kind-left-out": {"action": "stepfunctions", "payload": {}},
        "other-queue": {"action": "sqs", "payload": {"queueArn": OTHER, "message": "x"}},
        "other-host": webhook(url=url.replace("127.0.0.1", "localhost")),
        "other-secret": webhook(headers=token("/bank/token")),
        "own-secret": webhook(headers=token("/shop/token")),
        "put": webhook(method="PUT", body="<a/>", headers={"Content-Type": "text/xml", "X-Shop": "7"}),
        "delete": webhook(method="DELETE", url=f"{url}/missing", expectedStatuses=[200, 404]),
        "get": webhook(method="GET"),
        "unexpected": webhook(expectedStatuses=[200]),
        "late": webhook(url=f"{url}/late", timeoutSeconds=1),
        "busy": webhook(url=f"{url}/busy"),
        **{task_id: webhook(data={"n": 1}) for task_id in FAST},
        **dict.fromkeys(SLOW, queue),
    }
    room(20)
    due = bucket(1)
    for task_id, attributes in tasks.items():
        more = {} if task_id == "busy" else {"retryPolicy": NOW}
        little.put(task_id, taskDateTime=due, **attributes, **more)
    waiting = {"busy", *SLOW}
    ended = little.run_to_end([task_id for task_id in tasks if task_id not in waiting], within=150)
    eventually(lambda: little.receiver.of("busy") and little.status("busy") == "scheduled", within=30)

    def left_for_later() -> list[str]:
        return [task_id for task_id in SLOW if little.the(task_id)["taskDateTime"] > due]

    # The first is sent, the second may be waited for, the others are given back.
    eventually(lambda: len(left_for_later()) >= 2, within=30, what=lambda: [little.the(one) for one in SLOW])
    return ended | {task_id: little.the(task_id) for task_id in waiting}


Rows = dict[str, dict[str, Any]]


def test_the_processor_has_rights_to_what_is_allowed_and_to_nothing_else(little: DeployedStack) -> None:
    role = little.stack.client("lambda").get_function_configuration(
        FunctionName=little.stack.outputs["ProcessorFunctionName"]
    )["Role"]
    iam = little.stack.client("iam")
    name = role.rpartition("/")[2]
    targets = {}
    for policy in iam.list_role_policies(RoleName=name)["PolicyNames"]:
        document = iam.get_role_policy(RoleName=name, PolicyName=policy)["PolicyDocument"]
        for statement in document["Statement"]:
            targets[statement.get("Sid")] = statement["Resource"]
    assert targets["SendMessages"] == [QUEUE]
    assert targets["ReadSecrets"] == [SECRETS]
    assert not {"Publish", "PutEvents", "InvokeFunctions", "UseKeys"} & set(targets)


def test_each_interface_knows_the_kinds(little: DeployedStack, rows: Rows) -> None:
    settings = read_settings(little.client.store)
    assert settings is not None
    assert tuple(settings.actions) == ("log", "sqs", "webhook")
    with pytest.raises(InvalidInput, match="'stepfunctions' is not accepted; expected one of log, sqs, webhook"):
        little.client.insert("x", action="stepfunctions", payload={})


@pytest.mark.parametrize(
    ("task_id", "error"),
    [
        ("kind-there-is-not", "there is no action 'sns'; known are log, sqs, webhook"),
        ("kind-left-out", "there is no action 'stepfunctions'; known are log, sqs, webhook"),
        ("other-queue", f"payload.queueArn: '{OTHER}' is not among AllowedQueueArns"),
        ("other-host", "payload.url: its host is not among AllowedWebhookHosts"),
        ("other-secret", "payload.headers.Authorization: the secret '/bank/token' is not among AllowedSecrets"),
        ("unexpected", "the target answered 204; expected 200"),
    ],
)
def test_what_is_not_allowed_fails_for_good_and_reaches_nobody(
    little: DeployedStack, rows: Rows, task_id: str, error: str
) -> None:
    assert (rows[task_id]["outcome"], rows[task_id]["error"]) == ("failed", error)
    assert len(little.receiver.of(task_id)) == (task_id == "unexpected")
    assert [letter["error"] for letter in little.letters_of(task_id)] == [error]


def test_an_allowed_secret_is_sent(little: DeployedStack, rows: Rows) -> None:
    (call,) = little.receiver.of("own-secret")
    assert call.headers["authorization"] == "Bearer hunter2"


def test_method_body_headers_and_expected_statuses(little: DeployedStack, rows: Rows) -> None:
    calls = {task_id: little.receiver.of(task_id)[0] for task_id in ("put", "delete", "get", "fast-00")}
    assert {task_id: (call.method, call.body) for task_id, call in calls.items()} == {
        "put": ("PUT", b"<a/>"), "delete": ("DELETE", b"{}"), "get": ("GET", b""), "fast-00": ("POST", b'{"n":1}')
    }  # fmt: skip
    assert (calls["put"].headers["content-type"], calls["put"].headers["x-shop"]) == ("text/xml", "7")
    assert {task_id: rows[task_id]["result"]["status"] for task_id in calls} == {
        "put": 204, "delete": 404, "get": 204, "fast-00": 204
    }  # fmt: skip


def test_an_answer_that_comes_too_late_is_none(rows: Rows) -> None:
    assert rows["late"]["outcome"] == "failed"
    assert "did not answer within 1.0 s" in rows["late"]["error"]


def test_retry_after_is_honoured(little: DeployedStack, rows: Rows) -> None:
    """The retry policy alone would have it tried again at the next tick."""
    row, (call,) = rows["busy"], little.receiver.of("busy")
    assert (row["attempt"], row["attempts"][0]["error"]) == (1, "the target answered 503")
    earliest = call.at + timedelta(seconds=RETRY_AFTER)
    assert earliest <= instant_of(Bucket.parse(row["taskDateTime"]).minute) < earliest + timedelta(minutes=2)


def test_a_host_is_called_no_faster_than_its_limit(little: DeployedStack, rows: Rows) -> None:
    assert {(rows[task_id]["outcome"], int(rows[task_id]["attempt"])) for task_id in FAST} == {("completed", 1)}
    # Four go at once, the others four a second. On their way they may crowd together, so that only the whole is
    # timed: from before the first was sent until the last came.
    began = min(instant(rows[task_id]["startedAt"]) for task_id in FAST)
    last = max(call.at for task_id in FAST for call in little.receiver.of(task_id))
    assert last - began >= timedelta(seconds=(len(FAST) - 4) / 4)


def test_what_would_wait_too_long_is_left_for_later_ticks_without_an_attempt(little: DeployedStack, rows: Rows) -> None:
    left = [rows[task_id] for task_id in SLOW if rows[task_id]["taskDateTime"] > rows["put"]["taskDateTime"]]
    assert {(row["status"], int(row["attempt"])) for row in left} == {("scheduled", 0)}
    assert len({row["taskDateTime"] for row in left}) == len(left) >= 2, "each has a turn of its own"

    def finished() -> list[datetime]:
        return sorted(instant(row["finishedAt"]) for row in map(little.the, SLOW) if row.get("outcome") == "completed")

    little.run_until(lambda: len(finished()) >= 2, within=150)
    first, second, *_ = finished()
    assert second - first > timedelta(seconds=50)

"""A stack that allows little: which kinds of action, which targets, which secrets, and how fast."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from tests.e2e.support import DeployedStack, bucket, deployed, instant, room
from tests.e2e.test_targets import ACCOUNT, NOW

from dynatick import InvalidInput
from dynatick.engine.settings import read_settings
from dynatick_stack.deploy import REGION

pytestmark = pytest.mark.long

QUEUE = f"arn:aws:sqs:{REGION}:{ACCOUNT}:orders"
OTHER = f"arn:aws:sqs:{REGION}:{ACCOUNT}:salaries"
PARAMETERS = {
    "AllowedActions": "log,sqs,webhook",
    "AllowedTargetArns": f"{QUEUE},arn:aws:states:{REGION}:{ACCOUNT}:stateMachine:onboarding",
    "AllowedSecrets": f"arn:aws:ssm:{REGION}:{ACCOUNT}:parameter/shop/*",
    "AllowedWebhookHosts": "127.0.0.1,*.example.com",
    "ActionRateLimits": "webhook:127.0.0.1=4/s",
}


@pytest.fixture(scope="module")
def little(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeployedStack]:
    with deployed(tmp_path_factory.mktemp("little") / "local", **PARAMETERS) as world:
        for name in ("orders", "salaries"):
            world.stack.client("sqs").create_queue(QueueName=name)
        for name in ("/shop/token", "/bank/token"):
            world.stack.client("ssm").put_parameter(Name=name, Value="hunter2", Type="SecureString")
        yield world


FAST = [f"fast-{n:02d}" for n in range(20)]


Rows = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def rows(little: DeployedStack) -> Rows:
    """Tasks of all sorts, by ``put-item``, for what a client of ours refuses comes that way; they have ended."""
    url = little.receiver.url

    def webhook(**payload: Any) -> dict[str, Any]:
        return {"action": "webhook", "payload": {"url": f"{url}/", **payload}}

    def token(name: str) -> dict[str, Any]:
        return {"Authorization": {"secret": {"ssm": name}, "prefix": "Bearer "}}

    tasks: dict[str, dict[str, Any]] = {
        "kind-there-is-not": {"action": "sns", "payload": {"topicArn": f"arn:aws:sns:{REGION}:{ACCOUNT}:t"}},
        "kind-left-out": {"action": "stepfunctions", "payload": {}},
        "other-queue": {"action": "sqs", "payload": {"queueArn": OTHER, "message": "x"}},
        "other-host": webhook(url=url.replace("127.0.0.1", "localhost")),
        "other-secret": webhook(headers=token("/bank/token")),
        "own-secret": webhook(headers=token("/shop/token")),
        "own-queue": {"action": "sqs", "payload": {"queueArn": QUEUE, "message": "x"}},
        **{task_id: webhook() for task_id in FAST},
    }
    room(20)
    due = bucket(1)
    for task_id, attributes in tasks.items():
        little.put(task_id, taskDateTime=due, retryPolicy=NOW, **attributes)
    return little.run_to_end(tasks, within=150)


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
        ("other-queue", f"payload.queueArn: '{OTHER}' is not among AllowedTargetArns"),
        ("other-host", "payload.url: its host is not among AllowedWebhookHosts"),
        ("other-secret", "payload.headers.Authorization: the secret '/bank/token' is not among AllowedSecrets"),
    ],
)
def test_what_is_not_allowed_fails_for_good_and_reaches_nobody(
    little: DeployedStack, rows: Rows, task_id: str, error: str
) -> None:
    assert (rows[task_id]["outcome"], rows[task_id]["error"]) == ("failed", error)
    assert little.receiver.of(task_id) == []
    assert [letter["error"] for letter in little.letters_of(task_id)] == [error]


def test_what_is_allowed_is_sent(little: DeployedStack, rows: Rows) -> None:
    assert rows["own-queue"]["outcome"] == rows["own-secret"]["outcome"] == "completed"
    (call,) = little.receiver.of("own-secret")
    assert call.headers["authorization"] == "Bearer hunter2"


def test_a_host_is_called_no_faster_than_its_limit(little: DeployedStack, rows: Rows) -> None:
    assert {(rows[task_id]["outcome"], int(rows[task_id]["attempt"])) for task_id in FAST} == {("completed", 1)}
    # Four go at once, the others four a second. On their way they may crowd together, so that only the whole is
    # timed: from before the first was sent until the last came.
    began = min(instant(rows[task_id]["startedAt"]) for task_id in FAST)
    last = max(call.at for task_id in FAST for call in little.receiver.of(task_id))
    assert last - began >= timedelta(seconds=(len(FAST) - 4) / 4)

"""The code in the documentation of actions is run here, block by block."""

import json
import re
import sys
from pathlib import Path
from types import ModuleType

import boto3
import pytest
from moto import mock_aws
from tests.unit.actions.support import NOW, a_context, a_task

from dynatick.actions import build_actions
from dynatick.actions.connections import Answer
from dynatick.actions.registry import Registry
from dynatick.actions.webhook import Webhook
from dynatick.domain.buckets import Grid
from dynatick.domain.normalise import Defaults, normalise
from dynatick.domain.task import Task
from dynatick.errors import PermanentError, RetryableError

HOW_TO = Path(__file__).parents[3] / "docs" / "how-to"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(name):
    """(language, text) of each fenced block."""
    return BLOCK.findall((HOW_TO / name).read_text())


def a_module(name, monkeypatch, text=""):
    module = ModuleType(name)
    monkeypatch.setitem(sys.modules, name, module)
    exec(text, module.__dict__)
    return module


def task_of(row):
    """As the scheduler makes a task of a row."""
    change = normalise(row, now=NOW, grid=Grid(), defaults=Defaults())
    assert "error" not in change.set
    return Task.from_row({**row, **change.set})


def test_handlers(monkeypatch, capsys):
    (_, first), (_, put), (_, failing), (_, testing), (_, elsewhere) = blocks("handlers.md")
    assert {language for language, _ in blocks("handlers.md")} == {"python"}
    module = a_module("handlers_of_docs", monkeypatch, first + failing + testing)
    actions = build_actions(handlers_module="handlers_of_docs", clock=lambda: NOW)
    assert actions.names() == ["log", "reserve", "send-reminder", "webhook"]

    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with mock_aws():
        table = boto3.resource("dynamodb").create_table(
            TableName="tasks",
            KeySchema=[{"AttributeName": "taskId", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "taskId", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
        exec(put, {})
        task = task_of(table.get_item(Key={"taskId": "reminder-42"})["Item"])
    assert actions.run(task, a_context(task)) == {"sent": 1}
    assert capsys.readouterr().out == "To ann@example.com: The train leaves at two.\n"

    module.test_one_is_reserved()
    run(actions, "reserve", {"item": "pen"})
    for payload, error in [
        ({"item": "pencil"}, PermanentError),
        ({"item": "pen", "count": 2}, PermanentError),
    ]:
        with pytest.raises(error):
            run(actions, "reserve", payload)
    run(actions, "reserve", {"item": "pen"})
    with pytest.raises(RetryableError, match="sold out"):
        run(actions, "reserve", {"item": "pen"})

    a_module("reminders", monkeypatch)
    by = "from dynatick import handler\n@handler('{0}')\ndef send_{0}(payload): ...\n"
    a_module("reminders.by_mail", monkeypatch, by.format("by_mail"))
    a_module("reminders.by_sms", monkeypatch, by.format("by_sms"))
    a_module("my_handlers", monkeypatch, elsewhere)
    assert build_actions(handlers_module="my_handlers", clock=lambda: NOW).names() == [
        "by_mail",
        "by_sms",
        "log",
        "webhook",
    ]


def run(actions, name, payload):
    task = a_task(payload, action=name)
    return actions.run(task, a_context(task))


def test_webhooks(monkeypatch, capsys):
    (kind, item), (language, receiver) = blocks("webhooks.md")
    assert (kind, language) == ("json", "python")
    receive = a_module("receiver_of_docs", monkeypatch, receiver).receive
    posted = []

    class Connections:
        def post(self, target, *, headers, body, timeout):
            # Names of headers are equal in any case.
            posted.append((target, headers, timeout))
            names = {name.title(): value for name, value in headers.items()}
            return Answer(receive(names, json.loads(body)), None)

    actions = Registry({"webhook": Webhook(clock=lambda: NOW, connect=Connections)})
    task = task_of(json.loads(item))
    for _ in range(2):
        assert actions.run(task, a_context(task)) == {"status": 204}
    assert capsys.readouterr().out == "Task invoice-7: invoice 7\n"  # once
    target, headers, timeout = posted[0]
    assert (target.host, target.path, timeout) == ("example.com", "/hooks/invoice", 5)
    assert headers["x-api-version"] == "2"
    documented = re.findall(r"^\| `([A-Z][\w-]+)` \|", (HOW_TO / "webhooks.md").read_text(), re.MULTILINE)
    assert {name.lower() for name in documented} == set(headers) - {"user-agent", "x-api-version"}

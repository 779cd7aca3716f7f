"""The code in the documentation of actions is run here, block by block."""

import base64
import io
import json
import re
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType, SimpleNamespace

import boto3
from moto import mock_aws
from tests.unit.actions.support import NOW, a_context, a_task, a_webhook

from dynatick.actions import build_actions
from dynatick.actions.connection import Answer
from dynatick.actions.payload import payload_schemas
from dynatick.actions.registry import Registry
from dynatick.actions.secret import Secrets
from dynatick.domain.buckets import Grid
from dynatick.domain.normalise import Defaults, normalise
from dynatick.domain.task import Task
from dynatick.testing import VirtualInstallation

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
    """The task that normalising makes of a row."""
    change = normalise(row, now=NOW, grid=Grid(), defaults=Defaults())
    assert "error" not in change.set
    return Task.from_row({**row, **change.set})


def test_handlers(monkeypatch, capsys):
    found = [code for _, code in blocks("handlers.md")]
    first, scheduling, put, shared, failing, polling, timed, testing, elsewhere = found
    assert {language for language, _ in blocks("handlers.md")} == {"python"}
    module = a_module("handlers_of_docs", monkeypatch, first + shared + failing + polling + timed + testing)
    actions = build_actions(handlers_module="handlers_of_docs", clock=lambda: NOW)
    assert actions.names() == ["log", "make-report", "reserve", "send-reminder", "wait-for-job", "webhook"]
    assert actions.timeout_seconds(a_task({}, action="make-report")) == 60
    with VirtualInstallation(module, start=NOW) as virtual:
        exec(scheduling, module.__dict__)
        assert [one.action for one in virtual.waiting] == ["send-reminder"] * 5
        assert sum(one.schedule_id is not None for one in virtual.waiting) == 1

        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        with mock_aws():
            table = boto3.resource("dynamodb").create_table(
                TableName="tasks",
                KeySchema=[{"AttributeName": "taskId", "KeyType": "HASH"}],
                AttributeDefinitions=[{"AttributeName": "taskId", "AttributeType": "S"}],
                BillingMode="PAY_PER_REQUEST",
            )
            exec(put, {})
            virtual.client.store.create(table.get_item(Key={"taskId": "reminder-42"})["Item"])
        virtual.run_due()
        assert virtual.task("reminder-42").result == {"sent": 1}
        said = capsys.readouterr().out
        assert "To ann@example.com: The train leaves at two.\nsend-reminder took 0 s\n" in said

        module.test_one_is_reserved()
        orders = [{"item": "pen"}, {"item": "pencil"}, {"item": "pen", "count": 2}, {"item": "pen"}, {"item": "pen"}]
        for order in orders:
            module.reserve.schedule(order)
            virtual.run_due()
        last = virtual.executed_of("reserve")
        assert [one.outcome for one in last] == ["completed", "failed", "failed", "completed", "retried"]
        assert [str(one.error) for one in last[1:3]] == ["KeyError: 'pencil'", "only one at a time"]
        assert virtual.task(last[-1].task_id).next_attempt_at - last[-1].at == timedelta(hours=1)

        states = [{"state": "running"}, {"state": "done", "rows": 7}, {"state": "failed", "reason": "no space"}]
        answers = (io.BytesIO(json.dumps(state).encode()) for state in states)
        monkeypatch.setattr("urllib.request.urlopen", lambda url, timeout: next(answers))
        for _ in range(2):
            module.wait_for_job.schedule({"job": "https://jobs.example/7"})
            virtual.advance(minutes=2)
        asked = virtual.executed_of("wait-for-job")
        assert [(one.turn, one.outcome, one.result) for one in asked[1:]] == [
            (1, "completed", {"rows": 7}),
            (0, "failed", None),
        ]
        assert asked[0].outcome == "rescheduled"
        assert str(asked[2].error) == "the job failed: no space"

    a_module("reminders", monkeypatch)
    by = "from dynatick import task\n@task('{0}')\ndef send_{0}(payload): ...\n"
    a_module("reminders.by_mail", monkeypatch, by.format("by_mail"))
    a_module("reminders.by_sms", monkeypatch, by.format("by_sms"))
    a_module("my_handlers", monkeypatch, elsewhere)
    assert build_actions(handlers_module="my_handlers", clock=lambda: NOW).names() == [
        "by_mail", "by_sms", "log", "webhook",
    ]  # fmt: skip


def test_webhooks(monkeypatch, capsys):
    (kind, item), (language, receiver), (_, with_secrets), (_, verifier) = blocks("webhooks.md")
    assert (kind, language) == ("json", "python")
    module = a_module("receiver_of_docs", monkeypatch, receiver + verifier)
    receive = module.receive
    posted = []

    class Connections:
        def send(self, method, target, *, headers, body, timeout):
            # Names of headers are equal in any case.
            posted.append((target, headers, timeout))
            names = {name.title(): value for name, value in headers.items()}
            return Answer(receive(names, json.loads(body)), None)

    actions = Registry({"webhook": a_webhook(connect=Connections)})
    task = task_of(json.loads(item))
    for _ in range(2):
        assert actions.run(task, a_context(task)) == {"status": 204}
    assert capsys.readouterr().out == "Task invoice-7: invoice 7\n"  # once
    target, headers, timeout = posted[0]
    assert (target.host, target.path, timeout) == ("example.com", "/hooks/invoice", 5)
    assert headers["x-api-version"] == "2"
    fields = re.findall(r"^\| `([a-z]\w+)` \|", (HOW_TO / "webhooks.md").read_text(), re.MULTILINE)
    assert set(fields) == set(payload_schemas()["webhook"]["properties"])

    key = "whsec_" + base64.b64encode(bytes(32)).decode()
    values = {"/dynatick/shop-token": "t", "/dynatick/shop-signing-key": key}

    class Aws:
        meta = SimpleNamespace(events=SimpleNamespace(register=lambda *_: None))

        def get_parameter(self, Name, WithDecryption):
            return {"Parameter": {"Value": values[Name]}}

        def get_secret_value(self, SecretId):
            return {"SecretString": json.dumps({"hookUrl": "https://shop.example/hook"})}

    sent = []

    class Keeping:
        def send(self, method, target, *, headers, body, timeout):
            sent.append((target.host, headers, body))
            return Answer(204, None)

    held = Secrets(["arn:aws:ssm:*:*:parameter/*", "arn:aws:secretsmanager:*:*:secret:*"], clients=lambda name: Aws())
    signing = a_webhook(connect=Keeping, secrets=held, clock=lambda: datetime.now(UTC))
    task = task_of({**json.loads(with_secrets), "taskId": "invoice-9"})
    signing.run(task, a_context(task))
    ((host, headers_sent, body),) = sent
    assert (host, headers_sent["authorization"]) == ("shop.example", "Bearer t")
    monkeypatch.setattr(module, "receive", lambda headers, invoice: (headers["webhook-id"], invoice))
    assert module.receive_signed(headers_sent, body, key) == (task.idempotency_key, {})

    documented = re.findall(r"^\| `([A-Z][\w-]+)` \|", (HOW_TO / "webhooks.md").read_text(), re.MULTILINE)
    assert {name.lower() for name in documented} == set(headers) - {"user-agent", "x-api-version"}

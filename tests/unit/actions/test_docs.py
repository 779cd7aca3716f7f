"""The code in the documentation of actions is run here, block by block."""

import base64
import io
import json
import re
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from smtplib import SMTPAuthenticationError
from types import SimpleNamespace

import boto3
from moto import mock_aws
from tests.unit.actions.support import NOW, SecretValues, a_context, a_module, a_task, a_webhook

from dynatick.actions import build_actions
from dynatick.actions.connection import Answer
from dynatick.actions.handlers import load_handlers
from dynatick.actions.secret import Secrets
from dynatick.domain.buckets import Grid
from dynatick.domain.normalise import Defaults, normalise
from dynatick.domain.task import Task
from dynatick.testing import VirtualInstallation
from dynatick_stack import project
from dynatick_stack.template import table_definition

HOW_TO = Path(__file__).parents[3] / "docs" / "how-to"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(name):
    """(language, text) of each fenced block."""
    return BLOCK.findall((HOW_TO / name).read_text())


def task_of(row):
    """The task that normalising makes of a row."""
    change = normalise(row, now=NOW, grid=Grid(), defaults=Defaults())
    assert "error" not in change.set
    return Task.from_row({**row, **change.set})


def in_time(task):
    return a_context(task, deadline=datetime.now(UTC) + timedelta(minutes=1))


class MailServer:
    """In the place of smtplib.SMTP."""

    def __init__(self, refusals):
        self.refusals, self.logins, self.sent = refusals, [], []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def starttls(self):
        pass

    def login(self, user, password):
        self.logins.append((user, password))
        if len(self.logins) <= self.refusals:
            raise SMTPAuthenticationError(535, b"no")

    def send_message(self, mail):
        self.sent.append(mail)


def test_the_secrets_of_the_page_are_references_that_a_project_may_have(tmp_path):
    (settings,) = (text for language, text in blocks("handlers.md") if language == "toml")
    (tmp_path / "dynatick.toml").write_text(f'[stack]\nname = "a"\n{settings}')
    assert project.read(tmp_path).secrets.keys() == {"SMTP_PASSWORD", "SHOP_TOKEN"}


def test_handlers(monkeypatch, capsys):
    found = [code for language, code in blocks("handlers.md") if language == "python"]
    first, scheduling, put, changing, shared, failing, polling, timed, testing, with_secret, elsewhere = found
    module = a_module(first + changing + shared + failing + polling + timed + testing + with_secret)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    actions = build_actions(handlers_module=module, clock=lambda: NOW)
    assert actions.names() == [
        "invite", "log", "make-report", "reserve", "send-mail", "send-reminder", "wait-for-job", "webhook",
    ]  # fmt: skip
    assert actions.timeout_seconds(a_task({}, action="make-report")) == 60
    with VirtualInstallation(module, start=NOW) as virtual:
        exec(scheduling, module.__dict__)
        assert [one.action for one in virtual.waiting] == ["send-reminder"] * 5
        assert sum(one.schedule_id is not None for one in virtual.waiting) == 1

        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        with mock_aws():
            table = boto3.resource("dynamodb").create_table(TableName="tasks", **table_definition())
            exec(put, {})
            virtual.client.store.create(table.get_item(Key={"taskId": "reminder-42"})["Item"])
        virtual.run_due()
        assert virtual.task("reminder-42").result == {"sent": 1}
        said = capsys.readouterr().out
        assert "To ann@example.com: The train leaves at two.\nsend-reminder took 0 s\n" in said

        for payload in ({"address": "ann"}, {"to": "bob", "language": "de"}):
            virtual.client.insert(f"invite-{len(payload)}", action="invite", payload=payload, due_at=NOW)
        virtual.run_due()
        assert "To ann, in en\n" in (said := capsys.readouterr().out) and "To bob, in de\n" in said

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
        assert [(one.turn, one.outcome) for one in asked] == [(0, "rescheduled"), (1, "completed"), (0, "failed")]
        assert asked[1].result == {"rows": 7}
        assert str(asked[2].error) == "the job failed: no space"
        assert {"reserve took 0 s", "wait-for-job took 0 s"} <= {*capsys.readouterr().out.splitlines()}

        # The password was changed a moment ago; in a process of the processor, fresh reads the new one.
        monkeypatch.setenv("SMTP_PASSWORD", "new")
        server = MailServer(refusals=1)
        module.SMTP = lambda host, port, timeout: server
        module.send_mail.schedule({"to": "ann@example.com", "text": "It is time."})
        virtual.run_due()
        assert [one.outcome for one in virtual.executed_of("send-mail")] == ["completed"]
        assert server.logins == [("reminders", "new")] * 2
        assert [mail["To"] for mail in server.sent] == ["ann@example.com"]

    by = "from dynatick import task\n@task('{0}')\ndef send_{0}(payload): ...\n"
    for name in ("", ".by_mail", ".by_sms"):
        monkeypatch.setitem(sys.modules, f"reminders{name}", a_module(by.format(name[1:]) if name else ""))
    assert [one.name for one in load_handlers(a_module(elsewhere))] == ["by_mail", "by_sms"]


def test_webhooks(capsys):
    (kind, item), (language, receiver), (_, with_secrets), (_, verifier) = blocks("webhooks.md")
    assert (kind, language) == ("json", "python")
    module = a_module(receiver + verifier)
    key, posted = "whsec_" + base64.b64encode(bytes(32)).decode(), []

    def send(method, target, *, headers, body, timeout):
        posted.append((target, headers, body, timeout))
        names = {name.title(): value for name, value in headers.items()}  # they are equal in any case
        data = json.loads(body)
        return Answer(module.receive(names, data) if data else 204, None)

    values = {"/dynatick/shop-token": "t", "/dynatick/shop-signing-key": key,
              "dynatick/shop": '{"hookUrl": "https://shop.example/hook"}'}  # fmt: skip
    allowed = ["arn:aws:ssm:*:*:parameter/*", "arn:aws:secretsmanager:*:*:secret:*"]
    secrets = Secrets(allowed, clients=lambda service: SecretValues(values))
    webhook = a_webhook(
        connect=lambda: SimpleNamespace(send=send), secrets=secrets, clock=lambda: datetime.now(UTC)
    )  # fmt: skip
    task = task_of(json.loads(item))
    for _ in range(2):
        assert webhook.run(task, in_time(task)) == {"status": 204}
    assert capsys.readouterr().out == "Task invoice-7: invoice 7\n"  # once
    target, headers, _, timeout = posted[0]
    assert (target.host, target.path, timeout) == ("example.com", "/hooks/invoice", 5)
    assert headers["x-api-version"] == "2"

    task = task_of({**json.loads(with_secrets), "taskId": "invoice-9"})
    webhook.run(task, in_time(task))
    target, signed, body, _ = posted[2]
    assert (target.host, signed["authorization"]) == ("shop.example", "Bearer t")
    module.receive = lambda headers, invoice: (headers["webhook-id"], invoice)
    assert module.receive_signed(signed, body, key) == (task.idempotency_key, {})

    page = (HOW_TO / "webhooks.md").read_text()
    documented = re.findall(r"^\| `([A-Z][\w-]+)` \|", page, re.MULTILINE)
    assert {name.lower() for name in documented} == set(headers) - {"user-agent", "x-api-version"}

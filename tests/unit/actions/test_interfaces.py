"""Each interface refuses, at insertion, a payload that the action can't use: it names the field and writes nothing."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.builders import InProcess
from tests.unit.api.support import event, read
from tests.unit.bulk.test_importer import Bucket, Lambda

from dynatick import InvalidInput, Refused, TaskClient, cli
from dynatick.actions import build_actions
from dynatick.actions.handlers import handler
from dynatick.actions.payload import BUILT_IN
from dynatick.api import Api
from dynatick.cli.session import Session
from dynatick.domain.normalise import Defaults
from dynatick.engine.installation_settings import publish_settings

ARN = "arn:aws:{}:eu-west-1:123456789012:{}"
RIGHT: dict[str, dict[str, Any]] = {
    "eventbridge": {"eventBusArn": ARN.format("events", "event-bus/default")},
    "lambda": {"functionArn": ARN.format("lambda", "function:report")},
    "sns": {"topicArn": ARN.format("sns", "reminders"), "message": "It is time"},
    "sqs": {"queueArn": ARN.format("sqs", "orders"), "message": {"n": 1}},
    "stepfunctions": {"stateMachineArn": ARN.format("states", "stateMachine:onboarding")},
    "webhook": {"url": "https://example.com/hook"},
    "send-reminder": {"to": "ann@example.com", "text": "It is time", "copies": "2"},
}
# What is right is decided by each action's model, and tested with it: here a missing field of each, and fields that are
# wrong, too large, unknown, or within another.
WRONG: list[tuple[str, Any, str]] = [
    *((action, None, f"payload.{next(iter(right))}") for action, right in RIGHT.items()),
    ("eventbridge", RIGHT["eventbridge"] | {"detail": {"text": "x" * 262_145}}, "payload.detail"),
    ("lambda", RIGHT["lambda"] | {"invocationType": "DryRun"}, "payload.invocationType"),
    ("sns", RIGHT["sns"] | {"message": ""}, "payload.message"),
    ("sqs", RIGHT["sqs"] | {"delaySeconds": 901}, "payload.delaySeconds"),
    ("stepfunctions", RIGHT["stepfunctions"] | {"input": [1]}, "payload.input"),
    ("webhook", RIGHT["webhook"] | {"expectedStatuses": [99]}, "payload.expectedStatuses.0"),
    ("webhook", RIGHT["webhook"] | {"retries": 1}, "payload"),
    ("send-reminder", RIGHT["send-reminder"] | {"copies": "two"}, "payload.copies"),
]
AT_EACH_INTERFACE = [one for one in WRONG if one[1] is None or one[2] in ("payload.expectedStatuses.0", "payload")]
SOON = "2026-12-31T12:30:00Z"


@dataclass
class Reminder:
    to: str
    text: str
    copies: int = 1


@handler("send-reminder")
def send_reminder(reminder: Reminder) -> None:
    """A handler, whose payload type the processor publishes."""


class Interfaces:
    """Every interface over one table. Each inserts a task or schedule ``t`` and returns the field that it was refused
    for; None if it was inserted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: Path) -> None:
        self.world = InProcess()
        self.capsys = capsys
        self.folder = folder
        handlers = build_actions(handlers_module=_module(monkeypatch), clock=self.world.clock)
        publish_settings(
            self.world.store,
            self.world.rules.grid,
            now=self.world.clock(),
            actions=(*BUILT_IN, "send-reminder"),
            defaults=Defaults(),
            payload_schemas=handlers.payload_schemas(),
        )
        self.client = TaskClient(self.world.store, clock=self.world.clock)
        self.api = Api(self.client)
        monkeypatch.setattr(Session, "client", lambda session: self.client)
        monkeypatch.setattr(Session, "clock", lambda session: self.world.clock())

    # -- Python ------------------------------------------------------------------------------------------------------

    def client_insert(self, action: str, payload: Any) -> str | None:
        return _field(lambda: self.client.insert("t", due_at=SOON, action=action, payload=payload))

    def client_insert_untimed(self, action: str, payload: Any) -> str | None:
        return _field(lambda: self.client.insert("t", action=action, payload=payload))

    def client_insert_many(self, action: str, payload: Any) -> str | None:
        (result,) = self.client.insert_lazily([{"taskId": "t", "dueAt": SOON, **_given(action, payload)}])
        return result.error.field if isinstance(result, Refused) else None

    def client_schedule(self, action: str, payload: Any) -> str | None:
        return _field(lambda: self.client.schedules.insert("t", "rate(1 hour)", action=action, payload=payload))

    # -- HTTP --------------------------------------------------------------------------------------------------------

    def _asked(self, method: str, path: str, body: object, prefix: str = "#/") -> str | None:
        answer = self.api.handle(event(method, path, body), None)
        if answer.status < 300:
            return None
        error, *_ = read(answer)["errors"]
        return str(error["pointer"]).removeprefix(prefix).replace("/", ".")

    def http_create(self, action: str, payload: Any) -> str | None:
        return self._asked("POST", "/v1/tasks", {"taskId": "t", "dueAt": SOON, **_given(action, payload)})

    def http_create_many(self, action: str, payload: Any) -> str | None:
        tasks = [{"taskId": "t", "dueAt": SOON, **_given(action, payload)}]
        (result,) = read(self.api.handle(event("POST", "/v1/tasks/bulk", {"tasks": tasks}), None))["results"]
        return str(result["pointer"]).removeprefix("#/tasks/0/").replace("/", ".") if "pointer" in result else None

    def http_schedule_task(self, action: str, payload: Any) -> str | None:
        return self._asked("POST", "/schedule-task", {"run_at": SOON, **_given(action, payload)})

    def http_schedule(self, action: str, payload: Any) -> str | None:
        body = {"taskId": "t", "scheduleExpression": "rate(1 hour)", **_given(action, payload)}
        return self._asked("POST", "/v1/schedules", body)

    # -- Shell and files ---------------------------------------------------------------------------------------------

    def _typed(self, *arguments: str) -> str | None:
        code = cli.run(arguments)
        message = self.capsys.readouterr().err
        return None if code == 0 else message.removeprefix("error: ").partition(":")[0]

    def cli_add(self, action: str, payload: Any) -> str | None:
        more = [] if payload is None else ["--payload", json.dumps(payload)]
        return self._typed("task", "add", "t", "--at", SOON, "--action", action, *more)

    def cli_schedule(self, action: str, payload: Any) -> str | None:
        more = [] if payload is None else ["--payload", json.dumps(payload)]
        return self._typed("schedule", "add", "t", "rate(1 hour)", "--action", action, *more)

    def _imported(self, line: Mapping[str, Any]) -> str | None:
        file = self.folder / "tasks.ndjson"
        file.write_text(json.dumps(line) + "\n", "utf-8")
        code = cli.run(["task", "import", str(file)])
        (message,) = [one for one in self.capsys.readouterr().err.splitlines() if one.startswith("line 1")] or [None]
        assert (code == 0) is (message is None)
        return None if message is None else message.removeprefix("line 1: ").partition(":")[0]

    def cli_import(self, action: str, payload: Any) -> str | None:
        return self._imported({"taskId": "t", "dueAt": SOON, **_given(action, payload)})

    def cli_import_schedule(self, action: str, payload: Any) -> str | None:
        return self._imported({"taskId": "t", "scheduleExpression": "rate(1 hour)", **_given(action, payload)})

    def dropped_file(self, action: str, payload: Any) -> str | None:
        function = Lambda(self.world, Bucket())
        line = json.dumps({"taskId": "t", "dueAt": SOON, **_given(action, payload)})
        function.run(function.bucket.event("imports/tasks.ndjson", line))
        (error,) = function.bucket.errors() or [{}]
        return error.get("field")


Insert = Callable[[Interfaces, str, Any], str | None]
INTERFACES: list[Insert] = [
    Interfaces.client_insert, Interfaces.client_insert_untimed, Interfaces.client_insert_many,
    Interfaces.client_schedule, Interfaces.http_create, Interfaces.http_create_many, Interfaces.http_schedule_task,
    Interfaces.http_schedule, Interfaces.cli_add, Interfaces.cli_schedule, Interfaces.cli_import,
    Interfaces.cli_import_schedule, Interfaces.dropped_file,
]  # fmt: skip
each_interface = pytest.mark.parametrize("insert", INTERFACES, ids=lambda insert: insert.__name__)


@pytest.fixture
def interfaces(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Interfaces:
    return Interfaces(monkeypatch, capsys, tmp_path)


@each_interface
@pytest.mark.parametrize(("action", "payload", "field"), AT_EACH_INTERFACE)
def test_an_interface_refuses_a_payload_that_the_action_cannot_use(
    interfaces: Interfaces, insert: Insert, action: str, payload: Any, field: str
) -> None:
    found = insert(interfaces, action, payload)
    assert found == field
    assert interfaces.world.store.get("t") is None


@each_interface
@pytest.mark.parametrize("action", RIGHT)
def test_an_interface_inserts_a_payload_that_the_action_can_use(
    interfaces: Interfaces, insert: Insert, action: str
) -> None:
    assert insert(interfaces, action, RIGHT[action]) is None
    if insert is not Interfaces.http_schedule_task:  # that one makes an id
        row = interfaces.world.store.get("t")
        assert row is not None and (row["action"], row["payload"]) == (action, RIGHT[action])


@pytest.mark.parametrize(("action", "payload", "field"), [one for one in WRONG if one[1] is not None])
def test_insert_and_update_refuse_a_payload_that_the_action_cannot_use(
    interfaces: Interfaces, action: str, payload: Any, field: str
) -> None:
    interfaces.client.insert("t", due_at=SOON, action=action, payload=RIGHT[action])
    interfaces.client.schedules.insert("s", "rate(1 hour)", action=action, payload=RIGHT[action])
    assert interfaces.client_insert(action, payload) == field
    assert _field(lambda: interfaces.client.update("t", payload=payload)) == field
    assert _field(lambda: interfaces.client.schedules.update("s", payload=payload)) == field
    assert interfaces._asked("PATCH", "/v1/tasks/t", {"payload": payload}) == field
    assert interfaces._asked("PATCH", "/v1/schedules/s", {"payload": payload}) == field
    assert interfaces._typed("task", "update", "t", "--payload", json.dumps(payload)) == field
    assert interfaces._typed("schedule", "update", "s", "--payload", json.dumps(payload)) == field
    for task_id in ("t", "s"):
        row = interfaces.world.store.get(task_id)
        assert row is not None and row["payload"] == RIGHT[action]


@each_interface
def test_an_interface_refuses_an_action_that_the_installation_does_not_have(
    interfaces: Interfaces, insert: Insert
) -> None:
    """The settings row lists the actions: those in ``AllowedActions`` that have a target."""
    settings = interfaces.world.store.get("_dynatick#settings")
    assert settings is not None
    interfaces.world.store.delete("_dynatick#settings")
    interfaces.world.store.create({**settings, "actions": ["log", "sqs"]})
    assert insert(interfaces, "sns", RIGHT["sns"]) == "action"
    assert interfaces.world.store.get("t") is None
    assert insert(interfaces, "sqs", RIGHT["sqs"]) is None


@pytest.mark.parametrize("payload", [None, {"ulr": "https://example.com"}])
def test_the_default_action_checks_the_payload_of_a_task_without_one(interfaces: Interfaces, payload: Any) -> None:
    settings = interfaces.world.store.get("_dynatick#settings")
    assert settings is not None
    interfaces.world.store.delete("_dynatick#settings")
    interfaces.world.store.create({**settings, "defaultAction": "webhook"})
    for insert in (
        lambda: interfaces.client.insert("t", payload=payload),
        lambda: interfaces.client.insert("t", delay_seconds=5, payload=payload),
        lambda: interfaces.client.schedules.insert("t", "rate(1 hour)", payload=payload),
    ):
        assert str(_field(insert)).startswith("payload")
        assert interfaces.world.store.get("t") is None


def _module(monkeypatch: pytest.MonkeyPatch) -> str:
    """This module's name, for the setting."""
    monkeypatch.setitem(sys.modules, "handlers_of_this_test", sys.modules[__name__])
    return "handlers_of_this_test"


def _given(action: str, payload: Any) -> Mapping[str, Any]:
    return {"action": action} if payload is None else {"action": action, "payload": payload}


def _field(insert: Callable[[], object]) -> str | None:
    try:
        insert()
    except InvalidInput as error:
        return error.field
    return None

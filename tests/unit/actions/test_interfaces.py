"""Each interface refuses, at insertion, a payload that the action can't use: it names the field and writes nothing."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.builders import InProcess
from tests.unit.actions.support import PAYLOADS
from tests.unit.api.support import event, read
from tests.unit.bulk.test_importer import Bucket, Lambda

from dynatick import InvalidInput, Refused, TaskClient, cli
from dynatick.actions import build_actions
from dynatick.actions.payload import BUILT_IN
from dynatick.api import Api
from dynatick.cli.session import Session
from dynatick.domain.normalise import Defaults
from dynatick.domain.task import Row
from dynatick.engine.settings import SETTINGS_ID, publish_settings
from dynatick.task_function import task

RIGHT = {**PAYLOADS, "send-reminder": {"to": "ann@example.com", "text": "It is time", "copies": "2"}}
# What is right is decided by each action's model, and tested with it.
WRONG: list[tuple[str, Any, str]] = [
    *((action, None, f"payload.{next(iter(right))}") for action, right in RIGHT.items()),
    ("webhook", RIGHT["webhook"] | {"expectedStatuses": [99]}, "payload.expectedStatuses.0"),
    ("webhook", RIGHT["webhook"] | {"retries": 1}, "payload"),
    ("send-reminder", RIGHT["send-reminder"] | {"copies": "two"}, "payload.copies"),
]
SOON = "2026-12-31T12:30:00Z"


@dataclass
class Reminder:
    to: str
    text: str
    copies: int = 1


@task("send-reminder")
def send_reminder(reminder: Reminder) -> None:
    """A handler, whose payload type the processor publishes."""


class Interfaces:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: Path) -> None:
        self.world = InProcess()
        self.capsys = capsys
        self.folder = folder
        self.publish_settings()
        self.client = TaskClient(self.world.store, clock=self.world.clock)
        self.api = Api(self.client)
        monkeypatch.setattr(Session, "client", lambda session: self.client)
        monkeypatch.setattr(Session, "clock", lambda session: self.world.clock())

    def publish_settings(self, **settings: Any) -> None:
        schemas = build_actions(handlers_module=sys.modules[__name__], clock=self.world.clock).payload_schemas()
        known = {"actions": (*BUILT_IN, "send-reminder"), "defaults": Defaults(), "payload_schemas": schemas}
        self.world.store.delete(SETTINGS_ID)
        publish_settings(self.world.store, self.world.rules.grid, now=self.world.clock(), **known | settings)

    # Each returns the field that a request was refused for; None if it was carried out.

    def many(self, row: Row) -> str | None:
        (result,) = self.client.insert_lazily([row])
        return result.error.field if isinstance(result, Refused) else None

    def asked(self, method: str, path: str, body: object) -> str | None:
        answer = self.api.handle(event(method, path, body), None)
        if answer.status < 300:
            (first, *_) = read(answer).get("results", [{}])  # one for each task of many
        else:
            first, *_ = read(answer)["errors"]
        return re.sub(r"^#/(tasks/0/)?", "", first["pointer"]).replace("/", ".") if "pointer" in first else None

    def typed(self, *arguments: str, payload: Any = None) -> str | None:
        code = cli.run([*arguments, *([] if payload is None else ["--payload", json.dumps(payload)])])
        message = self.capsys.readouterr().err
        return None if code == 0 else message.removeprefix("error: ").partition(":")[0]

    def imported(self, row: Row) -> str | None:
        file = self.folder / "tasks.ndjson"
        file.write_text(json.dumps(row) + "\n", "utf-8")
        code = cli.run(["task", "import", str(file)])
        (message,) = [one for one in self.capsys.readouterr().err.splitlines() if one.startswith("line 1")] or [None]
        assert (code == 0) is (message is None)
        return None if message is None else message.removeprefix("line 1: ").partition(":")[0]

    def dropped(self, row: Row) -> str | None:
        function = Lambda(self.world, Bucket())
        function.run(function.bucket.event("imports/tasks.ndjson", json.dumps(row)))
        (error,) = function.bucket.errors() or [{}]
        return error.get("field")


Insert = Callable[[Interfaces, dict[str, Any]], str | None]  # of an action and its payload, if there is one
HOURLY = "rate(1 hour)"
TASK = {"taskId": "t", "dueAt": SOON}
SCHEDULE = {"taskId": "t", "scheduleExpression": HOURLY}
INTERFACES: dict[str, Insert] = {
    "client": lambda on, given: _field(lambda: on.client.insert("t", due_at=SOON, **given)),
    "client, no time": lambda on, given: _field(lambda: on.client.insert("t", **given)),
    "client, many": lambda on, given: on.many(TASK | given),
    "client, schedule": lambda on, given: _field(lambda: on.client.schedules.insert("t", HOURLY, **given)),
    "http": lambda on, given: on.asked("POST", "/v1/tasks", TASK | given),
    "http, many": lambda on, given: on.asked("POST", "/v1/tasks/bulk", {"tasks": [TASK | given]}),
    "http, simple": lambda on, given: on.asked("POST", "/schedule-task", {"run_at": SOON} | given),
    "http, schedule": lambda on, given: on.asked("POST", "/v1/schedules", SCHEDULE | given),
    "cli": lambda on, given: on.typed(
        "task", "add", "t", "--at", SOON, "--action", given["action"], payload=given.get("payload")),
    "cli, schedule": lambda on, given: on.typed(
        "schedule", "add", "t", HOURLY, "--action", given["action"], payload=given.get("payload")),
    "cli, file": lambda on, given: on.imported(TASK | given),
    "cli, file of schedules": lambda on, given: on.imported(SCHEDULE | given),
    "dropped file": lambda on, given: on.dropped(TASK | given),
}  # fmt: skip
each_interface = pytest.mark.parametrize("insert", INTERFACES.values(), ids=INTERFACES)


@pytest.fixture
def interfaces(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Interfaces:
    return Interfaces(monkeypatch, capsys, tmp_path)


@each_interface
@pytest.mark.parametrize(("action", "payload", "field"), WRONG)
def test_an_interface_inserts_only_a_payload_that_the_action_can_use(
    interfaces: Interfaces, insert: Insert, action: str, payload: Any, field: str
) -> None:
    assert insert(interfaces, _given(action, payload)) == field
    assert interfaces.world.store.get("t") is None
    assert insert(interfaces, _given(action, RIGHT[action])) is None
    if insert is not INTERFACES["http, simple"]:  # that one makes an id
        row = interfaces.world.row("t")
        assert (row["action"], row["payload"]) == (action, RIGHT[action])


@pytest.mark.parametrize(("action", "payload", "field"), [one for one in WRONG if one[1] is not None])
def test_an_update_refuses_a_payload_that_the_action_cannot_use(
    interfaces: Interfaces, action: str, payload: Any, field: str
) -> None:
    client = interfaces.client
    client.insert("t", due_at=SOON, action=action, payload=RIGHT[action])
    client.schedules.insert("s", HOURLY, action=action, payload=RIGHT[action])
    assert [
        _field(lambda: client.update("t", payload=payload)),
        _field(lambda: client.schedules.update("s", payload=payload)),
        interfaces.asked("PATCH", "/v1/tasks/t", {"payload": payload}),
        interfaces.asked("PATCH", "/v1/schedules/s", {"payload": payload}),
        interfaces.typed("task", "update", "t", payload=payload),
        interfaces.typed("schedule", "update", "s", payload=payload),
    ] == [field] * 6
    for task_id in ("t", "s"):
        assert interfaces.world.row(task_id)["payload"] == RIGHT[action]


@each_interface
def test_an_interface_refuses_an_action_that_is_not_installed(interfaces: Interfaces, insert: Insert) -> None:
    """The settings row lists the actions: those in ``AllowedActions`` that have a target."""
    interfaces.publish_settings(actions=["log", "sqs"])
    assert insert(interfaces, _given("sns", RIGHT["sns"])) == "action"
    assert interfaces.world.store.get("t") is None
    assert insert(interfaces, _given("sqs", RIGHT["sqs"])) is None


@pytest.mark.parametrize("payload", [None, {"ulr": "https://example.com"}])
def test_the_default_action_checks_the_payload_of_a_task_without_one(interfaces: Interfaces, payload: Any) -> None:
    interfaces.publish_settings(defaults=Defaults(action="webhook"))
    for name in ("client", "client, no time", "client, schedule"):
        assert str(INTERFACES[name](interfaces, {"payload": payload})).startswith("payload")
        assert interfaces.world.store.get("t") is None


def _given(action: str, payload: Any) -> dict[str, Any]:
    return {"action": action} if payload is None else {"action": action, "payload": payload}


def _field(insert: Callable[[], object]) -> str | None:
    try:
        insert()
    except InvalidInput as error:
        return error.field
    return None

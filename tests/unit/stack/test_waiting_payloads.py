"""Before a deployment: the waiting tasks of changed types are checked, in the table that is deployed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from tests.builders import InProcess

from dynatick import TaskClient
from dynatick.engine.settings import publish_settings
from dynatick.errors import StoreError
from dynatick_stack import template, waiting_payloads


def schema(*required: str) -> str:
    fields = {name: {"type": "string"} for name in required}
    return json.dumps({"type": "object", "properties": fields, "required": required, "additionalProperties": False})


class Stack:
    """A deployed stack, or one that is not there."""

    def __init__(self, outputs: Mapping[str, str] | None) -> None:
        self.outputs = outputs
        self.client = SimpleNamespace(meta=SimpleNamespace(region_name="eu-central-1"))

    def describe(self) -> Mapping[str, Any] | None:
        if self.outputs is None:
            return None
        return {"Outputs": [{"OutputKey": key, "OutputValue": value} for key, value in self.outputs.items()]}


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> InProcess:
    """A table of mails that wait, with one field."""
    world = InProcess()
    publish_settings(world.store, world.rules.grid, now=world.clock(), payload_schemas={"mail": schema("address")})
    client = TaskClient(world.store, clock=world.clock)
    for n in range(3):
        client.insert(f"mail-{n}", action="mail", payload={"address": "ann"}, delay_seconds=3600)

    def connect(table: str, *, region: str, profile: str | None, timeout_seconds: float) -> TaskClient:
        assert timeout_seconds > 30, "longer than a web application waits"
        assert (table, region, profile) == ("tasks", "eu-central-1", "mine")
        return client

    monkeypatch.setattr(TaskClient, "connect", connect)
    return world


def checked(schemas: Mapping[str, str], outputs: Mapping[str, str] | None) -> tuple[int, list[str]]:
    said: list[str] = []
    stack: Any = Stack(outputs)
    return waiting_payloads.check(stack, schemas, profile="mine", say=said.append), said


DEPLOYED = {"TasksTableName": "tasks"}


def test_waiting_tasks_that_no_longer_fit_are_counted_and_named(world: InProcess) -> None:
    failing, said = checked({"mail": schema("to"), "new": schema("x")}, DEPLOYED)
    (line, waiting) = said
    assert failing == 3
    assert line.startswith("  will fail 3 mail: payload.to: it is missing (such as mail-")
    assert waiting == "  waiting   3 of changed types checked, in 1 read of 1 MB: all of the table"


def test_those_that_lose_a_field_are_named_and_do_not_fail(world: InProcess) -> None:
    optional = json.dumps({"type": "object", "properties": {"to": {"type": "string"}}, "additionalProperties": False})
    failing, said = checked({"mail": optional}, DEPLOYED)
    assert failing == 0
    assert said[0].startswith("  will lose 3 mail: payload.address: unknown; expected any of to (such as mail-")


def test_nothing_is_read_where_no_type_has_changed_or_nothing_is_deployed(
    world: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world.store, "scan", lambda **_: pytest.fail("the table was read"))
    for schemas, outputs in (
        ({"mail": schema("address")}, DEPLOYED), ({}, DEPLOYED), ({"mail": schema("to")}, None),
        ({"mail": schema("to")}, {}),
    ):  # fmt: skip
        assert checked(schemas, outputs) == (0, [])


def test_the_page_names_the_rights_that_the_check_takes(world: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a batch among what waits: its members are read by their pack."""
    client = TaskClient.connect("tasks", region="eu-central-1", profile="mine", timeout_seconds=60)
    due = world.clock() + timedelta(hours=1)
    client.batches.insert([{"address": "ben"}] * 3, batch_id="news", action="mail", due_at=due)
    called: set[str] = set()
    for name, action in {"get": "GetItem", "get_many": "BatchGetItem", "scan": "Scan"}.items():
        read = getattr(world.store, name)

        def noted(*args: Any, read: Any = read, action: str = action, **kwargs: Any) -> Any:
            called.add(action)
            return read(*args, **kwargs)

        monkeypatch.setattr(world.store, name, noted)
    assert checked({"mail": schema("to")}, DEPLOYED)[0] == 6
    page = (template.ROOT / "docs" / "how-to" / "deploy.md").read_text(encoding="utf-8")
    (named,) = re.findall(r"to check what waits, ([^(]+) on the table", page)
    assert set(re.findall(r"`(?:dynamodb:)?(\w+)`", named)) == called


def test_a_table_that_can_not_be_read_is_said_and_keeps_no_one_from_deploying(
    world: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(**_: object) -> None:
        raise StoreError("cannot scan the table: AccessDenied")

    monkeypatch.setattr(world.store, "scan", denied)
    assert checked({"mail": schema("to")}, DEPLOYED) == (
        0, ["Whether the payloads of waiting tasks fit is not known: cannot scan the table: AccessDenied"]
    )  # fmt: skip

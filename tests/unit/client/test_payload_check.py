"""The payloads of what waits, checked by the types of their handlers: by client, status, doctor and explain."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from tests.unit.client.support import client_of, started, world_of
from tests.unit.client.test_published_settings import publish
from tests.unit.engine.support import World

from dynatick import TaskClient
from dynatick.client.operations import PayloadCheck, UnfitPayloads
from dynatick.domain.normalise import Defaults
from dynatick.domain.task import Row
from dynatick.engine.ports import ScanPage

MISSING = "payload.to: it is missing"
UNKNOWN = "payload.text: unknown; expected any of to, body"
CLOSED = {"type": "object", "properties": {"to": {"type": "string"}, "body": {"type": "string"}}, "required": ["to"],
          "additionalProperties": False}  # fmt: skip
SCHEMAS = {"mail": json.dumps(CLOSED)}


@pytest.fixture
def world() -> World:
    """Tasks in each state, and a schedule, whose handler's payload has changed since."""
    world = world_of()
    client = client_of(world)
    publish(world)
    old = {"address": "ann"}
    for task_id in ("completed", "late"):
        client.insert(task_id, delay_seconds=1, action="mail", payload=old)
    client.cancel("late")
    world.next_tick()
    publish(world)
    for task_id in ("running", "waits", "also waits", "cancelled"):
        client.insert(task_id, delay_seconds=3600, action="mail", payload=old)
    client.insert("with more", delay_seconds=3600, action="mail", payload={"to": "ann", "text": "hi"})
    client.insert("fits", delay_seconds=3600, action="mail", payload={"to": "ann", "body": "hi"})
    client.insert("other", delay_seconds=3600, action="log", payload=old)
    client.cancel("cancelled")
    started(world, "running")
    world.rigged.put({"taskId": "raw", "action": "mail", "delaySeconds": 3600})
    client.schedules.insert("daily", "rate(1 day)", action="mail", payload=old)
    return world


def test_what_waits_is_checked_and_grouped_by_action_and_error(world: World, client: TaskClient) -> None:
    found = client.operations.check_payloads(SCHEMAS)
    assert (found.checked, found.reads, found.complete, found.failing) == (6, 1, True, 4)
    missing, more = found.groups
    assert (missing.action, missing.error, missing.fails, missing.count) == ("mail", MISSING, True, 4)
    assert missing.task_id in ("waits", "also waits", "raw", "daily")
    assert more == UnfitPayloads(action="mail", error=UNKNOWN, fails=False, count=1, task_id="with more")
    assert client.operations.check_payloads().checked == 0, "no type is published"
    assert client.operations.check_payloads({"log": SCHEMAS["mail"]}).failing == 1


def test_of_a_pack_its_members_are_checked(world: World, client: TaskClient) -> None:
    before = client.operations.check_payloads(SCHEMAS)
    payloads = [{"to": "ann"}, {"address": "ann"}, {"address": "bob"}]
    client.batches.insert(payloads, batch_id="news", action="mail", delay=timedelta(hours=1))
    client.cancel("news/000000002")
    found = client.operations.check_payloads(SCHEMAS)
    assert (found.checked - before.checked, found.failing - before.failing) == (2, 1)
    assert client.operations.doctor().payloads is None, "no type was published"


def test_an_older_payload_that_the_handler_upgrades_fits(client: TaskClient) -> None:
    older = {"type": "object", "properties": {"address": {"type": "string"}}, "required": ["address"]}
    found = client.operations.check_payloads({"mail": json.dumps({**CLOSED, "upgraded": older})})
    assert (found.failing, [one.task_id for one in found.groups if one.fails]) == (1, ["raw"])


def test_no_more_is_read_than_the_bound_says(world: World, client: TaskClient, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = sorted(world.open_rows().values(), key=lambda row: str(row["taskId"]))

    def scan(*, after: str | None = None, open_only: bool = True) -> ScanPage:
        rest: list[Row] = [row for row in rows if after is None or str(row["taskId"]) > after]
        return ScanPage(rest[:2], str(rest[1]["taskId"]) if len(rest) > 2 else None)

    monkeypatch.setattr(world.store, "scan", scan)
    whole = client.operations.check_payloads(SCHEMAS)
    assert (whole.reads, whole.complete, whole.checked) == (-(-len(rows) // 2), True, 6)
    part = client.operations.check_payloads(SCHEMAS, max_reads=2)
    assert (part.reads, part.complete) == (2, False)
    assert part.checked < whole.checked
    assert client.operations.check_payloads(SCHEMAS, max_reads=None) == whole


def test_a_row_without_an_action_has_the_default_one(world: World, client: TaskClient) -> None:
    publish(world, defaults=Defaults(action="mail"))
    world.rigged.put({"taskId": "untold", "payload": {}})
    assert client.operations.check_payloads(SCHEMAS).failing == 5


def test_the_status_checks_what_is_due_next_and_the_doctor_all(world: World, client: TaskClient) -> None:
    assert client.operations.status(hours=24).payloads is client.operations.doctor().payloads is None
    publish(world, "to")
    world.stream(world.row("raw"))
    found = client.operations.status(hours=24).payloads
    assert isinstance(found, PayloadCheck)
    assert (found.checked, found.failing, found.reads, found.complete) == (5, 3, 1, False)
    world.store.delete("running")  # its lease is one that no process can hold
    diagnosis = client.operations.doctor()
    assert diagnosis.payloads is not None
    assert (diagnosis.payloads.checked, diagnosis.payloads.failing, diagnosis.payloads.complete) == (6, 4, True)
    assert (diagnosis.found, diagnosis.is_healthy) == (0, False)
    for task_id in ("waits", "also waits", "raw"):
        client.update(task_id, payload={"to": "ann"})
    client.schedules.update("daily", payload={"to": "ann"})
    assert client.operations.doctor().is_healthy


def test_the_status_reads_a_hundred_payloads_at_most() -> None:
    world = world_of()
    client = client_of(world)
    publish(world)
    for n in range(130):
        client.insert(f"t{n:03}", delay_seconds=3600 + 60 * n, action="mail", payload={})
    publish(world, "to")
    found = client.operations.status(hours=24)
    assert found.payloads is not None
    assert (found.waiting, found.payloads.checked, found.payloads.failing) == (130, 100, 100)
    assert found.payloads.groups[0].task_id == "t000"


def test_explain_says_that_a_waiting_task_will_fail(world: World, client: TaskClient) -> None:
    assert client.operations.explain("waits").sentence.endswith("; nothing holds it up")
    publish(world, "to")
    sentence = client.operations.explain("waits").sentence
    assert sentence.endswith(f"; but it will fail, for its handler refuses its payload ({MISSING})")
    assert client.operations.explain("fits").sentence.endswith("; nothing holds it up")

"""Payloads of handlers, checked by the types that the processor has published in the settings row."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import pytest
from tests.builders import InProcess
from tests.unit.engine.support import RiggedStore

from dynatick import InvalidInput, Refused, TaskClient
from dynatick.engine.installation_settings import SETTINGS_ID, publish_settings


def schema(name: str) -> Mapping[str, str]:
    fields = {"type": "object", "properties": {name: {"type": "string"}}, "required": [name]}
    return {"mail": json.dumps(fields)}


def a_world(schemas: Mapping[str, str]) -> tuple[InProcess, TaskClient]:
    world = InProcess(store=RiggedStore())
    publish(world, schemas)
    return world, TaskClient(world.store, clock=world.clock)


def publish(world: InProcess, schemas: Mapping[str, str]) -> None:
    publish_settings(world.store, world.rules.grid, now=world.clock(), actions=["log", "mail"], payload_schemas=schemas)


def reads(world: InProcess) -> int:
    assert isinstance(world.store, RiggedStore)
    return world.store.reads.count(SETTINGS_ID)


def test_a_type_that_has_changed_is_read_again_before_a_refusal() -> None:
    world, client = a_world(schema("to"))
    client.insert("a", action="mail", payload={"to": "ann"})
    publish(world, schema("address"))
    client.insert("b", action="mail", payload={"address": "ann"})
    publish(world, {})
    world.clock.forward(seconds=2)
    client.insert("c", action="mail", payload={})
    publish(world, schema("to"))
    world.clock.forward(seconds=60)
    with pytest.raises(InvalidInput, match=r"payload\.to"):
        client.insert("d", action="mail", payload={})


def test_checking_costs_no_read_of_its_own_and_wrong_payloads_no_read_each() -> None:
    world, client = a_world(schema("to"))
    before = reads(world)
    for n in range(10):
        client.insert(f"t{n}", delay_seconds=5, action="mail", payload={"to": "ann"})
    assert reads(world) == before + 1
    refused = client.insert_lazily({"taskId": f"u{n}", "action": "mail"} for n in range(100))
    assert {type(one) for one in refused} == {Refused}
    assert reads(world) <= before + 11  # one a second


def test_who_checks_no_actions_checks_no_payload_of_theirs() -> None:
    world, _ = a_world(schema("to"))
    before = reads(world)
    TaskClient(world.store, clock=world.clock, check_actions=False).insert("t", action="mail", payload={})
    assert reads(world) == before + 1  # for the version of the rows


@pytest.mark.parametrize(
    "change",
    [
        lambda client: client.schedules.pause("s"),
        lambda client: client.schedules.update("s", expression="rate(2 hours)"),
    ],
    ids=["pause", "another expression"],
)
def test_a_schedule_whose_payload_fits_no_more_can_still_be_changed(change: Callable[[TaskClient], object]) -> None:
    world, client = a_world({})
    client.schedules.insert("s", "rate(1 hour)", action="mail", payload={})
    publish(world, schema("to"))
    world.clock.forward(minutes=2)
    change(client)
    with pytest.raises(InvalidInput, match=r"payload\.to"):
        client.schedules.update("s", payload={"text": "x"})

"""A failed task gets another payload, alone or with its redrive: checked by the handler's type, one task or many."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from tests.unit.client.support import be_first, client_of, fail, world_of
from tests.unit.client.test_published_settings import publish
from tests.unit.engine.support import World

from dynatick import InvalidInput, TaskChanged, TaskClient, TransitionRefused
from dynatick.client import Changed, Skipped, WouldChange

BUCKET = "2026-12-31#12:01"
NUMBERED = {"type": "object", "properties": {"to": {"type": "string"}, "n": {"type": "integer"}}, "required": ["to"],
            "additionalProperties": False}  # fmt: skip


@pytest.fixture
def world() -> World:
    """Failed tasks of the action mail, whose handler takes other fields since."""
    world = world_of()
    client = client_of(world)
    publish(world)
    for task_id in ("a", "b", "c"):
        client.insert(task_id, delay_seconds=1, action="mail", payload={"address": task_id, "n": 1})
        world.actions.behaviour[task_id] = fail
    client.insert("other", delay_seconds=1, action="log", payload={"address": "x"})
    world.next_tick()
    world.actions.behaviour.clear()
    publish(world, "to", "address")
    return world


@pytest.mark.parametrize(("change", "payload"), [
    ({"payload": {"to": "x", "address": "y"}}, {"to": "x", "address": "y"}),
    ({"set_fields": {"to": "x"}}, {"address": "a", "n": 1, "to": "x"}),
    ({"set_fields": {"to": "x", "address": "y"}, "unset_fields": ["n", "nothing"]}, {"to": "x", "address": "y"}),
])  # fmt: skip
def test_a_task_is_redriven_with_another_payload(
    world: World, client: TaskClient, change: Mapping[str, Any], payload: Mapping[str, Any]
) -> None:
    before = world.row("a")
    would = client.redrive("a", dry_run=True, **change)
    assert (would.status, would.run, would.payload, world.row("a")) == ("scheduled", 2, payload, before)
    seen = client.get("a").version
    assert client.redrive("a", version=seen, **change) == would == client.get("a")
    world.next_tick()
    assert client.get("a").status == "completed"
    with pytest.raises(TaskChanged):
        client.redrive("b", version=seen, dry_run=True)


@pytest.mark.parametrize(("change", "message"), [
    ({"payload": {"to": "x"}}, "payload.address: 'nothing' is not accepted; it is missing"),
    ({"set_fields": {"to": 7}}, "payload.to: 'a number' is not accepted; Input should be a valid string"),
    ({"unset_fields": ["n"]}, "payload.to: 'nothing' is not accepted; it is missing"),
    ({"payload": {}, "unset_fields": ["n"]}, "payload: 'a map' is not accepted; expected either a whole payload, or f"),
    ({"set_fields": {"n": 1}, "unset_fields": ["n"]}, "payload.n: 1 is not accepted; expected either a value, or none"),
    ({"payload": [1]}, "payload: 'a list' is not accepted; expected a map of names to values"),
    ({"set_fields": {"in": {"": 1}}}, "payload.in: '' is not accepted; expected names that are not empty"),
])  # fmt: skip
def test_a_payload_that_the_handler_would_refuse_is_refused(
    world: World, client: TaskClient, change: Mapping[str, Any], message: str
) -> None:
    before = world.row("a")
    for dry_run in (True, False):
        with pytest.raises(InvalidInput) as refused:
            client.redrive("a", dry_run=dry_run, **change)
        assert str(refused.value).startswith(message)
    assert world.row("a") == before


def test_a_payload_that_no_row_can_hold_is_refused_and_what_does_not_fail_is_refused_for_that(
    world: World, client: TaskClient
) -> None:
    with pytest.raises(InvalidInput, match="expected an item of at most 393216 bytes"):
        client.redrive("a", set_fields={"to": "x" * 400_000})
    for dry_run in (True, False):
        with pytest.raises(TransitionRefused):
            client.redrive("other", payload={}, dry_run=dry_run)
    assert world.outcome("a") == "failed"


def test_many_are_redriven_each_with_its_own_payload_and_those_that_do_not_fit_are_skipped(
    world: World, client: TaskClient
) -> None:
    client.update("b", payload={"to": "bob", "address": "b"})
    dry = list(client.redrive_many(BUCKET, dry_run=True, unset_fields=["n"]))
    assert [type(one) for one in dry] == [Skipped, WouldChange, Skipped]
    assert isinstance(dry[0], Skipped) and dry[0].reason.startswith("payload.to: 'nothing' is not accepted")
    done = list(client.redrive_many(BUCKET, set_fields={"to": "x"}))
    assert [isinstance(one, Changed) and one.task.payload["address"] for one in done] == ["a", "b", "c"]
    world.next_tick()
    assert {client.get(task_id).status for task_id in "abc"} == {"completed"}


def test_a_failed_task_can_be_given_its_payload_first(world: World, client: TaskClient) -> None:
    with pytest.raises(InvalidInput, match=r"payload\.address: "):
        client.update("a", payload={"to": "x"})
    view = client.update("a", payload={"to": "x", "address": "y"})
    assert (view.status, view.error, view.payload) == ("failed", "it broke", {"to": "x", "address": "y"})
    with pytest.raises(TransitionRefused, match="cannot reschedule task 'a': it is failed"):
        client.update("a", payload={"to": "x", "address": "y"}, delay_seconds=5)
    with be_first(world, lambda: client.update("a", payload={"to": "z", "address": "y"})):
        assert client.redrive("a", unset_fields=["n"]).payload == {"to": "z", "address": "y"}


def test_a_row_whose_payload_is_none_gets_a_whole_one(world: World, client: TaskClient) -> None:
    world.put(taskId="hopeless", payload="no map")
    with pytest.raises(InvalidInput, match="payload: 'a str' is not accepted; expected a map of names to values"):
        client.redrive("hopeless", set_fields={"n": 1})
    client.redrive("hopeless", payload={"n": 1})
    world.stream(world.row("hopeless"))
    world.ticks(2)
    assert client.get("hopeless").status == "completed"

"""A ``timeoutSeconds`` that the processor can never serve is refused where it is given."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.builders import InProcess

from dynatick import InvalidInput, TaskClient
from dynatick.client import Refused
from dynatick.engine.rules import Rules

TOO_LONG = (
    "timeoutSeconds: 113 is not accepted; expected at most 112, as long as an attempt can take here "
    "(the parameter ProcessorTimeoutSeconds)"
)


def a_world(maximum: int | None = 112) -> tuple[InProcess, TaskClient]:
    """After the first tick, by a processor that can serve so many seconds."""
    world = InProcess(rules=Rules(max_timeout_seconds=maximum))
    world.tick()
    return world, TaskClient(world.store, clock=world.clock)


def update(client: TaskClient, seconds: int) -> None:
    client.schedules.insert("there", "rate(1 hour)")
    client.schedules.update("there", timeout_seconds=seconds)


def one_of_many(client: TaskClient, seconds: int) -> None:
    (result,) = client.insert_rows([{"taskId": "t", "scheduleExpression": "rate(1 hour)", "timeoutSeconds": seconds}])
    if isinstance(result, Refused):
        raise result.error


@pytest.mark.parametrize(
    "insert",
    [
        lambda client, seconds: client.insert("t", delay_seconds=60, timeout_seconds=seconds),
        lambda client, seconds: client.insert("t", timeout_seconds=seconds),
        lambda client, seconds: client.schedules.insert("t", "rate(1 hour)", timeout_seconds=seconds),
        update,
        one_of_many,
    ],
    ids=["task", "task without a time", "schedule", "update of a schedule", "one of many"],
)
def test_a_timeout_that_can_never_fit_is_refused(insert: Callable[[TaskClient, int], None]) -> None:
    world, client = a_world()
    with pytest.raises(InvalidInput) as refused:
        insert(client, 113)
    assert str(refused.value) == TOO_LONG
    assert refused.value.field == "timeoutSeconds"
    assert world.store.get("t") is None
    insert(a_world()[1], 112)


def test_what_the_processor_can_serve_is_read_again_before_a_refusal() -> None:
    world, client = a_world()
    client.insert("a", timeout_seconds=112)
    world.rules = Rules(max_timeout_seconds=300)
    world.tick()
    assert client.insert("b", timeout_seconds=300).row["timeoutSeconds"] == 300


def test_where_nobody_knows_what_the_processor_can_serve_any_is_taken() -> None:
    assert a_world(maximum=None)[1].insert("t", timeout_seconds=900).row["timeoutSeconds"] == 900
    assert TaskClient(InProcess().store).insert("t", timeout_seconds=900).row["timeoutSeconds"] == 900

"""Dead letters follow the task: which are current, which are obsolete, and what redrive and purge make of them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import boto3
import pytest
from moto import mock_aws
from tests.builders import NOON
from tests.unit.client.support import be_first, client_of, with_failures
from tests.unit.engine.support import THROTTLED, World, raises_for

from dynatick import InvalidInput, StoreError, TaskClient
from dynatick.actions.dead_letter import SqsDeadLetterQueue, message_of
from dynatick.actions.dead_letter_queue import HIDDEN_SECONDS, DeadLetterQueue
from dynatick.actions.testing import MemoryDeadLetterQueue
from dynatick.client import DeadLetterView, LetterResult, LetterState, dead_letters
from dynatick.client.dead_letters import letter_of, state_of
from dynatick.engine.ports import DeadLetter
from dynatick.errors import QueueError

FAILED, OPEN, REDRIVEN, ENDED, GONE, UNREADABLE = LetterState


@pytest.fixture
def queue() -> MemoryDeadLetterQueue:
    return MemoryDeadLetterQueue()


@pytest.fixture
def world(queue: MemoryDeadLetterQueue) -> World:
    return with_failures(queue)


@pytest.fixture
def client(world: World, queue: MemoryDeadLetterQueue) -> TaskClient:
    return client_of(world, dead_letter_queue=queue)


def test_a_letter_shows_its_task_and_its_state(client: TaskClient, world: World, queue: MemoryDeadLetterQueue) -> None:
    page = client.dead_letters.list()
    assert (page.complete, page.messages, page.hidden) == (True, 3, 0)
    (a,) = (letter for letter in page.letters if letter.task_id == "a")
    row = world.row("a")
    assert a.to_row() == {
        "taskId": "a", "createdAt": row["createdAt"], "run": 1, "attempt": 1, "action": "log", "error": "it broke",
        "failedAt": row["finishedAt"], "state": "failed", "taskStatus": "failed",
    }  # fmt: skip
    part = client.dead_letters.list(limit=2)
    assert (len(part.letters), part.complete) == (2, False)
    assert (len(queue.visible), len(queue.hidden)) == (3, 0), "none stays hidden"


MADE = "2026-12-31T11:00:00Z"
ROW = {"taskId": "t", "createdAt": MADE, "run": 1, "status": "failed", "outcome": "failed"}
OPEN_ROW = {"taskId": "t", "createdAt": MADE, "run": 1, "status": "scheduled"}
ODD_ROW = ROW | {"createdAt": {"no": "instant"}}
LETTER = DeadLetterView(task_id="t", created_at=MADE, run=1)
# A row that could not be made a task has no creation.
RAW_LETTER = DeadLetterView(task_id="t")
ODD_LETTER = letter_of(message_of(DeadLetter(row=ODD_ROW, attempt=0, error="x", failed_at=NOON)))


@pytest.mark.parametrize(
    ("letter", "row", "state"),
    [
        (LETTER, ROW, FAILED),
        (LETTER, None, GONE),
        (LETTER, ROW | {"run": 2}, REDRIVEN),
        (LETTER, OPEN_ROW | {"run": 2}, REDRIVEN),
        # The letter is sent before the failure is written: that may fail, and then the task runs again.
        (LETTER, OPEN_ROW | {"status": "running"}, OPEN),
        (LETTER, OPEN_ROW, OPEN),
        (LETTER, ROW | {"status": "completed", "outcome": "completed"}, ENDED),
        (LETTER, ROW | {"status": "cancelled", "outcome": "cancelled"}, ENDED),
        (LETTER, ROW | {"createdAt": "2026-12-31T11:00:01Z"}, GONE),
        (LETTER, ROW | {"createdAt": "2026-12-31T11:00:01Z", "run": 2}, GONE),
        (LETTER, {"taskId": "t", "delaySeconds": 5}, GONE),  # put over it, and not normalised yet
        (LETTER, ROW | {"createdAt": 7}, GONE),
        (ODD_LETTER, ODD_ROW, FAILED),
        (RAW_LETTER, {"taskId": "t", "outcome": "failed", "status": "failed"}, FAILED),
        (RAW_LETTER, {"taskId": "t", "malformedReason": "action: 7"}, OPEN),
        (RAW_LETTER, OPEN_ROW | {"run": 2}, REDRIVEN),
        (RAW_LETTER, OPEN_ROW, GONE),
    ],
)
def test_what_became_of_a_failure(letter: DeadLetterView, row: dict[str, object] | None, state: LetterState) -> None:
    assert state_of(letter, row) is state


@pytest.mark.parametrize("body", ["", "no JSON", "[]", '{"taskId": 7}', '{"taskId": "_dynatick#settings"}', "[" * 5000])
def test_a_message_that_is_no_letter(client: TaskClient, queue: MemoryDeadLetterQueue, body: str) -> None:
    queue.put(body)
    *_, last = client.dead_letters.list().letters
    assert (last.state, last.task_id, last.to_row()) == (UNREADABLE, None, {"state": "unreadable"})
    results = {one.letter.task_id: one.result for one in client.dead_letters.redrive()}
    assert results[None] is LetterResult.KEPT
    assert [one.result for one in client.dead_letters.purge(obsolete=True)] == []
    assert [one.result for one in client.dead_letters.purge()] == [LetterResult.PURGED]
    assert client.dead_letters.count() == 0


def results(handled: object) -> dict[str | None, str]:
    return {one.letter.task_id: str(one.result) for one in handled}  # type: ignore[attr-defined]


def test_redrive_runs_failed_and_drops_others(client: TaskClient, world: World, queue: MemoryDeadLetterQueue) -> None:
    client.redrive("a")
    client.delete("b")
    expected = {"a": "dropped", "b": "dropped", "c": "redriven"}
    assert results(client.dead_letters.redrive(dry_run=True)) == expected
    handled = client.dead_letters.redrive()
    assert results(handled) == expected
    assert handled.complete
    assert (world.row("c")["status"], world.row("c")["run"], world.row("a")["run"]) == ("scheduled", 2, 2)
    assert (queue.visible, queue.hidden) == ([], [])
    assert results(client.dead_letters.redrive()) == {}


def test_filters_and_two_letters_of_one_failure(client: TaskClient, world: World, queue: MemoryDeadLetterQueue) -> None:
    assert results(client.dead_letters.redrive(action="webhook")) == {}
    assert results(client.dead_letters.redrive(error="timeout")) == {}
    assert results(client.dead_letters.purge(error="other")) == {}
    queue.send(list(queue.letters))
    handled = client.dead_letters.redrive(action="log", error="IT BROKE", limit=1)
    assert [str(one.result) for one in handled] == ["redriven"]
    assert len(queue.visible) == 5
    again = sorted(str(one.result) for one in client.dead_letters.redrive())
    assert again == ["dropped", *["redriven"] * 4], "both letters, or none if an earlier call redrove the task"
    assert [world.row(name)["run"] for name in "abc"] == [2, 2, 2]
    assert queue.visible == []


def test_letters_that_are_kept_or_not_selected_do_not_count_for_the_limit(
    client: TaskClient, queue: MemoryDeadLetterQueue
) -> None:
    """Else a call that is repeated would never come past them."""
    for call in (
        lambda: results(client.dead_letters.redrive(error="broke", limit=1)),
        lambda: results(client.dead_letters.redrive(limit=1)),
        lambda: results(client.dead_letters.purge(error="broke", limit=1)),
    ):
        queue.put("no letter")
        queue.visible.sort(key=lambda message: message.body, reverse=True)  # before those of a, b and c
        handled = call()
        assert sum(result != "kept" for result in handled.values()) == 1, handled
    assert queue.counts().visible == 3


def test_a_task_that_another_replaces_deletes_or_redrives_first_is_left_alone(client: TaskClient, world: World) -> None:
    other = client_of(world)
    replaced = {**world.row("a"), "createdAt": "2026-12-31T12:00:59Z"}

    def first() -> None:
        world.rigged.put(replaced)
        other.delete("b")
        world.clock.forward(seconds=1)
        other.redrive("c")

    with be_first(world, first):
        assert results(client.dead_letters.redrive()) == {"a": "dropped", "b": "dropped", "c": "dropped"}
    assert (world.row("a"), world.row("c")["run"]) == (replaced, 2)


def test_what_fails_again_meanwhile_is_kept(client: TaskClient, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "_CHUNK", 1)
    handled = client.dead_letters.redrive()
    first = next(handled)
    world.next_tick()
    rest = list(handled)
    assert [str(one.result) for one in (first, *rest)] == ["redriven"] * 3 + ["kept"] * 3
    assert rest[-1].reason == "its task failed again since this call began"
    letters = client.dead_letters.list().letters
    assert {letter.task_id: letter.state for letter in letters} == dict.fromkeys("abc", FAILED)
    assert [world.row(name)["run"] for name in "abc"] == [2, 2, 2]


def test_messages_are_released_when_the_table_does_not_answer_or_the_caller_stops(
    client: TaskClient, world: World, queue: MemoryDeadLetterQueue
) -> None:
    handled = client.dead_letters.redrive(dry_run=True)
    next(handled)
    assert len(queue.hidden) == 3
    del handled
    assert (len(queue.visible), queue.hidden) == (3, [])
    world.rigged.throttled = lambda change: True
    unknown = list(client.dead_letters.redrive())
    assert {str(one.result) for one in unknown} == {"unknown"}
    assert {one.reason for one in unknown} == {f"cannot change '{name}': {THROTTLED.error}" for name in "abc"}
    assert (len(queue.visible), queue.hidden) == (3, [])
    world.rigged.before_read = raises_for(*"abc", error=StoreError("no answer"))
    for call in (client.dead_letters.list, lambda: list(client.dead_letters.redrive())):
        with pytest.raises(StoreError, match="no answer"):
            call()
        assert (len(queue.visible), queue.hidden) == (3, [])


def test_a_letter_that_can_not_be_deleted_says_so(
    client: TaskClient, queue: MemoryDeadLetterQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "delete", lambda messages: [False] * len(messages))
    first = next(client.dead_letters.redrive())
    assert (str(first.result), first.reason) == ("redriven", "its message could not be deleted; a later call drops it")
    monkeypatch.undo()
    assert {letter.state for letter in client.dead_letters.list().letters} == {REDRIVEN}


def test_no_more_messages_are_hidden_at_a_time_than_the_bound(
    client: TaskClient, queue: MemoryDeadLetterQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert timedelta(seconds=HIDDEN_SECONDS) >= 1000 * timedelta(milliseconds=100), "1,000 calls to list 10,000"
    monkeypatch.setattr(dead_letters, "MAX_HIDDEN", 20)
    for n in range(40):
        queue.put(f"no letter {n}")
    page = client.dead_letters.list(limit=20)
    assert (len(page.letters), page.complete) == (20, False)
    handled = client.dead_letters.redrive()
    assert len(list(handled)) <= 30
    assert not handled.complete
    for verb, limit in (("list", 0), ("list", 10_001), ("redrive", 0), ("purge", -1)):
        with pytest.raises(InvalidInput, match=f"limit: {limit} is not accepted; expected a "):
            getattr(client.dead_letters, verb)(limit=limit)
    for verb in ("redrive", "purge"):
        with pytest.raises(
            InvalidInput, match="error: '' is not accepted; expected a part of the error as text, not empty"
        ):
            getattr(client.dead_letters, verb)(error="")


@pytest.fixture
def sqs() -> Iterator[Any]:
    with mock_aws():
        yield boto3.client("sqs", region_name="us-east-1")


@pytest.mark.parametrize("kind", ["memory", "sqs"])
def test_what_a_queue_promises(sqs: Any, kind: str) -> None:
    url = sqs.create_queue(QueueName="dead-letters")["QueueUrl"]
    memory = MemoryDeadLetterQueue()
    queue: DeadLetterQueue = memory if kind == "memory" else SqsDeadLetterQueue(lambda: sqs, url, wait_seconds=0)
    for n in range(23):
        memory.put(f"body {n}")
        sqs.send_message(QueueUrl=url, MessageBody=f"body {n}")
    assert (queue.counts().visible, queue.counts().hidden) == (23, 0)
    received = [*queue.receive(), *queue.receive(), *queue.receive()]
    assert {one.body for one in received} == {f"body {n}" for n in range(23)}
    assert queue.receive() == []
    assert (queue.counts().visible, queue.counts().hidden) == (0, 23)
    assert queue.delete(received[:12]) == [True] * 12
    queue.release(received[12:])
    assert (queue.counts().visible, queue.counts().hidden) == (11, 0)
    again = {one.message_id for one in [*queue.receive(), *queue.receive()]}
    assert again == {one.message_id for one in received[12:]}


def test_a_queue_that_is_not_there(sqs: Any) -> None:
    queue = SqsDeadLetterQueue(lambda: sqs, "https://sqs.us-east-1.amazonaws.com/123456789012/none")
    for call in (queue.receive, queue.counts):
        with pytest.raises(QueueError, match="cannot read the dead-letter queue"):
            call()
    memory = MemoryDeadLetterQueue()
    memory.put("x")
    assert list(queue.delete(memory.receive())) == [False]
    queue.release(memory.hidden)

"""Targets answer 4xx or 5xx, late, hang up, or take a part of a batch: a failure, tried again as the policy says."""

from __future__ import annotations

import json
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

import boto3
import pytest
from tests.builders import key_of
from tests.faults.conftest import NewWorld
from tests.ports import reserved_port
from tests.sandbox.seam import Fault
from tests.sandbox.stream import Record
from tests.unit.actions.support import a_rude_server

from dynatick.domain.task import is_own_row
from dynatick_stack.demo.receiver import Call, Receiver

REGION, ACCOUNT = "us-east-1", "000000000000"


class Targets:
    """A queue for each kind; events come through a bus."""

    def __init__(self, endpoint: str) -> None:
        self._sqs, events = (boto3.client(name, endpoint_url=endpoint) for name in ("sqs", "events"))
        name = f"targets-{uuid.uuid4().hex}"
        kinds = ("sqs", "eventbridge")
        self._urls = {kind: self._sqs.create_queue(QueueName=f"{name}-{kind}")["QueueUrl"] for kind in kinds}
        arns = {kind: f"arn:aws:sqs:{REGION}:{ACCOUNT}:{name}-{kind}" for kind in self._urls}
        bus = events.create_event_bus(Name=name)["EventBusArn"]
        events.put_rule(Name=name, EventBusName=name, EventPattern='{"source": ["dynatick"]}')
        events.put_targets(Rule=name, EventBusName=name, Targets=[{"Id": "q", "Arn": arns["eventbridge"]}])
        self.payloads: Mapping[str, dict[str, Any]] = {
            "sqs": {"queueArn": arns["sqs"], "message": "x"},
            "eventbridge": {"eventBusArn": bus},
        }
        self.environ = {"DYNATICK_ALLOWED_TARGET_ARNS": f"{arns['sqs']},{bus}"}
        self.of_ends = {
            "DYNATICK_OUTCOME_EVENTS": "all",
            "DYNATICK_OUTCOME_EVENTS_BUS": name,
            "DYNATICK_LOST_EVENTS_QUEUE_URL": self._urls["sqs"],
        }

    def received(self, kind: str) -> Counter[tuple[str, str]]:
        """How often each task was sent, with its idempotency key. The messages are taken out."""
        return Counter(_task_of(kind, message) for message in self._messages(kind))

    def ends(self) -> list[dict[str, Any]]:
        """What the events of ends say, on the bus and set aside. The messages are taken out."""
        on_bus = [json.loads(message["Body"])["detail"] for message in self._messages("eventbridge")]
        return on_bus + [json.loads(json.loads(message["Body"])["Detail"]) for message in self._messages("sqs")]

    def _messages(self, kind: str) -> Iterator[dict[str, Any]]:
        while messages := self._sqs.receive_message(
            QueueUrl=self._urls[kind], MaxNumberOfMessages=10, MessageAttributeNames=["All"]
        ).get("Messages"):
            for message in messages:
                yield message
                self._sqs.delete_message(QueueUrl=self._urls[kind], ReceiptHandle=message["ReceiptHandle"])


def _task_of(kind: str, message: Mapping[str, Any]) -> tuple[str, str]:
    if kind == "eventbridge":
        facts = json.loads(message["Body"])["detail"]["dynatick"]
        return facts["taskId"], facts["idempotencyKey"]
    attributes = {name: one["StringValue"] for name, one in message["MessageAttributes"].items()}
    return attributes["dynatickTaskId"], attributes["dynatickIdempotencyKey"]


@pytest.mark.parametrize(("kind", "at"), [("sqs", "messages"), ("eventbridge", "events")])
def test_fault_05_a_target_takes_part_of_a_batch(engine: str, new_world: NewWorld, kind: str, at: str) -> None:
    """What was refused is tried again, and nothing else is. SNS answers by id, another kind by position."""
    targets = Targets(engine)
    world = new_world(**targets.environ)
    ids = world.insert_soon(120, action=kind, payload=targets.payloads[kind], retryPolicy={"minBackoffSeconds": 0})
    outcome = world.next_tick(faults=[Fault(at=at, do="refuse parts", amount=0.4, times=8)])
    assert outcome.what == "returned"
    assert outcome.hits == {f"refuse parts @ {at}": 8}
    received = targets.received(kind)
    assert 0 < len(received) < len(ids)
    rows = world.rows()
    completed = {task_id for task_id, row in rows.items() if row.get("outcome") == "completed"}
    assert completed == {task_id for task_id, _ in received}, "each entry's own result was recorded"
    refusals = {"the target refused it (InternalError)", "the target refused it (InternalFailure)"}
    for task_id in world.open():
        (attempt,) = rows[task_id]["attempts"]
        assert attempt["error"] in refusals
    world.finish()
    received += targets.received(kind)
    assert received == {(task_id, key_of(row)): 1 for task_id, row in world.rows().items()}
    world.assert_survived(executed=len(ids), elsewhere=set(ids))


def _changes(before: Mapping[str, Any], after: Mapping[str, Any], now: datetime) -> list[Record]:
    """What the stream says of tasks that have changed. (The emulator's has no record of a write by PartiQL.)"""
    return [
        {
            "eventID": task_id,
            "dynamodb": {
                "Keys": {"taskId": {"S": task_id}},
                "OldImage": before[task_id],
                "NewImage": after[task_id],
                "SequenceNumber": f"{number}",
                "ApproximateCreationDateTime": now.timestamp(),
            },
        }
        for number, task_id in enumerate(sorted(before))
        if before[task_id] != after[task_id] and not is_own_row(task_id)
    ]


def test_fault_16_each_end_becomes_an_event(engine: str, new_world: NewWorld) -> None:
    """The scheduler dies before and after it has put events, the bus takes a part of them, or nothing for minutes."""
    targets = Targets(engine)
    world = new_world(**targets.of_ends)
    completed, failed = world.insert_soon(40), {f"bad-{n}" for n in range(5)}
    for task_id in failed:
        world.put(taskId=task_id, delaySeconds=30, payload={"permanent": True})
    cancelled = completed[:5]
    for task_id in cancelled:
        world.cancel(task_id)
    world.deliver_stream()
    seen = Counter(end["taskId"] for end in targets.ends())
    assert seen == dict.fromkeys(cancelled, 1), "nothing else has ended yet"

    before = world.items()
    world.finish()
    records = _changes(before, world.items(), world.clock())
    for fault in (Fault(at="events", do="kill before"), Fault(at="events", do="kill after")):
        assert world.invoke({"Records": records[:30]}, function="scheduler", faults=[fault]).what == "killed"
    world.deliver(records[:20], faults=[Fault(at="events", do="refuse parts", amount=0.5, times=None)])
    world.deliver(records[20:30], faults=[Fault(at="events", do="lose response")])
    world.clock.to(world.clock() + timedelta(minutes=2))  # by now they are old: they don't hold up the stream
    world.deliver(records[30:], faults=[Fault(at="events", do="fail before", times=None)])

    ends = targets.ends()
    outcome_of = {task_id: row["outcome"] for task_id, row in world.rows().items()}
    said = {(end["taskId"], end["outcome"]) for end in ends}
    assert said == {(task_id, outcome_of[task_id]) for task_id in {*completed, *failed} - set(cancelled)}
    assert len(ends) > len(said), "the events that a process had put before it died came again"
    assert len({end["id"] for end in ends}) == len(said), "an event that comes again has the same id"
    world.assert_survived(failed=len(failed), cancelled=len(cancelled))


EACH = 5
POLICY = {"maximumRetryAttempts": 2, "minBackoffSeconds": 0}
# By path: the status of each call with the same key in turn, the last one from then on.
ANSWERS = {
    "ok": [204],
    "made": [201],
    "bad": [400],
    "unknown": [404],
    "gone": [410],
    "moved": [302],
    "early-once": [425, 200],
    "busy-once": [429, 200],
    "broken-once": [500, 200],
    "away-twice": [503, 502, 200],
    "broken": [500],
    "away": [504],
    "late-once": [-1, 200],  # no answer in time
    "late": [-1],
}
TRIES = {"bad": 1, "unknown": 1, "gone": 1, "moved": 1, "broken": 3, "away": 3, "late": 3}  # without success


def test_fault_14_targets_that_fail(new_world: NewWorld) -> None:
    answered: list[tuple[str, str, str, int]] = []  # (task id, key, attempt, status)

    def answer(call: Call, earlier: int) -> int:
        statuses = ANSWERS[call.path.split("/")[1]]
        status = statuses[min(earlier, len(statuses) - 1)]
        answered.append((call.task_id, call.key, call.attempt, status))
        if status < 0:
            time.sleep(3)  # wait: the target is slower than its task allows
            return 200  # too late to be heard
        return status

    # The rude one closes at once; at the port nobody listens.
    with Receiver(answer) as receiver, a_rude_server(lambda connection: None) as rude, reserved_port() as port:
        nobody = f"http://127.0.0.1:{port}/"
        world = new_world(DYNATICK_WEBHOOK_PRIVATE_HOSTS="127.0.0.1")
        urls = {name: f"{receiver.url}/{name}" for name in ANSWERS} | {"rude": rude, "nobody": nobody}
        for name, url in urls.items():
            payload = {"url": url, "data": {}, "timeoutSeconds": 1.5 if "late" in name else 30}
            world.insert_soon((f"{name}-{n}" for n in range(EACH)), action="webhook", retryPolicy=POLICY,
                              payload=payload, fails=name in TRIES or name not in ANSWERS)  # fmt: skip
        world.next_tick()
        world.finish()

    rows = world.rows()
    attempts = Counter(task_id for task_id, *_ in answered)
    for name in urls:
        for task_id in (f"{name}-{n}" for n in range(EACH)):
            row, succeeds = rows[task_id], name not in TRIES and name in ANSWERS
            assert row["outcome"] == ("completed" if succeeds else "failed"), row
            assert row["attempt"] == (len(ANSWERS[name]) if succeeds else TRIES.get(name, 3)), row
            assert attempts[task_id] == (row["attempt"] if name in ANSWERS else 0)
            assert succeeds or row["error"]
    assert all(key == key_of(rows[task_id]) for task_id, key, _, _ in answered)
    assert {(task_id, attempt) for task_id, _, attempt, _ in answered} == {
        (task_id, str(number)) for task_id, times in attempts.items() for number in range(1, times + 1)
    }
    succeeded = {task_id for task_id, _, _, status in answered if 200 <= status < 300}
    failed = {task_id for task_id, row in rows.items() if row["outcome"] == "failed"}
    assert world.dead_letter_ids() == failed
    assert len(succeeded) == EACH * (len(ANSWERS) - len(TRIES))
    world.assert_survived(executed=len(succeeded), failed=len(failed), elsewhere=succeeded)

"""Targets that batches go to, on the fault tests' engine, and what has come there."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Mapping
from typing import Any

import boto3

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
        self.environ = {"DYNATICK_ALLOWED_QUEUE_ARNS": arns["sqs"], "DYNATICK_ALLOWED_EVENT_BUS_ARNS": bus}

    def come(self, kind: str) -> Counter[tuple[str, str]]:
        """How often each task came, with its idempotency key. They are taken out."""
        found: Counter[tuple[str, str]] = Counter()
        while messages := self._sqs.receive_message(
            QueueUrl=self._urls[kind], MaxNumberOfMessages=10, MessageAttributeNames=["All"]
        ).get("Messages"):
            for message in messages:
                found[_task_of(kind, message)] += 1
                self._sqs.delete_message(QueueUrl=self._urls[kind], ReceiptHandle=message["ReceiptHandle"])
        return found


def _task_of(kind: str, message: Mapping[str, Any]) -> tuple[str, str]:
    if kind == "eventbridge":
        facts = json.loads(message["Body"])["detail"]["dynatick"]
        return facts["taskId"], facts["idempotencyKey"]
    attributes = {name: one["StringValue"] for name, one in message["MessageAttributes"].items()}
    return attributes["dynatickTaskId"], attributes["dynatickIdempotencyKey"]

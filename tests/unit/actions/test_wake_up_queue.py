"""The queue of wake-ups: batches, delays of whole seconds, and a queue that is down."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError, ConnectTimeoutError
from tests.builders import NOON

from dynatick.actions.allow_list import AllowedArns
from dynatick.actions.wake_up_queue import QueueWakeUps


class Sqs:
    def __init__(self, *answers: Mapping[str, Any] | Exception) -> None:
        self.answers = list(answers)
        self.calls: list[Mapping[str, Any]] = []

    def send_message_batch(self, **request: Any) -> Mapping[str, Any]:
        self.calls.append(request)
        answer = self.answers.pop(0) if self.answers else {"Successful": request["Entries"]}
        if isinstance(answer, Exception):
            raise answer
        return answer


def queue(sqs: Sqs) -> QueueWakeUps:
    return QueueWakeUps(sqs, "https://sqs.example/1/wake-ups", clock=lambda: NOON, lead=timedelta(seconds=1))


def delays(*seconds: float) -> list[int]:
    sqs = Sqs()
    assert queue(sqs).send([({"n": n}, NOON + timedelta(seconds=s)) for n, s in enumerate(seconds)]) == 0
    return [entry["DelaySeconds"] for call in sqs.calls for entry in call["Entries"]]


def test_a_wake_up_is_received_a_lead_before_its_instant_rounded_down() -> None:
    assert delays(30, 30.999, 31, 1.5, 0, -100, 901, 5000) == [29, 29, 30, 0, 0, 0, 900, 900]


def test_ten_wake_ups_share_a_call() -> None:
    sqs = Sqs()
    assert queue(sqs).send([({"n": n}, NOON) for n in range(23)]) == 0
    assert [len(call["Entries"]) for call in sqs.calls] == [10, 10, 3]
    assert all(call["QueueUrl"] == "https://sqs.example/1/wake-ups" for call in sqs.calls)
    bodies = [json.loads(entry["MessageBody"]) for call in sqs.calls for entry in call["Entries"]]
    assert bodies == [{"n": n} for n in range(23)]
    assert [entry["Id"] for entry in sqs.calls[0]["Entries"]] == [str(n) for n in range(10)]


def test_large_wake_ups_share_a_call_only_as_far_as_they_fit() -> None:
    sqs = Sqs()
    queue(sqs).send([({"ids": "x" * 100_000}, NOON)] * 5)
    assert [len(call["Entries"]) for call in sqs.calls] == [2, 2, 1]


@pytest.mark.parametrize(
    "error", [ClientError({"Error": {"Code": "Throttled"}}, "SendMessageBatch"), ConnectTimeoutError(endpoint_url="x")]
)
def test_a_queue_that_is_down_fails_nothing_and_is_not_asked_twice(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    sqs = Sqs(error)
    assert queue(sqs).send([({"n": n}, NOON) for n in range(13)]) == 10
    assert len(sqs.calls) == 2
    (record,) = caplog.records
    assert (record.__dict__["action"], record.__dict__["count"]) == ("wake_ups_unsent", 10)


def test_a_message_that_is_refused_is_counted() -> None:
    sqs = Sqs({"Successful": [{"Id": "0"}], "Failed": [{"Id": "1", "Message": "no"}]})
    assert queue(sqs).send([({"n": n}, NOON) for n in range(2)]) == 1


def test_nothing_is_sent_for_nothing() -> None:
    sqs = Sqs()
    assert queue(sqs).send([]) == 0
    assert sqs.calls == []


def test_no_pattern_of_allowed_queues_reaches_the_own_one() -> None:
    allowed = AllowedArns("AllowedQueueArns", ["arn:aws:sqs:*:*:*"], own_queue_url="https://sqs.example/123/wake-ups")
    assert "arn:aws:sqs:eu-central-1:123:mail" in allowed
    assert "arn:aws:sqs:eu-central-1:456:wake-ups" in allowed
    assert "arn:aws:sqs:eu-central-1:123:wake-ups" not in allowed
